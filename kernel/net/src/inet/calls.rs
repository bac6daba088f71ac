//! What a process asks of its sockets: names, connections, options, datagrams (4.4BSD, `uipc_syscalls.c`).
//!
//! # Locks
//! Each call takes the network's lock; one that has to wait sleeps without it and tests again.
//!
//! # What can fail
//! As Unix has it; see each call.

use super::datagrams::{Datagram, Udp};
use super::id::PcbId;
use super::pcb::{Kind, Pcb, Protocol};
use super::stack::{Net, Stack, State};
use super::tcp::{Buffers, Tcb, TcpState};
use crate::config::NetConfig;
use alloc::boxed::Box;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::Ordering::Relaxed;
use pageferry_abi::{Errno, Readiness, SocketKind, SocketOption};
use pageferry_core::mbuf::Chain;
use pageferry_core::proc::{Syscall, WaitFlag};
use pageferry_hal::{Cause, Machine, SpinLock, Threads};

/// The smallest buffer that a socket can have.
const MIN_BUFFER_BYTES: usize = 4096;
/// The largest.
const MAX_BUFFER_BYTES: usize = 16 << 20;
/// The most connections that wait to be accepted (`SOMAXCONN`).
const MAX_BACKLOG: usize = 128;

/// The lock, held.
type NetGuard<'a, M> = <<M as Machine>::Lock<State<M>> as SpinLock<State<M>>>::Guard<'a>;

