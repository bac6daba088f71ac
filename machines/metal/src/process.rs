//! Processes whose programs are in ring 3: how they begin, how they are run, and how they end.
//!
//! To the kernel a process is a closure. That of such a process is a loop: it lets the program run until it stops, does
//! what that was for, and lets it run again. A program that does what it may not is told in a line, and its process
//! ends; no other notices.
//!
//! The first process puts the programs on a volume on a memory disk, begins the one that is asked for, and waits until
//! all are gone. That is a closure of the usual kind.
//!
//! # What can fail
//! The first process, for want of memory, and the program that was asked for, if it cannot begin: the machine ends with
//! a line. Any other program that cannot begin, and any that is ended: a line, and its process is gone.

use crate::archive::{Program, programs};
use crate::calls::{self, MAX_LINE_BYTES, Next, Process};
use crate::counted::{Aside, Booted};
use crate::interrupt;
use crate::ring3::{self, Exit, Registers};
use crate::runtime::{fail, print};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, Fd, OpenFlags, Pid};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::VolumeFormat;
use pageferry_verify::counts::{IMAGE, STACK};
use pageferry_vm::{Inherit, MapAddr};

/// Bytes of a stack; what lies below is not mapped.
const STACK_BYTES: usize = 64 << 10;

/// Whether the program that was asked for has failed.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// True if the program that was asked for has not ended well.
pub(crate) fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// What becomes of a process that has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It is the one that was asked for.
    First,
    /// It is a child.
    Child,
}

/// The program of the first process: runs `name` with this line, and what that begins.
pub(crate) fn first(name: String, line: String) -> pageferry_kernel::Program<Booted> {
    Box::new(move |user| {
        let failed = |what: &str, why: Errno| -> ! { fail(format_args!("{what}: {why}")) };
        let bytes =
            programs().iter().map(|program| program.image.len().next_multiple_of(PAGE_SIZE)).sum::<usize>();
        // As much again for the volume's own tables.
        let disk_bytes = (2 * bytes + (1 << 20)) as u64;
        user.attach_memory_disk(disk_bytes).unwrap_or_else(|e| failed("the memory disk of the programs", e));
        user.make_volume(VolumeFormat::of_blocks(4096))
            .unwrap_or_else(|e| failed("the volume of the programs", e));
        for program in programs() {
            install(user, program).unwrap_or_else(|e| failed(program.name, e));
        }
        if let Err(why) = begin(user, &name, line, Role::First) {
            failed(&name, why);
        }
        // Until none is left; those that lose their parent are nobody's.
        while user.wait().is_ok() {}
        let _ = user.unmount();
        let _ = user.detach_memory_disk();
    })
}

/// Where a program lies.
fn path(name: &str) -> String {
    format!("/mnt/{name}")
}

/// Writes a program's image to the volume.
fn install(user: &Process, program: &Program) -> Result<(), Errno> {
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let file = user.open(&path(program.name), flags)?;
    let len_bytes = program.image.len().next_multiple_of(PAGE_SIZE).max(PAGE_SIZE);
    let memory = user.map(len_bytes, Prot::RW, Inherit::None)?;
    user.store(memory, program.image);
    let mut done = 0;
    while done < program.image.len() {
        done += user.write(file, memory + done, program.image.len() - done)?;
    }
    user.unmap(memory, len_bytes)?;
    user.close(file)
}

/// Begins a child that runs a program.
fn begin(user: &Process, name: &str, line: String, role: Role) -> Result<Pid, Errno> {
    let program = programs().iter().find(|program| program.name == name).ok_or(Errno::NoFile)?;
    let name = program.name;
    user.fork(
        name,
        Box::new(move |user| match exec(user, name, &line) {
            Ok(registers) => run(user, registers, name, role),
            Err(why) if role == Role::First => fail(format_args!("{name}: {why}")),
            Err(why) => print(format_args!("pageferry: {name}: {why}\n")),
        }),
    )
}

