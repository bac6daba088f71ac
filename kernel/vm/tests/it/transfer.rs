//! Page transfer: of the kernel's pages and of anons on loan, to a given range and into the transfer area; and anflush.

use crate::common::*;
use pageferry_ephemeral::KernelAddresses;
use pageferry_hal::*;
use pageferry_vm::*;

const PAGE: usize = PAGE_SIZE;

fn map(rig: &Rig, s: &AddressSpace, pages: usize) -> Va {
    s.map(rig.t(), None, pages * PAGE, Prot::RW, Inherit::Copy).expect("there is room")
}

/// Pages that a driver has filled.
pub(crate) fn data(rig: &Rig, tag: u8, len_pages: usize) -> KernelPages {
    let pages = rig.vm.kernel_pages(len_pages).unwrap();
    let pmaps = rig.vm.pmaps();
    let window = KernelAddresses::alloc(&*rig.vm, len_pages).unwrap();
    pmaps.kenter(window.start(), pages.frames(), Prot::RW).flush(pmaps);
    rig.m.store(Mode::Kernel, window.start(), &pattern(tag, len_pages * PAGE)).unwrap();
    pmaps.kremove(window).flush(pmaps);
    KernelAddresses::free(&*rig.vm, window);
    pages
}

#[test]
fn kernel_pages_take_the_place_of_what_was_there() {
    on_each(|rig| {
        let free = rig.vm.free_frames();
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 6);
        rig.store(&s, va, &pattern(1, 4 * PAGE)).unwrap();
        let pages = data(rig, 2, 4);
        rig.check();
        let frames = pages.frames().to_vec();
        assert_eq!(s.transfer_pages(t, Some(va + 2 * PAGE), pages).unwrap(), va + 2 * PAGE);
        rig.check();
        assert_eq!(rig.load(&s, va, 2 * PAGE).unwrap(), pattern(1, 4 * PAGE)[..2 * PAGE]);
        assert_eq!(rig.load(&s, va + 2 * PAGE, 4 * PAGE).unwrap(), pattern(2, 4 * PAGE));
        let (mapped, prot) = rig.vm.pmaps().extract(s.pmap(), va + 2 * PAGE).unwrap();
        assert_eq!((mapped, prot), (frames[0], Prot::RW), "the frame itself has moved");
        assert_eq!(s.entry_count(t), 1, "the map is not cut");
        let child = s.fork(t).unwrap();
        rig.store(&s, va + 3 * PAGE, b"x").unwrap();
        assert_eq!(rig.load(&child, va + 2 * PAGE, 4 * PAGE).unwrap(), pattern(2, 4 * PAGE));
        rig.check();
        rig.exit(child);
        rig.exit(s);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

/// What was replaced is the kernel's, if nobody else has it: not what a child has, nor what is lent, nor where nothing
/// was.
#[test]
fn what_is_replaced_is_exchanged_unless_others_have_it() {
    on_each(|rig| {
        let free = rig.vm.free_frames();
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 6);
        rig.store(&s, va, &pattern(1, 2 * PAGE)).unwrap();
        let child = s.fork(t).unwrap();
        rig.store(&s, va + 2 * PAGE, &pattern(3, 3 * PAGE)).unwrap();
        let frame_at =
            |page: usize| rig.vm.pmaps().extract(s.pmap(), va + page * PAGE).map(|(frame, _)| frame);
        let own = [frame_at(2), frame_at(4)].map(|frame| frame.expect("just written"));
        let lent = s.loan_to_kernel(t, va + 3 * PAGE, PAGE).unwrap();
        let pages = data(rig, 2, 6);
        let given = pages.frames().to_vec();
        let (at, returned) = s.exchange_pages(t, Some(va), pages).unwrap();
        let returned = returned.expect("two are its own");
        assert_eq!((at, returned.frames()), (va, &own[..]));
        rig.check();
        assert_eq!(frame_at(0), Some(given[0]));
        assert_eq!(rig.load(&s, va, 6 * PAGE).unwrap(), pattern(2, 6 * PAGE));
        assert_eq!(rig.load(&child, va, 2 * PAGE).unwrap(), pattern(1, 2 * PAGE));
        rig.vm.unloan(lent);
        let again = data(rig, 5, 1);
        rig.vm.free_kernel_pages(returned);
        let (_, returned) = s.exchange_pages(t, Some(va), again).unwrap();
        let returned = returned.expect("what was given is its own");
        assert_eq!(returned.frames(), &given[..1]);
        rig.vm.free_kernel_pages(returned);
        rig.check();
        rig.exit(child);
        rig.exit(s);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

#[test]
fn who_shares_the_memory_sees_what_is_transferred() {
    with_rig("xeon-mp", 24, Default::default(), |rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = s.map(t, None, 2 * PAGE, Prot::RW, Inherit::Share).unwrap();
        rig.store(&s, va, &pattern(1, 2 * PAGE)).unwrap();
        let sharer = s.fork(t).unwrap();
        s.inherit(t, va, 2 * PAGE, Inherit::Copy).unwrap();
        let copier = s.fork(t).unwrap();
        let other = sharer.clone();
        rig.on(1, move |rig| rig.load(&other, va, 2 * PAGE)).unwrap();
        s.transfer_pages(t, Some(va), data(rig, 2, 2)).unwrap();
        rig.check();
        let other = sharer.clone();
        assert_eq!(rig.on(1, move |rig| rig.load(&other, va, 2 * PAGE)).unwrap(), pattern(2, 2 * PAGE));
        assert_eq!(rig.load(&copier, va, 2 * PAGE).unwrap(), pattern(1, 2 * PAGE));
        s.anflush(t, va, PAGE).unwrap();
        let other = sharer.clone();
        assert_eq!(rig.on(1, move |rig| rig.load(&other, va, PAGE)).unwrap(), vec![0; PAGE]);
        rig.check();
        [s, sharer, copier].into_iter().for_each(|s| rig.exit(s));
    });
}

#[test]
fn anons_travel_and_are_copied_when_written() {
    on_each(|rig| {
        let t = rig.t();
        let (a, b) = (rig.vm.space().unwrap(), rig.vm.space().unwrap());
        let va = map(rig, &a, 3);
        rig.store(&a, va, &pattern(1, 3 * PAGE)).unwrap();
        let loan = a.loan_to_anons(t, va, 3 * PAGE).unwrap();
        let to = b.transfer_anons(t, None, loan).unwrap();
        rig.check();
        rig.store(&a, va, b"sender").unwrap();
        assert_eq!(rig.load(&b, to, 3 * PAGE).unwrap(), pattern(1, 3 * PAGE));
        rig.store(&b, to + PAGE, b"receiver").unwrap();
        assert_eq!(rig.load(&a, va + PAGE, 8).unwrap(), pattern(1, 3 * PAGE)[PAGE..PAGE + 8]);
        rig.check();
        rig.exit(a);
        let copies = rig.counter(VmCounter::CowCopies);
        rig.store(&b, to + 2 * PAGE, b"alone").unwrap();
        assert_eq!(rig.counter(VmCounter::CowCopies), copies, "the sender is gone: no copy");
        rig.exit(b);
    });
}

#[test]
fn the_transfer_area_is_used_again() {
    with_rig("xeon-up", 64, Default::default(), |rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let first = s.transfer_pages(t, None, data(rig, 1, 3)).unwrap();
        let entries = s.entry_count(t);
        let second = s.transfer_pages(t, None, data(rig, 2, 2)).unwrap();
        if rig.vm.pmaps().colours() > 1 {
            // Where they go depends on the colours of their frames.
            return rig.exit(s);
        }
        assert_eq!(second, first + 3 * PAGE);
        s.anflush(t, first, 3 * PAGE).unwrap();
        rig.check();
        let third = s.transfer_pages(t, None, data(rig, 3, 3)).unwrap();
        assert_eq!(third, first, "what is flushed is free");
        assert_eq!(rig.load(&s, first, 5 * PAGE).unwrap()[..3 * PAGE], pattern(3, 3 * PAGE));
        assert_eq!(s.entry_count(t), entries, "the map is not cut");
        // Over the border of two amaps.
        let long = s.transfer_pages(t, None, data(rig, 4, 1100)).unwrap();
        assert_eq!(rig.load(&s, long + 1050 * PAGE, 8).unwrap(), pattern(4, 1100 * PAGE)[1050 * PAGE..][..8]);
        rig.check();
        let child = s.fork(t).unwrap();
        let inherited = child.transfer_pages(t, None, data(rig, 5, 2)).unwrap();
        assert_ne!(inherited, first, "the child has its parent's pages there");
        rig.check();
        s.unmap(t, long, 1100 * PAGE).unwrap();
        assert_eq!(rig.load(&s, long, 1), Err(VmError::Fault(long)));
        let whole = s.transfer_pages(t, None, data(rig, 6, 1200)).unwrap();
        assert!(whole > long, "what is unmapped is no part of the area");
        rig.check();
        rig.exit(s);
        rig.exit(child);
    });
}

/// Disposing of what was received (UVM paper, 4.2.2): anflush gives the anons back and leaves the amap for the next
/// transfer; munmap gives back both, and the next one needs a new amap.
#[test]
fn anflush_keeps_the_amap_and_munmap_does_not() {
    with_rig("xeon-up", 64, Default::default(), |rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let counts = || {
            let census = rig.vm.structure_census();
            (census.amaps, census.anons, rig.vm.free_frames())
        };
        for area in [false, true] {
            let (amaps, ..) = counts();
            let va = map(rig, &s, 3);
            let at = (!area).then_some(va);
            let first = s.transfer_pages(t, at, data(rig, 1, 3)).unwrap();
            // The area has four amaps from the start.
            let made = if area { 4 } else { 1 };
            // The page tables are there from now on.
            assert_eq!(rig.load(&s, first, 3 * PAGE).unwrap(), pattern(1, 3 * PAGE));
            let (_, _, free) = counts();
            assert_eq!(counts(), (amaps + made, 3, free));
            s.anflush(t, first, PAGE).unwrap();
            assert_eq!(counts(), (amaps + made, 2, free + 1));
            s.anflush(t, first, 3 * PAGE).unwrap();
            assert_eq!(
                counts(),
                (amaps + made, 0, free + 3),
                "the amap stays, the anons and frames are free"
            );
            rig.check();
            assert_eq!(s.transfer_pages(t, at, data(rig, 2, 3)).unwrap(), first);
            assert_eq!(counts(), (amaps + made, 3, free), "no new one for the next transfer");
            rig.check();
            if area && rig.vm.pmaps().colours() > 1 {
                // Where the area begins cannot be told from the first page in it.
                return rig.exit(s);
            }
            let len = if area { 4 * 1024 } else { 3 } * PAGE;
            s.unmap(t, first, len).unwrap();
            assert_eq!(counts(), (amaps, 0, free + 3), "the amap goes with the mapping");
            rig.check();
            if !area {
                s.map(t, at, 3 * PAGE, Prot::RW, Inherit::Copy).unwrap();
                assert_eq!(counts(), (amaps, 0, free + 3));
                s.transfer_pages(t, at, data(rig, 3, 3)).unwrap();
                assert_eq!(counts(), (amaps + 1, 3, free), "and a new one is made");
                s.unmap(t, va, 3 * PAGE).unwrap();
            }
        }
        rig.exit(s);
    });
}

#[test]
fn what_is_refused_comes_back() {
    on_each(|rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = map(rig, &s, 4);
        rig.store(&s, va, &pattern(9, 4 * PAGE)).unwrap();
        let object = rig.vm.object(2, Backing::Zero).unwrap();
        let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: false };
        let shared = s.map_object(t, None, 2 * PAGE, Prot::RW, Inherit::Share, mapped).unwrap();
        let read_only = s.map(t, None, PAGE, Prot::READ, Inherit::Copy).unwrap();
        let refused = |at: Va| {
            let no = s.transfer_pages(t, Some(at), data(rig, 1, 2)).unwrap_err();
            assert_eq!(no.back.frames().len(), 2);
            rig.vm.free_kernel_pages(no.back);
            rig.check();
            no.error
        };
        let far = Va(0x7000_0000);
        assert_eq!(refused(va + 1), VmError::Invalid);
        assert_eq!(refused(far), VmError::Fault(far));
        assert_eq!(refused(shared), VmError::Access);
        if read_only == shared + 2 * PAGE {
            assert_eq!(refused(shared + PAGE), VmError::Access);
        }
        assert_eq!(refused(read_only), VmError::Fault(read_only), "and nothing behind it");
        let wired = s.wire(t, va + PAGE, PAGE, Prot::RW).unwrap();
        assert_eq!(refused(va), VmError::Busy);
        assert_eq!(s.anflush(t, va, 4 * PAGE), Err(VmError::Busy));
        rig.vm.unwire(wired);
        assert_eq!(s.anflush(t, va, 0), Err(VmError::Invalid));
        assert_eq!(s.anflush(t, va + 1, PAGE), Err(VmError::Invalid));
        assert_eq!(s.anflush(t, far, PAGE), Err(VmError::NoMemory));
        assert_eq!(rig.vm.kernel_pages(0).map(|p| rig.vm.free_kernel_pages(p)), Err(VmError::Invalid));
        assert_eq!(rig.load(&s, va, 4 * PAGE).unwrap(), pattern(9, 4 * PAGE));
        rig.exit(s);
        rig.vm.release_object(object);
    });
}

