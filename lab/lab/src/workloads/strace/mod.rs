//! Recordings of `strace -f`, run again: the file and pipe calls of real programs, made by modelled processes.
//!
//! * `calls`: what a recorded call asks for. `names`: the plain model of the files, and what was there at the
//!   beginning. `order`: which call of another process must be over before one.
//! * `plan`, `apply`, `apply_files`: from a recording to an `ops::Plan`: for each process its calls, each with what the
//!   plain model answers. `ahead`: what comes after a call. `moments`: the order in which calls count that were under
//!   way at the same time. `under_way`: what such a call keeps open.
//! * `circle`: what gives way where processes would wait for each other.
//! * `play`: a process that makes them. `contents`: bytes that were not recorded. `cost`: what calls cost.
//!
//! The first process makes a volume on a memory disk, puts on it what the recording shows to have been there, mounts it
//! anew, so that nothing of it is in buffers, and forks the processes that none in the recording made. What is measured
//! begins then.
//!
//! Three things are compared. The plain model's answer with the recorded one: a *deviation*, where the recording does
//! not show enough, or is wrong. The kernel's answer with the plain model's, and every byte: a law of the run. And the
//! laws that every run has.

mod ahead;
mod apply;
mod apply_files;
mod calls;
mod circle;
mod contents;
mod cost;
#[cfg(test)]
mod generated;
mod moments;
mod names;
mod ops;
mod order;
mod plan;
mod play;
mod under_way;
mod unnamed;

pub use cost::Cost;
pub use ops::Deviation;

use crate::error::LabError;
use crate::files::{KernelChoice, MachineChoice};
use crate::kit::{CallError, OutcomeCell, Stopwatch, first_process, named, room_for};
use crate::record::{Cycles, Law};
use crate::run::Choices;
use crate::run::Testbed;
use crate::run::{counters, cycles};
use circle::PipeRoom;
use cpu_time::ThreadTime;
use ops::Plan;
use pageferry_hal::{PAGE_SIZE, Prot};
use pageferry_kernel::{OpenFlags, Program, User, VolumeFormat};
use pageferry_model::Model;
use pageferry_trace::strace::{Log, SkippedLines};
use pageferry_vm::{Inherit, VmDefect};
use plan::{kernel_path, kernel_target};
use play::Stage;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

/// The volume, as FreeBSD 5 makes them.
const FORMAT: VolumeFormat = VolumeFormat { block_bytes: 16384, fragment_bytes: 2048 };
/// What is written at once when files are made.
const PIECE: usize = 1 << 16;
/// Processes that are there at a time, at most: as many threads as the kernel has, but for the first.
const MAX_PROCESSES: usize = 200;
/// All processes and threads of a recording, at most.
const MAX_THREADS: usize = 20_000;

/// What a recording's calls cost on a modelled machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplayReport {
    /// The machine's name.
    pub machine: String,
    /// The kernel's name.
    pub kernel: String,
    /// Processes that were run.
    pub processes: usize,
    /// Lines of the recording.
    pub lines: usize,
    /// Lines that are none of strace's.
    pub skipped: u64,
    /// The first of those: its number, and what was expected.
    pub first_skipped: Option<(usize, String)>,
    /// Calls that are cut off.
    pub unfinished: u64,
    /// Files and directories that were there at the beginning.
    pub files: usize,
    /// Directories among them.
    pub directories: usize,
    /// Symbolic links.
    pub links: usize,
    /// Calls that were made, by name.
    pub calls: BTreeMap<String, Cost>,
    /// Calls that were not, by name and reason.
    pub not_modelled: BTreeMap<String, u64>,
    /// How often a process waited until another had made a call.
    pub waits: u64,
    /// How many calls answered otherwise than was recorded.
    pub deviations: usize,
    /// The first of them.
    pub first_deviations: Vec<Deviation>,
    /// Modelled time, from the first call to the end of the last process.
    pub elapsed_us: f64,
    /// Events that the kernel counted.
    pub counters: BTreeMap<String, u64>,
    /// Where the cycles went.
    pub cycles: Cycles,
    /// Laws, and whether each held.
    pub laws: Vec<Law>,
    /// Time on the host.
    pub host_ms: f64,
}

/// Deviations that are told of.
const MAX_TOLD: usize = 10;

