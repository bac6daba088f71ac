//! What each CPU did and when, what moved between owners, and how much there was of what: for a program that draws it.
//!
//! Off unless asked for, and nothing that is recorded has a cost or an effect. A *slice* is a stretch of one CPU's time
//! in one cause and one context; stretches that touch are one. A *holding* is a stretch in which memory was attached to
//! a process. An *arrow* leads from where an owner gave a page, a range or some bytes to where another got it. A
//! *sample* is a level from some moment on.
//!
//! A recording keeps what lies in its window of time; slices and holdings are cut at its ends. It listens from the
//! start all the same: levels are sums of changes, and what was sent before the window may be received in it. There is
//! room for a number of slices, holdings, arrows and samples each: what comes later is counted and not kept.

use pageferry_hal::{Attachment, Cause, Flow, FlowStep, Level, Metric, Parcel, Va};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What is to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Slices, arrows, and samples that are kept.
    pub room: usize,
    /// From when until when, in cycles of a CPU's clock.
    pub window_cycles: Range<u64>,
    /// The window begins anew, as long as before, where the measured part does ([`crate::Model::begin_measuring`]).
    pub is_of_measured_part: bool,
}

/// A stretch of a CPU's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The CPU.
    pub cpu: usize,
    /// In cycles of the CPU's clock.
    pub start_cycles: u64,
    /// The end, not part of it.
    pub end_cycles: u64,
    /// What the time was spent on.
    pub cause: Cause,
    /// The context that did: an index of [`Trace::contexts`].
    pub context: usize,
}

/// A process that has run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its own thread's context: an index of [`Trace::contexts`].
    pub context: usize,
}

/// A stretch in which memory was attached to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachmentSpan {
    /// The process's number.
    pub process: u32,
    /// In cycles of a CPU's clock.
    pub start_cycles: u64,
    /// The end, not part of it.
    pub end_cycles: u64,
    /// What it has.
    pub attachment: Attachment,
}

/// One end of an arrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Where it happened.
    pub cpu: usize,
    /// When, in cycles of the CPU's clock.
    pub at_cycles: u64,
    /// The context that did it: an index of [`Trace::contexts`].
    pub context: usize,
    /// What the owner gave or got.
    pub parcel: Parcel,
}

/// Something goes from one owner to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrow {
    /// What.
    pub flow: Flow,
    /// Where its owner gave it.
    pub from: End,
    /// Where another got it.
    pub to: End,
}

/// What is drawn as a curve.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Curve {
    /// What a kernel says there is.
    Level(Level),
    /// What is counted as `tlb_invalidations_local`, since the machine was switched on.
    InvalidationsLocal,
    /// What is counted as `tlb_invalidations_remote_issued`, likewise.
    InvalidationsRemote,
}

impl Curve {
    /// All of them.
    pub const ALL: [Curve; 5] = [
        Curve::Level(Level::FreeFrames),
        Curve::Level(Level::Loans),
        Curve::Level(Level::EphemeralMappings),
        Curve::InvalidationsLocal,
        Curve::InvalidationsRemote,
    ];

    /// The curve of what a kernel counts by a name, if it is drawn.
    fn of(counter: Metric) -> Option<Curve> {
        match counter.name() {
            "tlb_invalidations_local" => Some(Curve::InvalidationsLocal),
            "tlb_invalidations_remote_issued" => Some(Curve::InvalidationsRemote),
            _ => None,
        }
    }
}

/// The value of a curve from a moment on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Which.
    pub curve: Curve,
    /// When, in cycles.
    pub at_cycles: u64,
    /// How much.
    pub value: i64,
}

/// What was recorded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trace {
    /// In the order of their ends on each CPU.
    pub slices: Vec<Slice>,
    /// In the order in which they began to run.
    pub processes: Vec<Process>,
    /// In the order of their ends; last those that had none.
    pub holdings: Vec<AttachmentSpan>,
    /// In the order in which they arrived.
    pub arrows: Vec<Arrow>,
    /// In order on each curve; each has one at the beginning of the window.
    pub samples: Vec<Sample>,
    /// When the measured part began, if it did.
    pub measured_from_cycles: Option<u64>,
    /// The names of all contexts.
    pub contexts: Vec<String>,
    /// Slices, arrows and samples of the window for which there was no room.
    pub lost: u64,
    /// When the last of what happened was over, in the window or behind it.
    pub ended_cycles: u64,
}

/// A curve as it is drawn.
#[derive(Clone, Copy, Default)]
struct CurveState {
    value: i64,
    /// CPUs' clocks differ by a little: a curve never goes back in time.
    at_cycles: u64,
    begun: bool,
}

