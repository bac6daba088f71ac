//! Boots of all kinds of machine, and of machines and loaders that will not do; programs in ring 3, and such as do what
//! they may not: each ends with the code and the line that it should.

use super::image::{Image, Programs};
use super::qemu::{Machine, Qemu};
use super::stick;
use std::fs;
use std::path::{Path, PathBuf};

/// A run, and what it is to say and to end with.
struct Case {
    qemu: Qemu,
    /// Parts of what it says, in their order.
    says: Vec<String>,
    code: u8,
}

impl Case {
    /// Whether the machine ends before there are processes: by a line, and no more.
    fn says_one_line(&self) -> bool {
        self.code != 0 && self.says.iter().all(|part| part != WELL_GONE)
    }
}

/// The kernel's last word.
const WELL_GONE: &str = "all processes are gone; Ok(())\n";

/// The program's last word but one, and the kernel's last.
fn well() -> Vec<String> {
    let lines = ["carry: 1048576 bytes right, 0 wrong; 0 processes failed\n", WELL_GONE];
    lines.map(String::from).into()
}

/// Machines that boot.
fn boots() -> Vec<Case> {
    let mut cases = Vec::new();
    for machine in [Machine::Microvm, Machine::Q35] {
        for cpus in [1, 2, 4] {
            cases.push(Case { qemu: Qemu::new(machine, cpus), says: well(), code: 0 });
        }
    }
    let more = [
        Qemu::new(Machine::Pc, 2).with_line("scheme=original"),
        Qemu::new(Machine::Q35, 2).with_line("scheme=cache").with(&["-cpu", "max"]),
        // Fewer than there are; and one, where no table says that there are two.
        Qemu::new(Machine::Q35, 4).with_line("cpus=2 frames=65536"),
        Qemu::new(Machine::Q35, 2).with(&["-no-acpi"]),
        // Places for processors that are not there.
        Qemu::new(Machine::Q35, 2).with(&["-smp", "2,maxcpus=4"]),
        // As many frames as there are, and a line as long as it may be.
        Qemu::new(Machine::Microvm, 1).with_line("frames=131072"),
        Qemu::new(Machine::Microvm, 1).with_line(&line_of(512)),
    ];
    cases.extend(more.map(|qemu| Case { qemu, says: well(), code: 0 }));
    cases
}

/// A line of so many bytes.
fn line_of(bytes: usize) -> String {
    let word = "cpus=1";
    format!("{word:<width$}{word}", width = bytes - word.len())
}

/// Machines that do not, and loaders that ask for what there is not: one line each, and code 1.
fn refusals() -> Vec<Case> {
    let machine = || Qemu::new(Machine::Microvm, 1);
    let small = |mb| machine().with_memory(mb);
    let guarded = || machine().with(&["-cpu", "max"]);
    let cases: [(Qemu, &[&str]); 22] = [
        (small(8), &["too little memory: 8 MB"]),
        (small(24), &["too little memory: 24 MB"]),
        (machine().with_line("frames=1000"), &["too little memory"]),
        (machine().with_line("frames=1000000"), &["1000000 frames are asked for, and there are 131072"]),
        (machine().with_line("frames=131073"), &["131073 frames are asked for, and there are 131072"]),
        (machine().with_line(&line_of(513)), &["the command line is longer than 512 bytes"]),
        (machine().with_line("cpus=0"), &["`cpus=0`: expected 1 to 64 CPUs"]),
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
        // With the processor's own help against the kernel's slips (SMAP, SMEP), and without it.
        (guarded().with_line("provoke=read-user"), &["exception 14 (page fault) on cpu0"]),
        (guarded().with_line("provoke=run-user"), &["exception 14 (page fault) on cpu0"]),
        (
            machine().with_line("provoke=read-user"),
            &["nothing refuses to the kernel what is a program's: Ok(())"],
        ),
        (
            machine().with_line("provoke=run-user"),
            &["nothing refuses to the kernel what is a program's: Ok(())"],
        ),
    ];
    let says = |parts: &[&str]| parts.iter().map(|&part| part.to_owned()).collect();
    cases.into_iter().map(|(qemu, parts)| Case { qemu, says: says(parts), code: 1 }).collect()
}

