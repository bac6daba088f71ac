//! Atomics in place of `core`'s: locks of one's own, their races, their cost, loops without end; and the watchdog for
//! those who use `core`'s all the same.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, spin_loop};
use pageferry_model::testing::{find, replay, seeds};
use pageferry_model::{EventKind, Model, Options, RunError, Schedule, Waits};
use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

const RELAXED: Ordering = Ordering::Relaxed;

/// A spin lock of one's own. With `torn` it looks and takes in two steps.
#[derive(Default)]
struct OwnLock {
    held: AtomicBool,
    torn: bool,
}

impl OwnLock {
    fn lock(&self) {
        if self.torn {
            while self.held.load(Ordering::Acquire) {
                spin_loop();
            }
            self.held.store(true, Ordering::Release);
        } else {
            while self.held.compare_exchange(false, true, Ordering::Acquire, RELAXED).is_err() {
                spin_loop();
            }
        }
    }

    fn unlock(&self) {
        self.held.store(false, Ordering::Release);
    }
}

/// All CPUs count under a lock of their own.
fn count(m: &Model, torn: bool) -> Option<ContextId> {
    let lock = Rc::new(OwnLock { torn, ..OwnLock::default() });
    let (sum, done) = (Rc::new(Cell::new(0)), Rc::new(AtomicUsize::new(0)));
    let add = {
        let (m, lock, sum, done) = (m.clone(), lock.clone(), sum.clone(), done.clone());
        move || {
            for _ in 0..5 {
                lock.lock();
                let old = sum.get();
                m.execute(Instructions(20));
                sum.set(old + 1);
                lock.unlock();
            }
            done.fetch_add(1, RELAXED);
        }
    };
    let cpus = m.board().cpus;
    for cpu in 1..cpus {
        let add = add.clone();
        let entry = move || {
            add();
            None
        };
        m.start_cpu(CpuId(cpu as u8), m.context_new("other", Box::new(entry)));
    }
    add();
    while done.load(RELAXED) < cpus {}
    assert_eq!(sum.get(), 5 * cpus, "all have counted");
    None
}

#[test]
fn a_lock_of_ones_own_is_right_under_every_schedule() {
    seeds(&config("xeon-mp-htt"), Options::default(), 0..100, |m| count(m, false));
    let m = machine("xeon-mp-htt", Schedule::Timed);
    m.run(Box::new(|m| count(m, false))).expect("all is well");
    m.check().expect("the laws hold");
    m.snapshot().check().expect("the accounts balance");
}

#[test]
fn a_lock_that_looks_and_takes_in_two_steps_is_found() {
    let options = Options::default();
    let wrong = find(&config("xeon-mp"), options, 0..100, |m| count(m, true)).expect("two are in at once");
    let again = replay(&config("xeon-mp"), options, wrong.seed, 40, |m| count(m, true));
    assert_eq!((&again.result, &again.accounts), (&wrong.result, &wrong.accounts), "the same run");
    let stores = |what: &EventKind| matches!(what, EventKind::Atomic { name: "store", was: 1, is: 1 });
    assert!(again.events.iter().any(|e| stores(&e.what)), "the log shows who takes what is taken:\n{again}");
}

/// Everybody waits for a flag that nobody sets, and a clock ticks, or does not.
fn wait_for_ever(m: &Model, ticks: bool) -> Option<ContextId> {
    let flag = Rc::new(AtomicU32::new(0));
    let clock = m.clone();
    let again = move || clock.set_timer(Some(Cycles(clock.now().0 + 100_000)));
    if ticks {
        again();
        m.set_interrupt_handler(Box::new(move |_| again()));
    }
    if m.board().cpus > 1 {
        let theirs = flag.clone();
        let entry = move || {
            while theirs.swap(0, RELAXED) == 0 {
                spin_loop();
            }
            None
        };
        m.start_cpu(CpuId(1), m.context_new("second", Box::new(entry)));
    }
    while flag.load(RELAXED) == 0 {}
    None
}

