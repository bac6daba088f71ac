//! A system call in progress, and moving bytes between the kernel and a process (`copyin`, `copyout`).
//!
//! # What it holds
//! A [`Syscall`] is a view of what a system call works on, owned by the call and gone with it. It holds no lock.
//!
//! # Copies
//! A copy runs in kernel mode through the user's own addresses. Where the MMU refuses one of those, the fault is
//! resolved as if the user had touched the page, and the copy goes on behind the bytes that are done; where it refuses
//! a kernel address, the kernel is broken.
//!
//! # Locks
//! A fault may sleep: before and after a copy, no spin lock is held.
//!
//! # What can fail
//! A copy, at an address that the process may not use, or for want of memory; the bytes before that are copied.

use super::uio::{Uio, UioRw, WaitFlag};
use crate::base::Core;
use crate::choose::KeptStats;
use crate::counter::KernelCounter;
use crate::sched::Thread;
use alloc::sync::Arc;
use pageferry_abi::{Errno, Pid};
use pageferry_hal::{Cause, CopyFault, Crossing, Machine, Mode, Threads, Trap, Va};
use pageferry_vm::{Retries, Space, VmError};

/// A system call in progress: the kernel, the thread that makes it, and the address space and process that it is made
/// for.
pub struct Syscall<'a, M: Machine> {
    /// What it stands on.
    pub core: &'a Arc<Core<M>>,
    /// The thread that makes it.
    pub thread: &'a Thread<M>,
    /// The address space that it is made for.
    pub space: &'a Arc<Space<M>>,
    /// The process that it is made for.
    pub pid: Pid,
    /// What this process's loans and copies have cost.
    pub loans: &'a KeptStats,
}

/// A copy that stopped at an address that cannot be used.
pub struct CopyError {
    /// Bytes transferred before.
    pub done_bytes: usize,
    /// [`Errno::Fault`] where the process may not use the address; otherwise what kept its page from coming.
    pub why: Errno,
}

