//! Choosing, for each call, between copying data and moving its pages.
//!
//! # The model
//! Each way has a cost on this machine, which the kernel has measured (see [`crate::move_costs`]); the least wins. What a
//! choice depends on is known when a call is made: its length and alignment, whether somebody receives, what is in the
//! socket, and what became of this process's earlier loans.
//!
//! * **Working set.** A copy costs by how much memory is used between two uses of the same. To nobody that is the buffer
//!   and one cluster, which is freed and used again. Between two processes it is the sender's buffer, the clusters, and the
//!   receiver's buffer. What is received from a loan was in no cluster: then it is two buffers. A process that is known to
//!   write to its buffers has just had them in the cache.
//! * **Whole pages.** What is before the first whole page and behind the last is copied in any case.
//! * **Regret.** A process that writes to what it has lent, or to what it got by a loan, pays a fault for each page, and a
//!   copy while the loan stands. That is counted (`pageferry_vm::LoanHistory`); a smoothed cost of it for each such page is
//!   added to the cost of lending. A process that is kept from lending by that alone lends a page of its data now and then, so that a change of
//!   its ways is found.
//! * **Room.** No loan is longer than a socket has room for. Of what does not fit in a socket, each page takes two handovers: the
//!   sender sleeps until there is room for a page, and the receiver until there is one.
//! * **Passing** is for whole buffers, and the processes have to agree on it: [`crate::User::choose_carrier`] tells them
//!   what is cheaper. It is taken that who gets data uses it, so each page passed is touched once.
//!
//! # Locks, failures
//! None of its own. An estimate that is wrong costs time and nothing else: all ways carry the same bytes.

use crate::copy::Caller;
use crate::error::Errno;
use crate::move_costs::MoveCosts;
use crate::user::User;
use core::ops::Range;
use pageferry_hal::{Machine, PAGE_SIZE, Va};

/// Pages that are copied for each that is lent to see what becomes of it.
const PAGES_A_PROBE: u32 = 32;

/// Who gets what is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sink {
    /// The null protocol.
    Nobody,
    /// Another socket.
    Peer,
}

/// A call that sends.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub(crate) from: Va,
    pub(crate) len: usize,
    pub(crate) sink: Sink,
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

/// What an address space's history keeps between calls: the regret for each page lent, in units of 16 cycles; pages lent
/// since it was last looked at, up to 255; and pages copied since the last probe, up to 255.
#[derive(Clone, Copy, Default)]
struct Note {
    regret_cycles: u64,
    lent: u32,
    copied: u32,
}

impl Note {
    fn unpack(word: u32) -> Note {
        Note { regret_cycles: u64::from(word >> 16) << 4, lent: word >> 8 & 255, copied: word & 255 }
    }
    /// True for a process that has written to more than a quarter of what it lent: it has its data in the cache.
    fn is_warm(self, costs: &MoveCosts) -> bool {
        4 * self.regret_cycles > costs.rewrite_cycles
    }
    fn pack(self) -> u32 {
        let regret = (self.regret_cycles >> 4).min(0xffff) as u32;
        regret << 16 | self.lent.min(255) << 8 | self.copied.min(255)
    }
}

/// The whole pages of a range: how many bytes are before them, and how many pages there are.
fn whole_pages(at: Va, len: usize) -> (usize, usize) {
    let before = at.0.wrapping_neg() as usize % PAGE_SIZE;
    (before, len.saturating_sub(before) / PAGE_SIZE)
}

impl MoveCosts {
    /// The cost of sending pages by copy and the cost of lending them, without regret. `warm`: they were just written.
    fn sending(&self, pages: usize, call: Sending, loan_bytes: usize, warm: bool) -> (u64, u64) {
        let len = call.len;
        let working_set = match call.sink {
            Sink::Nobody => len + PAGE_SIZE,
            Sink::Peer if warm => 2 * len,
            Sink::Peer => 3 * len,
        };
        let copy = pages as u64 * (self.cluster_cycles + self.copy_page_cycles(working_set));
        let loans = pages.div_ceil(loan_bytes.min(call.room) / PAGE_SIZE) as u64;
        (copy, self.lend.page_cycles * pages as u64 + self.lend.call_cycles * loans)
    }
}

