//! What `fork` does.

use crate::{Found, holds, mmu_pair, pair};
use pageferry::{Error, Usage};
use std::io::{Read as _, Write as _};

/// Whether something is so in a child of this process; it is not where the child is killed.
pub fn in_child(so: impl FnOnce() -> bool) -> Found {
    // SAFETY: one thread works in this process, and the child ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let so = std::panic::catch_unwind(std::panic::AssertUnwindSafe(so)).unwrap_or(false);
        // SAFETY: ends the child; nothing of the parent's is dropped.
        unsafe { libc::_exit(if so { 0 } else { 1 }) };
    }
    ended(child)
}

fn ended(child: libc::pid_t) -> Found {
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: writes one number.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    holds(status == 0)
}

/// A child finds the sender's bytes where they were, lent or not.
pub fn reads() -> Found {
    let (tx, _rx) = pair();
    let mut buffer = tx.buffer(5000).unwrap();
    buffer.fill(7);
    let open = in_child(|| buffer.iter().all(|&byte| byte == 7));
    let lent = tx.loan(buffer).unwrap();
    let lent = in_child(|| lent.iter().all(|&byte| byte == 7));
    holds((open, lent) == (Found::Holds, Found::Holds))
}

/// A child that was made without the handlers of `fork` has nothing by which it writes to what its parent lends later.
pub fn stores() -> Found {
    let Some((tx, rx)) = mmu_pair() else { return Found::NotHere };
    let mut buffer = tx.buffer(5000).unwrap();
    buffer.fill(1);
    let stray = buffer.as_mut_ptr();
    let (mut wait, mut go) = std::io::pipe().unwrap();
    // SAFETY: a fork without handlers, which is what is tested; the child calls the kernel alone.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
    if child == 0 {
        let mut byte = [0];
        let _ = wait.read(&mut byte);
        // SAFETY: the store is what is tested: it kills this child, or is seen.
        unsafe { stray.write_volatile(2) };
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let _lent = tx.loan(buffer).unwrap();
    let loan = rx.recv().unwrap();
    go.write_all(&[1]).unwrap();
    ended(child);
    holds(loan[0] == 1)
}

/// A child's view of what its parent had received at the fork stays as it is, whatever the parent does.
pub fn fence() -> Found {
    let Some((tx, rx)) = mmu_pair() else { return Found::NotHere };
    let mut buffer = tx.buffer(5000).unwrap();
    buffer.fill(1);
    let lent = tx.loan(buffer).unwrap();
    let loan = rx.recv().unwrap();
    let (mut wait, mut go) = std::io::pipe().unwrap();
    // SAFETY: one thread works in this process, and the child ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = wait.read(&mut [0]);
        let same = loan.iter().all(|&byte| byte == 1);
        // SAFETY: ends the child; nothing of the parent's is dropped.
        unsafe { libc::_exit(if same { 0 } else { 1 }) };
    }
    drop(loan);
    let early = lent.is_home().unwrap();
    if early {
        let mut buffer = lent.wait().unwrap();
        buffer.fill(2);
        drop(tx.loan(buffer).unwrap());
    }
    go.write_all(&[1]).unwrap();
    let kept = ended(child);
    if early {
        return holds(kept == Found::Holds);
    }
    // The child is gone: what was kept for it goes home.
    assert_eq!(rx.try_recv().unwrap_err(), Error::WouldBlock);
    holds(kept == Found::Holds && tx.counters().out == 0)
}

/// A child's calls on its parent's channel are errors.
pub fn refused() -> Found {
    let (tx, rx) = pair();
    let sends = in_child(|| tx.try_buffer(1).is_err_and(|error| error == Error::Usage(Usage::Forked)));
    let receives = in_child(|| rx.try_recv().is_err_and(|error| error == Error::Usage(Usage::Forked)));
    holds((sends, receives) == (Found::Holds, Found::Holds))
}
