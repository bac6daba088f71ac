//! A message before it is sent: a pickle and its buffers, as an object that a connection recognises and that is the
//! bytes of a whole pickle to everybody else. Its block is filled when it is sent, or before, by whoever makes the
//! bytes.

use super::arrived::{ArrivedPickle, Memory, broken};
use super::blocks::ARENA;
use super::envelope::{ALIGN, Envelope, Kind, LAID_OUT, MAX_PARTS};
use crate::errors::{raise, usage};
use crate::export::{Bytes, bytes_of, export};
use pageferry::{Block, Handle};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// An address and a length of what an object keeps.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    at: *const u8,
    pub(super) len: usize,
}

// SAFETY: numbers; who reads there answers for it.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    pub(super) fn of(bytes: &[u8]) -> Piece {
        Piece { at: bytes.as_ptr(), len: bytes.len() }
    }

    /// Copies it to a block, by the stores that are faster.
    ///
    /// # Safety
    /// The object that keeps the bytes is kept. Other threads may write to them.
    pub(super) unsafe fn copy_to(self, block: &mut Block, at: usize) {
        // SAFETY: as the caller promises. Bytes of Python's lie in no block that is being filled.
        unsafe { block.write_from(at, self.at, self.len) }
    }
}

/// What a pickler writes to: it keeps the stream's pieces and the buffers that are big enough to go beside it.
#[pyclass(frozen, module = "pageferry._native")]
pub struct PickleWriter {
    parts: Mutex<Parts>,
    /// A longer stream goes by a block.
    threshold: usize,
    /// Shorter buffers stay in the stream.
    min_buffer: usize,
}

#[derive(Default)]
pub(super) struct Parts {
    stream: Vec<Py<PyBytes>>,
    buffers: Vec<PyBuffer<u8>>,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl PickleWriter {
    #[new]
    fn new(threshold: usize, min_buffer: usize) -> PickleWriter {
        PickleWriter { parts: Mutex::default(), threshold, min_buffer }
    }

    /// Takes the next bytes of the stream.
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let bytes = match data.cast::<PyBytes>() {
            Ok(bytes) => bytes.clone(),
            // Big ones come as they are, of whatever type and order, and may change.
            Err(_) => {
                let raw =
                    data.call_method0("raw").or_else(|_| PyMemoryView::from(data).map(Bound::into_any))?;
                PyBytes::new(data.py(), bytes_of(&PyBuffer::get(&raw)?)?)
            }
        };
        let len = bytes.as_bytes().len();
        lock(&self.parts).stream.push(bytes.unbind());
        Ok(len)
    }

    /// Takes a buffer; whether it is to be in the stream instead.
    fn apart(&self, buffer: &Bound<'_, PyAny>) -> PyResult<bool> {
        // What is not in one piece the pickler refuses, and says why.
        let Ok(raw) = buffer.call_method0("raw") else { return Ok(true) };
        let raw = PyBuffer::<u8>::get(&raw)?;
        if raw.len_bytes() < self.min_buffer {
            return Ok(true);
        }
        lock(&self.parts).buffers.push(raw);
        Ok(false)
    }

    /// What was pickled, to be sent: bytes, or a message on a block.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let parts = std::mem::take(&mut *lock(&self.parts));
        let len: usize = parts.stream.iter().map(|bytes| bytes.as_bytes(py).len()).sum();
        if parts.buffers.is_empty() && len < self.threshold {
            return Ok(parts.stream(py)?.into_any());
        }
        let buffers: usize = parts.buffers.iter().map(|buffer| buffer.len_bytes()).sum();
        let by_block = len + buffers >= self.threshold;
        Ok(Bound::new(py, Pickle::new(py, parts, by_block)?)?.into_any())
    }
}

/// Where the parts of a message lie, in a block or behind an envelope.
pub(super) struct Layout {
    table: Vec<u8>,
    /// Offsets and bytes. The stream may be several.
    pieces: Vec<(usize, Piece)>,
    envelope: Envelope,
}

