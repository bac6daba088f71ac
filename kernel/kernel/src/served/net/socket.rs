//! A socket of the protocol server's, as processes have it: the calls of a descriptor, as requests.
//!
//! A call that waits asks again whenever something changes for its socket. A call on a stream for more bytes than a
//! data piece has is several requests: what several processes do with one connection may come between them. Bytes that
//! the program's memory did not take of a stream go back to the server.
//!
//! # Locks
//! None. What a socket is doing is the server's.
//!
//! # What can fail
//! What fails at the server; the caller's addresses; a sleep, by a signal; the server itself.

use super::super::answer::Answer;
use super::super::request::{Bytes, Done};
use super::client::NetService;
use super::config::NetServiceDefect;
use super::words::{Asked, Op, name_of, name_word, option_word, readiness_of, shutdown_word, told_error};
use crate::fs::{File, FileOps, either};
use crate::net::{FilePart, InetOps};
use crate::proc::Syscall;
use alloc::boxed::Box;
use core::net::{Ipv4Addr, SocketAddrV4};
use pageferry_abi::{
    Errno, Pid, Readiness, ReceiveMode, Received, SendMode, Shutdown, SocketKind, SocketOption,
};
use pageferry_hal::{Machine, Va};

/// The longest datagram.
const MOST_DATAGRAM_BYTES: usize = 65_507;

/// See the [module](self).
pub(crate) struct ServedSocket {
    /// Which server has it,
    server: Pid,
    /// as what.
    handle: u64,
    kind: SocketKind,
}

fn service<'a, M: Machine>(call: &'a Syscall<'_, M>) -> Result<&'a NetService<M>, Errno> {
    call.kernel.net_service.as_ref().ok_or(Errno::NotSupported)
}

/// What a call on a stream comes to that has moved `done` bytes when one of its requests fails: what is wrong with the
/// connection is told at once, all else with the next call.
fn cut_short(done: usize, error: Errno) -> Result<usize, Errno> {
    let is_passing = matches!(error, Errno::WouldBlock | Errno::Interrupted | Errno::Fault | Errno::NoMemory);
    if is_passing { either((done, Err(error))) } else { Err(error) }
}

impl ServedSocket {
    pub(super) fn new(server: Pid, handle: u64, kind: SocketKind) -> ServedSocket {
        ServedSocket { server, handle, kind }
    }

    fn asked(&self, op: Op, at: u64) -> Asked {
        Asked { handle: self.handle, ..Asked::new(op, at) }
    }

    /// One request.
    fn ask<M: Machine>(&self, call: &Syscall<'_, M>, asked: Asked, bytes: Bytes<'_>) -> Result<Done, Errno> {
        service(call)?.ask(call, self.server, asked, bytes, true)
    }

    /// A request that moves no bytes.
    fn simply<M: Machine>(&self, call: &Syscall<'_, M>, op: Op, at: u64) -> Result<Answer, Errno> {
        self.ask(call, self.asked(op, at), Bytes::None)?.answer()
    }

    /// Asks once, or until there is something else to say than that the call is to wait.
    fn until<M: Machine, R>(
        &self,
        call: &Syscall<'_, M>,
        nonblocking: bool,
        reason: &'static str,
        mut ask: impl FnMut() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match nonblocking {
            true => ask(),
            false => service(call)?.waiters.until(call, self.handle, reason, ask),
        }
    }

    /// Reads of a stream: what is there, at least a byte.
    fn read_stream<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        to: Va,
        len_bytes: usize,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        let most = service(call)?.most_bytes();
        let mut done = 0;
        loop {
            let len = most.min(len_bytes - done);
            let asked = Asked { len, ..self.asked(Op::Read, u64::from(done > 0)) };
            let read = self.until(call, nonblocking || done > 0, "netrd", || {
                let read = self.ask(call, asked, Bytes::To(to + done, len))?;
                read.answer.error.map_or(Ok(read), Err)
            });
            let read = match read {
                Ok(read) => read,
                Err(error) => return either((done, Err(error))),
            };
            let (taken, how) = read.moved;
            done += taken;
            if how.is_err() || taken < len || done == len_bytes {
                return either((done, how));
            }
        }
    }

    /// Writes to a stream: all, or what there is room for if it does not wait.
    fn write_stream<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        len_bytes: usize,
        nonblocking: bool,
        mut bring: impl FnMut(
            &mut dyn FnMut(Bytes<'_>) -> Result<Done, Errno>,
            usize,
            usize,
        ) -> Result<Done, Errno>,
    ) -> Result<usize, Errno> {
        let most = service(call)?.most_bytes();
        let mut done = 0;
        loop {
            let len = most.min(len_bytes - done);
            let wrote = self.until(call, nonblocking, "netwr", || {
                let mut ask = |bytes: Bytes<'_>| self.ask(call, self.asked(Op::Write, 0), bytes);
                let wrote = bring(&mut ask, done, len)?;
                wrote.answer.error.map_or(Ok(wrote), Err)
            });
            let wrote = match wrote {
                Ok(wrote) => wrote,
                Err(error) => return cut_short(done, error),
            };
            let (given, how) = wrote.moved;
            let put = (wrote.answer.value as usize).min(given);
            done += put;
            if put == given && (how.is_err() || given < len || done == len_bytes) {
                return either((done, how));
            }
        }
    }
}

impl<M: Machine> FileOps<M> for ServedSocket {
    fn read(
        &self,
        call: &Syscall<'_, M>,
        to: Va,
        len_bytes: usize,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        match self.kind {
            SocketKind::Datagram => Ok(self.receive_from(call, (to, len_bytes), nonblocking)?.0),
            SocketKind::Stream => self.read_stream(call, to, len_bytes, nonblocking),
        }
    }

