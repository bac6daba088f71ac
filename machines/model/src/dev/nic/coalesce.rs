//! Segments of one flow, joined before the kernel sees them: receive side coalescing (Intel 82599 datasheet, 7.11),
//! which Linux calls HW-GRO; and buckets of whole pages for a flow, as the page-flip paper wishes for under "Future
//! directions".
//!
//! A *bucket* is the buffers of one frame, taken for a flow of TCP. What its segments carry goes into these one behind
//! the other, whatever the size of a frame is, and over it all is put one header: the first segment's, with the length
//! of all. A bucket that is full is done, and the rest of a segment begins the next, behind a header of its own. So
//! between two pauses of a flow every page is filled from its first byte to its last.
//!
//! Joined is only what says the same but for where in the stream it is: the same acknowledgement, window and options,
//! no flag but ACK and PSH, right sums, and the next sequence number. Anything else of the flow ends its bucket first,
//! so nothing overtakes. PSH ends one, too; and all are done before the card interrupts, because a kernel that is told
//! looks.
//!
//! The sum of TCP in a header over several segments is the first's: a kernel has the card's word for all of them.

use super::frame::{Headers, Segment};
use super::ring::RingItem;
use crate::outside::dma::Dma;
use pageferry_hal::{NicArrival, NicReceive, NicRing, NicVerdict, PAGE_SIZE};
use std::collections::VecDeque;

/// Flows that have a bucket at a time: contexts of the 82599.
const MAX_BUCKETS: usize = 32;

/// What is done: buffers of a ring that go to the kernel, and what is in them.
pub(super) struct Filled {
    pub(super) ring: NicRing,
    pub(super) item: RingItem<NicReceive>,
    pub(super) arrival: NicArrival,
}

/// The buckets that are open.
pub(super) struct Coalescing {
    /// The most that a bucket holds: whole pages.
    max_bytes: usize,
    /// The oldest first.
    buckets: VecDeque<Bucket>,
}

struct Bucket {
    ring: NicRing,
    item: RingItem<NicReceive>,
    flow: [u8; 12],
    /// That of its first segment.
    header: Vec<u8>,
    next_seq: u32,
    filled: usize,
    /// Where it is full.
    room: usize,
}

impl Coalescing {
    pub(super) fn new(max_bytes: usize) -> Coalescing {
        Coalescing { max_bytes, buckets: VecDeque::new() }
    }

    /// Something waits in a bucket.
    pub(super) fn is_open(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Ends the bucket of the flow that `frame` belongs to, if it has one.
    pub(super) fn end_of(&mut self, headers: &Headers, frame: &[u8], dma: &mut Dma<'_>) -> Option<Filled> {
        let flow = headers.flow(frame)?;
        let place = self.buckets.iter().position(|bucket| bucket.flow == flow)?;
        self.buckets.remove(place).map(|bucket| bucket.end(false, dma))
    }

    /// Ends all of them, the oldest first.
    pub(super) fn end_all(&mut self, dma: &mut Dma<'_>) -> Vec<Filled> {
        self.buckets.drain(..).map(|bucket| bucket.end(false, dma)).collect()
    }

    /// Gives up those of a ring: their buffers, the oldest first.
    pub(super) fn give_up(&mut self, ring: NicRing) -> Vec<RingItem<NicReceive>> {
        let (given, kept): (VecDeque<_>, _) = self.buckets.drain(..).partition(|bucket| bucket.ring == ring);
        self.buckets = kept;
        given.into_iter().map(|bucket| bucket.item).collect()
    }

    /// Puts a segment into buckets, for which `take` gives buffers; what is done by that. False when there were no
    /// buffers for all of it, and what is behind is lost.
    pub(super) fn join(
        &mut self,
        ring: NicRing,
        segment: &Segment<'_>,
        dma: &mut Dma<'_>,
        mut take: impl FnMut() -> Option<RingItem<NicReceive>>,
    ) -> (Vec<Filled>, bool) {
        let mut done = Vec::new();
        let place = self.buckets.iter().position(|bucket| bucket.flow == segment.flow);
        let mut open = place.and_then(|place| self.buckets.remove(place));
        if let Some(other) = open.take_if(|bucket| bucket.ring != ring || !bucket.continues_with(segment)) {
            done.push(other.end(false, dma));
        }
        let mut at = 0;
        while at < segment.data.len() {
            let mut bucket = match open.take() {
                Some(bucket) => bucket,
                None => match take() {
                    Some(item) => Bucket::new((ring, item), segment, at, self.max_bytes),
                    None => return (done, false),
                },
            };
            at += bucket.add(&segment.data[at..], dma);
            let is_last = at == segment.data.len();
            if bucket.filled == bucket.room || (is_last && segment.is_pushed()) {
                done.push(bucket.end(is_last && segment.is_pushed(), dma));
            } else {
                open = Some(bucket);
            }
        }
        if let Some(bucket) = open {
            if self.buckets.len() == MAX_BUCKETS {
                done.extend(self.buckets.pop_front().map(|oldest| oldest.end(false, dma)));
            }
            self.buckets.push_back(bucket);
        }
        (done, true)
    }

    /// Whether these buffers can be a bucket: headers have a place of their own, and data a page.
    pub(super) fn takes(buffer: &NicReceive, segment: &Segment<'_>) -> bool {
        let data: usize = buffer.data.iter().map(|f| f.len_bytes).sum();
        buffer.header.is_some_and(|header| header.len_bytes >= segment.header.len()) && data >= PAGE_SIZE
    }
}

impl Bucket {
    /// One that begins with the byte `at` of a segment's data.
    fn new(
        (ring, item): (NicRing, RingItem<NicReceive>),
        segment: &Segment<'_>,
        at: usize,
        max_bytes: usize,
    ) -> Bucket {
        let next_seq = segment.seq().wrapping_add(at as u32);
        let header = segment.header_at(next_seq);
        let data: usize = item.what.data.iter().map(|f| f.len_bytes).sum();
        let room = max_bytes.min(data / PAGE_SIZE * PAGE_SIZE);
        Bucket { ring, item, flow: segment.flow, header, next_seq, filled: 0, room }
    }

    fn continues_with(&self, segment: &Segment<'_>) -> bool {
        segment.seq() == self.next_seq && segment.says_the_same(&self.header)
    }

    /// Adds as much of `bytes` as there is room for; how much.
    fn add(&mut self, bytes: &[u8], dma: &mut Dma<'_>) -> usize {
        let len = bytes.len().min(self.room - self.filled);
        let mut rest = &bytes[..len];
        let mut before = 0;
        for f in &self.item.what.data {
            let begins = self.filled.saturating_sub(before).min(f.len_bytes);
            let (now, later) = rest.split_at(rest.len().min(f.len_bytes - begins));
            if !now.is_empty() {
                dma.write(f.frame.pa() + f.offset + begins, now);
                self.filled += now.len();
            }
            (rest, before) = (later, before + f.len_bytes);
        }
        self.next_seq = self.next_seq.wrapping_add(len as u32);
        len
    }

    /// Writes the header over all that is in it.
    fn end(mut self, is_pushed: bool, dma: &mut Dma<'_>) -> Filled {
        Segment::put_over(&mut self.header, self.filled, is_pushed);
        let place = self.item.what.header.expect("a bucket has a place for headers");
        dma.write(place.frame.pa() + place.offset, &self.header);
        let (header_bytes, data_bytes) = (self.header.len(), self.filled);
        let arrival = NicArrival { header_bytes, data_bytes, verdict: NicVerdict::Good };
        Filled { ring: self.ring, item: self.item, arrival }
    }
}
