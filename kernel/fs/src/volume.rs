//! A volume in memory: its maps, the inodes that are in use, the names of directories that were looked into.
//!
//! An inode is in memory while it is open or worked on, and written later when it is let go of.

use crate::Ino;
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::inode::{Inode, Kind};
use crate::layout::{DIRECT, Geometry, ROOT, Run};
use crate::maps::Maps;
use crate::order::Order;
use crate::store::{Store, When};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use pageferry_defects::Planted;

/// A mounted volume. See the [crate].
pub struct Volume {
    pub(crate) geometry: Geometry,
    pub(crate) maps: Maps,
    pub(crate) nodes: BTreeMap<Ino, Node>,
    pub(crate) dirs: BTreeMap<Ino, DirIndex>,
    /// Runs that files have left, to which their inodes on the disk may still point: without soft updates.
    pub(crate) vacated: BTreeMap<Ino, Vec<Run>>,
    /// With soft updates.
    pub(crate) order: Option<Order>,
    pub(crate) defect: Planted<FsDefect>,
}

/// An inode in memory.
pub(crate) struct Node {
    pub(crate) inode: Inode,
    /// The length that the file has fragments for: its own, or what it is about to be.
    pub(crate) room_bytes: u64,
    pub(crate) opens: u32,
    pub(crate) is_dirty: bool,
}

impl Node {
    pub(crate) fn new(inode: Inode) -> Node {
        Node { inode, room_bytes: inode.size, opens: 0, is_dirty: false }
    }
}

/// What is known in memory of a directory.
#[derive(Default)]
pub(crate) struct DirIndex {
    /// Names but `.` and `..`, with the chunk that each is in.
    pub(crate) names: BTreeMap<Vec<u8>, (u32, Ino)>,
    /// The largest entry that each chunk has room for.
    pub(crate) room: Vec<u16>,
}

/// What is known of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// A file or a directory.
    pub kind: Kind,
    /// Names.
    pub links: u16,
    /// Length.
    pub size_bytes: u64,
    /// Fragments, with those of indirect blocks.
    pub fragments: u32,
}

impl Volume {
    /// A volume of which nothing is in memory but its maps.
    pub(crate) fn new(geometry: Geometry, maps: Maps) -> Volume {
        Volume {
            geometry,
            maps,
            nodes: BTreeMap::new(),
            dirs: BTreeMap::new(),
            vacated: BTreeMap::new(),
            order: None,
            defect: Planted::NONE,
        }
    }

    /// Writes all that waits. What is open stays open.
    ///
    /// # Errors
    /// The disk.
    pub fn sync(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        let known: Vec<Ino> = self.nodes.keys().copied().collect();
        for ino in known {
            self.let_go(store, ino)?;
        }
        store.sync()?;
        if self.order.is_some() || !self.vacated.is_empty() {
            // What has become free by that is in the maps.
            self.begin(store)?;
            self.give_vacated(store)?;
            store.sync()?;
        }
        Ok(())
    }

    /// Plants a defect.
    #[cfg(feature = "verify")]
    pub fn plant(&mut self, defect: FsDefect) {
        self.defect = defect.into();
    }

    /// Of the blocks and inodes that are taken from now on, so many are got, and then one is not, as on a full volume.
    #[cfg(feature = "verify")]
    pub fn fail_allocation_after(&mut self, count: u32) {
        self.maps.fails_after = Some(count);
    }

    /// That has not come to pass yet.
    #[cfg(feature = "verify")]
    pub fn is_to_fail(&self) -> bool {
        self.maps.fails_after.is_some()
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        Ino(ROOT)
    }

    /// Its sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Fragments that no file has.
    pub fn free_fragments(&self) -> u32 {
        self.maps.free_fragments() + self.on_their_way().0
    }

    /// Inodes that no name has.
    pub fn free_inodes(&self) -> u32 {
        self.maps.free_inodes() + self.on_their_way().1
    }

    /// What is known of an inode.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn stat(&mut self, store: &mut dyn Store, ino: Ino) -> Result<Stat, FsError> {
        let Inode { kind, links, size, fragments, .. } = self.node(store, ino)?.inode;
        self.let_go(store, ino)?;
        Ok(Stat { kind: kind.unwrap_or(Kind::File), links, size_bytes: size, fragments })
    }

    /// The length of a file in memory.
    pub(crate) fn size(&mut self, store: &mut dyn Store, ino: Ino) -> Result<u64, FsError> {
        Ok(self.node(store, ino)?.inode.size)
    }

    /// The inode, which is loaded if it is not in memory, and in use.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub(crate) fn node(&mut self, store: &mut dyn Store, ino: Ino) -> Result<&mut Node, FsError> {
        if ino.0 >= self.geometry.inodes() {
            return Err(FsError::Damaged(format!("there is no inode {}", ino.0)));
        }
        if !self.nodes.contains_key(&ino) {
            let inode = Inode::read(&self.geometry, store, ino)?;
            if inode.kind.is_none() {
                return Err(FsError::Damaged(format!("inode {} has a name, and is free", ino.0)));
            }
            if inode.size > self.geometry.max_bytes() {
                return Err(FsError::Damaged(format!("inode {} is of {} bytes", ino.0, inode.size)));
            }
            self.nodes.insert(ino, Node::new(inode));
        }
        Ok(self.nodes.get_mut(&ino).expect("just loaded"))
    }

    /// Changes an inode, and writes it.
    pub(crate) fn change(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        when: When,
        how: impl FnOnce(&mut Inode),
    ) -> Result<(), FsError> {
        let node = self.node(store, ino)?;
        how(&mut node.inode);
        node.is_dirty = when == When::Later;
        let inode = node.inode;
        match when {
            When::Now => self.write_inode(store, ino, &inode, When::Now),
            When::Later => Ok(()),
        }
    }

    /// Lets go of an inode: it is written later, and stays in memory only while it is open. What it has got for bytes
    /// that have not come it loses.
    pub(crate) fn let_go(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let Some(node) = self.nodes.get(&ino) else { return Ok(()) };
        if node.room_bytes > node.inode.size {
            self.give_back_behind(store, ino)?;
        }
        let Some(node) = self.nodes.get_mut(&ino) else { return Ok(()) };
        let (opens, dirty, inode) = (node.opens, core::mem::take(&mut node.is_dirty), node.inode);
        if dirty {
            self.write_inode(store, ino, &inode, When::Later)?;
        }
        if opens == 0 {
            self.nodes.remove(&ino);
        }
        Ok(())
    }

    /// A pointer from the disk, if it can be one of so many fragments.
    pub(crate) fn sound(&self, pointer: u32, count: u32) -> Result<u32, FsError> {
        if pointer == 0 || self.geometry.is_data(Run { first: pointer, count }) {
            Ok(pointer)
        } else {
            Err(FsError::Damaged(format!("a file has {count} fragments at {pointer}")))
        }
    }

    /// A pointer to a whole block.
    pub(crate) fn sound_block(&self, pointer: u32) -> Result<u32, FsError> {
        self.sound(pointer, self.geometry.per_block())
    }

    /// A pointer of an inode: to a block of a file that is so long, or to an indirect one.
    pub(crate) fn run_of(&self, inode: &Inode, len_bytes: u64, which: usize) -> Result<Option<Run>, FsError> {
        let count = match which {
            0..DIRECT => self.geometry.fragments_at(len_bytes, which as u64),
            _ => self.geometry.per_block(),
        };
        let first = self.sound(inode.pointers[which], count)?;
        Ok((first != 0).then_some(Run { first, count }))
    }
}
