//! Communication by the common area: what is attached to whom, and when.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::testing::small;
use pageferry_model::{Model, Options, Schedule};
use pageferry_pmap::{AreaPaths, EntryChoice, PmapCounter};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub const SERVICE: u32 = 7;

const fn n(instructions: u32) -> CodePath {
    CodePath::of(instructions)
}

/// The microkernel of the paper, in small.
pub fn ant(method: Method) -> KernelConfig {
    let mut config = with_scheme(pageferry_ephemeral::Scheme::Direct);
    config.ispc = Some(IspcConfig {
        method,
        len_bytes: 1 << 20,
        reserved: 32,
        server_entries: 8,
        server_page_bytes: 1 << 20,
        piece_page_bytes: PAGE_SIZE,
        large_pieces: false,
        searches: true,
        pieces: 256,
        files: None,
        net: None,
        paths: IspcPaths {
            call: n(45),
            queue: n(15),
            ica: n(25),
            entry: n(10),
            cross: n(35),
            card_send: n(300),
            card_interrupt: n(100),
        },
        area_paths: AreaPaths { wire: n(14), unwire: n(6), table: n(15), bounds: n(4) },
        defect: Planted::NONE,
        area_defect: Planted::NONE,
    });
    if method != Method::Random {
        config.pmap.choice = EntryChoice::UnusedFirst;
    }
    config
}

/// That microkernel with a file server.
pub fn ant_with_files(method: Method, defect: Planted<FileServiceDefect>) -> KernelConfig {
    let mut config = ant(method);
    let ispc = config.ispc.as_mut().expect("it has an area");
    ispc.files = Some(FileServiceConfig { data_pages: 2, defect });
    config
}

/// Machines, and the methods that there are on each.
pub fn served() -> Vec<(&'static str, Method)> {
    let anywhere = [Method::Random, Method::Migrating];
    let all = [Method::Random, Method::Previous, Method::Proposed, Method::Migrating];
    let mut served: Vec<_> = all.iter().map(|&method| ("sh7751r", method)).collect();
    served.extend(
        ["pentium-pro", "xeon-mp"].into_iter().flat_map(|name| anywhere.map(|method| (name, method))),
    );
    served
}

/// Runs a program under a kernel with a file server; on the paper's machine, or another that has no reserved entries.
pub fn try_served(
    name: &str,
    schedule: Schedule,
    method: Method,
    defect: Planted<FileServiceDefect>,
    init: impl FnOnce(&U) + 'static,
) -> Ended {
    let config = ant_with_files(method, defect);
    if name == "sh7751r" {
        return try_sh4_on(sh4(schedule, 8), config, init);
    }
    let config = KernelConfig { ispc: config.ispc, ..sf_buf(64) };
    try_run(name, schedule, config, init)
}

pub const METHODS: [Method; 3] = [Method::Random, Method::Previous, Method::Proposed];
pub const PAGE: usize = PAGE_SIZE;
/// More cycles than any of these tests takes: one that goes on and on has gone wrong.
const LIMIT: u64 = 1_000_000_000;

/// The paper's machine, whatever kind other tests run on; with tags of so many bits.
pub fn sh4(schedule: Schedule, asid_bits: u64) -> Model {
    let mut config = small("sh7751r", 64);
    config.mmu.asid_bits.as_mut().expect("it has tags").value = asid_bits;
    let options = Options::new(schedule).tolerate_stale().spin_limit(1_000_000).cycle_limit(Cycles(LIMIT));
    Model::new(&config, options).expect("a valid machine")
}

pub fn try_sh4(config: KernelConfig, asid_bits: u64, init: impl FnOnce(&U) + 'static) -> Ended {
    try_sh4_on(sh4(Schedule::Timed, asid_bits), config, init)
}

pub fn try_sh4_on(m: Model, config: KernelConfig, init: impl FnOnce(&U) + 'static) -> Ended {
    let kernel = Rc::new(RefCell::new(None));
    let booted = kernel.clone();
    let result = m.run(Box::new(move |m| {
        let kernel =
            pageferry_servers::boot(m.clone(), m.devices(), config).unwrap_or_else(|e| panic!("boot: {e}"));
        booted.replace(Some(kernel.clone()));
        kernel.spawn("init", Box::new(init)).expect("the first process");
        kernel.run()
    }));
    Ended { m, result, kernel: kernel.take() }
}

