//! Senders that forge messages, counters and notes, and that flood and stop.

use crate::greetings::{huge_pages, sends_slow_sockets, slow_to_close};
use crate::peer::{self, Plan, RawSender};
use crate::stage::{Against, HONEST, Holds, Row, Stage};
use pageferry::wire::{Descriptor, Extent, Note};
use pageferry::{Level, Verb};
use rustix::fs::SealFlags;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;

/// What a peer does once the channel stands.
type Deed = Box<dyn Fn(&mut RawSender, &Stage)>;

type Forge = fn(&mut [u64; 8]);

/// What is done to the words of an honest message in slots.
fn forgeries() -> Vec<(&'static str, Forge)> {
    fn low(word: &mut u64, value: u8, shift: u32) {
        *word = *word & !(0xff << shift) | u64::from(value) << shift;
    }
    vec![
        ("numbers a message one too high", |w| w[0] += 1),
        ("numbers a message 2^64 - 1", |w| w[0] = u64::MAX),
        ("uses verb 0", |w| low(&mut w[1], 0, 0)),
        ("uses verb 6", |w| low(&mut w[1], 6, 0)),
        ("uses verb 255", |w| low(&mut w[1], 255, 0)),
        ("says inline and names slots", |w| low(&mut w[1], Verb::Inline as u8, 0)),
        ("donates where none were agreed on", |w| {
            low(&mut w[1], Verb::Donate as u8, 0);
            low(&mut w[1], Level::Typed as u8, 8);
        }),
        ("shares where it was not agreed on", |w| {
            low(&mut w[1], Verb::Share as u8, 0);
            low(&mut w[1], Level::Typed as u8, 8);
        }),
        ("uses level 0", |w| low(&mut w[1], 0, 8)),
        ("uses level 6", |w| low(&mut w[1], 6, 8)),
        ("uses level leased", |w| low(&mut w[1], Level::Leased as u8, 8)),
        ("sets bits that must be zero", |w| w[1] |= 1 << 40),
        ("sets the last word", |w| w[7] = 1),
        ("names a slot behind the pool", |w| w[2] = 4 | 1 << 32),
        ("names slots across the pool's end", |w| w[2] = 3 | 2 << 32),
        ("names slot 2^32 - 1", |w| w[2] = 0xffff_ffff | 1 << 32),
        ("names 2^32 - 1 slots", |w| w[2] = 0xffff_ffff << 32),
        ("names no slots", |w| w[2] = 0),
        ("is one byte too long", |w| w[4] += 1),
        ("is 2^64 - 1 bytes long", |w| w[4] = u64::MAX),
        ("has no bytes", |w| w[4] = 0),
        ("starts behind its slots", |w| w[3] = 1 << 40),
        ("starts at 2^64 - 1, so that the end wraps", |w| w[3] = u64::MAX),
        ("names sealed memory and has none", |w| w[6] = 7),
        ("has extents and no room for them", |w| w[1] |= 0xffff << 16),
    ]
}

/// What is done to the words of an honest message in the ring.
fn inline_forgeries() -> Vec<(&'static str, Forge)> {
    vec![
        ("sends more in the ring than it holds", |w| w[4] = 129),
        ("sends 2^64 - 1 bytes in the ring", |w| w[4] = u64::MAX),
        ("sends bytes in the ring from an offset on", |w| w[3] = 64),
        ("sends bytes in the ring and in a slot", |w| w[2] = 1 << 32),
        ("sends bytes in the ring with extents", |w| w[1] |= 1 << 16),
    ]
}

type Act = fn(&mut RawSender, &Stage);

