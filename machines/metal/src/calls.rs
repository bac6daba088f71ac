//! System calls of programs in ring 3: a number and its arguments become a call of [`User`](pageferry_kernel::User).
//!
//! An argument that makes no sense, and a number that is no call's, is the program's fault: an error, and nothing
//! happens. Addresses are looked at where memory is used, in the kernel's copy routines.

use crate::counted::{Booted, COUNTS};
use crate::ring3::Registers;
use crate::runtime::{self, print};
use crate::{archive, cpu};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write as _;
use pageferry_abi::call::{Call, Report, Word, encode};
use pageferry_abi::{Errno, ExportId, ExportTo, Fd, InvalidateKind, PassMode, Pid, ReceiveMode, SendMode};
use pageferry_costs::{Arrived, Carrier};
use pageferry_hal::{CpuId, Cycles, Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::User;
use pageferry_vm::Inherit;

/// A process, as its loop sees it.
pub(crate) type Process = User<Booted>;

/// The longest line that a program is given.
pub(crate) const MAX_LINE_BYTES: usize = 512;

/// The longest text that is written at once.
const MAX_TEXT_BYTES: usize = 1024;
/// How long the console is left alone that has nothing to read.
const CONSOLE_MS: u64 = 10;

/// What a program does next.
pub(crate) enum Next {
    /// It goes on.
    GoOn,
    /// It goes on when a child was begun that runs the program of this name, with this line; see [`put`].
    Spawn(String, String),
    /// It goes on, and so does a child of this name.
    Fork(String),
    /// It ends, with this status.
    Exit(u64),
}

/// Makes the call that the registers ask for, and puts the answer there. What begins processes is left to the caller.
pub(crate) fn make(user: &Process, registers: &mut Registers) -> Next {
    let arguments @ [a, b, c, d, _] =
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8];
    let next = match Call::of(registers.rax) {
        Some(Call::Exit) => return Next::Exit(a),
        Some(Call::Fork) => name_at(user, a, b).map(Next::Fork),
        Some(Call::Spawn) => name_at(user, a, b).and_then(|name| Ok(Next::Spawn(name, line_at(user, c, d)?))),
        Some(call) => answer(user, call, arguments).map(|words| {
            put(registers, Ok(words));
            Next::GoOn
        }),
        None => Err(Errno::NotSupported),
    };
    next.unwrap_or_else(|errno| {
        put(registers, Err(errno));
        Next::GoOn
    })
}

/// Puts an answer into the registers.
pub(crate) fn put(registers: &mut Registers, answer: Result<[u64; 2], Errno>) {
    [registers.rax, registers.rdx] = encode(answer);
}

fn answer(user: &Process, call: Call, [a, b, c, d, _]: [u64; 5]) -> Result<[u64; 2], Errno> {
    let (fd, at) = (|| u32::try_from(a).map(Fd).map_err(|_| Errno::BadFd), Va(a));
    let len = |len: u64| usize::try_from(len).map_err(|_| Errno::Invalid);
    let one = |value: usize| [value as u64, 0];
    let none = |()| [0, 0];
    let fds = |(first, second): (Fd, Fd)| [first.0.into(), second.0.into()];
    match call {
        Call::Null => user.null_call().map(none),
        Call::Exit | Call::Fork | Call::Spawn => unreachable!("they are made elsewhere"),
        Call::Print => {
            let text = bytes_at(user, a, b, MAX_TEXT_BYTES)?;
            print(format_args!("{}", String::from_utf8_lossy(&text)));
            Ok([b, 0])
        }
        Call::Input => input(user, at, len(b)?).map(one),
        Call::Wait => user.wait().map(|pid| [pid.0.into(), 0]),
        Call::Pid => Ok([user.pid().0.into(), 0]),
        Call::Kill => user.kill(u32::try_from(a).map(Pid).map_err(|_| Errno::NoProcess)?).map(none),
        Call::BindCpu => {
            let cpu = u8::try_from(a).map_err(|_| Errno::Invalid)?;
            user.bind_cpu(Some(CpuId(cpu))).map(none)
        }
        Call::Sleep => user.sleep_for(milliseconds(a)).map(none),
        Call::Yield => user.yield_now().map(none),
        Call::Map => user.map(len(a)?, Prot::RW, Inherit::Copy).map(|at| [at.0, 0]),
        Call::Unmap => user.unmap(at, len(b)?).map(none),
        Call::Pipe => user.pipe().map(fds),
        Call::SocketPair => user.socket_pair().map(fds),
        Call::NullSocket => user.null_socket().map(|fd| [fd.0.into(), 0]),
        Call::Read => user.read(fd()?, Va(b), len(c)?).map(one),
        Call::Write => user.write(fd()?, Va(b), len(c)?).map(one),
        Call::Send => user.send(fd()?, Va(b), len(c)?, SendMode::of(d).ok_or(Errno::Invalid)?).map(one),
        Call::Receive => {
            let mode = ReceiveMode::of(d).ok_or(Errno::Invalid)?;
            let (len, pages) = pageferry_verify::process::receive_by(user, fd()?, Va(b), len(c)?, mode)?;
            Ok([len as u64, pages.into()])
        }
        Call::Flush => user.anflush(at, len(b)?).map(none),
        Call::Close => user.close(fd()?).map(none),
        Call::Export => {
            let mode = PassMode::of(c).ok_or(Errno::Invalid)?;
            let to = match d.checked_sub(1) {
                None => ExportTo::Anyone,
                Some(pid) => ExportTo::Process(Pid(u32::try_from(pid).map_err(|_| Errno::NoProcess)?)),
            };
            user.export(at, len(b)?, mode, to).map(|id| [id.0, 0])
        }
        Call::Import => user.import(ExportId(a), None).map(|got| [got.at.0, got.len_bytes as u64]),
        Call::MeasureMoves => user.measure_moves().map(none),
        Call::ChooseCarrier => {
            let arrived = if b == 0 { Arrived::Untouched } else { Arrived::Touched };
            let carrier = user.choose_carrier(len(a)?, arrived)?;
            Ok([(carrier == Carrier::Pass).into(), 0])
        }
        Call::Invalidate => {
            let kind = InvalidateKind::of(a).ok_or(Errno::Invalid)?;
            let times = u32::try_from(b).map_err(|_| Errno::Invalid)?;
            user.invalidate(kind, times).map(|cycles| [cycles.0, 0])
        }
        Call::Report => {
            let text = report(user, Report::of(a).ok_or(Errno::Invalid)?);
            let text = &text.as_bytes()[..text.len().min(len(c)?)];
            store(user, Va(b), text)?;
            Ok(one(text.len()))
        }
        Call::Mark => {
            if a == 0 {
                COUNTS.begin();
            } else {
                COUNTS.end();
            }
            Ok([0, 0])
        }
    }
}

