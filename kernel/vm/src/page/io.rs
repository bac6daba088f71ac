//! Requests to the disk: handing them over, sleeping until they are done, waking the threads that wait.
//!
//! A request is made with no lock held and yields a [`Ticket`], which must be waited for. The disk's interrupt handler
//! may take no locks; so the kernel notes that it came, and calls [`crate::Vm::disk_interrupt`] from a place that may.
//! One leaf lock of class `KernelVa` guards the list of requests. What fails is the disk, and the caller learns it.

use super::heads::Heads;
use crate::config::PagingConfig;
use crate::counter::VmCounter;
use alloc::boxed::Box;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    BlockDevice, Channel, DeviceId, DiskError, DiskRequest, LockClass, Machine, Pfn, SpinLock, StructArena,
    Threads, Transfer,
};

/// Channels of requests, apart from all addresses of structures.
const CHANNELS: u64 = 1 << 62;
/// Where to wait for any request.
const ANY: Channel = Channel(CHANNELS - 1);

pub(crate) struct Io<M: Machine> {
    machine: M,
    disk: Option<Box<dyn BlockDevice>>,
    paging: Option<PagingConfig>,
    state: M::Lock<State>,
}

struct State {
    next_tag: u64,
    /// Requests under way, and those that are done and not yet waited for.
    requests: LiteMap<u64, Option<Result<(), DiskError>>>,
    any_wanted: bool,
    heads: Option<Heads>,
}

/// A request under way.
#[must_use = "a request to the disk must be waited for"]
pub(crate) struct Ticket(u64);

impl<M: Machine> Io<M> {
    pub(crate) fn new(
        machine: &M,
        disk: Option<Box<dyn BlockDevice>>,
        paging: Option<PagingConfig>,
        arena: &mut StructArena,
    ) -> Result<Io<M>, ArenaFull> {
        let heads = paging.and_then(|paging| paging.heads);
        let heads = heads.map(|heads| Heads::new(heads, arena)).transpose()?;
        let state = State { next_tag: 0, requests: LiteMap::new(), any_wanted: false, heads };
        let state = machine.new_lock(LockClass::KERNEL_VA, state);
        Ok(Io { machine: machine.clone(), disk, paging, state })
    }

    /// Blocks of the disk, of a page each; 0 without one.
    pub(crate) fn blocks(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.blocks())
    }

    /// The number by which the disk interrupts, if there is one.
    pub(crate) fn disk_id(&self) -> Option<DeviceId> {
        self.disk.as_ref().map(|disk| disk.id())
    }

    /// Requests that are not done, or not waited for.
    pub(crate) fn under_way(&self) -> usize {
        self.state.lock().requests.len()
    }

    /// Heads of buffers of requests that are not done.
    pub(crate) fn heads_in_use(&self) -> usize {
        self.state.lock().heads.as_ref().map_or(0, Heads::in_use)
    }

    /// Starts moving `frames` from or to consecutive blocks.
    pub(crate) fn start(&self, transfer: Transfer, block: u64, frames: Vec<Pfn>) -> Ticket {
        let m = &self.machine;
        if let Some(paging) = &self.paging {
            m.execute(paging.paths.io);
        }
        let counter = match transfer {
            Transfer::Read => VmCounter::PageIns,
            Transfer::Write => VmCounter::PageOuts,
        };
        m.count(counter, frames.len() as u64);
        m.count(VmCounter::DiskRequests, 1);
        let tag = {
            let mut state = self.state.lock();
            let tag = state.next_tag;
            state.next_tag += 1;
            state.requests.insert(tag, None);
            if let Some(heads) = &mut state.heads {
                heads.begin(m, tag, block, frames.len());
            }
            tag
        };
        let disk = self.disk.as_ref().expect("only a disk has blocks to move");
        disk.submit(DiskRequest { tag, transfer, block, frames });
        Ticket(tag)
    }

    /// Sleeps until a request is done. No spin lock may be held.
    pub(crate) fn finish(&self, t: &dyn Threads, ticket: Ticket) -> Result<(), DiskError> {
        loop {
            let mut state = self.state.lock();
            let result = state.requests[&ticket.0];
            if let Some(result) = result {
                state.requests.remove(&ticket.0);
                return result;
            }
            let mut held = Some(state);
            let slept = t.sleep(Channel(CHANNELS | ticket.0), "disk", false, &mut || drop(held.take()));
            assert!(slept.is_ok(), "this sleep is not interruptible");
        }
    }

    /// Sleeps until any request is done; answers at once, and no, if there is none under way.
    pub(crate) fn wait_for_any(&self, t: &dyn Threads) -> bool {
        let mut state = self.state.lock();
        if state.requests.values().all(Option::is_some) {
            return false;
        }
        state.any_wanted = true;
        let mut held = Some(state);
        let slept = t.sleep(ANY, "any disk request", false, &mut || drop(held.take()));
        assert!(slept.is_ok(), "this sleep is not interruptible");
        true
    }

    /// Takes the disk's answers and wakes the threads that wait for them.
    pub(crate) fn interrupt(&self, t: &dyn Threads) {
        while let Some(done) = self.disk.as_ref().and_then(|disk| disk.take_done()) {
            let any = {
                let mut state = self.state.lock();
                let request = state.requests.get_mut(&done.tag).expect("an answer to a request of ours");
                let before = request.replace(done.result);
                assert!(before.is_none(), "a request to the disk is done twice");
                if let Some(heads) = &mut state.heads {
                    heads.end(&self.machine, done.tag);
                }
                core::mem::take(&mut state.any_wanted)
            };
            t.wakeup(Channel(CHANNELS | done.tag));
            if any {
                t.wakeup(ANY);
            }
        }
    }
}
