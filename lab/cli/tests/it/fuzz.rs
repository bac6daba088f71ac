//! Files and settings that end badly: shipped ones, changed in ways that users and disks change files.
//!
//! A case takes a machine, kernel, experiment or scenario file, a program of `soak --replay`, or `--set` values,
//! changes it in up to three places (keys dropped, doubled, renamed; extreme numbers; other types; cut off; bytes that
//! are no text), and gives it to the command. Or it is a trace, sound as a file, of a program that never was; a
//! recording of strace, changed in the same ways; or the image of a disk, cut off, of another version or damaged, in
//! every second case with a superblock that says the right sum; or a part of a sweep, mostly with a sum that is right.
//! It has to end by itself within [`PATIENCE`], by an exit code of its own, without a panic, and leave nothing behind.
//!
//! Every case is a process of its own: what a user starts. What it does if its input is sound is as small as there is
//! ([`TINY`], [`MEMORY_MB`], mostly one variant of a scenario), because it is the input that is tried.
//!
//! `PAGEFERRY_FUZZ_SECONDS` says for how long, [`SECONDS`] if it is not set; `PAGEFERRY_FUZZ_SEED` where it begins.
use crate::common::part;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A case that runs for longer hangs, as far as a user can tell; and so does one that does not run at all for as long.
/// Time in which the host runs other things is none of the case's.
const PATIENCE: Duration = Duration::from_secs(20);
/// For how long cases are tried, unless the environment says.
const SECONDS: u64 = 25;
/// Memory of the machines that are booted, at most: frames cost time, and nothing here uses more.
const MEMORY_MB: u64 = 64;
/// So much of a recording is replayed by most cases that change one.
const BEGINNING_LINES: usize = 120;
/// The most that a case says.
const MAX_SAID_BYTES: u64 = 1 << 20;

/// What a case feeds to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Machine,
    Kernel,
    Experiment,
    Scenario,
    Program,
    Settings,
    Trace,
    Recording,
    Image,
    Part,
}

/// How often each kind has its turn. A recording takes as long as four others: the files that it names are made first.
const KINDS: [(u32, Kind); 10] = [
    (3, Kind::Machine),
    (3, Kind::Kernel),
    (3, Kind::Experiment),
    (3, Kind::Scenario),
    (3, Kind::Program),
    (3, Kind::Settings),
    (3, Kind::Trace),
    (1, Kind::Recording),
    (3, Kind::Image),
    (3, Kind::Part),
];

/// What is done to a line of a file.
#[derive(Clone, Debug)]
enum Change {
    Drop,
    Double,
    /// Its key loses a letter.
    Rename,
    /// Its number, the one of this turn, becomes another.
    Number(usize, String),
    /// The number is multiplied and divided.
    Scale(usize, u64, u64),
    /// Its value becomes one of another type.
    Value(String),
    /// The file ends within it.
    Cut(usize),
    /// A byte of it becomes another.
    Byte(usize, u8),
}

#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    /// Which of the files, and under what beside it.
    which: usize,
    beside: usize,
    changes: Vec<(usize, Change)>,
}

