//! Threads that cross into servers: where they run, what they have there, and what becomes of them when one side dies.

use crate::common::*;
use crate::ispc::{PAGE, SERVICE, ant, check, load, on_sh4, until_served};
use crate::ispc_random::random_life;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_pmap::PmapCounter;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

fn migrating() -> KernelConfig {
    ant(Method::Migrating)
}

/// Serves until a signal comes.
fn serve(u: &U, service: u32, procedure: impl Fn(&U, &Inquiry) + 'static) {
    u.ispc_serve_by(service, Box::new(procedure)).unwrap();
    assert_eq!(u.ispc_receive(Wait::Yes), Err(Errno::Interrupted));
}

#[test]
fn a_thread_goes_and_comes_back_without_a_switch_or_a_sleep() {
    on_sh4(migrating(), |u| {
        let server = u.fork(
            "server",
            Box::new(|u| {
                let own = map(u, PAGE);
                u.store(own, b"server's");
                serve(u, SERVICE, move |u, request| {
                    assert_eq!(load(u, own, 8), b"server's", "its own memory");
                    let (at, len) = request.data.unwrap_or((request.control, 8));
                    let more: Vec<u8> = load(u, at, len).iter().map(|b| b.wrapping_add(1)).collect();
                    u.store(at, &more);
                    assert_eq!(u.ispc_return(request.id), Err(Errno::Access), "it returns by itself");
                    assert_eq!(u.ica_free(at), Err(Errno::Busy), "its maker gets it back");
                    check(u);
                });
            }),
        );
        let own = map(u, PAGE);
        u.store(own, b"client's");
        let [control, data] = [1, 2].map(|n| u.ica_alloc(n, Wait::Yes).unwrap());
        until_served(u, control);
        u.store(data, &bytes(5, 0, 2 * PAGE));
        let before = u.machine().snapshot();
        u.ispc_request(SERVICE, control, Some(data), Wait::Yes).unwrap();
        let spent = u.machine().snapshot().since(&before);
        for counter in [KernelCounter::Switches, KernelCounter::Sleeps, KernelCounter::Wakeups] {
            assert_eq!(spent.counter(counter), 0, "{counter:?}");
        }
        // The application's three pages, there and back; the server sees all.
        assert_eq!(spent.counter(PmapCounter::IcaAttachments), 3);
        assert_eq!(spent.counter(PmapCounter::IcaDetachments), 3);
        let expected: Vec<u8> = bytes(5, 0, 2 * PAGE).iter().map(|b| b.wrapping_add(1)).collect();
        assert!(load(u, data, 2 * PAGE) == expected);
        assert_eq!(load(u, own, 8), b"client's");
        assert_eq!(u.ispc_post(SERVICE, control, None), Err(Errno::NotSupported));
        assert_eq!(u.ispc_serve(SERVICE + 1), Err(Errno::NotSupported));
        assert_eq!(u.ispc_request(SERVICE + 1, control, None, Wait::Yes), Err(Errno::ConnectionRefused));
        u.signal(server.unwrap()).unwrap();
        u.wait().unwrap();
        assert_eq!(u.ispc_request(SERVICE, control, None, Wait::Yes), Err(Errno::ConnectionRefused));
        check(u);
    });
    on_sh4(ant(Method::Proposed), |u| {
        assert_eq!(u.ispc_serve_by(SERVICE, Box::new(|_, _| ())), Err(Errno::NotSupported));
    });
}

/// A chain of servers, each of which asks the next: the stack is as deep as it is long, and a circle is no deadlock.
#[test]
fn activations_stack() {
    on_sh4(migrating(), |u| {
        let deepest = Rc::new(Cell::new(0));
        let mut servers = Vec::new();
        for service in 0..4u32 {
            let deepest = deepest.clone();
            let server = move |u: &U| {
                serve(u, service, move |u, request| {
                    let depth = load(u, request.control, 1)[0];
                    deepest.set(deepest.get().max(depth));
                    u.store(request.control, &[depth + 1]);
                    if depth < 10 {
                        // The same pieces go on.
                        let data = request.data.map(|(at, _)| at);
                        u.ispc_request((service + 1) % 4, request.control, data, Wait::Yes).unwrap();
                    }
                    check(u);
                });
            };
            servers.push(u.fork("server", Box::new(server)).unwrap());
        }
        let [control, data] = [1, 1].map(|n| u.ica_alloc(n, Wait::Yes).unwrap());
        u.sleep_for(Cycles(10_000_000)).unwrap();
        u.store(data, b"all along");
        u.ispc_request(0, control, Some(data), Wait::Yes).unwrap();
        assert_eq!((deepest.get(), load(u, control, 1)[0]), (10, 11));
        assert_eq!(load(u, data, 9), b"all along");
        servers.into_iter().for_each(|server| u.signal(server).unwrap());
        (0..4).for_each(|_| _ = u.wait().unwrap());
    });
}

/// How a server ends while threads of three clients are inside.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    ByItsOwnThread,
    ByABadAccessInside,
    InTheMiddleOfAChain,
}

