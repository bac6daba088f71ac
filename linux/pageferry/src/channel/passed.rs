//! Ranges with holes, as their receiver has them.

use super::loan::Loan;
use super::place::{Piece, Place};
use crate::error::{Error, Usage};
use crate::wire::Verb;
use std::sync::Arc;

/// Ranges with holes that were received. Dropping it gives all of them back.
#[derive(Debug)]
#[must_use = "dropping it gives the memory back to the sender"]
pub struct Passed {
    loan: Loan,
}

impl Passed {
    pub(super) fn new(loan: Loan) -> Passed {
        Passed { loan }
    }

    fn pieces(&self) -> &[Piece] {
        match self.loan.place() {
            Place::Pieces(pieces) => pieces,
            _ => &[],
        }
    }

    /// Bytes, with the holes.
    pub fn len(&self) -> u64 {
        self.loan.descriptor().len
    }

    /// Whether it has no bytes and no holes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ranges of memory.
    pub fn count(&self) -> usize {
        self.pieces().len()
    }

    /// How it was passed.
    pub fn verb(&self) -> Verb {
        self.loan.verb()
    }

    /// Each range of memory: where it starts, and its bytes. What is between them is a hole. Of shared ranges
    /// there are no references, since the sender writes them: they come as copies by
    /// [`super::Receiver::recv`], and have no bytes here.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let donated = self.verb() == Verb::Donate;
        let (shared, level) = (self.loan.shared(), self.loan.level());
        self.pieces().iter().filter(|_| self.verb() != Verb::Share).filter_map(move |piece| {
            let run = piece.run.as_ref()?;
            Some((piece.at, shared.view.bytes(run, piece.offset, piece.len, level, donated)))
        })
    }

    /// One range, to be written to: see [`Loan::as_mut`].
    pub fn range_mut(&mut self, index: usize) -> Result<&mut [u8], Error> {
        let verb = self.verb();
        let shared = Arc::clone(self.loan.shared());
        shared.check_ours()?;
        let none = Usage::Verb("there is no such range, or it is shared");
        let Place::Pieces(pieces) = self.loan.place_mut() else { return Err(none.into()) };
        let piece = pieces.get_mut(index).filter(|_| verb != Verb::Share).ok_or(none.clone())?;
        let run = piece.run.as_mut().ok_or(none)?;
        if verb == Verb::Loan && !piece.own {
            shared.view.own(run)?;
            piece.own = true;
        }
        let (offset, len) = (piece.offset, piece.len);
        self.loan.piece_mut(index, offset, len)
    }

    /// One value of all of it, with zeros for the holes; the ranges go back. The error brings the message back.
    #[allow(clippy::result_large_err, reason = "the error brings the message back")]
    pub fn join(self) -> Result<Loan, (Error, Passed)> {
        match self.joined() {
            Ok(joined) => Ok(joined),
            Err(error) => Err((error, self)),
        }
    }

    fn joined(&self) -> Result<Loan, Error> {
        let mut joined = self.loan.fresh_copy(self.len())?;
        let bytes = joined.as_mut()?;
        bytes.fill(0);
        for piece in self.pieces() {
            let Some(run) = &piece.run else { continue };
            let to = &mut bytes[piece.at as usize..][..piece.len];
            let view = &self.loan.shared().view;
            match self.verb() {
                Verb::Share => view.read_shared(run, piece.offset, to)?,
                verb => to.copy_from_slice(view.bytes(
                    run,
                    piece.offset,
                    piece.len,
                    self.loan.level(),
                    verb == Verb::Donate,
                )),
            }
        }
        Ok(joined)
    }
}