/// What is done on an established channel, after an honest message, and what holds.
fn acts() -> Vec<(&'static str, Holds, Act)> {
    use Holds::*;
    vec![
        ("counts beyond the ring", Refused, |raw, _| raw.count(raw.published + 100)),
        ("counts one more than there are cells", Refused, |raw, _| raw.count(9)),
        ("counts to 2^64 - 1", Refused, |raw, _| raw.count(u64::MAX)),
        ("counts backward", Refused, |raw, _| raw.count(0)),
        ("counts what it has not written", Refused, |raw, _| raw.count(raw.published + 1)),
        ("sends the last message again", Refused, |raw, _| {
            let words = std::array::from_fn(|at| raw.forward.word(raw.cell(0) + at).load(Ordering::Relaxed));
            raw.publish(words);
        }),
        ("sends a note that there is not", Refused, |raw, _| bytes(raw, b"x12345678", 0)),
        ("sends a wake-up with a number", Refused, |raw, _| bytes(raw, b"w12345678", 0)),
        ("sends a wake-up with a descriptor", Refused, |raw, _| bytes(raw, &Note::Wake.bytes(), 1)),
        ("sends a wake-up with too many descriptors", Refused, |raw, _| bytes(raw, &Note::Wake.bytes(), 253)),
        ("says bye with a descriptor", Refused, |raw, _| bytes(raw, &Note::Bye.bytes(), 1)),
        ("sends a note of one byte", Refused, |raw, _| bytes(raw, b"w", 0)),
        ("sends a note of ten bytes", Refused, |raw, _| bytes(raw, b"w000000000", 0)),
        ("sends a note of 60000 bytes", Refused, |raw, _| bytes(raw, &[b'w'; 60_000], 0)),
        ("greets once more", Refused, |raw, _| bytes(raw, &raw.plan.greeting(peer::HELLO), 2)),
        ("refuses after the handshake", Refused, |raw, _| bytes(raw, &raw.plan.greeting(peer::REFUSE), 0)),
        ("sends an object that is none of this channel's", Refused, |raw, _| {
            bytes(raw, &Note::Object(1 << 40).bytes(), 1);
        }),
        ("sends an object of an older message", Refused, |raw, _| bytes(raw, &Note::Object(0).bytes(), 1)),
        ("sends an object without memory", Refused, |raw, _| bytes(raw, &Note::Object(1).bytes(), 0)),
        ("sends an object twice", Refused, |raw, _| {
            bytes(raw, &Note::Object(1).bytes(), 1);
            bytes(raw, &Note::Object(1).bytes(), 1);
        }),
        ("sends objects of messages that are far off", Refused, |raw, _| {
            (1..8).for_each(|number| bytes(raw, &Note::Object(number).bytes(), 1));
        }),
        ("says bye and goes on", Dead, |raw, stage| {
            raw.note(Note::Bye);
            stage.attacked();
            for _ in 0..1000 {
                if raw.published < 4 {
                    raw.say(raw.inline(8));
                }
                raw.note(Note::Bye);
            }
        }),
        ("says that this side was too slow", Alive, |raw, _| raw.note(Note::Evicted)),
        ("sends an empty packet", Refused, |raw, _| bytes(raw, &[], 0)),
        ("sends an empty packet with descriptors", Refused, |raw, _| bytes(raw, &[], 3)),
        ("sends an empty packet with too many descriptors", Refused, |raw, _| bytes(raw, &[], 253)),
        ("sends an empty packet and dies", Alive, |raw, _| bytes(raw, &[], 0)),
        ("sends twelve sockets whose close waits", Refused, |raw, _| {
            sends_slow_sockets(&raw.socket, &Note::Wake.bytes(), 12);
        }),
        ("floods wake-ups", Late, |raw, stage| {
            stage.attacked();
            loop {
                raw.note(Note::Wake);
            }
        }),
        ("says that it sleeps and never wakes", Alive, |raw, stage| {
            raw.sleeps(u64::MAX);
            stage.attacked();
            flood(raw, stage);
        }),
        ("floods messages in the ring", Alive, |raw, stage| {
            stage.attacked();
            flood(raw, stage);
        }),
        ("stops", Late, |_, stage| {
            stage.attacked();
            // SAFETY: a signal to this process alone.
            unsafe { libc::raise(libc::SIGSTOP) };
        }),
        ("dies", Dead, |_, stage| {
            stage.attacked();
            // SAFETY: a signal to this process alone.
            unsafe { libc::raise(libc::SIGKILL) };
        }),
        ("closes its half of the socket", Dead, |raw, _| {
            rustix::net::shutdown(&raw.socket, rustix::net::Shutdown::Write).unwrap();
        }),
        ("closes the victim's half of the socket", Dead, |raw, _| {
            rustix::net::shutdown(&raw.socket, rustix::net::Shutdown::Both).unwrap();
        }),
    ]
}

