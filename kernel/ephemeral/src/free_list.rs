//! The free list of addresses of FreeBSD 5.2 (`uipc_syscalls.c`, later `vm_machdep.c` of some machines: `sf_buf_init`,
//! `sf_buf_alloc`, `sf_buf_free`): what its sendfile had before there was a cache of mappings.
//!
//! # What it holds
//! A range of kernel addresses, taken at boot, and for each page of it a small structure in one list: the address that
//! was given back last is taken first. A structure in the list is in nobody's hands. Nothing is remembered of what an
//! address showed.
//!
//! # Locks
//! One, of class `Ephemeral`, around the list. A page is mapped with it held, as `sf_buf_alloc` called `pmap_qenter`,
//! and unmapped before it is taken. A thread that finds the list empty gives it up in its sleep.
//!
//! # What can fail
//! Only an allocation that may not wait.

use crate::config::{AllocError, ConfigError, Flags, KernelAddresses};
use crate::counter::EphemeralCounter;
use crate::defect::EphemeralDefect;
use alloc::vec::Vec;
use pageferry_defects::Planted;
use pageferry_hal::{
    Access, Cause, Channel, CodePath, LockClass, Machine, PAGE_SIZE, SpinLock, StructArena, StructVa,
    Threads, Va, VaRange,
};

/// `sizeof(struct sf_buf)` of FreeBSD 5.2 on i386: a link, a page, an address (`sys/sf_buf.h`).
const BUFFER_BYTES: usize = 12;

pub(crate) struct FreeList<M: Machine> {
    machine: M,
    first: Va,
    entries: usize,
    /// Where the structures are.
    buffers: StructVa,
    path: CodePath,
    state: M::Lock<State>,
}

/// What the lock protects.
struct State {
    free: Vec<VaRange>,
    /// Threads that sleep for an address, or were woken and have not looked yet.
    waiters: usize,
}

impl<M: Machine> FreeList<M> {
    pub(crate) fn new(
        machine: &M,
        entries: usize,
        path: CodePath,
        addresses: &dyn KernelAddresses,
        arena: &mut StructArena,
    ) -> Result<FreeList<M>, ConfigError> {
        if entries == 0 {
            return Err(ConfigError::NoEntries);
        }
        let buffers = arena.array("sf_bufs", entries, BUFFER_BYTES)?;
        let too_many = ConfigError::TooManyEntries { entries };
        entries.checked_mul(PAGE_SIZE).ok_or(too_many)?;
        let range = addresses.alloc(entries).ok_or(too_many)?;
        assert_eq!(range.len_pages(), entries, "the address allocator gave {range:?}");
        let free = range.pages().map(VaRange::page).collect();
        let state = machine.new_lock(LockClass::EPHEMERAL, State { free, waiters: 0 });
        Ok(FreeList { machine: machine.clone(), first: range.start(), entries, buffers, path, state })
    }

    /// Addresses there are.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiters
    }

    /// What a sleeper waits on.
    fn channel(&self) -> Channel {
        Channel(self.buffers.0.0)
    }

    /// The structure of an address, and the head of the list.
    fn touch(&self, range: VaRange, access: Access) {
        let buffer = (range.start() - self.first) / PAGE_SIZE;
        self.machine.touch(self.buffers.element(buffer, BUFFER_BYTES), BUFFER_BYTES, access);
    }

    /// Takes an address and has it mapped with the lock held.
    pub(crate) fn take(
        &self,
        threads: &dyn Threads,
        flags: Flags,
        planted: Planted<EphemeralDefect>,
        map: impl FnOnce(VaRange),
    ) -> Result<VaRange, AllocError> {
        let m = &self.machine;
        let mut state = self.state.lock();
        loop {
            let cause = m.scope(Cause::AddressAllocation);
            m.execute(self.path);
            if let Some(&range) = state.free.last() {
                if !planted.is(EphemeralDefect::AddressTwice) {
                    state.free.pop();
                }
                self.touch(range, Access::Write);
                drop(cause);
                map(range);
                self.pass_on(threads, &state);
                return Ok(range);
            }
            drop(cause);
            if flags.contains(Flags::NOWAIT) {
                return Err(AllocError::WouldBlock);
            }
            state.waiters += 1;
            m.count(EphemeralCounter::EphemeralSleeps, 1);
            let interruptible = flags.contains(Flags::INTERRUPTIBLE);
            let mut held = Some(state);
            let woken = threads.sleep(self.channel(), "sfbufa", interruptible, &mut || drop(held.take()));
            assert!(held.is_none(), "a sleep returned without releasing the lock of its caller");
            state = self.state.lock();
            state.waiters -= 1;
            if woken.is_err() {
                self.pass_on(threads, &state);
                return Err(AllocError::Interrupted);
            }
        }
    }

    /// Whoever was woken and leaves an address behind hands its wakeup to the next one, which would sleep beside it.
    fn pass_on(&self, threads: &dyn Threads, state: &State) {
        if state.waiters > 0 && !state.free.is_empty() {
            threads.wakeup_one(self.channel());
        }
    }

    /// Puts an address back; nothing is mapped there any more.
    pub(crate) fn give(&self, threads: &dyn Threads, range: VaRange) {
        let m = &self.machine;
        let mut state = self.state.lock();
        let _c = m.scope(Cause::AddressAllocation);
        m.execute(self.path);
        self.touch(range, Access::Write);
        state.free.push(range);
        if state.waiters > 0 {
            threads.wakeup_one(self.channel());
        }
    }
}
