//! What is where on the disk: superblock, cylinder groups, inodes. Numbers are little-endian.
//!
//! ```text
//! group:       superblock's copy | header and free maps | inodes ... | blocks ...
//! superblock:  0 magic  8 version  12 block_bytes  16 blocks  20 group_blocks  24 group_inodes  28 clean  508 crc32
//! header:      0 magic  4 group  64 map of inodes, then map of blocks: a bit is set for what is in use
//! inode:       0 kind  2 links  4 blocks  8 length  16 12 direct, 64 indirect, 68 doubly indirect blocks; 128 bytes
//! ```
//!
//! Block 0 is the superblock of group 0, so no file has it, and 0 in a pointer means a hole. The last group may be
//! shorter than others.

use crate::error::FsError;
use crate::store::{SECTOR_BYTES, Store, When};
use alloc::format;
use alloc::vec;
use core::ops::Range;

const MAGIC: &[u8; 8] = b"PFERRYFS";
const GROUP_MAGIC: u32 = 0x6772_6670;
/// The version of all this.
pub const VERSION: u32 = 1;
pub(crate) const INODE_BYTES: usize = 128;
pub(crate) const DIRECT: usize = 12;
/// And two indirect ones.
pub(crate) const POINTERS: usize = DIRECT + 2;
/// Where the maps begin in the header of a group.
const MAPS_AT: usize = 64;
const MAX_GROUP_BLOCKS: usize = 32768;
/// Of the first inodes, two belong to no file; the next is the root.
pub(crate) const ROOT: u32 = 2;

/// The number of an inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ino(pub u32);

/// How a volume is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Bytes of a block: a power of two, 512 to 65536.
    pub block_bytes: u32,
}

impl Default for Format {
    /// FreeBSD's fragments, in which its small files are kept (`newfs`: 2048).
    fn default() -> Format {
        Format { block_bytes: 2048 }
    }
}

/// The sizes that all else follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of the volume.
    pub blocks: u32,
    /// Blocks of a group.
    pub group_blocks: u32,
    /// Inodes of a group.
    pub group_inodes: u32,
}

pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

impl Geometry {
    /// That of a new volume of `len_bytes`.
    ///
    /// # Errors
    /// [`FsError::Refused`]: a block size that is none, or too small or large a disk.
    pub fn new(format: Format, len_bytes: u64) -> Result<Geometry, FsError> {
        let block_bytes = format.block_bytes;
        if !block_bytes.is_power_of_two() || !(512..=65536).contains(&block_bytes) {
            let expected = "expected a power of two, 512 to 65536";
            return Err(FsError::Refused(format!("blocks of {block_bytes} bytes, {expected}")));
        }
        let bits = (block_bytes as usize - MAPS_AT) * 8;
        let mut group_blocks = MAX_GROUP_BLOCKS;
        while group_blocks + group_blocks / 4 > bits {
            group_blocks /= 2;
        }
        let blocks = len_bytes / u64::from(block_bytes);
        let Ok(blocks) = u32::try_from(blocks) else {
            return Err(FsError::Refused(format!("{blocks} blocks, expected fewer than 2^32")));
        };
        let group_blocks = group_blocks as u32;
        // An inode for four blocks (`newfs`), in whole blocks.
        let per_block = block_bytes / INODE_BYTES as u32;
        let group_inodes = (group_blocks.min(blocks) / 4).max(1).next_multiple_of(per_block);
        let mut geometry = Geometry { block_bytes, blocks, group_blocks, group_inodes };
        // A last group without room for a block is left out.
        let rest = blocks % group_blocks;
        if rest != 0 && rest <= geometry.reserved_blocks() {
            geometry.blocks -= rest;
        }
        if geometry.blocks == 0 {
            let min_bytes = u64::from(geometry.reserved_blocks() + 1) * u64::from(block_bytes);
            return Err(FsError::Refused(format!("{len_bytes} bytes, expected at least {min_bytes}")));
        }
        Ok(geometry)
    }

    /// How many groups there are.
    pub fn groups(&self) -> u32 {
        self.blocks.div_ceil(self.group_blocks)
    }

    /// Blocks of a group that no file can have.
    pub(crate) fn reserved_blocks(&self) -> u32 {
        2 + self.group_inodes * INODE_BYTES as u32 / self.block_bytes
    }

    pub(crate) fn blocks_of(&self, group: u32) -> Range<u32> {
        let start = group * self.group_blocks;
        start..self.blocks.min(start.saturating_add(self.group_blocks))
    }

    /// A block that a file can have.
    pub(crate) fn is_data(&self, block: u32) -> bool {
        block < self.blocks && block % self.group_blocks >= self.reserved_blocks()
    }

    /// Inodes of the volume.
    pub(crate) fn inodes(&self) -> u32 {
        self.groups() * self.group_inodes
    }

