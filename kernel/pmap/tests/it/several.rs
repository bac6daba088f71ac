//! One flush for changes in several address spaces, and in the kernel's own: no CPU has anything left of what any of
//! them was, whether it runs on one of the spaces, has left one, or has only gone idle on it.
//!
//! Every frame holds its own number, so each load says which frame a page is. A mirror says which it has to be.

use crate::common::*;
use crate::planted::Random;
use pageferry_hal::*;
use pageferry_model::{Model, Schedule};
use pageferry_pmap::{Pmap, TlbFlush};
use std::cell::RefCell;
use std::rc::Rc;

const SPACES: usize = 3;
const FRAMES: usize = 7;
/// Of each space, and of the kernel's that change.
const PAGES: usize = 10;

/// Where a page of a space is: in all of them at the same place.
fn address(page: usize) -> Va {
    Va(0x2000_0000) + page * PAGE_SIZE
}

/// What is mapped: frame, and whether it may be stored to.
type Mapped = [Option<(usize, bool)>; PAGES];

struct World {
    spaces: Vec<Pmap<Model>>,
    frames: Vec<Pfn>,
    user: RefCell<[Mapped; SPACES]>,
    kernel: RefCell<Mapped>,
    /// What each CPU runs on, or was idle on last.
    runs: RefCell<Vec<Option<(usize, bool)>>>,
}

impl World {
    fn new(k: &Kernel, cpus: usize) -> World {
        let frames: Vec<Pfn> = (0..FRAMES).map(|_| k.frames.data()).collect();
        frames.iter().enumerate().for_each(|(i, frame)| k.mark(*frame, i as u8));
        let make = |_| k.pmaps.create(&k.frames).expect("a tag and a frame");
        World {
            spaces: (0..SPACES).map(make).collect(),
            frames,
            user: RefCell::default(),
            kernel: RefCell::default(),
            runs: RefCell::new(vec![None; cpus]),
        }
    }

    /// This CPU goes to another space, stays, or has nothing to run.
    fn switch(&self, k: &Kernel, cpu: usize, random: &mut Random) {
        let before = self.runs.borrow()[cpu];
        let from = before.filter(|(_, idle)| !idle).map(|(space, _)| &self.spaces[space]);
        let next = match (random.below(4), before) {
            (0, Some((space, _))) => {
                k.pmaps.activate(from, None);
                Some((space, true))
            }
            (1, stays) => stays,
            _ => {
                let to = random.below(SPACES);
                k.pmaps.activate(from, Some(&self.spaces[to]));
                Some((to, false))
            }
        };
        self.runs.borrow_mut()[cpu] = next;
    }

    /// Uses all pages that this CPU can see, which is then where the space that it was idle on runs again.
    fn use_all(&self, k: &Kernel, cpu: usize) {
        let kernel = *self.kernel.borrow();
        for (page, mapped) in kernel.into_iter().enumerate() {
            let va = k.kva.start() + page * PAGE_SIZE;
            self.use_page(k, Mode::Kernel, va, mapped);
        }
        let Some((space, idle)) = self.runs.borrow()[cpu] else { return };
        if idle {
            k.pmaps.activate(None, Some(&self.spaces[space]));
            self.runs.borrow_mut()[cpu] = Some((space, false));
        }
        let user = self.user.borrow()[space];
        user.into_iter().enumerate().for_each(|(page, to)| self.use_page(k, Mode::User, address(page), to));
    }

    fn use_page(&self, k: &Kernel, mode: Mode, va: Va, to: Option<(usize, bool)>) {
        let frame = to.map(|(frame, _)| frame as u8).ok_or(TrapKind::NotPresent);
        assert_eq!(k.load(mode, va).map_err(|e| e.trap.kind), frame, "{mode:?} {va:?}");
        let Some((frame, write)) = to else { return };
        let store = || k.m.store(mode, va, &[frame as u8]).map_err(|e| e.trap.kind);
        // Where permissions were only added, a TLB may refuse once by the old ones.
        let stored = store().or_else(|_| store());
        assert_eq!(stored, if write { Ok(()) } else { Err(TrapKind::Protection) }, "{mode:?} {va:?}");
    }

