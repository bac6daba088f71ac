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
use crate::fs::{File, FileOps, FilePart, Rights, SocketOps, VnodeOps};
use crate::net::sent;
use crate::proc::{Syscall, Uio, UioMode, WaitFlag};
use alloc::boxed::Box;
use core::net::{Ipv4Addr, SocketAddrV4};
use pageferry_abi::{Errno, Pid, Readiness, Shutdown, SocketKind, SocketOption};
use pageferry_hal::{Machine, Va};

/// The longest datagram.
const MAX_DATAGRAM_BYTES: usize = 65_507;

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
        wait: WaitFlag,
        reason: &'static str,
        mut ask: impl FnMut() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match wait {
            WaitFlag::NoWait => ask(),
            WaitFlag::WaitOk => service(call)?.waiters.until(call, self.handle, reason, ask),
        }
    }

    /// Reads of a stream: what is there, at least a byte.
    fn read_stream<M: Machine>(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let most = service(call)?.most_bytes();
        loop {
            let len = most.min(uio.left());
            let begun = uio.done() > 0;
            let asked = Asked { len, ..self.asked(Op::Read, u64::from(begun)) };
            let wait = if begun { WaitFlag::NoWait } else { uio.wait };
            let read = self.until(call, wait, "netrd", || {
                let read = self.ask(call, asked, Bytes::To(uio, len))?;
                read.answer.error.map_or(Ok(read), Err)
            })?;
            let (taken, how) = read.moved;
            if how.is_err() || taken < len || uio.left() == 0 {
                return how;
            }
        }
    }

    /// Writes to a stream: all of `len_bytes`, or what there is room for if the call does not wait. `bring` makes a
    /// request with bytes from `done` on, so many. Moves `done` on by what the server has.
    fn write_stream<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        (done, len_bytes): (&mut usize, usize),
        wait: WaitFlag,
        mut bring: impl FnMut(
            &mut dyn FnMut(Bytes<'_>) -> Result<Done, Errno>,
            usize,
            usize,
        ) -> Result<Done, Errno>,
    ) -> Result<(), Errno> {
        let most = service(call)?.most_bytes();
        loop {
            let len = most.min(len_bytes - *done);
            let wrote = self.until(call, wait, "netwr", || {
                let mut ask = |bytes: Bytes<'_>| self.ask(call, self.asked(Op::Write, 0), bytes);
                let wrote = bring(&mut ask, *done, len)?;
                wrote.answer.error.map_or(Ok(wrote), Err)
            })?;
            let (given, how) = wrote.moved;
            let put = (wrote.answer.value as usize).min(given);
            *done += put;
            if put == given && (how.is_err() || given < len || *done == len_bytes) {
                return how;
            }
        }
    }
}

impl<M: Machine> FileOps<M> for ServedSocket {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::NotSupported);
        }
        match self.kind {
            SocketKind::Datagram => self.receive_from(call, uio).map(|_| ()),
            SocketKind::Stream => self.read_stream(call, uio),
        }
    }

    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() == UioMode::Pages {
            return Err(Errno::NotSupported);
        }
        if self.kind == SocketKind::Datagram {
            return self.send_to(call, uio, None);
        }
        let (mut done, len, wait) = (0, uio.len(), uio.wait);
        let result = self.write_stream(call, (&mut done, len), wait, |ask, done, len| {
            // What was brought and not taken is brought again.
            uio.take_back(done);
            ask(Bytes::From(uio, len))
        });
        uio.take_back(done);
        result
    }

    fn readiness(&self, call: &Syscall<'_, M>) -> Readiness {
        // Of a server that has died nothing is to be waited for.
        let over = Readiness { readable: true, writable: true, hung_up: true };
        let asked = self.asked(Op::Ready, 0);
        let ready = service(call).and_then(|s| s.ask(call, self.server, asked, Bytes::None, false)?.answer());
        ready.map_or(over, |answer| readiness_of(answer.value))
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        let Ok(service) = service(call) else { return };
        if !service.has(NetServiceDefect::CloseUntold) {
            // A server that has died has no socket.
            _ = service.ask(call, self.server, self.asked(Op::Close, 0), Bytes::None, false);
        }
    }
}

impl<M: Machine> SocketOps<M> for ServedSocket {
    fn kind(&self) -> Result<SocketKind, Errno> {
        Ok(self.kind)
    }

    fn bind(&self, call: &Syscall<'_, M>, name: SocketAddrV4) -> Result<(), Errno> {
        self.simply(call, Op::Bind, name_word(Some(name))).map(|_| ())
    }

    fn listen(&self, call: &Syscall<'_, M>, backlog: usize) -> Result<(), Errno> {
        self.simply(call, Op::Listen, backlog as u64).map(|_| ())
    }

    fn accept(&self, call: &Syscall<'_, M>, wait: WaitFlag) -> Result<(File<M>, SocketAddrV4), Errno> {
        let answer = self.until(call, wait, "accept", || self.simply(call, Op::Accept, 0))?;
        let from = name_of(answer.more).ok_or(Errno::Io)?;
        let socket = ServedSocket::new(self.server, answer.value, SocketKind::Stream);
        Ok((File::socket(socket, Rights::READ_WRITE), from))
    }

    fn connect(&self, call: &Syscall<'_, M>, to: SocketAddrV4, wait: WaitFlag) -> Result<(), Errno> {
        let mut op = Op::Connect;
        self.until(call, wait, "connec", || {
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

    fn send_to(&self, call: &Syscall<'_, M>, uio: &mut Uio, to: Option<SocketAddrV4>) -> Result<(), Errno> {
        let len = uio.len();
        if len > MAX_DATAGRAM_BYTES {
            return Err(Errno::MessageSize);
        }
        let asked = Asked { of: len, ..self.asked(Op::SendTo, name_word(to)) };
        let sent = len.min(service(call)?.most_bytes());
        // A part of a datagram is none.
        let whole = &mut |data: Va| call.uiomove(data, sent, uio).map(|()| sent);
        let answer = self.ask(call, asked, Bytes::By(whole, sent)).and_then(Done::answer);
        uio.take_back(0);
        answer?;
        uio.advance(len);
        Ok(())
    }

    fn receive_from(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<SocketAddrV4, Errno> {
        let most = uio.len().min(service(call)?.most_bytes());
        let asked = Asked { len: most, ..self.asked(Op::ReceiveFrom, 0) };
        let got = self.until(call, uio.wait, "netrd", || {
            let got = self.ask(call, asked, Bytes::To(uio, most))?;
            got.answer.error.map_or(Ok(got), Err)
        })?;
        // What the program's memory did not take is lost.
        got.moved.1.inspect_err(|_| uio.take_back(0))?;
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Ok(name_of(got.answer.more).unwrap_or(nobody))
    }

    /// The file is the kernel's own: its bytes go into the data piece, by copy whatever is asked for.
    fn send_file(
        &self,
        call: &Syscall<'_, M>,
        file: &dyn VnodeOps<M>,
        part: FilePart,
        wait: WaitFlag,
    ) -> Result<usize, Errno> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        let mut done = 0;
        let result = self.write_stream(call, (&mut done, part.len_bytes), wait, |ask, done, len| {
            let mut put = |data: Va| {
                let mut piece = Uio::read(data, len).at_offset(part.from + done as u64);
                match file.read(call, &mut piece) {
                    Err(e) if piece.done() == 0 => Err(e),
                    _ => Ok(piece.done()),
                }
            };
            ask(Bytes::By(&mut put, len))
        });
        sent(done, result)
    }
}
