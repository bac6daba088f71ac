//! How addresses are translated, by entries of every size and by tags, and what the oracle says of stale ones.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{Model, Options, RunError, Schedule, Staleness};
use std::cell::Cell;
use std::rc::Rc;

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

/// Permissions are gained, and the TLB is not told: one kind of processor faults once, the other never.
#[test]
fn a_refusal_is_looked_at_again_before_or_behind_a_fault() {
    for (walks_again, faults) in [(false, 1), (true, 0)] {
        let options = Options::new(Schedule::Timed).tolerate_stale();
        let options = if walks_again { options.walks_again() } else { options };
        let m = Model::new(&config("xeon-up"), options).expect("valid");
        run(&m, move |m| {
            map_by_hand(m);
            let va = Va(0xc000_0000);
            ByHand::map(m, va, 5, RO);
            m.load(Mode::Kernel, va, &mut [0]).unwrap();
            assert_eq!(m.store(Mode::Kernel, va, &[1]).unwrap_err().trap.kind, TrapKind::Protection);
            m.load(Mode::Kernel, va, &mut [0]).unwrap();
            let told = ByHand::change(m, va, Some(Tte::page(Pfn(5), RW)));
            let refused = (0..3).filter(|_| m.store(Mode::Kernel, va, &[1]).is_err()).count();
            assert_eq!(refused, faults, "walks again: {walks_again}");
            told();
        });
    }
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
        assert!(text.contains("tests/it/translation.rs") && text.contains("cpu0"), "{text}");
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
