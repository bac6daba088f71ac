//! Every allocation of every operation fails once: the operation says so, nothing has changed, nothing has leaked, and
//! the next attempt succeeds.

use crate::common::*;
use pageferry_ephemeral::KernelAddresses;
use pageferry_hal::*;
use pageferry_vm::*;
use std::cell::Cell;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;

/// Does `attempt` with its first, second, ... allocation failing, each time in a fresh state from `set_up`, until it
/// needs no more; returns how many it needs. After a failure it must succeed at once.
fn exhaust<S, R>(
    rig: &Rig,
    name: &str,
    mut set_up: impl FnMut() -> S,
    mut attempt: impl FnMut(&S) -> Result<R, VmError>,
    mut tear_down: impl FnMut(S, R),
) -> u32 {
    let free = rig.vm.free_frames();
    for n in 0..200 {
        let state = set_up();
        let before = rig.vm.free_frames();
        rig.vm.fail_after(Some(n));
        let result = attempt(&state);
        let pending = rig.vm.failure_pending();
        rig.vm.fail_after(None);
        rig.check();
        let done = match result {
            Err(e) => {
                assert!(e == VmError::NoMemory && !pending, "{name}, allocation {n}: {e}");
                assert_eq!(rig.vm.free_frames(), before, "{name} keeps frames when allocation {n} fails");
                let result = attempt(&state).unwrap_or_else(|e| panic!("{name} fails by itself: {e}"));
                tear_down(state, result);
                false
            }
            Ok(result) => {
                assert!(pending, "{name} does not notice that allocation {n} failed");
                tear_down(state, result);
                true
            }
        };
        rig.check();
        assert_eq!(rig.vm.free_frames(), free, "{name} leaks");
        if done {
            return n;
        }
    }
    panic!("{name} allocates without end");
}

/// A space with one mapping of `pages` pages at `at`.
fn space_with(rig: &Rig, at: Va, pages: usize, inherit: Inherit) -> AddressSpace {
    let s = rig.vm.space().unwrap();
    s.map(rig.t(), Some(at), pages * PAGE, Prot::RW, inherit).unwrap();
    s
}

/// Page tables below the root for one page.
fn tables(rig: &Rig) -> u32 {
    match rig.m.board().mmu {
        Mmu::Radix(format) => format.levels - 1,
        Mmu::Hash | Mmu::Soft { .. } => 1,
    }
}

const AT: Va = Va(0x1000_0000 - PAGE as u64);

#[test]
fn making_and_cutting() {
    on_each(|rig| {
        let t = rig.t();
        let spaces = exhaust(rig, "space", || (), |_| rig.vm.space(), |_, s| rig.exit(s));
        assert_eq!(spaces, 2, "the structure and the root");
        let empty = || rig.vm.space().unwrap();
        let map = |s: &AddressSpace| s.map(t, None, 3 * PAGE, Prot::RW, Inherit::Copy);
        assert_eq!(exhaust(rig, "map", empty, map, |s, _| rig.exit(s)), 1);
        let filled = || {
            let s = space_with(rig, AT, 9, Inherit::Copy);
            rig.store(&s, AT, &pattern(1, 9 * PAGE)).unwrap();
            s
        };
        let intact = |s: AddressSpace, ()| {
            assert_eq!(rig.load(&s, AT, 3 * PAGE).unwrap(), pattern(1, 9 * PAGE)[..3 * PAGE]);
            assert_eq!(s.entry_count(t), 3);
            rig.exit(s);
        };
        let protect = |s: &AddressSpace| s.protect(t, AT + 3 * PAGE, 2 * PAGE, Prot::READ);
        assert_eq!(exhaust(rig, "protect", filled, protect, intact), 2);
        let inherit = |s: &AddressSpace| s.inherit(t, AT + 3 * PAGE, 2 * PAGE, Inherit::Share);
        assert_eq!(exhaust(rig, "inherit", filled, inherit, intact), 2);
        let unmap = |s: &AddressSpace| s.unmap(t, AT + 3 * PAGE, 2 * PAGE);
        let gone = |s: AddressSpace, ()| {
            assert_eq!(s.entry_count(t), 2);
            rig.exit(s);
        };
        assert_eq!(exhaust(rig, "unmap", filled, unmap, gone), 2);
    });
}

