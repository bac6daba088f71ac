//! What fills a TLB besides hardware that walks page tables: the kernel's refill handler, a hash table, reserved
//! entries, blocks; and what the oracle sees of each.

use crate::common::*;
use pageferry_hal::isa::hash::{self, HPTE_C, HPTE_R};
use pageferry_hal::*;
use pageferry_model::{Model, Options, RunError, Staleness};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const USER: Va = Va(0x40_0000);
const ROOT: Pa = Pa(0);

fn on(name: &str, boot: impl FnOnce(&Model) + 'static) -> (Model, Result<(), RunError>) {
    let m = Model::new(&config(name), Options::default()).expect("a valid machine");
    let result = m.run(Box::new(move |m| {
        boot(m);
        None
    }));
    (m, result)
}

/// As [`run`], on a machine that goes on after the use of a stale translation.
fn run_stale(name: &str, boot: impl FnOnce(&Model) + 'static) -> Model {
    let options = Options::default().tolerate_stale();
    let m = Model::new(&config(name), options).expect("a valid machine");
    let result = m.run(Box::new(move |m| {
        boot(m);
        None
    }));
    result.unwrap_or_else(|e| panic!("{name}: {e}"));
    m.check().expect("the laws hold");
    m
}

fn run(name: &str, boot: impl FnOnce(&Model) + 'static) -> Model {
    let (m, result) = on(name, boot);
    result.unwrap_or_else(|e| panic!("{name}: {e}"));
    m.check().expect("the laws hold");
    m
}

fn enter(m: &Model, space: u32, asid: u32) {
    m.activate(Context { space: SpaceId(space), root: ROOT, asid: Asid(asid), keep: false });
}

/// The truth of a kernel that loads the TLB: mappings by address space and page.
#[derive(Clone, Default)]
struct Soft {
    table: Rc<RefCell<BTreeMap<(u32, u64), Tte>>>,
    running: Rc<Cell<(u32, u32)>>,
    misses: Rc<Cell<u32>>,
}

impl Soft {
    fn boot(m: &Model) -> Soft {
        let soft = Soft::default();
        let (kernel, machine) = (soft.clone(), m.clone());
        m.set_refill(Box::new(move |miss| kernel.refill(&machine, miss)));
        soft
    }

    fn refill(&self, m: &Model, miss: Miss) -> Result<(), TrapKind> {
        self.misses.set(self.misses.get() + 1);
        let (space, asid) = self.running.get();
        let mut table = self.table.borrow_mut();
        let tte = table.get_mut(&(space, miss.va.vpn())).ok_or(TrapKind::NotPresent)?;
        if miss.access == Access::Write {
            if !tte.attr.contains(Attr::WRITE) {
                return Err(TrapKind::Protection);
            }
            let old = *tte;
            tte.attr |= Attr::MODIFIED;
            m.mapping_changed(SpaceId(space), miss.va.page(), Some(old), Some(*tte), None);
        }
        if miss.kind != MissKind::Absent {
            m.tlb_flush(Flush::Page(Asid(asid), miss.va));
        }
        m.tlb_load(Slot::Replace, Asid(asid), miss.va, *tte);
        Ok(())
    }

    fn run_in(&self, m: &Model, space: u32, asid: u32) {
        self.running.set((space, asid));
        enter(m, space, asid);
    }

    fn map(&self, m: &Model, space: u32, va: Va, frame: u32, attr: Attr) {
        let tte = Tte::page(Pfn(frame), attr | Attr::USER);
        self.table.borrow_mut().insert((space, va.vpn()), tte);
        m.mapping_changed(SpaceId(space), va, None, Some(tte), None);
    }

    fn unmap(&self, m: &Model, space: u32, va: Va) {
        let old = self.table.borrow_mut().remove(&(space, va.vpn()));
        let window = m.open_flush_window();
        m.mapping_changed(SpaceId(space), va, old, None, Some(&window));
        m.close_flush_window(window);
    }
}

fn load(m: &Model, va: Va) -> Result<u8, TrapKind> {
    let mut byte = [0];
    m.load(Mode::User, va, &mut byte).map_err(|e| e.trap.kind)?;
    Ok(byte[0])
}

