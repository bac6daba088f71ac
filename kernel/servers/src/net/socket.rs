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
use super::super::request::{Bytes, Completion};
use super::super::word::Word;
use super::service::NetService;
use super::words::Request;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddrV4};
use pageferry_abi::{Errno, Pid, Readiness, Shutdown, SocketKind, SocketOption};
use pageferry_core::fs::{FileOps, FilePart, NewSocket, SocketOps, VnodeOps};
use pageferry_core::proc::{Syscall, Uio, UioMode, UioRw, WaitFlag, outcome};
use pageferry_hal::{Machine, Va};
use pageferry_ispc::NetServiceDefect;

/// The longest datagram.
const MAX_DATAGRAM_BYTES: usize = 65_507;

/// See the [module](self).
pub(crate) struct ServedSocket<M: Machine> {
    service: Arc<NetService<M>>,
    /// Which server has it,
    server: Pid,
    /// as what.
    handle: u64,
    kind: SocketKind,
}

/// A name in an answer, or none.
fn name_of(word: u64) -> Result<Option<SocketAddrV4>, Errno> {
    Word::of_word(word)
}

impl<M: Machine> ServedSocket<M> {
    pub(super) fn new(
        service: Arc<NetService<M>>,
        server: Pid,
        handle: u64,
        kind: SocketKind,
    ) -> ServedSocket<M> {
        ServedSocket { service, server, handle, kind }
    }

    /// One request.
    fn ask(&self, call: &Syscall<'_, M>, request: &Request, bytes: Bytes<'_>) -> Result<Completion, Errno> {
        self.service.ask(call, self.server, request, bytes, true)
    }

    /// A request that moves no bytes.
    fn simply(&self, call: &Syscall<'_, M>, request: Request) -> Result<Answer, Errno> {
        self.ask(call, &request, Bytes::None)?.answer()
    }

    /// Asks once, or until there is something else to say than that the call is to wait.
    fn until<R>(
        &self,
        call: &Syscall<'_, M>,
        wait: WaitFlag,
        reason: &'static str,
        mut ask: impl FnMut() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match wait {
            WaitFlag::NoWait => ask(),
            WaitFlag::WaitOk => self.service.waiters.until(call, self.handle, reason, ask),
        }
    }

