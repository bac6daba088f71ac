//! Receivers that write what they were lent, forge acknowledgements and notes, flood and stop.

use crate::greetings::sends_slow_sockets;
use crate::more::{can_map, remap};
use crate::peer::{self, Map, Plan, RawReceiver};
use crate::stage::{Against, FORGED, Holds, Row, Stage};
use pageferry::Level;
use pageferry::wire::Note;
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use std::os::fd::{AsFd as _, AsRawFd as _};

type Act = fn(&mut RawReceiver, &Stage);

/// What is done when a message came, and what holds.
fn acts() -> Vec<(&'static str, Holds, Act)> {
    use Holds::*;
    vec![
        ("acknowledges what is not out", Refused, |raw, _| raw.ack([1 << 40, 0])),
        ("acknowledges message 2^64 - 1", Refused, |raw, _| raw.ack([u64::MAX, 0])),
        ("acknowledges twice", Refused, |raw, stage| {
            raw.ack([0, 0]);
            stage.go();
            raw.ack([0, 0]);
        }),
        ("acknowledges twice at once", Refused, |raw, _| {
            raw.ack([0, 0]);
            raw.ack([0, 0]);
        }),
        ("says that 2^64 - 1 pages were written", Dead, |raw, stage| {
            for number in 0..4 {
                raw.ack([number, u64::MAX]);
                stage.go();
            }
        }),
        ("counts beyond what is out", Refused, |raw, _| raw.count(100)),
        ("counts to 2^64 - 1", Refused, |raw, _| raw.count(u64::MAX)),
        ("counts backward", Refused, |raw, stage| {
            raw.ack([0, 0]);
            // The fourth message is sent when the first is home.
            (0..3).for_each(|_| stage.go());
            raw.count(0);
        }),
        ("counts what it has not written", Refused, |raw, stage| {
            stage.go();
            raw.count(2);
        }),
        ("sends a note that there is not", Refused, |raw, _| bytes(raw, b"x12345678", 0)),
        ("sends a wake-up with a descriptor", Refused, |raw, _| bytes(raw, &Note::Wake.bytes(), 1)),
        ("sends a wake-up with too many descriptors", Refused, |raw, _| bytes(raw, &Note::Wake.bytes(), 253)),
        ("sends sealed memory", Refused, |raw, _| bytes(raw, &Note::Object(0).bytes(), 1)),
        ("says that this side was too slow", Refused, |raw, _| bytes(raw, &Note::Evicted.bytes(), 0)),
        ("sends a note of 60000 bytes", Refused, |raw, _| bytes(raw, &[b'w'; 60_000], 0)),
        ("sends an empty packet", Refused, |raw, _| bytes(raw, &[], 0)),
        ("sends an empty packet with a descriptor", Refused, |raw, _| bytes(raw, &[], 1)),
        ("sends an empty packet with too many descriptors", Refused, |raw, _| bytes(raw, &[], 253)),
        ("sends an empty packet and dies", Alive, |raw, _| bytes(raw, &[], 0)),
        ("sends twelve sockets whose close waits", Refused, |raw, _| {
            sends_slow_sockets(&raw.socket, &Note::Wake.bytes(), 12);
        }),
        ("greets once more", Refused, |raw, _| bytes(raw, &raw.plan.greeting(peer::WELCOME), 1)),
        ("never acknowledges", Late, |_, stage| {
            stage.attacked();
            stage.linger();
        }),
        ("never reads its socket", Late, |raw, stage| {
            raw.sleeps(1);
            stage.attacked();
            stage.linger();
        }),
        ("floods wake-ups", Late, |raw, stage| {
            stage.attacked();
            loop {
                bytes(raw, &Note::Wake.bytes(), 0);
            }
        }),
        ("says bye and goes on", Dead, |raw, stage| {
            bytes(raw, &Note::Bye.bytes(), 0);
            stage.attacked();
            for number in 0..4 {
                raw.ack([number, 0]);
                stage.go();
                bytes(raw, &Note::Bye.bytes(), 0);
            }
        }),
        ("closes its half of the socket", Dead, |raw, _| {
            rustix::net::shutdown(&raw.socket, rustix::net::Shutdown::Write).unwrap();
        }),
        ("closes the victim's half of the socket", Dead, |raw, _| {
            rustix::net::shutdown(&raw.socket, rustix::net::Shutdown::Both).unwrap();
        }),
    ]
}

