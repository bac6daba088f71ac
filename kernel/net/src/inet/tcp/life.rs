//! What connections begin with, and how they end.
//!
//! A connection has two socket buffers, each with an end that the process has and one that TCP has. TCP closes its end
//! of the one for receiving when nothing more will come, and its end of the one for sending when nothing more will be
//! acknowledged. The process's ends are closed with its descriptor; a connection that no process ever accepted has them
//! closed here.

use super::super::conn::Conn;
use super::super::pcb::{Owner, Protocol};
use super::super::upcall::Connection;
use super::input::Segment;
use super::seq::Seq;
use super::tcb::{TcpState, Timestamps};
use crate::SockBuf;
use alloc::boxed::Box;
use core::net::SocketAddrV4;
use core::ops::RangeInclusive;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_abi::Errno;
use pageferry_core::defect::NetDefect;
use pageferry_hal::{Cycles, Machine};

/// Bytes of the headers of IP and TCP without options, and of the timestamps option.
const HEADERS_BYTES: usize = 40;
const TIMESTAMPS_BYTES: usize = 12;

impl<M: Machine> Conn<'_, '_, M> {
    /// A number to begin with: farther on for each connection, so that old segments do not fit.
    fn initial_sequence(&mut self) -> Seq {
        let step = 64_000 + (self.now().0 >> 8) as u32 % 64_000;
        let table = self.table();
        let this = table.next_isn;
        table.next_isn = this.wrapping_add(step);
        Seq(this)
    }

    /// The most data in a segment, as it is told to the other end.
    pub(super) fn offered_segment(&mut self) -> usize {
        let ends = self.tcb().ends;
        let route = ends.and_then(|(_, remote)| self.route(*remote.ip()).ok());
        route.map_or(536, |route| self.mtu(route) - HEADERS_BYTES)
    }

