//! A volume that is full, files as long as they can be, and many names.

use crate::common::*;
use crate::power::Writes;
use pageferry_fs::*;

#[test]
fn a_full_volume_refuses_keeps_what_it_has_and_has_room_again() {
    let whole = [512, 2048, 8192].map(blocks_of);
    for format in whole.into_iter().chain([fragments_of(4096, 512), fragments_of(16384, 8192)]) {
        let mut side = Side::new(1 << 20, format, 64, None);
        let root = side.volume.root();
        let free = side.volume.free_fragments();
        let keep = side.volume.make(&mut side.store, root, b"keep", Kind::File).unwrap();
        side.volume.write(&mut side.store, keep, 0, b"kept").unwrap();
        for round in 0..3 {
            let file = side.volume.make(&mut side.store, root, b"fill", Kind::File).unwrap();
            let mut at = 0;
            let full = loop {
                match side.volume.write(&mut side.store, file, at, &[round; 5000]) {
                    Ok(len) => at += len as u64,
                    Err(e) => break e,
                }
            };
            assert_eq!(full, FsError::NoSpace);
            // A file of indirect blocks has whole ones only.
            assert!(side.volume.free_fragments() < format.block_bytes / format.fragment_bytes);
            let refused = side.volume.make(&mut side.store, root, b"dir", Kind::Directory);
            assert_eq!(refused, Err(FsError::NoSpace));
            let bytes = side.contents(file).unwrap();
            assert!(bytes.len() as u64 == at && bytes.iter().all(|&byte| byte == round));
            assert_eq!(side.contents(keep).unwrap(), b"kept");
            side.volume.unlink(&mut side.store, root, b"fill").unwrap();
            assert_eq!(side.volume.free_fragments(), free - 1);
        }
        side.end().unwrap();
    }
}