    pub(crate) fn byte_of(&self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.block_bytes)
    }

    pub(crate) fn bytes_of(&self, block: u32) -> Range<u64> {
        self.byte_of(block)..self.byte_of(block) + u64::from(self.block_bytes)
    }

    /// Where inode `ino` is.
    pub(crate) fn inode_at(&self, ino: u32) -> u64 {
        let (group, index) = (ino / self.group_inodes, ino % self.group_inodes);
        self.byte_of(group * self.group_blocks + 2) + u64::from(index) * INODE_BYTES as u64
    }

    pub(crate) fn header_at(&self, group: u32) -> u64 {
        self.byte_of(group * self.group_blocks + 1)
    }

    pub(crate) fn inode_map_at(&self, group: u32) -> u64 {
        self.header_at(group) + MAPS_AT as u64
    }

    pub(crate) fn block_map_at(&self, group: u32) -> u64 {
        self.inode_map_at(group) + u64::from(self.group_inodes).div_ceil(8)
    }

    pub(crate) fn inode_map_bytes(&self) -> usize {
        self.group_inodes.div_ceil(8) as usize
    }

    pub(crate) fn block_map_bytes(&self) -> usize {
        self.group_blocks.div_ceil(8) as usize
    }

    /// Pointers in a block.
    pub(crate) fn pointers(&self) -> u64 {
        u64::from(self.block_bytes) / 4
    }

    /// The longest file, in blocks.
    pub(crate) fn max_blocks(&self) -> u64 {
        DIRECT as u64 + self.pointers() + self.pointers() * self.pointers()
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_blocks() * u64::from(self.block_bytes)
    }

    /// Writes the superblock of `group`.
    pub(crate) fn write(&self, store: &mut dyn Store, group: u32, clean: bool) -> Result<(), FsError> {
        let mut sector = [0; SECTOR_BYTES];
        sector[..8].copy_from_slice(MAGIC);
        let fields =
            [VERSION, self.block_bytes, self.blocks, self.group_blocks, self.group_inodes, u32::from(clean)];
        for (i, field) in fields.into_iter().enumerate() {
            put_u32(&mut sector, 8 + 4 * i, field);
        }
        let sum = crc32(&sector[..508]);
        put_u32(&mut sector, 508, sum);
        Ok(store.write(self.byte_of(group * self.group_blocks), &sector, When::Now)?)
    }

    /// Reads the superblock at byte `at`; whether the volume was unmounted.
    ///
    /// # Errors
    /// [`FsError::Refused`], with what is wrong; the disk.
    pub(crate) fn read(store: &mut dyn Store, at: u64) -> Result<(Geometry, bool), FsError> {
        let mut sector = [0; SECTOR_BYTES];
        let refuse = |why| Err(FsError::Refused(why));
        if store.len_bytes() < at + SECTOR_BYTES as u64 {
            return refuse(format!(
                "it ends after {} whole sectors of {SECTOR_BYTES} bytes, before its superblock",
                store.len_bytes() / SECTOR_BYTES as u64
            ));
        }
        store.read(at, &mut sector)?;
        if &sector[..8] != MAGIC {
            return refuse(format!("no superblock at byte {at}"));
        }
        let field = |i: usize| get_u32(&sector, 8 + 4 * i);
        if field(0) != VERSION {
            return refuse(format!("version {}, expected {VERSION}", field(0)));
        }
        if crc32(&sector[..508]) != get_u32(&sector, 508) {
            return refuse(format!("the superblock at byte {at} does not have the sum that it says"));
        }
        let found = Geometry {
            block_bytes: field(1),
            blocks: field(2),
            group_blocks: field(3),
            group_inodes: field(4),
        };
        let len_bytes = u64::from(found.blocks) * u64::from(found.block_bytes);
        let format = Format { block_bytes: found.block_bytes };
        if Geometry::new(format, len_bytes).ok() != Some(found) {
            return refuse(format!("a superblock that makes no sense: {found:?}"));
        }
        if store.len_bytes() < len_bytes {
            return refuse(format!("it ends after {} of {len_bytes} bytes", store.len_bytes()));
        }
        Ok((found, field(5) != 0))
    }

    /// Writes the header of a group with empty maps.
    pub(crate) fn write_header(&self, store: &mut dyn Store, group: u32) -> Result<(), FsError> {
        let mut block = vec![0; self.block_bytes as usize];
        put_u32(&mut block, 0, GROUP_MAGIC);
        put_u32(&mut block, 4, group);
        Ok(store.write(self.header_at(group), &block, When::Later)?)
    }

    pub(crate) fn has_header(&self, store: &mut dyn Store, group: u32) -> Result<bool, FsError> {
        let mut bytes = [0; 8];
        store.read(self.header_at(group), &mut bytes)?;
        Ok(get_u32(&bytes, 0) == GROUP_MAGIC && get_u32(&bytes, 4) == group)
    }
}

/// What a group says, for [`Geometry::write_header`] to say again.
pub(crate) fn header_words(group: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    put_u32(&mut bytes, 0, GROUP_MAGIC);
    put_u32(&mut bytes, 4, group);
    bytes
}
