//! The ring under all orders of execution that the memory model allows, within bounds.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p pageferry --lib --features verify --release ring::loom`, with a target
//! directory of its own (`CARGO_TARGET_DIR=target/loom`), since everything is compiled anew. Less than a minute.
//!
//! # What is modelled
//! Two threads are the two sides. The words of both areas are atomics of loom; the socket is a counter of
//! wake-ups with a condition variable. A wake-up that is lost is a deadlock, which loom reports; a word of a
//! descriptor that is old is a failed assertion.

use super::*;
use crate::verify::{self, Defect};
use ::loom::model::Builder;
use ::loom::sync::atomic::AtomicU64;
use ::loom::sync::{Arc, Condvar, Mutex};
use ::loom::thread;

/// The words that two cells need: the counters and the cells behind them, without the room between.
#[derive(Clone)]
struct Words(Arc<Vec<AtomicU64>>);

const CAPACITY: u32 = 2;
const GEOMETRY: RingGeometry = RingGeometry { capacity: CAPACITY, inline_bytes: 0 };

impl Words {
    fn new(cell_words: usize) -> Words {
        Words(Arc::new((0..2 + CAPACITY as usize * cell_words).map(|_| AtomicU64::new(0)).collect()))
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        match word {
            PUBLISHED => &self.0[0],
            ASLEEP => &self.0[1],
            word => &self.0[2 + word - COUNTERS],
        }
    }
}

impl Area for Words {
    fn load(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Relaxed)
    }

    fn store(&self, word: usize, value: u64) {
        self.word(word).store(value, Ordering::Relaxed);
    }

    fn release(&self, word: usize, value: u64) {
        self.word(word).store(value, Ordering::Release);
    }
}

/// One direction of the socket.
#[derive(Clone)]
struct Socket(Arc<(Mutex<usize>, Condvar)>);

impl Socket {
    fn new() -> Socket {
        Socket(Arc::new((Mutex::new(0), Condvar::new())))
    }

    fn wake(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_one();
    }

    fn wait(&self) {
        let mut wakes = self.0.0.lock().unwrap();
        while *wakes == 0 {
            wakes = self.0.1.wait(wakes).unwrap();
        }
        *wakes = 0;
    }
}

/// The channel's sides wait as these do: `RecvShared::sleep`, `SendShared::sleep`.
struct Tx {
    ring: Outbox<Words>,
    to_peer: Socket,
    from_peer: Socket,
}

struct Rx {
    ring: Inbox<Words>,
    to_peer: Socket,
    from_peer: Socket,
}

fn sides() -> (Tx, Rx) {
    let (forward, reverse) = (Words::new(DESCRIPTOR_WORDS), Words::new(ACK_WORDS));
    let (there, back) = (Socket::new(), Socket::new());
    let tx = Tx {
        ring: Outbox::new(GEOMETRY, forward.clone(), reverse.clone()),
        to_peer: there.clone(),
        from_peer: back.clone(),
    };
    let rx = Rx { ring: Inbox::new(GEOMETRY, forward, reverse), to_peer: back, from_peer: there };
    (tx, rx)
}

fn message(number: u64) -> [u64; DESCRIPTOR_WORDS] {
    core::array::from_fn(|word| 1 + number * 8 + word as u64)
}

impl Tx {
    fn send(&mut self) {
        while self.ring.next_sequence().is_err() {
            self.wait_for_ack();
        }
        let number = self.ring.next_sequence().unwrap();
        if self.ring.publish(message(number)) {
            self.to_peer.wake();
        }
    }

    fn wait_for_ack(&mut self) -> [u64; ACK_WORDS] {
        loop {
            if let Some(ack) = self.ring.next_ack().unwrap() {
                return ack;
            }
            self.ring.begin_sleep();
            if !self.ring.has_ack() || planted!(NoSecondLook) {
                self.from_peer.wait();
            }
            self.ring.end_sleep();
        }
    }
}

impl Rx {
    fn recv(&mut self) -> u64 {
        loop {
            let number = self.ring.next_sequence();
            if let Some(words) = self.ring.peek().unwrap() {
                assert_eq!(words, message(number), "every word is the message's");
                self.ring.taken();
                return number;
            }
            self.ring.begin_sleep();
            if !self.ring.has_message() || planted!(NoSecondLook) {
                self.from_peer.wait();
            }
            self.ring.end_sleep();
        }
    }

    fn ack(&mut self, number: u64) {
        if self.ring.ack([number, number + 7]) {
            self.to_peer.wake();
        }
    }
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A defect is for the whole process, and the models run in threads of their own.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn one() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn receiver_sleeps() {
    let (mut tx, mut rx) = sides();
    let sender = thread::spawn(move || {
        tx.send();
        tx.send();
    });
    assert_eq!(rx.recv(), 0);
    assert_eq!(rx.recv(), 1);
    sender.join().unwrap();
}

fn sender_sleeps() {
    let (mut tx, mut rx) = sides();
    tx.send();
    tx.send();
    let receiver = thread::spawn(move || {
        // The second one comes back first.
        assert_eq!((rx.recv(), rx.recv()), (0, 1));
        rx.ack(1);
        rx.ack(0);
    });
    assert_eq!(tx.wait_for_ack(), [1, 8]);
    assert_eq!(tx.wait_for_ack(), [0, 7]);
    receiver.join().unwrap();
}

#[test]
fn what_is_taken_was_published_whole_and_no_wake_up_is_lost() {
    let _one = one();
    check(6, receiver_sleeps);
}

#[test]
fn what_is_given_back_is_read_whole_and_no_wake_up_is_lost() {
    let _one = one();
    check(6, sender_sleeps);
}

#[test]
fn a_cell_is_used_again_only_after_its_message_was_taken() {
    let _one = one();
    check(4, || {
        let (mut tx, mut rx) = sides();
        let sender = thread::spawn(move || (0..3).for_each(|_| tx.send()));
        for number in 0..3 {
            assert_eq!(rx.recv(), number);
            rx.ack(number);
        }
        sender.join().unwrap();
    });
}

/// The model fails with the defect, and the defect is out again afterwards.
fn caught(defect: Defect, model: impl Fn() + Send + Sync + 'static) {
    let _one = one();
    verify::plant(defect);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(3, model)));
    verify::heal();
    let panic = outcome.expect_err("the defect is found");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("deadlock"), "{text}");
}

#[test]
fn a_sender_that_does_not_look_whether_the_receiver_sleeps_is_found() {
    caught(Defect::NoWake, receiver_sleeps);
}

#[test]
fn a_receiver_that_does_not_look_whether_the_sender_sleeps_is_found() {
    caught(Defect::NoWake, sender_sleeps);
}

#[test]
fn a_receiver_that_does_not_look_once_more_is_found() {
    caught(Defect::NoSecondLook, receiver_sleeps);
}

#[test]
fn a_sender_that_does_not_look_once_more_is_found() {
    caught(Defect::NoSecondLook, sender_sleeps);
}
