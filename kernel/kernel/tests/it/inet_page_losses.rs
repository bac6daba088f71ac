//! Every way in which a page can be lost, or shown to somebody else, while it is lent to a connection or taken over
//! from one: whatever happens to it meanwhile, the other end gets what was sent, the receiver what was said, whoever
//! else has the page what it had, and nothing is held when all is over.

use crate::common::far::*;
use crate::common::puppet::*;
use crate::common::*;
use crate::inet_endings::{by_hand, call_out, hasty};
use crate::inet_zero_copy::{MAPPINGS, kernel, over_wire, with_talker};
use pageferry_ephemeral::{AccessedRule, Scheme};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::net::Wire;
use pageferry_vm::MapAddr;

const PAGE: usize = PAGE_SIZE;
const CACHE: Scheme = Scheme::Cache { entries: 64, rule: AccessedRule::Safe };

// ---------------------------------------------------------------------------------------------------- sending

/// What happens to pages while they are lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    /// They are written to.
    Write,
    /// A child gets them, writes to them, and so does the sender.
    Fork,
    Unmap,
    /// Memory that was received takes their place.
    Replace,
    /// They are given up, and the place is used again.
    Flush,
    /// They are wired before they are sent, so that they cannot be lent; or afterwards.
    LockBefore,
    LockAfter,
    /// They may not be written to any more, and then again.
    Protect,
    /// They are a file's, mapped for all to see; and it is written to by a call.
    SharedFile,
    /// They are a file's, mapped privately.
    PrivateFile,
    /// They are on loan twice, to another socket as well.
    LendTwice,
}

const MEANWHILE: [Meanwhile; 11] = {
    use Meanwhile::*;
    [Write, Fork, Unmap, Replace, Flush, LockBefore, LockAfter, Protect, SharedFile, PrivateFile, LendTwice]
};

const CHUNK: usize = 6 * PAGE;

/// A buffer with what is to be sent.
fn buffer(u: &U, case: Meanwhile, bytes: &[u8]) -> (Va, Option<Fd>) {
    let shared = match case {
        Meanwhile::SharedFile => true,
        Meanwhile::PrivateFile => false,
        _ => {
            let at = map(u, CHUNK);
            u.store(at, bytes);
            return (at, None);
        }
    };
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let file = u.open("sent", flags).expect("there is room");
    u.truncate(file, CHUNK as u64).expect("open");
    let at = u.map_file(file, 0, MapAddr::Anywhere, CHUNK, Prot::RW, shared).expect("a mapping");
    u.store(at, bytes);
    (at, Some(file))
}

fn send_all(u: &U, fd: Fd, at: Va, len: usize) {
    let mut sent = 0;
    while sent < len {
        sent += u.send(fd, at + sent, len - sent, SendMode::Loan).expect("the other end is there");
    }
}

