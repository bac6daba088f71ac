//! A volume mounted on the memory disk: the same calls as on ordinary files, beside a model in the test, under every
//! kernel; what is left on the disk is whole.

use crate::common::*;
use crate::ispc::{served, try_served};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::{Inherit, MapAddr};
use std::collections::BTreeMap;

const DISK: u64 = 2 << 20;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const MAKE: OpenFlags = RW.union(OpenFlags::CREATE);

/// Runs a program under every kernel that has a file system of its own, and under those whose file system is a server's
/// process, by every method by which that gets its requests.
fn everywhere(schedule: Schedule, init: impl Fn(&U) + Clone + 'static) {
    for (what, name, config) in kernels() {
        println!("{what}");
        run(name, schedule, config, init.clone());
    }
    for (name, method) in served() {
        println!("a file server, {method:?} on {name}");
        sound(&try_served(name, schedule, method, Planted::NONE, init.clone()), name);
    }
}

fn mounted(u: &U, format: VolumeFormat) {
    u.attach_memory_disk(DISK).unwrap();
    u.make_volume(format).unwrap();
}

/// Unmounts, and has the disk looked at by the checker.
fn unmounted(u: &U) {
    u.unmount().unwrap();
    let fd = u.open("/dev/md0", OpenFlags::READ).unwrap();
    let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
    let mut bytes = Vec::new();
    loop {
        let len = u.read(fd, buffer, 65536).unwrap();
        if len == 0 {
            break;
        }
        let mut part = vec![0; len];
        u.load(buffer, &mut part);
        bytes.extend(part);
    }
    u.close(fd).unwrap();
    let mut store = pageferry_fs::Cached::new(pageferry_fs::MemoryDevice::from_bytes(bytes));
    let report = pageferry_fs::check(&mut store).unwrap();
    assert!(report.is_clean() && report.unmounted, "{:?}", report.problems);
    u.detach_memory_disk().unwrap();
}

fn put(u: &U, fd: Fd, buffer: Va, bytes: &[u8]) {
    u.store(buffer, bytes);
    assert_eq!(u.write(fd, buffer, bytes.len()), Ok(bytes.len()));
}

fn get(u: &U, fd: Fd, buffer: Va, len: usize) -> Vec<u8> {
    let got = u.read(fd, buffer, len).unwrap();
    let mut bytes = vec![0; got];
    u.load(buffer, &mut bytes);
    bytes
}

#[test]
fn files_of_a_volume_take_the_same_calls_as_others() {
    everywhere(Schedule::Timed, |u| {
        assert_eq!(u.make_volume(VolumeFormat::of_blocks(2048)), Err(Errno::NoDevice));
        assert_eq!(u.open("/mnt/file", MAKE), Err(Errno::NoFile));
        u.attach_memory_disk(DISK).unwrap();
        assert_eq!(u.mount(), Err(Errno::Invalid));
        assert_eq!(u.make_volume(VolumeFormat::of_blocks(1000)), Err(Errno::Invalid));
        u.make_volume(VolumeFormat::of_blocks(2048)).unwrap();
        assert_eq!(u.mount(), Err(Errno::Busy));
        assert_eq!(u.detach_memory_disk(), Err(Errno::Busy));
        let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
        assert_eq!(u.open("/mnt/file", RW), Err(Errno::NoFile));
        let fd = u.open("/mnt/file", MAKE).unwrap();
        let bytes: Vec<u8> = (0..50_000).map(|i| (i / 3) as u8).collect();
        put(u, fd, buffer, &bytes);
        assert_eq!(u.file_size(fd), Ok(50_000));
        u.seek(fd, 0).unwrap();
        assert_eq!(get(u, fd, buffer, 65536), bytes);
        // A hole, and behind it.
        u.seek(fd, 60_000).unwrap();
        put(u, fd, buffer, b"end");
        u.seek(fd, 49_000).unwrap();
        let mut expected = bytes[49_000..].to_vec();
        expected.resize(11_000, 0);
        expected.extend(b"end");
        u.store(buffer, &[9; 16384]);
        assert_eq!(get(u, fd, buffer, 16384), expected);
        u.truncate(fd, 100).unwrap();
        u.truncate(fd, 200).unwrap();
        u.seek(fd, 90).unwrap();
        assert_eq!(get(u, fd, buffer, 1000), [&bytes[90..100], &[0; 100]].concat());
        u.sync_file(fd).unwrap();
        // Names.
        u.mkdir("/mnt/dir").unwrap();
        assert_eq!(u.mkdir("/mnt/dir"), Err(Errno::Exists));
        u.rename("/mnt/file", "/mnt/dir/other").unwrap();
        assert_eq!(u.rmdir("/mnt/dir"), Err(Errno::NotEmpty));
        assert_eq!(u.open("/mnt/dir", RW), Err(Errno::IsDirectory));
        assert_eq!(u.open("/mnt/dir/other/x", MAKE), Err(Errno::NotDirectory));
        assert_eq!(u.list("/mnt"), Ok(vec![("dir".into(), true)]));
        assert_eq!(u.list("/mnt/dir/"), Ok(vec![("other".into(), false)]));
        assert_eq!(u.unmount(), Err(Errno::Busy));
        // Open without a name.
        u.unlink("/mnt/dir/other").unwrap();
        u.seek(fd, 0).unwrap();
        assert_eq!(get(u, fd, buffer, 100), bytes[..100]);
        u.close(fd).unwrap();
        u.rmdir("/mnt/dir").unwrap();
        assert_eq!(u.list("/mnt"), Ok(vec![]));
        let long = format!("/mnt/{}", "n".repeat(256));
        assert_eq!(u.open(&long, MAKE), Err(Errno::NameTooLong));
        unmounted(u);
    });
}

