//! Programs: what random processes do, step by step.
//!
//! Plain data, so that a program can be cut down, printed, kept in a file and run again. Numbers that name a page, a
//! process or a token are taken modulo what there is when the step is run: so every step of every program means
//! something, and steps can be left out without breaking those that follow.

use pageferry_hal::Prot;
use pageferry_vm::{Inherit, PassMode, PushDown};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Pages that a program works on: few enough that steps meet. They lie across the border of two page-table pages.
pub const PAGES: u64 = 20;
/// Pages of the file that may be mapped.
pub const FILE_PAGES: u64 = 5;
/// Address spaces at one time, at most.
pub const PROCESSES: usize = 4;
/// Loans, wires and lent anons at one time, at most, each.
pub const TOKENS: usize = 6;

/// Protections of mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Access {
    None,
    Read,
    ReadWrite,
}

impl Access {
    pub(crate) fn prot(self) -> Prot {
        match self {
            Access::None => Prot::empty(),
            Access::Read => Prot::READ,
            Access::ReadWrite => Prot::RW,
        }
    }
}

/// What a child gets of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Child {
    Copy,
    Share,
    None,
}

impl Child {
    pub(crate) fn inherit(self) -> Inherit {
        match self {
            Child::Copy => Inherit::Copy,
            Child::Share => Inherit::Share,
            Child::None => Inherit::None,
        }
    }
}

/// How memory is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Mode {
    Share,
    Copy,
    Donate,
    DonateZero,
}

impl Mode {
    pub(crate) fn pass_mode(self) -> PassMode {
        match self {
            Mode::Share => PassMode::Share,
            Mode::Copy => PassMode::Copy,
            Mode::Donate => PassMode::Donate,
            Mode::DonateZero => PassMode::DonateZero,
        }
    }
}

/// What becomes of memory that is pushed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Down {
    Lend,
    Give,
}

impl Down {
    pub(crate) fn push_down(self) -> PushDown {
        match self {
            Down::Lend => PushDown::Lend,
            Down::Give => PushDown::Give,
        }
    }
}

/// One operation. Pages are counted from the program's first; offsets and lengths are in bytes unless they say pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Op {
    Map {
        page: u64,
        pages: u64,
        access: Access,
        child: Child,
    },
    MapFile {
        page: u64,
        first: u64,
        pages: u64,
        access: Access,
        private: bool,
        child: Child,
    },
    Unmap {
        page: u64,
        pages: u64,
    },
    Protect {
        page: u64,
        pages: u64,
        access: Access,
    },
    Inherit {
        page: u64,
        pages: u64,
        child: Child,
    },
    Write {
        offset: usize,
        len: usize,
        tag: u8,
    },
    Read {
        offset: usize,
        len: usize,
    },
    Fork,
    Exit,
    /// The page daemon takes all frames that it may take.
    Reclaim,
    Wire {
        offset: usize,
        len: usize,
        write: bool,
    },
    /// The kernel stores into frames that are wired for writing, as a device would.
    Scribble {
        which: usize,
        tag: u8,
    },
    Unwire {
        which: usize,
    },
    Loan {
        offset: usize,
        len: usize,
    },
    Unloan {
        which: usize,
    },
    LoanAnons {
        page: u64,
        pages: u64,
    },
    /// Frames on loan to the kernel are lent further, as anons.
    LoanFurther {
        which: usize,
    },
    ReleaseAnons {
        which: usize,
    },
    TransferAnons {
        which: usize,
        page: u64,
    },
    TransferPages {
        page: u64,
        pages: u64,
        tag: u8,
    },
    Anflush {
        page: u64,
        pages: u64,
    },
    Pass {
        to: usize,
        page: u64,
        pages: u64,
        to_page: u64,
        mode: Mode,
    },
    /// What private mappings have of their own becomes the file's.
    PushDown {
        page: u64,
        pages: u64,
        how: Down,
    },
    /// Another process refers to the memory for a moment, reads it and perhaps writes it.
    QuickRef {
        holder: usize,
        offset: usize,
        len: usize,
        write: bool,
        tag: u8,
    },
}

/// Bytes of an operation, at most.
const MAX_BYTES: usize = 1 << 20;

