//! The machine by itself: contexts, interrupts, timers, and what it refuses.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::account::{TICK_PERIODS, TICK_TIMER_HZ};
use pageferry_model::{Model, Schedule};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// CPU 0 asks every other CPU to count, and waits: the shape of a shootdown.
fn ring(name: &str, schedule: Schedule) -> (Model, Vec<u64>) {
    let m = machine(name, schedule);
    let took = Rc::new(RefCell::new(Vec::new()));
    let log = took.clone();
    m.run(Box::new(move |m| {
        let done = Rc::new(Cell::new(0));
        let stop = Rc::new(Cell::new(false));
        let d = done.clone();
        let h = m.clone();
        m.set_interrupt_handler(Box::new(move |_| {
            h.execute(Instructions(30));
            d.set(d.get() + 1);
        }));
        let others = m.cpus().difference(CpuSet::only(m.cpu()));
        for cpu in others.iter() {
            let (m2, stop) = (m.clone(), stop.clone());
            let idle = m.context_new(
                "idle",
                Box::new(move || {
                    m2.idle_until(&mut || stop.get());
                    None
                }),
            );
            m.start_cpu(cpu, idle);
        }
        for round in 1..=20 {
            let before = m.now();
            stop.set(round == 20);
            m.send_ipi(others, Interrupt::Shootdown);
            m.spin_until(&mut || done.get() == round * others.len());
            log.borrow_mut().push((m.now() - before).0);
        }
        None
    }))
    .expect("the run ends well");
    m.check().unwrap();
    let took = took.borrow().clone();
    (m, took)
}

#[test]
fn interrupts_cost_sender_and_target() {
    let (m, took) = ring("xeon-mp-htt", Schedule::Timed);
    let s = m.snapshot();
    s.check().unwrap();
    assert_eq!(s.hardware.interrupts, 60);
    assert!(s.cause(Cause::ShootdownReceived) > 0 && s.cause(Cause::Idle) > 0);
    assert_eq!(took[5], took[15], "the same exchange takes the same time");
    assert!(took[5] > 1000, "{took:?}");
}

#[test]
fn equal_runs_are_equal() {
    for schedule in [Schedule::Timed, Schedule::Seeded(7)] {
        assert_eq!(ring("xeon-mp", schedule).0.snapshot(), ring("xeon-mp", schedule).0.snapshot());
    }
    assert_ne!(
        ring("xeon-mp-htt", Schedule::Seeded(1)).1,
        ring("xeon-mp-htt", Schedule::Seeded(2)).1,
        "another seed, another schedule"
    );
}

#[test]
fn a_cpu_does_not_halt_with_interrupts_off() {
    const RUN_QUEUE: LockClass = LockClass::new("run queue", 1).masking_interrupts();
    // A timer that runs out meanwhile does not wake it: the lock masks that.
    let halts = |m: &Model| {
        m.set_timer(Some(m.now() + Cycles(100)));
        let tested = Cell::new(false);
        m.idle_until(&mut || tested.replace(true));
    };
    let said = refused(move |m| {
        m.set_interrupt_handler(Box::new(|_| {}));
        let queue = m.new_lock(RUN_QUEUE, ());
        let _held = queue.lock();
        halts(m);
    });
    assert!(said.contains("context boot halts while it holds [run queue#0 (taken at "), "{said}");
    let said = refused(move |m| {
        let handler = m.clone();
        m.set_interrupt_handler(Box::new(move |_| halts(&handler)));
        m.set_timer(Some(m.now()));
        m.execute(Instructions(1));
        m.execute(Instructions(1));
    });
    assert!(said.contains("an interrupt handler halts the CPU"), "{said}");
    // Interrupts are on while an ordinary lock is held.
    run(&machine("xeon-mp", Schedule::Timed), move |m| {
        m.set_interrupt_handler(Box::new(|_| {}));
        let lock = m.new_lock(LockClass::new("inode", 1), ());
        let _held = lock.lock();
        halts(m);
    });
}

#[test]
fn what_is_refused_is_refused_in_words() {
    let expect = |said: String, words: &[&str]| {
        words.iter().for_each(|word| assert!(said.contains(word), "{word} in: {said}"));
    };
    let said = refused(|m| m.start_cpu(CpuId(2), m.context_new("other", Box::new(|| None))));
    expect(said, &["cpu2 is to be started, but this machine has 2 CPUs"]);
    let said = refused(|m| m.start_cpu(CpuId(1), m.context_current()));
    expect(said, &["context boot is to run on cpu1, but runs on cpu0"]);
    let said = refused(|m| m.load(Mode::Kernel, BASE, &mut [0]).unwrap());
    expect(said, &["cpu0 translates an address, but has activated no context", "`activate`"]);
    let said = refused(|m| m.pt_clear(Pfn(m.board().frames as u32).pa()));
    expect(said, &["is to be cleared, but there are"]);
    let said = refused(|m| {
        m.set_timer(Some(Cycles(1)));
        (0..2).for_each(|_| m.execute(Instructions(100)));
    });
    expect(said, &["cpu0 takes the interrupt Timer, but no handler is set", "`set_interrupt_handler`"]);
    let tte = Tte::page(Pfn(5), RW);
    let said = refused(move |m| {
        m.mapping_changed(SpaceId::KERNEL, BASE, None, Some(tte), None);
        m.mapping_changed(SpaceId::KERNEL, BASE, Some(tte), None, None);
    });
    expect(said, &[&format!("{BASE:?}"), "without a window", "`open_flush_window`"]);
    let lock = |rank| {
        refused(move |m| {
            let (one, other) =
                (m.new_lock(LockClass::new("one", 3), ()), m.new_lock(LockClass::new("other", rank), ()));
            let (_one, _other) = (one.lock(), other.lock());
        })
    };
    expect(lock(2), &["takes other#0", "holds one#0", "rank 2 after rank 3"]);
    expect(lock(3), &["takes other#0", "holds one#0", "both have rank 3"]);
}

