//! Random traffic on 1 to 4 CPUs under seeded schedules: what is read is what the frame holds, no stale translation is
//! used, the invariants hold. And the counter-proof: the printed rule is found out by the machine's oracle.

use crate::common::*;
use pageferry_ephemeral::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use std::cell::Cell;
use std::rc::Rc;

pub const FRAMES: u32 = 6;

/// A generator of its own, so that a seed means the same for ever (splitmix64).
struct Dice(u64);
impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    Private,
    Shared,
    Both,
}

/// A shared mapping that its owner shows to the other CPUs while it holds it.
#[derive(Default)]
struct Board {
    shown: Cell<Option<(Va, u32)>>,
    readers: Cell<usize>,
}

#[derive(Default)]
pub struct Findings {
    pub wrong_reads: Cell<usize>,
    boards: [Board; 4],
}

impl Findings {
    fn look(&self, rig: &Rig, va: Va, n: u32) {
        let mut buf = [0; 4];
        rig.m.load(Mode::Kernel, va, &mut buf).expect("mapped");
        if buf != Rig::tag(n) {
            self.wrong_reads.set(self.wrong_reads.get() + 1);
        }
    }

    /// Reads through a mapping that another CPU shows, if one does.
    fn look_at_others(&self, rig: &Rig, me: usize) {
        for (cpu, board) in self.boards.iter().enumerate() {
            if cpu != me
                && let Some((va, n)) = board.shown.get()
            {
                board.readers.set(board.readers.get() + 1);
                self.look(rig, va, n);
                board.readers.set(board.readers.get() - 1);
            }
        }
    }
}

/// What one CPU does: allocates, looks, holds, frees, each by chance.
pub fn traffic(rig: &Rig, seed: u64, mix: Mix, steps: usize, findings: &Findings) {
    let me = rig.m.cpu().index();
    let mut dice = Dice(seed ^ (me as u64) << 40);
    let mut held: Vec<(Mapping, u32)> = Vec::new();
    for _ in 0..steps {
        let n = dice.roll(u64::from(FRAMES)) as u32;
        let private = match mix {
            Mix::Private => true,
            Mix::Shared => false,
            Mix::Both => dice.roll(2) == 0,
        };
        let mut flags = if private { Flags::PRIVATE } else { Flags::empty() };
        if dice.roll(3) == 0 {
            flags |= Flags::INTERRUPTIBLE;
        }
        // A holder of one must not wait for another: all might.
        if !held.is_empty() || dice.roll(4) == 0 {
            flags |= Flags::NOWAIT;
        }
        if let Ok(mapping) = rig.alloc(n, flags) {
            let touch = dice.roll(3) > 0;
            if touch {
                findings.look(rig, rig.eph.kva(&mapping), n);
            }
            if touch && !private && dice.roll(2) == 0 {
                let board = &findings.boards[me];
                board.shown.set(Some((rig.eph.kva(&mapping), n)));
                findings.look(rig, rig.eph.kva(&mapping), n);
                board.shown.set(None);
                rig.m.spin_until(&mut || board.readers.get() == 0);
            }
            held.push((mapping, n));
        }
        findings.look_at_others(rig, me);
        if held.len() > 1 || dice.roll(2) == 0 {
            held.drain(..).for_each(|(mapping, _)| rig.free(mapping));
        }
        if dice.roll(16) == 0 {
            let cpus = rig.m.board().cpus as u64;
            rig.threads.signals[dice.roll(cpus) as usize].set(true);
        }
    }
    held.drain(..).for_each(|(mapping, _)| rig.free(mapping));
}

/// Runs the traffic on all CPUs of `name`; answers wrong reads and uses of stale translations.
pub fn storm(name: &str, seed: u64, config: EphemeralConfig, mix: Mix, steps: usize) -> (usize, usize) {
    let findings = Rc::new(Findings::default());
    let shared = findings.clone();
    let (m, result) = try_run(name, Schedule::Seeded(seed), config, move |rig| {
        rig.tag_frames(FRAMES);
        let before = rig.m.snapshot();
        let cpus = rig.m.board().cpus as u8;
        for cpu in (0..cpus).rev() {
            let findings = shared.clone();
            rig.start_on(cpu, move |rig| traffic(rig, seed, mix, steps, &findings));
        }
        (1..cpus).for_each(|cpu| rig.join(cpu));
        assert_eq!(rig.eph.held(), 0, "everything was freed");
        assert_users_account(&before, &rig.m.snapshot());
    });
    result.unwrap_or_else(|e| panic!("{name}, seed {seed}, {mix:?}: {e}"));
    m.check().expect("the machine's laws hold");
    m.snapshot().check().expect("the accounts balance");
    let s = m.snapshot();
    let allocated = [
        EphemeralCounter::EphemeralHits,
        EphemeralCounter::EphemeralMisses,
        EphemeralCounter::EphemeralDirect,
    ];
    let allocated: u64 = allocated.into_iter().map(|c| s.counter(c)).sum();
    assert_eq!(allocated, s.counter(EphemeralCounter::EphemeralFrees), "hits and misses, given back");
    (findings.wrong_reads.get(), m.stale_uses().len())
}

fn rule(entries: usize, rule: AccessedRule) -> EphemeralConfig {
    with_scheme(Scheme::Cache { entries, rule })
}

const MACHINES: [&str; 4] = ["xeon-up", "xeon-htt", "xeon-mp", "xeon-mp-htt"];