/// Records.
pub(crate) struct Recorder {
    trace: Trace,
    recording: Recording,
    /// The last slice of each CPU, not yet in the trace.
    open: Vec<Option<Slice>>,
    /// What its senders have given and no receiver is done with, the first first.
    under_way: BTreeMap<Flow, VecDeque<End>>,
    /// What a context has taken and not received yet.
    taken: BTreeMap<Flow, End>,
    curves: BTreeMap<Curve, CurveState>,
    /// Since when what is attached, by process and place.
    held: BTreeMap<(u32, Va), (u64, Attachment)>,
}

impl Recorder {
    pub(crate) fn new(cpus: usize, recording: Recording) -> Recorder {
        Recorder {
            trace: Trace::default(),
            recording,
            open: vec![None; cpus],
            under_way: BTreeMap::new(),
            taken: BTreeMap::new(),
            curves: Curve::ALL.iter().map(|&curve| (curve, CurveState::default())).collect(),
            held: BTreeMap::new(),
        }
    }

    /// The measured part begins; what was before may be none of what is recorded.
    pub(crate) fn begin_measuring(&mut self, at_cycles: u64) {
        let window = &self.recording.window_cycles;
        if !self.recording.is_of_measured_part {
            self.trace.measured_from_cycles = Some(at_cycles).filter(|at| window.contains(at));
            return;
        }
        self.trace.measured_from_cycles = Some(at_cycles);
        let len_cycles = window.end - window.start;
        self.recording.window_cycles = at_cycles..at_cycles.saturating_add(len_cycles);
        let trace = &mut self.trace;
        (trace.slices, trace.holdings, trace.arrows) = (Vec::new(), Vec::new(), Vec::new());
        (trace.samples, trace.lost) = (Vec::new(), 0);
        self.curves.values_mut().for_each(|drawn| drawn.begun = false);
    }

    // ------------------------------------------------------------------------------------------------- slices

    /// `cycles` from `start_cycles` on.
    pub(crate) fn spend(&mut self, cpu: usize, start_cycles: u64, cycles: u64, cause: Cause, context: usize) {
        if cycles == 0 {
            return;
        }
        let end_cycles = start_cycles + cycles;
        if let Some(open) = &mut self.open[cpu]
            && (open.cause, open.context, open.end_cycles) == (cause, context, start_cycles)
        {
            open.end_cycles = end_cycles;
            return;
        }
        let slice = Slice { cpu, start_cycles, end_cycles, cause, context };
        if let Some(before) = self.open[cpu].replace(slice) {
            self.keep_slice(before);
        }
    }

    /// Keeps what of a slice lies in the window.
    fn keep_slice(&mut self, slice: Slice) {
        self.trace.ended_cycles = self.trace.ended_cycles.max(slice.end_cycles);
        let window = &self.recording.window_cycles;
        let (start_cycles, end_cycles) =
            (slice.start_cycles.max(window.start), slice.end_cycles.min(window.end));
        if start_cycles < end_cycles {
            let kept = Slice { start_cycles, end_cycles, ..slice };
            keep(&mut self.trace.slices, kept, self.recording.room, &mut self.trace.lost);
        }
    }

    // ------------------------------------------------------------------------------------------------- processes

    pub(crate) fn process(&mut self, number: u32, name: &str, context: usize) {
        self.trace.processes.push(Process { number, name: name.to_owned(), context });
    }

    pub(crate) fn attached(&mut self, at_cycles: u64, process: u32, attachment: Attachment) {
        self.held.insert((process, attachment.at), (at_cycles, attachment));
    }

    pub(crate) fn detached(&mut self, at_cycles: u64, process: u32, at: Va) {
        if let Some((since, attachment)) = self.held.remove(&(process, at)) {
            self.keep_holding(process, since, at_cycles, attachment);
        }
    }

    /// Keeps what of it lies in the window.
    fn keep_holding(&mut self, process: u32, since: u64, until: u64, attachment: Attachment) {
        let window = &self.recording.window_cycles;
        let (start_cycles, end_cycles) = (since.max(window.start), until.min(window.end));
        if start_cycles < end_cycles {
            let kept = AttachmentSpan { process, start_cycles, end_cycles, attachment };
            keep(&mut self.trace.holdings, kept, self.recording.room, &mut self.trace.lost);
        }
    }

    // ------------------------------------------------------------------------------------------------- arrows

    pub(crate) fn step(&mut self, cpu: usize, at_cycles: u64, context: usize, flow: Flow, step: FlowStep) {
        let end = |parcel| End { cpu, at_cycles, context, parcel };
        match step {
            FlowStep::Sent(parcel) => {
                let senders = self.under_way.entry(flow).or_default();
                if matches!(flow, Flow::Buffer(_)) {
                    senders.clear();
                }
                senders.push_back(end(parcel));
            }
            FlowStep::Taken(parcel) => {
                self.taken.insert(flow, end(parcel));
            }
            FlowStep::Received(parcel) => self.received(flow, end(parcel)),
            FlowStep::Done => {
                if let Some(senders) = self.under_way.get_mut(&flow) {
                    senders.pop_front();
                    if senders.is_empty() {
                        self.under_way.remove(&flow);
                    }
                }
            }
        }
    }

