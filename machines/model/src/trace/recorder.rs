//! Records a run: puts together what belongs together, and tells the sink.
//!
//! It is the machine's, and runs within its steps; it calls the sink and nothing else. It keeps the last slice of each
//! CPU, the last stretch of each process, what is attached and what is under way.

use super::{Arrow, AttachmentSpan, Curve, End, Part, Process, Recording, Sample, Sink, Slice, Stretch};
use pageferry_hal::{Attachment, Cause, Flow, FlowStep, Level, Metric, Va};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

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
    sink: Box<dyn Sink>,
    recording: Recording,
    /// The window is known: what is measured has begun, if that is what is recorded.
    begun: bool,
    /// When the last of what happened was over, in the window or behind it.
    ended_cycles: u64,
    /// What the run is at, and since when.
    part: (Part, u64),
    /// By context: the process whose thread it is, with its last stretch, which was not told yet.
    processes: BTreeMap<usize, (u32, Option<Stretch>)>,
    /// The last slice of each CPU, which was not told yet.
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
    pub(crate) fn new(cpus: usize, recording: Recording, sink: Box<dyn Sink>) -> Recorder {
        Recorder {
            sink,
            begun: !recording.is_of_measured_part,
            ended_cycles: 0,
            part: (Part::Boot, 0),
            processes: BTreeMap::new(),
            recording,
            open: vec![None; cpus],
            under_way: BTreeMap::new(),
            taken: BTreeMap::new(),
            curves: Curve::ALL.iter().map(|&curve| (curve, CurveState::default())).collect(),
            held: BTreeMap::new(),
        }
    }

    /// What of a stretch of time lies in the window, if anything does.
    fn within(&self, cycles: Range<u64>) -> Option<Range<u64>> {
        let window = &self.recording.window_cycles;
        let cut = cycles.start.max(window.start)..cycles.end.min(window.end);
        (self.begun && cut.start < cut.end).then_some(cut)
    }

    fn contains(&self, at_cycles: u64) -> bool {
        self.begun && self.recording.window_cycles.contains(&at_cycles)
    }

    // ------------------------------------------------------------------------------------------------- parts

    /// What is measured begins, and with it the window, if that is what is recorded.
    pub(crate) fn begin_measuring(&mut self, at_cycles: u64) {
        if !self.begun {
            self.begun = true;
            let window = &mut self.recording.window_cycles;
            *window = at_cycles..at_cycles.saturating_add(window.end - window.start);
        }
        self.begin_part(Part::Measured, at_cycles);
    }

    /// What is measured is over.
    pub(crate) fn end_measuring(&mut self, at_cycles: u64) {
        if self.part.0 == Part::Measured {
            self.begin_part(Part::Rest, at_cycles);
        }
    }

    fn begin_part(&mut self, part: Part, at_cycles: u64) {
        // CPUs' clocks differ by a little.
        let at_cycles = at_cycles.max(self.part.1);
        let (before, since) = std::mem::replace(&mut self.part, (part, at_cycles));
        if let Some(cut) = self.within(since..at_cycles) {
            self.sink.part(before, cut);
        }
    }

    // ------------------------------------------------------------------------------------------------- slices

    /// `cycles` from `start_cycles` on.
    pub(crate) fn spend(&mut self, cpu: usize, start_cycles: u64, cycles: u64, cause: Cause, context: usize) {
        if cycles == 0 {
            return;
        }
        let end_cycles = start_cycles + cycles;
        self.run(cpu, start_cycles..end_cycles, context);
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

    /// Tells what of a slice lies in the window.
    fn keep_slice(&mut self, slice: Slice) {
        self.ended_cycles = self.ended_cycles.max(slice.end_cycles);
        if let Some(cut) = self.within(slice.start_cycles..slice.end_cycles) {
            self.sink.slice(&Slice { start_cycles: cut.start, end_cycles: cut.end, ..slice });
        }
    }

    // ------------------------------------------------------------------------------------------------- processes

    pub(crate) fn context(&mut self, name: &str) {
        self.sink.context(name);
    }

    pub(crate) fn process(&mut self, at_cycles: u64, number: u32, name: &str, context: usize) {
        if self.part.0 == Part::Boot {
            self.begin_part(Part::SetUp, at_cycles);
        }
        self.processes.insert(context, (number, None));
        self.sink.process(&Process { number, name: name.to_owned(), context });
    }

    /// A context ran: told here, in the order in which it happens, rather than with slices, of which one CPU's may be
    /// over long before another's.
    fn run(&mut self, cpu: usize, cycles: Range<u64>, context: usize) {
        let Some((process, last)) = self.processes.get_mut(&context) else { return };
        let start_cycles = match last {
            Some(last) if last.cpu == cpu && last.end_cycles == cycles.start => {
                last.end_cycles = cycles.end;
                return;
            }
            Some(last) => cycles.start.max(last.end_cycles),
            None => cycles.start,
        };
        let end_cycles = cycles.end.max(start_cycles);
        let before = last.replace(Stretch { process: *process, cpu, start_cycles, end_cycles });
        self.keep_stretch(before);
    }

    fn keep_stretch(&mut self, stretch: Option<Stretch>) {
        let Some(stretch) = stretch else { return };
        if let Some(cut) = self.within(stretch.start_cycles..stretch.end_cycles) {
            self.sink.stretch(&Stretch { start_cycles: cut.start, end_cycles: cut.end, ..stretch });
        }
    }

    pub(crate) fn attached(&mut self, at_cycles: u64, process: u32, attachment: Attachment) {
        self.held.insert((process, attachment.at), (at_cycles, attachment));
    }

    pub(crate) fn detached(&mut self, at_cycles: u64, process: u32, at: Va) {
        if let Some((since, attachment)) = self.held.remove(&(process, at)) {
            self.keep_holding(process, since, at_cycles, attachment);
        }
    }

    /// Tells what of it lies in the window.
    fn keep_holding(&mut self, process: u32, since: u64, until: u64, attachment: Attachment) {
        if let Some(cut) = self.within(since..until) {
            let (start_cycles, end_cycles) = (cut.start, cut.end);
            self.sink.holding(&AttachmentSpan { process, start_cycles, end_cycles, attachment });
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
        if let Some(from) = from.filter(|from| self.contains(from.at_cycles) && self.contains(to.at_cycles)) {
            self.sink.arrow(&Arrow { flow, from, to });
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
        let begins = self.begun && at_cycles >= self.recording.window_cycles.start;
        *drawn = CurveState { value: drawn.value + change, at_cycles, begun: drawn.begun || begins };
        let value = drawn.value;
        if begins && !before.begun {
            self.sample(curve, self.recording.window_cycles.start, before.value);
        }
        if self.contains(at_cycles) {
            self.sample(curve, at_cycles, value);
        }
    }

    fn sample(&mut self, curve: Curve, at_cycles: u64, value: i64) {
        self.sink.sample(&Sample { curve, at_cycles, value });
    }

    /// Tells what was not over yet. Gives when the last of what happened was, in the window or behind it.
    pub(crate) fn finish(mut self) -> u64 {
        for slice in std::mem::take(&mut self.open).into_iter().flatten() {
            self.keep_slice(slice);
        }
        for (_, last) in std::mem::take(&mut self.processes).into_values() {
            self.keep_stretch(last);
        }
        for ((process, _), (since, attachment)) in std::mem::take(&mut self.held) {
            self.keep_holding(process, since, self.ended_cycles, attachment);
        }
        let start = self.recording.window_cycles.start;
        if self.begun && self.ended_cycles > start {
            for (curve, drawn) in std::mem::take(&mut self.curves) {
                if !drawn.begun {
                    self.sample(curve, start, drawn.value);
                }
            }
        }
        self.begin_part(Part::Rest, self.ended_cycles);
        self.ended_cycles
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trace;
    use super::*;
    use pageferry_hal::{Means, Parcel, Pfn, Place};
    use std::cell::RefCell;
    use std::rc::Rc;

    const PAGE: Flow = Flow::Page(Pfn(7));

    type SharedTrace = Rc<RefCell<Trace>>;

    fn recorder_of(cpus: usize, recording: Recording) -> (Recorder, SharedTrace) {
        let told = SharedTrace::default();
        (Recorder::new(cpus, recording, Box::new(told.clone())), told)
    }

    fn recorder(window_cycles: Range<u64>) -> (Recorder, SharedTrace) {
        recorder_of(1, Recording { window_cycles, is_of_measured_part: false })
    }

    /// All that was told.
    fn ended((recorder, told): (Recorder, SharedTrace)) -> Trace {
        recorder.finish();
        told.take()
    }

    fn parcel(at: u64) -> Parcel {
        Parcel { by: Means::Loan, at: Place::User(Va(at)), len_bytes: 4096 }
    }

    /// Where arrows come from and when they arrive.
    fn arrows(recorder: (Recorder, SharedTrace)) -> Vec<(u64, u64)> {
        ended(recorder).arrows.iter().map(|a| (a.from.at_cycles, a.to.at_cycles)).collect()
    }

    #[test]
    fn what_is_sent_twice_is_received_in_that_order() {
        let (mut r, told) = recorder(0..u64::MAX);
        for at in [1, 2] {
            r.step(0, at, 0, PAGE, FlowStep::Sent(parcel(0)));
        }
        for at in [3, 5] {
            r.step(0, at, 1, PAGE, FlowStep::Received(parcel(0)));
            r.step(0, at + 1, 1, PAGE, FlowStep::Done);
        }
        r.step(0, 7, 1, PAGE, FlowStep::Received(parcel(0)));
        assert_eq!(arrows((r, told)), [(1, 3), (2, 5)]);
    }

    #[test]
    fn what_a_context_takes_it_receives_itself() {
        let (mut r, told) = recorder(0..u64::MAX);
        r.step(0, 1, 0, PAGE, FlowStep::Sent(parcel(0)));
        r.step(0, 2, 2, PAGE, FlowStep::Taken(parcel(0)));
        r.step(0, 3, 1, PAGE, FlowStep::Received(parcel(0)));
        r.step(0, 4, 2, PAGE, FlowStep::Received(parcel(0)));
        r.step(0, 5, 2, PAGE, FlowStep::Received(parcel(0)));
        assert_eq!(arrows((r, told)), [(1, 3), (2, 4), (1, 5)]);
    }

    #[test]
    fn what_is_attached_is_held_until_it_is_detached_or_all_is_over() {
        let (mut r, told) = recorder(100..400);
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
        let held = ended((r, told)).holdings;
        let held: Vec<_> =
            held.iter().map(|h| (h.process, h.attachment.at.0, h.start_cycles, h.end_cycles)).collect();
        assert_eq!(held, [(2, 0x1000, 100, 150), (1, 0x1000, 170, 180), (1, 0x2000, 100, 300)]);
    }

    #[test]
    fn a_recording_of_the_measured_part_begins_with_it_however_much_was_before() {
        let recording = Recording { window_cycles: 0..100, is_of_measured_part: true };
        let (mut r, told) = recorder_of(1, recording);
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
        let trace = ended((r, told));
        let slices: Vec<_> = trace.slices.iter().map(|s| (s.start_cycles, s.end_cycles)).collect();
        assert_eq!(slices, [(510, 520), (520, 530), (600, 610)]);
        assert_eq!((trace.arrows.len(), trace.parts), (1, vec![(Part::Measured, 510..610)]));
        let loans = trace.samples.iter().filter(|s| s.curve == Curve::Level(Level::Loans));
        let loans: Vec<_> = loans.map(|s| (s.at_cycles, s.value)).collect();
        assert_eq!(loans, [(510, 50), (530, 49)]);
    }

    #[test]
    fn a_window_cuts_slices_and_keeps_whole_arrows() {
        let (mut r, told) = recorder(100..200);
        r.spend(0, 0, 150, Cause::User, 0);
        r.spend(0, 150, 100, Cause::Copy, 0);
        r.step(0, 50, 0, PAGE, FlowStep::Sent(parcel(0)));
        r.step(0, 120, 1, PAGE, FlowStep::Received(parcel(0)));
        r.level(10, Level::Loans, 3);
        r.level(110, Level::Loans, -1);
        r.level(210, Level::Loans, -1);
        let trace = ended((r, told));
        let slices: Vec<_> = trace.slices.iter().map(|s| (s.start_cycles, s.end_cycles)).collect();
        assert_eq!(slices, [(100, 150), (150, 200)]);
        assert_eq!(trace.arrows.len(), 0);
        let loans = trace.samples.iter().filter(|s| s.curve == Curve::Level(Level::Loans));
        let loans: Vec<_> = loans.map(|s| (s.at_cycles, s.value)).collect();
        assert_eq!(loans, [(100, 3), (110, 2)]);
        assert_eq!(trace.samples.iter().filter(|s| s.at_cycles == 100).count(), Curve::ALL.len());
    }

    #[test]
    fn parts_follow_each_other_and_are_cut_at_the_ends_of_the_window() {
        let run = |window: Range<u64>, is_of_measured_part| {
            let (mut r, told) = recorder_of(1, Recording { window_cycles: window, is_of_measured_part });
            r.spend(0, 0, 100, Cause::Boot, 0);
            r.process(100, 1, "first", 1);
            r.spend(0, 100, 100, Cause::User, 1);
            r.process(150, 2, "second", 2);
            r.begin_measuring(200);
            r.spend(0, 200, 100, Cause::Copy, 1);
            r.end_measuring(300);
            // Another end changes nothing, and what is measured again is told apart.
            r.end_measuring(310);
            r.spend(0, 300, 50, Cause::User, 1);
            r.begin_measuring(350);
            r.spend(0, 350, 50, Cause::User, 1);
            ended((r, told)).parts
        };
        let (boot, set_up, measured) =
            ((Part::Boot, 0..100), (Part::SetUp, 100..200), (Part::Measured, 200..300));
        let (rest, again) = ((Part::Rest, 300..350), (Part::Measured, 350..400));
        let all = vec![boot, set_up, measured.clone(), rest.clone(), again.clone()];
        assert_eq!(run(0..u64::MAX, false), all);
        assert_eq!(
            run(50..250, false),
            [(Part::Boot, 50..100), (Part::SetUp, 100..200), (Part::Measured, 200..250)]
        );
        assert_eq!(run(0..u64::MAX, true), [measured, rest, again]);
        assert_eq!(run(0..10, true), [(Part::Measured, 200..210)]);
    }

    /// What a context runs on another CPU is told in the order in which it ran, however long the first CPU's slice is.
    #[test]
    fn a_process_runs_on_one_cpu_after_the_other() {
        let (mut r, told) =
            recorder_of(2, Recording { window_cycles: 0..u64::MAX, is_of_measured_part: false });
        r.process(0, 7, "mover", 3);
        r.spend(0, 0, 10, Cause::User, 3);
        r.spend(0, 10, 10, Cause::Copy, 3);
        // That CPU's clock is behind by a little.
        r.spend(1, 18, 10, Cause::User, 3);
        r.spend(1, 28, 10, Cause::Fault, 3);
        r.spend(1, 50, 10, Cause::User, 3);
        r.spend(0, 20, 500, Cause::Idle, 0);
        let stretches = ended((r, told)).stretches;
        let stretches: Vec<_> =
            stretches.iter().map(|s| (s.process, s.cpu, s.start_cycles, s.end_cycles)).collect();
        assert_eq!(stretches, [(7, 0, 0, 20), (7, 1, 20, 38), (7, 1, 50, 60)]);
    }
}
