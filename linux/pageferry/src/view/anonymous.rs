//! Memory of this process alone: what copies go to, and what a transfer leaves.
//!
//! # What it holds
//! [`Anonymous`]: a region of private pages, huge where the kernel gives them. [`Recycled`] keeps regions
//! that were dropped, up to a limit, since the first touch of fresh pages costs more than a copy.

use crate::error::Error;
use crate::sync::Mutex;
use crate::sys;
use crate::sys::map::{Prot, Region};
use crate::sys::pages::MAX_SLOT_ALIGN;
use core::mem::MaybeUninit;
use std::sync::{Arc, PoisonError, Weak};

/// Bytes of this process alone. Where they came from a [`Recycled`], they go back there.
#[derive(Debug)]
pub(crate) struct Anonymous {
    /// Taken out only by `drop`.
    region: Option<Region>,
    len: usize,
    home: Weak<Recycled>,
}

/// Regions to be used again.
#[derive(Debug)]
pub(crate) struct Recycled {
    regions: Mutex<Vec<Region>>,
    max_bytes: usize,
}

impl Recycled {
    /// Keeps at most `max_bytes`.
    pub(crate) fn new(max_bytes: usize) -> Arc<Recycled> {
        Arc::new(Recycled { regions: Mutex::new(Vec::new()), max_bytes })
    }

    /// Memory for `len` bytes, of unknown contents.
    pub(crate) fn take(self: &Arc<Recycled>, len: usize) -> Result<Anonymous, Error> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |region: &Region| region.len() >= len && region.len() / 4 <= len.max(64 << 10);
        let region = match regions.iter().rposition(fits) {
            Some(index) => regions.swap_remove(index),
            None => {
                drop(regions);
                Self::fresh(len)?
            }
        };
        Ok(Anonymous { region: Some(region), len, home: Arc::downgrade(self) })
    }

    /// Bytes that memory for `len` bytes takes at least.
    pub(crate) fn whole(len: usize) -> usize {
        len.max(1).checked_next_multiple_of(Self::align(len)).unwrap_or(usize::MAX)
    }

    fn align(len: usize) -> usize {
        let huge = MAX_SLOT_ALIGN;
        if len >= huge / 2 { huge } else { sys::page_bytes() }
    }

    /// Keeps nothing.
    pub(crate) fn clear(&self) {
        if let Ok(mut regions) = self.regions.try_lock() {
            regions.clear();
        }
    }

    fn fresh(len: usize) -> Result<Region, Error> {
        let (huge, align) = (MAX_SLOT_ALIGN, Self::align(len));
        let region = Region::reserve(Self::whole(len), align)?;
        // SAFETY: the region is new.
        unsafe { region.map_anonymous(0, region.len(), Prot::ReadWrite)? };
        if align == huge {
            region.want_huge(0, region.len());
        }
        Ok(region)
    }

    fn give(&self, region: Region) {
        // Where another thread has the lock the region is not kept: in a child of `fork`, that thread may not exist.
        let Ok(mut regions) = self.regions.try_lock() else { return };
        let kept: usize = regions.iter().map(Region::len).sum();
        if kept + region.len() <= self.max_bytes {
            regions.push(region);
        }
    }
}

impl Anonymous {
    fn region(&self) -> &Region {
        self.region.as_ref().expect("only drop takes it out")
    }

    /// Bytes that it takes.
    pub(crate) fn held(&self) -> u64 {
        self.region().len() as u64
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: private pages of this process, mapped for as long as the region lives, zero or stored by
        // this process; `&self` shares.
        unsafe { core::slice::from_raw_parts(self.region().at(0), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is alone.
        unsafe { core::slice::from_raw_parts_mut(self.region().at(0), self.len) }
    }

    /// To be overwritten.
    pub(crate) fn uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes = self.bytes_mut();
        // SAFETY: the same memory and length; what callers store there is bytes.
        unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        if let (Some(region), Some(home)) = (self.region.take(), self.home.upgrade()) {
            home.give(region);
        }
    }
}
