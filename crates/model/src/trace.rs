//! What each CPU did and when, and what moved between protection domains, for a program that draws it.
//!
//! Off unless asked for. A slice is a stretch of one CPU's time in one cause and one context; stretches that touch are one.
//! There is room for a number of slices and moves that the caller chooses: what comes later is counted and not kept.

use pageferry_hal::{Cause, Flow, FlowStep};

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

/// A moment in the journey of a page or of a range of map entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Where it happened.
    pub cpu: usize,
    /// When, in cycles of the CPU's clock.
    pub at_cycles: u64,
    /// What moves.
    pub flow: Flow,
    /// How far it is.
    pub step: FlowStep,
}

/// What was recorded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trace {
    /// In the order of their ends on each CPU.
    pub slices: Vec<Slice>,
    /// In the order in which they came.
    pub moves: Vec<Move>,
    /// The names of all contexts.
    pub contexts: Vec<String>,
    /// Slices and moves for which there was no room.
    pub lost: u64,
}

/// Records.
pub(crate) struct Recorder {
    trace: Trace,
    room: usize,
    /// The last slice of each CPU, not yet in the trace.
    open: Vec<Option<Slice>>,
}

impl Recorder {
    pub(crate) fn new(cpus: usize, room: usize) -> Recorder {
        Recorder { trace: Trace::default(), room, open: vec![None; cpus] }
    }

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
            self.keep(before);
        }
    }

    pub(crate) fn step(&mut self, cpu: usize, at_cycles: u64, flow: Flow, step: FlowStep) {
        if self.trace.moves.len() < self.room {
            self.trace.moves.push(Move { cpu, at_cycles, flow, step });
        } else {
            self.trace.lost += 1;
        }
    }

    fn keep(&mut self, slice: Slice) {
        if self.trace.slices.len() < self.room {
            self.trace.slices.push(slice);
        } else {
            self.trace.lost += 1;
        }
    }

    pub(crate) fn finish(mut self, contexts: Vec<String>) -> Trace {
        for slice in std::mem::take(&mut self.open).into_iter().flatten() {
            self.keep(slice);
        }
        Trace { contexts, ..self.trace }
    }
}
