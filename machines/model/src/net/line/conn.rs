//! One connection of a host of infinite speed: what is under way, what was heard, what is to be sent next.
//!
//! Sequence numbers are counted from each side's first byte, in 64 bits; the SYN is the byte before.

use super::config::LineConfig;
use super::frame::Segment;
use std::rc::Rc;

/// Our sequence numbers begin there.
const ISS: u32 = 0x0001_0000;
/// How often the same is sent again before the connection is given up.
const MAX_AGAIN: u32 = 12;
/// Acknowledgements of the same that mean that something was lost.
const DUPLICATES: u32 = 3;
/// What was received waits so long for more before it is acknowledged.
const DELAY_NS: u64 = 40_000_000;
/// The IP and TCP headers without options; and what timestamps take.
const HEADERS_BYTES: usize = 40;
const TIMESTAMPS_BYTES: usize = 12;

/// Writes what is at an offset of what a host says.
pub type Words = Rc<dyn Fn(u64, &mut [u8])>;

/// What a host says on a connection.
#[derive(Clone)]
pub struct Speech {
    /// How much.
    pub len: u64,
    /// Writes what is at an offset.
    pub write: Words,
    /// It closes its side behind that; else when the machine has closed its own.
    pub closes_first: bool,
}

impl Speech {
    /// These bytes.
    pub fn of(bytes: Vec<u8>, closes_first: bool) -> Speech {
        let len = bytes.len() as u64;
        let write = Rc::new(move |at: u64, into: &mut [u8]| {
            into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
        });
        Speech { len, write, closes_first }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Both sides have closed.
    Closed,
    /// The machine has reset it, or refused it.
    Reset,
    /// The machine acknowledges nothing any more.
    TimedOut,
}

pub(super) struct Conn {
    pub(super) id: u64,
    speech: Speech,
    /// What is acknowledged, what is sent next, and the farthest that was: 0 is the SYN, 1 the first byte.
    una: u64,
    next: u64,
    max: u64,
    /// How far the machine lets us go.
    edge: u64,
    segment_bytes: usize,
    /// Shifts of the windows that the machine tells, and that we tell; unknown before its SYN.
    scales: Option<(u8, u8)>,
    /// The machine scales, too.
    scaled: bool,
    timestamps: bool,
    echo: u32,
    /// What comes next from the machine, likewise, and its first number.
    heard: u64,
    irs: u32,
    hung_up: bool,
    unacknowledged: u32,
    ack_at: Option<u64>,
    again_at: Option<u64>,
    agains: u32,
    duplicates: u32,
    end: Option<End>,
}

/// The shift of the windows that a host tells.
fn scale(config: &LineConfig) -> u8 {
    (0..14).find(|shift| config.window_bytes >> shift <= 65535).unwrap_or(14)
}

/// What became of a segment.
pub(super) struct Heard<'a> {
    pub(super) at: u64,
    pub(super) bytes: &'a [u8],
    pub(super) answer: Option<Segment>,
}

impl Conn {
    pub(super) fn new(config: &LineConfig, id: u64, speech: Speech) -> Conn {
        Conn {
            id,
            speech,
            una: 0,
            next: 0,
            max: 0,
            edge: 1,
            segment_bytes: 536.min(config.mtu_bytes - HEADERS_BYTES),
            scales: None,
            scaled: false,
            timestamps: config.timestamps,
            echo: 0,
            heard: 0,
            irs: 0,
            hung_up: false,
            unacknowledged: 0,
            ack_at: None,
            again_at: None,
            agains: 0,
            duplicates: 0,
            end: None,
        }
    }

    pub(super) fn accept(
        config: &LineConfig,
        id: u64,
        speech: Speech,
        syn: &super::frame::Packet<'_>,
    ) -> Conn {
        let mut conn = Conn::new(config, id, speech);
        conn.their_syn(config, &syn.segment);
        conn
    }

