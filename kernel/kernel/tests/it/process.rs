//! Processes, threads and memory: scheduling, fork, exit, wait, faults, killed processes.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::Inherit;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[test]
fn a_process_runs_and_is_gone() {
    for (what, name, config) in kernels() {
        let ran = Rc::new(Cell::new(false));
        let saw = ran.clone();
        run(name, Schedule::Timed, config, move |u| {
            let at = map(u, 3 * PAGE_SIZE);
            u.store(at + 100, &bytes(1, 0, 9000));
            let mut buf = vec![0; 9000];
            u.load(at + 100, &mut buf);
            assert_eq!(buf, bytes(1, 0, 9000), "{what}");
            u.unmap(at, 3 * PAGE_SIZE).unwrap();
            saw.set(true);
        });
        assert!(ran.get());
    }
}

#[test]
fn a_kernel_without_processes_stops() {
    let m = machine("xeon-mp-htt", Schedule::Timed);
    m.run(Box::new(|m| {
        let kernel = Kernel::boot(m.clone(), m.devices(), sf_buf(8)).unwrap();
        let end = kernel.run();
        kernel.check_quiescent().unwrap();
        end
    }))
    .unwrap();
    m.snapshot().check().unwrap();
}

#[test]
fn a_tree_of_processes_on_all_cpus() {
    for seed in 0..40 {
        let name = ["xeon-up", "xeon-mp", "xeon-mp-htt", "opteron-mp"][seed as usize % 4];
        let exits = Rc::new(Cell::new(0));
        let count = exits.clone();
        run(name, Schedule::Seeded(seed), sf_buf(8), move |u| {
            let at = map(u, PAGE_SIZE);
            for i in 0..3u8 {
                let count = count.clone();
                fork(u, "child", move |u| {
                    u.store(at, &[i]);
                    for j in 0..2u8 {
                        let count = count.clone();
                        fork(u, "grandchild", move |u| {
                            let mut b = [0];
                            u.load(at, &mut b);
                            assert_eq!(b, [i], "inherited from the parent");
                            u.store(at, &[j]);
                            count.set(count.get() + 1);
                        });
                    }
                    // One is waited for, the other is left to itself.
                    u.wait().unwrap();
                    let mut b = [9];
                    u.load(at, &mut b);
                    assert_eq!(b, [i], "copy-on-write");
                    count.set(count.get() + 1);
                });
            }
            for _ in 0..3 {
                u.wait().unwrap();
            }
            assert_eq!(u.wait(), Err(Errno::NoChild));
            let mut b = [7];
            u.load(at, &mut b);
            assert_eq!(b, [0]);
        });
        assert_eq!(exits.get(), 9, "seed {seed}");
    }
}

#[test]
fn shared_memory_is_shared_and_copies_are_not() {
    for seed in 0..20 {
        run("xeon-mp", Schedule::Seeded(seed), sf_buf(8), |u| {
            let shared = u.map(PAGE_SIZE, Prot::RW, Inherit::Share).unwrap();
            let copied = map(u, PAGE_SIZE);
            u.store(shared, b"before");
            u.store(copied, b"before");
            fork(u, "child", move |u| {
                u.store(shared, b"after!");
                u.store(copied, b"after!");
            });
            u.wait().unwrap();
            let mut buf = [[0; 6]; 2];
            u.load(shared, &mut buf[0]);
            u.load(copied, &mut buf[1]);
            assert_eq!(buf, [*b"after!", *b"before"]);
        });
    }
}

#[test]
fn wait_sleeps_until_a_child_exits() {
    run("xeon-mp", Schedule::Timed, sf_buf(8), |u| {
        let child = fork(u, "child", |u| (0..100).for_each(|_| u.compute(Instructions(1000))));
        assert_eq!(u.wait(), Ok(child));
    });
}

#[test]
fn a_signal_ends_a_wait() {
    for seed in 0..30 {
        run("xeon-mp", Schedule::Seeded(seed), sf_buf(8), |u| {
            let parent = u.pid();
            let child = fork(u, "child", move |u| {
                until_asleep(u, parent);
                u.signal(parent).unwrap();
            });
            let first = u.wait();
            assert_eq!(first, Err(Errno::Interrupted));
            assert_eq!(u.signals_taken(), 1);
            assert_eq!(u.wait(), Ok(child));
            assert_eq!(u.signal(child), Err(Errno::NoProcess), "it is gone");
        });
    }
}

