//! Instructions: what they are fetched through, what that costs, and when a fetch is refused or stale.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::config::{InstructionCacheConfig, InstructionTlbConfig};
use pageferry_model::{Hardware, MachineConfig, Model, Options, Sourced};
use std::num::NonZeroU32;

const PLACED: CodePath = CodePath { instructions: Instructions(100), text: NonZeroU32::new(64), locked: 0 };
/// 400 bytes from the beginning of a line of 64.
const PLACED_LINES: u64 = 7;

fn number(value: u64) -> Sourced<u64> {
    Sourced::assumed(value, "for the test")
}

fn with_tlb(mut config: MachineConfig, entries: u64) -> MachineConfig {
    let (entries, ways) = (number(entries), number(0));
    config.tlb.instruction = Some(InstructionTlbConfig { entries, ways, data_hit_cycles: None });
    config
}

fn with_cache(mut config: MachineConfig) -> MachineConfig {
    let (size_bytes, ways, line_bytes) = (number(16384), number(4), number(64));
    config.icache = Some(InstructionCacheConfig { size_bytes, ways, line_bytes, virtual_index: None });
    config
}

fn both() -> MachineConfig {
    with_cache(with_tlb(config("xeon-up"), 4))
}

fn run(config: &MachineConfig, body: impl FnOnce(&Model) + 'static) -> Model {
    run_as(Options::default(), config, body)
}

fn run_as(options: Options, config: &MachineConfig, body: impl FnOnce(&Model) + 'static) -> Model {
    let m = Model::new(config, options).expect("a valid machine");
    m.run(Box::new(move |m| {
        let tables = ByHand::new();
        tables.grow(m, BASE);
        tables.activate(m);
        ByHand::map(m, BASE, 5, RW);
        m.set_text(StructVa(BASE));
        body(m);
        None
    }))
    .expect("the run ends well");
    m.check().expect("the laws hold");
    m
}

/// What `body` takes: cycles, and what the hardware counts meanwhile.
fn taken(m: &Model, body: impl FnOnce()) -> (u64, Hardware) {
    let before = m.snapshot();
    body();
    let after = m.snapshot().since(&before);
    (after.clocks[0], after.hardware)
}

fn fetch(m: &Model, at: Va) -> Result<(), CopyFault> {
    m.fetch(Mode::Kernel, at, Instructions(1))
}

#[test]
fn a_path_fetches_its_lines_once() {
    run(&both(), |m| {
        let memory = both().memory_latency_cycles();
        let bare = taken(m, || m.execute(PLACED.instructions)).0;
        let (cold, counts) = taken(m, || m.execute(PLACED));
        assert_eq!((counts.icache_lookups, counts.icache_misses), (PLACED_LINES, PLACED_LINES));
        assert_eq!((counts.fetch_lookups, counts.fetch_misses), (1, 1));
        assert!(cold > bare + PLACED_LINES * memory, "and a walk: {cold} cycles, {bare} without fetching");
        let (warm, counts) = taken(m, || m.execute(PLACED));
        assert_eq!((counts.icache_hits, counts.icache_misses), (PLACED_LINES, 0));
        assert_eq!((counts.fetch_hits, counts.fetch_misses, counts.tlb_lookups), (1, 0, 0));
        assert!(warm.abs_diff(bare) <= 1, "all but the fractions of cycles: {warm}, {bare}");
    });
}