    /// The machine's SYN says what it can do.
    fn their_syn(&mut self, config: &LineConfig, syn: &super::frame::InSegment<'_>) {
        self.irs = syn.seq;
        self.heard = 1;
        self.timestamps = config.timestamps && syn.timestamps.is_some();
        self.echo = syn.timestamps.map_or(0, |(theirs, _)| theirs);
        self.scaled = syn.scale.is_some();
        self.scales = Some(syn.scale.map_or((0, 0), |theirs| (theirs.min(14), scale(config))));
        let max_bytes = usize::from(syn.max_bytes.unwrap_or(536)).min(config.mtu_bytes - HEADERS_BYTES);
        self.segment_bytes = max_bytes - if self.timestamps { TIMESTAMPS_BYTES } else { 0 };
        self.edge = 1 + u64::from(syn.window);
    }

    /// Where our FIN is.
    fn fin(&self) -> u64 {
        self.speech.len + 1
    }

    /// Our FIN may be sent, once all is.
    fn closes(&self) -> bool {
        self.speech.closes_first || self.hung_up
    }

    fn last(&self) -> u64 {
        self.fin() + u64::from(self.closes())
    }

    pub(super) fn over(&self) -> Option<End> {
        let closed = self.hung_up && self.una > self.fin() && self.ack_at.is_none();
        self.end.or(closed.then_some(End::Closed))
    }

    /// Something may be sent.
    pub(super) fn has_more(&self) -> bool {
        let open = self.scales.is_some() && (self.una > 0 || self.next == 0);
        match self.next {
            0 => true,
            next => open && next < self.last() && (next < self.edge || next == self.fin()),
        }
    }

    pub(super) fn due(&self) -> Option<u64> {
        self.again_at.into_iter().chain(self.ack_at).min()
    }

    fn stamps(&self, now_ns: u64) -> Option<(u32, u32)> {
        self.timestamps.then_some(((now_ns / 1_000_000) as u32 + 1, self.echo))
    }

    /// A segment with `len` bytes from `at` on.
    fn segment(&mut self, config: &LineConfig, now_ns: u64, at: u64, len: usize) -> Segment {
        let mut bytes = vec![0; len];
        if len > 0 {
            (self.speech.write)(at - 1, &mut bytes);
        }
        let (_, shift) = self.scales.unwrap_or((0, 0));
        let syn = at == 0;
        (self.unacknowledged, self.ack_at) = (0, None);
        Segment {
            seq: ISS.wrapping_add(at as u32),
            ack: self.scales.map(|_| self.irs.wrapping_add(self.heard as u32)),
            window: (config.window_bytes >> if syn { 0 } else { shift }).min(65535) as u16,
            syn: syn.then(|| ((config.mtu_bytes - HEADERS_BYTES) as u16, self.scale_told(config))),
            fin: at + len as u64 == self.fin() && self.closes() && at > 0,
            push: len > 0 && at + len as u64 == self.fin(),
            timestamps: self.stamps(now_ns),
            bytes,
        }
    }

    fn scale_told(&self, config: &LineConfig) -> Option<u8> {
        (self.scales.is_none() || self.scaled).then(|| scale(config))
    }

    /// The next segment, if there is one to send.
    pub(super) fn next(&mut self, config: &LineConfig, now_ns: u64) -> Option<Segment> {
        if !self.has_more() {
            return None;
        }
        let at = self.next;
        let len = match at {
            0 => 0,
            at => (self.fin() - at.min(self.fin()))
                .min(self.edge.saturating_sub(at))
                .min(self.segment_bytes as u64),
        } as usize;
        let segment = self.segment(config, now_ns, at, len);
        self.next = at + len as u64 + u64::from(segment.syn.is_some()) + u64::from(segment.fin);
        self.max = self.max.max(self.next);
        self.again_at.get_or_insert(now_ns + config.again_ms * 1_000_000);
        Some(segment)
    }

