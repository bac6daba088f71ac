//! The last block of a file has as many fragments as the file needs: taken where they fit best, more of them where they
//! are or elsewhere, given back where the file is cut.

use crate::common::*;
use pageferry_fs::*;

const FORMATS: [(u32, u32); 4] = [(1024, 512), (4096, 512), (4096, 2048), (16384, 2048)];

/// Fragments that a file without holes has, with those of indirect blocks.
fn needed(format: Format, len: u64) -> u64 {
    let (block, fragment) = (u64::from(format.block_bytes), u64::from(format.fragment_bytes));
    let (blocks, per) = (len.div_ceil(block), block / 4);
    let singles = blocks.saturating_sub(12 + per).div_ceil(per);
    let indirect = u64::from(blocks > 12) + u64::from(singles > 0) + singles;
    let data = if blocks > 12 { blocks * block } else { len.next_multiple_of(fragment) };
    data / fragment + indirect * (block / fragment)
}

/// Files grow and are cut at random, beside their bytes: each has what its length needs, and no more.
#[test]
fn files_have_the_fragments_that_their_lengths_need() {
    for ((block_bytes, fragment_bytes), soft) in FORMATS.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let format = fragments_of(block_bytes, fragment_bytes);
        let mut random = Random::new(u64::from(block_bytes + fragment_bytes));
        let mut side = Side::new(4 << 20, format, 64, None);
        if soft {
            side.use_soft_updates(None);
        }
        let (root, free) = (side.volume.root(), u64::from(side.volume.free_fragments()));
        let mut files: Vec<(Ino, Vec<u8>)> = (0..5u8)
            .map(|i| (side.volume.make(&mut side.store, root, &[b'a' + i], Kind::File).unwrap(), Vec::new()))
            .collect();
        for step in 0..600 {
            let (ino, bytes) = &mut files[random.below(5) as usize];
            // Half of the lengths are beside where a fragment, or the direct blocks, end.
            let limit = 14 * u64::from(block_bytes);
            let len = match random.below(4) {
                0 => random.below(limit),
                1 => bytes.len() as u64 + random.below(2 * u64::from(fragment_bytes)),
                n => {
                    let unit = u64::from(if n == 2 { fragment_bytes } else { block_bytes });
                    (random.below(limit / unit) * unit + random.below(3)).saturating_sub(1)
                }
            };
            let old = bytes.len();
            if len as usize > old {
                bytes.resize(len as usize, step as u8 | 1);
                let written = side.volume.write(&mut side.store, *ino, old as u64, &bytes[old..]);
                assert_eq!(written, Ok(len as usize - old), "step {step}");
            } else {
                bytes.truncate(len as usize);
                side.volume.truncate(&mut side.store, *ino, len).unwrap();
            }
            let (ino, has) = (*ino, needed(format, len));
            let stat = side.volume.stat(&mut side.store, ino).unwrap();
            assert_eq!(u64::from(stat.fragments), has, "{format:?}, step {step}: {old} to {len} bytes");
            let all: u64 = files.iter().map(|(_, bytes)| needed(format, bytes.len() as u64)).sum();
            assert_eq!(u64::from(side.volume.free_fragments()), free - all, "{format:?}, step {step}");
        }
        for (ino, bytes) in files {
            assert!(side.contents(ino).unwrap() == bytes, "{format:?}");
        }
        side.end().unwrap_or_else(|e| panic!("{format:?}, soft: {soft}: {e}"));
    }
}

/// Where a file's bytes are on the disk.
fn place(side: &mut Side, ino: Ino) -> u64 {
    side.volume.piece(&mut side.store, ino, 0, 1).unwrap().at.expect("it is no hole")
}

fn append(side: &mut Side, ino: Ino, len: usize) {
    let size = side.volume.stat(&mut side.store, ino).unwrap().size_bytes;
    assert_eq!(side.volume.write(&mut side.store, ino, size, &vec![7; len]), Ok(len));
}

