//! Receive areas as sockets and drivers use them: pages of one in mbufs, and places that processes are told.
//!
//! # Who owns it
//! A driver that has taken pages out of an area, until it has put them into mbufs or given them back. Whoever has an
//! mbuf, its page. What a process has, the pool has for it.
//!
//! # Locks
//! Those of the areas and of what processes have, one after the other, each for one step.
//!
//! # What can fail
//! Getting pages and mbufs; giving back what a process does not have.

use super::area::{AreaId, AreaPage, AreaUse};
use super::lent::{External, Lent};
use super::mbuf::{Mbuf, Storage};
use super::pool::Pool;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, Placed};
use pageferry_hal::Machine;
use pageferry_vm::Wired;

impl<M: Machine> Pool<M> {
    /// Makes an area of memory that was wired to be written to.
    pub fn open_area(&self, wired: Wired) -> AreaId {
        self.loans.areas.open(wired)
    }

    /// Free pages of an area, so many at most. What is not used goes back by [`Pool::return_area_pages`].
    pub fn area_pages(&self, id: AreaId, wanted: AreaUse, max: usize) -> Vec<AreaPage> {
        self.loans.areas.pages(id, wanted, max)
    }

    /// Pages of areas that nobody has any more.
    pub fn return_area_pages(&self, pages: Vec<AreaPage>) {
        if !pages.is_empty() {
            self.loans.areas.returned(pages);
        }
    }

    /// An mbuf over a page of an area.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]; the page has gone back.
    pub fn over_area_page(&self, page: AreaPage) -> Result<Mbuf, Errno> {
        self.external(None, Lent::Area(page), None)
    }

    /// The area that an mbuf shows a page of, if it does.
    pub fn area_of(&self, mbuf: &Mbuf) -> Option<AreaId> {
        match &mbuf.storage {
            Storage::External(external) => external.area_page().map(|page| page.area),
            _ => None,
        }
    }

    /// The process that has an area gets what these mbufs show of it; where that is.
    ///
    /// # Panics
    /// When one shows something else.
    pub fn place(&self, id: AreaId, mbufs: Vec<Mbuf>) -> Vec<Placed> {
        let (placed, lost) = self.placements.give(id, mbufs);
        self.free_places(lost);
        placed
    }

    /// Frees mbufs over pages of an area. The area's lock is taken once.
    fn free_places(&self, mbufs: Vec<Mbuf>) {
        let mut pages = Vec::with_capacity(mbufs.len());
        for mut mbuf in mbufs {
            if let Storage::External(shared) = core::mem::replace(&mut mbuf.storage, Storage::Small) {
                pages.extend(Arc::into_inner(shared).and_then(External::into_area_page));
            }
            self.free(mbuf);
        }
        self.return_area_pages(pages);
    }

    /// The process is done with what it has at such places.
    ///
    /// # Errors
    /// [`Errno::Invalid`] at the first that it does not have; those before are given back.
    pub fn take_back_places(&self, id: AreaId, places: &[Placed]) -> Result<(), Errno> {
        let (back, result) = self.placements.take_back(id, places);
        self.free_places(back);
        result
    }

    /// Ends an area. Its pages are unwired when nobody has one any more: a card may fill them yet.
    pub fn close_area(&self, id: AreaId) {
        self.loans.areas.close(id);
        self.free_places(self.placements.take_all(id));
    }

    /// Areas that there are; for checks.
    pub fn areas(&self) -> usize {
        self.loans.areas.count()
    }
}
