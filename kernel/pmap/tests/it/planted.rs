//! Random uses of address spaces beside a mirror of them, and every defect that is planted in the pmap, caught.
//!
//! Address spaces come and go, and so do their tags, of which there are few; they map few frames at addresses that meet
//! in two groups of the hash table, and neighbours. Every load, store and trap must be as the mirror has it, every
//! frame's referenced and modified bit too, and no stale translation may be used.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{Model, Schedule};
use pageferry_pmap::{Pmap, PmapDefect};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A small generator: the same numbers everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

const SPACES: usize = 3;
const FRAMES: usize = 6;
/// Pages that meet in a primary group, those that have it as their secondary one, and neighbours elsewhere.
const PAGES: usize = 24 + 24 + 8;

/// In a table of 1024 groups.
fn address(page: usize) -> Va {
    Va(match page {
        0..24 => (page as u64) << 22 | 5 << 12,
        24..48 => (page as u64 - 24) << 22 | 0x3fa << 12,
        _ => 0x2000_0000 + (page as u64 - 48) * PAGE_SIZE as u64,
    })
}

/// A space, and what is mapped there: frame, and whether it may be stored to.
struct Life {
    pmap: Pmap<Model>,
    map: BTreeMap<usize, (usize, bool)>,
}

/// What a frame holds and what is known of it.
#[derive(Clone, Copy, Default)]
struct State {
    byte: u8,
    referenced: bool,
    modified: bool,
}

struct World {
    lives: RefCell<Vec<Option<Rc<Life>>>>,
    frames: Vec<Pfn>,
    states: RefCell<Vec<State>>,
}

impl World {
    fn new(k: &Kernel) -> World {
        let frames: Vec<Pfn> = (0..FRAMES).map(|_| k.frames.data()).collect();
        frames.iter().enumerate().for_each(|(i, frame)| k.mark(*frame, i as u8));
        let states = (0..FRAMES).map(|i| State { byte: i as u8, ..State::default() }).collect();
        World {
            lives: RefCell::new((0..SPACES).map(|_| None).collect()),
            frames,
            states: RefCell::new(states),
        }
    }

    fn step(self: &Rc<World>, k: &Kernel, random: &mut Random, cpus: usize) {
        let who = random.below(SPACES);
        let Some(mut life) = self.lives.borrow_mut()[who].take() else {
            let life =
                Life { pmap: k.pmaps.create(&k.frames).expect("a tag and a frame"), map: BTreeMap::new() };
            self.lives.borrow_mut()[who] = Some(Rc::new(life));
            return;
        };
        let Life { pmap, map } = Rc::get_mut(&mut life).expect("the jobs are done");
        let (page, frame) = (random.below(PAGES), random.below(FRAMES));
        match random.below(16) {
            0..4 => {
                let write = random.below(3) > 0;
                map.insert(page, (frame, write));
                let prot = if write { Prot::RW } else { Prot::READ };
                k.enter(pmap, address(page), self.frames[frame], prot);
            }
            what @ 4..7 => {
                let ends = [page, (page + 1 + random.below(6)).min(PAGES)];
                let range =
                    VaRange::new(address(ends[0]), (address(ends[1] - 1) + PAGE_SIZE).max(address(ends[0])));
                let inside = |page: usize| range.contains(address(page));
                if what == 4 {
                    map.retain(|page, _| !inside(*page));
                    k.pmaps.remove(pmap, range).flush(&k.pmaps);
                } else {
                    map.iter_mut().filter(|(page, _)| inside(**page)).for_each(|(_, to)| to.1 = false);
                    k.pmaps.protect(pmap, range, Prot::READ).flush(&k.pmaps);
                }
            }
            7 => {
                k.pmaps.clear_referenced(self.frames[frame]).flush(&k.pmaps);
                k.pmaps.clear_modified(self.frames[frame]).flush(&k.pmaps);
                let state = &mut self.states.borrow_mut()[frame];
                (state.referenced, state.modified) = (false, false);
            }
            8 if random.below(3) == 0 => {
                k.destroy(Rc::into_inner(life).expect("the jobs are done").pmap);
                return;
            }
            9 => drop(k.pmaps.reclaim(8)),
            _ => {
                let used = life.clone();
                let (world, seed) = (self.clone(), random.below(1 << 20) as u64);
                k.on(random.below(cpus), move |k| world.use_some(k, &used, &mut Random(seed)));
                for (frame, state) in self.frames.iter().zip(&*self.states.borrow()) {
                    let noted = (k.pmaps.is_referenced(*frame), k.pmaps.is_modified(*frame));
                    assert_eq!(noted, (state.referenced, state.modified), "{frame:?}");
                }
            }
        }
        self.lives.borrow_mut()[who] = Some(life);
    }

