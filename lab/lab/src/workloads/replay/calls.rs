//! What a recorded system call asks for, as far as it is asked again.

use pageferry_hal::Va;
use pageferry_trace::{Architecture, SystemCall};
use std::collections::HashMap;

/// A system call of a recorded program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordedCall {
    /// It read so many bytes.
    Read { fd: u32, to: Va, len_bytes: usize },
    /// It wrote so many bytes.
    Write { fd: u32, from: Va, len_bytes: usize },
    /// It opened a file, of which it read so many bytes until it closed it.
    Open { fd: u32, creates: bool, reads_bytes: usize },
    /// It asked for a name that is not there.
    Absent,
    /// It asked what there is under a name.
    Stat,
    /// It closed a file.
    Close { fd: u32 },
    /// It has another descriptor of a file.
    Duplicate { from: u32, to: u32 },
    /// It took a name away.
    Unlink,
    /// It made a pipe.
    Pipe,
    /// It made a child.
    Fork,
    /// It waited for a child.
    Wait,
    /// The heap ends here from now on.
    Break(Va),
    /// It has this memory from now on.
    Map { at: Va, len_bytes: usize },
    /// It has this memory no more.
    Unmap { at: Va, len_bytes: usize },
    /// It ends.
    Exit,
    /// Anything else: the kernel is entered and left.
    Other,
}

impl RecordedCall {
    /// The memory that it is about: where it begins, and how many bytes.
    pub(crate) fn range(self) -> Option<(Va, usize)> {
        match self {
            RecordedCall::Read { to: at, len_bytes, .. }
            | RecordedCall::Write { from: at, len_bytes, .. }
            | RecordedCall::Map { at, len_bytes }
            | RecordedCall::Unmap { at, len_bytes } => Some((at, len_bytes)),
            RecordedCall::Break(at) => Some((at, 0)),
            _ => None,
        }
    }
}

/// The descriptor that messages to people go to.
const STDERR: u64 = 2;

/// `O_CREAT`, on every architecture that names its calls.
const CREATE: u64 = 0o100;

/// What a call means under the numbers of its architecture. What did nothing is [`RecordedCall::Other`].
pub(crate) fn meaning(architecture: &str, call: &SystemCall) -> RecordedCall {
    let name = Architecture::named(architecture).and_then(|a| a.call_name(call.number)).unwrap_or("");
    let [first, second, third, ..] = call.arguments;
    let fd = first as u32;
    let result = call.result.filter(|result| *result >= 0);
    match (name, result) {
        ("exit" | "exit_group", _) => RecordedCall::Exit,
        ("read", Some(len)) if len > 0 => RecordedCall::Read { fd, to: Va(second), len_bytes: len as usize },
        ("write", Some(len)) if len > 0 && first != STDERR => {
            RecordedCall::Write { fd, from: Va(second), len_bytes: len as usize }
        }
        ("open" | "openat" | "access" | "statx" | "stat64", None) if call.result.is_some() => {
            RecordedCall::Absent
        }
        ("open" | "openat", Some(fd)) => {
            let flags = if name == "open" { second } else { third };
            RecordedCall::Open { fd: fd as u32, creates: flags & CREATE != 0, reads_bytes: 0 }
        }
        ("statx" | "stat64" | "fstat64" | "access", Some(_)) => RecordedCall::Stat,
        ("close", Some(_)) => RecordedCall::Close { fd },
        ("dup2", Some(to)) => RecordedCall::Duplicate { from: fd, to: to as u32 },
        ("unlink", Some(_)) => RecordedCall::Unlink,
        ("pipe" | "pipe2", Some(_)) => RecordedCall::Pipe,
        ("fork" | "vfork" | "clone", Some(_)) => RecordedCall::Fork,
        ("wait4", Some(_)) => RecordedCall::Wait,
        ("brk", Some(at)) => RecordedCall::Break(Va(at as u64)),
        ("mmap" | "mmap2", Some(at)) => RecordedCall::Map { at: Va(at as u64), len_bytes: second as usize },
        ("munmap", Some(_)) => RecordedCall::Unmap { at: Va(first), len_bytes: second as usize },
        _ => RecordedCall::Other,
    }
}

/// Adds to each open what is read of the file until its descriptor is another's.
pub(crate) fn measure_files(calls: &mut [RecordedCall]) {
    let mut open: HashMap<u32, usize> = HashMap::new();
    for i in 0..calls.len() {
        match calls[i] {
            RecordedCall::Open { fd, .. } => {
                open.insert(fd, i);
            }
            RecordedCall::Close { fd } => {
                open.remove(&fd);
            }
            RecordedCall::Read { fd, len_bytes, .. } => {
                if let Some(RecordedCall::Open { reads_bytes, .. }) =
                    open.get(&fd).map(|opened| &mut calls[*opened])
                {
                    *reads_bytes = reads_bytes.saturating_add(len_bytes);
                }
            }
            _ => {}
        }
    }
}
