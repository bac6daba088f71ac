//! Soft updates on a mounted volume: what is on the disk at any moment is what they promise, what has waited long
//! enough is there, and what comes back is what was written.

use crate::common::*;
use crate::ispc::{served, try_served};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::Inherit;
use std::collections::BTreeMap;

const DISK: u64 = 256 << 10;
const MAKE: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);

/// The disk as the power would leave it now.
fn disk(u: &U, buffer: Va) -> pageferry_fs::Cached<pageferry_fs::MemoryDevice> {
    let fd = u.open("/dev/md0", OpenFlags::READ).unwrap();
    let mut bytes = Vec::new();
    while bytes.len() < DISK as usize {
        let len = u.read(fd, buffer, 65536).unwrap();
        let mut part = vec![0; len];
        u.load(buffer, &mut part);
        bytes.extend(part);
    }
    u.close(fd).unwrap();
    pageferry_fs::Cached::new(pageferry_fs::MemoryDevice::from_bytes(bytes))
}

/// Complains of what no power cut may leave.
fn whole(u: &U, buffer: Va) -> pageferry_fs::Report {
    let report = pageferry_fs::check(&mut disk(u, buffer)).unwrap();
    let damage = report.problems.iter().find(|p| p.weight == pageferry_fs::Weight::Damage);
    assert_eq!(damage.map(|p| &p.text), None);
    report
}

/// Names and files of a directory change at random, beside what they should be.
fn traffic(u: &U, seed: u64, steps: u64, cut: &dyn Fn()) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % end
    };
    let buffer = u.map(32768, Prot::RW, Inherit::Copy).unwrap();
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for dir in ["/mnt/a", "/mnt/b"] {
        u.mkdir(dir).unwrap();
    }
    for step in 0..steps {
        let mut path = || format!("/mnt/{}/{}", ["a", "b"][below(2) as usize], below(6));
        let (path, to) = (path(), path());
        match below(8) {
            0 => assert_eq!(u.unlink(&path).is_ok(), model.remove(&path).is_some()),
            1 | 2 => {
                assert_eq!(u.rename(&path, &to).is_ok(), model.contains_key(&path));
                if let Some(bytes) = model.remove(&path) {
                    model.insert(to, bytes);
                }
            }
            3 => {
                let fd = u.open(&path, MAKE).unwrap();
                u.sync_file(fd).unwrap();
                u.close(fd).unwrap();
                model.entry(path).or_default();
            }
            _ => {
                let fd = u.open(&path, MAKE | OpenFlags::TRUNCATE).unwrap();
                let bytes: Vec<u8> = (0..below(9000)).map(|i| (i / 7 + step + 1) as u8).collect();
                u.store(buffer, &bytes);
                assert_eq!(u.write(fd, buffer, bytes.len()), Ok(bytes.len()));
                u.close(fd).unwrap();
                model.insert(path, bytes);
            }
        }
        cut();
    }
    for (path, bytes) in model {
        let fd = u.open(&path, OpenFlags::READ).unwrap();
        assert_eq!(u.read(fd, buffer, 32768), Ok(bytes.len()));
        let mut got = vec![0; bytes.len()];
        u.load(buffer, &mut got);
        assert!(got == bytes, "{path}");
        u.close(fd).unwrap();
    }
}

/// A few buffers of which few may wait; they may do so for so long.
fn with_delay(config: KernelConfig, cycles: u64) -> KernelConfig {
    let syncer = SyncerDelays {
        metadata_cycles: Cycles(cycles),
        directory_cycles: Cycles(cycles + cycles / 8),
        file_cycles: Cycles(cycles + cycles / 4),
    };
    let disk = DiskConfig { syncer, buffers: 10, dirty_buffers: 3, ..config.disk };
    KernelConfig { disk, ..config }
}

#[test]
fn the_disk_is_what_soft_updates_promise_at_any_moment() {
    let whole_blocks = [512, 1024, 2048].map(VolumeFormat::of_blocks);
    let fragments = VolumeFormat { block_bytes: 8192, fragment_bytes: 1024 };
    let formats = whole_blocks.into_iter().chain([fragments, VolumeFormat::default()]);
    for ((seed, delay), format) in (1..).zip([0, 200_000, 1 << 50, 200_000, 0]).zip(formats) {
        let config = with_delay(sf_buf(64), delay);
        run("xeon-up", Schedule::Timed, config, move |u| {
            let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
            u.attach_memory_disk(DISK).unwrap();
            u.make_soft_volume(format).unwrap();
            traffic(u, seed, 120, &|| _ = whole(u, buffer));
            u.unmount().unwrap();
            let report = whole(u, buffer);
            assert!(report.is_clean() && report.unmounted, "{:?}", report.problems);
            u.mount_soft().unwrap();
            u.unmount().unwrap();
            u.detach_memory_disk().unwrap();
        });
    }
}

#[test]
fn a_server_of_files_can_have_them_too() {
    for (name, method) in served() {
        let ended = try_served(name, Schedule::Timed, method, Planted::NONE, |u| {
            let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
            u.attach_memory_disk(DISK).unwrap();
            u.make_soft_volume(VolumeFormat::of_blocks(1024)).unwrap();
            traffic(u, 5, 60, &|| ());
            u.unmount().unwrap();
            assert!(whole(u, buffer).is_clean());
            u.detach_memory_disk().unwrap();
        });
        sound(&ended, name);
    }
}

/// How many files are on the disk some time after they were made.
fn files_in_time(defect: Planted<KernelDefect>) -> (u32, u32) {
    let counts = std::rc::Rc::new(std::cell::Cell::new((0, 0)));
    let told = counts.clone();
    let config = with_delay(sf_buf(64), 50_000_000);
    // Nothing is written for want of buffers.
    let disk = DiskConfig { buffers: 64, dirty_buffers: 32, ..config.disk };
    let config = KernelConfig { defect, disk, ..config };
    run("xeon-up", Schedule::Timed, config, move |u| {
        let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
        u.attach_memory_disk(DISK).unwrap();
        u.make_soft_volume(VolumeFormat::of_blocks(2048)).unwrap();
        for i in 0..5 {
            let fd = u.open(&format!("/mnt/{i}"), MAKE).unwrap();
            u.write(fd, buffer, 3000).unwrap();
            u.close(fd).unwrap();
        }
        let early = whole(u, buffer).files;
        // Names wait for inodes, and inodes for bytes: each in its turn.
        for _ in 0..4 {
            u.compute(Instructions(70_000_000));
            _ = u.stat("/mnt/0");
        }
        told.set((early, whole(u, buffer).files));
        u.unmount().unwrap();
        u.detach_memory_disk().unwrap();
    });
    counts.get()
}

#[test]
fn what_has_waited_long_enough_is_on_the_disk() {
    assert_eq!(files_in_time(Planted::NONE), (0, 5));
    assert_eq!(files_in_time(KernelDefect::SyncerForgets.into()), (0, 0));
}