/// Runs the recording in `bytes`, which `name` names, again. What files held comes from below `files`, where it is
/// there.
///
/// # Errors
/// When the bytes are no recording, or it is too much for the machine, or machine and kernel do not fit. A broken law
/// is not an error here.
pub fn replay(
    machine: &MachineChoice,
    kernel: &KernelChoice,
    name: &str,
    bytes: &[u8],
    files: Option<&Path>,
) -> Result<ReplayReport, LabError> {
    replay_planted(machine, kernel, name, bytes, files, None)
}

/// As [`replay`], in a kernel that has a defect from the first call of the recording on.
///
/// # Errors
/// As [`replay`].
pub fn replay_planted(
    machine: &MachineChoice,
    kernel: &KernelChoice,
    name: &str,
    bytes: &[u8],
    files: Option<&Path>,
    defect: Option<VmDefect>,
) -> Result<ReplayReport, LabError> {
    let began = ThreadTime::now();
    let refuse = |problem: String| LabError::Input { file: name.to_owned(), problem };
    let log = Log::read(bytes);
    is_a_recording(&log).map_err(refuse)?;
    let pids: BTreeSet<u32> = log.entries.iter().map(|entry| entry.pid).collect();
    if pids.len() > MAX_THREADS {
        let count = pids.len();
        return Err(refuse(format!("{count} processes and threads, expected at most {MAX_THREADS}")));
    }
    let given = |path: &names::Path, len: usize| files.and_then(|folder| host_bytes(folder, path, len));
    let room = PipeRoom::of(&kernel.file.pipe.config());
    let plan = moments::plan_of(&log, room, &given).map_err(refuse)?;
    if plan.at_once > MAX_PROCESSES {
        let count = plan.at_once;
        return Err(refuse(format!("{count} processes at a time, expected at most {MAX_PROCESSES}")));
    }
    let testbed = Testbed::new(machine, kernel, Choices { seed: 0, ..Choices::default() })?;
    let clock_mhz = machine.config.cpu.clock_mhz.value as f64;
    let cell = OutcomeCell::default();
    let (processes, deviations) = (plan.processes.len(), plan.deviations.clone());
    let (files, directories) = (plan.image.files.len(), plan.image.directories.len());
    let links = plan.image.links.len();
    let not_modelled = plan.not_modelled.clone();
    let stage: Rc<RefCell<Option<Rc<Stage>>>> = Rc::default();
    let program = first(testbed.model.clone(), clock_mhz, plan, cell.clone(), stage.clone(), defect);
    let finish = testbed.execute("replay", program)?;
    let outcome = cell.take();
    if let Some(problem) = outcome.failed.filter(|_| finish.laws.iter().all(|law| law.held)) {
        return Err(testbed.incompatible(problem));
    }
    let mut laws = finish.laws;
    let stage = stage.take();
    let state = stage.as_ref().map(|stage| stage.state.borrow());
    let fault = state.as_ref().and_then(|state| {
        let first = state.first_fault.as_ref()?;
        Some(format!("{} answers are others, the first: {first}", state.faults))
    });
    laws.push(Law::new("every answer and every byte is the plain model's", fault.map_or(Ok(()), Err)));
    let measured = outcome.measured;
    let SkippedLines { count: skipped, first: first_skipped } = log.skipped;
    Ok(ReplayReport {
        machine: machine.name.clone(),
        kernel: kernel.name.clone(),
        processes,
        lines: log.lines,
        skipped,
        first_skipped,
        unfinished: log.unfinished,
        files,
        directories,
        links,
        calls: state.as_ref().map(|state| state.costs.by_call(clock_mhz)).unwrap_or_default(),
        not_modelled,
        waits: state.as_ref().map_or(0, |state| state.waits),
        deviations: deviations.len(),
        first_deviations: deviations.into_iter().take(MAX_TOLD).collect(),
        elapsed_us: outcome.results.get("elapsed_us").copied().unwrap_or(0.0),
        counters: measured.as_ref().map(counters).unwrap_or_default(),
        cycles: measured.as_ref().map(cycles).unwrap_or_default(),
        laws,
        host_ms: began.elapsed().as_secs_f64() * 1e3,
    })
}

