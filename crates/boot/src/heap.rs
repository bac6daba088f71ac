//! The allocator: what the arena has behind the image, in blocks of powers of two.
//!
//! A freed block goes on the list of its size and is the first to be used again; blocks are never split or joined, and the
//! unused rest is cut from its start. So an allocation takes a few instructions, and what a load peak took stays with the
//! sizes that took it.
//!
//! One spin lock. Interrupt handlers do not allocate.

use crate::lock::Spin;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use pageferry_hal::SpinLock;
use pageferry_hal::isa::x86::AMD64_LAYOUT;

/// Blocks have at least room for a list link, and are aligned to their size up to a page.
const MIN_SHIFT: u32 = 4;
const MAX_ALIGN: usize = 4096;

struct State {
    next: usize,
    end: usize,
    /// For each power of two, the address of the first free block, or 0.
    free: [usize; 48],
}

struct Heap(Spin<State>);

#[global_allocator]
static HEAP: Heap = Heap(Spin::new(State { next: 0, end: 0, free: [0; 48] }));

unsafe extern "C" {
    /// Where the image ends, bss included: the linker defines it.
    static _end: u8;
}

/// Takes the memory from the end of the image to the end of the arena. Called once, first of all.
pub(crate) fn give_rest_of_arena(arena_bytes: usize) {
    let start = &raw const _end as usize;
    let end = AMD64_LAYOUT.kernel_base.0 as usize + arena_bytes;
    let mut state = HEAP.0.lock();
    assert!(state.end == 0, "the heap was given its memory before");
    assert!(start < end, "the image fills the arena");
    (state.next, state.end) = (start, end);
}

fn shift_of(layout: &Layout) -> u32 {
    layout.size().max(layout.align()).max(1 << MIN_SHIFT).next_power_of_two().trailing_zeros()
}

// SAFETY: blocks are disjoint: each is cut from `next..end` once, and is afterwards either with a caller or on exactly one
// free list, under the lock. A block of size 2^s holds any layout that `shift_of` sends to s, and is aligned to it as long
// as the alignment is no more than a page; other layouts are refused.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let shift = shift_of(&layout);
        if layout.align() > MAX_ALIGN || shift as usize >= 48 {
            return null_mut();
        }
        let mut state = self.0.lock();
        let first = state.free[shift as usize];
        if first != 0 {
            // SAFETY: a block on a free list is ours, at least 16 bytes, and holds the next one's address.
            state.free[shift as usize] = unsafe { *(first as *const usize) };
            return first as *mut u8;
        }
        let size = 1usize << shift;
        let start = state.next.next_multiple_of(size.min(MAX_ALIGN));
        match start.checked_add(size) {
            Some(end) if end <= state.end => {
                state.next = end;
                start as *mut u8
            }
            _ => null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let shift = shift_of(&layout) as usize;
        let mut state = self.0.lock();
        // SAFETY: the caller gives the block back, which is at least 16 bytes and aligned to 16.
        unsafe { *block.cast::<usize>() = state.free[shift] };
        state.free[shift] = block as usize;
    }
}
