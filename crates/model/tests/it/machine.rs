//! The machine by itself: contexts, time, interrupts, locks, translation, and what the oracle sees.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{LockCircle, Model, Options, RunError, Schedule, Staleness, Waits};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

fn machine(name: &str, schedule: Schedule) -> Model {
    Model::new(&config(name), Options::new(schedule)).expect("a valid machine")
}

/// One that goes on after the use of a stale translation.
fn tolerant(name: &str) -> Model {
    Model::new(&config(name), Options::default().tolerate_stale()).expect("a valid machine")
}

fn map_by_hand(m: &Model) {
    let tables = ByHand::new();
    tables.grow(m, BASE);
    tables.activate(m);
}

fn run(m: &Model, boot: impl FnOnce(&Model) + 'static) {
    m.run(Box::new(move |m| {
        boot(m);
        None
    }))
    .expect("the run ends well");
    m.check().expect("the laws hold");
    m.snapshot().check().expect("the accounts balance");
}

#[test]
fn walks_set_bits_and_protection_is_kept() {
    let m = machine("xeon-up", Schedule::Timed);
    run(&m, |m| {
        map_by_hand(m);
        let va = Va(0xc000_0000);
        ByHand::map(m, va, 5, RO);
        let mut buf = [1; 4];
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        assert_eq!(buf, [0; 4]);
        let noted = || ByHand::read(m, va).expect("mapped").attr & (Attr::REFERENCED | Attr::MODIFIED);
        assert_eq!(noted(), Attr::REFERENCED);
        let refused = m.store(Mode::Kernel, va, &[1]).unwrap_err();
        assert_eq!((refused.done_bytes, refused.trap.kind), (0, TrapKind::Protection));
        assert_eq!(m.load(Mode::User, va, &mut buf).unwrap_err().trap.kind, TrapKind::Protection);
        ByHand::change(m, va, Some(Tte::page(Pfn(5), RW | Attr::USER)))();
        m.store(Mode::User, va + 4094, &[7, 8, 9]).expect_err("the next page is not mapped");
        assert_eq!(noted(), Attr::REFERENCED | Attr::MODIFIED);
        m.load(Mode::User, va + 4094, &mut buf[..2]).unwrap();
        assert_eq!(buf[..2], [7, 8]);
    });
    assert_eq!(m.stale_uses(), []);
    let s = m.snapshot();
    assert!(s.cause(Cause::TlbMiss) > 0 && s.hardware.tlb_misses > 0);
}

#[test]
fn superpages_translate() {
    let m = machine("xeon-up", Schedule::Timed);
    run(&m, |m| {
        let va = Va(0xc040_0000);
        let tables = ByHand::new();
        tables.map_superpage(m, va, 0x800, RW);
        tables.activate(m);
        m.store(Mode::Kernel, va + 0x12_3456, b"page").unwrap();
        let mut buf = [0; 4];
        assert!(m.peek(va + 0x12_3456, &mut buf));
        assert_eq!(&buf, b"page");
        assert_eq!(&m.frame_bytes(Pfn(0x923))[0x456..0x45a], b"page");
    });
}

/// A root of four levels, and a table that its entry for the kernel's addresses leads to.
const LONG_ROOT: Pa = Pa(0x1000);
const LONG_UPPER: Pa = Pa(0x2000);

/// Maps 1 GB at `va` by one entry, two levels above the leaves.
#[track_caller]
fn map_huge(m: &Model, va: Va, frame: u32) {
    let format = isa::x86::AMD64;
    let upper = format.encode(Tte::page(LONG_UPPER.pfn(), RW));
    m.pt_store(format.slot(LONG_ROOT, va, 3), Width::Eight, upper);
    let new = Tte { frame: Pfn(frame), shift: 30, attr: RW | Attr::GLOBAL };
    m.pt_store(format.slot(LONG_UPPER, va, 2), Width::Eight, format.encode(new));
    m.mapping_changed(SpaceId::KERNEL, va, None, Some(new), None);
}

