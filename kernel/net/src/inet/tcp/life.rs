//! How connections begin and end.
//!
//! A connection has two socket buffers, each with an end that the process has and one that TCP has. TCP closes its end
//! of the one for receiving when nothing more will come, and its end of the one for sending when nothing more will be
//! acknowledged. The process's ends are closed with its descriptor; a connection that no process ever accepted has them
//! closed here.

use super::super::id::PcbId;
use super::super::pcb::{Kind, Pcb};
use super::super::stack::{PCB_USED_BYTES, Stack};
use super::super::upcall::Connection;
use super::input::Segment;
use super::seq::Seq;
use super::tcb::{Tcb, TcpState, Timestamps};
use crate::SockBuf;
use alloc::boxed::Box;
use core::net::SocketAddrV4;
use core::ops::RangeInclusive;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_abi::Errno;
use pageferry_core::defect::NetDefect;
use pageferry_hal::{Access, Cycles, Machine, StructVa};

/// Bytes of the headers of IP and TCP without options, and of the timestamps option.
const HEADERS_BYTES: usize = 40;
const TIMESTAMPS_BYTES: usize = 12;

impl<M: Machine> Stack<'_, M> {
    /// A number to begin with: farther on for each connection, so that old segments do not fit.
    fn initial_sequence(&mut self) -> Seq {
        let step = 64_000 + (self.now().0 >> 8) as u32 % 64_000;
        let this = self.s.next_isn;
        self.s.next_isn = this.wrapping_add(step);
        Seq(this)
    }

    /// The most data in a segment, as it is told to the other end.
    pub(super) fn offered_segment(&mut self, id: PcbId) -> usize {
        let remote = self.s.pcbs.get(id).and_then(|pcb| pcb.remote);
        let route = remote.and_then(|remote| self.route(*remote.ip()).ok());
        route.map_or(536, |route| self.mtu(route) - HEADERS_BYTES)
    }

    /// Gives a block its buffers, and what a connection begins with.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    fn prepare(&mut self, id: PcbId) -> Result<(), Errno> {
        let (initial, defect) = (self.initial_sequence(), self.config().defect);
        let (send_bytes, receive_bytes, low_water) = {
            let t = self.tcb(id);
            (t.send_bytes, t.receive_bytes, t.receive_low_water)
        };
        let buffer = |bytes| {
            let told = Connection { net: self.net.me.clone(), id };
            SockBuf::create(&self.net.core, &self.net.buffers, bytes, Some(Box::new(told)))
        };
        let receive = buffer(receive_bytes)?;
        if low_water > 1 {
            receive.set_low_water(self.ip.threads, low_water);
        }
        let send = buffer(send_bytes).inspect_err(|_| receive.discard())?;
        let scale = (0..14).find(|scale| receive_bytes >> scale <= 0xffff).unwrap_or(14);
        let t = self.tcb(id);
        (t.receive, t.send) = (Some(receive), Some(send));
        (t.snd.initial, t.snd.una, t.snd.next, t.snd.max) = (initial, initial, initial, initial);
        t.rcv.scale = scale;
        t.timestamps = Some(Timestamps::default());
        t.defect = defect;
        Ok(())
    }

    /// Begins a connection to where the block is connected to.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(in crate::inet) fn begin(&mut self, id: PcbId) -> Result<(), Errno> {
        self.prepare(id)?;
        self.tcb(id).state = TcpState::SynSent;
        self.tcp_output(id);
        Ok(())
    }

    /// A segment for a block that listens: if it asks for a connection, one is begun.
    pub(super) fn listener_input(&mut self, id: PcbId, segment: &Segment) {
        if segment.rst {
            return;
        }
        if segment.ack.is_some() {
            return self.refuse(segment);
        }
        let listener = self.tcb(id);
        let room = listener.backlog * 3 / 2;
        let (full, crowded) = (listener.accepting.len() > room, listener.incomplete > room);
        if !segment.syn || full {
            self.ip.net.tally.no_room.add(u64::from(full));
            return;
        }
        // Who never answers shuts nobody out: the one that was begun first gives way, as in a full row of FreeBSD's
        // `syncache`. Its other end, if it is one, asks again.
        if crowded && let Some(first) = self.s.pcbs.first_half_open(id) {
            self.ip.net.tally.no_room.add(1);
            self.drop_connection(first, None);
        }
        if self.new_connection(id, segment).is_none() {
            // The other end asks again.
            self.ip.net.tally.no_room.add(1);
        }
    }

    fn new_connection(&mut self, listener: PcbId, segment: &Segment) -> Option<PcbId> {
        let at = self.block()?;
        self.m().touch(at, PCB_USED_BYTES, Access::Write);
        let of = self.tcb(listener);
        let (send_bytes, receive_bytes) = (of.send_bytes, of.receive_bytes);
        let (no_delay, low_water) = (of.no_delay, of.receive_low_water);
        let mut tcb = Tcb::new(send_bytes, receive_bytes, self.cycles(self.config().initial_rto_ms));
        (tcb.no_delay, tcb.receive_low_water, tcb.parent) = (no_delay, low_water, Some(listener));
        let id = self.s.pcbs.insert(Pcb {
            at,
            local: segment.local,
            remote: Some(segment.remote),
            reuse: false,
            has_socket: false,
            error: None,
            kind: Kind::Tcp(alloc::boxed::Box::new(tcb)),
        });
        if self.prepare(id).is_err() {
            self.s.pcbs.remove(id);
            self.s.zone.free(at);
            return None;
        }
        self.take_options(id, segment);
        let t = self.tcb(id);
        t.state = TcpState::SynReceived;
        t.rcv.initial = segment.seq;
        t.rcv.next = segment.seq + 1;
        t.rcv.advertised = t.rcv.next;
        t.snd.window = segment.window;
        self.tcb(listener).incomplete += 1;
        self.tcp_output(id);
        Some(id)
    }

    /// Room for a block. Where there is none, the connection that has been over for longest is forgotten (FreeBSD 5,
    /// `tcp_timer_2msl_tw`).
    pub(in crate::inet) fn block(&mut self) -> Option<StructVa> {
        if let Some(at) = self.s.zone.alloc() {
            return Some(at);
        }
        let over = self.s.pcbs.first_in_time_wait()?;
        self.drop_connection(over, None);
        self.s.zone.alloc()
    }

    /// What the SYN of the other end asks for.
    pub(super) fn take_options(&mut self, id: PcbId, segment: &Segment) {
        let (own, unit) = (self.offered_segment(id), self.config().segment_unit_bytes);
        let t = self.tcb(id);
        let max_segment_bytes = segment.max_segment.unwrap_or(536).clamp(64, own);
        match segment.scale {
            Some(scale) => t.snd.scale = scale,
            None => (t.snd.scale, t.rcv.scale) = (0, 0),
        }
        match (&mut t.timestamps, segment.timestamps) {
            (Some(stamps), Some((theirs, _))) => {
                stamps.recent = theirs;
                t.segment_bytes = max_segment_bytes - TIMESTAMPS_BYTES;
            }
            _ => (t.timestamps, t.segment_bytes) = (None, max_segment_bytes),
        }
        if unit > 0 && t.segment_bytes > unit {
            t.segment_bytes -= t.segment_bytes % unit;
        }
    }

    /// Both ends agree. False when nothing wants the connection any more.
    pub(super) fn connected(&mut self, id: PcbId, segment: &Segment) -> bool {
        let (now, ms, bounds) = (self.now(), self.config().ms_cycles, self.timeout_bounds());
        let (segments, bytes) = (self.config().initial_window_segments, self.config().initial_window_bytes);
        let t = self.tcb(id);
        // The SYN is the first that is timed. Left for later, the time would be how long the connection was idle.
        if let Some((_, since)) = t.timing.timed.take() {
            t.measured(now.saturating_sub(since).0, ms, bounds);
        }
        t.state = if t.finishing { TcpState::FinWait1 } else { TcpState::Established };
        // The window of a SYN is not scaled.
        t.snd.window = segment.window << if segment.syn { 0 } else { t.snd.scale };
        (t.snd.window_seq, t.snd.window_ack) = (segment.seq, segment.ack.unwrap_or_default());
        t.snd.max_window = t.snd.window;
        t.snd.congestion = (segments * t.segment_bytes).min((2 * t.segment_bytes).max(bytes));
        t.snd.threshold = usize::MAX;
        t.snd.next = t.snd.next.max(t.snd.una);
        let channel = self.s.pcbs.get(id).expect("the block exists").channel();
        match self.tcb(id).parent {
            None => self.wake(id, channel),
            Some(listener) => {
                let Some(of) = self.s.pcbs.get_mut(listener) else {
                    self.abort(id);
                    return false;
                };
                let channel = of.channel();
                let of = of.tcb();
                of.incomplete -= 1;
                of.accepting.push_back(id);
                // A connection is for one process (FreeBSD, `sonewconn`).
                self.threads.wakeup_one(channel);
                self.net.changed(self.threads, listener);
            }
        }
        true
    }

    // ------------------------------------------------------------------------------------------- ending

    /// The process sends no more: a FIN follows what is in the buffer.
    pub(in crate::inet) fn finish(&mut self, id: PcbId) {
        let t = self.tcb(id);
        if t.finishing {
            return;
        }
        t.finishing = true;
        if let Some(buffer) = t.send.clone() {
            // Another process may be about to write, or wait to: behind the FIN there is no place.
            buffer.seal(self.threads);
        }
        let t = self.tcb(id);
        match t.state {
            TcpState::Established => t.state = TcpState::FinWait1,
            TcpState::CloseWait => t.state = TcpState::LastAck,
            // When it is connected.
            _ => return,
        }
        self.tcp_output(id);
    }

    /// The process receives no more: what is there and what still comes is thrown away, and acknowledged as if it were
    /// read.
    pub(in crate::inet) fn stop_receiving(&mut self, id: PcbId) {
        if let Some(buffer) = self.tcb(id).receive.clone() {
            buffer.deafen(self.pool(), self.threads);
            self.net.changed(self.threads, id);
            // There is room again.
            self.tcp_output(id);
        }
    }

    /// The process has closed its descriptor.
    pub(in crate::inet) fn close(&mut self, id: PcbId) {
        let Some(pcb) = self.s.pcbs.get_mut(id) else { return };
        pcb.has_socket = false;
        // What was received and will not be read is lost: the other end is told so (RFC 2525, 2.17).
        let unread = pcb.tcb().receive.as_ref().is_some_and(|buffer| buffer.queued() > 0);
        self.end_process_side(id);
        let end = self.linger_ends();
        let t = self.tcb(id);
        match t.state {
            TcpState::Listen => self.close_listener(id),
            TcpState::Closed | TcpState::SynSent => self.drop_connection(id, None),
            _ if t.resets_on_close || unread => self.abort(id),
            TcpState::FinWait2 => t.deadlines.end = Some(end),
            _ => self.finish(id),
        }
    }

    fn close_listener(&mut self, id: PcbId) {
        for child in self.s.pcbs.ids() {
            let is_its =
                matches!(self.s.pcbs.get(child).map(|p| &p.kind), Some(Kind::Tcp(t)) if t.parent == Some(id));
            if is_its {
                self.abort(child);
            }
        }
        self.drop_connection(id, None);
    }

    /// The process that had it is gone, or about to go, and with it all that it knew: the other end is told, or finds
    /// out by itself.
    pub(in crate::inet) fn disown(&mut self, id: PcbId, is_told: bool) {
        let Some(pcb) = self.s.pcbs.get_mut(id) else { return };
        if let Kind::Udp(_) = pcb.kind {
            return self.remove(id);
        }
        if core::mem::replace(&mut pcb.has_socket, false) {
            self.end_process_side(id);
        }
        match is_told {
            true => self.abort(id),
            false => self.drop_connection(id, None),
        }
    }

    /// Ends a connection at once, and tells the other end.
    pub(in crate::inet) fn abort(&mut self, id: PcbId) {
        self.abort_with(id, Errno::ConnectionAborted);
    }

    /// As [`Stack::abort`]; the process is told `error`.
    pub(in crate::inet) fn abort_with(&mut self, id: PcbId, error: Errno) {
        let Some(pcb) = self.s.pcbs.get_mut(id) else { return };
        if let Kind::Udp(_) = pcb.kind {
            return self.remove(id);
        }
        let state = pcb.tcb().state;
        if state.is_synchronized() && state != TcpState::TimeWait || state == TcpState::SynReceived {
            self.ip.net.tally.reset.add(1);
            self.reset_peer(id);
        }
        self.drop_connection(id, Some(error));
    }

    /// Nothing more will come.
    pub(super) fn end_receiving(&mut self, id: PcbId) {
        let t = self.tcb(id);
        if core::mem::replace(&mut t.receive_ended, true) {
            return;
        }
        if let Some(buffer) = t.receive.clone() {
            buffer.end(&self.net.core, || buffer.close_writer(self.threads));
            self.net.changed(self.threads, id);
        }
    }

    fn end_sending(&mut self, id: PcbId) {
        let t = self.tcb(id);
        if core::mem::replace(&mut t.send_ended, true) {
            return;
        }
        if let Some(buffer) = t.send.clone() {
            buffer.end(&self.net.core, || buffer.close_reader(self.pool(), self.threads));
            self.net.changed(self.threads, id);
        }
    }

    /// The process's ends of the buffers are closed: nothing is read or written any more.
    fn end_process_side(&mut self, id: PcbId) {
        if let Some(super::tcb::Buffers { receive, send }) = self.tcb(id).buffers() {
            receive.end(&self.net.core, || receive.close_reader(self.pool(), self.threads));
            send.end(&self.net.core, || send.close_writer(self.threads));
        }
    }

    /// When a connection is forgotten that ends now (`2MSL`).
    pub(super) fn linger_ends(&self) -> Cycles {
        self.now() + self.cycles(self.config().time_wait_ms)
    }

    /// Nothing of the connection is left but what its last segments may still need.
    pub(super) fn enter_time_wait(&mut self, id: PcbId) {
        let end = self.linger_ends();
        let t = self.tcb(id);
        t.state = TcpState::TimeWait;
        t.deadlines = super::tcb::Deadlines { end: Some(end), ..Default::default() };
        // All is acknowledged: buffers are for connections that still carry something.
        self.end_sending(id);
    }

    /// Gives up what has come out of order: the far end has it still, as it was not acknowledged.
    pub(in crate::inet) fn drop_early(&mut self, id: PcbId) {
        let early = core::mem::take(&mut self.tcb(id).early);
        self.ip.net.early.fetch_sub(early.len(), Relaxed);
        early.into_iter().for_each(|segment| self.free(segment.bytes));
    }

    /// The connection is over. Its process, if it has one, is told why.
    pub(in crate::inet) fn drop_connection(&mut self, id: PcbId, error: Option<Errno>) {
        let t = self.tcb(id);
        let (before, parent) = (t.state, t.parent.take());
        t.state = TcpState::Closed;
        t.deadlines = super::tcb::Deadlines::default();
        let early = core::mem::take(&mut t.early);
        self.ip.net.early.fetch_sub(early.len(), Relaxed);
        if error != Some(Errno::ConnectionReset) || !self.has(NetDefect::EarlyLostOnReset) {
            early.into_iter().for_each(|segment| self.free(segment.bytes));
        }
        if let Some(of) = parent.and_then(|listener| self.s.pcbs.get_mut(listener)) {
            let of = of.tcb();
            match before {
                TcpState::SynReceived => of.incomplete -= 1,
                _ => of.accepting.retain(|child| *child != id),
            }
        }
        self.end_receiving(id);
        self.end_sending(id);
        if parent.is_some() {
            self.end_process_side(id);
        }
        let pcb = self.s.pcbs.get_mut(id).expect("the block exists");
        let channel = pcb.channel();
        if pcb.has_socket {
            pcb.error = error;
            self.wake(id, channel);
        } else {
            self.remove(id);
        }
    }

    /// Gives a block back.
    pub(in crate::inet) fn remove(&mut self, id: PcbId) {
        let Some(pcb) = self.s.pcbs.remove(id) else { return };
        if let Kind::Udp(mut udp) = pcb.kind {
            while let Some(datagram) = udp.take() {
                self.free(datagram.bytes);
            }
        }
        self.s.zone.free(pcb.at);
    }

    /// The shortest and the longest timeout, in cycles.
    pub(super) fn timeout_bounds(&self) -> RangeInclusive<u64> {
        self.cycles(self.config().min_rto_ms).0..=self.cycles(self.config().max_rto_ms).0
    }

    /// The least and the most time between two probes of a closed window, in cycles.
    pub(super) fn probe_bounds(&self) -> RangeInclusive<u64> {
        self.cycles(self.config().min_persist_ms).0..=self.cycles(self.config().max_persist_ms).0
    }

    /// The timeout that connections begin with.
    pub(in crate::inet) fn first_timeout(&self) -> Cycles {
        self.cycles(self.config().initial_rto_ms)
    }

    /// Listens from now on.
    pub(in crate::inet) fn listen(&mut self, id: PcbId, backlog: usize) {
        let t = self.tcb(id);
        (t.state, t.backlog) = (TcpState::Listen, backlog);
    }
}

impl<M: Machine> Pcb<M> {
    /// A process accepts it.
    pub(in crate::inet) fn accepted(&mut self) -> SocketAddrV4 {
        self.has_socket = true;
        self.tcb().parent = None;
        self.remote.expect("it is connected")
    }

    /// It is connected, or about to be, and no process has accepted it yet.
    pub(super) fn awaits_accept(&self) -> bool {
        matches!(&self.kind, Kind::Tcp(tcb) if tcb.parent.is_some())
    }
}
