//! Directories, the names in them, and how many names every inode has.

use super::report::{Fix, Weight};
use super::scan::Scan;
use crate::Ino;
use crate::chunk::slots;
use crate::error::FsError;
use crate::inode::Kind;
use crate::layout::ROOT;
use crate::store::{SECTOR_BYTES as CHUNK, Store};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

/// A name of a directory: where it is, and in which one.
struct Named {
    chunk_at: u64,
    slot_at: usize,
    within: Ino,
}

/// What is gathered of names.
#[derive(Default)]
struct Names {
    /// Names of every inode.
    counts: BTreeMap<Ino, u32>,
    /// Names of every directory.
    of_dirs: BTreeMap<Ino, Vec<Named>>,
    /// What every directory says of its parent, and where.
    parents: BTreeMap<Ino, (Ino, u64, usize)>,
    /// What lies in every directory.
    children: BTreeMap<Ino, Vec<Ino>>,
}

impl Scan {
    pub(super) fn tree(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        let root = Ino(ROOT);
        if self.inodes.get(&root).is_none_or(|inode| inode.kind != Some(Kind::Directory)) {
            let text = "there is no root directory".into();
            self.report.add(Weight::Damage, Fix::ResetChunk(0, root, true), text);
            return Ok(());
        }
        let mut names = Names::default();
        let dirs: Vec<Ino> = self.dir_blocks.keys().copied().collect();
        for dir in dirs {
            self.directory(store, dir, &mut names)?;
        }
        let reached = Self::reached(&names);
        self.parents(&names);
        self.counts(&names, &reached);
        Ok(())
    }

    /// All that can be reached from the root.
    fn reached(names: &Names) -> BTreeSet<Ino> {
        let mut reached = BTreeSet::from([Ino(ROOT)]);
        let mut next = Vec::from([Ino(ROOT)]);
        while let Some(dir) = next.pop() {
            for &child in names.children.get(&dir).into_iter().flatten() {
                if reached.insert(child) {
                    next.push(child);
                }
            }
        }
        reached
    }

    fn directory(&mut self, store: &mut dyn Store, dir: Ino, names: &mut Names) -> Result<(), FsError> {
        let size = self.inodes[&dir].size;
        let block_bytes = u64::from(self.geometry.block_bytes);
        let blocks = self.dir_blocks[&dir].clone();
        if !size.is_multiple_of(block_bytes) || size == 0 || blocks.contains(&0) {
            let text = format!("directory {} is of {size} bytes, or has a hole", dir.0);
            if dir.0 == ROOT {
                self.report.add(Weight::Damage, Fix::ResetChunk(0, dir, true), text);
            } else {
                self.report.add(Weight::Damage, Fix::ClearInode(dir), text);
                self.inodes.remove(&dir);
            }
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        for (i, block) in blocks.into_iter().enumerate() {
            for at in self.geometry.bytes_of(self.geometry.block_at(block)).step_by(CHUNK) {
                let is_first = i == 0 && at == self.geometry.byte_of(block);
                self.chunk_of(store, dir, at, is_first, (&mut seen, &mut *names))?;
            }
        }
        Ok(())
    }

    fn chunk_of(
        &mut self,
        store: &mut dyn Store,
        dir: Ino,
        at: u64,
        is_first: bool,
        (seen, names): (&mut BTreeSet<Vec<u8>>, &mut Names),
    ) -> Result<(), FsError> {
        let mut chunk = [0; CHUNK];
        store.read(at, &mut chunk)?;
        let found = slots(&chunk);
        let is = |i: usize, name: &[u8]| match &found {
            Ok(found) => found.get(i).is_some_and(|s| s.ino != 0 && s.kind == 2 && s.name(&chunk) == name),
            Err(_) => false,
        };
        let whole = !is_first || is(0, b".") && is(1, b"..");
        let Some(found) = found.as_ref().ok().filter(|_| whole) else {
            let text = format!("directory {} has entries that make no sense, at byte {at}", dir.0);
            self.report.add(Weight::Damage, Fix::ResetChunk(at, dir, is_first), text);
            return Ok(());
        };
        for (i, slot) in found.iter().enumerate().filter(|(_, slot)| slot.ino != 0) {
            let (name, ino) = (slot.name(&chunk), Ino(slot.ino));
            if is_first && i == 1 {
                names.parents.insert(dir, (ino, at, slot.at));
                continue;
            }
            if is_first && i == 0 {
                if ino != dir {
                    let text = format!("directory {} takes itself for {}", dir.0, ino.0);
                    self.report.add(Weight::Damage, Fix::SetParent(at, slot.at, dir), text);
                }
                continue;
            }
            let shown = alloc::string::String::from_utf8_lossy(name).into_owned();
            let remove = |why: &str| format!("directory {}: `{shown}` {why}", dir.0);
            let odd = name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0);
            let why = match self.inodes.get(&ino) {
                _ if odd => "is no name",
                None => "is of an inode that is free, or none",
                Some(_) if ino.0 == ROOT => "is the root",
                Some(_) if !seen.insert(name.to_vec()) => "is there twice",
                Some(_) => "",
            };
            if !why.is_empty() {
                self.report.add(Weight::Damage, Fix::RemoveEntry(at, slot.at), remove(why));
                continue;
            }
            let kind = self.inodes[&ino].kind.expect("only those in use are kept");
            if slot.kind != kind.number() {
                let text = remove("is of another kind than its inode");
                self.report.add(Weight::Damage, Fix::SetKind(at, slot.at, kind), text);
            }
            *names.counts.entry(ino).or_default() += 1;
            names.children.entry(dir).or_default().push(ino);
            if kind == Kind::Directory {
                let named = Named { chunk_at: at, slot_at: slot.at, within: dir };
                names.of_dirs.entry(ino).or_default().push(named);
            }
        }
        Ok(())
    }

