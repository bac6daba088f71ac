//! Quick references: what the holder reads and writes is the source's, and the source's map stays as it is.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_vm::*;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;
const FROM: Va = Va(0x20_0000);

struct Contents;
impl Pager for Contents {
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError> {
        bytes.copy_from_slice(&pattern(page as u8 + 40, PAGE));
        Ok(())
    }
}

/// At `FROM`: eight pages of used memory, two of a private file, two never touched.
fn source(rig: &Rig, object: &Arc<Object<pageferry_model::Model>>) -> AddressSpace {
    let t = rig.t();
    let s = rig.vm.space().unwrap();
    s.map(t, Some(FROM), 8 * PAGE, Prot::RW, Inherit::Copy).unwrap();
    rig.store(&s, FROM, &pattern(1, 8 * PAGE)).unwrap();
    let mapped = Mapped { object: object.clone(), first_page: 1, copy_on_write: true };
    s.map_object(t, Some(FROM + 8 * PAGE), 2 * PAGE, Prot::READ, Inherit::Copy, mapped).unwrap();
    s.map(t, Some(FROM + 10 * PAGE), 2 * PAGE, Prot::RW, Inherit::Share).unwrap();
    s
}

fn with_source(body: impl Fn(&Rig, &AddressSpace, &AddressSpace) + Clone + 'static) {
    on_each(move |rig| {
        let free = rig.vm.free_frames();
        let object = rig.vm.object(4, Backing::Pager(Arc::new(Contents))).unwrap();
        let (from, holder) = (source(rig, &object), rig.vm.space().unwrap());
        body(rig, &from, &holder);
        rig.exit(from);
        rig.exit(holder);
        rig.vm.release_object(object);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

#[test]
fn the_source_keeps_its_entries() {
    with_source(|rig, from, holder| {
        let t = rig.t();
        let (entries, held) = (from.entry_count(t), holder.entry_count(t));
        // Bytes in the middle of the middle of one mapping, and over the borders of three.
        for (at, len) in [(FROM + 3 * PAGE + 100, 50), (FROM + 7 * PAGE + 4000, 3 * PAGE)] {
            for access in [Access::Read, Access::Write] {
                let r = quick_ref(from, holder, t, at, len, access).unwrap();
                assert_eq!(from.entry_count(t), entries, "the map is not cut");
                rig.check();
                assert_eq!(rig.load(holder, r.at(), len), rig.load(from, at, len));
                rig.check();
                r.release(t);
                rig.check();
                assert_eq!((from.entry_count(t), holder.entry_count(t)), (entries, held));
            }
        }
    });
}

#[test]
fn what_is_written_is_the_sources_alone() {
    with_source(|rig, from, holder| {
        let t = rig.t();
        let child = from.fork(t).unwrap();
        let before = rig.load(&child, FROM, 12 * PAGE).unwrap();
        // Shared copy-on-write memory, a private file that is mapped read-only, and memory that nobody has touched.
        for page in [2, 8, 11] {
            let at = FROM + page * PAGE + 9;
            let r = quick_ref(from, holder, t, at, 6, Access::Write).unwrap();
            rig.store(holder, r.at(), b"poked!").unwrap();
            rig.check();
            r.release(t);
            rig.check();
            assert_eq!(rig.load(from, at, 6).unwrap(), b"poked!", "page {page}");
        }
        let mut expected = before.clone();
        // The last two pages are shared with the child, the others copied.
        expected[11 * PAGE + 9..][..6].copy_from_slice(b"poked!");
        assert!(rig.load(&child, FROM, 12 * PAGE).unwrap() == expected, "the child has its own");
        rig.exit(child);
    });
}

#[test]
fn a_reader_writes_nothing() {
    with_source(|rig, from, holder| {
        let t = rig.t();
        let r = quick_ref(from, holder, t, FROM, 8, Access::Read).unwrap();
        assert_eq!(rig.store(holder, r.at(), b"x"), Err(VmError::Access));
        r.release(t);
    });
}

/// What happens to the source while its pages are referred to, and what the holder reads of them then.
type Event = fn(&Rig, AddressSpace) -> (Vec<AddressSpace>, &'static [u8; 6]);

const EVENTS: [(&str, Event); 7] = [
    ("it writes", |rig, from| {
        rig.store(&from, FROM, b"new by").unwrap();
        (vec![from], b"new by")
    }),
    ("it forks, and all write", |rig, from| {
        let child = from.fork(rig.t()).unwrap();
        rig.check();
        rig.store(&child, FROM, b"child!").unwrap();
        rig.check();
        rig.store(&from, FROM, b"parent").unwrap();
        assert_eq!(rig.load(&child, FROM, 6).unwrap(), b"child!");
        (vec![from, child], b"parent")
    }),
    ("it unmaps them", |rig, from| {
        from.unmap(rig.t(), FROM, 12 * PAGE).unwrap();
        (vec![from], b"before")
    }),
    ("it exits", |rig, from| {
        rig.exit(from);
        (Vec::new(), b"before")
    }),
    ("it lends them, and writes", |rig, from| {
        let loan = from.loan_to_kernel(rig.t(), FROM, PAGE).unwrap();
        rig.check();
        rig.store(&from, FROM, b"broken").unwrap();
        assert_eq!(rig.m.frame_bytes(loan.frames()[0])[..6], *b"before");
        rig.vm.unloan(loan);
        (vec![from], b"broken")
    }),
    ("it donates them", |rig, from| {
        let to = rig.vm.space().unwrap();
        pass(&from, &to, rig.t(), FROM, 4 * PAGE, Some(FROM), PassMode::Donate).unwrap();
        rig.check();
        rig.store(&to, FROM, b"theirs").unwrap();
        (vec![from, to], b"theirs")
    }),
    ("they go to the disk", |rig, from| {
        assert!(rig.vm.reclaim(rig.t()) > 0);
        (vec![from], b"before")
    }),
];

#[test]
fn whatever_befalls_the_source_the_holder_reads_what_is_there() {
    for (name, event) in EVENTS {
        for write in [false, true] {
            with_paging("xeon-mp", 24, Schedule::Timed, Some(PAGING), move |rig| {
                let t = rig.t();
                let free = rig.vm.free_frames();
                let object = rig.vm.object(4, Backing::Pager(Arc::new(Contents))).unwrap();
                let (from, holder) = (source(rig, &object), rig.vm.space().unwrap());
                rig.store(&from, FROM, b"before").unwrap();
                let access = if write { Access::Write } else { Access::Read };
                let r = quick_ref(&from, &holder, t, FROM, 3 * PAGE, access).unwrap();
                rig.check();
                let (all, expected) = event(rig, from);
                rig.check();
                assert_eq!(rig.load(&holder, r.at(), 6).unwrap(), expected, "{name}");
                if write {
                    rig.store(&holder, r.at(), b"poked!").unwrap();
                    rig.check();
                    assert_eq!(rig.load(&holder, r.at(), 6).unwrap(), b"poked!", "{name}");
                }
                r.release(t);
                rig.check();
                all.into_iter().for_each(|space| rig.exit(space));
                rig.exit(holder);
                rig.vm.release_object(object);
                assert_eq!((rig.vm.free_frames(), rig.vm.wired_frames()), (free, 0), "{name}");
            });
        }
    }
}

#[test]
fn bad_arguments_and_failed_allocations_change_nothing() {
    with_source(|rig, from, holder| {
        let t = rig.t();
        let top = Va(!0xfff);
        let hole = FROM + 12 * PAGE;
        let refused = |at, len| quick_ref(from, holder, t, at, len, Access::Write).err();
        assert_eq!(refused(FROM, 0), Some(VmError::Invalid));
        assert_eq!(refused(FROM, (QUICK_REF_PAGES + 1) * PAGE), Some(VmError::Invalid));
        assert_eq!(refused(FROM + 11 * PAGE, 2 * PAGE), Some(VmError::Fault(FROM + 11 * PAGE)));
        assert_eq!(refused(hole, 1), Some(VmError::Fault(hole)));
        assert_eq!(refused(top, 2 * PAGE), Some(VmError::Fault(top)));
        assert_eq!(refused(Va(u64::MAX), 2), Some(VmError::Fault(Va(u64::MAX))));
        assert_eq!(quick_ref(from, from, t, FROM, 1, Access::Read).err(), Some(VmError::Invalid));
        let counts = (from.entry_count(t), holder.entry_count(t));
        let bytes = rig.load(from, FROM, 8 * PAGE).unwrap();
        let mut failures = 0;
        loop {
            rig.vm.fail_after(Some(failures));
            let taken = quick_ref(from, holder, t, FROM + 7 * PAGE, 4 * PAGE, Access::Write);
            let struck = !rig.vm.failure_pending();
            rig.vm.fail_after(None);
            rig.check();
            if !struck {
                taken.unwrap().release(t);
                break;
            }
            assert_eq!(taken.err(), Some(VmError::NoMemory));
            assert_eq!((from.entry_count(t), holder.entry_count(t)), counts);
            assert!(rig.load(from, FROM, 8 * PAGE).unwrap() == bytes);
            failures += 1;
        }
        assert!(failures >= 3, "{failures} allocations");
        rig.check();
    });
}

#[test]
fn what_lies_behind_an_address_can_be_looked_at() {
    with_source(|rig, from, _| {
        let behind = |page: usize| from.frame_behind(FROM + page * PAGE).map(|f| rig.m.frame_bytes(f));
        assert_eq!(behind(3).unwrap(), pattern(1, 8 * PAGE)[3 * PAGE..4 * PAGE]);
        assert_eq!(behind(8), None, "not yet read");
        let read = rig.load(from, FROM + 8 * PAGE, PAGE).unwrap();
        assert_eq!(behind(8).unwrap(), read);
        assert_eq!((behind(10), behind(12)), (None, None));
    });
}