#[test]
fn huge_pages_translate_take_one_entry_and_are_flushed_by_any_of_their_addresses() {
    let format = isa::x86::AMD64;
    for apart in [0, 2] {
        let mut config = config("today");
        config.tlb.data.gigabyte_entries.as_mut().expect("it has such pages").value = apart;
        let m = Model::flat(&config, Options::new(Schedule::Timed).tolerate_stale()).expect("valid");
        run(&m, move |m| {
            let va = Va(0xffff_ff00_0000_0000);
            map_huge(m, va, 0);
            let context = Context { space: SpaceId(1), root: LONG_ROOT, asid: Asid::KERNEL, keep: false };
            m.activate(context);
            let counted = |work: &dyn Fn()| {
                let before = m.snapshot();
                work();
                m.snapshot().since(&before).hardware.tlb_misses
            };
            let at = |mb: usize| va + (mb << 20) + 0x456;
            let touch =
                || (0..1024).step_by(100).for_each(|mb| m.store(Mode::Kernel, at(mb), b"page").unwrap());
            assert_eq!(counted(&touch), 1, "all of it is one entry");
            assert_eq!(&m.frame_bytes(Pfn(300 << 8))[0x456..0x45a], b"page");
            let mut buf = [0; 4];
            assert!(m.peek(at(700), &mut buf));
            assert_eq!(&buf, b"page");
            m.tlb_flush(Flush::Page(Asid::KERNEL, at(900)));
            assert_eq!(counted(&touch), 1, "dropped");
            m.tlb_flush(Flush::Context(Asid::KERNEL));
            assert_eq!(counted(&touch), 0, "global");
            m.tlb_flush(Flush::All);
            assert_eq!(counted(&touch), 1);

            // Split into superpages, of which the first leads elsewhere: what is left of the old entry is found.
            let window = m.open_flush_window();
            let table = Pa(0x3000);
            let part = Tte { frame: Pfn(512), shift: 21, attr: RW | Attr::GLOBAL };
            m.pt_store(format.slot(table, va, 1), Width::Eight, format.encode(part));
            let upper = format.encode(Tte::page(table.pfn(), RW));
            let old = Tte { frame: Pfn(0), shift: 30, attr: RW | Attr::GLOBAL };
            m.pt_store(format.slot(LONG_UPPER, va, 2), Width::Eight, upper);
            m.mapping_changed(SpaceId::KERNEL, va, Some(old), Some(part), Some(&window));
            m.load(Mode::Kernel, at(0), &mut buf).unwrap();
            assert_eq!(m.stale_uses(), [], "the window is open");
            m.close_flush_window(window);
            m.load(Mode::Kernel, at(5), &mut buf).unwrap();
            assert_eq!(m.stale_uses().len(), 1, "5 MB behind it, by the same entry");
            m.tlb_flush(Flush::Page(Asid::KERNEL, at(1)));
            m.store(Mode::Kernel, at(0), b"part").unwrap();
            assert_eq!(&m.frame_bytes(Pfn(512))[0x456..0x45a], b"part");
            assert_eq!(m.stale_uses().len(), 1);
            let kind = m.load(Mode::Kernel, at(5), &mut buf).unwrap_err().trap.kind;
            assert_eq!(kind, TrapKind::NotPresent);
        });
    }
}

#[test]
fn a_machine_without_huge_pages_takes_their_bit_for_a_fault() {
    let mut config = config("today");
    config.tlb.data.gigabyte_entries = None;
    let m = Model::flat(&config, Options::new(Schedule::Timed)).expect("valid");
    run(&m, |m| {
        let (format, va) = (isa::x86::AMD64, Va(0xffff_ff00_0000_0000));
        let upper = format.encode(Tte::page(LONG_UPPER.pfn(), RW));
        m.pt_store(format.slot(LONG_ROOT, va, 3), Width::Eight, upper);
        let huge = Tte { frame: Pfn(0), shift: 30, attr: RW };
        m.pt_store(format.slot(LONG_UPPER, va, 2), Width::Eight, format.encode(huge));
        m.activate(Context { space: SpaceId(1), root: LONG_ROOT, asid: Asid::KERNEL, keep: false });
        let trap = m.load(Mode::Kernel, va, &mut [0]).unwrap_err().trap;
        assert_eq!(trap.kind, TrapKind::Protection);
    });
    let m = Model::flat(&config, Options::new(Schedule::Timed)).expect("valid");
    let refused = m.run(Box::new(|m| {
        map_huge(m, Va(0xffff_ff00_0000_0000), 0);
        None
    }));
    let error = refused.expect_err("there are none").to_string();
    assert!(error.contains("no pages of 1073741824 bytes"), "{error}");
}