/// Programs that do what they may not, and of what they die: a line, and no other process notices.
const BAD: [(&str, &str); 14] = [
    ("read-kernel", "Read of 0xffffff0000100000: Protection"),
    ("write-text", "Write of 0x400"),
    ("null", "Write of 0x8: NotPresent"),
    ("cli", "exception 13 (general protection)"),
    ("port", "exception 13 (general protection)"),
    ("msr", "exception 13 (general protection)"),
    ("undefined", "exception 6 (undefined instruction)"),
    ("divide", "exception 0 (divide error)"),
    ("int", "exception 13 (general protection)"),
    ("jump-kernel", "Fetch of 0xfffffffe00100000: Protection"),
    ("jump-nowhere", "exception 13 (general protection)"),
    ("jump-data", "Fetch of 0x7fffff0f"),
    ("stack", "Write of 0x7fffff0efff8: NotPresent"),
    ("flags", "exception 1 (debug)"),
];

/// One shell, on machines of all kinds, in which all of that happens beside an endless loop; and the end of that.
fn shells(programs: &Path) -> Vec<Case> {
    let mut lines = vec!["ls".to_owned(), "run bad loop &".to_owned()];
    let mut says = vec!["> ls\nshell\nmicro\nbad\nsound\n".to_owned()];
    for (what, dies) in BAD {
        lines.push(format!("run bad {what}"));
        says.extend(["(bad) dies at 0x".into(), format!(": {dies}")]);
    }
    let last = [
        ("run bad killed-loop", "its parent runs beside it\n"),
        ("run bad calls", "all refused\n"),
        ("run bad limits", "512 bytes of words\na child begins with 0x0\nlimits are kept\n"),
        ("ps", "3 2 runs bad\n"),
        ("vmstat", "page_invalidations"),
        ("kill 3", "process 3 (bad) is killed\n"),
        // Meanwhile it is gone.
        ("run bad null", "Write of 0x8"),
        ("kill 3", "kill: no such process (ESRCH)\n"),
        ("run sound", "sound: all is well\n"),
        ("run nothing", "micro: "),
        ("fly", "fly: expected one of the commands that help shows\n"),
        ("exit", WELL_GONE),
    ];
    for (line, answer) in last {
        lines.push(line.into());
        says.push(answer.into());
    }
    let typed: Vec<&str> = lines.iter().map(String::as_str).collect();
    // Without the processor's own help against the kernel's slips (SMEP, SMAP), and with it.
    let machines = [
        (Qemu::new(Machine::Microvm, 1), "max"),
        (Qemu::new(Machine::Q35, 2).with_line("scheme=cache"), "max"),
        (Qemu::new(Machine::Q35, 4).with_line("scheme=original"), "qemu64"),
    ];
    let case = |(qemu, cpu): (Qemu, &str)| {
        let qemu = qemu.with_programs(programs, "shell").with(&["-cpu", cpu]).with_typed(&typed);
        Case { qemu, says: says.clone(), code: 0 }
    };
    machines.into_iter().map(case).collect()
}

