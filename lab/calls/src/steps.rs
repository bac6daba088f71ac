//! What processes ask of the kernel, as plain data.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rand::{Rng, RngExt};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// Processes at a time.
pub(super) const PROCESSES: usize = 3;
/// Descriptors, and regions of memory, of one process at a time.
pub(super) const DESCRIPTORS: usize = 6;
pub(super) const REGIONS: usize = 4;
/// Bytes that a call moves, at most.
pub const MAX_CALL_BYTES: usize = 20_000;
/// Pages of a region, at most.
pub const MAX_REGION_PAGES: usize = 5;
/// Where in a file something is done, at most.
const MAX_OFFSET: u64 = 40_000;
/// Names of files: the first half in memory, the others on the volume.
pub(super) const NAMES: [&str; 6] = ["/c0", "/c1", "/c2", "/mnt/d0", "/mnt/d1", "/mnt/d2"];

/// The first of them that is on the volume.
pub(super) const ON_VOLUME: usize = NAMES.len() / 2;

/// Sizes at which something begins or ends: blocks and fragments, pages, clusters, what a pipe takes.
const LIMITS: [usize; 9] = [1, 512, 2048, 4096, 8192, 12_288, 16_384, 100, 18_432];

/// What is done, under which kernel.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Calls {
    /// Chooses among the kernels, and blocks of the volume.
    pub seed: u64,
    /// The steps.
    pub steps: Vec<CallStep>,
}

/// A step of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct CallStep {
    /// The process, by any number.
    pub process: usize,
    /// What it does.
    pub op: CallOp,
    /// Of the allocations in a call of it, how many succeed before one fails; none fails if this is absent.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub fail: Option<u32>,
}

/// Bytes in a region of memory: all numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Bytes {
    /// The region.
    pub region: usize,
    /// Where in it.
    pub offset: usize,
    /// How many.
    pub len: usize,
}

/// Some pages of a region, one at least: all numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Part {
    /// The region.
    pub region: usize,
    /// The first page.
    pub page: usize,
    /// How many, or as many as there are.
    pub pages: usize,
}

/// What may be done to pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[allow(missing_docs, reason = "the names say it")]
pub enum Protection {
    Nothing,
    Read,
    ReadWrite,
}

/// What becomes of a region at fork, and how an offer is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[allow(missing_docs, reason = "the names say it")]
pub enum Passage {
    Share,
    Copy,
    /// At fork, nothing of it is passed.
    Donate,
    DonateZero,
}

