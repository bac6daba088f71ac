//! Faults on frames that are lent: read-only while a loan lasts, and a write breaks the loan (UVM paper, 4.1.2).

use crate::common::{AddressSpace, on_each, pattern};
use crate::{Backing, FrameState, Inherit, Mapped, VmError};
use pageferry_hal::{PAGE_SIZE, Pfn, Prot, Va};
use pageferry_pmap::PmapError;

const AT: Va = Va(0x10_0000);

type Rig = crate::common::Rig;

fn frame_at(rig: &Rig, s: &AddressSpace) -> (Pfn, Prot) {
    rig.vm.pmaps().extract(s.pmap(), AT).expect("it is mapped")
}

/// Lends the frame that is mapped at [`AT`], as page loanout does: first nobody may write it any more.
fn lend(rig: &Rig, s: &AddressSpace) -> Pfn {
    let (frame, _) = frame_at(rig, s);
    rig.vm.pmaps().page_protect(frame, Prot::READ).flush(rig.vm.pmaps());
    rig.vm.frames().lock().lend(frame);
    rig.check();
    frame
}

fn end_loan(rig: &Rig, frame: Pfn) {
    rig.vm.frames().lock().end_loan(frame);
    rig.check();
}

fn anonymous(rig: &Rig) -> AddressSpace {
    let s = rig.vm.space().unwrap();
    s.map(rig.t(), Some(AT), 2 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
    rig.store(&s, AT, &pattern(1, PAGE_SIZE)).unwrap();
    s
}

/// Writes to a lent page: the lender goes on, the borrower keeps what was lent.
fn write_breaks_the_loan(rig: &Rig, s: &AddressSpace) {
    let old = rig.load(s, AT, PAGE_SIZE).unwrap();
    let free = rig.vm.free_frames();
    let lent = lend(rig, s);
    assert_eq!(rig.load(s, AT, PAGE_SIZE).unwrap(), old);
    assert_eq!(frame_at(rig, s), (lent, Prot::READ));
    rig.vm.fail_after(Some(0));
    assert_eq!(rig.store(s, AT + 5, b"new"), Err(VmError::NoMemory));
    rig.check();
    rig.store(s, AT + 5, b"new").unwrap();
    rig.check();
    assert_ne!(frame_at(rig, s).0, lent);
    assert_eq!(rig.vm.frame_info(lent).state, FrameState::Orphan);
    assert_eq!(rig.m.frame_bytes(lent), old);
    assert_eq!(rig.load(s, AT, 10).unwrap(), [&old[..5], b"new", &old[8..10]].concat());
    end_loan(rig, lent);
    assert_eq!(rig.vm.free_frames(), free);
}

#[test]
fn a_write_breaks_an_anons_loan() {
    on_each(|rig| {
        let s = anonymous(rig);
        write_breaks_the_loan(rig, &s);
        rig.exit(s);
    });
}

#[test]
fn a_write_breaks_an_objects_loan_for_all_who_map_it() {
    on_each(|rig| {
        let object = rig.vm.object(2, Backing::Zero).unwrap();
        let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: false };
        let s = rig.vm.space().unwrap();
        s.map_object(rig.t(), Some(AT), 2 * PAGE_SIZE, Prot::RW, Inherit::Share, mapped).unwrap();
        rig.store(&s, AT, &pattern(1, PAGE_SIZE)).unwrap();
        let other = s.fork(rig.t()).unwrap();
        assert_eq!(rig.load(&other, AT, PAGE_SIZE).unwrap(), pattern(1, PAGE_SIZE));
        write_breaks_the_loan(rig, &s);
        assert_eq!(rig.load(&other, AT + 5, 3).unwrap(), b"new");
        rig.vm.release_object(object);
        rig.exit(s);
        rig.exit(other);
    });
}

#[test]
fn a_loan_ends_without_a_write() {
    on_each(|rig| {
        let s = anonymous(rig);
        let lent = lend(rig, &s);
        rig.vm.frames().lock().lend(lent);
        end_loan(rig, lent);
        end_loan(rig, lent);
        rig.store(&s, AT, b"x").unwrap();
        assert_eq!(frame_at(rig, &s), (lent, Prot::RW), "no copy: the loans are over");
        rig.exit(s);
    });
}

#[test]
fn a_lent_frame_outlives_its_owner() {
    on_each(|rig| {
        let s = anonymous(rig);
        let free = rig.vm.free_frames();
        let lent = lend(rig, &s);
        s.unmap(rig.t(), AT, PAGE_SIZE).unwrap();
        rig.check();
        assert_eq!((rig.vm.free_frames(), rig.vm.frame_info(lent).state), (free, FrameState::Orphan));
        assert_eq!(rig.m.frame_bytes(lent), pattern(1, PAGE_SIZE));
        end_loan(rig, lent);
        assert_eq!(rig.vm.free_frames(), free + 1);
        rig.exit(s);
    });
}

#[test]
fn a_shared_anon_is_copied_and_its_loan_stays() {
    on_each(|rig| {
        let s = anonymous(rig);
        let child = s.fork(rig.t()).unwrap();
        let lent = lend(rig, &s);
        rig.store(&s, AT, b"x").unwrap();
        rig.check();
        assert_eq!(rig.vm.frame_info(lent).state, FrameState::Anon, "the child has it still");
        rig.store(&child, AT, b"y").unwrap();
        assert_eq!(rig.vm.frame_info(lent).state, FrameState::Orphan);
        assert_eq!(rig.m.frame_bytes(lent), pattern(1, PAGE_SIZE));
        end_loan(rig, lent);
        rig.exit(s);
        rig.exit(child);
    });
}

#[test]
fn what_the_pmap_lacks_is_memory() {
    assert_eq!(VmError::from(PmapError::NoFrame), VmError::NoMemory);
}
