//! Threads: sleeping, waking, pinning, signals, idle CPUs; and ephemeral mappings that are waited for.

use crate::common::*;
use pageferry_ephemeral::{AllocError, Flags, MappingUser};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::{ModelLock, RunError, Schedule};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const HERE: Channel = Channel(0x1234_5600);
const THERE: Channel = Channel(0x1234_6600);

/// Sleeps on `channel` with nothing to release.
fn sleep(u: &U, channel: Channel, interruptible: bool) -> Result<(), Interrupted> {
    let mut released = 0;
    let result = u.thread().sleep(channel, "test", interruptible, &mut || released += 1);
    assert_eq!(released, 1, "what the caller holds is released once");
    result
}

#[test]
fn sleepers_wake_in_the_order_of_their_sleep() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    run("xeon-up", Schedule::Timed, sf_buf(4), move |u| {
        let mut pids = Vec::new();
        for i in 0..4 {
            let order = order.clone();
            let pid = fork(u, "sleeper", move |u| {
                sleep(u, HERE, false).unwrap();
                order.borrow_mut().push(i);
            });
            until_asleep(u, pid);
            pids.push(pid);
        }
        assert_eq!(u.thread().wakeup(Channel(HERE.0 + 1)), 0, "no thread sleeps there");
        assert!(u.thread().wakeup_one(HERE));
        u.wait().unwrap();
        assert_eq!(*order.borrow(), [0]);
        assert_eq!(u.thread().wakeup(HERE), 3);
        assert!(!u.thread().wakeup_one(HERE));
    });
    assert_eq!(*seen.borrow(), [0, 1, 2, 3]);
}

/// On one CPU, who runs last runs when nobody else can, woken or not.
#[test]
fn who_runs_last_waits_for_all_others() {
    run("xeon-up", Schedule::Timed, sf_buf(4), |u| {
        let rounds = Rc::new(Cell::new(0));
        let over = Rc::new(Cell::new(false));
        let (its, ends) = (rounds.clone(), over.clone());
        fork(u, "last", move |u| {
            u.run_last(true).unwrap();
            while !ends.get() {
                its.set(its.get() + 1);
                u.yield_now().unwrap();
            }
        });
        u.sleep_for(Cycles(60_000_000)).unwrap();
        let before = rounds.get();
        assert!(before > 10, "{before} rounds while nobody else could run");
        for _ in 0..50 {
            // Longer than its quantum, with all that clock interrupts do.
            u.compute(Instructions(10_000_000));
            u.yield_now().unwrap();
        }
        assert_eq!(rounds.get(), before, "it has run beside another");
        u.sleep_for(Cycles(60_000_000)).unwrap();
        assert!(rounds.get() > before);
        over.set(true);
        u.wait().unwrap();
    });
}

/// A thread that only this CPU may run, and one that any may, wait on two queues: who has waited longer goes first.
#[test]
fn of_two_queues_who_has_waited_longer_goes_first() {
    run("xeon-up", Schedule::Timed, sf_buf(4), |u| {
        let order = Rc::new(RefCell::new(Vec::new()));
        for (name, cpu) in [("bound", Some(CpuId(0))), ("free", None)] {
            let order = order.clone();
            fork(u, name, move |u| {
                u.bind_cpu(cpu).unwrap();
                for _ in 0..20 {
                    order.borrow_mut().push(name);
                    u.yield_now().unwrap();
                }
            });
        }
        u.wait().unwrap();
        u.wait().unwrap();
        let order = order.borrow();
        assert_eq!(order.len(), 40);
        // One of them may have begun before the other was there.
        let again = order.windows(2).filter(|two| two[0] == two[1]).count();
        assert!(again <= 1, "{order:?}");
    });
}

/// A wakeup between the entry into the sleep queue and the switch is not lost.
#[test]
fn no_wakeup_is_lost() {
    for seed in 0..200 {
        let name = ["xeon-mp", "xeon-mp-htt"][seed as usize % 2];
        run(name, Schedule::Seeded(seed), sf_buf(4), move |u| {
            // Two hand a token to and fro, each sleeping until it has it; the token is under a lock of the machine.
            let token = Rc::new(u.machine().new_lock(LockClass::PIPE, 0u32));
            let play = move |u: &U, token: &ModelLock<u32>, mine: u32| {
                for _ in 0..30 {
                    let mut held = token.lock();
                    while *held % 2 != mine {
                        let mut guard = Some(held);
                        u.thread().sleep(HERE, "token", false, &mut || drop(guard.take())).unwrap();
                        held = token.lock();
                    }
                    *held += 1;
                    u.thread().wakeup(HERE);
                }
            };
            let other = token.clone();
            fork(u, "partner", move |u| play(u, &other, 1));
            play(u, &token, 0);
            u.wait().unwrap();
            assert_eq!(*token.lock(), 60);
        });
    }
}

