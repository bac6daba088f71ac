//! How a machine is run: which CPU goes next, what ends a run, and what does not.

use core::fmt;
use pageferry_hal::Cycles;

/// Which CPU runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// The CPU whose clock is lowest.
    #[default]
    Timed,
    /// A CPU chosen at random at every call; for tests.
    Seeded(u64),
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Timed => f.write_str("timed schedule"),
            Schedule::Seeded(seed) => write!(f, "schedule of seed {seed}"),
        }
    }
}

/// How to run a machine. [`Options::default`] is a timed schedule in which every error ends the run, with 100,000,000
/// tests in vain as the limit of waiting, no limit of cycles, and no events kept.
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
    /// How many of the last events [`Model::events`](crate::Model::events) gives.
    pub keep_events: usize,
}

/// 10 to 20 seconds of a host's time, and tens of milliseconds of a machine's on which all CPUs spin for a device.
const SPIN_LIMIT: u64 = 100_000_000;

impl Default for Options {
    fn default() -> Options {
        Options {
            schedule: Schedule::Timed,
            tolerate_stale: false,
            spin_limit: SPIN_LIMIT,
            cycle_limit: None,
            keep_events: 0,
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

    /// See [`Options::keep_events`].
    pub fn keep_events(self, keep_events: usize) -> Options {
        Options { keep_events, ..self }
    }

    /// See [`Options::cycle_limit`].
    pub fn cycle_limit(self, limit: Cycles) -> Options {
        Options { cycle_limit: Some(limit), ..self }
    }
}
