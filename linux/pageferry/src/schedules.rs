//! Channels and fan-outs under many schedules of the threads that use them.
//!
//! `CARGO_TARGET_DIR=target/shuttle RUSTFLAGS="--cfg shuttle" cargo test -p pageferry --lib --features verify --release
//! schedules`: random schedules, and such as change the thread that goes on at few places (PCT). `PAGEFERRY_SCHEDULES`
//! says how many of each a test tries, `PAGEFERRY_SCHEDULE_SEED` which.
//!
//! # What is looked at
//! Every program ends: nobody waits for what has come. Every byte is the one that was sent. At the end nothing is out
//! and no slot is taken. What is modelled is said in `sync::scheduled`.

use crate::host::Host;
use crate::sync::{sends, start_clock};
use crate::verify::{self, Defect};
use crate::{Channel, Config, Error, Fanout, Lent, Level, Loan, PeerFault, Receiver, Sender, Slow};
use ::shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use ::shuttle::{Config as Schedules, MaxSteps, Runner, thread};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Steps of a schedule: no program takes a tenth of it.
const MAX_STEPS: usize = 20_000;
/// Changes of the thread that goes on, in schedules that have few of them.
const CHANGES: usize = 3;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Defects are a whole process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn one() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(schedules: u64, program: fn()) {
    // What is made once in a process is made, where no schedule interferes.
    Host::get();
    crate::choose::HostCosts::get();
    let seed = setting("PAGEFERRY_SCHEDULE_SEED", 1);
    let count = setting("PAGEFERRY_SCHEDULES", schedules) as usize;
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Schedules::new();
        config.stack_size = 1 << 20;
        config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
        config.silence_warnings = true;
        Runner::new(scheduler, config).run(move || {
            start_clock();
            program();
        });
    };
    run(Box::new(RandomScheduler::new_from_seed(seed, count)));
    run(Box::new(PctScheduler::new_from_seed(seed, CHANGES, count)));
}

/// No schedule fails.
fn check(program: fn()) {
    let _one = one();
    run(500, program);
}

/// Some schedule fails by the defect, and says so in one of these words.
fn caught(defect: Defect, words: &[&str], program: fn()) {
    let _one = one();
    verify::plant(defect);
    let outcome = std::panic::catch_unwind(|| run(2000, program));
    verify::heal();
    let panic = outcome.expect_err("the defect is found");
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default();
    assert!(words.iter().any(|word| text.contains(word)), "{text}");
}

/// A program that does not end: no thread can go on, or those that wait look again and again.
const HANGS: &[&str] = &["deadlock", "max_steps"];

fn config(slots: u32) -> Config {
    Config::new()
        .slots(slots)
        .slot_bytes(1)
        .capacity(4)
        .inline_bytes(64)
        .spin(Duration::ZERO)
        .level(Level::Mmu)
}

const LEN: usize = 3000;

fn lend(tx: &Sender, number: u8) -> Result<Lent, Error> {
    let mut buffer = tx.buffer(LEN)?;
    buffer.fill(number);
    tx.loan_tagged(buffer, number.into())
}

fn look(loan: &Loan, number: u8) {
    assert_eq!((loan.len(), loan.tag()), (LEN, number.into()));
    assert!(loan.iter().all(|&byte| byte == number), "its bytes are those that were sent");
}

fn gone(error: &Error) -> bool {
    *error == Error::Peer(PeerFault::Dead)
}

/// Takes so many messages, each as it must be, and gives each back; then the sender is gone.
fn take_all(rx: &Receiver, count: u8) {
    for number in 0..count {
        look(&rx.recv().unwrap(), number);
    }
    assert!(gone(&rx.recv().unwrap_err()));
}

/// Tokens are dropped by two threads while a third lends, and waits for what it has lent.
fn tokens_are_dropped() {
    let (tx, rx) = Channel::pair(config(3)).unwrap();
    let receiver = thread::spawn(move || take_all(&rx, 5));
    let droppers: Vec<_> = (0..2)
        .map(|number| {
            let lent = lend(&tx, number).unwrap();
            thread::spawn(move || drop(lent))
        })
        .collect();
    for number in 2..5 {
        let buffer = lend(&tx, number).unwrap().wait().unwrap();
        assert!(buffer.iter().all(|&byte| byte == number), "what comes home is what was lent");
    }
    droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
    end(tx, receiver);
}