impl<M: Machine> Caller<'_, M> {
    /// Which bytes of `len` at `from` are to be lent; the others are copied.
    pub(crate) fn choose_lent(&self, sending: Sending) -> Range<usize> {
        let len = sending.len;
        let (before, pages) = whole_pages(sending.from, len);
        if pages == 0 {
            return len..len;
        }
        let costs = self.move_costs();
        let loan_bytes = self.kernel.config.socket.loan_bytes;
        let mut note = self.looked_at(costs);
        let (copy, lend) = costs.sending(pages, sending, loan_bytes, false);
        let (copy_now, _) = costs.sending(pages, sending, loan_bytes, note.is_warm(costs));
        let lent = if lend >= copy {
            len..len
        } else if lend + note.regret_cycles * pages as u64 <= copy_now {
            note.lent += pages.min(255) as u32;
            0..len
        } else if note.copied + pages.min(255) as u32 >= PAGES_A_PROBE {
            (note.lent, note.copied) = (note.lent + 1, 0);
            before..before + PAGE_SIZE
        } else {
            note.copied += pages as u32;
            len..len
        };
        self.space.loan_history().keep(note.pack());
        lent
    }

    /// The note of this address space, with what has happened since the last look.
    fn looked_at(&self, costs: &MoveCosts) -> Note {
        let history = self.space.loan_history();
        let outcome = history.take();
        let mut note = Note::unpack(history.note());
        if note.lent > 0 {
            let rewritten = u64::from(outcome.refused_writes.min(note.lent));
            let broken = u64::from(outcome.broken.min(note.lent)).min(rewritten);
            let cost = (rewritten - broken) * costs.rewrite_cycles + broken * costs.break_cycles;
            note.regret_cycles = (note.regret_cycles + cost / u64::from(note.lent)) / 2;
            note.lent = 0;
        }
        note
    }

    /// Whether `pages` of clusters are to be donated rather than copied, in a call of `len` bytes.
    pub(crate) fn chooses_donation(&self, pages: usize, len: usize, sink: Sink) -> bool {
        let costs = self.move_costs();
        let working_set = if sink == Sink::Nobody { 2 * len } else { 3 * len };
        let copy = costs.cluster_cycles + costs.copy_page_cycles(working_set);
        costs.donate.of(pages) < pages as u64 * copy
    }

    /// Whether `pages` on loan are to be lent on rather than copied, in a call of `len` bytes.
    pub(crate) fn chooses_lending_on(&self, pages: usize, len: usize) -> bool {
        let costs = self.move_costs();
        let mut note = self.looked_at(costs);
        let lends = costs.lend_on.of(pages) + note.regret_cycles * (pages as u64)
            < pages as u64 * costs.copy_page_cycles(2 * len);
        if lends {
            note.lent += pages.min(255) as u32;
        }
        self.space.loan_history().keep(note.pack());
        lends
    }

    /// How `len` bytes get to another process at less cost.
    fn choose_carrier(&self, len: usize) -> Carrier {
        let pages = len.div_ceil(PAGE_SIZE);
        let costs = self.move_costs();
        let config = self.kernel.config.socket;
        let room = config.high_water_bytes;
        let sending = Sending { from: Va(0), len, sink: Sink::Peer, room };
        let note = Note::unpack(self.space.loan_history().note());
        let (regret, warm) = (note.regret_cycles, note.is_warm(costs));
        let (copy, lend) = costs.sending(pages, sending, config.loan_bytes, warm);
        let lend = lend + regret * pages as u64;
        // The message that tells of what is passed takes what the first part over the socket takes beside its data.
        let waits = 2 * costs.handover_cycles * len.saturating_sub(room).div_ceil(PAGE_SIZE) as u64;
        let copied = copy + pages as u64 * costs.copy_page_cycles(3 * len);
        let lent = lend + pages as u64 * costs.copy_page_cycles(2 * len);
        if costs.pass.of(pages) + pages as u64 * costs.touch_cycles < copied.min(lent) + waits {
            Carrier::Pass
        } else {
            Carrier::Socket
        }
    }
}

impl<M: Machine> User<M> {
    /// Tells how a buffer of `len_bytes`, whole pages that hold nothing else, gets to another process at less cost on this
    /// machine: over a socket, or passed. A hint: both work.
    ///
    /// # Errors
    /// [`Errno::Killed`] only.
    pub fn choose_carrier(&self, len_bytes: usize) -> Result<Carrier, Errno> {
        self.system_call(|call| Ok(call.choose_carrier(len_bytes)))
    }
}