pub fn on_sh4(config: KernelConfig, init: impl FnOnce(&U) + 'static) -> Ended {
    let ended = try_sh4(config, 8, init);
    sound(&ended, "sh7751r");
    ended
}

/// On several CPUs another process may be in the middle of its end.
pub fn check(u: &U) {
    if u.machine().board().cpus == 1 {
        u.kernel().check().unwrap();
    }
}

pub fn load(u: &U, at: Va, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    u.load(at, &mut buf);
    buf
}

/// A server that adds one to each byte of the data, until its pieces say that it is to end.
fn adder(u: &U) {
    u.ispc_serve(SERVICE).unwrap();
    loop {
        let request = u.ispc_receive(Wait::Yes).unwrap();
        let what = load(u, request.control, 1)[0];
        if let Some((at, len)) = request.data {
            let more: Vec<u8> = load(u, at, len).iter().map(|b| b.wrapping_add(1)).collect();
            u.store(at, &more);
        }
        u.store(request.control, &[what, 0xaa]);
        check(u);
        u.ispc_return(request.id).unwrap();
        if what == 0 {
            return;
        }
    }
}

/// Waits until somebody serves.
pub fn until_served(u: &U, control: Va) {
    while u.ispc_request(SERVICE, control, None, Wait::Yes) == Err(Errno::ConnectionRefused) {
        u.yield_now().unwrap();
    }
}

#[test]
fn requests_go_and_come_back_with_their_pieces() {
    for method in METHODS {
        let ended = on_sh4(ant(method), |u| {
            u.fork("server", Box::new(adder)).unwrap();
            let control = u.ica_alloc(1, Wait::Yes).unwrap();
            let data = u.ica_alloc(2, Wait::Yes).unwrap();
            assert!(load(u, data, 2 * PAGE) == vec![0; 2 * PAGE], "clear");
            u.store(control, &[1]);
            until_served(u, control);
            u.store(data, &bytes(3, 0, 2 * PAGE));
            for round in 1..4u8 {
                if round % 2 == 0 {
                    u.ispc_request(SERVICE, control, Some(data), Wait::Yes).unwrap();
                } else {
                    let id = u.ispc_post(SERVICE, control, Some(data)).unwrap();
                    assert_eq!(u.ica_free(data), Err(Errno::Access), "on its way");
                    assert_eq!(u.ispc_result(Wait::Yes), Ok(Completed { id, outcome: Ok(()) }));
                }
                assert_eq!(u.ispc_result(Wait::Yes), Err(Errno::NoChild));
                let expected: Vec<u8> = bytes(3, 0, 2 * PAGE).iter().map(|b| b.wrapping_add(round)).collect();
                assert!(load(u, data, 2 * PAGE) == expected, "round {round}");
                assert_eq!(load(u, control, 2), [1, 0xaa]);
                check(u);
            }
            u.store(control, &[0]);
            u.ispc_request(SERVICE, control, None, Wait::Yes).unwrap();
            u.wait().unwrap();
            assert_eq!(u.ispc_request(SERVICE, control, None, Wait::Yes), Err(Errno::ConnectionRefused));
            u.ica_free(data).unwrap();
            assert_eq!(u.ica_free(data), Err(Errno::Invalid));
        });
        assert!(ended.kernel.unwrap().killed().is_empty());
    }
}

#[test]
fn what_is_not_attached_is_out_of_reach() {
    for method in METHODS {
        // Never attached; detached a moment ago; another's.
        for which in 0..3 {
            let ended = on_sh4(ant(method), move |u| {
                let other = u.ica_alloc(1, Wait::Yes).unwrap();
                u.store(other, &[77; PAGE]);
                u.fork(
                    "toucher",
                    Box::new(move |u| {
                        let own = u.ica_alloc(1, Wait::Yes).unwrap();
                        u.store(own, &[88; PAGE]);
                        let at = match which {
                            0 => own + 9 * PAGE,
                            1 => {
                                u.ica_free(own).unwrap();
                                own
                            }
                            _ => other,
                        };
                        assert_eq!(load(u, at, 8), [0; 8], "never a byte");
                        assert!(u.is_killed(), "{method:?} {which}");
                    }),
                )
                .unwrap();
                u.wait().unwrap();
                assert_eq!(load(u, other, PAGE), [77; PAGE]);
                check(u);
            });
            let killed = ended.kernel.as_ref().unwrap().killed();
            assert_eq!(killed.len(), 1);
            let kind = match method {
                Method::Random => TrapKind::NotPresent,
                // A miss in the area is the exception.
                _ => TrapKind::Protection,
            };
            assert_eq!(killed[0].trap.kind, kind, "{method:?} {which}");
        }
    }
}