#[test]
fn a_transfer_that_fails_changes_nothing() {
    on_each(|rig| {
        let t = rig.t();
        for area in [false, true] {
            let s = rig.vm.space().unwrap();
            // Memory in three states: never touched, one page used, shared with a child until it is written.
            let va = map(rig, &s, 20);
            rig.store(&s, va + 3 * PAGE, &pattern(7, PAGE)).unwrap();
            let child = s.fork(t).unwrap();
            s.map(t, Some(va + 20 * PAGE), 20 * PAGE, Prot::READ | Prot::WRITE, Inherit::Share).unwrap();
            let at = (!area).then_some(va);
            let mut pages = Some(data(rig, 1, 40));
            let mut n = 0;
            while let Some(moving) = pages.take() {
                rig.vm.fail_after(Some(n));
                let moved = s.transfer_pages(t, at, moving);
                let struck = !rig.vm.failure_pending();
                rig.vm.fail_after(None);
                rig.check();
                assert_eq!(moved.is_err(), struck);
                if let Err(Refused { error, back }) = moved {
                    assert_eq!(error, VmError::NoMemory);
                    assert_eq!(rig.load(&s, va + 3 * PAGE, PAGE).unwrap(), pattern(7, PAGE));
                    pages = Some(back);
                }
                n += 1;
            }
            assert!(n > 40, "{n} allocations");
            assert_eq!(rig.load(&child, va + 3 * PAGE, PAGE).unwrap(), pattern(7, PAGE));
            rig.exit(s);
            rig.exit(child);
        }
    });
}

