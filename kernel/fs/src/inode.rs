//! Inodes in memory, and the blocks of a file: direct, behind an indirect block, behind two of them.
//!
//! An inode is in memory while it is open or worked on, and written later when it is let go of. A pointer read from the
//! disk is used only if a file can have such a block. New indirect blocks are on the disk, cleared, before anything
//! points to them.

use crate::Ino;
use crate::defect::Defect;
use crate::error::FsError;
use crate::layout::{DIRECT, Geometry, INODE_BYTES, POINTERS, get_u16, get_u32, put_u32};
use crate::store::{Store, When};
use crate::volume::Volume;
use alloc::format;
use alloc::vec;

/// The longest path that a symbolic link has (`MAXPATHLEN` of FreeBSD, without the byte that ends it).
pub(crate) const MOST_PATH: usize = 1023;

/// What an inode is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Bytes.
    File,
    /// Names.
    Directory,
    /// A path that stands in its place, kept as the bytes of a file are: FFS keeps short ones in the inode.
    Link,
}

impl Kind {
    /// As inodes and entries have it on the disk.
    pub(crate) fn number(self) -> u8 {
        match self {
            Kind::File => 1,
            Kind::Directory => 2,
            Kind::Link => 3,
        }
    }

    /// The kind of a number, if it is one's.
    pub(crate) fn of(number: u16) -> Option<Kind> {
        [Kind::File, Kind::Directory, Kind::Link].into_iter().find(|kind| u16::from(kind.number()) == number)
    }
}

/// An inode as it is on the disk. Pointer [`DIRECT`] is that of the indirect block, the next of the doubly indirect
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inode {
    pub(crate) kind: Option<Kind>,
    pub(crate) links: u16,
    /// With indirect ones.
    pub(crate) blocks: u32,
    pub(crate) size: u64,
    pub(crate) pointers: [u32; POINTERS],
}

impl Inode {
    pub(crate) const FREE: Inode =
        Inode { kind: None, links: 0, blocks: 0, size: 0, pointers: [0; POINTERS] };

    /// Of a symbolic link: it is as long as a path can be.
    pub(crate) fn is_path(&self) -> bool {
        (1..=MOST_PATH as u64).contains(&self.size)
    }

    /// Bytes can be read and written.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`]; [`FsError::Invalid`] for a symbolic link, whose path is read as one.
    pub(crate) fn has_bytes(&self) -> Result<(), FsError> {
        match self.kind {
            Some(Kind::File) => Ok(()),
            Some(Kind::Link) => Err(FsError::Invalid),
            Some(Kind::Directory) | None => Err(FsError::IsDirectory),
        }
    }

    /// # Errors
    /// A kind that there is not.
    pub(crate) fn decode(bytes: &[u8; INODE_BYTES]) -> Result<Inode, u16> {
        let kind = match get_u16(bytes, 0) {
            0 => None,
            number => Some(Kind::of(number).ok_or(number)?),
        };
        let size = u64::from(get_u32(bytes, 8)) | u64::from(get_u32(bytes, 12)) << 32;
        let mut pointers = [0; POINTERS];
        for (i, pointer) in pointers.iter_mut().enumerate() {
            *pointer = get_u32(bytes, 16 + 4 * i);
        }
        Ok(Inode { kind, links: get_u16(bytes, 2), blocks: get_u32(bytes, 4), size, pointers })
    }

    pub(crate) fn encode(&self) -> [u8; INODE_BYTES] {
        let mut bytes = [0; INODE_BYTES];
        let kind = self.kind.map_or(0, |kind| u16::from(kind.number()));
        bytes[..2].copy_from_slice(&kind.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.links.to_le_bytes());
        put_u32(&mut bytes, 4, self.blocks);
        bytes[8..16].copy_from_slice(&self.size.to_le_bytes());
        for (i, pointer) in self.pointers.iter().enumerate() {
            put_u32(&mut bytes, 16 + 4 * i, *pointer);
        }
        bytes
    }