#[test]
fn a_pinned_thread_comes_back_to_its_cpu() {
    for seed in 0..60 {
        let name = ["xeon-mp", "xeon-mp-htt", "opteron-mp"][seed as usize % 3];
        let moved = Rc::new(Cell::new(0));
        let result = moved.clone();
        run(name, Schedule::Seeded(seed), sf_buf(4), move |u| {
            let done = Rc::new(Cell::new(0));
            for i in 0..5u64 {
                let (moved, done) = (moved.clone(), done.clone());
                fork(u, "pinned", move |u| {
                    let t = u.thread();
                    for round in 0..20 {
                        t.pin();
                        let cpu = u.machine().cpu();
                        sleep(u, Channel(HERE.0 + i), false).unwrap();
                        assert_eq!(u.machine().cpu(), cpu, "seed {seed}, round {round}");
                        t.unpin();
                        sleep(u, Channel(HERE.0 + i), false).unwrap();
                        moved.set(moved.get() + usize::from(u.machine().cpu() != cpu));
                    }
                    done.set(done.get() + 1);
                });
            }
            while done.get() < 5 {
                for i in 0..5 {
                    u.thread().wakeup(Channel(HERE.0 + i));
                }
                u.yield_now().unwrap();
            }
        });
        if seed > 3 {
            assert!(result.get() > 0, "seed {seed}: the unpinned sleeps move about");
        }
    }
}

#[test]
fn nested_pins() {
    run("xeon-mp", Schedule::Timed, sf_buf(4), |u| {
        let t = u.thread();
        t.pin();
        t.pin();
        t.unpin();
        assert!(t.is_pinned());
        t.unpin();
        assert!(!t.is_pinned());
    });
    let ended = try_run("xeon-mp", Schedule::Timed, sf_buf(4), |u| u.thread().unpin());
    assert!(matches!(ended.result, Err(RunError::Panicked(text)) if text.contains("more often")));
}

/// A sleep with a spin lock held is found out by the machine.
#[test]
fn sleeping_with_a_spin_lock_is_a_bug() {
    let ended = try_run("xeon-mp", Schedule::Timed, sf_buf(4), |u| {
        let lock = u.machine().new_lock(LockClass::PIPE, ());
        let _held = lock.lock();
        let _ = sleep(u, HERE, true);
    });
    assert!(matches!(ended.result, Err(RunError::Panicked(text)) if text.contains("while it holds")));
}

#[test]
fn signals_end_interruptible_sleeps_only() {
    for seed in 0..40 {
        run("xeon-mp", Schedule::Seeded(seed), sf_buf(4), |u| {
            let deaf = fork(u, "deaf", |u| assert_eq!(sleep(u, HERE, false), Ok(())));
            let keen = fork(u, "keen", |u| {
                assert_eq!(sleep(u, HERE, true), Err(Interrupted));
                assert_eq!(sleep(u, HERE, true), Err(Interrupted), "pending until the return to user mode");
                u.yield_now().unwrap();
                assert_eq!(u.signals_taken(), 1);
            });
            until_asleep(u, deaf);
            until_asleep(u, keen);
            u.signal(deaf).unwrap();
            u.signal(keen).unwrap();
            assert_eq!(u.wait(), Ok(keen));
            assert!(u.kernel().is_asleep(deaf));
            u.thread().wakeup(HERE);
            assert_eq!(u.wait(), Ok(deaf));
        });
    }
}

/// One wakeup on a machine with three idle CPUs: one interrupt, or one for each, as configured.
#[test]
fn wakeups_interrupt_idle_cpus() {
    for (forward, expected) in [(ForwardWakeup::One, 1), (ForwardWakeup::All, 3), (ForwardWakeup::Last, 1)] {
        let mut config = sf_buf(4);
        config.sched.forward = forward;
        run("xeon-mp-htt", Schedule::Timed, config, move |u| {
            let pid = fork(u, "sleeper", |u| sleep(u, HERE, false).unwrap());
            until_asleep(u, pid);
            (0..200).for_each(|_| u.compute(Instructions(1000)));
            let ipis = || u.machine().snapshot().counter(KernelCounter::ReschedIpis);
            let before = ipis();
            u.thread().wakeup(HERE);
            assert_eq!(ipis() - before, expected);
            u.wait().unwrap();
        });
    }
}