/// Messages in the ring until the victim has had enough, or holds so much that it is refused.
fn flood(raw: &mut RawSender, _: &Stage) {
    let mut home = 1;
    for _ in 0..2500 {
        while raw.published - home >= 4 {
            match raw.next_ack() {
                Some(_) => home += 1,
                None => std::thread::yield_now(),
            }
        }
        raw.say(raw.inline(128));
    }
}

pub fn bytes(raw: &RawSender, bytes: &[u8], fds: usize) {
    let fds = vec![raw.pool_fd.as_fd(); fds];
    let _ = peer::send(&raw.socket, bytes, &fds);
}

/// An honest message, whatever the level; it takes slot 0.
pub fn honest(raw: &mut RawSender, stage: &Stage) {
    let page = peer::page_bytes();
    match stage.level {
        Level::Sealed => {
            let fd = peer::snapshot(page, HONEST, peer::SNAPSHOT_SEALS);
            sealed(raw, &fd, page);
        }
        level => {
            raw.pool.write(0, &vec![HONEST; page as usize]);
            let verb = if level == Level::Copy { Verb::Copy } else { Verb::Loan };
            raw.say(raw.message(verb, level, 0, page));
        }
    }
}

fn sealed(raw: &mut RawSender, fd: &OwnedFd, len: u64) {
    raw.object(raw.published, fd);
    raw.say(loan_of_sealed(raw, len));
}

fn loan_of_sealed(raw: &RawSender, len: u64) -> Descriptor {
    let object = raw.published;
    Descriptor { verb: Verb::Loan, level: Level::Sealed, object, ..raw.inline(len) }
}

pub fn meet(stage: &Stage) -> Option<RawSender> {
    RawSender::meet(stage.socket(), Plan::honest(stage.level)).ok()
}

/// The ends and levels that are attacked.
const ENDS: [(Level, Against); 6] = [
    (Level::Copy, Against::Receiver),
    (Level::Sealed, Against::Receiver),
    (Level::Copy, Against::TrustedReceiver),
    (Level::Typed, Against::TrustedReceiver),
    (Level::Mmu, Against::TrustedReceiver),
    (Level::Sealed, Against::TrustedReceiver),
];

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (level, against) in ENDS {
        for (attack, holds, act) in acts() {
            rows.push(Row::new(level, against, attack, holds, move |stage| {
                let Some(mut raw) = meet(stage) else { return };
                honest(&mut raw, stage);
                stage.go();
                act(&mut raw, stage);
                stage.attacked();
                if holds == Holds::Refused {
                    stage.linger();
                }
            }));
        }
        for (attack, forge) in forgeries() {
            rows.push(Row::new(level, against, attack, Holds::Refused, move |stage| {
                let Some(mut raw) = meet(stage) else { return };
                honest(&mut raw, stage);
                stage.go();
                let verb =
                    if matches!(stage.level, Level::Copy | Level::Sealed) { Verb::Copy } else { Verb::Loan };
                let level = if verb == Verb::Copy { Level::Copy } else { stage.level };
                let mut words = raw.message(verb, level, 1, peer::page_bytes()).words();
                forge(&mut words);
                raw.publish(words);
                stage.attacked();
                stage.linger();
            }));
        }
        for (attack, forge) in inline_forgeries() {
            rows.push(Row::new(level, against, attack, Holds::Refused, move |stage| {
                let Some(mut raw) = meet(stage) else { return };
                let mut words = raw.inline(100).words();
                forge(&mut words);
                raw.publish(words);
                stage.attacked();
                stage.linger();
            }));
        }
    }
    overlaps(&mut rows);
    objects(&mut rows);
    budgets(&mut rows);
    rows
}

