//! Address spaces one step at a time: what is mapped, faulted, copied, freed, and what is refused.

use crate::common::*;
use pageferry_ephemeral::KernelAddresses;
use pageferry_hal::*;
use pageferry_pmap::PmapCounter;
use pageferry_vm::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;

fn map(rig: &Rig, s: &AddressSpace, pages: usize) -> Va {
    s.map(rig.t(), None, pages * PAGE, Prot::RW, Inherit::Copy).expect("there is room")
}

#[test]
fn memory_is_zero_then_what_was_stored() {
    on_each(|rig| {
        let free = rig.vm.free_frames();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 3);
        assert_eq!(rig.load(&s, va + 5000, 100).unwrap(), vec![0; 100]);
        let bytes = pattern(1, 2 * PAGE);
        rig.store(&s, va + 100, &bytes).unwrap();
        rig.check();
        assert_eq!(rig.load(&s, va + 100, 2 * PAGE).unwrap(), bytes);
        assert_eq!(rig.load(&s, va, 100).unwrap(), vec![0; 100]);
        assert_eq!(rig.counter(VmCounter::ZeroFills), 3);
        assert_eq!(rig.counter(VmCounter::PageFaults), 3, "a load of a fresh page maps it writable");
        s.unmap(rig.t(), va, 3 * PAGE).unwrap();
        rig.check();
        assert_eq!(rig.load(&s, va, 1), Err(VmError::Fault(va)));
        rig.exit(s);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

#[test]
fn a_recycled_frame_is_clear() {
    on_each(|rig| {
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 4);
        rig.store(&s, va, &vec![0xaa; 4 * PAGE]).unwrap();
        s.unmap(rig.t(), va, 4 * PAGE).unwrap();
        let other = rig.vm.space().unwrap();
        let va = map(rig, &other, 4);
        assert_eq!(rig.load(&other, va, 4 * PAGE).unwrap(), vec![0; 4 * PAGE]);
        rig.store(&other, va, &vec![0xbb; 4 * PAGE]).unwrap();
        other.unmap(rig.t(), va, 4 * PAGE).unwrap();
        let memory = rig.vm.kernel_alloc(3).unwrap();
        let mut buf = vec![1; 3 * PAGE];
        rig.m.load(Mode::Kernel, memory.va(), &mut buf).unwrap();
        assert_eq!(buf, vec![0; 3 * PAGE]);
        rig.vm.kernel_free(memory);
        rig.exit(s);
        rig.exit(other);
    });
}

#[test]
fn bad_arguments_change_nothing() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 4);
        let rw = |at, len| s.map(t, at, len, Prot::RW, Inherit::Copy);
        let top = Va(!0xfff);
        let kernel = rig.m.board().layout.kernel_base;
        assert_eq!(rw(None, 0), Err(VmError::Invalid));
        assert_eq!(rw(Some(va + 1), PAGE), Err(VmError::Invalid));
        assert_eq!(rw(Some(va + PAGE), PAGE), Err(VmError::Exists));
        assert_eq!(rw(Some(Va(0)), PAGE), Err(VmError::NoMemory), "page 0 is not user space");
        assert_eq!(rw(Some(kernel), PAGE), Err(VmError::NoMemory));
        assert_eq!(rw(Some(top), 2 * PAGE), Err(VmError::NoMemory));
        assert_eq!(rw(None, usize::MAX), Err(VmError::NoMemory));
        assert_eq!(rw(None, usize::MAX - 2 * PAGE), Err(VmError::NoMemory));
        assert_eq!(s.unmap(t, va, 0), Err(VmError::Invalid));
        assert_eq!(s.unmap(t, va + 8, PAGE), Err(VmError::Invalid));
        assert_eq!(s.unmap(t, kernel, PAGE), Err(VmError::Invalid));
        assert_eq!(s.unmap(t, va, usize::MAX), Err(VmError::Invalid));
        assert_eq!(s.protect(t, va, 0, Prot::READ), Ok(()));
        assert_eq!(s.protect(t, va + 1, PAGE, Prot::READ), Err(VmError::Invalid));
        assert_eq!(s.protect(t, va, 5 * PAGE, Prot::READ), Err(VmError::NoMemory), "a hole at the end");
        assert_eq!(s.protect(t, top, PAGE, Prot::READ), Err(VmError::NoMemory));
        let trap = |va, access| Trap { va, access, mode: Mode::User, kind: TrapKind::NotPresent };
        assert_eq!(s.fault(t, trap(kernel, Access::Read)), Err(VmError::Fault(kernel)));
        assert_eq!(s.fault(t, trap(va + 5 * PAGE, Access::Read)), Err(VmError::Fault(va + 5 * PAGE)));
        let wire = |at, len, prot| s.wire(t, at, len, prot).map(|w| rig.vm.unwire(w)).unwrap_err();
        assert_eq!(wire(va, 0, Prot::READ), VmError::Invalid);
        assert_eq!(wire(va, 5 * PAGE, Prot::READ), VmError::Fault(va + 4 * PAGE));
        assert_eq!(wire(kernel, 10, Prot::READ), VmError::Fault(kernel));
        assert_eq!(wire(va, usize::MAX, Prot::READ), VmError::Fault(va));
        assert_eq!(rig.vm.kernel_alloc(0).unwrap_err(), VmError::Invalid);
        assert_eq!(rig.vm.object(0, Backing::Zero).err(), Some(VmError::Invalid));
        assert_eq!(s.entry_count(t), 1);
        assert_eq!(rig.vm.wired_frames(), 0);
        rig.store(&s, va, &pattern(3, 4 * PAGE)).unwrap();
        rig.check();
        rig.exit(s);
    });
}

