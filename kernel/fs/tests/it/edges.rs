//! Where something ends or is full: files that end at, before and behind a block; blocks at the ends of what pointers
//! reach; as many names as an inode can have; block sizes from the smallest to the largest.

use crate::common::*;
use pageferry_fs::*;
use std::collections::BTreeMap;

/// Direct blocks of an inode.
const DIRECT: u64 = 12;

/// Pointers in an indirect block.
fn pointers(block_bytes: u32) -> u64 {
    u64::from(block_bytes) / 4
}

/// The blocks of a file at which another pointer begins or ends to lead there.
fn blocks_at_ends(block_bytes: u32) -> Vec<u64> {
    let per = pointers(block_bytes);
    let indirect = DIRECT + per;
    let mut all = Vec::new();
    for start in [0, DIRECT, indirect, indirect + per, indirect + per * (per - 1), indirect + per * per] {
        all.extend([start.checked_sub(1), Some(start)]);
    }
    all.into_iter().flatten().filter(|block| *block < indirect + per * per).collect()
}

/// What is synced is there when the power goes, whichever pointer leads to it.
#[test]
fn fsync_brings_blocks_behind_every_pointer() {
    let formats = [blocks_of(512), blocks_of(1024), fragments_of(1024, 512), fragments_of(4096, 512)];
    for (format, soft) in formats.into_iter().flat_map(|format| [(format, false), (format, true)]) {
        let block_bytes = format.block_bytes;
        for block in blocks_at_ends(block_bytes) {
            let mut side = Side::new(1 << 20, format, 4096, None);
            side.volume.sync(&mut side.store).unwrap();
            if soft {
                side.volume.use_soft_updates(&mut side.store).unwrap();
            }
            let root = side.volume.root();
            let file = side.volume.make(&mut side.store, root, b"file", Kind::File).unwrap();
            let at = block * u64::from(block_bytes);
            side.volume.write(&mut side.store, file, at, b"synced").unwrap();
            side.volume.fsync(&mut side.store, file).unwrap();
            let mut store = Cached::new(side.store.into_device());
            let volume = Volume::mount(&mut store).unwrap();
            let mut after = Side { store, volume, open: [None; SLOTS], own_bytes: None };
            let file = after.find("file").unwrap();
            let mut bytes = [0; 8];
            let got = after.volume.read(&mut after.store, file, at, &mut bytes).unwrap();
            assert_eq!(&bytes[..got], b"synced", "block {block} of {block_bytes} bytes, soft: {soft}");
            after.end().unwrap();
        }
    }
}

/// A file cut to any length near a block's end has its blocks and no more, and grown again it is zeros behind that.
#[test]
fn files_end_at_before_and_behind_a_block() {
    const BLOCK: u64 = 512;
    for block in blocks_at_ends(BLOCK as u32).into_iter().filter(|block| *block < 300) {
        for size in [0, 1, BLOCK - 1].map(|more| block * BLOCK + more) {
            let mut side = Side::new(1 << 20, blocks_of(BLOCK as u32), 64, None);
            let free = side.volume.free_fragments();
            let root = side.volume.root();
            let file = side.volume.make(&mut side.store, root, b"file", Kind::File).unwrap();
            let long = vec![7; ((block + 3) * BLOCK) as usize];
            assert_eq!(side.volume.write(&mut side.store, file, 0, &long), Ok(long.len()));
            side.volume.truncate(&mut side.store, file, size).unwrap();
            let data = size.div_ceil(BLOCK);
            let per = pointers(BLOCK as u32);
            let singles = data.saturating_sub(DIRECT + per).div_ceil(per);
            let indirect = u64::from(data > DIRECT) + u64::from(singles > 0) + singles;
            let stat = side.volume.stat(&mut side.store, file).unwrap();
            assert_eq!(u64::from(stat.fragments), data + indirect, "{size} bytes");
            assert_eq!(u64::from(free - side.volume.free_fragments()), data + indirect, "{size} bytes");
            side.volume.truncate(&mut side.store, file, size + 2 * BLOCK).unwrap();
            let bytes = side.contents(file).unwrap();
            let (kept, grown) = bytes.split_at(size as usize);
            assert!(
                kept.iter().all(|byte| *byte == 7) && grown.iter().all(|byte| *byte == 0),
                "{size} bytes"
            );
            side.end().unwrap();
        }
    }
}

