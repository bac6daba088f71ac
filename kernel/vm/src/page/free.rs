//! The lists of free frames, by colour: which frame is taken next, and where one comes that is given back.
//!
//! Part of the table of frames, under its lock. A list has the frames of one colour that were given back, and those
//! that were passed over before they were ever in use; behind it lie those of its colour that nobody has come to yet,
//! which are on no list, so that a large memory costs what is used of it. Nothing here can fail: that a frame is free
//! the caller has seen.

use super::frame::{Frame, Owner, Table};
use crate::config::{FreeLists, FreedTo};
use pageferry_hal::{IndexList, Links, Machine, Pfn};

impl<M: Machine> Table<M> {
    /// Frames that were never in use, and are on no list.
    pub(super) fn fresh_count(&self) -> usize {
        self.len - self.frames.len()
    }

    /// Frames that are free, in use before or never.
    pub(super) fn free_count(&self) -> usize {
        self.fresh_count() + self.free.iter().map(IndexList::len).sum::<usize>()
    }

    /// The first frame of this colour that is on no list yet, if there is one.
    fn fresh_of(&self, colour: usize) -> Option<usize> {
        let (known, colours) = (self.frames.len(), self.free.len());
        let ahead = (colours + colour - known % colours) % colours;
        Some(known + ahead).filter(|&frame| frame < self.len)
    }

    /// The colour of which a frame is taken: this one, or where it has none, the one furthest from it that has one, as
    /// FreeBSD looks for it (`_vm_pageq_find`).
    fn with_a_frame(&self, colour: usize) -> usize {
        let colours = self.free.len();
        let others = (1..=colours / 2).rev().flat_map(|i| [colour + i, colour + colours - i]);
        let mut all = core::iter::once(colour).chain(others.map(|other| other % colours));
        let has = |&colour: &usize| !self.free[colour].is_empty() || self.fresh_of(colour).is_some();
        all.find(has).expect("a frame is free")
    }

    /// Makes the frames before `end` known; those that are new are listed.
    pub(super) fn know(&mut self, end: usize, freed_to: FreedTo) {
        let Table { frames, links, free, .. } = self;
        let colours = free.len();
        for fresh in frames.len()..end {
            // There was room for all of them from the start.
            frames.push(Frame::new(Owner::Free, 0));
            links.push(Links::UNLINKED);
            let list = &mut free[fresh % colours];
            // Beside those that were never in use, whichever end they are taken from.
            match freed_to {
                FreedTo::Head => list.push_back(links, fresh as u32),
                FreedTo::Tail => list.push_front(links, fresh as u32),
            };
        }
    }

    /// Takes the first free frame of this colour, or of the next one in turn; one that is going to be `clear`, from
    /// where such are looked for. There is a free frame.
    pub(super) fn take_first(&mut self, lists: &FreeLists, colour: Option<u32>, clear: bool) -> Pfn {
        let colour = colour.unwrap_or_else(|| {
            self.next_colour = (self.next_colour + 1) % self.free.len() as u32;
            self.next_colour
        });
        let colour = self.with_a_frame(colour as usize);
        let from_tail = clear && lists.clear_from_tail;
        let fresh = self.fresh_of(colour);
        let Table { links, free, .. } = &mut *self;
        let list = &mut free[colour];
        // What was never used, and is on no list, is at the list's other end than what is freed.
        let listed = match (lists.freed_to, from_tail, fresh) {
            (FreedTo::Tail, false, Some(_)) | (FreedTo::Head, true, Some(_)) => None,
            (_, false, _) => list.pop_front(links),
            (_, true, _) => list.pop_back(links),
        };
        let frame = listed.map(|frame| frame as usize).unwrap_or_else(|| {
            let frame = fresh.expect("the colour has a frame");
            self.know(frame, lists.freed_to);
            self.frames.push(Frame::new(Owner::Free, 0));
            self.links.push(Links::UNLINKED);
            frame
        });
        Pfn(frame as u32)
    }

    /// Lists a frame that is given back.
    pub(super) fn list_free(&mut self, lists: &FreeLists, frame: Pfn) {
        let Table { links, free, .. } = self;
        let colours = free.len();
        let list = &mut free[frame.index() % colours];
        match lists.freed_to {
            FreedTo::Head => list.push_front(links, frame.0),
            FreedTo::Tail => list.push_back(links, frame.0),
        };
    }
}