#[test]
fn protection_is_enforced_and_can_come_back() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 3);
        rig.store(&s, va, &pattern(7, 3 * PAGE)).unwrap();
        s.protect(t, va + PAGE, PAGE, Prot::READ).unwrap();
        assert_eq!(s.entry_count(t), 3);
        assert_eq!(rig.store(&s, va + PAGE, &[1]), Err(VmError::Access));
        assert_eq!(rig.load(&s, va, 3 * PAGE).unwrap(), pattern(7, 3 * PAGE));
        s.protect(t, va + PAGE, PAGE, Prot::empty()).unwrap();
        assert_eq!(rig.load(&s, va + PAGE, 1), Err(VmError::Access));
        let refused = s.wire(t, va + 10, PAGE, Prot::READ).map(|w| rig.vm.unwire(w));
        assert_eq!(refused, Err(VmError::Fault(va + PAGE)));
        rig.check();
        s.protect(t, va + PAGE, PAGE, Prot::RW).unwrap();
        assert_eq!(s.entry_count(t), 1, "alike again, one entry again");
        assert_eq!(rig.load(&s, va, 3 * PAGE).unwrap(), pattern(7, 3 * PAGE));
        rig.store(&s, va + PAGE, &[1]).unwrap();
        rig.check();
        rig.exit(s);
    });
}

#[test]
fn entries_merge_and_clip() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = Va(0x10_0000);
        let fixed = |page: usize, pages: usize| {
            s.map(t, Some(va + page * PAGE), pages * PAGE, Prot::RW, Inherit::Copy).unwrap();
        };
        fixed(0, 2);
        fixed(4, 2);
        assert_eq!(s.entry_count(t), 2);
        fixed(2, 2);
        assert_eq!(s.entry_count(t), 1, "the gap is filled: one entry");
        rig.store(&s, va, &pattern(1, 6 * PAGE)).unwrap();
        fixed(6, 2);
        assert_eq!(s.entry_count(t), 2, "an amap does not grow");
        s.unmap(t, va + PAGE, PAGE).unwrap();
        assert_eq!(s.entry_count(t), 3);
        rig.check();
        fixed(1, 1);
        assert_eq!(rig.load(&s, va + PAGE, PAGE).unwrap(), vec![0; PAGE]);
        assert_eq!(rig.load(&s, va, PAGE).unwrap(), pattern(1, PAGE));
        s.unmap(t, va + 3 * PAGE, PAGE * 100).unwrap();
        rig.check();
        assert_eq!(s.map(t, None, PAGE, Prot::RW, Inherit::Copy).unwrap(), Va(0x1000), "first fit");
        rig.exit(s);
    });
}

