//! What handles of memory stand for, on either side of a channel.

use pageferry::{Error, Lent, Level, Loan, Owned, Shared, Sharing, Verb, Zeroed};

/// What a handle of lent memory stands for.
#[derive(Debug)]
pub(crate) enum LentToken {
    Lent(Lent),
    Sharing(Sharing),
    Zeroed(Zeroed),
}

/// What a handle of a message stands for.
#[derive(Debug)]
pub(crate) enum LoanToken {
    Loan(Loan),
    /// The sender has its memory back.
    Owned(OwnedMessage),
    /// The sender writes it.
    Shared(Shared),
}

/// The bytes of a message in memory of this process, and all else that there was to know.
#[derive(Debug)]
pub(crate) struct OwnedMessage {
    pub(crate) bytes: Owned,
    pub(crate) tag: u64,
    pub(crate) sequence: u64,
    pub(crate) verb: Verb,
    pub(crate) level: Level,
}

impl LoanToken {
    /// Moves a loan's bytes to memory of this process. Where that fails it stays as it was.
    pub(crate) fn transfer(&mut self) -> Result<(), Error> {
        let LoanToken::Loan(loan) = self else { return Ok(()) };
        let bytes = loan.copied()?;
        let (tag, sequence, verb, level) = (loan.tag(), loan.sequence(), loan.verb(), loan.level());
        *self = LoanToken::Owned(OwnedMessage { bytes, tag, sequence, verb, level });
        Ok(())
    }
}
