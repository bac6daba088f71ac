//! The modelled spin lock: its cost, its order, and its waiting.
//!
//! On a multiprocessor, taking and releasing each cost an atomic instruction ([`pageferry_hal::LockCosts`] says what
//! else a kernel's locks are), and a lock last held by another package brings its cache line from there. Where all that
//! wait look at one word, each makes handing it over longer. A uniprocessor kernel does the same bookkeeping without
//! atomics. Waiting time goes to [`Cause::Lock`], with interrupts taken meanwhile.

use crate::machine::inner::Inner;
use crate::machine::locks::{LockId, LockRef};
use crate::machine::{Action, EventKind, WaitCause};
use crate::mmu::access::Site;
use pageferry_hal::{Cause, CpuSet, LockClass, SpinLock};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::rc::Rc;

/// A spin lock of a modelled machine.
pub struct ModelLock<T> {
    latch: Latch,
    value: RefCell<T>,
}

/// Proof of holding a [`ModelLock`].
pub struct ModelGuard<'a, T> {
    latch: &'a Latch,
    value: Option<RefMut<'a, T>>,
}

impl<T> ModelLock<T> {
    pub(crate) fn new(machine: Rc<Inner>, class: LockClass, value: T) -> ModelLock<T> {
        ModelLock { latch: Latch::new(machine, class), value: RefCell::new(value) }
    }

    fn guard(&self) -> ModelGuard<'_, T> {
        let value = self.value.try_borrow_mut().expect("the holder of a lock is alone with its contents");
        ModelGuard { latch: &self.latch, value: Some(value) }
    }
}

impl<T: 'static> SpinLock<T> for ModelLock<T> {
    type Guard<'a> = ModelGuard<'a, T>;

    #[track_caller]
    fn lock(&self) -> ModelGuard<'_, T> {
        self.latch.take(Location::caller());
        self.guard()
    }

    #[track_caller]
    fn try_lock(&self) -> Option<ModelGuard<'_, T>> {
        self.latch.try_take(Location::caller()).then(|| self.guard())
    }
}

impl<T> Drop for ModelGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.latch.release();
    }
}

/// The lock without what it guards: the same code for every kind of contents.
struct Latch {
    machine: Rc<Inner>,
    id: LockId,
    /// Where its class is counted.
    counted: usize,
    /// The kernel that is modelled has no such lock.
    is_absent: bool,
    /// Releasing it is a locked instruction, too.
    release_is_locked: bool,
    /// Shared with the driver while a CPU spins for it.
    held: Rc<Cell<bool>>,
    /// When it was released last, on the clock of the CPU that did.
    free_at: Cell<u64>,
    last_package: Cell<usize>,
    /// When it was released the last times, where that matters.
    handed_over: RefCell<VecDeque<u64>>,
}

impl Latch {
    fn new(machine: Rc<Inner>, class: LockClass) -> Latch {
        // Making a lock writes it: the line is in that CPU's cache.
        let maker = machine.is_running().then(|| machine.hw.borrow().cpus[machine.cpu()].package);
        let last_package = Cell::new(maker.unwrap_or(0));
        let (id, counted) = machine.new_lock_id(class);
        let (is_absent, release_is_locked) = {
            let params = &machine.hw.borrow().params;
            (params.absent_locks.contains(class), params.release_is_locked)
        };
        let (free_at, handed_over) = (Cell::new(0), RefCell::default());
        Latch {
            machine,
            id,
            counted,
            is_absent,
            release_is_locked,
            held: Rc::default(),
            free_at,
            last_package,
            handed_over,
        }
    }

    fn take(&self, at: Site) {
        let mut waited = 0;
        let mut came_at = None;
        if self.live() {
            self.machine.sync();
            came_at = self.counts_waiters().then(|| self.clock());
            self.machine.check_lock_order(self.id, at);
            self.charge(true);
            if self.held.get() {
                let since = self.clock();
                let _cause = self.machine.scope(Cause::Lock);
                let before = self.machine.begin_wait(WaitCause::Lock(self.id), at);
                let wanted_before = self.machine.wants_lock(self.reference(at));
                while self.held.get() {
                    self.machine.wait(Some(&self.held));
                }
                self.machine.stops_wanting(wanted_before);
                self.machine.end_wait(before);
                waited = self.clock() - since;
            }
        }
        self.taken(at, waited);
        if let Some(came_at) = came_at {
            self.charge_handed_over(came_at);
        }
    }