/// The sender goes; the receiver sees that, and has given all back.
fn end(tx: Sender, receiver: thread::JoinHandle<()>) {
    let shared = Arc::clone(tx.shared());
    drop(tx);
    receiver.join().unwrap();
    let counters = shared.counters();
    assert_eq!((counters.out, counters.slots_taken), (0, 0), "{counters:?}");
}

/// Two threads wait, each for its own message, while a third asks for them, and sends.
fn several_wait() {
    let (tx, rx) = Channel::pair(config(3)).unwrap();
    let receiver = thread::spawn(move || take_all(&rx, 4));
    let waiters: Vec<_> = (0..2)
        .map(|number| {
            let lent = lend(&tx, number).unwrap();
            thread::spawn(move || assert_eq!(lent.wait().unwrap()[0], number))
        })
        .collect();
    for number in 2..4 {
        let lent = lend(&tx, number).unwrap();
        lent.is_home().unwrap();
        let _ = tx.try_buffer(3 * crate::sys::pages::MAX_SLOT_ALIGN);
    }
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    end(tx, receiver);
}

/// A receiver that holds each message until it has the next; buffers are waited for.
fn one_is_always_held() {
    let (tx, rx) = Channel::pair(config(2)).unwrap();
    let receiver = thread::spawn(move || {
        let mut held = None;
        for number in 0..5 {
            let loan = rx.recv().unwrap();
            look(&loan, number);
            if let Some((loan, number)) = held.replace((loan, number)) {
                look(&loan, number);
            }
        }
        drop(held);
        assert!(gone(&rx.recv().unwrap_err()));
    });
    for number in 0..5 {
        drop(lend(&tx, number).unwrap());
    }
    end(tx, receiver);
}

/// What frees slots is done by another thread of the sender: it gives up a buffer, and drops a token whose message
/// is home, while the receiver holds its message until it gets the next.
fn slots_are_freed_here() {
    let (tx, rx) = Channel::pair(config(2)).unwrap();
    let receiver = thread::spawn(move || {
        let held = rx.recv().unwrap();
        look(&rx.recv().unwrap(), 1);
        look(&held, 0);
        drop(held);
        assert!(gone(&rx.recv().unwrap_err()));
    });
    let unsent = tx.buffer(LEN).unwrap();
    let _held = lend(&tx, 0).unwrap();
    let other = thread::spawn(move || drop(unsent));
    drop(lend(&tx, 1).unwrap());
    other.join().unwrap();
    drop(_held);
    end(tx, receiver);
}

/// The same with a token whose message is home already.
fn tokens_are_dropped_late() {
    let (tx, rx) = Channel::pair(config(2)).unwrap();
    let receiver = thread::spawn(move || {
        drop(rx.recv().unwrap());
        let held = rx.recv().unwrap();
        look(&rx.recv().unwrap(), 2);
        drop(held);
        assert!(gone(&rx.recv().unwrap_err()));
    });
    let token = lend(&tx, 0).unwrap();
    let held = lend(&tx, 1).unwrap();
    let other = thread::spawn(move || drop(token));
    drop(lend(&tx, 2).unwrap());
    other.join().unwrap();
    drop(held);
    end(tx, receiver);
}

/// A thread that waits is woken although another one looks at the socket meanwhile. The receiver gives back nothing
/// more before it has the next message, and that comes only when the first is home.
fn another_looks() {
    let (tx, rx) = Channel::pair(config(3)).unwrap();
    let receiver = thread::spawn(move || {
        drop(rx.recv().unwrap());
        let held = rx.recv().unwrap();
        look(&rx.recv().unwrap(), 2);
        look(&held, 1);
        drop(held);
        assert!(gone(&rx.recv().unwrap_err()));
    });
    let (first, held) = (lend(&tx, 0).unwrap(), lend(&tx, 1).unwrap());
    let waits = thread::spawn(move || assert_eq!(first.wait().unwrap()[0], 0));
    for _ in 0..3 {
        assert!(!held.is_home().unwrap());
    }
    waits.join().unwrap();
    drop(lend(&tx, 2).unwrap());
    drop(held);
    end(tx, receiver);
}

