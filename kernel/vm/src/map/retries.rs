//! Faults that one access takes at one address, one behind the other.
//!
//! A few are sound: the page is taken away again between the fault and the access, or write-protection reaches another
//! CPU late. An access that goes on faulting where each of its faults was resolved makes no progress, and would make
//! none for ever: what the fault maps does not permit the access, or does not stay.

use pageferry_hal::{Trap, Va};

/// In a row, at most: so often, the page of one access would have been taken away again at once.
const MAX_FAULTS: u32 = 10_000;

/// Counts them, for the access whose it is.
#[derive(Debug, Default)]
pub struct Retries {
    at: Option<Va>,
    faults: u32,
}

impl Retries {
    /// The access faults.
    ///
    /// # Panics
    /// When it has done nothing else for a long time.
    pub fn fault(&mut self, trap: &Trap) {
        if self.at.replace(trap.va) != Some(trap.va) {
            self.faults = 0;
        }
        self.faults += 1;
        assert!(
            self.faults <= MAX_FAULTS,
            "{MAX_FAULTS} faults were resolved, and the access still faults: {trap}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_hal::{Access, Mode, TrapKind};

    fn trap(va: u64) -> Trap {
        Trap { va: Va(va), access: Access::Write, mode: Mode::User, kind: TrapKind::Protection }
    }

    #[test]
    fn an_access_that_goes_on_may_fault_for_ever() {
        let mut retries = Retries::default();
        (0..3 * u64::from(MAX_FAULTS)).for_each(|i| retries.fault(&trap(4096 * (i / 100))));
    }

    #[test]
    #[should_panic = "10000 faults were resolved, and the access still faults"]
    fn an_access_that_does_not_may_not() {
        let mut retries = Retries::default();
        (0..=MAX_FAULTS).for_each(|_| retries.fault(&trap(4096)));
    }
}
