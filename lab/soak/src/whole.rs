//! One run of a whole kernel, from boot to the end, and a look at what it leaves behind: frames, sleepers, what the
//! machine's own checks say.

use crate::episode::Failure;
use pageferry_kernel::{Kernel, KernelConfig, User};
use pageferry_model::Model;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Boots a kernel on `m`, with `first` for its first process, and runs it until no process is left. What fails, fails
/// at step `at`.
///
/// # Errors
/// What was wrong, and at which step.
pub(crate) fn run(
    m: &Model,
    config: KernelConfig,
    at: &Cell<usize>,
    first: impl FnOnce(&User<Model>) + 'static,
) -> Result<(), Failure> {
    let booted = Rc::new(RefCell::new(None));
    let into = booted.clone();
    let ran = m.run(Box::new(move |m| {
        let kernel = Kernel::boot(m.clone(), m.devices(), config).unwrap_or_else(|e| panic!("boot: {e}"));
        into.replace(Some(kernel.clone()));
        kernel.spawn("init", Box::new(first)).expect("the first process");
        kernel.run()
    }));
    let kernel = booted.take();
    let left = || kernel.as_ref().map_or(Ok(()), |kernel| kernel.check_quiescent());
    let sleepers = || kernel.as_ref().map_or_else(String::new, |kernel| kernel.sleepers());
    ran.map_err(|e| format!("{e}\n{}", sleepers()))
        .and_then(|()| left())
        .and_then(|()| m.check())
        .map_err(|message| Failure { step: at.get(), message })
}
