//! The memory disk as a device file: bytes, sectors, ends; and what its mappings cost under each kernel (sf_buf paper,
//! 6.4.1).

use crate::common::*;
use pageferry_ephemeral::{EphemeralCounter, FlushAt, FlushBy};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::Inherit;

const BLOCK: usize = 65536;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn block(i: usize) -> Vec<u8> {
    (0..BLOCK).map(|at| (at * 7 + at / 4096 + i * 131) as u8).collect()
}

/// Makes a disk of so many blocks, and writes all of it.
fn written(u: &U, blocks: usize) -> (Fd, Va) {
    u.attach_memory_disk((blocks * BLOCK) as u64).unwrap();
    let fd = u.open("/dev/md0", RW).unwrap();
    let buffer = u.map(BLOCK, Prot::RW, Inherit::Copy).unwrap();
    for i in 0..blocks {
        u.store(buffer, &block(i));
        assert_eq!(u.write(fd, buffer, BLOCK), Ok(BLOCK));
    }
    assert_eq!(u.write(fd, buffer, BLOCK), Err(Errno::NoSpace));
    (fd, buffer)
}

fn dump(u: &U, fd: Fd, buffer: Va, blocks: usize) {
    u.seek(fd, 0).unwrap();
    for i in 0..blocks {
        assert_eq!(u.read(fd, buffer, BLOCK), Ok(BLOCK));
        let mut got = vec![0; BLOCK];
        u.load(buffer, &mut got);
        assert_eq!(got, block(i), "block {i}");
    }
    assert_eq!(u.read(fd, buffer, BLOCK), Ok(0));
}

#[test]
fn what_is_written_is_read_under_every_kernel() {
    for (what, name, config) in kernels() {
        println!("{what}");
        run(name, Schedule::Timed, config, |u| {
            assert_eq!(u.open("/dev/md0", RW), Err(Errno::NoDevice));
            assert_eq!(u.detach_memory_disk(), Err(Errno::NoDevice));
            for len in [0, 1, PAGE_SIZE as u64 + 512] {
                assert_eq!(u.attach_memory_disk(len), Err(Errno::Invalid), "{len}");
            }
            let (fd, buffer) = written(u, 4);
            assert_eq!(u.attach_memory_disk(BLOCK as u64), Err(Errno::Busy));
            dump(u, fd, buffer, 4);
            // Sectors.
            u.seek(fd, 1536).unwrap();
            assert_eq!(u.read(fd, buffer, 4096), Ok(4096));
            let mut got = vec![0; 4096];
            u.load(buffer, &mut got);
            assert_eq!(got, block(0)[1536..][..4096]);
            assert_eq!(u.read(fd, buffer, 100), Err(Errno::Invalid));
            u.seek(fd, 100).unwrap();
            assert_eq!(u.read(fd, buffer, 512), Err(Errno::Invalid));
            assert_eq!(u.write(fd, buffer, 512), Err(Errno::Invalid));
            assert_eq!(u.detach_memory_disk(), Err(Errno::Busy));
            u.close(fd).unwrap();
            u.detach_memory_disk().unwrap();
        });
    }
}

