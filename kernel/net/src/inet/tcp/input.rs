//! Segments that arrive (RFC 9293, 3.10.7).
//!
//! A segment is trimmed to the window first; then its flags, its acknowledgement, its window, its data and its FIN are
//! looked at, in this order. What has to be answered is answered at the end, in one segment.

use super::super::conn::Conn;
use super::super::pcb::{Kind, Owner, Protocol};
use super::super::stack::{Ip, PCB_USED_BYTES, Stack};
use super::super::wire::{Addresses, MAX_HEADER_BYTES, TCP_BYTES};
use super::seq::Seq;
use super::tcb::{Early, TcpState};
use core::net::SocketAddrV4;
use core::sync::atomic::Ordering::Relaxed;
use etherparse::{IpNumber, TcpHeaderSlice, TcpOptionElement};
use pageferry_abi::Errno;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Access, Machine};

/// Segments that are kept until those before them come.
const MAX_EARLY: usize = 128;

/// What a segment's header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
    pub(super) seq: Seq,
    /// Bytes of data, once trimmed.
    pub(super) len: usize,
    pub(super) ack: Option<Seq>,
    pub(super) window: usize,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) rst: bool,
    pub(super) max_segment: Option<usize>,
    pub(super) scale: Option<u8>,
    /// Their clock, and what it echoes of ours.
    pub(super) timestamps: Option<(u32, u32)>,
}

impl Segment {
    /// The sequence number behind all of it.
    pub(super) fn end(&self) -> Seq {
        self.seq + self.len + usize::from(self.syn) + usize::from(self.fin)
    }
}

impl<M: Machine> Ip<'_, M> {
    /// Takes in a segment, without its IP header.
    pub(in crate::inet) fn tcp_input(&self, addresses: Addresses, mut packet: Chain, summed: bool) {
        self.m().execute(self.config().paths.tcp_input);
        let Some((segment, header_bytes)) = self.parse(addresses, &packet) else {
            self.net.tally.malformed.add(1);
            return self.free(packet);
        };
        if !summed {
            let pseudo = addresses.pseudo_sum(IpNumber::TCP, packet.len());
            if !self.sum_is_right(&packet, pseudo) {
                return self.free(packet);
            }
        }
        packet.drop_front(self.pool(), header_bytes);
        self.net.with(self.threads, |stack| stack.segment_input(segment, packet));
    }

    fn parse(&self, addresses: Addresses, packet: &Chain) -> Option<(Segment, usize)> {
        let mut front = [0; MAX_HEADER_BYTES - TCP_BYTES * 3];
        let there = super::super::wire::front(packet, self.pool(), &mut front).len();
        let bytes = if self.has(NetDefect::LengthBelieved) { &front[..] } else { &front[..there] };
        let header = TcpHeaderSlice::from_slice(bytes).ok()?;
        let header_bytes = header.slice().len();
        let mut segment = Segment {
            local: SocketAddrV4::new(addresses.destination, header.destination_port()),
            remote: SocketAddrV4::new(addresses.source, header.source_port()),
            seq: Seq(header.sequence_number()),
            len: packet.len() - header_bytes,
            ack: header.ack().then(|| Seq(header.acknowledgment_number())),
            window: usize::from(header.window_size()),
            syn: header.syn(),
            fin: header.fin(),
            rst: header.rst(),
            max_segment: None,
            scale: None,
            timestamps: None,
        };
        for option in header.options_iterator() {
            // Behind what is no option nothing is believed.
            match option {
                Ok(TcpOptionElement::MaximumSegmentSize(bytes)) => {
                    segment.max_segment = Some(usize::from(bytes));
                }
                Ok(TcpOptionElement::WindowScale(shift)) => segment.scale = Some(shift.min(14)),
                Ok(TcpOptionElement::Timestamp(theirs, ours)) => segment.timestamps = Some((theirs, ours)),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Some((segment, header_bytes))
    }
}

impl<M: Machine> Stack<'_, M> {
    /// Takes in a segment that is sound.
    fn segment_input(&mut self, segment: Segment, packet: Chain) {
        let Some(id) = self.table().pcbs.lookup(Protocol::Tcp, segment.local, segment.remote) else {
            self.ip.net.tally.no_socket.add(1);
            self.ip.free(packet);
            return self.ip.refuse(&segment);
        };
        if self.table().pcbs.listener(id).is_some() {
            self.ip.free(packet);
            return self.listener_input(id, &segment);
        }
        let next = self.on(id, |conn| conn.segment_input(segment, packet)).expect("just found");
        if next == Next::AnotherConnection {
            match self.table().pcbs.lookup(Protocol::Tcp, segment.local, segment.remote) {
                Some(listener) => self.listener_input(listener, &segment),
                None => self.ip.refuse(&segment),
            }
        }
    }
}

