//! Internet sockets as open files.
//!
//! A stream reads and writes through its connection's two buffers, as a local socket does (`sosend`, `soreceive`); then
//! TCP looks whether there is something to send, or a window to tell.

use super::id::PcbId;
use super::pcb::Block;
use super::stack::Net;
use super::tcp::Buffers;
use crate::{Sender, SockBuf, Supply};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, Readiness, Shutdown, SocketKind};
use pageferry_core::choose::Peer;
use pageferry_core::fs::FileOps;
use pageferry_core::mbuf::{AreaId, Chain};
use pageferry_core::proc::{Syscall, Uio, UioMode, WaitFlag};
use pageferry_hal::{Cause, Machine, SpinLock, StructVa};

/// The longest datagram.
const MAX_DATAGRAM_BYTES: usize = 65_507;

/// An Internet socket as a process has it: the number of its block, and what the process has ended.
pub struct InetSocket<M: Machine> {
    net: Arc<Net<M>>,
    /// Its block, by number and by itself (`so_pcb`).
    pub id: PcbId,
    block: Arc<Block<M>>,
    pub(crate) kind: SocketKind,
    /// Directions that the process has ended (`shutdown`).
    pub no_receive: AtomicBool,
    pub(crate) no_send: AtomicBool,
}

impl<M: Machine> InetSocket<M> {
    /// The socket of a block of `net`.
    pub(super) fn new(net: Arc<Net<M>>, id: PcbId, block: Arc<Block<M>>, kind: SocketKind) -> InetSocket<M> {
        let (no_receive, no_send) = (AtomicBool::new(false), AtomicBool::new(false));
        InetSocket { net, id, block, kind, no_receive, no_send }
    }

    /// Its block.
    pub(super) fn block(&self) -> (PcbId, &Block<M>) {
        (self.id, &self.block)
    }

    /// The buffers of its connection.
    ///
    /// # Errors
    /// [`Errno::NotConnected`], or what ended the attempt to connect.
    fn buffers(&self) -> Result<Buffers<M>, Errno> {
        self.block.lock().connected_buffers()
    }

    /// How the connection that is being made is doing.
    ///
    /// # Errors
    /// [`Errno::InProgress`]; else as `connect`.
    pub fn connect_outcome(&self) -> Result<(), Errno> {
        self.block.lock().connect_outcome()
    }

    /// What is to be told of it, once (`SO_ERROR`).
    pub(super) fn due_error(&self) -> Option<Errno> {
        self.block.lock().error.take()
    }

    pub(super) fn net(&self) -> &Arc<Net<M>> {
        &self.net
    }

    /// What it is ready for.
    pub fn ready(&self) -> Readiness {
        let mut ready = self.net.readiness(self.block());
        ready.readable |= self.no_receive.load(Ordering::Relaxed);
        ready
    }

    /// Bytes of a stream that could be read now.
    pub fn queued(&self) -> Result<usize, Errno> {
        Ok(self.buffers()?.receive.queued())
    }

