//! What a program may rely on: registers that are its own, calls up to their limits, and as many children as it likes,
//! one after the other.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use alloc::vec;
use core::arch::asm;
use core::fmt::Debug;
use pageferry_abi::Errno;
use pageferry_abi::call::{Call, Report, Word as _};
use pageferry_user::{call, call_for_one, exit, fork, main, report, say, spawn, wait};

main!(run);

fn run(line: &str) -> u64 {
    if line.starts_with("xx") {
        say!("sound: a line of {} bytes\n", line.len());
        return 0;
    }
    let wrong: u64 =
        [fresh_controls, registers, texts, reports, pointers, children].iter().map(|part| part()).sum();
    if wrong == 0 {
        say!("sound: all is well\n");
    }
    wrong
}

/// How many of these are not what they should be: none or one.
fn differs<T: Debug + PartialEq>(what: &str, found: T, expected: T) -> u64 {
    if found == expected {
        return 0;
    }
    say!("sound: {what}: {found:x?} in the place of {expected:x?}\n");
    1
}

/// Control words of x87 and of SSE.
fn controls() -> (u16, u32) {
    let (mut x87, mut sse) = (0_u16, 0_u32);
    // SAFETY: stores the two words, and no more.
    unsafe {
        asm!("fnstcw [{}]", "stmxcsr [{}]", in(reg) &raw mut x87, in(reg) &raw mut sse, options(nostack));
    }
    (x87, sse)
}

/// As a program of System V's ABI finds them: no exceptions, full precision, to the nearest.
fn fresh_controls() -> u64 {
    let (x87, sse) = controls();
    // The lowest six bits of SSE's are what has happened since.
    differs("controls", (x87, sse & !0x3f), (0x037f, 0x1f80))
}

/// Whether floating-point registers and controls are as they were, after a system call and after whatever came in a
/// long loop: `seed` says what is in them.
fn keeps_registers(seed: u64) -> u64 {
    let mut wrong = 0;
    for round in 0..40 {
        let (pattern, mut found) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round, [0_u64; 3]);
        // Another way to round for each process.
        let controls_now = 0x1f80 | (seed as u32 & 3) << 13;
        let (before, mut sse) = (0x1f80_u32, 0_u32);
        // SAFETY: changes registers that are named, and puts the controls back.
        unsafe {
            asm!(
                "ldmxcsr [{set}]",
                "movq xmm0, {pattern}",
                "movq xmm7, {pattern}",
                "movq xmm15, {pattern}",
                "2:",
                "dec {turns}",
                "jnz 2b",
                "syscall",
                "movq [{found}], xmm0",
                "movq [{found} + 8], xmm7",
                "movq [{found} + 16], xmm15",
                "stmxcsr [{sse}]",
                "ldmxcsr [{before}]",
                set = in(reg) &raw const controls_now,
                before = in(reg) &raw const before,
                sse = in(reg) &raw mut sse,
                pattern = in(reg) pattern,
                found = in(reg) &raw mut found,
                turns = inout(reg) 100_000_u64 => _,
                inlateout("rax") Call::Yield as u64 => _,
                out("rcx") _, out("r11") _, lateout("rdx") _,
                out("xmm0") _, out("xmm7") _, out("xmm15") _,
                options(nostack),
            );
        }
        wrong += differs("registers", found, [pattern; 3]);
        wrong += differs("controls of SSE", sse & !0x3f, controls_now);
    }
    wrong
}

/// Two processes that share a CPU, perhaps, each with other registers.
fn registers() -> u64 {
    match fork("other") {
        Ok(None) => exit(keeps_registers(2)),
        Ok(Some(child)) => keeps_registers(1) + differs("the other", wait(), Ok(child)),
        Err(why) => differs("fork", Err(why), Ok(())),
    }
}

/// Texts, names and lines, as long as they may be, and a byte longer.
fn texts() -> u64 {
    let text = |len: usize| [&vec![b'.'; len - 1][..], b"\n"].concat();
    let print = |len: usize| call_for_one(Call::Print, [text(len).as_ptr() as u64, len as u64, 0, 0, 0]);
    let long = |len: usize| String::from_utf8(vec![b'x'; len]).unwrap_or_default();
    let child = spawn("sound", &long(512));
    differs("a text", print(1024), Ok(1024))
        + differs("a text that is too long", print(1025), Err(Errno::Invalid))
        + differs("a name", spawn(&long(64), ""), Err(Errno::NoFile))
        + differs("a name that is too long", spawn(&long(65), ""), Err(Errno::Invalid))
        + differs("a line", child.and_then(|_| wait()), child)
        + differs("a line that is too long", spawn("sound", &long(513)), Err(Errno::Invalid))
}

/// A report is as long as there is room for it, to the byte, and in one piece.
fn reports() -> u64 {
    let whole = report(Report::Programs).unwrap_or_default();
    let mut wrong = 0;
    for room in [0, 1, 7, whole.len(), whole.len() + 1] {
        let mut buffer = vec![0xaa_u8; whole.len() + 64];
        let arguments = [Report::Programs.word(), buffer.as_mut_ptr() as u64, room as u64, 0, 0];
        let len = room.min(whole.len());
        wrong += differs("a report", call_for_one(Call::Report, arguments), Ok(len as u64));
        wrong += differs("what a report says", &buffer[..len], &whole.as_bytes()[..len]);
        wrong += u64::from(buffer[len..].iter().any(|byte| *byte != 0xaa));
    }
    let counters = report(Report::Counters).unwrap_or_default();
    let is_one = |line: &str| {
        line.split_once(' ').is_some_and(|(name, value)| !name.is_empty() && value.parse::<u64>().is_ok())
    };
    wrong += differs("a long report", counters.len() > 2048 && counters.ends_with('\n'), true);
    wrong + counters.lines().map(|line| differs(line, is_one(line), true)).sum::<u64>()
}

/// Bytes go to and come from addresses of the program only.
fn pointers() -> u64 {
    const KERNELS: u64 = 0xffff_ff00_0010_0000;
    let mut eight = [7_u8; 8];
    let Ok([from, to]) = call(Call::Pipe, [0; 5]) else { return 1 };
    let pass = |which, fd, at: u64| call_for_one(which, [fd, at, 8, 0, 0]);
    differs("from the kernel's", pass(Call::Write, to, KERNELS), Err(Errno::Fault))
        + differs("from the program's", pass(Call::Write, to, eight.as_ptr() as u64), Ok(8))
        + differs("to the kernel's", pass(Call::Read, from, KERNELS), Err(Errno::Fault))
        + differs("to the program's", pass(Call::Read, from, eight.as_mut_ptr() as u64), Ok(8))
        + differs("what came", eight, [7; 8])
}

/// More children than there is memory for at a time.
fn children() -> u64 {
    for _ in 0..1000 {
        match fork("short") {
            Ok(None) => exit(0),
            Ok(Some(child)) if wait() == Ok(child) => {}
            other => return differs("a child", other.map(drop), Ok(())) | 1,
        }
    }
    0
}
