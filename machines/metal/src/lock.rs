//! Spin locks: those of the crate `spin`, an atomic word each. The order of lock classes is not checked here; the model
//! does that.
//!
//! Waiting leaves interrupts as they are. Holding a lock of a class that interrupt handlers take keeps them off: a
//! handler would else wait for what it has interrupted. Handlers take no others.

use crate::cpu;
use core::ops::{Deref, DerefMut};
use pageferry_hal::SpinLock;

/// A spin lock.
pub(crate) struct Spin<T> {
    value: spin::Mutex<T>,
    masks_interrupts: bool,
}

/// Proof of holding a [`Spin`].
pub(crate) struct Guard<'a, T> {
    /// Present until dropped.
    value: Option<spin::MutexGuard<'a, T>>,
    /// Interrupts were on when the lock was taken, and are off since.
    restores: bool,
}

impl<T> Spin<T> {
    /// A free lock around `value`.
    pub(crate) const fn new(value: T) -> Spin<T> {
        Spin { value: spin::Mutex::new(value), masks_interrupts: false }
    }

    /// A free lock around `value`, which interrupt handlers take too.
    pub(crate) const fn masking(value: T) -> Spin<T> {
        Spin { value: spin::Mutex::new(value), masks_interrupts: true }
    }
}

impl<T: 'static> SpinLock<T> for Spin<T> {
    type Guard<'a> = Guard<'a, T>;

    fn lock(&self) -> Guard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            cpu::pause();
        }
    }

    fn try_lock(&self) -> Option<Guard<'_, T>> {
        let restores = self.masks_interrupts && cpu::interrupts_are_on();
        if restores {
            cpu::disable_interrupts();
        }
        let value = self.value.try_lock();
        if value.is_none() && restores {
            cpu::enable_interrupts();
        }
        value.map(|value| Guard { value: Some(value), restores })
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        if self.restores {
            cpu::enable_interrupts();
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("present until dropped")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("present until dropped")
    }
}
