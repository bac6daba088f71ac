//! Planted defects: places where the library leaves out what it must do.
//!
//! For each there is a test that passes without it and fails with it. What is planted holds for the whole process; the
//! word that says so is an atomic, and nothing here can fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static PLANTED: AtomicU64 = AtomicU64::new(0);

/// Places where a defect shows only when two sides meet wait for so long, so that they do.
const WIDE: Duration = Duration::from_millis(5);

macro_rules! defects {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What can be left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Defect {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Defect {
            /// All of them.
            pub const ALL: &[Defect] = &[$(Defect::$name,)+];
        }
    };
}

defects! {
    /// A loan does not freeze the sender's view.
    NoFreeze,
    /// The sender's view is frozen after the message was published.
    FreezeAfterPublish,
    /// What a receiver wrote to its view stays there for the next message.
    NoDontNeed,
    /// The acknowledgement goes out before the view is cleaned.
    AckBeforeDontNeed,
    /// The sequence number of a descriptor is not compared.
    NoSequenceCheck,
    /// A descriptor is read twice: once to be checked, once to be used.
    DoubleRead,
    /// The first mapping of a pool stays writable.
    PoolLeftWritable,
    /// A child of the sender keeps the parent's memory away, and has none in its place.
    NoAtfork,
    /// The sender's memory goes to its children as it is.
    NoDontFork,
    /// A child keeps the sockets of its parent's channels.
    ChildKeepsSocket,
    /// Loans are given back although a child may still see them.
    NoForkFence,
    /// Descriptors that the kernel has dropped are not missed.
    NoControlCheck,
    /// The offset and length of a message are not compared with its slots.
    NoBoundsCheck,
    /// A message may lie in slots that are out already.
    NoOverlapCheck,
    /// A verb or level that was not agreed on is taken.
    NoVerbCheck,
    /// The peer's counters are believed.
    NoCounterCheck,
    /// A second acknowledgement is taken for the first of another message.
    NoAckCheck,
    /// The seals of a pool that came are not looked at.
    NoSealCheck,
    /// The size of a pool that came is not compared with what was said.
    NoSizeCheck,
    /// The size of what came is not held against the budget.
    NoBudgetCheck,
    /// Whoever publishes does not look whether the peer sleeps.
    NoWake,
    /// Whoever goes to sleep does not look once more.
    NoSecondLook,
    /// A thread takes the note that was to wake another.
    StolenNote,
    /// Slots that this process gives back wake nobody who waits for some.
    NoNudge,
    /// Slots that come home stay frozen.
    NoThaw,
    /// A dead peer's last messages are thrown away.
    NoDrain,
    /// What was donated stays in the sender's sight.
    NoHide,
    /// What a receiver of donations gave back stays writable for it.
    NoGiveUp,
    /// The seals of a pool are not looked at once more when its sender says that it has sealed it.
    NoLateSealCheck,
    /// A level that was not accepted may be settled on.
    NoSettledCheck,
    /// The pieces of a message are not compared with its slots and its length.
    NoExtentCheck,
    /// A message may name sealed memory that came for another.
    NoObjectCheck,
    /// A memfd is made longer than files of this process may be.
    NoFileLimit,
    /// A child uses the channels of its parent.
    NoForkedCheck,
    /// Leased memory is read without a lease.
    NoLease,
    /// Whether a lease was broken is not looked at when the memory is given back.
    NoLeaseCheck,
    /// What lies under a lease that is being broken is not saved.
    NoSave,
    /// The thread that polled does not tell the others that wait.
    NoNews,
    /// The thread that polled tells the others before it has said that it polls no more.
    PollsOn,
    /// The thread that finds a channel at its end does not tell the one that polls.
    NoEndTold,
    /// Slots are given back to the peer before they are free here.
    AckBeforeGive,
    /// A block is used again although somebody may still read it.
    NoReaderCheck,
    /// A child keeps the descriptors by which its parent has blocks.
    ChildKeepsFile,
}

/// Plants a defect in this process.
pub fn plant(defect: Defect) {
    PLANTED.fetch_or(1 << defect as u8, Ordering::SeqCst);
}

/// Takes all defects out.
pub fn heal() {
    PLANTED.store(0, Ordering::SeqCst);
}

pub(crate) fn planted(defect: Defect) -> bool {
    PLANTED.load(Ordering::Relaxed) & (1 << defect as u8) != 0
}

/// Waits where the defect is planted, so that its moment is a long one.
pub(crate) fn widen(defect: Defect) {
    if planted(defect) {
        // Three threads meet in this one, on a busy host perhaps one after the other.
        let times = if defect == Defect::StolenNote { 40 } else { 1 };
        crate::sync::dwell(times * WIDE);
    }
}