/// Thousands of schedules; `PAGEFERRY_SEEDS` multiplies them.
#[test]
fn the_safe_rule_never_reads_a_stale_page() {
    let times: u64 = std::env::var("PAGEFERRY_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in 0..2000 * times {
        let name = MACHINES[seed as usize % 4];
        let mix = [Mix::Private, Mix::Both, Mix::Shared][seed as usize % 3];
        let entries = 1 + seed as usize / 12 % 5;
        let found = storm(name, seed, rule(entries, AccessedRule::Safe), mix, 24);
        assert_eq!(found, (0, 0), "{name}, seed {seed}, {mix:?}, {entries} entries");
    }
}

/// How many seeds it takes until the printed rule is caught.
fn seeds_until_caught(name: &str, mix: Mix, max_seeds: u64) -> Option<u64> {
    (0..max_seeds).find(|&seed| storm(name, seed, rule(2, AccessedRule::AsPrinted), mix, 24) != (0, 0))
}

#[test]
fn the_printed_rule_is_caught() {
    for name in ["xeon-htt", "xeon-mp", "xeon-mp-htt"] {
        for mix in [Mix::Private, Mix::Both] {
            let caught = seeds_until_caught(name, mix, 50);
            assert!(caught.is_some(), "{name}, {mix:?}: not caught in 50 seeds");
        }
    }
}

/// Shared mappings alone, or one CPU alone, never run into its gap.
#[test]
fn the_printed_rule_is_sound_where_nothing_is_private() {
    assert_eq!(seeds_until_caught("xeon-mp-htt", Mix::Shared, 60), None);
    assert_eq!(seeds_until_caught("xeon-up", Mix::Both, 60), None);
}

/// A stale read is a wrong read: the oracle does not cry wolf, and misses nothing that shows in the bytes.
#[test]
fn the_oracle_and_the_bytes_agree() {
    let mut wrong = 0;
    for seed in 0..60 {
        let (reads, stale) = storm("xeon-mp", seed, rule(2, AccessedRule::AsPrinted), Mix::Private, 24);
        assert!(reads <= stale, "seed {seed}: {reads} wrong reads, {stale} stale uses");
        wrong += reads;
    }
    assert!(wrong > 0, "the defect shows in the data");
}

#[test]
fn the_other_schemes_under_the_same_traffic() {
    for seed in 0..60 {
        let original = with_scheme(Scheme::Original);
        assert_eq!(storm("xeon-mp-htt", seed, original, Mix::Both, 16), (0, 0), "original, seed {seed}");
        let direct = with_scheme(Scheme::Direct);
        assert_eq!(storm("opteron-mp", seed, direct, Mix::Both, 16), (0, 0), "direct, seed {seed}");
        let cache = rule(3, AccessedRule::Safe);
        assert_eq!(storm("opteron-mp", seed, cache, Mix::Both, 16), (0, 0), "cache on amd64, seed {seed}");
        let shared = EphemeralConfig { honour_private: false, ..rule(3, AccessedRule::Safe) };
        assert_eq!(storm("xeon-mp", seed, shared, Mix::Both, 16), (0, 0), "without private, seed {seed}");
    }
}

/// The planted defect is caught in every scheme that has something to forget.
#[test]
fn a_missing_shootdown_is_caught() {
    if other_kind().is_some() {
        return; // In a small TLB that maps the kernel by pages, too, what is stale rarely lasts until it is used.
    }
    for scheme in [Scheme::Cache { entries: 2, rule: AccessedRule::Safe }, Scheme::Original, Scheme::Vmem] {
        let mut caught = false;
        for seed in 0..50 {
            let findings = Rc::new(Findings::default());
            let (m, result) = try_run("xeon-mp", Schedule::Seeded(seed), with_scheme(scheme), move |rig| {
                let mut rig = rig.clone();
                let eph =
                    Ephemeral::new(with_scheme(scheme), rig.pmaps.clone(), rig.kva.clone(), &mut arena(&rig));
                let mut eph = eph.unwrap_or_else(|e| panic!("{e}"));
                eph.plant(pageferry_ephemeral::EphemeralDefect::FlushedHereOnly);
                rig.eph = Rc::new(eph);
                rig.tag_frames(FRAMES);
                let (other, findings_1) = (rig.clone(), findings.clone());
                rig.start_on(1, move |_| traffic(&other, seed, Mix::Both, 24, &findings_1));
                traffic(&rig, seed, Mix::Both, 24, &findings);
                rig.join(1);
            });
            result.expect("the run ends");
            caught |= !m.stale_uses().is_empty();
        }
        assert!(caught, "{scheme:?}: not caught in 50 seeds");
    }
}

#[test]
fn a_mapping_in_no_list_is_found() {
    for defect in [None, Some(pageferry_ephemeral::EphemeralDefect::ReleasedUnlisted)] {
        let config = rule(4, AccessedRule::Safe);
        let (_, result) = try_run("xeon-mp", Schedule::Timed, config, move |rig| {
            let mut rig = rig.clone();
            let eph = Ephemeral::new(config, rig.pmaps.clone(), rig.kva.clone(), &mut arena(&rig));
            let mut eph = eph.unwrap_or_else(|e| panic!("{e}"));
            defect.into_iter().for_each(|defect| eph.plant(defect));
            rig.eph = Rc::new(eph);
            rig.tag_frames(FRAMES);
            traffic(&rig, 1, Mix::Shared, 1, &Findings::default());
            assert_eq!(rig.eph.check().is_err(), defect.is_some());
        });
        result.expect("the run ends");
    }
}

/// Room for the structures of one more set of mappings: addresses in the arena that no other set has.
pub fn arena(rig: &Rig) -> StructArena {
    arena_of(rig, 1 << 20)
}

/// The same, of so many bytes.
pub fn arena_of(rig: &Rig, len_bytes: usize) -> StructArena {
    let layout = rig.m.board().layout;
    StructArena::new(layout.kernel_base + (3 << 20), len_bytes)
}