/// The first drawback of 2.3: a server that sees all of the area can store to what another has. By the method
/// `previous`, and by page tables, it is killed for that.
#[test]
fn a_server_can_destroy_what_it_was_not_given_only_where_it_sees_all() {
    for method in [Method::Random, Method::Previous, Method::Proposed, Method::Migrating] {
        let ended = on_sh4(ant(method), move |u| {
            let kept = u.ica_alloc(1, Wait::Yes).unwrap();
            u.store(kept, &[5; PAGE]);
            let destroy = move |u: &U| {
                match u.ispc_crosses() {
                    true => u.ispc_serve_by(SERVICE, Box::new(|_, _| {})).unwrap(),
                    false => u.ispc_serve(SERVICE).unwrap(),
                }
                u.store(kept, &[6; 8]);
            };
            u.fork("server", Box::new(destroy)).unwrap();
            u.wait().unwrap();
            let destroyed = matches!(method, Method::Proposed | Method::Migrating);
            assert_eq!(load(u, kept, 8), [if destroyed { 6 } else { 5 }; 8], "{method:?}");
            check(u);
        });
        let killed = ended.kernel.as_ref().unwrap().killed().len();
        assert_eq!(killed, usize::from(matches!(method, Method::Random | Method::Previous)), "{method:?}");
    }
}

#[test]
fn the_area_is_nobodys_to_map() {
    on_sh4(ant(Method::Proposed), |u| {
        let own = u.ica_alloc(1, Wait::Yes).unwrap();
        assert_eq!(u.unmap(own, PAGE), Err(Errno::Invalid));
        assert!(u.protect(own, PAGE, Prot::READ).is_err());
        let (_, to) = u.pipe().unwrap();
        assert_eq!(u.write(to, own + PAGE, 1), Err(Errno::Fault), "a copy by the kernel gets no byte either");
    });
}

#[test]
fn entries_that_are_all_in_use_are_waited_for_or_refused() {
    for (method, max_pieces) in [(Method::Previous, 32), (Method::Proposed, 24)] {
        on_sh4(ant(method), move |u| {
            let pieces: Vec<Va> = (0..max_pieces).map(|_| u.ica_alloc(1, Wait::No).unwrap()).collect();
            assert_eq!(u.ica_alloc(1, Wait::No), Err(Errno::WouldBlock));
            for (i, &at) in pieces.iter().enumerate() {
                u.store(at, &[i as u8; PAGE]);
            }
            u.fork(
                "waiter",
                Box::new(|u| {
                    let at = u.ica_alloc(2, Wait::Yes).unwrap();
                    assert_eq!(load(u, at, 2 * PAGE), vec![0; 2 * PAGE]);
                }),
            )
            .unwrap();
            u.yield_now().unwrap();
            check(u);
            u.ica_free(pieces[0]).unwrap();
            u.yield_now().unwrap();
            u.ica_free(pieces[1]).unwrap();
            u.wait().unwrap();
            for (i, &at) in pieces.iter().enumerate().skip(2) {
                assert_eq!(load(u, at, PAGE), [i as u8; PAGE]);
            }
        });
    }
    // A page table has room for all of the area.
    on_sh4(ant(Method::Random), |u| {
        assert_eq!((0..250).filter(|_| u.ica_alloc(1, Wait::No).is_ok()).count(), 250);
    });
}

