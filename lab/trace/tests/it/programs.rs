//! Programs that are run and recorded. Where a tool is not installed, its test says so and passes.

use pageferry_trace::capture::{Capture, CaptureError, CaptureReport, record};
use pageferry_trace::{Kind, Reader, Rules};
use pageferry_untested::untested;
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

fn capture(command: &[&str]) -> Capture {
    Capture {
        command: command.iter().map(Into::into).collect(),
        architecture: None,
        environment: Vec::new(),
        rules: Rules::STANDARD,
    }
}

fn is_installed(tool: &str) -> bool {
    let runs = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !runs {
        untested("recording programs", format_args!("{tool} is not installed"));
    }
    runs
}

/// Whether a compiler makes programs: one for another processor may be there without that processor's C library.
fn compiles(compiler: &str) -> bool {
    let dir = tempfile::tempdir().expect("a folder");
    let (source, program) = (dir.path().join("p.c"), dir.path().join("p"));
    std::fs::write(&source, "#include <stdlib.h>\nint main(void) { return abs(0); }\n").expect("written");
    let output = Command::new(compiler).args(["-static", "-o"]).args([&program, &source]).output();
    let compiles = output.is_ok_and(|output| output.status.success());
    if !compiles {
        untested("recording programs", format_args!("{compiler} makes no program"));
    }
    compiles
}

/// A trace in memory.
#[derive(Clone, Default)]
struct MemoryFile(Rc<RefCell<Vec<u8>>>);

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The traces of all threads.
fn recorded(command: &[&str]) -> (CaptureReport, Vec<Vec<u8>>) {
    let mut kept: Vec<MemoryFile> = Vec::new();
    let open = |thread| {
        kept.push(MemoryFile::default());
        assert_eq!(kept.len(), thread, "they are numbered from 1 on");
        Ok(kept[thread - 1].clone())
    };
    let report = record(&capture(command), open, |_| {}).expect("recorded");
    assert_eq!(report.threads.len(), kept.len());
    (report, kept.into_iter().map(|kept| kept.0.take()).collect())
}

/// Compiles a program of the host's.
fn compiled(folder: &Path, source: &str) -> String {
    let (file, program) = (folder.join("p.c"), folder.join("p"));
    std::fs::write(&file, source).expect("written");
    let status = Command::new("cc").args(["-O0", "-pthread", "-o"]).args([&program, &file]).status();
    assert!(status.expect("it runs").success());
    program.to_str().expect("text").to_owned()
}

#[test]
fn a_program_of_the_host_is_recorded_by_valgrind() {
    if !is_installed("valgrind") {
        return;
    }
    let (report, traces) = recorded(&["true"]);
    assert!(report.status.success() && report.children.is_empty() && !report.became_another);
    let mut reader = Reader::new(&traces[0], 1 << 57).expect("sound");
    assert!(reader.header().recorder.starts_with("valgrind-"), "{}", reader.header().recorder);
    assert_eq!(reader.header().command, ["true"]);
    assert_eq!([*reader.totals()], report.threads[..]);
    assert!(report.threads[0].instructions > 10_000 && report.threads[0].calls == 0);
    assert!(reader.all(|record| record.is_ok()));
}

/// Which of `places` a trace stores to.
fn stores_to(trace: &[u8], places: &[u64]) -> Vec<bool> {
    let reader = Reader::new(trace, 1 << 57).expect("sound");
    let stored = reader.map(|record| record.expect("sound")).filter(|record| record.kind == Kind::Store);
    let lines: std::collections::BTreeSet<_> = stored.map(|record| record.address).collect();
    places.iter().map(|place| lines.contains(&(place & !31))).collect()
}

