//! Kernel paths and user programs as text: what they do to each other in the instruction cache, and bad addresses.

use super::common::*;
use pageferry_hal::*;
use pageferry_model::{Hardware, Schedule};
use pageferry_vm::Inherit;

const MACHINES: [&str; 3] = ["mini-soft", "mini-hash", "mini-blocks"];

fn text(u: &U, len: usize) -> Va {
    u.map(len, Prot::READ | Prot::EXECUTE, Inherit::Copy).expect("memory")
}

/// What the hardware counts while `body` works.
fn counted(u: &U, body: impl FnOnce()) -> Hardware {
    let before = u.machine().snapshot();
    body();
    u.machine().snapshot().since(&before).hardware
}

#[test]
fn kernel_and_user_text_compete_in_the_instruction_cache() {
    for name in MACHINES {
        run(name, Schedule::Timed, sf_buf(64), move |u| {
            let bytes = u.machine().board().instruction_bytes as usize;
            let (small, large) = (text(u, PAGE_SIZE), text(u, 16 * PAGE_SIZE));
            let run_small = || u.execute_at(small, Instructions((1024 / bytes) as u32));
            let call = || u.yield_now().expect("alive");
            (0..2).for_each(|_| run_small());
            assert_eq!(counted(u, run_small).icache_misses, 0, "{name}: warm");
            (0..2).for_each(|_| call());
            assert_eq!(counted(u, call).icache_misses, 0, "{name}: warm");
            u.execute_at(large, Instructions((16 * PAGE_SIZE / bytes) as u32));
            let misses = counted(u, call).icache_misses;
            let lines = (150 * bytes / 32) as u64;
            assert!(misses >= lines, "{name}: a user's run pushed the kernel out, {misses} lines missed");
            assert_eq!(counted(u, call).icache_misses, 0, "{name}: warm again");
            run_small();
            let child = fork(u, "child", |_| {});
            assert_eq!(u.wait(), Ok(child));
            let misses = counted(u, run_small).icache_misses;
            // Which lines exactly depends on the frames that the child got.
            let coloured = u.machine().board().colours > 1;
            assert!(
                misses == 1024 / 32 || coloured && misses > 20,
                "{name}: fork and exit pushed the user out: {misses}"
            );
        });
    }
}

#[test]
fn a_user_run_is_translated_page_by_page() {
    for name in MACHINES {
        run(name, Schedule::Timed, sf_buf(64), move |u| {
            let bytes = u.machine().board().instruction_bytes as usize;
            let at = text(u, 3 * PAGE_SIZE);
            let all = || u.execute_at(at + 100, Instructions((2 * PAGE_SIZE / bytes) as u32));
            let cold = counted(u, all);
            assert!(cold.fetch_misses >= 3, "{name}: three pages, {cold:?}");
            let warm = counted(u, all);
            assert_eq!((warm.fetch_lookups, warm.fetch_misses), (3, 0), "{name}");
            u.protect(at, 3 * PAGE_SIZE, Prot::READ).expect("permitted");
            u.protect(at, 3 * PAGE_SIZE, Prot::READ | Prot::EXECUTE).expect("permitted");
            all();
            assert!(!u.is_killed(), "{name}");
        });
    }
}

/// The accesses that killed processes on the machine `name`.
fn killed_by(name: &str, program: impl FnOnce(&U) + 'static) -> Vec<(Va, Access)> {
    let ended = run(name, Schedule::Timed, sf_buf(64), program);
    let kernel = ended.kernel.expect("it booted");
    kernel.killed().iter().map(|k| (k.trap.va, k.trap.access)).collect()
}

#[test]
fn a_process_that_executes_what_it_must_not_is_killed() {
    for name in MACHINES {
        let nowhere = Va(0x5000_0000);
        assert_eq!(
            killed_by(name, move |u| u.execute_at(nowhere, Instructions(1))),
            [(nowhere, Access::Fetch)]
        );
        let data = killed_by(name, |u| {
            let at = map(u, PAGE_SIZE);
            u.execute_at(at, Instructions(1));
            assert!(u.is_killed());
            u.execute_at(at, Instructions(1));
        });
        assert_eq!(data.len(), 1, "{name}: memory that is not to be executed");
        let kernel = killed_by(name, |u| {
            let base = u.machine().board().layout.kernel_base;
            u.execute_at(base, Instructions(1));
            assert!(u.is_killed());
        });
        assert_eq!(kernel.len(), 1, "{name}: the kernel's memory");
        let behind = killed_by(name, |u| {
            let at = text(u, PAGE_SIZE);
            u.execute_at(at, Instructions(8));
            assert!(!u.is_killed());
            u.unmap(at, PAGE_SIZE).expect("mapped");
            u.execute_at(at, Instructions(8));
            assert!(u.is_killed());
        });
        assert_eq!(behind.len(), 1, "{name}: what was unmapped");
    }
}

#[test]
fn a_machine_that_describes_neither_takes_no_notice() {
    if other_kind().is_some() {
        return;
    }
    let times = |place: bool| {
        run("xeon-mp", Schedule::Timed, sf_buf(64), move |u| {
            let child = fork(u, "child", |u| u.compute(Instructions(5000)));
            match place {
                true => u.execute_at(Va(0x10), Instructions(7000)),
                false => u.compute(Instructions(7000)),
            }
            assert_eq!(u.wait(), Ok(child));
        })
        .m
        .snapshot()
    };
    let snapshot = times(true);
    assert_eq!(snapshot, times(false));
    assert_eq!((snapshot.hardware.fetch_lookups, snapshot.hardware.icache_lookups), (0, 0));
}