/// Slots that are out already, and extents.
fn overlaps(rows: &mut Vec<Row>) {
    type Pieces = fn(u64) -> Vec<Extent>;
    let pieces: [(&str, Pieces); 8] = [
        ("lends pieces that have a slot in common", |p| {
            vec![piece(0, p, 0, 1), piece(p, p, 1, 2), piece(2 * p, p, 2, 1)]
        }),
        ("lends pieces out of order", |p| vec![piece(p, p, 1, 1), piece(0, p, 2, 1)]),
        ("lends pieces that overlap in the message", |p| vec![piece(0, p, 1, 1), piece(p - 1, p, 2, 1)]),
        ("lends pieces behind the message", |p| vec![piece(u64::MAX - p, p, 1, 1)]),
        ("lends a piece whose end wraps", |p| vec![piece(u64::MAX, p, 1, 1)]),
        ("lends a piece of no bytes", |_| vec![piece(0, 0, 1, 1)]),
        ("lends a piece behind its slot", |p| vec![Extent { offset: 1, ..piece(0, p, 1, 1) }]),
        ("lends a piece of no slots", |p| vec![piece(0, p, 1, 0)]),
    ];
    for level in [Level::Typed, Level::Mmu] {
        let mut add = |attack, peer: Deed| {
            rows.push(Row::new(level, Against::TrustedReceiver, attack, Holds::Refused, move |stage| {
                let Some(mut raw) = meet(stage) else { return };
                honest(&mut raw, stage);
                stage.go();
                peer(&mut raw, stage);
                stage.attacked();
                stage.linger();
            }));
        };
        add(
            "lends a slot that is out",
            Box::new(|raw, stage| {
                raw.say(raw.message(Verb::Loan, stage.level, 0, 1));
            }),
        );
        add(
            "lends slots of which one is out",
            Box::new(|raw, stage| {
                raw.say(Descriptor { slots: 4, ..raw.message(Verb::Loan, stage.level, 0, 1) });
            }),
        );
        add(
            "copies from a slot that is out",
            Box::new(|raw, _| {
                raw.say(raw.message(Verb::Copy, Level::Copy, 0, 1));
            }),
        );
        for (attack, pieces) in pieces {
            add(
                attack,
                Box::new(move |raw, stage| {
                    let extents = pieces(peer::page_bytes());
                    let bytes: Vec<u8> = extents
                        .iter()
                        .flat_map(|extent| zerocopy::IntoBytes::as_bytes(extent).to_vec())
                        .collect();
                    raw.forward.write(raw.inline_at(raw.published), &bytes);
                    let message = raw.message(Verb::Loan, stage.level, 0, 4 * peer::page_bytes());
                    raw.say(Descriptor { slots: 0, extents: extents.len() as u16, ..message });
                }),
            );
        }
    }
}

fn piece(at: u64, len: u64, first_slot: u32, slots: u32) -> Extent {
    Extent { at, len, offset: 0, first_slot, slots }
}

