//! A debugger at memory that is not where its process left it: lent to the kernel, paged out, offered to others or
//! passed on. By quick references and by frames, where ephemeral mappings are cached, direct, and made anew each time.

use crate::common::*;
use pageferry_ephemeral::Scheme;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::{PassMode, VmCounter};
use std::cell::Cell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const LEN: usize = 2 * PAGE;

/// Both ways to a child's memory, under kernels that see its frames in their own ways.
fn ways() -> Vec<(&'static str, KernelConfig)> {
    let mut all = Vec::new();
    for (name, config) in
        [("xeon-mp", sf_buf(64)), ("xeon-mp", original()), ("opteron-mp", with_scheme(Scheme::Direct))]
    {
        for by in [PtraceBy::QuickRef, PtraceBy::Frames] {
            let mut config = config;
            config.disk.ptrace = by;
            all.push((name, config));
        }
    }
    all
}

fn load(u: &U, at: Va, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    u.load(at, &mut buf);
    buf
}

/// What a child does with its two pages at an address before its parent looks, what then, and what it finds there in
/// the end.
struct Case {
    before: fn(&U, Va, Ends),
    after: fn(&U, Va, Ends),
    /// Nothing is there any more when the parent looks.
    is_gone: bool,
}

/// Both ends of a socket pair.
#[derive(Clone, Copy)]
struct Ends {
    to: Fd,
    from: Fd,
}

/// A parent reads what its child has, writes over the middle of it, and the child goes on.
fn traced(case: &'static Case, config: &KernelConfig, name: &str) -> u64 {
    let ended = run(name, Schedule::Timed, *config, move |u| {
        let (to, from) = u.socket_pair().unwrap();
        let (ready, tell) = u.pipe().unwrap();
        let (go, start) = u.pipe().unwrap();
        let place = Rc::new(Cell::new(Va(0)));
        let told = place.clone();
        let child = fork(u, "traced", move |u| {
            let (own, at) = (map(u, PAGE), map(u, LEN));
            u.store(at, &bytes(1, 0, LEN));
            (case.before)(u, at, Ends { to, from });
            told.set(at);
            u.write(tell, own, 1).unwrap();
            u.read(go, own, 1).unwrap();
            (case.after)(u, at, Ends { to, from });
        });
        let own = map(u, LEN);
        u.read(ready, own, 1).unwrap();
        let at = place.get();
        if case.is_gone {
            assert_eq!(u.ptrace_read(child, at, own, LEN), Err(Errno::Fault));
            assert_eq!(u.ptrace_write(child, at, own, LEN), Err(Errno::Fault));
        } else {
            assert_eq!(u.ptrace_read(child, at, own, LEN), Ok(LEN));
            assert!(load(u, own, LEN) == bytes(1, 0, LEN), "what the child stored is read");
            u.store(own, &[9; PAGE]);
            assert_eq!(u.ptrace_write(child, at + 100, own, PAGE), Ok(PAGE));
        }
        u.write(start, own, 1).unwrap();
        u.wait().unwrap();
    });
    ended.counter(VmCounter::PageOuts)
}

/// The child's bytes, with what its parent wrote.
fn written() -> Vec<u8> {
    let mut all = bytes(1, 0, LEN);
    all[100..100 + PAGE].fill(9);
    all
}

fn under_all(case: &'static Case) {
    for (name, config) in ways() {
        println!("{name} {:?} {:?}", config.ephemeral.scheme, config.disk.ptrace);
        traced(case, &config, name);
    }
}

#[test]
fn what_is_lent_keeps_its_bytes_and_the_child_has_the_debuggers() {
    under_all(&Case {
        before: |u, at, ends| assert_eq!(u.send(ends.to, at, LEN, SendMode::Loan), Ok(LEN)),
        after: |u, at, ends| {
            assert!(load(u, at, LEN) == written());
            let got = map(u, LEN);
            let mut done = 0;
            while done < LEN {
                done += u.receive(ends.from, got + done, LEN - done).unwrap();
            }
            assert!(load(u, got, LEN) == bytes(1, 0, LEN), "what was sent is what was lent");
        },
        is_gone: false,
    });
}