    /// Takes bytes of a stream back that were read and not taken. They are freed if nothing can be read any more.
    pub fn take_back(&self, call: &Syscall<'_, M>, bytes: Chain) -> Result<(), Errno> {
        match self.buffers() {
            Ok(buffers) => buffers.receive.take_back(call.core, call.thread, bytes),
            Err(error) => {
                bytes.free(&call.core.mbufs);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Why a datagram is not sent that is too long to come here.
    pub fn refuse_long(&self, call: &Syscall<'_, M>, remote: Option<SocketAddrV4>) -> Errno {
        self.net.refuse_long(call, self.id, remote)
    }

    /// Ends one or both directions of a connection.
    pub fn shut_down(&self, call: &Syscall<'_, M>, how: Shutdown) -> Result<(), Errno> {
        let net = &self.net;
        if how != Shutdown::Receive {
            net.shutdown_send(call, self.id)?;
            self.no_send.store(true, Ordering::Relaxed);
        }
        if how != Shutdown::Send {
            net.shutdown_receive(call, self.id)?;
            self.no_receive.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What a call on a connection came to: an error that is due takes its place where nothing was moved.
    fn settle<R>(&self, result: Result<R, Errno>, moved_nothing: bool) -> Result<R, Errno> {
        let failed = match &result {
            Ok(_) => moved_nothing,
            Err(e) => *e == Errno::BrokenPipe,
        };
        if failed && let Some(error) = self.due_error() {
            return Err(error);
        }
        result
    }

    /// Receives from a stream by `receive`.
    pub(super) fn receive_stream<R: Default>(
        &self,
        call: &Syscall<'_, M>,
        uio: &mut Uio,
        receive: impl FnOnce(&SockBuf<M>, &mut Uio) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        if self.no_receive.load(Ordering::Relaxed) {
            return Ok(R::default());
        }
        let buffer = self.buffers()?.receive;
        let result = receive(&buffer, uio);
        // The other end may have more room now (`tcp_usr_rcvd`). What was written, the buffer has told of.
        if uio.done() > 0 {
            self.net.tcp_sent(call.thread, self.id);
        }
        self.settle(result, uio.done() == 0 && !uio.is_empty())
    }

    /// Has what arrives here be in a receive area; true when the card will put it there.
    pub(super) fn receive_in(&self, call: &Syscall<'_, M>, area: AreaId) -> Result<bool, Errno> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        self.buffers()?.receive.set_area(area)?;
        Ok(self.net.begin_flow(call.thread, self.id, area))
    }

    /// Sends what `supply` has over the connection.
    pub fn send_from(
        &self,
        call: &Syscall<'_, M>,
        supply: &mut dyn Supply,
        wait: WaitFlag,
    ) -> Result<(), Errno> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        let _c = call.machine().scope(Cause::Protocol);
        let buffer = self.buffers()?.send;
        if self.no_send.load(Ordering::Relaxed) {
            return Err(Errno::BrokenPipe);
        }
        let result = buffer.send_from(call, supply, wait);
        self.settle(result, false)
    }

    /// Sends what has arrived here to another socket, too, whose buffer for sending is at `to`.
    pub(super) fn tee_stream(
        &self,
        call: &Syscall<'_, M>,
        to: StructVa,
        len: usize,
        wait: WaitFlag,
    ) -> Result<usize, Errno> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        if self.no_receive.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let own = self.buffers()?.receive;
        let target = own.other(to).ok_or(Errno::BadFd)?;
        own.tee(call, &target, len, wait)
    }

    /// The buffer that what a stream sends goes to.
    pub(super) fn send_buffer(&self) -> Result<StructVa, Errno> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        if self.no_send.load(Ordering::Relaxed) {
            return Err(Errno::BrokenPipe);
        }
        Ok(self.buffers()?.send.at())
    }

    /// Sends a datagram to `remote`, or to where the socket is connected to.
    pub fn send_datagram(
        &self,
        call: &Syscall<'_, M>,
        uio: &mut Uio,
        remote: Option<SocketAddrV4>,
    ) -> Result<(), Errno> {
        let len = uio.len();
        if len > MAX_DATAGRAM_BYTES {
            return Err(Errno::MessageSize);
        }
        uio.by_copy();
        let bytes =
            gathered(call, uio, len).and_then(|bytes| self.net.send_datagram(call, self.id, remote, bytes));
        // A part of a datagram is none.
        bytes.inspect_err(|_| uio.take_back(0))
    }

    /// Receives a datagram, or as much of it as there is room for; and where it comes from.
    pub fn receive_datagram(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<SocketAddrV4, Errno> {
        let Some(datagram) = self.net.receive_datagram(call, &self.block, uio.wait)? else {
            return Ok(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        };
        let (pool, from, wait) = (&call.core.mbufs, datagram.from, uio.wait);
        let mut result = Ok(());
        for mbuf in datagram.bytes.iter() {
            let want = mbuf.len().min(uio.left());
            let before = uio.done();
            while uio.done() - before < want && result.is_ok() {
                let at = uio.done() - before;
                let copied = pool
                    .look((call.thread, wait), mbuf, at, want - at, |va, piece| call.uiomove(va, piece, uio));
                result = copied.and_then(|outcome| outcome);
            }
        }
        datagram.bytes.free(pool);
        // What the program's memory did not take is lost.
        result.inspect_err(|_| uio.take_back(0)).map(|()| from)
    }
}

/// The bytes of a datagram of the process's.
fn gathered<M: Machine>(call: &Syscall<'_, M>, uio: &mut Uio, len: usize) -> Result<Chain, Errno> {
    let mut sender = Sender::new(call, uio, Peer::Socket, len);
    let mut bytes = Chain::new();
    while sender.left() > 0 {
        let (mbuf, result) = sender.next(len);
        mbuf.into_iter().for_each(|mbuf| bytes.push_back(mbuf));
        if let Err(e) = result {
            bytes.free(&call.core.mbufs);
            return Err(e);
        }
    }
    Ok(bytes)
}

impl<M: Machine> FileOps<M> for InetSocket<M> {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        if self.kind == SocketKind::Datagram && uio.mode() == UioMode::Copy {
            return match self.no_receive.load(Ordering::Relaxed) {
                true => Ok(()),
                false => self.receive_datagram(call, uio).map(|_| ()),
            };
        }
        self.receive_stream(call, uio, |buffer, uio| buffer.receive(call, uio))
    }

    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        if self.kind == SocketKind::Datagram {
            return self.send_datagram(call, uio, None);
        }
        let buffer = self.buffers()?.send;
        if self.no_send.load(Ordering::Relaxed) {
            return Err(Errno::BrokenPipe);
        }
        let result = buffer.send(call, uio);
        self.settle(result, false)
    }

    fn readiness(&self, _: &Syscall<'_, M>) -> Readiness {
        self.ready()
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        self.net.end_flow(call.thread, self.id);
        self.net.close(call.thread, self.id);
    }
}
