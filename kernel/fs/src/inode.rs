//! Inodes as they are on the disk.

use crate::Ino;
use crate::error::FsError;
use crate::layout::{Geometry, INODE_BYTES, POINTERS, get_u16, get_u32, put_u32};
use crate::store::{Store, When};
use alloc::format;

/// The longest path that a symbolic link has (`MAXPATHLEN` of FreeBSD, without the byte that ends it).
pub(crate) const MAX_PATH: usize = 1023;

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

/// An inode as it is on the disk. Pointer [`DIRECT`](crate::layout::DIRECT) is that of the indirect block, the next of
/// the doubly indirect one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inode {
    pub(crate) kind: Option<Kind>,
    pub(crate) links: u16,
    /// With those of indirect blocks.
    pub(crate) fragments: u32,
    pub(crate) size: u64,
    pub(crate) pointers: [u32; POINTERS],
}

impl Inode {
    pub(crate) const FREE: Inode =
        Inode { kind: None, links: 0, fragments: 0, size: 0, pointers: [0; POINTERS] };

    /// Of a symbolic link: it is as long as a path can be.
    pub(crate) fn is_path(&self) -> bool {
        (1..=MAX_PATH as u64).contains(&self.size)
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
        Ok(Inode { kind, links: get_u16(bytes, 2), fragments: get_u32(bytes, 4), size, pointers })
    }

    pub(crate) fn encode(&self) -> [u8; INODE_BYTES] {
        let mut bytes = [0; INODE_BYTES];
        let kind = self.kind.map_or(0, |kind| u16::from(kind.number()));
        bytes[..2].copy_from_slice(&kind.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.links.to_le_bytes());
        put_u32(&mut bytes, 4, self.fragments);
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