#[test]
fn a_partial_unmap_frees_at_once() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 64);
        rig.store(&s, va, &pattern(1, 64 * PAGE)).unwrap();
        let free = rig.vm.free_frames();
        s.unmap(t, va + 20 * PAGE, 10 * PAGE).unwrap();
        assert_eq!(rig.vm.free_frames(), free + 10);
        let child = s.fork(t).unwrap();
        let free = rig.vm.free_frames();
        s.unmap(t, va, 5 * PAGE).unwrap();
        assert_eq!(rig.vm.free_frames(), free, "the child still has them");
        child.unmap(t, va + 2 * PAGE, 2 * PAGE).unwrap();
        assert_eq!(rig.vm.free_frames(), free + 2);
        rig.check();
        rig.exit(s);
        assert_eq!(rig.load(&child, va, PAGE).unwrap(), pattern(1, 64 * PAGE)[..PAGE]);
        rig.check();
        rig.exit(child);
    });
}

#[test]
fn fork_copies_on_write_only_what_is_written() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 8);
        rig.store(&s, va, &pattern(1, 8 * PAGE)).unwrap();
        let free = rig.vm.free_frames();
        let child = s.fork(t).unwrap();
        assert!(free - rig.vm.free_frames() <= 4, "page tables at most");
        rig.check();
        let copies = rig.counter(VmCounter::CowCopies);
        rig.store(&s, va, &[9; 10]).unwrap();
        rig.store(&child, va + PAGE, &[8; 10]).unwrap();
        rig.check();
        assert_eq!(rig.counter(VmCounter::CowCopies) - copies, 2);
        let mut parent = pattern(1, 8 * PAGE);
        let mut kid = parent.clone();
        parent[..10].fill(9);
        kid[PAGE..PAGE + 10].fill(8);
        assert_eq!(rig.load(&s, va, 8 * PAGE).unwrap(), parent);
        assert_eq!(rig.load(&child, va, 8 * PAGE).unwrap(), kid);
        let copies = rig.counter(VmCounter::CowCopies);
        rig.exit(s);
        rig.store(&child, va, &[7; 10]).unwrap();
        rig.store(&child, va + 5 * PAGE, &[7; 10]).unwrap();
        rig.check();
        assert_eq!(rig.counter(VmCounter::CowCopies), copies, "the last owner takes over");
        rig.exit(child);
    });
}

#[test]
fn fork_protects_all_entries_in_one_shootdown() {
    with_rig("opteron-mp", 24, Default::default(), |rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let mut starts = Vec::new();
        for i in 0..20 {
            let at = Va(0x10_0000 + i * 0x10_000);
            starts.push(s.map(t, Some(at), 2 * PAGE, Prot::RW, Inherit::Copy).unwrap());
            rig.store(&s, at, &pattern(i as u8, 2 * PAGE)).unwrap();
        }
        let (other, first) = (s.clone(), starts[0]);
        rig.on(1, move |rig| rig.load(&other, first, 10).map(drop)).unwrap();
        let before = rig.counter(PmapCounter::Shootdowns);
        let child = s.fork(t).unwrap();
        assert_eq!(rig.counter(PmapCounter::Shootdowns) - before, 1);
        rig.check();
        let other = s.clone();
        rig.on(1, move |rig| rig.store(&other, first, &[1; 5])).unwrap();
        assert_eq!(rig.load(&child, first, PAGE).unwrap(), pattern(0, PAGE));
        rig.exit(child);
        rig.exit(s);
    });
}

#[test]
fn inheritance() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let [none, share, copy] = [Inherit::None, Inherit::Share, Inherit::Copy]
            .map(|inherit| s.map(t, None, 2 * PAGE, Prot::RW, inherit).unwrap());
        rig.store(&s, share, &pattern(1, PAGE)).unwrap();
        let child = s.fork(t).unwrap();
        assert_eq!(rig.load(&child, none, 1), Err(VmError::Fault(none)));
        rig.store(&child, share, b"from the child").unwrap();
        rig.store(&s, share + PAGE, b"from the parent").unwrap();
        rig.store(&s, copy, b"mine").unwrap();
        rig.check();
        assert_eq!(rig.load(&s, share, 14).unwrap(), b"from the child");
        assert_eq!(rig.load(&child, share + PAGE, 15).unwrap(), b"from the parent");
        assert_eq!(rig.load(&child, copy, 4).unwrap(), [0; 4]);
        let grandchild = child.fork(t).unwrap();
        rig.exit(child);
        rig.store(&grandchild, share, b"third").unwrap();
        assert_eq!(rig.load(&s, share, 14).unwrap(), b"thirdthe child");
        rig.check();
        rig.exit(s);
        rig.exit(grandchild);
    });
}

