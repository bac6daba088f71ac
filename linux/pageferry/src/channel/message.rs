//! A message of any kind, as it comes, and the loan that it can be made of.

use super::loan::Loan;
use super::passed::Passed;
use super::place::Place;
use super::shared::Shared;
use crate::error::Error;

/// What [`super::Receiver::recv_message`] gives.
#[derive(Debug)]
pub enum Message {
    /// Bytes that nobody changes.
    Loan(Loan),
    /// Memory that the sender still writes.
    Shared(Shared),
    /// Ranges of memory, with holes.
    Passed(Passed),
}

impl Message {
    /// The message that a loan of any kind is.
    pub(super) fn of(loan: Loan) -> Message {
        match loan.place() {
            Place::Pieces(_) => Message::Passed(Passed::new(loan)),
            Place::Shared { .. } => Message::Shared(Shared::new(loan)),
            _ => Message::Loan(loan),
        }
    }

    /// The message in one piece that nobody changes, as [`super::Receiver::recv`] gives it: shared memory and ranges
    /// become a copy. The error brings the message back.
    #[allow(clippy::result_large_err, reason = "the error brings the message back")]
    pub fn settle(self) -> Result<Loan, (Error, Message)> {
        match self {
            Message::Loan(loan) => Ok(loan),
            Message::Shared(shared) => {
                shared.settle().map_err(|(error, shared)| (error, Message::Shared(shared)))
            }
            Message::Passed(passed) => {
                passed.join().map_err(|(error, passed)| (error, Message::Passed(passed)))
            }
        }
    }
}
