//! Memory of a sender: to be filled by Python, and sent.
//!
//! # What it holds
//! A run of the pool's slots, in one of its states, and their address, which never changes: arrays point there. The
//! slots are not used again before the last array is gone, whatever was sent.
//!
//! # Who may write
//! Python, at any time. Before a message is published the sender's view is frozen copy-on-write; from then on stores
//! make pages of this process's own. So the library's references to it are made only for the time of a call, in which
//! nothing depends on two reads being equal.

use crate::export::{Bytes, export};
use crate::ledger;
use pageferry::{Buffer, Lent, Sharing, Zeroed};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What has become of the memory.
#[derive(Debug)]
pub enum State {
    /// It was not sent.
    Filling(Buffer),
    /// It was lent: the receiver sees what it was then.
    Lent(Lent),
    /// It was given away; zeros are in its place.
    Donated { _zeros: Zeroed },
    /// The receiver sees it as it is.
    Shared { _sharing: Sharing },
    /// A call has it.
    Busy,
}

/// Memory of a sender, as bytes.
#[pyclass(frozen, weakref, module = "pageferry._native")]
pub struct Slot {
    bytes: Bytes,
    channel: u64,
    state: Mutex<State>,
    entry: ledger::Entry,
}

impl Slot {
    /// The memory of a buffer that is to be filled. `whence`: where in the program it was asked for.
    pub fn new(mut buffer: Buffer, channel: u64, whence: Option<String>) -> Slot {
        let bytes = Bytes { at: buffer.as_mut_ptr(), len: buffer.len(), writable: true };
        let entry = ledger::Entry::new("filling", bytes.len, channel, whence);
        Slot { bytes, channel, state: Mutex::new(State::Filling(buffer)), entry }
    }

    /// What has become of the memory. Nothing waits while it is locked.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes, to be read for the time of a call.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and readable for as long as the slot lives: in every state. What Python stores meanwhile is
        // read as old or new: see the top of the file.
        unsafe { core::slice::from_raw_parts(self.bytes.at, self.bytes.len) }
    }

    /// The memory is in another state.
    pub fn becomes(&self, state: State) {
        self.entry.becomes(match &state {
            State::Filling(_) | State::Busy => "filling",
            State::Lent(_) => "lent",
            State::Donated { .. } => "donated",
            State::Shared { .. } => "shared",
        });
        *self.lock() = state;
    }
}

#[pymethods]
impl Slot {
    /// The number of its channel.
    #[getter]
    pub fn channel(&self) -> u64 {
        self.channel
    }

    /// Where it is.
    #[getter]
    fn address(&self) -> usize {
        self.bytes.at as usize
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes.len
    }

    /// "filling", "lent", "donated" or "shared".
    #[getter]
    fn state(&self) -> &'static str {
        match &*self.lock() {
            State::Filling(_) | State::Busy => "filling",
            State::Lent(_) => "lent",
            State::Donated { .. } => "donated",
            State::Shared { .. } => "shared",
        }
    }

    fn __len__(&self) -> usize {
        self.bytes.len
    }

    fn __repr__(&self) -> String {
        format!("<pageferry slot, {} bytes, {}>", self.bytes.len, self.state())
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(slot: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slot.get().bytes;
        // SAFETY: the interpreter's view; the slot keeps its memory mapped for as long as it lives.
        unsafe { export(slot, bytes, view, flags) }
    }
}