/// A woken thread goes back to the CPU that it ran on last, or to the idle one with the lowest number, as configured.
#[test]
fn woken_threads_stay_on_their_cpu_or_do_not() {
    for (forward, stays) in [(ForwardWakeup::Last, true), (ForwardWakeup::One, false)] {
        // On which CPU the second begins depends on how long the first computes.
        if !stays && other_kind().is_some() {
            continue;
        }
        let mut config = sf_buf(4);
        config.sched.forward = forward;
        let ran_on = Rc::new(RefCell::new(Vec::new()));
        let seen = ran_on.clone();
        run("xeon-mp-htt", Schedule::Timed, config, move |u| {
            // The first has an idle CPU when the second is begun: that gets another, and then both are idle.
            let first = fork(u, "first", |u| {
                (0..20_000).for_each(|_| u.compute(Instructions(100)));
                sleep(u, HERE, false).unwrap();
            });
            let second = fork(u, "second", move |u| {
                ran_on.borrow_mut().push(u.machine().cpu());
                sleep(u, THERE, false).unwrap();
                ran_on.borrow_mut().push(u.machine().cpu());
            });
            until_asleep(u, second);
            until_asleep(u, first);
            u.thread().wakeup(THERE);
            assert_eq!(u.wait(), Ok(second));
            u.thread().wakeup(HERE);
            assert_eq!(u.wait(), Ok(first));
        });
        let seen = seen.borrow();
        assert_eq!(seen[0] == seen[1], stays, "{forward:?}: {seen:?}");
    }
}

/// Two that wake each other stay where they are, though one is often woken while its CPU is on the way into its idle
/// context: that CPU has nothing else to run. Otherwise the waker's takes it, and the two swap.
#[test]
fn a_thread_that_is_woken_on_its_way_out_keeps_its_cpu() {
    let mut config = sf_buf(4);
    config.sched.forward = ForwardWakeup::Last;
    let ran_on = Rc::new(RefCell::new([CpuSet::EMPTY; 2]));
    let seen = ran_on.clone();
    run("xeon-mp", Schedule::Timed, config, move |u| {
        let (to_child, from_parent) = (u.pipe().unwrap(), u.pipe().unwrap());
        let ((there, to), (back, from)) = (to_child, from_parent);
        let at = map(u, PAGE_SIZE);
        let child_ran_on = ran_on.clone();
        let child = fork(u, "child", move |u| {
            for round in 0..400 {
                u.read(there, at, 1).unwrap();
                u.write(from, at, 1).unwrap();
                // Each comes at another point of the other's way to sleep.
                u.compute(Instructions(37 * round % 4000));
                if round > 0 {
                    child_ran_on.borrow_mut()[1].insert(u.machine().cpu());
                }
            }
        });
        for round in 0..400 {
            u.write(to, at, 1).unwrap();
            u.compute(Instructions(53 * round % 4000));
            u.read(back, at, 1).unwrap();
            if round > 0 {
                ran_on.borrow_mut()[0].insert(u.machine().cpu());
            }
        }
        assert_eq!(u.wait(), Ok(child));
    });
    let seen = seen.borrow();
    assert_eq!(seen.map(CpuSet::len), [1, 1], "{seen:?}");
}

/// On one CPU the woken thread runs when its waker returns to user mode: it has slept in the kernel, the other has not.
#[test]
fn the_woken_runs_before_its_waker_goes_on() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    run("xeon-up", Schedule::Timed, sf_buf(4), move |u| {
        let (r, w) = u.pipe().unwrap();
        let at = map(u, PAGE_SIZE);
        let woken = order.clone();
        let reader = fork(u, "reader", move |u| {
            u.read(r, at, 10).unwrap();
            woken.borrow_mut().push("reader");
        });
        until_asleep(u, reader);
        u.write(w, at, 10).unwrap();
        order.borrow_mut().push("writer");
    });
    assert_eq!(*seen.borrow(), ["reader", "writer"]);
}

