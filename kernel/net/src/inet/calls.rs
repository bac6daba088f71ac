//! What a process asks of its sockets: names, connections, options, datagrams (4.4BSD, `uipc_syscalls.c`).
//!
//! # Locks
//! A call takes the table's lock where names, ports or what a listener hands out are concerned, and the block's for all
//! else; one that has to wait sleeps without and tests again.
//!
//! # What can fail
//! As Unix has it; see each call.

use super::conn::Conn;
use super::datagrams::{Datagram, Udp};
use super::id::PcbId;
use super::pcb::{Block, BlockGuard, Kind, Owner, Pcb, Protocol};
use super::socket::InetSocket;
use super::stack::{Net, Stack};
use super::tcp::{Buffers, Tcb, TcpState};
use crate::config::NetConfig;
use alloc::boxed::Box;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::Ordering::Relaxed;
use pageferry_abi::{Errno, Readiness, SocketKind, SocketOption};
use pageferry_core::mbuf::Chain;
use pageferry_core::proc::{Syscall, WaitFlag};
use pageferry_hal::{Cause, Channel, Machine, SpinLock, Threads};

/// The smallest buffer that a socket can have.
const MIN_BUFFER_BYTES: usize = 4096;
/// The largest.
const MAX_BUFFER_BYTES: usize = 16 << 20;
/// The most connections that wait to be accepted (`SOMAXCONN`).
const MAX_BACKLOG: usize = 128;

