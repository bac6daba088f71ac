//! Choosing, for each call, between copying data and moving its pages.
//!
//! # The model
//! Each way has a cost on this machine, which the kernel has measured (`measure`, into the table of `costs`); the least
//! wins. What a choice depends on is known when a call is made: its length and alignment, what is at the other end,
//! what is in the socket, and what became of this process's earlier loans (`loan_stats`).
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
//!   and a copy while the loan stands. The VM system counts both (`pageferry_vm::LoanHistory`); the smoothed cost of
//!   them for each page is added to the cost of lending. A process that is kept from lending by the penalty alone lends
//!   a page of its data now and then, so that a change in its behaviour is found.
//! * **Space.** No loan is longer than a socket has space for. Of what does not fit in a socket, each page takes a
//!   switch: the sender, or the receiver, sleeps until the other has dealt with one.
//! * **Passing** is for whole buffers, and the processes have to agree on it: `User::choose_carrier` answers what is
//!   cheaper. A page that was passed and is never touched costs nothing to map and to unmap; the caller says which it
//!   is.
//! * **A request of a server** is for them, too, where the kernel has servers that are processes:
//!   `User::choose_any_carrier`. It is measured between two processes, as is a message over a socket that has no data,
//!   which the others need (`requests`).
//!
//! # Locks, failures
//! None of its own, but the first choice measures, and sleeps for it (in a nonblocking call, too). An estimate that is
//! wrong costs time and nothing else: all ways carry the same bytes.

use super::costs::MoveCosts;
use super::loan_stats::LoanStats;
use crate::proc::Syscall;
use core::ops::Range;
use pageferry_hal::{Machine, PAGE_SIZE, Va};

/// A page is lent as a probe when the loan costs no more than this part of the copies since the last probe.
const PROBE_PART: u64 = 32;
/// A receiver's loans of which none was written to are judged when they are so many; a sender's, at its next call.
const PAGES_JUDGED: u32 = 32;

/// What a process does with buffers that it gets from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// It reads or writes all of them.
    Touched,
    /// It hands them on.
    Untouched,
}

/// The other end: what gets the data that is sent, or has sent what is received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// The null protocol.
    Null,
    /// Another socket.
    Socket,
    /// A device, which leaves nothing in any cache.
    Device,
}

/// A call that sends.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub(crate) from: Va,
    pub(crate) len: usize,
    pub(crate) peer: Peer,
    /// What the socket has space for when it is empty.
    pub(crate) space: usize,
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

/// The whole pages of a range: how many bytes are before them, and how many pages there are.
pub(crate) fn whole_pages(at: Va, len: usize) -> (usize, usize) {
    let before = at.0.wrapping_neg() as usize % PAGE_SIZE;
    (before, len.saturating_sub(before) / PAGE_SIZE)
}

/// How a call's bytes are sent.
pub(crate) struct Plan {
    /// The bytes whose whole pages are lent; the others are copied.
    pub(crate) lent: Range<usize>,
    /// True if the kernel chose: then the pages lent are counted.
    pub(crate) is_chosen: bool,
    /// What copying a page should take, if that is to be watched.
    pub(crate) copy_page_cycles: Option<u64>,
}

impl Plan {
    /// What the caller asked for.
    pub(crate) fn fixed(lent: Range<usize>) -> Plan {
        Plan { lent, is_chosen: false, copy_page_cycles: None }
    }
}

impl MoveCosts {
    /// What copying a page of the call takes, without the cluster. `warm`: the process has just written it.
    fn copying(&self, sending: Sending, warm: bool) -> u64 {
        self.copy_page_cycles(match sending.peer {
            Peer::Null => sending.len + PAGE_SIZE,
            Peer::Device => sending.len + sending.space,
            Peer::Socket if warm => 2 * sending.len,
            Peer::Socket => 3 * sending.len,
        })
    }

