//! A message that was received, and what Python may do with its bytes.
//!
//! What lies on the bytes shares it; dropping the last of them gives the message back. That takes the channel's own
//! lock, and no other; it waits for nobody and raises nothing.

use crate::errors;
use crate::export::Bytes;
use crate::ledger;
use pageferry::{Error, Level, Message, Owned, Shared, Verb};
use pyo3::prelude::*;

/// What the receiver does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It reads.
    ReadOnly,
    /// It may write; the kernel copies each page at the first store.
    CopyOnWrite,
    /// It writes: the bytes are moved to memory of its own where they are not already.
    ReadWrite,
}

impl<'py> FromPyObject<'_, 'py> for Mode {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Mode> {
        match object.extract::<&str>()? {
            "ro" => Ok(Mode::ReadOnly),
            "cow" => Ok(Mode::CopyOnWrite),
            "rw" => Ok(Mode::ReadWrite),
            other => Err(errors::usage(format!("mode is {other:?}; expected \"ro\", \"cow\" or \"rw\""))),
        }
    }
}

/// Whose the memory is.
#[expect(dead_code, reason = "kept for what hangs on it")]
enum Memory {
    Loan(pageferry::Loan),
    Owned(Owned),
    Shared(Shared),
}

/// A message that was received, prepared for Python.
pub struct Arrival {
    /// Where its bytes are.
    pub bytes: Bytes,
    /// How it came.
    pub verb: Verb,
    /// What is promised of its bytes.
    pub level: Level,
    /// The number that the sender gave it.
    pub tag: u64,
    _memory: Memory,
    _entry: ledger::Entry,
}

impl Arrival {
    /// Prepares a message for Python. The error brings it back.
    pub fn new(
        message: Message,
        mode: Mode,
        channel: u64,
        whence: Option<String>,
    ) -> Result<Arrival, Box<(Error, Message)>> {
        let mut loan = match message {
            Message::Loan(loan) => loan,
            Message::Passed(passed) => {
                passed.join().map_err(|(error, passed)| Box::new((error, Message::Passed(passed))))?
            }
            Message::Shared(shared) => {
                let at = shared.as_ptr().cast_mut();
                let len = if at.is_null() { 0 } else { shared.len() };
                let bytes = Bytes { at, len, writable: false };
                let entry = ledger::Entry::new("received, shared", len, channel, whence);
                let (verb, level, tag) = (Verb::Share, Level::Typed, shared.tag());
                return Ok(Arrival {
                    bytes,
                    verb,
                    level,
                    tag,
                    _memory: Memory::Shared(shared),
                    _entry: entry,
                });
            }
        };
        let (verb, level, tag) = (loan.verb(), loan.level(), loan.tag());
        let prepared = match mode {
            Mode::ReadWrite if verb == Verb::Loan => loan.copied().map(|mut owned| {
                let bytes = Bytes { at: owned.as_mut_ptr(), len: owned.len(), writable: true };
                (bytes, Some(owned))
            }),
            Mode::ReadOnly => {
                Ok((Bytes { at: loan.as_ptr().cast_mut(), len: loan.len(), writable: false }, None))
            }
            _ => loan
                .as_mut()
                .map(|bytes| (Bytes { at: bytes.as_mut_ptr(), len: bytes.len(), writable: true }, None)),
        };
        let (bytes, owned) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(Box::new((error, Message::Loan(loan)))),
        };
        let memory = match owned {
            // The loan goes home now.
            Some(owned) => Memory::Owned(owned),
            None => Memory::Loan(loan),
        };
        let what = match verb {
            Verb::Loan => "received, lent",
            Verb::Donate => "received, donated",
            _ => "received, copied",
        };
        let entry = ledger::Entry::new(what, bytes.len, channel, whence);
        Ok(Arrival { bytes, verb, level, tag, _memory: memory, _entry: entry })
    }
}
