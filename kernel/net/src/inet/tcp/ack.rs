//! What an acknowledgement changes: what is kept to be sent again, the time of the round trip, the windows.

use super::super::conn::Conn;
use super::super::pcb::Owner;
use super::input::Segment;
use super::seq::Seq;
use super::tcb::{Tcb, TcpState};
use core::ops::RangeInclusive;
use pageferry_core::defect::NetDefect;
use pageferry_hal::{Cycles, Machine};

/// Acknowledgements of the same that mean a loss (RFC 5681, 3.2).
const DUPLICATES: u32 = 3;

impl<M: Machine> Conn<'_, '_, M> {
    /// Takes an acknowledgement in. False when the connection is gone.
    pub(super) fn ack_input(&mut self, segment: &Segment, ack: Seq) -> bool {
        let now = self.now();
        let by_number = self.has(NetDefect::OrderWithoutWrap);
        let wakes = !self.has(NetDefect::WriterNotWoken);
        let t = self.tcb();
        t.snd.unanswered = 0;
        if ack.after(t.snd.max) {
            // Of what was never sent.
            t.ack_now = true;
            self.tcp_output();
            return false;
        }
        let window = segment.window << t.snd.scale;
        let is_news = if by_number { ack.0 > t.snd.una.0 } else { ack.after(t.snd.una) };
        if !is_news {
            let same = segment.len == 0 && !segment.fin && window == t.snd.window;
            // Of a probe's byte, which the window has no room for, nothing is missing: no timer runs for it.
            if same && t.deadlines.retransmit.is_some() && ack == t.snd.una {
                self.duplicate();
            } else {
                t.snd.duplicates = 0;
            }
            self.window_input(segment, ack, window);
            return true;
        }
        let acked = ack.since(t.snd.una);
        let (ms, bounds) = (self.config().ms_cycles, self.timeout_bounds());
        let stamped = self.tcb().timestamps.is_some();
        let t = self.tcb();
        if let Some((_, echo)) = segment.timestamps.filter(|(_, echo)| stamped && *echo != 0) {
            let ours = (now.0 / ms.0.max(1)) as u32;
            t.measured(u64::from(ours.wrapping_sub(echo)) * ms.0, ms, bounds);
        } else if let Some((_, since)) = t.timing.timed.filter(|(seq, _)| ack.after(*seq)) {
            t.measured(now.saturating_sub(since).0, ms, bounds);
        }
        t.timing.backoff = 0;
        // The front of the buffer is `una`, always: both move here, and nowhere else. What is acknowledged behind the
        // data is the FIN.
        let kept = t.queued();
        let fin_acked = acked > kept;
        t.snd.una = ack;
        t.snd.next = t.snd.next.max(ack);
        t.deadlines.retransmit = match t.snd.una == t.snd.max {
            true => None,
            false => Some(Cycles(now.0 + t.timing.timeout)),
        };
        if let Some(buffer) = t.send.clone() {
            buffer.drop_front(&self.net.core, self.threads, acked.min(kept), wakes);
        }
        self.window_input(segment, ack, window);
        self.congestion_input(ack, acked);
        self.finished(fin_acked)
    }

    /// Our FIN may be acknowledged. False when the connection is gone.
    fn finished(&mut self, fin_acked: bool) -> bool {
        if !fin_acked {
            return true;
        }
        let end = self.linger_ends();
        let has_socket = self.pcb.owner == Owner::Process;
        let t = self.tcb();
        match t.state {
            TcpState::FinWait1 => {
                t.state = TcpState::FinWait2;
                // Without a socket the other end's FIN is not waited for for ever.
                t.deadlines.end = (!has_socket).then_some(end);
            }
            TcpState::Closing => self.enter_time_wait(),
            TcpState::LastAck => {
                self.drop_connection(None);
                return false;
            }
            _ => {}
        }
        true
    }

    /// The same was acknowledged again: something behind it has arrived, and it has not.
    fn duplicate(&mut self) {
        let t = self.tcb();
        t.snd.duplicates += 1;
        let segment = t.segment_bytes;
        if t.snd.recover.is_some() {
            // One more has left the network.
            t.snd.congestion += segment;
        } else if t.snd.duplicates == DUPLICATES {
            t.reduce();
            t.snd.recover = Some(t.snd.max);
            let next = t.snd.next;
            t.snd.next = t.snd.una;
            t.timing.timed = None;
            t.snd.congestion = segment;
            self.ip.net.tally.retransmitted.add(1);
            self.output_one(true);
            let t = self.tcb();
            t.snd.congestion = t.snd.threshold + DUPLICATES as usize * segment;
            t.snd.next = t.snd.next.max(next);
        }
    }

    /// Slow start, congestion avoidance, and the end of fast recovery.
    fn congestion_input(&mut self, ack: Seq, acked: usize) {
        let t = self.tcb();
        let segment = t.segment_bytes;
        t.snd.duplicates = 0;
        match t.snd.recover {
            Some(recover) if ack.before(recover) => {
                // The next one is missing as well (RFC 6582, 3.2).
                let next = t.snd.next;
                t.snd.next = ack;
                let deflated = t.snd.congestion.saturating_sub(acked) + segment;
                t.snd.congestion = segment;
                self.ip.net.tally.retransmitted.add(1);
                self.output_one(true);
                let t = self.tcb();
                t.snd.next = t.snd.next.max(next);
                t.snd.congestion = deflated.max(segment);
            }
            Some(_) => {
                t.snd.recover = None;
                t.snd.congestion = t.snd.threshold;
            }
            None if t.snd.congestion < t.snd.threshold => t.snd.congestion += acked.min(2 * segment),
            None => t.snd.congestion += (segment * segment / t.snd.congestion.max(1)).max(1),
        }
        let t = self.tcb();
        t.snd.congestion = t.snd.congestion.min(0xffff << 14);
    }

    /// Takes the other end's window over, if the segment is newer than the one that told it last.
    fn window_input(&mut self, segment: &Segment, ack: Seq, window: usize) {
        let t = self.tcb();
        let s = &mut t.snd;
        // RFC 9293, 3.10.7.4.
        let newer =
            s.window_seq.before(segment.seq) || (s.window_seq == segment.seq && !ack.before(s.window_ack));
        if newer {
            (s.window, s.window_seq, s.window_ack) = (window, segment.seq, ack);
            s.max_window = s.max_window.max(window);
            if window > 0 {
                t.deadlines.persist = None;
            }
        }
    }
}

impl<M: Machine> Tcb<M> {
    /// A round trip took so long (RFC 6298, 2).
    pub(super) fn measured(&mut self, took: u64, ms: Cycles, bounds: RangeInclusive<u64>) {
        let timing = &mut self.timing;
        timing.timed = None;
        match timing.smoothed {
            None => (timing.smoothed, timing.variation) = (Some(took), took / 2),
            Some(smoothed) => {
                timing.variation = (3 * timing.variation + smoothed.abs_diff(took)) / 4;
                timing.smoothed = Some((7 * smoothed + took) / 8);
            }
        }
        let timeout = timing.smoothed.unwrap_or(0) + (4 * timing.variation).max(ms.0);
        timing.timeout = timeout.clamp(*bounds.start(), *bounds.end());
    }

    /// Something was lost: half of what is under way may be from now on.
    pub(super) fn reduce(&mut self) {
        let out = self.snd.max.since(self.snd.una).min(self.snd.congestion.max(self.segment_bytes));
        self.snd.threshold = (out / 2).max(2 * self.segment_bytes);
    }
}
