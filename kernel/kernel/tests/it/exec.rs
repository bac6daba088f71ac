//! Images that take a process's place, from an ordinary file and from a volume; ptrace through frames: while pages are
//! lent and shared, and at what a mapping does not permit; each user in its original and its sf_buf form.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_pmap::PmapCounter;
use pageferry_vm::{Inherit, VmCounter};

const MAKE: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);
const TEXT: u64 = 0x40_0000;
const DATA: u64 = 0x41_0000;

/// An image of 64 bits: a page of text, and data of which the file has less than a page, with two pages behind it.
fn image() -> Vec<u8> {
    let mut file = vec![0; 8192 + 1000];
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let mut put =
        |at: usize, len: usize, value: u64| file[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    put(16, 2, 2);
    put(24, 8, TEXT + 0x10);
    put(32, 8, 64);
    put(54, 2, 56);
    put(56, 2, 2);
    for (i, [offset, at, file_bytes, len, flags]) in
        [[4096, TEXT, 4096, 4096, 5], [8192, DATA, 1000, 9000, 6]].into_iter().enumerate()
    {
        let head = 64 + 56 * i;
        put(head, 4, 1);
        put(head + 4, 4, flags);
        put(head + 8, 8, offset);
        put(head + 16, 8, at);
        put(head + 32, 8, file_bytes);
        put(head + 40, 8, len);
    }
    for (i, byte) in file[4096..].iter_mut().enumerate() {
        *byte = (i / 5 + 1) as u8;
    }
    file
}

/// A dynamic linker: a page of text that may be anywhere, which begins 8 bytes into it.
fn linker() -> Vec<u8> {
    let mut file = image();
    for (at, value) in [(16, 3), (24, 8), (56, 1)] {
        file[at..at + 8].copy_from_slice(&[0; 8]);
        file[at] = value;
    }
    file[18] = 0;
    file[54] = 56;
    file[64 + 16..64 + 24].copy_from_slice(&0u64.to_le_bytes());
    file[4096..8192].fill(0x77);
    file
}

/// The image, with the path of a dynamic linker in its first page.
fn linked(path: &[u8]) -> Vec<u8> {
    let mut file = image();
    let head = 64 + 56 * 2;
    file[56] = 3;
    file[head..head + 4].copy_from_slice(&3u32.to_le_bytes());
    file[head + 8..head + 16].copy_from_slice(&1000u64.to_le_bytes());
    file[head + 32..head + 40].copy_from_slice(&(path.len() as u64 + 1).to_le_bytes());
    file[1000..1000 + path.len()].copy_from_slice(path);
    file
}

fn write_file(u: &U, name: &str, bytes: &[u8]) -> Fd {
    let fd = u.open(name, MAKE).unwrap();
    let from = u.map(bytes.len().next_multiple_of(PAGE_SIZE), Prot::RW, Inherit::Copy).unwrap();
    u.store(from, bytes);
    assert_eq!(u.write(fd, from, bytes.len()), Ok(bytes.len()));
    u.unmap(from, bytes.len().next_multiple_of(PAGE_SIZE)).unwrap();
    fd
}

#[test]
fn an_image_takes_the_place_of_what_was_there() {
    for (what, name, config) in kernels() {
        println!("{what}");
        run(name, Schedule::Timed, config, |u| {
            u.attach_memory_disk(1 << 20).unwrap();
            u.make_volume(VolumeFormat::of_blocks(1024)).unwrap();
            for path in ["/mnt/program", "program"] {
                let bytes = image();
                let fd = write_file(u, path, &bytes);
                let (there, path) = (path.to_owned(), path);
                let child: Program<_> = Box::new(move |u: &U| {
                    let old = u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
                    u.store(old, b"old");
                    let fd = u.open(&there, OpenFlags::READ).unwrap();
                    assert_eq!(u.exec(fd), Ok(Va(TEXT + 0x10)));
                    let mut text = vec![0; 4096];
                    u.load(Va(TEXT), &mut text);
                    assert_eq!(text, bytes[4096..8192]);
                    let mut data = vec![0; 12288];
                    u.load(Va(DATA), &mut data);
                    assert_eq!(data[..1000], bytes[8192..]);
                    assert!(data[1000..].iter().all(|&byte| byte == 0));
                    u.store(Va(DATA), b"own");
                    u.load(Va(DATA), &mut data[..3]);
                    assert_eq!(&data[..3], b"own");
                    // What was there is gone: a write from there says so, and kills nobody.
                    assert_eq!(u.write(fd, old, 3), Err(Errno::BadFd));
                    assert_eq!(u.frame_behind(old), None);
                });
                u.fork("image", child).unwrap();
                u.wait().unwrap();
                // The file is as before.
                let buffer = u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
                u.seek(fd, 8192).unwrap();
                assert_eq!(u.read(fd, buffer, 3), Ok(3));
                let mut three = [0; 3];
                u.load(buffer, &mut three);
                assert_eq!(three, image()[8192..8195]);
                u.close(fd).unwrap();
                u.unlink(path).unwrap();
            }
            u.unmount().unwrap();
            u.detach_memory_disk().unwrap();
        });
    }
}

#[test]
fn what_interprets_an_image_takes_its_place_or_begins_for_it() {
    for (what, name, config) in kernels() {
        println!("{what}");
        run(name, Schedule::Timed, config, |u| {
            u.attach_memory_disk(1 << 20).unwrap();
            u.make_volume(VolumeFormat::of_blocks(1024)).unwrap();
            // Half of them in memory, half on the volume; a link on the way.
            u.close(write_file(u, "sh", &image())).unwrap();
            u.close(write_file(u, "/mnt/ld.so", &linker())).unwrap();
            u.symlink("/mnt/ld.so", "rtld").unwrap();
            for (path, bytes, begins) in [
                ("/mnt/script", b"#! /sh -e\nexit\n".to_vec(), TEXT + 0x10),
                ("dynamic", linked(b"rtld"), 0x60_0000 + 8),
                ("of-dynamic", b"#!dynamic\n".to_vec(), 0x60_0000 + 8),
            ] {
                u.close(write_file(u, path, &bytes)).unwrap();
                let child: Program<_> = Box::new(move |u: &U| {
                    let fd = u.open(path, OpenFlags::READ).unwrap();
                    assert_eq!(u.exec(fd), Ok(Va(begins)), "{path}");
                    u.close(fd).unwrap();
                    let mut text = vec![0; 4096];
                    u.load(Va(TEXT), &mut text);
                    assert_eq!(text, image()[4096..8192]);
                    if begins != TEXT + 0x10 {
                        u.load(Va(0x60_0000), &mut text);
                        assert!(text.iter().all(|&byte| byte == 0x77));
                    }
                });
                u.fork("image", child).unwrap();
                u.wait().unwrap();
            }
            for path in ["sh", "rtld", "/mnt/ld.so", "/mnt/script", "dynamic", "of-dynamic"] {
                u.unlink(path).unwrap();
            }
            u.unmount().unwrap();
            u.detach_memory_disk().unwrap();
        });
    }
}

#[test]
fn an_interpreter_that_is_none_is_refused_and_nothing_has_changed() {
    run("xeon-mp", Schedule::Timed, original(), |u| {
        u.close(write_file(u, "script", b"#!image\n")).unwrap();
        u.close(write_file(u, "image", &image())).unwrap();
        u.close(write_file(u, "text", b"no image")).unwrap();
        u.close(write_file(u, "dynamic", &linked(b"image"))).unwrap();
        u.mkdir("folder").unwrap();
        u.symlink("round", "round").unwrap();
        let kept = u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
        u.store(kept, b"kept");
        for (bytes, error) in [
            (b"#!script\n".to_vec(), Errno::NotExecutable),
            (b"#!text\n".to_vec(), Errno::NotExecutable),
            (b"#!none\n".to_vec(), Errno::NoFile),
            (b"#!bad\n".to_vec(), Errno::NotExecutable),
            // A linker that is not there, none, no image, one that has its own place, and a path without an end.
            (linked(b"none"), Errno::NoFile),
            (linked(b""), Errno::NotExecutable),
            (linked(b"text"), Errno::NotExecutable),
            (linked(b"image"), Errno::NotExecutable),
            (linked(&[b'x'; 300]), Errno::NotExecutable),
            // What is opened for that, and is no file: a directory, a device, a way that leads in a circle.
            (b"#!folder\n".to_vec(), Errno::IsDirectory),
            (b"#!/dev/null\n".to_vec(), Errno::NotExecutable),
            (linked(b"/dev/null"), Errno::NotExecutable),
            (b"#!round\n".to_vec(), Errno::Loop),
            // One that may be anywhere is not executed by itself.
            (linker(), Errno::NotExecutable),
        ] {
            let fd = write_file(u, "bad", &bytes);
            assert_eq!(u.exec(fd), Err(error), "{:?}", bytes.escape_ascii().to_string());
            u.close(fd).unwrap();
            u.unlink("bad").unwrap();
        }
        for name in ["script", "image", "text", "dynamic", "round"] {
            u.unlink(name).unwrap();
        }
        u.rmdir("folder").unwrap();
        let mut bytes = [0; 4];
        u.load(kept, &mut bytes);
        assert_eq!(&bytes, b"kept");
    });
}

#[test]
fn what_is_no_image_is_refused_and_nothing_has_changed() {
    run("xeon-mp", Schedule::Timed, original(), |u| {
        let sound = image();
        let with = |at: usize, byte: u8| {
            let mut bytes = sound.clone();
            bytes[at] = byte;
            bytes
        };
        let bad = [
            b"#!/bin/sh".to_vec(),
            b"#!\n".to_vec(),
            sound[..40].to_vec(),
            // Not the file's all.
            sound[..8192].to_vec(),
            with(0, 0),
            with(5, 2),
            with(16, 3),
            with(54, 3),
            // No segment where text is, one at address zero, one that overlaps, and one that lies elsewhere in its
            // page.
            with(56, 0),
            with(64 + 18, 0),
            with(64 + 56 + 18, 0x40),
            with(64 + 9, 1),
        ];
        let kept = u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
        u.store(kept, b"kept");
        for (i, bytes) in bad.iter().enumerate() {
            let fd = write_file(u, "bad", bytes);
            assert_eq!(u.exec(fd), Err(Errno::NotExecutable), "{i}");
            u.close(fd).unwrap();
            u.unlink("bad").unwrap();
        }
        let (from, to) = u.pipe().unwrap();
        assert_eq!(u.exec(from), Err(Errno::NotExecutable));
        assert_eq!(u.exec(to), Err(Errno::BadFd));
        let mut bytes = [0; 4];
        u.load(kept, &mut bytes);
        assert_eq!(&bytes, b"kept");
    });
}

fn by_frames(mut config: KernelConfig) -> KernelConfig {
    config.disk.ptrace = PtraceBy::Frames;
    config
}

#[test]
fn a_parent_reads_and_writes_a_child_through_its_frames() {
    for (what, name, config) in kernels() {
        println!("{what}");
        run(name, Schedule::Timed, by_frames(config), |u| {
            let shared = u.map(4 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
            u.store(shared, &[1; 4 * PAGE_SIZE]);
            let own = u.map(4 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
            let (ready, tell) = u.pipe().unwrap();
            let (go, start) = u.pipe().unwrap();
            let child: Program<_> = Box::new(move |u: &U| {
                u.close(start).unwrap();
                u.store(shared + PAGE_SIZE, &[2; PAGE_SIZE]);
                u.protect(shared + 2 * PAGE_SIZE, PAGE_SIZE, Prot::READ).unwrap();
                u.write(tell, shared, 1).unwrap();
                let at = u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
                u.read(go, at, 1).unwrap();
                let mut bytes = vec![0; 4 * PAGE_SIZE];
                u.load(shared, &mut bytes);
                let expected = |i: usize| if (100..3 * PAGE_SIZE + 100).contains(&i) { 9 } else { 1 };
                assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == expected(i)));
            });
            let pid = u.fork("traced", child).unwrap();
            u.read(ready, own, 1).unwrap();
            // Across pages, from within one: what is shared with the parent, the child's own, and what it may only
            // read.
            assert_eq!(u.ptrace_read(pid, shared + 100, own, 3 * PAGE_SIZE), Ok(3 * PAGE_SIZE));
            let mut bytes = vec![0; 3 * PAGE_SIZE];
            u.load(own, &mut bytes);
            let expected = |i: usize| if (PAGE_SIZE - 100..2 * PAGE_SIZE - 100).contains(&i) { 2 } else { 1 };
            assert!(bytes.iter().enumerate().all(|(i, &byte)| byte == expected(i)));
            u.store(own, &[9; 4 * PAGE_SIZE]);
            assert_eq!(u.ptrace_write(pid, shared + 100, own, 3 * PAGE_SIZE), Ok(3 * PAGE_SIZE));
            // The parent's own is as it was.
            u.load(shared, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 1));
            assert_eq!(u.ptrace_read(pid, Va(0x7000_0000), own, 10), Err(Errno::Fault));
            assert_eq!(u.ptrace_read(Pid(77), shared, own, 10), Err(Errno::NoProcess));
            u.write(start, own, 1).unwrap();
            u.wait().unwrap();
        });
    }
}