/// Most lines of a recording are strace's.
fn is_a_recording(log: &Log) -> Result<(), String> {
    let first = || match &log.skipped.first {
        Some((line, expected)) => format!("line {line}: {expected}"),
        None => "it has no calls, expected lines such as `read(3, \"x\", 1) = 1`".to_owned(),
    };
    if log.entries.is_empty() {
        return Err(format!("not what strace writes: {}", first()));
    }
    if log.skipped.count > log.entries.len() as u64 {
        let (skipped, entries) = (log.skipped.count, log.entries.len());
        return Err(format!(
            "not what strace writes: {skipped} of its lines are not, {entries} are; {}",
            first()
        ));
    }
    Ok(())
}

/// The beginning of a file of the host, below a folder.
fn host_bytes(folder: &Path, path: &names::Path, len: usize) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut at = folder.to_owned();
    at.extend(path.iter().map(|name| std::ffi::OsStr::from_bytes(name)));
    if !at.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::open(at).ok()?.take(len as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Bytes of a disk that holds all that is there and all that is made.
fn disk_bytes(plan: &Plan) -> u64 {
    let (block, fragment) = (u64::from(FORMAT.block_bytes), u64::from(FORMAT.fragment_bytes));
    let of_file = |len: u64| len.next_multiple_of(if len > 12 * block { block } else { fragment }) + 64;
    let of_files: u64 = plan.image.files.iter().map(|file| of_file(file.bytes.len() as u64)).sum();
    let (directories, links) = (plan.image.directories.len() as u64, plan.image.links.len() as u64);
    let names = plan.image.files.len() as u64 + directories + links + plan.made;
    // An inode for four fragments, and with indirect blocks, and what holes make of blocks.
    let made = plan.made * (block + fragment) + plan.written_bytes;
    let inodes = names * 4 * fragment;
    ((of_files + directories * block + links * fragment + made) * 9 / 8)
        .max(inodes * 5 / 4)
        .next_multiple_of(1 << 20)
        + (1 << 20)
}

/// The first process.
fn first(
    model: Model,
    clock_mhz: f64,
    plan: Plan,
    cell: OutcomeCell,
    shared: Rc<RefCell<Option<Rc<Stage>>>>,
    defect: Option<VmDefect>,
) -> Program<Model> {
    let disk = disk_bytes(&plan);
    first_process(cell.clone(), PIECE, move |user| {
        let stage = Stage::new(user, plan, cell.clone());
        *shared.borrow_mut() = Some(stage.clone());
        let mut buffers: Vec<_> =
            (0..stage.plan.processes.len()).map(|process| stage.buffer_bytes(process)).collect();
        buffers.sort_unstable_by(|one, other| other.cmp(one));
        let buffers: usize = buffers.iter().take(stage.plan.at_once.max(1)).sum();
        // What is on the disk is in the page cache as well.
        if let Err(problem) = room_for(user, 2 * disk as usize + buffers) {
            cell.borrow_mut().failed = Some(problem);
            return Ok(());
        }
        user.attach_memory_disk(disk).map_err(named("make the memory disk"))?;
        let result = on_disk(user, &stage, &model, clock_mhz, defect);
        result.and(user.detach_memory_disk().map_err(named("destroy the memory disk")))
    })
}

fn on_disk(
    user: &User<Model>,
    stage: &Rc<Stage>,
    model: &Model,
    clock_mhz: f64,
    defect: Option<VmDefect>,
) -> Result<(), CallError> {
    user.make_volume(FORMAT).map_err(named("make the volume"))?;
    let filled = fill(user, &stage.plan);
    filled.and(user.unmount().map_err(named("unmount the volume")))?;
    user.mount().map_err(named("mount the volume"))?;
    user.kernel().vm().plant(defect);
    let watch = Stopwatch::start(model);
    let result = run(user, stage);
    let moved: u64 = stage.state.borrow().costs.by_call(clock_mhz).values().map(|cost| cost.bytes).sum();
    watch.stop(model, clock_mhz, moved, &mut stage.cell.borrow_mut());
    result.and(user.unmount().map_err(named("unmount the volume")))
}

/// Puts on the volume what was there.
fn fill(user: &User<Model>, plan: &Plan) -> Result<(), CallError> {
    for directory in &plan.image.directories {
        user.mkdir(&kernel_path(directory)).map_err(named("make a directory"))?;
    }
    for (path, leads_to) in &plan.image.links {
        let made = user.symlink(&kernel_target(leads_to), &kernel_path(path));
        made.map_err(named("make a symbolic link"))?;
    }
    let buffer = user.map(PIECE, Prot::RW, Inherit::None).map_err(named("map a buffer"))?;
    for file in &plan.image.files {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let fd = user.open(&kernel_path(&file.path), flags).map_err(named("make a file"))?;
        for piece in file.bytes.chunks(PIECE) {
            user.store(buffer, piece);
            let wrote = user.write(fd, buffer, piece.len()).map_err(named("write a file"))?;
            assert_eq!(wrote, piece.len(), "a write to a volume with room is whole");
        }
        if file.size > file.bytes.len() as u64 {
            user.truncate(fd, file.size).map_err(named("lengthen a file"))?;
        }
        user.close(fd).map_err(named("close"))?;
    }
    user.unmap(buffer, PIECE.next_multiple_of(PAGE_SIZE)).map_err(named("unmap a buffer"))
}

/// Runs the processes that none in the recording has made, and waits for them.
fn run(user: &User<Model>, stage: &Rc<Stage>) -> Result<(), CallError> {
    let mut result = Ok(());
    for process in &stage.plan.first {
        let name = format!("pid {}", stage.plan.processes[*process].pid);
        if let Err(errno) = stage.fork(user, &name, stage.program(*process)) {
            result = Err(("fork", errno));
        }
    }
    stage.wait_for_all(user).map_err(named("wait"))?;
    while user.wait().is_ok() {}
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_recording_says_so() {
        let said = |text: &str| is_a_recording(&Log::read(text.as_bytes())).expect_err("none");
        assert!(said("").contains("no calls"));
        assert!(said("[package]\nname = 1\n").contains("line 1: expected a call"));
    }

    const SHIPPED: [&str; 3] = [
        include_str!("../../../recordings/tar.strace"),
        include_str!("../../../recordings/cp.strace"),
        include_str!("../../../recordings/git-status.strace"),
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// Lines are lost, doubled, moved and cut, and numbers become others: a plan is made or refused, and what it
        /// has is bounded.
        #[test]
        fn a_damaged_recording_gives_a_plan_or_is_refused(
            which in 0..3usize,
            changes in proptest::collection::vec(
                (any::<proptest::sample::Index>(), 0..6u8, any::<proptest::sample::Index>(), prop_oneof![
                    0..5000u64, Just(u64::MAX), Just(1 << 63), Just(1 << 40), Just(1 << 28), any::<u64>()
                ]),
                1..12,
            ),
        ) {
            let mut lines: Vec<String> = SHIPPED[which].lines().map(str::to_owned).collect();
            for (at, how, other, number) in changes {
                let (at, other) = (at.index(lines.len()), other.index(lines.len()));
                let numbers: Vec<(usize, usize)> = {
                    let line = &lines[at];
                    let is_digit = |at: usize| line.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
                    (0..line.len())
                        .filter(|from| is_digit(*from) && (*from == 0 || !is_digit(*from - 1)))
                        .map(|from| (from, (from..).find(|to| !is_digit(*to)).unwrap_or(line.len())))
                        .collect()
                };
                match how {
                    0 => drop(lines.remove(at)),
                    1 => lines.insert(other, lines[at].clone()),
                    2 => lines.swap(at, other),
                    3 => {
                        let to = other.min(lines[at].len());
                        lines[at] = String::from_utf8_lossy(&lines[at].as_bytes()[..to]).into_owned();
                    }
                    _ if numbers.is_empty() => {}
                    _ => {
                        let (from, to) = numbers[other % numbers.len()];
                        lines[at].replace_range(from..to, &number.to_string());
                    }
                }
            }
            let log = Log::read(lines.join("\n").as_bytes());
            if let Ok(plan) = moments::plan_of(&log, PipeRoom::NONE, &|_, _| None) {
                prop_assert!(disk_bytes(&plan) < 2 << 30);
                let made: usize = plan.processes.iter().map(|process| process.ops.len()).sum();
                prop_assert!(made <= 2 * lines.len() + 400);
            }
        }
    }
}
