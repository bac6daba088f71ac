//! Buffers: memory that is being filled.

use crate::border::{self, Out};
use crate::fault::{Fault, call};
use crate::handles::Tables;
use crate::opaque::pf_buffer;
use crate::table::Handle;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use pageferry::Buffer;

fn handle(buffer: *mut pf_buffer) -> Handle {
    Handle::new(buffer.cast(), "buffer")
}

fn with<R>(buffer: *mut pf_buffer, does: impl FnOnce(&mut Buffer) -> Result<R, Fault>) -> Result<R, Fault> {
    Tables::get().buffers.with(handle(buffer), does)
}

/// Where a buffer is, and how many bytes of it are sent. They may be read and written until the buffer is
/// sent or freed; what may be done afterwards, the call that sends it says. The address is that of the first
/// slot: aligned to 2 MB, or to a page at PF_LEVEL_SEALED.
///
/// # Safety
/// `data` and `len` are NULL or places for the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_buffer_data(
    buffer: *mut pf_buffer,
    data: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { (Out::new(data, "data", null_mut())?, Out::new(len, "len", 0)?) };
        with(buffer, |buffer| {
            out.0.set(buffer.as_mut_ptr().cast());
            out.1.set(buffer.len());
            Ok(())
        })
    })
}

/// How many bytes a buffer may have.
///
/// # Safety
/// `capacity` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_buffer_capacity(buffer: *mut pf_buffer, capacity: *mut usize) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(capacity, "capacity", 0) }?;
        with(buffer, |buffer| {
            out.set(buffer.capacity());
            Ok(())
        })
    })
}

/// Sets how many bytes are sent: 1 to pf_buffer_capacity(). The buffer stays where it is.
///
/// PF_EUSAGE: another number.
#[unsafe(no_mangle)]
pub extern "C" fn pf_buffer_set_len(buffer: *mut pf_buffer, len: usize) -> c_int {
    call(|| with(buffer, |buffer| Ok(buffer.set_len(len)?)))
}

/// Copies `len` bytes to the start of a buffer, and sets its length to that. The channel learns which kind of
/// stores is faster for it, and uses that: it is often faster than memcpy().
///
/// PF_EUSAGE: `data` is NULL, or `len` is 0 or more than pf_buffer_capacity().
///
/// # Safety
/// `data` is NULL or has `len` bytes outside of the buffer that nobody writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_buffer_write(buffer: *mut pf_buffer, data: *const c_void, len: usize) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let bytes = unsafe { border::bytes(data, len, "data") }?;
        with(buffer, |buffer| {
            if len == 0 {
                return Err(Fault::usage("`len` is 0: a buffer has at least one byte".to_owned()));
            }
            let own = buffer.as_mut_ptr().addr();
            if bytes.as_ptr().addr() < own + buffer.capacity() && own < bytes.as_ptr().addr() + len {
                return Err(Fault::usage("`data` lies in the buffer itself".to_owned()));
            }
            Ok(buffer.write_from(bytes)?)
        })
    })
}

/// Frees a buffer that is not to be sent. Its pointer must not be used any more.
#[unsafe(no_mangle)]
pub extern "C" fn pf_buffer_free(buffer: *mut pf_buffer) -> c_int {
    call(|| Tables::get().buffers.free(handle(buffer)))
}
