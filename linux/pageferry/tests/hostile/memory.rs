//! Senders that go on to write what they have sent, and whatever else can be done to a file.

use crate::more::{can_map, remap};
use crate::peer::{self, Map, Plan, RawSender};
use crate::stage::{Against, FORGED, HONEST, Holds, Row, Stage};
use crate::uring::{self, Pinned};
use pageferry::wire::Descriptor;
use pageferry::{Level, Verb};
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Whether a peer can have io_uring pin its memory.
pub fn can_pin() -> bool {
    crate::once("PAGEFERRY_TEST_URING", uring::is_here)
}

/// Bytes of a message: one slot.
fn len() -> usize {
    peer::page_bytes() as usize
}

/// What a sender has of a message that is out.
pub struct Sent {
    _raw: RawSender,
    /// The file that it lies in.
    pub fd: OwnedFd,
    /// The file, mapped before it was sealed: writable, but for sealed memory, of which no such map could be.
    map: *mut u8,
    writable: bool,
}

impl Sent {
    fn store(&self, at: *mut u8) {
        for index in 0..len() {
            // SAFETY: the caller has mapped so many bytes there, writable.
            unsafe { at.add(index).write_volatile(FORGED) };
        }
    }
}

/// Runs the handshake and sends a message of one page at the row's level.
pub fn send(stage: &Stage) -> Option<Sent> {
    let mut raw = RawSender::meet(stage.socket(), Plan::honest(stage.level)).ok()?;
    let sent = match stage.level {
        Level::Sealed => {
            let fd = peer::snapshot(len() as u64, HONEST, SealFlags::empty());
            // Not even a map that only reads may be there before the seal.
            let early = Map::new(&fd, len(), false);
            assert!(rustix::fs::fcntl_add_seals(&fd, peer::SNAPSHOT_SEALS).is_err());
            drop(early);
            rustix::fs::fcntl_add_seals(&fd, peer::SNAPSHOT_SEALS).unwrap();
            let map = Map::new(&fd, len(), false);
            raw.object(0, &fd);
            let mut message = raw.inline(len() as u64);
            (message.verb, message.level) = (Verb::Loan, Level::Sealed);
            raw.say(message);
            let at = map.at(0);
            core::mem::forget(map);
            Sent { _raw: raw, fd, map: at, writable: false }
        }
        level => {
            let verb = if level == Level::Copy { Verb::Copy } else { Verb::Loan };
            raw.pool.write(0, &vec![HONEST; len()]);
            let message = raw.message(verb, level, 0, len() as u64);
            raw.say(message);
            let fd = raw.pool_fd.try_clone().unwrap();
            let map = raw.pool.at(0);
            Sent { _raw: raw, fd, map, writable: true }
        }
    };
    stage.go();
    Some(sent)
}

/// What is done to a message's memory; whether it is memory that stays shared with a receiver that reads it in place.
type Attack = fn(&Sent);

