//! The law of ranges: a call on `[a, c)` does what the same call on `[a, b)` and on `[b, c)` does, wherever `b` lies in
//! what the range meets: within an entry, at the border of two, a page beside it.
//!
//! Three address spaces are made alike. One gets the call whole, one in two, and one not at all. Then the first two
//! must have as many entries, must have cost as many frames, and all that can be seen of them must be the same: what
//! each page holds, whether it may be stored to, and what a child, the spaces that share memory with it, and the
//! receiver of a pass see. And outside of the range they are as the third.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{Model, Schedule};
use pageferry_vm::*;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;
const FROM: Va = Va(0x20_0000);
const TO: Va = Va(0x60_0000);
const PAGES: usize = 12;

/// Where ranges begin, are cut and end: around the borders of entries, and within them.
const CUTS: [usize; 8] = [0, 1, 3, 4, 5, 8, 9, 12];

struct Contents;
impl Pager for Contents {
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError> {
        bytes.copy_from_slice(&pattern(page as u8 + 40, PAGE));
        Ok(())
    }
}

/// Twelve pages: four of memory, four of a file's private copy, four of an object that is shared; in each some were
/// written, some read and some never touched.
struct Scene {
    space: AddressSpace,
    /// One that was forked from it before, if any.
    kin: Option<AddressSpace>,
    /// Whoever is passed something.
    receiver: AddressSpace,
    /// The shared object, mapped whole.
    witness: AddressSpace,
    /// What is mapped privately, and what is shared.
    objects: [Arc<Object<Model>>; 2],
}

/// What one page looks like to one who sees it: its bytes, and whether it may be stored to.
#[derive(PartialEq, Eq, Debug)]
struct PageView {
    page: usize,
    holds: Result<Vec<u8>, VmError>,
    takes: Result<(), VmError>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Alone,
    Forked,
    Locked,
}

impl Scene {
    fn new(rig: &Rig, kind: Kind) -> Scene {
        let (t, vm) = (rig.t(), &rig.vm);
        let space = vm.space().unwrap();
        let at = |page: usize| FROM + page * PAGE;
        let of = |object: &Arc<Object<Model>>, copy_on_write| Mapped {
            object: object.clone(),
            first_page: 0,
            copy_on_write,
        };
        let objects =
            [vm.object(4, Backing::Pager(Arc::new(Contents))).unwrap(), vm.object(4, Backing::Zero).unwrap()];
        space.map(t, Some(FROM), 4 * PAGE, Prot::RW, Inherit::Copy).unwrap();
        let private = of(&objects[0], true);
        space.map_object(t, Some(at(4)), 4 * PAGE, Prot::RW, Inherit::Copy, private).unwrap();
        let shared = of(&objects[1], false);
        space.map_object(t, Some(at(8)), 4 * PAGE, Prot::RW, Inherit::Share, shared.clone()).unwrap();
        for page in [0, 1, 3, 5, 8, 10] {
            rig.store(&space, at(page), &pattern(page as u8, PAGE)).unwrap();
        }
        rig.load(&space, at(6), 1).unwrap();
        let witness = vm.space().unwrap();
        witness.map_object(t, Some(FROM), 4 * PAGE, Prot::RW, Inherit::Share, shared).unwrap();
        let kin = (kind == Kind::Forked).then(|| {
            let kin = space.fork(t).unwrap();
            rig.store(&space, at(1), b"after the fork").unwrap();
            rig.store(&kin, at(3), b"after the fork, too").unwrap();
            kin
        });
        if kind == Kind::Locked {
            space.lock_memory(t, at(1), PAGE).unwrap();
            space.lock_memory(t, at(7), 3 * PAGE).unwrap();
        }
        Scene { space, kin, receiver: vm.space().unwrap(), witness, objects }
    }