impl<M: Machine> Net<M> {
    /// Makes a socket that is bound to nothing.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn create(&self, call: &Syscall<'_, M>, kind: SocketKind) -> Result<InetSocket<M>, Errno> {
        let socket = self.with(call.thread, |stack| {
            let at = stack.block()?;
            let part = match kind {
                SocketKind::Stream => {
                    let NetConfig { send_buffer_bytes, receive_buffer_bytes, .. } = self.config;
                    let timeout = stack.ip.first_timeout();
                    Kind::Tcp(Box::new(Tcb::new(send_buffer_bytes, receive_buffer_bytes, timeout)))
                }
                SocketKind::Datagram => Kind::Udp(Udp::new(self.config.datagram_buffer_bytes)),
            };
            let id = stack.insert(Pcb::new(at, Owner::Process, part));
            Some(InetSocket::new(self.me.upgrade()?, id, stack.table().pcbs.block(id)?, kind))
        });
        socket.ok_or(Errno::NoMemory)
    }

    /// Binds to an address of this host, or to any, and a port; 0 for one that is free.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a socket that is bound; [`Errno::AddressNotAvailable`], [`Errno::AddressInUse`].
    pub fn bind(&self, call: &Syscall<'_, M>, id: PcbId, local: SocketAddrV4) -> Result<(), Errno> {
        self.with(call.thread, |stack| stack.bind(id, local))
    }

    /// Listens for connections, of which `backlog` may wait.
    ///
    /// # Errors
    /// [`Errno::NotSupported`] for datagrams, [`Errno::Invalid`] for a socket that is connected.
    pub fn listen(&self, call: &Syscall<'_, M>, id: PcbId, backlog: usize) -> Result<(), Errno> {
        self.with(call.thread, |stack| {
            stack.on_it(id, |conn| match &conn.pcb.kind {
                Kind::Udp(_) => Err(Errno::NotSupported),
                Kind::Tcp(tcb) if !matches!(tcb.state(), TcpState::Closed | TcpState::Listen) => {
                    Err(Errno::Invalid)
                }
                Kind::Tcp(_) => Ok(()),
            })?;
            if stack.table().pcbs.get(id).is_some_and(|entry| entry.local.port() == 0) {
                stack.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
            }
            stack.on_it(id, |conn| {
                conn.listen(backlog.clamp(1, MAX_BACKLOG));
                Ok(())
            })
        })
    }

    /// Connects to `remote`, and waits until both ends agree. A datagram socket only remembers it.
    ///
    /// # Errors
    /// [`Errno::IsConnected`], [`Errno::InProgress`] at once for a non-blocking socket, [`Errno::ConnectionRefused`],
    /// [`Errno::TimedOut`], [`Errno::NetUnreachable`], [`Errno::AddressInUse`], [`Errno::NoMemory`],
    /// [`Errno::Interrupted`].
    pub(super) fn connect(
        &self,
        call: &Syscall<'_, M>,
        (id, block): (PcbId, &Block<M>),
        remote: SocketAddrV4,
        wait: WaitFlag,
    ) -> Result<(), Errno> {
        let is_stream = self.with(call.thread, |stack| stack.connect(id, remote))?;
        if !is_stream {
            return Ok(());
        }
        let mut held = block.lock();
        loop {
            let channel = held.channel();
            match held.connect_outcome() {
                Err(Errno::InProgress) if !wait.is_no_wait() => {}
                outcome => return outcome,
            }
            held = wait_for(call, block, held, channel, "connec")?;
        }
    }

    /// Takes a connection that was made to a listening socket.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a socket that does not listen, [`Errno::WouldBlock`], [`Errno::Interrupted`].
    pub fn accept(
        &self,
        call: &Syscall<'_, M>,
        id: PcbId,
        wait: WaitFlag,
    ) -> Result<(InetSocket<M>, SocketAddrV4), Errno> {
        loop {
            let mut stack = self.stack(call.thread);
            let entry = stack.table().pcbs.get_mut(id).ok_or(Errno::BadFd)?;
            let channel = entry.channel();
            if entry.protocol == Protocol::Udp {
                return Err(Errno::NotSupported);
            }
            let listener = entry.listener.as_mut().ok_or(Errno::Invalid)?;
            if let Some(child) = listener.accepting.pop_front() {
                // In the same hold of the table: a reset may end it as soon as it is not waiting to be accepted.
                stack.on(child, |conn| conn.accepted());
                let entry = stack.table().pcbs.get(child).expect("it waits to be accepted");
                let from = entry.remote.expect("it is connected");
                let (net, block) = (self.me.upgrade().ok_or(Errno::BadFd)?, entry.block.clone());
                return Ok((InetSocket::new(net, child, block, SocketKind::Stream), from));
            }
            if wait.is_no_wait() {
                return Err(Errno::WouldBlock);
            }
            let mut stack = Some(stack);
            if let Err(e) = call.thread.sleep(channel, "accept", true, &mut || drop(stack.take())) {
                // It may have been woken for a connection that it does not take.
                call.thread.wakeup_one(channel);
                return Err(e.into());
            }
        }
    }

    /// Ends the direction of a connection, or of datagrams, that comes here.
    ///
    /// # Errors
    /// [`Errno::NotConnected`].
    pub fn shutdown_receive(&self, call: &Syscall<'_, M>, id: PcbId) -> Result<(), Errno> {
        self.with(call.thread, |stack| {
            stack.on_it(id, |conn| match &mut conn.pcb.kind {
                Kind::Tcp(tcb) if tcb.buffers().is_none() || tcb.is_listening() => Err(Errno::NotConnected),
                Kind::Tcp(_) => {
                    conn.release_table();
                    conn.stop_receiving();
                    Ok(())
                }
                Kind::Udp(udp) => {
                    udp.end().into_iter().for_each(|datagram| conn.ip.free(datagram.bytes));
                    conn.wake(id, conn.pcb.channel());
                    Ok(())
                }
            })
        })
    }

    /// Ends the direction of a connection that goes from here.
    ///
    /// # Errors
    /// [`Errno::NotConnected`].
    pub fn shutdown_send(&self, call: &Syscall<'_, M>, id: PcbId) -> Result<(), Errno> {
        self.with(call.thread, |stack| {
            stack.on_it(id, |conn| match &conn.pcb.kind {
                Kind::Tcp(tcb) if tcb.buffers().is_none() || tcb.is_listening() => Err(Errno::NotConnected),
                Kind::Tcp(_) => {
                    conn.finish();
                    Ok(())
                }
                Kind::Udp(_) => Ok(()),
            })
        })
    }

    /// The names of a socket's ends.
    pub fn names(&self, id: PcbId) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno> {
        let held = self.state.lock();
        held.pcbs.get(id).map(|entry| (entry.local, entry.remote)).ok_or(Errno::BadFd)
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a size out of bounds, or an option that the protocol does not have.
    pub(super) fn set_option(
        &self,
        threads: &dyn Threads,
        (id, block): (PcbId, &Block<M>),
        option: SocketOption,
    ) -> Result<(), Errno> {
        let in_bounds = |bytes: usize| match bytes {
            MIN_BUFFER_BYTES..=MAX_BUFFER_BYTES => Ok(bytes),
            _ => Err(Errno::Invalid),
        };
        if let SocketOption::ReuseAddress(on) = option {
            self.state.lock().pcbs.get_mut(id).ok_or(Errno::BadFd)?.reuse = on;
            return Ok(());
        }
        self.on_block(threads, (id, block), |conn| {
            match (option, &mut conn.pcb.kind) {
                (SocketOption::SendBuffer(bytes), Kind::Tcp(tcb)) => tcb.send_bytes = in_bounds(bytes)?,
                (SocketOption::SendBuffer(bytes), Kind::Udp(_)) => drop(in_bounds(bytes)?),
                (SocketOption::ReceiveBuffer(bytes), Kind::Tcp(tcb)) => tcb.receive_bytes = in_bounds(bytes)?,
                (SocketOption::ReceiveBuffer(bytes), Kind::Udp(udp)) => udp.limit_bytes = in_bounds(bytes)?,
                (SocketOption::ReceiveLowWater(bytes), Kind::Tcp(tcb)) => {
                    tcb.receive_low_water = bytes;
                    self.has_low_water.fetch_or(bytes > 1, Relaxed);
                    if let Some(Buffers { receive, .. }) = tcb.buffers() {
                        receive.set_low_water(threads, bytes);
                    }
                }
                (SocketOption::NoDelay(on), Kind::Tcp(tcb)) => tcb.no_delay = on,
                (SocketOption::ResetOnClose(on), Kind::Tcp(tcb)) => tcb.resets_on_close = on,
                _ => return Err(Errno::Invalid),
            }
            Ok(())
        })
    }

    /// Sends a datagram, to `remote` or to where the socket is connected to.
    ///
    /// # Errors
    /// [`Errno::DestinationRequired`], [`Errno::IsConnected`]; as sending an IP packet. The bytes are freed then.
    pub fn send_datagram(
        &self,
        call: &Syscall<'_, M>,
        id: PcbId,
        remote: Option<SocketAddrV4>,
        bytes: Chain,
    ) -> Result<(), Errno> {
        match self.with(call.thread, |stack| stack.ready_to_send(id, remote)) {
            Ok((local, remote)) => {
                let _c = self.core.machine.scope(Cause::Protocol);
                self.ip(call.thread).udp_output(local, remote, bytes)
            }
            Err(e) => {
                bytes.free(&self.core.mbufs);
                Err(e)
            }
        }
    }

    /// Why a datagram is not sent that no packet has room for: because of where it goes, or else because of that.
    pub(super) fn refuse_long(
        &self,
        call: &Syscall<'_, M>,
        id: PcbId,
        remote: Option<SocketAddrV4>,
    ) -> Errno {
        let ready = self.with(call.thread, |stack| {
            let (_, remote) = stack.ready_to_send(id, remote)?;
            stack.ip.route(*remote.ip())
        });
        ready.err().unwrap_or(Errno::MessageSize)
    }

    /// The oldest datagram that has arrived; waits for one. None when no more are received.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`], [`Errno::Interrupted`]; [`Errno::Removed`], once, when the card was;
    /// [`Errno::NotSupported`] for a stream.
    pub(super) fn receive_datagram(
        &self,
        call: &Syscall<'_, M>,
        block: &Block<M>,
        wait: WaitFlag,
    ) -> Result<Option<Datagram>, Errno> {
        let mut held = block.lock();
        loop {
            let pcb = held.here()?;
            let channel = pcb.channel();
            let error = pcb.error.take();
            let Kind::Udp(udp) = &mut pcb.kind else { return Err(Errno::NotSupported) };
            match (udp.take(), error) {
                (datagram @ Some(_), error) => {
                    pcb.error = error;
                    return Ok(datagram);
                }
                (None, Some(error)) => return Err(error),
                (None, None) if udp.has_ended() => return Ok(None),
                (None, None) => {}
            }
            if wait.is_no_wait() {
                return Err(Errno::WouldBlock);
            }
            held = wait_for(call, block, held, channel, "netrd")?;
        }
    }

    /// What a socket is ready for.
    pub(super) fn readiness(&self, (id, block): (PcbId, &Block<M>)) -> Readiness {
        let pcb = block.lock();
        let gone = Readiness { hung_up: true, ..Readiness::default() };
        if pcb.is_gone {
            return gone;
        }
        match &pcb.kind {
            Kind::Udp(udp) => {
                let readable = !udp.is_empty() || udp.has_ended() || pcb.error.is_some();
                Readiness { readable, writable: true, hung_up: false }
            }
            Kind::Tcp(tcb) if tcb.is_listening() => {
                // The table comes first.
                drop(pcb);
                let mut state = self.state.lock();
                state.pcbs.listener(id).map_or(gone, |listener| Readiness {
                    readable: !listener.accepting.is_empty(),
                    ..Readiness::default()
                })
            }
            Kind::Tcp(tcb) => match (tcb.state(), tcb.buffers()) {
                (TcpState::SynSent | TcpState::SynReceived, _) | (_, None) => {
                    let over = tcb.state() == TcpState::Closed;
                    Readiness { readable: over, writable: over, hung_up: over }
                }
                (state, Some(Buffers { receive, send })) => Readiness {
                    readable: receive.is_readable(),
                    writable: send.is_writable(),
                    hung_up: state == TcpState::Closed,
                },
            },
        }
    }

    /// The process has closed its descriptor.
    pub fn close(&self, threads: &dyn Threads, id: PcbId) {
        self.with(threads, |stack| match stack.table().pcbs.get(id).map(|entry| entry.protocol) {
            Some(Protocol::Tcp) => stack.close(id),
            Some(Protocol::Udp) => _ = stack.on(id, |conn| conn.remove()),
            None => {}
        });
    }
}

