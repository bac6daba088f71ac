//! How the modelled CPUs take turns.

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
