//! Several threads of one side that wait, or that free what another one waits for. `src/schedules.rs` tries the same in
//! every order.

use crate::peer::{Plan, RawReceiver, meet_sender};
use crate::ring::in_time;
use crate::{Found, holds, patience};
use pageferry::{Channel, Config, Lent, Level, Sender};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A defect that two threads must meet for shows in some of so many rounds.
const ROUNDS: usize = 30;

fn config() -> Config {
    Config::new().slots(2).slot_bytes(1).spin(Duration::ZERO).level(Level::Typed)
}

fn lend(tx: &Sender) -> Lent {
    tx.loan(tx.buffer(1).unwrap()).unwrap()
}

/// A sender, and a peer that acknowledges what it is told to.
fn against_sender() -> (RawReceiver, Sender) {
    // SAFETY: no reference of this process is into memory that the peer writes.
    let sender = |socket| unsafe { Channel::trusted_sender(socket, config()) };
    let (peer, tx) = meet_sender(Plan::honest(Level::Typed), sender);
    (peer.unwrap(), tx.unwrap())
}

/// Starts a thread, and waits until it sleeps in the kernel.
fn asleep<R: Send + 'static>(waits: impl FnOnce() -> R + Send + 'static) -> std::thread::JoinHandle<R> {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).unwrap();
        waits()
    });
    let path = format!("/proc/self/task/{}/stat", told.recv().unwrap());
    let sleeps = || match std::fs::read_to_string(&path) {
        Ok(text) => text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S')),
        // It has ended.
        Err(_) => true,
    };
    let (until, mut seen) = (Instant::now() + patience(), 0);
    // It may also sleep for a moment at a lock.
    while seen < 3 && Instant::now() < until {
        seen = if sleeps() { seen + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(1));
    }
    thread
}

fn comes_home(lent: Lent) -> bool {
    in_time(|| lent.wait_timeout(patience()).is_ok())
}

/// Of two threads that wait, the second goes on waiting when the first has what it waited for.
pub fn news() -> Found {
    let all = (0..ROUNDS).all(|_| {
        let (mut peer, tx) = against_sender();
        let (first, second) = (lend(&tx), lend(&tx));
        let polls = asleep(move || comes_home(first));
        let waits = asleep(move || comes_home(second));
        peer.ack([0, 0]);
        let polled = polls.join().unwrap();
        peer.ack([1, 0]);
        polled && waits.join().unwrap()
    });
    holds(all)
}

/// Another thread finds that the peer has broken the protocol, so all that was lent is home; the peer says nothing.
pub fn ended() -> Found {
    let (peer, tx) = against_sender();
    let (first, second) = (lend(&tx), lend(&tx));
    let waits = asleep(move || comes_home(first));
    // More than was sent.
    peer.reverse.word(0).store(9, Ordering::SeqCst);
    assert!(second.is_home().unwrap());
    holds(waits.join().unwrap())
}

/// Slots that are given back are free here when the next message comes in them.
pub fn given_back() -> Found {
    let all = (0..ROUNDS).all(|_| {
        let (tx, rx) = Channel::pair(config().slots(1)).unwrap();
        let lent = lend(&tx);
        let loan = rx.recv().unwrap();
        let drops = std::thread::spawn(move || drop(loan));
        let again = std::thread::spawn(move || {
            drop(lent.wait().unwrap());
            drop(lend(&tx));
        });
        let came = rx.recv_timeout(patience()).is_ok();
        drops.join().unwrap();
        again.join().unwrap();
        came
    });
    holds(all)
}
