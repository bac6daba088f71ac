//! Superblocks, groups, inodes, the fragments that they have, and free maps.

use super::report::{Fix, Report, Weight};
use crate::Ino;
use crate::error::FsError;
use crate::inode::{Inode, Kind};
use crate::layout::{DIRECT, Geometry, INODE_BYTES, ROOT, Run};
use crate::maps::Maps;
use crate::store::Store;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

pub(super) struct Scan {
    pub(super) geometry: Geometry,
    pub(super) report: Report,
    /// Inodes in use.
    pub(super) inodes: BTreeMap<Ino, Inode>,
    /// The inode that has each fragment; 0 for none.
    owners: Vec<u32>,
    /// What the maps should be.
    pub(super) maps: Maps,
    /// The blocks of each directory, in order, a hole being 0.
    pub(super) dir_blocks: BTreeMap<Ino, Vec<u32>>,
}

/// The walk through one inode's pointers.
struct Walk {
    ino: Ino,
    /// Fragments found, with those of indirect blocks.
    found: u32,
    /// Blocks found, without indirect ones.
    found_blocks: u64,
    size: u64,
    /// The next block's index.
    index: u64,
    /// Blocks that the length covers.
    covered: u64,
    blocks: Option<Vec<u32>>,
}

impl Scan {
    pub(super) fn new(geometry: Geometry) -> Scan {
        Scan {
            geometry,
            report: Report::default(),
            inodes: BTreeMap::new(),
            owners: vec![0; geometry.fragments as usize],
            maps: Maps::empty(geometry),
            dir_blocks: BTreeMap::new(),
        }
    }

    pub(super) fn run(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        self.groups(store)?;
        self.all_inodes(store)?;
        self.tree(store)?;
        self.compare_maps(store)
    }

    fn groups(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        for group in 0..self.geometry.groups() {
            let at = self.geometry.byte_of(group * self.geometry.group_fragments);
            if Geometry::read(store, at).map(|(found, _)| found) != Ok(self.geometry) {
                let text = format!("group {group} has no sound copy of the superblock");
                self.report.add(Weight::Damage, Fix::Superblock(group), text);
            }
            if !self.geometry.has_header(store, group)? {
                let text = format!("group {group} has no header");
                self.report.add(Weight::Damage, Fix::Header(group), text);
            }
        }
        Ok(())
    }

    fn all_inodes(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        let per = self.geometry.group_inodes;
        let mut table = vec![0; per as usize * INODE_BYTES];
        for group in 0..self.geometry.groups() {
            store.read(self.geometry.inode_at(group * per), &mut table)?;
            for (i, bytes) in (0..).zip(table.chunks_exact(INODE_BYTES)) {
                let ino = Ino(group * per + i);
                match Inode::decode(bytes.try_into().expect("as long as an inode")) {
                    Ok(Inode { kind: None, .. }) => {}
                    Ok(_) if ino.0 < ROOT => {
                        let text = format!("inode {} is nobody's, and in use", ino.0);
                        self.report.add(Weight::Damage, Fix::ClearInode(ino), text);
                    }
                    Ok(inode) if inode.size > self.geometry.max_bytes() => {
                        let text = format!("inode {} is of {} bytes", ino.0, inode.size);
                        self.report.add(Weight::Damage, Fix::ClearInode(ino), text);
                    }
                    Ok(inode) => {
                        self.inodes.insert(ino, inode);
                    }
                    Err(kind) => {
                        let text = format!("inode {} is of kind {kind}", ino.0);
                        self.report.add(Weight::Damage, Fix::ClearInode(ino), text);
                    }
                }
            }
        }
        let known: Vec<(Ino, Inode)> = self.inodes.iter().map(|(ino, inode)| (*ino, *inode)).collect();
        for (ino, inode) in known {
            self.blocks_of(store, ino, &inode)?;
        }
        Ok(())
    }