#[test]
fn a_server_that_dies_lets_out_who_is_inside() {
    for end in [End::ByItsOwnThread, End::ByABadAccessInside, End::InTheMiddleOfAChain] {
        let ended = on_sh4(migrating(), move |u| {
            let inside = Rc::new(Cell::new(0));
            let there = inside.clone();
            let server = move |u: &U| {
                serve(u, SERVICE, move |u, request| {
                    let which = there.get();
                    there.set(which + 1);
                    u.store(request.data.unwrap().0, b"half");
                    let chained = end == End::InTheMiddleOfAChain;
                    match which {
                        // The first, or the last, brings it down.
                        2 if end == End::ByABadAccessInside => u.store(Va(0x30), &[1]),
                        _ if chained => _ = u.ispc_request(SERVICE + 1, request.control, None, Wait::Yes),
                        _ => _ = u.sleep_for(Cycles(LONG)),
                    }
                    assert_eq!(u.null_call(), Err(Errno::Killed));
                    assert_eq!(load(u, request.control, 4), [0; 4], "never a byte");
                });
            };
            let server = u.fork("server", Box::new(server)).unwrap();
            let behind = |u: &U| serve(u, SERVICE + 1, |u, _| _ = u.sleep_for(Cycles(LONG)));
            let behind = u.fork("behind", Box::new(behind)).unwrap();
            u.sleep_for(Cycles(10_000_000)).unwrap();
            for _ in 0..3 {
                let client = |u: &U| {
                    let [control, data] = [1, 1].map(|n| u.ica_alloc(n, Wait::Yes).unwrap());
                    u.store(control, b"mine");
                    let error = u.ispc_request(SERVICE, control, Some(data), Wait::Yes);
                    assert_eq!(error, Err(Errno::ConnectionReset));
                    assert_eq!((load(u, control, 4), load(u, data, 4)), (b"mine".to_vec(), b"half".to_vec()));
                    u.store(data, b"mine again");
                    check(u);
                };
                u.fork("client", Box::new(client)).unwrap();
            }
            while inside.get() < 3 {
                u.sleep_for(Cycles(1_000_000)).unwrap();
            }
            check(u);
            if end != End::ByABadAccessInside {
                u.signal(server).unwrap();
            }
            let began = u.machine().now().0;
            (0..4).for_each(|_| assert_ne!(u.wait().unwrap(), behind));
            assert!(u.machine().now().0 - began < LONG / 2, "their sleeps have ended");
            u.signal(behind).unwrap();
            u.wait().unwrap();
            check(u);
        });
        let killed = ended.kernel.as_ref().unwrap().killed().len();
        assert_eq!(killed, usize::from(end == End::ByABadAccessInside));
    }
}

const LONG: u64 = 300_000_000;

/// Its maker is a server, too, and dies of another's bad access while its own thread is inside the next.
#[test]
fn a_caller_that_is_killed_inside_ends_when_it_comes_back() {
    let ended = on_sh4(migrating(), |u| {
        let told = Rc::new(RefCell::new(Vec::new()));
        let slow = |u: &U| {
            serve(u, SERVICE + 1, |u, request| {
                u.store(request.control, b"done");
                u.sleep_for(Cycles(20_000_000)).unwrap();
                check(u);
            });
        };
        let slow = u.fork("slow", Box::new(slow)).unwrap();
        u.sleep_for(Cycles(5_000_000)).unwrap();
        let into = told.clone();
        let caller = move |u: &U| {
            u.ispc_serve_by(SERVICE, Box::new(|u, _| u.store(Va(0x40), &[1]))).unwrap();
            let control = u.ica_alloc(1, Wait::Yes).unwrap();
            let result = u.ispc_request(SERVICE + 1, control, None, Wait::Yes);
            into.borrow_mut().push((u.is_killed(), result, load(u, control, 4), u.null_call()));
        };
        u.fork("caller", Box::new(caller)).unwrap();
        u.sleep_for(Cycles(5_000_000)).unwrap();
        let control = u.ica_alloc(1, Wait::Yes).unwrap();
        assert_eq!(u.ispc_request(SERVICE, control, None, Wait::Yes), Err(Errno::ConnectionReset));
        assert_eq!(u.ispc_request(SERVICE, control, None, Wait::Yes), Err(Errno::ConnectionRefused));
        assert!(told.borrow().is_empty(), "its thread is still inside");
        u.wait().unwrap();
        let (killed, result, found, call) = told.borrow_mut().pop().unwrap();
        assert!(killed && result == Ok(()) || result == Err(Errno::Killed), "{result:?}");
        assert_eq!((found, call), (vec![0; 4], Err(Errno::Killed)));
        u.signal(slow).unwrap();
        u.wait().unwrap();
        check(u);
    });
    assert_eq!(ended.kernel.as_ref().unwrap().killed().len(), 1);
}

/// The same by page tables, on machines whose TLB hardware fills, with one CPU and with several.
#[test]
fn random_programs_cross_by_page_tables() {
    for (name, schedule) in [
        ("pentium-pro", Schedule::Timed),
        ("ppc603", Schedule::Timed),
        ("xeon-mp", Schedule::Seeded(7)),
        ("today", Schedule::Seeded(8)),
    ] {
        let seeds: u64 = std::env::var("PAGEFERRY_SEEDS").ok().map_or(1, |s| s.parse().expect("a number"));
        for seed in 0..seeds {
            let config = KernelConfig { ispc: migrating().ispc, ..sf_buf(64) };
            let ended = try_run(name, schedule, config, random_life(seed, 25));
            sound(&ended, &format!("{name}, seed {seed}"));
        }
    }
}