    /// Directories have one name, and know in which one it is. On its way a directory has two.
    fn parents(&mut self, names: &Names) {
        let root = Ino(ROOT);
        if let Some(&(parent, at, slot)) = names.parents.get(&root)
            && parent != root
        {
            let text = format!("the root's parent is {}", parent.0);
            self.report.add(Weight::Damage, Fix::SetParent(at, slot, root), text);
        }
        for (dir, named) in &names.of_dirs {
            let Some(&(parent, at, slot)) = names.parents.get(dir) else { continue };
            let weight = if named.len() == 2 { Weight::Leftover } else { Weight::Damage };
            if named.len() > 1 {
                let keep = named.iter().position(|n| n.within == parent).unwrap_or(0);
                for (_, extra) in named.iter().enumerate().filter(|(i, _)| *i != keep) {
                    let text = format!("directory {} has another name in {}", dir.0, extra.within.0);
                    self.report.add(weight, Fix::RemoveEntry(extra.chunk_at, extra.slot_at), text);
                }
            } else if named[0].within != parent {
                let text = format!("directory {} is in {} and says {}", dir.0, named[0].within.0, parent.0);
                self.report.add(Weight::Damage, Fix::SetParent(at, slot, named[0].within), text);
            }
        }
    }

    /// Inodes without names, and counts of names.
    fn counts(&mut self, names: &Names, reached: &BTreeSet<Ino>) {
        let inodes = self.inodes.clone();
        for (&ino, inode) in &inodes {
            let kind = inode.kind.expect("only those in use are kept");
            let named = names.counts.get(&ino).copied().unwrap_or(0);
            match kind {
                Kind::File => self.report.files += 1,
                Kind::Directory => self.report.directories += 1,
                Kind::Link => self.report.links += 1,
            }
            if ino.0 != ROOT && named == 0 {
                let bare = inode.links == 0
                    || inode.size == 0
                    || kind == Kind::Directory && !names.children.contains_key(&ino);
                let fix = if bare { Fix::ClearInode(ino) } else { Fix::Attach(ino, kind) };
                let text = format!("inode {} has no name and {} links", ino.0, inode.links);
                self.report.add(Weight::Leftover, fix, text);
                continue;
            }
            if !reached.contains(&ino) {
                // Behind one that has no name, which comes first; but for a circle.
                if kind == Kind::Directory && Self::is_in_circle(names, ino) {
                    let text = format!("directory {} lies within itself", ino.0);
                    self.report.add(Weight::Damage, Fix::Attach(ino, kind), text);
                }
            }
            // A directory on its way may have two names in one.
            let subdirs: BTreeSet<&Ino> = names
                .children
                .get(&ino)
                .into_iter()
                .flatten()
                .filter(|child| names.of_dirs.contains_key(child))
                .collect();
            let links = match kind {
                Kind::File | Kind::Link => named,
                Kind::Directory => 2 + subdirs.len() as u32,
            };
            if u32::from(inode.links) != links {
                let few = u32::from(inode.links) < links;
                let weight = if few { Weight::Damage } else { Weight::Leftover };
                let text = format!("inode {} has {links} links and says {}", ino.0, inode.links);
                let links = u16::try_from(links).unwrap_or(u16::MAX);
                self.report.add(weight, Fix::SetLinks(ino, links), text);
            }
        }
    }

    fn is_in_circle(names: &Names, start: Ino) -> bool {
        let mut at = start;
        for _ in 0..names.of_dirs.len() {
            let Some(up) = names.of_dirs.get(&at).and_then(|named| named.first()) else { return false };
            at = up.within;
            if at == start {
                return true;
            }
        }
        false
    }
}