    pub(crate) fn read(geometry: &Geometry, store: &mut dyn Store, ino: Ino) -> Result<Inode, FsError> {
        let mut bytes = [0; INODE_BYTES];
        store.read(geometry.inode_at(ino.0), &mut bytes)?;
        Inode::decode(&bytes).map_err(|kind| FsError::Damaged(format!("inode {} is of kind {kind}", ino.0)))
    }

    pub(crate) fn write(
        &self,
        geometry: &Geometry,
        store: &mut dyn Store,
        ino: Ino,
        when: When,
    ) -> Result<(), FsError> {
        Ok(store.write(geometry.inode_at(ino.0), &self.encode(), when)?)
    }
}

/// An inode in memory.
pub(crate) struct Node {
    pub(crate) inode: Inode,
    pub(crate) opens: u32,
    pub(crate) is_dirty: bool,
}

/// Where the pointer to a block of a file is: in the inode, or one or two indirect blocks from there.
pub(crate) enum Path {
    Direct(usize),
    Indirect(u64),
    Double(u64, u64),
}

/// The way to block `index` of a file, which a file can have.
pub(crate) fn path_to(geometry: &Geometry, index: u64) -> Path {
    let (direct, per) = (DIRECT as u64, geometry.pointers());
    match index {
        _ if index < direct => Path::Direct(index as usize),
        _ if index < direct + per => Path::Indirect(index - direct),
        _ => Path::Double((index - direct - per) / per, (index - direct - per) % per),
    }
}