/// Four threads, of which two begin when others have ended; each stores to an array of its own, at a fixed place.
#[test]
fn each_thread_has_a_trace_of_its_own() {
    if !is_installed("valgrind") || !compiles("cc") {
        return;
    }
    let source = r#"
        #include <pthread.h>
        #include <sys/mman.h>
        static void *at(long i) { return (void *)(0x40000000L + i * 0x100000); }
        static void fill(long i) {
            volatile char *to = mmap(at(i), 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            for (int n = 0; n < 65536; n += 8) to[n] = n;
        }
        static void *thread(void *i) { fill((long)i); return 0; }
        int main(void) {
            pthread_t t[4];
            fill(0);
            for (long half = 0; half < 4; half += 2) {
                for (long i = half; i < half + 2; i++) pthread_create(t + i, 0, thread, (void *)(i + 1));
                for (long i = half; i < half + 2; i++) pthread_join(t[i], 0);
            }
            return 0;
        }"#;
    let dir = tempfile::tempdir().expect("a folder");
    let (report, traces) = recorded(&[&compiled(dir.path(), source)]);
    assert!(report.status.success() && report.children.is_empty());
    let places: Vec<u64> = (0..5).map(|i| 0x4000_0000 + i * 0x10_0000 + 0x8000).collect();
    let mut whose: Vec<Vec<bool>> = traces.iter().map(|trace| stores_to(trace, &places)).collect();
    assert_eq!(whose[0], [true, false, false, false, false], "the first thread is the program's own");
    whose.sort();
    let one = |i| (0..5).map(|n| n == 4 - i).collect::<Vec<_>>();
    assert_eq!(whose, (0..5).map(one).collect::<Vec<_>>(), "each thread's are in one trace");
    for (trace, totals) in traces.iter().zip(&report.threads) {
        assert!(totals.stores >= 8192, "{totals:?}");
        assert_eq!(Reader::new(trace, 1 << 57).expect("sound").totals(), totals);
    }
}

#[test]
fn what_is_in_no_trace_is_told() {
    if !is_installed("valgrind") || !compiles("cc") {
        return;
    }
    let source = r#"
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(int count, char **words) {
            if (!strcmp(words[1], "exec")) execl("/bin/true", "true", (char *)0);
            if (!strcmp(words[1], "no-exec")) execl("/bin/no-such-program", "true", (char *)0);
            if (!strcmp(words[1], "fork") && !fork()) {
                volatile char *to = mmap((void *)0x40000000L, 65536, 3, 0x32, -1, 0);
                for (int n = 0; n < 65536; n += 8) to[n] = n;
                _exit(3);
            }
            wait(0);
            return 0;
        }"#;
    let dir = tempfile::tempdir().expect("a folder");
    let program = compiled(dir.path(), source);
    let (report, traces) = recorded(&[&program, "fork"]);
    assert_eq!((report.children.len(), report.became_another, traces.len()), (1, false, 1));
    assert_eq!(
        stores_to(&traces[0], &[0x4000_8000]),
        [false],
        "what the child refers to is not the parent's"
    );
    for (word, became_another) in [("exec", true), ("no-exec", false), ("neither", false)] {
        let (report, traces) = recorded(&[&program, word]);
        assert_eq!(
            (report.became_another, report.children.len(), traces.len()),
            (became_another, 0, 1),
            "{word}"
        );
    }
}

#[test]
fn a_foreign_program_is_recorded_by_qemu_twice_the_same() {
    // The recorder is compiled, too: a plugin of the emulator's.
    if !is_installed("qemu-ppc") || !is_installed("cc") || !compiles("powerpc-linux-gnu-gcc") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (source, program) = (dir.path().join("p.c"), dir.path().join("p"));
    let text = "int data[8192]; int main(void) { for (int i = 0; i < 8192; i++) data[i] = i; return data[77] - 77; }";
    std::fs::write(&source, text).expect("written");
    let compiled = Command::new("powerpc-linux-gnu-gcc")
        .args(["-static", "-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiled.expect("it runs").success());
    let traces: Vec<_> = (0..2)
        .map(|_| {
            let mut bytes = Vec::new();
            let program = program.to_str().expect("text");
            let mut out = Some(&mut bytes);
            let open = |_| Ok(out.take().expect("it has one thread"));
            let recorded = record(&capture(&[program]), open, |_| {}).expect("recorded");
            assert!(recorded.status.success(), "{}", recorded.status);
            bytes
        })
        .collect();
    assert!(traces[0] == traces[1]);
    let mut reader = Reader::new(&traces[0], 0x8000_0000).expect("sound");
    assert_eq!(reader.header().architecture, "ppc");
    assert!(reader.totals().stores >= 8192);
    let (mut last, mut stored) = (0, std::collections::BTreeSet::new());
    while let Some(record) = reader.next() {
        let record = record.expect("sound");
        match record.kind {
            Kind::Call => last = reader.call().number,
            Kind::Store => drop(stored.insert(record.address)),
            Kind::Fetch | Kind::Load => {}
        }
    }
    assert_eq!((last, reader.call().result), (234, None), "exit_group does not return");
    assert!(stored.len() >= 8192 * 4 / 32);
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let fails =
        |command: &[&str]| record(&capture(command), |_| Ok(Vec::new()), |_| {}).expect_err("refused");
    assert!(matches!(fails(&[]), CaptureError::NoCommand));
    assert!(matches!(fails(&["no-such-program"]), CaptureError::NotFound(_)));
    assert!(matches!(fails(&["./no-such-program"]), CaptureError::Io { .. }));
    let said = fails(&[concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")]).to_string();
    assert!(said.contains("README.md: not an ELF program of a known architecture"), "{said}");
}