/// What follows a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Nothing,
    /// The connection was over, and the segment begins another.
    AnotherConnection,
}

/// What a SYN within a connection comes to.
enum Syn {
    /// The rest of the segment is to be looked at, without it.
    Taken,
    Answered,
    /// The connection was over: this begins another.
    AnotherConnection,
}

impl<M: Machine> Conn<'_, '_, M> {
    /// Takes in a segment for the block.
    fn segment_input(&mut self, segment: Segment, packet: Chain) -> Next {
        self.m().touch(self.pcb.at, PCB_USED_BYTES, Access::Write);
        match self.tcb().state {
            TcpState::SynSent => {
                self.free(packet);
                self.syn_sent_input(&segment);
            }
            // One that listens is not looked for here.
            TcpState::Closed | TcpState::Listen => {
                self.free(packet);
                self.refuse(&segment);
            }
            _ => return self.connection_input(segment, packet),
        }
        Next::Nothing
    }

    /// A segment for a connection that is being opened from here.
    fn syn_sent_input(&mut self, segment: &Segment) {
        let t = self.tcb();
        let acknowledges = |ack: Seq| ack.after(t.snd.initial) && !ack.after(t.snd.max);
        let is_ours = segment.ack.map(acknowledges);
        if is_ours == Some(false) {
            return self.refuse(segment);
        }
        if segment.rst {
            if is_ours == Some(true) {
                self.drop_connection(Some(Errno::ConnectionRefused));
            }
            return;
        }
        if !segment.syn {
            return;
        }
        self.take_options(segment);
        let t = self.tcb();
        t.rcv.initial = segment.seq;
        t.rcv.next = segment.seq + 1;
        t.rcv.advertised = t.rcv.next;
        t.ack_now = true;
        match segment.ack {
            Some(ack) => {
                t.snd.una = ack;
                t.deadlines.retransmit = None;
                t.timing.backoff = 0;
                self.connected(segment);
            }
            // Both have begun at once: their SYN is acknowledged, ours is sent again with it.
            None => {
                t.state = TcpState::SynReceived;
                t.snd.next = t.snd.initial;
            }
        }
        self.tcp_output();
    }

    /// A segment for a connection.
    fn connection_input(&mut self, mut segment: Segment, packet: Chain) -> Next {
        if self.is_predicted(&segment) {
            self.release_table();
        }
        if segment.rst {
            // Before it is trimmed: then its number would be what is expected, whatever it was.
            self.free(packet);
            self.reset_input(&segment);
            return Next::Nothing;
        }
        if segment.syn {
            match self.syn_input(&mut segment) {
                Syn::Taken => {}
                other => {
                    self.free(packet);
                    return match other {
                        Syn::AnotherConnection => Next::AnotherConnection,
                        _ => Next::Nothing,
                    };
                }
            }
        }
        self.rest_input(segment, packet);
        Next::Nothing
    }

    /// The segment is the next one of a connection on which nothing else happens: an acknowledgement of what was sent,
    /// or data in order, and the window stays (header prediction of 4.4BSD). From here on it is about this block alone.
    fn is_predicted(&self, segment: &Segment) -> bool {
        let Kind::Tcp(t) = &self.pcb.kind else { return false };
        let Some(ack) = segment.ack else { return false };
        let in_order = t.state == TcpState::Established
            && self.pcb.owner != Owner::Nobody
            && !(segment.syn || segment.fin || segment.rst)
            && segment.seq == t.rcv.next
            && segment.window << t.snd.scale == t.snd.window
            && t.snd.window > 0
            && t.snd.next == t.snd.max;
        let acknowledges = segment.len == 0 && ack.after(t.snd.una) && !ack.after(t.snd.max);
        let brings = segment.len > 0 && ack == t.snd.una && t.early.is_empty();
        in_order && (acknowledges || brings)
    }