    /// Whether it was free, and is taken now.
    fn try_take(&self, at: Site) -> bool {
        if self.live() {
            self.machine.sync();
            self.charge(true);
        }
        if self.held.get() {
            self.machine.note(EventKind::FailsToTake(self.id), Some(at));
            return false;
        }
        self.taken(at, 0);
        true
    }

    fn release(&self) {
        self.held.set(false);
        if !self.live() {
            return;
        }
        self.charge(self.release_is_locked);
        self.free_at.set(self.clock());
        if self.counts_waiters() {
            let mut handed_over = self.handed_over.borrow_mut();
            // As many as can have had it while one waited.
            if handed_over.len() == CpuSet::MAX_CPUS {
                handed_over.pop_front();
            }
            handed_over.push_back(self.free_at.get());
        }
        self.machine.lock_released(self.address(), self.id);
    }

    /// The bookkeeping of a machine that is switched off (a test that inspects a kernel after its run) is left alone.
    /// So is it while a panic unwinds: destructors may take locks, and must not hide the first panic by another.
    fn live(&self) -> bool {
        self.machine.is_running() && !std::thread::panicking()
    }

    /// What the executing CPU's clock shows.
    fn clock(&self) -> u64 {
        self.machine.hw.borrow().cpus[self.machine.cpu()].clock
    }

    /// What taking it, or releasing it, costs besides waiting and the way of its line.
    fn charge(&self, is_locked: bool) {
        if self.is_absent {
            return;
        }
        let mut hw = self.machine.hw.borrow_mut();
        let cpu = self.machine.cpu();
        let cause = std::mem::replace(&mut hw.cpus[cpu].cause, Cause::Lock);
        // They are part of the run that takes the lock, and are fetched with it.
        let around = hw.params.lock_instructions;
        hw.execute(cpu, around);
        hw.execute_locked(cpu, u32::from(is_locked));
        hw.cpus[cpu].cause = cause;
        hw.did(cpu, Action::Locks);
    }

    /// All that wait look at one word: each makes it longer to hand the lock over.
    fn counts_waiters(&self) -> bool {
        self.machine.is_timed() && self.machine.hw.borrow().params.lock_waiter > 0
    }

    /// It was handed to others while the executing CPU waited, who came at that time: each time it asked for the line,
    /// too. It pays for that itself, as those that had the lock went on before it was known who waits.
    fn charge_handed_over(&self, came_at: u64) {
        let seen = self.handed_over.borrow().iter().filter(|&&at| at > came_at).count() as u64;
        let mut hw = self.machine.hw.borrow_mut();
        // The last time it was handed to this CPU.
        let cycles = seen.saturating_sub(1) * hw.params.lock_waiter;
        hw.charge_to(self.machine.cpu(), Cause::Lock, cycles);
        hw.locks[self.counted].wait_cycles += cycles;
    }

    fn reference(&self, at: Site) -> LockRef {
        LockRef { lock: self.address(), id: self.id, at }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn taken(&self, at: Site, mut waited: u64) {
        assert!(!self.held.replace(true), "the lock {} is taken twice", self.id);
        if !self.live() {
            return;
        }
        self.machine.lock_taken(self.reference(at));
        let mut hw = self.machine.hw.borrow_mut();
        let cpu = self.machine.cpu();
        hw.cpus[cpu].masked += u32::from(self.id.class.masks_interrupts());
        let package = hw.cpus[cpu].package;
        let last = self.last_package.replace(package);
        if last != package && !self.is_absent {
            let cycles = hw.params.transfer(last, package);
            hw.charge_to(cpu, Cause::Lock, cycles);
        }
        if self.machine.is_timed() {
            // The holder may have run ahead on the host: no other is in before it was out.
            let late = self.free_at.get().saturating_sub(hw.cpus[cpu].clock);
            hw.charge_to(cpu, Cause::Lock, late);
            waited += late;
        }
        let used = &mut hw.locks[self.counted];
        used.acquisitions += 1;
        used.contended += u64::from(waited > 0);
        used.wait_cycles += waited;
    }
}

impl<T> Deref for ModelGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("present until dropped")
    }
}

impl<T> DerefMut for ModelGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("present until dropped")
    }
}
