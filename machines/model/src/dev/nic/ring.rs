//! A ring of descriptors: where it lies, what was posted to it, and the answers.
//!
//! A descriptor is in use from the time that it is filled until the answer to what it is part of is taken. Its first
//! eight bytes are the address of a fragment; in the next four is the fragment's length, and once it is written back
//! [`DONE`] with that of the frame that has arrived. The last four are free.

use crate::outside::dma::Dma;
use pageferry_hal::{Fragment, NIC_DESCRIPTOR_BYTES, PAGE_SIZE, Pa};
use std::collections::VecDeque;

/// In the second word of a descriptor: the card has written it back.
const DONE: u32 = 1 << 31;

/// The descriptors of one frame, in order.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) addresses: Vec<Pa>,
}

impl Places {
    pub(super) fn of<P>(&self, what: P) -> RingItem<P> {
        RingItem { what, places: self.clone() }
    }

    /// Bytes of these descriptors.
    pub(super) fn bytes(&self) -> usize {
        self.addresses.len() * NIC_DESCRIPTOR_BYTES
    }

    /// The card writes that it is done with them.
    pub(super) fn write_back(&self, dma: &mut Dma<'_>, len_bytes: usize) {
        for &at in &self.addresses {
            dma.write(at + 8, &(DONE | len_bytes as u32).to_le_bytes());
        }
    }
}

/// What was posted, and where.
#[derive(Debug)]
pub(super) struct RingItem<P> {
    pub(super) what: P,
    pub(super) places: Places,
}

/// A ring of things posted, whose answers are `A`.
pub(super) struct Ring<P, A> {
    name: &'static str,
    at: Option<Pa>,
    slots: usize,
    /// Frames of memory.
    frames: usize,
    /// The next descriptor to be filled.
    next: usize,
    /// Descriptors in use.
    used: usize,
    /// Posted and not handed over.
    pub(super) posted: VecDeque<RingItem<P>>,
    /// Handed over, and not begun.
    pub(super) handed: VecDeque<RingItem<P>>,
    /// Answers that were not taken, and how many descriptors each frees.
    answers: VecDeque<(Vec<Pa>, A)>,
    /// What was posted, and whose answers were not taken.
    pub(super) unanswered: usize,
}

impl<P, A> Ring<P, A> {
    pub(super) fn new(name: &'static str, slots: usize, frames: usize) -> Ring<P, A> {
        Ring {
            name,
            at: None,
            slots,
            frames,
            next: 0,
            used: 0,
            posted: VecDeque::new(),
            handed: VecDeque::new(),
            answers: VecDeque::new(),
            unanswered: 0,
        }
    }

    pub(super) fn set(&mut self, at: Pa) {
        let (name, len) = (self.name, (self.slots * NIC_DESCRIPTOR_BYTES) as u64);
        let memory_bytes = (self.frames * PAGE_SIZE) as u64;
        assert!(self.at.is_none(), "the {name} ring is set once");
        assert!(at.0.is_multiple_of(NIC_DESCRIPTOR_BYTES as u64), "the {name} ring at {at:?} is not aligned");
        assert!(at.0.saturating_add(len) <= memory_bytes, "the {name} ring at {at:?} leaves memory");
        self.at = Some(at);
    }

    /// Its place is known.
    pub(super) fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Takes the next descriptors for these fragments.
    pub(super) fn fill<'a>(
        &mut self,
        fragments: impl ExactSizeIterator<Item = &'a Fragment>,
        tag: u64,
    ) -> Places {
        let name = self.name;
        let at = self.at.unwrap_or_else(|| panic!("something is posted before the {name} ring was set"));
        let free = self.slots - self.used;
        let wanted = fragments.len();
        assert!(
            wanted <= free,
            "{wanted} fragments are posted to the {name} ring, which has {free} slots free"
        );
        for f in fragments {
            assert!(
                f.frame.index() < self.frames,
                "{f:?}, posted to the {name} ring with tag {tag}, is in no memory"
            );
            assert!(
                f.len_bytes > 0 && f.offset <= PAGE_SIZE && f.len_bytes <= PAGE_SIZE - f.offset,
                "{f:?}, posted to the {name} ring with tag {tag}, is in no frame"
            );
        }
        let slot = |i: usize| at + (self.next + i) % self.slots * NIC_DESCRIPTOR_BYTES;
        let addresses = (0..wanted).map(slot).collect();
        self.next = (self.next + wanted) % self.slots;
        self.used += wanted;
        self.unanswered += 1;
        Places { addresses }
    }

    /// Descriptors that are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.slots - self.used
    }

    /// The card has all that was posted.
    pub(super) fn hand_over(&mut self) {
        self.handed.append(&mut self.posted);
    }

    pub(super) fn answer(&mut self, places: &Places, answer: A) {
        self.answers.push_back((places.addresses.clone(), answer));
    }

    /// Answers all that was not begun.
    pub(super) fn answer_rest(&mut self, answer: impl Fn(&P) -> A) {
        self.hand_over();
        for RingItem { what, places } in std::mem::take(&mut self.handed) {
            self.answer(&places, answer(&what));
        }
    }

    /// The oldest answer, and the descriptors that are looked at: its own, or the one that is written back next.
    pub(super) fn take(&mut self) -> (Vec<Pa>, Option<A>) {
        let Some((places, answer)) = self.answers.pop_front() else {
            return (self.oldest().into_iter().collect(), None);
        };
        self.used -= places.len();
        self.unanswered -= 1;
        (places, Some(answer))
    }

    /// The oldest descriptor in use.
    fn oldest(&self) -> Option<Pa> {
        let slot = (self.next + self.slots - self.used) % self.slots;
        self.at.filter(|_| self.used > 0).map(|at| at + slot * NIC_DESCRIPTOR_BYTES)
    }
}
