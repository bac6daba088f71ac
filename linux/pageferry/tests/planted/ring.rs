//! Counters that lie, and sides that sleep.

use crate::peer::emulated::is_untimed;
use crate::peer::{Plan, RawReceiver, RawSender, meet_receiver, meet_sender, try_recv};
use crate::{Found, holds, patience};
use pageferry::trust::Guarded;
use pageferry::wire::Note;
use pageferry::{Broken, Channel, Config, Error, Lent, Level, PeerFault, Receiver, RingFault, Sender, Verb};
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn sleepless() -> Config {
    Config::new().slots(2).slot_bytes(1).spin(Duration::ZERO)
}

fn against_receiver() -> (RawSender, Receiver<Guarded>) {
    let (peer, rx) =
        meet_receiver(Plan::honest(Level::Copy), |socket| Channel::receiver(socket, sleepless()));
    (peer.unwrap(), rx.unwrap())
}

fn against_sender() -> (RawReceiver, Sender<Guarded>) {
    let (peer, tx) = meet_sender(Plan::honest(Level::Copy), |socket| Channel::sender(socket, sleepless()));
    (peer.unwrap(), tx.unwrap())
}

/// More messages than the ring has cells cannot be there.
pub fn published() -> Found {
    let (mut peer, rx) = against_receiver();
    peer.say(peer.inline(1));
    peer.count(1000);
    let fault = RingFault::Published { before: 0, now: 1000, capacity: 4 };
    holds(rx.recv_timeout(patience()).is_err_and(|error| error == broken(Broken::Ring(fault))))
}

/// More acknowledgements than messages cannot be there.
pub fn acknowledged() -> Found {
    let (mut peer, tx) = against_sender();
    tx.copy(b"one").unwrap();
    peer.ack([0, 0]);
    peer.count(1000);
    let fault = RingFault::Acknowledged { before: 0, now: 1000, out: 1 };
    holds(tx.copy(b"two").is_err_and(|error| error == broken(Broken::Ring(fault))))
}

fn broken(broken: Broken) -> Error {
    Error::Peer(PeerFault::Broken(broken))
}

/// A message is acknowledged once.
pub fn second_ack() -> Found {
    let (mut peer, tx) = against_sender();
    tx.copy(b"one").unwrap();
    tx.copy(b"two").unwrap();
    peer.ack([0, 0]);
    peer.ack([0, 0]);
    let fault = Broken::Acknowledgement { sequence: 0 };
    holds(tx.copy(b"three").is_err_and(|error| error == broken(fault)))
}

fn woken(socket: &std::os::fd::OwnedFd) -> bool {
    std::iter::from_fn(|| try_recv(socket)).any(|(bytes, _)| Note::parse(&bytes) == Some(Note::Wake))
}

/// Who publishes wakes a receiver that sleeps, and no other.
pub fn wakes_receiver() -> Found {
    let (peer, tx) = against_sender();
    tx.copy(b"one").unwrap();
    assert!(!woken(&peer.socket));
    peer.sleeps(1);
    tx.copy(b"two").unwrap();
    holds(woken(&peer.socket))
}

/// Who acknowledges wakes a sender that sleeps, and no other.
pub fn wakes_sender() -> Found {
    let (mut peer, rx) = against_receiver();
    peer.say(peer.message(Verb::Copy, Level::Copy, 0, 1));
    drop(rx.recv_timeout(patience()).unwrap());
    assert!(!woken(&peer.socket) && peer.next_ack().is_some());
    peer.sleeps(1);
    peer.say(peer.message(Verb::Copy, Level::Copy, 0, 1));
    drop(rx.recv_timeout(patience()).unwrap());
    assert!(peer.next_ack().is_some());
    holds(woken(&peer.socket))
}

/// Whether something succeeds, and not only because the time is up and it looks a last time.
pub fn in_time(succeeds: impl FnOnce() -> bool) -> bool {
    let began = Instant::now();
    succeeds() && began.elapsed() < patience() / 2
}

