//! The comparison with what Python has: every method is a program of its own, and all have turns.
//!
//! # What it holds
//! [`Peers`] is where the peers were installed. A run starts a program for each method, has all of them open a size,
//! look at every byte once, and then take turns cell by cell. A method that fails or dies is told of and left out
//! from there on; what was measured of it before stays. Ratios are to the library's own from Python.
//!
//! # What is left behind
//! Nothing: what gets a name in a file system begins with a prefix of this run or lies in a folder of it, and both are
//! removed when all programs have ended, also when a signal asks for the end.

use crate::cell::{Carrier, Method, Pattern, Wait};
use crate::error::{BenchError, Calls as _, Result};
use crate::program::{Answer, Order, Program, Stop};
use crate::raw;
use crate::run::{Options, Step, in_turns, own_fill};
use crate::sending::slot_bytes;
use crate::series::{Report, Series, size};
use crate::surroundings::Surroundings;
use rustix::fs::MemfdFlags;
use rustix::rand::GetRandomFlags;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const SCRIPT: &str = include_str!("../peers/python/peer.py");

/// What is compared where nothing else is said.
const COMPARED: [Method; 18] = [
    Method::Floor,
    Method::Pipe,
    Method::Unix,
    Method::Readv,
    Method::Vmsplice,
    Method::Shm,
    Method::Loan,
    Method::IceoryxRust,
    Method::Ferry,
    Method::FerryArray,
    Method::FerryQueue,
    Method::MpQueue,
    Method::Pickle5,
    Method::SharedMemory,
    Method::Arrow,
    Method::TorchKept,
    Method::TorchNew,
    Method::IceoryxPython,
];

/// Fresh interpreters that import the package.
const IMPORTS: usize = 7;

/// Where the other programs are.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The folder that `peers/install` has filled.
    pub folder: PathBuf,
    /// How long a program may take for an answer.
    pub patience: Duration,
}

impl Peers {
    /// Where they are installed when nothing else is said.
    pub fn usual() -> Peers {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = || var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
        let folder = var("PAGEFERRY_PEERS").or_else(|| Some(cache()?.join("pageferry/peers")));
        Peers::at(folder.unwrap_or_else(|| PathBuf::from("peers")))
    }

    /// In this folder.
    pub fn at(folder: PathBuf) -> Peers {
        Peers { folder, patience: Duration::from_secs(60) }
    }

    fn python(&self) -> PathBuf {
        self.folder.join("venv/bin/python")
    }

    fn iceoryx2(&self) -> PathBuf {
        self.folder.join("bin/iceoryx2-peer")
    }
}

impl Options {
    /// About a minute of what Python has. `peer`: as for [`Options::new`].
    pub fn python(peer: Vec<OsString>) -> Options {
        Options {
            methods: COMPARED.to_vec(),
            patterns: vec![Pattern::Untouched, Pattern::Read, Pattern::Refilled],
            waits: vec![Wait::Sleep],
            max_slept: usize::MAX,
            ..Options::new(peer).quick()
        }
    }
}

/// All names that the run makes begin with one prefix, or lie in one folder.
struct Names {
    prefix: String,
    folder: PathBuf,
}

impl Names {
    fn new() -> Result<Names> {
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, GetRandomFlags::empty()).call("getrandom")?;
        let prefix = format!("pageferry-bench-{}-{:08x}-", std::process::id(), u32::from_ne_bytes(random));
        let folder = std::env::temp_dir().join(prefix.trim_end_matches('-'));
        DirBuilder::new().mode(0o700).create(&folder).call("make a folder for temporary files")?;
        Ok(Names { prefix, folder })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.prefix) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Hears of signals that ask for the end, until it is dropped.
struct Signals(Vec<signal_hook::SigId>);

impl Signals {
    fn hear(stop: &Stop) -> Result<Signals> {
        let mut signals = Signals(Vec::new());
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            let id = signal_hook::flag::register(signal, stop.clone()).call("sigaction")?;
            signals.0.push(id);
        }
        Ok(signals)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Everything that a program is started with.
struct Start<'a> {
    peers: &'a Peers,
    options: &'a Options,
    names: &'a Names,
    script: File,
    cpus: Vec<usize>,
    stop: Stop,
}