#[test]
fn fragments_are_taken_where_they_fit_best_and_move_where_they_cannot_grow() {
    let mut side = Side::new(4 << 20, fragments_of(4096, 512), 64, None);
    let root = side.volume.root();
    let mut make = |name: &[u8], fragments: usize| {
        let ino = side.volume.make(&mut side.store, root, name, Kind::File).unwrap();
        append(&mut side, ino, fragments * 512);
        (ino, place(&mut side, ino))
    };
    // All in the first block, one behind the other: 1, 2, 1, and 4 are left.
    let (a, at) = make(b"a", 1);
    assert_eq!(at % 4096, 0, "a block is cut up");
    let (b, at_b) = make(b"b", 2);
    let (_, at_c) = make(b"c", 1);
    assert_eq!((at_b, at_c), (at + 512, at + 3 * 512));
    // What is free of it is too short.
    let (_, at_d) = make(b"d", 5);
    assert_eq!(at_d, at + 4096);
    // That is the smallest that has room for three, and for one.
    let (_, at_e) = make(b"e", 3);
    assert_eq!(at_e, at_d + 5 * 512);
    let (_, at_f) = make(b"f", 1);
    assert_eq!(at_f, at + 4 * 512);
    // It cannot grow between others, and gets a block with room to grow, where it stays.
    append(&mut side, b, 1);
    let moved = place(&mut side, b);
    assert_eq!(moved, at + 2 * 4096);
    append(&mut side, b, 4096 - 2 * 512 - 1);
    assert_eq!(place(&mut side, b), moved);
    // It would stay where it is if it could.
    side.volume.unlink(&mut side.store, root, b"c").unwrap();
    append(&mut side, a, 512);
    assert_eq!(
        place(&mut side, a),
        at + 3 * 4096,
        "what another has moved from is not free before it is written"
    );
    side.volume.sync(&mut side.store).unwrap();
    let mut make = |name: &[u8], fragments: usize| {
        let ino = side.volume.make(&mut side.store, root, name, Kind::File).unwrap();
        append(&mut side, ino, fragments * 512);
        (ino, place(&mut side, ino))
    };
    let (g, at_g) = make(b"g", 1);
    assert_eq!(at_g, at + 5 * 512, "the smallest run");
    append(&mut side, g, 2 * 512);
    assert_eq!(place(&mut side, g), at_g);
    side.end().unwrap();
}

/// The power goes when a file has moved, another has what it has moved from, and the inode of the first is not written.
#[test]
fn what_a_file_has_moved_from_is_not_anothers_while_the_disk_says_it_is_its_own() {
    let cut = |defect| {
        let mut side = Side::new(4 << 20, fragments_of(4096, 512), 4096, defect);
        let root = side.volume.root();
        let mut made = |name: &[u8]| {
            let ino = side.volume.make(&mut side.store, root, name, Kind::File).unwrap();
            append(&mut side, ino, 512);
            side.volume.fsync(&mut side.store, ino).unwrap();
            ino
        };
        let (first, _) = (made(b"first"), made(b"beside"));
        let at = place(&mut side, first);
        append(&mut side, first, 512);
        assert_ne!(place(&mut side, first), at);
        let mut others = Vec::new();
        for i in 0..12u8 {
            let other = side.volume.make(&mut side.store, root, &[b'0' + i], Kind::File).unwrap();
            append(&mut side, other, 512);
            side.volume.fsync(&mut side.store, other).unwrap();
            others.push(place(&mut side, other));
        }
        let report = check(&mut Cached::new(side.store.into_device())).unwrap();
        (others.contains(&at), report)
    };
    let (reused, report) = cut(None);
    assert!(!reused && !report.is_damaged(), "{:?}", report.problems);
    let (reused, report) = cut(Some(FsDefect::VacatedReused));
    assert!(reused && report.is_damaged(), "the defect is found");
}