#[test]
fn a_second_level_may_take_superpages() {
    let format = isa::x86::AMD64;
    for takes in [false, true] {
        let mut config = config("today");
        let second = config.tlb.second.as_mut().expect("it has two levels");
        second.superpages.as_mut().expect("it says so").value = takes;
        let m = Model::flat(&config, Options::new(Schedule::Timed)).expect("valid");
        run(&m, move |m| {
            let va = Va(0xffff_ff00_0000_0000);
            let (upper, table) = (format.encode(Tte::page(LONG_UPPER.pfn(), RW)), Pa(0x3000));
            m.pt_store(format.slot(LONG_ROOT, va, 3), Width::Eight, upper);
            let lower = format.encode(Tte::page(table.pfn(), RW));
            m.pt_store(format.slot(LONG_UPPER, va, 2), Width::Eight, lower);
            // More than the 72 of the first level.
            let all = (0..100).map(|i| va + (i << 21));
            for (i, at) in all.clone().enumerate() {
                let new = Tte { frame: Pfn((i as u32) << 9), shift: 21, attr: RW | Attr::GLOBAL };
                m.pt_store(format.slot(table, at, 1), Width::Eight, format.encode(new));
                m.mapping_changed(SpaceId::KERNEL, at, None, Some(new), None);
            }
            m.activate(Context { space: SpaceId(1), root: LONG_ROOT, asid: Asid::KERNEL, keep: false });
            let touch = || all.clone().for_each(|at| m.load(Mode::Kernel, at, &mut [0]).unwrap());
            touch();
            let before = m.snapshot();
            touch();
            let h = m.snapshot().since(&before).hardware;
            let expected = if takes { (0, 100) } else { (100, 0) };
            assert_eq!((h.tlb_misses, h.tlb_second_level_hits), expected);
            m.tlb_flush(Flush::Page(Asid::KERNEL, va + 0x1234));
            let before = m.snapshot();
            m.load(Mode::Kernel, va, &mut [0]).unwrap();
            assert_eq!(m.snapshot().since(&before).hardware.tlb_misses, 1, "dropped from both levels");
        });
    }
}

#[test]
fn a_stale_translation_is_reported_once_its_window_is_closed() {
    let m = tolerant("xeon-up");
    run(&m, |m| {
        map_by_hand(m);
        let va = Va(0xc000_3000);
        ByHand::map(m, va, 5, RW);
        let mut buf = [0; 1];
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        let close = ByHand::change(m, va, Some(Tte::page(Pfn(6), RW)));
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        assert_eq!(m.stale_uses().len(), 0, "the window is open");
        close();
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        assert_eq!(m.stale_uses().len(), 1);
        m.tlb_flush(Flush::Page(Asid::KERNEL, va));
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        assert_eq!(m.stale_uses().len(), 1);
        let text = m.stale_uses()[0].to_string();
        assert!(text.contains("tests/it/machine.rs") && text.contains("cpu0"), "{text}");
    });
}

#[test]
fn a_run_ends_at_the_first_use_of_a_stale_translation() {
    let (after, used) = (Rc::new(Cell::new(false)), line!() + 8);
    let reached = after.clone();
    let m = machine("xeon-up", Schedule::Seeded(3));
    let result = m.run(Box::new(move |m| {
        map_by_hand(m);
        ByHand::map(m, BASE, 5, RW);
        m.load(Mode::Kernel, BASE, &mut [0]).unwrap();
        ByHand::change(m, BASE, None)();
        m.load(Mode::Kernel, BASE, &mut [0]).unwrap();
        reached.set(true);
        None
    }));
    assert!(!after.get(), "the run ends at the use");
    let words = m.stale_uses()[0].to_string();
    let error = result.expect_err("a stale translation was used");
    assert!(matches!(&error, RunError::Stale { used_by, .. } if used_by.line() == used), "{error}");
    let said = error.to_string();
    assert!(said.starts_with(&words) && said.contains("boot") && said.contains("seed 3"), "{said}");
    assert_eq!(m.check(), Err(words), "nor are the laws kept");
}

