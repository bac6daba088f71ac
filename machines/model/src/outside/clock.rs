//! From cycles of the CPUs to picoseconds, and back.

use crate::turns::NEVER;

/// When all time ends, in picoseconds: 53 days. What begins before takes no time that could not be written down.
const END_PS: u64 = 1 << 62;

/// From cycles of the CPUs to time outside of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutsideClock {
    pub(crate) mhz: u64,
}

impl OutsideClock {
    /// When a CPU is at `cycle`.
    pub(crate) fn ps(self, cycle: u64) -> u64 {
        saturating(u128::from(cycle) * 1_000_000 / u128::from(self.mhz))
    }

    /// The first cycle that does not begin before `ps`; of [`OutsideClock::ps`] of a cycle, that cycle.
    pub(crate) fn cycle(self, ps: u64) -> u64 {
        if ps == NEVER {
            return NEVER;
        }
        saturating((u128::from(ps) * u128::from(self.mhz)).div_ceil(1_000_000))
    }

    /// The last cycle of a run, whatever its limit.
    pub(crate) fn end(self) -> u64 {
        self.cycle(END_PS)
    }
}

fn saturating(time: u128) -> u64 {
    u64::try_from(time).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_again() {
        for mhz in [1, 66, 133, 2400, 3700, 100_000] {
            let clock = OutsideClock { mhz };
            for cycle in [0, 1, 2, 7, 1000, 123_456_789, 1 << 40] {
                assert_eq!(clock.cycle(clock.ps(cycle)), cycle, "{mhz} MHz");
            }
            assert!(clock.cycle(clock.ps(5) + 1) >= 5);
            assert_eq!(clock.cycle(NEVER), NEVER);
        }
    }
}
