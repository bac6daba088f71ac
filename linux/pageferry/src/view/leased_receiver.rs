//! Slots that the receiver has made and leases while a message is in them.
//!
//! # What it holds
//! [`LeasedPool`]: a memfd for each slot, each with a descriptor for reading that nobody else has, on which the lease
//! is taken. The peer has another one, also for reading; it opens a slot for writing by its name in /proc.
//!
//! # Why references hold
//! A lease is granted when no descriptor or mapping anywhere can write to the slot, so nobody writes to it by a store
//! or a call. While it is held, whoever opens the slot for writing breaks it: the open fails or waits until the kernel
//! takes the lease away, `fs.lease-break-time` (45 s) later. A thread looks several times in that time, and makes a
//! slot's pages this process's own when its lease is being broken, at their addresses: references stay good, and
//! writers may have the slot. A process that is stopped for that long does not look; so the peer must not be able to
//! stop it, which is why it is confined. Neither must it write to pages that it has pinned, of which no lease knows.
//!
//! # Locks
//! The table of leases has one. It is held while the kernel is asked for a lease, or makes a slot's pages this
//! process's own. The list of pools is locked only while no child can be made, since a child has no such thread.
//!
//! # What can fail
//! A slot whose lease was broken is never given back. Where there is no memory to save one, the process ends as it
//! does for any allocation that fails.

use super::{Geometry, Run, make_huge};
use crate::error::Error;
use crate::host::Host;
use crate::sys::map::{Prot, Region};
use crate::sys::{self, fork, lease, memfd, pages};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, SealFlags};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Slots of a leased pool, at most: each takes two descriptors while the channel is made, and one afterwards.
pub(crate) const MAX_LEASED_SLOTS: u32 = 256;

/// A writer that goes away by itself has so long: a child of the sender that has not called `exec` yet.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a slot is to its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Leased, and nobody was seen to break it; so often it could not be saved.
    Held {
        failures: u8,
    },
    /// The lease was broken; the view's pages are this process's own.
    Saved,
}

/// The slots, each with its descriptor and the state of its lease.
#[derive(Debug)]
pub(super) struct LeasedPool {
    fds: Vec<OwnedFd>,
    slot_bytes: usize,
    region: Arc<Region>,
    states: Mutex<Vec<State>>,
    broken: AtomicBool,
    generation: u32,
}

impl LeasedPool {
    /// Makes the slots, maps them for reading in the region, and has them watched; with a descriptor of each for the
    /// peer, and whether all have huge pages.
    pub(super) fn new(
        geometry: Geometry,
        region: &Arc<Region>,
        host: &Host,
    ) -> Result<(Arc<LeasedPool>, Vec<OwnedFd>, bool), Error> {
        let Geometry { slots, slot_bytes } = geometry;
        let (mut ours, mut theirs, mut huge) = (Vec::new(), Vec::new(), true);
        for slot in 0..slots {
            // A child that is made meanwhile would have a descriptor that can write.
            let made = fork::without_children(|| make_slot(slot_bytes, host))?;
            // SAFETY: the region is new.
            unsafe {
                let at = slot as usize * slot_bytes;
                region.map_private(at, slot_bytes, Prot::Read, made.ours.as_fd(), 0)?;
                region.touch(
                    at,
                    slot_bytes,
                    if made.huge { pages::MAX_SLOT_ALIGN } else { sys::page_bytes() },
                );
            }
            huge &= made.huge;
            ours.push(made.ours);
            theirs.push(made.theirs);
        }
        let pool = Arc::new(LeasedPool {
            fds: ours,
            slot_bytes,
            region: Arc::clone(region),
            states: Mutex::new(vec![State::Free; slots as usize]),
            broken: AtomicBool::new(false),
            generation: fork::generation(),
        });
        watch(&pool)?;
        Ok((pool, theirs, huge))
    }

    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the peer has tried to write to what it had lent.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Leases the slots of a message, all or none; whether nobody can write to them.
    pub(super) fn take(&self, run: &Run) -> Result<bool, Error> {
        let slots = run.first() as usize..(run.first() + run.slots()) as usize;
        let mut states = self.states();
        for slot in slots.clone() {
            let granted = if planted!(NoLease) { Ok(true) } else { take_patiently(&self.fds[slot]) };
            if let Ok(true) = granted {
                states[slot] = State::Held { failures: 0 };
                continue;
            }
            for before in slots.start..slot {
                lease::give_up(&self.fds[before]);
                states[before] = State::Free;
            }
            return Ok(granted?);
        }
        Ok(true)
    }

    /// Gives up the leases of a message; whether all of them were whole, so that the slots may go back to the peer.
    pub(super) fn give_up(&self, run: &Run) -> bool {
        let mut states = self.states();
        let mut whole = true;
        for slot in run.first() as usize..(run.first() + run.slots()) as usize {
            let intact =
                states[slot] != State::Saved && (planted!(NoLease) || lease::is_whole(&self.fds[slot]));
            if !intact && !planted!(NoLeaseCheck) {
                whole = false;
                self.broken.store(true, Ordering::Release);
            }
            lease::give_up(&self.fds[slot]);
            states[slot] = State::Free;
        }
        whole
    }

