//! Receive areas: memory of a process that a card fills, page by page, and that the process finds its data in where it
//! has arrived (Linux: io_uring's zero-copy receive).
//!
//! # What it holds
//! An area is wired for as long as it is one, and longer while anybody but the process has a page of it. Each page is
//! *free*, or *out*: a driver has given it to its card, an mbuf of a socket shows bytes in it, or the process has them.
//! A process that is done with bytes says so. When the last mbuf over a page is freed, it is free again.
//!
//! What the process has is kept as the mbufs that it got: so nothing counts references twice, and a process that gives
//! back what it does not have is told so.
//!
//! What comes in memory of the kernel's all the same is copied into a page of the area. A quarter of the pages is kept
//! for that: drivers get none when no more are free. So a process that gives back what it gets always gets more.
//!
//! Process and kernel tell each other of places in rings that they share. Those stay in the cache of whoever runs both,
//! and what writing and reading an entry takes is not told apart from what an mbuf takes.
//!
//! # Locks
//! One of class `Mbuf`, held for one step.
//!
//! # What can fail
//! Getting a page; giving back what the process does not have.

use super::lent::{External, Lent};
use super::mbuf::{Mbuf, Storage};
use super::pool::Pool;
use crate::defect::NetDefect;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_abi::{Errno, Placed};
use pageferry_defects::Planted;
use pageferry_hal::{LockClass, Machine, PAGE_SIZE, Pfn, SpinLock};
use pageferry_vm::{Vm, Wired};

/// Of how many pages of an area one is kept for what has to be copied; of fewer, one.
const ONE_KEPT_OF: usize = 4;

/// An area, by a number that no other one gets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AreaId(u32);

/// A page of an area, as what mbufs show. To be given back by [`Areas::returned`].
#[must_use = "a page of an area must go back to it"]
#[derive(Debug)]
pub struct AreaPage {
    pub(super) area: AreaId,
    page: u32,
    pub(super) frame: Pfn,
}

/// What a page is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AreaUse {
    /// A card receives into it.
    Card,
    /// The kernel copies into it.
    Copy,
}

/// All receive areas.
pub(super) struct Areas<M: Machine> {
    vm: Arc<Vm<M>>,
    defect: Planted<NetDefect>,
    state: M::Lock<State>,
}

#[derive(Default)]
struct State {
    last: u32,
    areas: LiteMap<AreaId, Area>,
}

struct Area {
    wired: Wired,
    /// Last in, first out: what is used next is in the process's TLB.
    free: Vec<u32>,
    /// What the process has, the oldest first.
    held: VecDeque<(Placed, Mbuf)>,
    is_closed: bool,
}

impl<M: Machine> Areas<M> {
    pub(super) fn new(vm: Arc<Vm<M>>, defect: Planted<NetDefect>) -> Areas<M> {
        let state = vm.machine().new_lock(LockClass::MBUF, State::default());
        Areas { vm, defect, state }
    }

    pub(super) fn open(&self, wired: Wired) -> AreaId {
        let mut state = self.state.lock();
        state.last += 1;
        let id = AreaId(state.last);
        let free = (0..wired.frames().len() as u32).rev().collect();
        let area = Area { wired, free, held: VecDeque::new(), is_closed: false };
        state.areas.insert(id, area);
        id
    }

    /// Free pages for that use, so many at most.
    pub(super) fn pages(&self, id: AreaId, wanted: AreaUse, max: usize) -> Vec<AreaPage> {
        let keeps = wanted == AreaUse::Card && !self.defect.is(NetDefect::AreaPagesAllOut);
        let mut state = self.state.lock();
        let Some(area) = state.areas.get_mut(&id).filter(|area| !area.is_closed) else { return Vec::new() };
        let kept = if keeps { area.wired.frames().len().div_ceil(ONE_KEPT_OF) } else { 0 };
        let count = max.min(area.free.len().saturating_sub(kept));
        let pages = area.free.drain(area.free.len() - count..).rev();
        pages.map(|page| AreaPage { area: id, page, frame: area.wired.frames()[page as usize] }).collect()
    }

