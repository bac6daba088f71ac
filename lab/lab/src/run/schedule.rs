//! How the modelled CPUs take turns.

/// How the modelled CPUs take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// By their clocks, as hardware would. For measurements.
    #[default]
    Timed,
    /// By the seed, at every call on the machine. For finding races; times mean nothing.
    Seeded,
}