    /// What is due; an acknowledgement, if that is.
    pub(super) fn time_passes(&mut self, config: &LineConfig, now_ns: u64) -> Option<Segment> {
        if self.again_at.is_some_and(|at| at <= now_ns) {
            self.agains += 1;
            if self.agains > MAX_AGAIN {
                self.end = Some(End::TimedOut);
            }
            self.next = self.una;
            // Each time later, as all do.
            self.again_at = Some(now_ns + ((config.again_ms * 1_000_000) << self.agains.min(6)));
        }
        self.ack_at.is_some_and(|at| at <= now_ns).then(|| self.answer(config, now_ns))
    }

    /// An acknowledgement.
    fn answer(&mut self, config: &LineConfig, now_ns: u64) -> Segment {
        let at = self.max.max(1);
        Segment { fin: false, ..self.segment(config, now_ns, at, 0) }
    }

    /// A segment of the machine's.
    pub(super) fn arrives<'a>(
        &mut self,
        config: &LineConfig,
        now_ns: u64,
        segment: &super::frame::InSegment<'a>,
    ) -> Heard<'a> {
        let nothing = Heard { at: 0, bytes: &[], answer: None };
        if segment.rst {
            self.end = Some(End::Reset);
            return nothing;
        }
        if segment.syn && self.scales.is_none() {
            self.their_syn(config, segment);
            self.ack_at = Some(now_ns);
        }
        if self.scales.is_none() {
            return nothing;
        }
        self.acknowledged(config, now_ns, segment);
        let seq = self.heard.wrapping_add_signed(i64::from(
            segment.seq.wrapping_sub(self.irs.wrapping_add(self.heard as u32)) as i32,
        ));
        let from = if segment.syn { seq + 1 } else { seq };
        let (len, had) = (segment.bytes.len() as u64, self.heard.saturating_sub(from));
        if from > self.heard || (len + u64::from(segment.fin) > 0 && had >= len + u64::from(segment.fin)) {
            // Too early, or again.
            return Heard { answer: Some(self.answer(config, now_ns)), ..nothing };
        }
        if let Some((theirs, _)) = segment.timestamps {
            self.echo = theirs;
        }
        let bytes = &segment.bytes[had.min(len) as usize..];
        let at = self.heard - 1;
        self.heard += bytes.len() as u64;
        if segment.fin && !self.hung_up {
            self.heard += 1;
            self.hung_up = true;
        }
        let must = segment.fin || segment.syn;
        if !bytes.is_empty() {
            self.unacknowledged = self.unacknowledged.saturating_add(1);
            self.ack_at.get_or_insert(now_ns + DELAY_NS);
        }
        let now = must || self.unacknowledged >= 2 || (segment.push && !bytes.is_empty());
        let answer = (now && self.una > 0).then(|| self.answer(config, now_ns));
        Heard { at, bytes, answer }
    }

    fn acknowledged(&mut self, config: &LineConfig, now_ns: u64, segment: &super::frame::InSegment<'_>) {
        let Some(ack) = segment.ack else { return };
        let (scale, _) = self.scales.unwrap_or((0, 0));
        let ack = self
            .una
            .wrapping_add_signed(i64::from(ack.wrapping_sub(ISS.wrapping_add(self.una as u32)) as i32));
        if ack > self.max {
            return;
        }
        let shift = if segment.syn { 0 } else { scale };
        let edge = ack + (u64::from(segment.window) << shift);
        if ack > self.una {
            self.una = ack;
            self.next = self.next.max(ack);
            (self.agains, self.duplicates) = (0, 0);
            self.again_at = (self.una < self.max).then(|| now_ns + config.again_ms * 1_000_000);
        } else if ack == self.una && self.una < self.max && edge == self.edge && segment.bytes.is_empty() {
            self.duplicates += 1;
            if self.duplicates == DUPLICATES {
                self.next = self.una;
            }
        }
        if ack >= self.una {
            self.edge = edge;
        }
        if self.una < self.last() && self.again_at.is_none() && self.edge <= self.next && self.una > 0 {
            // The window is shut: it is asked after.
            self.again_at = Some(now_ns + config.again_ms * 1_000_000);
        }
    }
}
