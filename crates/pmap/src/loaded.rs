//! What each CPU has loaded as its page table.
//!
//! Which CPUs an address space is active on is not stored with it, but derived from here. The state is a few atomics
//! for each CPU, written by that CPU alone (in a switch, or in the shootdown handler) and read by whoever flushes.
//!
//! A switch names the new address space in `loading` *before* it loads the root, and in `loaded` after it. A flusher
//! changes entries first and asks then; so a CPU that it does not find will load the root later, and its walks see the
//! changed entries. A CPU that it does find may just have left: then the invalidation is one too many, never one too
//! few.
//!
//! A switch to a kernel thread keeps the root (as FreeBSD 5 does on i386): the kernel's mappings are the same in all of
//! them, and the same process often comes back. Such a CPU is *lazy*. It answers one shootdown of user pages, by loading
//! the kernel's root (as NetBSD does); then it is in nobody's way. It must be told to leave before the address space is
//! destroyed.

use crate::pmap::{Pmap, PmapId, Pmaps};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use pageferry_hal::{CpuId, CpuSet, Machine, Pa, SpinLock};

/// One CPU's page table. Alone in its cache line on real hardware.
#[repr(align(64))]
pub(crate) struct Loaded {
    /// True between `init_cpu` and `retire_cpu`.
    started: AtomicBool,
    /// A kernel thread runs on the address space of the last process.
    lazy: AtomicBool,
    /// A switch to a process is under way: it will load a root, unless the right one is loaded.
    switching: AtomicBool,
    /// The address space whose root is loaded, or about to be.
    loading: AtomicU32,
    /// The address space whose root was loaded last.
    loaded: AtomicU32,
    /// The root that goes with `loading`.
    root: AtomicU64,
}

impl Loaded {
    pub(crate) fn new(kernel_root: Pa) -> Loaded {
        Loaded {
            started: AtomicBool::new(false),
            lazy: AtomicBool::new(true),
            switching: AtomicBool::new(false),
            loading: AtomicU32::new(PmapId::KERNEL.0),
            loaded: AtomicU32::new(PmapId::KERNEL.0),
            root: AtomicU64::new(kernel_root.0),
        }
    }
    fn holds(&self, space: PmapId) -> bool {
        self.loading.load(SeqCst) == space.0 || self.loaded.load(SeqCst) == space.0
    }
}

impl<M: Machine> Pmaps<M> {
    /// Called on each CPU once, before anything else runs there; loads the kernel's root. From here on the CPU must
    /// take [`pageferry_hal::Interrupt::Shootdown`].
    pub fn init_cpu(&self) {
        let me = self.loaded_here();
        assert!(!me.started.load(SeqCst), "{:?} was initialised before", self.machine.cpu());
        self.load(me, PmapId::KERNEL, self.kernel.root);
        // Only now: a handler touches kernel memory. Before, there was nothing in the TLB to be told about.
        me.started.store(true, SeqCst);
    }

    /// Called on a CPU that is about to stop for good: no shootdown will wait for it any more.
    ///
    /// # Locks
    /// Takes the shootdown lock on a multiprocessor, so that no shootdown in flight counts on this CPU.
    ///
    /// # Panics
    /// When a process still runs here.
    pub fn retire_cpu(&self) {
        let _turn = self.shootdown_turn();
        let me = self.loaded_here();
        assert!(me.lazy.load(SeqCst), "{:?} retires while a process runs on it", self.machine.cpu());
        assert!(me.started.swap(false, SeqCst), "{:?} was not initialised", self.machine.cpu());
        self.load(me, PmapId::KERNEL, self.kernel.root);
    }

    /// Makes `to` (`None`: only the kernel) the executing CPU's address space, where `from` was; loads the root only if
    /// another is loaded. Accounted in the cause in force.
    ///
    /// # Locks
    /// Takes none. The caller is pinned or holds a spin lock.
    ///
    /// # Panics
    /// When `from` is not what this CPU runs on.
    pub fn activate(&self, from: Option<&Pmap<M>>, to: Option<&Pmap<M>>) {
        let me = self.loaded_here();
        assert!(me.started.load(SeqCst), "{:?} is not initialised", self.machine.cpu());
        if let Some(from) = from {
            let now = me.loading.load(SeqCst);
            assert_eq!(from.shared.id.0, now, "the address space to leave is not the one that is loaded");
        }
        match to {
            None => me.lazy.store(true, SeqCst),
            Some(to) => {
                me.switching.store(true, SeqCst);
                me.lazy.store(false, SeqCst);
                // Asked only now: while this CPU was lazy, a shootdown could make it leave.
                if to.shared.id.0 != me.loading.load(SeqCst) {
                    self.load(me, to.shared.id, to.shared.root);
                }
                me.switching.store(false, SeqCst);
            }
        }
    }

    /// The CPUs whose TLBs may hold translations of `space`.
    pub(crate) fn holders(&self, space: PmapId) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for (i, cpu) in self.loaded.iter().enumerate() {
            if cpu.started.load(SeqCst) && (space == PmapId::KERNEL || cpu.holds(space)) {
                set.insert(CpuId(i as u8));
            }
        }
        set
    }

    /// Loads the own root again: this invalidates all that is not global.
    pub(crate) fn reload_root(&self, me: CpuId) {
        self.machine.load_root(Pa(self.loaded[me.index()].root.load(SeqCst)));
    }

    /// Leaves `space` if this CPU runs on it lazily. May interrupt a switch to another one.
    pub(crate) fn leave(&self, me: CpuId, space: PmapId) {
        let cpu = &self.loaded[me.index()];
        if cpu.loaded.load(SeqCst) != space.0 {
            return;
        }
        if cpu.loading.load(SeqCst) == space.0 && cpu.switching.load(SeqCst) {
            // The switch that was interrupted has not named its address space yet: it will, and load its root.
            self.machine.load_root(self.kernel.root);
            cpu.loaded.store(PmapId::KERNEL.0, SeqCst);
        } else if cpu.loading.load(SeqCst) == space.0 {
            assert!(cpu.lazy.load(SeqCst), "{me:?} runs a process whose address space is destroyed");
            self.load(cpu, PmapId::KERNEL, self.kernel.root);
        } else {
            // The switch that was interrupted will load this root too, and then say so.
            self.reload_root(me);
        }
    }

    /// Leaves the address space that this CPU runs on lazily, and with it all translations of user pages; false if a process
    /// runs here. For the shootdown handler.
    pub(crate) fn leave_lazily(&self, me: CpuId) -> bool {
        let cpu = &self.loaded[me.index()];
        let lazy = cpu.lazy.load(SeqCst);
        if lazy && cpu.loaded.load(SeqCst) != PmapId::KERNEL.0 {
            self.load(cpu, PmapId::KERNEL, self.kernel.root);
        }
        lazy
    }

    fn load(&self, cpu: &Loaded, space: PmapId, root: Pa) {
        cpu.root.store(root.0, SeqCst);
        cpu.loading.store(space.0, SeqCst);
        self.machine.load_root(root);
        cpu.loaded.store(space.0, SeqCst);
    }

    fn loaded_here(&self) -> &Loaded {
        &self.loaded[self.machine.cpu().index()]
    }

    /// The right to shoot down; `None` on a uniprocessor, where there is nobody to exclude.
    pub(crate) fn shootdown_turn(&self) -> Option<<M::Lock<()> as SpinLock<()>>::Guard<'_>> {
        (self.loaded.len() > 1).then(|| self.shootdown.turn.lock())
    }
}