/// Lets the image of a program take the place of what the process has in memory, with a stack that begins with a line.
fn exec(user: &Process, name: &str, line: &str) -> Result<Registers, Errno> {
    let file: Fd = user.open(&path(name), OpenFlags::READ)?;
    let entry = user.exec(file)?;
    user.close(file)?;
    let layout = pageferry_hal::isa::x86::AMD64_LAYOUT;
    if !layout.is_user(entry, 1) {
        return Err(Errno::NotExecutable);
    }
    let stack = Va(STACK.end.0 - STACK_BYTES as u64);
    user.map_at(MapAddr::Free(stack), STACK_BYTES, Prot::RW, Inherit::Copy)?;
    let line = &line.as_bytes()[..line.len().min(MAX_LINE_BYTES)];
    let at = Va(STACK.end.0 - MAX_LINE_BYTES as u64);
    user.store(at, line);
    // As a call leaves it: the return address, which there is none, makes it odd.
    Ok(Registers::new(entry, Va(at.0 - 8), [at.0, line.len() as u64]))
}

/// Begins a child that goes on where its parent makes a call, which answers 0 there.
fn fork(user: &Process, name: &str, registers: &Registers) -> Result<Pid, Errno> {
    let (mut theirs, name) = (Box::new(registers.clone()), name.to_string());
    [theirs.rax, theirs.rdx] = [0, 0];
    user.fork(&name.clone(), Box::new(move |user| run(user, *theirs, &name, Role::Child)))
}

/// What ends a process.
enum End {
    /// It has said so.
    Exit(u64),
    /// Another process has.
    Killed,
    /// An access that it may not make.
    Fault(pageferry_hal::Trap),
    /// An instruction that it may not execute.
    Exception(u64, u64),
}

/// Runs a program until its process ends.
fn run(user: &Process, registers: Registers, name: &str, role: Role) {
    let mut registers = Box::new(registers);
    let end = run_until_end(user, &mut registers);
    let (pid, rip) = (user.pid().0, registers.rip);
    // What only programs in ring 3 have goes first, and apart: the rest of the end is that of any process. Of one that
    // was killed all goes at once.
    let aside = Aside::begin();
    for own in [IMAGE, STACK] {
        let _ = user.unmap(own.start, (own.end.0 - own.start.0) as usize);
    }
    drop(aside);
    match end {
        End::Exit(status) => return ended(role, status == 0),
        End::Killed => print(format_args!("pageferry: process {pid} ({name}) is killed\n")),
        End::Fault(trap) => print(format_args!(
            "pageferry: process {pid} ({name}) dies at {rip:#x}: {:?} of {:#x}: {:?}\n",
            trap.access, trap.va.0, trap.kind
        )),
        End::Exception(vector, code) => print(format_args!(
            "pageferry: process {pid} ({name}) dies at {rip:#x}: exception {vector} ({}), code {code:#x}\n",
            interrupt::name(vector)
        )),
    }
    ended(role, false);
}

fn run_until_end(user: &Process, registers: &mut Registers) -> End {
    loop {
        if user.is_killed() {
            return End::Killed;
        }
        match ring3::run(registers) {
            Exit::Call => {
                let begun = match calls::make(user, registers) {
                    Next::GoOn => continue,
                    Next::Exit(status) => return End::Exit(status),
                    Next::Fork(name) => fork(user, &name, registers),
                    Next::Spawn(name, line) => begin(user, &name, line, Role::Child),
                };
                calls::put(registers, begun.map(|pid| [pid.0.into(), 0]));
            }
            Exit::Interrupt => user.interruption(),
            Exit::Fault(fault) => {
                let was_killed = user.is_killed();
                let aside = Aside::fault(fault.trap.va);
                user.take_fault(fault);
                drop(aside);
                if user.is_killed() && !was_killed {
                    return End::Fault(fault.trap);
                }
            }
            Exit::Exception(vector, code) => return End::Exception(vector, code),
        }
    }
}

/// Notes how a process has ended.
fn ended(role: Role, well: bool) {
    if role == Role::First && !well {
        HAS_FAILED.store(true, Ordering::Relaxed);
    }
}