pub fn bytes(raw: &RawReceiver, bytes: &[u8], fds: usize) {
    let fds = vec![raw.pool_fd.as_fd(); fds];
    let _ = peer::send(&raw.socket, bytes, &fds);
}

/// What is done to the sender's pool; `Dead` for all: the sender reads what it has written, and then this peer is gone.
fn writes() -> Vec<(&'static str, Act)> {
    vec![
        ("maps the pool for writing", |raw, _| assert!(!can_map(&raw.pool_fd, 4096))),
        ("makes a map of the pool writable", |raw, _| {
            let map = Map::new(&raw.pool_fd, 4096, false);
            // SAFETY: changes what this process may do with its own map, if the kernel permits it.
            let answer =
                unsafe { libc::mprotect(map.at(0).cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
            assert_eq!(answer, -1);
        }),
        ("duplicates a map of the pool", |raw, _| {
            let map = Map::new(&raw.pool_fd, 4096, false);
            let again = remap(map.at(0), 4096).unwrap();
            // SAFETY: as above.
            let answer = unsafe { libc::mprotect(again.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
            assert_eq!(answer, -1);
        }),
        ("writes to the pool by pwrite", |raw, _| {
            assert!(rustix::io::pwrite(&raw.pool_fd, &[FORGED; 100], 0).is_err());
        }),
        ("opens the pool once more", |raw, _| {
            let path = format!("/proc/self/fd/{}", raw.pool_fd.as_raw_fd());
            if let Ok(fd) = rustix::fs::open(path, OFlags::RDWR, Mode::empty()) {
                assert!(rustix::io::pwrite(&fd, &[FORGED; 100], 0).is_err() && !can_map(&fd, 4096));
            }
        }),
        ("shrinks the pool", |raw, _| assert!(rustix::fs::ftruncate(&raw.pool_fd, 0).is_err())),
        ("makes the pool longer", |raw, _| assert!(rustix::fs::ftruncate(&raw.pool_fd, 1 << 40).is_err())),
        ("punches a hole into the pool", |raw, _| {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            assert!(rustix::fs::fallocate(&raw.pool_fd, mode, 0, 4096).is_err());
        }),
        ("seals the pool", |raw, _| {
            assert!(rustix::fs::fcntl_add_seals(&raw.pool_fd, SealFlags::WRITE).is_err());
        }),
        ("takes the pool's mode away", |raw, _| {
            let _ = rustix::fs::fchmod(&raw.pool_fd, Mode::empty());
        }),
        ("writes to a private map of the pool", |raw, _| {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let fd = raw.pool_fd.as_raw_fd();
            // SAFETY: a new map of this process's own, of which the first page is written.
            unsafe {
                let at = libc::mmap(core::ptr::null_mut(), 4096, prot, libc::MAP_PRIVATE, fd, 0);
                assert_ne!(at, libc::MAP_FAILED);
                at.cast::<[u8; 4096]>().write([FORGED; 4096]);
            }
        }),
    ]
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for against in [Against::Sender, Against::TrustedSender] {
        for level in [Level::Copy, Level::Mmu, Level::Sealed] {
            for (attack, holds, act) in acts() {
                rows.push(Row::new(level, against, attack, holds, move |stage| {
                    let Ok(mut raw) = RawReceiver::meet(stage.socket(), Plan::honest(stage.level)) else {
                        return;
                    };
                    stage.go();
                    act(&mut raw, stage);
                    stage.attacked();
                    if holds == Holds::Refused {
                        stage.linger();
                    }
                }));
            }
        }
    }
    for against in [Against::Sender, Against::TrustedSender] {
        for level in [Level::Copy, Level::Mmu] {
            for (attack, act) in writes() {
                rows.push(Row::new(level, against, attack, Holds::Dead, move |stage| {
                    let Ok(mut raw) = RawReceiver::meet(stage.socket(), Plan::honest(stage.level)) else {
                        return;
                    };
                    stage.go();
                    act(&mut raw, stage);
                    stage.attacked();
                }));
            }
        }
    }
    rows
}
