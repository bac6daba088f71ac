//! Choosing, for each call, between copying data and moving its pages.
//!
//! # The model
//! Each way has a cost ([`MoveCosts`]); the least wins. What a choice depends on is known when a call is made: its
//! length and alignment, what is at the other end, what is in the socket, and what became of this process's earlier
//! loans ([`LoanStats`]).
//!
//! * **Working set.** The cost of a copy depends on how much memory is used between two uses of the same. To the null
//!   protocol that is the buffer and one cluster, which is freed and used again. Between two processes it is the
//!   sender's buffer, the clusters, and the receiver's buffer. What is received from a loan was in no cluster: then it
//!   is two buffers. What a device has written is in no cache at all; what is sent to one is in as many clusters as it
//!   takes. A process that is known to write to its buffers has just had them in the cache.
//! * **Whole pages.** What is before the first whole page and behind the last is copied in any case.
//! * **Copy ratio.** The measured cost holds for memory that this CPU has used. A line that another CPU has written
//!   comes out of that CPU's cache; a page that was passed takes a fault, a page that was lent does not. So copies of
//!   whole pages are timed, and their ratio to the measured cost is kept, smoothed over the calls. Where pages are lent
//!   only because of the ratio, one is copied now and then.
//! * **Copy-on-write penalty.** A process that writes to a page that it has lent, or received as a loan, pays a fault,
//!   and a copy while the loan stands. Who owns the memory counts both ([`crate::Outcome`]); the smoothed cost of them
//!   for each page is added to the cost of lending. A process that is kept from lending by the penalty alone lends a
//!   page of its data now and then, so that a change in its behaviour is found.
//! * **Space.** No loan is longer than a socket has space for. Of what does not fit in a socket, each page takes a
//!   switch: the sender, or the receiver, sleeps until the other has dealt with one.
//! * **Passing** is for whole buffers, and the processes have to agree on it. A page that was passed and is never
//!   touched costs nothing to map and to unmap; the caller says which it is.
//! * **A request of a server** is for them, too, where there are servers that are processes ([`RequestCosts`]). It
//!   takes no message over a socket beside it; the others do.

use crate::{LoanStats, MoveCosts, PAGE_BYTES, RequestCosts, decide};
use core::ops::Range;

/// A page is lent as a probe when the loan costs no more than this part of the copies since the last probe.
const PROBE_PART: u64 = 32;

/// What a process does with buffers that it gets from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Arrived {
    /// It reads or writes all of them.
    Touched,
    /// It hands them on, or looks at a part.
    Untouched,
}

/// The other end: what gets the data that is sent, or has sent what is received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// The null protocol.
    Null,
    /// Another socket.
    Socket,
    /// A device, which leaves nothing in any cache.
    Device,
}

/// A call that sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// Where the data begins in memory; its place within a page counts.
    pub at: u64,
    /// Bytes of it.
    pub len: usize,
    /// What gets it.
    pub peer: Peer,
    /// What the socket has space for when it is empty, in bytes; a page at least.
    pub space: usize,
    /// The longest loan, in bytes; a page at least.
    pub max_loan: usize,
}

/// How whole buffers go to another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// Over a socket.
    Socket,
    /// By passing map entries: export and import.
    Pass,
    /// With a request of a server, or its answer: memory of the communication area, in which they are made and used.
    Server,
}

/// How a call's bytes are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The bytes whose whole pages are lent; the others are copied.
    pub lent: Range<usize>,
    /// True if it was chosen: then the pages lent are counted.
    pub is_chosen: bool,
    /// What copying a page should take, if that is to be watched.
    pub copy_page_cycles: Option<u64>,
}

impl Plan {
    /// What the caller asked for.
    pub fn fixed(lent: Range<usize>) -> Plan {
        Plan { lent, is_chosen: false, copy_page_cycles: None }
    }
}

/// The whole pages of a range: how many bytes are before them, and how many pages there are.
pub fn whole_pages(at: u64, len: usize) -> (usize, usize) {
    let before = (at.wrapping_neg() % PAGE_BYTES as u64) as usize;
    (before, len.saturating_sub(before) / PAGE_BYTES)
}

impl MoveCosts {
    /// Which bytes of a call are to be lent. What is known of the process is judged first, and changes with the choice.
    pub fn plan(&self, stats: &mut LoanStats, sending: Sending) -> Plan {
        let (before, pages) = whole_pages(sending.at, sending.len);
        let copied = sending.len..sending.len;
        if pages == 0 {
            return Plan::fixed(copied);
        }
        stats.judge_copies();
        let copying = |cycles: u64, copy_ratio: u32| {
            let ratio = if copy_ratio < LoanStats::SLOW { LoanStats::AS_MEASURED } else { copy_ratio };
            let cycles = cycles.saturating_mul(u64::from(ratio)) / u64::from(LoanStats::AS_MEASURED);
            self.cluster_cycles.saturating_add(cycles).saturating_mul(pages as u64)
        };
        let cold = self.copying(sending, false);
        let now = self.copying(sending, stats.is_warm(self.rewrite_cycles));
        let lend = self.lending(pages, sending);
        let with_penalty = lend.saturating_add(stats.cow_penalty_cycles.saturating_mul(pages as u64));
        let few = pages.min(0xffff) as u32;
        let lent = if lend >= copying(cold, stats.copy_ratio) {
            copied
        } else if with_penalty <= copying(now, stats.copy_ratio) {
            stats.trusted += if with_penalty > copying(now, LoanStats::AS_MEASURED) { few } else { 0 };
            let first = if stats.trusted >= stats.trust.max(1) { before + PAGE_BYTES } else { 0 };
            first.min(sending.len)..sending.len
        } else if u64::from(stats.copied).saturating_mul(copying(now, stats.copy_ratio))
            >= with_penalty.saturating_mul(PROBE_PART)
        {
            stats.copied = 0;
            before..before + PAGE_BYTES
        } else {
            stats.copied += few;
            copied
        };
        // Nothing is expected where the costs are unknown.
        Plan { lent, is_chosen: true, copy_page_cycles: (now > 0).then_some(now) }
    }