#[test]
fn an_interrupt_handler_does_not_switch() {
    let said = refused(|m| {
        let (handler, me) = (m.clone(), m.context_current());
        let other = m.context_new("other", Box::new(move || Some(me)));
        m.set_interrupt_handler(Box::new(move |_| handler.context_switch(other)));
        m.set_timer(Some(Cycles(1)));
        (0..2).for_each(|_| m.execute(Instructions(100)));
    });
    assert!(said.contains("an interrupt handler switches from context boot"), "{said}");
}

#[test]
fn contexts_switch_on_one_cpu() {
    let m = machine("xeon-up", Schedule::Timed);
    let log = Rc::new(RefCell::new(String::new()));
    let out = log.clone();
    m.run(Box::new(move |m| {
        let me = m.context_current();
        let (m2, log2) = (m.clone(), log.clone());
        let other = m.context_new(
            "other",
            Box::new(move || {
                for _ in 0..3 {
                    log2.borrow_mut().push('b');
                    m2.context_switch(me);
                }
                Some(me)
            }),
        );
        for _ in 0..4 {
            log.borrow_mut().push('a');
            m.context_switch(other);
        }
        None
    }))
    .unwrap();
    assert_eq!(*out.borrow(), "abababa");
    assert_eq!(m.snapshot().hardware.switches, 7);
}

#[test]
fn a_timer_interrupts_when_its_time_has_come() {
    for schedule in [Schedule::Timed, Schedule::Seeded(1)] {
        let m = machine("xeon-mp", schedule);
        let ticks = Rc::new(RefCell::new(Vec::new()));
        let seen = ticks.clone();
        run(&m, move |m| {
            let (clock, noted) = (m.clone(), ticks.clone());
            m.set_interrupt_handler(Box::new(move |i| {
                assert_eq!(i, Interrupt::Timer);
                noted.borrow_mut().push(clock.now().0);
            }));
            m.set_timer(Some(Cycles(1_000)));
            m.set_timer(Some(Cycles(50_000)));
            m.execute(Instructions(10_000));
            m.execute(Instructions(1));
            assert_eq!(ticks.borrow().len(), 0, "set anew");
            m.idle_until(&mut || !ticks.borrow().is_empty());
            m.set_timer(Some(Cycles(1)));
            m.execute(Instructions(1));
            m.set_timer(Some(Cycles(1_000_000)));
            m.set_timer(None);
            m.execute(Instructions(1_000_000));
            m.execute(Instructions(1));
        });
        let ticks = seen.borrow();
        assert!(ticks.len() == 2 && (50_000..60_000).contains(&ticks[0]), "{ticks:?}");
    }
}

/// What `sar` is made of: the share of a CPU's time where what it does is out of step with the ticks of its clock, and
/// anything at all where it is in step.
#[test]
fn ticks_that_find_a_cpu_idle_are_the_share_of_its_time_or_chance() {
    const TICK: u64 = 2_400 * 1_000_000 * TICK_PERIODS / TICK_TIMER_HZ;
    // Every `period` cycles, a quarter tick behind a tick at first, the CPU works for a quarter of a tick. What it has
    // worked and what its ticks have found of that, in percent.
    let percent = |period: u64| {
        let m = machine("xeon-up", Schedule::Timed);
        let told = Rc::new(Cell::new((0.0, 0.0)));
        let tell = told.clone();
        run(&m, move |m| {
            let interrupts = Rc::new(Cell::new(0));
            let counted = interrupts.clone();
            m.set_interrupt_handler(Box::new(move |_| counted.set(counted.get() + 1)));
            let idle_until = |at: u64| {
                let before = interrupts.get();
                m.set_timer(Some(Cycles(at)));
                m.idle_until(&mut || interrupts.get() != before);
            };
            let begin = (m.now().0 / TICK + 1) * TICK + TICK / 4;
            idle_until(begin);
            let before = m.snapshot();
            for time in 0..400 {
                let at = begin + time * period;
                while m.now().0 < at + TICK / 4 {
                    m.execute(Instructions(1_000));
                }
                idle_until(at + period);
            }
            let measured = m.snapshot().since(&before);
            let (clock, idle) = (measured.clocks[0], measured.cause(Cause::Idle));
            let (ticks, idle_ticks) = (measured.hardware.ticks, measured.hardware.idle_ticks);
            assert!(ticks.abs_diff(clock / TICK) <= 1, "{ticks} ticks in {clock} cycles");
            let percent = |idle: u64, of: u64| 100.0 * (of - idle) as f64 / of as f64;
            tell.set((percent(idle, clock), percent(idle_ticks, ticks)));
        });
        told.get()
    };
    let (worked, found) = percent(TICK * 71 / 113);
    assert!(
        (39.0..41.0).contains(&worked) && (worked - found).abs() < 2.0,
        "out of step: {worked} %, found {found} %"
    );
    let (worked, found) = percent(TICK);
    assert!((24.5..26.0).contains(&worked) && found == 0.0, "in step: {worked} %, found {found} %");
}
