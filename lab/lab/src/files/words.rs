//! The words by which kernel files choose between what the floors below have.

use pageferry_ephemeral::{AccessedRule, FlushAt, FlushBy};
use pageferry_kernel::{
    ForwardWakeup, FrameMapping, KernelDefect, LentMapping, NullAnswers, PipeKind, PipeMapping, Planted,
    PtraceBy, ReceiveMapping,
};
use pageferry_pmap::{Preload, Reload};
use pageferry_vm::{FreedTo, LoanLocking};
use serde::{Deserialize, Serialize};

/// Policies of the floors below under the words of these files.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident for $target:ty { $($word:ident),* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "the words are those of the target")]
        pub enum $name { $($word),* }

        impl From<$name> for $target {
            fn from(name: $name) -> $target {
                match name { $($name::$word => <$target>::$word),* }
            }
        }
    )* };
}

words! {
    /// What a clear accessed bit in a replaced entry is taken to mean. See [`AccessedRule`].
    RuleName for AccessedRule { Safe, AsPrinted }
    /// When what is mapped for a use is flushed. See [`FlushAt`].
    FlushAtName for FlushAt { Map, Unmap, Both }
    /// How much is flushed at once. See [`FlushBy`].
    FlushByName for FlushBy { User, Page, Range }
    /// Which side maps the pages of a direct pipe write. See [`PipeMapping`].
    MappingName for PipeMapping { WriterRun, ReaderPage }
    /// What a pipe is. See [`PipeKind`].
    PipeKindName for PipeKind { Fifo, Socket }
    /// How frames are mapped for a moment. See [`FrameMapping`].
    FrameMappingName for FrameMapping { Own, Ephemeral }
    /// How a debugger gets at memory. See [`PtraceBy`].
    PtraceName for PtraceBy { QuickRef, Frames }
    /// What the null protocol answers with. See [`NullAnswers`].
    NullAnswersName for NullAnswers { Clusters, Memory }
    /// How loans between objects and anons are locked. See [`LoanLocking`].
    LoanLockingName for LoanLocking { OneStep, Published }
    /// How the kernel comes by addresses for what is lent to sockets. See [`LentMapping`].
    LentMappingName for LentMapping { Run, Pages, WhileRead }
    /// How the kernel comes by addresses for what its card receives into. See [`ReceiveMapping`].
    ReceiveMappingName for ReceiveMapping { Permanent, Ephemeral }
    /// How the refill handler works. See [`Reload`].
    ReloadName for Reload { Fast, Slow, SlowInsert }
    /// What a refill loads beside what was missed. See [`Preload`].
    PreloadName for Preload { None, Recency, RecencyFlushed }
    /// Which idle CPUs a wakeup interrupts. See [`ForwardWakeup`].
    ForwardName for ForwardWakeup { One, All, Last }
    /// Where frames come that are freed. See [`FreedTo`].
    FreedToName for FreedTo { Head, Tail }
}

/// A defect that proves that the checks can fail. See [`KernelDefect`], which has more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the words are those of the target")]
pub enum DefectName {
    #[default]
    None,
    LostWakeup,
}

impl From<DefectName> for Planted<KernelDefect> {
    fn from(name: DefectName) -> Planted<KernelDefect> {
        match name {
            DefectName::None => Planted::NONE,
            DefectName::LostWakeup => KernelDefect::LostWakeup.into(),
        }
    }
}
