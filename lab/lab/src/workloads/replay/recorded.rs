//! A trace in memory: its records packed, its system calls, and the pages that its process has to have mapped before.
//!
//! Traces are read once for all runs that replay them ([`recorded`]): reading one takes as long as replaying it.

use super::calls::{RecordedCall, meaning, measure_files};
use crate::error::LabError;
use crate::input;
use pageferry_hal::{Access, Layout, PAGE_SHIFT, PAGE_SIZE, Va};
use pageferry_model::{MachineConfig, machines};
use pageferry_trace::{Kind, Reader, bundled};
use rangemap::RangeSet;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::available_parallelism;

/// A record in a word: the address's line, the instructions before it, and what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PackedRecord(u64);

/// log2 of the bytes of a line.
const LINE_SHIFT: u32 = 5;
const KIND_BITS: u32 = 2;
const INSTRUCTION_BITS: u32 = 20;

/// No program of any machine has memory from here on.
const LIMIT: u64 = 1 << 47;

/// What a record is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A reference.
    To(Access, Va),
    /// The next system call.
    Call,
}

impl PackedRecord {
    fn new(kind: Kind, instructions: u32, address: u64) -> PackedRecord {
        let line = address >> LINE_SHIFT;
        PackedRecord(
            line << (KIND_BITS + INSTRUCTION_BITS) | u64::from(instructions) << KIND_BITS | kind as u64,
        )
    }

    /// Instructions since the record before.
    pub(crate) fn instructions(self) -> u32 {
        (self.0 >> KIND_BITS) as u32 & ((1 << INSTRUCTION_BITS) - 1)
    }

    /// What it is of.
    pub(crate) fn step(self) -> Step {
        let at = Va((self.0 >> (KIND_BITS + INSTRUCTION_BITS)) << LINE_SHIFT);
        match self.0 & 3 {
            0 => Step::To(Access::Fetch, at),
            1 => Step::To(Access::Read, at),
            2 => Step::To(Access::Write, at),
            _ => Step::Call,
        }
    }
}

/// A part of the address space that exists before the first instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) at: Va,
    pub(crate) len_bytes: usize,
    pub(crate) kind: SegmentKind,
}

/// What is behind a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentKind {
    /// The program's file, to be read and executed.
    Text,
    /// The program's file, privately.
    Data,
    /// Nothing yet: stack, and what else is not known to come from a file.
    Anonymous,
}

/// A program that was recorded.
#[derive(Debug)]
pub(crate) struct RecordedProgram {
    /// The name of the trace.
    pub(crate) name: String,
    /// The program that it is of: traces of one program share its file.
    pub(crate) program: String,
    pub(crate) records: Vec<PackedRecord>,
    /// Its system calls, in order, as far as they mean something.
    pub(crate) calls: Vec<RecordedCall>,
    pub(crate) segments: Vec<Segment>,
    /// The pages of the segments that the program refers to.
    pub(crate) pages: BTreeSet<u64>,
    /// References of all kinds, of which the records are those that a cache or a TLB could tell.
    pub(crate) references: u64,
    /// Bytes that it reads in all.
    pub(crate) reads_bytes: u64,
}

impl RecordedProgram {
    /// Bytes of the program's file.
    pub(crate) fn file_bytes(&self) -> usize {
        let of_file = self.segments.iter().filter(|s| s.kind != SegmentKind::Anonymous);
        of_file.map(|s| s.at + s.len_bytes - self.base()).max().unwrap_or(0)
    }

    /// Where the program's file is mapped.
    pub(crate) fn base(&self) -> Va {
        let of_file = self.segments.iter().filter(|s| s.kind != SegmentKind::Anonymous);
        of_file.map(|s| s.at).min().unwrap_or_default()
    }

    /// An address that it refers to, and that is not the user's in this layout.
    pub(crate) fn misfit(&self, layout: &Layout) -> Option<Va> {
        let pages = self.pages.iter().map(|page| (Va(page << PAGE_SHIFT), PAGE_SIZE));
        let asked = self.calls.iter().filter_map(|asked| asked.range());
        pages.chain(asked).find(|(at, len)| !layout.is_user(*at, (*len).max(1))).map(|(at, _)| at)
    }