/// A file of 5 pages whose third page is on a bad sector.
struct Disk;
impl Pager for Disk {
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError> {
        if page == 2 {
            return Err(PagerError { page });
        }
        bytes.copy_from_slice(&pattern(100 + page as u8, PAGE));
        Ok(())
    }
}

#[test]
fn private_mappings_promote_an_objects_pages() {
    on_each(|rig| {
        let t = rig.t();
        let free = rig.vm.free_frames();
        let file = rig.vm.object(5, Backing::Pager(Arc::new(Disk))).unwrap();
        let private = |first_page| Mapped { object: file.clone(), first_page, copy_on_write: true };
        let shared = Mapped { object: file.clone(), first_page: 0, copy_on_write: false };
        let s = rig.vm.space().unwrap();
        let refused = s.map_object(t, None, 2 * PAGE, Prot::RW, Inherit::Copy, private(4));
        assert_eq!(refused, Err(VmError::Invalid));
        let a = s.map_object(t, None, 4 * PAGE, Prot::RW, Inherit::Copy, private(1)).unwrap();
        let b = s.map_object(t, None, 5 * PAGE, Prot::RW, Inherit::Share, shared).unwrap();
        assert_eq!(rig.load(&s, a, PAGE).unwrap(), pattern(101, PAGE), "page 1 comes first");
        assert_eq!(rig.load(&s, a + PAGE + 7, 1), Err(VmError::Fault(a + PAGE + 7)));
        let child = s.fork(t).unwrap();
        let copies = rig.counter(VmCounter::CowCopies);
        rig.store(&s, a + 10, b"private").unwrap();
        assert_eq!(rig.counter(VmCounter::CowCopies) - copies, 1);
        rig.store(&child, b + PAGE + 10, b"all see").unwrap();
        rig.check();
        assert_eq!(rig.load(&s, a + 10, 7).unwrap(), b"private");
        assert_eq!(rig.load(&s, b + PAGE + 10, 7).unwrap(), b"all see");
        assert_eq!(
            rig.load(&child, a + 10, 7).unwrap(),
            b"all see",
            "not promoted there: it still sees the object"
        );
        rig.store(&child, a + 3 * PAGE, b"x").unwrap();
        assert_eq!(rig.load(&s, b + 4 * PAGE, PAGE).unwrap(), pattern(104, PAGE));
        rig.check();
        rig.vm.release_object(file);
        rig.check();
        rig.exit(s);
        rig.check();
        rig.exit(child);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

#[test]
fn object_mappings_merge_only_where_the_object_goes_on() {
    on_each(|rig| {
        let t = rig.t();
        let file = rig.vm.object(5, Backing::Pager(Arc::new(Disk))).unwrap();
        let s = rig.vm.space().unwrap();
        let at = Va(0x10_0000);
        let map = |page: usize, first_page| {
            let mapped = Mapped { object: file.clone(), first_page, copy_on_write: true };
            s.map_object(t, Some(at + page * PAGE), PAGE, Prot::RW, Inherit::Copy, mapped).unwrap();
            s.entry_count(t)
        };
        assert_eq!([map(0, 0), map(1, 1), map(2, 4), map(3, 3)], [1, 1, 2, 3]);
        let order: Vec<_> = [0, 1, 4, 3].map(|p| pattern(100 + p, PAGE)).concat();
        assert_eq!(rig.load(&s, at, 4 * PAGE).unwrap(), order);
        rig.check();
        rig.exit(s);
        rig.vm.release_object(file);
    });
}

#[test]
fn promotion_in_a_shared_amap_is_seen_by_all() {
    on_each(|rig| {
        let t = rig.t();
        let file = rig.vm.object(5, Backing::Pager(Arc::new(Disk))).unwrap();
        let mapped = Mapped { object: file.clone(), first_page: 0, copy_on_write: true };
        let s = rig.vm.space().unwrap();
        let a = s.map_object(t, None, 2 * PAGE, Prot::RW, Inherit::Share, mapped).unwrap();
        let child = s.fork(t).unwrap();
        assert_eq!(
            rig.load(&child, a, 4).unwrap(),
            pattern(100, 4),
            "the child has the object's page mapped"
        );
        rig.store(&s, a, b"news").unwrap();
        assert_eq!(rig.load(&child, a, 4).unwrap(), b"news");
        rig.check();
        rig.exit(child);
        rig.exit(s);
        rig.vm.release_object(file);
    });
}

#[test]
fn wires_nest_and_outlive_the_owner() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 4);
        rig.store(&s, va, &pattern(5, 4 * PAGE)).unwrap();
        let free = rig.vm.free_frames();
        let first = s.wire(t, va + 100, 2 * PAGE, Prot::READ).unwrap();
        assert_eq!((first.frames().len(), first.offset(), first.len_bytes()), (3, 100, 2 * PAGE));
        let second = s.wire(t, va + PAGE, 1, Prot::READ).unwrap();
        assert_eq!(second.frames()[0], first.frames()[1]);
        let shared = first.frames()[1];
        assert_eq!(rig.vm.frame_info(shared).wire_count, 2);
        assert_eq!(rig.vm.wired_frames(), 4);
        rig.check();
        s.unmap(t, va, 4 * PAGE).unwrap();
        rig.check();
        assert_eq!(rig.vm.free_frames(), free + 1, "only the fourth page is free");
        assert_eq!(rig.vm.frame_info(shared).state, FrameState::Orphan);
        rig.exit(s);
        assert_eq!(rig.m.frame_bytes(shared), pattern(5, 4 * PAGE)[PAGE..2 * PAGE]);
        rig.vm.unwire(first);
        assert_eq!(rig.vm.frame_info(shared).wire_count, 1);
        rig.check();
        rig.vm.unwire(second);
        assert_eq!(rig.vm.frame_info(shared).state, FrameState::Free);
        assert_eq!(rig.vm.wired_frames(), 0);
    });
}

