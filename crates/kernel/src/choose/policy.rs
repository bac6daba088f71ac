//! Choosing, for each call, between copying data and moving its pages.
//!
//! # The model
//! Each way has a cost on this machine, which the kernel has measured (see `measure`); the least wins. What a
//! choice depends on is known when a call is made: its length and alignment, whether somebody receives, what is in the
//! socket, and what became of this process's earlier loans.
//!
//! * **Working set.** A copy costs by how much memory is used between two uses of the same. To nobody that is the buffer and
//!   one cluster, which is freed and used again. Between two processes it is the sender's buffer, the clusters, and the
//!   receiver's buffer. What is received from a loan was in no cluster: then it is two buffers. What a device has written is
//!   in no cache at all; what is sent to one is in as many clusters as it takes. A process that is known to write to its
//!   buffers has just had them in the cache.
//! * **Whole pages.** What is before the first whole page and behind the last is copied in any case.
//! * **Dearness.** What was measured is true of memory that this CPU has used. A line that another one has written comes out
//!   of its cache; one that was passed takes a fault, which a loan does not. So copies of whole pages are timed, and a
//!   smoothed ratio to what was measured is kept.
//!   Where pages are lent only because of it, one is copied now and then.
//! * **Regret.** A process that writes to what it has lent, or to what it got by a loan, pays a fault for each page, and a
//!   copy while the loan stands. That is counted (`pageferry_vm::LoanHistory`); a smoothed cost of it for each such page is
//!   added to the cost of lending. A process that is kept from lending by that alone lends a page of its data now and then,
//!   so that a change of its ways is found.
//! * **Room.** No loan is longer than a socket has room for. Of what does not fit in a socket, each page takes two
//!   handovers: the sender sleeps until there is room for a page, and the receiver until there is one.
//! * **Passing** is for whole buffers, and the processes have to agree on it: [`crate::User::choose_carrier`] tells them
//!   what is cheaper. It is taken that who gets data uses it, so each page passed is touched once.
//!
//! # Locks, failures
//! None of its own, but whoever chooses first measures, and sleeps for it (a nonblocking call, too). An estimate that is
//! wrong costs time and nothing else: all ways carry the same bytes.

use super::costs::MoveCosts;
use crate::proc::Syscall;
use core::ops::Range;
use pageferry_hal::{Machine, PAGE_SIZE, Va};
use pageferry_vm::LoanHistory;

/// A page is lent to see what becomes of it when that costs no more than this part of the copies since the last.
const PROBE_PART: u64 = 32;
/// A receiver's pages of which none was written to are judged when they are so many; a sender's, when it sends again.
const PAGES_JUDGED: u32 = 32;
/// Pages that are lent because copies were dear for each that is copied to see whether they still are.
const PAGES_A_COPY: u32 = 256;

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
    /// What the socket has room for when it is empty.
    pub(crate) room: usize,
}

/// How whole buffers go to another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// Over a socket.
    Socket,
    /// By passing map entries: export and import.
    Pass,
}

/// What an address space's history keeps between calls.
#[derive(Clone, Copy)]
struct LoanStats {
    /// For each page lent; kept in units of 16 cycles.
    cow_penalty_cycles: u64,
    /// Pages lent whose fate is not known yet.
    lent: u32,
    /// Pages copied since the last probe, up to 65,535.
    copied: u32,
    /// What a copy takes, in sixteenths of what was measured for its working set.
    copy_ratio: u32,
    /// Pages lent only because copies are dear, since one was made; up to 65,535.
    trusted: u32,
}

impl LoanStats {
    /// The copy_ratio of what was measured.
    const AS_MEASURED: u32 = 16;
    /// From here on copies are dear. Below, the guess at the working set may be as wrong as that.
    const DEAR: u32 = 2 * LoanStats::AS_MEASURED;

    fn of(history: &LoanHistory) -> LoanStats {
        let [loans, copies, lent] = history.notes();
        LoanStats {
            cow_penalty_cycles: u64::from(loans >> 16) << 4,
            copied: loans & 0xffff,
            lent,
            copy_ratio: if copies & 255 == 0 { LoanStats::AS_MEASURED } else { copies & 255 },
            trusted: copies >> 16,
        }
    }

    fn keep(self, history: &LoanHistory) {
        let regret = (self.cow_penalty_cycles >> 4).min(0xffff) as u32;
        let copies = self.trusted.min(0xffff) << 16 | self.copy_ratio.clamp(1, 255);
        history.keep([regret << 16 | self.copied.min(0xffff), copies, self.lent]);
    }

    /// True for a process that has written to more than a quarter of what it lent: it has its data in the cache.
    fn is_warm(self, costs: &MoveCosts) -> bool {
        4 * self.cow_penalty_cycles > costs.rewrite_cycles
    }
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
    /// True if the kernel chose: then it keeps count of what is lent.
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
    fn copying(&self, call: Sending, warm: bool) -> u64 {
        self.copy_page_cycles(match call.peer {
            Peer::Null => call.len + PAGE_SIZE,
            Peer::Device => call.len + call.room,
            Peer::Socket if warm => 2 * call.len,
            Peer::Socket => 3 * call.len,
        })
    }

