//! Locks: that they exclude, their order, and deadlocks among them.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{LockCircle, MachineConfig, Model, Options, RunError, Schedule, Sourced};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[test]
fn locks_exclude_and_wait() {
    for schedule in (0..20).map(Schedule::Seeded).chain([Schedule::Timed]) {
        let m = machine("xeon-mp-htt", schedule);
        let sum = Rc::new(Cell::new(0));
        let result = sum.clone();
        m.run(Box::new(move |m| {
            let lock = Rc::new(m.new_lock(LockClass::PIPE, 0));
            let work = |m: Model, lock: Rc<<Model as Machine>::Lock<i32>>, sum: Rc<Cell<i32>>| {
                move || {
                    for _ in 0..50 {
                        let mut guard = lock.lock();
                        let old = *guard;
                        m.execute(Instructions(100));
                        *guard = old + 1;
                    }
                    sum.set(*lock.lock());
                    None
                }
            };
            for cpu in 1..4 {
                let c = m.context_new("worker", Box::new(work(m.clone(), lock.clone(), sum.clone())));
                m.start_cpu(CpuId(cpu), c);
            }
            work(m.clone(), lock, sum)()
        }))
        .expect("the run ends well");
        assert_eq!(result.get(), 200);
        let s = m.snapshot();
        s.check().unwrap();
        assert!(s.cause(Cause::Lock) > 0);
        let of = |class| s.locks.iter().find(|used| used.class == class).expect("one was made");
        let used = of(LockClass::PIPE);
        assert_eq!(used.acquisitions, 4 * 51);
        assert!((1..=used.acquisitions).contains(&used.contended), "{used:?}");
        // Nothing interrupts here: waiting is what locks took beside their instructions.
        assert!((1..s.cause(Cause::Lock)).contains(&used.wait_cycles), "{used:?}");
    }
}

/// Cycles that one CPU of `machine` spends on `work`, by cause.
fn spent_alone(machine: &str, cause: Cause, work: impl Fn(&Model) + 'static) -> u64 {
    let m = machine_named(machine);
    m.run(Box::new(move |m| {
        let _c = m.scope(cause);
        work(m);
        None
    }))
    .expect("the run ends well");
    m.snapshot().check().expect("its laws");
    m.snapshot().cause(cause)
}

fn machine_named(name: &str) -> Model {
    let config = MachineConfig::named(name).expect("it is built in");
    Model::new(&config, Options::new(Schedule::Timed)).expect("valid")
}

#[test]
fn locks_that_are_compiled_out_take_nothing() {
    let take_and_give_back = |m: &Model| drop(m.new_lock(LockClass::PIPE, ()).lock());
    let taken = spent_alone("pentium-pro", Cause::Lock, take_and_give_back);
    // Four instructions to take it and four to give it back, at 1.3 cycles each.
    assert_eq!(taken, 10);
    let omitted = spent_alone("pentium-pro", Cause::Lock, move |m| {
        m.set_locks(LockCosts { on_one_cpu: false, ..LockCosts::default() });
        take_and_give_back(m);
    });
    assert_eq!(omitted, 0);
}

/// Cycles of one lock that is taken and given back, and of a path, on a machine with two packages.
fn spent_by(costs: LockCosts, path: CodePath) -> u64 {
    spent_alone("xeon-mp", Cause::Lock, move |m| {
        m.set_locks(costs);
        drop(m.new_lock(LockClass::PIPE, ()).lock());
        m.execute(path);
    })
}

#[test]
fn locks_cost_what_the_kernel_that_is_modelled_has_in_their_places() {
    let none = CodePath::of(0);
    // Four instructions at 2 cycles, and a locked one, to take it and to give it back.
    assert_eq!(spent_by(LockCosts::default(), none), 2 * (4 * 2 + 132));
    let stores = LockCosts { release_is_locked: false, ..LockCosts::default() };
    assert_eq!(spent_by(stores, none), 2 * 4 * 2 + 132);
    let absent = LockSet::EMPTY.with(LockClass::PIPE);
    assert_eq!(spent_by(LockCosts { absent, ..stores }, none), 0);
    let others = LockSet::EMPTY.with(LockClass::MBUF).with(LockClass::SCHEDULER);
    assert_eq!(spent_by(LockCosts { absent: others, ..stores }, none), 2 * 4 * 2 + 132);
    // What a path counts comes on top of that, and where there is one CPU nothing does.
    let path = CodePath { locked: 3, ..none };
    assert_eq!(spent_by(LockCosts { absent, ..stores }, path), 3 * 132);
    assert_eq!(spent_alone("xeon-up", Cause::Lock, move |m| m.execute(path)), 0);
}