#[test]
fn wiring_for_writes_resolves_copy_on_write_first() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 2);
        rig.store(&s, va, &pattern(5, 2 * PAGE)).unwrap();
        let child = s.fork(t).unwrap();
        let read = s.wire(t, va, PAGE, Prot::READ).unwrap();
        let write = s.wire(t, va, PAGE, Prot::RW).unwrap();
        assert_ne!(read.frames(), write.frames(), "the shared frame is not written");
        let again = s.wire(t, va, PAGE, Prot::READ).unwrap();
        assert_eq!(again.frames(), write.frames());
        rig.check();
        s.protect(t, va, PAGE, Prot::READ).unwrap();
        let refused = s.wire(t, va, PAGE, Prot::RW).map(|w| rig.vm.unwire(w));
        assert_eq!(refused, Err(VmError::Fault(va)));
        [read, write, again].into_iter().for_each(|w| rig.vm.unwire(w));
        rig.exit(s);
        rig.exit(child);
    });
}

#[test]
fn fork_leaves_a_frame_that_the_kernel_writes_with_the_parent() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 2);
        rig.store(&s, va, &pattern(5, 2 * PAGE)).unwrap();
        let wired = s.wire(t, va, PAGE, Prot::RW).unwrap();
        let child = s.fork(t).unwrap();
        rig.check();
        rig.store(&s, va + 8, b"parent").unwrap();
        let (mapped, _) = rig.vm.pmaps().extract(s.pmap(), va).unwrap();
        assert_eq!(mapped, wired.frames()[0], "the kernel's transfer still reaches the parent");
        let window = KernelAddresses::alloc(&*rig.vm, 1).unwrap();
        rig.vm.pmaps().kenter(window.start(), &[mapped], Prot::RW).flush(rig.vm.pmaps());
        rig.m.store(Mode::Kernel, window.start(), b"device").unwrap();
        rig.vm.pmaps().kremove(window).flush(rig.vm.pmaps());
        KernelAddresses::free(&*rig.vm, window);
        assert_eq!(rig.load(&s, va, 14).unwrap(), [&b"device"[..], &pattern(5, 8)[6..], b"parent"].concat());
        assert_eq!(rig.load(&child, va, PAGE).unwrap(), pattern(5, PAGE));
        rig.check();
        rig.vm.unwire(wired);
        rig.exit(child);
        rig.exit(s);
    });
}

