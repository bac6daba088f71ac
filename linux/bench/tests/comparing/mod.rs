//! Comparisons with programs that go wrong: an interpreter that is none says what programs of methods say, or not.

use crate::peer;
use pageferry_bench::{BenchError, Method, Options, Pattern, Peers, Wait, compare};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Peers of which the interpreter is a script of these tests.
struct Fake {
    folder: PathBuf,
}

impl Fake {
    fn new(name: &str) -> Fake {
        let folder = std::env::temp_dir().join(format!("pageferry-bench-test-{}-{name}", std::process::id()));
        let bin = folder.join("venv/bin");
        fs::create_dir_all(&bin).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/comparing/fake-python");
        std::os::unix::fs::symlink(script, bin.join("python")).unwrap();
        Fake { folder }
    }

    fn peers(&self) -> Peers {
        Peers { patience: Duration::from_secs(10), ..Peers::at(self.folder.clone()) }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn options(methods: &[Method]) -> Options {
    Options {
        sizes: vec![64 << 10],
        methods: methods.to_vec(),
        repetitions: 7,
        turn: Duration::from_micros(1),
        ..Options::python(peer())
    }
}

/// Names that a run of this process has made and that are still there.
fn left(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("pageferry-bench-{pid}-");
    let folders = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix))
        .collect()
}

/// Processes that have `word` in their command line, besides this one.
fn running(word: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (pid != std::process::id() && line.contains(word)).then(|| format!("{pid}: {line}"))
    });
    lines.collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn a_method_that_goes_wrong_is_told_of() {
    let fake = Fake::new("wrong");
    let methods = [
        Method::Floor,
        Method::Pipe,
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
    let before = descriptors();
    let mut steps = 0;
    let report = compare(&options(&methods), &fake.peers(), &mut |_| steps += 1).unwrap();
    assert_eq!(steps, 3);
    assert_eq!(descriptors(), before, "descriptors are left open");
    assert_eq!(left(std::process::id()), Vec::<PathBuf>::new());

    // Each is told of once, by its name, with what happened to it.
    let wanted = [
        (Method::IceoryxRust, "not compared: linux/bench/peers/install has not built"),
        (Method::FerryQueue, "it says something that does not end"),
        (Method::MpQueue, "left out from 64 KB, refilled + read on: it was ended by signal 11"),
        (Method::Pickle5, "left out from 64 KB on: what arrived is not what was sent"),
        (Method::SharedMemory, "it has not answered for 10 s"),
        (Method::Arrow, "\"Warning: this is no answer\""),
        (Method::TorchKept, "not compared: torch: none here"),
        (Method::TorchNew, "it has ended with code 3: it cannot even begin"),
        (Method::IceoryxPython, "it answers something else"),
    ];
    for (method, what) in wanted {
        let start = format!("{}: ", method.name());
        let notes: Vec<_> = report.notes.iter().filter(|note| note.starts_with(&start)).collect();
        assert!(notes.len() == 1 && notes[0].contains(what), "{method:?}: {:?}", report.notes);
    }
    // The hanging one had a child.
    let child = fs::read_to_string(fake.folder.join("venv/bin/child")).unwrap();
    let gone = |pid: &str| {
        // One that is dead, and that nobody has waited for yet, is gone too.
        fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
    };
    assert!(gone(child.trim()), "{child}");

    // The others were measured, and what had been measured before one failed stays.
    let has = |method, pattern| report.series(method, 64 << 10, pattern, Wait::Sleep).is_some();
    for pattern in [Pattern::Untouched, Pattern::Read, Pattern::Refilled] {
        for method in [Method::Floor, Method::Pipe, Method::Ferry] {
            assert!(has(method, pattern), "{method:?}, {pattern:?}: {:?}", report.notes);
        }
        assert_eq!(has(Method::MpQueue, pattern), pattern != Pattern::Refilled, "{pattern:?}");
        assert_eq!(has(Method::FerryArray, pattern), pattern == Pattern::Refilled, "{pattern:?}");
    }
    assert!(report.series.iter().all(|series| series.nanos.len() == 7), "{:?}", report.series);
    assert_eq!(report.import_nanos, vec![5e6; 7]);
    let text = report.text();
    for part in
        ["Times pageferry of the same repetition", "torch: none here", "import of the package", "reached"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let lines = json["lines"].as_array().unwrap();
    assert_eq!(lines.len(), report.series.len());
    let queue = lines.iter().find(|line| line["method"] == "mp.Queue").unwrap();
    assert_eq!((&queue["base"], &queue["ratio"]), (&"pageferry".into(), &1.0.into()));
}

/// What the process does that is interrupted.
pub(crate) fn compare_for_ever(folder: &Path) {
    let options = Options { repetitions: 1_000_000, ..options(&[Method::Floor, Method::MpQueue]) };
    let peers = Peers { patience: Duration::from_secs(60), ..Peers::at(folder.to_owned()) };
    match compare(&options, &peers, &mut |_| ()) {
        Err(BenchError::Interrupted) => (),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn a_signal_ends_a_comparison_in_good_order() {
    let fake = Fake::new("signal");
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("compare").arg(&fake.folder).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let word = format!("pageferry-bench-{}-", child.id());
        let until = Instant::now() + Duration::from_secs(60);
        // Both programs are there, and the real one has its receiver.
        while running(&word).len() < 3 {
            assert!(Instant::now() < until, "{:?}", running(&word));
            assert!(child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(10));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let ended = child.wait().unwrap();
        if signal == rustix::process::Signal::INT {
            assert!(ended.success(), "{ended:?}");
            assert_eq!(left(child.id()), Vec::<PathBuf>::new());
        } else {
            assert_eq!(ended.signal(), Some(9));
        }
        while !running(&word).is_empty() {
            assert!(Instant::now() < until, "{:?}", running(&word));
            std::thread::sleep(Duration::from_millis(10));
        }
        // Nobody could take away what had a name when the runner was killed.
        for path in left(child.id()) {
            fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).unwrap();
        }
    }
}

pub(crate) fn without_peers_it_says_what_to_run() {
    let nowhere = std::env::temp_dir().join("there are no peers here");
    let error = compare(&options(&[Method::Floor]), &Peers::at(nowhere.clone()), &mut |_| ()).unwrap_err();
    let text = error.to_string();
    let parts = ["linux/bench/peers/install", nowhere.to_str().unwrap()];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    let fake = Fake::new("no size");
    let none = Options { sizes: Vec::new(), ..options(&[Method::Floor]) };
    assert!(matches!(compare(&none, &fake.peers(), &mut |_| ()), Err(BenchError::Usage(_))));
}
