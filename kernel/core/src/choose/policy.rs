//! Choosing, for each call, between copying data and moving its pages: what a call is, handed to the arithmetic of
//! `pageferry_costs`, which tells the model.
//!
//! What a choice depends on is in three places: the costs, where they were measured (`moves`); the call; and what
//! became of this process's earlier loans and copies (`kept_stats`, and `pageferry_vm::LoanHistory`).
//!
//! # Locks, failures
//! None. An estimate that is wrong costs time and nothing else: all ways carry the same bytes.

use crate::proc::Syscall;
use pageferry_costs::{Arrived, Carrier, LoanStats, MoveCosts, Outcome, Peer, Plan, Sending as Call};
use pageferry_hal::{Machine, PAGE_SIZE, Va};

const _: () = assert!(PAGE_SIZE == pageferry_costs::PAGE_BYTES);

/// A receiver's loans of which none was written to are judged when they are so many; a sender's, at its next call.
const PAGES_JUDGED: u32 = 32;

/// A call that sends.
#[derive(Clone, Copy)]
pub struct Sending {
    /// Where its buffer begins.
    pub from: Va,
    /// The bytes that it is about.
    pub len: usize,
    /// Who gets them.
    pub peer: Peer,
    /// What the socket has space for when it is empty.
    pub space: usize,
}

/// The whole pages of a range: how many bytes are before them, and how many pages there are.
pub fn whole_pages(at: Va, len: usize) -> (usize, usize) {
    pageferry_costs::whole_pages(at.0, len)
}

impl<M: Machine> Syscall<'_, M> {
    /// What moving data costs here, as far as that is known.
    fn move_costs(&self) -> &MoveCosts {
        self.core.moves.costs(self.machine())
    }

    /// The call, as the arithmetic knows it.
    fn sending(&self, Sending { from, len, peer, space }: Sending) -> Call {
        Call { at: from.0, len, peer, space, max_loan: self.core.config.socket.loan_bytes }
    }

    /// Which bytes of a call are to be lent.
    pub fn plan(&self, sending: Sending) -> Plan {
        if whole_pages(sending.from, sending.len).1 == 0 {
            return Plan::fixed(sending.len..sending.len);
        }
        let costs = self.move_costs();
        let mut stats = self.judged_stats(costs, 1);
        let mut plan = costs.plan(&mut stats, self.sending(sending));
        self.loans.set(stats);
        // A CPU that is alone finds its copies as it measured them.
        if self.machine().board().cpus == 1 {
            plan.copy_page_cycles = None;
        }
        plan
    }

    /// Which of `len` bytes of a file are to be lent to a socket.
    pub fn plan_file(&self, len: usize) -> Plan {
        match self.move_costs().lends_file(len, self.core.config.socket.high_water_bytes) {
            true => Plan::fixed(0..len),
            false => Plan::fixed(len..len),
        }
    }

    /// Pages were lent by choice: they are judged later.
    pub fn chosen_pages_lent(&self, pages: usize) {
        let stats = self.loans.get();
        self.loans.set(LoanStats { lent: stats.lent + pages as u32, ..stats });
    }

    /// A page was copied that should have taken `expected_cycles`.
    pub fn watched_copy(&self, expected_cycles: u64, cycles: u64) {
        self.loans.set(self.loans.get().timed(expected_cycles, cycles));
    }

    /// The statistics of this process, with what the VM system has counted since they were judged last. Pages that were
    /// lent are judged when some of them were written to, or when there are `enough` of them and none was.
    fn judged_stats(&self, costs: &MoveCosts, enough: u32) -> LoanStats {
        let history = self.space.loan_history();
        let mut stats = self.loans.get();
        if !history.is_clear() || stats.lent >= enough {
            let outcome = history.take();
            let (refused_writes, broken) = (outcome.refused_writes, outcome.broken);
            stats.judge_loans(costs, Outcome { refused_writes, broken });
        }
        stats
    }

    /// Whether `pages` of clusters are to be donated rather than copied, in a call of `len` bytes.
    pub fn chooses_donation(&self, pages: usize, len: usize, peer: Peer) -> bool {
        self.move_costs().donates(pages, len, peer)
    }

    /// Whether `pages` on loan are to be lent on rather than copied, in a call of `len` bytes.
    pub fn chooses_lending_on(&self, pages: usize, len: usize) -> bool {
        self.chooses_anons(pages, len, 0)
    }

    /// Whether `pages` of a file are to be lent rather than copied, in a call of `len` bytes.
    pub fn chooses_lending_file(&self, pages: usize, len: usize) -> bool {
        self.chooses_anons(pages, len, self.move_costs().map_cycles)
    }

    /// `beside_cycles` is what copying a page takes beside the copy.
    fn chooses_anons(&self, pages: usize, len: usize, beside_cycles: u64) -> bool {
        let costs = self.move_costs();
        let stats = self.judged_stats(costs, PAGES_JUDGED);
        let lends = costs.lends_on(&stats, pages, len, beside_cycles);
        self.loans.set(stats);
        lends
    }

    /// How `len` bytes get to another process at less cost.
    pub fn choose_carrier(&self, len: usize, arrived: Arrived) -> Carrier {
        self.carrier(len, arrived).0
    }

    /// The same, where a server that is a process may be asked, too.
    pub fn choose_any_carrier(&self, len: usize, arrived: Arrived) -> Carrier {
        let other = self.carrier(len, arrived);
        self.core.moves.request_costs().carrier(len, other)
    }

    /// And what its part costs that is not the same for both.
    fn carrier(&self, len: usize, arrived: Arrived) -> (Carrier, u64) {
        // No buffer is larger than memory.
        let len = len.min(self.machine().board().frames * PAGE_SIZE);
        let space = self.core.config.socket.high_water_bytes;
        let sending = self.sending(Sending { from: Va(0), len, peer: Peer::Socket, space });
        self.move_costs().carrier(&self.loans.get(), sending, arrived)
    }
}