/// Waits as a task of a runtime does: it looks again when something has come over the socket, or it is told of slots.
fn watch(lent: &Lent) {
    let shared = &lent.shared;
    let mut seen = 0;
    while !lent.is_home().unwrap() {
        let awake = shared.begin_sleep();
        if !awake && !lent.is_home().unwrap() {
            while sends() == seen {
                thread::yield_now();
            }
        }
        seen = sends();
        let _ = shared.end_sleep();
    }
}

/// A thread and a task of the sender wait, each for a message of its own.
fn thread_and_task() {
    let (tx, rx) = Channel::pair(config(3)).unwrap();
    let receiver = thread::spawn(move || take_all(&rx, 3));
    let (first, second) = (lend(&tx, 0).unwrap(), lend(&tx, 1).unwrap());
    let waits = thread::spawn(move || first.wait().unwrap());
    let watches = thread::spawn(move || watch(&second));
    watches.join().unwrap();
    // Nothing was freed before, which would have woken the task.
    assert_eq!(waits.join().unwrap()[0], 0);
    drop(lend(&tx, 2).unwrap());
    end(tx, receiver);
}

/// Loans are given back by two threads while a third receives.
fn loans_are_given_back_elsewhere() {
    let (tx, rx) = Channel::pair(config(2)).unwrap();
    let receiver = thread::spawn(move || {
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (give, take) = ::shuttle::sync::mpsc::channel::<(Loan, u8)>();
                let other = thread::spawn(move || {
                    while let Ok((mut loan, number)) = take.recv() {
                        look(&loan, number);
                        loan.as_mut().unwrap()[0] = 99;
                    }
                });
                (give, other)
            })
            .collect();
        for number in 0..6 {
            let loan = rx.recv().unwrap();
            look(&loan, number);
            others[usize::from(number % 2)].0.send((loan, number)).unwrap();
        }
        for (give, other) in others {
            drop(give);
            other.join().unwrap();
        }
        assert!(gone(&rx.recv().unwrap_err()));
    });
    for number in 0..6 {
        drop(lend(&tx, number).unwrap());
    }
    end(tx, receiver);
}

/// The receiver goes at some point, and its loans later, by another thread.
fn receiver_goes() {
    let (tx, rx) = Channel::pair(config(2)).unwrap();
    let receiver = thread::spawn(move || {
        let first = rx.recv().unwrap();
        look(&first, 0);
        let other = thread::spawn(move || drop(first));
        drop(rx);
        other.join().unwrap();
    });
    let first = lend(&tx, 0).unwrap();
    let waiter = thread::spawn(move || assert_eq!(first.wait().unwrap()[0], 0));
    let error = (1..9).find_map(|number| lend(&tx, number).err()).expect("nobody is there");
    assert!(gone(&error), "{error}");
    assert!(tx.copy(b"more").is_err());
    waiter.join().unwrap();
    receiver.join().unwrap();
    // The end of the socket gives back what was under way.
    let _ = tx.shared().look();
    assert_eq!((tx.shared().out(), tx.counters().slots_taken), (0, 0));
}

/// The sender goes at some point, and a token later: what it had sent is received.
fn sender_goes() {
    let (tx, rx) = Channel::pair(config(3)).unwrap();
    let receiver = thread::spawn(move || take_all(&rx, 3));
    let tokens: Vec<_> = (0..3).map(|number| lend(&tx, number).unwrap()).collect();
    let other = thread::spawn(move || tokens.into_iter().for_each(|token| drop(token.wait())));
    end_with(tx, receiver, other);
}

fn end_with(tx: Sender, receiver: thread::JoinHandle<()>, other: thread::JoinHandle<()>) {
    let shared = Arc::clone(tx.shared());
    drop(tx);
    other.join().unwrap();
    receiver.join().unwrap();
    let counters = shared.counters();
    assert_eq!((counters.out, counters.slots_taken), (0, 0), "{counters:?}");
}