#[test]
fn the_kernel_map_is_first_fit() {
    on_each(|rig| {
        let vm = &*rig.vm;
        let alloc = |pages| KernelAddresses::alloc(vm, pages).expect("there is room");
        let free = |range| KernelAddresses::free(vm, range);
        let before = vm.kernel_map_census();
        let ranges: Vec<VaRange> = [1, 2, 3, 4, 5].map(alloc).to_vec();
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].end(), pair[1].start());
        }
        assert_eq!(vm.kernel_map_census(), (before.0 + 15, 1), "neighbours are one entry");
        free(ranges[1]);
        free(ranges[3]);
        assert_eq!(vm.kernel_map_census(), (before.0 + 9, 3));
        rig.check();
        assert_eq!(alloc(3).start(), ranges[3].start(), "the lowest gap that is long enough");
        assert_eq!(alloc(2), ranges[1]);
        assert_eq!(alloc(1).end(), ranges[3].end(), "what is left of that gap");
        rig.check();
        for range in [ranges[0], ranges[1], ranges[2], ranges[3], ranges[4]] {
            free(range);
        }
        assert_eq!(vm.kernel_map_census(), before);
        assert_eq!(KernelAddresses::alloc(vm, usize::MAX / 2), None);
        assert_eq!(KernelAddresses::alloc(vm, 1 << 24), None);
    });
}

