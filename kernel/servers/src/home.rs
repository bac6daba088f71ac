//! The kernel that a service belongs to: it is there when that has booted, and the kernel owns the service.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use once_cell::race::OnceBox;
use pageferry_hal::Machine;
use pageferry_kernel::Kernel;

/// See the [module](self).
pub(super) struct Home<M: Machine>(OnceBox<Weak<Kernel<M>>>);

impl<M: Machine> Home<M> {
    /// Not known yet.
    pub(super) fn new() -> Home<M> {
        Home(OnceBox::new())
    }

    /// The kernel has booted.
    pub(super) fn set(&self, kernel: &Arc<Kernel<M>>) {
        drop(self.0.set(Box::new(Arc::downgrade(kernel))));
    }

    /// The kernel, unless it is gone: an interrupt or a callout may come behind its end.
    pub(super) fn kernel(&self) -> Option<Arc<Kernel<M>>> {
        self.0.get().and_then(Weak::upgrade)
    }

    /// The kernel, in a call of it.
    ///
    /// # Panics
    /// When there is none: a call is in progress.
    pub(super) fn kernel_of_call(&self) -> Arc<Kernel<M>> {
        self.kernel().expect("a kernel is there as long as a call of it is in progress")
    }
}