/// A ring that is full, of copies.
fn ring_is_full() {
    let (tx, rx) = Channel::pair(config(1).capacity(2)).unwrap();
    let receiver = thread::spawn(move || {
        for number in 0..6u8 {
            assert_eq!(*rx.recv().unwrap(), [number; 40]);
        }
        assert!(gone(&rx.recv().unwrap_err()));
    });
    for number in 0..6u8 {
        tx.copy(&[number; 40]).unwrap();
    }
    end(tx, receiver);
}

/// What is lent once more is the same, while other tokens come and go.
fn lent_again() {
    let (tx, rx) = Channel::pair(config(2)).unwrap();
    let receiver = thread::spawn(move || {
        for message in 0..4 {
            let loan = rx.recv().unwrap();
            let number = u8::from(message == 1);
            assert!(loan.len() == LEN && loan.iter().all(|&byte| byte == number));
        }
        assert!(gone(&rx.recv().unwrap_err()));
    });
    let mut lent = lend(&tx, 0).unwrap();
    let token = lend(&tx, 1).unwrap();
    let other = thread::spawn(move || drop(token));
    for _ in 0..2 {
        lent = tx.loan_again(lent).unwrap();
    }
    drop(lent);
    end_with(tx, receiver, other);
}

/// Sealed memory, of which the budget has room for one.
fn sealed_one_at_a_time() {
    let budget = 5 << 20;
    let (tx, rx) = Channel::pair(config(1).level(Level::Sealed).budget(budget)).unwrap();
    assert_eq!(tx.level(), Level::Sealed);
    let receiver = thread::spawn(move || take_all(&rx, 3));
    for number in 0..3 {
        let mut buffer = tx.buffer(LEN).unwrap();
        buffer.fill(number);
        drop(tx.loan_tagged(buffer, number.into()).unwrap());
    }
    end(tx, receiver);
}

/// Waits have an end, whoever polls for whom.
fn deadlines() {
    let short = Duration::from_millis(5);
    let (tx, rx) = Channel::pair(config(2)).unwrap();
    assert_eq!(rx.recv_timeout(short).unwrap_err(), Error::TimedOut(short));
    let (first, second) = (lend(&tx, 0).unwrap(), lend(&tx, 1).unwrap());
    let waits = thread::spawn(move || first.wait_timeout(short).unwrap_err().0);
    let polls = thread::spawn(move || second.wait().unwrap());
    assert_eq!(tx.buffer_timeout(LEN, short).unwrap_err(), Error::TimedOut(short));
    assert_eq!(waits.join().unwrap(), Error::TimedOut(short));
    let receiver = thread::spawn(move || take_all(&rx, 2));
    drop(polls.join().unwrap());
    end(tx, receiver);
}

fn fill(fanout: &mut Fanout, number: u8) {
    let mut buffer = fanout.buffer(LEN).unwrap();
    buffer.fill(number);
    let fan = fanout.loan_tagged(buffer, number.into()).unwrap();
    assert!(fan.iter().all(|&byte| byte == number));
}

/// A receiver that holds each message until it has the next: what it has seen is in order, and whole.
fn slow(rx: &Receiver, min: usize) {
    let (mut seen, mut held) = (Vec::new(), None::<Loan>);
    let error = loop {
        match rx.recv() {
            Ok(loan) => {
                let number = loan.tag() as u8;
                look(&loan, number);
                seen.push(number);
                if let Some(last) = held.replace(loan) {
                    look(&last, number_of(&last));
                }
            }
            Err(error) => break error,
        }
    };
    assert!(gone(&error), "{error}");
    assert!(seen.is_sorted() && seen.len() >= min, "{seen:?}");
}

fn number_of(loan: &Loan) -> u8 {
    loan.tag() as u8
}

/// One buffer for two receivers, of which one is slow; the sender waits for it.
fn fan_out_waits() {
    // For ever, in turns.
    let mut fanout = Fanout::new(config(3), Slow::Wait(Duration::MAX)).unwrap();
    let (quick, late) = (fanout.receiver().unwrap(), fanout.receiver().unwrap());
    let quick = thread::spawn(move || take_all(&quick, 4));
    let late = thread::spawn(move || slow(&late, 4));
    (0..4).for_each(|number| fill(&mut fanout, number));
    fan_out_ends(fanout, [quick, late]);
}