/// Sends a chunk by loan, does what is to be done, and gives the buffer back.
fn lend_and(u: &U, fd: Fd, case: Meanwhile, chunk: &[u8]) {
    let (at, file) = buffer(u, case, chunk);
    let other = vec![0xee; CHUNK];
    if case == Meanwhile::LockBefore {
        u.lock_memory(at, CHUNK).expect("there is room");
    }
    send_all(u, fd, at, CHUNK);
    match case {
        Meanwhile::Write | Meanwhile::PrivateFile => u.store(at, &other),
        Meanwhile::Fork => {
            let child = fork(u, "child", move |u| {
                u.store(at, &vec![0xcc; CHUNK]);
            });
            u.store(at, &other);
            assert_eq!(u.wait(), Ok(child), "the reader stays");
        }
        Meanwhile::Unmap => {}
        Meanwhile::Replace => {
            let (ours, theirs) = u.socket_pair().expect("sockets");
            let from = map(u, CHUNK);
            for part in 0..CHUNK / PAGE {
                u.store(from, &[0xdd; PAGE]);
                assert_eq!(u.send(ours, from, PAGE, SendMode::Copy), Ok(PAGE));
                let got = u.receive_transfer(theirs, Some(at + part * PAGE), PAGE).expect("connected");
                assert_eq!((got.len_bytes, got.donated_pages), (PAGE, 1));
            }
            let mut seen = vec![0; CHUNK];
            u.load(at, &mut seen);
            assert!(seen == [0xdd; CHUNK], "what was received instead");
            u.unmap(from, CHUNK).and_then(|()| u.close(ours)).and_then(|()| u.close(theirs)).expect("there");
        }
        Meanwhile::Flush => {
            u.anflush(at, CHUNK).expect("mapped");
            let mut seen = vec![1; CHUNK];
            u.load(at, &mut seen);
            assert!(seen == [0; CHUNK], "nothing of what was there");
            u.store(at, &other);
        }
        Meanwhile::LockBefore | Meanwhile::LockAfter => {
            u.lock_memory(at, CHUNK).expect("there is room");
            u.store(at, &other);
            u.unlock_memory(at, CHUNK).expect("locked");
        }
        Meanwhile::Protect => {
            u.protect(at, CHUNK, Prot::READ).and_then(|()| u.protect(at, CHUNK, Prot::RW)).expect("mapped");
            u.store(at, &other);
        }
        Meanwhile::SharedFile => {
            let file = file.expect("open");
            let from = map(u, CHUNK);
            u.store(from, &other);
            u.seek(file, 0).expect("open");
            let mut written = 0;
            while written < CHUNK {
                written += u.write(file, from + written, CHUNK - written).expect("there is room");
            }
            let mut seen = vec![0; CHUNK];
            u.load(at, &mut seen);
            assert!(seen == other, "all see what was written");
            u.unmap(from, CHUNK).expect("mapped");
        }
        Meanwhile::LendTwice => {
            let (ours, theirs) = u.socket_pair().expect("sockets");
            assert_eq!(u.send(ours, at, PAGE, SendMode::Loan), Ok(PAGE));
            u.store(at, &other);
            let to = map(u, PAGE);
            assert!(read_all(u, theirs, to, PAGE, PAGE) == chunk[..PAGE], "the other loan");
            u.unmap(to, PAGE).and_then(|()| u.close(ours)).and_then(|()| u.close(theirs)).expect("there");
        }
    }
    u.unmap(at, CHUNK).expect("mapped");
    if let Some(file) = file {
        u.close(file).and_then(|()| u.unlink("sent")).expect("open");
    }
}

/// Wires that lose, double, overtake and wait: what is out is sent again, by whatever is there then.
fn wires() -> [Wire; 3] {
    let bad = Wire {
        seed: 3,
        loss_ppm: 60_000,
        duplicate_ppm: 20_000,
        reorder_ppm: 50_000,
        reorder_ns: 2_000_000,
        delay_ns: 500_000,
        ..Wire::default()
    };
    [Wire::default(), Wire { delay_ns: 4_000_000, ..Wire::default() }, bad]
}

#[test]
fn whatever_happens_to_pages_that_are_lent_the_other_end_gets_what_was_sent() {
    const CHUNKS: usize = 6;
    for case in MEANWHILE {
        for mapping in MAPPINGS {
            for wire in wires() {
                // The CPU sums what it sends, so that it looks at the pages each time.
                let ended = over_wire(
                    "xeon-mp",
                    kernel(mapping, CACHE, false),
                    wire,
                    CHUNKS * CHUNK,
                    move |u, fd| {
                        for n in 0..CHUNKS {
                            lend_and(u, fd, case, &bytes(5, n * CHUNK, CHUNK));
                        }
                    },
                );
                let lent = ended.counter(KernelCounter::PagesLent);
                assert!(lent > 0 || case == Meanwhile::LockBefore, "{case:?}, {mapping:?}: nothing was lent");
            }
        }
    }
}