#[test]
fn what_was_never_written_is_clear_and_a_write_that_faults_leaves_no_old_bytes() {
    for (_, name, config) in kernels() {
        run(name, Schedule::Timed, config, |u| {
            // Frames with old bytes.
            let dirty = u.map(64 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
            u.store(dirty, &vec![0xee; 64 * PAGE_SIZE]);
            u.unmap(dirty, 64 * PAGE_SIZE).unwrap();
            u.attach_memory_disk(32 * PAGE_SIZE as u64).unwrap();
            let fd = u.open("/dev/md0", RW).unwrap();
            let buffer = u.map(2 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
            u.store(buffer, &[7; 2 * PAGE_SIZE]);
            u.unmap(buffer + PAGE_SIZE, PAGE_SIZE).unwrap();
            // A page and half of the next: all of the buffer has to be there.
            assert_eq!(u.write(fd, buffer + 2048, 2 * PAGE_SIZE), Err(Errno::Fault));
            assert_eq!(u.write(fd, buffer + 2048, 2048), Ok(2048));
            u.seek(fd, 8 * PAGE_SIZE as u64 + 512).unwrap();
            assert_eq!(u.write(fd, buffer, 512), Ok(512));
            let all = u.map(32 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
            u.seek(fd, 0).unwrap();
            assert_eq!(u.read(fd, all, 32 * PAGE_SIZE), Ok(32 * PAGE_SIZE));
            let mut got = vec![0; 32 * PAGE_SIZE];
            u.load(all, &mut got);
            let mut expected = vec![0; 32 * PAGE_SIZE];
            expected[..2048].fill(7);
            expected[8 * PAGE_SIZE + 512..][..512].fill(7);
            assert_eq!(got, expected);
            u.close(fd).unwrap();
            u.detach_memory_disk().unwrap();
        });
    }
}

/// Local and remote invalidations for the disk's pages, and misses, of a dump of a disk of 64 pages.
fn counts(name: &str, config: KernelConfig) -> [u64; 3] {
    let found = std::rc::Rc::new(std::cell::Cell::new([0; 3]));
    let cell = found.clone();
    run(name, Schedule::Timed, config, move |u| {
        let (fd, buffer) = written(u, 4);
        dump(u, fd, buffer, 4);
        let of = |u: &U| {
            let snapshot = u.machine().snapshot();
            let count = |of: EphemeralCounter| snapshot.counter(of);
            let remote = count(EphemeralCounter::RemoteInvalidationsByMemoryDisk);
            let all = count(EphemeralCounter::InvalidationsByMemoryDisk);
            [all - remote, remote, count(EphemeralCounter::EphemeralMisses)]
        };
        let before = of(u);
        dump(u, fd, buffer, 4);
        let after = of(u);
        cell.set([0, 1, 2].map(|i| after[i] - before[i]));
        u.close(fd).unwrap();
        u.detach_memory_disk().unwrap();
    });
    found.get()
}

#[test]
fn a_disk_that_fits_the_cache_costs_no_invalidation_and_one_that_does_not_none_elsewhere() {
    let shared = |entries| {
        let mut config = sf_buf(entries);
        config.ephemeral.honour_private = false;
        config
    };
    for name in ["xeon-up", "xeon-htt", "xeon-mp", "xeon-mp-htt"] {
        let cpus = pageferry_model::MachineConfig::named(name).expect("embedded").cpus() as u64;
        assert_eq!(counts(name, sf_buf(64)), [0; 3], "{name}");
        assert_eq!(counts(name, shared(64)), [0; 3], "{name}");
        // Sequential, least recently used first: every page misses.
        assert_eq!(counts(name, sf_buf(32)), [64, 0, 64], "{name}");
        let remote = if cpus > 1 { 64 } else { 0 };
        assert_eq!(counts(name, shared(32)), [64, remote, 64], "{name}");
        // Mapped and unmapped, an address for each request.
        assert_eq!(counts(name, original()), [128, 2 * remote, 0], "{name}");
        // One of the two is flushed.
        for at in [FlushAt::Map, FlushAt::Unmap] {
            assert_eq!(counts(name, flushing(at, FlushBy::User)), [64, remote, 0], "{name} {at:?}");
        }
        // All pages of a request in a row: as many, in fewer shootdowns.
        assert_eq!(counts(name, flushing(FlushAt::Unmap, FlushBy::Range)), [64, remote, 0], "{name}");
        // Each page takes an address from the list.
        assert_eq!(counts(name, with_list(1, FlushAt::Both)), [128, 2 * remote, 64], "{name}");
    }
    assert_eq!(counts("opteron-mp", with_scheme(pageferry_ephemeral::Scheme::Direct)), [0; 3]);
}
