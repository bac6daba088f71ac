//! Programs that are run and recorded. Where a tool is not installed, its test says so and passes.

use pageferry_trace::capture::{Capture, CaptureError, record};
use pageferry_trace::{Kind, Reader, Rules};
use std::process::Command;

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
        eprintln!("{tool} is not installed: nothing is tested");
    }
    runs
}

#[test]
fn a_program_of_the_host_is_recorded_by_valgrind() {
    if !is_installed("valgrind") {
        return;
    }
    let mut bytes = Vec::new();
    let recorded = record(&capture(&["true"]), &mut bytes, |_| {}).expect("recorded");
    assert!(recorded.status.success());
    let mut reader = Reader::new(&bytes, 1 << 57).expect("sound");
    assert!(reader.header().recorder.starts_with("valgrind-"), "{}", reader.header().recorder);
    assert_eq!(reader.header().command, ["true"]);
    assert_eq!(*reader.totals(), recorded.totals);
    assert!(recorded.totals.instructions > 10_000 && recorded.totals.calls == 0);
    assert!(reader.all(|record| record.is_ok()));
}

#[test]
fn a_foreign_program_is_recorded_by_qemu_twice_the_same() {
    if !is_installed("qemu-ppc") || !is_installed("powerpc-linux-gnu-gcc") || !is_installed("cc") {
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
            let recorded = record(&capture(&[program]), &mut bytes, |_| {}).expect("recorded");
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
    let fails = |command: &[&str]| record(&capture(command), Vec::new(), |_| {}).expect_err("refused");
    assert!(matches!(fails(&[]), CaptureError::NoCommand));
    assert!(matches!(fails(&["no-such-program"]), CaptureError::NotFound(_)));
    assert!(matches!(fails(&["./no-such-program"]), CaptureError::Io { .. }));
    let said = fails(&[concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")]).to_string();
    assert!(said.contains("README.md: not an ELF program of a known architecture"), "{said}");
}