#[test]
fn a_loop_on_an_atomic_that_nobody_sets_ends_the_run() {
    for name in ["xeon-up", "xeon-mp"] {
        for (schedule, ticks) in [Schedule::Timed, Schedule::Seeded(5)].into_iter().zip([false, true]) {
            let options = Options::new(schedule).spin_limit(5_000);
            let m = Model::flat(&config(name), options).expect("a valid machine");
            let error = m.run(Box::new(move |m| wait_for_ever(m, ticks))).expect_err("nobody sets it");
            let RunError::Spinning { waits: Waits(waits), .. } = &error else { panic!("{error}") };
            assert_eq!(waits.len(), m.board().cpus, "{error}");
            let said = error.to_string();
            let place = "cpu0, context boot, spins for an atomic at machines/model/tests/it/sync.rs:";
            assert!(said.contains(place), "{said}");
        }
    }
}

/// A CPU that looks at an atomic for long is no error as long as another gets on.
#[test]
fn who_waits_for_long_work_goes_on() {
    for schedule in [Schedule::Timed, Schedule::Seeded(5)] {
        let options = Options::new(schedule).spin_limit(2_000);
        let m = Model::flat(&config("xeon-mp"), options).expect("a valid machine");
        let result = m.run(Box::new(|m| {
            let flag = Rc::new(AtomicBool::new(false));
            let (other, theirs) = (m.clone(), flag.clone());
            let entry = move || {
                for _ in 0..20 {
                    other.execute(Instructions(100_000));
                }
                theirs.store(true, RELAXED);
                None
            };
            m.start_cpu(CpuId(1), m.context_new("second", Box::new(entry)));
            while !flag.load(RELAXED) {}
            None
        }));
        result.expect("the flag is set in the end");
    }
}

/// Cycles that `what` takes on CPU 0 after `there` was done on CPU 1, which is another package.
fn cost(there: fn(&AtomicU64), what: fn(&AtomicU64)) -> u64 {
    let m = machine("xeon-mp", Schedule::Timed);
    let cost = Rc::new(Cell::new(0));
    let result = cost.clone();
    let ran = m.run(Box::new(move |m| {
        let (atomic, done) = (Rc::new(AtomicU64::new(0)), Rc::new(Cell::new(false)));
        what(&atomic);
        let (theirs, is_done) = (atomic.clone(), done.clone());
        let entry = move || {
            there(&theirs);
            is_done.set(true);
            None
        };
        m.start_cpu(CpuId(1), m.context_new("second", Box::new(entry)));
        m.spin_until(&mut || done.get());
        let before = m.now();
        what(&atomic);
        result.set(m.now().0 - before.0);
        None
    }));
    ran.expect("all is well");
    cost.get()
}

#[test]
fn an_atomic_costs_what_it_costs_there_and_its_line_comes_from_the_other_package() {
    let params = config("xeon-mp");
    let read: fn(&AtomicU64) = |a| _ = a.load(RELAXED);
    let add: fn(&AtomicU64) = |a| _ = a.fetch_add(1, RELAXED);
    let nothing: fn(&AtomicU64) = |_| {};
    let (cheap, both_read) = (cost(nothing, read), cost(read, read));
    assert!(cheap <= 2 && both_read == cheap, "a line that two read is in both: {cheap}, {both_read}");
    let alone = cost(nothing, add);
    let atomic = params.cpu.atomic_cycles.value;
    assert!((atomic..atomic + 3).contains(&alone), "{alone} cycles for an atomic of {atomic}");
    let far = cost(add, add) - alone;
    assert!(far > 50 && cost(add, read) - cheap == far && cost(read, add) - alone == far, "{far} cycles");
    assert_eq!(cost(add, add), alone + far, "the same every time");
}

#[test]
fn outside_of_a_run_they_are_those_of_core() {
    let (number, mut value) = (AtomicU32::new(5), 7);
    assert_eq!(number.fetch_sub(6, RELAXED), 5);
    assert_eq!(number.fetch_max(3, RELAXED), u32::MAX);
    assert_eq!(number.fetch_min(3, RELAXED), u32::MAX);
    assert_eq!(number.fetch_update(RELAXED, RELAXED, |n| (n == 3).then_some(4)), Ok(3));
    assert_eq!(number.fetch_update(RELAXED, RELAXED, |n| (n == 3).then_some(4)), Err(4));
    assert_eq!((number.fetch_or(1, RELAXED), number.fetch_and(1, RELAXED), number.into_inner()), (4, 5, 1));
    let pointer = AtomicPtr::default();
    assert_eq!(pointer.swap(&raw mut value, RELAXED), std::ptr::null_mut());
    assert_eq!(pointer.load(RELAXED), &raw mut value);
}

