//! Channels to programs that this one starts.
//!
//! # What it holds
//! [`Command`] starts a program with one socket; [`Child`] is what the starter has of it, [`Parent`] what the
//! started program has. Each channel is asked for on both sides, in the same order: one side says `sender`,
//! the other `receiver`.
//!
//! # Trust
//! A program that starts *itself* has the same code on both sides, so such channels are of [`Same`]. Any
//! other program may be hostile ([`Guarded`]). A started program can take its parent for [`Same`]: who starts
//! a process can write to its memory. A child of the same user can write to its parent's memory as well, unless it
//! is [confined](crate::Confined).

use super::{Config, Gap, Peer, Receiver, Sender, receiver_from, receiver_over, sender_over};
use crate::error::{Broken, Error, PeerFault, Usage};
use crate::sync::Instant;
use crate::sys::confine::Cage;
use crate::sys::socket::{self, Came, Socket};
use crate::sys::spawn;
use crate::trust::{Guarded, Same, Trust};
use core::marker::PhantomData;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Names the descriptor to a started program.
const VARIABLE: &str = "PAGEFERRY_PARENT";

/// A program to be started.
#[derive(Debug)]
pub struct Command<T: Trust = Guarded> {
    command: std::process::Command,
    _trust: PhantomData<fn() -> T>,
}

impl Command<Guarded> {
    /// A program that may be hostile.
    pub fn new(program: impl AsRef<OsStr>) -> Command<Guarded> {
        Command { command: std::process::Command::new(program), _trust: PhantomData }
    }
}

impl Command<Same> {
    /// The program that runs now.
    pub fn this_program() -> Result<Command<Same>, Error> {
        let program =
            std::env::current_exe().map_err(|_| Usage::Verb("this program's own file is not to be found"))?;
        Ok(Command { command: std::process::Command::new(program), _trust: PhantomData })
    }
}

impl<T: Trust> Command<T> {
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Command<T> {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Command<T> {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Command<T> {
        self.command.env(key, value);
        self
    }

    /// For all else: standard streams, directories, and so on.
    pub fn as_std(&mut self) -> &mut std::process::Command {
        &mut self.command
    }

    /// Starts the program.
    pub fn spawn(self) -> Result<Child<T>, Error> {
        self.spawn_in(None)
    }

    pub(super) fn spawn_in(mut self, cage: Option<(Cage, Vec<Gap>)>) -> Result<Child<T>, Error> {
        let (ours, theirs) = socket::pair()?;
        self.command.env(VARIABLE, theirs.as_raw_fd().to_string());
        let leases = cage.as_ref().is_some_and(|(cage, _)| cage.is_whole());
        let (cage, gaps) = cage.unzip();
        let process = spawn::with_descriptor(&mut self.command, &theirs, cage)?;
        let control = Socket::new(ours).map_err(|_| Usage::NotASocket)?;
        Ok(Child { process, control, gaps, leases, _trust: PhantomData })
    }
}

/// A program that was started. Dropping it does not end the program: it sees that its channels are closed.
#[derive(Debug)]
pub struct Child<T: Trust> {
    process: std::process::Child,
    control: Socket,
    gaps: Option<Vec<Gap>>,
    /// It is so confined that what it lends by leases can be believed.
    leases: bool,
    _trust: PhantomData<fn() -> T>,
}

/// Which end the other side is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Sender = b's' as isize,
    Receiver = b'r' as isize,
}

impl<T: Trust> Child<T> {
    /// A channel to the child, which asks its [`Parent`] for a receiver.
    pub fn sender(&self, config: Config) -> Result<Sender<T>, Error> {
        sender_over(self.hand_over(End::Receiver)?, config)
    }

    /// A channel from the child, which asks its [`Parent`] for a sender.
    pub fn receiver(&self, config: Config) -> Result<Receiver<T>, Error> {
        let peer = match (T::TRUSTS, self.leases) {
            (true, _) => Peer::Same,
            (false, true) => Peer::Confined,
            (false, false) => Peer::Stranger,
        };
        receiver_from(self.hand_over(End::Sender)?, config, peer)
    }

    /// A socket for [`crate::Fanout::add`], to the child, which asks its [`Parent`] for a receiver.
    pub fn socket_to_receiver(&self) -> Result<OwnedFd, Error> {
        self.hand_over(End::Receiver)
    }

    fn hand_over(&self, end: End) -> Result<OwnedFd, Error> {
        let (ours, theirs) = socket::pair()?;
        let sent = socket::send(self.control.as_fd(), &[end as u8], &[theirs.as_fd()]);
        sent.map_err(|failed| match failed.errno {
            crate::sys::Errno::PIPE | crate::sys::Errno::CONNRESET => Error::Peer(PeerFault::Dead),
            _ => failed.into(),
        })?;
        Ok(ours)
    }

    /// What its confinement leaves open: nothing, unless [`crate::Confined::as_far_as_possible`] was asked for.
    /// `None`: it is not confined.
    pub fn gaps(&self) -> Option<&[Gap]> {
        self.gaps.as_deref()
    }

    /// The process: to be waited for, or killed.
    pub fn process(&mut self) -> &mut std::process::Child {
        &mut self.process
    }
}

/// The program that has started this one.
#[derive(Debug)]
pub struct Parent {
    control: Socket,
}

impl Parent {
    /// The parent, where it has used [`Command`] to start this program; `None` otherwise, and from the second
    /// call on.
    pub fn get() -> Result<Option<Parent>, Error> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let number = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<i32>().ok());
        let Some(number) = number.filter(|&number| number > 2) else { return Ok(None) };
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        let control = Socket::new(spawn::inherited(number)?).map_err(|_| Usage::NotASocket)?;
        Ok(Some(Parent { control }))
    }

    /// A channel from the parent, which asks its [`Child`] for a sender.
    pub fn receiver(&self, config: Config) -> Result<Receiver<Same>, Error> {
        receiver_over(self.take(End::Receiver, config.handshake_timeout)?, config)
    }

    /// A channel to the parent, which asks its [`Child`] for a receiver.
    pub fn sender(&self, config: Config) -> Result<Sender<Same>, Error> {
        sender_over(self.take(End::Sender, config.handshake_timeout)?, config)
    }

    fn take(&self, end: End, timeout: Duration) -> Result<OwnedFd, Error> {
        let until = Instant::now().checked_add(timeout);
        let mut byte = [0; 2];
        let packet = loop {
            match socket::recv_any(self.control.as_fd(), &mut byte)? {
                Came::Packet(packet) => break packet,
                Came::End => return Err(PeerFault::Dead.into()),
                Came::Nothing => (),
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Err(Error::TimedOut(timeout));
            }
            socket::wait_readable(&[self.control.as_fd()], until)?;
        };
        let mut fds = packet.fds;
        match (packet.len, fds.pop()) {
            (1, Some(fd)) if byte[0] == end as u8 && fds.is_empty() => Ok(fd),
            _ => Err(Broken::Handshake("parent and child ask for their channels in different orders").into()),
        }
    }
}
