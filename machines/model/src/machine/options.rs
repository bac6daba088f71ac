//! How a machine is run: which CPU goes next, what ends a run, and what does not.

use core::fmt;
use pageferry_hal::Cycles;
use std::time::Duration;

/// Which CPU runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// The CPU whose clock is lowest.
    #[default]
    Timed,
    /// A CPU chosen at random at every call; for tests.
    Seeded(u64),
    /// The CPU with the highest priority, of those that do not wait: few switches, each at a place drawn at random.
    /// Finds what needs one CPU to be held up for long while another gets far, which [`Schedule::Seeded`] hardly ever
    /// does. (Probabilistic concurrency testing, Burckhardt and others, ASPLOS 2010.)
    Pct {
        /// What priorities, and where they change, are drawn from.
        seed: u64,
        /// How many turns must come in the right order for a bug to show: 1 for a wrong order of two CPUs, 2 for one
        /// CPU that comes between two calls of another, 3 for a deadlock of two locks. Priorities change one time less.
        depth: u32,
        /// About how many turns a run has ([`Outcome::turns`](crate::testing::Outcome::turns)); a longer one begins
        /// anew every so many.
        steps: u64,
    },
}

impl Schedule {
    /// Turns of a run, where nothing is known of it.
    pub const PCT_STEPS: u64 = 1000;

    /// Priorities, for bugs of this depth in runs of [`Schedule::PCT_STEPS`]; with seed 0, which [`crate::testing`]
    /// replaces.
    pub fn pct(depth: u32) -> Schedule {
        Schedule::Pct { seed: 0, depth, steps: Schedule::PCT_STEPS }
    }

    /// The seeded schedule of this kind with another seed; where the clocks decide, [`Schedule::Seeded`].
    pub fn with_seed(self, seed: u64) -> Schedule {
        match self {
            Schedule::Timed | Schedule::Seeded(_) => Schedule::Seeded(seed),
            Schedule::Pct { depth, steps, .. } => Schedule::Pct { seed, depth, steps },
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Timed => f.write_str("timed schedule"),
            Schedule::Seeded(seed) => write!(f, "schedule of seed {seed}"),
            Schedule::Pct { seed, depth, steps } => {
                write!(f, "schedule of seed {seed}, by priorities for depth {depth} in {steps} turns")
            }
        }
    }
}

/// Times that no run of a real machine has twice: an interrupt's message waits for its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// What the waits are drawn from.
    pub seed: u64,
    /// The longest of them.
    pub max: Cycles,
}

/// A thread that is late to sleep: behind its last look at what it waits for, its CPU stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateSleep {
    /// At which sleep of the run, counted from 0.
    pub sleep: u64,
    /// For how long, in which other CPUs go on. A timed schedule lets them.
    pub by: Cycles,
}

/// How to run a machine. [`Options::default`] is a timed schedule in which every error ends the run, with 100,000,000
/// tests in vain and 10 seconds of the host as the limits of waiting, no limit of cycles, and no events kept.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Which CPU runs next.
    pub schedule: Schedule,
    /// Uses of stale translations are counted and reported ([`Model::stale_uses`](crate::Model::stale_uses)), and are
    /// no errors.
    pub tolerate_stale: bool,
    /// How often, all CPUs together and with none executing anything else, what CPUs wait for may be tested in vain; a
    /// hundredth of that where no interrupt is on its way. Then the run ends with
    /// [`RunError::Spinning`](crate::RunError).
    pub spin_limit: u64,
    /// When every clock is past this, or 53 days of the machine's time are, the run ends with
    /// [`RunError::OutOfTime`](crate::RunError). For loops that no other limit sees, as of a thread that calls
    /// `try_lock` again and again.
    pub cycle_limit: Option<Cycles>,
    /// How long, on the host's clock, kernel code may go without a call on the machine. Then the process ends, with a
    /// message on standard error that names the CPU: such code can be neither stopped nor left, and most likely waits
    /// in a loop of its own for another CPU, which cannot run. `None` where kernel code waits for the host itself.
    pub host_limit: Option<Duration>,
    /// How many of the last events [`Model::events`](crate::Model::events) gives.
    pub keep_events: usize,
    /// What each interrupt but a CPU's own timer's takes longer to arrive. Without, its way always takes the same time.
    pub jitter: Option<Jitter>,
    /// How long a CPU stands still before each reading of its clock, as one does that firmware takes, or an emulator's
    /// host: for tests of what happens between two readings. Without, not at all.
    pub stalls: Option<Jitter>,
    /// Who is late to sleep: for tests that no wakeup is lost.
    pub late_sleep: Option<LateSleep>,
    /// Whether a CPU whose hardware walks page tables looks there again before it refuses an access for what its TLB
    /// says, as AMD's and QEMU's do. Otherwise it faults, and looks there at the next attempt, as Intel's do. It is
    /// seen where permissions were gained and nobody was told of that.
    pub walks_again: bool,
}

/// 10 to 20 seconds of a host's time, and tens of milliseconds of a machine's on which all CPUs spin for a device.
const SPIN_LIMIT: u64 = 100_000_000;

/// Much longer than any host takes between two calls.
const HOST_LIMIT: Duration = Duration::from_secs(10);

impl Default for Options {
    fn default() -> Options {
        Options {
            schedule: Schedule::Timed,
            tolerate_stale: false,
            spin_limit: SPIN_LIMIT,
            cycle_limit: None,
            host_limit: Some(HOST_LIMIT),
            keep_events: 0,
            jitter: None,
            stalls: None,
            late_sleep: None,
            walks_again: false,
        }
    }
}

impl Options {
    /// A run in this schedule.
    pub fn new(schedule: Schedule) -> Options {
        Options { schedule, ..Options::default() }
    }

    /// Lets runs go on after the use of a stale translation: for experiments that provoke it, and look at
    /// [`Model::stale_uses`](crate::Model::stale_uses) themselves.
    pub fn tolerate_stale(self) -> Options {
        Options { tolerate_stale: true, ..self }
    }

    /// See [`Options::spin_limit`].
    pub fn spin_limit(self, spin_limit: u64) -> Options {
        Options { spin_limit, ..self }
    }

    /// See [`Options::host_limit`].
    pub fn host_limit(self, host_limit: Option<Duration>) -> Options {
        Options { host_limit, ..self }
    }

    /// See [`Options::keep_events`].
    pub fn keep_events(self, keep_events: usize) -> Options {
        Options { keep_events, ..self }
    }

    /// See [`Options::jitter`].
    pub fn jitter(self, jitter: Option<Jitter>) -> Options {
        Options { jitter, ..self }
    }

    /// See [`Options::stalls`].
    pub fn stalls(self, stalls: Option<Jitter>) -> Options {
        Options { stalls, ..self }
    }

    /// See [`Options::late_sleep`].
    pub fn late_sleep(self, late_sleep: Option<LateSleep>) -> Options {
        Options { late_sleep, ..self }
    }

    /// See [`Options::walks_again`].
    pub fn walks_again(self) -> Options {
        Options { walks_again: true, ..self }
    }

    /// See [`Options::cycle_limit`].
    pub fn cycle_limit(self, limit: Cycles) -> Options {
        Options { cycle_limit: Some(limit), ..self }
    }
}