fn milliseconds(ms: u64) -> Cycles {
    Cycles(ms.saturating_mul(cpu::clock_khz()))
}

/// Bytes of a program's memory.
fn bytes_at(user: &Process, at: u64, len_bytes: u64, max_bytes: usize) -> Result<Vec<u8>, Errno> {
    let len_bytes = usize::try_from(len_bytes).ok().filter(|&len| len <= max_bytes).ok_or(Errno::Invalid)?;
    let mut bytes = vec![0; len_bytes];
    user.system_call(|call| call.fetch_bytes(Va(at), &mut bytes))?;
    Ok(bytes)
}

/// A name in a program's memory.
fn name_at(user: &Process, at: u64, len_bytes: u64) -> Result<String, Errno> {
    const MAX_NAME_BYTES: usize = 64;
    let bytes = bytes_at(user, at, len_bytes, MAX_NAME_BYTES)?;
    String::from_utf8(bytes).map_err(|_| Errno::Invalid)
}

/// A line in a program's memory.
fn line_at(user: &Process, at: u64, len_bytes: u64) -> Result<String, Errno> {
    String::from_utf8(bytes_at(user, at, len_bytes, MAX_LINE_BYTES)?).map_err(|_| Errno::Invalid)
}

/// Writes to a program's memory.
fn store(user: &Process, at: Va, bytes: &[u8]) -> Result<(), Errno> {
    for (n, part) in bytes.chunks(PAGE_SIZE / 2).enumerate() {
        user.system_call(|call| call.store_bytes(at + n * (PAGE_SIZE / 2), part))?;
    }
    Ok(())
}

/// Waits for input of the console.
fn input(user: &Process, at: Va, len_bytes: usize) -> Result<usize, Errno> {
    let mut buffer = [0; 64];
    let len_bytes = len_bytes.min(buffer.len());
    loop {
        let got = runtime::read(&mut buffer[..len_bytes]);
        if got > 0 || len_bytes == 0 {
            store(user, at, &buffer[..got])?;
            return Ok(got);
        }
        user.sleep_for(milliseconds(CONSOLE_MS))?;
    }
}

fn report(user: &Process, which: Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    match which {
        Report::Processes => {
            for process in user.kernel().processes() {
                let parent = process.parent.map_or(0, |parent| parent.0);
                let state = match &process.name {
                    None => "ended",
                    Some(_) if process.is_asleep => "sleeps",
                    Some(_) => "runs",
                };
                let name = process.name.as_deref().unwrap_or("-");
                let _ = writeln!(text, "{} {parent} {state} {name}", process.pid.0);
            }
        }
        Report::Counters => {
            for (name, value) in COUNTS.all() {
                let _ = writeln!(text, "{name} {value}");
            }
        }
        Report::Machine => {
            let kernel = user.kernel();
            let board = kernel.machine().board();
            text = format!(
                "scheme {:?}\ncpus {}\nframes {}\n",
                kernel.config().ephemeral.scheme,
                board.cpus,
                board.frames
            );
        }
        Report::Programs => {
            for program in archive::programs() {
                let _ = writeln!(text, "{}", program.name);
            }
        }
    }
    text
}
