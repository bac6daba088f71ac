//! Spin locks: those of the crate `spin`, an atomic word each. The order of lock classes is not checked here; the model does
//! that.
//!
//! Waiting leaves interrupts as they are, that is on. Handlers take no locks, so a holder that is interrupted cannot be
//! waited for by its own handler.

use pageferry_hal::SpinLock;

/// A spin lock.
pub(crate) struct Spin<T>(spin::Mutex<T>);

impl<T> Spin<T> {
    /// A free lock around `value`.
    pub(crate) const fn new(value: T) -> Spin<T> {
        Spin(spin::Mutex::new(value))
    }
}

impl<T: 'static> SpinLock<T> for Spin<T> {
    type Guard<'a> = spin::MutexGuard<'a, T>;

    fn lock(&self) -> Self::Guard<'_> {
        self.0.lock()
    }
    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        self.0.try_lock()
    }
}
