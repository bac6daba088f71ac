//! Which way is cheaper: copying a message, lending it, or giving it away.
//!
//! # The model
//! The time of a message is a sum: filling it, the ring, a wake-up where somebody sleeps, the calls that
//! freeze and open its memory or the copy out of it, and the receiver's reading. What differs between the
//! ways was measured ([`HostCosts`]) by the size of the message, by whether the sender has filled it since it
//! was last sent, and by what the receiver does with it ([`Arrived`]). To the cost of a loan comes what the
//! receiver's writing costs: the kernel copies each page of a loan that is written, and says how many they
//! were when the loan comes home.
//!
//! A channel on which loans are dear only because their receiver has written to them lends one message in
//! [`PROBE_EVERY`] all the same, so that a receiver that changes its ways is noticed.
//!
//! # What is told
//! The choice is told to both sides: by the token ([`crate::Lent::verb`]) and by the message ([`crate::Loan::verb`]).

mod costs;
#[cfg(feature = "host-file")]
pub(crate) mod file;
mod stores;

pub use costs::{Filled, HostCosts, HostName, MessageCost, Nanos, Placement, Primitive};
#[cfg(feature = "host-file")]
pub use file::{cpu_name, kernel_release, path as host_file};
pub(crate) use stores::StoreChoice;

use crate::wire::Verb;

/// What the receiver does with a message. The modelled kernel's word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "host-file",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "lowercase")
)]
pub enum Arrived {
    /// It reads all of it.
    Touched,
    /// It hands it on, or looks at a part.
    Untouched,
}

/// One message in so many is lent although copying looks cheaper, where the receiver's writing alone makes it so.
pub const PROBE_EVERY: u32 = 32;

/// What is known when a message is to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) bytes: usize,
    pub(crate) arrived: Arrived,
    pub(crate) filled: Filled,
    pub(crate) placement: Placement,
    /// The caller gives the buffer up, and the channel has donations.
    pub(crate) may_donate: bool,
    /// Pages of a loan that the receiver writes, smoothed.
    pub(crate) pages_written: f64,
    /// Huge pages lie behind the pool.
    pub(crate) huge: bool,
}

/// The answer: the verb, and whether a loan is tried only to see what the receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) verb: Verb,
    /// Copying was chosen for what the receiver writes, and nothing else.
    pub(crate) only_for_writes: bool,
}

/// The cheapest way.
pub(crate) fn choose(costs: &HostCosts, question: &Question) -> Choice {
    // By small pages, what was filled anew is never lent: mapping it anew costs more than a copy at any size.
    if !question.huge && question.filled == Filled::Anew {
        return Choice { verb: Verb::Copy, only_for_writes: false };
    }
    let message = costs.message(question.bytes, question.arrived, question.filled, question.placement);
    let writes = question.pages_written * costs.written_page.median;
    let lent = message.loan.median + writes;
    let donated = if question.may_donate { message.donate.median } else { f64::INFINITY };
    let copied = message.copy.median;
    let verb = if copied <= lent && copied <= donated {
        Verb::Copy
    } else if donated < lent {
        Verb::Donate
    } else {
        Verb::Loan
    };
    Choice { verb, only_for_writes: verb == Verb::Copy && message.loan.median < copied }
}

#[cfg(test)]
mod tests;
