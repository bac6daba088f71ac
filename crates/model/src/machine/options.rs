//! How a machine is run: which CPU goes next, what ends a run, and what does not.

use core::fmt;

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

/// How to run a machine. [`Options::default`] is a timed schedule in which every error ends the run.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Which CPU runs next.
    pub schedule: Schedule,
    /// Uses of stale translations are counted and reported ([`Model::stale_uses`](crate::Model::stale_uses)), and are no
    /// errors.
    pub tolerate_stale: bool,
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
}