#[test]
fn a_later_window_does_not_excuse_an_earlier_change() {
    let m = tolerant("xeon-up");
    run(&m, |m| {
        map_by_hand(m);
        let va = Va(0xc000_3000);
        ByHand::map(m, va, 5, RW);
        m.load(Mode::Kernel, va, &mut [0]).unwrap();
        ByHand::change(m, va, Some(Tte::page(Pfn(6), RW)))();
        let close = ByHand::change(m, va, Some(Tte::page(Pfn(7), RW)));
        m.load(Mode::Kernel, va, &mut [0]).unwrap();
        assert_eq!(m.stale_uses().len(), 1, "it has been stale since the first change");
        close();
    });
}

#[test]
fn a_mapping_that_is_there_is_not_made_again() {
    let m = machine("xeon-up", Schedule::Timed);
    let result = m.run(Box::new(|m| {
        map_by_hand(m);
        (0..2).for_each(|_| ByHand::map(m, BASE, 5, RW));
        None
    }));
    assert!(matches!(result, Err(RunError::Panicked(text)) if text.contains("a change, not a new mapping")));
}

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
    }
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
    let expected = "lock order: context second takes inode#0 at crates/model/tests/it/machine.rs:";
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

/// What a boot context that does `work` is told, on a machine of two CPUs.
fn refused(work: impl FnOnce(&Model) + 'static) -> String {
    let m = machine("xeon-mp", Schedule::Timed);
    let result = m.run(Box::new(move |m| {
        work(m);
        None
    }));
    result.expect_err("it is refused").to_string()
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
fn what_nobody_declared_is_not_said_to_be_mapped() {
    let said = refused(|m| {
        map_by_hand(m);
        m.pt_store(ByHand::leaf(BASE), Width::Four, isa::x86::I386.encode(Tte::page(Pfn(5), RW)));
        m.load(Mode::Kernel, BASE, &mut [0]).unwrap();
    });
    assert!(said.contains("used a stale translation: no mapping is declared there"), "{said}");
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
        said.starts_with("no CPU gets on: cpu0, context boot, spins at crates/model/tests/it/machine.rs:"),
        "{said}"
    );
    assert!(
        said.contains("; no other CPU runs and no interrupt is on its way, so nothing can end the wait ("),
        "{said}"
    );
}

