//! Addresses of this machine alone: registers of devices, and kernel stacks with a page below that is not mapped.
//!
//! They lie in two places of the root that the kernel does not use, and `pmap` knows nothing of them: so what it maps
//! is the same, word for word, as on a modelled machine. [`link`] puts them into each root before that is used. The
//! tables below the roots are here, and are never taken down; an entry of them is written once.
//!
//! The stacks' lock is held while a stack is mapped. It is taken by no interrupt handler.

use crate::lock::Spin;
use alloc::alloc::{Layout, alloc_zeroed};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use pageferry_hal::isa::x86::{AMD64, AMD64_LAYOUT};
use pageferry_hal::{PAGE_SIZE, Pa, SpinLock, Va};

/// Where registers of devices appear.
const DEVICES: Va = Va(0xffff_fe80_0000_0000);
/// Where stacks do.
const STACKS: Va = Va(0xffff_fe00_0000_0000);

/// Nothing is ever here.
pub(crate) const UNMAPPED: Va = Va(0xffff_fd80_0000_0000);

/// Bytes of a stack.
pub(crate) const STACK_BYTES: usize = 64 << 10;
/// From one stack to the next: as much again is not mapped.
const STRIDE_BYTES: usize = 2 * STACK_BYTES;
/// As many as one table of the second level maps: 8192.
const MAX_STACKS: usize = (1 << 30) / STRIDE_BYTES;

/// Bits of an entry: present and writable; the same in all spaces; a superpage; past all caches.
const TABLE: u64 = 3;
const GLOBAL: u64 = 1 << 8;
const SUPERPAGE: u64 = 1 << 7;
const UNCACHED: u64 = 1 << 4 | 1 << 3;

#[repr(align(4096))]
struct Table([AtomicU64; 512]);

impl Table {
    const fn empty() -> Table {
        Table([const { AtomicU64::new(0) }; 512])
    }

    /// What an entry that leads to this table holds.
    fn entry(&'static self) -> u64 {
        physical(Va(self as *const Table as u64)).0 | TABLE
    }
}

// For each of the two: the tables of the third level and of the second. Stacks have tables of the first from the heap.
static DEVICE_TOP: Table = Table::empty();
static DEVICE_PAGES: Table = Table::empty();
static STACK_TOP: Table = Table::empty();
static STACK_TABLES: Table = Table::empty();

/// Where memory of the image and of the heap lies.
fn physical(at: Va) -> Pa {
    Pa(at.0 - AMD64_LAYOUT.kernel_base.0)
}

const fn index(at: Va, level: u32) -> usize {
    AMD64.index(at, level)
}

/// Gives a root these addresses, if it has not got them.
#[inline]
pub(crate) fn link(root: Pa) {
    let direct = AMD64_LAYOUT.direct_map.expect("amd64 has a direct map");
    // SAFETY: a root is a frame of page tables, which the direct map of the first tables and of all others maps, and
    // which is accessed as atomics.
    let entries = unsafe { &*((direct + root.0 as usize).0 as *const Table) };
    let stacks = &entries.0[index(STACKS, 3)];
    if stacks.load(Ordering::Relaxed) == 0 {
        stacks.store(STACK_TOP.entry(), Ordering::Relaxed);
        entries.0[index(DEVICES, 3)].store(DEVICE_TOP.entry(), Ordering::Release);
    }
}

/// Makes the two places: called once, with the first root, before anything else here.
pub(crate) fn init(root: Pa) {
    DEVICE_TOP.0[index(DEVICES, 2)].store(DEVICE_PAGES.entry(), Ordering::Relaxed);
    STACK_TOP.0[index(STACKS, 2)].store(STACK_TABLES.entry(), Ordering::Relaxed);
    link(root);
}

/// The address of registers at a physical address. Called while one CPU runs.
pub(crate) fn device(at: Pa) -> Va {
    let superpage = at.0 & !(AMD64.superpage_bytes() as u64 - 1);
    let entry = superpage | SUPERPAGE | UNCACHED | GLOBAL | TABLE;
    let same = |e: &AtomicU64| matches!(e.load(Ordering::Relaxed), old if old == 0 || old == entry);
    let slot = DEVICE_PAGES.0.iter().position(same).expect("fewer than 512 superpages of devices");
    DEVICE_PAGES.0[slot].store(entry, Ordering::Release);
    DEVICES + slot * AMD64.superpage_bytes() + (at.0 - superpage) as usize
}

struct Stacks {
    made: usize,
    free: Vec<Stack>,
}

static STACKS_MADE: Spin<Stacks> = Spin::new(Stacks { made: 0, free: Vec::new() });

/// A stack, whose memory is the owner's until it is [given back](Stack::give_back). Dropping it keeps the memory.
pub(crate) struct Stack {
    bottom: Va,
}

/// Zeroed memory in whole pages, for ever.
fn pages(len_bytes: usize) -> Pa {
    let layout = Layout::from_size_align(len_bytes, PAGE_SIZE).expect("a page is a power of two");
    // SAFETY: the length is not zero.
    let at = unsafe { alloc_zeroed(layout) };
    assert!(!at.is_null(), "no memory for a kernel stack");
    physical(Va(at as u64))
}

impl Stack {
    /// A stack that nobody uses.
    pub(crate) fn new() -> Stack {
        let mut stacks = STACKS_MADE.lock();
        if let Some(stack) = stacks.free.pop() {
            return stack;
        }
        let number = stacks.made;
        assert!(number < MAX_STACKS, "more than {MAX_STACKS} kernel stacks");
        stacks.made += 1;
        // What lies below is the guard.
        let bottom = STACKS + (number * STRIDE_BYTES + STRIDE_BYTES - STACK_BYTES);
        let memory = pages(STACK_BYTES);
        for offset in (0..STACK_BYTES).step_by(PAGE_SIZE) {
            let (at, frame) = (bottom + offset, memory.0 + offset as u64);
            let above = &STACK_TABLES.0[index(at, 1)];
            if above.load(Ordering::Relaxed) == 0 {
                above.store(pages(PAGE_SIZE).0 | TABLE, Ordering::Release);
            }
            let table = above.load(Ordering::Relaxed) & AMD64.frame_mask;
            let table = AMD64_LAYOUT.kernel_base + table as usize;
            // SAFETY: the frame was made a table above, lies in the heap, and is used as one only here.
            let table = unsafe { &*(table.0 as *const Table) };
            // Nothing was mapped there, so no TLB has anything to forget.
            table.0[index(at, 0)].store(frame | GLOBAL | TABLE, Ordering::Release);
        }
        Stack { bottom }
    }

    /// The address behind it.
    pub(crate) fn top(&self) -> Va {
        self.bottom + STACK_BYTES
    }

    /// Lets others use it. Whoever calls this is not on it.
    pub(crate) fn give_back(self) {
        STACKS_MADE.lock().free.push(self);
    }
}

/// True when an address lies between two stacks: what ran below the end of one.
pub(crate) fn is_guard(at: u64) -> bool {
    let within = at.wrapping_sub(STACKS.0);
    within < 1 << 30 && within % (STRIDE_BYTES as u64) < (STRIDE_BYTES - STACK_BYTES) as u64
}