#[test]
fn a_server_that_dies_gives_back_what_it_was_given() {
    for method in METHODS {
        for takes in [0, 1, 2] {
            on_sh4(ant(method), move |u| {
                let server = move |u: &U| {
                    u.ispc_serve(SERVICE).unwrap();
                    for _ in 0..takes {
                        let request = u.ispc_receive(Wait::Yes).unwrap();
                        let at = request.data.unwrap().0;
                        u.store(at, b"half");
                    }
                    // Until the other requests are there, too.
                    u.sleep_for(Cycles(50_000_000)).unwrap();
                    if takes == 1 {
                        u.store(Va(0x10), &[1]);
                    }
                };
                u.fork("server", Box::new(server)).unwrap();
                u.sleep_for(Cycles(10_000_000)).unwrap();
                let [control, data] = [1, 1].map(|n| u.ica_alloc(n, Wait::Yes).unwrap());
                u.store(data, b"data");
                let client = move |u: &U| {
                    let [control, data] = [1, 1].map(|n| u.ica_alloc(n, Wait::Yes).unwrap());
                    let error = u.ispc_request(SERVICE, control, Some(data), Wait::Yes);
                    assert_eq!(error, Err(Errno::ConnectionReset));
                    u.store(data, b"mine again");
                    u.store(control, b"mine again");
                };
                u.fork("client", Box::new(client)).unwrap();
                let id = u.ispc_post(SERVICE, control, Some(data)).unwrap();
                let done = u.ispc_result(Wait::Yes).unwrap();
                assert_eq!(done, Completed { id, outcome: Err(Errno::ConnectionReset) });
                let expected: &[u8] = if takes > 0 { b"half" } else { b"data" };
                assert_eq!(load(u, data, 4), expected);
                u.wait().unwrap();
                u.wait().unwrap();
                check(u);
                // Its entries are free again: others can serve.
                for _ in 0..9 {
                    u.fork("next", Box::new(|u| u.ispc_serve(SERVICE).unwrap())).unwrap();
                    u.wait().unwrap();
                }
            });
        }
    }
}

/// A request that is being served when its maker ends is nobody's when it is answered.
#[test]
fn a_request_may_outlive_its_maker() {
    for method in METHODS {
        on_sh4(ant(method), |u| {
            let (taken, gone) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let (told, seen) = (taken.clone(), gone.clone());
            let server = move |u: &U| {
                u.ispc_serve(SERVICE).unwrap();
                let request = u.ispc_receive(Wait::Yes).unwrap();
                told.set(true);
                while !seen.get() {
                    u.yield_now().unwrap();
                }
                assert!(load(u, request.data.unwrap().0, PAGE) == vec![7; PAGE], "it is still there");
                u.ispc_return(request.id).unwrap();
                check(u);
            };
            let server = u.fork("server", Box::new(server)).unwrap();
            let maker = move |u: &U| {
                let (control, data) =
                    (u.ica_alloc(1, Wait::Yes).unwrap(), u.ica_alloc(1, Wait::Yes).unwrap());
                u.store(data, &[7; PAGE]);
                while u.ispc_post(SERVICE, control, Some(data)) == Err(Errno::ConnectionRefused) {
                    u.yield_now().unwrap();
                }
                while !taken.get() {
                    u.yield_now().unwrap();
                }
            };
            let maker = u.fork("maker", Box::new(maker)).unwrap();
            assert_eq!(u.wait(), Ok(maker));
            check(u);
            gone.set(true);
            assert_eq!(u.wait(), Ok(server));
            check(u);
        });
    }
}

#[test]
fn as_many_servers_as_there_are_entries_for() {
    let ended = on_sh4(ant(Method::Proposed), |u| {
        let refused = Rc::new(Cell::new(0));
        for service in 0..9 {
            let refused = refused.clone();
            let serve = move |u: &U| match u.ispc_serve(service) {
                Ok(()) => u.sleep_for(Cycles(200_000_000)).unwrap(),
                Err(error) => {
                    assert_eq!(error, Errno::WouldBlock);
                    refused.set(refused.get() + 1);
                }
            };
            u.fork("server", Box::new(serve)).unwrap();
        }
        (0..9).for_each(|_| _ = u.wait().unwrap());
        assert_eq!(refused.get(), 1);
    });
    assert!(ended.counter(PmapCounter::ReservedWrites) >= 16);
}