#[test]
fn the_refill_handler_fills_the_tlb_and_says_why_not() {
    for name in ["mini-soft", "mini-blocks"] {
        let m = run(name, |m| {
            let soft = Soft::boot(m);
            soft.run_in(m, 1, 1);
            soft.map(m, 1, USER, 100, RO);
            soft.map(m, 1, USER + PAGE_SIZE, 101, RW);
            m.poke_frame(Pfn(100), 7, &[42]);
            assert_eq!(load(m, USER + 7), Ok(42));
            assert_eq!((load(m, USER + 7), soft.misses.get()), (Ok(42), 1), "it is in the TLB");
            let stored = |va, byte: u8| m.store(Mode::User, va, &[byte]).map_err(|e| e.trap.kind);
            assert_eq!(stored(USER, 1), Err(TrapKind::Protection));
            assert_eq!(load(m, USER + PAGE_SIZE), Ok(0));
            let before = soft.misses.get();
            assert_eq!(stored(USER + PAGE_SIZE, 9), Ok(()));
            assert_eq!(soft.misses.get(), before + 1, "the first store is noted");
            assert_eq!((stored(USER + PAGE_SIZE, 8), soft.misses.get()), (Ok(()), before + 1));
            assert_eq!(load(m, USER + 9 * PAGE_SIZE), Err(TrapKind::NotPresent));
            // A copy that may miss on both sides.
            let kernel = Block { va: m.board().layout.kernel_base, pa: Pa(0), shift: 20, attr: Attr::WRITE };
            m.board().blocks.into_iter().for_each(|_| m.block_set(BlockRegister::Data(0), Some(kernel)));
            m.copy_in(m.board().layout.kernel_base + 0x5000, USER + PAGE_SIZE, PAGE_SIZE)
                .expect("both are mapped");
            assert_eq!(m.frame_bytes(Pfn(5))[0], 8);
        });
        assert_eq!(m.stale_uses(), []);
        assert!(m.snapshot().cause(Cause::Refill) > 0);
    }
}

#[test]
fn entries_are_kept_apart_by_their_tags_and_a_tag_given_away_is_found() {
    let m = run_stale("mini-soft", |m| {
        let soft = Soft::boot(m);
        for space in [1, 2] {
            soft.map(m, space, USER, 100 + space, RO);
            m.poke_frame(Pfn(100 + space), 0, &[space as u8]);
        }
        for _ in 0..2 {
            for space in [1, 2] {
                soft.run_in(m, space, space);
                assert_eq!(load(m, USER), Ok(space as u8));
            }
        }
        assert_eq!((soft.misses.get(), m.stale_uses().len()), (2, 0), "a switch drops nothing");
        // The tag of the first space is given to a third, and nothing is flushed.
        soft.map(m, 3, USER, 103, RO);
        soft.run_in(m, 3, 1);
        assert_eq!(load(m, USER), Ok(1), "the first one's byte");
        m.tlb_flush(Flush::Context(Asid(1)));
        assert_eq!(load(m, USER), Ok(0));
    });
    let found = m.stale_uses();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].why, Staleness::OtherSpace(SpaceId(1)));
    assert!(found[0].to_string().contains("another address space"), "{}", found[0]);
}

#[test]
fn an_unmapped_page_that_stays_in_the_tlb_is_found() {
    let m = run_stale("mini-soft", |m| {
        let soft = Soft::boot(m);
        soft.run_in(m, 1, 1);
        soft.map(m, 1, USER, 100, RO);
        load(m, USER).unwrap();
        soft.unmap(m, 1, USER);
        assert_eq!(load(m, USER), Ok(0));
        m.tlb_flush(Flush::Page(Asid(1), USER));
        assert_eq!(load(m, USER), Err(TrapKind::NotPresent));
    });
    assert!(matches!(m.stale_uses()[..], [ref one] if matches!(one.why, Staleness::Changed { .. })));
}

#[test]
fn reserved_entries_outlive_flushes_of_all_and_no_other() {
    run("mini-soft", |m| {
        let soft = Soft::boot(m);
        soft.run_in(m, 1, 1);
        m.tlb_reserve(2);
        soft.map(m, 1, USER, 100, RO);
        m.tlb_load(Slot::Reserved(1), Asid(1), USER, Tte::page(Pfn(100), Attr::USER));
        for page in 1..200 {
            soft.map(m, 1, USER + page * PAGE_SIZE, 100, RO);
            load(m, USER + page * PAGE_SIZE).unwrap();
        }
        m.tlb_flush(Flush::All);
        assert_eq!(m.tlb_entries(CpuId(0)), 1);
        let before = soft.misses.get();
        assert_eq!((load(m, USER), soft.misses.get()), (Ok(0), before), "reserved");
        m.tlb_flush(Flush::Page(Asid(1), USER));
        assert_eq!(m.tlb_entries(CpuId(0)), 0);
    });
}

