//! Leaving the interpreter, to wait, and coming back.
//!
//! A thread that comes back while the interpreter ends is ended by it, before CPython 3.14 by unwinding its stack, and
//! frames of Rust are not to be unwound so: the process would abort. So from the interpreter's last moments on, a thread
//! other than the one that ends it does not come back; it sleeps until the process is gone, as it does by itself from 3.14 on.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread ends the interpreter.
    static ENDS: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Called at exit, by the thread that ends the interpreter.
#[pyfunction]
pub fn ending() {
    ENDS.set(true);
    ENDING.store(true, Ordering::Release);
}

/// Does something without the interpreter's lock.
pub fn detach<T: Send>(py: Python<'_>, doing: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let done = doing();
        while ENDING.load(Ordering::Acquire) && !ENDS.get() {
            std::thread::sleep(Duration::from_secs(3600));
        }
        done
    })
}
