//! What processes have in their receive areas.
//!
//! # What it holds
//! For each area the mbufs that its process has got and not given back, each with the place that it was told. So the
//! mbufs are all that counts references to a page, and a process that gives back what it does not have is told so.
//!
//! Process and kernel tell each other of places in rings that they share. Those stay in the cache of whoever runs both,
//! and what writing and reading an entry takes is not told apart from what an mbuf takes.
//!
//! # Locks
//! One of class `Mbuf`, held for one step.
//!
//! # What can fail
//! Giving back what the process does not have.

use super::area::AreaId;
use super::mbuf::{Mbuf, Storage};
use crate::defect::NetDefect;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_abi::{Errno, Placed};
use pageferry_defects::Planted;
use pageferry_hal::{LockClass, Machine, PAGE_SIZE, SpinLock};

/// What processes have, the oldest first.
pub(super) struct Placements<M: Machine> {
    defect: Planted<NetDefect>,
    areas: M::Lock<LiteMap<AreaId, VecDeque<(Placed, Mbuf)>>>,
}

impl<M: Machine> Placements<M> {
    pub(super) fn new(machine: &M, defect: Planted<NetDefect>) -> Placements<M> {
        Placements { defect, areas: machine.new_lock(LockClass::MBUF, LiteMap::new()) }
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
        self.areas.lock().entry(id).or_default().extend(placed.iter().copied().zip(mbufs));
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
        let mut areas = self.areas.lock();
        let mut held = areas.get_mut(&id);
        for wanted in places {
            let found = held.as_mut().and_then(|held| {
                let place = held.iter().position(|(placed, _)| placed == wanted)?;
                held.remove(place)
            });
            match found {
                Some((_, mbuf)) => back.push(mbuf),
                None if self.defect.is(NetDefect::AreaPageReused) => {}
                None => return (back, Err(Errno::Invalid)),
            }
        }
        (back, Ok(()))
    }

    /// All that the process of an area has.
    pub(super) fn take_all(&self, id: AreaId) -> Vec<Mbuf> {
        let held = self.areas.lock().remove(&id).unwrap_or_default();
        held.into_iter().map(|(_, mbuf)| mbuf).collect()
    }
}