#[test]
fn flushing_uncovers_the_object_below() {
    on_each(|rig| {
        let t = rig.t();
        let object = rig.vm.object(2, Backing::Zero).unwrap();
        let s = rig.vm.space().unwrap();
        let mapped = |copy_on_write| Mapped { object: object.clone(), first_page: 0, copy_on_write };
        let shared = s.map_object(t, None, 2 * PAGE, Prot::RW, Inherit::Share, mapped(false)).unwrap();
        let private = s.map_object(t, None, 2 * PAGE, Prot::RW, Inherit::Copy, mapped(true)).unwrap();
        rig.store(&s, shared, &pattern(1, 2 * PAGE)).unwrap();
        assert_eq!(rig.load(&s, private, 2 * PAGE).unwrap(), pattern(1, 2 * PAGE));
        s.transfer_pages(t, Some(private), data(rig, 2, 2)).unwrap();
        assert_eq!(rig.load(&s, private, 2 * PAGE).unwrap(), pattern(2, 2 * PAGE));
        assert_eq!(rig.load(&s, shared, 2 * PAGE).unwrap(), pattern(1, 2 * PAGE));
        rig.check();
        s.anflush(t, private, PAGE).unwrap();
        rig.check();
        assert_eq!(rig.load(&s, private, 8).unwrap(), pattern(1, 8));
        assert_eq!(rig.load(&s, private + PAGE, 8).unwrap(), pattern(2, 2 * PAGE)[PAGE..PAGE + 8]);
        rig.exit(s);
        rig.vm.release_object(object);
    });
}