/// Sealed memory that is none.
fn objects(rows: &mut Vec<Row>) {
    type File = fn(u64) -> OwnedFd;
    let files: [(&str, File); 12] = [
        ("unsealed memory", |len| peer::snapshot(len, HONEST, SealFlags::empty())),
        ("memory that can be written", |len| {
            peer::snapshot(len, HONEST, peer::SNAPSHOT_SEALS.difference(SealFlags::WRITE))
        }),
        ("memory that its old maps can write", |len| peer::memfd(len, len as usize, peer::POOL_SEALS).0),
        ("memory that can shrink", |len| {
            peer::snapshot(len, HONEST, peer::SNAPSHOT_SEALS.difference(SealFlags::SHRINK))
        }),
        ("memory that is too short", |len| peer::snapshot(len / 2, HONEST, peer::SNAPSHOT_SEALS)),
        ("memory of no bytes", |_| peer::snapshot(0, HONEST, peer::SNAPSHOT_SEALS)),
        ("an ordinary file", |len| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(len).unwrap();
            file.into()
        }),
        ("a pipe", |_| std::io::pipe().unwrap().0.into()),
        ("a socket whose close waits", |_| slow_to_close()),
        ("memory of huge pages that are not there", |len| huge_pages(len, peer::SNAPSHOT_SEALS)),
        ("memory that cannot be read", |len| {
            let fd = peer::snapshot(len, HONEST, peer::SNAPSHOT_SEALS);
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            match std::fs::File::options().write(true).open(path) {
                Ok(file) => file.into(),
                Err(_) => std::fs::File::options().write(true).open("/dev/null").unwrap().into(),
            }
        }),
        ("its socket", |_| peer::sockets().0),
    ];
    for against in [Against::Receiver, Against::TrustedReceiver] {
        let mut add = |attack: String, holds, peer: Deed| {
            rows.push(Row::new(Level::Sealed, against, attack.leak(), holds, move |stage| {
                let Some(mut raw) = meet(stage) else { return };
                honest(&mut raw, stage);
                stage.go();
                peer(&mut raw, stage);
                stage.attacked();
                if holds == Holds::Refused {
                    stage.linger();
                }
            }));
        };
        for (what, file) in files {
            add(
                format!("lends {what} as sealed"),
                Holds::Refused,
                Box::new(move |raw, _| {
                    let file = file(peer::page_bytes());
                    sealed(raw, &file, peer::page_bytes());
                    // Whoever closes it last may have to wait.
                    core::mem::forget(file);
                }),
            );
        }
        add(
            "lends sealed memory that it did not send".to_owned(),
            Holds::Refused,
            Box::new(|raw, _| {
                raw.say(loan_of_sealed(raw, 1));
            }),
        );
        add(
            "lends sealed memory by a wrong number".to_owned(),
            Holds::Refused,
            Box::new(|raw, _| {
                let fd = peer::snapshot(100, HONEST, peer::SNAPSHOT_SEALS);
                raw.object(raw.published, &fd);
                raw.say(Descriptor { object: 0, ..loan_of_sealed(raw, 1) });
            }),
        );
        add(
            "lends no bytes of sealed memory".to_owned(),
            Holds::Refused,
            Box::new(|raw, _| {
                let fd = peer::snapshot(100, HONEST, peer::SNAPSHOT_SEALS);
                sealed(raw, &fd, 0);
            }),
        );
        add(
            "lends sealed memory whose end wraps".to_owned(),
            Holds::Refused,
            Box::new(|raw, _| {
                let fd = peer::snapshot(100, HONEST, peer::SNAPSHOT_SEALS);
                raw.object(raw.published, &fd);
                raw.say(Descriptor { offset: u64::MAX, ..loan_of_sealed(raw, 50) });
            }),
        );
        add(
            "lends a huge hole as sealed".to_owned(),
            Holds::OverBudget,
            Box::new(|raw, stage| {
                let fd = hole(1 << 40);
                sealed(raw, &fd, 1 << 40);
                stage.attacked();
                stage.linger();
            }),
        );
        add(
            "lends a hole as sealed, twice the budget in turn".to_owned(),
            Holds::OverBudget,
            Box::new(|raw, stage| {
                for _ in 0..3 {
                    sealed(raw, &hole(16 << 20), 1);
                }
                stage.attacked();
                stage.linger();
            }),
        );
    }
}

fn hole(len: u64) -> OwnedFd {
    let fd = peer::memfd(len, 4096, SealFlags::empty()).0;
    rustix::fs::fcntl_add_seals(&fd, peer::SNAPSHOT_SEALS).unwrap();
    fd
}

/// Honest messages, of which the victim drops none: it holds no more than it allows.
fn budgets(rows: &mut Vec<Row>) {
    for against in [Against::Receiver, Against::TrustedReceiver] {
        for (attack, len) in [("copies 1 byte at a time without end", 1), ("copies pages without end", 4096)]
        {
            rows.push(Row::new(Level::Copy, against, attack, Holds::Alive, move |stage| {
                let Some(mut raw) = meet(stage) else { return };
                stage.attacked();
                let mut home = 0;
                raw.pool.write(0, &[HONEST; 4096]);
                while raw.published < 10_000 {
                    raw.say(raw.message(Verb::Copy, Level::Copy, (raw.published % 4) as u32, len));
                    while raw.published - home >= 4 {
                        match raw.next_ack() {
                            Some(_) => home += 1,
                            None => std::thread::yield_now(),
                        }
                    }
                }
            }));
        }
    }
}
