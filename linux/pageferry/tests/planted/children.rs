//! What `fork` does.

use crate::peer::emulated::{Need, works};
use crate::{Found, holds, leased_pair, mmu_pair, pair, patience, peer};
use pageferry::{Channel, Config, Error, PeerFault, Receiver, Sender, Usage};
use std::io::{Read as _, Write as _};
use std::time::Instant;

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
    // Where the child has the mapping anyway, it reads it without the library's help.
    if !works(Need::KeptFromChildren) {
        return Found::NotHere;
    }
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
    if !works(Need::KeptFromChildren) {
        return Found::NotHere;
    }
    let Some((tx, rx)) = mmu_pair() else { return Found::NotHere };
    let mut buffer = tx.buffer(5000).unwrap();
    buffer.fill(1);
    let stray = buffer.as_mut_ptr();
    let (mut wait, mut go) = std::io::pipe().unwrap();
    // SAFETY: a fork without handlers, which is what is tested; the child calls the kernel alone.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
    if child == 0 {
        // If its parent fails, it waits no longer.
        drop(go);
        let _ = wait.read(&mut [0]);
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
        drop(go);
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

/// What /proc says of the mapping of an address: what it permits, and its flags. `None`: nothing is mapped there.
fn mapping(at: usize) -> Option<(String, Vec<String>)> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        let range =
            first.split_once('-').map(|(low, high)| [low, high].map(|it| usize::from_str_radix(it, 16)));
        if let Some([Ok(low), Ok(high)]) = range {
            found = (low..high).contains(&at).then(|| words.next().unwrap().to_owned());
        } else if let (Some(permits), "VmFlags:") = (&found, first) {
            return Some((permits.clone(), words.map(str::to_owned).collect()));
        }
    }
    None
}

/// Slots that were lent and came home are shared and writable again, and must stay out of children as before.
fn stays_out((tx, rx): (Sender, Receiver)) -> Found {
    for round in 0..3 {
        let mut buffer = tx.buffer(1000).unwrap();
        buffer.fill(round);
        let at = buffer.as_ptr() as usize;
        let Some((permits, flags)) = mapping(at) else { return Found::NotHere };
        assert_eq!(permits, "rw-s");
        // SAFETY: a fork without handlers, so that nothing is put in the place of what stays out.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
        if child == 0 {
            let out = mapping(at).is_none();
            // SAFETY: ends the child; nothing of the parent's is dropped.
            unsafe { libc::_exit(if out { 0 } else { 1 }) };
        }
        let out = ended(child);
        // `dc`: do not copy on fork.
        if out != Found::Holds || !flags.iter().any(|flag| flag == "dc") {
            return Found::Fails;
        }
        // With the handlers, a child has its own in the place.
        let own = in_child(|| mapping(at).is_some_and(|(permits, _)| permits == "rw-p"));
        assert_eq!(own, Found::Holds);
        let lent = tx.loan(buffer).unwrap();
        drop(rx.recv().unwrap());
        drop(lent.wait().unwrap());
    }
    Found::Holds
}

/// Of a pool.
pub fn opened_again() -> Found {
    if !works(Need::KeptFromChildren) {
        return Found::NotHere;
    }
    mmu_pair().map_or(Found::NotHere, stays_out)
}

/// Of slots that the receiver has made.
pub fn leased() -> Found {
    leased_pair().map_or(Found::NotHere, stays_out)
}

/// A receiver's process ends, and a child of it goes on. The sender sees at once that the receiver is gone, and all
/// that was lent is home: the child is no receiver, and what it has inherited may show later messages.
pub fn orphan() -> Found {
    let (ours, theirs) = Channel::sockets().unwrap();
    let (mut told, mut tells) = std::io::pipe().unwrap();
    let config = || Config::new().slots(1).slot_bytes(1);
    // SAFETY: one thread works in this process, and the child ends without returning.
    let receiver = unsafe { libc::fork() };
    if receiver == 0 {
        drop(ours);
        // SAFETY: the sender is this program.
        let rx = unsafe { Channel::trusted_receiver(theirs, config()) }.unwrap();
        let loan = rx.recv().unwrap();
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        if child == 0 {
            assert_eq!(loan[0], 1);
            loop {
                // SAFETY: it waits until it is killed.
                unsafe { libc::pause() };
            }
        }
        tells.write_all(&child.to_ne_bytes()).unwrap();
        // SAFETY: as if it were killed: nothing is dropped.
        unsafe { libc::_exit(0) };
    }
    drop(theirs);
    drop(tells);
    // SAFETY: the receiver is this program.
    let tx = unsafe { Channel::trusted_sender(ours, config()) }.unwrap();
    let mut buffer = tx.buffer(1000).unwrap();
    buffer.fill(1);
    let lent = tx.loan(buffer).unwrap();
    let mut child = [0; 4];
    told.read_exact(&mut child).unwrap();
    assert_eq!(ended(receiver), Found::Holds);
    let began = Instant::now();
    let home = lent.wait_timeout(patience());
    let seen = tx.try_copy(b"more").err();
    // SAFETY: the child has no parent but the system, and waits for this.
    let lived = unsafe { libc::kill(libc::pid_t::from_ne_bytes(child), libc::SIGKILL) } == 0;
    assert!(lived, "the child was to outlive the receiver");
    assert!(home.is_err() || began.elapsed() < peer::PATIENCE / 2);
    holds(home.is_ok() && seen == Some(Error::Peer(PeerFault::Dead)))
}
