//! What each CPU has loaded as its page table.
//!
//! Which CPUs an address space is active on is not stored with it, but derived from here. The state is a few atomics
//! for each CPU, written by that CPU alone (in a switch, or in the shootdown handler) and read by every flusher.
//!
//! A switch names the new address space in `loading` *before* it loads the root, and in `loaded` after it. A flusher
//! changes entries first and asks then; so a CPU that it does not find will load the root later, and its walks see the
//! changed entries. A CPU that it does find may just have left: then the invalidation is one too many, never one too
//! few.
//!
//! A switch to a kernel thread keeps the root (as FreeBSD 5 does on i386): the kernel's mappings are the same in all of
//! them, and the same process often comes back. Such a CPU is *lazy*. Where TLB entries carry no tags, it answers one
//! shootdown of user pages by loading the kernel's root (as NetBSD does); then it is in no flusher's way. Where they
//! do, it invalidates first. It must leave the address space before that is destroyed.
//!
//! Where entries carry tags, a CPU may hold translations of spaces that it left long ago: see `tlb::asid`.

use crate::defect::PmapDefect;
use crate::pmap::{Pmap, Pmaps};
use crate::tables::fixed;
use crate::tables::space::Shared;
use crate::tlb::active::Active;
use crate::tlb::asid::{Tagging, Tags};
use crate::tlb::recency::Recency;
use core::sync::atomic::Ordering::SeqCst;
use pageferry_hal::{Asid, BlockRegister, Context, CpuId, CpuSet, Flush, Machine, Mmu, SpaceId};