#[test]
fn kernel_memory_is_mapped_and_given_back() {
    on_each(|rig| {
        let free = rig.vm.free_frames();
        let a = rig.vm.kernel_alloc(5).unwrap();
        let b = rig.vm.kernel_alloc(2).unwrap();
        rig.check();
        assert_eq!((a.len_bytes(), a.frames().len()), (5 * PAGE, 5));
        rig.m.store(Mode::Kernel, a.va(), &pattern(1, 5 * PAGE)).unwrap();
        rig.m.copy_kernel(b.va(), a.va() + PAGE, 2 * PAGE).unwrap();
        let mut buf = vec![0; 2 * PAGE];
        rig.m.load(Mode::Kernel, b.va(), &mut buf).unwrap();
        assert_eq!(buf, pattern(1, 5 * PAGE)[PAGE..3 * PAGE]);
        let (va, frames) = (a.va(), a.frames().to_vec());
        rig.vm.kernel_free(a);
        assert!(rig.m.load(Mode::Kernel, va, &mut buf).is_err());
        let c = rig.vm.kernel_alloc(5).unwrap();
        assert_eq!(c.va(), va);
        if rig.vm.page_colours() == 1 {
            assert_eq!(c.frames(), frames, "last freed, first used");
        }
        rig.vm.kernel_free(b);
        rig.vm.kernel_free(c);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

/// The frames of some kernel memory, which is given back again.
fn frames_in_turn(rig: &Rig, pages: usize) -> Vec<Pfn> {
    let memory = rig.vm.kernel_alloc(pages).expect("there is room");
    let frames = memory.frames().to_vec();
    rig.vm.kernel_free(memory);
    rig.check();
    frames
}

#[test]
fn frames_go_round_where_they_are_freed_to_the_tail() {
    for machine in MACHINES {
        with_choice(machine, "tail", 24, |rig| {
            if rig.vm.page_colours() > 1 {
                // Each colour goes round by itself.
                return;
            }
            let first = frames_in_turn(rig, 4);
            let free = rig.vm.free_frames();
            // Every free frame has its turn before one comes again.
            let mut seen: BTreeSet<Pfn> = first.iter().copied().collect();
            while seen.len() < free {
                let frame = frames_in_turn(rig, 1)[0];
                assert!(seen.insert(frame), "{frame:?} comes again after {} of {free}", seen.len());
            }
            let again: BTreeSet<Pfn> = frames_in_turn(rig, 4).into_iter().collect();
            assert_eq!(again, first.into_iter().collect(), "and then those that were freed first");
        });
    }
    on_each(|rig| {
        if rig.vm.page_colours() == 1 {
            assert_eq!(frames_in_turn(rig, 1), frames_in_turn(rig, 1), "the last freed comes first");
        }
    });
}

#[test]
fn memory_runs_out_gracefully() {
    on_each(|rig| {
        let s = rig.vm.space().unwrap();
        let frames = rig.vm.free_frames();
        let va = map(rig, &s, frames + 1);
        let mut stored = 0;
        let error = loop {
            match rig.store(&s, va + stored * PAGE, &[1]) {
                Ok(()) => stored += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(error, VmError::NoMemory);
        assert!(stored > frames - 64, "{stored} of {frames}");
        rig.check();
        assert!(s.fork(rig.t()).is_err());
        assert_eq!(rig.vm.kernel_alloc(1).unwrap_err(), VmError::NoMemory);
        rig.check();
        s.unmap(rig.t(), va, PAGE).unwrap();
        rig.store(&s, va + stored * PAGE, &[1]).unwrap();
        rig.check();
        rig.exit(s);
        assert_eq!(rig.vm.free_frames(), frames + 1, "the space's own table is back too");
    });
}

#[test]
fn a_sparse_mapping_costs_what_it_holds() {
    on_each(|rig| {
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 1 << 17);
        let free = rig.vm.free_frames();
        for i in 0..8 {
            rig.store(&s, va + (i * 16000 + 3) * PAGE, &[i as u8; 9]).unwrap();
        }
        assert!(free - rig.vm.free_frames() <= 8 * 3);
        let child = s.fork(rig.t()).unwrap();
        rig.store(&child, va + 3 * PAGE, &[99]).unwrap();
        rig.check();
        assert_eq!(rig.load(&s, va + 3 * PAGE, 1).unwrap(), [0]);
        rig.exit(s);
        rig.exit(child);
    });
}

#[test]
fn an_abandoned_space_is_reported() {
    let result = std::panic::catch_unwind(|| {
        with_rig("xeon-up", 24, Default::default(), |rig| {
            let s = rig.vm.space().unwrap();
            map(rig, &s, 1);
            drop(s);
        });
    });
    let text = result.unwrap_err().downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("without being terminated"), "{text}");
}

#[test]
fn a_lost_unwire_is_reported() {
    let result = std::panic::catch_unwind(|| {
        with_rig("xeon-up", 24, Default::default(), |rig| {
            let s = rig.vm.space().unwrap();
            let va = map(rig, &s, 1);
            let wired = s.wire(rig.t(), va, 1, Prot::READ).unwrap();
            let frame = wired.frames()[0];
            drop(wired);
            rig.exit(s);
            assert_eq!(rig.vm.frame_info(frame).state, FrameState::Orphan);
            assert_eq!(rig.vm.wired_frames(), 0, "a wire is lost");
        });
    });
    let text = result.unwrap_err().downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("a wire is lost"), "{text}");
}

#[test]
fn the_entry_found_last_is_found_at_once() {
    on_each(|rig| {
        let s = rig.vm.space().unwrap();
        let start = map(rig, &s, 200);
        (0..100).for_each(|i| s.unmap(rig.t(), start + (2 * i + 1) * PAGE, PAGE).unwrap());
        let look_up = |entry: usize| {
            let before = rig.m.now();
            s.protect(rig.t(), start + 2 * entry * PAGE, PAGE, Prot::RW).unwrap();
            rig.m.now() - before
        };
        // Whatever is in the cache afterwards, neither way down is the shorter for it.
        for _ in 0..3 {
            look_up(3);
            look_up(77);
        }
        let (far, again) = (look_up(3), look_up(3));
        assert!(again < far, "{again:?} cycles after the same, {far:?} after another");
        // What was found last goes, and another comes at its structure's address: no look-up is led astray.
        s.unmap(rig.t(), start + 6 * PAGE, PAGE).unwrap();
        let elsewhere = map(rig, &s, 4);
        assert_eq!(s.protect(rig.t(), start + 6 * PAGE, PAGE, Prot::RW), Err(VmError::NoMemory));
        rig.store(&s, elsewhere, &[1; 4 * PAGE]).unwrap();
        rig.check();
        rig.exit(s);
    });
}