/// In what a CPU waits for, a read is a read: it takes no turn, and costs nothing.
#[test]
fn waits_may_look_at_atomics() {
    seeds(&config("xeon-mp"), Options::default(), 0..20, |m| {
        m.set_interrupt_handler(Box::new(|_| {}));
        let flag = Rc::new(AtomicBool::new(false));
        let (other, theirs) = (m.clone(), flag.clone());
        let entry = move || {
            theirs.store(true, RELAXED);
            other.send_ipi(CpuSet::only(CpuId(0)), Interrupt::Reschedule);
            None
        };
        m.start_cpu(CpuId(1), m.context_new("second", Box::new(entry)));
        m.idle_until(&mut || flag.load(RELAXED));
        m.spin_until(&mut || flag.load(RELAXED));
        None
    });
}

// ----------------------------------------------------------------------------------------------------- the watchdog

/// For the test below, which runs it in a process of its own.
#[test]
#[ignore = "never ends by itself"]
fn loops_on_an_atomic_of_std() {
    let options = Options::default().host_limit(Some(Duration::from_millis(500)));
    seeds(&config("xeon-mp"), options, 0..1, |m| {
        let flag = Rc::new(std::sync::atomic::AtomicBool::new(false));
        let theirs = flag.clone();
        let entry = move || {
            theirs.store(true, RELAXED);
            None
        };
        m.start_cpu(CpuId(1), m.context_new("second", Box::new(entry)));
        while !flag.load(RELAXED) {
            std::hint::spin_loop();
        }
        None
    });
}

/// As above: a lock of `std` that another context of the same host thread holds.
#[test]
#[ignore = "never ends by itself"]
fn waits_for_a_lock_of_std() {
    let options = Options::default().host_limit(Some(Duration::from_millis(500)));
    let m = Model::flat(&config("xeon-mp"), options).expect("a valid machine");
    let result = m.run(Box::new(|m| {
        // Taken by this thread, by a guard that is lost, and waited for by another thread that this one joins: what
        // a thread does that takes a lock of `std` twice is not said.
        let entry = move || {
            let lock = std::sync::Arc::new(std::sync::Mutex::new(()));
            std::mem::forget(lock.lock());
            let waits = std::thread::spawn(move || drop(lock.lock()));
            waits.join().expect("never");
            None
        };
        m.start_cpu(CpuId(1), m.context_new("sleeper", Box::new(entry)));
        None
    }));
    result.expect("never");
}

#[test]
fn code_that_never_comes_back_ends_the_process_with_the_place() {
    let run = |test: &str| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--ignored", "--exact", test]).env_remove("PAGEFERRY_SEED");
        let output = command.output().expect("it runs");
        assert!(!output.status.success(), "{test} ends by itself");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run("sync::loops_on_an_atomic_of_std");
    let words = [
        "cpu0, context boot, has called nothing of the machine for 500ms of the host's time",
        "thread `sync::loops_on_an_atomic_of_std`, schedule of seed 0",
        "`pageferry_model::sync`",
        "cpu0 boot         starts cpu1  (machines/model/tests/it/sync.rs:",
    ];
    words.iter().for_each(|words| assert!(said.contains(words), "{words}: {said}"));
    let said = run("sync::waits_for_a_lock_of_std");
    for words in ["cpu1, context sleeper, has called nothing", "`Options::keep_events` says"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// What looks at the kernel from outside may take long: it is not the kernel's time.
#[test]
fn what_is_looked_at_from_outside_is_not_timed() {
    let options = Options::default().host_limit(Some(Duration::from_secs(2)));
    let m = Model::flat(&config("xeon-up"), options).expect("a valid machine");
    let result = m.run(Box::new(|m| {
        m.inspect(|| std::thread::sleep(Duration::from_secs(3)));
        None
    }));
    result.expect("all is well");
}