#[test]
fn what_no_hardware_would_do_is_refused() {
    let panics = |name: &str, text: &'static str, boot: fn(&Model)| {
        let (_, result) = on(name, boot);
        assert!(matches!(&result, Err(RunError::Panicked(t)) if t.contains(text)), "{text}: {result:?}");
    };
    panics("mini-soft", "a multiple hit", |m| {
        let soft = Soft::boot(m);
        soft.run_in(m, 1, 1);
        (0..2).for_each(|_| m.tlb_load(Slot::Replace, Asid(1), USER, Tte::page(Pfn(100), Attr::USER)));
    });
    // Of pages of two sizes, and both callers are named.
    panics("sh7751r", "tests/it/mmu.rs", |m| {
        let soft = Soft::boot(m);
        soft.run_in(m, 1, 1);
        m.tlb_reserve(2);
        m.tlb_load(Slot::Chosen(9), Asid(1), USER, Tte::page(Pfn(256), Attr::USER));
        let large = Tte { frame: Pfn(256), shift: 20, attr: Attr::USER };
        m.tlb_load(Slot::Reserved(1), Asid(1), Va(USER.0 & !0xf_ffff), large);
    });
    panics("sh7751r", "is not free to be chosen", |m| {
        enter(m, 1, 1);
        m.tlb_reserve(2);
        m.tlb_load(Slot::Chosen(1), Asid(1), USER, Tte::page(Pfn(100), Attr::USER));
    });
    panics("mini-soft", "none would be left", |m| m.tlb_reserve(64));
    panics("mini-soft", "is not reserved", |m| {
        enter(m, 1, 1);
        m.tlb_load(Slot::Reserved(0), Asid(1), USER, Tte::page(Pfn(100), Attr::USER));
    });
    panics("mini-soft", "this machine has 256 tags", |m| enter(m, 1, 256));
    panics("mini-soft", "is tagged", |m| {
        enter(m, 1, 1);
        m.tlb_load(Slot::Replace, Asid(2), USER, Tte::page(Pfn(100), Attr::USER));
    });
    panics("mini-soft", "the refill handler itself missed", |m| {
        let machine = m.clone();
        m.set_refill(Box::new(move |miss| {
            machine.load(miss.mode, miss.va + PAGE_SIZE, &mut [0]).map_err(|e| e.trap.kind)
        }));
        enter(m, 1, 1);
        let _ = load(m, USER);
    });
    panics("mini-soft", "did not make an access possible", |m| {
        m.set_refill(Box::new(|_| Ok(())));
        enter(m, 1, 1);
        let _ = load(m, USER);
    });
    panics("xeon-up", "does not load the TLB", |m| {
        ByHand::new().activate(m);
        m.tlb_load(Slot::Replace, Asid(0), BASE, Tte::page(Pfn(1), Attr::empty()));
    });
    panics("xeon-up", "no block registers", |m| m.block_set(BlockRegister::Data(0), None));
    panics("mini-blocks", "overlaps", |m| {
        m.block_set(
            BlockRegister::Data(0),
            Some(Block { va: Va(0xc000_0000), pa: Pa(0), shift: 24, attr: Attr::WRITE }),
        );
        m.block_set(
            BlockRegister::Data(1),
            Some(Block { va: Va(0xc080_0000), pa: Pa(0), shift: 17, attr: Attr::WRITE }),
        );
    });
    panics("mini-blocks", "no register holds", |m| {
        m.block_set(
            BlockRegister::Data(0),
            Some(Block { va: Va(0xc001_0000), pa: Pa(0), shift: 17, attr: Attr::WRITE }),
        );
    });
    panics("mini-blocks", "block register 4 of 4", |m| m.block_set(BlockRegister::Data(4), None));
}

#[test]
fn blocks_come_before_pages_and_take_no_entry() {
    let m = run("mini-blocks", |m| {
        enter(m, 0, 0);
        let at = Va(0xc000_0000);
        m.block_set(
            BlockRegister::Data(0),
            Some(Block { va: at, pa: Pa(0x10_0000), shift: 17, attr: Attr::WRITE }),
        );
        m.store(Mode::Kernel, at + 0x1_2345, b"block").unwrap();
        assert_eq!(&m.frame_bytes(Pfn(0x112))[0x345..0x34a], b"block");
        assert_eq!(load(m, at), Err(TrapKind::Protection), "the kernel's alone");
        assert_eq!(m.tlb_entries(CpuId(0)), 0);
        m.block_set(
            BlockRegister::Data(0),
            Some(Block { va: at, pa: Pa(0x10_0000), shift: 17, attr: Attr::USER }),
        );
        assert_eq!(load(m, at + 0x1_2345), Ok(b'b'));
        assert_eq!(m.store(Mode::Kernel, at, &[1]).unwrap_err().trap.kind, TrapKind::Protection);
    });
    let h = m.snapshot().hardware;
    assert_eq!((h.tlb_lookups, h.tlb_misses, h.walks), (0, 0, 0), "no look-up, no miss");
}