/// What one synchronous request with data and its return write and clear, by method: the steps of the paper.
#[test]
fn each_method_makes_the_steps_that_it_says() {
    let mut attached = Vec::new();
    for method in METHODS {
        let counts = Rc::new(RefCell::new(Vec::new()));
        let into = counts.clone();
        on_sh4(ant(method), move |u| {
            u.fork("server", Box::new(adder)).unwrap();
            let control = u.ica_alloc(1, Wait::Yes).unwrap();
            let data = u.ica_alloc(1, Wait::Yes).unwrap();
            u.store(control, &[1]);
            until_served(u, control);
            let before = u.machine().snapshot();
            u.ispc_request(SERVICE, control, Some(data), Wait::Yes).unwrap();
            let spent = u.machine().snapshot().since(&before);
            let counters =
                [PmapCounter::IcaAttachments, PmapCounter::IcaDetachments, PmapCounter::ReservedWrites];
            into.borrow_mut().extend(counters.map(|c| spent.counter(c)));
            into.borrow_mut().push(spent.hardware.tlb_misses);
            u.store(control, &[0]);
            u.ispc_request(SERVICE, control, None, Wait::Yes).unwrap();
            u.wait().unwrap();
        });
        attached.push(counts.take());
    }
    let [random, previous, proposed] = &attached[..] else { unreachable!() };
    // Two pieces, there and back.
    assert_eq!(random[..3], [4, 4, 0], "random");
    assert_eq!(previous[..3], [4, 4, 8], "previous");
    assert_eq!(proposed[..3], [2, 2, 4], "proposed: the server's are there");
    assert!(random[3] >= previous[3] + 2, "who is attached by page table misses: {random:?}, {previous:?}");
    assert!(previous[3] >= proposed[3]);
}

/// What the refill handler takes with a page that is not attached to the process that touches it.
fn refused_cycles(method: Method, at: impl Fn(&U) -> Va + 'static) -> u64 {
    let spent = Rc::new(Cell::new(0));
    let into = spent.clone();
    let mut config = ant(method);
    config.pmap.refill.paths.direct = n(140);
    on_sh4(config, move |u| {
        let at = at(u);
        u.fork(
            "toucher",
            Box::new(move |u| {
                let before = u.machine().snapshot();
                u.load(at, &mut [0]);
                let cycles = u.machine().snapshot().since(&before).cycles;
                into.set(cycles[0][Cause::Refill.index()]);
                assert!(u.is_killed());
            }),
        )
        .unwrap();
        u.wait().unwrap();
    });
    spent.get()
}

/// A miss in the area is the exception where entries attach: the handler looks at no page table. Where those attach,
/// and elsewhere, it does.
#[test]
fn a_miss_in_the_area_is_refused_without_a_look_at_page_tables() {
    let in_area = |u: &U| {
        let piece = u.ica_alloc(1, Wait::Yes).unwrap();
        u.ica_free(piece).unwrap();
        piece
    };
    let elsewhere = |u: &U| map(u, PAGE) + 64 * PAGE;
    for method in [Method::Previous, Method::Proposed] {
        let (at_once, walked) = (refused_cycles(method, in_area), refused_cycles(method, elsewhere));
        assert!(at_once < walked, "{method:?}: {at_once} cycles in the area, {walked} elsewhere");
        let by_table = refused_cycles(Method::Random, in_area);
        assert!(at_once < by_table, "{method:?}: {at_once} cycles, {by_table} by page tables");
    }
}

/// A detachment by page table looks at every entry, whether one has the page and wherever it is.
#[test]
fn a_search_looks_at_all_entries() {
    const ALL: u64 = 64 * 11;
    let spent = Rc::new(RefCell::new(Vec::new()));
    let into = spent.clone();
    on_sh4(ant(Method::Random), move |u| {
        let beside = map(u, 40 * PAGE);
        for pages in [0, 0, 7, 40] {
            let piece = u.ica_alloc(1, Wait::Yes).unwrap();
            if pages > 0 {
                u.store(piece, &[1]);
            }
            (0..pages).for_each(|page| u.store(beside + page * PAGE, &[1]));
            let before = u.machine().snapshot();
            u.ica_free(piece).unwrap();
            let cycles = u.machine().snapshot().since(&before).cycles[0][Cause::IcaDetach.index()];
            into.borrow_mut().push(cycles);
        }
    });
    let spent = spent.take();
    // That there is an entry costs its invalidation, and where it is nothing.
    assert!(spent.iter().all(|cycles| (ALL..ALL + 400).contains(cycles)), "{spent:?}");
}

