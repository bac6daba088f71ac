//! What moves between protection domains, and what there is of something at a time: for a recorder to draw.
//!
//! Nothing here has an effect. A kernel says where data leaves one owner and where another has it; a recorder that
//! listens makes arrows of that, and curves of the levels. It says which processes there are, and which memory is
//! attached to one of them at a time: that is from when until when.

use crate::{Pfn, Va};

/// What is on its way, by what it can be known again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Flow {
    /// A page of data, in its frame.
    Page(Pfn),
    /// A range of map entries, by a number that its passing gives it.
    Range(u64),
    /// Bytes in a buffer of the kernel's at this address: what was written there last.
    Buffer(Va),
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowStep {
    /// It leaves its sender, and is on its way until it is done. What is sent first is received first.
    Sent(Parcel),
    /// Whoever executes this takes it from where it lies, and is the next to receive it.
    Taken(Parcel),
    /// A domain has it, or a copy of it.
    Received(Parcel),
    /// It is on its way no more.
    Done,
}

/// What an owner gives or gets in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// By what means.
    pub by: Means,
    /// Where it has or had it.
    pub at: Place,
    /// How much it is.
    pub len_bytes: usize,
}

/// By what means data moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// Its bytes are copied.
    Copy,
    /// Its frame is wired, and looked into.
    Wire,
    /// Its frame goes on loan.
    Loan,
    /// Its frame becomes the receiver's memory.
    Transfer,
    /// Its map entries go.
    Pass,
}

impl Means {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Means::Copy => "copy",
            Means::Wire => "wire",
            Means::Loan => "loan",
            Means::Transfer => "transfer",
            Means::Pass => "pass",
        }
    }
}

/// Where an owner has data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At an address of the process that executes the step.
    User(Va),
    /// In a file, from this byte on.
    File(u64),
    /// In a device.
    Device,
}

/// Memory for communication that a process has for a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attachment {
    /// Where the process has it.
    pub at: Va,
    /// How much it is.
    pub len_bytes: usize,
    /// What attaches it.
    pub by: AttachedBy,
}

/// What attaches memory to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachedBy {
    /// Its page table.
    Table,
    /// Reserved entries of the TLB.
    Entries,
    /// Reserved entries for all that there is, as long as it serves.
    Service,
}

impl AttachedBy {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            AttachedBy::Table => "page table",
            AttachedBy::Entries => "TLB entries",
            AttachedBy::Service => "service",
        }
    }
}

/// What there is of something, which a kernel says as it changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Frames on the free list.
    FreeFrames,
    /// Loans that frames are on, to the kernel and to borrowers.
    Loans,
    /// References to ephemeral mappings.
    EphemeralMappings,
}
