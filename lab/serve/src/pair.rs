//! A real connection and the one to the machine: bytes go both ways, and so do ends.
//!
//! What is not taken by one side is not read from the other, so windows close as they would. An end of a stream is
//! handed on as one, behind all bytes that came before it. Whatever else ends one side resets the other: a client never
//! takes a part for the whole.
//!
//! When the machine has said all, and the client has it, the client may still speak; one that neither speaks nor ends
//! is waited for [`LINGER_NS`] and no longer.

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// How long a client is waited for that has been told the end and says nothing.
const LINGER_NS: u64 = 5_000_000_000;

/// A connection of the host, and the one of the machine that it is carried over.
pub(super) struct Pair {
    real: TcpStream,
    pub(super) socket: SocketHandle,
    /// The real side may have something, or room, and was not found without since.
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The real side has failed.
    pub(super) failed: bool,
    /// Bytes that were handed to the machine's TCP; and whether it has acknowledged some, or the connection alone where
    /// there were none.
    handed_bytes: usize,
    answered: bool,
    /// The real side has said all.
    real_ended: bool,
    /// The machine has sent its end: nothing but what was received before is missing.
    machine_finished: bool,
    /// The real side has all that the machine has said, and its end.
    delivered: bool,
    /// When it is not waited for any more.
    ends_at_ns: Option<u64>,
}

impl Pair {
    pub(super) fn new(real: TcpStream, socket: SocketHandle) -> Pair {
        Pair {
            real,
            socket,
            readable: true,
            writable: true,
            failed: false,
            handed_bytes: 0,
            answered: false,
            real_ended: false,
            machine_finished: false,
            delivered: false,
            ends_at_ns: None,
        }
    }

    /// The machine has not yet taken anything: its answer to the connection, or to what was said first, is missing.
    pub(super) fn is_beginning(&self) -> bool {
        !self.answered
    }

    /// The machine has said all, and the real side has it.
    pub(super) fn is_delivered(&self) -> bool {
        self.delivered
    }

    /// When it is not waited for any more, if that is known.
    pub(super) fn ends_at_ns(&self) -> Option<u64> {
        self.ends_at_ns
    }

    /// Moves what can be moved; false when the pair is over.
    pub(super) fn pump(&mut self, socket: &mut tcp::Socket<'_>, now_ns: u64) -> bool {
        use tcp::State;
        if self.failed || self.hand_to_machine(socket, now_ns).is_err() || self.hand_to_real(socket).is_err()
        {
            return false;
        }
        let state = socket.state();
        if matches!(state, State::SynSent | State::SynReceived) {
            return true;
        }
        self.answered |= self.handed_bytes == 0 || socket.send_queue() < self.handed_bytes;
        self.machine_finished |=
            matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait);
        if state == State::Closed && !self.machine_finished {
            // The machine has reset it. What came before is part of nothing whole, and a client that takes nothing
            // would keep it here for ever.
            return false;
        }
        if socket.may_recv() {
            // More may come, or is there and was not taken yet.
            return true;
        }
        if !self.delivered {
            // Without an end of its own it was reset.
            self.delivered = self.machine_finished && self.real.shutdown(Shutdown::Write).is_ok();
            if !self.delivered {
                return false;
            }
            self.ends_at_ns = Some(now_ns + LINGER_NS);
        }
        let silent = self.ends_at_ns.is_some_and(|at| at <= now_ns);
        socket.is_active() && state != State::TimeWait && !silent
    }

    fn hand_to_machine(&mut self, socket: &mut tcp::Socket<'_>, now_ns: u64) -> io::Result<()> {
        while self.readable && !self.real_ended && socket.can_send() {
            let real = &mut self.real;
            let read = socket.send(|room| match real.read(room) {
                Ok(len) => (len, Ok(len)),
                Err(e) => (0, Err(e)),
            });
            match read.map_err(|_| io::ErrorKind::NotConnected)? {
                Ok(0) => {
                    self.real_ended = true;
                    socket.close();
                }
                Ok(len) => {
                    self.handed_bytes += len;
                    self.ends_at_ns = self.ends_at_ns.map(|_| now_ns + LINGER_NS);
                }
                Err(e) => self.readable = is_for_later(e)?,
            }
        }
        Ok(())
    }

    fn hand_to_real(&mut self, socket: &mut tcp::Socket<'_>) -> io::Result<()> {
        while self.writable && socket.can_recv() {
            let real = &mut self.real;
            let written = socket.recv(|bytes| match real.write(bytes) {
                Ok(len) => (len, Ok(len)),
                Err(e) => (0, Err(e)),
            });
            match written.map_err(|_| io::ErrorKind::NotConnected)? {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) => self.writable = is_for_later(e)?,
            }
        }
        Ok(())
    }
}

/// After an error of the host's: whether to try again at once, or when there is news.
fn is_for_later(e: io::Error) -> io::Result<bool> {
    match e.kind() {
        io::ErrorKind::Interrupted => Ok(true),
        io::ErrorKind::WouldBlock => Ok(false),
        _ => Err(e),
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !self.delivered {
            // Closed without waiting, a connection is reset.
            let _ = rustix::net::sockopt::set_socket_linger(&self.real, Some(Duration::ZERO));
        }
    }
}