    fn read_transfer(
        &self,
        _: &Syscall<'_, M>,
        _: ReceiveMode,
        _: Option<Va>,
        _: usize,
        _: bool,
    ) -> Result<Received, Errno> {
        Err(Errno::NotSupported)
    }

    fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        if mode == SendMode::Loan {
            return Err(Errno::NotSupported);
        }
        match self.kind {
            SocketKind::Datagram => self.send_to(call, (from, len_bytes), None, nonblocking),
            SocketKind::Stream => self.write_stream(call, len_bytes, nonblocking, |ask, done, len| {
                ask(Bytes::From(from + done, len))
            }),
        }
    }

    fn readiness(&self, call: &Syscall<'_, M>) -> Readiness {
        // Of a server that has died nothing is to be waited for.
        let over = Readiness { readable: true, writable: true, hung_up: true };
        let asked = self.asked(Op::Ready, 0);
        let ready = service(call).and_then(|s| s.ask(call, self.server, asked, Bytes::None, false)?.answer());
        ready.map_or(over, |answer| readiness_of(answer.value))
    }

    fn as_inet(&self) -> Option<&dyn InetOps<M>> {
        Some(self)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        let Ok(service) = service(call) else { return };
        if !service.has(NetServiceDefect::CloseUntold) {
            // A server that has died has no socket.
            _ = service.ask(call, self.server, self.asked(Op::Close, 0), Bytes::None, false);
        }
    }
}

impl<M: Machine> InetOps<M> for ServedSocket {
    fn kind(&self) -> SocketKind {
        self.kind
    }

    fn bind(&self, call: &Syscall<'_, M>, name: SocketAddrV4) -> Result<(), Errno> {
        self.simply(call, Op::Bind, name_word(Some(name))).map(|_| ())
    }

    fn listen(&self, call: &Syscall<'_, M>, backlog: usize) -> Result<(), Errno> {
        self.simply(call, Op::Listen, backlog as u64).map(|_| ())
    }

    fn accept(&self, call: &Syscall<'_, M>, nonblocking: bool) -> Result<(File<M>, SocketAddrV4), Errno> {
        let answer = self.until(call, nonblocking, "accept", || self.simply(call, Op::Accept, 0))?;
        let from = name_of(answer.more).ok_or(Errno::Io)?;
        Ok((File::new(ServedSocket::new(self.server, answer.value, SocketKind::Stream)), from))
    }

    fn connect(&self, call: &Syscall<'_, M>, to: SocketAddrV4, nonblocking: bool) -> Result<(), Errno> {
        let mut op = Op::Connect;
        self.until(call, nonblocking, "connec", || {
            let asked = core::mem::replace(&mut op, Op::ConnectOutcome);
            self.simply(call, asked, name_word(Some(to)))
        })
        .map(|_| ())
    }

    fn shutdown(&self, call: &Syscall<'_, M>, how: Shutdown) -> Result<(), Errno> {
        self.simply(call, Op::Shutdown, shutdown_word(how)).map(|_| ())
    }

    fn names(&self, call: &Syscall<'_, M>) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno> {
        let Answer { value, more, .. } = self.simply(call, Op::Names, 0)?;
        Ok((name_of(value).ok_or(Errno::Io)?, name_of(more)))
    }

    fn set_option(&self, call: &Syscall<'_, M>, option: SocketOption) -> Result<(), Errno> {
        self.simply(call, Op::SetOption, option_word(option)).map(|_| ())
    }

    fn take_error(&self, call: &Syscall<'_, M>) -> Result<Option<Errno>, Errno> {
        Ok(told_error(self.simply(call, Op::TakeError, 0)?.value))
    }

    fn send_to(
        &self,
        call: &Syscall<'_, M>,
        (from, len): (Va, usize),
        to: Option<SocketAddrV4>,
        _: bool,
    ) -> Result<usize, Errno> {
        if len > MOST_DATAGRAM_BYTES {
            return Err(Errno::MessageSize);
        }
        let asked = Asked { of: len, ..self.asked(Op::SendTo, name_word(to)) };
        let sent = len.min(service(call)?.most_bytes());
        // A part of a datagram is none.
        let whole =
            &mut |data: Va| call.copy_in(data, from, sent).map(|()| sent).map_err(|stopped| stopped.why);
        self.ask(call, asked, Bytes::By(whole, sent))?.answer()?;
        Ok(len)
    }

    fn receive_from(
        &self,
        call: &Syscall<'_, M>,
        (to, len): (Va, usize),
        nonblocking: bool,
    ) -> Result<(usize, SocketAddrV4), Errno> {
        let most = len.min(service(call)?.most_bytes());
        let asked = Asked { len: most, ..self.asked(Op::ReceiveFrom, 0) };
        let got = self.until(call, nonblocking, "netrd", || {
            let got = self.ask(call, asked, Bytes::To(to, most))?;
            got.answer.error.map_or(Ok(got), Err)
        })?;
        // What the program's memory did not take is lost.
        got.moved.1?;
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Ok((got.moved.0, name_of(got.answer.more).unwrap_or(nobody)))
    }

    /// The file is the kernel's own: its bytes go into the data piece, by copy whatever is asked for.
    fn send_file(
        &self,
        call: &Syscall<'_, M>,
        part: FilePart<'_, M>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        self.write_stream(call, part.len, nonblocking, |ask, done, len| {
            let mut put = |data: Va| part.file.read_at(call, part.from + done as u64, data, len);
            ask(Bytes::By(&mut put, len))
        })
    }
}
