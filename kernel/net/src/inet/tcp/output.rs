//! Which segment to send, if any (4.4BSD, `tcp_output`).
//!
//! A segment is sent when it is full; when it is all there is and nothing is under way, or small ones are not to be
//! held back (Nagle); when it is half of the largest window that the other end ever had; when it is sent again; or when
//! something else has to be told: an acknowledgement, a window that has grown by much, a FIN.

use super::super::conn::Conn;
use super::super::wire::Addresses;
use super::seq::Seq;
use super::tcb::{Tcb, TcpState};
use core::ops::RangeInclusive;
use etherparse::{IpNumber, TcpHeader, TcpOptionElement};
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Cycles, Machine};

/// Where in a header the sum is.
pub(super) const SUM_AT: usize = 16;

/// A segment to be sent.
struct Next {
    /// The first byte of its data in the buffer, and how many.
    offset: usize,
    len: usize,
    syn: bool,
    fin: bool,
}

impl<M: Machine> Conn<'_, '_, M> {
    /// Sends what is to be sent.
    pub(in crate::inet) fn tcp_output(&mut self) {
        while !self.pcb.is_gone && self.output_one(false) {}
    }

    /// Sends a segment, if one is to be sent, or `forced` to; true when there may be another.
    pub(super) fn output_one(&mut self, forced: bool) -> bool {
        let Some(next) = self.tcb().next_segment(forced) else {
            let (now, bounds) = (self.now(), self.probe_bounds());
            self.tcb().persist_if_stuck(now, bounds);
            return false;
        };
        self.m().execute(self.config().paths.tcp_output);
        let (len, full) = (next.len, next.len == self.tcb().segment_bytes);
        match self.send_segment(next) {
            Ok(()) => full && len > 0 && !forced,
            Err(()) => {
                // No memory for it, or no way: the timer has it sent again.
                self.ip.net.tally.no_room.add(1);
                let again = Cycles(self.now().0 + self.tcb().timing.timeout);
                let t = self.tcb();
                t.deadlines.retransmit.get_or_insert(again);
                t.deadlines.acknowledge.get_or_insert(again);
                t.ack_now = false;
                false
            }
        }
    }

    fn send_segment(&mut self, next: Next) -> Result<(), ()> {
        let now = self.now();
        let clock = (now.0 / self.config().ms_cycles.0.max(1)) as u32;
        let max_segment = self.offered_segment();
        let t = self.pcb.tcb();
        let (local, remote) = t.ends.expect("a segment goes to another end");
        let Next { offset, len, syn, fin } = next;
        let seq = if len > 0 || syn || fin { t.snd.next } else { t.acceptable_seq() };
        let mut header = TcpHeader::new(local.port(), remote.port(), seq.0, t.advertise(syn) as u16);
        let acknowledges = t.state != TcpState::SynSent;
        (header.syn, header.fin, header.ack) = (syn, fin, acknowledges);
        header.psh = len > 0 && offset + len == t.queued();
        header.acknowledgment_number = if acknowledges { t.rcv.next.0 } else { 0 };
        let mut options = [const { TcpOptionElement::Noop }; 6];
        let mut count = 0;
        let mut option = |element| {
            options[count] = element;
            count += 1;
        };
        if syn {
            option(TcpOptionElement::MaximumSegmentSize(max_segment as u16));
            option(TcpOptionElement::Noop);
            option(TcpOptionElement::WindowScale(t.rcv.scale));
        }
        if let Some(stamps) = &mut t.timestamps {
            option(TcpOptionElement::Noop);
            option(TcpOptionElement::Noop);
            option(TcpOptionElement::Timestamp(clock, if acknowledges { stamps.recent } else { 0 }));
            stamps.last_ack_sent = t.rcv.next;
        }
        header.set_options(&options[..count]).expect("they fit");
        let (again, elsewhere) = (t.snd.next.before(t.snd.max), t.defect.is(NetDefect::AgainFromElsewhere));
        let buffer = t.send.clone();
        let mut packet = match buffer.filter(|_| len > 0) {
            Some(buffer) => {
                let late = usize::from(again && elsewhere && offset + len < buffer.queued());
                buffer.share(self.pool(), offset + late, len).map_err(|_| ())?
            }
            None => Chain::new(),
        };
        if packet.put_in_front(self.pool(), &header.to_bytes()).is_err() {
            self.free(packet);
            return Err(());
        }
        let addresses = Addresses { source: *local.ip(), destination: *remote.ip() };
        self.tcb().was_sent(now, len + usize::from(syn) + usize::from(fin));
        if self.ip_output(addresses, IpNumber::TCP, packet, Some(SUM_AT)).is_err() {
            self.ip.net.tally.no_room.add(1);
        }
        Ok(())
    }
}

