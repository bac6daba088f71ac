//! What TCP does when time has passed.

use super::super::conn::Conn;
use super::super::iface::Route;
use super::tcb::TcpState;
use pageferry_abi::Errno;
use pageferry_hal::{Cycles, Machine};

/// The time between probes is not doubled more often.
const MAX_BACKOFF: u32 = 12;
/// After so many timeouts the way to the other end is looked for again (`TCP_MAXRXTSHIFT / 4`).
const LOSING: u32 = 3;
/// A SYN is sent again less often than a segment.
const MAX_SYNS: u32 = 5;

impl<M: Machine> Conn<'_, '_, M> {
    /// Does what is due for a connection.
    pub(in crate::inet) fn tcp_timers(&mut self, now: Cycles) {
        let due = |at: &mut Option<Cycles>| {
            let due = at.is_some_and(|at| at <= now);
            if due {
                *at = None;
            }
            due
        };
        let d = &mut self.tcb().deadlines;
        let (end, retransmit, persist, acknowledge) =
            (due(&mut d.end), due(&mut d.retransmit), due(&mut d.persist), due(&mut d.acknowledge));
        self.m().execute(self.config().paths.timer);
        if end {
            return self.drop_connection(None);
        }
        if retransmit && !self.retransmit() {
            return;
        }
        if persist && !self.probe(now) {
            return;
        }
        if acknowledge {
            self.release_table();
            self.tcb().ack_now = true;
            self.tcp_output();
        }
    }

    /// Nothing was acknowledged for too long. False when the connection is gone.
    fn retransmit(&mut self) -> bool {
        let longest = self.cycles(self.config().max_rto_ms).0;
        let max_data = self.config().retransmissions;
        let t = self.tcb();
        t.timing.backoff += 1;
        let opening = matches!(t.state, TcpState::SynSent | TcpState::SynReceived);
        let max_backoff = if opening { MAX_SYNS.max(max_data / 2) } else { max_data };
        if t.timing.backoff > max_backoff {
            self.ip.net.tally.reset.add(1);
            self.abort_with(Errno::TimedOut);
            return false;
        }
        t.timing.timeout = (t.timing.timeout * 2).min(longest);
        let losing = t.timing.backoff == LOSING;
        // What is timed is not clear any more (Karn).
        t.timing.timed = None;
        t.reduce();
        t.snd.congestion = t.segment_bytes;
        t.snd.recover = None;
        t.snd.duplicates = 0;
        t.snd.next = if opening { t.snd.initial } else { t.snd.una };
        t.ack_now = true;
        let backoff = core::mem::take(&mut t.timing.backoff);
        let ends = t.ends.filter(|_| losing);
        if let Some(Ok(Route::Card(neighbour))) = ends.map(|(_, remote)| self.route(*remote.ip())) {
            self.doubt(neighbour);
        }
        self.ip.net.tally.retransmitted.add(1);
        self.output_one(true);
        self.tcb().timing.backoff = backoff;
        true
    }

    /// Asks for a window, with one byte. An end that answers may keep its window closed for ever; one that is not heard
    /// of is given up as if it did not acknowledge. False when the connection is gone.
    fn probe(&mut self, now: Cycles) -> bool {
        let (bounds, max_probes) = (self.probe_bounds(), self.config().retransmissions);
        let t = self.tcb();
        if t.queued() == 0 {
            return true;
        }
        if t.snd.window > 0 {
            // A window, but too small a one to be worth a segment: by now it is.
            self.output_one(true);
            return true;
        }
        if t.snd.unanswered >= max_probes {
            self.ip.net.tally.reset.add(1);
            self.abort_with(Errno::TimedOut);
            return false;
        }
        t.snd.unanswered += 1;
        t.timing.backoff = (t.timing.backoff + 1).min(MAX_BACKOFF);
        let next = now + t.until_probe(bounds);
        t.snd.next = t.snd.una;
        self.output_one(true);
        // The byte is sent again as part of a segment when there is a window.
        let t = self.tcb();
        (t.snd.next, t.timing.timed) = (t.snd.una, None);
        (t.deadlines.persist, t.deadlines.retransmit) = (Some(next), None);
        true
    }
}