/// More threads than buffers, some with signals on their way: everyone gets a mapping or an honest error, what it reads
/// is right, nothing stays held, no thread sleeps for ever.
#[test]
fn threads_wait_for_ephemeral_mappings() {
    let moved = Rc::new(Cell::new(0));
    for seed in 0..60 {
        let moved = moved.clone();
        let name = ["xeon-up", "xeon-mp", "xeon-mp-htt", "opteron-mp"][seed as usize % 4];
        run(name, Schedule::Seeded(seed), sf_buf(2), move |u| {
            let kernel = u.kernel();
            let memory = kernel.vm().kernel_alloc(6).unwrap();
            for i in 0..6u8 {
                let at = memory.va() + usize::from(i) * PAGE_SIZE;
                u.machine().store(Mode::Kernel, at, &[i; 64]).unwrap();
            }
            let frames = memory.frames().to_vec();
            let mut pids = Vec::new();
            for i in 0..5usize {
                let (frames, moved) = (frames.clone(), moved.clone());
                pids.push(fork(u, "user", move |u| {
                    let (ephemeral, t) = (u.kernel().ephemeral(), u.thread());
                    for round in 0..12 {
                        let n = (i + round * (i + 1)) % 6;
                        let private = round % 3 != 0;
                        let mut flags = if private { Flags::PRIVATE } else { Flags::empty() };
                        if round % 2 == 0 {
                            flags |= Flags::INTERRUPTIBLE;
                        }
                        if private {
                            t.pin();
                        }
                        match ephemeral.alloc(t, frames[n], MappingUser::Other, flags) {
                            Ok(mapping) => {
                                let mut buf = [0; 64];
                                u.machine().load(Mode::Kernel, ephemeral.kva(&mapping), &mut buf).unwrap();
                                assert_eq!(buf, [n as u8; 64], "seed {seed}");
                                // Some hold theirs over a sleep, so that others must wait.
                                if round % 4 == 0 {
                                    let cpu = u.machine().cpu();
                                    t.yield_now();
                                    let stays = u.machine().cpu() == cpu;
                                    assert!(stays || !private, "seed {seed}: a pinned thread moves");
                                    moved.set(moved.get() + u32::from(!stays));
                                }
                                u.machine().load(Mode::Kernel, ephemeral.kva(&mapping), &mut buf).unwrap();
                                assert_eq!(buf, [n as u8; 64], "seed {seed}, after a switch");
                                ephemeral.free(t, mapping);
                            }
                            Err(e) => {
                                assert_eq!(e, AllocError::Interrupted);
                                assert!(flags.contains(Flags::INTERRUPTIBLE));
                            }
                        }
                        if private {
                            t.unpin();
                        }
                        u.yield_now().unwrap();
                    }
                }));
            }
            for pid in pids.iter().cycle().take(20) {
                let _ = u.signal(*pid);
                u.yield_now().unwrap();
            }
            (0..5).for_each(|_| while u.wait() == Err(Errno::Interrupted) {});
            kernel.ephemeral().check().unwrap();
            kernel.vm().kernel_free(memory);
        });
    }
    assert!(moved.get() > 0, "no thread moved to another CPU with a mapping");
}

/// Processes that are bound run where they are bound to, whatever else there is to run, and no longer than they are.
#[test]
fn a_bound_process_runs_where_it_is_bound() {
    for seed in 0..40 {
        run("xeon-mp-htt", Schedule::Seeded(seed), sf_buf(4), move |u| {
            let cpus = u.machine().cpus().len() as u8;
            assert_eq!(u.bind_cpu(Some(CpuId(cpus))), Err(Errno::Invalid));
            for cpu in 0..cpus {
                fork(u, "bound", move |u| {
                    u.bind_cpu(Some(CpuId(cpu))).unwrap();
                    for round in 0..10 {
                        assert_eq!(u.machine().cpu(), CpuId(cpu), "in round {round}");
                        u.thread().yield_now();
                        u.null_call().unwrap();
                    }
                    let other = CpuId((cpu + 1) % cpus);
                    u.bind_cpu(Some(other)).unwrap();
                    assert_eq!(u.machine().cpu(), other);
                    u.bind_cpu(None).unwrap();
                    u.null_call().unwrap();
                });
            }
            for _ in 0..cpus {
                u.wait().unwrap();
            }
        });
    }
}