#[test]
fn the_timer_takes_its_time_where_there_is_one() {
    let read = |m: &Model| m.touch_timer(4);
    // A microsecond for each access, at 200 MHz.
    assert_eq!(spent_alone("pentium-pro", Cause::Switch, read), 4 * 200);
    assert_eq!(spent_alone("opteron-mp", Cause::Switch, read), 0);
}

/// Cycles that CPUs spend on a lock which all of them want, where each that waits adds so many when it is handed over.
fn spent_on_a_wanted_lock(cpus: u64, waiter_cycles: Option<u64>) -> u64 {
    let mut config = MachineConfig::named("today-8").expect("it is built in");
    config.cpu.packages.value = cpus;
    config.cpu.lock_waiter_cycles = waiter_cycles.map(|cycles| Sourced::assumed(cycles, "for the test"));
    let m = Model::new(&config, Options::new(Schedule::Timed)).expect("valid");
    m.run(Box::new(move |m| {
        let lock = Rc::new(m.new_lock(LockClass::PIPE, ()));
        let work = |m: Model, lock: Rc<<Model as Machine>::Lock<()>>| {
            move || {
                for _ in 0..20 {
                    let _held = lock.lock();
                    m.execute(Instructions(2000));
                }
                None
            }
        };
        for cpu in 1..cpus as u8 {
            let c = m.context_new("worker", Box::new(work(m.clone(), lock.clone())));
            m.start_cpu(CpuId(cpu), c);
        }
        work(m.clone(), lock)()
    }))
    .expect("the run ends well");
    m.snapshot().cause(Cause::Lock)
}

#[test]
fn who_waits_for_a_lock_makes_handing_it_over_longer_only_where_all_look_at_one_word() {
    let longer = |cpus| {
        let (queue, one_word) = (spent_on_a_wanted_lock(cpus, None), spent_on_a_wanted_lock(cpus, Some(100)));
        one_word.saturating_sub(queue)
    };
    assert_eq!(longer(1), 0, "nobody waits");
    assert_eq!(longer(2), 0, "nobody else does");
    let (four, eight) = (longer(4), longer(8));
    // Each time it is handed over it takes longer by as many as still wait, and those wait for that, too.
    assert!(four > 0 && eight > 4 * four, "{four}, {eight}");
}

#[test]
fn a_lock_that_one_cpu_uses_is_waited_for_by_none() {
    let m = machine("xeon-mp", Schedule::Timed);
    m.run(Box::new(|m| {
        let lock = m.new_lock(LockClass::PIPE, 0);
        for _ in 0..9 {
            *lock.lock() += 1;
        }
        assert!(lock.try_lock().is_some());
        None
    }))
    .expect("the run ends well");
    let used = m.snapshot().locks[0];
    assert_eq!(
        (used.class, used.acquisitions, used.contended, used.wait_cycles),
        (LockClass::PIPE, 10, 0, 0)
    );
    assert_eq!(m.snapshot().since(&m.snapshot()).locks[0].acquisitions, 0);
}

#[test]
fn the_lock_order_is_checked() {
    let m = machine("xeon-up", Schedule::Timed);
    let result = m.run(Box::new(|m| {
        let (amap, anon) = (m.new_lock(LockClass::AMAP, ()), m.new_lock(LockClass::ANON, ()));
        let _anon = anon.lock();
        assert!(amap.try_lock().is_some(), "trying is allowed");
        let _amap = amap.lock();
        None
    }));
    let error = result.expect_err("the order is broken");
    let RunError::LockOrder { takes, holds, .. } = &error else { panic!("{error}") };
    assert_eq!((takes.0.class, holds.0.class), (LockClass::AMAP, LockClass::ANON));
    assert_eq!(takes.1.line() - holds.1.line(), 2, "each is told with its place");
}

/// Two CPUs take two locks of classes of their own, each in another order.
fn abba(classes: [LockClass; 2], schedule: Schedule) -> Result<(), RunError> {
    let locks = Rc::new(RefCell::new(None));
    let made = locks.clone();
    let both = move |m: &Model, first: usize| {
        m.spin_until(&mut || made.borrow().is_some());
        let locks: [Rc<<Model as Machine>::Lock<()>>; 2] = made.borrow().clone().expect("made");
        let _first = locks[first].lock();
        m.execute(Instructions(100));
        let _second = locks[1 - first].lock();
    };
    let other = both.clone();
    let first = move |m: &Model| {
        *locks.borrow_mut() = Some(classes.map(|class| Rc::new(m.new_lock(class, ()))));
        both(m, 0);
    };
    two(Options::new(schedule), first, move |m| other(m, 1)).1
}