fn attacks() -> Vec<(&'static str, bool, Attack)> {
    let store: Attack = |sent| {
        if sent.writable {
            sent.store(sent.map);
        } else {
            // SAFETY: changes what this process may do with its own map, if the kernel permits it.
            let answer =
                unsafe { libc::mprotect(sent.map.cast(), len(), libc::PROT_READ | libc::PROT_WRITE) };
            assert_eq!(answer, -1, "a map of sealed memory became writable");
        }
    };
    let remapped: Attack = |sent| {
        let again = remap(sent.map, len()).expect("no seal forbids it");
        if sent.writable {
            sent.store(again);
        }
    };
    let child: Attack = |sent| {
        // SAFETY: the child stores to mapped memory and ends; this process has one thread.
        unsafe {
            match libc::fork() {
                0 => {
                    if sent.writable {
                        sent.store(sent.map);
                    } else {
                        let byte = [FORGED; 64];
                        libc::pwrite(sent.fd.as_raw_fd(), byte.as_ptr().cast(), byte.len(), 0);
                    }
                    libc::_exit(0)
                }
                child => {
                    libc::waitpid(child, core::ptr::null_mut(), 0);
                }
            }
        }
    };
    let thread: Attack = |sent| {
        let (at, writable) = (sent.map as usize, sent.writable);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if writable {
                    sent_by_thread(at as *mut u8);
                }
            });
        });
    };
    let by_kernel: Attack = |sent| {
        let bytes = vec![FORGED; len()];
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len() };
        let remote = libc::iovec { iov_base: sent.map.cast(), iov_len: len() };
        // SAFETY: the kernel checks both ranges.
        unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    };
    let pwrite: Attack = |sent| {
        assert!(rustix::io::pwrite(&sent.fd, &[FORGED; 100], 0).is_err());
    };
    let map: Attack = |sent| assert!(!can_map(&sent.fd, len()));
    let reopen: Attack = |sent| {
        let path = format!("/proc/self/fd/{}", sent.fd.as_raw_fd());
        if let Ok(fd) = rustix::fs::open(path, OFlags::RDWR, Mode::empty()) {
            assert!(rustix::io::pwrite(&fd, &[FORGED; 100], 0).is_err());
            assert!(!can_map(&fd, len()));
        }
    };
    let shrink: Attack = |sent| assert!(rustix::fs::ftruncate(&sent.fd, 0).is_err());
    let grow: Attack = |sent| assert!(rustix::fs::ftruncate(&sent.fd, 1 << 30).is_err());
    let punch: Attack = |sent| {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&sent.fd, mode, 0, len() as u64).is_err());
    };
    let zero: Attack = |sent| {
        let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&sent.fd, mode, 0, len() as u64).is_err());
    };
    let remove: Attack = |sent| {
        // SAFETY: the pages are this process's map; nobody here has a reference to them.
        let answer = unsafe { libc::madvise(sent.map.cast(), len(), libc::MADV_REMOVE) };
        assert_eq!(answer, -1, "a hole was made");
    };
    let seal: Attack = |sent| {
        assert!(rustix::fs::fcntl_add_seals(&sent.fd, SealFlags::WRITE).is_err(), "no seal after the last");
    };
    let mode: Attack = |sent| {
        let _ = rustix::fs::fchmod(&sent.fd, Mode::empty());
    };
    let uring: Attack = |sent| match Pinned::new(sent.map, len()) {
        Ok(pinned) => {
            assert!(sent.writable, "sealed memory was pinned to be written");
            pinned.store(0, &vec![FORGED; len()]);
        }
        Err(_) => assert!(!sent.writable),
    };
    let mut attacks = vec![
        ("stores by a map that it kept", true, store),
        ("stores by a map that mremap duplicates", true, remapped),
        ("stores in a forked child", true, child),
        ("stores in another thread", true, thread),
        ("has the kernel store, by process_vm_writev", true, by_kernel),
        ("stores by pwrite", false, pwrite),
        ("maps it once more", false, map),
        ("opens it once more", false, reopen),
        ("shrinks it", false, shrink),
        ("makes it longer", false, grow),
        ("punches a hole", false, punch),
        ("zeroes a range", false, zero),
        ("removes its pages", false, remove),
        ("seals it once more", false, seal),
        ("takes its mode away", false, mode),
    ];
    if can_pin() {
        attacks.push(("has io_uring store", true, uring));
    }
    attacks
}

/// Pages that are pinned can be written when no mapping is left; the seal waits for them, and is refused.
fn seals_what_is_pinned(stage: &Stage) {
    let Ok(mut raw) = RawSender::meet(stage.socket(), Plan::honest(stage.level)) else { return };
    let fd = peer::snapshot(len() as u64, HONEST, SealFlags::empty());
    let map = Map::new(&fd, len(), true);
    let pinned = Pinned::new(map.at(0), len()).unwrap();
    drop(map);
    assert!(rustix::fs::fcntl_add_seals(&fd, peer::SNAPSHOT_SEALS).is_err(), "a pinned page was sealed");
    pinned.store(0, &[FORGED]);
    // Whoever sends it all the same sends what is not sealed.
    raw.object(0, &fd);
    let message = Descriptor { verb: Verb::Loan, level: Level::Sealed, ..raw.inline(len() as u64) };
    raw.say(message);
    stage.attacked();
    stage.linger();
    drop(pinned);
}

fn sent_by_thread(at: *mut u8) {
    for index in 0..len() {
        // SAFETY: mapped writable for as long as the thread runs.
        unsafe { at.add(index).write_volatile(FORGED) };
    }
}

/// A table of its own: what holds at which level, for each attack on the memory of a message.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (attack, through_a_map, act) in attacks() {
        for (level, against) in [
            (Level::Copy, Against::Receiver),
            (Level::Sealed, Against::Receiver),
            (Level::Copy, Against::TrustedReceiver),
            (Level::Typed, Against::TrustedReceiver),
            (Level::Mmu, Against::TrustedReceiver),
            (Level::Sealed, Against::TrustedReceiver),
        ] {
            let in_place = matches!(level, Level::Typed | Level::Mmu);
            // A sender that keeps a map can write what is only lent: that is not claimed to be safe.
            let holds = if in_place && through_a_map { Holds::Changes } else { Holds::Snapshot };
            rows.push(Row::new(level, against, attack, holds, move |stage| {
                let Some(sent) = send(stage) else { return };
                act(&sent);
                stage.attacked();
            }));
        }
    }
    if can_pin() {
        for against in [Against::Receiver, Against::TrustedReceiver] {
            let attack = "seals what io_uring has pinned";
            rows.push(Row::new(Level::Sealed, against, attack, Holds::Refused, seals_what_is_pinned));
        }
    }
    rows
}
