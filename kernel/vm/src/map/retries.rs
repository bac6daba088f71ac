//! Tries of one access at one address, one behind the other.
//!
//! A few are sound: the page is taken away again between the fault and the access, or write-protection reaches another
//! CPU late. What is tried again and again at one address makes no progress, and would make none for ever: what a fault
//! maps does not permit the access or does not stay, or what it waits for does not come.

use pageferry_hal::Va;

/// In a row, at most: so often, the page of one access would have been taken away again at once.
const MAX_TRIES: u32 = 10_000;

/// Counts them, for the access whose they are.
#[derive(Debug, Default)]
pub struct Retries {
    at: Option<Va>,
    tries: u32,
}

impl Retries {
    /// The access, or its fault, is tried again at this address.
    ///
    /// # Panics
    /// When nothing else was for a long time.
    pub fn again(&mut self, at: Va) {
        if self.at.replace(at) != Some(at) {
            self.tries = 0;
        }
        self.tries += 1;
        assert!(
            self.tries <= MAX_TRIES,
            "no progress at {at:?}: what an access needs there was tried {MAX_TRIES} times"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_that_goes_on_may_fault_for_ever() {
        let mut retries = Retries::default();
        (0..3 * u64::from(MAX_TRIES)).for_each(|i| retries.again(Va(4096 * (i / 100))));
    }

    #[test]
    #[should_panic = "no progress at"]
    fn an_access_that_does_not_may_not() {
        let mut retries = Retries::default();
        (0..=MAX_TRIES).for_each(|_| retries.again(Va(4096)));
    }
}
