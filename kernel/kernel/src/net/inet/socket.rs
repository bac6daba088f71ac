//! Internet sockets as open files.
//!
//! A stream reads and writes through its connection's two buffers, as a local socket does (`sosend`, `soreceive`); then
//! TCP looks whether there is something to send, or a window to tell.

use super::{InetOps, Net, PcbId};
use crate::choose::{Peer, Sending};
use crate::fs::FileOps;
use crate::net::chain::Chain;
use crate::net::{Sender, Supply};
use crate::proc::{Syscall, moved};
use alloc::boxed::Box;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, Readiness, ReceiveMode, Received, SendMode, Shutdown, SocketKind};
use pageferry_hal::{Cause, Machine, Va};

/// The longest datagram.
const MOST_DATAGRAM_BYTES: usize = 65_507;

/// An Internet socket. See the [module](self).
pub(crate) struct InetSocket {
    pub(crate) id: PcbId,
    pub(crate) kind: SocketKind,
    /// Directions that the process has ended (`shutdown`).
    pub(crate) no_receive: AtomicBool,
    pub(crate) no_send: AtomicBool,
}

impl InetSocket {
    pub(crate) fn new(id: PcbId, kind: SocketKind) -> InetSocket {
        let (no_receive, no_send) = (AtomicBool::new(false), AtomicBool::new(false));
        InetSocket { id, kind, no_receive, no_send }
    }

    pub(super) fn net<'a, M: Machine>(&self, call: &'a Syscall<'_, M>) -> &'a Net<M> {
        call.kernel.net().expect("its socket exists")
    }

    /// What it is ready for.
    pub(crate) fn ready<M: Machine>(&self, call: &Syscall<'_, M>) -> Readiness {
        let mut ready = self.net(call).readiness(self.id);
        ready.readable |= self.no_receive.load(Ordering::Relaxed);
        ready
    }

    /// Bytes of a stream that could be read now.
    pub(crate) fn queued<M: Machine>(&self, call: &Syscall<'_, M>) -> Result<usize, Errno> {
        Ok(self.net(call).buffers(self.id)?.receive.queued())
    }