/// Entering the kernel uses the thread's own stack there: what others have pushed out of the cache is fetched again.
#[test]
fn a_stack_in_the_kernel_is_the_threads_own() {
    let calls = |stack: Option<KernelStack>| {
        let spent = Rc::new(RefCell::new([0; 2]));
        let into = spent.clone();
        let mut config = ant(Method::Proposed);
        config.sched.stack = stack;
        on_sh4(config, move |u| {
            // As much as the cache has.
            let others = map(u, 8 * PAGE);
            let call = || {
                let before = u.machine().now();
                u.null_call().unwrap();
                (u.machine().now() - before).0
            };
            (0..3).for_each(|_| _ = call());
            let warm = call();
            (0..4).for_each(|_| u.store(others, &[0; 8 * PAGE]));
            *into.borrow_mut() = [warm, call()];
        });
        spent.take()
    };
    let frame_bytes = 256;
    let [warm, cold] = calls(Some(KernelStack { spacing_bytes: 8192, frame_bytes }));
    let [warm_without, cold_without] = calls(None);
    let lines = frame_bytes as u64 / 32;
    assert!(cold - warm >= 20 * lines, "{warm} warm, {cold} cold");
    assert!(cold - warm > cold_without - warm_without, "{warm_without} warm, {cold_without} cold");
    assert!(warm > warm_without);
}

#[test]
fn entries_that_are_not_in_use_are_taken_first_and_reserved_ones_never() {
    let misses_again = |choice: EntryChoice, pages: usize| {
        let mut config = ant(Method::Previous);
        config.pmap.choice = choice;
        let found = Rc::new(Cell::new(0));
        let into = found.clone();
        on_sh4(config, move |u| {
            let piece = u.ica_alloc(1, Wait::Yes).unwrap();
            u.store(piece, &[7; 8]);
            let at = map(u, pages * PAGE);
            // With other look-ups between, so that a counter of them does not simply go round.
            let over = || {
                for page in 0..pages {
                    (0..=page * page % 7).for_each(|_| u.store(at + page * PAGE, &[1]));
                }
            };
            over();
            let before = u.machine().snapshot();
            over();
            into.set(u.machine().snapshot().since(&before).hardware.tlb_misses);
            let before = u.machine().snapshot();
            assert_eq!(load(u, piece, 8), [7; 8]);
            let missed = u.machine().snapshot().since(&before).hardware.tlb_misses;
            assert_eq!(missed, 0, "a reserved entry is nobody's to take");
        });
        found.get()
    };
    // 32 entries are left: as many pages have one each, if no entry is taken while another is free.
    assert_eq!(misses_again(EntryChoice::UnusedFirst, 30), 0);
    assert!(misses_again(EntryChoice::Hardware, 30) > 0);
    // More pages: some go by chance, not all as they would if the one used longest ago went.
    let missed = misses_again(EntryChoice::UnusedFirst, 40);
    assert!((8..40).contains(&missed), "{missed} of 40");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |name: &str, change: fn(&mut IspcConfig)| {
        let m = Model::new(&small(name, 64), Options::new(Schedule::Timed)).unwrap();
        let mut config = ant(Method::Proposed);
        change(config.ispc.as_mut().unwrap());
        let said = Rc::new(RefCell::new(String::new()));
        let into = said.clone();
        m.run(Box::new(move |m| {
            match pageferry_servers::boot(m.clone(), m.devices(), config) {
                Err(error) => *into.borrow_mut() = error.to_string(),
                Ok(_) => panic!("it boots"),
            }
            None
        }))
        .unwrap();
        said.take()
    };
    let said = |name, change, text: &str| {
        let said = refused(name, change);
        assert!(said.contains(text), "{said}");
    };
    said("sh7751r", |c| c.server_entries = 40, "40 TLB entries for servers, expected no more than the 32");
    said("sh7751r", |c| c.reserved = 63, "63 reserved TLB entries");
    said("sh7751r", |c| c.len_bytes = 3 << 19, "expected a multiple of the servers' pages");
    said("sh7751r", |c| c.server_page_bytes = 1 << 21, "expected 4096, 65536 or 1048576");
    said("sh7751r", |c| c.server_page_bytes = 1 << 16, "expected at least the 16");
    said("ultrasparc-iie", |_| (), "expected 4096 or 65536");
    said(
        "sh7751r",
        |c| c.piece_page_bytes = 1 << 9,
        "pages of 512 bytes for pieces of the area, expected 4096 or 1024",
    );
    said("ultrasparc-iie", |c| c.piece_page_bytes = 1 << 10, "expected 4096");
    for name in ["pentium-pro", "ppc603"] {
        said(name, |_| (), "expected one processor whose TLB the kernel loads, with tags and without sets");
    }
    said("sh7751r", |c| c.len_bytes = 0, "expected whole pages");
}

