//! Memory that was received.
//!
//! # What it holds
//! [`Loan`] is what an array's `base` is: it keeps the message, and the message goes home when the last loan of it is
//! dropped. [`HeldMessage`] is for those who give it back at once: it refuses while a loan of it lives.

use crate::arrival::Arrival;
use crate::dlpack;
use crate::errors;
use crate::export::export;
use pageferry::Verb;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory that was received, as bytes. It goes home when the last array on it is gone.
#[pyclass(frozen, weakref, module = "pageferry._native")]
pub struct Loan {
    arrival: Arc<Arrival>,
}

#[pymethods]
impl Loan {
    /// Where it is.
    #[getter]
    fn address(&self) -> usize {
        self.arrival.bytes.at as usize
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.arrival.bytes.len
    }

    /// Whether it cannot be written to.
    #[getter]
    fn readonly(&self) -> bool {
        !self.arrival.bytes.writable
    }

    /// How it came: "loan", "donate", "copy", "inline" or "share".
    #[getter]
    fn verb(&self) -> &'static str {
        name(self.arrival.verb)
    }

    /// What is promised of the bytes: "mmu", "sealed", "copy" ...
    #[getter]
    fn level(&self) -> String {
        self.arrival.level.to_string()
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
        dlpack::capsule(py, &self.arrival, max_version)
    }

    /// Where the tensor is: the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    fn __len__(&self) -> usize {
        self.arrival.bytes.len
    }

    fn __repr__(&self) -> String {
        format!("<pageferry loan, {} bytes, {}>", self.arrival.bytes.len, self.verb())
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(loan: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = loan.get().arrival.bytes;
        // SAFETY: the interpreter's view; the loan keeps its memory mapped for as long as it lives.
        unsafe { export(loan, bytes, view, flags) }
    }
}

/// A message that can be given back at once.
#[pyclass(frozen, module = "pageferry._native")]
pub struct HeldMessage {
    arrival: Mutex<Option<Arc<Arrival>>>,
}

impl HeldMessage {
    /// The message is kept until it is given back, or this is dropped.
    pub fn new(arrival: Arrival) -> HeldMessage {
        HeldMessage { arrival: Mutex::new(Some(Arc::new(arrival))) }
    }

    fn read<R>(&self, read: impl FnOnce(&Arc<Arrival>) -> R) -> PyResult<R> {
        let arrival = self.arrival.lock().unwrap_or_else(PoisonError::into_inner);
        arrival.as_ref().map(read).ok_or_else(|| errors::usage("the message was given back"))
    }
}

#[pymethods]
impl HeldMessage {
    /// The memory, for an array to lie on.
    fn loan(&self) -> PyResult<Loan> {
        self.read(|arrival| Loan { arrival: Arc::clone(arrival) })
    }

    /// The number that the sender gave it.
    #[getter]
    fn tag(&self) -> PyResult<u64> {
        self.read(|arrival| arrival.tag)
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        self.read(|arrival| arrival.bytes.len)
    }

    /// The bytes, copied.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        self.read(|arrival| {
            // SAFETY: mapped for as long as `arrival` is. Of shared memory the copy is of bytes old or new.
            let bytes = unsafe { core::slice::from_raw_parts(arrival.bytes.at, arrival.bytes.len) };
            pyo3::types::PyBytes::new(py, bytes)
        })
    }

    /// Whether something lies on its memory.
    fn in_use(&self) -> PyResult<bool> {
        self.read(|arrival| Arc::strong_count(arrival) > 1)
    }

    /// Gives the message back. An error while something still lies on its memory.
    fn release(&self) -> PyResult<()> {
        let mut held = self.arrival.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(arrival) = held.as_ref()
            && Arc::strong_count(arrival) > 1
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