    /// The built-in machines on which all of its addresses are the user's.
    pub(crate) fn machines_that_fit(&self) -> Vec<&'static str> {
        let fits = |name: &&'static str| {
            MachineConfig::named(name).is_ok_and(|machine| self.misfit(&machine.board().layout).is_none())
        };
        machines::names().filter(fits).collect()
    }

    fn read(name: &str, program: String, bytes: &[u8]) -> Result<RecordedProgram, String> {
        let mut reader = Reader::new(bytes, LIMIT).map_err(|e| e.to_string())?;
        let (header, totals) = (reader.header().clone(), *reader.totals());
        if header.rules.line_bytes != 1 << LINE_SHIFT || header.rules.reset_every >= 1 << INSTRUCTION_BITS {
            let (line, reset) = (header.rules.line_bytes, header.rules.reset_every);
            return Err(format!(
                "it has lines of {line} bytes and is reset every {reset} instructions, expected {} and fewer than {}",
                1 << LINE_SHIFT,
                1 << INSTRUCTION_BITS
            ));
        }
        let mut recorded = RecordedProgram {
            name: name.to_owned(),
            program,
            records: Vec::with_capacity(totals.records.min(1 << 26) as usize),
            calls: Vec::new(),
            segments: Vec::new(),
            pages: BTreeSet::new(),
            references: totals.references(),
            reads_bytes: 0,
        };
        let mut layout = LayoutFinder::default();
        while let Some(record) = reader.next().transpose().map_err(|e| e.to_string())? {
            if record.kind == Kind::Call {
                let asked = meaning(&header.architecture, reader.call());
                let beyond =
                    |(at, len): (Va, usize)| at.0.checked_add(len as u64).is_none_or(|end| end > LIMIT);
                if let Some((at, len_bytes)) = asked.range().filter(|range| beyond(*range)) {
                    let (call, at) = (recorded.calls.len() + 1, at.0);
                    return Err(format!(
                        "system call {call} is about {len_bytes} bytes at {at:#x}, expected memory below {LIMIT:#x}"
                    ));
                }
                layout.asked(asked);
                if let RecordedCall::Read { len_bytes, .. } = asked {
                    recorded.reads_bytes = recorded.reads_bytes.saturating_add(len_bytes as u64);
                }
                recorded.calls.push(asked);
            } else if !layout.refers(record.kind, record.address) {
                return Err(format!(
                    "record {} refers to {:#x}, which the program has unmapped: expected it to map that again before",
                    recorded.records.len() + 1,
                    record.address
                ));
            }
            recorded.records.push(PackedRecord::new(record.kind, record.instructions, record.address));
        }
        layout.finish(&mut recorded);
        measure_files(&mut recorded.calls);
        Ok(recorded)
    }
}

/// Kinds of references to pages that nothing new is said by, in places by their low bits.
const SETTLED: usize = 512;

/// Finds what was mapped before the program began: what it refers to and has not asked for.
struct LayoutFinder {
    /// Pages that it has asked for.
    own: RangeSet<u64>,
    /// Pages that it has given back since.
    gone: RangeSet<u64>,
    /// What was there: pages, and whether they are executed or stored to.
    initial: BTreeMap<u64, PageUse>,
    first_break: Option<u64>,
    at_break: u64,
    /// Pages that were referred to since the last call, and how.
    settled: [Option<(u64, Kind)>; SETTLED],
}

impl Default for LayoutFinder {
    fn default() -> LayoutFinder {
        LayoutFinder {
            own: RangeSet::new(),
            gone: RangeSet::new(),
            initial: BTreeMap::new(),
            first_break: None,
            at_break: 0,
            settled: [None; SETTLED],
        }
    }
}

/// How a page is used.
#[derive(Clone, Copy, Default)]
struct PageUse {
    fetched: bool,
    stored: bool,
}

fn pages(at: u64, len_bytes: u64) -> std::ops::Range<u64> {
    at >> PAGE_SHIFT..(at + len_bytes).div_ceil(PAGE_SIZE as u64)
}

impl LayoutFinder {
    fn asked(&mut self, asked: RecordedCall) {
        match asked {
            RecordedCall::Break(at) => {
                if self.first_break.is_none() {
                    (self.first_break, self.at_break) = (Some(at.0), at.0);
                }
                // The rest of the page that the heap begins in is the program's image.
                let from = self.at_break.next_multiple_of(PAGE_SIZE as u64);
                self.owns(pages(from, at.0.saturating_sub(from)));
                self.at_break = at.0;
            }
            RecordedCall::Map { at, len_bytes } => self.owns(pages(at.0, len_bytes as u64)),
            RecordedCall::Unmap { at, len_bytes } if len_bytes > 0 => {
                self.gone.insert(pages(at.0, len_bytes as u64))
            }
            _ => {}
        }
        self.settled = [None; SETTLED];
    }

    fn owns(&mut self, run: std::ops::Range<u64>) {
        if !run.is_empty() {
            self.gone.remove(run.clone());
            self.own.insert(run);
        }
    }

