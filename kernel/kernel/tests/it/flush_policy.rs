//! The original kernel under every policy of flushing: pipes, a memory disk and sockets move their bytes with no stale
//! translation used, flushes are as many as the policy has, and one that is left out is found.

use crate::common::*;
use pageferry_core::proc::{Visibility, Window};
use pageferry_ephemeral::{FlushAt, FlushBy, MappingUser};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_pmap::PmapCounter;
use pageferry_vm::Inherit;

const ALL_AT: [FlushAt; 3] = [FlushAt::Map, FlushAt::Unmap, FlushAt::Both];
const ALL_BY: [FlushBy; 3] = [FlushBy::User, FlushBy::Page, FlushBy::Range];
const BLOCK: usize = 16 * PAGE_SIZE;

/// Every policy, with an allocator and with a list.
fn policies() -> Vec<(String, KernelConfig)> {
    let mut all = Vec::new();
    for at in ALL_AT {
        all.extend(ALL_BY.map(|by| (format!("{at:?}, by {by:?}"), flushing(at, by))));
        all.push((format!("{at:?}, a list"), with_list(4, at)));
    }
    all
}

/// A child writes to a pipe; meanwhile a disk is read, whose addresses come from the same allocator; then pages are
/// lent to a socket, and found at addresses that others had before.
fn program(u: &U) {
    let len = 4 * BLOCK;
    let (r, w) = u.pipe().unwrap();
    fork(u, "writer", move |u| {
        u.close(r).unwrap();
        let at = map(u, len);
        u.store(at, &bytes(4, 0, len));
        assert_eq!(u.write(w, at, len), Ok(len));
    });
    u.close(w).unwrap();
    u.attach_memory_disk(BLOCK as u64).unwrap();
    let disk = u.open("/dev/md0", OpenFlags::READ | OpenFlags::WRITE).unwrap();
    let at = map(u, BLOCK);
    let mut got = Vec::new();
    for round in 0..8 {
        u.store(at, &bytes(round, 0, BLOCK));
        u.seek(disk, 0).unwrap();
        assert_eq!(u.write(disk, at, BLOCK), Ok(BLOCK));
        got.extend(read_all(u, r, at, BLOCK / 2, BLOCK / 2));
        u.seek(disk, 0).unwrap();
        assert_eq!(u.read(disk, at, BLOCK), Ok(BLOCK));
        let mut part = vec![0; BLOCK];
        u.load(at, &mut part);
        assert!(part == bytes(round, 0, BLOCK), "the disk's bytes");
    }
    assert!(got == bytes(4, 0, len), "the pipe's bytes");
    u.wait().unwrap();
    let (to, from) = u.socket_pair().unwrap();
    let lent = u.map(2 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
    for round in 0..4 {
        u.store(lent, &bytes(round, 7, 2 * PAGE_SIZE));
        assert_eq!(u.send(to, lent, 2 * PAGE_SIZE, SendMode::Loan), Ok(2 * PAGE_SIZE));
        let mut got = 0;
        while got < 2 * PAGE_SIZE {
            got += u.receive(from, at + got, 2 * PAGE_SIZE - got).unwrap();
        }
        let mut part = vec![0; 2 * PAGE_SIZE];
        u.load(at, &mut part);
        assert!(part == bytes(round, 7, 2 * PAGE_SIZE), "the socket's bytes");
    }
    [disk, r, to, from].into_iter().for_each(|fd| u.close(fd).unwrap());
    u.detach_memory_disk().unwrap();
}

#[test]
fn every_policy_moves_every_byte() {
    for (what, config) in policies() {
        for lent in [LentMapping::Pages, LentMapping::Run] {
            for (name, schedule) in [
                ("xeon-up", Schedule::Timed),
                ("xeon-mp", Schedule::Timed),
                ("xeon-mp-htt", Schedule::Seeded(5)),
                ("opteron-mp", Schedule::Seeded(6)),
            ] {
                println!("{what}, {lent:?}, {name}");
                let mut config = config;
                config.socket.lent_mapping = lent;
                run(name, schedule, config, program);
            }
        }
    }
}

/// Where addresses come back from others unflushed, whoever maps them flushes.
#[test]
fn a_flush_that_a_policy_leaves_out_is_a_stale_use() {
    if other_kind().is_some() {
        return; // In a small TLB that maps the kernel by pages, too, what is stale rarely lasts until it is used.
    }
    for (what, mut config) in policies() {
        config.defect = KernelDefect::MissingPolicyFlush.into();
        let stale = |seed| {
            let ended = try_run("xeon-mp", Schedule::Seeded(seed), config, program);
            !ended.m.stale_uses().is_empty()
        };
        let caught = (0..4).filter(|&seed| stale(seed)).count();
        assert!(caught >= 2, "{what}: {caught} of 4 seeds caught it");
    }
}

/// Pages that a window shows in a row: one shootdown by range, else one for each; every page where it belongs.
#[test]
fn a_window_shows_as_many_pages_at_once_as_the_policy_has() {
    for (what, config) in policies().into_iter().chain([("sf_buf".to_owned(), sf_buf(16))]) {
        let own = config.disk.mapping == FrameMapping::Own;
        let flush = config.ephemeral.flush;
        run("xeon-mp", Schedule::Timed, config, move |u| {
            let (core, t) = (u.kernel().core(), u.thread());
            let pages = core.vm.kernel_pages(10).unwrap();
            for round in [0u8, 1] {
                let before = u.machine().snapshot();
                let mut window = Window::open_for(core, MappingUser::Other, 4).unwrap();
                let mut seen = Vec::new();
                let shown =
                    window.show_run(core, t, pages.frames(), Visibility::Private, &mut |which, at| {
                        for (i, page) in which.clone().enumerate() {
                            let at = at + i * PAGE_SIZE;
                            let mut was = [0];
                            u.machine().load(Mode::Kernel, at, &mut was).unwrap();
                            assert!(round == 0 || was[0] == page as u8, "{what}: page {page} is {}", was[0]);
                            u.machine().store(Mode::Kernel, at, &[page as u8]).unwrap();
                        }
                        seen.push(which.len());
                        Ok(())
                    });
                assert_eq!(shown, Ok(()));
                let stopped = window.show_run(core, t, pages.frames(), Visibility::Shared, &mut |_, _| {
                    Err(Errno::Interrupted)
                });
                assert_eq!(stopped, Err(Errno::Interrupted));
                window.close(core);
                let in_a_row = own && flush.by == FlushBy::Range;
                assert_eq!(seen, if in_a_row { vec![4, 4, 2] } else { vec![1; 10] }, "{what}");
                let after = u.machine().snapshot();
                let changes = u64::from(flush.at.maps()) + u64::from(flush.at.unmaps());
                let shootdowns =
                    after.counter(PmapCounter::Shootdowns) - before.counter(PmapCounter::Shootdowns);
                assert!(!own || shootdowns == changes * (seen.len() as u64 + 1), "{what}: {shootdowns}");
            }
            core.vm.free_kernel_pages(pages);
        });
    }
}
