//! The memory of devices: a frame buffer in a process, by pages and by a block of the process's own; the console.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::{MachineConfig, Model, Options, Schedule};
use pageferry_pmap::{KernelMapping, PmapDefect};
use pageferry_vm::{Inherit, MapAddr, PassMode};
use std::cell::RefCell;
use std::rc::Rc;

const FRAME_BUFFER: usize = 2 << 20;
const AT: Va = Va(0x6000_0000);

/// Runs `init` on a PowerPC under a kernel with this mapping; the misses of its TLBs.
fn on(name: &str, mapping: KernelMapping, init: impl FnOnce(&U) + 'static) -> u64 {
    let config = MachineConfig::named(name).expect("it is built in");
    let m = Model::new(&config, Options::new(Schedule::Timed)).expect("a machine");
    let mut kernel_config = sf_buf(64);
    kernel_config.pmap.mapping = mapping;
    kernel_config.ephemeral.scheme = pageferry_ephemeral::Scheme::Direct;
    let kernel = Rc::new(RefCell::new(None));
    let booted = kernel.clone();
    let ran = m.run(Box::new(move |m| {
        let kernel =
            Kernel::boot(m.clone(), m.devices(), kernel_config).unwrap_or_else(|e| panic!("boot: {e}"));
        booted.replace(Some(kernel.clone()));
        kernel.spawn("init", Box::new(init)).expect("the first process");
        kernel.run()
    }));
    ran.unwrap_or_else(|e| panic!("{name} {mapping:?}: {e}"));
    m.check().expect("the machine's laws hold");
    let kernel = kernel.take().expect("it booted");
    kernel.check_quiescent().unwrap_or_else(|e| panic!("{name} {mapping:?}: {e}"));
    assert_eq!(kernel.killed().len(), 0, "{name} {mapping:?}: {:?}", kernel.killed());
    let h = m.snapshot().hardware;
    h.tlb_misses
}

const MAPPINGS: [KernelMapping; 4] = [
    KernelMapping::Pages,
    KernelMapping::Blocks,
    KernelMapping::BlocksAndDevices,
    KernelMapping::BlocksAndProcess,
];

/// Stores a word to each page of the frame buffer, and finds all of them again.
fn paint(u: &U, salt: u32) {
    let words = (0..FRAME_BUFFER / PAGE_SIZE).map(|page| (page * PAGE_SIZE, page as u32 ^ salt));
    for (offset, word) in words.clone() {
        u.store(AT + offset, &word.to_be_bytes());
    }
    for (offset, word) in words {
        let mut found = [0; 4];
        u.load(AT + offset, &mut found);
        assert_eq!(u32::from_be_bytes(found), word, "{offset:#x}");
    }
}

#[test]
fn a_frame_buffer_is_painted_by_pages_and_by_a_block_that_takes_no_entries() {
    for name in ["ppc603", "ppc604"] {
        let misses = MAPPINGS.map(|mapping| {
            on(name, mapping, |u| {
                assert_eq!(u.map_frame_buffer(MapAddr::Replace(AT)), Ok(AT));
                (0..4).for_each(|salt| paint(u, salt << 20));
                // What is not memory is not lent, protected or read into.
                assert!(u.protect(AT, PAGE_SIZE, Prot::READ).is_err());

                u.unmap(AT, FRAME_BUFFER).unwrap();
            })
        });
        assert!(misses[3] + 4000 < misses[2] && misses[2] <= misses[0], "{name}: {misses:?}");
    }
}

/// How a part of a frame buffer goes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Going {
    Unmapped,
    Replaced,
    Donated,
}

/// Whatever maps a frame buffer: a part that goes takes nothing else with it.
#[test]
fn a_part_of_a_frame_buffer_goes_alone() {
    let pages = FRAME_BUFFER / PAGE_SIZE;
    for mapping in MAPPINGS {
        for (first, count) in [(0, 1), (0, pages / 2), (pages / 2, pages / 2), (pages - 1, 1), (3, 7)] {
            for going in [Going::Unmapped, Going::Replaced, Going::Donated] {
                on("ppc603", mapping, move |u| {
                    u.map_frame_buffer(MapAddr::Replace(AT)).unwrap();
                    paint(u, 1 << 20);
                    let (at, len) = (AT + first * PAGE_SIZE, count * PAGE_SIZE);
                    match going {
                        Going::Unmapped => u.unmap(at, len).unwrap(),
                        Going::Replaced => {
                            u.map_at(MapAddr::Replace(at), len, Prot::RW, Inherit::Copy).unwrap();
                        }
                        Going::Donated => {
                            let id = u.export(at, len, PassMode::Donate, ExportTo::Anyone).unwrap();
                            u.withdraw(id).unwrap();
                        }
                    }
                    for page in 0..pages {
                        let (at, is_gone) = (AT + page * PAGE_SIZE, (first..first + count).contains(&page));
                        let mut found = [0xff; 4];
                        if is_gone && going != Going::Replaced {
                            continue;
                        }
                        u.load(at, &mut found);
                        let expected = if is_gone { 0 } else { page as u32 ^ 1 << 20 };
                        assert_eq!(
                            u32::from_be_bytes(found),
                            expected,
                            "{mapping:?} {going:?} {first} {count}: {page}"
                        );
                        u.store(at, &[page as u8; 4]);
                    }
                });
            }
        }
    }
}