/// Archives that are none, or whose programs are none: one line each, and code 1.
fn bad_archives(programs: &Path) -> Result<Vec<Case>, String> {
    let whole = fs::read(programs).map_err(|e| format!("{}: {e}", programs.display()))?;
    let write = |name: &str, bytes: &[u8]| -> Result<PathBuf, String> {
        let path = programs.with_file_name(name);
        fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    };
    // The first program's image begins behind its head in the archive.
    const IMAGE: usize = 512;
    const FIRST_SEGMENT: usize = IMAGE + 64;
    let patched = |at: usize, bytes: &[u8]| {
        let mut archive = whole.clone();
        archive[at..at + bytes.len()].copy_from_slice(bytes);
        archive
    };
    let (kernels, far) = (0xffff_fffe_0010_0000_u64.to_le_bytes(), (1_u64 << 40).to_le_bytes());
    let not_executable = "shell: exec format error (ENOEXEC)\n";
    let archives = [
        ("none.tar", vec![7; 4096], "the module is no archive of programs, or a part of one"),
        (
            "cut.tar",
            whole[..whole.len() / 2].to_vec(),
            "the module is no archive of programs, or a part of one",
        ),
        ("odd.tar", whole[..1000].to_vec(), "the module is no archive of programs, or a part of one"),
        ("empty.tar", vec![0; 10240], "the archive has no programs"),
        ("damaged.tar", patched(10, &[1]), "the module is no archive of programs, or a part of one"),
        ("longest.tar", vec![0; 8 << 20], "the archive has no programs"),
        ("long.tar", vec![0; (8 << 20) + 1], "the archive has 8388609 bytes: expected 8388608 at most"),
        ("no-elf.tar", patched(IMAGE, b"none"), not_executable),
        // Where the first segment is to be; where it begins in the file; where the program begins.
        ("overlaps.tar", patched(FIRST_SEGMENT + 16, &kernels), not_executable),
        ("short.tar", patched(FIRST_SEGMENT + 8, &far), not_executable),
        ("entry.tar", patched(IMAGE + 24, &kernels), not_executable),
    ];
    let mut cases = Vec::new();
    for (name, bytes, says) in archives {
        let qemu = Qemu::new(Machine::Microvm, 1).with_programs(&write(name, &bytes)?, "shell");
        cases.push(Case { qemu, says: vec![says.into()], code: 1 });
    }
    let others = [
        (Qemu::new(Machine::Microvm, 1).with_programs(programs, "shel"), "shel: no such file (ENOENT)\n"),
        (
            Qemu::new(Machine::Microvm, 1).with_line("program=shell"),
            "program=shell is asked for: expected an archive",
        ),
    ];
    cases.extend(others.map(|(qemu, says)| Case { qemu, says: vec![says.into()], code: 1 }));
    // The program that was asked for begins, and fails: so does the machine, when it has said so.
    for (program, says) in [("bad,null", "(bad) dies at 0x"), ("bad,nothing", "bad: expected read-kernel")] {
        let qemu = Qemu::new(Machine::Microvm, 1).with_programs(programs, program);
        cases.push(Case { qemu, says: vec![says.into(), WELL_GONE.into()], code: 1 });
    }
    Ok(cases)
}

/// A PC that boots from a USB stick; none where there is nothing to make one with.
fn stick(image: &Image) -> Result<Option<Case>, String> {
    if !stick::can_write() {
        println!("no PC has booted from a USB stick: there is no grub-mkrescue");
        return Ok(None);
    }
    let to = image.path.with_file_name("stick.img");
    let line = "scheme=cache";
    stick::write(image, line, &to)?;
    let qemu = Qemu::new(Machine::Q35, 2).with_line(line).with_stick(&to);
    Ok(Some(Case { qemu, says: well(), code: 0 }))
}

/// Makes all these runs.
pub(super) fn all(image: &Image, programs: &Programs) -> Result<(), String> {
    let mut cases: Vec<Case> = boots().into_iter().chain(refusals()).collect();
    cases.extend(shells(&programs.path));
    cases.extend(bad_archives(&programs.path)?);
    cases.extend(stick(image)?);
    let mut wrong = 0;
    for case in &cases {
        let told = match case.qemu.run(image) {
            Ok(end) if end.code != case.code => {
                format!("code {} in the place of {}\n{}", end.code, case.code, end.said)
            }
            Ok(end) if !in_order(&end.said, &case.says) => {
                format!("expected {:?}, and it said\n{}", case.says, end.said)
            }
            Ok(end) if case.says_one_line() && end.said.trim_end().lines().count() != 1 => {
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
fn in_order(text: &str, parts: &[String]) -> bool {
    let rest = parts.iter().try_fold(text, |rest, part| rest.split_once(part.as_str()).map(|(_, rest)| rest));
    rest.is_some()
}