impl<M: Machine> Net<M> {
    /// Makes a socket that is bound to nothing.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn create(&self, call: &Syscall<'_, M>, kind: SocketKind) -> Result<PcbId, Errno> {
        self.with(call.thread, |stack| {
            let at = stack.block().ok_or(Errno::NoMemory)?;
            let timeout = stack.first_timeout();
            let kind = match kind {
                SocketKind::Stream => {
                    let NetConfig { send_buffer_bytes, receive_buffer_bytes, .. } = self.config;
                    Kind::Tcp(Box::new(Tcb::new(send_buffer_bytes, receive_buffer_bytes, timeout)))
                }
                SocketKind::Datagram => Kind::Udp(Udp::new(self.config.datagram_buffer_bytes)),
            };
            let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            let pcb = Pcb { at, local, remote: None, reuse: false, has_socket: true, error: None, kind };
            Ok(stack.s.pcbs.insert(pcb))
        })
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
            let pcb = stack.s.pcbs.get(id).ok_or(Errno::BadFd)?;
            let Kind::Tcp(tcb) = &pcb.kind else { return Err(Errno::NotSupported) };
            if !matches!(tcb.state(), TcpState::Closed | TcpState::Listen) {
                return Err(Errno::Invalid);
            }
            if pcb.local.port() == 0 {
                stack.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
            }
            stack.listen(id, backlog.clamp(1, MAX_BACKLOG));
            Ok(())
        })
    }

    /// Connects to `remote`, and waits until both ends agree. A datagram socket only remembers it.
    ///
    /// # Errors
    /// [`Errno::IsConnected`], [`Errno::InProgress`] at once for a non-blocking socket, [`Errno::ConnectionRefused`],
    /// [`Errno::TimedOut`], [`Errno::NetUnreachable`], [`Errno::AddressInUse`], [`Errno::NoMemory`],
    /// [`Errno::Interrupted`].
    pub fn connect(
        &self,
        call: &Syscall<'_, M>,
        id: PcbId,
        remote: SocketAddrV4,
        wait: WaitFlag,
    ) -> Result<(), Errno> {
        let is_stream = self.with(call.thread, |stack| stack.connect(id, remote))?;
        if !is_stream {
            return Ok(());
        }
        let mut held = self.state.lock();
        loop {
            let channel = held.pcbs.get(id).ok_or(Errno::BadFd)?.channel();
            match held.connect_outcome(id) {
                Err(Errno::InProgress) if !wait.is_no_wait() => {}
                outcome => return outcome,
            }
            held = self.wait(call, held, channel, "connec")?;
        }
    }

    /// How the connection that is being made of a stream is doing.
    ///
    /// # Errors
    /// [`Errno::InProgress`]; else as [`Net::connect`].
    pub fn connect_outcome(&self, id: PcbId) -> Result<(), Errno> {
        self.state.lock().connect_outcome(id)
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
    ) -> Result<(PcbId, SocketAddrV4), Errno> {
        let mut held = self.state.lock();
        loop {
            let pcb = held.pcbs.get_mut(id).ok_or(Errno::BadFd)?;
            let channel = pcb.channel();
            let Kind::Tcp(tcb) = &mut pcb.kind else { return Err(Errno::NotSupported) };
            if !tcb.is_listening() {
                return Err(Errno::Invalid);
            }
            if let Some(child) = tcb.accepting.pop_front() {
                // In the same hold of the lock: a reset may end it as soon as it is not waiting to be accepted.
                let pcb = held.pcbs.get_mut(child).expect("it waits to be accepted");
                return Ok((child, pcb.accepted()));
            }
            if wait.is_no_wait() {
                return Err(Errno::WouldBlock);
            }
            held = match self.wait(call, held, channel, "accept") {
                Ok(held) => held,
                Err(e) => {
                    // It may have been woken for a connection that it does not take.
                    call.thread.wakeup_one(channel);
                    return Err(e);
                }
            };
        }
    }

    /// Sleeps until something changes for a block.
    fn wait<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: NetGuard<'a, M>,
        channel: pageferry_hal::Channel,
        reason: &'static str,
    ) -> Result<NetGuard<'a, M>, Errno> {
        let mut held = Some(held);
        call.thread.sleep(channel, reason, true, &mut || drop(held.take()))?;
        Ok(self.state.lock())
    }

    /// Ends the direction of a connection, or of datagrams, that comes here.
    ///
    /// # Errors
    /// [`Errno::NotConnected`].
    pub fn shutdown_receive(&self, call: &Syscall<'_, M>, id: PcbId) -> Result<(), Errno> {
        self.with(call.thread, |stack| {
            let pcb = stack.s.pcbs.get_mut(id).ok_or(Errno::BadFd)?;
            let channel = pcb.channel();
            match &mut pcb.kind {
                Kind::Tcp(tcb) if tcb.buffers().is_none() || tcb.is_listening() => Err(Errno::NotConnected),
                Kind::Tcp(_) => {
                    stack.stop_receiving(id);
                    Ok(())
                }
                Kind::Udp(udp) => {
                    for datagram in udp.end() {
                        stack.free(datagram.bytes);
                    }
                    stack.wake(id, channel);
                    Ok(())
                }
            }
        })
    }

    /// Ends the direction of a connection that goes from here.
    ///
    /// # Errors
    /// [`Errno::NotConnected`].
    pub fn shutdown_send(&self, call: &Syscall<'_, M>, id: PcbId) -> Result<(), Errno> {
        self.with(call.thread, |stack| {
            let pcb = stack.s.pcbs.get_mut(id).ok_or(Errno::BadFd)?;
            match &pcb.kind {
                Kind::Tcp(tcb) if tcb.buffers().is_none() || tcb.is_listening() => Err(Errno::NotConnected),
                Kind::Tcp(_) => {
                    stack.finish(id);
                    Ok(())
                }
                Kind::Udp(_) => Ok(()),
            }
        })
    }

    /// The buffers of a connection.
    ///
    /// # Errors
    /// [`Errno::NotConnected`], or what ended the attempt to connect.
    pub(super) fn buffers(&self, id: PcbId) -> Result<Buffers<M>, Errno> {
        let mut held = self.state.lock();
        let pcb = held.pcbs.get_mut(id).ok_or(Errno::BadFd)?;
        let error = pcb.error;
        match pcb.tcb().state() {
            TcpState::Listen | TcpState::SynSent | TcpState::SynReceived => Err(Errno::NotConnected),
            _ => pcb.tcb().buffers().ok_or(error.unwrap_or(Errno::NotConnected)),
        }
    }

    /// What is to be told of a socket, once (`SO_ERROR`).
    pub fn take_error(&self, id: PcbId) -> Option<Errno> {
        self.state.lock().pcbs.get_mut(id).and_then(|pcb| pcb.error.take())
    }

    /// The names of a socket's ends.
    pub fn names(&self, id: PcbId) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno> {
        let held = self.state.lock();
        held.pcbs.get(id).map(|pcb| (pcb.local, pcb.remote)).ok_or(Errno::BadFd)
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a size out of bounds, or an option that the protocol does not have.
    pub fn set_option(&self, threads: &dyn Threads, id: PcbId, option: SocketOption) -> Result<(), Errno> {
        let in_bounds = |bytes: usize| match bytes {
            MIN_BUFFER_BYTES..=MAX_BUFFER_BYTES => Ok(bytes),
            _ => Err(Errno::Invalid),
        };
        let mut held = self.state.lock();
        let pcb = held.pcbs.get_mut(id).ok_or(Errno::BadFd)?;
        match (option, &mut pcb.kind) {
            (SocketOption::ReuseAddress(on), _) => pcb.reuse = on,
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
        self.with(call.thread, |stack| {
            let ready = stack.ready_to_send(id, remote);
            match ready {
                Ok((local, remote)) => stack.udp_output(local, remote, bytes),
                Err(e) => {
                    stack.free(bytes);
                    Err(e)
                }
            }
        })
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
            stack.route(*remote.ip())
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
        id: PcbId,
        wait: WaitFlag,
    ) -> Result<Option<Datagram>, Errno> {
        let mut held = self.state.lock();
        loop {
            let pcb = held.pcbs.get_mut(id).ok_or(Errno::BadFd)?;
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
            held = self.wait(call, held, channel, "netrd")?;
        }
    }

    /// What a socket is ready for.
    pub fn readiness(&self, id: PcbId) -> Readiness {
        let held = self.state.lock();
        let Some(pcb) = held.pcbs.get(id) else { return Readiness { hung_up: true, ..Readiness::default() } };
        match &pcb.kind {
            Kind::Udp(udp) => {
                let readable = !udp.is_empty() || udp.has_ended() || pcb.error.is_some();
                Readiness { readable, writable: true, hung_up: false }
            }
            Kind::Tcp(tcb) if tcb.is_listening() => {
                Readiness { readable: !tcb.accepting.is_empty(), ..Readiness::default() }
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
        self.with(threads, |stack| match stack.s.pcbs.get(id).map(Pcb::protocol) {
            Some(Protocol::Tcp) => stack.close(id),
            Some(Protocol::Udp) => stack.remove(id),
            None => {}
        });
    }
}

impl<M: Machine> State<M> {
    fn connect_outcome(&mut self, id: PcbId) -> Result<(), Errno> {
        let pcb = self.pcbs.get_mut(id).ok_or(Errno::BadFd)?;
        if pcb.protocol() == Protocol::Udp {
            return Ok(());
        }
        match pcb.tcb().state() {
            TcpState::SynSent | TcpState::SynReceived => Err(Errno::InProgress),
            TcpState::Closed => Err(pcb.error.take().unwrap_or(Errno::ConnectionAborted)),
            _ => Ok(()),
        }
    }
}

impl<M: Machine> Net<M> {
    /// Bytes were put into the buffer of a connection.
    pub(super) fn tcp_sent(&self, threads: &dyn Threads, id: PcbId) {
        let _c = self.core.machine.scope(Cause::Protocol);
        self.with(threads, |stack| {
            if stack.s.pcbs.get(id).is_some() {
                stack.tcp_output(id);
            }
        });
    }
}

impl<M: Machine> Stack<'_, M> {
    fn bind(&mut self, id: PcbId, local: SocketAddrV4) -> Result<(), Errno> {
        let pcb = self.s.pcbs.get(id).ok_or(Errno::BadFd)?;
        let (protocol, reuse) = (pcb.protocol(), pcb.reuse);
        if pcb.local.port() != 0 {
            return Err(Errno::Invalid);
        }
        if !local.ip().is_unspecified() && !self.is_own(*local.ip()) {
            return Err(Errno::AddressNotAvailable);
        }
        let port = match local.port() {
            0 => self.s.pcbs.free_port(protocol).ok_or(Errno::AddressInUse)?,
            port => port,
        };
        let local = SocketAddrV4::new(*local.ip(), port);
        if !self.s.pcbs.is_free(protocol, local, reuse) {
            return Err(Errno::AddressInUse);
        }
        self.s.pcbs.get_mut(id).expect("seen above").local = local;
        Ok(())
    }

    /// True for a stream, whose connection has begun.
    fn connect(&mut self, id: PcbId, remote: SocketAddrV4) -> Result<bool, Errno> {
        let pcb = self.s.pcbs.get_mut(id).ok_or(Errno::BadFd)?;
        let is_stream = pcb.protocol() == Protocol::Tcp;
        if is_stream {
            match pcb.tcb().state() {
                TcpState::Closed if pcb.remote.is_none() => {}
                TcpState::Closed => return Err(pcb.error.take().unwrap_or(Errno::Invalid)),
                TcpState::Listen => return Err(Errno::NotSupported),
                TcpState::SynSent | TcpState::SynReceived => return Err(Errno::AlreadyInProgress),
                _ => return Err(Errno::IsConnected),
            }
        } else if pcb.remote.is_some() {
            return Err(Errno::IsConnected);
        }
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(Errno::AddressNotAvailable);
        }
        let source = self.source_for(*remote.ip())?;
        if self.s.pcbs.get(id).is_some_and(|pcb| pcb.local.port() == 0) {
            self.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        }
        let pcb = self.s.pcbs.get(id).expect("seen above");
        let ip = if pcb.local.ip().is_unspecified() { source } else { *pcb.local.ip() };
        let local = SocketAddrV4::new(ip, pcb.local.port());
        if !self.s.pcbs.connect(id, local, remote) {
            return Err(Errno::AddressInUse);
        }
        if is_stream && let Err(e) = self.begin(id) {
            self.s.pcbs.disconnect(id);
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
        let pcb = self.s.pcbs.get(id).ok_or(Errno::BadFd)?;
        let remote = match (to, pcb.remote) {
            (Some(_), Some(_)) => return Err(Errno::IsConnected),
            (to, connected) => to.or(connected).ok_or(Errno::DestinationRequired)?,
        };
        if pcb.local.port() == 0 {
            self.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        }
        Ok((self.s.pcbs.get(id).expect("seen above").local, remote))
    }
}