/// Sleeps until something changes for a block that is held.
fn wait_for<'a, M: Machine>(
    call: &Syscall<'_, M>,
    block: &'a Block<M>,
    held: BlockGuard<'a, M>,
    channel: Channel,
    reason: &'static str,
) -> Result<BlockGuard<'a, M>, Errno> {
    let mut held = Some(held);
    call.thread.sleep(channel, reason, true, &mut || drop(held.take()))?;
    Ok(block.lock())
}

impl<M: Machine> Pcb<M> {
    /// The block, unless it is gone.
    fn here(&mut self) -> Result<&mut Pcb<M>, Errno> {
        if self.is_gone { Err(Errno::BadFd) } else { Ok(self) }
    }

    /// How the connection that is being made of a stream is doing.
    ///
    /// # Errors
    /// [`Errno::InProgress`]; else as [`Net::connect`].
    pub(super) fn connect_outcome(&mut self) -> Result<(), Errno> {
        let pcb = self.here()?;
        if pcb.protocol() == Protocol::Udp {
            return Ok(());
        }
        match pcb.tcb().state() {
            TcpState::SynSent | TcpState::SynReceived => Err(Errno::InProgress),
            TcpState::Closed => Err(pcb.error.take().unwrap_or(Errno::ConnectionAborted)),
            _ => Ok(()),
        }
    }

