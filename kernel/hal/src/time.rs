//! Integer time and integer work.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub};

/// A time or a duration in cycles of the CPU's clock. Never a float: equal runs are equal to the last digit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cycles(pub u64);

/// The length of a [path](crate::CodePath): how many instructions a piece of code executes, apart from the memory
/// accesses that are accounted by themselves. The machine says how long an instruction takes; the kernel says how many
/// there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instructions(pub u32);

impl Cycles {
    /// No time.
    pub const ZERO: Cycles = Cycles(0);
    /// The later moment minus the earlier, or zero when they are the other way round.
    pub const fn saturating_sub(self, other: Cycles) -> Cycles {
        Cycles(self.0.saturating_sub(other.0))
    }
}

impl Add for Cycles {
    type Output = Cycles;
    fn add(self, o: Cycles) -> Cycles {
        Cycles(self.0 + o.0)
    }
}
impl AddAssign for Cycles {
    fn add_assign(&mut self, o: Cycles) {
        self.0 += o.0;
    }
}
impl Sub for Cycles {
    type Output = Cycles;
    /// # Panics
    /// When the result would be negative.
    fn sub(self, o: Cycles) -> Cycles {
        Cycles(self.0.checked_sub(o.0).expect("negative duration"))
    }
}
impl Sum for Cycles {
    fn sum<I: Iterator<Item = Cycles>>(iter: I) -> Cycles {
        iter.fold(Cycles::ZERO, Add::add)
    }
}
impl fmt::Debug for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cycles", self.0)
    }
}
impl fmt::Debug for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} instructions", self.0)
    }
}