    /// All that can be seen of each page.
    fn seen(&self, rig: &Rig) -> Vec<PageView> {
        let child = self.space.fork(rig.t()).unwrap();
        // Of each who sees it, where the first of the twelve pages is, and which of them are there.
        let views = [
            Some((&child, FROM, 0..PAGES)),
            Some((&self.receiver, TO, 0..PAGES)),
            Some((&self.witness, FROM, 8..PAGES)),
            self.kin.as_ref().map(|kin| (kin, FROM, 0..PAGES)),
            Some((&self.space, FROM, 0..PAGES)),
        ];
        let mut seen = Vec::new();
        for (space, first, pages) in views.into_iter().flatten() {
            for page in pages.clone() {
                let at = first + (page - pages.start) * PAGE;
                let (holds, takes) = (rig.load(space, at, PAGE), rig.store(space, at + 5, &[page as u8]));
                seen.push(PageView { page, holds, takes });
            }
        }
        rig.exit(child);
        seen
    }

    fn end(self, rig: &Rig) {
        let Scene { space, kin, receiver, witness, objects } = self;
        [Some(space), kin, Some(receiver), Some(witness)].into_iter().flatten().for_each(|s| rig.exit(s));
        objects.into_iter().for_each(|object| rig.vm.release_object(object));
    }
}

/// What a call leaves that is to be given back.
enum Obligation {
    Nothing,
    Loan(KernelLoan),
    Anons(AnonLoan<Model>),
    Wired(Wired),
}

type Call = fn(&Rig, &Scene, Va, usize) -> Result<Obligation, VmError>;

fn nothing<T>(result: Result<T, VmError>) -> Result<Obligation, VmError> {
    result.map(|_| Obligation::Nothing)
}

fn pass_to(rig: &Rig, scene: &Scene, at: Va, len: usize, mode: PassMode) -> Result<Obligation, VmError> {
    let to = TO + (at - FROM);
    nothing(pass(&scene.space, &scene.receiver, rig.t(), at, len, Some(to), mode))
}

/// Every call on a range.
const CALLS: [(&str, Call); 25] = [
    ("mprotect, nothing", |rig, s, at, len| nothing(s.space.protect(rig.t(), at, len, Prot::empty()))),
    ("mprotect, to read", |rig, s, at, len| nothing(s.space.protect(rig.t(), at, len, Prot::READ))),
    ("mprotect, all", |rig, s, at, len| nothing(s.space.protect(rig.t(), at, len, Prot::RW))),
    ("minherit, none", |rig, s, at, len| nothing(s.space.inherit(rig.t(), at, len, Inherit::None))),
    ("minherit, share", |rig, s, at, len| nothing(s.space.inherit(rig.t(), at, len, Inherit::Share))),
    ("minherit, copy", |rig, s, at, len| nothing(s.space.inherit(rig.t(), at, len, Inherit::Copy))),
    ("munmap", |rig, s, at, len| nothing(s.space.unmap(rig.t(), at, len))),
    ("mmap over it", |rig, s, at, len| {
        let (place, prots) = (MapAddr::Replace(at), (Prot::RW, Prot::all()));
        nothing(s.space.map_at(rig.t(), place, len, prots, Inherit::Copy, None))
    }),
    ("mlock", |rig, s, at, len| nothing(s.space.lock_memory(rig.t(), at, len))),
    ("munlock", |rig, s, at, len| nothing(s.space.unlock_memory(rig.t(), at, len))),
    ("msync", |rig, s, at, len| nothing(s.space.sync(rig.t(), at, len))),
    ("madvise, random", |rig, s, at, len| {
        nothing(s.space.advise(rig.t(), at, len, Madvise::Use(Advice::Random)))
    }),
    ("madvise, will need", |rig, s, at, len| nothing(s.space.advise(rig.t(), at, len, Madvise::WillNeed))),
    ("madvise, don't need", |rig, s, at, len| nothing(s.space.advise(rig.t(), at, len, Madvise::DontNeed))),
    ("madvise, free", |rig, s, at, len| nothing(s.space.advise(rig.t(), at, len, Madvise::Free))),
    ("anflush", |rig, s, at, len| nothing(s.space.anflush(rig.t(), at, len))),
    ("push down, lend", |rig, s, at, len| {
        nothing(s.space.push_down(rig.t(), at, len, &s.objects[0], PushDown::Lend))
    }),
    ("push down, give", |rig, s, at, len| {
        nothing(s.space.push_down(rig.t(), at, len, &s.objects[0], PushDown::Give))
    }),
    ("loan to the kernel", |rig, s, at, len| s.space.loan_to_kernel(rig.t(), at, len).map(Obligation::Loan)),
    ("loan to anons", |rig, s, at, len| s.space.loan_to_anons(rig.t(), at, len).map(Obligation::Anons)),
    ("wire", |rig, s, at, len| s.space.wire(rig.t(), at, len, Prot::READ).map(Obligation::Wired)),
    ("pass, share", |rig, s, at, len| pass_to(rig, s, at, len, PassMode::Share)),
    ("pass, copy", |rig, s, at, len| pass_to(rig, s, at, len, PassMode::Copy)),
    ("pass, donate", |rig, s, at, len| pass_to(rig, s, at, len, PassMode::Donate)),
    ("pass, donate and zero", |rig, s, at, len| pass_to(rig, s, at, len, PassMode::DonateZero)),
];