/// Changes bytes of an inode of the first group, on the disk: from byte `at` of it on.
fn change_inode(store: &mut Cached<MemoryDevice>, block_bytes: u64, ino: Ino, at: u64, bytes: &[u8]) {
    store.write(2 * block_bytes + 128 * u64::from(ino.0) + at, bytes, When::Now).unwrap();
}

/// A block is a leftover if the length does not reach it, and only then; the repair frees those, and no others.
#[test]
fn the_checker_knows_where_a_file_ends() {
    const BLOCK: u64 = 512;
    for blocks in [1, DIRECT, DIRECT + 1, DIRECT + 128, DIRECT + 129, DIRECT + 257] {
        let mut side = Side::new(1 << 20, blocks_of(BLOCK as u32), 64, None);
        let root = side.volume.root();
        let file = side.volume.make(&mut side.store, root, b"file", Kind::File).unwrap();
        let bytes = vec![7; (blocks * BLOCK) as usize];
        side.volume.write(&mut side.store, file, 0, &bytes).unwrap();
        let Side { mut store, volume, .. } = side;
        volume.unmount(&mut store).unwrap();
        for (size, leftovers) in
            [(blocks * BLOCK, 0), ((blocks - 1) * BLOCK + 1, 0), ((blocks - 1) * BLOCK, 1)]
        {
            let mut store = Cached::new(store.device().clone());
            change_inode(&mut store, BLOCK, file, 8, &size.to_le_bytes());
            let behind = |report: &Report| {
                report.problems.iter().filter(|problem| problem.text.contains("behind its end")).count()
            };
            assert_eq!(
                behind(&check(&mut store).unwrap()) > 0,
                leftovers > 0,
                "{blocks} blocks, {size} bytes"
            );
            repair(&mut store).unwrap();
            assert!(check(&mut store).unwrap().is_clean(), "{blocks} blocks, {size} bytes");
            let volume = Volume::mount(&mut store).unwrap();
            let mut after = Side { store, volume, open: [None; SLOTS], own_bytes: None };
            assert_eq!(after.contents(file).unwrap(), bytes[..size as usize]);
            after.end().unwrap();
        }
    }
}

/// The most names that an inode can have.
const MAX_LINKS: u16 = 32767;

/// A volume on which the inode of `name`, in the root, says that it has so many names.
fn with_links(kind: Kind, name: &[u8], links: u16) -> (Side, Ino) {
    let mut side = Side::new(1 << 20, blocks_of(512), 64, None);
    let root = side.volume.root();
    let ino = side.volume.make(&mut side.store, root, name, kind).unwrap();
    side.volume.sync(&mut side.store).unwrap();
    change_inode(&mut side.store, 512, ino, 2, &links.to_le_bytes());
    (side, ino)
}

#[test]
fn an_inode_has_so_many_names_and_no_more() {
    for (links, refused) in [(MAX_LINKS - 1, None), (MAX_LINKS, Some(FsError::TooManyLinks))] {
        let (mut side, file) = with_links(Kind::File, b"file", links);
        let root = side.volume.root();
        let linked = side.volume.link(&mut side.store, file, root, b"more");
        assert_eq!(linked.err(), refused, "a name more than {links}");
        let (mut side, dir) = with_links(Kind::Directory, b"dir", links);
        let made = side.volume.make(&mut side.store, dir, b"more", Kind::Directory);
        assert_eq!(made.err(), refused, "a directory in one of {links}");
        // One that comes from elsewhere has as little room there; what stays where it is, and files, need none.
        let (mut side, dir) = with_links(Kind::Directory, b"dir", links);
        let root = side.volume.root();
        side.volume.make(&mut side.store, root, b"from", Kind::Directory).unwrap();
        let free = (side.volume.free_inodes(), side.volume.free_fragments());
        let moved = side.volume.rename(&mut side.store, (root, b"from"), (dir, b"to"));
        assert_eq!(moved.err(), refused, "a directory to one of {links}");
        assert_eq!((side.volume.free_inodes(), side.volume.free_fragments()), free);
        assert_eq!(side.find("from").is_ok(), refused.is_some());
        let found = side.volume.stat(&mut side.store, dir).unwrap().links;
        assert_eq!(found, MAX_LINKS, "of what has or gets the most");
        let file = side.volume.make(&mut side.store, root, b"file", Kind::File).unwrap();
        side.volume.rename(&mut side.store, (root, b"file"), (dir, b"file")).unwrap();
        assert_eq!(side.find("dir/file"), Ok(file));
    }
}