/// An acknowledgement in the middle of a page frees what is before it, and what is sent again begins there; a reset
/// frees all, also of a sender that has ended.
#[test]
fn pages_come_back_when_all_of_them_is_acknowledged_or_nothing_will_be() {
    for mapping in MAPPINGS {
        for reset in [false, true] {
            by_hand(KernelConfig { ..kernel_of(mapping) }, move |u, puppet| {
                let (fd, mut hand) = call_out(u, puppet);
                u.set_nonblocking(fd, false).expect("open");
                u.watch_loans(true).expect("alive");
                let at = map(u, 2 * PAGE);
                u.store(at, &bytes(5, 0, 2 * PAGE));
                assert_eq!(u.send(fd, at, 2 * PAGE, SendMode::Loan), Ok(2 * PAGE));
                let first = hand.ack;
                let out = u.pages_on_loan().expect("it watches");
                assert_eq!(out, 2);
                u.store(at, &[0xee; 2 * PAGE]);
                // A half of the first page.
                hand.ack = first.wrapping_add(PAGE as u32 / 2);
                hand.say(ACK, &[]);
                hand.hear(u);
                assert_eq!(u.pages_on_loan(), Ok(2), "{mapping:?}: no page is through");
                // Nothing more is acknowledged until it is sent again, from there.
                let again = loop {
                    hand.ack = first.wrapping_add(PAGE as u32 / 2);
                    let heard = hand.hear(u);
                    if let Some(seg) = heard.iter().find(|seg| !seg.data.is_empty()) {
                        break seg.clone();
                    }
                };
                let from = again.seq.wrapping_sub(first) as usize;
                assert!(again.data == bytes(5, from, again.data.len()), "{mapping:?}: what was sent, again");
                if reset {
                    hand.say(RST, &[]);
                    hand.hear(u);
                } else {
                    let all = first.wrapping_add(2 * PAGE as u32);
                    hand.ack = again.seq.wrapping_add(again.data.len() as u32);
                    while hand.ack != all {
                        hand.say(ACK, &[]);
                        for seg in hand.hear(u) {
                            let from = seg.seq.wrapping_sub(first) as usize;
                            assert!(seg.data == bytes(5, from, seg.data.len()), "{mapping:?}: the rest");
                        }
                    }
                    assert!(u.pages_on_loan().expect("it watches") > 0, "the last is not through yet");
                    hand.say(ACK, &[]);
                    hand.hear(u);
                }
                assert_eq!(u.pages_on_loan(), Ok(0), "{mapping:?}, {reset}: all are back");
                u.wait_for_loans().expect("none is out");
                u.close(fd).expect("open");
            });
        }
    }
}

fn kernel_of(mapping: LentMapping) -> KernelConfig {
    let mut config = hasty();
    let other = kernel(mapping, CACHE, false);
    (config.socket, config.ephemeral) = (other.socket, other.ephemeral);
    config
}

// ---------------------------------------------------------------------------------------------------- receiving

/// What a buffer is that pages are received into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Buffer {
    Fresh,
    /// A child has it, too.
    Forked,
    Locked,
    /// A file's pages, for all to see.
    SharedFile,
    PrivateFile,
    /// It is lent to a socket.
    Lent,
    /// It may not be written to.
    ReadOnly,
    /// A part of it is not mapped.
    Hole,
}

const BUFFERS: [Buffer; 8] = {
    use Buffer::*;
    [Fresh, Forked, Locked, SharedFile, PrivateFile, Lent, ReadOnly, Hole]
};

const MTU: u64 = 4148;

fn receive_into(u: &U, fd: Fd, into: Buffer, from: usize) -> usize {
    let old = vec![0x77; CHUNK];
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let file = match into {
        Buffer::SharedFile | Buffer::PrivateFile => Some(u.open("into", flags).expect("there is room")),
        _ => None,
    };
    let at = match file {
        Some(file) => {
            u.truncate(file, CHUNK as u64).expect("open");
            let shared = into == Buffer::SharedFile;
            u.map_file(file, 0, MapAddr::Anywhere, CHUNK, Prot::RW, shared).expect("a mapping")
        }
        None => map(u, CHUNK),
    };
    u.store(at, &old);
    let pair = (into == Buffer::Lent).then(|| u.socket_pair().expect("sockets"));
    if let Some((ours, _)) = pair {
        send_all(u, ours, at, CHUNK);
    }
    match into {
        Buffer::Locked => u.lock_memory(at, CHUNK).expect("there is room"),
        Buffer::ReadOnly => u.protect(at, CHUNK, Prot::READ).expect("mapped"),
        Buffer::Hole => u.unmap(at + 2 * PAGE, CHUNK - 2 * PAGE).expect("mapped"),
        _ => {}
    }
    let go = u.pipe().expect("a pipe");
    let child = (into == Buffer::Forked).then(|| {
        let expected = old.clone();
        fork(u, "child", move |u| {
            u.close(go.1).expect("open");
            assert_eq!(u.read(go.0, map(u, 1), 1), Ok(0), "until the other has received");
            let mut seen = vec![0; CHUNK];
            u.load(at, &mut seen);
            assert!(seen == expected, "a child keeps what it had");
        })
    });
    let mut got = 0;
    while got < CHUNK {
        match u.receive_transfer(fd, Some(at + got), CHUNK - got) {
            Ok(received) if received.len_bytes == 0 => break,
            Ok(received) => got += received.len_bytes,
            Err(Errno::Fault) if into == Buffer::ReadOnly => {
                assert_eq!(got, 0, "none of it may be written");
                u.protect(at, CHUNK, Prot::RW).expect("mapped");
            }
            Err(Errno::Fault) if into == Buffer::Hole => {
                assert_eq!(got, 2 * PAGE, "up to the hole");
                let place = MapAddr::Free(at + 2 * PAGE);
                u.map_at(place, CHUNK - 2 * PAGE, Prot::RW, pageferry_vm::Inherit::Copy).expect("free");
            }
            Err(e) => panic!("{into:?}: {e}"),
        }
    }
    let mut seen = vec![0; got];
    u.load(at, &mut seen);
    assert!(seen == bytes(5, from, got), "{into:?}: what was said, from {from}");
    for end in [go.0, go.1] {
        u.close(end).expect("open");
    }
    if let Some(child) = child {
        assert_eq!(u.wait(), Ok(child));
    }
    if let Some((ours, theirs)) = pair {
        let to = map(u, CHUNK);
        assert!(read_all(u, theirs, to, CHUNK, CHUNK) == old, "what was lent is what arrives");
        u.unmap(to, CHUNK).and_then(|()| u.close(ours)).and_then(|()| u.close(theirs)).expect("there");
    }
    if let Some(file) = file {
        // Who reads the file sees what was received only if the mapping was for all to see.
        let to = map(u, CHUNK);
        u.seek(file, 0).expect("open");
        let read = read_all(u, file, to, CHUNK, CHUNK);
        let of_all: &[u8] = if into == Buffer::SharedFile { &seen } else { &[0; CHUNK] };
        assert!(read[..got] == of_all[..got], "{into:?}: what the file holds");
        u.unmap(to, CHUNK).and_then(|()| u.close(file)).and_then(|()| u.unlink("into")).expect("there");
    }
    if into == Buffer::Locked {
        u.unlock_memory(at, CHUNK).expect("locked");
    }
    u.unmap(at, CHUNK).expect("mapped");
    got
}