impl Volume {
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
            if inode.size > self.geometry.most_bytes() {
                return Err(FsError::Damaged(format!("inode {} is of {} bytes", ino.0, inode.size)));
            }
            self.nodes.insert(ino, Node { inode, opens: 0, is_dirty: false });
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
        let geometry = self.geometry;
        let node = self.node(store, ino)?;
        how(&mut node.inode);
        node.is_dirty = when == When::Later;
        match when {
            When::Now => node.inode.write(&geometry, store, ino, When::Now),
            When::Later => Ok(()),
        }
    }

    /// Lets go of an inode: it is written later, and stays in memory only while it is open.
    pub(crate) fn let_go(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let geometry = self.geometry;
        let Some(node) = self.nodes.get_mut(&ino) else { return Ok(()) };
        let (opens, dirty, inode) = (node.opens, core::mem::take(&mut node.is_dirty), node.inode);
        if dirty {
            inode.write(&geometry, store, ino, When::Later)?;
        }
        if opens == 0 {
            self.nodes.remove(&ino);
        }
        Ok(())
    }

    /// A pointer in an indirect block.
    pub(crate) fn pointer(&self, store: &mut dyn Store, block: u32, index: u64) -> Result<u32, FsError> {
        let mut bytes = [0; 4];
        store.read(self.geometry.byte_of(block) + 4 * index, &mut bytes)?;
        self.sound(u32::from_le_bytes(bytes))
    }

    /// A pointer from the disk, if it can be one.
    pub(crate) fn sound(&self, pointer: u32) -> Result<u32, FsError> {
        if pointer == 0 || self.geometry.is_data(pointer) {
            Ok(pointer)
        } else {
            Err(FsError::Damaged(format!("a file has block {pointer}")))
        }
    }

    /// The block of a file's block `index`, if it has one.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub(crate) fn block_of(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
    ) -> Result<Option<u32>, FsError> {
        if index >= self.geometry.most_blocks() {
            return Ok(None);
        }
        let pointers = self.node(store, ino)?.inode.pointers;
        let block = match path_to(&self.geometry, index) {
            Path::Direct(i) => self.sound(pointers[i])?,
            Path::Indirect(i) => match self.sound(pointers[DIRECT])? {
                0 => 0,
                indirect => self.pointer(store, indirect, i)?,
            },
            Path::Double(i, j) => match self.sound(pointers[DIRECT + 1])? {
                0 => 0,
                double => match self.pointer(store, double, i)? {
                    0 => 0,
                    indirect => self.pointer(store, indirect, j)?,
                },
            },
        };
        Ok((block != 0).then_some(block))
    }

    /// The block of a file's block `index`, taken if it has none; true if it is new, and holds whatever was there.
    /// Pointers in indirect blocks are written at the time that is said; the inode is changed in memory.
    ///
    /// # Errors
    /// [`FsError::TooLarge`], [`FsError::NoSpace`], [`FsError::Damaged`], the disk.
    pub(crate) fn take_block_of(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
        when: When,
    ) -> Result<(u32, bool), FsError> {
        if index >= self.geometry.most_blocks() {
            return Err(FsError::TooLarge);
        }
        if let Some(block) = self.block_of(store, ino, index)? {
            return Ok((block, false));
        }
        let near = match index.checked_sub(1) {
            Some(before) => self.block_of(store, ino, before)?.map(|block| block + 1),
            None => None,
        };
        let near = near.unwrap_or_else(|| {
            let group = ino.0 / self.geometry.group_inodes;
            group * self.geometry.group_blocks + self.geometry.reserved_blocks()
        });
        match path_to(&self.geometry, index) {
            Path::Direct(i) => {
                let block = self.maps.take_block(store, near)?;
                self.set_pointer(store, ino, i, block)?;
                Ok((block, true))
            }
            Path::Indirect(i) => {
                let indirect = self.root_pointer(store, ino, DIRECT, near)?;
                let block = self.leaf(store, ino, indirect, i, near, when)?;
                Ok((block, true))
            }
            Path::Double(i, j) => {
                let double = self.root_pointer(store, ino, DIRECT + 1, near)?;
                let indirect = match self.pointer(store, double, i)? {
                    0 => {
                        let new = self.indirect_block(store, near)?;
                        self.put_pointer(store, double, i, new, when)?;
                        self.count_blocks(store, ino, 1)?;
                        new
                    }
                    there => there,
                };
                let block = self.leaf(store, ino, indirect, j, near, when)?;
                Ok((block, true))
            }
        }
    }

    fn leaf(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        indirect: u32,
        index: u64,
        near: u32,
        when: When,
    ) -> Result<u32, FsError> {
        let block = self.maps.take_block(store, near)?;
        self.put_pointer(store, indirect, index, block, when)?;
        self.count_blocks(store, ino, 1)?;
        Ok(block)
    }

    /// The block behind pointer `which` of the inode, an indirect one, taken if there is none.
    fn root_pointer(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        which: usize,
        near: u32,
    ) -> Result<u32, FsError> {
        let there = self.node(store, ino)?.inode.pointers[which];
        match self.sound(there)? {
            0 => {
                let new = self.indirect_block(store, near)?;
                self.set_pointer(store, ino, which, new)?;
                Ok(new)
            }
            there => Ok(there),
        }
    }

    /// A new indirect block, which is on the disk before anything points to it.
    fn indirect_block(&mut self, store: &mut dyn Store, near: u32) -> Result<u32, FsError> {
        let block = self.maps.take_block(store, near)?;
        let when = if self.defect == Defect::IndirectWrittenLater { When::Later } else { When::Now };
        if self.defect != Defect::IndirectNotCleared {
            let zeros = vec![0; self.geometry.block_bytes as usize];
            store.write(self.geometry.byte_of(block), &zeros, when)?;
        }
        Ok(block)
    }

    fn set_pointer(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        which: usize,
        block: u32,
    ) -> Result<(), FsError> {
        self.change(store, ino, When::Later, |inode| {
            inode.pointers[which] = block;
            inode.blocks = inode.blocks.saturating_add(1);
        })
    }

    fn count_blocks(&mut self, store: &mut dyn Store, ino: Ino, more: u32) -> Result<(), FsError> {
        self.change(store, ino, When::Later, |inode| inode.blocks = inode.blocks.saturating_add(more))
    }

    pub(crate) fn put_pointer(
        &self,
        store: &mut dyn Store,
        indirect: u32,
        index: u64,
        block: u32,
        when: When,
    ) -> Result<(), FsError> {
        let at = self.geometry.byte_of(indirect) + 4 * index;
        Ok(store.write(at, &block.to_le_bytes(), when)?)
    }
}