#[test]
fn what_is_offered_is_seen_as_its_mode_says() {
    static CASES: [Case; 3] = [
        Case {
            before: |u, at, _| {
                u.export(at, LEN, PassMode::Share, ExportTo::Anyone).unwrap();
            },
            after: |u, at, _| assert!(load(u, at, LEN) == written()),
            is_gone: false,
        },
        // A copy may be taken of it at any time: it shows what is there then.
        Case {
            before: |u, at, _| {
                u.export(at, LEN, PassMode::Copy, ExportTo::Anyone).unwrap();
            },
            after: |u, at, _| assert!(load(u, at, LEN) == written()),
            is_gone: false,
        },
        Case {
            before: |u, at, _| {
                u.export_loan(at, LEN, ExportTo::Anyone).unwrap();
            },
            after: |u, at, _| assert!(load(u, at, LEN) == written()),
            is_gone: false,
        },
    ];
    CASES.iter().for_each(under_all);
}

/// Offered to a process that has not yet taken it; what it then gets has the debugger's bytes, and the child has
/// nothing.
#[test]
fn what_is_given_away_is_the_debuggers_until_it_is_taken() {
    under_all(&Case {
        before: |u, at, _| {
            u.export(at, LEN, PassMode::Donate, ExportTo::Anyone).unwrap();
        },
        after: |u, at, _| {
            // Numbers of offers begin with 1.
            let got = u.import(ExportId(1), None).unwrap();
            assert!(load(u, got.at, LEN) == written());
            assert_eq!(u.export(at, LEN, PassMode::Share, ExportTo::Anyone), Err(Errno::Fault));
        },
        is_gone: false,
    });
    under_all(&Case {
        before: |u, at, _| {
            let id = u.export(at, LEN, PassMode::Donate, ExportTo::Anyone).unwrap();
            fork(u, "taker", move |u| {
                u.import(id, None).unwrap();
            });
            u.wait().unwrap();
        },
        after: |_, _, _| (),
        is_gone: true,
    });
}

/// Others, imported by a grandchild in each mode while the parent looks again and again.
#[test]
fn what_is_passed_meanwhile_is_whole_at_every_look() {
    for (name, config) in ways() {
        for mode in [PassMode::Share, PassMode::Copy, PassMode::DonateZero] {
            for seed in 0..4 {
                run(name, Schedule::Seeded(seed), config, move |u| {
                    let (ready, tell) = u.pipe().unwrap();
                    let (go, start) = u.pipe().unwrap();
                    let place = Rc::new(Cell::new(Va(0)));
                    let told = place.clone();
                    let child = fork(u, "traced", move |u| {
                        let at = map(u, LEN);
                        u.store(at, &bytes(1, 0, LEN));
                        told.set(at);
                        let own = map(u, PAGE);
                        u.write(tell, own, 1).unwrap();
                        let id = u.export(at, LEN, mode, ExportTo::Anyone).unwrap();
                        fork(u, "importer", move |u| {
                            let got = u.import(id, None).unwrap();
                            assert!(load(u, got.at, LEN) == bytes(1, 0, LEN));
                        });
                        u.wait().unwrap();
                        u.write(tell, own, 1).unwrap();
                        u.read(go, own, 1).unwrap();
                    });
                    let own = map(u, LEN);
                    u.read(ready, own, 1).unwrap();
                    for _ in 0..6 {
                        assert_eq!(u.ptrace_read(child, place.get(), own, LEN), Ok(LEN));
                        let seen = load(u, own, LEN);
                        for (number, page) in seen.chunks(PAGE).enumerate() {
                            let is_zero = mode == PassMode::DonateZero && page == [0; PAGE];
                            assert!(is_zero || page == bytes(1, number * PAGE, PAGE), "{mode:?}");
                        }
                    }
                    u.read(ready, own, 1).unwrap();
                    u.write(start, own, 1).unwrap();
                    u.wait().unwrap();
                });
            }
        }
    }
}

#[test]
fn what_is_out_comes_in_for_the_debugger() {
    static OUT: Case = Case {
        before: |u, _, _| {
            u.kernel().vm().reclaim(u.thread());
        },
        after: |u, at, _| assert!(load(u, at, LEN) == written()),
        is_gone: false,
    };
    for (name, config) in ways() {
        let mut config = paging(config, 20_000);
        // More than can be free: all goes out that may.
        config.vm.paging.as_mut().unwrap().free_target_pages = 1 << 14;
        assert!(traced(&OUT, &config, name) >= 2, "both pages went out");
    }
}
