//! Planted defects: each is caught by the check that is there for it, and the same program passes without it.

use crate::common::*;
use pageferry_ephemeral::{Flags, MappingUser};
use pageferry_hal::{Instructions, LockClass, Machine, SpinLock};
use pageferry_kernel::*;
use pageferry_model::{RunError, Schedule, WaitCause, Waits};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A writer of large chunks and a reader that knows how many bytes come; in between, the reader runs the kernel's own
/// checks and keeps the first complaint.
fn program(u: &U, complaint: Rc<RefCell<Option<String>>>) {
    let (r, w) = u.pipe().unwrap();
    let len = 400_000;
    let writer = fork(u, "writer", move |u| {
        u.close(r).unwrap();
        // Other pages for every piece: an old translation of the same page would be no error.
        let at = map(u, len);
        u.store(at, &bytes(4, 0, len));
        assert_eq!(u.write(w, at, len), Ok(len));
    });
    let at = map(u, 1 << 16);
    let mut got = Vec::new();
    while got.len() < len {
        got.extend(read_all(u, r, at, 10_000, 10_000.min(len - got.len())));
        if got.len() < 30_000 {
            until_asleep(u, writer);
            if let Err(e) = u.kernel().check() {
                complaint.borrow_mut().get_or_insert(e);
            }
        }
    }
    assert!(got == bytes(4, 0, len), "the payload is damaged");
}

struct Outcome {
    ended: Ended,
    complaint: Option<String>,
}

fn outcome(
    name: &str,
    schedule: Schedule,
    mut config: KernelConfig,
    defect: Planted<KernelDefect>,
) -> Outcome {
    config.defect = defect;
    let complaint = Rc::new(RefCell::new(None));
    let heard = complaint.clone();
    let ended = try_run(name, schedule, config, move |u| program(u, heard));
    Outcome { ended, complaint: complaint.take() }
}

fn direct_kernels() -> impl Iterator<Item = (&'static str, &'static str, KernelConfig)> {
    kernels().into_iter().filter(|(_, _, config)| config.pipe.direct)
}

#[test]
fn sound_kernels_pass() {
    for (what, name, config) in direct_kernels() {
        let o = outcome(name, Schedule::Timed, config, Planted::NONE);
        o.ended.result.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(o.complaint, None, "{what}");
        assert_eq!(o.ended.m.stale_uses(), [], "{what}");
        o.ended.kernel.unwrap().check_quiescent().unwrap();
    }
}

#[test]
fn a_lost_wakeup_is_a_deadlock_that_names_its_sleepers() {
    for (what, name, config) in direct_kernels() {
        for schedule in [Schedule::Timed, Schedule::Seeded(1)] {
            let o = outcome(name, schedule, config, KernelDefect::LostWakeup.into());
            assert!(matches!(o.ended.result, Err(RunError::Deadlock { .. })), "{what}: {:?}", o.ended.result);
            let sleepers = o.ended.kernel.unwrap().sleepers();
            assert!(sleepers.contains("writer: pipdwt"), "{what}: {sleepers}");
            assert!(sleepers.contains("init: piperd"), "{what}: {sleepers}");
        }
    }
}

#[test]
fn a_missing_wire_is_seen_in_the_table_of_frames() {
    for (what, name, config) in direct_kernels() {
        let o = outcome(name, Schedule::Timed, config, KernelDefect::MissingWire.into());
        let complaint = o.complaint.unwrap_or_else(|| panic!("{what}: not caught"));
        assert!(complaint.contains("not wired"), "{what}: {complaint}");
    }
}

/// The writer invalidates in its own TLB only: a reader on another CPU that read the last run there uses the old
/// translation. (Without a seed the two alternate on one CPU, where nothing is missing.)
#[test]
fn a_missing_shootdown_is_a_stale_use() {
    let stale = |name, config, seed| {
        let o = outcome(name, Schedule::Seeded(seed), config, KernelDefect::MissingShootdown.into());
        !o.ended.m.stale_uses().is_empty()
    };
    for name in ["xeon-mp", "xeon-mp-htt", "opteron-mp"] {
        // Where both threads stay on one CPU, nothing is missing either.
        let caught = (0..10).filter(|&seed| stale(name, original(), seed)).count();
        assert!(caught >= 5, "{name}: {caught} of 10 seeds caught it");
    }
    assert!(!(0..5).any(|seed| stale("xeon-up", original(), seed)), "there is no other TLB");
}

/// One thread changes a kernel mapping. Another, on another CPU, waits for that to be done with a lock of class `held`
/// in its hand.
fn wait_for_a_shootdown(u: &U, held: LockClass) {
    let pages = u.kernel().vm().kernel_pages(1).unwrap();
    let (waits, mapped) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (theirs, done) = (waits.clone(), mapped.clone());
    fork(u, "waiter", move |u| {
        let lock = u.machine().new_lock(held, ());
        let _held = lock.lock();
        theirs.set(true);
        u.machine().spin_until(&mut || done.get());
    });
    while !waits.get() {
        u.compute(Instructions(10));
    }
    let (ephemeral, t) = (u.kernel().ephemeral(), u.thread());
    let mapping = ephemeral.alloc(t, pages.frames()[0], MappingUser::Other, Flags::empty()).unwrap();
    mapped.set(true);
    ephemeral.free(t, mapping);
    u.wait().unwrap();
    u.kernel().vm().free_kernel_pages(pages);
}

/// A thread that spins with interrupts off, until another CPU has done what that CPU needs an answer from it for.
/// Neither sleeps, so this is no deadlock of sleepers or of locks: the run ends at the limit of spinning, and says who
/// spins where.
#[test]
fn threads_that_spin_for_each_other_are_named() {
    if other_kind().is_some() {
        return; // Others may reach all CPUs without an interrupt.
    }
    for schedule in [Schedule::Timed, Schedule::Seeded(1), Schedule::Seeded(2)] {
        run("xeon-mp", schedule, original(), |u| wait_for_a_shootdown(u, LockClass::PIPE));
        let ended =
            try_run("xeon-mp", schedule, original(), |u| wait_for_a_shootdown(u, LockClass::SCHEDULER));
        let Err(RunError::Spinning { waits: Waits(waits), .. }) = &ended.result else {
            panic!("{schedule}: {:?}", ended.result)
        };
        let mut spinning: Vec<_> = waits.iter().map(|w| (&w.context[..], w.awaited, w.at.file())).collect();
        spinning.sort_by_key(|spinning| spinning.0);
        let init = ("init", WaitCause::Condition, "kernel/pmap/src/flush/shootdown.rs");
        assert_eq!(spinning, [init, ("waiter", WaitCause::Condition, file!())], "{schedule}");
    }
}
