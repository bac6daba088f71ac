//! What the drop-in for `multiprocessing` sends, and what it receives.
//!
//! # The wire
//! A connection is a Unix stream socket. A message is what the interpreter's own connections send, a length and so many
//! bytes, the length as 4 bytes in network order, or -1 and 8 bytes. A big one is a *block* instead: the length is -2,
//! and an [`Envelope`] follows, whose first byte carries one descriptor of the block. All of that is sent by one call,
//! which the kernel keeps in one piece.
//!
//! A block holds bytes, or a pickle and its buffers: first a table of parts, each an offset and a length, the pickle's
//! stream first; then the parts, at multiples of a line of the cache. Where a pickle has buffers and goes by no block,
//! the length is -3, and the envelope and what would be in the block follow.
//!
//! # Nothing is lost
//! Where no block is to be had, or its descriptor cannot be sent, the message goes as bytes. A receiver looks at what
//! waits before it takes it: if it can have no more descriptors, the message stays where it is, and the error says so.
//!
//! # Waiting
//! Calls wait without the interpreter's lock. A signal ends the wait, and its handler runs; the call goes on unless that
//! raises. What was sent or received until then stays so.
//!
//! When the interpreter ends, `multiprocessing` waits for its threads, so they must come back from here until then: other
//! threads than those stay where they are, which is what the bindings see to.
//!
//! # Locks
//! A message has one, which is never held while something is waited for. The arena is the process's; a child makes
//! its own.

use crate::errors::{raise, usage};
use crate::export::{Bytes, bytes_of, export};
use arc_swap::ArcSwap;
use pageferry::{Arena, Block, Counted, Handle, Limits};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyEOFError, PyOSError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

static ARENA: LazyLock<ArcSwap<Arena>> = LazyLock::new(|| ArcSwap::from_pointee(Arena::new()));

/// The length that says that a block comes.
const BLOCK: i32 = -2;
/// The length that says that what would be in a block comes.
const LAID_OUT: i32 = -3;
/// The length that says that a longer one follows.
const LONG: i32 = -1;
/// Parts of a block begin at multiples of this: a line of the cache.
const ALIGN: usize = 64;
/// Parts, at most: what a peer says is not believed beyond it.
const MAX_PARTS: u32 = 1 << 24;
/// Longer bytes that a peer announces are made room for as they come.
const TRUSTED: u64 = 16 << 20;

/// What comes with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Envelope {
    kind: Kind,
    /// Bytes of the block that are used.
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As they are.
    Bytes,
    /// A pickle with so many parts, of which the first is its stream.
    Pickle(u32),
}

impl Envelope {
    /// Bytes on the wire, with the length before it.
    const LEN: usize = 16;

    fn to_wire(self, word: i32) -> [u8; Envelope::LEN] {
        let parts = if let Kind::Pickle(parts) = self.kind { parts } else { 0 };
        let mut wire = [0; Envelope::LEN];
        wire[..4].copy_from_slice(&word.to_be_bytes());
        wire[4..8].copy_from_slice(&parts.to_be_bytes());
        wire[8..].copy_from_slice(&self.used.to_be_bytes());
        wire
    }

    /// What follows the length.
    fn from_wire(wire: &[u8; Envelope::LEN]) -> Option<Envelope> {
        let [_, _, _, _, a, b, c, d, used @ ..] = *wire;
        let kind = match u32::from_be_bytes([a, b, c, d]) {
            0 => Kind::Bytes,
            parts if parts <= MAX_PARTS => Kind::Pickle(parts),
            _ => return None,
        };
        Some(Envelope { kind, used: u64::from_be_bytes(used) })
    }
}

