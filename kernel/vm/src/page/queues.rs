//! The paging queues: frames that may be taken, on two lists (UVM paper, 3.1; the page daemon is `pdaemon`).
//!
//! New and used frames are *active*; those that are taken next are *inactive*. A frame is on one of the two exactly
//! when it is pageable: an anon or an object owns it, it has no wire, and it is not busy. So each change of owner,
//! wires or busy ends in [`FramesGuard::place`], which puts the frame where it belongs, and a frame that comes off a
//! queue needs no other test. Part of the table of frames, under its lock. Without a page daemon no queue is read, and
//! none is kept.

use super::frame::{FramesGuard, Queue};
use pageferry_hal::{IndexList, Links, Machine, Pfn};

impl<M: Machine> FramesGuard<'_, M> {
    /// Puts `frame` on a queue, or takes it off, as its state requires.
    pub(crate) fn place(&mut self, frame: Pfn) {
        self.tell_use(frame);
        if !self.keeps_queues() {
            return;
        }
        let f = self.get(frame);
        match (f.is_pageable(), f.queue) {
            (true, Queue::None) => self.append(frame, Queue::Active),
            (false, Queue::Active | Queue::Inactive) => self.unlink(frame),
            _ => {}
        }
    }

    /// Work on the frame begins or ends: while busy it is not taken. (The daemon removes the mappings of a frame in the
    /// step that makes it busy, so no wire can come through one; a frame that is being made may be wired as soon as it
    /// is mapped.)
    pub(crate) fn set_busy(&mut self, frame: Pfn, busy: bool) {
        let f = self.get_mut(frame);
        assert!(f.busy != busy, "{frame:?} is busy: {busy}, and was before");
        f.busy = busy;
        self.place(frame);
    }

    /// Moves a pageable frame to the end of `queue`; leaves others alone.
    pub(crate) fn move_to(&mut self, frame: Pfn, queue: Queue) {
        if self.get(frame).queue != Queue::None {
            self.unlink(frame);
            self.append(frame, queue);
        }
    }

    /// The first of `queue`, which becomes its last.
    pub(crate) fn rotate(&mut self, queue: Queue) -> Option<Pfn> {
        let first = Pfn(self.list(queue).0.first()?);
        self.move_to(first, queue);
        Some(first)
    }

    /// Lengths of the active and the inactive queue.
    pub(crate) fn queue_lens(&self) -> (usize, usize) {
        (self.table.active.len(), self.table.inactive.len())
    }

    fn append(&mut self, frame: Pfn, queue: Queue) {
        self.get_mut(frame).queue = queue;
        let (list, links) = self.list(queue);
        list.push_back(links, frame.0);
    }

    fn unlink(&mut self, frame: Pfn) {
        let queue = core::mem::take(&mut self.get_mut(frame).queue);
        let (list, links) = self.list(queue);
        list.remove(links, frame.0);
    }

    /// The list that is `queue`, and the links of all frames.
    fn list(&mut self, queue: Queue) -> (&mut IndexList, &mut [Links]) {
        let table = &mut *self.table;
        match queue {
            Queue::Active => (&mut table.active, &mut table.links),
            Queue::Inactive => (&mut table.inactive, &mut table.links),
            Queue::None => panic!("no queue has no ends"),
        }
    }

    /// Frames on `queue`, walked.
    ///
    /// # Panics
    /// When the queue is linked wrongly, or leads to a frame that is not on it.
    pub(crate) fn walk_queue(&mut self, queue: Queue) -> usize {
        let (list, links) = self.list(queue);
        let len = list.check(links).expect("a paging queue is one");
        let frames: alloc::vec::Vec<Pfn> = list.iter(links).map(Pfn).collect();
        for frame in frames {
            assert!(self.get(frame).queue == queue, "{frame:?} is on the {queue:?} queue");
        }
        len
    }
}