    /// What is to be looked at once there is no reset and no SYN.
    fn rest_input(&mut self, mut segment: Segment, mut packet: Chain) {
        let t = self.tcb();
        if !segment.seq.is_near(t.rcv.next) {
            t.ack_now = true;
            self.free(packet);
            return self.tcp_output();
        }
        if self.is_old(&segment) {
            self.free(packet);
            self.tcb().ack_now = true;
            return self.tcp_output();
        }
        if !self.trim(&mut segment, &mut packet) {
            self.free(packet);
            return self.tcp_output();
        }
        let t = self.tcb();
        if let (Some(stamps), Some((theirs, _))) = (&mut t.timestamps, segment.timestamps)
            && !segment.seq.after(stamps.last_ack_sent)
        {
            stamps.recent = theirs;
        }
        let Some(ack) = segment.ack else { return self.free(packet) };
        if self.tcb().state == TcpState::SynReceived {
            let t = self.tcb();
            if !ack.after(t.snd.una) || ack.after(t.snd.max) {
                self.free(packet);
                return self.refuse(&segment);
            }
            // The SYN is acknowledged apart from what may be acknowledged behind it.
            t.snd.una = t.snd.initial + 1;
            t.deadlines.retransmit = None;
            t.timing.backoff = 0;
            if !self.connected(&segment) {
                return self.free(packet);
            }
        }
        if !self.ack_input(&segment, ack) {
            return self.free(packet);
        }
        self.data_input(&segment, packet);
        if !self.pcb.is_gone {
            self.fin_input();
            self.release_table();
            self.tcp_output();
        }
    }

    /// A SYN within a connection.
    fn syn_input(&mut self, segment: &mut Segment) -> Syn {
        let has_socket = self.pcb.owner == Owner::Process;
        let t = self.tcb();
        let is_first = segment.seq == t.rcv.initial;
        match (t.state, segment.ack) {
            // Ours was lost, or crossed it: it is sent again.
            (TcpState::SynReceived, None) if is_first => {
                t.snd.next = t.snd.initial;
                t.timing.timed = None;
                self.tcp_output();
                Syn::Answered
            }
            // Both have begun at once. The window beside a SYN is not scaled.
            (TcpState::SynReceived, Some(_)) if is_first => {
                (segment.syn, segment.seq) = (false, segment.seq + 1);
                segment.window >>= t.snd.scale;
                Syn::Taken
            }
            // The other end begins again, behind all of the last connection (RFC 9293, 3.10.7.4).
            (TcpState::TimeWait, None) if segment.seq.after(t.rcv.next) && !has_socket => {
                self.drop_connection(None);
                Syn::AnotherConnection
            }
            // RFC 5961, 4.
            _ => {
                t.ack_now = true;
                self.tcp_output();
                Syn::Answered
            }
        }
    }

    /// A segment from before the connection, by its timestamp (RFC 7323, 5).
    fn is_old(&mut self, segment: &Segment) -> bool {
        let t = self.tcb();
        match (t.timestamps, segment.timestamps) {
            (Some(stamps), Some((theirs, _))) => {
                (theirs.wrapping_sub(stamps.recent) as i32) < 0 && t.state != TcpState::SynReceived
            }
            _ => false,
        }
    }

    /// Cuts off what was received before, and what is behind the window. False when nothing is left to look at.
    fn trim(&mut self, segment: &mut Segment, packet: &mut Chain) -> bool {
        let window = self.tcb().window();
        let again = self.has(NetDefect::DuplicateDelivered);
        let linger_ends = self.linger_ends();
        let (pool, t) = (&self.ip.net.core.mbufs, self.pcb.tcb());
        let next = t.rcv.next;
        if segment.seq.before(next) {
            self.ip.net.tally.out_of_order.add(u64::from(segment.len > 0));
            let before = next.since(segment.seq);
            if again && segment.len > 0 {
                segment.seq = next;
                return true;
            }
            if before > segment.len || (before == segment.len && !segment.fin) {
                // All of it was here before: its acknowledgement may still be news.
                let known = segment.len > 0 || segment.fin || before > 0;
                if segment.fin && t.state == TcpState::TimeWait {
                    // Its acknowledgement was lost: it is waited for the next one as long again.
                    t.deadlines.end = Some(linger_ends);
                }
                (segment.fin, segment.seq) = (false, next);
                packet.drop_front(pool, segment.len);
                segment.len = 0;
                t.ack_now |= known;
            } else {
                packet.drop_front(pool, before);
                (segment.seq, segment.len) = (next, segment.len - before);
            }
        }
        let end = next + window;
        if segment.end().after(end) {
            let mut room = 0;
            if segment.seq.before(end) {
                room = end.since(segment.seq).min(segment.len);
            } else {
                // Behind the window. A probe of a closed one is answered, and its acknowledgement taken.
                t.ack_now = true;
                if segment.seq != next {
                    return false;
                }
            }
            packet.keep_front(pool, room);
            (segment.fin, segment.len) = (false, room);
        }
        true
    }

