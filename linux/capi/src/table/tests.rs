//! Tests of the table alone. The calls are tested from C.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

fn table(patient: bool) -> Table<String> {
    Table::new(Kind::Buffer, 0, patient)
}

fn handle(pointer: *mut c_void) -> Handle {
    Handle::new(pointer, "buffer")
}

#[test]
fn no_two_handles_are_equal_and_an_entry_whose_generations_are_used_up_is_never_used_again() {
    let mut small = table(true);
    small.last_generation = 3;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let pointer = small.reserve().unwrap().fill("x".to_owned());
        assert!(seen.insert(pointer.addr()), "a handle was given out twice");
        small.free(handle(pointer)).unwrap();
    }
    assert_eq!(small.end(), 7, "20 handles, three of an entry");
    for bits in seen {
        let stale = handle(core::ptr::without_provenance_mut(bits));
        assert!(small.with(stale, |_| Ok(())).is_err());
    }
}

#[test]
fn a_handle_that_was_freed_stays_so_when_its_entry_is_used_again() {
    let table = table(true);
    let old = table.reserve().unwrap().fill("old".to_owned());
    table.free(handle(old)).unwrap();
    let new = table.reserve().unwrap().fill("new".to_owned());
    assert_eq!(table.end(), 1, "the same entry");
    assert!(table.free(handle(old)).is_err());
    assert!(table.consume(handle(old), |_| Ok(())).is_err());
    assert_eq!(table.with(handle(new), |value| Ok(value.clone())).unwrap(), "new");
}

#[test]
fn of_threads_that_free_or_use_up_one_handle_exactly_one_succeeds() {
    let table = table(true);
    for round in 0..2000 {
        let pointer = table.reserve().unwrap().fill("x".to_owned()).addr();
        let (won, start) = (AtomicUsize::new(0), std::sync::Barrier::new(3));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (table, won, start) = (&table, &won, &start);
                scope.spawn(move || {
                    let pointer = handle(core::ptr::without_provenance_mut(pointer));
                    start.wait();
                    let done = match (round + thread) % 3 {
                        0 => table.free(pointer),
                        1 => table.consume(pointer, |_| Ok(())),
                        _ => table.with(pointer, |_| Ok(())).and_then(|()| table.free(pointer)),
                    };
                    won.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(won.into_inner(), 1);
    }
    assert_eq!(table.live(), 0);
}

#[test]
fn a_value_that_is_freed_in_use_lives_until_that_use_ends() {
    struct TellsDrop(mpsc::Sender<()>);
    impl Drop for TellsDrop {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let table = Table::new(Kind::Sender, 0, false);
    let (tell, told) = mpsc::channel();
    let pointer = Handle::new(table.reserve().unwrap().fill(TellsDrop(tell)), "sender");
    table
        .with(pointer, |_| {
            assert!(table.with(pointer, |_| Ok(())).is_err(), "another call is refused");
            assert!(table.consume(pointer, |_| Ok(())).is_err(), "another call is refused");
            table.free(pointer).unwrap();
            assert!(table.free(pointer).is_err());
            assert!(told.try_recv().is_err(), "it is still in use");
            Ok(())
        })
        .unwrap();
    told.try_recv().unwrap();
}

#[test]
fn what_a_failed_call_brings_back_is_as_it_was() {
    let table = table(true);
    let pointer = handle(table.reserve().unwrap().fill("kept".to_owned()));
    let failed = |back: bool| {
        table.consume(pointer, |value| Err::<(), _>((Fault::usage("no".to_owned()), back.then_some(value))))
    };
    failed(true).unwrap_err();
    assert_eq!(table.with(pointer, |value| Ok(value.clone())).unwrap(), "kept");
    failed(false).unwrap_err();
    assert!(table.free(pointer).is_err(), "it was used up");
    assert_eq!(table.live(), 0);
}

#[test]
fn a_panic_in_a_call_ends_the_handle_and_no_other() {
    let table = table(true);
    let (pointer, other) =
        (table.reserve().unwrap().fill("x".to_owned()), table.reserve().unwrap().fill("y".to_owned()));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.consume(handle(pointer), |_| -> Result<(), _> { panic!("planned") })
    }));
    assert!(panicked.is_err());
    assert!(table.with(handle(pointer), |_| Ok(())).is_err());
    table.free(handle(other)).unwrap();
}

#[test]
fn a_number_that_is_no_handle_is_found_without_a_look_at_what_it_points_to() {
    let table = table(true);
    let good = table.reserve().unwrap().fill("x".to_owned()).addr();
    let local = 5_u64;
    let bad = [
        0,
        1,
        usize::MAX,
        good ^ 1,
        good ^ (1 << 20),
        good ^ (1 << 48),
        good ^ (1 << 60),
        &raw const local as usize,
    ];
    for bits in bad {
        let wrong = handle(core::ptr::without_provenance_mut(bits));
        assert!(table.free(wrong).is_err(), "{bits:#x}");
    }
    table.free(handle(core::ptr::without_provenance_mut(good))).unwrap();
}

#[test]
fn a_childs_table_knows_the_handles_of_its_parent() {
    let parents = table(true);
    let pointer = parents.reserve().unwrap().fill("x".to_owned());
    let childs: Table<String> = Table::new(Kind::Buffer, parents.end(), true);
    let own = childs.reserve().unwrap().fill("y".to_owned());
    assert_ne!(own, pointer);
    let text = format!("{:?}", childs.free(handle(pointer)).unwrap_err());
    assert!(text.contains("forked"), "{text}");
    childs.free(handle(own)).unwrap();
}

#[test]
fn a_handle_that_is_freed_while_a_call_waits_to_use_it_up_is_not_used_up_as_well() {
    let table = table(true);
    let pointer = table.reserve().unwrap().fill("x".to_owned()).addr();
    let stale = || handle(core::ptr::without_provenance_mut(pointer));
    std::thread::scope(|scope| {
        table
            .with(stale(), |_| {
                let waits = scope.spawn(|| table.consume(stale(), |_| Ok(())).is_ok());
                // The table has it, this call, and the look; and then that thread, which waits for this call's end.
                while Arc::strong_count(&table.get(stale())?) < 4 {
                    std::thread::yield_now();
                }
                table.free(stale())?;
                Ok(waits)
            })
            .map(|waits| assert!(!waits.join().unwrap(), "it was freed, and used up as well"))
            .unwrap();
    });
    assert_eq!(table.live(), 0);
}