/// Sets what blocks may take, in this process and from now on. What was made before is forgotten when it is home.
#[pyfunction]
#[pyo3(signature = (budget=None, kept=None, mapped=MAX_MAPPED))]
pub fn limit_blocks(budget: Option<u64>, kept: Option<u64>, mapped: usize) {
    MAY_BE_MAPPED.store(mapped, Ordering::Relaxed);
    let mut limits = Limits::default();
    if let Some(budget) = budget {
        limits.bytes = budget;
        limits.kept = budget / 8;
    }
    limits.kept = kept.unwrap_or(limits.kept);
    ARENA.store(Arc::new(Arena::with(limits)));
}

/// Frees all blocks that nobody has.
#[pyfunction]
pub fn trim_blocks(py: Python<'_>) {
    py.detach(|| ARENA.load().trim());
}

/// Frees blocks that nobody has, where more are kept than are to be.
#[pyfunction]
pub fn tidy_blocks(py: Python<'_>) {
    if ARENA.load().has_excess() {
        py.detach(|| ARENA.load().tidy());
    }
}

/// Bytes of all blocks, how many they are, how many of them somebody has, how many were made, how often one was used
/// again, how many were left to their readers.
#[pyfunction]
pub fn held_blocks() -> (u64, usize, usize, u64, u64, u64) {
    let held = ARENA.load().held();
    (held.bytes, held.blocks, held.out, held.made, held.again, held.left)
}

/// An address and a length of what an object keeps.
#[derive(Clone, Copy)]
struct Piece {
    at: *const u8,
    len: usize,
}

// SAFETY: numbers; who reads there answers for it.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    fn of(bytes: &[u8]) -> Piece {
        Piece { at: bytes.as_ptr(), len: bytes.len() }
    }

    /// Copies it to a block, by the stores that are faster.
    ///
    /// # Safety
    /// The object that keeps the bytes is kept. Other threads may write to them.
    unsafe fn copy_to(self, block: &mut Block, at: usize) {
        // SAFETY: as the caller promises. Bytes of Python's lie in no block that is being filled.
        unsafe { block.write_from(at, self.at, self.len) }
    }
}

/// What a pickler writes to: it keeps the stream's pieces and the buffers that are big enough to go beside it.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Pickled {
    parts: Mutex<Parts>,
    /// A longer stream goes by a block.
    threshold: usize,
    /// Shorter buffers stay in the stream.
    min_buffer: usize,
}