#[test]
fn what_is_unmounted_is_there_when_it_is_mounted_again_and_mapped() {
    everywhere(Schedule::Timed, |u| {
        mounted(u, VolumeFormat::of_blocks(1024));
        let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
        let bytes: Vec<u8> = (0..20_000).map(|i| (i / 5 + 1) as u8).collect();
        let fd = u.open("/mnt/file", MAKE).unwrap();
        put(u, fd, buffer, &bytes);
        // Mapped while its buffers wait to be written.
        let at = u.map_file(fd, 4096, MapAddr::Anywhere, 32768, Prot::RW, false).unwrap();
        let mut got = vec![0; 16384];
        u.load(at, &mut got);
        let mut expected = bytes[4096..].to_vec();
        expected.resize(16384, 0);
        assert_eq!(got, expected);
        u.store(at, &[0; 100]);
        u.unmap(at, 32768).unwrap();
        // Where a server has the file system, no pages of its files are the kernel's.
        match u.map_file(fd, 0, MapAddr::Anywhere, 4096, Prot::READ, true) {
            Ok(shared) if u.kernel().file_server().is_none() => u.unmap(shared, 4096).unwrap(),
            refused => assert_eq!(refused, Err(Errno::NotSupported)),
        }
        u.close(fd).unwrap();
        u.unmount().unwrap();
        u.mount().unwrap();
        let fd = u.open("/mnt/file", RW).unwrap();
        assert_eq!(get(u, fd, buffer, 65536), bytes);
        u.close(fd).unwrap();
        unmounted(u);
    });
}

#[test]
fn random_programs_of_two_processes_see_their_files_and_leave_a_whole_volume() {
    let formats = [
        VolumeFormat::of_blocks(512),
        VolumeFormat::of_blocks(4096),
        VolumeFormat { block_bytes: 4096, fragment_bytes: 512 },
        VolumeFormat::default(),
    ];
    for (seed, format) in (0..).zip(formats) {
        let schedule = if seed == 0 { Schedule::Timed } else { Schedule::Seeded(seed) };
        println!("seed {seed}");
        everywhere(schedule, move |u| {
            mounted(u, format);
            let child: Program<_> = Box::new(move |u: &U| traffic(u, "/mnt/b", seed + 100));
            u.fork("other", child).unwrap();
            traffic(u, "/mnt/a", seed);
            u.wait().unwrap();
            unmounted(u);
        });
    }
}