#[test]
fn hardware_finds_entries_in_both_groups_and_the_oracle_those_that_were_forgotten() {
    let m = run_stale("mini-hash", |m| {
        let table = HashTable { at: Pa(0x10_0000), groups: 1024, scatter: hash::SCATTER };
        m.set_hash_table(table);
        m.set_refill(Box::new(|_| Err(TrapKind::NotPresent)));
        enter(m, 1, 5);
        let write = |va: Va, frame: u32, secondary: bool, slot: usize, pp: u64| {
            let at = hash::group(table, Asid(5), va, secondary) + slot * hash::ENTRY_BYTES;
            let entry = hash::tag(table, Asid(5), va, secondary) | Pfn(frame).pa().0 | HPTE_R | pp;
            m.pt_store(at, Width::Eight, entry);
            at
        };
        let (a, b) = (USER, USER + PAGE_SIZE);
        let of = |frame, attr| Tte::page(Pfn(frame), attr | Attr::USER);
        let at = write(a, 100, false, 7, 2 | HPTE_C);
        m.mapping_changed(SpaceId(1), a, None, Some(of(100, RW | Attr::MODIFIED)), None);
        write(b, 101, true, 3, 3);
        m.mapping_changed(SpaceId(1), b, None, Some(of(101, RO)), None);
        m.store(Mode::User, a, &[1]).unwrap();
        assert_eq!((load(m, a), load(m, b)), (Ok(1), Ok(0)));
        assert!(m.store(Mode::User, b, &[1]).is_err());
        assert_eq!((load(m, a), m.stale_uses().len()), (Ok(1), 0));
        // The mapping goes, and its TLB entry, but not the one of the hash table.
        let window = m.open_flush_window();
        m.mapping_changed(SpaceId(1), a, Some(of(100, RW | Attr::MODIFIED)), None, Some(&window));
        m.tlb_flush(Flush::Page(Asid(5), a));
        assert_eq!(load(m, a), Ok(1), "the window is open");
        m.tlb_flush(Flush::Page(Asid(5), a));
        m.close_flush_window(window);
        assert_eq!((load(m, a), m.stale_uses().len()), (Ok(1), 1));
        m.pt_swap(at, Width::Eight, 0);
        m.tlb_flush(Flush::Page(Asid(5), a));
        assert_eq!(load(m, a), Err(TrapKind::NotPresent));
    });
    assert!(matches!(m.stale_uses()[0].why, Staleness::Undeclared(None)));
    assert!(m.snapshot().hardware.walks > 3);
}

#[test]
fn handlers_and_walks_of_the_powerpcs_take_what_their_paper_measured() {
    let cycles = |name: &str, fill: bool| {
        let m = run(name, move |m| {
            if m.board().mmu == Mmu::Hash {
                m.set_hash_table(HashTable { at: Pa(0x10_0000), groups: 1024, scatter: hash::SCATTER });
            }
            let handler = m.clone();
            m.set_refill(Box::new(move |miss| {
                if !fill {
                    return Err(TrapKind::NotPresent);
                }
                handler.mapping_changed(
                    SpaceId(1),
                    miss.va,
                    None,
                    Some(Tte::page(Pfn(9), RO | Attr::USER)),
                    None,
                );
                handler.tlb_load(Slot::Replace, Asid(5), miss.va, Tte::page(Pfn(9), RO | Attr::USER));
                Ok(())
            }));
            enter(m, 1, 5);
            assert_eq!(load(m, USER).is_ok(), fill);
        });
        let s = m.snapshot();
        (s.cause(Cause::Refill), s.cause(Cause::TlbMiss))
    };
    // Into a handler and out of it, and tlbld.
    let (refill, walk) = cycles("ppc603", true);
    assert_eq!((refill, walk), (32 + 3, 0));
    // Sixteen entries that no cache has: "up to 120", to which nothing was fitted; and the way to the handler of a hash
    // miss.
    let (refill, walk) = cycles("ppc604", false);
    assert!(walk.abs_diff(120) <= 12, "{walk}");
    assert!(refill >= 91, "{refill}");
}

#[test]
fn a_reference_that_misses_amid_others_is_one_miss() {
    const PAGES: u64 = 100;
    let m = run("mini-soft", |m| {
        let soft = Soft::boot(m);
        for page in 0..PAGES {
            soft.map(m, 1, USER + page as usize * PAGE_SIZE, 100 + page as u32, RW);
        }
        soft.run_in(m, 1, 5);
        let mut references: Vec<Reference> = (0..PAGES)
            .map(|page| Reference {
                instructions: 3,
                access: Access::Read,
                at: USER + page as usize * PAGE_SIZE,
                word: 0,
            })
            .collect();
        m.refer(&mut references).expect("all is mapped");
        assert_eq!(u64::from(soft.misses.get()), PAGES);
        // One that nothing maps: those before it are made.
        let at = USER + PAGES as usize * PAGE_SIZE;
        let last = references[PAGES as usize - 1];
        let mut references = vec![last, Reference { at, ..last }];
        assert_eq!(m.refer(&mut references).expect_err("nothing is mapped").done_bytes, 1);
    });
    assert_eq!(m.snapshot().hardware.tlb_misses, PAGES + 1);
}