#[test]
fn the_order_of_own_classes_is_checked() {
    const INODE: LockClass = LockClass::new("inode", 1);
    const BUFFER: LockClass = LockClass::new("buffer", 2);
    let error = abba([INODE, BUFFER], Schedule::Seeded(4)).expect_err("the order is broken");
    let said = error.to_string();
    let expected = "lock order: context second takes inode#0 at machines/model/tests/it/locks.rs:";
    assert!(said.starts_with(expected) && said.contains("while it holds buffer#0, taken at"), "{said}");
    assert!(said.contains("seed 4"), "{said}");
}

#[test]
fn locks_of_one_class_are_told_apart() {
    const RUNQ: LockClass = LockClass::new("runq", 1);
    let said = abba([RUNQ, RUNQ], Schedule::Seeded(4)).expect_err("two of one class").to_string();
    let order = |takes, holds| {
        said.contains(&format!(" takes runq#{takes} at "))
            && said.contains(&format!(" holds runq#{holds}, taken"))
    };
    assert!(order(0, 1) || order(1, 0), "{said}");
    let any_order = LockClass::unordered("runq");
    let mut outcomes = (0..50).map(|seed| abba([any_order, any_order], Schedule::Seeded(seed)));
    let said = outcomes.find_map(Result::err).expect("one seed comes to it").to_string();
    for number in 0..2 {
        assert!(said.contains(&format!(" holds runq#{number}, taken at")), "{said}");
        assert!(said.contains(&format!(" waits for runq#{number} at")), "{said}");
    }
}

#[test]
fn a_deadlock_of_locks_names_all_four_places() {
    let classes = ["inode", "buffer"].map(LockClass::unordered);
    let outcomes: Vec<_> = (0..50).map(|seed| (seed, abba(classes, Schedule::Seeded(seed)))).collect();
    assert!(outcomes.iter().any(|(_, result)| result.is_ok()), "not every schedule comes to it");
    let (seed, error) =
        outcomes.into_iter().find_map(|(seed, result)| Some((seed, result.err()?))).expect("one does");
    let RunError::LockDeadlock { circle: LockCircle(circle), schedule } = &error else { panic!("{error}") };
    assert_eq!(*schedule, Schedule::Seeded(seed));
    let [one, other] = &circle[..] else { panic!("{error}") };
    assert_ne!(one.context, other.context);
    assert_eq!((one.wants.0, other.wants.0), (other.holds.0, one.holds.0), "{error}");
    for wait in circle {
        assert_eq!(wait.wants.1.line() - wait.holds.1.line(), 2, "{error}");
    }
    // A lock that its own holder waits for is a circle of one.
    let m = machine("xeon-up", Schedule::Timed);
    let result = m.run(Box::new(move |m| {
        let lock = m.new_lock(classes[0], ());
        let _held = lock.lock();
        let _again = lock.lock();
        None
    }));
    assert!(
        matches!(&result, Err(RunError::LockDeadlock { circle, .. }) if circle.0.len() == 1),
        "{result:?}"
    );
}

/// A CPU that waits for a lock takes an interrupt, whose handler takes another lock, for which the first lock's holder
/// waits. The handler gives it back: no deadlock.
#[test]
fn a_lock_that_a_handler_takes_while_its_context_waits_closes_no_circle() {
    const OUTER: LockClass = LockClass::new("outer", 1);
    const INNER: LockClass = LockClass::HASH_TABLE;
    for seed in 0..200 {
        let mut config = config("xeon-mp");
        config.cpu.packages.value = 2;
        let m = Model::new(&config, Options::new(Schedule::Seeded(seed))).expect("a valid machine");
        let ran = m.run(Box::new(|m| {
            let (outer, inner) = (Rc::new(m.new_lock(OUTER, ())), Rc::new(m.new_lock(INNER, ())));
            let (theirs, machine) = (inner.clone(), m.clone());
            m.set_interrupt_handler(Box::new(move |_| {
                let _held = theirs.lock();
                machine.execute(Instructions(200));
            }));
            let (o, i, other) = (outer.clone(), inner.clone(), m.clone());
            let context = m.context_new(
                "other",
                Box::new(move || {
                    for _ in 0..20 {
                        let _outer = o.lock();
                        other.send_ipi(CpuSet::only(CpuId(0)), Interrupt::Reschedule);
                        other.execute(Instructions(300));
                        let _inner = i.lock();
                        other.execute(Instructions(100));
                    }
                    None
                }),
            );
            m.start_cpu(CpuId(1), context);
            for _ in 0..20 {
                drop(outer.lock());
                m.execute(Instructions(50));
            }
            None
        }));
        assert!(ran.is_ok(), "seed {seed}: {ran:?}");
    }
}
