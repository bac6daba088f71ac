//! Sequence numbers: 32 bits that wrap, compared by the shorter way round.

use core::ops::{Add, Sub};

/// A sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::inet) struct Seq(pub(in crate::inet) u32);

impl Seq {
    /// Comes before `other`.
    pub(in crate::inet) fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Comes after `other`.
    pub(in crate::inet) fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// No farther from `other`, either way, than a window can be wide. Of two numbers half of all apart each comes
    /// before the other: what others say is to be near before it is compared.
    pub(in crate::inet) fn is_near(self, other: Seq) -> bool {
        let distance = self.0.wrapping_sub(other.0) as i32;
        distance.unsigned_abs() <= 1 << 30
    }

    /// The later of the two.
    pub(in crate::inet) fn max(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }

    /// How far it is from `start`, which does not come after it.
    pub(in crate::inet) fn since(self, start: Seq) -> usize {
        let distance = self.0.wrapping_sub(start.0);
        debug_assert!(distance < 1 << 31, "{self:?} comes before {start:?}");
        distance as usize
    }
}

impl Add<usize> for Seq {
    type Output = Seq;
    fn add(self, bytes: usize) -> Seq {
        Seq(self.0.wrapping_add(bytes as u32))
    }
}

impl Sub<usize> for Seq {
    type Output = Seq;
    fn sub(self, bytes: usize) -> Seq {
        Seq(self.0.wrapping_sub(bytes as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let late = Seq(u32::MAX - 1);
        assert!(late.before(late + 5) && (late + 5).after(late) && !late.before(late));
        assert_eq!((late + 5).since(late), 5);
        assert_eq!((late + 5) - 5, late);
        assert_eq!(late.max(late + 3), late + 3);
        assert!(late.is_near(late + (1 << 30)) && (late + 7).is_near(late));
        assert!(!late.is_near(late + (1 << 31)) && !late.is_near(late - (1 << 30) - 1));
    }
}