fn number() -> impl Strategy<Value = String> {
    let extremes = prop::sample::select(vec![
        "0",
        "1",
        "-1",
        "2",
        "3",
        "7",
        "63",
        "64",
        "65",
        "255",
        "4095",
        "4096",
        "4097",
        "65536",
        "100000",
        "1000000",
        "16777216",
        "2147483647",
        "2147483648",
        "4294967295",
        "4294967296",
        "100000000",
        "1099511627776",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "0xffff_ffff",
        "1e308",
        "nan",
        "1.5",
        "99999999999999999999999999999999999999999999",
    ]);
    prop_oneof![
        3 => extremes.prop_map(str::to_owned),
        1 => (0u32..64, -1i64..2).prop_map(|(shift, more)| ((1i128 << shift) + i128::from(more)).to_string()),
        1 => any::<u32>().prop_map(|n| n.to_string()),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let values = prop::sample::select(vec![
        "true",
        "\"\"",
        "\"word\"",
        "[]",
        "{}",
        "1979-05-27",
        "\"\\u0000\"",
        "[1, 2]",
    ]);
    prop_oneof![
        2 => Just(Change::Drop),
        1 => Just(Change::Double),
        1 => Just(Change::Rename),
        8 => (any::<usize>(), number()).prop_map(|(n, to)| Change::Number(n, to)),
        10 => (any::<usize>(), prop::sample::select(vec![(2, 1), (1, 2), (10, 1), (1, 10), (100, 1), (1, 100),
            (10_000, 1), (1_000_000, 1), (3, 2)])).prop_map(|(n, (times, by))| Change::Scale(n, times, by)),
        2 => values.prop_map(|value| Change::Value(value.to_owned())),
        1 => any::<usize>().prop_map(Change::Cut),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let changes = prop_oneof![
        3 => prop::collection::vec((any::<usize>(), change()), 1),
        1 => prop::collection::vec((any::<usize>(), change()), 2..4),
    ];
    let kinds = KINDS.map(|(turns, kind)| (turns, Just(kind)));
    (prop::strategy::Union::new_weighted(kinds.to_vec()), any::<usize>(), any::<usize>(), changes)
        .prop_map(|(kind, which, beside, changes)| Case { kind, which, beside, changes })
}

/// The places of the numbers in a line.
fn numbers(line: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let len = line[at..].iter().take_while(|b| b.is_ascii_digit() || **b == b'_').count();
        let starts = line[at].is_ascii_digit() && (at == 0 || !line[at - 1].is_ascii_alphanumeric());
        if starts {
            found.push((at, at + len));
        }
        at += len.max(1);
    }
    found
}

fn changed(text: &str, changes: &[(usize, Change)]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
    for (which, change) in changes {
        // Only lines that say something; of those with numbers, where a number is to be changed.
        let says = |line: &Vec<u8>| line.iter().any(|b| !b.is_ascii_whitespace()) && line[0] != b'#';
        let counts = |line: &Vec<u8>| {
            !matches!(change, Change::Number(..) | Change::Scale(..)) || !numbers(line).is_empty()
        };
        let some: Vec<usize> = (0..lines.len()).filter(|i| says(&lines[*i]) && counts(&lines[*i])).collect();
        let Some(&i) = some.get(which % some.len().max(1)) else { continue };
        match change {
            Change::Drop => drop(lines.remove(i)),
            Change::Double => lines.insert(i, lines[i].clone()),
            Change::Rename => {
                let at = lines[i].iter().position(u8::is_ascii_alphabetic);
                if let Some(at) = at {
                    lines[i].remove(at);
                }
            }
            Change::Number(n, to) => {
                let places = numbers(&lines[i]);
                let (from, end) = places[n % places.len()];
                lines[i].splice(from..end, to.bytes());
            }
            Change::Scale(n, times, by) => {
                let places = numbers(&lines[i]);
                let (from, end) = places[n % places.len()];
                let old = String::from_utf8_lossy(&lines[i][from..end]).replace('_', "").parse::<u64>();
                let Ok(old) = old else { continue };
                lines[i].splice(from..end, (old.saturating_mul(*times) / by).to_string().bytes());
            }
            Change::Value(to) => {
                let Some(at) = lines[i].iter().position(|b| *b == b'=' || *b == b':') else { continue };
                lines[i].truncate(at + 1);
                lines[i].extend(to.bytes());
            }
            Change::Cut(at) => {
                lines.truncate(i + 1);
                let len = at % (lines[i].len() + 1);
                lines[i].truncate(len);
            }
            Change::Byte(at, byte) => {
                let at = at % lines[i].len();
                lines[i][at] = *byte;
            }
        }
    }
    lines.join(&b'\n')
}

/// The files of a folder of the repository, by name.
fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut all: Vec<(String, String)> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml" || e == "json"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("readable"))
        })
        .collect();
    all.sort();
    assert!(!all.is_empty(), "{} is empty", folder.display());
    all
}