    /// Takes note of a reference; answers whether there can be memory.
    fn refers(&mut self, kind: Kind, address: u64) -> bool {
        let page = address >> PAGE_SHIFT;
        let place = (page as usize * 4 + kind as usize) % SETTLED;
        if self.settled[place] == Some((page, kind)) {
            return true;
        }
        if self.gone.contains(&page) {
            return false;
        }
        self.settled[place] = Some((page, kind));
        if self.own.contains(&page) && !self.initial.contains_key(&page) {
            return true;
        }
        let used = self.initial.entry(page).or_default();
        used.fetched |= kind == Kind::Fetch;
        used.stored |= kind == Kind::Store;
        true
    }

    /// The image of the program goes from its lowest page to where its heap begins: text up to the first page that is
    /// stored to, data from there.
    fn finish(self, recorded: &mut RecordedProgram) {
        let Some((&lowest, _)) = self.initial.first_key_value() else { return };
        let heap = self.first_break.map_or(0, |at| at.div_ceil(PAGE_SIZE as u64));
        let image: Vec<(u64, PageUse)> =
            self.initial.range(lowest..heap.max(lowest)).map(|(p, u)| (*p, *u)).collect();
        if let Some(&(last, _)) = image.last() {
            let data = image.iter().find(|(_, used)| used.stored).map_or(last + 1, |(page, _)| *page);
            let segment = |range: std::ops::Range<u64>, kind| Segment {
                at: Va(range.start << PAGE_SHIFT),
                len_bytes: ((range.end - range.start) << PAGE_SHIFT) as usize,
                kind,
            };
            let both = [(lowest..data, SegmentKind::Text), (data..last + 1, SegmentKind::Data)];
            recorded
                .segments
                .extend(both.into_iter().filter(|(r, _)| !r.is_empty()).map(|(r, k)| segment(r, k)));
        }
        let others = self.initial.keys().filter(|page| !(lowest..heap).contains(page));
        for &page in others {
            let at = Va(page << PAGE_SHIFT);
            match recorded.segments.last_mut() {
                Some(s) if s.kind == SegmentKind::Anonymous && s.at + s.len_bytes == at => {
                    s.len_bytes += PAGE_SIZE
                }
                _ => {
                    recorded.segments.push(Segment { at, len_bytes: PAGE_SIZE, kind: SegmentKind::Anonymous })
                }
            }
        }
        recorded.pages = self.initial.keys().copied().collect();
    }
}

type Recordings = Mutex<HashMap<String, Arc<OnceLock<Result<Arc<RecordedProgram>, String>>>>>;

/// The trace that comes with the program under this name, or the one in the file `name`.
///
/// # Errors
/// A file that cannot be read, or is no trace.
pub(crate) fn recorded(name: &str) -> Result<Arc<RecordedProgram>, LabError> {
    static KNOWN: OnceLock<Recordings> = OnceLock::new();
    let cell = KNOWN
        .get_or_init(Recordings::default)
        .lock()
        .expect("no panic under it")
        .entry(name.into())
        .or_default()
        .clone();
    let read = || {
        let of_its_own = bundled().iter().find(|trace| trace.name == name);
        match of_its_own {
            Some(trace) => {
                let program = name.rsplit('-').next().unwrap_or(name).to_owned();
                RecordedProgram::read(name, program, trace.bytes).map(Arc::new)
            }
            None => {
                let read = input::bytes(Path::new(name), input::MAX_RECORDED_BYTES);
                // Which file it is, is said of all that is wrong with it.
                let bytes = read.map_err(|e| match e {
                    LabError::Io { error, .. } => error.to_string(),
                    LabError::Input { problem, .. } => problem,
                    other => other.to_string(),
                })?;
                RecordedProgram::read(name, "program".into(), &bytes).map(Arc::new)
            }
        }
    };
    cell.get_or_init(read).clone().map_err(|problem| LabError::Trace { file: name.into(), problem })
}

/// The traces of all of these names, in their order; those that were not read before, on all CPUs of the host.
///
/// # Errors
/// That of the first that cannot be had.
pub(crate) fn all_recorded(names: &[&str]) -> Result<Vec<Arc<RecordedProgram>>, LabError> {
    let (next, cpus) = (AtomicUsize::new(0), available_parallelism().map_or(1, NonZero::get));
    let reads = || {
        while let Some(name) = names.get(next.fetch_add(1, Relaxed)) {
            // It is kept, and its error, too: below both are asked for.
            let _ = recorded(name);
        }
    };
    std::thread::scope(|scope| {
        (0..cpus.min(names.len())).for_each(|_| drop(scope.spawn(reads)));
    });
    names.iter().map(|name| recorded(name)).collect()
}
