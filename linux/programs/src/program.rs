//! Programs: what processes do, step by step.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// What a channel promises of lent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Level {
    Copy,
    Typed,
    Mmu,
    Sealed,
}

/// All levels.
pub const LEVELS: [Level; 4] = [Level::Mmu, Level::Sealed, Level::Typed, Level::Copy];

/// Which processes there are, and which channels between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Topology {
    /// One process with so many channels from itself to itself.
    Alone(usize),
    /// Two processes, with a channel each way.
    Both,
    /// Each process sends to the next.
    Line(usize),
    /// The first process sends to all others.
    Star(usize),
    /// All others send to the first process.
    Gather(usize),
}

/// A channel leads from one process to another, or to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// The sender's process.
    pub from: usize,
    /// The receiver's.
    pub to: usize,
}

impl Topology {
    /// Processes.
    pub fn processes(self) -> usize {
        match self {
            Topology::Alone(_) => 1,
            Topology::Both => 2,
            Topology::Line(processes) | Topology::Star(processes) | Topology::Gather(processes) => processes,
        }
    }

    /// Channels, by number.
    pub fn channels(self) -> Vec<Ends> {
        match self {
            Topology::Alone(channels) => vec![Ends { from: 0, to: 0 }; channels],
            Topology::Both => vec![Ends { from: 0, to: 1 }, Ends { from: 1, to: 0 }],
            Topology::Line(processes) => (1..processes).map(|to| Ends { from: to - 1, to }).collect(),
            Topology::Star(processes) => (1..processes).map(|to| Ends { from: 0, to }).collect(),
            Topology::Gather(processes) => (1..processes).map(|from| Ends { from, to: 0 }).collect(),
        }
    }
}

/// Where a program runs: all of its channels are made alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Processes and channels.
    pub topology: Topology,
    /// What loans promise.
    pub level: Level,
    /// Slots of a pool.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// Messages that may be out: a power of two.
    pub capacity: u32,
    /// The longest message that takes no slot: a multiple of 64.
    pub inline_bytes: u32,
    /// Whether memory can be donated.
    pub donations: bool,
    /// Whether a sender may go on to store to what it has lent, and sees that itself.
    #[serde(default = "yes")]
    pub copy_on_write: bool,
    /// Which end goes first when all is over: 0 to 3.
    pub ending: u8,
}

/// One operation. `which` names a thing, and `channel` a channel, modulo what there is; `at` and `len` are
/// taken modulo what the thing has. `stamp` is the pattern that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Op {
    /// Takes memory and fills it.
    Buffer {
        channel: usize,
        len: usize,
        stamp: u64,
    },
    /// The sender stores to what it may write: a buffer, memory that it shares, zeros in the place of a gift.
    Store {
        which: usize,
        at: usize,
        len: usize,
        stamp: u64,
    },
    /// Copies to the start of a buffer, which is as long as that from then on; `past` the caches or not.
    WriteFrom {
        which: usize,
        len: usize,
        stamp: u64,
        past: bool,
    },
    /// Makes a buffer shorter.
    Cut {
        which: usize,
        len: usize,
    },
    Loan {
        which: usize,
    },
    /// Sends a buffer by copy.
    CopyBuffer {
        which: usize,
    },
    Donate {
        which: usize,
    },
    /// The same, and has zeros in its place.
    DonateZero {
        which: usize,
    },
    Share {
        which: usize,
    },
    /// Sends bytes by copy.
    Copy {
        channel: usize,
        len: usize,
        stamp: u64,
    },
    /// Sends what is lent once more.
    Resend {
        which: usize,
    },
    /// Hands on what was received.
    Forward {
        which: usize,
        channel: usize,
    },
    /// Stores through a pointer that is older than the loan.
    Stray {
        which: usize,
        at: usize,
        len: usize,
        stamp: u64,
    },
    /// Waits for what is lent or shared, if it is home.
    Wait {
        which: usize,
    },
    /// Drops something of a sender.
    Drop {
        which: usize,
    },
    /// Takes the next message; one that is shared as such, if `shared`.
    Receive {
        channel: usize,
        shared: bool,
    },
    /// The receiver stores to what it has.
    Write {
        which: usize,
        at: usize,
        len: usize,
        stamp: u64,
    },
    /// The receiver makes it memory of its own.
    Transfer {
        which: usize,
    },
    /// Drops something of a receiver.
    Return {
        which: usize,
    },
    /// Looks at every byte of something.
    Check {
        which: usize,
    },
    /// Compares the counters of a channel's ends.
    Count {
        channel: usize,
    },
    /// Drops an end.
    EndSender {
        channel: usize,
    },
    EndReceiver {
        channel: usize,
    },
}

/// An operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// It may run beside the one before, where that is another process's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
    /// What is done.
    pub op: Op,
}

/// A program: processes and channels, and what is done with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Which channels there are, and what they have.
    pub shape: Shape,
    /// Its operations, in order.
    pub steps: Vec<Step>,
}