/// A disk that is clear but for what was written: so that large ones take no memory.
#[derive(Clone)]
struct Sparse {
    sectors: u64,
    written: BTreeMap<u64, Vec<u8>>,
}

impl Device for Sparse {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn read(&mut self, sector: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        for (number, to) in (sector..).zip(bytes.chunks_mut(512)) {
            match self.written.get(&number) {
                Some(from) => to.copy_from_slice(from),
                None => to.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, sector: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.written.extend((sector..).zip(bytes.chunks(512).map(<[u8]>::to_vec)));
        Ok(())
    }
}

#[test]
fn a_lost_superblock_comes_back_from_a_copy_at_every_block_size() {
    let whole = (9..=16).map(|shift| blocks_of(1 << shift));
    for format in whole.chain([fragments_of(16384, 2048), fragments_of(1024, 512)]) {
        let block_bytes = format.block_bytes;
        // Two groups, of as many fragments as the first has at most.
        let len_bytes = (32768 + 1000) * u64::from(format.fragment_bytes);
        let mut store = Cached::new(Sparse { sectors: len_bytes / 512, written: BTreeMap::new() });
        let mut volume = Volume::format(&mut store, format).unwrap();
        assert!(volume.geometry().groups() > 1, "{block_bytes}");
        let root = volume.root();
        let file = volume.make(&mut store, root, b"name", Kind::File).unwrap();
        volume.write(&mut store, file, 0, b"bytes").unwrap();
        volume.unmount(&mut store).unwrap();
        store.write(0, &[0; 512], When::Now).unwrap();
        repair(&mut store).unwrap_or_else(|e| panic!("blocks of {block_bytes} bytes: {e}"));
        let mut volume = Volume::mount(&mut store).unwrap();
        let mut bytes = [0; 8];
        assert_eq!(volume.read(&mut store, file, 0, &mut bytes), Ok(5), "{block_bytes}");
    }
}

/// All that can be seen of a volume without reading files: names, what each is, and how much is free.
fn seen(side: &mut Side) -> (u32, u32, Vec<(String, Stat)>) {
    let (mut all, mut next) = (Vec::new(), vec![(side.volume.root(), String::new())]);
    while let Some((dir, path)) = next.pop() {
        all.push((path.clone(), side.volume.stat(&mut side.store, dir).unwrap()));
        for entry in side.volume.entries(&mut side.store, dir).unwrap() {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            match entry.kind {
                Kind::Directory => next.push((entry.ino, path)),
                _ => all.push((path, side.volume.stat(&mut side.store, entry.ino).unwrap())),
            }
        }
    }
    (side.volume.free_inodes(), side.volume.free_fragments(), all)
}

type Step = fn(&mut Side, Ino, Ino) -> Result<(), FsError>;

/// Calls that give a name in the second directory. The root has a file and a directory.
const NAMING: [(&str, Step); 6] = [
    ("make", |s, _, to| s.volume.make(&mut s.store, to, b"new", Kind::File).map(drop)),
    ("mkdir", |s, _, to| s.volume.make(&mut s.store, to, b"new", Kind::Directory).map(drop)),
    ("symlink", |s, _, to| s.volume.make_link(&mut s.store, to, b"new", &[b'x'; 700]).map(drop)),
    ("link", |s, root, to| {
        let file = s.volume.lookup(&mut s.store, root, b"file")?;
        s.volume.link(&mut s.store, file, to, b"new")
    }),
    ("rename a file", |s, root, to| s.volume.rename(&mut s.store, (root, b"file"), (to, b"new"))),
    ("rename a directory", |s, root, to| s.volume.rename(&mut s.store, (root, b"dir"), (to, b"new"))),
];

/// A volume with a file and two directories in its root, of which the second has `names` names of three letters.
fn with_names(names: usize, soft: bool) -> (Side, Ino, Ino) {
    let mut side = Side::new(1 << 20, blocks_of(512), 64, None);
    if soft {
        side.volume.use_soft_updates(&mut side.store).unwrap();
    }
    let root = side.volume.root();
    let mut make = |name: &[u8], kind| side.volume.make(&mut side.store, root, name, kind).unwrap();
    let (file, _, to) =
        (make(b"file", Kind::File), make(b"dir", Kind::Directory), make(b"to", Kind::Directory));
    for n in 0..names {
        side.volume.link(&mut side.store, file, to, format!("{n:03}").as_bytes()).unwrap();
    }
    (side, root, to)
}

/// A call that finds no room at any of its steps has changed nothing: its directory is full, and would have to grow.
#[test]
fn a_call_without_room_changes_nothing() {
    let size = |names| {
        let (mut side, _, to) = with_names(names, false);
        side.volume.stat(&mut side.store, to).unwrap().size_bytes
    };
    let full = (1..).find(|names| size(names + 1) > 512).expect("a directory grows");
    for ((what, call), soft) in NAMING.into_iter().flat_map(|naming| [(naming, false), (naming, true)]) {
        let mut refused = 0;
        for after in 0.. {
            let (mut side, root, to) = with_names(full, soft);
            let before = seen(&mut side);
            side.volume.fail_allocation_after(after);
            let done = call(&mut side, root, to);
            if side.volume.is_to_fail() {
                assert_eq!(done, Ok(()), "{what}, soft: {soft}, after {after}");
                break;
            }
            assert_eq!(done, Err(FsError::NoSpace), "{what}, soft: {soft}, after {after}");
            assert_eq!(seen(&mut side), before, "{what}, soft: {soft}, after {after}");
            side.end().unwrap_or_else(|e| panic!("{what}, soft: {soft}, after {after}: {e}"));
            refused += 1;
        }
        assert!(refused > 0, "{what} takes nothing");
    }
}

/// What a call says that it wrote is there, however little room it found, and at whichever block it found none.
#[test]
fn what_was_written_of_a_call_is_there() {
    const BLOCK: usize = 512;
    for already in [0, 1, DIRECT as usize - 1, DIRECT as usize, DIRECT as usize + 127, DIRECT as usize + 128]
    {
        for room in 0..20 {
            let mut side = Side::new(1 << 20, blocks_of(BLOCK as u32), 4096, None);
            let root = side.volume.root();
            let file = side.volume.make(&mut side.store, root, b"file", Kind::File).unwrap();
            let bytes: Vec<u8> = (0..(already + 30) * BLOCK).map(|at| (at / BLOCK) as u8 | 1).collect();
            side.volume.write(&mut side.store, file, 0, &bytes[..already * BLOCK]).unwrap();
            side.volume.fail_allocation_after(room);
            let wrote =
                side.volume.write(&mut side.store, file, (already * BLOCK) as u64, &bytes[already * BLOCK..]);
            let len = already * BLOCK + wrote.unwrap_or(0);
            let there = side.contents(file).unwrap() == bytes[..len];
            assert!(there, "{already} blocks, and {room} more were got");
            side.end().unwrap_or_else(|e| panic!("{already} blocks, and {room} more were got: {e}"));
        }
    }
}

/// With soft updates, what was removed is room for what comes next, whether the disk knows of it or not.
#[test]
fn what_was_removed_is_room_at_once() {
    let mut side = Side::new(200 << 10, blocks_of(512), 4096, None);
    side.volume.use_soft_updates(&mut side.store).unwrap();
    let root = side.volume.root();
    let fill = |side: &mut Side| {
        let mut made = 0;
        while side.volume.make(&mut side.store, root, format!("f{made}").as_bytes(), Kind::File).is_ok() {
            made += 1;
        }
        made
    };
    let first = fill(&mut side);
    for round in 0..3 {
        assert_eq!(side.volume.free_inodes(), 0);
        side.volume.sync(&mut side.store).unwrap();
        for n in 0..first {
            side.volume.unlink(&mut side.store, root, format!("f{n}").as_bytes()).unwrap();
        }
        assert_eq!(side.volume.free_inodes(), first, "round {round}");
        assert_eq!(fill(&mut side), first, "round {round}");
    }
    // The same of blocks.
    let file = side.volume.lookup(&mut side.store, root, b"f0").unwrap();
    let free = side.volume.free_fragments() as usize;
    let fits = (1..=free).rev().find(|blocks| {
        let bytes = vec![1; blocks * 512];
        let all = side.volume.write(&mut side.store, file, 0, &bytes) == Ok(bytes.len());
        if !all {
            side.volume.truncate(&mut side.store, file, 0).unwrap();
        }
        all
    });
    let bytes = vec![1; fits.expect("some fit") * 512];
    for round in 0..3 {
        side.volume.sync(&mut side.store).unwrap();
        side.volume.truncate(&mut side.store, file, 0).unwrap();
        assert_eq!(side.volume.write(&mut side.store, file, 0, &bytes), Ok(bytes.len()), "round {round}");
    }
    side.end().unwrap();
}
