//! What a row of the table is, and what its peer has to act with.

use pageferry::Level;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The byte that honest messages are full of.
pub const HONEST: u8 = 0x11;
/// The byte that is stored by an attack.
pub const FORGED: u8 = 0x99;

/// The end of the library that is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// `Channel::receiver`.
    Receiver,
    /// `Channel::trusted_receiver`.
    TrustedReceiver,
    /// `Channel::sender`.
    Sender,
    /// `Channel::trusted_sender`.
    TrustedSender,
}

/// What must hold. In each case there is no signal and no panic, memory stays within the budget, and time is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// An error that blames the peer, and nothing more comes. What was received before stays as it was.
    Refused,
    /// The peer's memory is more than this side allows.
    OverBudget,
    /// What was received is what was sent, and stays so. Then the peer is gone.
    Snapshot,
    /// What was received changes afterwards: so much is *not* claimed at this level.
    Changes,
    /// The peer is gone.
    Dead,
    /// The wait has an end, and the channel goes on.
    Late,
    /// The peer hurts only itself: nothing is claimed but what holds in each case.
    Alive,
}

/// A row of the table.
pub struct Row {
    pub level: Level,
    pub against: Against,
    pub attack: &'static str,
    pub holds: Holds,
    pub peer: Box<dyn Fn(&Stage)>,
    /// The peer has made the sockets, and kept a copy of the victim's end.
    pub shares: bool,
}

impl Row {
    pub fn new(
        level: Level,
        against: Against,
        attack: &'static str,
        holds: Holds,
        peer: impl Fn(&Stage) + 'static,
    ) -> Row {
        Row { level, against, attack, holds, peer: Box::new(peer), shares: false }
    }

    /// The peer has made the sockets, and kept a copy of the victim's end: see [`Stage::victims_end`].
    pub fn sharing(mut self) -> Row {
        self.shares = true;
        self
    }

    pub fn name(&self) -> String {
        format!("{:?} at {}: {}", self.against, self.level, self.attack)
    }
}

/// What the peer's process has.
pub struct Stage {
    pub level: Level,
    socket: std::cell::Cell<Option<OwnedFd>>,
    control: UnixStream,
    shared: Option<OwnedFd>,
}

impl Stage {
    pub fn inherited(row: &Row, numbers: [&str; 3]) -> Stage {
        let taken = |number: &str| {
            let number = number.parse().expect("the number of a descriptor");
            // SAFETY: the victim has left these descriptors to this process, and nobody else here uses them.
            unsafe {
                libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
                OwnedFd::from_raw_fd(number)
            }
        };
        Stage {
            level: row.level,
            socket: std::cell::Cell::new(Some(taken(numbers[0]))),
            control: taken(numbers[1]).into(),
            shared: row.shares.then(|| taken(numbers[2])),
        }
    }

    /// The socket to the victim.
    pub fn socket(&self) -> OwnedFd {
        self.socket.take().expect("it is taken once")
    }

    /// The same socket as the victim's.
    pub fn victims_end(&self) -> &OwnedFd {
        self.shared.as_ref().expect("the row says that the peer has it")
    }

    /// Waits until the victim has received, or sent, one more message; or is done.
    pub fn go(&self) {
        let _ = (&self.control).read(&mut [0]);
    }

    /// Tells the victim that the attack was made, so that no row passes by an attack that did not happen.
    pub fn attacked(&self) {
        let _ = (&self.control).write(b"A");
    }

    /// Does nothing until the victim is done.
    pub fn linger(&self) {
        let mut bytes = [0; 64];
        while (&self.control).read(&mut bytes).is_ok_and(|count| count > 0) {}
        std::thread::sleep(Duration::from_millis(1));
    }
}
