//! What is owed between a change and its flush, where another thread, CPU or address space comes between.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{RunError, Schedule, Staleness};
use std::rc::Rc;

const VA: Va = Va(0x40_0000);

/// A page daemon takes a page from a process that exits before the daemon flushes: the next address space does not get
/// what the TLB still holds.
#[test]
fn a_tag_rests_while_a_flush_is_owed() {
    run(Shape { asid_bits: Some(1), ..Shape::new("mini-hash", 2) }, |k| {
        let first = k.pmaps.create(&k.frames).unwrap();
        let secret = k.frames.data();
        k.mark(secret, 77);
        k.pmaps.enter(&k.frames, &first, VA, secret, Prot::RW, false).unwrap().flush(&k.pmaps);
        k.pmaps.activate(None, Some(&first));
        assert_eq!(k.load(Mode::User, VA), Ok(77));
        k.pmaps.activate(Some(&first), None);
        let owed = k.pmaps.page_protect(secret, Prot::empty());
        k.pmaps.remove(&first, VaRange::page(VA)).flush(&k.pmaps);
        k.pmaps.destroy(&k.frames, first);
        let second = k.pmaps.create(&k.frames).unwrap();
        k.pmaps.activate(None, Some(&second));
        assert!(k.load(Mode::User, VA).is_err());
        k.pmaps.activate(Some(&second), None);
        owed.flush(&k.pmaps);
        k.pmaps.destroy(&k.frames, second);
    });
}

/// With one bit there is one tag: when it is in use there is none, and it comes back as often as it is given.
#[test]
fn tags_come_back() {
    run(Shape { asid_bits: Some(1), ..Shape::new("mini-hash", 2) }, |k| {
        for _ in 0..5 {
            let space = k.pmaps.create(&k.frames).unwrap();
            assert!(k.pmaps.create(&k.frames).is_err());
            k.pmaps.destroy(&k.frames, space);
        }
    });
}

/// What another CPU notes in an entry while it is being wired stays there.
#[test]
fn wiring_loses_nothing_that_is_noted_meanwhile() {
    for (machine, seed) in ALL.into_iter().flat_map(|machine| (0..60).map(move |seed| (machine, seed))) {
        run(Shape { schedule: Schedule::Seeded(seed), ..Shape::new(machine, 2) }, |k| {
            let space = Rc::new(k.pmaps.create(&k.frames).unwrap());
            let frame = k.frames.data();
            k.pmaps.enter(&k.frames, &space, VA, frame, Prot::RW, false).unwrap().flush(&k.pmaps);
            let theirs = space.clone();
            k.start(1, move |k| {
                k.pmaps.activate(None, Some(&theirs));
                (0..6).for_each(|_| k.m.store(Mode::User, VA, &[1]).unwrap());
                k.pmaps.activate(Some(&theirs), None);
            });
            k.pmaps.set_wired(&space, VA, true);
            k.pmaps.set_wired(&space, VA, false);
            k.wait();
        });
    }
}

/// Two changes of a page, the flush of one of them forgotten: the window of the other does not hide that.
#[test]
fn each_change_has_to_be_flushed_in_its_own_window() {
    for machine in ALL {
        let (m, result) = try_run(Shape::new(machine, 1), |k| {
            let space = k.pmaps.create(&k.frames).unwrap();
            let frame = k.frames.data();
            k.pmaps.enter(&k.frames, &space, VA, frame, Prot::RW, false).unwrap().flush(&k.pmaps);
            k.pmaps.activate(None, Some(&space));
            k.m.store(Mode::User, VA, &[1]).unwrap();
            let one = k.pmaps.protect(&space, VaRange::page(VA), Prot::READ);
            let two = k.pmaps.remove(&space, VaRange::page(VA));
            one.not_cached(&k.pmaps);
            k.m.store(Mode::User, VA, &[2]).unwrap();
            two.flush(&k.pmaps);
        });
        assert!(result.is_ok(), "{machine}: {result:?}");
        let found = m.stale_uses();
        assert_eq!(found.len(), 1, "{machine}: {found:?}");
        assert!(matches!(found[0].why, Staleness::Changed { .. }), "{machine}: {found:?}");
    }
}

/// A kernel that declares what it believes was there, and is wrong, is told so.
#[test]
fn what_was_declared_is_not_forgotten() {
    let (_, result) = try_run(Shape::new(I386, 1), |k| {
        let space = k.pmaps.create(&k.frames).unwrap();
        let frame = k.frames.data();
        k.pmaps.enter(&k.frames, &space, VA, frame, Prot::RW, false).unwrap().flush(&k.pmaps);
        let read_only = Tte::page(frame, Attr::USER | Attr::MANAGED);
        k.m.mapping_changed(space.id(), VA, Some(read_only), Some(read_only), None);
    });
    assert!(
        matches!(&result, Err(RunError::Panicked(text)) if text.contains("is said to have been")),
        "{result:?}"
    );
}