impl Op {
    /// Says what is wrong with an operation that was not made here.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let pages_ok = |page: u64, pages: u64| page < PAGES && (1..=PAGES).contains(&pages);
        let bytes_ok = |offset: usize, len: usize| offset < MAX_BYTES && (1..=MAX_BYTES).contains(&len);
        let ok = match *self {
            Op::Map { page, pages, .. }
            | Op::Unmap { page, pages }
            | Op::Protect { page, pages, .. }
            | Op::Inherit { page, pages, .. }
            | Op::LoanAnons { page, pages }
            | Op::TransferPages { page, pages, .. }
            | Op::Anflush { page, pages }
            | Op::PushDown { page, pages, .. } => pages_ok(page, pages),
            Op::Pass { page, pages, to_page, .. } => pages_ok(page, pages) && to_page < PAGES,
            Op::MapFile { page, first, pages, .. } => {
                pages_ok(page, pages) && first < FILE_PAGES && pages <= FILE_PAGES - first
            }
            Op::TransferAnons { page, .. } => page < PAGES,
            Op::Write { offset, len, .. }
            | Op::Read { offset, len }
            | Op::Wire { offset, len, .. }
            | Op::Loan { offset, len }
            | Op::QuickRef { offset, len, .. } => bytes_ok(offset, len),
            Op::Fork
            | Op::Exit
            | Op::Reclaim
            | Op::Scribble { .. }
            | Op::Unwire { .. }
            | Op::Unloan { .. }
            | Op::LoanFurther { .. }
            | Op::ReleaseAnons { .. } => true,
        };
        if ok { Ok(()) } else { Err(format!("{self:?} leads outside the program's {PAGES} pages")) }
    }
}

/// An operation of a process, on a CPU; `fail` lets an allocation in it fail, behind so many that succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The process that does it, by any number.
    pub process: usize,
    /// The CPU that it runs on, by any number.
    pub cpu: usize,
    /// Of the allocations in it, how many succeed before one fails; none fails if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<u32>,
    /// May run beside the step before, if the two do not meddle with each other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
    /// What is done.
    pub op: Op,
}

/// A random step.
pub(crate) fn step(rng: &mut impl Rng) -> Step {
    Step {
        process: rng.random_range(0..PROCESSES),
        cpu: rng.random_range(0..4),
        fail: rng.random_ratio(1, 8).then(|| rng.random_range(0..12)),
        beside: rng.random_ratio(2, 3),
        op: op(rng),
    }
}

fn op(rng: &mut impl Rng) -> Op {
    let page = rng.random_range(0..PAGES);
    let pages = rng.random_range(1..7);
    let offset = page as usize * 4096 + rng.random_range(0..4096);
    // Mostly within a page, sometimes across several: long accesses cost the host most.
    let len = if rng.random_ratio(1, 10) { rng.random_range(1..12_000) } else { rng.random_range(1..300) };
    let (tag, which) = (rng.random(), rng.random_range(0..TOKENS));
    let access = match rng.random_range(0..9) {
        0 => Access::None,
        1 | 2 => Access::Read,
        _ => Access::ReadWrite,
    };
    let child = match rng.random_range(0..8) {
        0 => Child::None,
        1..4 => Child::Share,
        _ => Child::Copy,
    };
    match rng.random_range(0..104) {
        0..6 => Op::Map { page, pages, access, child },
        6..9 => {
            let first = page % FILE_PAGES;
            let pages = pages.min(FILE_PAGES - first);
            Op::MapFile {
                page: rng.random_range(0..PAGES),
                first,
                pages,
                access,
                private: rng.random(),
                child,
            }
        }
        9..13 => Op::Unmap { page, pages },
        13..16 => Op::Protect { page, pages, access },
        16..18 => Op::Inherit { page, pages, child },
        18..36 => Op::Write { offset, len, tag },
        36..46 => Op::Read { offset, len },
        46..50 => Op::Fork,
        50 => Op::Exit,
        51 if rng.random() => Op::Reclaim,
        51 => Op::Exit,
        52..56 => Op::Wire { offset, len, write: rng.random() },
        56..58 => Op::Scribble { which, tag },
        58..62 => Op::Unwire { which },
        62..68 => Op::Loan { offset, len },
        68..73 => Op::Unloan { which },
        73..78 => Op::LoanAnons { page, pages },
        78..80 => Op::LoanFurther { which },
        80..83 => Op::ReleaseAnons { which },
        83..87 => Op::TransferAnons { which, page },
        87..90 => Op::TransferPages { page, pages, tag },
        90..92 => Op::Anflush { page, pages },
        92..94 => Op::PushDown { page, pages, how: if rng.random() { Down::Lend } else { Down::Give } },
        94..96 => {
            Op::QuickRef { holder: rng.random_range(0..PROCESSES), offset, len, write: rng.random(), tag }
        }
        _ => Op::Pass {
            to: rng.random_range(0..PROCESSES),
            page,
            pages,
            to_page: rng.random_range(0..PAGES),
            mode: [Mode::Share, Mode::Copy, Mode::Donate, Mode::DonateZero][rng.random_range(0..4)],
        },
    }
}
