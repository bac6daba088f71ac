//! All cells, one after the other.

use crate::cell::{Carrier, Line, Method, Pattern, Wait};
use crate::error::{BenchError, Result};
use crate::link::{Answer, Link, Order};
use crate::raw;
use crate::sending::{SenderSide, slot_bytes};
use crate::series::{FILLED, Report, Series};
use crate::surroundings::Surroundings;
use crate::work;
use pageferry::trust::Same;
use pageferry::{Child, Command};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// What is measured, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Arguments with which this program calls [`crate::PeerArguments::run`].
    pub peer: Vec<OsString>,
    /// Bytes of messages.
    pub sizes: Vec<usize>,
    /// By what. The floor is always there.
    pub methods: Vec<Method>,
    /// What is done to messages.
    pub patterns: Vec<Pattern>,
    /// What a side that waits does.
    pub waits: Vec<Wait>,
    /// The largest message that a receiver writes to.
    pub max_written: usize,
    /// The largest message for sides that sleep.
    pub max_slept: usize,
    /// Times that each method has its turn.
    pub repetitions: usize,
    /// How long a turn takes, about.
    pub turn: Duration,
    /// Nothing else runs on the CPUs during a turn. Needs the right to be a realtime process.
    pub realtime: bool,
}

impl Options {
    /// The whole of it: some minutes.
    pub fn new(peer: Vec<OsString>) -> Options {
        Options {
            peer,
            sizes: vec![64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20],
            methods: Method::ALL.iter().copied().filter(|of| of.carrier() == Carrier::Own).collect(),
            patterns: Pattern::ALL.to_vec(),
            waits: Wait::ALL.to_vec(),
            max_written: usize::MAX,
            max_slept: usize::MAX,
            repetitions: 9,
            turn: Duration::from_millis(30),
            realtime: false,
        }
    }

    /// About a minute.
    #[must_use]
    pub fn quick(self) -> Options {
        Options {
            repetitions: 7,
            turn: Duration::from_millis(6),
            max_written: 4 << 20,
            max_slept: 4 << 20,
            ..self
        }
    }

    fn fits(&self, bytes: usize, pattern: Pattern, wait: Wait) -> bool {
        let written = matches!(pattern, Pattern::OneWord | Pattern::AllPages);
        let slept = wait == Wait::Sleep;
        // How a side waits does not depend on what the receiver writes.
        let twice = slept && self.waits.contains(&Wait::Spin);
        (!written || (bytes <= self.max_written && !twice)) && (!slept || bytes <= self.max_slept)
    }
}

/// Where the run is.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Cells that are done.
    pub done: usize,
    /// Cells that there are.
    pub all: usize,
    /// Bytes of the messages that come next.
    pub bytes: usize,
    /// What is done to them.
    pub pattern: Pattern,
    /// What a side that waits does.
    pub wait: Wait,
}

/// A batch has so many messages, at most and at least.
const MAX_ROUNDS: u32 = 400;
const MIN_ROUNDS: u32 = 2;
/// Of messages that take longer, one is a batch, and caches need not be warmed for it.
const SLOW: Duration = Duration::from_millis(100);

/// The peer: a process that runs this program.
pub(crate) struct Peer {
    pub(crate) child: Child<Same>,
    pub(crate) link: Link,
    pub(crate) waits: Vec<Wait>,
    /// Where this thread ran before, and runs again afterwards.
    cpus: Vec<usize>,
}

