//! The paging queues: frames that may be taken, in two lines (UVM paper, 3.1; the page daemon is `daemon`).
//!
//! New and used frames are *active*; those that are asked next are *inactive*. A frame is on one of the two exactly when
//! it is pageable: an anon or an object owns it, nobody wires it, and nobody works on it (busy). So each change of owner,
//! wires or busy ends in [`FramesGuard::place`], which puts the frame where it belongs, and who takes a frame off a queue
//! has only to look. Part of the table of frames, under its lock. Without a page daemon nobody looks, and nothing is kept.

use super::frame::{Frame, FramesGuard, Owner};
use pageferry_hal::{Machine, Pfn};

/// The queue that a frame is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Queue {
    /// None of them.
    #[default]
    None,
    /// That of frames in use.
    Active,
    /// That of frames to be taken next, unless they are used before.
    Inactive,
}

/// A frame's place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub(crate) queue: Queue,
    prev: Option<Pfn>,
    next: Option<Pfn>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    head: Option<Pfn>,
    tail: Option<Pfn>,
    len: usize,
}

/// Both queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    active: Line,
    inactive: Line,
}

impl Queues {
    fn line(&mut self, queue: Queue) -> &mut Line {
        match queue {
            Queue::Active => &mut self.active,
            Queue::Inactive => &mut self.inactive,
            Queue::None => panic!("no queue has no ends"),
        }
    }

    /// Lengths of the active and the inactive queue.
    pub(crate) fn lens(&self) -> (usize, usize) {
        (self.active.len, self.inactive.len)
    }
}

impl<M: Machine> Frame<M> {
    /// True when the page daemon may take the frame.
    pub(crate) fn is_pageable(&self) -> bool {
        matches!(self.owner, Owner::Anon(_) | Owner::Object(..)) && self.wire_count == 0 && !self.busy
    }
}

impl<M: Machine> FramesGuard<'_, M> {
    /// Puts `frame` on a queue, or takes it off, as its state wants it.
    pub(crate) fn place(&mut self, frame: Pfn) {
        if !self.keeps_queues() {
            return;
        }
        let f = self.get(frame);
        match (f.is_pageable(), f.links.queue) {
            (true, Queue::None) => self.append(frame, Queue::Active),
            (false, Queue::Active | Queue::Inactive) => self.unlink(frame),
            _ => {}
        }
    }

    /// Somebody works on the frame, or no more: while busy it is not taken. (Who takes it has removed its mappings in the
    /// same step, so nobody finds it to wire it; a frame that is being made may be wired as soon as it is mapped.)
    pub(crate) fn set_busy(&mut self, frame: Pfn, busy: bool) {
        let f = self.get_mut(frame);
        assert!(f.busy != busy, "{frame:?} is busy: {busy}, and was before");
        f.busy = busy;
        self.place(frame);
    }

    /// Moves a pageable frame to the end of `queue`; leaves others alone.
    pub(crate) fn move_to(&mut self, frame: Pfn, queue: Queue) {
        if self.get(frame).links.queue != Queue::None {
            self.unlink(frame);
            self.append(frame, queue);
        }
    }

    /// The first of `queue`, which becomes its last.
    pub(crate) fn rotate(&mut self, queue: Queue) -> Option<Pfn> {
        let head = self.queues().line(queue).head?;
        self.move_to(head, queue);
        Some(head)
    }

    fn append(&mut self, frame: Pfn, queue: Queue) {
        let line = self.queues().line(queue);
        let before = line.tail.replace(frame);
        line.len += 1;
        match before {
            Some(before) => self.get_mut(before).links.next = Some(frame),
            None => self.queues().line(queue).head = Some(frame),
        }
        self.get_mut(frame).links = Links { queue, prev: before, next: None };
    }

    fn unlink(&mut self, frame: Pfn) {
        let Links { queue, prev, next } = core::mem::take(&mut self.get_mut(frame).links);
        match prev {
            Some(prev) => self.get_mut(prev).links.next = next,
            None => self.queues().line(queue).head = next,
        }
        match next {
            Some(next) => self.get_mut(next).links.prev = prev,
            None => self.queues().line(queue).tail = prev,
        }
        self.queues().line(queue).len -= 1;
    }

    /// Frames on `queue`, walked.
    ///
    /// # Panics
    /// When the queue is not the line that it should be.
    pub(crate) fn walk_queue(&mut self, queue: Queue) -> usize {
        let line = *self.queues().line(queue);
        let (mut len, mut before, mut at) = (0, None, line.head);
        while let Some(frame) = at {
            let links = self.get(frame).links;
            assert!(links.queue == queue && links.prev == before, "{frame:?} is linked wrongly: {links:?}");
            len += 1;
            assert!(len <= self.len(), "a paging queue is a circle");
            (before, at) = (at, links.next);
        }
        assert!(line.tail == before && line.len == len, "a paging queue ends or counts wrongly");
        len
    }
}