    /// Saves what lies in slots whose lease is being broken.
    fn look(&self) {
        if self.generation != fork::generation() {
            return;
        }
        let mut states = self.states();
        for (slot, state) in states.iter_mut().enumerate() {
            let State::Held { failures } = state else { continue };
            if lease::is_whole(&self.fds[slot]) || planted!(NoLease) {
                continue;
            }
            self.broken.store(true, Ordering::Release);
            match self.save(slot) {
                Ok(()) => {
                    lease::give_up(&self.fds[slot]);
                    *state = State::Saved;
                }
                // There is time for another look.
                Err(_) if *failures + 1 < LOOKS => *failures += 1,
                Err(_) => {
                    let layout = std::alloc::Layout::array::<u8>(self.slot_bytes);
                    std::alloc::handle_alloc_error(layout.unwrap_or(std::alloc::Layout::new::<u8>()))
                }
            }
        }
    }

    fn save(&self, slot: usize) -> Result<(), Error> {
        if planted!(NoSave) {
            return Ok(());
        }
        let at = slot * self.slot_bytes;
        // SAFETY: more is permitted than before; references into the slot find their bytes.
        unsafe { self.region.protect(at, self.slot_bytes, Prot::ReadWrite)? };
        Ok(self.region.make_own(at, self.slot_bytes)?)
    }
}

/// A slot that was made.
struct NewSlot {
    ours: OwnedFd,
    theirs: OwnedFd,
    huge: bool,
}

fn make_slot(len: usize, host: &Host) -> Result<NewSlot, Error> {
    let original = memfd::create("pageferry-slot", len)?;
    memfd::seal(&original, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let writable = memfd::reopen(original.as_fd(), OFlags::RDWR)?;
    // It can write, and the kernel does not count it as a writer.
    drop(original);
    let region = Region::reserve(len, host.slot_align().max(sys::page_bytes()))?;
    // SAFETY: the region is new. Its pages are made now, so that a limit of memory bites here.
    let huge = unsafe {
        region.map_shared(0, len, Prot::ReadWrite, writable.as_fd(), 0)?;
        make_huge(&region, host)
    };
    let ours = memfd::reopen(writable.as_fd(), OFlags::RDONLY)?;
    let theirs = memfd::reopen(writable.as_fd(), OFlags::RDONLY)?;
    Ok(NewSlot { ours, theirs, huge })
}

/// Takes a lease; whether it was granted within [`PATIENCE`].
fn take_patiently(fd: &OwnedFd) -> Result<bool, sys::Failed> {
    if lease::take(fd)? {
        return Ok(true);
    }
    let until = Instant::now() + PATIENCE;
    loop {
        std::thread::sleep(Duration::from_millis(1));
        match lease::take(fd)? {
            false if Instant::now() < until => (),
            granted => return Ok(granted),
        }
    }
}

/// Looks at each lease in the time that a break takes.
const LOOKS: u8 = 4;

/// The pools of this process, and the fork behind which the thread that looks at them was started.
static WATCHED: Mutex<WatchList> = Mutex::new(WatchList { pools: Vec::new(), thread_of: None });

struct WatchList {
    pools: Vec<Weak<LeasedPool>>,
    thread_of: Option<u32>,
}

fn watched<R>(change: impl FnOnce(&mut WatchList) -> R) -> R {
    fork::without_children(|| change(&mut WATCHED.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Has a pool looked at from now on.
fn watch(pool: &Arc<LeasedPool>) -> Result<(), Error> {
    watched(|watched| {
        watched.pools.retain(|pool| pool.strong_count() > 0);
        watched.pools.push(Arc::downgrade(pool));
        if watched.thread_of == Some(fork::generation()) {
            return Ok(());
        }
        sys::threads::start("pageferry-leases", run)?;
        watched.thread_of = Some(fork::generation());
        Ok(())
    })
}

fn run() {
    let min = lease::MIN_BREAK_SECONDS;
    let seconds = lease::break_seconds().unwrap_or(min).clamp(min, 60);
    let pause = Duration::from_secs(seconds) / (u32::from(LOOKS) + 1);
    loop {
        std::thread::sleep(pause);
        look_at_leases();
        let done = watched(|watched| {
            watched.pools.retain(|pool| pool.strong_count() > 0);
            let done = watched.pools.is_empty();
            if done {
                watched.thread_of = None;
            }
            done
        });
        if done {
            return;
        }
    }
}

/// Looks at all leases of this process now, as a thread does every few seconds.
pub fn look_at_leases() {
    let pools = watched(|watched| watched.pools.clone());
    pools.iter().filter_map(Weak::upgrade).for_each(|pool| pool.look());
}
