//! What a recorded system call asks for, as far as it is asked again.

use pageferry_hal::Va;
use pageferry_trace::{Architecture, SystemCall};

/// A system call of a recorded program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordedCall {
    /// It read so many bytes.
    Read { to: Va, len_bytes: usize },
    /// It wrote so many bytes.
    Write { from: Va, len_bytes: usize },
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
            RecordedCall::Read { to: at, len_bytes }
            | RecordedCall::Write { from: at, len_bytes }
            | RecordedCall::Map { at, len_bytes }
            | RecordedCall::Unmap { at, len_bytes } => Some((at, len_bytes)),
            RecordedCall::Break(at) => Some((at, 0)),
            RecordedCall::Exit | RecordedCall::Other => None,
        }
    }
}

/// The descriptor that messages to people go to.
const STDERR: u64 = 2;

/// What a call means under the numbers of its architecture. What failed, or did nothing, is [`RecordedCall::Other`].
pub(crate) fn meaning(architecture: &str, call: &SystemCall) -> RecordedCall {
    let name = Architecture::named(architecture).and_then(|a| a.call_name(call.number)).unwrap_or("");
    let [first, second, ..] = call.arguments;
    let result = call.result.filter(|result| *result >= 0);
    match (name, result) {
        ("exit" | "exit_group", _) => RecordedCall::Exit,
        ("read", Some(len)) if len > 0 => RecordedCall::Read { to: Va(second), len_bytes: len as usize },
        ("write", Some(len)) if len > 0 && first != STDERR => {
            RecordedCall::Write { from: Va(second), len_bytes: len as usize }
        }
        ("brk", Some(at)) => RecordedCall::Break(Va(at as u64)),
        ("mmap" | "mmap2", Some(at)) => RecordedCall::Map { at: Va(at as u64), len_bytes: second as usize },
        ("munmap", Some(_)) => RecordedCall::Unmap { at: Va(first), len_bytes: second as usize },
        _ => RecordedCall::Other,
    }
}