/// Makes, writes, reads, cuts and removes files in a directory, beside what they should be.
fn traffic(u: &U, dir: &str, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % end
    };
    u.mkdir(dir).unwrap();
    let buffer = u.map(32768, Prot::RW, Inherit::Copy).unwrap();
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for step in 0..60u64 {
        let file = below(6);
        let path = format!("{dir}/{file}");
        match below(8) {
            0 => {
                assert_eq!(u.unlink(&path).is_ok(), model.remove(&file).is_some());
            }
            1 => {
                let to = below(6);
                let renamed = u.rename(&path, &format!("{dir}/{to}")).is_ok();
                assert_eq!(renamed, model.contains_key(&file));
                if let Some(bytes) = model.get(&file).cloned().filter(|_| file != to) {
                    model.remove(&file);
                    model.insert(to, bytes);
                }
            }
            2 => {
                let Some(bytes) = model.get_mut(&file) else { continue };
                let fd = u.open(&path, RW).unwrap();
                let size = below(12_000);
                u.truncate(fd, size).unwrap();
                bytes.resize(size as usize, 0);
                u.close(fd).unwrap();
            }
            3..=5 => {
                let (at, len) = (below(20_000), 1 + below(9_000) as usize);
                let bytes: Vec<u8> = (0..len).map(|i| (i / 9) as u8 ^ step as u8 | 1).collect();
                let fd = u.open(&path, MAKE).unwrap();
                u.seek(fd, at).unwrap();
                put(u, fd, buffer, &bytes);
                if below(3) == 0 {
                    u.sync_file(fd).unwrap();
                }
                u.close(fd).unwrap();
                let whole = model.entry(file).or_default();
                whole.resize(whole.len().max(at as usize + len), 0);
                whole[at as usize..][..len].copy_from_slice(&bytes);
            }
            _ => {
                let Some(bytes) = model.get(&file) else { continue };
                let fd = u.open(&path, RW).unwrap();
                let at = below(20_000).min(bytes.len() as u64);
                u.seek(fd, at).unwrap();
                let expected = &bytes[at as usize..];
                assert_eq!(get(u, fd, buffer, 32768), expected[..expected.len().min(32768)], "step {step}");
                u.close(fd).unwrap();
            }
        }
    }
}