    /// A reset: believed where it is exact, asked about where it is in the window (RFC 5961, 3).
    fn reset_input(&mut self, segment: &Segment) {
        let anywhere = self.has(NetDefect::ResetAnywhere);
        let t = self.tcb();
        if segment.seq != t.rcv.next && !anywhere {
            let inside = segment.seq.after(t.rcv.next) && segment.seq.before(t.rcv.next + t.window());
            t.ack_now |= inside;
            return self.tcp_output();
        }
        let error = match t.state {
            TcpState::SynReceived => Errno::ConnectionRefused,
            _ => Errno::ConnectionReset,
        };
        let silent = matches!(t.state, TcpState::TimeWait | TcpState::LastAck | TcpState::Closing);
        self.ip.net.tally.reset.add(1);
        self.drop_connection((!silent).then_some(error));
    }

    /// Takes in data: in order to the socket, else to be kept.
    fn data_input(&mut self, segment: &Segment, packet: Chain) {
        let is_for_somebody = self.pcb.owner != Owner::Nobody;
        let (now, delay) = (self.now(), self.cycles(self.config().delayed_ack_ms));
        let ack_segments = self.config().ack_segments;
        let at_once = self.has(NetDefect::EarlyAsInOrder);
        // A card may have joined several.
        let segments = segment.len.div_ceil(self.offered_segment());
        let t = self.tcb();
        if segment.fin && t.state.may_receive() {
            t.rcv.fin = Some(segment.seq + segment.len);
        }
        if segment.len == 0 || !t.state.may_receive() {
            t.ack_now |= segment.len > 0;
            return self.free(packet);
        }
        if !is_for_somebody {
            // Nothing will ever read it: the other end is told (RFC 1122, 4.2.2.13).
            self.free(packet);
            return self.abort();
        }
        if segment.seq != t.rcv.next && !at_once {
            t.ack_now = true;
            self.ip.net.tally.out_of_order.add(1);
            return self.keep(segment.seq, packet);
        }
        t.rcv.next = t.rcv.next + segment.len;
        t.rcv.unacknowledged += segments as u32;
        // So many segments are acknowledged at once (RFC 5681, 4.2: two); and while some are missing, every one.
        if t.rcv.unacknowledged >= ack_segments || !t.early.is_empty() {
            t.ack_now = true;
        } else {
            t.deadlines.acknowledge.get_or_insert(now + delay);
        }
        let buffer = t.receive.clone().expect("a connection has buffers");
        buffer.append(&self.net.core, self.threads, packet);
        self.take_early();
    }

    /// Keeps a segment until those before it have come.
    fn keep(&mut self, seq: Seq, bytes: Chain) {
        let t = self.tcb();
        if t.early.len() >= MAX_EARLY {
            self.ip.net.tally.no_room.add(1);
            return self.free(bytes);
        }
        let next = t.rcv.next;
        let place = t.early.partition_point(|other| other.seq.since(next) <= seq.since(next));
        t.early.insert(place, Early { seq, bytes });
        self.ip.net.early.fetch_add(1, Relaxed);
    }

    /// Hands on what was kept and is in order now.
    fn take_early(&mut self) {
        loop {
            let t = self.tcb();
            let next = t.rcv.next;
            if t.early.first().is_none_or(|first| first.seq.after(next)) {
                return;
            }
            let Early { seq, mut bytes } = t.early.remove(0);
            let buffer = t.receive.clone().expect("a connection has buffers");
            self.ip.net.early.fetch_sub(1, Relaxed);
            let known = next.since(seq);
            if known >= bytes.len() {
                self.free(bytes);
                continue;
            }
            bytes.drop_front(self.pool(), known);
            let t = self.tcb();
            t.rcv.next = next + bytes.len();
            t.ack_now = true;
            buffer.append(&self.net.core, self.threads, bytes);
        }
    }

    /// All that the other end sends is here.
    fn fin_input(&mut self) {
        let early = self.has(NetDefect::FinBeforeData);
        let t = self.tcb();
        if early && t.rcv.fin.is_some() && t.state.may_receive() {
            t.rcv.fin = Some(t.rcv.next);
        }
        if t.rcv.fin != Some(t.rcv.next) || !t.state.may_receive() {
            return;
        }
        t.rcv.next = t.rcv.next + 1;
        t.ack_now = true;
        match t.state {
            TcpState::Established => t.state = TcpState::CloseWait,
            // Ours is not acknowledged, or not even sent: then this would be FIN_WAIT_2.
            TcpState::FinWait1 => t.state = TcpState::Closing,
            _ => self.enter_time_wait(),
        }
        self.end_receiving();
    }
}
