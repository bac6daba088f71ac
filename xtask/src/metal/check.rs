//! Boots of all kinds of machine, and of machines and loaders that will not do: each ends with the code and the line
//! that it should.

use super::image::Image;
use super::qemu::{Machine, Qemu};

/// A run, and what it is to say and to end with.
struct Case {
    qemu: Qemu,
    /// Parts of what it says, in their order.
    says: &'static [&'static str],
    code: u8,
}

/// The program's last word but one, and the kernel's last.
const WELL: &[&str] =
    &["carry: 1048576 bytes right, 0 wrong; 0 processes failed\n", "all processes are gone; Ok(())\n"];

/// Machines that boot.
fn boots() -> Vec<Case> {
    let mut cases = Vec::new();
    for machine in [Machine::Microvm, Machine::Q35] {
        for cpus in [1, 2, 4] {
            cases.push(Case { qemu: Qemu::new(machine, cpus), says: WELL, code: 0 });
        }
    }
    let more = [
        Qemu::new(Machine::Pc, 2).with_line("scheme=original"),
        Qemu::new(Machine::Q35, 2).with_line("scheme=cache").with(&["-cpu", "max"]),
        // Fewer than there are; and one, where no table says that there are two.
        Qemu::new(Machine::Q35, 4).with_line("cpus=2 frames=65536"),
        Qemu::new(Machine::Q35, 2).with(&["-no-acpi"]),
    ];
    cases.extend(more.map(|qemu| Case { qemu, says: WELL, code: 0 }));
    cases
}

/// Machines that do not, and loaders that ask for what there is not: one line each, and code 1.
fn refusals() -> Vec<Case> {
    let machine = || Qemu::new(Machine::Microvm, 1);
    let small = |mb| machine().with_memory(mb);
    let cases: [(Qemu, &[&str]); 15] = [
        (small(8), &["too little memory: 8 MB"]),
        (small(24), &["too little memory: 24 MB"]),
        (machine().with_line("frames=1000"), &["too little memory"]),
        (machine().with_line("frames=1000000"), &["1000000 frames are asked for, and there are 131072"]),
        (machine().with_line("cpus=2"), &["2 CPUs are asked for, and there are 1"]),
        (machine().with_line("cpus=99"), &["`cpus=99`: expected 1 to 64 CPUs"]),
        (machine().with_line("scheme=none"), &["`scheme=none`: expected scheme=direct, cache or original"]),
        (machine().with_line("colour=red"), &["`colour=red`: expected "]),
        (machine().with(&["-cpu", "qemu64,-apic"]), &["this processor has no APIC"]),
        (machine().with(&["-cpu", "qemu64,-clflush"]), &["this processor has no clflush"]),
        (machine().with(&["-cpu", "qemu32"]), &["this processor has no 64-bit mode"]),
        (
            machine().with_line("provoke=undefined"),
            &["exception 6 (undefined instruction) on cpu0: ", "rip 0x"],
        ),
        (
            machine().with_line("provoke=guard"),
            &["exception 14 (page fault) on cpu0", "a kernel stack is used up"],
        ),
        (machine().with_line("provoke=double"), &["exception 8 (double fault) on cpu0", "rsp 0x", "cr2 0x"]),
        (machine().with_line("provoke=panic"), &["panic at src/provoke.rs:", "on purpose"]),
    ];
    cases.into_iter().map(|(qemu, says)| Case { qemu, says, code: 1 }).collect()
}

/// Makes all these runs.
pub(super) fn all(image: &Image) -> Result<(), String> {
    let cases: Vec<Case> = boots().into_iter().chain(refusals()).collect();
    let mut wrong = 0;
    for case in &cases {
        let told = match case.qemu.run(image) {
            Ok(end) if end.code != case.code => {
                format!("code {} in the place of {}\n{}", end.code, case.code, end.said)
            }
            Ok(end) if !in_order(&end.said, case.says) => {
                format!("expected {:?}, and it said\n{}", case.says, end.said)
            }
            Ok(end) if case.code != 0 && end.said.trim_end().lines().count() != 1 => {
                format!("expected one line\n{}", end.said)
            }
            Ok(_) => continue,
            Err(why) => why,
        };
        eprintln!("{}: {told}", case.qemu);
        wrong += 1;
    }
    println!("{} runs of the image, {wrong} of them wrong", cases.len());
    if wrong == 0 { Ok(()) } else { Err("the image does not do what it should".into()) }
}

/// Whether a text has these parts, one behind the other.
fn in_order(text: &str, parts: &[&str]) -> bool {
    let rest = parts.iter().try_fold(text, |rest, part| rest.split_once(part).map(|(_, rest)| rest));
    rest.is_some()
}