/// The same; the slow one misses the oldest.
fn fan_out_drops() {
    let slowly = Slow::DropOldest { window: 1, backlog: 1 };
    let mut fanout = Fanout::new(config(3), slowly).unwrap();
    let (quick, late) = (fanout.receiver().unwrap(), fanout.receiver().unwrap());
    let quick = thread::spawn(move || slow(&quick, 1));
    let late = thread::spawn(move || slow(&late, 1));
    (0..4).for_each(|number| fill(&mut fanout, number));
    fan_out_ends(fanout, [quick, late]);
}

/// A fan-out whose slots are freed by another thread, while a receiver holds its message until it has the next.
fn fan_out_is_told() {
    let mut fanout = Fanout::new(config(2), Slow::Wait(Duration::MAX)).unwrap();
    let rx = fanout.receiver().unwrap();
    let receiver = thread::spawn(move || slow(&rx, 2));
    let unsent = fanout.buffer(LEN).unwrap();
    fill(&mut fanout, 0);
    let other = thread::spawn(move || drop(unsent));
    fill(&mut fanout, 1);
    other.join().unwrap();
    let view = Arc::clone(fanout.view());
    drop(fanout);
    receiver.join().unwrap();
    assert_eq!(view.slots().taken(), 0);
}

fn fan_out_ends(fanout: Fanout, receivers: [thread::JoinHandle<()>; 2]) {
    let view = Arc::clone(fanout.view());
    drop(fanout);
    receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
    assert_eq!(view.slots().taken(), 0);
}

macro_rules! programs {
    ($($name:ident: $program:ident,)+) => {
        $(
            #[test]
            fn $name() {
                check($program);
            }
        )+
    };
}

programs! {
    tokens_are_dropped_while_another_thread_waits: tokens_are_dropped,
    several_threads_wait_while_another_asks: several_wait,
    buffers_are_waited_for_while_one_is_always_held: one_is_always_held,
    a_buffer_that_is_given_up_is_had_by_who_waits: slots_are_freed_here,
    who_waits_is_woken_while_another_thread_looks: another_looks,
    a_thread_and_a_task_wait_for_one_receiver: thread_and_task,
    a_token_that_is_dropped_late_frees_slots_for_who_waits: tokens_are_dropped_late,
    loans_are_given_back_by_other_threads: loans_are_given_back_elsewhere,
    a_receiver_may_go_at_any_point: receiver_goes,
    a_sender_may_go_at_any_point: sender_goes,
    a_full_ring_is_waited_for: ring_is_full,
    what_is_lent_again_comes_home: lent_again,
    sealed_memory_waits_for_the_budget: sealed_one_at_a_time,
    every_wait_has_its_end: deadlines,
    a_fan_out_waits_for_the_slow: fan_out_waits,
    a_fan_out_goes_on_without_the_slow: fan_out_drops,
    a_fan_out_has_what_is_given_up_elsewhere: fan_out_is_told,
}

#[test]
fn whoever_frees_slots_and_does_not_tell_is_found() {
    caught(Defect::NoNudge, HANGS, slots_are_freed_here);
    caught(Defect::NoNudge, HANGS, tokens_are_dropped_late);
    caught(Defect::NoNudge, HANGS, fan_out_is_told);
}

#[test]
fn a_thread_that_polls_and_does_not_tell_the_others_is_found() {
    caught(Defect::NoNews, HANGS, several_wait);
}

#[test]
fn a_thread_that_tells_the_others_too_early_is_found() {
    caught(Defect::PollsOn, HANGS, several_wait);
}

#[test]
fn a_wake_up_that_another_thread_has_taken_is_found() {
    caught(Defect::StolenNote, HANGS, another_looks);
}

#[test]
fn slots_that_are_given_back_before_they_are_free_are_found() {
    caught(Defect::AckBeforeGive, &["are out already"], loans_are_given_back_elsewhere);
}

#[test]
fn wake_ups_that_are_not_sent_or_not_looked_for_are_found() {
    caught(Defect::NoWake, HANGS, ring_is_full);
    caught(Defect::NoSecondLook, HANGS, ring_is_full);
}
