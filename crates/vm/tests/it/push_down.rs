//! Pages that are pushed down to an object: who sees them, who owns them, what is refused.

use crate::common::*;
use pageferry_hal::*;
use pageferry_vm::*;

const PAGE: usize = PAGE_SIZE;

/// A private mapping of four pages of an object, and a shared one of the same.
fn two_mappings(
    rig: &Rig,
) -> (AddressSpace, Va, AddressSpace, Va, std::sync::Arc<Object<pageferry_model::Model>>) {
    let t = rig.t();
    let object = rig.vm.object(4, Backing::Zero).unwrap();
    let map = |private: bool| {
        let space = rig.vm.space().unwrap();
        let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: private };
        let va = space.map_object(t, None, 4 * PAGE, Prot::RW, Inherit::Copy, mapped).unwrap();
        (space, va)
    };
    let ((a, at), (b, there)) = (map(true), map(false));
    (a, at, b, there, object)
}

#[test]
fn the_object_takes_the_pages_over() {
    on_each(|rig| {
        for how in [PushDown::Lend, PushDown::Give] {
            let t = rig.t();
            let (a, at, b, there, object) = two_mappings(rig);
            rig.store(&b, there, &pattern(1, 4 * PAGE)).unwrap();
            rig.store(&a, at + PAGE, &pattern(2, 2 * PAGE)).unwrap();
            assert_eq!(rig.load(&b, there, 4 * PAGE).unwrap(), pattern(1, 4 * PAGE), "they are private");
            let copied = rig.counter(Counter::CowCopies);
            let free = rig.vm.free_frames();
            assert_eq!(a.push_down(t, at, 4 * PAGE, how), Ok(2), "two pages have anons");
            rig.check();
            assert_eq!(rig.vm.free_frames(), free + 2, "the object's old pages are free");
            assert_eq!(rig.counter(Counter::CowCopies), copied, "nothing is copied");
            let mut expected = pattern(1, 4 * PAGE);
            expected[PAGE..3 * PAGE].copy_from_slice(&pattern(2, 2 * PAGE));
            assert!(
                rig.load(&b, there, 4 * PAGE).unwrap() == expected,
                "who has the object mapped sees them"
            );
            assert!(rig.load(&a, at, 4 * PAGE).unwrap() == expected);
            rig.check();
            // From here on they are two again: the private mapping's writes are its own, and the object's are the object's.
            rig.store(&a, at + PAGE, b"private").unwrap();
            rig.store(&b, there + 2 * PAGE, b"object").unwrap();
            rig.check();
            assert_eq!(rig.load(&b, there + PAGE, 7).unwrap(), expected[PAGE..PAGE + 7]);
            let seen = rig.load(&a, at + 2 * PAGE, 6).unwrap();
            let kept = how == PushDown::Lend;
            let lent = &expected[2 * PAGE..2 * PAGE + 6];
            assert_eq!(
                seen,
                if kept { lent } else { &b"object"[..] },
                "what the anon keeps, it keeps as it was"
            );
            rig.exit(a);
            rig.exit(b);
            rig.vm.release_object(object);
        }
    });
}

#[test]
fn what_cannot_go_down_is_refused() {
    on_each(|rig| {
        let t = rig.t();
        let (a, at, b, there, object) = two_mappings(rig);
        rig.store(&a, at, &pattern(3, PAGE)).unwrap();
        assert_eq!(a.push_down(t, at + 1, PAGE, PushDown::Give), Err(VmError::Invalid));
        assert_eq!(a.push_down(t, at, 0, PushDown::Give), Err(VmError::Invalid));
        assert_eq!(a.push_down(t, at, 5 * PAGE, PushDown::Give), Err(VmError::NoMemory));
        let child = a.fork(t).unwrap();
        rig.load(&child, at, 1).unwrap();
        // The first write after the fork copies the amap: the anon has two references.
        rig.store(&child, at + PAGE, b"x").unwrap();
        assert_eq!(a.push_down(t, at, PAGE, PushDown::Give), Err(VmError::Busy), "a child has it too");
        assert_eq!(a.push_down(t, at, PAGE, PushDown::Lend), Ok(1));
        assert_eq!(rig.load(&child, at, PAGE).unwrap(), pattern(3, PAGE));
        assert_eq!(rig.load(&b, there, PAGE).unwrap(), pattern(3, PAGE));
        assert_eq!(
            a.push_down(t, at, PAGE, PushDown::Lend),
            Err(VmError::Busy),
            "it is the object's already"
        );
        rig.check();
        rig.exit(child);
        rig.store(&a, at, b"own").unwrap();
        let wired = a.wire(t, at, PAGE, Prot::READ).unwrap();
        assert_eq!(a.push_down(t, at, PAGE, PushDown::Give), Err(VmError::Busy), "it is wired");
        rig.vm.unwire(wired);
        rig.check();
        rig.exit(a);
        rig.exit(b);
        rig.vm.release_object(object);
    });
}
