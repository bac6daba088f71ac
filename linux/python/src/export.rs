//! Bytes by the buffer protocol, both ways.
//!
//! What this package exports is a range of bytes that is mapped for as long as the object lives; the buffer's reference
//! keeps the object. What it imports may be written by other threads while it is copied: then it is copied as it is
//! read, old or new, as by any other module.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::{PyClass, ffi};
use std::ffi::c_int;

/// A range of bytes that an object keeps mapped.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// Where they begin.
    pub at: *mut u8,
    /// How many they are.
    pub len: usize,
    /// Whether Python may write to them.
    pub writable: bool,
}

// SAFETY: an address and numbers. Whoever reads or writes there answers for it.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

/// Fills `view` for `owner`.
///
/// # Safety
/// `view` is the interpreter's, and `owner` keeps `bytes` mapped for as long as it lives.
pub unsafe fn export<T: PyClass>(
    owner: Bound<'_, T>,
    bytes: Bytes,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && !bytes.writable {
        return Err(PyBufferError::new_err(
            "the memory is read-only: receive with mode=\"cow\" or mode=\"rw\" to write to it",
        ));
    }
    let len = ffi::Py_ssize_t::try_from(bytes.len)?;
    // SAFETY: the caller's promises; the function takes a reference to the owner.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            bytes.at.cast(),
            len,
            c_int::from(!bytes.writable),
            flags,
        )
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

/// The bytes of a contiguous buffer of bytes.
pub fn bytes_of(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not contiguous"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the buffer keeps so many bytes there. They are only copied from; see the top of the file.
    Ok(unsafe { core::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) })
}