    /// Loads and stores, and what they may not do.
    fn use_some(&self, k: &Kernel, life: &Life, random: &mut Random) {
        k.pmaps.activate(None, Some(&life.pmap));
        for _ in 0..12 {
            let page = random.below(PAGES);
            let va = address(page);
            let to = life.map.get(&page);
            if random.below(3) > 0 {
                let expected =
                    to.map(|(frame, _)| self.states.borrow()[*frame].byte).ok_or(TrapKind::NotPresent);
                let load = || k.load(Mode::User, va).map_err(|e| e.trap.kind);
                let loaded = load().or_else(|kind| self.again(k, life, page, expected.is_ok(), kind, load));
                assert_eq!(loaded, expected, "page {page}");
            } else {
                let byte = random.below(256) as u8;
                let expected = match to {
                    None => Err(TrapKind::NotPresent),
                    Some((_, false)) => Err(TrapKind::Protection),
                    Some((frame, true)) => {
                        let state = &mut self.states.borrow_mut()[*frame];
                        (state.byte, state.modified) = (byte, true);
                        Ok(())
                    }
                };
                let store = || k.m.store(Mode::User, va, &[byte]).map_err(|e| e.trap.kind);
                let stored = store().or_else(|kind| self.again(k, life, page, expected.is_ok(), kind, store));
                assert_eq!(stored, expected, "page {page}");
                if stored.is_err() {
                    continue;
                }
            }
            if let Some((frame, _)) = to {
                self.states.borrow_mut()[*frame].referenced = true;
            }
        }
        k.pmaps.activate(Some(&life.pmap), None);
    }
}

impl World {
    /// Makes an access again that must succeed and was refused, or to a page that is said not to be mapped: a mapping
    /// of another colour has taken the page away.
    fn again<R>(
        &self,
        k: &Kernel,
        life: &Life,
        page: usize,
        must: bool,
        kind: TrapKind,
        access: impl Fn() -> Result<R, TrapKind>,
    ) -> Result<R, TrapKind> {
        let mapped = life.map.get(&page).filter(|_| must || kind == TrapKind::NotPresent);
        let Some(&(frame, write)) = mapped.filter(|_| k.pmaps.colours() > 1) else { return Err(kind) };
        let prot = if write { Prot::RW } else { Prot::READ };
        k.enter(&life.pmap, address(page), self.frames[frame], prot);
        access()
    }
}

/// As little memory as the kernel can do with: amd64's first page tables alone take 18 MB.
fn size_mb(shape: Shape) -> u64 {
    if shape.machine.starts_with("today") { 32 } else { 12 }
}

/// Uses spaces at random; what the run came to, if that is nothing good.
fn exercise(shape: Shape, seed: u64) -> Option<String> {
    // As many tags as spaces, or about twice as many where a space may want another.
    let asid_bits = Some(if shape.machine.contains("renew") { 3 } else { 2 });
    let shape = Shape { size_mb: size_mb(shape), asid_bits, ..shape };
    judge(shape, move |k| {
        // Memory from end to end, and pages of the kernel's.
        let last = Pfn(k.m.board().frames as u32 - 1);
        k.m.store(Mode::Kernel, k.pmaps.direct_va(last).expect("a direct map"), b"end").expect("mapped");
        let world = Rc::new(World::new(k));
        k.pmaps.kenter(k.kva.start(), &world.frames[1..2], Prot::READ).flush(&k.pmaps);
        assert_eq!(k.load(Mode::Kernel, k.kva.start()), Ok(1), "a page of the kernel's");
        let mut random = Random(seed);
        for _ in 0..250 {
            world.step(k, &mut random, shape.cpus);
        }
        let lives = world.lives.borrow_mut().drain(..).flatten().collect::<Vec<_>>();
        lives.into_iter().for_each(|life| k.destroy(Rc::into_inner(life).expect("the jobs are done").pmap));
    })
}

/// Two CPUs at the same pages: one changes what the other uses.
fn race(shape: Shape, seed: u64) -> Option<String> {
    let shape = Shape { size_mb: size_mb(shape), schedule: Schedule::Seeded(seed), ..shape };
    judge(shape, move |k| meet(k, seed))
}

