//! A connection's state (`tcpcb`). Sequence numbers of what is sent: `una` is the oldest that is not acknowledged,
//! `next` the next to be sent, `max` the highest that was. The first byte in the buffer for sending is `una`, once the
//! SYN is acknowledged.

use super::seq::Seq;
use crate::sockbuf::SockBuf;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::Chain;
use pageferry_defects::Planted;
use pageferry_hal::{Cycles, Machine};

/// The states of RFC 9293, 3.3.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::inet) enum TcpState {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    CloseWait,
    FinWait1,
    Closing,
    LastAck,
    FinWait2,
    TimeWait,
}

impl TcpState {
    /// Both ends have agreed on a connection.
    pub(super) fn is_synchronized(self) -> bool {
        !matches!(self, TcpState::Closed | TcpState::Listen | TcpState::SynSent | TcpState::SynReceived)
    }

    /// Data may still arrive: the other end has not said that it is done.
    pub(super) fn may_receive(self) -> bool {
        matches!(self, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2)
    }
}

/// What is sent.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sending {
    pub(super) initial: Seq,
    pub(super) una: Seq,
    pub(super) next: Seq,
    pub(super) max: Seq,
    /// The other end's window, and what it was last told by (`snd_wl1`, `snd_wl2`).
    pub(super) window: usize,
    pub(super) window_seq: Seq,
    pub(super) window_ack: Seq,
    pub(super) max_window: usize,
    pub(super) scale: u8,
    /// Congestion: window and threshold, in bytes (RFC 5681).
    pub(super) congestion: usize,
    pub(super) threshold: usize,
    pub(super) duplicates: u32,
    /// Probes of a closed window since the other end was heard last.
    pub(super) unanswered: u32,
    /// Fast recovery goes on until this is acknowledged (RFC 6582).
    pub(super) recover: Option<Seq>,
}

/// What is received.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Receiving {
    pub(super) initial: Seq,
    pub(super) next: Seq,
    /// The end of the window that was last told to the other end.
    pub(super) advertised: Seq,
    pub(super) scale: u8,
    /// Where the other end's data ends, once that is known.
    pub(super) fin: Option<Seq>,
    /// Segments that came in order since the last acknowledgement.
    pub(super) unacknowledged: u32,
}

/// Times of the round trip, in cycles (RFC 6298).
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) smoothed: Option<u64>,
    pub(super) variation: u64,
    pub(super) timeout: u64,
    /// Retransmissions of the same segment.
    pub(super) backoff: u32,
    /// Without timestamps: the segment that is timed, and since when.
    pub(super) timed: Option<(Seq, Cycles)>,
}

/// When something is to be done.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Deadlines {
    pub(super) retransmit: Option<Cycles>,
    pub(super) persist: Option<Cycles>,
    pub(super) acknowledge: Option<Cycles>,
    /// TIME_WAIT, or FIN_WAIT_2 without a socket, is over.
    pub(super) end: Option<Cycles>,
}

/// The timestamps option, where both ends use it (RFC 7323).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Timestamps {
    pub(super) recent: u32,
    pub(super) last_ack_sent: Seq,
}

/// A segment that has come before those in front of it.
pub(super) struct Early {
    pub(super) seq: Seq,
    pub(super) bytes: Chain,
}

/// The buffers of a connection.
pub(in crate::inet) struct Buffers<M: Machine> {
    pub(in crate::inet) receive: Arc<SockBuf<M>>,
    pub(in crate::inet) send: Arc<SockBuf<M>>,
}

/// A connection, or one that is waited for.
pub(in crate::inet) struct Tcb<M: Machine> {
    pub(super) state: TcpState,
    pub(super) receive: Option<Arc<SockBuf<M>>>,
    pub(super) send: Option<Arc<SockBuf<M>>>,
    /// The sizes that the buffers get, and have.
    pub(in crate::inet) receive_bytes: usize,
    pub(in crate::inet) send_bytes: usize,
    /// Bytes that a receiver waits for.
    pub(in crate::inet) receive_low_water: usize,
    pub(super) snd: Sending,
    pub(super) rcv: Receiving,
    pub(super) timing: Timing,
    pub(super) deadlines: Deadlines,
    pub(super) timestamps: Option<Timestamps>,
    /// The most bytes of data in a segment, options taken off.
    pub(super) segment_bytes: usize,
    pub(super) early: Vec<Early>,
    /// The process sends no more: a FIN follows the data.
    pub(super) finishing: bool,
    /// An acknowledgement is to go now.
    pub(super) ack_now: bool,
    /// Small segments are not held back (`TCP_NODELAY`).
    pub(in crate::inet) no_delay: bool,
    /// This end and the other, as the table has them, once it is connected.
    pub(in crate::inet) ends: Option<(SocketAddrV4, SocketAddrV4)>,
    /// TCP has closed its ends of the buffers: that of the one for receiving, and of the one for sending.
    pub(super) receive_ended: bool,
    pub(super) send_ended: bool,
    /// A defect to plant.
    pub(super) defect: Planted<NetDefect>,
    /// Resets the connection at its close (`SO_LINGER` with no time).
    pub(in crate::inet) resets_on_close: bool,
}

