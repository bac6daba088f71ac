//! The spin locks that contexts hold and wait for: their order, and deadlocks among them.
//!
//! A lock is known here by its address, which it keeps while it is held or waited for. A deadlock is complete when the
//! last of its contexts begins to wait, so that is when the circle is looked for.

use crate::account::LockUse;
use crate::machine::event::EventKind;
use crate::machine::inner::Inner;
use crate::machine::locks::{LockCircle, LockId, LockRef, LockWait, PendingLock};
use crate::machine::run_error::RunError;
use crate::mmu::access::Site;
use pageferry_hal::LockClass;

impl Inner {
    /// The name of a lock that is made, and the place of its class among what is counted by class.
    pub(crate) fn new_lock_id(&self, class: LockClass) -> (LockId, usize) {
        let counted = &mut self.hw.borrow_mut().locks;
        let place = counted.iter().position(|used| used.class == class).unwrap_or_else(|| {
            counted.push(LockUse::new(class));
            counted.len() - 1
        });
        counted[place].made += 1;
        (LockId { class, number: counted[place].made - 1 }, place)
    }

    /// Refuses a lock that the order forbids to the executing context.
    ///
    /// # Panics
    /// When it does.
    pub(crate) fn check_lock_order(&self, id: LockId, at: Site) {
        let in_handler = self.hw.borrow().cpus[self.cpu()].in_handler;
        assert!(!in_handler || id.class.masks_interrupts(), "{at}: an interrupt handler takes the lock {id}");
        let error = {
            let contexts = self.contexts.borrow();
            let context = &contexts[self.context.get()];
            let Some(held) = context.held.iter().find(|held| !id.class.may_follow(held.id.class)) else {
                return;
            };
            RunError::LockOrder {
                context: context.name.clone(),
                takes: Box::new((id, at)),
                holds: Box::new((held.id, held.at)),
                schedule: self.options.schedule,
            }
        };
        self.fail(error);
    }

    /// Refuses to halt the executing CPU where no interrupt could end the halt.
    ///
    /// # Panics
    /// When its interrupts are off.
    pub(crate) fn check_halt(&self, at: Site) {
        let (in_handler, masked) = {
            let hw = self.hw.borrow();
            let cpu = &hw.cpus[self.cpu()];
            (cpu.in_handler, cpu.masked > 0)
        };
        assert!(
            !in_handler,
            "{at}: an interrupt handler halts the CPU, with interrupts off: nothing would wake it"
        );
        let contexts = self.contexts.borrow();
        let me = &contexts[self.context.get()];
        assert!(
            !masked,
            "{at}: context {} halts while it holds {:?}, with interrupts off: nothing would wake it",
            me.name, me.held
        );
    }

    pub(crate) fn lock_taken(&self, lock: LockRef) {
        self.contexts.borrow_mut()[self.context.get()].held.push(lock);
        self.note(EventKind::Takes(lock.id), Some(lock.at));
    }

    pub(crate) fn lock_released(&self, lock: usize, id: LockId) {
        self.note(EventKind::Releases(id), None);
        let mut contexts = self.contexts.borrow_mut();
        let held = &mut contexts[self.context.get()].held;
        let at = held.iter().rposition(|h| h.lock == lock);
        held.remove(at.expect("a lock is released by the context that took it"));
        if id.class.masks_interrupts() {
            self.hw.borrow_mut().cpus[self.cpu()].masked -= 1;
        }
    }

    /// The executing context begins to wait for a lock. Gives what it waited for before, as an interrupt handler may
    /// wait on the stack of a context that does: for [`Inner::stops_wanting`].
    ///
    /// # Panics
    /// When the lock's holder waits, in turn, for a lock that this context holds.
    #[must_use = "the wait ends"]
    pub(crate) fn wants_lock(&self, lock: LockRef) -> Option<PendingLock> {
        let before = {
            let context = &mut self.contexts.borrow_mut()[self.context.get()];
            context.wants.replace(PendingLock { lock, held: context.held.len() })
        };
        if let Some(circle) = self.lock_circle(lock) {
            self.fail(RunError::LockDeadlock { circle, schedule: self.options.schedule });
        }
        before
    }

    pub(crate) fn stops_wanting(&self, before: Option<PendingLock>) {
        self.contexts.borrow_mut()[self.context.get()].wants = before;
    }

    /// The circle that the executing context closes by waiting for `wanted`, from that context on.
    fn lock_circle(&self, mut wanted: LockRef) -> Option<LockCircle> {
        let contexts = self.contexts.borrow();
        let first = self.context.get();
        // What each context waits for; what it holds is known from the one before.
        let mut circle: Vec<LockWait> = Vec::new();
        let mut waiter = first;
        // No context comes twice before the circle is closed.
        while circle.len() < contexts.len() {
            let holds = |c: usize| contexts[c].held.iter().position(|held| held.lock == wanted.lock);
            let (holder, index) = (0..contexts.len()).find_map(|c| Some((c, holds(c)?)))?;
            let held = &contexts[holder].held[index];
            let context = contexts[waiter].name.clone();
            circle.push(LockWait { context, holds: (held.id, held.at), wants: (wanted.id, wanted.at) });
            if holder == first {
                // Each was given what it waits for as what it holds: that is the next one's.
                let mut held: Vec<_> = circle.iter().map(|wait| wait.holds).collect();
                held.rotate_right(1);
                circle.iter_mut().zip(held).for_each(|(wait, holds)| wait.holds = holds);
                return Some(LockCircle(circle));
            }
            let next = contexts[holder].wants.filter(|wants| index < wants.held)?;
            (waiter, wanted) = (holder, next.lock);
        }
        None
    }
}