impl<M: Machine> Pmaps<M> {
    /// Called on each CPU once, before anything else runs there; loads the kernel's root. From here on the CPU must
    /// take [`pageferry_hal::Interrupt::Shootdown`].
    pub fn init_cpu(&self) {
        let me = self.active_here();
        assert!(!me.started.load(SeqCst), "{:?} was initialised before", self.machine.cpu());
        self.load(me, None);
        self.reserve_entries();
        for (register, block) in self.kernel.blocks.iter().enumerate() {
            self.machine.block_set(BlockRegister::Data(register), Some(*block));
            if self.machine.board().blocks.is_some_and(|blocks| blocks.instruction_count > 0) {
                self.machine.block_set(BlockRegister::Instruction(register), Some(*block));
            }
        }
        for (register, block) in (self.kernel.blocks.len()..).zip(&self.kernel.device_blocks) {
            self.machine.block_set(BlockRegister::Data(register), Some(*block));
        }
        // Only now: a handler touches kernel memory. Before, there was nothing in the TLB to invalidate.
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
        let _ipi = self.ipi_lock();
        let me = self.active_here();
        assert!(me.lazy.load(SeqCst), "{:?} retires while a process runs on it", self.machine.cpu());
        assert!(me.started.swap(false, SeqCst), "{:?} was not initialised", self.machine.cpu());
        self.load(me, None);
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
        let me = self.active_here();
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
                    self.load(me, Some(&to.shared));
                }
                me.switching.store(false, SeqCst);
            }
        }
    }

    /// The CPUs that may have to invalidate translations of `space`. On the others nothing is left of it: what their
    /// tags would still lead to is put out of reach.
    pub(crate) fn active_cpus(&self, space: SpaceId, tags: Option<&Tags>) -> CpuSet {
        let ran_on = tags.map_or(CpuSet::EMPTY, Tags::ran_on);
        let mut set = CpuSet::EMPTY;
        for (i, active) in self.active.iter().enumerate() {
            let cpu = CpuId(i as u8);
            if !active.started.load(SeqCst) {
                continue;
            }
            if space == SpaceId::KERNEL || ran_on.contains(cpu) || active.holds(space) {
                set.insert(cpu);
            } else if let Some(tags) = tags {
                // A switch names the space first and asks for its tag then: one of us two sees the other.
                if !self.config.defect.is(PmapDefect::LeftCpusForgotten) {
                    tags.revoke(cpu);
                }
                if active.holds(space) {
                    set.insert(cpu);
                }
            }
        }
        set
    }

    /// Loads the own root again: this invalidates all that is not global, where entries carry no tags. In the middle of
    /// a switch whose tag is not known yet, the kernel's: that switch has its own root to load.
    fn reload_root(&self, me: CpuId) {
        let (space, root, asid) = self.active[me.index()].context();
        let context = match asid {
            Active::NO_TAG => self.kernel_context(),
            asid => Context { space, root, asid, keep: false },
        };
        self.machine.activate(context);
    }

    /// Invalidates in the own TLB what it holds of a whole address space. `asid` is its tag where that is the same on
    /// all CPUs.
    pub(crate) fn flush_space(&self, me: CpuId, space: SpaceId, asid: Option<Asid>) {
        match self.tagging {
            Tagging::None => self.reload_root(me),
            Tagging::Shared => self.flush_own(Flush::Context(asid.expect("a shared tag is known"))),
            Tagging::PerCpu => match self.tag_here(me, space) {
                Some(asid) => self.flush_own(Flush::Context(asid)),
                None => self.flush_own(Flush::All),
            },
        }
    }

    /// The tag by which the own TLB holds entries of `space`, where each CPU gives its own; `None` in the middle of a
    /// switch to it or from it.
    pub(crate) fn tag_here(&self, me: CpuId, space: SpaceId) -> Option<Asid> {
        let active = &self.active[me.index()];
        active.is_on(space).then(|| active.context().2).filter(|asid| *asid != Active::NO_TAG)
    }

    /// The space has another tag: makes the executing CPU translate by it, if it runs on the space. On a uniprocessor.
    pub(crate) fn reload_tag(&self, shared: &Shared<M>) {
        let me = self.active_here();
        if me.is_on(shared.id) {
            self.load(me, Some(shared));
        }
    }

    /// Leaves `space` if this CPU runs on it lazily. May interrupt a switch to another one.
    pub(crate) fn leave(&self, me: CpuId, space: SpaceId) {
        let cpu = &self.active[me.index()];
        if cpu.loaded.load(SeqCst) != space.0 {
            return;
        }
        if cpu.loading.load(SeqCst) == space.0 && cpu.switching.load(SeqCst) {
            // The switch that was interrupted has not named its address space yet: it will, and load its root.
            self.machine.activate(self.kernel_context());
            cpu.loaded.store(SpaceId::KERNEL.0, SeqCst);
        } else if cpu.loading.load(SeqCst) == space.0 {
            assert!(cpu.lazy.load(SeqCst), "{me:?} runs a process whose address space is destroyed");
            self.load(cpu, None);
        } else {
            // The switch that was interrupted will load this root too, and then say so.
            self.reload_root(me);
        }
    }

    /// Leaves the address space that this CPU runs on lazily, if it does. For the shootdown handler. True when all
    /// translations of user pages went with that; where entries carry tags they stay, but the next flusher can put them
    /// out of reach.
    pub(crate) fn leave_lazily(&self, me: CpuId) -> bool {
        let cpu = &self.active[me.index()];
        let lazy = cpu.lazy.load(SeqCst);
        if lazy && cpu.loaded.load(SeqCst) != SpaceId::KERNEL.0 {
            self.load(cpu, None);
        }
        lazy && self.tagging == Tagging::None
    }

    fn kernel_context(&self) -> Context {
        Context { space: SpaceId::KERNEL, root: self.kernel.root, asid: Asid::KERNEL, keep: false }
    }

    /// Makes `to`, or the kernel alone, what this CPU translates by.
    fn load(&self, cpu: &Active, to: Option<&Shared<M>>) {
        let (space, root) = to.map_or((SpaceId::KERNEL, self.kernel.root), |to| (to.id, to.root));
        cpu.root.store(root.0, SeqCst);
        if self.tagging == Tagging::PerCpu && matches!(self.machine.board().mmu, Mmu::Radix(_)) {
            // An interrupt that reloads the root must not do so by the tag of the space before: hardware may fill the
            // TLB at any time.
            cpu.asid.store(Active::NO_TAG.0, SeqCst);
        }
        cpu.loading.store(space.0, SeqCst);
        let tags = to.and_then(|to| to.tags.as_deref());
        let (m, defect) = (&self.machine, self.config.defect);
        let before = cpu.numbers.generation();
        let (asid, keep) =
            tags.map_or((Asid::KERNEL, false), |tags| tags.number(m, m.cpu(), &cpu.numbers, defect));
        if cpu.numbers.generation() != before {
            self.forget_loaded(Flush::All);
            self.recency.get(m.cpu().index()).into_iter().for_each(Recency::forget);
            self.clear_reserved();
        }
        cpu.asid.store(asid.0, SeqCst);
        self.load_block(cpu, to.map_or(0, |to| to.block.load(SeqCst)));
        self.machine.activate(Context { space, root, asid, keep });
        to.into_iter().for_each(|to| self.rewire(to, asid));
        cpu.loaded.store(space.0, SeqCst);
    }

    /// Sets the block register that is for processes, if it holds another block.
    fn load_block(&self, cpu: &Active, block: u64) {
        let stays = self.config.defect.is(PmapDefect::BlockStays) && block == 0;
        if !stays && cpu.block.swap(block, SeqCst) != block {
            let register = self.machine.board().blocks.map_or(0, |blocks| blocks.count - 1);
            self.machine.block_set(BlockRegister::Data(register), fixed::unpack(block));
        }
    }

    /// Gives the space a block of its own, or takes it away; at once where it runs. No other CPU runs it.
    pub(crate) fn set_block(&self, shared: &Shared<M>, block: u64) {
        shared.block.store(block, SeqCst);
        let me = self.active_here();
        if me.is_on(shared.id) {
            self.load_block(me, block);
        }
    }

    fn active_here(&self) -> &Active {
        &self.active[self.machine.cpu().index()]
    }
}