impl<M: Machine> Syscall<'_, M> {
    /// The machine.
    pub fn machine(&self) -> &M {
        &self.core.machine
    }

    /// What may wait for memory in this call: the thread, if the call waits.
    pub fn sleeper(&self, wait: WaitFlag) -> Option<&dyn Threads> {
        match wait {
            WaitFlag::WaitOk => Some(self.thread),
            WaitFlag::NoWait => None,
        }
    }

    /// Moves `len` bytes between kernel memory and a buffer on its way, whichever way that goes, and the buffer on by
    /// what was moved (`uiomove`).
    ///
    /// # Errors
    /// What ends the process's memory there; the bytes before have moved.
    pub fn uiomove(&self, kva: Va, len: usize, uio: &mut Uio) -> Result<(), Errno> {
        let at = uio.at();
        let copied = match uio.rw() {
            UioRw::Read => self.copy_out(at, kva, len),
            UioRw::Write => self.copy_in(kva, at, len),
        };
        advanced(uio, len, copied)
    }

    /// Clears `len` bytes of a buffer that is to be filled, as if zeros had been moved there.
    ///
    /// # Errors
    /// As [`Syscall::uiomove`].
    pub fn uiozero(&self, len: usize, uio: &mut Uio) -> Result<(), Errno> {
        let at = uio.at();
        advanced(uio, len, self.clear(at, len))
    }

    /// Tests that a buffer lies within user space, as every copy does first.
    ///
    /// # Errors
    /// [`Errno::Fault`].
    pub fn check_buffer(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        if self.machine().board().layout.is_user(at, len_bytes) { Ok(()) } else { Err(Errno::Fault) }
    }

    /// Copies kernel bytes to the user.
    pub fn copy_out(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyError> {
        self.copy(len_bytes, |m, done| m.copy_out(to + done, from + done, len_bytes - done))
    }

    /// Copies user bytes into the kernel.
    pub fn copy_in(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyError> {
        self.copy(len_bytes, |m, done| m.copy_in(to + done, from + done, len_bytes - done))
    }

    /// Clears user bytes.
    ///
    /// # Errors
    /// [`Errno::Fault`]; the bytes before that are clear.
    pub fn clear_user(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.check_buffer(at, len_bytes)?;
        self.clear(at, len_bytes).map_err(|stopped| stopped.why)
    }

    /// Clears bytes of a buffer of the user's.
    pub fn clear(&self, at: Va, len_bytes: usize) -> Result<(), CopyError> {
        self.copy(len_bytes, |m, done| m.zero(at + done, len_bytes - done))
    }

    /// Takes a few user bytes into registers: fewer than fill a page.
    ///
    /// # Errors
    /// [`Errno::Fault`].
    pub fn fetch_bytes(&self, from: Va, bytes: &mut [u8]) -> Result<(), Errno> {
        self.check_buffer(from, bytes.len())?;
        let len = bytes.len();
        let fetched = self.copy(len, |m, done| m.load(Mode::Kernel, from + done, &mut bytes[done..]));
        fetched.map_err(|stopped| stopped.why)
    }

    /// Puts a few bytes from registers into user memory: fewer than fill a page.
    ///
    /// # Errors
    /// [`Errno::Fault`].
    pub fn store_bytes(&self, to: Va, bytes: &[u8]) -> Result<(), Errno> {
        self.check_buffer(to, bytes.len())?;
        let stored = self.copy(bytes.len(), |m, done| m.store(Mode::Kernel, to + done, &bytes[done..]));
        stored.map_err(|stopped| stopped.why)
    }

    /// Copies between two kernel addresses.
    ///
    /// # Panics
    /// When either is not mapped.
    pub fn copy_kernel(&self, to: Va, from: Va, len_bytes: usize) {
        let _c = self.machine().scope(Cause::Copy);
        self.machine().copy_kernel(to, from, len_bytes).expect("the kernel's own addresses are mapped");
        self.machine().count(KernelCounter::BytesCopied, len_bytes as u64);
    }

    /// Makes a copy of `len_bytes` again behind every fault; `attempt` gets how many bytes it got to.
    fn copy(
        &self,
        len_bytes: usize,
        mut attempt: impl FnMut(&M, usize) -> Result<(), CopyFault>,
    ) -> Result<(), CopyError> {
        let m = self.machine();
        m.execute(self.core.config.paths.uiomove);
        let mut done_bytes = 0;
        let mut retries = Retries::default();
        while done_bytes < len_bytes {
            let result = {
                let _c = m.scope(Cause::Copy);
                attempt(m, done_bytes)
            };
            match result {
                Ok(()) => done_bytes = len_bytes,
                Err(fault) => {
                    done_bytes += fault.done_bytes;
                    assert!(done_bytes < len_bytes, "a copy that is complete cannot fault");
                    retries.again(fault.trap.va);
                    self.resolve(fault.trap).map_err(|e| CopyError { done_bytes, why: e.into() })?;
                }
            }
        }
        m.count(KernelCounter::BytesCopied, len_bytes as u64);
        Ok(())
    }

    /// Takes a fault inside the kernel.
    ///
    /// # Panics
    /// When the address is the kernel's own.
    fn resolve(&self, trap: Trap) -> Result<(), VmError> {
        let m = self.machine();
        assert!(trap.va < m.board().layout.user_end, "the kernel faulted at its own address: {trap}");
        let _c = m.scope(Cause::Fault);
        m.cross(Crossing::TrapEnter);
        let result = self.space.fault(self.thread, trap);
        m.cross(Crossing::TrapExit);
        result
    }
}

/// Moves a buffer on by what a copy of `len` bytes has done.
fn advanced(uio: &mut Uio, len: usize, copied: Result<(), CopyError>) -> Result<(), Errno> {
    match copied {
        Ok(()) => uio.advance(len),
        Err(stopped) => {
            uio.advance(stopped.done_bytes);
            return Err(stopped.why);
        }
    }
    Ok(())
}