/// The kernel measures what a request costs and what a message over a socket, and nothing of that is left.
#[test]
fn a_server_is_chosen_where_it_is_cheaper() {
    for method in [Method::Random, Method::Previous, Method::Proposed, Method::Migrating] {
        on_sh4(ant(method), move |u| {
            let before = u.kernel().vm().free_frames();
            assert_ne!(
                u.choose_any_carrier(PAGE, Arrived::Touched),
                Ok(Carrier::Server),
                "nothing was measured"
            );
            u.measure_moves().unwrap();
            let chosen = u.choose_any_carrier(PAGE, Arrived::Touched).unwrap();
            assert_eq!(chosen, Carrier::Server, "{method:?}");
            assert_ne!(u.choose_carrier(PAGE, Arrived::Touched).unwrap(), Carrier::Server);
            let much = u.choose_any_carrier(40 * PAGE, Arrived::Touched);
            // There are not as many entries; page tables have no such limit.
            assert_eq!(much == Ok(Carrier::Server), method == Method::Random, "{method:?}: {much:?}");
            check(u);
            u.sleep_for(Cycles(10_000_000)).unwrap();
            let kept = u.kernel().vm().free_frames();
            assert!(
                before - kept < 40,
                "the partner is gone, and left clusters: {before} free before, {kept} behind"
            );
            assert_eq!(u.wait(), Err(Errno::NoChild));
        });
    }
    // On two CPUs each switch of threads takes an interrupt, and page tables a shootdown: only who crosses saves that.
    for (name, method) in
        [("pentium-pro", Method::Random), ("pentium-pro", Method::Migrating), ("xeon-mp", Method::Migrating)]
    {
        let chooses = move |u: &U| {
            u.measure_moves().unwrap();
            assert_eq!(
                u.choose_any_carrier(PAGE, Arrived::Touched),
                Ok(Carrier::Server),
                "{method:?} on {name}"
            );
        };
        sound(&try_served(name, Schedule::Timed, method, Planted::NONE, chooses), name);
    }
    on_sh4(KernelConfig { ispc: None, ..ant(Method::Random) }, |u| {
        u.measure_moves().unwrap();
        assert_ne!(u.choose_any_carrier(PAGE, Arrived::Touched), Ok(Carrier::Server));
    });
}

#[test]
fn pages_of_1_kb_attach_what_is_asked_for_and_not_the_rest() {
    let mut config = ant(Method::Proposed);
    config.ispc.as_mut().unwrap().piece_page_bytes = 1 << 10;
    on_sh4(config, |u| {
        let at = u.ica_alloc(1, Wait::No).unwrap();
        let entries = |va: Va| {
            let pmaps = u.kernel().vm().pmaps();
            let is_of =
                |&entry: &usize| pmaps.wired(entry).is_some_and(|(_, at, tte)| at == va && tte.shift == 10);
            (0..pmaps.reserved_entries()).filter(is_of).count()
        };
        for part in 0..4 {
            assert_eq!(entries(at + part * 1024), 1, "part {part} has an entry of its own");
            u.store(at + part * 1024, &[part as u8 + 1; 1024]);
        }
        let mut found = [0; 4096];
        u.load(at, &mut found);
        assert!(found.chunks(1024).zip(1..).all(|(part, byte)| part.iter().all(|b| *b == byte)));
        u.ica_free(at).unwrap();
        assert_eq!((0..4).map(|part| entries(at + part * 1024)).sum::<usize>(), 0);
    });
}