    /// Takes bytes of a stream back that were read and not taken. They are freed if nothing can be read any more.
    pub(crate) fn take_back<M: Machine>(&self, call: &Syscall<'_, M>, bytes: Chain) -> Result<(), Errno> {
        match self.net(call).buffers(self.id) {
            Ok(buffers) => buffers.receive.take_back(call.kernel, call.thread, bytes),
            Err(error) => {
                bytes.free(&call.kernel.mbufs);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Why a datagram is not sent that is too long to come here.
    pub(crate) fn refuse_long<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        remote: Option<SocketAddrV4>,
    ) -> Errno {
        self.net(call).refuse_long(call, self.id, remote)
    }

    /// Ends one or both directions of a connection.
    pub(crate) fn shut_down<M: Machine>(&self, call: &Syscall<'_, M>, how: Shutdown) -> Result<(), Errno> {
        let net = self.net(call);
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
    fn settled<M: Machine, R>(
        &self,
        call: &Syscall<'_, M>,
        result: Result<R, Errno>,
        nothing: impl Fn(&R) -> bool,
    ) -> Result<R, Errno> {
        call.kernel.tcp_sent(call.thread, self.id);
        let failed = match &result {
            Ok(moved) => nothing(moved),
            Err(e) => *e == Errno::BrokenPipe,
        };
        if failed && let Some(error) = self.net(call).take_error(self.id) {
            return Err(error);
        }
        result
    }

    /// Sends what `supply` has over the connection.
    pub(crate) fn send_from<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        supply: &mut dyn Supply,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        let _c = call.machine().scope(Cause::Protocol);
        let buffer = self.net(call).buffers(self.id)?.send;
        if self.no_send.load(Ordering::Relaxed) {
            return Err(Errno::BrokenPipe);
        }
        let result = buffer.send_from(call, supply, nonblocking);
        self.settled(call, result, |_| false)
    }

    /// Sends a datagram to `remote`, or to where the socket is connected to.
    pub(crate) fn send_datagram<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len: usize,
        remote: Option<SocketAddrV4>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        if len > MOST_DATAGRAM_BYTES {
            return Err(Errno::MessageSize);
        }
        let sending = Sending { from, len, peer: Peer::Socket, space: len };
        let mut sender = Sender::new(call, sending, SendMode::Copy).nonblocking(nonblocking);
        let mut bytes = Chain::new();
        while sender.left() > 0 {
            let (mbuf, result) = sender.next(len);
            mbuf.into_iter().for_each(|mbuf| bytes.push_back(mbuf));
            if let Err(e) = result {
                bytes.free(&call.kernel.mbufs);
                return Err(e);
            }
        }
        self.net(call).send_datagram(call, self.id, remote, bytes)?;
        Ok(len)
    }

    /// Receives a datagram, or as much of it as there is room for; and where it comes from.
    pub(crate) fn receive_datagram<M: Machine>(
        &self,
        call: &Syscall<'_, M>,
        to: Va,
        len: usize,
        nonblocking: bool,
    ) -> Result<(usize, SocketAddrV4), Errno> {
        let Some(datagram) = self.net(call).receive_datagram(call, self.id, nonblocking)? else {
            return Ok((0, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));
        };
        let (pool, from) = (&call.kernel.mbufs, datagram.from);
        let mut result = Ok(());
        let mut done = 0;
        for mbuf in datagram.bytes.iter() {
            let want = mbuf.len().min(len - done);
            let mut at = 0;
            while at < want && result.is_ok() {
                let copied = pool.look((call.thread, !nonblocking), mbuf, at, want - at, |va, piece| {
                    moved(piece, call.copy_out(to + done, va, piece))
                });
                let (copied, outcome) = copied.unwrap_or_else(|e| (0, Err(e)));
                (at, done, result) = (at + copied, done + copied, outcome);
            }
        }
        datagram.bytes.free(pool);
        result.map(|()| (done, from))
    }
}

impl<M: Machine> FileOps<M> for InetSocket {
    fn read(
        &self,
        call: &Syscall<'_, M>,
        to: Va,
        len_bytes: usize,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        if self.no_receive.load(Ordering::Relaxed) {
            return Ok(0);
        }
        if self.kind == SocketKind::Datagram {
            return Ok(self.receive_datagram(call, to, len_bytes, nonblocking)?.0);
        }
        let buffer = self.net(call).buffers(self.id)?.receive;
        let result = buffer.receive(call, to, len_bytes, nonblocking);
        self.settled(call, result, |len| *len == 0 && len_bytes > 0)
    }

    fn read_transfer(
        &self,
        call: &Syscall<'_, M>,
        mode: ReceiveMode,
        at: Option<Va>,
        len_bytes: usize,
        nonblocking: bool,
    ) -> Result<Received, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        if self.kind == SocketKind::Datagram {
            return Err(Errno::NotSupported);
        }
        if self.no_receive.load(Ordering::Relaxed) {
            return Ok(Received::default());
        }
        let buffer = self.net(call).buffers(self.id)?.receive;
        let result = buffer.receive_transfer(call, mode, at, len_bytes, nonblocking);
        self.settled(call, result, |got| got.len_bytes == 0 && len_bytes > 0)
    }

    fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        if self.kind == SocketKind::Datagram {
            return self.send_datagram(call, from, len_bytes, None, nonblocking);
        }
        let buffer = self.net(call).buffers(self.id)?.send;
        if self.no_send.load(Ordering::Relaxed) {
            return Err(Errno::BrokenPipe);
        }
        let result = buffer.send(call, from, len_bytes, mode, nonblocking);
        self.settled(call, result, |_| false)
    }

    fn readiness(&self, call: &Syscall<'_, M>) -> Readiness {
        self.ready(call)
    }

    fn as_inet(&self) -> Option<&dyn InetOps<M>> {
        Some(self)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        if let Some(net) = call.kernel.net() {
            net.close(call.kernel, call.thread, self.id);
        }
    }
}
