//! Receive areas: memory of a process that a card fills, page by page, and that the process finds its data in where it
//! has arrived (Linux: io_uring's zero-copy receive).
//!
//! # What it holds
//! An area is wired for as long as it is one, and longer while anybody but the process has a page of it. Each page is
//! *free*, or *out*: a driver has given it to its card, an mbuf of a socket shows bytes in it, or the process has them.
//! A process that is done with bytes says so. When the last mbuf over a page is freed, it is free again.
//!
//! What comes in memory of the kernel's all the same is copied into a page of the area. A quarter of the pages is kept
//! for that: drivers get none when no more are free. So a process that gives back what it gets always gets more.
//!
//! # Locks
//! One of class `Mbuf`, held for one step.
//!
//! # What can fail
//! Getting a page.

use crate::defect::NetDefect;
use alloc::sync::Arc;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_defects::Planted;
use pageferry_hal::{LockClass, Machine, Pfn, SpinLock};
use pageferry_vm::{Vm, Wired};

/// Of how many pages of an area one is kept for what has to be copied; of fewer, one.
const ONE_KEPT_OF: usize = 4;

/// An area, by a number that no other one gets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AreaId(u32);

/// A page of an area, as what mbufs show. To be put into an mbuf, or given back by
/// [`Pool::return_area_pages`](super::Pool::return_area_pages).
#[must_use = "a page of an area must go back to it"]
#[derive(Debug)]
pub struct AreaPage {
    pub(super) area: AreaId,
    pub(super) page: u32,
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
        let area = Area { wired, free, is_closed: false };
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

    /// No page goes out any more.
    pub(super) fn close(&self, id: AreaId) {
        let over = {
            let mut state = self.state.lock();
            let Some(area) = state.areas.get_mut(&id) else { return };
            area.is_closed = true;
            Self::take_if_over(&mut state, id)
        };
        over.into_iter().for_each(|wired| self.vm.unwire(wired));
    }

    /// Areas that are left.
    pub(super) fn count(&self) -> usize {
        self.state.lock().areas.len()
    }
}