#[test]
fn a_block_goes_with_its_process() {
    for name in ["ppc603", "ppc604"] {
        for mapping in MAPPINGS {
            on(name, mapping, |u| {
                u.map_frame_buffer(MapAddr::Replace(AT)).unwrap();
                paint(u, 1 << 20);
                let (r, w) = u.pipe().unwrap();
                // A child inherits nothing of it, and has memory of its own at the same addresses.
                u.fork(
                    "other",
                    Box::new(move |u: &U| {
                        assert_eq!(
                            u.map_at(MapAddr::Free(AT), FRAME_BUFFER, Prot::RW, Inherit::Copy),
                            Ok(AT)
                        );
                        let mut word = [0xff; 4];
                        for page in 0..4 {
                            u.load(AT + page * PAGE_SIZE, &mut word);
                            assert_eq!(word, [0; 4], "memory of its own begins with zeros");
                            u.store(AT + page * PAGE_SIZE, b"mine");
                        }
                        u.write(w, AT, 4).unwrap();
                        u.load(AT, &mut word);
                        assert_eq!(&word, b"mine");
                    }),
                )
                .unwrap();
                let at = u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
                assert_eq!(u.read(r, at, 4), Ok(4));
                paint(u, 2 << 20);
                u.wait().unwrap();
                paint(u, 3 << 20);
            });
        }
    }
}

#[test]
fn who_has_nothing_there_faults_although_another_has_a_block() {
    let config = MachineConfig::named("ppc603").expect("it is built in");
    let m = Model::new(&config, Options::new(Schedule::Timed)).expect("a machine");
    let mut kernel_config = sf_buf(64);
    kernel_config.pmap.mapping = KernelMapping::BlocksAndProcess;
    let killed = Rc::new(RefCell::new(0));
    let seen = killed.clone();
    m.run(Box::new(move |m| {
        let kernel =
            Kernel::boot(m.clone(), m.devices(), kernel_config).unwrap_or_else(|e| panic!("boot: {e}"));
        let program = |u: &U| {
            u.map_frame_buffer(MapAddr::Replace(AT)).unwrap();
            paint(u, 1 << 20);
            u.fork("other", Box::new(|u: &U| u.store(AT, b"oops"))).unwrap();
            u.wait().unwrap();
            paint(u, 1 << 21);
        };
        kernel.spawn("init", Box::new(program)).expect("the first process");
        let next = kernel.run();
        *seen.borrow_mut() = kernel.killed().len();
        next
    }))
    .expect("it runs");
    assert_eq!(*killed.borrow(), 1, "the child stored to what it does not have");
}

#[test]
fn lines_of_text_are_drawn_and_a_machine_without_a_screen_shows_none() {
    for mapping in MAPPINGS {
        on("ppc603", mapping, |u| {
            let at = u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
            u.store(at, &[b'x'; 100]);
            for _ in 0..100 {
                assert_eq!(u.print(at, 100), Ok(100));
            }
            assert_eq!(u.print(Va(u64::MAX - 3), 100), Err(Errno::Fault));
            // The first line of text was overwritten; what lies right of it is still dark.
            u.map_frame_buffer(MapAddr::Replace(AT)).unwrap();
            let mut pixels = [0; 16];
            u.load(AT, &mut pixels);
            assert_eq!(pixels, [b'x'; 16]);
            u.load(AT + 2000, &mut pixels);
            assert_eq!(pixels, [0; 16]);
        });
    }
    run("xeon-up", Schedule::Timed, sf_buf(8), |u| {
        let at = map(u, 1);
        assert_eq!(u.print(at, 5), Ok(5));
        let without = u.machine().board().device_memory.is_none();
        assert_eq!(u.map_frame_buffer(MapAddr::Anywhere).is_err(), without);
    });
}

/// A switch that leaves the block of the last process in its register: another process finds the screen in its memory.
#[test]
fn a_block_that_stays_is_seen() {
    for defect in [Planted::NONE, PmapDefect::BlockStays.into()] {
        let config = MachineConfig::named("ppc604").expect("it is built in");
        let m = Model::new(&config, Options::new(Schedule::Timed)).expect("a machine");
        let mut kernel_config = sf_buf(64);
        (kernel_config.pmap.mapping, kernel_config.pmap.defect) = (KernelMapping::BlocksAndProcess, defect);
        let found = Rc::new(RefCell::new([0xff; 4]));
        let seen = found.clone();
        let ran = m.run(Box::new(move |m| {
            let kernel = Kernel::boot(m.clone(), m.devices(), kernel_config).expect("it boots");
            let program = move |u: &U| {
                u.map_frame_buffer(MapAddr::Replace(AT)).unwrap();
                u.store(AT, b"mine");
                u.fork(
                    "other",
                    Box::new(move |u: &U| {
                        u.map_at(MapAddr::Free(AT), PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
                        let mut word = [0; 4];
                        u.load(AT, &mut word);
                        *found.borrow_mut() = word;
                    }),
                )
                .unwrap();
                u.wait().unwrap();
            };
            kernel.spawn("init", Box::new(program)).expect("the first process");
            kernel.run()
        }));
        assert!(ran.is_ok() || defect != Planted::NONE, "{ran:?}");
        let expected = if defect == Planted::NONE { [0; 4] } else { *b"mine" };
        assert_eq!(*seen.borrow(), expected, "{defect:?}");
    }
}
