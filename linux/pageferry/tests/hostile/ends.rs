//! Peers that have made the sockets, and have kept a copy of the victim's end: it is the same socket, whose options and
//! flags they set, and whose packets they take.

use crate::greetings::sends_slow_sockets;
use crate::peer::{self, Plan, RawReceiver, RawSender};
use crate::stage::{Against, Holds, Row, Stage};
use crate::{receivers, senders};
use pageferry::Level;
use pageferry::wire::Note;
use rustix::net::Shutdown;
use std::os::fd::{AsRawFd as _, OwnedFd};

const SO_PASSPIDFD: libc::c_int = 76;
const SO_PASSSEC: libc::c_int = 34;

/// Sets an option; whether the kernel knows it.
fn set(socket: &OwnedFd, option: libc::c_int, value: libc::c_int) -> bool {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel reads one number.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const value).cast(), len) == 0 }
}

type Options = fn(&OwnedFd) -> bool;

/// What each packet brings beside what was sent, and what else can be set.
fn options() -> Vec<(&'static str, Options)> {
    vec![
        ("has each packet bring a pidfd", |end| set(end, SO_PASSPIDFD, 1)),
        ("has each packet bring credentials", |end| set(end, libc::SO_PASSCRED, 1)),
        ("has each packet bring a label", |end| set(end, SO_PASSSEC, 1)),
        ("has each packet bring its time", |end| set(end, libc::SO_TIMESTAMPNS, 1)),
        ("has each packet bring all that there is", |end| {
            let all = [SO_PASSPIDFD, libc::SO_PASSCRED, SO_PASSSEC, libc::SO_TIMESTAMPNS];
            all.into_iter().all(|option| set(end, option, 1))
        }),
        ("has the victim's end wait", |end| {
            let flags = rustix::fs::fcntl_getfl(end).unwrap();
            rustix::fs::fcntl_setfl(end, flags - rustix::fs::OFlags::NONBLOCK).is_ok()
        }),
        ("has the victim's end be read from another place", |end| set(end, libc::SO_PEEK_OFF, 5)),
        ("gives the victim's end no room", |end| {
            set(end, libc::SO_RCVBUF, 0) && set(end, libc::SO_SNDBUF, 0)
        }),
    ]
}

/// Packets beside the honest ones: more than there are descriptors in a packet.
const MANY: usize = 100;

type OfSender = fn(&mut RawSender, &Stage);
type OfReceiver = fn(&mut RawReceiver, &Stage);

/// Takes what comes for the victim, before it does, for as long as the victim lives.
fn steal(stage: &Stage) -> ! {
    loop {
        while peer::try_recv(stage.victims_end()).is_some_and(|(bytes, _)| !bytes.is_empty()) {}
        std::thread::yield_now();
    }
}

fn of_senders() -> Vec<(&'static str, Holds, OfSender)> {
    use Holds::*;
    vec![
        ("steals wake-ups", Late, |raw, stage| {
            // Its message may be seen by then, or when the wait ends.
            raw.say(raw.inline(8));
            stage.attacked();
            steal(stage);
        }),
        ("shuts the victim's end", Dead, |_, stage| {
            rustix::net::shutdown(stage.victims_end(), Shutdown::Both).unwrap();
        }),
        ("shuts the half that the victim reads", Dead, |_, stage| {
            rustix::net::shutdown(stage.victims_end(), Shutdown::Read).unwrap();
        }),
        ("has a pidfd come with too many descriptors", Refused, |raw, stage| {
            set(stage.victims_end(), SO_PASSPIDFD, 1);
            senders::bytes(raw, &Note::Wake.bytes(), 253);
        }),
        ("has credentials come with an empty packet", Refused, |raw, stage| {
            set(stage.victims_end(), libc::SO_PASSCRED, 1);
            senders::bytes(raw, &[], 0);
        }),
        ("has credentials come with sockets whose close waits", Refused, |raw, stage| {
            set(stage.victims_end(), libc::SO_PASSCRED, 1);
            sends_slow_sockets(&raw.socket, &Note::Wake.bytes(), 12);
        }),
    ]
}