fn meet(k: &Kernel, seed: u64) {
    let space = Rc::new(k.pmaps.create(&k.frames).unwrap());
    let frames: Vec<Pfn> = (0..24).map(|_| k.frames.data()).collect();
    let (over, turn) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    for (page, frame) in frames.iter().enumerate() {
        k.enter(&space, address(page), *frame, Prot::RW);
    }
    let (theirs, done, turns) = (space.clone(), over.clone(), turn.clone());
    k.start(1, move |k| {
        let mut random = Random(seed + 1);
        k.pmaps.activate(None, Some(&theirs));
        (0..500).for_each(|_| touch(k, &turns, &mut random));
        k.pmaps.activate(Some(&theirs), None);
        done.set(true);
    });
    let mut random = Random(seed);
    k.pmaps.activate(None, Some(&space));
    while !over.get() {
        let page = random.below(4);
        let range = VaRange::page(address(page));
        match random.below(6) {
            0 => {
                k.pmaps.remove(&space, range).flush(&k.pmaps);
            }
            1 => {
                k.pmaps.protect(&space, range, Prot::READ).flush(&k.pmaps);
            }
            2 => k.enter(&space, address(page), frames[page + 4 * random.below(2)], Prot::RW),
            _ => touch(k, &turn, &mut random),
        }
    }
    k.wait();
    k.pmaps.activate(Some(&space), None);
    k.destroy(Rc::into_inner(space).expect("the job is done"));
}

/// Pages at which two CPUs meet: more than two groups hold.
const RACED: usize = 20;

/// Uses the page whose turn it is, or the next; a trap says that it is being changed.
fn touch(k: &Kernel, turn: &Cell<usize>, random: &mut Random) {
    turn.set(turn.get() + random.below(2));
    let va = address(turn.get() % RACED);
    let _ = match random.below(2) {
        0 => k.load(Mode::User, va).map(drop),
        _ => k.m.store(Mode::User, va, &[1]),
    };
}

/// What is wrong with a run.
fn judge(shape: Shape, test: impl FnOnce(&Rc<Kernel>) + 'static) -> Option<String> {
    let (m, result) = try_run(shape, test);
    let stale = m.stale_uses().first().map(ToString::to_string);
    stale.or_else(|| result.err().map(|e| e.to_string())).or_else(|| m.check().err())
}

/// Where to look for each: the machine, how many CPUs, and what is to be seen of it.
fn where_seen(defect: PmapDefect) -> &'static [(&'static str, usize, &'static str)] {
    const BYTES: &str = "assertion";
    const STALE: &str = "stale translation";
    const ENDLESS: &str = "refills did not make an access possible";
    match defect {
        PmapDefect::BlockStays => &[],
        PmapDefect::TagReusedEarly => {
            &[("ppc603", 1, STALE), ("ppc603+hash+renew", 1, STALE), ("ppc604+renew", 1, STALE)]
        }
        PmapDefect::NewTagKept => &[("today+tags", 1, STALE), ("today+tags", 2, STALE)],
        PmapDefect::LeftCpusForgotten => {
            // A referenced bit that is not noted may be seen before.
            &[("today+tags", 2, STALE), ("today+tags", 1, ""), ("ppc603", 1, "")]
        }
        PmapDefect::TagReusedInHashTable => {
            &[("ppc603+hash+renew", 1, STALE), ("ppc604+slow+pte+renew", 1, STALE)]
        }
        PmapDefect::OldTagStays => &[("ppc603+renew", 1, STALE), ("ppc604+renew", 1, STALE)],
        PmapDefect::MissingFlush => &[("ppc603", 1, STALE), ("ppc604", 1, STALE), ("ppc604-smp", 2, STALE)],
        PmapDefect::BroadcastNotAwaited => {
            &[("ppc604-smp", 2, STALE), ("today-invlpgb", 2, STALE), ("today-invlpgb+tags", 2, STALE)]
        }
        PmapDefect::OwnSpaceOnly => {
            &[("ppc604-smp", 2, ""), ("today-invlpgb", 2, ""), ("today-invlpgb+tags", 2, "")]
        }
        PmapDefect::StaleHashEntry => &[("ppc603+hash", 1, STALE), ("ppc604", 1, STALE)],
        PmapDefect::ReadBeforeLocked => &[("ppc604-smp", 2, "stale")],
        PmapDefect::NotedBlindly => &[("ppc604-smp", 2, "")],
        PmapDefect::HalfWritten => &[("ppc604-smp", 2, STALE), ("ppc604-smp+slow+pte", 2, STALE)],
        PmapDefect::RefusedStays => &[("ppc604", 1, ENDLESS)],
        PmapDefect::ModifiedLost => &[("ppc603", 1, ""), ("ppc603+slow+hash", 1, ""), ("ppc604", 1, "")],
        PmapDefect::ReferencedLost => &[("ppc603", 1, BYTES), ("ppc604+slow+pte", 1, BYTES)],
        PmapDefect::WriteAlways => &[("ppc603", 1, ""), ("ppc604", 1, "")],
        PmapDefect::SecondaryUnmarked => &[("ppc603+hash", 1, ""), ("ppc604", 1, "")],
        PmapDefect::TagHalfCompared => &[("ppc603+hash", 1, ""), ("ppc604", 1, "")],
        PmapDefect::BlockOverPages => &[("ppc603", 1, BYTES), ("ppc604-smp", 2, BYTES)],
        PmapDefect::BlockMissing => &[("ppc603", 1, "mapped"), ("ppc604-smp", 2, "mapped")],
        PmapDefect::ColourIgnored | PmapDefect::OtherColourStays | PmapDefect::NotPurged => &[
            ("sh7751r", 1, "stale line"),
            ("sh7751r+unused", 1, "stale line"),
            ("ultrasparc-iie", 1, "stale line"),
        ],
        PmapDefect::PreloadTwice => &[
            ("sh7751r+recency-flushed", 1, "multiple hit"),
            ("sh7751r+unused+recency-flushed", 1, "multiple hit"),
        ],
        PmapDefect::PreloadUnseen => {
            &[("sh7751r+recency-flushed", 1, ""), ("sh7751r+unused+recency-flushed", 1, "")]
        }
        PmapDefect::PreloadOfOthers => &[
            ("sh7751r+recency-flushed", 1, "multiple hit"),
            ("sh7751r+unused+recency-flushed", 1, "multiple hit"),
        ],
        // Beside a mirror that knows rows.
        PmapDefect::RowOverPages | PmapDefect::RowHalfCompared => &[],
        PmapDefect::MissUnplaced => {
            &[("ppc603+slow+hash", 1, "by what they are at"), ("ppc604", 1, "by what they are at")]
        }
        PmapDefect::EndlessRefill => {
            &[("ppc603+slow+hash+pte", 1, "within one another"), ("ppc604+slow+pte", 1, "")]
        }
    }
}