    /// Walks through the blocks of an inode.
    fn blocks_of(&mut self, store: &mut dyn Store, ino: Ino, inode: &Inode) -> Result<(), FsError> {
        let covered = inode.size.div_ceil(u64::from(self.geometry.block_bytes));
        let is_dir = inode.kind == Some(Kind::Directory);
        let size = inode.size;
        let blocks = is_dir.then(Vec::new);
        let mut walk = Walk { ino, found: 0, found_blocks: 0, size, index: 0, covered, blocks };
        let pointers_at = self.geometry.inode_at(ino.0) + 16;
        for (i, &pointer) in inode.pointers.iter().enumerate() {
            let depth = i.saturating_sub(DIRECT - 1) as u32;
            self.pointer(store, &mut walk, pointers_at + 4 * i as u64, pointer, depth)?;
        }
        if walk.found != inode.fragments {
            let text = format!("inode {} has {} fragments and says {}", ino.0, walk.found, inode.fragments);
            self.report.add(Weight::Leftover, Fix::SetFragments(ino, walk.found), text);
        }
        if inode.kind == Some(Kind::Link) && (!inode.is_path() || walk.found_blocks != covered) {
            let text = format!("inode {} is a symbolic link that leads nowhere", ino.0);
            self.report.add(Weight::Damage, Fix::ClearInode(ino), text);
        }
        self.report.fragments += walk.found;
        if let Some(blocks) = walk.blocks {
            self.dir_blocks.insert(ino, blocks);
        }
        Ok(())
    }

    /// Looks at a pointer that is at byte `at`, and at what is behind it.
    fn pointer(
        &mut self,
        store: &mut dyn Store,
        walk: &mut Walk,
        at: u64,
        pointer: u32,
        depth: u32,
    ) -> Result<(), FsError> {
        let covers = self.geometry.pointers().pow(depth);
        let index = walk.index;
        walk.index += covers;
        let ino = walk.ino.0;
        let count = match depth {
            // Of what is behind the end it is not known how much it was.
            0 if index >= walk.covered => 1,
            0 => self.geometry.fragments_at(walk.size, index),
            _ => self.geometry.per_block(),
        };
        let run = Run { first: pointer, count };
        let fragments = pointer as usize..pointer.saturating_add(count) as usize;
        let bad = if pointer == 0 {
            None
        } else if !self.geometry.is_data(run) {
            let text = format!("inode {ino} has {count} fragments at {pointer}, which no file can have");
            Some((Weight::Damage, text))
        } else if let Some(other) = self.owners[fragments.clone()].iter().find(|owner| **owner != 0) {
            Some((Weight::Damage, format!("inodes {other} and {ino} both have fragments at {pointer}")))
        } else if index >= walk.covered {
            Some((Weight::Leftover, format!("inode {ino} has fragments at {pointer} behind its end")))
        } else {
            None
        };
        let pointer = if let Some((weight, text)) = bad {
            self.report.add(weight, Fix::ClearPointer(at), text);
            0
        } else {
            pointer
        };
        if pointer != 0 {
            self.owners[fragments].fill(ino);
            self.maps.mark_run(run, true);
            walk.found += count;
            walk.found_blocks += u64::from(depth == 0);
        }
        if depth > 0 && pointer != 0 {
            walk.index = index;
            let mut bytes = vec![0; self.geometry.block_bytes as usize];
            store.read(self.geometry.byte_of(pointer), &mut bytes)?;
            for (i, word) in (0..).zip(bytes.chunks_exact(4)) {
                let below = u32::from_le_bytes(word.try_into().expect("four bytes"));
                self.pointer(store, walk, self.geometry.byte_of(pointer) + 4 * i, below, depth - 1)?;
            }
        } else if let Some(blocks) = &mut walk.blocks {
            let end = walk.covered.min(index + covers);
            blocks.extend((index..end).map(|i| if i == index { pointer } else { 0 }));
        }
        Ok(())
    }

    /// Compares the free maps with what was found.
    fn compare_maps(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        let said = Maps::load(self.geometry, store)?;
        let inodes = self.inodes.keys().copied().collect::<Vec<_>>();
        inodes.into_iter().for_each(|ino| self.maps.mark_inode(ino, true));
        let fragments =
            (0..self.geometry.fragments).filter(|&f| said.has_fragment(f) != self.maps.has_fragment(f));
        let inodes = (ROOT + 1..self.geometry.inodes())
            .filter(|&i| said.has_inode(Ino(i)) != self.maps.has_inode(Ino(i)));
        let (fragments, inodes) = (fragments.count(), inodes.count());
        if (fragments, inodes) != (0, 0) {
            let text = format!("the free maps are wrong about {fragments} fragments and {inodes} inodes");
            self.report.add(Weight::Leftover, Fix::Maps, text);
        }
        Ok(())
    }
}