    /// Whether bytes of a file are to be lent to a socket with so much space: each page is a loan of its own. No
    /// process of which it is known writes to them, so there is no penalty.
    pub fn lends_file(&self, len: usize, space: usize) -> bool {
        let copy = self.copy_page_cycles(len.saturating_add(space));
        let copy = self.map_cycles.saturating_add(self.cluster_cycles).saturating_add(copy);
        decide([(false, copy), (true, self.lend.of(1))]).0
    }

    /// Whether `pages` of clusters are to be donated rather than copied, in a call of `len` bytes.
    pub fn donates(&self, pages: usize, len: usize, peer: Peer) -> bool {
        let working_set = match peer {
            Peer::Null => len.saturating_mul(2),
            Peer::Socket => len.saturating_mul(3),
            Peer::Device => usize::MAX,
        };
        let copy = self.cluster_cycles.saturating_add(self.copy_page_cycles(working_set));
        decide([(false, copy.saturating_mul(pages as u64)), (true, self.donate.of(pages))]).0
    }

    /// Whether `pages` on loan are to be lent on rather than copied, in a call of `len` bytes. `beside_cycles` is what
    /// copying a page takes beside the copy.
    pub fn lends_on(&self, stats: &LoanStats, pages: usize, len: usize, beside_cycles: u64) -> bool {
        let penalty = stats.cow_penalty_cycles.saturating_mul(pages as u64);
        let copy = self.copy_page_cycles(len.saturating_mul(2)).saturating_add(beside_cycles);
        let lend = self.lend_on.of(pages).saturating_add(penalty);
        decide([(false, copy.saturating_mul(pages as u64)), (true, lend)]).0
    }

    /// How a buffer of a call's length gets to another process at less cost, over a socket or passed; and what its part
    /// costs that is not the same for both.
    pub fn carrier(&self, stats: &LoanStats, sending: Sending, arrived: Arrived) -> (Carrier, u64) {
        let pages = sending.len.div_ceil(PAGE_BYTES);
        let all = |cycles: u64| cycles.saturating_mul(pages as u64);
        let warm = stats.is_warm(self.rewrite_cycles);
        let copy = all(self.cluster_cycles.saturating_add(self.copying(sending, warm)));
        let lend = self.lending(pages, sending).saturating_add(all(stats.cow_penalty_cycles));
        // The message with the number of the offer costs what the socket's first part costs beside its data.
        let over = sending.len.saturating_sub(sending.space).div_ceil(PAGE_BYTES);
        let waits = self.switch_cycles.saturating_mul(over as u64);
        let copied = copy.saturating_add(all(self.copy_page_cycles(sending.len.saturating_mul(3))));
        let lent = lend.saturating_add(all(self.copy_page_cycles(sending.len.saturating_mul(2))));
        let pass = match arrived {
            Arrived::Touched => self.pass_touched,
            Arrived::Untouched => self.pass,
        };
        let socket = copied.min(lent).saturating_add(waits);
        decide([(Carrier::Socket, socket), (Carrier::Pass, pass.of(pages))])
    }

    /// What copying a page of the call takes, without the cluster. `warm`: the process has just written it.
    fn copying(&self, sending: Sending, warm: bool) -> u64 {
        let len = sending.len;
        self.copy_page_cycles(match sending.peer {
            Peer::Null => len.saturating_add(PAGE_BYTES),
            Peer::Device => len.saturating_add(sending.space),
            Peer::Socket if warm => len.saturating_mul(2),
            Peer::Socket => len.saturating_mul(3),
        })
    }

    /// The cost of lending pages, without the copy-on-write penalty.
    fn lending(&self, pages: usize, sending: Sending) -> u64 {
        let loans = pages.div_ceil((sending.max_loan.min(sending.space) / PAGE_BYTES).max(1)) as u64;
        (self.lend.page_cycles.saturating_mul(pages as u64))
            .saturating_add(self.lend.call_cycles.saturating_mul(loans))
    }
}

impl RequestCosts {
    /// The same, where a server that is a process may be asked, too: `other` is the best of the others.
    pub fn carrier(&self, len: usize, other: (Carrier, u64)) -> Carrier {
        let pages = len.div_ceil(PAGE_BYTES);
        let other = (other.0, other.1.saturating_add(self.message_cycles));
        match pages <= self.max_pages {
            true => decide([other, (Carrier::Server, self.request.of(pages))]).0,
            false => other.0,
        }
    }
}
