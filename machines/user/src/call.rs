//! System calls: the instruction, and a function for each that is no part of [`Os`](pageferry_workloads::Os).

use alloc::string::String;
use alloc::vec;
use core::arch::asm;
use pageferry_abi::call::{Call, Report, Word as _, decode};
use pageferry_abi::{Errno, Pid};

/// Makes a system call; see [`Call`] for its arguments and its answer.
///
/// # Errors
/// The call's.
pub fn call(call: Call, [a, b, c, d, e]: [u64; 5]) -> Result<[u64; 2], Errno> {
    let (first, second);
    // SAFETY: the kernel keeps all registers but those named here, and uses memory of the process only as the call
    // says: at the addresses that it is given, which are the caller's business, and at those that it maps.
    unsafe {
        asm!("syscall", inlateout("rax") call as u64 => first, in("rdi") a, in("rsi") b,
            inlateout("rdx") c => second, in("r10") d, in("r8") e, out("rcx") _, out("r11") _, options(nostack));
    }
    decode([first, second])
}

/// As [`call`], where the second answer means nothing.
///
/// # Errors
/// The call's.
pub fn call_for_one(which: Call, arguments: [u64; 5]) -> Result<u64, Errno> {
    call(which, arguments).map(|[first, _]| first)
}

/// Ends the process; anything but 0 is a failure.
pub fn exit(status: u64) -> ! {
    let _ = call(Call::Exit, [status, 0, 0, 0, 0]);
    unreachable!("a process that has ended goes on")
}

/// Begins a child that runs a program of the archive, with a line of words.
///
/// # Errors
/// [`Errno::NoFile`], [`Errno::NoMemory`], [`Errno::Invalid`] for a name or a line that is too long.
pub fn spawn(program: &str, line: &str) -> Result<Pid, Errno> {
    let (name, line) =
        ((program.as_ptr() as u64, program.len() as u64), (line.as_ptr() as u64, line.len() as u64));
    call_for_one(Call::Spawn, [name.0, name.1, line.0, line.1, 0]).map(|pid| Pid(pid as u32))
}

/// Begins a child that goes on here; its number, and nothing in the child.
///
/// # Errors
/// [`Errno::NoMemory`].
pub fn fork(name: &str) -> Result<Option<Pid>, Errno> {
    let pid = call_for_one(Call::Fork, [name.as_ptr() as u64, name.len() as u64, 0, 0, 0])?;
    Ok((pid != 0).then_some(Pid(pid as u32)))
}

/// Waits until a child has ended.
///
/// # Errors
/// [`Errno::NoChild`], [`Errno::Interrupted`].
pub fn wait() -> Result<Pid, Errno> {
    call_for_one(Call::Wait, [0; 5]).map(|pid| Pid(pid as u32))
}

/// Kills a process.
///
/// # Errors
/// [`Errno::NoProcess`].
pub fn kill(pid: Pid) -> Result<(), Errno> {
    call(Call::Kill, [pid.0.into(), 0, 0, 0, 0]).map(drop)
}

/// Sleeps.
///
/// # Errors
/// [`Errno::Interrupted`].
pub fn sleep(ms: u64) -> Result<(), Errno> {
    call(Call::Sleep, [ms, 0, 0, 0, 0]).map(drop)
}

/// Waits for input of the console; how much came.
///
/// # Errors
/// [`Errno::Interrupted`].
pub fn input(buffer: &mut [u8]) -> Result<usize, Errno> {
    let len = call_for_one(Call::Input, [buffer.as_mut_ptr() as u64, buffer.len() as u64, 0, 0, 0])?;
    Ok(len as usize)
}

/// Text about the machine.
///
/// # Errors
/// [`Errno::Invalid`]: it is longer than 32 KB.
pub fn report(which: Report) -> Result<String, Errno> {
    let mut text = vec![0; 32 << 10];
    let len = call_for_one(Call::Report, [which.word(), text.as_mut_ptr() as u64, text.len() as u64, 0, 0])?;
    text.truncate(len as usize);
    String::from_utf8(text).map_err(|_| Errno::Invalid)
}

/// What is counted begins here, or ends here.
pub fn mark(ends: bool) {
    // Cannot fail.
    let _ = call(Call::Mark, [ends.into(), 0, 0, 0, 0]);
}