/// Makes a call on some ranges, one after the other, and gives back what they left; how many frames that cost.
fn called(rig: &Rig, scene: &Scene, call: Call, ranges: &[(usize, usize)]) -> Result<usize, VmError> {
    let free = rig.vm.free_frames();
    let mut held = Vec::new();
    let mut result = Ok(());
    for &(from, to) in ranges {
        match call(rig, scene, FROM + from * PAGE, (to - from) * PAGE) {
            Ok(more) => held.push(more),
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    for held in held {
        match held {
            Obligation::Nothing => {}
            Obligation::Loan(loan) => rig.vm.unloan(loan),
            Obligation::Anons(anons) => rig.vm.release_anons(anons),
            Obligation::Wired(wired) => rig.vm.unwire(wired),
        }
    }
    rig.check();
    result.map(|()| free.wrapping_sub(rig.vm.free_frames()))
}

fn obeys(rig: &Rig, kind: Kind, (name, call): (&str, Call), (a, b, c): (usize, usize, usize)) {
    let scenes = [(); 3].map(|()| Scene::new(rig, kind));
    let whole = called(rig, &scenes[0], call, &[(a, c)]);
    let split = called(rig, &scenes[1], call, &[(a, b), (b, c)]);
    let what = format!("{name}, {kind:?}, {a} to {b} to {c}");
    // Pages are pushed down as far as the first that is refused.
    if !(name.starts_with("push") && whole.is_err() && split.is_err()) {
        assert_eq!(whole, split, "{what}: frames");
    }
    if whole.is_ok() {
        // A pass leaves entries cut.
        if !name.starts_with("pass") {
            let [whole, split] = [0, 1].map(|which: usize| scenes[which].space.entry_count(rig.t()));
            assert_eq!(whole, split, "{what}: entries");
        }
        let [whole, split, without] = scenes.each_ref().map(|scene| scene.seen(rig));
        let differs = whole.iter().zip(&split).position(|(one, other)| one != other);
        assert_eq!(differs, None, "{what}");
        let spills = |(one, other): (&PageView, &PageView)| !(a..c).contains(&one.page) && one != other;
        assert_eq!(whole.iter().zip(&without).position(spills), None, "{what}: outside of it");
    }
    scenes.into_iter().for_each(|scene| scene.end(rig));
    rig.check();
}

#[test]
fn a_call_on_a_range_is_the_same_call_on_its_parts() {
    for (machine, kind) in
        [("xeon-up", Kind::Alone), ("mini-soft", Kind::Forked), ("mini-blocks", Kind::Locked)]
    {
        with_paging(machine, 24, Schedule::Timed, Some(PAGING), move |rig| {
            for call in CALLS {
                for (first, a) in CUTS.into_iter().enumerate() {
                    for (second, b) in CUTS.into_iter().enumerate().skip(first + 1) {
                        for c in CUTS.into_iter().skip(second + 1) {
                            obeys(rig, kind, call, (a, b, c));
                        }
                    }
                }
            }
        });
    }
}