#[test]
fn whatever_a_buffer_is_the_receiver_gets_what_was_said_and_others_keep_what_they_had() {
    for name in ["xeon-mp", "today"] {
        receives_into_any_buffer(name, internet());
    }
}

pub(crate) fn receives_into_any_buffer(name: &str, config: KernelConfig) {
    const LEN: usize = 8 * CHUNK;
    for into in BUFFERS {
        let m = with_talker(name, MTU, LEN);
        let ended = run_on(m, name, &format!("{into:?}"), config, move |u| {
            let fd = connected(u, SOURCE);
            let mut got = 0;
            while got < LEN {
                got += receive_into(u, fd, into, got);
            }
            u.close(fd).expect("open");
        });
        let flipped = ended.counter(KernelCounter::PagesDonated);
        match into {
            // A page that is locked, or that others see at this place, stays; its bytes are copied.
            Buffer::Locked | Buffer::SharedFile => assert_eq!(flipped, 0, "{into:?} on {name}"),
            _ => assert!(flipped > 0, "{into:?} on {name}: nothing was flipped"),
        }
    }
}

/// Senders by loan and receivers by flip are killed at any moment: no page stays out, none goes twice, and the others
/// go on.
#[test]
fn who_is_killed_with_pages_under_way_takes_none_along() {
    (0..60).for_each(|seed| is_killed_while_it_receives(hasty(), seed));
}

/// `seed` says when.
pub(crate) fn is_killed_while_it_receives(config: KernelConfig, seed: u64) {
    let m = with_talker("xeon-mp", MTU, 64 * CHUNK);
    run_on(m, "xeon-mp", &format!("killed, {seed}"), config, move |u| {
        let victim = fork(u, "victim", |u| {
            let fd = u.socket(SocketKind::Stream).expect("a socket");
            let at = map(u, CHUNK);
            let work = || {
                u.connect(fd, SOURCE)?;
                while u.signals_taken() == 0 {
                    let got = u.receive_transfer(fd, Some(at), CHUNK)?;
                    if got.len_bytes == 0 {
                        break;
                    }
                    // What it has is lent at once, to itself over loopback's kind of socket.
                    let (ours, theirs) = u.socket_pair()?;
                    u.send(ours, at, got.len_bytes.min(PAGE), SendMode::Loan)?;
                    u.receive_transfer(theirs, Some(at), PAGE)?;
                    u.close(ours)?;
                    u.close(theirs)?;
                }
                Ok::<_, Errno>(())
            };
            let _ = work();
        });
        u.sleep_for(Cycles(20_000 + seed * 43_000)).expect("alive");
        // On a slow machine it may have failed to connect by then.
        assert!(matches!(u.signal(victim), Ok(()) | Err(Errno::NoProcess)));
        assert_eq!(u.wait(), Ok(victim));
    });
}