    /// The cost of lending pages, without the copy-on-write penalty.
    fn lending(&self, pages: usize, sending: Sending, loan_bytes: usize) -> u64 {
        let loans = pages.div_ceil(loan_bytes.min(sending.space) / PAGE_SIZE) as u64;
        self.lend.page_cycles * pages as u64 + self.lend.call_cycles * loans
    }
}

impl<M: Machine> Syscall<'_, M> {
    /// Which bytes of a call are to be lent.
    pub(crate) fn plan(&self, sending: Sending) -> Plan {
        let (before, pages) = whole_pages(sending.from, sending.len);
        let copied = sending.len..sending.len;
        if pages == 0 {
            return Plan::fixed(copied);
        }
        let costs = self.move_costs();
        let mut stats = self.judged_stats(costs, 1);
        stats.judge_copies();
        let copying = |cycles: u64, copy_ratio: u32| {
            let times =
                u64::from(if copy_ratio < LoanStats::SLOW { LoanStats::AS_MEASURED } else { copy_ratio });
            pages as u64 * (costs.cluster_cycles + cycles * times / u64::from(LoanStats::AS_MEASURED))
        };
        let (cold, now) =
            (costs.copying(sending, false), costs.copying(sending, stats.is_warm(costs.rewrite_cycles)));
        let lend = costs.lending(pages, sending, self.kernel.config.socket.loan_bytes);
        let with_penalty = lend + stats.cow_penalty_cycles * pages as u64;
        let few = pages.min(0xffff) as u32;
        let lent = if lend >= copying(cold, stats.copy_ratio) {
            copied
        } else if with_penalty <= copying(now, stats.copy_ratio) {
            stats.trusted += if with_penalty > copying(now, LoanStats::AS_MEASURED) { few } else { 0 };
            let first = if stats.trusted >= stats.trust.max(1) { before + PAGE_SIZE } else { 0 };
            first.min(sending.len)..sending.len
        } else if u64::from(stats.copied) * copying(now, stats.copy_ratio) >= PROBE_PART * with_penalty {
            stats.copied = 0;
            before..before + PAGE_SIZE
        } else {
            stats.copied += few;
            copied
        };
        self.loans.set(stats);
        let watched = self.machine().board().cpus > 1;
        // Nothing is expected where the costs are unknown.
        Plan { lent, is_chosen: true, copy_page_cycles: (watched && now > 0).then_some(now) }
    }

    /// Which of `len` bytes of a file are to be lent to a socket: each page is a loan of its own. No process of which
    /// it is known writes to them, so there is no penalty.
    pub(crate) fn plan_file(&self, len: usize) -> Plan {
        let costs = self.move_costs();
        let working_set = len + self.kernel.config.socket.high_water_bytes;
        let copy = costs.map_cycles + costs.cluster_cycles + costs.copy_page_cycles(working_set);
        match costs.lend.of(1) < copy {
            true => Plan::fixed(0..len),
            false => Plan::fixed(len..len),
        }
    }

    /// Pages were lent by choice: they are judged later.
    pub(crate) fn chosen_pages_lent(&self, pages: usize) {
        let stats = self.loans.get();
        self.loans.set(LoanStats { lent: stats.lent + pages as u32, ..stats });
    }

    /// A page was copied that should have taken `expected_cycles`.
    pub(crate) fn watched_copy(&self, expected_cycles: u64, cycles: u64) {
        self.loans.set(self.loans.get().timed(expected_cycles, cycles));
    }

    /// The statistics of this process, with what the VM system has counted since they were judged last. Pages that were
    /// lent are judged when some of them were written to, or when there are `enough` of them and none was.
    fn judged_stats(&self, costs: &MoveCosts, enough: u32) -> LoanStats {
        let history = self.space.loan_history();
        let mut stats = self.loans.get();
        if !history.is_clear() || stats.lent >= enough {
            let outcome = history.take();
            let rewritten = u64::from(outcome.refused_writes.min(stats.lent));
            let broken = u64::from(outcome.broken.min(stats.lent)).min(rewritten);
            let cost = (rewritten - broken) * costs.rewrite_cycles + broken * costs.break_cycles;
            if stats.lent > 0 {
                stats.cow_penalty_cycles = (stats.cow_penalty_cycles + cost / u64::from(stats.lent)) / 2;
                stats.lent = 0;
            }
        }
        stats
    }

    /// Whether `pages` of clusters are to be donated rather than copied, in a call of `len` bytes.
    pub(crate) fn chooses_donation(&self, pages: usize, len: usize, peer: Peer) -> bool {
        let costs = self.move_costs();
        let working_set = match peer {
            Peer::Null => 2 * len,
            Peer::Socket => 3 * len,
            Peer::Device => usize::MAX,
        };
        let copy = costs.cluster_cycles + costs.copy_page_cycles(working_set);
        costs.donate.of(pages) < pages as u64 * copy
    }

    /// Whether `pages` on loan are to be lent on rather than copied, in a call of `len` bytes.
    pub(crate) fn chooses_lending_on(&self, pages: usize, len: usize) -> bool {
        self.chooses_anons(pages, len, 0)
    }

    /// Whether `pages` of a file are to be lent rather than copied, in a call of `len` bytes.
    pub(crate) fn chooses_lending_file(&self, pages: usize, len: usize) -> bool {
        self.chooses_anons(pages, len, self.move_costs().map_cycles)
    }

    /// `beside_cycles` is what copying a page takes beside the copy.
    fn chooses_anons(&self, pages: usize, len: usize, beside_cycles: u64) -> bool {
        let costs = self.move_costs();
        let stats = self.judged_stats(costs, PAGES_JUDGED);
        let lends = costs.lend_on.of(pages) + stats.cow_penalty_cycles * (pages as u64)
            < pages as u64 * (costs.copy_page_cycles(2 * len) + beside_cycles);
        self.loans.set(stats);
        lends
    }

    /// How `len` bytes get to another process at less cost.
    pub(crate) fn choose_carrier(&self, len: usize, arrived: Arrived) -> Carrier {
        self.carrier(len, arrived).0
    }

    /// The same, where a server that is a process may be asked, too.
    pub(crate) fn choose_any_carrier(&self, len: usize, arrived: Arrived) -> Carrier {
        let (carrier, cycles) = self.carrier(len, arrived);
        let costs = self.request_costs();
        let pages = len.div_ceil(PAGE_SIZE);
        // A request takes no message over a socket beside it.
        let others = cycles.saturating_add(costs.message_cycles);
        if pages <= costs.most_pages && costs.request.of(pages) < others { Carrier::Server } else { carrier }
    }

    /// And what its part costs that is not the same for both.
    fn carrier(&self, len: usize, arrived: Arrived) -> (Carrier, u64) {
        // No buffer is larger than memory.
        let len = len.min(self.machine().board().frames * PAGE_SIZE);
        let pages = len.div_ceil(PAGE_SIZE);
        let costs = self.move_costs();
        let config = self.kernel.config.socket;
        let space = config.high_water_bytes;
        let sending = Sending { from: Va(0), len, peer: Peer::Socket, space };
        let stats = self.loans.get();
        let (penalty, warm) = (stats.cow_penalty_cycles, stats.is_warm(costs.rewrite_cycles));
        let copy = pages as u64 * (costs.cluster_cycles + costs.copying(sending, warm));
        let lend = costs.lending(pages, sending, config.loan_bytes) + penalty * pages as u64;
        // The message with the number of the offer costs what the socket's first part costs beside its data.
        let waits = costs.switch_cycles * len.saturating_sub(space).div_ceil(PAGE_SIZE) as u64;
        let copied = copy + pages as u64 * costs.copy_page_cycles(3 * len);
        let lent = lend + pages as u64 * costs.copy_page_cycles(2 * len);
        let pass = match arrived {
            Arrived::Touched => costs.pass_touched,
            Arrived::Untouched => costs.pass,
        };
        let (socket, pass) = (copied.min(lent) + waits, pass.of(pages));
        if pass < socket { (Carrier::Pass, pass) } else { (Carrier::Socket, socket) }
    }
}