#[test]
fn what_instructions_miss_comes_from_the_second_level() {
    run(&both(), |m| {
        let caches = both().cache;
        m.execute(PLACED);
        let line = StructVa(BASE + 64);
        let (load, _) = taken(m, || m.touch(line, 4, Access::Read));
        let (load_again, _) = taken(m, || m.touch(line, 4, Access::Read));
        let walk = load - caches[1].latency_cycles.value;
        assert!(walk < both().memory_latency_cycles(), "a load finds it there: {load} cycles");
        assert_eq!(load_again, caches[0].latency_cycles.value, "it was not in the first level before");
        let unread = Va(BASE.0 + 2048);
        m.touch(StructVa(unread), 4, Access::Read);
        let bare = taken(m, || m.execute(Instructions(1))).0;
        let (fetched, counts) = taken(m, || fetch(m, unread).expect("mapped"));
        assert_eq!(counts.icache_misses, 1);
        assert!(fetched.abs_diff(bare + caches[1].latency_cycles.value) <= 1, "the reverse: {fetched}");
        m.flush_line(Pfn(5).pa() + 2048);
        assert_eq!(taken(m, || fetch(m, unread).expect("mapped")).1.icache_misses, 1);
    });
}

#[test]
fn a_machine_with_neither_takes_the_time_of_the_instructions() {
    let body = |path: CodePath| {
        move |m: &Model| {
            (0..10).for_each(|_| m.execute(path));
            m.fetch(Mode::User, Va(0x1000), Instructions(1000)).expect("nothing is looked at");
        }
    };
    let plain = config("xeon-up");
    assert!(!plain.board().fetches && both().board().fetches);
    let snapshot = run(&plain, body(PLACED)).snapshot();
    assert_eq!(snapshot, run(&plain, body(PLACED.instructions.into())).snapshot());
    let h = snapshot.hardware;
    assert_eq!((h.fetch_lookups, h.icache_lookups), (0, 0));
}

#[test]
fn what_is_described_alone_works_alone() {
    let only_tlb = run(&with_tlb(config("xeon-up"), 4), |m| m.execute(PLACED)).snapshot().hardware;
    assert_eq!((only_tlb.fetch_misses, only_tlb.icache_lookups), (1, 0));
    let m = run(&with_cache(config("xeon-up")), |m| {
        m.execute(PLACED);
        assert_eq!(fetch(m, BASE + PAGE_SIZE).unwrap_err().trap.kind, TrapKind::NotPresent);
        assert_eq!(m.fetch(Mode::User, BASE, Instructions(1)).unwrap_err().trap.kind, TrapKind::Protection);
    });
    let only_cache = m.snapshot().hardware;
    assert_eq!((only_cache.fetch_lookups, only_cache.icache_misses), (0, PLACED_LINES));
}

#[test]
fn a_fetch_that_is_not_permitted_is_refused() {
    run(&both(), |m| {
        let trap = |fault: CopyFault| (fault.done_bytes, fault.trap.va, fault.trap.access, fault.trap.kind);
        let next = BASE + PAGE_SIZE;
        let user = |at, n| m.fetch(Mode::User, at, Instructions(n)).map_err(trap);
        assert_eq!(user(BASE, 1), Err((0, BASE, Access::Fetch, TrapKind::Protection)), "the kernel's");
        fetch(m, BASE).expect("mapped");
        assert_eq!(user(BASE, 1), Err((0, BASE, Access::Fetch, TrapKind::Protection)), "in the TLB, too");
        ByHand::map(m, next, 6, RO | Attr::USER);
        user(next, 1024).expect("all of the page");
        let behind = next + PAGE_SIZE;
        assert_eq!(user(next, 1025), Err((4096, behind, Access::Fetch, TrapKind::NotPresent)));
        let (_, counts) = taken(m, || assert_eq!(user(behind, 1).unwrap_err().0, 0));
        assert_eq!(counts.icache_lookups, 0);
        // One that begins two bytes before the end begins anew.
        let crossing = Va(behind.0 - 10);
        assert_eq!(user(crossing, 3), Err((8, behind, Access::Fetch, TrapKind::NotPresent)));
    });
}

