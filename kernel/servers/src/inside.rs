//! What a server has, where several threads may be inside: one of them has it at a time.
//!
//! Where requests are queued the server's thread takes them from its queue. Where threads cross into it there may be
//! several inside: the first takes the whole of it, and the others read from a pipe of the server's until they get a
//! byte. So nobody who finds it free makes a call for that.
//!
//! # What can fail
//! Waiting, by a signal or the server's death.

use alloc::boxed::Box;
use pageferry_abi::{Errno, Fd};
use pageferry_hal::{LockClass, Machine, PAGE_SIZE, Prot, SpinLock, Va};
use pageferry_kernel::User;
use pageferry_vm::Inherit;

/// What a server has.
pub(super) trait Whole: 'static {
    /// It serves no more.
    fn is_over(&self) -> bool;
}

/// See the [module](self).
pub(super) struct Inside<M: Machine, S: Whole> {
    state: M::Lock<State<S>>,
    /// Who waits reads from the one end; who is done writes to the other.
    turns: (Fd, Fd),
    /// A byte for that, in the server's memory.
    byte: Va,
}

struct State<S> {
    whole: Option<Box<S>>,
    waiting: u32,
    over: bool,
}

impl<M: Machine, S: Whole> Inside<M, S> {
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(super) fn new(user: &User<M>, whole: S) -> Result<Inside<M, S>, Errno> {
        let turns = user.pipe()?;
        let byte = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy)?;
        let state = State { whole: Some(Box::new(whole)), waiting: 0, over: false };
        Ok(Inside { state: user.machine().new_lock(LockClass::PIPE, state), turns, byte })
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().over
    }

    /// Takes it, and waits for it while another has it. It must be [put back](Inside::put).
    ///
    /// # Errors
    /// [`Errno::Interrupted`] by a signal, if `interruptible`; [`Errno::Killed`].
    pub(super) fn take(&self, user: &User<M>, interruptible: bool) -> Result<Box<S>, Errno> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(whole) = state.whole.take() {
                    return Ok(whole);
                }
                state.waiting += 1;
            }
            match user.read(self.turns.0, self.byte, 1) {
                Err(Errno::Interrupted) if !interruptible => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    pub(super) fn put(&self, user: &User<M>, whole: Box<S>) {
        let wanted = {
            let mut state = self.state.lock();
            state.over |= whole.is_over();
            state.whole = Some(whole);
            state.waiting > 0 && {
                state.waiting -= 1;
                true
            }
        };
        if wanted {
            // The pipe has room for more bytes than there are threads.
            _ = user.write(self.turns.1, self.byte, 1);
        }
    }
}