#[test]
fn inodes_run_out_and_come_back() {
    let mut side = Side::new(200 << 10, blocks_of(512), 64, None);
    let root = side.volume.root();
    let mut made = 0;
    let full = loop {
        match side.volume.make(&mut side.store, root, format!("f{made}").as_bytes(), Kind::File) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(full, FsError::NoSpace);
    for i in 0..made {
        side.volume.unlink(&mut side.store, root, format!("f{i}").as_bytes()).unwrap();
    }
    assert!(side.volume.entries(&mut side.store, root).unwrap().is_empty());
    side.end().unwrap();
}

#[test]
fn a_file_is_no_longer_than_its_pointers_reach() {
    let mut side = Side::new(1 << 20, blocks_of(512), 64, None);
    let root = side.volume.root();
    let file = side.volume.make(&mut side.store, root, b"long", Kind::File).unwrap();
    let max_bytes = (12 + 128 + 128 * 128) * 512;
    assert_eq!(side.volume.write(&mut side.store, file, max_bytes - 1, b"x"), Ok(1));
    assert_eq!(side.volume.write(&mut side.store, file, max_bytes, b"x"), Err(FsError::TooLarge));
    assert_eq!(side.volume.truncate(&mut side.store, file, max_bytes + 1), Err(FsError::TooLarge));
    assert_eq!(side.volume.stat(&mut side.store, file).unwrap().fragments, 3);
    side.volume.truncate(&mut side.store, file, max_bytes - 1).unwrap();
    side.volume.truncate(&mut side.store, file, 5).unwrap();
    assert_eq!(side.volume.stat(&mut side.store, file).unwrap().fragments, 0);
    side.end().unwrap();
}

#[test]
fn a_symbolic_link_is_a_path_of_some_length_and_no_file() {
    let mut side = Side::new(1 << 20, blocks_of(512), 64, None);
    let root = side.volume.root();
    let longest = vec![b'x'; 1023];
    for path in [&b"a"[..], b"../a/b", &longest] {
        let link = side.volume.make_link(&mut side.store, root, b"link", path).unwrap();
        assert_eq!(side.volume.read_link(&mut side.store, link).as_deref(), Ok(path));
        let stat = side.volume.stat(&mut side.store, link).unwrap();
        assert_eq!((stat.kind, stat.size_bytes, stat.links), (Kind::Link, path.len() as u64, 1));
        assert_eq!(side.volume.read(&mut side.store, link, 0, &mut [0; 8]), Err(FsError::Invalid));
        assert_eq!(side.volume.write(&mut side.store, link, 0, b"x"), Err(FsError::Invalid));
        assert_eq!(side.volume.truncate(&mut side.store, link, 0), Err(FsError::Invalid));
        side.volume.unlink(&mut side.store, root, b"link").unwrap();
    }
    let mut make = |path: &[u8]| side.volume.make_link(&mut side.store, root, b"link", path);
    assert_eq!(make(b""), Err(FsError::NotFound));
    assert_eq!(make(&[b'x'; 1024]), Err(FsError::NameTooLong));
    assert_eq!(make(b"a\0b"), Err(FsError::Invalid));
    assert_eq!(side.volume.make(&mut side.store, root, b"link", Kind::Link), Err(FsError::Invalid));
    assert_eq!(side.volume.read_link(&mut side.store, root), Err(FsError::Invalid));
    // On a volume that is full it leaves nothing behind.
    let file = side.volume.make(&mut side.store, root, b"fill", Kind::File).unwrap();
    let mut at = 0;
    while side.volume.free_fragments() > 1 {
        at += side.volume.write(&mut side.store, file, at, &[1; 512]).unwrap() as u64;
    }
    let free = side.volume.free_inodes();
    assert_eq!(side.volume.make_link(&mut side.store, root, b"link", &longest), Err(FsError::NoSpace));
    assert_eq!((side.volume.free_inodes(), side.volume.free_fragments()), (free, 1));
    side.volume.make_link(&mut side.store, root, b"link", b"short").unwrap();
    side.end().unwrap();
}

/// A program of which one allocation fails: the call does, nothing is lost by that, and the rest goes on. Whether there
/// were so many.
fn with_failure(seed: u64, writes: Writes, after: u32) -> bool {
    let mut random = Random::new(seed);
    let formats = [blocks_of(512), blocks_of(1024), fragments_of(1024, 512), fragments_of(4096, 512)];
    let format = formats[seed as usize % formats.len()];
    let mut side = Side::new(1 << 20, format, 32, None);
    if writes == Writes::Soft {
        side.use_soft_updates(None);
    }
    side.volume.fail_allocation_after(after);
    // Directories grow.
    let root = side.volume.root();
    let mut refused = 0;
    for i in 0..20 {
        let name = format!("{i:0>60}");
        match side.volume.make(&mut side.store, root, name.as_bytes(), Kind::File) {
            Ok(_) => {}
            Err(e) => {
                assert_eq!(e, FsError::NoSpace);
                refused += 1;
            }
        }
    }
    for _ in 0..120 {
        let call = call(&mut random);
        let was_to_fail = side.volume.is_to_fail();
        let answer = side.run(&call);
        if was_to_fail && !side.volume.is_to_fail() && writes == Writes::InOrder {
            // A write that has got some of its blocks is as long as those, and what is left is tried again.
            let wrote = matches!(call, Call::Write(..)) && answer == Answer::Done;
            assert!(
                wrote || answer == Answer::No("ENOSPC"),
                "seed {seed}, after {after}: {call:?} {answer:?}"
            );
        }
    }
    assert!(refused <= 1);
    let failed = !side.volume.is_to_fail();
    let (inodes, blocks) = (side.volume.free_inodes(), side.volume.free_fragments());
    side.volume.sync(&mut side.store).unwrap();
    assert_eq!((side.volume.free_inodes(), side.volume.free_fragments()), (inodes, blocks));
    side.end().unwrap_or_else(|e| panic!("seed {seed}, after {after} allocations: {e}"));
    failed
}

#[test]
fn every_allocation_may_fail_and_the_volume_is_whole() {
    for writes in [Writes::InOrder, Writes::Soft] {
        for seed in 1..=4 {
            let count = (0..).find(|after| !with_failure(seed, writes, *after)).expect("a program ends");
            assert!(count > 20, "{count} allocations");
        }
    }
}