    /// Reads of a stream: what is there, at least a byte.
    fn read_stream(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let max_bytes = self.service.max_bytes();
        loop {
            let len = max_bytes.min(uio.left());
            let begun = uio.done() > 0;
            let request = Request::Read { handle: self.handle, is_rest: begun, len };
            let wait = if begun { WaitFlag::NoWait } else { uio.wait };
            let read = self.until(call, wait, "netrd", || {
                let read = self.ask(call, &request, Bytes::To(uio, len))?;
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
    fn write_stream(
        &self,
        call: &Syscall<'_, M>,
        (done, len_bytes): (&mut usize, usize),
        wait: WaitFlag,
        mut bring: impl FnMut(
            &mut dyn FnMut(Bytes<'_>) -> Result<Completion, Errno>,
            usize,
            usize,
        ) -> Result<Completion, Errno>,
    ) -> Result<(), Errno> {
        let max_bytes = self.service.max_bytes();
        loop {
            let len = max_bytes.min(len_bytes - *done);
            let wrote = self.until(call, wait, "netwr", || {
                let request = Request::Write { handle: self.handle, len };
                let mut ask = |bytes: Bytes<'_>| self.ask(call, &request, bytes);
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

impl<M: Machine> FileOps<M> for ServedSocket<M> {
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
        if matches!(uio.mode(), UioMode::Pages | UioMode::Pinned) {
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
        let request = Request::Ready { handle: self.handle };
        let ready =
            self.service.ask(call, self.server, &request, Bytes::None, false).and_then(Completion::answer);
        ready.and_then(|answer| Readiness::of_word(answer.value)).unwrap_or(over)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        if !self.service.has(NetServiceDefect::CloseUntold) {
            // A server that has died has no socket.
            let request = Request::Close { handle: self.handle };
            _ = self.service.ask(call, self.server, &request, Bytes::None, false);
        }
    }
}

impl<M: Machine> SocketOps<M> for ServedSocket<M> {
    fn kind(&self) -> Result<SocketKind, Errno> {
        Ok(self.kind)
    }

    fn bind(&self, call: &Syscall<'_, M>, name: SocketAddrV4) -> Result<(), Errno> {
        self.simply(call, Request::Bind { handle: self.handle, name: Some(name) }).map(|_| ())
    }

    fn listen(&self, call: &Syscall<'_, M>, backlog: usize) -> Result<(), Errno> {
        self.simply(call, Request::Listen { handle: self.handle, backlog }).map(|_| ())
    }

    fn accept(&self, call: &Syscall<'_, M>, wait: WaitFlag) -> Result<NewSocket<M>, Errno> {
        let handle = self.handle;
        let answer = self.until(call, wait, "accept", || self.simply(call, Request::Accept { handle }))?;
        let from = name_of(answer.more)?.ok_or(Errno::Io)?;
        let socket = ServedSocket::new(self.service.clone(), self.server, answer.value, SocketKind::Stream);
        Ok((Box::new(socket), from))
    }

    fn connect(&self, call: &Syscall<'_, M>, to: SocketAddrV4, wait: WaitFlag) -> Result<(), Errno> {
        let handle = self.handle;
        let mut request = Request::Connect { handle, to: Some(to) };
        self.until(call, wait, "connec", || {
            let next = core::mem::replace(&mut request, Request::ConnectOutcome { handle });
            self.simply(call, next)
        })
        .map(|_| ())
    }

    fn shutdown(&self, call: &Syscall<'_, M>, how: Shutdown) -> Result<(), Errno> {
        self.simply(call, Request::Shutdown { handle: self.handle, how }).map(|_| ())
    }

    fn names(&self, call: &Syscall<'_, M>) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno> {
        let Answer { value, more, .. } = self.simply(call, Request::Names { handle: self.handle })?;
        Ok((name_of(value)?.ok_or(Errno::Io)?, name_of(more)?))
    }

    fn set_option(&self, call: &Syscall<'_, M>, option: SocketOption) -> Result<(), Errno> {
        self.simply(call, Request::SetOption { handle: self.handle, option }).map(|_| ())
    }

    fn take_error(&self, call: &Syscall<'_, M>) -> Result<Option<Errno>, Errno> {
        Option::of_word(self.simply(call, Request::TakeError { handle: self.handle })?.value)
    }

    fn send_to(&self, call: &Syscall<'_, M>, uio: &mut Uio, to: Option<SocketAddrV4>) -> Result<(), Errno> {
        let len = uio.len();
        if len > MAX_DATAGRAM_BYTES {
            return Err(Errno::MessageSize);
        }
        let sent = len.min(self.service.max_bytes());
        let request = Request::SendTo { handle: self.handle, to, len: sent, of: len };
        // A part of a datagram is none.
        let whole = &mut |data: Va| call.uiomove(data, sent, uio).map(|()| sent);
        let answer = self.ask(call, &request, Bytes::By(whole, sent)).and_then(Completion::answer);
        uio.take_back(0);
        answer?;
        uio.advance(len);
        Ok(())
    }

    fn receive_from(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<SocketAddrV4, Errno> {
        let max_bytes = uio.len().min(self.service.max_bytes());
        let request = Request::ReceiveFrom { handle: self.handle, len: max_bytes };
        let got = self.until(call, uio.wait, "netrd", || {
            let got = self.ask(call, &request, Bytes::To(uio, max_bytes))?;
            got.answer.error.map_or(Ok(got), Err)
        })?;
        // What the program's memory did not take is lost.
        got.moved.1.inspect_err(|_| uio.take_back(0))?;
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Ok(name_of(got.answer.more)?.unwrap_or(nobody))
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
        outcome(UioRw::Write, done, result)
    }
}
