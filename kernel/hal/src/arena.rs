//! Modelled addresses of kernel structures.
//!
//! Frames, anons, map entries and mappings are Rust values that live wherever the allocator put them. On a modelled
//! machine each of them *also* has an address in the kernel's permanently mapped arena, and code that reads or writes
//! the structure says so with [`crate::Account::touch`]: then it goes through the modelled TLB and caches, evicts data
//! and is evicted, as it would on hardware. On bare metal the structure is touched by being used, `touch` is empty, and
//! a [`StructVa`] is a number that no code reads.

use crate::addr::{PAGE_SIZE, Va};
use alloc::vec::Vec;

/// The modelled address of a kernel structure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StructVa(pub Va);

impl StructVa {
    /// The address of the element `index` of an array of `item_bytes` that starts here.
    pub fn element(self, index: usize, item_bytes: usize) -> StructVa {
        StructVa(self.0 + index * item_bytes)
    }
}

/// Hands out parts of the arena at boot; nothing is ever given back. Not locked: boot is single-threaded.
#[derive(Debug)]
pub struct StructArena {
    next: Va,
    end: Va,
}

/// The arena of this kernel is too small for what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the arena of kernel structures is full: {wanted_bytes} bytes for {what}, {left_bytes} left")]
pub struct ArenaFull {
    /// What the bytes were for.
    pub what: &'static str,
    /// Bytes asked for.
    pub wanted_bytes: usize,
    /// Bytes left.
    pub left_bytes: usize,
}

impl StructArena {
    /// An arena over `len_bytes` from `start`, which the pmap maps permanently at boot.
    pub fn new(start: Va, len_bytes: usize) -> StructArena {
        StructArena { next: start, end: start + len_bytes }
    }

    /// Bytes not yet handed out.
    pub fn left_bytes(&self) -> usize {
        self.end - self.next
    }

    /// An array of `count` structures of `item_bytes`, aligned to a cache line of 64 bytes.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn array(
        &mut self,
        what: &'static str,
        count: usize,
        item_bytes: usize,
    ) -> Result<StructVa, ArenaFull> {
        let bytes = (count * item_bytes).next_multiple_of(64);
        if bytes > self.left_bytes() {
            return Err(ArenaFull { what, wanted_bytes: bytes, left_bytes: self.left_bytes() });
        }
        let at = self.next;
        self.next = at + bytes;
        Ok(StructVa(at))
    }

    /// So many bytes whose physical address is a multiple of `align_bytes`, a power of two: the arena begins at
    /// physical address 0, and at an address that is such a multiple.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn aligned_array(
        &mut self,
        what: &'static str,
        len_bytes: usize,
        align_bytes: usize,
    ) -> Result<StructVa, ArenaFull> {
        let skew = self.next.0 as usize & (align_bytes - 1);
        self.array(what, (align_bytes - skew) % align_bytes, 1)?;
        self.array(what, len_bytes, 1)
    }

    /// A zone of up to `capacity` structures of `item_bytes`, page-aligned.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn zone(
        &mut self,
        what: &'static str,
        capacity: usize,
        item_bytes: usize,
    ) -> Result<Zone, ArenaFull> {
        let skew = self.next.offset();
        if skew != 0 && PAGE_SIZE - skew <= self.left_bytes() {
            self.next = self.next + (PAGE_SIZE - skew);
        }
        let base = self.array(what, capacity, item_bytes)?;
        Ok(Zone { base, item_bytes, capacity, used: 0, free: Vec::new() })
    }
}

/// A zone allocator of modelled addresses: last freed, first reused, as kernels do because it is warm. It belongs to
/// the owner of the structures, under the owner's lock.
#[derive(Debug)]
pub struct Zone {
    base: StructVa,
    item_bytes: usize,
    capacity: usize,
    used: usize,
    free: Vec<u32>,
}

impl Zone {
    /// The address of a new structure; `None` when the zone is full.
    pub fn alloc(&mut self) -> Option<StructVa> {
        let index = match self.free.pop() {
            Some(i) => i as usize,
            None if self.used < self.capacity => {
                self.used += 1;
                self.used - 1
            }
            None => return None,
        };
        Some(self.base.element(index, self.item_bytes))
    }

    /// Gives a structure's address back.
    ///
    /// # Panics
    /// When `at` is not an address of this zone.
    pub fn free(&mut self, at: StructVa) {
        let offset = at.0 - self.base.0;
        assert!(
            offset.is_multiple_of(self.item_bytes) && offset / self.item_bytes < self.used,
            "{at:?} is not of this zone"
        );
        self.free.push((offset / self.item_bytes) as u32);
    }

    /// Where the zone begins, and its bytes.
    pub fn span(&self) -> (StructVa, usize) {
        (self.base, self.capacity * self.item_bytes)
    }

    /// Structures now allocated.
    pub fn live(&self) -> usize {
        self.used - self.free.len()
    }

    /// Bytes of one structure.
    pub fn item_bytes(&self) -> usize {
        self.item_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_reuse_the_warm_one() {
        let mut arena = StructArena::new(Va(0x1000), 3 * PAGE_SIZE);
        arena.array("x", 1, 10).unwrap();
        let mut z = arena.zone("z", 2, 40).unwrap();
        let (a, b) = (z.alloc().unwrap(), z.alloc().unwrap());
        assert_eq!((a.0, b.0), (Va(0x2000), Va(0x2028)));
        assert_eq!(z.alloc(), None);
        z.free(a);
        assert_eq!(z.alloc(), Some(a));
        assert_eq!(z.live(), 2);
        assert!(arena.zone("big", 1000, 40).is_err());
    }
}
