//! What each interrupt takes longer on its way than it must, or a CPU to read its clock, drawn at random: see
//! [`Options::jitter`](crate::Options) and [`Options::stalls`](crate::Options).

use crate::machine::Jitter;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub(crate) struct Delays {
    rng: ChaCha8Rng,
    max: u64,
}

impl Delays {
    pub(crate) fn new(jitter: Jitter) -> Delays {
        Delays { rng: ChaCha8Rng::seed_from_u64(jitter.seed), max: jitter.max.0 }
    }

    /// The next, in cycles.
    pub(crate) fn next(&mut self) -> u64 {
        // A slight bias to the lesser ones, where their number divides no power of two, is of no concern here.
        self.rng.next_u64() % self.max.saturating_add(1)
    }
}
