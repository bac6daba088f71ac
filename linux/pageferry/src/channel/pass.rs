//! Whole ranges with holes, in one message.
//!
//! # What it holds
//! [`Range`] is what a sender passes: buffers, and holes between them. [`PassMode`] says what happens to the
//! buffers. [`Passing`] is the sender's token for all of them; what the receiver has, is in `passed`. The message lies
//! in as many runs of slots as it has buffers, and is given back as a whole.

use super::admit::max_extents;
use super::buffer::{Buffer, Store};
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