impl<M: Machine> Tcb<M> {
    /// The segment that is to be sent now.
    fn next_segment(&self, forced: bool) -> Option<Next> {
        let s = &self.snd;
        match self.state {
            TcpState::Closed | TcpState::Listen => return None,
            TcpState::SynSent | TcpState::SynReceived if s.next == s.initial => {
                return Some(Next { offset: 0, len: 0, syn: true, fin: false });
            }
            TcpState::SynSent => return None,
            TcpState::SynReceived => {
                return self.ack_now.then_some(Next { offset: 0, len: 0, syn: false, fin: false });
            }
            _ => {}
        }
        let queued = self.queued();
        let offset = s.next.since(s.una);
        let window = s.window.min(s.congestion).max(usize::from(forced));
        let sendable = queued.min(window).saturating_sub(offset);
        let len = sendable.min(self.segment_bytes);
        // The FIN comes behind the last byte, and takes a place of its own.
        let fin = self.finishing && offset + len == queued;
        let again = s.next.before(s.max);
        let fin_is_new = fin && !self.fin_was_sent();
        let idle = s.una == s.max;
        let last = offset + len == queued;
        let send = forced
            || self.ack_now
            || (len > 0
                && (len == self.segment_bytes
                    || (last && (idle || self.no_delay))
                    || again
                    || 2 * len >= s.max_window.max(1)))
            || fin_is_new
            || (fin && again)
            || self.window_has_grown();
        send.then_some(Next {
            offset: offset.min(queued),
            len,
            syn: false,
            fin: fin && (fin_is_new || again),
        })
    }

    /// The number of a segment that carries nothing. Where a FIN went to a closed window, what follows lies behind the
    /// window, and the other end would drop it with all that it acknowledges (RFC 9293, 3.10.7.4): then it has the last
    /// number that the other end takes.
    fn acceptable_seq(&self) -> Seq {
        let s = &self.snd;
        let end = s.una + s.window;
        if self.state.is_synchronized() && s.next.after(end) { end } else { s.next }
    }

    /// Everything up to the FIN was sent, and the FIN.
    fn fin_was_sent(&self) -> bool {
        self.fin_is_acknowledged() || self.finishing && self.snd.max.since(self.snd.una) > self.queued()
    }

    /// The other end is to be told of a larger window.
    fn window_has_grown(&self) -> bool {
        !self.defect.is(NetDefect::WindowUntold) && self.window_is_untold()
    }

    /// The window has grown by two segments, or by half of the buffer, since the other end was told.
    pub(super) fn window_is_untold(&self) -> bool {
        if !self.state.may_receive() {
            return false;
        }
        let Some(buffer) = &self.receive else { return false };
        let grown = self.window().saturating_sub(self.told_window());
        grown >= 2 * self.segment_bytes && grown * 4 >= buffer.high_water_bytes()
            || 2 * grown >= buffer.high_water_bytes()
    }

    /// The window as a header tells it. From here on the other end may fill it.
    fn advertise(&mut self, syn: bool) -> usize {
        let mut window = self.window();
        // A window of less than a segment is better not told at all (RFC 1122, 4.2.3.3).
        let whole = self.receive.as_ref().map_or(0, |buffer| buffer.high_water_bytes());
        if window < self.segment_bytes && 4 * window < whole {
            window = self.told_window();
        }
        let scale = if syn { 0 } else { self.rcv.scale };
        let field = (window >> scale).min(0xffff);
        self.rcv.advertised = self.rcv.advertised.max(self.rcv.next + (field << scale));
        field
    }

    /// A segment was sent that takes so many sequence numbers.
    fn was_sent(&mut self, now: Cycles, len: usize) {
        let s = &mut self.snd;
        let again = s.next.before(s.max);
        if !again && len > 0 && self.timing.timed.is_none() {
            self.timing.timed = Some((s.next, now));
        }
        s.next = s.next + len;
        s.max = s.max.max(s.next);
        if len > 0 && self.deadlines.retransmit.is_none() {
            self.deadlines.retransmit = Some(Cycles(now.0 + self.timing.timeout));
            self.deadlines.persist = None;
        }
        (self.ack_now, self.deadlines.acknowledge, self.rcv.unacknowledged) = (false, None, 0);
    }

    /// Data waits for a window, and nothing is under way that would bring one: it is asked for from time to time.
    fn persist_if_stuck(&mut self, now: Cycles, bounds: RangeInclusive<u64>) {
        let stuck = self.state.is_synchronized()
            && self.queued() > 0
            && self.snd.una == self.snd.max
            && self.deadlines.retransmit.is_none()
            && self.deadlines.persist.is_none();
        if stuck {
            (self.timing.backoff, self.snd.unanswered) = (0, 0);
            self.deadlines.persist = Some(now + self.until_probe(bounds));
        }
    }

    /// How long a closed window is waited for before it is asked for again.
    pub(super) fn until_probe(&self, bounds: RangeInclusive<u64>) -> Cycles {
        Cycles(
            self.timing
                .timeout
                .saturating_mul(1 << self.timing.backoff)
                .clamp(*bounds.start(), *bounds.end()),
        )
    }
}
