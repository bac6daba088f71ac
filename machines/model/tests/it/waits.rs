//! Waits that end, and those that do not: spins, halts, and runs that take too long.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{Model, Options, RunError, Schedule, Waits};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn a_deadlock_is_an_error() {
    let m = machine("xeon-mp", Schedule::Timed);
    let result = m.run(Box::new(|m| {
        m.idle_until(&mut || false);
        None
    }));
    assert!(matches!(result, Err(RunError::Deadlock { left, .. }) if left == "boot"));
    let m = machine("xeon-mp", Schedule::Timed);
    let result = m.run(Box::new(|m| {
        m.spin_until(&mut || false);
        None
    }));
    let error = result.expect_err("it spins alone");
    assert!(matches!(error, RunError::Spinning { tests: 1, alone: true, .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.starts_with("no CPU gets on: cpu0, context boot, spins at machines/model/tests/it/waits.rs:"),
        "{said}"
    );
    assert!(
        said.contains("; no other CPU runs and no interrupt is on its way, so nothing can end the wait ("),
        "{said}"
    );
}

#[test]
fn two_cpus_that_spin_for_ever_end_the_run() {
    for schedule in [Schedule::Timed, Schedule::Seeded(5)] {
        let line = line!() + 2;
        let (_, result) =
            two(Options::new(schedule), |m| m.spin_until(&mut || false), |m| m.spin_until(&mut || false));
        let error = result.expect_err("no CPU gets on");
        let RunError::Spinning { waits: Waits(waits), .. } = &error else { panic!("{error}") };
        assert!(waits[0].at.line() == line && waits[1].at.line() == line, "{error}");
        assert!(waits[0].at.column() < waits[1].at.column(), "each has its place");
        assert_eq!(waits.iter().map(|w| &w.context[..]).collect::<Vec<_>>(), ["boot", "second"]);
        let said = error.to_string();
        assert!(said.contains("cpu1, context second, spins at machines/model/tests/it/waits.rs:"), "{said}");
        assert!(said.contains(&schedule.to_string()), "{said}");
    }
}

/// A clock ticks on and on, and its handler changes nothing: on a CPU that spins, and on one that is halted.
#[test]
fn a_clock_keeps_no_run_alive() {
    for halts in [false, true] {
        let m =
            Model::flat(&config("xeon-up"), Options::default().spin_limit(5_000)).expect("a valid machine");
        let result = m.run(Box::new(move |m| {
            let clock = m.clone();
            let again = move || clock.set_timer(Some(Cycles(clock.now().0 + 100_000)));
            again();
            m.set_interrupt_handler(Box::new(move |_| again()));
            if halts {
                m.idle_until(&mut || false)
            } else {
                m.spin_until(&mut || false)
            }
            None
        }));
        let error = result.expect_err("nothing happens");
        assert!(matches!(error, RunError::Spinning { tests: 5_000, alone: false, .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("what is waited for was false all 5000 times that it was tested"), "{said}");
    }
}

/// Waits that end, each by much more tests than the limit: another CPU works, or a device takes its time.
#[test]
fn who_waits_for_a_cpu_that_works_may_wait() {
    for schedule in [Schedule::Timed, Schedule::Seeded(5)] {
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        let (m, result) = two(
            Options::new(schedule).spin_limit(10_000),
            move |m| m.spin_until(&mut || seen.get()),
            move |m| {
                (0..50_000).for_each(|_| m.execute(Instructions(10)));
                done.set(true);
            },
        );
        assert_eq!(result, Ok(()), "{schedule}");
        assert!(m.snapshot().clocks[0] > 100_000);
    }
    let (ticks, seen) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let m = Model::flat(&config("xeon-up"), Options::default().spin_limit(1_000)).expect("a valid machine");
    let (count, last) = (ticks.clone(), seen.clone());
    let result = m.run(Box::new(move |m| {
        let (clock, ticks) = (m.clone(), count.clone());
        m.set_interrupt_handler(Box::new(move |_| {
            ticks.set(ticks.get() + 1);
            clock.set_timer(Some(Cycles(clock.now().0 + 10_000_000)));
        }));
        m.set_timer(Some(Cycles(1)));
        m.idle_until(&mut || count.get() == 500);
        m.spin_until(&mut || count.get() == 1_000);
        last.set(m.now().0);
        m.set_timer(None);
        None
    }));
    assert_eq!((result, ticks.get()), (Ok(()), 1_000));
    assert!(seen.get() > 9_000_000_000, "minutes are no error");
}

/// Two CPUs have waited long for an interrupt of a third. Its handler takes its time in small steps, with nothing else
/// pending.
#[test]
fn who_waited_for_an_interrupt_may_wait_for_its_handler() {
    for steps in [1, 100, 10_000] {
        let options = Options::default().spin_limit(500_000);
        let m = Model::flat(&pageferry_model::testing::small("mini-soft:4", 8), options)
            .expect("a valid machine");
        let result = m.run(Box::new(move |m| {
            let done = Rc::new(Cell::new(false));
            let (h, set) = (m.clone(), done.clone());
            m.set_interrupt_handler(Box::new(move |interrupt| {
                if interrupt == Interrupt::Timer {
                    (0..steps).for_each(|_| h.execute(Instructions(4)));
                    set.set(true);
                }
            }));
            for cpu in 1..3 {
                let (m2, done) = (m.clone(), done.clone());
                let entry = move || {
                    if cpu == 1 {
                        m2.spin_until(&mut || done.get());
                    } else {
                        m2.set_timer(Some(Cycles(m2.now().0 + 100_000)));
                        m2.idle_until(&mut || done.get());
                    }
                    None
                };
                m.start_cpu(CpuId(cpu), m.context_new("other", Box::new(entry)));
            }
            m.spin_until(&mut || done.get());
            None
        }));
        assert_eq!(result, Ok(()), "{steps} steps");
    }
}

#[test]
fn a_run_that_takes_too_long_is_ended_if_that_is_asked_for() {
    let limit = Cycles(1_000_000);
    for schedule in [Schedule::Timed, Schedule::Seeded(5)] {
        let work = |m: &Model| loop {
            m.execute(Instructions(100));
        };
        let options = Options::new(schedule).cycle_limit(limit);
        let (m, result) = two(options, work, work);
        let error = result.expect_err("it would go on for ever");
        assert!(matches!(&error, RunError::OutOfTime { left, .. } if left == "boot, second"), "{error}");
        assert!(m.snapshot().clocks.iter().all(|&clock| clock > limit.0), "{error}");
        let alone = Model::flat(&config("xeon-up"), options).expect("a valid machine");
        let result = alone.run(Box::new(move |m| {
            work(m);
            None
        }));
        assert!(matches!(result, Err(RunError::OutOfTime { .. })), "{result:?}");
    }
}

#[test]
fn all_time_ends_before_it_cannot_be_written_down() {
    let alone = Model::flat(&config("xeon-up"), Options::default()).expect("a valid machine");
    let clock = alone.clone();
    let result = alone.run(Box::new(move |m| {
        m.set_interrupt_handler(Box::new(move |_| clock.set_timer(Some(Cycles(clock.now().0 + (1 << 50))))));
        m.set_timer(Some(Cycles(1)));
        m.idle_until(&mut || false);
        None
    }));
    let Err(RunError::OutOfTime { limit, .. }) = &result else { panic!("{result:?}") };
    assert_eq!(limit.0 / 2400 / 1_000_000 / 3600 / 24, 53, "days");
}
