//! Memory that was received.
//!
//! # What it holds
//! [`Loan`] is what an array's `base` is: it keeps the message, and the message goes home when the last loan of it is
//! dropped. [`Held`] is for those who give it back at once: it refuses while a loan of it lives.
//!
//! Dropping takes the channel's own lock, and no other; it waits for nobody and raises nothing.

use crate::dlpack;
use crate::errors;
use crate::export::{Bytes, export};
use crate::ledger;
use pageferry::{Error, Level, Message, Owned, Shared, Verb};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

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

/// A message.
pub struct Inner {
    bytes: Bytes,
    verb: Verb,
    level: Level,
    tag: u64,
    _memory: Memory,
    _entry: ledger::Entry,
}

impl Inner {
    /// Prepares a message for Python. The error brings it back.
    pub fn new(
        message: Message,
        mode: Mode,
        channel: u64,
        whence: Option<String>,
    ) -> Result<Inner, Box<(Error, Message)>> {
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
                return Ok(Inner { bytes, verb, level, tag, _memory: Memory::Shared(shared), _entry: entry });
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
        Ok(Inner { bytes, verb, level, tag, _memory: memory, _entry: entry })
    }
}

/// Memory that was received, as bytes. It goes home when the last array on it is gone.
#[pyclass(frozen, weakref, module = "pageferry._native")]
pub struct Loan {
    inner: Arc<Inner>,
}

impl Loan {
    pub fn bytes(&self) -> Bytes {
        self.inner.bytes
    }

    pub fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.inner)
    }
}

#[pymethods]
impl Loan {
    /// Where it is.
    #[getter]
    fn address(&self) -> usize {
        self.inner.bytes.at as usize
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.inner.bytes.len
    }

    /// Whether it cannot be written to.
    #[getter]
    fn readonly(&self) -> bool {
        !self.inner.bytes.writable
    }

    /// How it came: "loan", "donate", "copy", "inline" or "share".
    #[getter]
    fn verb(&self) -> &'static str {
        name(self.inner.verb)
    }

    /// What is promised of the bytes: "mmu", "sealed", "copy" ...
    #[getter]
    fn level(&self) -> String {
        self.inner.level.to_string()
    }

    /// A tensor of bytes, by DLPack.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() || dl_device.is_some_and(|(kind, _)| kind != 1) || copy == Some(true) {
            return Err(PyBufferError::new_err("the memory is of the CPU, has no stream, and is not copied"));
        }
        dlpack::capsule(py, self, max_version)
    }

    /// Where the tensor is: the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    fn __len__(&self) -> usize {
        self.inner.bytes.len
    }

    fn __repr__(&self) -> String {
        format!("<pageferry loan, {} bytes, {}>", self.inner.bytes.len, self.verb())
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(loan: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = loan.get().inner.bytes;
        // SAFETY: the interpreter's view; the loan keeps its memory mapped for as long as it lives.
        unsafe { export(loan, bytes, view, flags) }
    }
}

/// A message that can be given back at once.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Held {
    inner: Mutex<Option<Arc<Inner>>>,
}

impl Held {
    pub fn new(inner: Inner) -> Held {
        Held { inner: Mutex::new(Some(Arc::new(inner))) }
    }

    fn read<R>(&self, read: impl FnOnce(&Arc<Inner>) -> R) -> PyResult<R> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.as_ref().map(read).ok_or_else(|| errors::usage("the message was given back"))
    }
}

#[pymethods]
impl Held {
    /// The memory, for an array to lie on.
    fn loan(&self) -> PyResult<Loan> {
        self.read(|inner| Loan { inner: Arc::clone(inner) })
    }

    /// The number that the sender gave it.
    #[getter]
    fn tag(&self) -> PyResult<u64> {
        self.read(|inner| inner.tag)
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        self.read(|inner| inner.bytes.len)
    }

    /// The bytes, copied.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        self.read(|inner| {
            // SAFETY: mapped for as long as `inner` is. Of shared memory the copy is of bytes old or new.
            let bytes = unsafe { core::slice::from_raw_parts(inner.bytes.at, inner.bytes.len) };
            pyo3::types::PyBytes::new(py, bytes)
        })
    }

    /// Whether something lies on its memory.
    fn in_use(&self) -> PyResult<bool> {
        self.read(|inner| Arc::strong_count(inner) > 1)
    }

    /// Gives the message back. An error while something still lies on its memory.
    fn release(&self) -> PyResult<()> {
        let mut held = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = held.as_ref()
            && Arc::strong_count(inner) > 1
        {
            return Err(PyBufferError::new_err("arrays or views still lie on the message's memory"));
        }
        *held = None;
        Ok(())
    }
}

fn name(verb: Verb) -> &'static str {
    match verb {
        Verb::Loan => "loan",
        Verb::Donate => "donate",
        Verb::Share => "share",
        Verb::Copy => "copy",
        Verb::Inline => "inline",
    }
}