    /// The buffers of a connection.
    ///
    /// # Errors
    /// [`Errno::NotConnected`], or what ended the attempt to connect.
    pub(super) fn connected_buffers(&mut self) -> Result<Buffers<M>, Errno> {
        let pcb = self.here()?;
        let error = pcb.error;
        match pcb.tcb().state() {
            TcpState::Listen | TcpState::SynSent | TcpState::SynReceived => Err(Errno::NotConnected),
            _ => pcb.tcb().buffers().ok_or(error.unwrap_or(Errno::NotConnected)),
        }
    }
}

impl<M: Machine> Net<M> {
    /// Bytes were put into the buffer of a connection.
    pub(super) fn tcp_sent(&self, threads: &dyn Threads, id: PcbId) {
        let _c = self.core.machine.scope(Cause::Protocol);
        self.with(threads, |stack| {
            stack.on(id, |conn| {
                conn.release_table();
                conn.tcp_output();
            });
        });
    }
}

impl<M: Machine> Stack<'_, M> {
    /// As [`Stack::on`], for work that can fail.
    fn on_it<R>(
        &mut self,
        id: PcbId,
        work: impl FnOnce(&mut Conn<'_, '_, M>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.on(id, |conn| work(conn)).unwrap_or(Err(Errno::BadFd))
    }

    fn bind(&mut self, id: PcbId, local: SocketAddrV4) -> Result<(), Errno> {
        let own = self.ip;
        let pcbs = &mut self.table().pcbs;
        let entry = pcbs.get(id).ok_or(Errno::BadFd)?;
        let (protocol, reuse) = (entry.protocol, entry.reuse);
        if entry.local.port() != 0 {
            return Err(Errno::Invalid);
        }
        if !local.ip().is_unspecified() && !own.is_own(*local.ip()) {
            return Err(Errno::AddressNotAvailable);
        }
        let port = match local.port() {
            0 => pcbs.free_port(protocol).ok_or(Errno::AddressInUse)?,
            port => port,
        };
        let local = SocketAddrV4::new(*local.ip(), port);
        if !pcbs.is_free(protocol, local, reuse) {
            return Err(Errno::AddressInUse);
        }
        pcbs.get_mut(id).expect("seen above").local = local;
        Ok(())
    }

    /// True for a stream, whose connection has begun.
    fn connect(&mut self, id: PcbId, remote: SocketAddrV4) -> Result<bool, Errno> {
        let is_connected = self.table().pcbs.get(id).ok_or(Errno::BadFd)?.remote.is_some();
        let is_stream = self.on_it(id, |conn| match &conn.pcb.kind {
            Kind::Tcp(tcb) => match tcb.state() {
                TcpState::Closed if !is_connected => Ok(true),
                TcpState::Closed => Err(conn.pcb.error.take().unwrap_or(Errno::Invalid)),
                TcpState::Listen => Err(Errno::NotSupported),
                TcpState::SynSent | TcpState::SynReceived => Err(Errno::AlreadyInProgress),
                _ => Err(Errno::IsConnected),
            },
            Kind::Udp(_) if is_connected => Err(Errno::IsConnected),
            Kind::Udp(_) => Ok(false),
        })?;
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(Errno::AddressNotAvailable);
        }
        let source = self.ip.source_for(*remote.ip())?;
        if self.table().pcbs.get(id).is_some_and(|entry| entry.local.port() == 0) {
            self.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        }
        let pcbs = &mut self.table().pcbs;
        let bound = pcbs.get(id).ok_or(Errno::BadFd)?.local;
        let ip = if bound.ip().is_unspecified() { source } else { *bound.ip() };
        let local = SocketAddrV4::new(ip, bound.port());
        if !pcbs.connect(id, local, remote) {
            return Err(Errno::AddressInUse);
        }
        if is_stream && let Err(e) = self.on_it(id, |conn| conn.begin((local, remote))) {
            self.table().pcbs.disconnect(id);
            return Err(e);
        }
        Ok(is_stream)
    }

    /// Where a datagram comes from and goes to.
    fn ready_to_send(
        &mut self,
        id: PcbId,
        to: Option<SocketAddrV4>,
    ) -> Result<(SocketAddrV4, SocketAddrV4), Errno> {
        let entry = self.table().pcbs.get(id).ok_or(Errno::BadFd)?;
        let (local, connected) = (entry.local, entry.remote);
        let remote = match (to, connected) {
            (Some(_), Some(_)) => return Err(Errno::IsConnected),
            (to, connected) => to.or(connected).ok_or(Errno::DestinationRequired)?,
        };
        if local.port() == 0 {
            self.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        }
        Ok((self.table().pcbs.get(id).expect("seen above").local, remote))
    }
}
