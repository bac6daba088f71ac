//! What messages between two processes of a host cost by each way, and which way is the cheapest.
//!
//! # The model
//! The time of a message is a sum: filling it, the ring, a wake-up where somebody sleeps, the calls that freeze and
//! open its memory or the copy out of it, and the receiver's reading. What differs between the ways was measured by the
//! size of the message, in each of some situations ([`MessageCosts`]). To the cost of a loan comes what the receiver's
//! writing costs: the kernel copies each page of a loan that is written, and says how many they were when the loan
//! comes home ([`WrittenPages`]).
//!
//! A channel on which loans are dear only because their receiver has written to them lends one message in
//! [`PROBE_EVERY`] all the same, so that a receiver that changes its ways is noticed.

use crate::{Arrived, between, beyond, decide};

/// One message in so many is lent although copying looks cheaper, where the receiver's writing alone makes it so.
pub const PROBE_EVERY: u32 = 32;

/// Whether two CPUs share a cache. A guest cannot see it, and its host can change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Placement {
    /// They do.
    Near,
    /// They do not.
    #[default]
    Far,
}

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Copied out of a slot.
    Copy,
    /// Lent.
    Loan,
    /// Given away.
    Donate,
}

/// What a message of one size costs, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageCosts {
    /// Its bytes.
    pub bytes: u64,
    /// Copied.
    pub copy_ns: u64,
    /// Lent.
    pub loan_ns: u64,
    /// Given away.
    pub donate_ns: u64,
}

/// The answer: the way, and whether a loan is worth trying, only to see what the receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageChoice {
    /// The cheapest.
    pub way: Way,
    /// Copying was chosen for what the receiver writes, and nothing else.
    pub only_for_writes: bool,
}

impl MessageCosts {
    /// The costs at `bytes`, by those of some sizes in one situation, in any order: between two on a straight line,
    /// before the first as the first, beyond the last in proportion. The calls of a loan that nobody touches do not
    /// grow. Without any, copying is never wrong.
    pub fn at(
        measured: impl IntoIterator<Item = MessageCosts>,
        bytes: u64,
        arrived: Arrived,
    ) -> MessageCosts {
        let (mut below, mut above): (Option<MessageCosts>, Option<MessageCosts>) = (None, None);
        for costs in measured {
            if costs.bytes <= bytes && below.is_none_or(|other| other.bytes < costs.bytes) {
                below = Some(costs);
            }
            if costs.bytes >= bytes && above.is_none_or(|other| other.bytes > costs.bytes) {
                above = Some(costs);
            }
        }
        let (copy_ns, loan_ns, donate_ns) = match (below, above) {
            (Some(low), Some(high)) => {
                let line = |of: fn(&MessageCosts) -> u64| {
                    between((low.bytes, of(&low)), (high.bytes, of(&high)), bytes)
                };
                (line(|c| c.copy_ns), line(|c| c.loan_ns), line(|c| c.donate_ns))
            }
            (Some(last), None) => {
                let grown = |ns: u64| beyond((last.bytes, ns), bytes);
                match arrived {
                    Arrived::Untouched => (grown(last.copy_ns), last.loan_ns, last.donate_ns),
                    Arrived::Touched => (grown(last.copy_ns), grown(last.loan_ns), grown(last.donate_ns)),
                }
            }
            (None, Some(first)) => (first.copy_ns, first.loan_ns, first.donate_ns),
            (None, None) => (0, u64::MAX, u64::MAX),
        };
        MessageCosts { bytes, copy_ns, loan_ns, donate_ns }
    }

    /// The cheapest way. `writes_ns` is what the receiver's writing adds to a loan; `may_donate`: the sender gives the
    /// buffer up, and the channel has donations.
    pub fn choose(&self, writes_ns: u64, may_donate: bool) -> MessageChoice {
        let (way, _) = decide([
            (Way::Copy, self.copy_ns),
            (Way::Loan, self.loan_ns.saturating_add(writes_ns)),
            (Way::Donate, if may_donate { self.donate_ns } else { u64::MAX }),
        ]);
        MessageChoice { way, only_for_writes: way == Way::Copy && self.loan_ns < self.copy_ns }
    }
}

/// How many pages of a loan a receiver writes, smoothed over the loans of a channel; and when to try one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WrittenPages {
    /// In parts of a page.
    parts: u64,
    /// Messages that were copied only because their receiver writes, since one was lent.
    since_probe: u32,
}

impl WrittenPages {
    /// Parts of a page.
    const PARTS: u64 = 256;

    /// A loan has come home, with so many pages written. A quarter of what is known is of the last.
    pub fn learn(&mut self, pages: u64) {
        self.parts = self.parts - self.parts / 4 + pages.saturating_mul(Self::PARTS) / 4;
    }

    /// What a loan costs for them, at so much for each page.
    pub fn cost(&self, page_ns: u64) -> u64 {
        (u128::from(self.parts) * u128::from(page_ns) / u128::from(Self::PARTS))
            .try_into()
            .unwrap_or(u64::MAX)
    }

    /// The way that is taken for a choice: now and then a loan, to see what the receiver does.
    pub fn way(&mut self, choice: MessageChoice) -> Way {
        if choice.only_for_writes {
            self.since_probe += 1;
            if self.since_probe >= PROBE_EVERY {
                self.since_probe = 0;
                return Way::Loan;
            }
        }
        choice.way
    }
}