/// CPU 0 runs `first`, CPU 1 `second`.
fn two(
    options: Options,
    first: impl FnOnce(&Model) + 'static,
    second: impl FnOnce(&Model) + 'static,
) -> (Model, Result<(), RunError>) {
    let m = Model::flat(&config("xeon-mp"), options).expect("a valid machine");
    let result = m.run(Box::new(move |m| {
        let other = m.clone();
        let entry = move || {
            second(&other);
            None
        };
        m.start_cpu(CpuId(1), m.context_new("second", Box::new(entry)));
        first(m);
        None
    }));
    (m, result)
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
        assert!(said.contains("cpu1, context second, spins at crates/model/tests/it/machine.rs:"), "{said}");
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

/// Two CPUs have waited long for an interrupt of a third. Its handler takes its time in small steps, with nothing else pending.
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

#[test]
fn a_dead_root_says_nothing_of_global_translations() {
    let m = machine("xeon-up", Schedule::Timed);
    run(&m, |m| {
        let kernel = Va(0xc040_0000);
        let roots = [Pa(0x1000), Pa(0x9000)].map(|root| ByHand { root });
        roots[0].map_superpage(m, kernel, 0x800, RW | Attr::GLOBAL);
        let word = m.pt_load(isa::x86::I386.slot(roots[0].root, kernel, 1), Width::Four);
        m.pt_store(isa::x86::I386.slot(roots[1].root, kernel, 1), Width::Four, word);
        roots[0].activate(m);
        m.store(Mode::Kernel, kernel, &[1]).unwrap();
        roots[1].activate(m);
        // The first root is freed, and its frame becomes a page table whose entries come and go.
        m.pt_clear(roots[0].root);
        m.store(Mode::Kernel, kernel, &[2]).unwrap();
    });
    assert_eq!(m.stale_uses(), []);
}

#[test]
fn what_a_table_says_and_nothing_declares_is_found() {
    let m = tolerant("xeon-up");
    run(&m, |m| {
        map_by_hand(m);
        m.pt_store(ByHand::leaf(BASE), Width::Four, isa::x86::I386.encode(Tte::page(Pfn(5), RW)));
        m.load(Mode::Kernel, BASE, &mut [0]).unwrap();
    });
    let found = m.stale_uses();
    assert_eq!(found.len(), 1);
    assert!(found[0].to_string().contains("no mapping is declared there"), "{}", found[0]);
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

/// A CPU that waits for a lock takes an interrupt, whose handler takes another lock, for which the first lock's holder waits. The
/// handler gives it back: no deadlock.
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

#[test]
fn walked_entries_are_tagged_and_stay_when_the_root_is_loaded_so() {
    let config = config("today");
    let other = config.mmu.invalidate_other_cycles.as_ref().expect("it has tags").value;
    let (page, root) = (config.cpu.invalidate_page_cycles.value, config.cpu.load_root_cycles.value);
    let m = Model::flat(&config, Options::new(Schedule::Timed).tolerate_stale()).expect("valid");
    run(&m, move |m| {
        let (format, va) = (isa::x86::AMD64, Va(0x40_0000));
        // One table for all spaces.
        let new = Tte::page(Pfn(99), RW | Attr::USER);
        for (level, (table, next)) in
            [(LONG_ROOT, 0x11), (Pa(0x1_1000), 0x12), (Pa(0x1_2000), 0x13), (Pa(0x1_3000), 99)]
                .into_iter()
                .enumerate()
        {
            let entry = format.encode(Tte { frame: Pfn(next), ..new });
            m.pt_store(format.slot(table, va, 3 - level as u32), Width::Eight, entry);
        }
        (1..=3).for_each(|space| m.mapping_changed(SpaceId(space), va, None, Some(new), None));
        let enter = |space, asid, keep| {
            m.activate(Context { space: SpaceId(space), root: LONG_ROOT, asid: Asid(asid), keep });
        };
        let misses = || {
            let before = m.snapshot();
            m.load(Mode::User, va, &mut [0]).expect("mapped");
            m.snapshot().since(&before).hardware.tlb_misses
        };
        let takes = |work: &dyn Fn()| {
            let before = m.now();
            work();
            (m.now() - before).0
        };
        enter(1, 1, false);
        assert_eq!(misses(), 1);
        enter(2, 2, false);
        assert_eq!(misses(), 1, "by another tag");
        enter(1, 1, true);
        assert_eq!(misses(), 0, "kept");
        enter(2, 2, false);
        assert_eq!(misses(), 1, "not kept");
        assert_eq!(takes(&|| m.tlb_flush(Flush::Page(Asid(2), va))), page);
        assert_eq!(misses(), 1);
        assert_eq!(takes(&|| m.tlb_flush(Flush::Page(Asid(1), va))), other);
        assert_eq!(misses(), 0, "the other's went");
        enter(1, 1, true);
        assert_eq!(misses(), 1);
        assert_eq!(takes(&|| m.tlb_flush(Flush::Context(Asid(2)))), other);
        assert_eq!((misses(), takes(&|| m.tlb_flush(Flush::Context(Asid(1))))), (0, root));
        assert_eq!(misses(), 1);
        enter(2, 2, true);
        assert_eq!(misses(), 1);
        assert_eq!(m.stale_uses(), []);
        // The tag of the second is given to a third, with what is there.
        enter(3, 2, true);
        assert_eq!(misses(), 0);
    });
    let found = m.stale_uses();
    assert!(matches!(found[..], [ref one] if one.why == Staleness::OtherSpace(SpaceId(2))), "{found:?}");
}