impl Peer {
    /// Starts it, each side on a CPU of its own where there are two.
    pub(crate) fn start(args: &[OsString], waits: &[Wait], realtime: bool) -> Result<Peer> {
        let (link, theirs) = Link::pair()?;
        let mut command = Command::this_program()?.args(args);
        command.as_std().stdin(theirs);
        let child = command.spawn()?;
        let cpus = raw::cpus()?;
        // On one CPU a side that spins keeps the other from answering.
        let two = cpus.len() > 1;
        let waits: Vec<_> = waits.iter().copied().filter(|&wait| two || wait == Wait::Sleep).collect();
        if two {
            raw::pin(&cpus[..1])?;
        }
        link.send(&Order::Start { cpu: cpus.get(1).copied(), realtime }, &[])?;
        match link.answer()? {
            Answer::Ready => Ok(Peer { child, link, waits, cpus }),
            _ => Err(BenchError::Peer("it answers something else".to_owned())),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let process = self.child.process();
        let _ = process.kill();
        let _ = process.wait();
        let _ = raw::pin(&self.cpus);
    }
}

/// The shortest of several fills, in nanoseconds.
pub(crate) fn own_fill() -> Result<f64> {
    let mut memory = raw::Memory::own(FILLED)?;
    let fill = |stamp| {
        let began = Instant::now();
        work::fill(memory.bytes_mut(0, FILLED), stamp);
        began.elapsed().as_nanos() as f64
    };
    Ok((0..20).map(fill).fold(f64::INFINITY, f64::min))
}

/// Memory that both processes take for messages of a size, about.
fn needed(bytes: usize) -> u64 {
    14 * slot_bytes(bytes) as u64 + (128 << 20)
}

/// Measures all that is asked for.
pub fn bench(options: &Options, progress: &mut dyn FnMut(Step)) -> Result<Report> {
    let surroundings = Surroundings::get();
    let fits = |bytes: &usize| needed(*bytes) <= surroundings.free_bytes;
    let (sizes, too_large): (Vec<_>, Vec<_>) = options.sizes.iter().copied().partition(fits);
    let Some(&smallest) = options.sizes.first() else {
        return Err(BenchError::Usage("there is no size to measure".to_owned()));
    };
    if sizes.is_empty() {
        return Err(BenchError::Memory(smallest));
    }
    let mut notes: Vec<String> = too_large
        .iter()
        .map(|&bytes| format!("{}: not measured, too little memory is free", crate::series::size(bytes)))
        .collect();
    let peer = Peer::start(&options.peer, &options.waits, options.realtime)?;
    if peer.waits.len() < options.waits.len() {
        notes.push("one CPU: sides that spin were not measured".to_owned());
    }
    let mut cells = Vec::new();
    for &wait in &peer.waits {
        for &bytes in &sizes {
            for &pattern in &options.patterns {
                cells.push((wait, bytes, pattern));
            }
        }
    }
    cells.retain(|&(wait, bytes, pattern)| options.fits(bytes, pattern, wait));
    let mut series = Vec::new();
    let mut done = 0;
    while let Some(&(wait, bytes, _)) = cells.get(done) {
        let (mut sending, missing) =
            SenderSide::open(&peer.link, &peer.child, bytes, wait, options.realtime, &Line::ALL)?;
        for (line, why) in missing {
            let note = format!("{}: {why}", name(line));
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        for &method in &options.methods {
            for pattern in [Pattern::Read, Pattern::Refilled] {
                if sending.has(method) && method.fits(pattern) {
                    sending.verify(method, pattern)?;
                }
            }
        }
        while let Some(&(_, _, pattern)) = cells.get(done).filter(|cell| (cell.0, cell.1) == (wait, bytes)) {
            progress(Step { done, all: cells.len(), bytes, pattern, wait });
            series.extend(cell(&mut sending, options, bytes, pattern, wait)?);
            done += 1;
        }
        sending.close()?;
    }
    let (base, import_nanos) = (Method::Floor, Vec::new());
    Ok(Report { surroundings, notes, series, fill_nanos: own_fill()?, base, import_nanos })
}

fn name(line: Line) -> &'static str {
    match line {
        Line::Mmu => "level mmu",
        Line::Typed => "level typed",
        Line::Leased => "level leased",
        Line::Sealed => "level sealed",
    }
}

/// All methods of a cell, each in its turn.
pub(crate) fn cell(
    sending: &mut SenderSide<'_>,
    options: &Options,
    bytes: usize,
    pattern: Pattern,
    wait: Wait,
) -> Result<Vec<Series>> {
    let wanted = |method: Method| method == Method::Floor || options.methods.contains(&method);
    let fits = |method: Method| method.fits(pattern) && sending.has(method) && wanted(method);
    let methods: Vec<Method> = Method::ALL.iter().copied().filter(|&method| fits(method)).collect();
    let mut measure = |method, warm, rounds| {
        let max = sending.max_rounds(method).saturating_sub(warm).max(1);
        sending.measure(method, pattern, warm, max.min(rounds))
    };
    let nanos = in_turns(&methods, options, bytes, &mut measure, &mut |_, error| Err(error))?;
    Ok(nanos.into_iter().map(|(method, nanos)| Series { method, bytes, pattern, wait, nanos }).collect())
}

/// Nanoseconds of a message by a method: so many that do not count, and so many that do.
pub(crate) type Measure<'a> = &'a mut dyn FnMut(Method, u32, u32) -> Result<f64>;

/// Each method has its turn in each repetition, in an order that rotates. `lost` hears of a method that fails, and
/// decides whether it is left out or all of it ends.
pub(crate) fn in_turns(
    methods: &[Method],
    options: &Options,
    bytes: usize,
    measure: Measure<'_>,
    lost: &mut dyn FnMut(Method, BenchError) -> Result<()>,
) -> Result<Vec<(Method, Vec<f64>)>> {
    let warm = if bytes > 8 << 20 { 1 } else { 3 };
    // How many are a turn is seen in a turn that does not count.
    let mut turns = Vec::new();
    for &method in methods {
        match measure(method, warm, MIN_ROUNDS) {
            Ok(nanos) => {
                let fit = (options.turn.as_nanos() as f64 / nanos.max(1.0)) as u32;
                let slow = nanos > SLOW.as_nanos() as f64;
                let (warm, rounds) = if slow { (0, 1) } else { (warm, fit.clamp(MIN_ROUNDS, MAX_ROUNDS)) };
                turns.push(Some((method, warm, rounds, Vec::new())));
            }
            Err(error) => lost(method, error)?,
        }
    }
    let count = turns.len();
    for repetition in 0..options.repetitions {
        for turn in 0..count {
            let place = &mut turns[(turn + repetition) % count];
            let Some((method, warm, rounds, nanos)) = place else { continue };
            match measure(*method, *warm, *rounds) {
                Ok(time) => nanos.push(time),
                Err(error) => {
                    let method = *method;
                    *place = None;
                    lost(method, error)?;
                }
            }
        }
    }
    Ok(turns.into_iter().flatten().map(|(method, _, _, nanos)| (method, nanos)).collect())
}