/// What a process does. Descriptors, regions and names are given by any number; what makes no sense at the time is left
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[allow(missing_docs, reason = "the names say it")]
pub enum CallOp {
    Open {
        name: usize,
        create: bool,
        exclusive: bool,
        truncate: bool,
        append: bool,
    },
    Close {
        fd: usize,
    },
    Duplicate {
        fd: usize,
    },
    Read {
        fd: usize,
        to: Bytes,
    },
    Write {
        fd: usize,
        from: Bytes,
    },
    ReadAt {
        fd: usize,
        at: u64,
        to: Bytes,
    },
    WriteAt {
        fd: usize,
        at: u64,
        from: Bytes,
    },
    Seek {
        fd: usize,
        to: u64,
    },
    Truncate {
        fd: usize,
        size: u64,
    },
    SyncFile {
        fd: usize,
    },
    Unlink {
        name: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Link {
        from: usize,
        to: usize,
    },
    Stat {
        name: usize,
    },
    Pipe,
    SocketPair,
    /// A connection of TCP to itself, where there is a network.
    Connection,
    /// The sound device is opened.
    Sound,
    /// To a socket, by lending whole pages or by the kernel's choice.
    Send {
        fd: usize,
        from: Bytes,
        auto: bool,
    },
    /// From a socket, by moving whole pages to where the kernel likes.
    ReceiveTransfer {
        fd: usize,
        len: usize,
    },
    /// From a socket, by a window that shows whole pages, twice over.
    ReceiveShown {
        fd: usize,
        pages: usize,
    },
    /// From a socket, into its receive area.
    ReceivePlaced {
        fd: usize,
        len: usize,
    },
    /// From a socket, to nowhere.
    Discard {
        fd: usize,
        len: usize,
    },
    /// From a file to a socket.
    SendFile {
        socket: usize,
        file: usize,
        at: u64,
        len: usize,
        lend: bool,
    },
    Map {
        pages: usize,
        shared: bool,
    },
    MapFile {
        fd: usize,
        shared: bool,
    },
    Unmap {
        part: Part,
    },
    Protect {
        part: Part,
        to: Protection,
    },
    /// What a child has of a region.
    Inherit {
        region: usize,
        how: Passage,
    },
    Store {
        to: Bytes,
        tag: u8,
    },
    Load {
        region: usize,
    },
    Lock {
        region: usize,
        on: bool,
    },
    Advise {
        part: Part,
        needs: bool,
    },
    SyncMemory {
        part: Part,
    },
    /// What the region has of its own is given up: it reads as it did at first.
    Flush {
        region: usize,
    },
    /// A read into memory that may not be written, or a write of memory that may not be read.
    Refused {
        fd: usize,
        len: usize,
        writes: bool,
    },
    /// What a descriptor is ready for.
    Poll {
        fd: usize,
    },
    Offer {
        part: Part,
        how: Passage,
    },
    /// The process's own offer is taken back.
    Import {
        offer: usize,
    },
    /// Reads or writes memory of a child.
    Trace {
        process: usize,
        region: usize,
        offset: usize,
        own: Bytes,
        writes: bool,
    },
    Signal {
        process: usize,
    },
    Kill {
        process: usize,
    },
    Fork,
    /// A file is made an image, if it may be changed, and what it is takes the place of the process's memory.
    Exec {
        fd: usize,
    },
    Exit,
}

/// A number up to `max`, half of the time beside a limit.
fn near(rng: &mut impl Rng, max: usize) -> usize {
    let at = match rng.random_bool(0.5) {
        true => {
            LIMITS[rng.random_range(0..LIMITS.len())] * rng.random_range(1..=2) + rng.random_range(0..3) - 1
        }
        false => rng.random_range(0..=max),
    };
    at.min(max)
}

fn bytes(rng: &mut impl Rng) -> Bytes {
    let len = near(rng, MAX_CALL_BYTES).max(1);
    // Whole pages can be moved.
    let offset = if rng.random_bool(0.5) { rng.random_range(0..3) * 4096 } else { near(rng, MAX_CALL_BYTES) };
    Bytes { region: rng.random_range(0..8), offset, len }
}

fn part(rng: &mut impl Rng) -> Part {
    let pages = if rng.random_bool(0.3) { MAX_REGION_PAGES } else { rng.random_range(1..=MAX_REGION_PAGES) };
    let page = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..MAX_REGION_PAGES) };
    Part { region: rng.random_range(0..64), page, pages }
}

fn passage(rng: &mut impl Rng) -> Passage {
    [Passage::Share, Passage::Copy, Passage::Donate, Passage::DonateZero][rng.random_range(0..4)]
}