#[test]
fn a_stale_instruction_translation_is_reported_once_its_window_is_closed() {
    let m = run_as(Options::default().tolerate_stale(), &both(), |m| {
        fetch(m, BASE).expect("mapped");
        let close = ByHand::change(m, BASE, Some(Tte::page(Pfn(6), RW)));
        fetch(m, BASE).expect("still translated");
        assert_eq!(m.stale_uses(), [], "the window is open");
        m.load(Mode::Kernel, BASE, &mut [0]).expect("a translation of its own");
        close();
        m.load(Mode::Kernel, BASE, &mut [0]).expect("made after the change");
        assert_eq!(m.stale_uses(), []);
        fetch(m, BASE).expect("still translated");
        assert_eq!(m.stale_uses().len(), 1);
        m.tlb_flush(Flush::Page(Asid::KERNEL, BASE));
        fetch(m, BASE).expect("translated anew");
        assert_eq!(m.stale_uses().len(), 1);
    });
    assert_eq!(m.stale_uses()[0].access, Access::Fetch);
}

#[test]
fn invalidations_drop_entries_for_instructions() {
    run(&both(), |m| {
        let misses = |m: &Model| taken(m, || fetch(m, BASE).expect("mapped")).1.fetch_misses;
        assert_eq!((misses(m), misses(m)), (1, 0));
        ByHand::new().activate(m);
        assert_eq!((misses(m), misses(m)), (1, 0), "another context");
        for flush in [Flush::Page(Asid::KERNEL, BASE + 100), Flush::Context(Asid::KERNEL), Flush::All] {
            m.tlb_flush(flush);
            assert_eq!((misses(m), misses(m)), (1, 0), "{flush:?}");
        }
        m.tlb_flush(Flush::Page(Asid::KERNEL, BASE + PAGE_SIZE));
        assert_eq!(misses(m), 0, "another page");
        for page in 1..=4 {
            ByHand::map(m, BASE + page * PAGE_SIZE, 5 + page as u32, RO);
            fetch(m, BASE + page * PAGE_SIZE).expect("mapped");
        }
        assert_eq!(misses(m), 1, "four entries for five pages");
    });
}

#[test]
fn packages_fetch_through_caches_of_their_own() {
    let mut config = with_cache(config("opteron-mp"));
    config.tlb.instruction = None;
    config.validate().expect("an exclusive second level is none of this cache's business");
    let mut caches = pageferry_model::cache::Caches::new(&config);
    for i in 0..3000_u64 {
        let pa = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 400 * 64;
        match i % 3 {
            0 => drop(caches.fetch_lines((i % 2) as usize, pa, pa, 1)),
            1 => drop(caches.access(
                (i / 2 % 2) as usize,
                pa,
                i % 5 == 0,
                pageferry_model::cache::Kind::Latency,
            )),
            _ if i % 7 == 0 => caches.flush_line(pa),
            _ => drop(caches.fetch_lines((i / 3 % 2) as usize, pa, pa, 1)),
        }
        if i % 100 == 0 {
            caches.check().expect("the laws hold");
        }
    }
    caches.check().expect("the laws hold");
    assert!(caches.stats().instruction.iter().all(|c| c.hits > 0 && c.misses > 0 && c.removals > 0));
}

#[test]
fn a_line_is_in_a_cache_indexed_by_virtual_addresses_once_for_each_colour() {
    let mut config = both();
    let cache = config.icache.as_mut().expect("it has one");
    // Ways of two pages.
    (cache.ways.value, cache.virtual_index) = (2, Some(Sourced::assumed(true, "for the test")));
    run(&config, |m| {
        let misses = |at: Va| taken(m, || fetch(m, at).expect("mapped")).1.icache_misses;
        let (even, odd, even_again) = (Va(BASE.0 + 0x4000), Va(BASE.0 + 0x5000), Va(BASE.0 + 0x6000));
        [even, odd, even_again].iter().for_each(|at| ByHand::map(m, *at, 9, RW));
        assert_eq!([even, odd, even_again, odd].map(misses), [1, 1, 0, 0]);
        m.flush_line(Pfn(9).pa());
        assert_eq!([even, odd].map(misses), [1, 1], "a flush finds it by whatever it was fetched");
    });
}