#[test]
fn zero_fill() {
    on_each(|rig| {
        let fresh = || space_with(rig, AT, 64, Inherit::Copy);
        let store = |s: &AddressSpace| rig.store(s, AT + 8, b"x");
        let n = exhaust(rig, "first store", fresh, store, |s, ()| rig.exit(s));
        assert_eq!(n, 4 + tables(rig), "amap, anon, frame, slots, page tables");
        let used = || {
            let s = fresh();
            rig.store(&s, AT, b"x").unwrap();
            s
        };
        // On i386 AT is the last page of its table.
        let store = |s: &AddressSpace| rig.store(s, AT + 33 * PAGE, b"x");
        let n = exhaust(rig, "far store", used, store, |s, ()| rig.exit(s));
        assert_eq!(n, 4, "anon, frame, slots, a page table");
    });
}

#[test]
fn copy_on_write() {
    on_each(|rig| {
        let t = rig.t();
        for page in [0, 20, 39] {
            let forked = || {
                let s = space_with(rig, AT, 40, Inherit::Copy);
                rig.store(&s, AT, &pattern(1, 40 * PAGE)).unwrap();
                let child = s.fork(t).unwrap();
                (s, child)
            };
            let at = AT + page * PAGE;
            let old = pattern(1, 40 * PAGE)[page * PAGE..][..20].to_vec();
            let by_parent = |(s, _): &(AddressSpace, AddressSpace)| rig.store(s, at, b"z");
            let by_child = |(_, c): &(AddressSpace, AddressSpace)| rig.store(c, at, b"z");
            let expect = |written: &AddressSpace, kept: &AddressSpace| {
                assert_eq!(rig.load(kept, at, 20).unwrap(), old);
                assert_eq!(rig.load(written, at, 20).unwrap(), [b"z", &old[1..]].concat());
            };
            let n = exhaust(rig, "parent's write", forked, by_parent, |(s, c), ()| {
                expect(&s, &c);
                rig.exit(s);
                rig.exit(c);
            });
            assert_eq!(n, 1 + 3 + 2, "an amap, its slots, an anon and a frame");
            let m = exhaust(rig, "child's write", forked, by_child, |(s, c), ()| {
                expect(&c, &s);
                rig.exit(s);
                rig.exit(c);
            });
            assert_eq!(m, n + tables(rig), "the child has no page table either");
        }
    });
}

struct Letters;
impl Pager for Letters {
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError> {
        bytes.fill(b'a' + page as u8);
        Ok(())
    }
}

#[test]
fn objects() {
    on_each(|rig| {
        let t = rig.t();
        let make = || rig.vm.object(3, Backing::Pager(Arc::new(Letters)));
        assert_eq!(exhaust(rig, "object", || (), |_| make(), |_, o| rig.vm.release_object(o)), 1);
        let mapped = || {
            let (s, object) = (rig.vm.space().unwrap(), make().unwrap());
            let all = Mapped { object: object.clone(), first_page: 0, copy_on_write: true };
            s.map_object(t, Some(AT), 3 * PAGE, Prot::RW, Inherit::Copy, all).unwrap();
            rig.vm.release_object(object);
            s
        };
        let window = u32::from(rig.vm.pmaps().direct_va(Pfn(0)).is_none());
        let read = |s: &AddressSpace| rig.load(s, AT + PAGE, 1);
        let tables = tables(rig);
        // A page of the object that became resident stays so: frames are compared by `read_resident` below.
        let resident = || {
            let s = mapped();
            rig.load(&s, AT + PAGE, 1).unwrap();
            s
        };
        let write = |s: &AddressSpace| rig.store(s, AT + PAGE, b"!");
        let n = exhaust(rig, "promotion", resident, write, |s, ()| {
            assert_eq!(rig.load(&s, AT + PAGE, 3).unwrap(), b"!bb");
            rig.exit(s);
        });
        assert_eq!(n, 4, "amap, anon, frame, slots");
        for n in 0.. {
            let s = mapped();
            rig.vm.fail_after(Some(n));
            let result = read(&s);
            rig.vm.fail_after(None);
            rig.check();
            assert_eq!(rig.load(&s, AT + PAGE, 1).unwrap(), b"b");
            rig.exit(s);
            rig.check();
            if result.is_ok() {
                assert_eq!(n, 1 + window + tables, "a frame, an address to fill it by, page tables");
                break;
            }
        }
    });
}

