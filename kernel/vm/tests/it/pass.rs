//! Map entry passing: four modes over ranges with holes, several entries and clipped ends, between two spaces and
//! within one; and failures at every step.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_vm::*;
use std::sync::Arc;

const PAGE: usize = PAGE_SIZE;
const MODES: [PassMode; 4] = [PassMode::Share, PassMode::Copy, PassMode::Donate, PassMode::DonateZero];
const FROM: Va = Va(0x20_0000);
const TO: Va = Va(0x60_0000);

struct Contents;
impl Pager for Contents {
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError> {
        bytes.copy_from_slice(&pattern(page as u8 + 40, PAGE));
        Ok(())
    }
}

/// Twelve pages at `FROM`: four of used memory, a hole of two, a private file of two, four of memory never touched.
fn sender(rig: &Rig, object: &Arc<Object<pageferry_model::Model>>) -> AddressSpace {
    let t = rig.t();
    let s = rig.vm.space().unwrap();
    s.map(t, Some(FROM), 4 * PAGE, Prot::RW, Inherit::Copy).unwrap();
    rig.store(&s, FROM, &pattern(1, 4 * PAGE)).unwrap();
    let mapped = Mapped { object: object.clone(), first_page: 1, copy_on_write: true };
    s.map_object(t, Some(FROM + 6 * PAGE), 2 * PAGE, Prot::RW, Inherit::Copy, mapped).unwrap();
    rig.store(&s, FROM + 6 * PAGE, b"private").unwrap();
    s.map(t, Some(FROM + 8 * PAGE), 4 * PAGE, Prot::RW, Inherit::Share).unwrap();
    s
}

/// The bytes of the pages 2 to 10, of which 4 and 5 are not there.
fn expected() -> Vec<Option<Vec<u8>>> {
    let used = pattern(1, 4 * PAGE);
    let mut file = pattern(41, PAGE);
    file[..7].copy_from_slice(b"private");
    let zero = || Some(vec![0; PAGE]);
    vec![
        Some(used[2 * PAGE..3 * PAGE].to_vec()),
        Some(used[3 * PAGE..].to_vec()),
        None,
        None,
        Some(file),
        Some(pattern(42, PAGE)),
        zero(),
        zero(),
    ]
}

fn see(rig: &Rig, s: &AddressSpace, at: Va, expected: &[Option<Vec<u8>>]) {
    for (i, page) in expected.iter().enumerate() {
        let va = at + i * PAGE;
        let expected = page.clone().ok_or(VmError::Fault(va));
        assert!(rig.load(s, va, PAGE) == expected, "page {i} at {at:?}");
    }
}

#[test]
fn four_modes_over_holes_entries_and_clipped_ends() {
    for mode in MODES {
        for within in [false, true] {
            for fixed in [false, true] {
                on_each(move |rig| one_pass(rig, mode, within, fixed.then_some(TO)));
            }
        }
    }
}

fn one_pass(rig: &Rig, mode: PassMode, within: bool, to_at: Option<Va>) {
    let free = rig.vm.free_frames();
    let t = rig.t();
    let object = rig.vm.object(4, Backing::Pager(Arc::new(Contents))).unwrap();
    let from = sender(rig, &object);
    let to = if within { from.clone() } else { rig.vm.space().unwrap() };
    let at = FROM + 2 * PAGE;
    let got = pass(&from, &to, t, at, 8 * PAGE, to_at, mode).unwrap();
    rig.check();
    assert!(to_at.is_none_or(|to_at| to_at == got));
    see(rig, &to, got, &expected());
    rig.check();
    let bytes = expected();
    let zeroed: Vec<_> = bytes.iter().map(|b| b.as_ref().map(|_| vec![0; PAGE])).collect();
    match mode {
        PassMode::Share | PassMode::Copy => see(rig, &from, at, &bytes),
        PassMode::Donate => see(rig, &from, at, &vec![None; 8]),
        PassMode::DonateZero => see(rig, &from, at, &zeroed),
    }
    assert_eq!(rig.load(&from, FROM, 2 * PAGE).unwrap(), pattern(1, 4 * PAGE)[..2 * PAGE]);
    for page in [0, 4, 7] {
        rig.store(&to, got + page * PAGE + 9, b"receiver").unwrap();
        rig.check();
        if mode != PassMode::Donate {
            let seen = rig.load(&from, at + page * PAGE + 9, 8).unwrap() == b"receiver";
            assert_eq!(seen, mode == PassMode::Share, "{mode:?}, page {page}");
            rig.store(&from, at + page * PAGE + 30, b"sender").unwrap();
            let seen = rig.load(&to, got + page * PAGE + 30, 6).unwrap() == b"sender";
            assert_eq!(seen, mode == PassMode::Share, "{mode:?}, page {page}");
        }
    }
    rig.check();
    if within {
        drop(to);
    } else {
        rig.exit(to);
    }
    rig.exit(from);
    rig.vm.release_object(object);
    assert_eq!(rig.vm.free_frames(), free);
}

