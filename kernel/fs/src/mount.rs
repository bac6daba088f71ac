//! Volumes made, mounted and unmounted; inodes opened and closed.
//!
//! A volume that is mounted says so on the disk, and one that was not unmounted is to be repaired before it is mounted
//! again: its free maps may be wrong.

use crate::Ino;
use crate::check::repair;
use crate::chunk::{empty_chunk, first_chunk};
use crate::defect::FsDefect;
use crate::error::{FsError, IoError};
use crate::inode::{Inode, Kind};
use crate::layout::{Format, Geometry, INODE_BYTES, POINTERS, ROOT};
use crate::maps::Maps;
use crate::store::{SECTOR_BYTES, Store, When};
use crate::volume::Volume;
use alloc::vec;
use alloc::vec::Vec;

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
            store.write(geometry.inode_at(group * geometry.group_inodes), &zeros, When::Later)?;
        }
        let root = Ino(ROOT);
        maps.mark_inode(root, true);
        let block = geometry.reserved_fragments();
        maps.mark_run(geometry.block_at(block), true);
        let mut bytes: Vec<u8> = empty_chunk().repeat(geometry.block_bytes as usize / SECTOR_BYTES);
        bytes[..SECTOR_BYTES].copy_from_slice(&first_chunk(root, root));
        store.write(geometry.byte_of(block), &bytes, When::Later)?;
        let mut pointers = [0; POINTERS];
        pointers[0] = block;
        let size = u64::from(geometry.block_bytes);
        let fragments = geometry.per_block();
        let inode = Inode { kind: Some(Kind::Directory), links: 2, fragments, size, pointers };
        inode.write(&geometry, store, root, When::Later)?;
        maps.store(store)?;
        store.sync()?;
        for group in (0..geometry.groups()).rev() {
            geometry.write(store, group, group != 0)?;
        }
        Ok(Volume::new(geometry, maps))
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
        Ok(Volume::new(geometry, maps))
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
        if self.order.is_some() || !self.vacated.is_empty() {
            store.sync()?;
            self.begin(store)?;
            self.give_vacated(store)?;
        }
        self.maps.store(store)?;
        store.sync()?;
        if let Some(soft) = store.soft_updates()
            && !soft.is_empty()
        {
            // The disk has failed before: what was to be there never was.
            return Err(FsError::Io(IoError::of_disk(0)));
        }
        self.geometry.write(store, 0, true)
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
        self.begin(store)?;
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.opens > 0) else {
            return if self.defect.is(FsDefect::OpenFileFreed) { Ok(()) } else { Err(FsError::Invalid) };
        };
        node.opens -= 1;
        if node.opens == 0 && node.inode.links == 0 { self.end(store, ino) } else { self.let_go(store, ino) }
    }
}