impl Parts {
    /// The stream in one piece.
    pub(super) fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        if let [one] = &self.stream[..] {
            return Ok(one.bind(py).clone());
        }
        let len = self.stream.iter().map(|bytes| bytes.as_bytes(py).len()).sum();
        PyBytes::new_with(py, len, |to| {
            let mut at = 0;
            for bytes in self.stream.iter().map(|bytes| bytes.as_bytes(py)) {
                to[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            }
            Ok(())
        })
    }

    /// Where all of it will lie. The bytes are there for as long as `self` is.
    pub(super) fn layout(&self, py: Python<'_>) -> PyResult<Layout> {
        let stream: Vec<Piece> = self.stream.iter().map(|bytes| Piece::of(bytes.as_bytes(py))).collect();
        let mut parts = vec![stream];
        for buffer in &self.buffers {
            parts.push(vec![Piece::of(bytes_of(buffer)?)]);
        }
        let count = u32::try_from(parts.len()).ok().filter(|&count| count <= MAX_PARTS);
        let count = count.ok_or_else(|| usage(format!("an object has more than {MAX_PARTS} buffers")))?;
        let (mut table, mut pieces, mut at) = (Vec::new(), Vec::new(), parts.len() * 16);
        for part in parts {
            at = at.next_multiple_of(ALIGN);
            let len: usize = part.iter().map(|piece| piece.len).sum();
            table.extend((at as u64).to_ne_bytes());
            table.extend((len as u64).to_ne_bytes());
            for piece in part {
                pieces.push((at, piece));
                at += piece.len;
            }
        }
        Ok(Layout { table, pieces, envelope: Envelope { kind: Kind::Pickle(count), used: at as u64 } })
    }

    /// Copies all of it to a block. `None`: none is to be had.
    pub(super) fn to_block(&self, py: Python<'_>) -> PyResult<Option<(Block, Envelope)>> {
        let layout = self.layout(py)?;
        Ok(py.detach(move || {
            let mut block = ARENA.load().block(layout.envelope.used as usize).ok()?;
            block.write(0, &layout.table);
            for (at, piece) in layout.pieces {
                // SAFETY: `self` keeps the object whose bytes these are.
                unsafe { piece.copy_to(&mut block, at) };
            }
            Some((block, layout.envelope))
        }))
    }

    /// Copies all of it behind an envelope.
    pub(super) fn to_bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let layout = self.layout(py)?;
        Ok(py.detach(move || {
            let mut bytes = Vec::with_capacity(Envelope::LEN + layout.envelope.used as usize);
            bytes.extend(layout.envelope.to_wire(LAID_OUT));
            bytes.extend(layout.table);
            for (at, piece) in layout.pieces {
                bytes.resize(Envelope::LEN + at, 0);
                // SAFETY: `self` keeps the object whose bytes these are. Other threads may write to some of them; see
                // `export`.
                bytes.extend(unsafe { core::slice::from_raw_parts(piece.at, piece.len) });
            }
            bytes
        }))
    }
}

/// A pickle with buffers, or a big one, on its way: on a block where it is big and one was to be had. To everybody but
/// our connections it is the bytes of one pickle that has all in it.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Pickle {
    state: Mutex<State>,
    complete: OnceLock<Py<PyBytes>>,
}

pub(super) enum State {
    /// To be sent.
    Filled(Block, Envelope),
    /// The socket did not take it.
    Lent(Handle, Envelope),
    /// It goes by no block.
    Parts(Parts),
    /// The receiver has it, and this process keeps nothing of it.
    Sent,
}

impl Pickle {
    pub(super) fn new(py: Python<'_>, parts: Parts, by_block: bool) -> PyResult<Pickle> {
        let filled = if by_block { parts.to_block(py)? } else { None };
        let state = match filled {
            Some((block, envelope)) => State::Filled(block, envelope),
            None => State::Parts(parts),
        };
        Ok(Pickle { state: Mutex::new(state), complete: OnceLock::new() })
    }