    /// From the receiver's own hands, or else from the one that sent it first.
    fn received(&mut self, flow: Flow, to: End) {
        let own = self.taken.get(&flow).is_some_and(|taken| taken.context == to.context);
        let from = if own {
            self.taken.remove(&flow)
        } else {
            self.under_way.get(&flow).and_then(|senders| senders.front().copied())
        };
        let window = &self.recording.window_cycles;
        let inside = |end: &End| window.contains(&end.at_cycles);
        if let Some(from) = from.filter(|from| inside(from) && inside(&to)) {
            keep(&mut self.trace.arrows, Arrow { flow, from, to }, self.recording.room, &mut self.trace.lost);
        }
    }

    // ------------------------------------------------------------------------------------------------- curves

    pub(crate) fn count(&mut self, at_cycles: u64, counter: Metric, n: u64) {
        if let Some(curve) = Curve::of(counter) {
            self.change(at_cycles, curve, n as i64);
        }
    }

    pub(crate) fn level(&mut self, at_cycles: u64, level: Level, change: i64) {
        self.change(at_cycles, Curve::Level(level), change);
    }

    fn change(&mut self, at_cycles: u64, curve: Curve, change: i64) {
        if change == 0 {
            return;
        }
        let drawn = self.curves.get_mut(&curve).expect("all are there from the start");
        let at_cycles = at_cycles.max(drawn.at_cycles);
        let before = *drawn;
        let begins = at_cycles >= self.recording.window_cycles.start;
        *drawn = CurveState { value: drawn.value + change, at_cycles, begun: drawn.begun || begins };
        let value = drawn.value;
        if begins && !before.begun {
            self.sample(curve, self.recording.window_cycles.start, before.value);
        }
        if self.recording.window_cycles.contains(&at_cycles) {
            self.sample(curve, at_cycles, value);
        }
    }

    fn sample(&mut self, curve: Curve, at_cycles: u64, value: i64) {
        let sample = Sample { curve, at_cycles, value };
        keep(&mut self.trace.samples, sample, self.recording.room, &mut self.trace.lost);
    }

    pub(crate) fn finish(mut self, contexts: Vec<String>) -> Trace {
        for slice in std::mem::take(&mut self.open).into_iter().flatten() {
            self.keep_slice(slice);
        }
        for ((process, _), (since, attachment)) in std::mem::take(&mut self.held) {
            self.keep_holding(process, since, self.trace.ended_cycles, attachment);
        }
        let start = self.recording.window_cycles.start;
        if self.trace.ended_cycles > start {
            for (curve, drawn) in std::mem::take(&mut self.curves) {
                if !drawn.begun {
                    self.sample(curve, start, drawn.value);
                }
            }
        }
        Trace { contexts, ..self.trace }
    }
}

