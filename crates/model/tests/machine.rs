//! The machine by itself: contexts, time, interrupts, locks, translation, and what the oracle sees.

use pageferry_hal::machine::PteWidth;
use pageferry_hal::x86::{Format, PTE_A, PTE_D, PTE_G, PTE_P, PTE_PS, PTE_U, PTE_W};
use pageferry_hal::*;
use pageferry_model::{MachineConfig, Model, Options, RunError, Schedule};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

fn config(name: &str) -> MachineConfig {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/");
    let read = |n: &str| std::fs::read_to_string(format!("{dir}{n}.toml")).ok();
    MachineConfig::parse(name, &read(name).expect("a machine file"), &read).expect("a valid machine")
}

fn machine(name: &str, schedule: Schedule) -> Model {
    Model::new(&config(name), Options { schedule }).expect("a valid machine")
}

/// Page tables by hand, on i386: root at 0x1000, one leaf table at 0x2000 for the 4 MB at 0xc0000000.
fn map_by_hand(m: &Model) {
    m.pte_fill(
        Format::I386.slot(Pa(0x1000), Va(0xc000_0000), 1),
        PteWidth::Four,
        0x2000 | PTE_P | PTE_W | PTE_U,
    );
    m.load_root(Pa(0x1000));
}

fn leaf(va: Va) -> Pa {
    Format::I386.slot(Pa(0x2000), va, 0)
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
        m.pte_fill(leaf(va), PteWidth::Four, 0x5000 | PTE_P);
        let mut buf = [1; 4];
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        assert_eq!(buf, [0; 4]);
        assert_eq!(m.pte_load(leaf(va), PteWidth::Four) & (PTE_A | PTE_D), PTE_A);
        let refused = m.store(Mode::Kernel, va, &[1]).unwrap_err();
        assert_eq!((refused.done_bytes, refused.trap.kind), (0, TrapKind::Protection));
        assert_eq!(m.load(Mode::User, va, &mut buf).unwrap_err().trap.kind, TrapKind::Protection);
        let w = m.open_window();
        m.pte_change(leaf(va), PteWidth::Four, 0x5000 | PTE_P | PTE_W | PTE_U, &w);
        m.close_window(w);
        m.store(Mode::User, va + 4094, &[7, 8, 9]).expect_err("the next page is not mapped");
        assert_eq!(m.pte_load(leaf(va), PteWidth::Four) & (PTE_A | PTE_D), PTE_A | PTE_D);
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
        m.pte_fill(Format::I386.slot(Pa(0x1000), va, 1), PteWidth::Four, 0x80_0000 | PTE_P | PTE_W | PTE_PS);
        m.load_root(Pa(0x1000));
        m.store(Mode::Kernel, va + 0x12_3456, b"page").unwrap();
        let mut buf = [0; 4];
        assert!(m.peek(va + 0x12_3456, &mut buf));
        assert_eq!(&buf, b"page");
        assert_eq!(&m.frame_bytes(Pfn(0x923))[0x456..0x45a], b"page");
    });
}

#[test]
fn a_stale_translation_is_reported_once_its_window_is_closed() {
    let m = machine("xeon-up", Schedule::Timed);
    run(&m, |m| {
        map_by_hand(m);
        let va = Va(0xc000_3000);
        m.pte_fill(leaf(va), PteWidth::Four, 0x5000 | PTE_P | PTE_W);
        let mut buf = [0; 1];
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        let w = m.open_window();
        m.pte_change(leaf(va), PteWidth::Four, 0x6000 | PTE_P | PTE_W, &w);
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        assert_eq!(m.stale_uses().len(), 0, "the window is open");
        m.close_window(w);
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        assert_eq!(m.stale_uses().len(), 1);
        m.invalidate_page(va);
        m.load(Mode::Kernel, va, &mut buf).unwrap();
        assert_eq!(m.stale_uses().len(), 1);
        let text = m.stale_uses()[0].to_string();
        assert!(text.contains("tests/machine.rs") && text.contains("cpu0"), "{text}");
    });
}

#[test]
fn a_later_window_does_not_excuse_an_earlier_change() {
    let m = machine("xeon-up", Schedule::Timed);
    run(&m, |m| {
        map_by_hand(m);
        let va = Va(0xc000_3000);
        m.pte_fill(leaf(va), PteWidth::Four, 0x5000 | PTE_P | PTE_W);
        m.load(Mode::Kernel, va, &mut [0]).unwrap();
        let change = |to: u64| {
            let w = m.open_window();
            m.pte_change(leaf(va), PteWidth::Four, to | PTE_P | PTE_W, &w);
            w
        };
        m.close_window(change(0x6000));
        let open = change(0x7000);
        m.load(Mode::Kernel, va, &mut [0]).unwrap();
        assert_eq!(m.stale_uses().len(), 1, "it has been stale since the first change");
        m.close_window(open);
    });
}

#[test]
fn filling_a_valid_entry_is_refused() {
    let m = machine("xeon-up", Schedule::Timed);
    let result = m.run(Box::new(|m| {
        map_by_hand(m);
        map_by_hand(m);
        None
    }));
    assert!(matches!(result, Err(RunError::Panicked(text)) if text.contains("a change, not a fill")));
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
            let lock = Rc::new(m.new_lock(LockClass::Pipe, 0));
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
        let (amap, anon) = (m.new_lock(LockClass::Amap, ()), m.new_lock(LockClass::Anon, ()));
        let _anon = anon.lock();
        assert!(amap.try_lock().is_some(), "trying is allowed");
        let _amap = amap.lock();
        None
    }));
    assert!(matches!(result, Err(RunError::Panicked(text)) if text.contains("lock order")));
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
    assert!(matches!(result, Err(RunError::Deadlock(text)) if text.contains("boot")));
    let m = machine("xeon-mp", Schedule::Timed);
    let result = m.run(Box::new(|m| {
        m.spin_until(&mut || false);
        None
    }));
    assert!(matches!(result, Err(RunError::Panicked(text)) if text.contains("waits for ever")));
}

#[test]
fn a_dead_root_says_nothing_of_global_translations() {
    let m = machine("xeon-up", Schedule::Timed);
    run(&m, |m| {
        let kernel = Va(0xc040_0000);
        let superpage = 0x80_0000 | PTE_P | PTE_W | PTE_PS | PTE_G;
        for root in [Pa(0x1000), Pa(0x2000)] {
            m.pte_fill(Format::I386.slot(root, kernel, 1), PteWidth::Four, superpage);
        }
        m.load_root(Pa(0x1000));
        m.store(Mode::Kernel, kernel, &[1]).unwrap();
        m.load_root(Pa(0x2000));
        // The first root is freed, and its frame becomes a page table whose entries come and go.
        m.pte_clear_frame(Pa(0x1000));
        let reused = Format::I386.slot(Pa(0x1000), kernel, 1);
        m.pte_fill(reused, PteWidth::Four, 0x5000 | PTE_P);
        let window = m.open_window();
        m.pte_change(reused, PteWidth::Four, 0, &window);
        m.close_window(window);
        m.store(Mode::Kernel, kernel, &[2]).unwrap();
    });
    assert_eq!(m.stale_uses(), []);
}