#[test]
fn a_volume_that_is_full_says_so_and_a_bad_address_harms_nothing() {
    everywhere(Schedule::Timed, |u| {
        u.attach_memory_disk(256 << 10).unwrap();
        u.make_volume(VolumeFormat::of_blocks(2048)).unwrap();
        let buffer = u.map(2 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
        u.store(buffer, &[3; 2 * PAGE_SIZE]);
        let fd = u.open("/mnt/full", MAKE).unwrap();
        let mut size = 0;
        let full = loop {
            match u.write(fd, buffer, 2 * PAGE_SIZE) {
                Ok(len) => size += len,
                Err(e) => break e,
            }
        };
        assert_eq!((full, u.file_size(fd)), (Errno::NoSpace, Ok(size as u64)));
        u.truncate(fd, 0).unwrap();
        u.seek(fd, 0).unwrap();
        u.unmap(buffer + PAGE_SIZE, PAGE_SIZE).unwrap();
        assert_eq!(u.write(fd, buffer + (PAGE_SIZE - 3000), 6000), Ok(3000));
        u.seek(fd, 0).unwrap();
        assert_eq!(get(u, fd, buffer, 4096), [3; 3000]);
        assert_eq!(u.write(fd, buffer + PAGE_SIZE, 10), Err(Errno::Fault));
        u.close(fd).unwrap();
        unmounted(u);
    });
}

/// Reads and writes at offsets, descriptors that share one, files that are appended to or must be new: the same on a
/// volume as elsewhere.
#[test]
fn what_is_done_at_an_offset_leaves_the_offset() {
    everywhere(Schedule::Timed, |u| {
        mounted(u, VolumeFormat::of_blocks(1024));
        let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
        let at = |fd: Fd, offset: u64, len: usize| {
            let got = u.read_at(fd, offset, buffer, len).unwrap();
            let mut bytes = vec![0; got];
            u.load(buffer, &mut bytes);
            bytes
        };
        for path in ["/mnt/file", "file"] {
            let exclusive = MAKE.union(OpenFlags::EXCLUSIVE);
            let fd = u.open(path, exclusive).unwrap();
            assert_eq!(u.open(path, exclusive), Err(Errno::Exists));
            let mut expected: Vec<u8> = (0..20_000).map(|i| (i / 7) as u8).collect();
            put(u, fd, buffer, &expected);
            u.seek(fd, 5).unwrap();
            assert_eq!(at(fd, 10_000, 3000), expected[10_000..13_000]);
            assert_eq!(at(fd, 19_990, 3000), expected[19_990..]);
            assert_eq!((at(fd, 20_000, 1), at(fd, 1 << 40, 1)), (vec![], vec![]));
            u.store(buffer, &[0xaa; 3000]);
            assert_eq!(u.write_at(fd, 19_000, buffer, 3000), Ok(3000));
            expected.resize(22_000, 0);
            expected[19_000..].fill(0xaa);
            assert_eq!((u.file_size(fd), get(u, fd, buffer, 10)), (Ok(22_000), expected[5..15].to_vec()));
            // Two descriptors, one offset; the file stays with either.
            let other = u.duplicate(fd).unwrap();
            assert_ne!(fd, other);
            assert_eq!(get(u, other, buffer, 10), expected[15..25]);
            u.close(fd).unwrap();
            assert_eq!(get(u, other, buffer, 10), expected[25..35]);
            assert_eq!(
                (u.duplicate(fd), u.read_at(fd, 0, buffer, 1)),
                (Err(Errno::BadFd), Err(Errno::BadFd))
            );
            let log = u.open(path, OpenFlags::WRITE.union(OpenFlags::APPEND)).unwrap();
            put(u, log, buffer, b"one");
            u.seek(log, 0).unwrap();
            put(u, log, buffer, b"two");
            assert_eq!(at(other, 22_000, 100), b"onetwo");
            assert_eq!(u.read_at(log, 0, buffer, 1), Err(Errno::BadFd));
            u.close(log).and(u.close(other)).unwrap();
            u.unlink(path).unwrap();
        }
        let (from, to) = u.pipe().unwrap();
        assert_eq!(u.read_at(from, 0, buffer, 1), Err(Errno::NotSupported));
        let twin = u.duplicate(to).unwrap();
        u.close(to).unwrap();
        put(u, twin, buffer, b"x");
        u.close(twin).unwrap();
        assert_eq!((get(u, from, buffer, 9), get(u, from, buffer, 9)), (b"x".to_vec(), vec![]));
        u.close(from).unwrap();
        // Names that lead to one file, and what is known of each.
        u.mkdir("/mnt/d").unwrap();
        let fd = u.open("/mnt/d/a", MAKE).unwrap();
        put(u, fd, buffer, b"abc");
        u.close(fd).unwrap();
        u.link("/mnt/d/a", "/mnt/b").unwrap();
        assert_eq!(u.link("/mnt/d/a", "/mnt/b"), Err(Errno::Exists));
        assert_eq!(u.link("/mnt/d", "/mnt/c"), Err(Errno::IsDirectory));
        let file = FileStat { is_directory: false, is_link: false, size_bytes: 3, links: 2 };
        assert_eq!((u.stat("/mnt/b"), u.stat("/mnt/d/a")), (Ok(file), Ok(file)));
        assert!(u.stat("/mnt/d").unwrap().is_directory && u.stat("/mnt").unwrap().is_directory);
        assert_eq!((u.stat("/mnt/x"), u.stat("/mnt/b/x")), (Err(Errno::NoFile), Err(Errno::NotDirectory)));
        u.unlink("/mnt/d/a").unwrap();
        assert_eq!(u.stat("/mnt/b"), Ok(FileStat { links: 1, ..file }));
        unmounted(u);
    });
}

/// Its process is killed in the middle: what waits is written at the end of everything, and disk, buffers and frames
/// go.
#[test]
fn what_a_killed_process_leaves_mounted_is_unmounted_at_the_end() {
    everywhere(Schedule::Timed, |u| {
        mounted(u, VolumeFormat::of_blocks(2048));
        let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
        let fd = u.open("/mnt/file", MAKE).unwrap();
        put(u, fd, buffer, &[7; 50_000]);
        u.store(Va(0x20), &[1]);
        assert!(u.is_killed());
    });
}

#[test]
fn symbolic_links_lead_where_their_paths_say() {
    everywhere(Schedule::Timed, |u| {
        mounted(u, VolumeFormat::of_blocks(1024));
        let buffer = u.map(65536, Prot::RW, Inherit::Copy).unwrap();
        u.mkdir("/mnt/dir").unwrap();
        u.mkdir("/mnt/dir/below").unwrap();
        let fd = u.open("/mnt/dir/file", MAKE).unwrap();
        put(u, fd, buffer, b"bytes");
        u.close(fd).unwrap();
        let bytes_at = |name: &str| {
            let fd = u.open(name, OpenFlags::READ)?;
            let bytes = get(u, fd, buffer, 100);
            u.close(fd).unwrap();
            Ok(bytes)
        };
        // From the link's directory, from the mount point, upwards, to a directory, over another link.
        for (path, name) in [
            ("dir/file", "near"),
            ("/mnt/dir/file", "far"),
            ("../file", "dir/below/up"),
            ("dir", "way"),
            ("way//./file", "over"),
            ("/mnt", "dir/top"),
        ] {
            u.symlink(path, &format!("/mnt/{name}")).unwrap();
            assert_eq!(u.read_link(&format!("/mnt/{name}")).as_deref(), Ok(path));
        }
        for name in
            ["near", "far", "dir/below/up", "way/file", "over", "way/below/up", "way/top/way/top/over"]
        {
            assert_eq!(bytes_at(&format!("/mnt/{name}")), Ok(b"bytes".to_vec()), "{name}");
        }
        let (followed, taken) = (u.stat("/mnt/near").unwrap(), u.stat_link("/mnt/near").unwrap());
        assert_eq!((followed.is_link, followed.size_bytes), (false, 5));
        assert_eq!((taken.is_link, taken.is_directory, taken.size_bytes, taken.links), (true, false, 8, 1));
        assert!(u.stat("/mnt/way").unwrap().is_directory);
        assert_eq!(u.list("/mnt/way/below"), Ok(vec![("up".into(), false)]));
        // What is about the name is about the link.
        assert_eq!(u.mkdir("/mnt/way"), Err(Errno::Exists));
        assert_eq!(u.rmdir("/mnt/way"), Err(Errno::NotDirectory));
        assert_eq!(u.open("/mnt/near", RW | OpenFlags::NO_FOLLOW), Err(Errno::Loop));
        assert_eq!(u.open("/mnt/near", MAKE | OpenFlags::EXCLUSIVE), Err(Errno::Exists));
        assert_eq!(u.symlink("x", "/mnt/near"), Err(Errno::Exists));
        u.rename("/mnt/near", "/mnt/way/other").unwrap();
        assert_eq!(bytes_at("/mnt/dir/other"), Err(Errno::NoFile), "the path begins where the link is now");
        u.unlink("/mnt/dir/other").unwrap();
        // A link of a file by a symbolic link is the file's.
        u.link("/mnt/over", "/mnt/same").unwrap();
        assert_eq!(
            (u.stat_link("/mnt/same").unwrap().is_link, u.stat("/mnt/dir/file").unwrap().links),
            (false, 2)
        );
        // Where it leads to, a file is made.
        u.symlink("dir/new", "/mnt/made").unwrap();
        assert_eq!(bytes_at("/mnt/made"), Err(Errno::NoFile));
        let fd = u.open("/mnt/made", MAKE).unwrap();
        put(u, fd, buffer, b"new");
        u.close(fd).unwrap();
        assert_eq!(bytes_at("/mnt/dir/new"), Ok(b"new".to_vec()));
        assert!(u.stat_link("/mnt/made").unwrap().is_link);
        // Circles, chains, and paths off the volume.
        u.symlink("round", "/mnt/round").unwrap();
        u.symlink("/etc/passwd", "/mnt/off").unwrap();
        u.symlink("dir/file", "/mnt/c0").unwrap();
        for i in 1..=32 {
            u.symlink(&format!("c{}", i - 1), &format!("/mnt/c{i}")).unwrap();
        }
        assert_eq!(bytes_at("/mnt/round"), Err(Errno::Loop));
        assert_eq!(bytes_at("/mnt/round/x"), Err(Errno::Loop));
        assert_eq!(u.stat("/mnt/off"), Err(Errno::NoFile));
        assert_eq!(bytes_at("/mnt/c31"), Ok(b"bytes".to_vec()));
        assert_eq!(bytes_at("/mnt/c32"), Err(Errno::Loop));
        assert_eq!(u.read_link("/mnt/dir"), Err(Errno::Invalid));
        assert_eq!(u.read_link("/mnt/none"), Err(Errno::NoFile));
        assert_eq!(u.symlink("", "/mnt/none"), Err(Errno::NoFile));
        assert_eq!(u.symlink(&"x".repeat(1024), "/mnt/none"), Err(Errno::NameTooLong));
        let longest = "x".repeat(1023);
        u.symlink(&longest, "/mnt/longest").unwrap();
        // On the disk, too.
        u.unmount().unwrap();
        u.mount().unwrap();
        assert_eq!(u.read_link("/mnt/longest"), Ok(longest));
        assert_eq!(bytes_at("/mnt/over"), Ok(b"bytes".to_vec()));
        unmounted(u);
    });
}