#[test]
fn nothing_waits_for_entries_that_there_will_never_be() {
    on_sh4(ant(Method::Proposed), |u| {
        let entries = 32 - 8;
        assert_eq!(u.ica_alloc(entries + 1, Wait::Yes), Err(Errno::NoMemory));
        let own = u.ica_alloc(entries, Wait::Yes).unwrap();
        assert_eq!(u.ica_alloc(1, Wait::Yes), Err(Errno::NoMemory), "the caller has all of them");
        assert_eq!(u.ica_alloc(1, Wait::No), Err(Errno::WouldBlock));
        u.ica_free(own).unwrap();
    });
    // For as many as there are, one waits, whoever has some of them now.
    on_sh4(ant(Method::Proposed), |u| {
        for own in [0, 1] {
            let first = u.ica_alloc(1, Wait::Yes).unwrap();
            let all = move |u: &U| {
                let own = (0..own).map(|_| u.ica_alloc(1, Wait::Yes).unwrap()).collect::<Vec<_>>();
                let rest = u.ica_alloc(24 - own.len(), Wait::Yes).unwrap();
                own.into_iter().chain([rest]).for_each(|piece| u.ica_free(piece).unwrap());
            };
            u.fork("all", Box::new(all)).unwrap();
            (0..9).for_each(|_| u.yield_now().unwrap());
            u.ica_free(first).unwrap();
            u.wait().unwrap();
        }
    });
    // A server has to have room for what comes with a request.
    on_sh4(ant(Method::Previous), |u| {
        let both = u.ica_alloc(1, Wait::Yes).and_then(|control| Ok((control, u.ica_alloc(15, Wait::Yes)?)));
        let (control, data) = both.unwrap();
        let server = |u: &U| {
            u.ispc_serve(SERVICE).unwrap();
            let own = u.ica_alloc(32 - 16 + 1, Wait::Yes).unwrap();
            assert_eq!(u.ispc_receive(Wait::Yes).map(|_| ()), Err(Errno::NoMemory));
            u.ica_free(own).unwrap();
            let request = u.ispc_receive(Wait::Yes).unwrap();
            u.ispc_return(request.id).unwrap();
        };
        let server = u.fork("server", Box::new(server)).unwrap();
        while u.ispc_request(SERVICE, control, Some(data), Wait::Yes) == Err(Errno::ConnectionRefused) {
            u.yield_now().unwrap();
        }
        u.ica_free(control).unwrap();
        u.ica_free(data).unwrap();
        assert_eq!(u.wait(), Ok(server));
    });
}

#[test]
fn servers_that_wait_for_entries_do_not_wake_each_other() {
    on_sh4(ant(Method::Previous), |u| {
        let posted = Rc::new(Cell::new(false));
        let server = |service: u32| {
            let posted = posted.clone();
            move |u: &U| {
                u.ispc_serve(service).unwrap();
                while !posted.get() {
                    u.yield_now().unwrap();
                }
                let request = u.ispc_receive(Wait::Yes).unwrap();
                u.ispc_return(request.id).unwrap();
            }
        };
        for service in [SERVICE, SERVICE + 1] {
            u.fork("server", Box::new(server(service))).unwrap();
        }
        let pieces: Vec<Va> = (0..4).map(|_| u.ica_alloc(1, Wait::No).unwrap()).collect();
        (0..4).for_each(|_| u.yield_now().unwrap());
        u.ispc_post(SERVICE, pieces[0], Some(pieces[1])).unwrap();
        u.ispc_post(SERVICE + 1, pieces[2], Some(pieces[3])).unwrap();
        // One entry is left, and each needs two.
        let rest = u.ica_alloc(31, Wait::No).unwrap();
        posted.set(true);
        let sleeps = || u.machine().snapshot().counter(KernelCounter::EntrySleeps);
        (0..50).for_each(|_| u.yield_now().unwrap());
        assert_eq!(sleeps(), 2, "each sleeps once");
        u.ica_free(rest).unwrap();
        for _ in 0..2 {
            assert_eq!(u.ispc_result(Wait::Yes).map(|done| done.outcome), Ok(Ok(())));
        }
        pieces.iter().for_each(|&at| u.ica_free(at).unwrap());
        (0..2).for_each(|_| _ = u.wait().unwrap());
    });
}
