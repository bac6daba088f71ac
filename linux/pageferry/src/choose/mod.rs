//! Which way is cheaper: copying a message, lending it, or giving it away.
//!
//! The model, and what is learnt of a channel's messages, are arithmetic of `pageferry_costs`. Here are the table of
//! this host ([`HostCosts`]), the file that it is read from, and the locks. What a choice depends on is the size of the
//! message, whether the sender has filled it since it was last sent, and what the receiver does with it ([`Arrived`]).
//!
//! Nothing is measured for a choice: `pageferry host calibrate` measures a host, when somebody calls it, and costs that
//! are built in serve where nobody has. What was measured is read when the first channel is made. A file that was
//! measured with another CPU or kernel, or cannot be read, is not used: [`HostCosts::load`] says why.
//!
//! # What is told
//! The choice is told to both sides: by the token ([`crate::Lent::verb`]) and by the message ([`crate::Loan::verb`]).

mod costs;
#[cfg(feature = "host-file")]
pub(crate) mod file;
mod stores;

pub use costs::{Filled, HostCosts, HostName, MessageCost, Nanos, Primitive};
#[cfg(feature = "host-file")]
pub use file::{cpu_name, kernel_release, path as host_file};
pub use pageferry_costs::{Arrived, PROBE_EVERY, Placement};
pub(crate) use pageferry_costs::{MessageChoice, Way, WrittenPages};
pub(crate) use stores::StoreChoice;

use crate::wire::Verb;
use std::sync::OnceLock;

impl HostCosts {
    /// The costs that choices are made by: those of this host's file where there is one, the built-in ones
    /// otherwise. Read once in a process.
    pub fn get() -> &'static HostCosts {
        static COSTS: OnceLock<HostCosts> = OnceLock::new();
        COSTS.get_or_init(|| HostCosts::load().0)
    }

    /// The same, read now; with a notice where there is a file that was not used.
    pub fn load() -> (HostCosts, Option<String>) {
        #[cfg(feature = "host-file")]
        return file::load();
        #[cfg(not(feature = "host-file"))]
        (HostCosts::built_in(), None)
    }
}

/// What is known when a message is to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) bytes: usize,
    pub(crate) arrived: Arrived,
    pub(crate) filled: Filled,
    pub(crate) placement: Placement,
    /// The caller gives the buffer up, and the channel has donations.
    pub(crate) may_donate: bool,
    /// Pages of a loan that the receiver writes.
    pub(crate) written: WrittenPages,
    /// Huge pages lie behind the pool.
    pub(crate) huge: bool,
}

/// The cheapest way.
pub(crate) fn choose(costs: &HostCosts, question: &Question) -> MessageChoice {
    // By small pages, what was filled anew is never lent: mapping it anew costs more than a copy at any size.
    if !question.huge && question.filled == Filled::Anew {
        return MessageChoice { way: Way::Copy, only_for_writes: false };
    }
    let message = costs.message(question.bytes, question.arrived, question.filled, question.placement);
    message.choose(question.written.cost(costs.written_page.whole()), question.may_donate)
}

impl From<Way> for Verb {
    fn from(way: Way) -> Verb {
        match way {
            Way::Copy => Verb::Copy,
            Way::Loan => Verb::Loan,
            Way::Donate => Verb::Donate,
        }
    }
}

#[cfg(test)]
mod tests;
