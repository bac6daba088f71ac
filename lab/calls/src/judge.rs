//! Who looks on while programs run. Holds nothing and locks nothing; what it finds wrong it panics for.

use pageferry_hal::Machine;
use pageferry_kernel::User;

/// Who looks on.
pub trait Judge<M: Machine> {
    /// These bytes were compared with what they should be, and were right.
    fn compared(&self, bytes: &[u8]);

    /// No process is in the middle of a step; on several CPUs one may be in the middle of its end.
    fn between_steps(&self, user: &User<M>);

    /// Of the kernel's allocations to come, has so many succeed and the next one fail, once; without a number, calls
    /// that off. True if it had come. Who judges may leave that out.
    fn fail_after(&self, _: &User<M>, _succeed: Option<u32>) -> bool {
        false
    }

    /// All processes have ended: the sound device has played this, or was to.
    fn played(&self, _: &User<M>, _expected: &[u8]) {}
}