#[test]
fn a_bad_address_kills_and_ties_the_hands() {
    let ended = run("xeon-mp", Schedule::Timed, sf_buf(8), |u| {
        let child = fork(u, "culprit", |u| {
            let at = map(u, PAGE_SIZE);
            u.store(at, b"fine");
            let mut buf = [1; 8];
            u.load(at + (PAGE_SIZE - 4), &mut buf);
            assert!(u.is_killed());
            assert_eq!(buf, [0; 8]);
            u.store(at, b"gone");
            assert_eq!(u.map(PAGE_SIZE, Prot::RW, Inherit::Copy), Err(Errno::Killed));
            assert_eq!(u.pipe(), Err(Errno::Killed));
        });
        assert_eq!(u.wait(), Ok(child), "its parent learns of it");
    });
    let killed = ended.kernel.unwrap().killed();
    assert_eq!(killed.len(), 1);
    assert_eq!((killed[0].name.as_str(), killed[0].trap.access), ("culprit", Access::Read));
}

#[test]
fn a_store_to_read_only_memory_kills() {
    let ended = run("xeon-up", Schedule::Timed, sf_buf(8), |u| {
        let at = u.map(PAGE_SIZE, Prot::READ, Inherit::Copy).unwrap();
        u.load(at, &mut [0; 4]);
        u.store(at, b"no");
        assert!(u.is_killed());
    });
    assert_eq!(ended.kernel.unwrap().killed()[0].trap.access, Access::Write);
}

#[test]
fn kernel_addresses_are_out_of_reach() {
    run("opteron-mp", Schedule::Timed, sf_buf(8), |u| {
        let (r, w) = u.pipe().unwrap();
        let layout = isa::x86::AMD64_LAYOUT;
        for bad in [layout.kernel_base, layout.user_end, Va(u64::MAX - 10), Va(0)] {
            assert_eq!(u.write(w, bad, 100), Err(Errno::Fault), "{bad:?}");
            assert_eq!(u.read(r, bad, 100), Err(Errno::Fault), "{bad:?}");
        }
    });
}

/// Two that compute without ever sleeping share one CPU by quanta.
#[test]
fn quanta_share_a_cpu() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    let mut config = sf_buf(8);
    config.sched.quantum_cycles = Cycles(50_000);
    config.sched.tick_cycles = Cycles(25_000);
    run("xeon-up", Schedule::Timed, config, move |u| {
        for name in ["a", "b"] {
            let order = order.clone();
            fork(u, name, move |u| {
                for _ in 0..80 {
                    u.compute(Instructions(10_000));
                    order.borrow_mut().push(name);
                }
            });
        }
    });
    let seen = seen.borrow();
    let changes = seen.windows(2).filter(|w| w[0] != w[1]).count();
    assert!(changes > 10, "{changes} changes");
}

/// The same run, twice: the same numbers to the last digit.
#[test]
fn runs_repeat_themselves() {
    let once = |schedule| {
        let ended = run("xeon-mp-htt", schedule, original(), |u| {
            let (r, w) = u.pipe().unwrap();
            let at = map(u, 1 << 16);
            fork(u, "writer", move |u| write_all(u, w, at, 40_000, 3, 300_000));
            u.close(w).unwrap();
            assert_eq!(read_all(u, r, at, 50_000, usize::MAX).len(), 300_000);
        });
        ended.m.snapshot()
    };
    for schedule in [Schedule::Timed, Schedule::Seeded(7)] {
        assert_eq!(once(schedule), once(schedule));
    }
}

#[test]
fn what_cannot_be_booted() {
    if other_kind().is_some() {
        return; // What fits is said of the machines that are named.
    }
    let error = |name: &str, config: KernelConfig| {
        let found = Rc::new(RefCell::new(None));
        let result = found.clone();
        machine(name, Schedule::Timed)
            .run(Box::new(move |m| {
                result.replace(Kernel::boot(m.clone(), m.devices(), config).err());
                None
            }))
            .expect("no panic");
        found.take().map(|e| e.to_string())
    };
    assert!(error("xeon-up", sf_buf(0)).unwrap().contains("at least one entry"));
    let direct = with_scheme(pageferry_ephemeral::Scheme::Direct);
    assert!(error("xeon-up", direct).unwrap().contains("no direct map"));
    let mut odd = sf_buf(8);
    odd.pipe.buffer_bytes = 5000;
    assert!(error("xeon-up", odd).unwrap().contains("whole pages"));
    let mut large = sf_buf(8);
    large.pmap.arena_bytes = 64 << 20;
    assert!(error("xeon-up", large).is_some(), "no room for the rest");
    let mut small = sf_buf(8);
    small.pmap.arena_bytes = 4096;
    assert_eq!(error("opteron-mp", small).map(|e| e.is_empty()), Some(false));
    assert_eq!(error("opteron-mp", sf_buf(8)), None);
}