/// Keeps `one` more if there is room.
fn keep<T>(kept: &mut Vec<T>, one: T, room: usize, lost: &mut u64) {
    if kept.len() < room {
        kept.push(one);
    } else {
        *lost += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_hal::{Means, Pfn, Place, Va};

    const PAGE: Flow = Flow::Page(Pfn(7));

    fn recorder(window_cycles: Range<u64>) -> Recorder {
        Recorder::new(1, Recording { room: 100, window_cycles, is_of_measured_part: false })
    }

    fn parcel(at: u64) -> Parcel {
        Parcel { by: Means::Loan, at: Place::User(Va(at)), len_bytes: 4096 }
    }

    /// Where arrows come from and when they arrive.
    fn arrows(recorder: Recorder) -> Vec<(u64, u64)> {
        recorder.finish(Vec::new()).arrows.iter().map(|a| (a.from.at_cycles, a.to.at_cycles)).collect()
    }

    #[test]
    fn what_is_sent_twice_is_received_in_that_order() {
        let mut r = recorder(0..u64::MAX);
        for at in [1, 2] {
            r.step(0, at, 0, PAGE, FlowStep::Sent(parcel(0)));
        }
        for at in [3, 5] {
            r.step(0, at, 1, PAGE, FlowStep::Received(parcel(0)));
            r.step(0, at + 1, 1, PAGE, FlowStep::Done);
        }
        r.step(0, 7, 1, PAGE, FlowStep::Received(parcel(0)));
        assert_eq!(arrows(r), [(1, 3), (2, 5)]);
    }

    #[test]
    fn what_a_context_takes_it_receives_itself() {
        let mut r = recorder(0..u64::MAX);
        r.step(0, 1, 0, PAGE, FlowStep::Sent(parcel(0)));
        r.step(0, 2, 2, PAGE, FlowStep::Taken(parcel(0)));
        r.step(0, 3, 1, PAGE, FlowStep::Received(parcel(0)));
        r.step(0, 4, 2, PAGE, FlowStep::Received(parcel(0)));
        r.step(0, 5, 2, PAGE, FlowStep::Received(parcel(0)));
        assert_eq!(arrows(r), [(1, 3), (2, 4), (1, 5)]);
    }

    #[test]
    fn what_is_attached_is_held_until_it_is_detached_or_all_is_over() {
        let mut r = recorder(100..400);
        let piece = |at| Attachment { at: Va(at), len_bytes: 4096, by: pageferry_hal::AttachedBy::Entries };
        for (at, process) in [(0x1000, 1), (0x2000, 1), (0x1000, 2)] {
            r.attached(50 + process as u64, process, piece(at));
        }
        r.detached(80, 1, Va(0x1000));
        r.detached(150, 2, Va(0x1000));
        r.detached(160, 2, Va(0x3000));
        r.attached(170, 1, piece(0x1000));
        r.detached(180, 1, Va(0x1000));
        r.spend(0, 0, 300, Cause::User, 0);
        let held = r.finish(Vec::new()).holdings;
        let held: Vec<_> =
            held.iter().map(|h| (h.process, h.attachment.at.0, h.start_cycles, h.end_cycles)).collect();
        assert_eq!(held, [(2, 0x1000, 100, 150), (1, 0x1000, 170, 180), (1, 0x2000, 100, 300)]);
    }

    #[test]
    fn a_recording_of_the_measured_part_begins_with_it_however_much_was_before() {
        let recording = Recording { room: 10, window_cycles: 0..100, is_of_measured_part: true };
        let mut r = Recorder::new(1, recording);
        for at in 0..50 {
            r.spend(0, 10 * at, 10, [Cause::User, Cause::Copy][at as usize % 2], 0);
            r.step(0, 10 * at, 0, PAGE, FlowStep::Sent(parcel(0)));
            r.step(0, 10 * at + 1, 1, PAGE, FlowStep::Received(parcel(0)));
            r.step(0, 10 * at + 2, 1, PAGE, FlowStep::Done);
            r.level(10 * at, Level::Loans, 1);
        }
        r.spend(0, 500, 20, Cause::Fault, 0);
        r.begin_measuring(510);
        r.spend(0, 520, 10, Cause::Copy, 0);
        r.step(0, 521, 0, PAGE, FlowStep::Sent(parcel(0)));
        r.step(0, 522, 1, PAGE, FlowStep::Received(parcel(0)));
        r.level(530, Level::Loans, -1);
        r.spend(0, 600, 30, Cause::User, 0);
        let trace = r.finish(Vec::new());
        let slices: Vec<_> = trace.slices.iter().map(|s| (s.start_cycles, s.end_cycles)).collect();
        assert_eq!(slices, [(510, 520), (520, 530), (600, 610)]);
        assert_eq!((trace.arrows.len(), trace.lost, trace.measured_from_cycles), (1, 0, Some(510)));
        let loans = trace.samples.iter().filter(|s| s.curve == Curve::Level(Level::Loans));
        let loans: Vec<_> = loans.map(|s| (s.at_cycles, s.value)).collect();
        assert_eq!(loans, [(510, 50), (530, 49)]);
    }

    #[test]
    fn a_window_cuts_slices_and_keeps_whole_arrows() {
        let mut r = recorder(100..200);
        r.spend(0, 0, 150, Cause::User, 0);
        r.spend(0, 150, 100, Cause::Copy, 0);
        r.step(0, 50, 0, PAGE, FlowStep::Sent(parcel(0)));
        r.step(0, 120, 1, PAGE, FlowStep::Received(parcel(0)));
        r.level(10, Level::Loans, 3);
        r.level(110, Level::Loans, -1);
        r.level(210, Level::Loans, -1);
        let trace = r.finish(Vec::new());
        let slices: Vec<_> = trace.slices.iter().map(|s| (s.start_cycles, s.end_cycles)).collect();
        assert_eq!(slices, [(100, 150), (150, 200)]);
        assert_eq!((trace.arrows.len(), trace.ended_cycles, trace.lost), (0, 250, 0));
        let loans = trace.samples.iter().filter(|s| s.curve == Curve::Level(Level::Loans));
        let loans: Vec<_> = loans.map(|s| (s.at_cycles, s.value)).collect();
        assert_eq!(loans, [(100, 3), (110, 2)]);
        assert_eq!(trace.samples.iter().filter(|s| s.at_cycles == 100).count(), Curve::ALL.len());
    }
}