/// A trace of a few references and system calls, most of which make sense and some of which cannot.
fn trace(seed: usize) -> Vec<u8> {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[(seed as u64).to_le_bytes(); 4].concat());
    let header = pageferry_trace::Header {
        architecture: "ppc".to_owned(),
        rules: pageferry_trace::Rules::STANDARD,
        recorder: "fuzz".to_owned(),
        command: vec!["none".to_owned()],
    };
    let mut bytes = Vec::new();
    let mut recorder = pageferry_trace::Recorder::new(&mut bytes, &header).expect("written");
    let sane = random.random_range(0..4) > 0;
    for _ in 0..random.random_range(0..60) {
        let odd = !sane && random.random_range(0..8) == 0;
        let mut number = |near: u64, room: u64| match odd {
            true => random.random::<u64>() >> random.random_range(0..64),
            false => near + random.random_range(0..room),
        };
        let (at, len) = (number(0x1000_0000, 0x4_0000), number(0, 0x3000));
        let file = number(0, 4);
        match random.random_range(0..10) {
            0..3 => recorder.fetch(at & !3, 4),
            3..5 => recorder.load(at, 4),
            5..7 => recorder.store(at, 4),
            kind => {
                let call =
                    [3, 4, 45, 90, 91, 192, 1, 20][random.random_range(0..if kind == 7 { 8 } else { 6 })];
                let arguments = match call {
                    45 | 90 | 91 | 192 => [at & !4095, len & !4095, 3, 0x22, 0, 0],
                    _ => [file, at, len, 0, 0, 0],
                };
                let result = if matches!(call, 45 | 90 | 192) { at & !4095 } else { len };
                recorder.call(call, arguments).and_then(|()| recorder.returned(result as i64))
            }
        }
        .expect("written");
    }
    recorder.finish().expect("written");
    bytes
}

/// A small disk with a few files and directories.
fn image() -> Vec<u8> {
    use pageferry_fs::{Cached, Format, Kind as Of, MemoryDevice, Volume};
    let mut disk = Cached::new(MemoryDevice::new(192 << 10));
    let mut volume = Volume::format(&mut disk, Format::of_blocks(1024)).expect("it has room");
    let root = volume.root();
    let directory = volume.make(&mut disk, root, b"directory", Of::Directory).expect("made");
    for (at, name, len) in
        [(root, &b"small"[..], 700), (directory, b"large", 40_000), (directory, b"empty", 0)]
    {
        let file = volume.make(&mut disk, at, name, Of::File).expect("made");
        volume.write(&mut disk, file, 0, &vec![7; len]).expect("written");
    }
    volume.unmount(&mut disk).expect("unmounted");
    disk.into_device().bytes().to_vec()
}