impl Program {
    /// The program of a seed.
    pub fn random(seed: u64, steps: usize) -> Program {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let shape = Shape::random(&mut rng);
        let steps = (0..steps).map(|_| Step { beside: rng.random(), op: op(&mut rng, &shape) }).collect();
        Program { shape, steps }
    }

    /// Without some of its steps.
    #[must_use]
    pub fn without(&self, range: core::ops::Range<usize>) -> Program {
        let mut steps = self.steps.clone();
        steps.drain(range);
        Program { shape: self.shape, steps }
    }

    /// Says what is wrong with a program that was not made here.
    pub fn validate(&self) -> Result<(), String> {
        let shape = &self.shape;
        let processes = match shape.topology {
            Topology::Alone(channels) => channels + 1,
            topology => topology.processes(),
        };
        let checks = [
            ((2..=8).contains(&processes), "two to eight processes, or channels of one"),
            ((1..=64).contains(&shape.slots), "1 to 64 slots"),
            ((4096..=MAX_SLOT_BYTES).contains(&shape.slot_bytes), "slots of 4 KB to 64 MB"),
            (shape.capacity.is_power_of_two() && shape.capacity >= 2, "a capacity that is a power of two"),
            (shape.inline_bytes.is_multiple_of(64), "inline bytes that are a multiple of 64"),
        ];
        match checks.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, expected)) => Err(format!("expected {expected}")),
        }
    }
}

const MAX_SLOT_BYTES: usize = 64 << 20;

/// What was kept before it could be otherwise.
fn yes() -> bool {
    true
}

impl Shape {
    fn random(rng: &mut impl Rng) -> Shape {
        let topology = match rng.random_range(0..8) {
            0 => Topology::Alone(rng.random_range(1..4)),
            1 => Topology::Both,
            2..4 => Topology::Line(rng.random_range(2..5)),
            4..6 => Topology::Star(rng.random_range(2..5)),
            6 => Topology::Gather(rng.random_range(2..5)),
            _ => Topology::Line(2),
        };
        let level = match rng.random_range(0..8) {
            0..4 => Level::Mmu,
            4..6 => Level::Sealed,
            6 => Level::Typed,
            _ => Level::Copy,
        };
        Shape {
            topology,
            level,
            slots: rng.random_range(1..6),
            slot_bytes: 2 << 20,
            capacity: [2, 4, 16, 64][rng.random_range(0..4)],
            inline_bytes: [0, 64, 4096, 16 << 10][rng.random_range(0..4)],
            donations: rng.random_ratio(3, 4),
            ending: rng.random_range(0..4),
            copy_on_write: rng.random(),
        }
    }
}

/// A length: mostly short, often at a border.
fn length(rng: &mut impl Rng, shape: &Shape) -> usize {
    let off = rng.random_range(0..3);
    let around = |border: usize| (border + off).saturating_sub(1).max(1);
    match rng.random_range(0..40) {
        0..18 => rng.random_range(1..300),
        18..22 => around(shape.inline_bytes as usize),
        22..26 => around(4096 * rng.random_range(1..5)),
        26..36 => rng.random_range(300..100_000),
        36 => around(shape.slot_bytes),
        37 => rng.random_range(1..shape.slot_bytes),
        38 => rng.random_range(1..shape.slot_bytes * shape.slots as usize),
        _ => around(shape.slot_bytes * shape.slots as usize),
    }
}

fn op(rng: &mut impl Rng, shape: &Shape) -> Op {
    let (channel, which) = (rng.random_range(0..12), rng.random_range(0..12));
    let (at, len) = (rng.random_range(0..6 << 20), length(rng, shape));
    let stamp = rng.random_range(1..u64::MAX);
    match rng.random_range(0..1000) {
        0..130 => Op::Buffer { channel, len, stamp },
        130..165 => Op::Store { which, at, len, stamp },
        165..195 => Op::WriteFrom { which, len, stamp, past: rng.random() },
        195..207 => Op::Cut { which, len },
        207..347 => Op::Loan { which },
        347..372 => Op::CopyBuffer { which },
        372..422 => Op::Donate { which },
        422..450 => Op::DonateZero { which },
        450..478 => Op::Share { which },
        478..523 => Op::Copy { channel, len, stamp },
        523..545 => Op::Resend { which },
        545..571 => Op::Forward { which, channel },
        571..616 => Op::Stray { which, at, len, stamp },
        616..676 => Op::Wait { which },
        676..716 => Op::Drop { which },
        716..851 => Op::Receive { channel, shared: rng.random_ratio(2, 3) },
        851..901 => Op::Write { which, at, len, stamp },
        901..915 => Op::Transfer { which },
        915..980 => Op::Return { which },
        980..988 => Op::Check { which },
        988..996 => Op::Count { channel },
        996..998 => Op::EndSender { channel },
        _ => Op::EndReceiver { channel },
    }
}