    /// The cost of lending pages, without regret.
    fn lending(&self, pages: usize, call: Sending, loan_bytes: usize) -> u64 {
        let loans = pages.div_ceil(loan_bytes.min(call.room) / PAGE_SIZE) as u64;
        self.lend.page_cycles * pages as u64 + self.lend.call_cycles * loans
    }
}

impl<M: Machine> Syscall<'_, M> {
    /// Which bytes of a call are to be lent.
    pub(crate) fn plan(&self, call: Sending) -> Plan {
        let (before, pages) = whole_pages(call.from, call.len);
        let copied = call.len..call.len;
        if pages == 0 {
            return Plan::fixed(copied);
        }
        let costs = self.move_costs();
        let mut note = self.looked_at(costs, 1);
        let copying = |cycles: u64, copy_ratio: u32| {
            let times =
                u64::from(if copy_ratio < LoanStats::DEAR { LoanStats::AS_MEASURED } else { copy_ratio });
            pages as u64 * (costs.cluster_cycles + cycles * times / u64::from(LoanStats::AS_MEASURED))
        };
        let (cold, now) = (costs.copying(call, false), costs.copying(call, note.is_warm(costs)));
        let lend = costs.lending(pages, call, self.kernel.config.socket.loan_bytes);
        let with_penalty = lend + note.cow_penalty_cycles * pages as u64;
        let few = pages.min(0xffff) as u32;
        let lent = if lend >= copying(cold, note.copy_ratio) {
            copied
        } else if with_penalty <= copying(now, note.copy_ratio) {
            note.trusted += if with_penalty > copying(now, LoanStats::AS_MEASURED) { few } else { 0 };
            let first = if note.trusted > PAGES_A_COPY { before + PAGE_SIZE } else { 0 };
            first.min(call.len)..call.len
        } else if u64::from(note.copied) * copying(now, note.copy_ratio) >= PROBE_PART * with_penalty {
            note.copied = 0;
            before..before + PAGE_SIZE
        } else {
            note.copied += few;
            copied
        };
        note.keep(self.space.loan_history());
        let watched = self.machine().topology().cpus > 1;
        Plan { lent, is_chosen: true, copy_page_cycles: watched.then_some(now) }
    }

    /// Pages were lent by choice: what becomes of them is judged later.
    pub(crate) fn chosen_pages_lent(&self, pages: usize) {
        let history = self.space.loan_history();
        let mut note = LoanStats::of(history);
        note.lent += pages as u32;
        note.keep(history);
    }

    /// A page was copied that should have taken `expected_cycles`.
    pub(crate) fn watched_copy(&self, expected_cycles: u64, cycles: u64) {
        let history = self.space.loan_history();
        let mut note = LoanStats::of(history);
        let seen = u64::from(LoanStats::AS_MEASURED) * cycles / expected_cycles.max(1);
        // One copy that had to wait for a page from the disk does not make all others dear.
        note.copy_ratio = (7 * note.copy_ratio + seen.clamp(4, 128) as u32 + 4) / 8;
        note.trusted = 0;
        note.keep(history);
    }

    /// The note of this address space, with what has happened since the last look. Pages that were lent are judged when
    /// some of them were written to, or when there are `enough` of them and none was.
    fn looked_at(&self, costs: &MoveCosts, enough: u32) -> LoanStats {
        let history = self.space.loan_history();
        let mut note = LoanStats::of(history);
        if !history.is_clear() || note.lent >= enough {
            let outcome = history.take();
            let rewritten = u64::from(outcome.refused_writes.min(note.lent));
            let broken = u64::from(outcome.broken.min(note.lent)).min(rewritten);
            let cost = (rewritten - broken) * costs.rewrite_cycles + broken * costs.break_cycles;
            if note.lent > 0 {
                note.cow_penalty_cycles = (note.cow_penalty_cycles + cost / u64::from(note.lent)) / 2;
                note.lent = 0;
            }
        }
        note
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
        let note = self.looked_at(costs, PAGES_JUDGED);
        let lends = costs.lend_on.of(pages) + note.cow_penalty_cycles * (pages as u64)
            < pages as u64 * (costs.copy_page_cycles(2 * len) + beside_cycles);
        note.keep(self.space.loan_history());
        lends
    }

    /// How `len` bytes get to another process at less cost.
    pub(crate) fn choose_carrier(&self, len: usize) -> Carrier {
        let pages = len.div_ceil(PAGE_SIZE);
        let costs = self.move_costs();
        let config = self.kernel.config.socket;
        let room = config.high_water_bytes;
        let sending = Sending { from: Va(0), len, peer: Peer::Socket, room };
        let note = LoanStats::of(self.space.loan_history());
        let (regret, warm) = (note.cow_penalty_cycles, note.is_warm(costs));
        let copy = pages as u64 * (costs.cluster_cycles + costs.copying(sending, warm));
        let lend = costs.lending(pages, sending, config.loan_bytes) + regret * pages as u64;
        // The message that tells of what is passed takes what the first part over the socket takes beside its data.
        let waits = 2 * costs.switch_cycles * len.saturating_sub(room).div_ceil(PAGE_SIZE) as u64;
        let copied = copy + pages as u64 * costs.copy_page_cycles(3 * len);
        let lent = lend + pages as u64 * costs.copy_page_cycles(2 * len);
        if costs.pass.of(pages) + pages as u64 * costs.touch_cycles < copied.min(lent) + waits {
            Carrier::Pass
        } else {
            Carrier::Socket
        }
    }
}