/// The sum that a superblock has.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// A disk that something has happened to.
fn damaged(sound: &[u8], seals: bool, changes: &[(usize, Change)]) -> Vec<u8> {
    const SECTOR: usize = 512;
    let mut bytes = sound.to_vec();
    for (which, change) in changes {
        let sectors = bytes.len() / SECTOR;
        if sectors == 0 {
            break;
        }
        // In a superblock, a header, an inode or a directory, mostly: those are at the beginning.
        let sector = which % sectors.min(32) * SECTOR;
        let place = |n: usize| (which.wrapping_mul(31).wrapping_add(n) % (bytes.len().min(24 << 10) / 4)) * 4;
        let put = |bytes: &mut Vec<u8>, at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())
        };
        match change {
            Change::Drop => drop(bytes.drain(sector..sector + SECTOR)),
            Change::Double => {
                let from = (which / 7) % sectors * SECTOR;
                bytes.copy_within(from..from + SECTOR, sector);
            }
            Change::Rename => bytes[sector..sector + SECTOR].fill(0),
            Change::Value(_) => bytes[sector..sector + SECTOR].fill(0xff),
            Change::Number(n, to) => {
                let at = place(*n);
                put(&mut bytes, at, to.parse::<i128>().unwrap_or(i128::MAX) as u32);
            }
            Change::Scale(n, times, by) => {
                let at = place(*n);
                let old = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
                put(&mut bytes, at, (u64::from(old) * times / by) as u32);
            }
            Change::Cut(at) => bytes.truncate(at % bytes.len()),
            Change::Byte(at, byte) => {
                let at = at % bytes.len().min(16 << 10);
                bytes[at] = *byte;
            }
        }
    }
    if seals && bytes.len() >= SECTOR {
        let sum = crc32(&bytes[..SECTOR - 4]);
        bytes[SECTOR - 4..SECTOR].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// A machine's file, with little memory. Its other lines are as they were.
fn with_little_memory(text: &str) -> String {
    let mut table = "";
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    for (old, line) in text.lines().zip(&mut lines) {
        table = if old.starts_with('[') { old } else { table };
        let number = numbers(old.as_bytes()).first().copied();
        if let Some((from, end)) = number.filter(|_| table == "[memory]" && old.starts_with("size_mb =")) {
            let mb: u64 = old[from..end].parse().expect("a number");
            line.replace_range(from..end, &mb.min(MEMORY_MB).to_string());
        }
    }
    lines.join("\n")
}

/// A scenario of one variant: of each list of what varies there is one element, in turn.
fn one_variant(text: &str, mut which: usize) -> String {
    let mut varies = false;
    let narrowed = text.lines().map(|line| {
        varies = if line.starts_with('[') { line == "[vary]" } else { varies };
        match line.split_once(" = [").filter(|_| varies) {
            None => line.to_owned(),
            Some((key, list)) => {
                let elements: Vec<_> = list.trim_end_matches(']').split(", ").collect();
                let one = elements[which % elements.len()];
                which /= elements.len();
                format!("{key} = [{one}]")
            }
        }
    });
    narrowed.collect::<Vec<_>>().join("\n")
}

struct Shipped {
    by_kind: BTreeMap<Kind, Vec<(String, String)>>,
    image: Vec<u8>,
    part: String,
}

/// Parameters for the smallest run of an experiment that is worth the name.
const TINY: [(&str, u64); 39] = [
    ("total_bytes", 65_536),
    ("times", 2),
    ("size_bytes", 8192),
    ("chunk_bytes", 8192),
    ("rounds", 2),
    ("steps", 4),
    ("looks", 2),
    ("kept", 2),
    ("others", 1),
    ("reads", 2),
    ("warmup_rounds", 1),
    ("warmup_chunks", 1),
    ("warmup_reads", 1),
    ("warmup_writes", 1),
    ("warmup_calls", 1),
    ("warmup_passes", 1),
    ("passes", 1),
    ("file_bytes", 65_536),
    ("n", 10),
    ("forks", 2),
    ("pages", 4),
    ("buffers", 4),
    ("loop_instructions", 100),
    ("rectangles", 4),
    ("compilers", 0),
    ("sources", 1),
    ("processes", 1),
    ("calls", 2),
    ("clients", 1),
    ("files", 4),
    ("packets", 2),
    ("requests", 4),
    ("servers", 1),
    ("transactions", 4),
    ("warmup", 1),
    ("warmup_bytes", 4096),
    ("warmup_requests", 1),
    ("yields", 1),
    ("disk_mb", 8),
];

/// What of `TINY` an experiment knows, or its own if that is less; and [`MEMORY_MB`] if the machine is a shipped one.
fn tiny(experiment: &str, machine_is_shipped: bool) -> Vec<String> {
    let set = |(key, value): &(&str, u64)| {
        let part = experiment.split("\n[").find(|part| part.starts_with(&format!("parameters.{key}]")))?;
        let said = |name: &str| part.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let value = (*value).min(said("value =").unwrap_or(u64::MAX)).max(said("min =").unwrap_or(0));
        Some(format!("{key}={value}"))
    };
    let memory = machine_is_shipped.then(|| format!("machine.memory.size_mb={MEMORY_MB}"));
    TINY.iter().filter_map(set).chain(memory).flat_map(|setting| ["--set".to_owned(), setting]).collect()
}

impl Shipped {
    fn load() -> Shipped {
        let kinds = [
            (Kind::Machine, "machines/model/machines"),
            (Kind::Kernel, "lab/lab/kernels"),
            (Kind::Experiment, "lab/lab/experiments"),
            (Kind::Scenario, "lab/teach/scenarios"),
            (Kind::Program, "lab/soak/programs"),
        ];
        let mut by_kind: BTreeMap<_, _> =
            kinds.into_iter().map(|(kind, folder)| (kind, files(folder))).collect();
        for (_, text) in by_kind.get_mut(&Kind::Machine).expect("there are machines") {
            *text = with_little_memory(text);
        }
        let recordings = [
            ("git-status", include_str!("../../../lab/recordings/git-status.strace")),
            ("tar", include_str!("../../../lab/recordings/tar.strace")),
            ("cp", include_str!("../../../lab/recordings/cp.strace")),
        ];
        let recordings = recordings.map(|(name, text)| (name.to_owned(), text.to_owned()));
        by_kind.insert(Kind::Recording, recordings.to_vec());
        let experiments: &Vec<(String, String)> = &by_kind[&Kind::Experiment];
        let (_, bw_pipe) = experiments.iter().find(|(name, _)| name == "bw-pipe").expect("there is one");
        let part = part::planned(&tiny(bw_pipe, true));
        Shipped { by_kind, image: image(), part }
    }

    fn pick(&self, kind: Kind, which: usize) -> &(String, String) {
        let files = &self.by_kind[&kind];
        &files[which % files.len()]
    }

    /// Experiments in turn. Those that replay long recordings, which take seconds, have a turn in 128.
    fn experiment(&self, which: usize) -> &(String, String) {
        let files = &self.by_kind[&Kind::Experiment];
        let long = |text: &str| {
            ["kernel-compile", "frame-buffer", "replay"]
                .iter()
                .any(|w| text.contains(&format!("workload = \"{w}\"")))
        };
        let from = which % files.len();
        let any = (which / files.len()).is_multiple_of(128);
        let mut turns = files.iter().cycle().skip(from);
        turns.find(|(_, text)| any || !long(text)).expect("some are short")
    }

    /// The command of a case, and the file that it reads.
    fn command(&self, case: &Case) -> (Vec<String>, Option<(&'static str, Vec<u8>)>) {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (name, experiment) = self.experiment(case.beside);
        let run = |shipped| [words(&format!("run {name} --quick")), tiny(experiment, shipped)].concat();
        let file = |kind: Kind| changed(&self.pick(kind, case.which).1, &case.changes);
        match case.kind {
            Kind::Machine => {
                ([run(false), words("--machine x.toml")].concat(), Some(("x.toml", file(Kind::Machine))))
            }
            Kind::Kernel => {
                ([run(true), words("--kernel x.toml")].concat(), Some(("x.toml", file(Kind::Kernel))))
            }
            Kind::Experiment => {
                let text = &self.experiment(case.which).1;
                let arguments = [words("run x.toml --quick"), tiny(text, true)].concat();
                (arguments, Some(("x.toml", changed(text, &case.changes))))
            }
            Kind::Scenario => {
                let (all, machine) = ((case.which / 32).is_multiple_of(64), case.which / 2048 % 2);
                let text = &self.pick(Kind::Scenario, case.which).1;
                let text = if all { text.clone() } else { one_variant(text, case.beside) };
                let play = format!("scenarios x.toml --machine {}", ["xeon-mp", "pentium-pro"][machine]);
                (words(&play), Some(("x.toml", changed(&text, &case.changes))))
            }
            Kind::Program => (words("soak --replay x.json"), Some(("x.json", file(Kind::Program)))),
            Kind::Recording => {
                let replay = format!(
                    "replay x.strace --machine xeon-up --kernel {} --set machine.memory.size_mb={MEMORY_MB}",
                    ["sf_buf", "original"][case.beside % 2]
                );
                // All of it takes as long as ten other cases.
                let text = &self.pick(Kind::Recording, case.which).1;
                let lines = if (case.which / 32).is_multiple_of(64) { usize::MAX } else { BEGINNING_LINES };
                let text: String = text.split_inclusive('\n').take(lines).collect();
                (words(&replay), Some(("x.strace", changed(&text, &case.changes))))
            }
            Kind::Image => {
                let how = ["check x.img", "ls x.img", "check x.img --repair"][case.beside % 3];
                let bytes = damaged(&self.image, case.which.is_multiple_of(2), &case.changes);
                (words(&format!("disk {how}")), Some(("x.img", bytes)))
            }
            Kind::Part => {
                let forged = part::as_small(&changed(part::body(&self.part), &case.changes), &self.part);
                let whole = if case.which.is_multiple_of(8) {
                    changed(&self.part, &case.changes)
                } else {
                    part::sealed(&self.part, &forged)
                };
                (words("sweep run x.toml"), Some(("x.toml", whole)))
            }
            Kind::Trace => {
                let machine = ["ppc603", "ppc604", "pentium-pro"][case.beside % 3];
                let kernel = if machine == "pentium-pro" { "uvm" } else { "linux-ppc" };
                let run =
                    format!("run replay --quick --machine {machine} --kernel {kernel} --set trace=x.pft");
                (words(&run), Some(("x.pft", trace(case.which))))
            }
            Kind::Settings => {
                let mut settings = Vec::new();
                for (which, change) in &case.changes {
                    let (kind, prefix) =
                        if which % 2 == 0 { (Kind::Machine, "machine.") } else { (Kind::Kernel, "kernel.") };
                    let keys = keys(&self.pick(kind, case.which).1);
                    let value = match change {
                        Change::Number(_, to) | Change::Value(to) => to.clone(),
                        Change::Scale(n, times, by) => ((*n as u64 % 4096) * times / by).to_string(),
                        _ => "1".to_owned(),
                    };
                    settings.push(format!("{prefix}{}={value}", keys[(which / 2) % keys.len()]));
                }
                let memory = settings.iter().any(|setting| setting.starts_with("machine.memory.size_mb="));
                let settings = settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]);
                (run(!memory).into_iter().chain(settings).collect(), None)
            }
        }
    }
}

