//! Spin locks: an atomic word. The order of lock classes is not checked here; the model does that.
//!
//! Waiting leaves interrupts as they are, that is on. Handlers take no locks, so a holder that is interrupted cannot be
//! waited for by its own handler.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_hal::SpinLock;

/// A spin lock.
pub(crate) struct Spin<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and `held` lets one guard exist at a time; so sharing the lock moves
// the value between threads, no more.
unsafe impl<T: Send> Sync for Spin<T> {}

/// Proof of holding a [`Spin`].
pub(crate) struct Guard<'a, T> {
    lock: &'a Spin<T>,
}

impl<T> Spin<T> {
    /// A free lock around `value`.
    pub(crate) const fn new(value: T) -> Spin<T> {
        Spin { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
}

impl<T: 'static> SpinLock<T> for Spin<T> {
    type Guard<'a> = Guard<'a, T>;

    fn lock(&self) -> Guard<'_, T> {
        while self.held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Look, without asking for the cache line, until it may be free.
            while self.held.load(Ordering::Relaxed) {
                crate::cpu::pause();
            }
        }
        Guard { lock: self }
    }

    fn try_lock(&self) -> Option<Guard<'_, T>> {
        let taken = self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Guard { lock: self })
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (it was made by the thread that set `held`), and is borrowed here.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}
