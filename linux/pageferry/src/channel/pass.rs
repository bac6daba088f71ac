//! Whole ranges with holes, in one message.
//!
//! # What it holds
//! [`Range`] is what a sender passes: buffers, and holes between them. [`PassMode`] says what happens to the
//! buffers. [`Passing`] is the sender's token for all of them, [`Passed`] what the receiver has. The message
//! lies in as many runs of slots as it has buffers, and is given back as a whole.

use super::admit::max_extents;
use super::buffer::{Buffer, Store};
use super::loan::{Loan, Place};
use super::send::{Outgoing, SendShared};
use super::sender::Sender;
use crate::error::{Error, Usage};
use crate::trust::Same;
use crate::view::Run;
use crate::wire::{Descriptor, Extent, Level, Verb};
use std::sync::Arc;

/// What happens to ranges that are passed: the modes of the modelled kernel's map entry passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassMode {
    /// Both sides have them, and see what the sender writes.
    Share,
    /// The receiver has them copy-on-write, as a loan.
    Copy,
    /// The receiver alone has them.
    Donate,
    /// The same; the sender has zero memory in their place until they come home.
    DonateZero,
}

/// A part of what is passed.
#[derive(Debug)]
pub enum Range {
    /// Memory.
    Memory(Buffer),
    /// So many bytes with nothing behind them.
    Hole(u64),
}

/// Ranges that were passed, as their sender has them.
#[derive(Debug)]
#[must_use = "wait for it to have the buffers back, or drop it to let the memory come home by itself"]
pub struct Passing {
    shared: Arc<SendShared>,
    sequence: u64,
    mode: PassMode,
    /// Each with the length of its buffer.
    runs: Vec<(Run, usize)>,
}

impl Sender<Same> {
    /// Passes ranges with holes in one message.
    pub fn pass(&self, ranges: Vec<Range>, mode: PassMode) -> Result<Passing, Error> {
        let shared = self.shared();
        shared.check_ours()?;
        let verb = match mode {
            PassMode::Share => Verb::Share,
            PassMode::Copy => Verb::Loan,
            PassMode::Donate | PassMode::DonateZero => Verb::Donate,
        };
        if !shared.settled.allows(verb) {
            return Err(Usage::Verb(
                "this mode was not agreed on: see `Config::donations`, and both sides must trust each other",
            )
            .into());
        }
        let level = match verb {
            Verb::Loan => shared.settled.level,
            _ => Level::Typed,
        };
        if matches!(level, Level::Copy | Level::Sealed) {
            return Err(Usage::Verb(
                "ranges are passed at level typed or mmu; send each by `loan`, or all as one by `copy`",
            )
            .into());
        }
        let (mut runs, extents, len) = self.lay_out(ranges)?;
        let published = prepare(shared, &mut runs, mode, level).and_then(|()| {
            use zerocopy::IntoBytes as _;
            let count = extents.len() as u16;
            let descriptor = Descriptor { extents: count, len, ..Descriptor::new(verb, level, 0, 0) };
            let donated = verb == Verb::Donate;
            let outgoing = Outgoing { donated, bytes: &[extents.as_bytes()], ..Outgoing::new(descriptor) };
            shared.publish(outgoing, None)?.ok_or(Error::WouldBlock)
        });
        match published {
            Ok(sequence) => Ok(Passing { shared: Arc::clone(shared), sequence, mode, runs }),
            Err(error) => {
                runs.into_iter().for_each(|(run, _)| shared.give(run));
                Err(error)
            }
        }
    }

    /// Where each buffer lies in the message, and how long that is.
    #[allow(clippy::type_complexity, reason = "three answers, used once")]
    fn lay_out(&self, ranges: Vec<Range>) -> Result<(Vec<(Run, usize)>, Vec<Extent>, u64), Error> {
        let shared = self.shared();
        let max = max_extents(shared.config.shapes(shared.host)?.0);
        let too_long = |len| Usage::TooLong { len, pool: u64::MAX };
        let (mut runs, mut extents, mut at) = (Vec::new(), Vec::new(), 0u64);
        let mut buffers = Vec::new();
        for range in ranges {
            let len = match range {
                Range::Hole(len) => len,
                Range::Memory(buffer) => {
                    self.mine(&buffer)?;
                    if !matches!(buffer.store, Some(Store::Slots(_))) {
                        return Err(Usage::Verb("buffers of a sealed channel are lent one by one").into());
                    }
                    let len = buffer.len as u64;
                    buffers.push((buffer, at));
                    len
                }
            };
            at = at.checked_add(len).ok_or(too_long(u64::MAX))?;
        }
        if buffers.is_empty() || buffers.len() > max.into() {
            return Err(Usage::Config {
                key: "inline_bytes",
                value: shared.config.shapes(shared.host)?.0.inline_bytes.into(),
                expected: format!("1 to {max} ranges of memory, 32 bytes each; there are {}", buffers.len()),
            }
            .into());
        }
        for (mut buffer, at) in buffers {
            let Some(Store::Slots(run)) = buffer.store.take() else { continue };
            extents.push(Extent {
                at,
                len: buffer.len as u64,
                offset: 0,
                first_slot: run.first(),
                slots: run.slots(),
            });
            runs.push((run, buffer.len));
        }
        Ok((runs, extents, at))
    }
}

/// Does to each run what its mode says.
fn prepare(
    shared: &SendShared,
    runs: &mut [(Run, usize)],
    mode: PassMode,
    level: Level,
) -> Result<(), Error> {
    for (run, _) in runs {
        match mode {
            PassMode::Copy if level.freezes() => shared.view.freeze(run, shared.config.copy_on_write)?,
            PassMode::Donate => shared.view.hide(run)?,
            PassMode::DonateZero => shared.zero(run)?,
            PassMode::Copy | PassMode::Share => (),
        }
    }
    Ok(())
}

impl Passing {
    /// Whether the receiver has given the ranges back.
    pub fn is_home(&self) -> Result<bool, Error> {
        self.shared.is_home(self.sequence)
    }

    /// How the ranges were passed.
    pub fn mode(&self) -> PassMode {
        self.mode
    }

    /// Waits until the receiver has given the ranges back.
    pub fn wait(mut self) -> Result<Vec<Buffer>, Error> {
        self.shared.wait_home(self.sequence, None)?;
        let mut buffers = Vec::with_capacity(self.runs.len());
        while let Some((mut run, len)) = self.runs.pop() {
            if let Err(error) = self.shared.open(&mut run) {
                self.shared.give(run);
                return Err(error);
            }
            buffers.push(Buffer::new(Arc::clone(&self.shared), Store::Slots(run), len));
        }
        buffers.reverse();
        Ok(buffers)
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.shared.park(self.sequence, self.runs.drain(..).map(|(run, _)| run));
    }
}

/// One of a message's runs, as the receiver has it.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(super) run: Option<Run>,
    /// It was made writable.
    pub(super) own: bool,
    at: u64,
    offset: usize,
    len: usize,
}

impl Piece {
    pub(super) fn new(extent: &Extent, run: Run) -> Piece {
        Piece {
            run: Some(run),
            own: false,
            at: extent.at,
            offset: extent.offset as usize,
            len: extent.len as usize,
        }
    }
}

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

    /// The message as it came.
    pub(super) fn into_loan(self) -> Loan {
        self.loan
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