/// The dotted keys of the constants of a file; elements of lists go by their names.
fn keys(text: &str) -> Vec<String> {
    let (mut table, mut found) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix('[') {
            table = head.trim_matches(['[', ']']).to_owned();
        } else if let Some(name) = line.strip_prefix("name = \"").filter(|_| !table.is_empty()) {
            table = format!("{table}.{}", name.trim_end_matches('"'));
        } else if let Some((key, _)) = line.split_once(" = {") {
            found.push(format!("{table}.{key}").trim_start_matches('.').to_owned());
        }
    }
    found.push("cpu.clock_mhz".into());
    found
}

/// The names in a directory, sorted.
fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("readable").map(|e| e.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A case that is under way.
struct Running {
    child: Child,
    /// How long it has run when that was looked at last, and since when that has not changed.
    ran: Duration,
    since: Instant,
    /// It was ended.
    hangs: bool,
}

/// How long a process has run, all its threads together; nothing where the host does not say.
fn ran(child: &Child) -> Duration {
    // The kernel counts in hundredths of a second, whatever it counts in itself. The name, in parentheses, may have
    // spaces.
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let ticks = stat.rsplit(')').next().into_iter().flat_map(|rest| rest.split(' ').skip(12).take(2));
    Duration::from_millis(ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// Ends cases that hang, until all are `over`.
fn watch(slots: &[Slot], over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        for slot in slots {
            let mut slot = lock(slot);
            let Some(case) = slot.as_mut() else { continue };
            let ran = ran(&case.child);
            if ran != case.ran {
                (case.ran, case.since) = (ran, Instant::now());
            }
            if case.ran > PATIENCE || case.since.elapsed() > PATIENCE {
                // One that has just ended by itself cannot be.
                case.hangs = case.child.kill().is_ok();
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What a thread runs.
type Slot = Mutex<Option<Running>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panicked that held it")
}

/// Runs a case in `dir`, which holds nothing before, and nothing afterwards; says what is wrong.
fn run(shipped: &Shipped, case: &Case, dir: &Path, slot: &Slot) -> Result<i32, String> {
    let (arguments, file) = shipped.command(case);
    if let Some((name, bytes)) = &file {
        fs::write(dir.join(name), bytes).expect("written");
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_pageferry"))
        .args(&arguments)
        .current_dir(dir)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let errors = child.stderr.take().expect("it is piped");
    *lock(slot) = Some(Running { child, ran: Duration::ZERO, since: Instant::now(), hangs: false });
    // What it says ends when it does.
    let mut said = Vec::new();
    errors.take(MAX_SAID_BYTES).read_to_end(&mut said).expect("readable");
    let (status, hangs) = loop {
        let mut slot = lock(slot);
        let case = slot.as_mut().expect("it was put there");
        if let Some(status) = case.child.try_wait().expect("waited for") {
            let hangs = case.hangs;
            *slot = None;
            break (status, hangs);
        }
        drop(slot);
        std::thread::sleep(Duration::from_micros(100));
    };
    let text = String::from_utf8_lossy(&said).into_owned();
    let mut left: Vec<_> =
        entries(dir).into_iter().filter(|name| file.as_ref().is_none_or(|f| f.0 != name)).collect();
    if let Some((name, _)) = &file {
        fs::remove_file(dir.join(name)).expect("what a case reads stays");
    }
    for name in &left {
        let path = dir.join(name);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("removed");
    }
    // The records of a part that ran.
    left.retain(|name| (case.kind, name.as_str()) != (Kind::Part, "x.jsonl"));
    let wrong = match status.code() {
        _ if hangs => "it hangs".to_owned(),
        _ if said.len() as u64 == MAX_SAID_BYTES => "it says without end".to_owned(),
        None => "a signal ended it".to_owned(),
        Some(0..=2) if text.contains("panic") => "a panic".to_owned(),
        // What a scenario expects may be changed to what does not hold, a recording to one whose processes wait for
        // each other, and a damaged disk is found to be; what a run does may not.
        Some(1) if !matches!(case.kind, Kind::Scenario | Kind::Recording | Kind::Image) => {
            "a law is broken".to_owned()
        }
        Some(_) if !left.is_empty() => format!("left behind: {left:?}"),
        Some(code @ 0..=2) => return Ok(code),
        Some(code) => format!("exit code {code}"),
    };
    let shown = file.map_or_else(String::new, |(name, bytes)| {
        format!("\n--- {name}\n{}", String::from_utf8_lossy(&bytes))
    });
    Err(format!("{wrong}: pageferry {}\n{text}{shown}", arguments.join(" ")))
}

/// The case of a seed.
fn case_of(seed: u64) -> Case {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    case().new_tree(&mut runner).expect("there are cases").current()
}

/// How much is to be done is not what is tried: a million calls take their time.
#[test]
fn all_that_experiments_count_is_tiny() {
    for (name, text) in files("lab/lab/experiments") {
        let parts = text.split("\n[").filter(|part| part.starts_with("parameters."));
        for part in parts {
            let key = part["parameters.".len()..].split(']').next().expect("a key");
            let unit = part.split_once("\nunit = \"").expect("a unit").1.split('"').next().expect("it ends");
            let says_how_large =
                ["bytes", "MB", "us", "instructions", "pages"].iter().any(|u| unit.starts_with(u));
            let is_tiny = TINY.iter().any(|setting| setting.0 == key);
            assert!(is_tiny || (says_how_large && !key.starts_with("warmup")), "{name}: {key}, {unit}");
        }
    }
}

#[test]
fn whatever_is_read_ends_in_words() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
    };
    let time = Duration::from_secs(number("PAGEFERRY_FUZZ_SECONDS", SECONDS));
    let first = number("PAGEFERRY_FUZZ_SEED", 1);
    let shipped = Shipped::load();
    let (began, next) = (Instant::now(), AtomicU64::new(first));
    let threads = std::thread::available_parallelism().map_or(1, usize::from) + 1;
    let slots: Vec<Slot> = (0..threads).map(|_| Mutex::new(None)).collect();
    let over = AtomicBool::new(false);
    let work = |slot: &Slot| {
        let (mut codes, mut bad) = (BTreeMap::<(Kind, i32), u64>::new(), Vec::new());
        let mut took = BTreeMap::<Kind, Duration>::new();
        let dir = tempfile::tempdir().expect("a directory");
        while began.elapsed() < time {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let case = case_of(seed);
            let starts = Instant::now();
            let ended = run(&shipped, &case, dir.path(), slot);
            *took.entry(case.kind).or_default() += starts.elapsed();
            match ended {
                Ok(code) => *codes.entry((case.kind, code)).or_default() += 1,
                Err(wrong) => {
                    // At once, too: a long run that is interrupted has told what it found.
                    println!("seed {seed}, {case:?}: {wrong}\n");
                    bad.push(seed);
                }
            }
        }
        (codes, bad, took)
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = slots.iter().map(|slot| scope.spawn(move || work(slot))).collect();
        let watcher = scope.spawn(|| watch(&slots, &over));
        let all = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        over.store(true, Ordering::Relaxed);
        watcher.join().expect("no panic");
        all
    });
    let mut codes = BTreeMap::<(Kind, i32), u64>::new();
    let (mut bad, mut took) = (Vec::new(), BTreeMap::<Kind, Duration>::new());
    for (of_thread, more, times) in all {
        of_thread.into_iter().for_each(|(key, count)| *codes.entry(key).or_default() += count);
        bad.extend(more);
        times.into_iter().for_each(|(kind, time)| *took.entry(kind).or_default() += time);
    }
    println!("time of all threads by kind: {took:.0?}");
    let cases = next.into_inner() - first;
    println!("{cases} cases in {:.0?}, by kind and exit code: {codes:?}", began.elapsed());
    assert!(
        bad.is_empty(),
        "{} of {cases} cases end badly, those of the seeds {bad:?}: see above",
        bad.len()
    );
    let well: u64 = codes.iter().filter(|((_, code), _)| *code == 0).map(|(_, count)| count).sum();
    assert!(well * 20 > cases, "hardly a case is run at all: {codes:?}");
}
