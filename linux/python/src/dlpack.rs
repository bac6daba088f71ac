//! Bytes for other libraries, by DLPack: a received message as a tensor of bytes.
//!
//! The structures are those of dlpack.h, version 1.0. A capsule owns one reference to the message; whoever takes the
//! tensor calls its deleter, from any thread, with or without the interpreter's lock.

use crate::arrival::Arrival;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// `kDLCPU`.
const CPU: i32 = 1;
/// `kDLUInt`.
const UNSIGNED: u8 = 1;
/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What a tensor hangs on.
struct Context {
    shape: [i64; 1],
    stride: [i64; 1],
    _arrival: Arc<Arrival>,
}

const UNTAKEN: &CStr = c"dltensor";
const UNTAKEN_VERSIONED: &CStr = c"dltensor_versioned";

fn tensor(arrival: &Arc<Arrival>) -> PyResult<(Tensor, *mut c_void)> {
    let bytes = arrival.bytes;
    let len = i64::try_from(bytes.len)?;
    let context = Box::new(Context { shape: [len], stride: [1], _arrival: Arc::clone(arrival) });
    let context = Box::into_raw(context);
    let tensor = Tensor {
        data: bytes.at.cast(),
        device: [CPU, 0],
        ndim: 1,
        code: UNSIGNED,
        bits: 8,
        lanes: 1,
        // SAFETY: the box lives until the deleter is called.
        shape: unsafe { &raw mut (*context).shape }.cast(),
        // SAFETY: as above.
        strides: unsafe { &raw mut (*context).stride }.cast(),
        byte_offset: 0,
    };
    Ok((tensor, context.cast()))
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `capsule`, and deleted once: by who took it, or by the capsule.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Context>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: as for `delete`.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Context>()));
    }
}

/// A capsule that nobody has taken the tensor of deletes it; who takes it renames the capsule.
unsafe extern "C" fn untaken(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter's capsule, of one of the two names, whose pointer `capsule` has made.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNTAKEN.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, UNTAKEN.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, UNTAKEN_VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, UNTAKEN_VERSIONED.as_ptr()).cast());
        }
    }
}

/// `__dlpack__` of a message.
pub fn capsule<'py>(
    py: Python<'py>,
    arrival: &Arc<Arrival>,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'py, PyAny>> {
    let versioned = max_version.is_some_and(|(major, _)| major >= 1);
    let read_only = !arrival.bytes.writable;
    if read_only && !versioned {
        return Err(PyBufferError::new_err(
            "the memory is read-only, and this consumer of DLPack does not say that it honours that: receive with \
             mode=\"cow\"",
        ));
    }
    let (tensor, context) = tensor(arrival)?;
    let (pointer, name): (*mut c_void, &CStr) = if versioned {
        let flags = if read_only { READ_ONLY } else { 0 };
        let managed = Versioned { version: [1, 0], context, deleter: Some(delete_versioned), flags, tensor };
        (Box::into_raw(Box::new(managed)).cast(), UNTAKEN_VERSIONED)
    } else {
        let managed = Managed { tensor, context, deleter: Some(delete) };
        (Box::into_raw(Box::new(managed)).cast(), UNTAKEN)
    };
    // SAFETY: the name lives for ever; the pointer is not null.
    let made = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(untaken)) };
    if made.is_null() {
        // SAFETY: nobody else has the pointer.
        unsafe { if versioned { delete_versioned(pointer.cast()) } else { delete(pointer.cast()) } }
    }
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}