fn look(shape: Shape, seed: u64) -> Option<String> {
    exercise(shape, seed).or_else(|| race(shape, seed).filter(|_| shape.cpus > 1))
}

#[test]
fn every_defect_is_caught_where_it_can_be_seen() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for &defect in PmapDefect::ALL {
        for &(machine, cpus, how) in where_seen(defect) {
            let shape = Shape { defect: defect.into(), ..Shape::new(machine, cpus) };
            let found = (0..400).find_map(|seed| Some((seed, look(shape, seed)?)));
            let line = found.as_ref().map(|(seed, found)| (*seed, found.lines().next().unwrap_or_default()));
            println!("{defect:?} on {machine}: {line:?}");
            match found {
                Some((_, found)) if found.contains(how) => seen += 1,
                found => wrong.push((defect, machine, found)),
            }
        }
    }
    assert!(wrong.is_empty(), "not seen, or not as they should be: {wrong:#?}");
    assert!(seen >= 50, "{seen}");
}

#[test]
fn a_sound_pmap_is_not_blamed() {
    for (machine, cpus) in [
        ("ppc603", 1),
        ("ppc603+renew", 1),
        ("ppc603+hash+renew", 1),
        ("ppc603+slow+hash+pte+renew", 1),
        ("ppc604+renew", 1),
        ("ppc604+slow+pte+renew", 1),
        ("ppc604-smp", 2),
        ("ppc604-smp+slow+pte", 2),
        ("sh7751r", 1),
        ("sh7751r+unused", 1),
        ("sh7751r+recency", 1),
        ("sh7751r+recency-flushed", 1),
        ("sh7751r+unused+counts", 1),
        ("sh7751r+unused+recency-flushed", 1),
        ("ultrasparc-iie", 1),
        ("today+tags", 1),
        ("today+tags+renew", 1),
        ("today+tags", 2),
        ("today-invlpgb", 2),
        ("today-invlpgb+tags", 2),
        ("today-arm", 2),
        ("today-arm+tags", 2),
    ] {
        for seed in 0..10 {
            let shape = Shape { schedule: Schedule::Seeded(seed), ..Shape::new(machine, cpus) };
            assert_eq!(exercise(shape, seed), None, "{machine}, seed {seed}");
            if cpus > 1 {
                assert_eq!(race(shape, seed), None, "{machine}, seed {seed}");
            }
        }
    }
}