    /// Its descriptor; `None` where it goes by no block.
    pub(super) fn lend(&self) -> PyResult<Option<(Handle, Envelope)>> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Sent) {
            State::Filled(block, envelope) => Ok(Some((block.lend().map_err(raise)?, envelope))),
            State::Lent(handle, envelope) => Ok(Some((handle, envelope))),
            State::Parts(parts) => {
                *state = State::Parts(parts);
                Ok(None)
            }
            State::Sent => {
                Err(PyValueError::new_err("the message was sent: what dumps() gives is sent once"))
            }
        }
    }

    /// Its block is the receiver's affair from now on.
    pub(super) fn was_sent(&self) {
        *lock(&self.state) = State::Sent;
    }

    pub(super) fn not_sent(&self, handle: Handle, envelope: Envelope) {
        *lock(&self.state) = State::Lent(handle, envelope);
    }

    /// What goes by the socket where no block does.
    pub(super) fn to_bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        if let Some((handle, envelope)) = self.lend()? {
            let opened = handle.view();
            self.not_sent(handle, envelope);
            let opened = opened.map_err(raise)?;
            return Ok(py.detach(|| {
                let used = envelope.used as usize;
                let mut bytes = Vec::with_capacity(Envelope::LEN + used);
                bytes.extend(envelope.to_wire(LAID_OUT));
                opened.copy_out(0, &mut bytes.spare_capacity_mut()[..used]);
                // SAFETY: so many were copied there.
                unsafe { bytes.set_len(Envelope::LEN + used) };
                bytes
            }));
        }
        match &*lock(&self.state) {
            State::Parts(parts) => parts.to_bytes(py),
            _ => Err(usage("the message is being sent by another thread")),
        }
    }

    /// The bytes of one pickle that has all in it.
    pub(super) fn complete<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyBytes>> {
        if self.complete.get().is_none() {
            let (stream, buffers) = self.contents(py)?;
            let join = py.import("pageferry.mp")?.getattr("_complete")?;
            let bytes = join.call1((stream, buffers))?.cast_into::<PyBytes>()?;
            let _ = self.complete.set(bytes.unbind());
        }
        self.complete.get().map(|bytes| bytes.bind(py)).ok_or_else(|| usage("the message has no bytes"))
    }

    /// The stream and the buffers.
    pub(super) fn contents<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>)> {
        if let Some((handle, envelope)) = self.lend()? {
            let opened = handle.view();
            self.not_sent(handle, envelope);
            let arrived = ArrivedPickle::new(Memory::new(opened.map_err(raise)?), envelope)?;
            let mut parts = arrived.parts.iter().map(|&part| arrived.view(py, part));
            let stream = parts.next().ok_or_else(|| broken("the message has no stream"))??;
            return Ok((stream.into_any(), parts.map(|part| Ok(part?.into_any())).collect::<PyResult<_>>()?));
        }
        match &*lock(&self.state) {
            State::Parts(parts) => {
                let owner = |buffer: &PyBuffer<u8>| buffer.obj(py).cloned();
                let buffers =
                    parts.buffers.iter().map(|of| owner(of).ok_or_else(|| usage("a buffer has no owner")));
                Ok((parts.stream(py)?.into_any(), buffers.collect::<PyResult<_>>()?))
            }
            _ => Err(usage("the message is being sent by another thread")),
        }
    }
}

#[pymethods]
impl Pickle {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.complete(py)?.as_bytes().len())
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(
        pickle: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = pickle.get().complete(pickle.py())?.as_bytes();
        let bytes = Bytes { at: bytes.as_ptr().cast_mut(), len: bytes.len(), writable: false };
        // SAFETY: the interpreter's view; the pickle keeps the bytes, which never change.
        unsafe { export(pickle, bytes, view, flags) }
    }
}