#[test]
fn bad_arguments_change_nothing() {
    on_each(|rig| {
        let t = rig.t();
        let object = rig.vm.object(4, Backing::Pager(Arc::new(Contents))).unwrap();
        let to = rig.vm.space().unwrap();
        to.map(t, Some(TO), PAGE, Prot::RW, Inherit::Copy).unwrap();
        let top = Va(!0xfff);
        for mode in MODES {
            let from = sender(rig, &object);
            let entries = from.entry_count(t);
            let pass = |at, len, to_at| pass(&from, &to, t, at, len, to_at, mode);
            assert_eq!(pass(FROM, 0, None), Err(VmError::Invalid));
            assert_eq!(pass(FROM + 1, PAGE, None), Err(VmError::Invalid));
            assert_eq!(pass(FROM, PAGE, Some(TO + 8)), Err(VmError::Invalid));
            assert_eq!(pass(FROM, 4 * PAGE, Some(TO)), Err(VmError::Exists));
            assert_eq!(pass(FROM, 4 * PAGE, Some(Va(TO.0 - PAGE as u64))), Err(VmError::Exists));
            assert_eq!(pass(FROM + 4 * PAGE, 2 * PAGE, None), Err(VmError::Fault(FROM + 4 * PAGE)));
            assert_eq!(pass(top, 2 * PAGE, None), Err(VmError::Fault(top)));
            assert_eq!(pass(FROM, PAGE, Some(top)), Err(VmError::NoMemory));
            let mut n = 0;
            loop {
                rig.vm.fail_after(Some(n));
                let passed = pass(FROM + PAGE, 8 * PAGE, None);
                let struck = !rig.vm.failure_pending();
                rig.vm.fail_after(None);
                rig.check();
                if !struck {
                    to.unmap(t, passed.unwrap(), 8 * PAGE).unwrap();
                    break;
                }
                assert_eq!(passed, Err(VmError::NoMemory));
                assert_eq!(rig.load(&from, FROM, 4 * PAGE).unwrap(), pattern(1, 4 * PAGE));
                // Memory that was never touched may have got amaps to share: then a cut stays.
                let cut = if mode == PassMode::Share { 1 } else { 0 };
                let now = from.entry_count(t);
                assert!(
                    (entries..=entries + cut).contains(&now),
                    "{mode:?}: the sender's map was {entries}, is {now}"
                );
                n += 1;
            }
            assert!(n >= 4, "{mode:?}: {n} allocations");
            rig.exit(from);
        }
        rig.exit(to);
        rig.vm.release_object(object);
    });
}

#[test]
fn two_spaces_pass_to_each_other_at_once() {
    for seed in 0..10 {
        with_rig("xeon-mp", 24, Schedule::Seeded(seed), |rig| {
            let t = rig.t();
            let spaces: Vec<AddressSpace> = (0..2).map(|_| rig.vm.space().unwrap()).collect();
            for (i, s) in spaces.iter().enumerate() {
                s.map(t, Some(FROM), 4 * PAGE, Prot::RW, Inherit::Copy).unwrap();
                rig.store(s, FROM, &pattern(i as u8, 4 * PAGE)).unwrap();
            }
            let jobs: Vec<Job> = (0..2)
                .map(|cpu| {
                    let (a, b) = (spaces[cpu].clone(), spaces[1 - cpu].clone());
                    Box::new(move |rig: &Rig| {
                        for (i, mode) in MODES.into_iter().enumerate() {
                            let to_at = TO + i * 8 * PAGE;
                            pass(&a, &b, rig.t(), FROM + i * PAGE, PAGE, Some(to_at), mode).unwrap();
                            rig.load(&b, to_at, PAGE).unwrap();
                        }
                        rig.leave(cpu);
                    }) as Job
                })
                .collect();
            rig.together(jobs);
            rig.check();
            for (i, s) in spaces.iter().enumerate() {
                for n in 0..4 {
                    let bytes = rig.load(s, TO + n * 8 * PAGE, PAGE).unwrap();
                    assert_eq!(bytes, pattern(1 - i as u8, 4 * PAGE)[n * PAGE..][..PAGE]);
                }
            }
            spaces.into_iter().for_each(|s| rig.exit(s));
        });
    }
}