/// With soft updates what was synced stays, whenever the power goes while the block that it is in moves.
#[test]
fn what_was_synced_is_there_while_its_block_moves() {
    let mut side = Side::new(2 << 20, fragments_of(4096, 512), 4096, None);
    let root = side.volume.root();
    side.use_soft_updates(None);
    let mut made = |name: &[u8]| {
        let ino = side.volume.make(&mut side.store, root, name, Kind::File).unwrap();
        append(&mut side, ino, 500);
        side.volume.fsync(&mut side.store, ino).unwrap();
        ino
    };
    let (file, _) = (made(b"file"), made(b"beside"));
    let (at, base) = (place(&mut side, file), side.store.device().clone());
    side.store.device_mut().keep_journal();
    append(&mut side, file, 1500);
    let moved = place(&mut side, file);
    assert_ne!(moved, at);
    // What it has moved from is another's as soon as that may be.
    for i in 0..8u8 {
        side.volume.sync(&mut side.store).unwrap();
        let other = side.volume.make(&mut side.store, root, &[b'0' + i], Kind::File).unwrap();
        assert_eq!(side.volume.write(&mut side.store, other, 0, &[i; 512]), Ok(512));
    }
    side.volume.sync(&mut side.store).unwrap();
    let device = side.store.into_device();
    for count in 0..=device.written() {
        let mut store = Cached::new(device.cut(&base, count));
        repair(&mut store).unwrap();
        let volume = Volume::mount(&mut store).unwrap();
        let mut after = Side { store, volume, open: [None; SLOTS], own_bytes: None };
        let bytes = after.contents(file).unwrap();
        assert!(bytes.len() >= 500 && bytes.iter().all(|byte| *byte == 7), "behind write {count}");
    }
}

/// A volume whose last free fragments are those that a file has moved from.
#[test]
fn what_a_file_has_moved_from_is_room_where_there_is_no_other() {
    let mut side = Side::new(1 << 20, fragments_of(4096, 512), 4096, None);
    let root = side.volume.root();
    // Files of whole blocks, and then of single fragments.
    let fill = |side: &mut Side, name: &str, left: u32| {
        for i in 0.. {
            let free = side.volume.free_fragments() - left;
            if free == 0 {
                break;
            }
            let name = format!("{name}{i}");
            let ino = side.volume.make(&mut side.store, root, name.as_bytes(), Kind::File).unwrap();
            append(side, ino, 512 * if free > 100 { 8 * 11 } else { 1 });
        }
    };
    let file = side.volume.make(&mut side.store, root, b"file", Kind::File).unwrap();
    append(&mut side, file, 512);
    let beside = side.volume.make(&mut side.store, root, b"beside", Kind::File).unwrap();
    append(&mut side, beside, 512);
    side.volume.sync(&mut side.store).unwrap();
    fill(&mut side, "a", 8);
    append(&mut side, file, 512);
    fill(&mut side, "b", 0);
    side.end().unwrap();
}

#[test]
fn fragments_of_no_proper_size_are_refused() {
    for (block_bytes, fragment_bytes) in [(4096, 256), (8192, 512), (4096, 8192), (4096, 1000), (512, 256)] {
        let mut store = Cached::new(MemoryDevice::new(1 << 20));
        let refused = Volume::format(&mut store, fragments_of(block_bytes, fragment_bytes));
        let Err(FsError::Refused(why)) = refused.map(drop) else { panic!("{block_bytes}, {fragment_bytes}") };
        assert!(why.starts_with(&format!("fragments of {fragment_bytes} bytes, expected a power")), "{why}");
    }
}

/// A volume of the version before, which knew of no fragments.
#[test]
fn a_volume_of_whole_blocks_of_the_version_before_is_one_of_this() {
    let mut side = Side::new(1 << 20, blocks_of(1024), 64, None);
    let root = side.volume.root();
    let file = side.volume.make(&mut side.store, root, b"name", Kind::File).unwrap();
    append(&mut side, file, 3000);
    let Side { mut store, volume, .. } = side;
    volume.unmount(&mut store).unwrap();
    let mut sector = [0; 512];
    store.read(0, &mut sector).unwrap();
    sector[8] = 1;
    sector[32..36].fill(0);
    let sum = !sector[..508].iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    });
    sector[508..].copy_from_slice(&sum.to_le_bytes());
    store.write(0, &sector, When::Now).unwrap();
    let volume = Volume::mount(&mut store).unwrap();
    let mut side = Side { store, volume, open: [None; SLOTS], own_bytes: None };
    assert_eq!(side.contents(file).unwrap(), [7; 3000]);
    side.end().unwrap();
}
