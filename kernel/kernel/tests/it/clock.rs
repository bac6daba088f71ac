//! The clock, what is done by it, and the threads behind interrupts.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::{RunError, Schedule};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const TICK: u64 = 24_000_000;

#[test]
fn a_sleep_lasts_as_long_as_it_should_and_a_tick_longer_at_most() {
    for (name, schedule) in [
        ("xeon-up", Schedule::Timed),
        ("xeon-mp-htt", Schedule::Timed),
        ("xeon-mp", Schedule::Seeded(3)),
        ("opteron-mp", Schedule::Seeded(4)),
    ] {
        run(name, schedule, sf_buf(8), |u| {
            for time in [0, 1, 1000, TICK - 1, TICK, 3 * TICK + 5] {
                let before = u.machine().now().0;
                u.sleep_for(Cycles(time)).unwrap();
                let slept = u.machine().now().0 - before;
                assert!((time..time + TICK + 1_000_000).contains(&slept), "{time}: {slept}");
            }
        });
    }
}

/// A call that comes due between two readings of the clock is made all the same.
#[test]
fn a_sleep_ends_on_cpus_that_stand_still_when_they_read_their_clocks() {
    for (name, schedule) in [
        ("xeon-up", Schedule::Timed),
        ("xeon-mp", Schedule::Timed),
        ("xeon-mp", Schedule::Seeded(5)),
        ("opteron-mp", Schedule::Seeded(6)),
    ] {
        let m = stalling_machine(name, schedule, Cycles(TICK / 4));
        run_on(m, name, &schedule.to_string(), sf_buf(8), |u| {
            for n in 0..100 {
                let (time, before) = (Cycles(n * TICK / 20), u.machine().now());
                u.sleep_for(time).unwrap();
                assert!(u.machine().now() - before >= time);
            }
        });
    }
}

#[test]
fn who_sleeps_lets_others_run_and_they_wake_in_order() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    run("xeon-mp", Schedule::Timed, sf_buf(8), move |u| {
        for n in [3u64, 1, 2] {
            let order = order.clone();
            fork(u, "sleeper", move |u| {
                u.sleep_for(Cycles(n * 2 * TICK)).unwrap();
                order.borrow_mut().push(n);
            });
        }
        // Both CPUs are busy meanwhile: the clock interrupts them.
        fork(u, "busy", |u| (0..100).for_each(|_| u.compute(Instructions(1_000_000))));
        (0..100).for_each(|_| u.compute(Instructions(1_000_000)));
        for _ in 0..4 {
            u.wait().unwrap();
        }
    });
    assert_eq!(*seen.borrow(), [1, 2, 3]);
}

#[test]
fn a_signal_ends_a_sleep_and_nothing_is_left() {
    run("xeon-mp", Schedule::Timed, sf_buf(8), |u| {
        let child = fork(u, "sleeper", |u| {
            assert_eq!(u.sleep_for(Cycles(u64::MAX)), Err(Errno::Interrupted));
        });
        while !u.kernel().is_asleep(child) {
            u.compute(Instructions(1000));
        }
        u.signal(child).unwrap();
        assert_eq!(u.wait(), Ok(child));
    });
}

#[test]
fn a_busy_cpu_is_interrupted_by_the_clock_and_an_idle_one_is_not() {
    let counted = Rc::new(Cell::new((0, 0)));
    let seen = counted.clone();
    run("xeon-mp", Schedule::Timed, sf_buf(8), move |u| {
        let (before, began) = (u.machine().snapshot(), u.machine().now());
        (0..240).for_each(|_| u.compute(Instructions(1_000_000)));
        let s = u.machine().snapshot().since(&before);
        let ticks = (u.machine().now() - began).0 / sf_buf(8).sched.tick_cycles.0;
        assert!(ticks > 5, "{ticks} ticks of one CPU");
        counted.set((s.hardware.interrupts, ticks));
        assert!(s.cause(Cause::Interrupt) > 0);
    });
    let (interrupts, ticks) = seen.get();
    // A tick is counted from the end of the handler of the one before.
    assert!((ticks - 1..=ticks + 2).contains(&interrupts), "{interrupts} interrupts in {ticks} ticks");
}

#[test]
fn a_deadlock_is_seen_though_there_is_a_clock() {
    let ended = try_run("xeon-mp", Schedule::Timed, sf_buf(8), |u| {
        let (read, _write) = u.pipe().unwrap();
        let at = map(u, PAGE);
        let _ = u.read(read, at, 1);
    });
    assert!(matches!(ended.result, Err(RunError::Deadlock { .. })), "{:?}", ended.result);
}

#[test]
fn a_clock_that_makes_no_sense_is_refused() {
    for (quantum, tick) in [(20_000, 40_000), (20_000, 0), (20_000, 5000)] {
        let mut config = sf_buf(8);
        (config.sched.quantum_cycles, config.sched.tick_cycles) = (Cycles(quantum), Cycles(tick));
        let found = Rc::new(RefCell::new(None));
        let result = found.clone();
        let m = machine("xeon-up", Schedule::Timed);
        m.run(Box::new(move |m| {
            result.replace(Kernel::boot(m.clone(), m.devices(), config).err());
            None
        }))
        .expect("no panic");
        assert!(found.take().expect("refused").to_string().contains("at least a tick"));
    }
}

/// The last process may be gone before the last CPU has begun.
#[test]
fn a_program_that_ends_at_once_leaves_no_thread() {
    for name in ["xeon-mp-htt", "xeon-up"] {
        let mut config = sf_buf(8);
        config.paths.process = pageferry_hal::CodePath::of(0);
        run(name, Schedule::Timed, config, |_| ());
    }
}

/// As many processes as there may be leave room for the kernel's own threads.
#[test]
fn the_kernel_keeps_threads_for_itself() {
    let m = machine("xeon-mp", Schedule::Timed);
    let made = Rc::new(Cell::new(0));
    let counted = made.clone();
    let booted = Rc::new(RefCell::new(None));
    let its = booted.clone();
    m.run(Box::new(move |m| {
        let kernel = Kernel::boot(m.clone(), m.devices(), sf_buf(8)).unwrap();
        while kernel.spawn("one of many", Box::new(|_| ())).is_ok() {
            made.set(made.get() + 1);
        }
        its.replace(Some(kernel.clone()));
        kernel.run()
    }))
    .expect("all of them run and end");
    assert!(counted.get() > 200, "{} processes", counted.get());
    booted.take().expect("booted").check_quiescent().expect("nothing is left");
}