#[derive(Default)]
struct Parts {
    stream: Vec<Py<PyBytes>>,
    buffers: Vec<PyBuffer<u8>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Pickled {
    #[new]
    fn new(threshold: usize, min_buffer: usize) -> Pickled {
        Pickled { parts: Mutex::default(), threshold, min_buffer }
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
struct Layout {
    table: Vec<u8>,
    /// Offsets and bytes. The stream may be several.
    pieces: Vec<(usize, Piece)>,
    envelope: Envelope,
}

impl Parts {
    /// The stream in one piece.
    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
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
    fn layout(&self, py: Python<'_>) -> PyResult<Layout> {
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
    fn to_block(&self, py: Python<'_>) -> PyResult<Option<(Block, Envelope)>> {
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
    fn to_bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
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

/// A pickle with buffers, or a big one, on its way: on a block where it is big and one was to be had. To everybody but our connections it is the bytes of
/// one pickle that has all in it.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Pickle {
    state: Mutex<State>,
    complete: OnceLock<Py<PyBytes>>,
}

enum State {
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
    fn new(py: Python<'_>, parts: Parts, by_block: bool) -> PyResult<Pickle> {
        let filled = if by_block { parts.to_block(py)? } else { None };
        let state = match filled {
            Some((block, envelope)) => State::Filled(block, envelope),
            None => State::Parts(parts),
        };
        Ok(Pickle { state: Mutex::new(state), complete: OnceLock::new() })
    }

    /// Its descriptor; `None` where it goes by no block.
    fn lend(&self) -> PyResult<Option<(Handle, Envelope)>> {
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

    fn not_sent(&self, handle: Handle, envelope: Envelope) {
        *lock(&self.state) = State::Lent(handle, envelope);
    }

    /// What goes by the socket where no block does.
    fn to_bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
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
    fn complete<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyBytes>> {
        if self.complete.get().is_none() {
            let (stream, buffers) = self.contents(py)?;
            let join = py.import("pageferry.mp")?.getattr("_complete")?;
            let bytes = join.call1((stream, buffers))?.cast_into::<PyBytes>()?;
            let _ = self.complete.set(bytes.unbind());
        }
        self.complete.get().map(|bytes| bytes.bind(py)).ok_or_else(|| usage("the message has no bytes"))
    }

    /// The stream and the buffers.
    fn contents<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>)> {
        if let Some((handle, envelope)) = self.lend()? {
            let opened = handle.view();
            self.not_sent(handle, envelope);
            let arrived = Arrived::new(Memory::new(opened.map_err(raise)?), envelope)?;
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

/// A pickle that came on a block, which it keeps mapped.
#[pyclass(frozen, weakref, module = "pageferry._native")]
pub struct Arrived {
    memory: Arc<Memory>,
    /// Offset and length of each, the stream first.
    parts: Vec<(usize, usize)>,
}

/// A part of a block that came. It is this process's own: the kernel copies each page at the first store.
#[pyclass(frozen, module = "pageferry._native")]
pub struct Part {
    _memory: Arc<Memory>,
    bytes: Bytes,
}

/// Blocks that are mapped in this process. The kernel allows it 65530 mappings, of whatever kind, as a rule.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
/// Further ones are copied.
static MAY_BE_MAPPED: AtomicUsize = AtomicUsize::new(MAX_MAPPED);
const MAX_MAPPED: usize = 16 << 10;

/// Where a message lies.
enum Memory {
    Mapped(Counted),
    Copied(Vec<Cell<u8>>),
}

// SAFETY: bytes without a value of their own. What writes to them does so by an address, and answers for it.
unsafe impl Sync for Memory {}

impl Memory {
    fn of(bytes: Vec<u8>) -> Memory {
        Memory::Copied(bytes.into_iter().map(Cell::new).collect())
    }

    fn len(&self) -> usize {
        match self {
            Memory::Mapped(counted) => counted.len(),
            Memory::Copied(bytes) => bytes.len(),
        }
    }

    /// The number at an offset, read once.
    fn number(&self, at: usize) -> u64 {
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

    fn new(counted: Counted) -> Memory {
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

    fn at(&self, offset: usize) -> *mut u8 {
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

fn broken(what: &str) -> PyErr {
    PyOSError::new_err(format!("the peer broke the protocol: {what}"))
}

impl Arrived {
    /// Reads the table once, and looks whether the parts are in the block.
    fn new(memory: Memory, envelope: Envelope) -> PyResult<Arrived> {
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
        Ok(Arrived { memory: Arc::new(memory), parts })
    }

    fn view<'py>(&self, py: Python<'py>, (at, len): (usize, usize)) -> PyResult<Bound<'py, PyMemoryView>> {
        let bytes = Bytes { at: self.memory.at(at), len, writable: true };
        let part = Part { _memory: Arc::clone(&self.memory), bytes };
        PyMemoryView::from(Bound::new(py, part)?.as_any())
    }
}

fn copy_of<'py>(py: Python<'py>, counted: &Counted, at: usize, len: usize) -> PyResult<Bound<'py, PyBytes>> {
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
impl Arrived {
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

/// The socket of a connection, which keeps it open while one of its calls runs.
fn socket(fd: RawFd) -> PyResult<BorrowedFd<'static>> {
    if fd < 0 {
        return Err(PyOSError::new_err("handle is closed"));
    }
    // SAFETY: a number that is not -1. Whoever closes it in the midst of a call has the call fail, or go to what is
    // opened next under the number, as with every call of the module `os`.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn os_error(errno: Errno) -> PyErr {
    std::io::Error::from(errno).into()
}

/// Does a call until no signal ends it early.
fn retry<T: Send>(
    py: Python<'_>,
    mut call: impl FnMut() -> rustix::io::Result<T> + Send,
) -> PyResult<Result<T, Errno>> {
    loop {
        match py.detach(&mut call) {
            Err(Errno::INTR) => py.check_signals()?,
            other => return Ok(other),
        }
    }
}

/// Sends bytes, or a pickle that [`Pickled::finish`] gave. `threshold`: longer bytes go by a block.
#[pyfunction]
pub fn send_message(py: Python<'_>, fd: RawFd, message: &Bound<'_, PyAny>, threshold: usize) -> PyResult<()> {
    let socket = socket(fd)?;
    if let Ok(pickle) = message.cast::<Pickle>() {
        let pickle = pickle.get();
        if let Some((handle, envelope)) = pickle.lend()? {
            match send_block(py, socket, &handle, envelope) {
                Ok(true) => return Ok(()),
                Ok(false) => pickle.not_sent(handle, envelope),
                Err(error) => {
                    pickle.not_sent(handle, envelope);
                    return Err(error);
                }
            }
        }
        send_all(py, socket, &[], &pickle.to_bytes(py)?)?;
        *lock(&pickle.state) = State::Sent;
        return Ok(());
    }
    let buffer = PyBuffer::<u8>::get(message)?;
    let bytes = bytes_of(&buffer)?;
    if bytes.len() >= threshold {
        let all = Piece::of(bytes);
        let handle = py.detach(|| {
            let mut block = ARENA.load().block(all.len).ok()?;
            // SAFETY: the buffer keeps its bytes.
            unsafe { all.copy_to(&mut block, 0) };
            block.lend().ok()
        });
        let envelope = Envelope { kind: Kind::Bytes, used: bytes.len() as u64 };
        if let Some(handle) = handle
            && send_block(py, socket, &handle, envelope)?
        {
            return Ok(());
        }
    }
    send_bytes(py, socket, bytes)
}

/// Bytes, as the kernel counts them, that were sent by a socket and that nobody has received.
fn waits_unread(socket: BorrowedFd<'_>) -> rustix::io::Result<c_int> {
    // SAFETY: the call of this number writes one `int`.
    unsafe { rustix::ioctl::ioctl(socket, rustix::ioctl::Getter::<{ SIOCOUTQ }, c_int>::new()) }
}

/// `SIOCOUTQ` of linux/sockios.h, which is `TIOCOUTQ`.
const SIOCOUTQ: rustix::ioctl::Opcode = 0x5411;

/// Sends a block. `false`: its descriptor cannot be sent, and nothing was.
fn send_block(py: Python<'_>, socket: BorrowedFd<'_>, handle: &Handle, envelope: Envelope) -> PyResult<bool> {
    let wire = envelope.to_wire(BLOCK);
    // A number that another socket has later says at worst that what waits there was received: it is left too early.
    let way = socket.as_raw_fd() as u64;
    if matches!(waits_unread(socket), Ok(0)) {
        ARENA.load().received(way);
    }
    let sent = retry(py, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [handle.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::TOOMANYREFS);
        }
        rustix::net::sendmsg(socket, &[IoSlice::new(&wire)], &mut control, SendFlags::NOSIGNAL)
    })?;
    match sent {
        Ok(sent) if sent == wire.len() => {
            handle.went(way);
            Ok(true)
        }
        // The kernel keeps so few bytes in one piece, or takes none.
        Ok(_) => Err(PyOSError::new_err("the socket took a part of an envelope")),
        Err(
            Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM | Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP,
        ) => Ok(false),
        Err(errno) => Err(os_error(errno)),
    }
}

/// Sends a length and so many bytes.
fn send_bytes(py: Python<'_>, socket: BorrowedFd<'_>, bytes: &[u8]) -> PyResult<()> {
    match i32::try_from(bytes.len()) {
        Ok(len) => send_all(py, socket, &len.to_be_bytes(), bytes),
        Err(_) => {
            let long = (bytes.len() as u64).to_be_bytes();
            send_all(py, socket, &[&LONG.to_be_bytes()[..], &long].concat(), bytes)
        }
    }
}

/// Sends one after the other.
fn send_all(py: Python<'_>, socket: BorrowedFd<'_>, head: &[u8], bytes: &[u8]) -> PyResult<()> {
    let mut sent = 0;
    while sent < head.len() + bytes.len() {
        let rest = [
            IoSlice::new(&head[sent.min(head.len())..]),
            IoSlice::new(&bytes[sent.saturating_sub(head.len())..]),
        ];
        sent += retry(py, || {
            rustix::net::sendmsg(socket, &rest, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        })?
        .map_err(os_error)?;
    }
    Ok(())
}

/// What waits at a socket.
struct Peeked {
    bytes: [u8; Envelope::LEN],
    len: usize,
    fds: Vec<OwnedFd>,
    /// There was no room for the descriptors that come with it.
    cut: bool,
}

fn peek(socket: BorrowedFd<'_>) -> rustix::io::Result<Peeked> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; Envelope::LEN];
    let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
    let came = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(Peeked { bytes, len: came.bytes, fds, cut: came.flags.contains(ReturnFlags::CTRUNC) })
}

/// Looks after blocks of this process that may have come home, for as long as it has nothing else to do: until a
/// message waits, or no more is kept than is to be.
fn tidy_while_waiting(py: Python<'_>, socket: BorrowedFd<'_>) -> PyResult<()> {
    const LONGEST: Duration = Duration::from_secs(5);
    let mut pause = Duration::from_millis(200);
    while ARENA.load().has_excess() {
        let waits = retry(py, || {
            let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
            let time = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
            rustix::event::poll(&mut fds, Some(&time))
        })?;
        if waits != Ok(0) {
            break;
        }
        py.detach(|| ARENA.load().tidy());
        pause = (2 * pause).min(LONGEST);
    }
    Ok(())
}

/// Fills `to` from the socket; it is at a place within a message.
fn fill(py: Python<'_>, socket: BorrowedFd<'_>, to: &mut [u8]) -> PyResult<()> {
    let mut at = 0;
    while at < to.len() {
        let rest = &mut to[at..];
        match retry(py, || Ok(rustix::net::recv(socket, &mut *rest, RecvFlags::empty())?.1))?
            .map_err(os_error)?
        {
            0 => return Err(PyOSError::new_err("got end of file during message")),
            n => at += n,
        }
    }
    Ok(())
}

/// Takes the next message: bytes, or what came on a block. `None`: it is longer than `limit`, and is not taken.
/// `pickled`: it is a pickle also where it was sent as bytes, and is not copied.
#[pyfunction]
#[pyo3(signature = (fd, limit=None, pickled=false))]
pub fn recv_message<'py>(
    py: Python<'py>,
    fd: RawFd,
    limit: Option<u64>,
    pickled: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let socket = socket(fd)?;
    tidy_while_waiting(py, socket)?;
    let mut peeked = retry(py, || peek(socket))?.map_err(os_error)?;
    if peeked.len == 0 {
        return Err(PyEOFError::new_err(()));
    }
    let mut head = [0; 4];
    fill_head(py, socket, &peeked, &mut head)?;
    let too_long = |len: u64| limit.is_some_and(|limit| len > limit);
    let len = match i32::from_be_bytes(head) {
        BLOCK => {
            if peeked.fds.is_empty() && peeked.cut {
                return Err(PyOSError::new_err((
                    Errno::MFILE.raw_os_error(),
                    "no descriptor is left for the memory of the next message, which waits: raise RLIMIT_NOFILE \
                     (`ulimit -n`), or close some",
                )));
            }
            let (Some(fd), true) = (peeked.fds.pop(), peeked.fds.is_empty() && peeked.len == Envelope::LEN)
            else {
                return Err(broken("a block comes with one descriptor"));
            };
            let Some(envelope) = Envelope::from_wire(&peeked.bytes) else {
                return Err(broken("more parts than a message has"));
            };
            if too_long(envelope.used) {
                return Ok(None);
            }
            // A block that cannot be mapped for want of memory stays where it is.
            let counted = Counted::open(fd, isize::MAX as u64 / 4).map_err(raise)?;
            // The kernel closes the descriptor that it has still got: there is no room for it here.
            fill(py, socket, &mut [0; Envelope::LEN])?;
            return open(py, counted, envelope, pickled).map(Some);
        }
        LAID_OUT => {
            let mut wire = [0; Envelope::LEN];
            fill(py, socket, &mut wire)?;
            let Some(envelope) = Envelope::from_wire(&wire) else {
                return Err(broken("more parts than a message has"));
            };
            if too_long(envelope.used) {
                return Ok(None);
            }
            let bytes = fill_new(py, socket, envelope.used)?;
            return Ok(Some(Bound::new(py, Arrived::new(Memory::of(bytes), envelope)?)?.into_any()));
        }
        LONG => {
            fill(py, socket, &mut head)?;
            let mut long = [0; 8];
            fill(py, socket, &mut long)?;
            u64::from_be_bytes(long)
        }
        len => {
            let len = u64::try_from(len).map_err(|_| broken("a length is negative"))?;
            if !too_long(len) {
                fill(py, socket, &mut head)?;
            }
            len
        }
    };
    // Descriptors are of a message behind this one, which is looked at in its turn.
    drop(peeked);
    if too_long(len) {
        return Ok(None);
    }
    if len <= TRUSTED {
        return PyBytes::new_with(py, len as usize, |to| fill(py, socket, to))
            .map(|bytes| Some(bytes.into_any()));
    }
    Ok(Some(PyBytes::new(py, &fill_new(py, socket, len)?).into_any()))
}

/// So many bytes from the socket. A peer that says more than it sends takes no memory for that.
fn fill_new(py: Python<'_>, socket: BorrowedFd<'_>, len: u64) -> PyResult<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| broken("a length is beyond all memory"))?;
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let at = bytes.len();
        bytes.resize((at + at.max(TRUSTED as usize)).min(len), 0);
        fill(py, socket, &mut bytes[at..])?;
    }
    Ok(bytes)
}

/// The length of the next message, which is left where it is.
fn fill_head(py: Python<'_>, socket: BorrowedFd<'_>, peeked: &Peeked, head: &mut [u8; 4]) -> PyResult<()> {
    if peeked.len >= head.len() {
        head.copy_from_slice(&peeked.bytes[..4]);
        return Ok(());
    }
    // The peer has sent it in pieces.
    let got = retry(py, || {
        let flags = RecvFlags::PEEK | RecvFlags::WAITALL;
        Ok(rustix::net::recv(socket, &mut head[..], flags)?.1)
    })?;
    match got.map_err(os_error)? {
        4 => Ok(()),
        _ => Err(PyOSError::new_err("got end of file during message")),
    }
}

/// What lies on a block.
fn open<'py>(
    py: Python<'py>,
    counted: Counted,
    envelope: Envelope,
    pickled: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if envelope.used > counted.len() as u64 {
        return Err(broken("the message is shorter than was said"));
    }
    match envelope.kind {
        Kind::Bytes if pickled => {
            let parts = vec![(0, envelope.used as usize)];
            Ok(Bound::new(py, Arrived { memory: Arc::new(Memory::new(counted)), parts })?.into_any())
        }
        Kind::Bytes => Ok(copy_of(py, &counted, 0, envelope.used as usize)?.into_any()),
        Kind::Pickle(_) => Ok(Bound::new(py, Arrived::new(Memory::new(counted), envelope)?)?.into_any()),
    }
}
