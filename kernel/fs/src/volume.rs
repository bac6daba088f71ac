//! A volume in memory: made, mounted, unmounted; files opened, closed, cut; and their bytes.
//!
//! A volume that is mounted says so on the disk, and one that was not unmounted is to be repaired before it is mounted
//! again: its free maps may be wrong. Bytes behind the end of a file, in its last block, are zeros.

use crate::Ino;
use crate::check::repair;
use crate::defect::Defect;
use crate::dir::{DirIndex, empty_chunk, first_chunk};
use crate::error::FsError;
use crate::inode::{Inode, Kind, Node};
use crate::layout::{DIRECT, Format, Geometry, INODE_BYTES, POINTERS, ROOT};
use crate::maps::Maps;
use crate::store::{SECTOR_BYTES, Store, When};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A mounted volume. See the [crate].
pub struct Volume {
    pub(crate) geometry: Geometry,
    pub(crate) maps: Maps,
    pub(crate) nodes: BTreeMap<Ino, Node>,
    pub(crate) dirs: BTreeMap<Ino, DirIndex>,
    pub(crate) defect: Defect,
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
    /// Blocks, with indirect ones.
    pub blocks: u32,
}

/// A piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where on the disk; nowhere in a hole.
    pub at: Option<u64>,
    /// How long.
    pub len_bytes: usize,
}

/// Where a piece of a file is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Where on the disk.
    pub at: u64,
    /// How long: within one block.
    pub len_bytes: usize,
    /// The block was not the file's before: what the writer leaves out of the piece is whatever was there, and must be
    /// cleared.
    pub is_new: bool,
}

impl Volume {
    /// Makes an empty volume that fills the store, and mounts it.
    ///
    /// # Errors
    /// [`FsError::Refused`], the disk.
    pub fn format(store: &mut dyn Store, format: Format) -> Result<Volume, FsError> {
        let geometry = Geometry::new(format, store.len_bytes())?;
        let mut maps = Maps::empty(geometry);
        let zeros = vec![0; geometry.group_inodes as usize * INODE_BYTES];
        for group in 0..geometry.groups() {
            geometry.write_header(store, group)?;
            store.write(geometry.byte_of(group * geometry.group_blocks + 2), &zeros, When::Later)?;
        }
        let root = Ino(ROOT);
        maps.mark_inode(root, true);
        let block = geometry.reserved_blocks();
        maps.mark_block(block, true);
        let mut bytes: Vec<u8> = empty_chunk().repeat(geometry.block_bytes as usize / SECTOR_BYTES);
        bytes[..SECTOR_BYTES].copy_from_slice(&first_chunk(root, root));
        store.write(geometry.byte_of(block), &bytes, When::Later)?;
        let mut pointers = [0; POINTERS];
        pointers[0] = block;
        let size = u64::from(geometry.block_bytes);
        let inode = Inode { kind: Some(Kind::Directory), links: 2, blocks: 1, size, pointers };
        inode.write(&geometry, store, root, When::Later)?;
        maps.store(store)?;
        store.sync()?;
        for group in (0..geometry.groups()).rev() {
            geometry.write(store, group, group != 0)?;
        }
        Ok(Volume { geometry, maps, nodes: BTreeMap::new(), dirs: BTreeMap::new(), defect: Defect::None })
    }

    /// Mounts a volume. One that was not unmounted is repaired first.
    ///
    /// # Errors
    /// [`FsError::Refused`]: it is none, or it cannot be repaired. [`FsError::Damaged`], the disk.
    pub fn mount(store: &mut dyn Store) -> Result<Volume, FsError> {
        let (mut geometry, clean) = Geometry::read(store, 0)?;
        if !clean {
            repair(store)?;
            geometry = Geometry::read(store, 0)?.0;
        }
        let maps = Maps::load(geometry, store)?;
        geometry.write(store, 0, false)?;
        Ok(Volume { geometry, maps, nodes: BTreeMap::new(), dirs: BTreeMap::new(), defect: Defect::None })
    }