fn of_receivers() -> Vec<(&'static str, Holds, OfReceiver)> {
    use Holds::*;
    vec![
        ("steals wake-ups", Late, |_, stage| {
            stage.attacked();
            steal(stage);
        }),
        ("shuts the victim's end", Dead, |_, stage| {
            rustix::net::shutdown(stage.victims_end(), Shutdown::Both).unwrap();
        }),
        ("has a pidfd come with too many descriptors", Refused, |raw, stage| {
            set(stage.victims_end(), SO_PASSPIDFD, 1);
            receivers::bytes(raw, &Note::Wake.bytes(), 253);
        }),
        ("has credentials come with an empty packet", Refused, |raw, stage| {
            set(stage.victims_end(), libc::SO_PASSCRED, 1);
            receivers::bytes(raw, &[], 0);
        }),
    ]
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    // Pidfds came with Linux 6.5.
    let known: Vec<_> = options().into_iter().filter(|(_, option)| option(&peer::sockets().0)).collect();
    for (level, against) in [
        (Level::Copy, Against::Receiver),
        (Level::Sealed, Against::Receiver),
        (Level::Mmu, Against::TrustedReceiver),
        (Level::Sealed, Against::TrustedReceiver),
    ] {
        for &(attack, option) in &known {
            // From before the first greeting on.
            let row = Row::new(level, against, attack, Holds::Snapshot, move |stage| {
                assert!(option(stage.victims_end()));
                let Some(mut raw) = senders::meet(stage) else { return };
                (0..MANY).for_each(|_| raw.note(Note::Wake));
                senders::honest(&mut raw, stage);
                stage.go();
                (0..MANY).for_each(|_| raw.note(Note::Wake));
                stage.attacked();
            });
            rows.push(row.sharing());
        }
        for (attack, holds, act) in of_senders() {
            let row = Row::new(level, against, attack, holds, move |stage| {
                let Some(mut raw) = senders::meet(stage) else { return };
                senders::honest(&mut raw, stage);
                stage.go();
                act(&mut raw, stage);
                stage.attacked();
                if holds == Holds::Refused {
                    stage.linger();
                }
            });
            rows.push(row.sharing());
        }
    }
    for level in [Level::Copy, Level::Mmu, Level::Sealed] {
        for against in [Against::Sender, Against::TrustedSender] {
            for &(attack, option) in &known {
                let row = Row::new(level, against, attack, Holds::Dead, move |stage| {
                    assert!(option(stage.victims_end()));
                    let plan = Plan::honest(stage.level);
                    let Ok(mut raw) = RawReceiver::meet(stage.socket(), plan) else { return };
                    for number in 0..4 {
                        stage.go();
                        (0..MANY).for_each(|_| receivers::bytes(&raw, &Note::Wake.bytes(), 0));
                        raw.ack([number, 0]);
                    }
                    stage.attacked();
                });
                rows.push(row.sharing());
            }
            for (attack, holds, act) in of_receivers() {
                let row = Row::new(level, against, attack, holds, move |stage| {
                    let plan = Plan::honest(stage.level);
                    let Ok(mut raw) = RawReceiver::meet(stage.socket(), plan) else { return };
                    stage.go();
                    act(&mut raw, stage);
                    stage.attacked();
                    if holds == Holds::Refused {
                        stage.linger();
                    }
                });
                rows.push(row.sharing());
            }
        }
    }
    for against in [Against::Receiver, Against::Sender] {
        let attack = "steals the handshake";
        let row = Row::new(Level::Copy, against, attack, Holds::Late, |stage| {
            let _socket = stage.socket();
            stage.attacked();
            steal(stage);
        });
        rows.push(row.sharing());
    }
    rows
}