    /// Gives a block its buffers, and what a connection between `ends` begins with.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(super) fn prepare(&mut self, ends: (SocketAddrV4, SocketAddrV4)) -> Result<(), Errno> {
        let (initial, defect) = (self.initial_sequence(), self.config().defect);
        let (send_bytes, receive_bytes, low_water) = {
            let t = self.tcb();
            (t.send_bytes, t.receive_bytes, t.receive_low_water)
        };
        let buffer = |bytes| {
            let told = Connection { net: self.net.me.clone(), id: self.id };
            SockBuf::create(&self.net.core, &self.net.buffers, bytes, Some(Box::new(told)))
        };
        let receive = buffer(receive_bytes)?;
        if low_water > 1 {
            receive.set_low_water(self.ip.threads, low_water);
        }
        let send = buffer(send_bytes).inspect_err(|_| receive.discard())?;
        let scale = (0..14).find(|scale| receive_bytes >> scale <= 0xffff).unwrap_or(14);
        let t = self.tcb();
        (t.receive, t.send) = (Some(receive), Some(send));
        (t.snd.initial, t.snd.una, t.snd.next, t.snd.max) = (initial, initial, initial, initial);
        (t.rcv.scale, t.ends) = (scale, Some(ends));
        t.timestamps = Some(Timestamps::default());
        t.defect = defect;
        Ok(())
    }

    /// What the SYN of the other end asks for.
    pub(super) fn take_options(&mut self, segment: &Segment) {
        let (own, unit) = (self.offered_segment(), self.config().segment_unit_bytes);
        let t = self.tcb();
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
    pub(super) fn connected(&mut self, segment: &Segment) -> bool {
        let (now, ms, bounds) = (self.now(), self.config().ms_cycles, self.timeout_bounds());
        let (segments, bytes) = (self.config().initial_window_segments, self.config().initial_window_bytes);
        let t = self.tcb();
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
        match self.pcb.owner {
            Owner::Process | Owner::Nobody => self.wake(self.id, self.pcb.channel()),
            Owner::Listener => {
                if !self.is_to_be_accepted() {
                    self.abort();
                    return false;
                }
            }
        }
        true
    }

    // ------------------------------------------------------------------------------------------- ending

    /// The process sends no more: a FIN follows what is in the buffer.
    pub(in crate::inet) fn finish(&mut self) {
        let t = self.tcb();
        if t.finishing {
            return;
        }
        t.finishing = true;
        if let Some(buffer) = t.send.clone() {
            // Another process may be about to write, or wait to: behind the FIN there is no place.
            buffer.seal(self.threads);
        }
        let t = self.tcb();
        match t.state {
            TcpState::Established => t.state = TcpState::FinWait1,
            TcpState::CloseWait => t.state = TcpState::LastAck,
            // When it is connected.
            _ => return,
        }
        self.tcp_output();
    }

    /// The process receives no more: what is there and what still comes is thrown away, and acknowledged as if it were
    /// read.
    pub(in crate::inet) fn stop_receiving(&mut self) {
        if let Some(buffer) = self.tcb().receive.clone() {
            buffer.deafen(self.pool(), self.threads);
            self.net.changed(self.threads, self.id);
            // There is room again.
            self.tcp_output();
        }
    }

    /// The process has closed its descriptor.
    pub(super) fn close(&mut self) {
        self.pcb.owner = Owner::Nobody;
        // What was received and will not be read is lost: the other end is told so (RFC 2525, 2.17).
        let unread = self.tcb().receive.as_ref().is_some_and(|buffer| buffer.queued() > 0);
        self.end_process_side();
        let end = self.linger_ends();
        let t = self.tcb();
        match t.state {
            TcpState::Listen | TcpState::Closed | TcpState::SynSent => self.drop_connection(None),
            _ if t.resets_on_close || unread => self.abort(),
            TcpState::FinWait2 => t.deadlines.end = Some(end),
            _ => self.finish(),
        }
    }

    /// The process that had it is gone, or about to go, and with it all that it knew: the other end is told, or finds
    /// out by itself.
    pub(in crate::inet) fn disown(&mut self, is_told: bool) {
        if self.pcb.protocol() == Protocol::Udp {
            return self.remove();
        }
        if self.pcb.owner == Owner::Process {
            self.pcb.owner = Owner::Nobody;
            self.end_process_side();
        }
        match is_told {
            true => self.abort(),
            false => self.drop_connection(None),
        }
    }

    /// Ends a connection at once, and tells the other end.
    pub(in crate::inet) fn abort(&mut self) {
        self.abort_with(Errno::ConnectionAborted);
    }

    /// As [`Conn::abort`]; the process is told `error`.
    pub(in crate::inet) fn abort_with(&mut self, error: Errno) {
        if self.pcb.protocol() == Protocol::Udp {
            return self.remove();
        }
        let state = self.tcb().state;
        if state.is_synchronized() && state != TcpState::TimeWait || state == TcpState::SynReceived {
            self.ip.net.tally.reset.add(1);
            self.reset_peer();
        }
        self.drop_connection(Some(error));
    }

    /// Nothing more will come.
    pub(super) fn end_receiving(&mut self) {
        let t = self.tcb();
        if core::mem::replace(&mut t.receive_ended, true) {
            return;
        }
        if let Some(buffer) = t.receive.clone() {
            buffer.end(&self.net.core, || buffer.close_writer(self.threads));
            self.net.changed(self.threads, self.id);
        }
    }

    fn end_sending(&mut self) {
        let t = self.tcb();
        if core::mem::replace(&mut t.send_ended, true) {
            return;
        }
        if let Some(buffer) = t.send.clone() {
            buffer.end(&self.net.core, || buffer.close_reader(self.pool(), self.threads));
            self.net.changed(self.threads, self.id);
        }
    }

    /// The process's ends of the buffers are closed: nothing is read or written any more.
    fn end_process_side(&mut self) {
        if let Some(super::tcb::Buffers { receive, send }) = self.tcb().buffers() {
            receive.end(&self.net.core, || receive.close_reader(self.pool(), self.threads));
            send.end(&self.net.core, || send.close_writer(self.threads));
        }
    }

    /// When a connection is forgotten that ends now (`2MSL`).
    pub(super) fn linger_ends(&self) -> Cycles {
        self.now() + self.cycles(self.config().time_wait_ms)
    }

    /// Nothing of the connection is left but what its last segments may still need.
    pub(super) fn enter_time_wait(&mut self) {
        let end = self.linger_ends();
        let t = self.tcb();
        t.state = TcpState::TimeWait;
        t.deadlines = super::tcb::Deadlines { end: Some(end), ..Default::default() };
        // All is acknowledged: buffers are for connections that still carry something.
        self.end_sending();
    }

    /// Gives up what has come out of order: the far end has it still, as it was not acknowledged.
    pub(in crate::inet) fn drop_early(&mut self) {
        let early = core::mem::take(&mut self.tcb().early);
        self.ip.net.early.fetch_sub(early.len(), Relaxed);
        early.into_iter().for_each(|segment| self.free(segment.bytes));
    }

    /// The connection is over. Its process, if it has one, is told why.
    pub(in crate::inet) fn drop_connection(&mut self, error: Option<Errno>) {
        let t = self.tcb();
        let before = core::mem::replace(&mut t.state, TcpState::Closed);
        t.deadlines = super::tcb::Deadlines::default();
        let early = core::mem::take(&mut t.early);
        self.ip.net.early.fetch_sub(early.len(), Relaxed);
        if error != Some(Errno::ConnectionReset) || !self.has(NetDefect::EarlyLostOnReset) {
            early.into_iter().for_each(|segment| self.free(segment.bytes));
        }
        if before == TcpState::Listen {
            let id = self.id;
            self.table().pcbs.get_mut(id).and_then(|entry| entry.listener.take());
        }
        self.leave_listener(before);
        self.end_receiving();
        self.end_sending();
        if self.pcb.owner == Owner::Listener {
            self.pcb.owner = Owner::Nobody;
            self.end_process_side();
        }
        if self.pcb.owner == Owner::Process {
            self.pcb.error = error;
            self.wake(self.id, self.pcb.channel());
        } else {
            self.remove();
        }
    }

    /// The shortest and the longest timeout, in cycles.
    pub(super) fn timeout_bounds(&self) -> RangeInclusive<u64> {
        self.cycles(self.config().min_rto_ms).0..=self.cycles(self.config().max_rto_ms).0
    }

    /// The least and the most time between two probes of a closed window, in cycles.
    pub(super) fn probe_bounds(&self) -> RangeInclusive<u64> {
        self.cycles(self.config().min_persist_ms).0..=self.cycles(self.config().max_persist_ms).0
    }
}
