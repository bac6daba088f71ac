//! What may be chosen for a run, whatever it runs: how its CPUs take turns, and what is drawn from which seed.

/// How the modelled CPUs take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// By their clocks, as hardware would. For measurements.
    #[default]
    Timed,
    /// By the seed, at every call on the machine. For finding races; times mean nothing.
    Seeded,
    /// By priorities that are drawn from the seed, for bugs of this depth
    /// ([`Pct`](pageferry_model::Schedule::Pct)). For finding races that need one CPU to be held up for long.
    Pct(u32),
}

/// What may be chosen for all runs of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choices {
    /// Shorter runs.
    pub quick: bool,
    /// What the payload, and a seeded schedule, are made from.
    pub seed: u64,
    /// How CPUs take turns.
    pub schedule: Schedule,
    /// What no real machine holds fixed is drawn from the seed too: where structures lie, frames, the phase of the
    /// clock, what each interrupt takes. Otherwise all that is as it always is.
    pub perturbed: bool,
}

impl Default for Choices {
    fn default() -> Self {
        Choices { quick: false, seed: 1, schedule: Schedule::Timed, perturbed: false }
    }
}