    /// Writes all that waits, and says on the disk that nothing does.
    ///
    /// # Errors
    /// The disk.
    pub fn unmount(mut self, store: &mut dyn Store) -> Result<(), FsError> {
        let known: Vec<Ino> = self.nodes.keys().copied().collect();
        for ino in known {
            let node = self.nodes.get_mut(&ino).expect("it is known");
            node.opens = 0;
            if node.inode.links == 0 {
                self.end(store, ino)?;
            } else {
                self.let_go(store, ino)?;
            }
        }
        self.maps.store(store)?;
        store.sync()?;
        self.geometry.write(store, 0, true)
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
        Ok(store.sync()?)
    }

    /// Plants a defect.
    pub fn plant(&mut self, defect: Defect) {
        self.defect = defect;
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        Ino(ROOT)
    }

    /// Its sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Blocks that no file has.
    pub fn free_blocks(&self) -> u32 {
        self.maps.free_blocks()
    }

    /// Inodes that no name has.
    pub fn free_inodes(&self) -> u32 {
        self.maps.free_inodes()
    }

    /// What is known of an inode.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn stat(&mut self, store: &mut dyn Store, ino: Ino) -> Result<Stat, FsError> {
        let Inode { kind, links, size, blocks, .. } = self.node(store, ino)?.inode;
        self.let_go(store, ino)?;
        Ok(Stat { kind: kind.unwrap_or(Kind::File), links, size_bytes: size, blocks })
    }

    /// Opens an inode: it stays until it is closed, whatever becomes of its names.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn open(&mut self, store: &mut dyn Store, ino: Ino) -> Result<Kind, FsError> {
        let node = self.node(store, ino)?;
        node.opens += 1;
        Ok(node.inode.kind.unwrap_or(Kind::File))
    }

    /// Closes an inode.
    ///
    /// # Errors
    /// [`FsError::Invalid`]: it is not open. [`FsError::Damaged`], the disk.
    pub fn close(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.opens > 0) else {
            return if self.defect == Defect::OpenFileFreed { Ok(()) } else { Err(FsError::Invalid) };
        };
        node.opens -= 1;
        if node.opens == 0 && node.inode.links == 0 { self.end(store, ino) } else { self.let_go(store, ino) }
    }

    /// The length of a file in memory.
    pub(crate) fn size(&mut self, store: &mut dyn Store, ino: Ino) -> Result<u64, FsError> {
        Ok(self.node(store, ino)?.inode.size)
    }

    /// The piece of a file from byte `at` on, up to `len_bytes`, that lies together on the disk. For reading; what is
    /// behind the end is not there.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn piece(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        at: u64,
        len_bytes: usize,
    ) -> Result<Piece, FsError> {
        let size = self.size(store, ino)?;
        let len = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX).min(len_bytes);
        let block_bytes = u64::from(self.geometry.block_bytes);
        if len == 0 {
            return Ok(Piece { at: None, len_bytes: 0 });
        }
        let first = self.block_of(store, ino, at / block_bytes)?;
        let mut there = (block_bytes - at % block_bytes) as usize;
        let mut next = 1;
        while there < len {
            let block = self.block_of(store, ino, at / block_bytes + next)?;
            if block != first.map(|first| first + next as u32) {
                break;
            }
            there += block_bytes as usize;
            next += 1;
        }
        let at = first.map(|first| self.geometry.byte_of(first) + at % block_bytes);
        Ok(Piece { at, len_bytes: there.min(len) })
    }

    /// The piece of a file from byte `at` on, within one block, for writing: the block is taken if there is none, and
    /// cleared where it is not about to be written. The file is as long as before: see [`Volume::wrote`].
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::TooLarge`], [`FsError::Damaged`], the disk.
    pub fn piece_to_write(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        at: u64,
        len_bytes: usize,
    ) -> Result<Target, FsError> {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let offset = at % block_bytes;
        let len = len_bytes.min((block_bytes - offset) as usize);
        let (block, is_new) = self.take_block_of(store, ino, at / block_bytes, When::Later)?;
        let start = self.geometry.byte_of(block);
        if is_new && len < block_bytes as usize && self.defect != Defect::FreshNotCleared {
            store.write(start, &vec![0; block_bytes as usize], When::Later)?;
        }
        Ok(Target { at: start + offset, len_bytes: len, is_new })
    }

    /// A file was written up to byte `end`: it is at least so long.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn wrote(&mut self, store: &mut dyn Store, ino: Ino, end: u64) -> Result<(), FsError> {
        self.change(store, ino, When::Later, |inode| inode.size = inode.size.max(end))
    }

    /// Reads bytes of a file; how many there are.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::Damaged`], the disk.
    pub fn read(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        at: u64,
        bytes: &mut [u8],
    ) -> Result<usize, FsError> {
        self.node(store, ino)?.inode.has_bytes()?;
        let mut done = 0;
        while done < bytes.len() {
            let piece = self.piece(store, ino, at + done as u64, bytes.len() - done)?;
            if piece.len_bytes == 0 {
                break;
            }
            let to = &mut bytes[done..][..piece.len_bytes];
            match piece.at {
                Some(from) => store.read(from, to)?,
                None => to.fill(0),
            }
            done += piece.len_bytes;
        }
        self.let_go(store, ino)?;
        Ok(done)
    }

    /// Writes bytes of a file; how many, fewer only where the volume is full.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::TooLarge`]: and not a byte was written. [`FsError::IsDirectory`],
    /// [`FsError::Damaged`], the disk.
    pub fn write(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        at: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        self.node(store, ino)?.inode.has_bytes()?;
        let mut done = 0;
        let result = loop {
            if done == bytes.len() {
                break Ok(());
            }
            let piece = self.piece_to_write(store, ino, at + done as u64, bytes.len() - done);
            let Target { at: to, len_bytes: len, .. } = match piece {
                Ok(piece) => piece,
                Err(e) => break Err(e),
            };
            store.write(to, &bytes[done..][..len], When::Later)?;
            done += len;
        };
        if done > 0 {
            self.wrote(store, ino, at + done as u64)?;
        }
        self.let_go(store, ino)?;
        if done > 0 { Ok(done) } else { result.map(|()| 0) }
    }

    /// Cuts a file, or lets it grow by a hole.
    ///
    /// # Errors
    /// [`FsError::TooLarge`], [`FsError::IsDirectory`], [`FsError::Damaged`], the disk.
    pub fn truncate(&mut self, store: &mut dyn Store, ino: Ino, size_bytes: u64) -> Result<(), FsError> {
        let inode = self.node(store, ino)?.inode;
        inode.has_bytes()?;
        if size_bytes > self.geometry.most_bytes() {
            return Err(FsError::TooLarge);
        }
        if size_bytes < inode.size {
            let block_bytes = u64::from(self.geometry.block_bytes);
            let offset = size_bytes % block_bytes;
            if offset != 0
                && self.defect != Defect::TailNotCleared
                && let Some(block) = self.block_of(store, ino, size_bytes / block_bytes)?
            {
                let zeros = vec![0; (block_bytes - offset) as usize];
                store.write(self.geometry.byte_of(block) + offset, &zeros, When::Later)?;
            }
            self.cut(store, ino, size_bytes.div_ceil(block_bytes), size_bytes)?;
        } else if size_bytes > inode.size {
            self.change(store, ino, When::Later, |inode| inode.size = size_bytes)?;
        }
        self.let_go(store, ino)
    }

    /// Returns when a file is on the disk, with its length and all that leads to its bytes (`fsync`).
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn fsync(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let inode = self.node(store, ino)?.inode;
        let block_bytes = u64::from(self.geometry.block_bytes);
        let mut at = 0;
        while at < inode.size {
            let left = usize::try_from(inode.size - at).unwrap_or(usize::MAX);
            let piece = self.piece(store, ino, at, left)?;
            if piece.len_bytes == 0 {
                break;
            }
            if let Some(from) = piece.at {
                // The rest of the last block is the file's, too.
                let end = (from + piece.len_bytes as u64).next_multiple_of(block_bytes);
                store.flush(from..end)?;
            }
            at += piece.len_bytes as u64;
        }
        for (which, depth) in [(DIRECT, 1), (DIRECT + 1, 2)] {
            let root = self.sound(inode.pointers[which])?;
            if root == 0 || self.defect == Defect::SyncForgetsIndirect {
                continue;
            }
            for i in 0..if depth == 2 { self.geometry.pointers() } else { 0 } {
                let indirect = self.pointer(store, root, i)?;
                if indirect != 0 {
                    store.flush(self.geometry.bytes_of(indirect))?;
                }
            }
            store.flush(self.geometry.bytes_of(root))?;
        }
        self.change(store, ino, When::Now, |_| ())?;
        self.let_go(store, ino)
    }
}