/// A message that is published while its receiver goes to sleep is received.
pub fn second_look_of_receiver() -> Found {
    let (tx, rx) = Channel::pair(sleepless()).unwrap();
    let (ready, turns) = mpsc::channel();
    let receiver = std::thread::spawn(move || {
        (0..300).all(|_| {
            let _ = ready.send(());
            in_time(|| rx.recv_timeout(patience()).is_ok())
        })
    });
    for () in turns {
        if tx.copy(b"x").is_err() {
            break;
        }
    }
    holds(receiver.join().unwrap())
}

/// An acknowledgement that is made while its sender goes to sleep is seen.
pub fn second_look_of_sender() -> Found {
    let (tx, rx) = Channel::pair(sleepless()).unwrap();
    let (ready, turns) = mpsc::channel();
    let receiver = std::thread::spawn(move || {
        for () in turns {
            let Ok(loan) = rx.recv() else { break };
            drop(loan);
        }
    });
    let all = (0..300).all(|_| {
        let lent = tx.loan(tx.buffer(1).unwrap()).unwrap();
        let _ = ready.send(());
        in_time(|| lent.wait_timeout(patience()).is_ok())
    });
    drop((ready, tx));
    receiver.join().unwrap();
    holds(all)
}

/// A thread that waits for memory to come home is woken, however often another looks at the socket meanwhile.
pub fn woken_beside_another() -> Found {
    if is_untimed() {
        return Found::NotHere;
    }
    let (tx, rx) = Channel::pair(sleepless()).unwrap();
    // While one is out, a sender without slots has something to wait for.
    let _out = tx.loan(tx.buffer(1).unwrap()).unwrap();
    let (go, goes) = mpsc::channel();
    let (dropped, drops) = mpsc::channel();
    let receiver = std::thread::spawn(move || {
        let _held = rx.recv();
        for () in goes {
            drop(rx.recv());
            let _ = dropped.send(());
        }
    });
    let (give, lents) = mpsc::channel();
    let (home, turns) = mpsc::channel();
    let (waits, waiting) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        for lent in lents {
            let _ = waits.send(());
            let _ = home.send(in_time(|| Lent::wait_timeout(lent, patience()).is_ok()));
        }
    });
    let all = (0..200).all(|_| {
        give.send(tx.loan(tx.buffer(1).unwrap()).unwrap()).unwrap();
        waiting.recv().unwrap();
        // By then the waiter is about to sleep.
        std::thread::sleep(Duration::from_millis(1));
        go.send(()).unwrap();
        while drops.try_recv().is_err() {
            let _ = tx.try_buffer(1);
        }
        (0..10).for_each(|_| drop(tx.try_buffer(1)));
        turns.recv() == Ok(true)
    });
    drop((give, go, tx));
    waiter.join().unwrap();
    receiver.join().unwrap();
    holds(all)
}

/// Who waits for slots while the peer holds some is woken by those that this process gives back.
pub fn slots_of_its_own() -> Found {
    let (tx, rx) = Channel::pair(sleepless()).unwrap();
    let out = tx.loan(tx.buffer(1).unwrap()).unwrap();
    let held = rx.recv().unwrap();
    let buffer = tx.buffer(1).unwrap();
    let giver = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(buffer);
    });
    let got = in_time(|| tx.buffer_timeout(1, patience()).is_ok());
    giver.join().unwrap();
    drop((held, out));
    holds(got)
}

/// What a sender had published before it went is received.
pub fn drained() -> Found {
    let config = Config::new().slots(1).slot_bytes(1).require_level(Level::Sealed);
    let Ok((tx, rx)) = Channel::pair(config) else { return Found::NotHere };
    for byte in 1..4 {
        let mut buffer = tx.buffer(1).unwrap();
        buffer[0] = byte;
        drop(tx.loan(buffer).unwrap());
    }
    drop(tx);
    // The first look at the socket finds the memory of all of them, and the end.
    let got: Vec<_> = std::iter::from_fn(|| rx.recv().ok().map(|loan| loan[0])).collect();
    let gone = rx.recv().unwrap_err() == Error::Peer(PeerFault::Dead);
    holds(got == [1, 2, 3] && gone)
}