#[test]
fn forks() {
    on_each(|rig| {
        let t = rig.t();
        let at = |i: usize| Va(0x10_0000) + i * 0x10_0000;
        let inherits = [Inherit::Copy, Inherit::Share, Inherit::Copy, Inherit::None];
        let family = || {
            let s = rig.vm.space().unwrap();
            for (i, inherit) in inherits.into_iter().enumerate() {
                s.map(t, Some(at(i)), 20 * PAGE, Prot::RW, inherit).unwrap();
                rig.store(&s, at(i) + 3 * PAGE, &pattern(i as u8, 2 * PAGE)).unwrap();
            }
            s.map(t, Some(at(4)), 20 * PAGE, Prot::RW, Inherit::Share).unwrap();
            s
        };
        let end = |s: AddressSpace, child: AddressSpace| {
            for (i, inherit) in inherits.into_iter().enumerate().take(3) {
                rig.store(&s, at(i) + 3 * PAGE, b"later").unwrap();
                let seen = rig.load(&child, at(i) + 3 * PAGE, 5).unwrap();
                assert_eq!(seen == b"later", inherit == Inherit::Share);
            }
            rig.exit(s);
            rig.exit(child);
        };
        let plain = exhaust(rig, "fork", family, |s| s.fork(t), end);
        assert_eq!(plain, 2 + 4 + 1, "a space and its root, four entries, the amap that was missing");
        let with_wire = || {
            let s = family();
            let wired = s.wire(t, at(0) + 3 * PAGE, PAGE, Prot::RW).unwrap();
            (s, Cell::new(Some(wired)))
        };
        let n = exhaust(
            rig,
            "fork with a wired frame",
            with_wire,
            |(s, _)| s.fork(t),
            |(s, wired), child| {
                rig.vm.unwire(wired.take().expect("set above"));
                end(s, child);
            },
        );
        assert_eq!(n, plain + 4, "an amap and its slots, an anon and its frame");
        let sharing = || {
            let s = family();
            let sharer = s.fork(t).unwrap();
            sharer.inherit(t, at(1), 20 * PAGE, Inherit::Copy).unwrap();
            (s, sharer)
        };
        let n = exhaust(
            rig,
            "fork of a sharer",
            sharing,
            |(_, sharer)| sharer.fork(t),
            |(s, sharer), child| {
                rig.store(&s, at(1) + 3 * PAGE, b"later").unwrap();
                assert_eq!(rig.load(&child, at(1) + 3 * PAGE, 5).unwrap(), pattern(1, 5));
                [s, sharer, child].into_iter().for_each(|s| rig.exit(s));
            },
        );
        assert_eq!(n, 2 + 4 + 2, "a space and its root, four entries, an amap and its slots");
    });
}

#[test]
fn wires_and_kernel_memory() {
    on_each(|rig| {
        let t = rig.t();
        let resident = || {
            let s = space_with(rig, AT, 40, Inherit::Copy);
            rig.store(&s, AT, &pattern(1, 40 * PAGE)).unwrap();
            s
        };
        let wire = |s: &AddressSpace| s.wire(t, AT + 9, 39 * PAGE, Prot::RW);
        let unwire = |s: AddressSpace, wired| {
            rig.vm.unwire(wired);
            rig.exit(s);
        };
        assert_eq!(exhaust(rig, "wire", resident, wire, unwire), 0, "what is resident costs no memory");
        for n in 0.. {
            let s = space_with(rig, AT, 40, Inherit::Copy);
            rig.vm.fail_after(Some(n));
            let result = wire(&s);
            rig.vm.fail_after(None);
            rig.check();
            match result {
                Ok(wired) => {
                    assert_eq!(
                        n,
                        1 + 40 * 2 + 3 + tables(rig) + 1,
                        "amap, anons, frames, slots, page tables"
                    );
                    unwire(s, wired);
                    break;
                }
                Err(e) => assert_eq!((e, rig.vm.wired_frames()), (VmError::NoMemory, 0), "all or nothing"),
            }
            rig.exit(s);
        }
        let memory = |_: &()| rig.vm.kernel_alloc(5);
        assert_eq!(exhaust(rig, "kernel memory", || (), memory, |_, k| rig.vm.kernel_free(k)), 6);
        let addresses = |_: &()| KernelAddresses::alloc(&*rig.vm, 3).ok_or(VmError::NoMemory);
        assert_eq!(exhaust(rig, "addresses", || (), addresses, |_, r| KernelAddresses::free(&*rig.vm, r)), 1);
    });
}
