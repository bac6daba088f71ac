//! What is done with sockets, and over which wire, as plain data.

use pageferry_model::net::Wire;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Connections at a time.
pub const CONNECTIONS: usize = 4;
/// The most bytes of one call.
pub const MAX_BYTES: usize = 20_000;
/// The most that a wire does to frames. Over one that loses more, a host at the far end that closes its side early may
/// never send again what was lost of its last bytes: smoltcp.
const WORST: Traffic = Traffic {
    seed: u64::MAX,
    loss_ppm: 30_000,
    duplicate_ppm: 30_000,
    reorder_ppm: 250_000,
    reorder_us: 300,
    corrupt_ppm: 20_000,
    delay_us: 5000,
    steps: Vec::new(),
};
/// The longest wait.
const MAX_US: u32 = 3000;

/// What is done, and over which wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Where the wire's random numbers come from.
    pub seed: u64,
    /// How many of a million frames are lost, each way; and so on, with times in microseconds.
    pub loss_ppm: u32,
    /// Frames that arrive twice.
    pub duplicate_ppm: u32,
    /// Frames that others overtake.
    pub reorder_ppm: u32,
    /// How much longer these take, in microseconds.
    pub reorder_us: u32,
    /// Frames in which a bit is flipped.
    pub corrupt_ppm: u32,
    /// How long every frame takes.
    pub delay_us: u32,
    /// The steps.
    pub steps: Vec<Call>,
}

/// A step: something is done with a connection. What makes no sense at the time is left out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The connection, by any number.
    pub connection: usize,
    /// The end of it that does it; over the wire there is but one here.
    #[serde(default)]
    pub other_end: bool,
    /// What is done.
    pub op: SocketOp,
}

/// What is done with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum SocketOp {
    /// It is made, over loopback, or over the wire where no seed decides which CPU runs; over loopback both of its ends
    /// have such a buffer, each way.
    Connect {
        /// Over the wire.
        wire: bool,
        /// Bytes.
        buffer: usize,
    },
    /// It is made to a host that sends a file and closes its side, over the wire where there is one; else nothing is
    /// made.
    Fetch,
    /// Bytes are sent, as many as there is room for.
    Send {
        /// Bytes.
        len: usize,
    },
    /// Bytes are received, as many as there are.
    Receive {
        /// Bytes.
        len: usize,
    },
    /// Nothing more is sent.
    Shutdown,
    /// It is closed.
    Close,
    /// It is closed by a reset.
    Reset,
    /// Processes write to its ends, and read from them until nothing more comes; then it is closed.
    Drain {
        /// Bytes that each process writes.
        len: usize,
    },
    /// Time passes.
    Wait {
        /// Microseconds.
        us: u32,
    },
}

impl Traffic {
    /// Anything.
    pub(crate) fn random(rng: &mut impl Rng, steps: usize) -> Traffic {
        let mut some = |max: u32| if rng.random_bool(0.5) { rng.random_range(0..max) } else { 0 };
        let (loss_ppm, duplicate_ppm) = (some(WORST.loss_ppm), some(WORST.duplicate_ppm));
        let (reorder_ppm, reorder_us) = (some(WORST.reorder_ppm), 1 + some(WORST.reorder_us));
        let (corrupt_ppm, delay_us) = (some(WORST.corrupt_ppm), some(WORST.delay_us));
        let steps = (0..steps).map(|_| Call::random(rng)).collect();
        let seed = rng.random();
        Traffic { seed, loss_ppm, duplicate_ppm, reorder_ppm, reorder_us, corrupt_ppm, delay_us, steps }
    }

    /// Says what is wrong with one that was not made here.
    ///
    /// # Errors
    /// A sentence.
    pub fn validate(&self) -> Result<(), String> {
        let of_the_wire = [
            ("loss_ppm", self.loss_ppm, WORST.loss_ppm),
            ("duplicate_ppm", self.duplicate_ppm, WORST.duplicate_ppm),
            ("reorder_ppm", self.reorder_ppm, WORST.reorder_ppm),
            ("reorder_us", self.reorder_us, WORST.reorder_us),
            ("corrupt_ppm", self.corrupt_ppm, WORST.corrupt_ppm),
            ("delay_us", self.delay_us, WORST.delay_us),
        ];
        if let Some((key, value, max)) = of_the_wire.into_iter().find(|(_, value, max)| value > max) {
            return Err(format!("{key}: {value}, expected at most {max}"));
        }
        for (i, call) in self.steps.iter().enumerate() {
            let wrong = |what: &str| Err(format!("step {i}: {what}"));
            match call.op {
                SocketOp::Send { len } | SocketOp::Receive { len } if len == 0 || len > MAX_BYTES => {
                    return wrong(&format!("{len} bytes, expected 1 to {MAX_BYTES}"));
                }
                SocketOp::Drain { len } if len > 10 * MAX_BYTES => {
                    return wrong(&format!("{len} bytes, expected at most {}", 10 * MAX_BYTES));
                }
                SocketOp::Connect { buffer, .. } if !(4096..=1 << 20).contains(&buffer) => {
                    return wrong(&format!("a buffer of {buffer} bytes, expected 4096 to {}", 1 << 20));
                }
                SocketOp::Wait { us } if us > MAX_US => {
                    return wrong(&format!("{us} us, expected at most {MAX_US}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What the wire does.
    pub(super) fn wire(&self) -> Wire {
        Wire {
            seed: self.seed,
            loss_ppm: self.loss_ppm,
            duplicate_ppm: self.duplicate_ppm,
            reorder_ppm: self.reorder_ppm,
            corrupt_ppm: self.corrupt_ppm,
            delay_ns: u64::from(self.delay_us) * 1000,
            reorder_ns: u64::from(self.reorder_us) * 1000,
        }
    }
}

impl Call {
    fn random(rng: &mut impl Rng) -> Call {
        let connection = rng.random_range(0..CONNECTIONS);
        let other_end = rng.random_bool(0.5);
        let len = match rng.random_range(0..4) {
            0 => rng.random_range(1..100),
            1 => 4096,
            _ => rng.random_range(1..=MAX_BYTES),
        };
        let op = match rng.random_range(0..100) {
            0..20 => SocketOp::Connect {
                wire: rng.random_bool(0.5),
                buffer: [4096, 10_000, 32_768, 65_536][rng.random_range(0..4)],
            },
            20..24 => SocketOp::Fetch,
            24..50 => SocketOp::Send { len },
            50..80 => SocketOp::Receive { len },
            80..83 => SocketOp::Shutdown,
            83..86 => SocketOp::Close,
            86..88 => SocketOp::Reset,
            88..93 => SocketOp::Drain { len: rng.random_range(0..10 * MAX_BYTES) },
            _ => SocketOp::Wait { us: rng.random_range(1..MAX_US) },
        };
        Call { connection, other_end, op }
    }
}