impl Start<'_> {
    fn program(&self, carrier: Carrier, word: &str) -> Result<Program> {
        let mut command = match carrier {
            Carrier::Own => {
                let this = std::env::current_exe().call("find this program")?;
                let mut command = Command::new(this);
                command.args(&self.options.peer);
                command
            }
            Carrier::Iceoryx2 => {
                let program = self.peers.iceoryx2();
                if !program.exists() {
                    let program = program.display();
                    return Err(BenchError::Method(format!(
                        "linux/bench/peers/install has not built {program}"
                    )));
                }
                Command::new(program)
            }
            Carrier::Python => {
                let mut command = Command::new(self.peers.python());
                // By a path that holds in every process: what it starts may read it again.
                command.arg("-I");
                command.arg(format!("/proc/{}/fd/{}", std::process::id(), self.script.as_raw_fd()));
                command
            }
        };
        command.arg(word).arg(format!("{}{word}-", self.names.prefix));
        command.args(self.cpus.iter().map(usize::to_string));
        command.env("TMPDIR", &self.names.folder);
        command.env_remove("PAGEFERRY_TRACE");
        // Nothing here is computed by them, and each would start a thread for each CPU.
        command.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1");
        Program::start(command, self.peers.patience, self.stop.clone())
    }
}

fn script() -> Result<File> {
    let fd = rustix::fs::memfd_create("peer.py", MemfdFlags::CLOEXEC).call("memfd_create")?;
    let mut file = File::from(fd);
    file.write_all(SCRIPT.as_bytes()).call("write to a memfd")?;
    Ok(file)
}

/// Programs that are still there, and what there is to say of those that are not.
struct Team {
    programs: Vec<(Method, Program)>,
    notes: Vec<String>,
}

impl Team {
    /// A method that fails is told of and left out, unless it is the run that ends.
    fn lost(&mut self, method: Method, at: &str, error: BenchError) -> Result<()> {
        if matches!(error, BenchError::Interrupted) {
            return Err(error);
        }
        self.notes.push(format!("{}: left out from {at} on: {error}", method.name()));
        self.programs.retain(|(other, _)| *other != method);
        Ok(())
    }

    fn methods(&self) -> Vec<Method> {
        self.programs.iter().map(|(method, _)| *method).collect()
    }

    fn order(&mut self, method: Method, order: &Order) -> Result<Answer> {
        let program = self.programs.iter_mut().find(|(other, _)| *other == method);
        let (_, program) = program.ok_or_else(|| BenchError::Method("it is not there".to_owned()))?;
        program.order(order)
    }

    /// Gives all of them an order.
    fn all(&mut self, order: &Order, at: &str) -> Result<()> {
        for method in self.methods() {
            match self.order(method, order) {
                Ok(Answer::Done) => (),
                Ok(_) => self.lost(method, at, out_of_order())?,
                Err(error) => self.lost(method, at, error)?,
            }
        }
        Ok(())
    }

    fn send(&mut self, method: Method, order: &Order) -> Result<f64> {
        match self.order(method, order)? {
            Answer::Nanos(nanos) if nanos.is_finite() && nanos >= 0.0 => Ok(nanos),
            _ => Err(out_of_order()),
        }
    }

    /// Starts all at once, and hears what they are made by.
    fn start(&mut self, start: &Start<'_>, methods: &[Method]) -> Result<()> {
        let mut started = Vec::new();
        for &method in methods {
            match start.program(method.carrier(), &method.word()) {
                Ok(program) => started.push((method, program)),
                Err(error) => self.notes.push(format!("{}: not compared: {error}", method.name())),
            }
        }
        let mut abouts = Vec::new();
        for (method, mut program) in started {
            match program.answer() {
                Ok(Answer::Ready(about)) => {
                    if !abouts.contains(&about) {
                        abouts.push(about);
                    }
                    self.programs.push((method, program));
                }
                Ok(Answer::Missing(what)) => {
                    self.notes.push(format!("{}: not compared: {what}", method.name()));
                }
                Ok(_) => self.lost(method, "its start", out_of_order())?,
                Err(error) => self.lost(method, "its start", error)?,
            }
        }
        self.notes.push(format!("Made by {}.", abouts.join(", ")));
        Ok(())
    }
}

fn out_of_order() -> BenchError {
    BenchError::Method("it answers something else".to_owned())
}

/// Memory that all programs take for messages of a size, about: each has two arrays on one side, copies on both, and
/// some have slots.
fn needed(bytes: usize, methods: usize) -> u64 {
    methods as u64 * 7 * slot_bytes(bytes) as u64 + (512 << 20)
}