    /// Changes some pages of one space, or of the kernel.
    fn change(&self, k: &Kernel, random: &mut Random) -> TlbFlush<Model> {
        let (first, frame) = (random.below(PAGES), random.below(FRAMES));
        let pages = first..first + 1 + random.below(PAGES - first);
        let at = |first: Va| VaRange::pages_from(first + pages.start * PAGE_SIZE, pages.len());
        let who = random.below(SPACES);
        let (space, map) = (&self.spaces[who], &mut self.user.borrow_mut()[who]);
        let write = random.below(2) == 0;
        match random.below(8) {
            0..2 => {
                map[pages.clone()].fill(None);
                k.pmaps.remove(space, at(address(0)))
            }
            2 => {
                map[pages.clone()].iter_mut().flatten().for_each(|to| to.1 = false);
                k.pmaps.protect(space, at(address(0)), Prot::READ)
            }
            3..6 => {
                map[first] = Some((frame, write));
                let prot = if write { Prot::RW } else { Prot::READ };
                let entered =
                    k.pmaps.enter(&k.frames, space, address(first), self.frames[frame], prot, false);
                entered.expect("frames")
            }
            6 => {
                let some: Vec<Pfn> = pages.clone().map(|n| self.frames[(frame + n) % FRAMES]).collect();
                let kernel = &mut self.kernel.borrow_mut();
                pages.clone().for_each(|n| kernel[n] = Some(((frame + n) % FRAMES, true)));
                k.pmaps.kenter(at(k.kva.start()).start(), &some, Prot::RW)
            }
            _ => {
                self.kernel.borrow_mut()[pages.clone()].fill(None);
                k.pmaps.kremove(at(k.kva.start()))
            }
        }
    }
}

/// Rounds of: every CPU goes somewhere and uses all that it sees; some changes are made, and flushed as one.
fn rounds(shape: Shape, seed: u64) {
    run(Shape { schedule: Schedule::Seeded(seed), size_mb: 32, ..shape }, move |k| {
        let world = Rc::new(World::new(k, shape.cpus));
        let mut random = Random(seed);
        let each = |k: &Rc<Kernel>, work: fn(&World, &Kernel, usize, &mut Random), random: &mut Random| {
            for cpu in 0..shape.cpus {
                let (world, mut its) = (world.clone(), Random(random.below(1 << 30) as u64));
                k.on(cpu, move |k| work(&world, k, cpu, &mut its));
            }
        };
        for _ in 0..16 {
            each(k, |world, k, cpu, _| world.use_all(k, cpu), &mut random);
            each(k, World::switch, &mut random);
            let mut change = TlbFlush::new();
            (0..1 + random.below(6)).for_each(|_| change.merge(world.change(k, &mut random)));
            change.flush(&k.pmaps);
        }
        each(k, |world, k, cpu, _| world.use_all(k, cpu), &mut random);
        for cpu in 0..shape.cpus {
            let world = world.clone();
            k.on(cpu, move |k| {
                if let Some((space, false)) = world.runs.borrow_mut()[cpu].take() {
                    k.pmaps.activate(Some(&world.spaces[space]), None);
                }
            });
        }
        k.pmaps.kremove(VaRange::pages_from(k.kva.start(), PAGES)).flush(&k.pmaps);
        let world = Rc::into_inner(world).expect("the jobs are done");
        world.spaces.into_iter().for_each(|space| k.destroy(space));
    });
}

#[test]
fn one_flush_reaches_what_every_cpu_has_of_every_space() {
    for (n, shape) in shapes().filter(|shape| shape.cpus > 1).enumerate() {
        for (ranged, full_flush_pages) in [(true, 4), (false, 4), (true, 1000), (false, 1000)] {
            for seed in 0..3 {
                rounds(Shape { ranged, full_flush_pages, ..shape }, 1000 * n as u64 + seed);
            }
        }
    }
}
