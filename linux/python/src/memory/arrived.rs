//! A message that has arrived: a private mapping of its block, or bytes, which its parts keep. Dropped with the last
//! array on it; then the kernel tells the owner by what it counts.

use super::envelope::{Envelope, Kind};
use crate::export::{Bytes, bytes_of, export};
use pageferry::Counted;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyOSError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView};
use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A pickle that came on a block, which it keeps mapped.
#[pyclass(frozen, weakref, module = "pageferry._native")]
pub struct ArrivedPickle {
    pub(super) memory: Arc<Memory>,
    /// Offset and length of each, the stream first.
    pub(super) parts: Vec<(usize, usize)>,
}

/// A part of a block that came. It is this process's own: the kernel copies each page at the first store.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Part {
    _memory: Arc<Memory>,
    bytes: Bytes,
}

/// Blocks that are mapped in this process. The kernel allows it 65530 mappings, of whatever kind, as a rule.
pub(super) static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// Further ones are copied.
pub(super) static MAY_BE_MAPPED: AtomicUsize = AtomicUsize::new(MAX_MAPPED);
pub(super) const MAX_MAPPED: usize = 16 << 10;

/// Where a message lies.
pub(super) enum Memory {
    Mapped(Counted),
    Copied(Vec<Cell<u8>>),
}

// SAFETY: bytes without a value of their own. What writes to them does so by an address, and answers for it.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn of(bytes: Vec<u8>) -> Memory {
        Memory::Copied(bytes.into_iter().map(Cell::new).collect())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Memory::Mapped(counted) => counted.len(),
            Memory::Copied(bytes) => bytes.len(),
        }
    }

    /// The number at an offset, read once.
    pub(super) fn number(&self, at: usize) -> u64 {
        match self {
            Memory::Mapped(counted) => {
                let mut bytes = [MaybeUninit::new(0); 8];
                counted.copy_out(at, &mut bytes);
                // SAFETY: all eight were initialised before they were copied over.
                u64::from_ne_bytes(bytes.map(|byte| unsafe { byte.assume_init() }))
            }
            Memory::Copied(bytes) => {
                let mut number = [0; 8];
                bytes[at..at + 8].iter().zip(&mut number).for_each(|(from, to)| *to = from.get());
                u64::from_ne_bytes(number)
            }
        }
    }

    pub(super) fn new(counted: Counted) -> Memory {
        if MAPPED.fetch_add(1, Ordering::Relaxed) < MAY_BE_MAPPED.load(Ordering::Relaxed) {
            return Memory::Mapped(counted);
        }
        MAPPED.fetch_sub(1, Ordering::Relaxed);
        let mut bytes = vec![Cell::new(0); counted.len()];
        // SAFETY: the same bytes, of the same size, and this function's alone; what is stored there is bytes.
        let to = unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) };
        counted.copy_out(0, to);
        Memory::Copied(bytes)
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        match self {
            // SAFETY: the parts were found to be in the block.
            Memory::Mapped(counted) => unsafe { counted.as_ptr().add(offset) },
            Memory::Copied(bytes) => bytes[offset..].as_ptr().cast::<u8>().cast_mut(),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Mapped(_) = self {
            MAPPED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

pub(super) fn broken(what: &str) -> PyErr {
    PyOSError::new_err(format!("the peer broke the protocol: {what}"))
}

impl ArrivedPickle {
    /// Reads the table once, and looks whether the parts are in the block.
    pub(super) fn new(memory: Memory, envelope: Envelope) -> PyResult<ArrivedPickle> {
        let Kind::Pickle(count) = envelope.kind else { return Err(broken("the message has no table")) };
        let used = usize::try_from(envelope.used).unwrap_or(usize::MAX);
        let count = count as usize;
        if used > memory.len() || count * 16 > used {
            return Err(broken("the message is shorter than was said"));
        }
        let mut parts = Vec::with_capacity(count);
        for part in 0..count {
            let (at, len) = (memory.number(part * 16), memory.number(part * 16 + 8));
            if at.checked_add(len).is_none_or(|end| end > used as u64) {
                return Err(broken("a part is not in its message"));
            }
            parts.push((at as usize, len as usize));
        }
        Ok(ArrivedPickle { memory: Arc::new(memory), parts })
    }

    pub(super) fn view<'py>(
        &self,
        py: Python<'py>,
        (at, len): (usize, usize),
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let bytes = Bytes { at: self.memory.at(at), len, writable: true };
        let part = Part { _memory: Arc::clone(&self.memory), bytes };
        PyMemoryView::from(Bound::new(py, part)?.as_any())
    }
}

pub(super) fn copy_of<'py>(
    py: Python<'py>,
    counted: &Counted,
    at: usize,
    len: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, len, |to| {
        py.detach(|| {
            // SAFETY: the same bytes; what is stored there is bytes.
            let to = unsafe { core::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), to.len()) };
            counted.copy_out(at, to);
        });
        Ok(())
    })
}

#[pymethods]
impl ArrivedPickle {
    /// The pickle's stream.
    #[getter]
    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        self.view(py, self.parts[0])
    }

    /// The pickle's buffers.
    #[getter]
    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let views = self.parts[1..].iter().map(|&part| self.view(py, part)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, views)
    }

    /// Bytes of all of them.
    #[getter]
    fn nbytes(&self) -> usize {
        self.parts.iter().map(|&(_, len)| len).sum()
    }
}

#[pymethods]
impl Part {
    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(part: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = part.get().bytes;
        // SAFETY: the interpreter's view; the part keeps its block mapped.
        unsafe { export(part, bytes, view, flags) }
    }
}

/// Bytes of a read-only buffer that may be written to by who receives a copy of them: a pickler marks buffers that are
/// read-only, and the copy would be so as well.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Unmarked {
    buffer: PyBuffer<u8>,
}

#[pymethods]
impl Unmarked {
    #[new]
    fn new(buffer: &Bound<'_, PyAny>) -> PyResult<Unmarked> {
        Ok(Unmarked { buffer: PyBuffer::get(buffer)? })
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(
        unmarked: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = bytes_of(&unmarked.get().buffer)?;
        let bytes = Bytes { at: bytes.as_ptr().cast_mut(), len: bytes.len(), writable: true };
        // SAFETY: the interpreter's view; the buffer is kept. Only picklers get this object, and they read.
        unsafe { export(unmarked, bytes, view, flags) }
    }
}