/// Nanoseconds in which fresh interpreters import the package.
fn imports(start: &Start<'_>) -> Result<Vec<f64>> {
    let import = |_| match start.program(Carrier::Python, "import")?.answer()? {
        Answer::Nanos(nanos) => Ok(nanos),
        _ => Err(out_of_order()),
    };
    (0..IMPORTS).map(import).collect()
}

/// Measures all that is asked for. What cannot be measured is told of in the report.
pub fn compare(options: &Options, peers: &Peers, progress: &mut dyn FnMut(Step)) -> Result<Report> {
    if !peers.python().exists() {
        return Err(BenchError::NoPeers(peers.folder.clone()));
    }
    let surroundings = Surroundings::get();
    let wanted = |method: &&Method| {
        matches!(method, Method::Floor | Method::Ferry) || options.methods.contains(method)
    };
    let methods: Vec<_> = Method::ALL.iter().filter(wanted).copied().collect();
    let fits = |bytes: &usize| needed(*bytes, methods.len()) <= surroundings.free_bytes;
    let (sizes, too_large): (Vec<_>, Vec<_>) = options.sizes.iter().copied().partition(fits);
    if sizes.is_empty() {
        let smallest = options.sizes.iter().min();
        return Err(smallest.map_or_else(no_size, |&bytes| BenchError::Memory(bytes)));
    }
    let stop = Stop::default();
    let _signals = Signals::hear(&stop)?;
    let names = Names::new()?;
    let mut cpus = raw::cpus()?;
    cpus.truncate(2);
    if cpus.len() < 2 {
        cpus.clear();
    }
    let start = Start { peers, options, names: &names, script: script()?, cpus, stop };
    let mut team = Team { programs: Vec::new(), notes: Vec::new() };
    for bytes in too_large {
        team.notes.push(format!("{}: not compared: too little memory is free", size(bytes)));
    }
    team.start(&start, &methods)?;
    let mut import_nanos = Vec::new();
    if team.methods().contains(&Method::Ferry) {
        match imports(&start) {
            Ok(nanos) => import_nanos = nanos,
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => team.notes.push(format!("import of the package: not timed: {error}")),
        }
    } else {
        team.notes
            .push("Without pageferry's package, ratios are to the floor, and no bar is judged.".to_owned());
    }
    let all = sizes.len() * options.patterns.len();
    let mut done = 0;
    let mut series: Vec<Series> = Vec::new();
    for &bytes in &sizes {
        let at = size(bytes);
        team.all(&Order::Open { bytes }, &at)?;
        for pattern in [Pattern::Read, Pattern::Refilled] {
            let check = Order::Send { pattern, warm: 0, rounds: 1, check: true };
            for method in team.methods() {
                if method.fits(pattern)
                    && let Err(error) = team.send(method, &check)
                {
                    team.lost(method, &at, error)?;
                }
            }
        }
        for &pattern in &options.patterns {
            progress(Step { done, all, bytes, pattern, wait: Wait::Sleep });
            done += 1;
            series.extend(cell(&mut team, options, bytes, pattern)?);
        }
        team.all(&Order::Close, &at)?;
    }
    let base = if import_nanos.is_empty() && series.iter().all(|of| of.method != Method::Ferry) {
        Method::Floor
    } else {
        Method::Ferry
    };
    let Team { programs, notes } = team;
    drop(programs);
    Ok(Report { surroundings, notes, series, fill_nanos: own_fill()?, base, import_nanos })
}

fn no_size() -> BenchError {
    BenchError::Usage("there is no size to measure".to_owned())
}

/// All methods of a cell, each in its turn.
fn cell(team: &mut Team, options: &Options, bytes: usize, pattern: Pattern) -> Result<Vec<Series>> {
    let mut methods = team.methods();
    methods.retain(|method| method.fits(pattern));
    let at = format!("{}, {}", size(bytes), pattern.name());
    let team = std::cell::RefCell::new(team);
    let mut measure = |method, warm, rounds| {
        team.borrow_mut().send(method, &Order::Send { pattern, warm, rounds, check: false })
    };
    let mut lost = |method, error| team.borrow_mut().lost(method, &at, error);
    let nanos = in_turns(&methods, options, bytes, &mut measure, &mut lost)?;
    let series = nanos.into_iter();
    Ok(series.map(|(method, nanos)| Series { method, bytes, pattern, wait: Wait::Sleep, nanos }).collect())
}
