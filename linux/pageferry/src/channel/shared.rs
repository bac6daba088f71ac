//! Memory of the sender that both sides see, as the receiver has it.

use super::loan::Loan;
use super::place::Place;
use crate::error::{Error, Usage};

/// Memory of the sender that both sides see. The sender may write it at any time, so there is no reference to
/// it: copies of it, and its address.
#[derive(Debug)]
#[must_use = "dropping it gives the memory back to the sender"]
pub struct Shared {
    loan: Loan,
}

impl Shared {
    pub(super) fn new(loan: Loan) -> Shared {
        Shared { loan }
    }

    /// One value of it: its bytes as they are now; the memory goes back. The error brings the message back.
    #[allow(clippy::result_large_err, reason = "the error brings the message back")]
    pub(super) fn settle(mut self) -> Result<Loan, (Error, Shared)> {
        match self.loan.settle() {
            Ok(()) => Ok(self.loan),
            Err(error) => Err((error, self)),
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.loan.descriptor().len as usize
    }

    /// Never: a message has bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number that the sender gave it; 0 if none.
    pub fn tag(&self) -> u64 {
        self.loan.tag()
    }

    /// How many messages came before on this channel.
    pub fn sequence(&self) -> u64 {
        self.loan.sequence()
    }

    /// Copies bytes from `offset` on. Each is read once, and those that the sender writes meanwhile are old or new.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.loan.shared().check_ours()?;
        if offset.checked_add(to.len()).is_none_or(|end| end > self.len()) {
            return Err(Usage::TooLong { len: to.len() as u64, pool: self.len() as u64 }.into());
        }
        match self.loan.place() {
            Place::Shared { run: Some(run) } => {
                let at = self.loan.range().0 + offset;
                self.loan.shared().view.read_shared(run, at, to)
            }
            _ => Ok(()),
        }
    }

    /// Where it is: to be registered with a device, or read by atomic accesses. Null when it cannot be mapped.
    pub fn as_ptr(&self) -> *const u8 {
        match self.loan.place() {
            Place::Shared { run: Some(run) } => {
                self.loan.shared().view.shared(run, self.loan.range().0).unwrap_or(core::ptr::null())
            }
            _ => core::ptr::null(),
        }
    }
}