impl CallStep {
    fn random(rng: &mut impl Rng) -> CallStep {
        let (fd, region) = (rng.random_range(0..64), rng.random_range(0..64));
        let name = rng.random_range(0..NAMES.len());
        let at = near(rng, MAX_OFFSET as usize) as u64;
        let op = match rng.random_range(0..85) {
            0..=4 => CallOp::Open {
                name,
                create: rng.random_bool(0.8),
                exclusive: rng.random_bool(0.1),
                truncate: rng.random_bool(0.1),
                append: rng.random_bool(0.2),
            },
            5..=6 => CallOp::Close { fd },
            7 => CallOp::Duplicate { fd },
            8..=13 => CallOp::Read { fd, to: bytes(rng) },
            14..=20 => CallOp::Write { fd, from: bytes(rng) },
            21..=22 => CallOp::ReadAt { fd, at, to: bytes(rng) },
            23..=24 => CallOp::WriteAt { fd, at, from: bytes(rng) },
            25 => CallOp::Seek { fd, to: at },
            26 => CallOp::Truncate { fd, size: at },
            27 => CallOp::SyncFile { fd },
            28 => CallOp::Unlink { name },
            29 => CallOp::Rename { from: name, to: rng.random_range(0..NAMES.len()) },
            30 => CallOp::Link { from: name, to: rng.random_range(0..NAMES.len()) },
            31 => CallOp::Stat { name },
            32 => CallOp::Pipe,
            33 => CallOp::SocketPair,
            34..=36 => CallOp::Send { fd, from: bytes(rng), auto: rng.random_bool(0.3) },
            37 => CallOp::ReceiveTransfer { fd, len: near(rng, MAX_CALL_BYTES).max(1) },
            38 => CallOp::ReceiveShown { fd, pages: rng.random_range(1..=MAX_REGION_PAGES) },
            39..=40 => CallOp::SendFile {
                socket: fd,
                file: rng.random_range(0..64),
                at,
                len: near(rng, MAX_CALL_BYTES).max(1),
                lend: rng.random_bool(0.5),
            },
            41..=42 => {
                CallOp::Map { pages: rng.random_range(1..=MAX_REGION_PAGES), shared: rng.random_bool(0.3) }
            }
            43..=44 => CallOp::MapFile { fd, shared: rng.random_bool(0.5) },
            45 => CallOp::Unmap { part: part(rng) },
            46..=49 => CallOp::Store { to: bytes(rng), tag: rng.random_range(1..=255) },
            50..=51 => CallOp::Load { region },
            52 => CallOp::Lock { region, on: rng.random_bool(0.5) },
            53 => CallOp::Advise { part: part(rng), needs: rng.random_bool(0.5) },
            54 => CallOp::SyncMemory { part: part(rng) },
            55 => CallOp::Flush { region },
            56..=57 => CallOp::Fork,
            58 => CallOp::ReceivePlaced { fd, len: near(rng, MAX_CALL_BYTES).max(1) },
            59 => CallOp::Discard { fd, len: near(rng, MAX_CALL_BYTES).max(1) },
            60..=62 => {
                let to =
                    [Protection::Nothing, Protection::Read, Protection::ReadWrite, Protection::ReadWrite];
                CallOp::Protect { part: part(rng), to: to[rng.random_range(0..to.len())] }
            }
            63 => CallOp::Inherit { region, how: passage(rng) },
            64..=66 => CallOp::Refused { fd, len: near(rng, MAX_CALL_BYTES), writes: rng.random_bool(0.5) },
            67 => CallOp::Poll { fd },
            68..=69 => CallOp::Offer { part: part(rng), how: passage(rng) },
            70..=72 => CallOp::Import { offer: rng.random_range(0..64) },
            73..=75 => CallOp::Trace {
                process: rng.random_range(0..PROCESSES),
                region,
                offset: near(rng, MAX_CALL_BYTES),
                own: bytes(rng),
                writes: rng.random_bool(0.5),
            },
            76 => CallOp::Signal { process: rng.random_range(0..PROCESSES) },
            78..=79 => CallOp::Exec { fd },
            82..=83 => CallOp::Connection,
            84 => CallOp::Sound,
            77 => CallOp::Kill { process: rng.random_range(0..PROCESSES) },
            _ => CallOp::Exit,
        };
        let fail = rng.random_ratio(1, 6).then(|| rng.random_range(0..10));
        CallStep { process: rng.random_range(0..PROCESSES), op, fail }
    }
}

impl Calls {
    /// Anything, of so many steps.
    pub fn random(rng: &mut impl Rng, steps: usize) -> Calls {
        Calls {
            seed: rng.random_range(0..1 << 20),
            steps: (0..steps).map(|_| CallStep::random(rng)).collect(),
        }
    }

    /// Says what is wrong with one that was not made here.
    ///
    /// # Errors
    /// A sentence.
    pub fn validate(&self) -> Result<(), String> {
        for (i, step) in self.steps.iter().enumerate() {
            let fits = |len: usize| (1..=MAX_CALL_BYTES).contains(&len);
            let ok = match step.op {
                CallOp::Read { to: bytes, .. }
                | CallOp::Write { from: bytes, .. }
                | CallOp::Send { from: bytes, .. }
                | CallOp::Trace { own: bytes, .. }
                | CallOp::Store { to: bytes, .. } => fits(bytes.len),
                CallOp::ReadAt { at, to: bytes, .. } | CallOp::WriteAt { at, from: bytes, .. } => {
                    fits(bytes.len) && at <= MAX_OFFSET
                }
                CallOp::ReceiveTransfer { len, .. }
                | CallOp::ReceivePlaced { len, .. }
                | CallOp::Discard { len, .. } => fits(len),
                CallOp::SendFile { at, len, .. } => fits(len) && at <= MAX_OFFSET,
                CallOp::Seek { to: at, .. } | CallOp::Truncate { size: at, .. } => at <= MAX_OFFSET,
                CallOp::Map { pages, .. } | CallOp::ReceiveShown { pages, .. } => {
                    (1..=MAX_REGION_PAGES).contains(&pages)
                }
                CallOp::Unmap { part }
                | CallOp::Protect { part, .. }
                | CallOp::Advise { part, .. }
                | CallOp::SyncMemory { part }
                | CallOp::Offer { part, .. } => (1..=MAX_REGION_PAGES).contains(&part.pages),
                _ => true,
            };
            if !ok {
                return Err(format!(
                    "step {i}: {:?}, expected 1 to {MAX_CALL_BYTES} bytes, offsets up to {MAX_OFFSET}, and regions of \
                     1 to {MAX_REGION_PAGES} pages",
                    step.op
                ));
            }
        }
        Ok(())
    }
}
