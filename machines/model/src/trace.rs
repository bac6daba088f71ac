//! What each CPU did and when, what moved between owners, and how much there was of what: for a program that draws it.
//!
//! Off unless asked for, and nothing that is recorded has a cost or an effect. A *slice* is a stretch of one CPU's time
//! in one cause and one context; stretches that touch are one. A *stretch* is what the thread of a process ran on one
//! CPU, whatever it did. A *holding* is a stretch in which memory was attached to a process. An *arrow* leads from
//! where an owner gave a page, a range or some bytes to where another got it. A *sample* is a level from some moment
//! on. A *part* is what the run is at: booting, setting up, what is measured, the rest.
//!
//! A recording tells its [`Sink`] what lies in its window of time; slices, stretches, holdings and parts are cut at its
//! ends. It listens from the start all the same: levels are sums of changes, and what was sent before the window may be
//! received in it. It keeps what is under way, and nothing of what it has told: a run may be as long as it likes.

mod recorder;

pub(crate) use recorder::Recorder;

use pageferry_hal::{Attachment, Cause, Flow, Level, Metric, Parcel};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// What is to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// From when until when, in cycles of a CPU's clock.
    pub window_cycles: Range<u64>,
    /// The window begins, as long as it is, where the first measured part does ([`crate::Model::begin_measuring`]).
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
    /// The context that did, by number.
    pub context: usize,
}

/// What the thread of a process ran on one CPU, whatever it did. Of two stretches of a process, none begins before the
/// other has ended, although CPUs' clocks differ by a little.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// The process's number.
    pub process: u32,
    /// The CPU.
    pub cpu: usize,
    /// In cycles of a CPU's clock.
    pub start_cycles: u64,
    /// The end, not part of it.
    pub end_cycles: u64,
}

/// What a run is at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The machine was switched on, and no process has run.
    Boot,
    /// Processes run, and nothing is measured yet.
    SetUp,
    /// What is measured.
    Measured,
    /// What was measured is over.
    Rest,
}

/// A process that has run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its own thread's context: by number.
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
    /// The context that did it: by number.
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

/// Who is told what is recorded, in the window.
pub trait Sink {
    /// A context is there, with the next number: before anything names it.
    fn context(&mut self, name: &str);
    /// A process begins to run: before its first stretch or holding. All of them are told, in the window or not.
    fn process(&mut self, process: &Process);
    /// A slice is over: in order on each CPU.
    fn slice(&mut self, slice: &Slice);
    /// A stretch is over: in order for each process.
    fn stretch(&mut self, stretch: &Stretch);
    /// A holding is over: in the order of their ends; last those that had none.
    fn holding(&mut self, holding: &AttachmentSpan);
    /// Something has arrived.
    fn arrow(&mut self, arrow: &Arrow);
    /// A curve has another value: in order on each; each has one at the beginning of the window.
    fn sample(&mut self, sample: &Sample);
    /// A part is over.
    fn part(&mut self, part: Part, cycles: Range<u64>);
}

/// All of it in memory, for tests.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[expect(missing_docs, reason = "see [`Sink`]")]
pub struct Trace {
    pub contexts: Vec<String>,
    pub processes: Vec<Process>,
    pub slices: Vec<Slice>,
    pub stretches: Vec<Stretch>,
    pub holdings: Vec<AttachmentSpan>,
    pub arrows: Vec<Arrow>,
    pub samples: Vec<Sample>,
    pub parts: Vec<(Part, Range<u64>)>,
}

impl Sink for Rc<RefCell<Trace>> {
    fn context(&mut self, name: &str) {
        self.borrow_mut().contexts.push(name.into());
    }
    fn process(&mut self, process: &Process) {
        self.borrow_mut().processes.push(process.clone());
    }
    fn slice(&mut self, slice: &Slice) {
        self.borrow_mut().slices.push(*slice);
    }
    fn stretch(&mut self, stretch: &Stretch) {
        self.borrow_mut().stretches.push(*stretch);
    }
    fn holding(&mut self, holding: &AttachmentSpan) {
        self.borrow_mut().holdings.push(*holding);
    }
    fn arrow(&mut self, arrow: &Arrow) {
        self.borrow_mut().arrows.push(*arrow);
    }
    fn sample(&mut self, sample: &Sample) {
        self.borrow_mut().samples.push(*sample);
    }
    fn part(&mut self, part: Part, cycles: Range<u64>) {
        self.borrow_mut().parts.push((part, cycles));
    }
}