impl<M: Machine> Tcb<M> {
    pub(in crate::inet) fn new(send_bytes: usize, receive_bytes: usize, timeout: Cycles) -> Tcb<M> {
        Tcb {
            state: TcpState::Closed,
            receive: None,
            send: None,
            receive_bytes,
            send_bytes,
            receive_low_water: 1,
            snd: Sending { threshold: usize::MAX, ..Sending::default() },
            rcv: Receiving::default(),
            timing: Timing { smoothed: None, variation: 0, timeout: timeout.0, backoff: 0, timed: None },
            deadlines: Deadlines::default(),
            timestamps: None,
            segment_bytes: 536,
            early: Vec::new(),
            finishing: false,
            ack_now: false,
            no_delay: false,
            ends: None,
            receive_ended: false,
            send_ended: false,
            defect: Planted::NONE,
            resets_on_close: false,
        }
    }

    pub(in crate::inet) fn state(&self) -> TcpState {
        self.state
    }

    /// The other end has asked for a connection and not confirmed it.
    pub(in crate::inet) fn is_half_open(&self) -> bool {
        self.state == TcpState::SynReceived
    }

    /// When it is forgotten, if it is over.
    pub(in crate::inet) fn forgotten_at(&self) -> Option<Cycles> {
        self.deadlines.end.filter(|_| self.state == TcpState::TimeWait)
    }

    /// Segments that came before what is in front of them.
    pub(in crate::inet) fn early(&self) -> usize {
        self.early.len()
    }

    pub(in crate::inet) fn is_listening(&self) -> bool {
        self.state == TcpState::Listen
    }

    /// The buffers, once there is a connection.
    pub(in crate::inet) fn buffers(&self) -> Option<Buffers<M>> {
        Some(Buffers { receive: self.receive.clone()?, send: self.send.clone()? })
    }

    /// The other end has our FIN, behind which nothing is sent.
    pub(super) fn fin_is_acknowledged(&self) -> bool {
        matches!(self.state, TcpState::FinWait2 | TcpState::TimeWait)
    }

    /// Bytes in the buffer for sending.
    pub(super) fn queued(&self) -> usize {
        self.send.as_ref().map_or(0, |buffer| buffer.queued())
    }

    /// When something is to be done first.
    pub(in crate::inet) fn deadline(&self) -> Option<Cycles> {
        let d = &self.deadlines;
        [d.retransmit, d.persist, d.acknowledge, d.end].into_iter().flatten().min()
    }

    /// What is left of the window that the other end was told.
    pub(super) fn told_window(&self) -> usize {
        match self.rcv.advertised.before(self.rcv.next) {
            true => 0,
            false => self.rcv.advertised.since(self.rcv.next),
        }
    }

    /// The window that the other end may fill: never less than it was told before.
    pub(super) fn window(&self) -> usize {
        let space = self.receive.as_ref().map_or(0, |buffer| buffer.window());
        let space = if self.defect.is(NetDefect::WindowBeyondBuffer) { space + 4096 } else { space };
        let told = self.told_window();
        space.max(told).min(0xffff << self.rcv.scale)
    }

    /// Tests what holds at any time.
    ///
    /// # Errors
    /// What is broken, in words.
    pub(in crate::inet) fn check(&self) -> Result<(), String> {
        let s = &self.snd;
        if s.next.before(s.una) || s.max.before(s.next) {
            return Err(format!("a connection has {s:?}"));
        }
        if !self.state.is_synchronized() || self.send.is_none() {
            return Ok(());
        }
        // SYN acknowledged: what is sent and not acknowledged is in the buffer, but for a FIN.
        let out = s.max.since(s.una);
        let max_out = self.queued() + usize::from(self.finishing && !self.fin_is_acknowledged());
        if out > max_out {
            return Err(format!("{out} bytes are under way, {max_out} are kept to be sent again"));
        }
        if self.state == TcpState::Established && self.window_is_untold() {
            return Err(format!("the other end is not told of a window of {} bytes", self.window()));
        }
        Ok(())
    }
}