#[test]
fn each_form_of_ptrace_costs_what_its_mappings_cost() {
    let counts = |config: KernelConfig| {
        let found = std::rc::Rc::new(std::cell::Cell::new([0; 3]));
        let cell = found.clone();
        run("xeon-mp", Schedule::Timed, by_frames(config), move |u| {
            let shared = u.map(8 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
            u.store(shared, &[1; 8 * PAGE_SIZE]);
            let own = u.map(8 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
            u.store(own, &[0; 8 * PAGE_SIZE]);
            let (go, start) = u.pipe().unwrap();
            let child: Program<_> = Box::new(move |u: &U| {
                let at = u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
                u.read(go, at, 1).unwrap();
            });
            let pid = u.fork("traced", child).unwrap();
            let read = || assert_eq!(u.ptrace_read(pid, shared, own, 8 * PAGE_SIZE), Ok(8 * PAGE_SIZE));
            read();
            let of = || {
                let snapshot = u.machine().snapshot();
                [
                    PmapCounter::TlbInvalidationsLocal.metric(),
                    PmapCounter::TlbInvalidationsRemoteIssued.metric(),
                    VmCounter::KvaAllocations.metric(),
                ]
                .map(|c| snapshot.counter(c))
            };
            let before = of();
            read();
            let after = of();
            cell.set([0, 1, 2].map(|i| after[i] - before[i]));
            u.write(start, own, 1).unwrap();
            u.wait().unwrap();
        });
        found.get()
    };
    assert_eq!(counts(sf_buf(64)), [0, 0, 0]);
    assert_eq!(counts(original()), [16, 16, 1]);
}