    /// Nobody has these pages any more.
    pub(super) fn returned(&self, pages: impl IntoIterator<Item = AreaPage>) {
        let mut over = Vec::new();
        {
            let mut state = self.state.lock();
            for AreaPage { area: id, page, .. } in pages {
                let area = state.areas.get_mut(&id).expect("an area with pages out is there");
                area.free.push(page);
                over.extend(Self::take_if_over(&mut state, id));
            }
        }
        over.into_iter().for_each(|wired| self.vm.unwire(wired));
    }

    /// An area that is closed, and has all of its pages, is none any more.
    fn take_if_over(state: &mut State, id: AreaId) -> Option<Wired> {
        let area = state.areas.get(&id)?;
        let over = area.is_closed && area.free.len() == area.wired.frames().len();
        if over { state.areas.remove(&id).map(|area| area.wired) } else { None }
    }

    /// The process gets what these mbufs show of the area, and is told where. They come back only by a defect.
    pub(super) fn give(&self, id: AreaId, mbufs: Vec<Mbuf>) -> (Vec<Placed>, Vec<Mbuf>) {
        let place = |mbuf: &Mbuf| {
            let Storage::External(external) = &mbuf.storage else { panic!("no page of an area is given") };
            let page = external.area_page().filter(|page| page.area == id).expect("it is of that area");
            Placed { offset: page.page as usize * PAGE_SIZE + mbuf.offset, len_bytes: mbuf.len }
        };
        let placed: Vec<Placed> = mbufs.iter().map(place).collect();
        if self.defect.is(NetDefect::AreaPageReused) || mbufs.is_empty() {
            return (placed, mbufs);
        }
        let mut state = self.state.lock();
        let area = state.areas.get_mut(&id).expect("an area with pages out is there");
        area.held.extend(placed.iter().copied().zip(mbufs));
        (placed, Vec::new())
    }

    /// The process is done with what it was told to be at such places; the mbufs that it had them by.
    ///
    /// # Errors
    /// [`Errno::Invalid`] at the first that it does not have, beside those before.
    pub(super) fn take_back(&self, id: AreaId, places: &[Placed]) -> (Vec<Mbuf>, Result<(), Errno>) {
        let mut back = Vec::with_capacity(places.len());
        if places.is_empty() {
            return (back, Ok(()));
        }
        let mut state = self.state.lock();
        let Some(area) = state.areas.get_mut(&id) else { return (back, Err(Errno::Invalid)) };
        for wanted in places {
            let found = area.held.iter().position(|(placed, _)| placed == wanted);
            match found.and_then(|place| area.held.remove(place)) {
                Some((_, mbuf)) => back.push(mbuf),
                None if self.defect.is(NetDefect::AreaPageReused) => {}
                None => return (back, Err(Errno::Invalid)),
            }
        }
        (back, Ok(()))
    }

    /// No page goes out any more. What the process had, to be freed.
    pub(super) fn close(&self, id: AreaId) -> Vec<Mbuf> {
        let (held, over) = {
            let mut state = self.state.lock();
            let Some(area) = state.areas.get_mut(&id) else { return Vec::new() };
            area.is_closed = true;
            let held = core::mem::take(&mut area.held);
            (held, Self::take_if_over(&mut state, id))
        };
        over.into_iter().for_each(|wired| self.vm.unwire(wired));
        held.into_iter().map(|(_, mbuf)| mbuf).collect()
    }

    /// Areas that are left.
    pub(super) fn count(&self) -> usize {
        self.state.lock().areas.len()
    }
}

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
        let (placed, lost) = self.loans.areas.give(id, mbufs);
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
        let (back, result) = self.loans.areas.take_back(id, places);
        self.free_places(back);
        result
    }

    /// Ends an area. Its pages are unwired when nobody has one any more: a card may fill them yet.
    pub fn close_area(&self, id: AreaId) {
        self.free_places(self.loans.areas.close(id));
    }

    /// Areas that there are; for checks.
    pub fn areas(&self) -> usize {
        self.loans.areas.count()
    }
}
