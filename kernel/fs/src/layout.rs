//! What is where on the disk: superblock, cylinder groups, inodes. Numbers are little-endian.
//!
//! ```text
//! group:       superblock's copy | header and free maps | inodes ... | blocks ...
//! superblock:  0 magic  8 version  12 block_bytes  16 fragments  20 group_fragments  24 group_inodes  28 clean
//!              32 fragment_bytes  508 crc32
//! header:      0 magic  4 group  64 map of inodes, then map of fragments: a bit is set for what is in use
//! inode:       0 kind  2 links  4 fragments  8 length  16 12 direct, 64 indirect, 68 doubly indirect blocks; 128 bytes
//! ```
//!
//! A block is one to eight fragments, and lies where a multiple of its size does. All that is counted and pointed to
//! are fragments. A file has whole blocks, but for its last: if that is a direct one, it has as many fragments as the
//! length needs, neighbours within one block (`Geometry::fragments_at`).
//!
//! Fragment 0 is the superblock of group 0, so no file has it, and 0 in a pointer means a hole. The last group may be
//! shorter than others.

use crate::error::FsError;
use crate::store::{SECTOR_BYTES, Store, When};
use alloc::format;
use alloc::vec;
use core::ops::Range;

const MAGIC: &[u8; 8] = b"PFERRYFS";
const GROUP_MAGIC: u32 = 0x6772_6670;
/// The version of all this.
pub const VERSION: u32 = 2;
/// The one before it: every fragment is a block, and the superblock does not say so.
const WITHOUT_FRAGMENTS: u32 = 1;
pub(crate) const INODE_BYTES: usize = 128;
pub(crate) const DIRECT: usize = 12;
/// And two indirect ones.
pub(crate) const POINTERS: usize = DIRECT + 2;
/// Where the maps begin in the header of a group.
const MAPS_AT: usize = 64;
const MAX_GROUP_FRAGMENTS: usize = 32768;
/// A block has at most so many fragments (`MAXFRAG`).
pub(crate) const MAX_PER_BLOCK: u32 = 8;
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
    /// Bytes of a fragment: a power of two, 512 or more; an eighth of a block to a whole one.
    pub fragment_bytes: u32,
}

impl Format {
    /// Whether a volume may have it.
    ///
    /// # Errors
    /// [`FsError::Refused`]: a size of blocks or fragments that is none.
    pub fn check(self) -> Result<(), FsError> {
        let Format { block_bytes, fragment_bytes } = self;
        if !block_bytes.is_power_of_two() || !(512..=65536).contains(&block_bytes) {
            let expected = "expected a power of two, 512 to 65536";
            return Err(FsError::Refused(format!("blocks of {block_bytes} bytes, {expected}")));
        }
        let min_bytes = (block_bytes / MAX_PER_BLOCK).max(SECTOR_BYTES as u32);
        if !fragment_bytes.is_power_of_two() || !(min_bytes..=block_bytes).contains(&fragment_bytes) {
            let expected = format!("expected a power of two, {min_bytes} to {block_bytes}");
            return Err(FsError::Refused(format!("fragments of {fragment_bytes} bytes, {expected}")));
        }
        Ok(())
    }

    /// In whole blocks.
    pub fn of_blocks(block_bytes: u32) -> Format {
        Format { block_bytes, fragment_bytes: block_bytes }
    }
}

impl Default for Format {
    /// As FreeBSD 5 makes volumes (`newfs`).
    fn default() -> Format {
        Format { block_bytes: 16384, fragment_bytes: 2048 }
    }
}

/// Fragments that are neighbours in one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Run {
    /// What of it is behind its first `count` fragments.
    pub(crate) fn behind(self, count: u32) -> Run {
        Run { first: self.first + count, count: self.count - count }
    }
}

/// The sizes that all else follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of a fragment.
    pub fragment_bytes: u32,
    /// Fragments of the volume.
    pub fragments: u32,
    /// Fragments of a group.
    pub group_fragments: u32,
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
    /// [`FsError::Refused`]: a size of blocks or fragments that is none, or too small or large a disk.
    pub fn new(format: Format, len_bytes: u64) -> Result<Geometry, FsError> {
        format.check()?;
        let Format { block_bytes, fragment_bytes } = format;
        let bits = (block_bytes as usize - MAPS_AT) * 8;
        let mut group_fragments = MAX_GROUP_FRAGMENTS;
        while group_fragments + group_fragments / 4 > bits {
            group_fragments /= 2;
        }
        let fragments = len_bytes / u64::from(block_bytes) * u64::from(block_bytes / fragment_bytes);
        let Ok(fragments) = u32::try_from(fragments) else {
            return Err(FsError::Refused(format!("{fragments} fragments, expected fewer than 2^32")));
        };
        let group_fragments = group_fragments as u32;
        // An inode for four fragments (`newfs`), in whole blocks.
        let per_block = block_bytes / INODE_BYTES as u32;
        let group_inodes = (group_fragments.min(fragments) / 4).max(1).next_multiple_of(per_block);
        let mut geometry = Geometry { block_bytes, fragment_bytes, fragments, group_fragments, group_inodes };
        // A last group without room for a block is left out.
        let rest = fragments % group_fragments;
        if rest != 0 && rest <= geometry.reserved_fragments() {
            geometry.fragments -= rest;
        }
        if geometry.fragments == 0 {
            let blocks = u64::from(geometry.reserved_fragments() / geometry.per_block() + 1);
            let min_bytes = blocks * u64::from(block_bytes);
            return Err(FsError::Refused(format!("{len_bytes} bytes, expected at least {min_bytes}")));
        }
        Ok(geometry)
    }

    /// How many groups there are.
    pub fn groups(&self) -> u32 {
        self.fragments.div_ceil(self.group_fragments)
    }

    /// Fragments of a block.
    pub fn per_block(&self) -> u32 {
        self.block_bytes / self.fragment_bytes
    }

    /// Fragments of a group that no file can have.
    pub(crate) fn reserved_fragments(&self) -> u32 {
        (2 + self.group_inodes * INODE_BYTES as u32 / self.block_bytes) * self.per_block()
    }

    pub(crate) fn fragments_of(&self, group: u32) -> Range<u32> {
        let start = group * self.group_fragments;
        start..self.fragments.min(start.saturating_add(self.group_fragments))
    }

    /// A run that a file can have.
    pub(crate) fn is_data(&self, run: Run) -> bool {
        let per = self.per_block();
        run.first < self.fragments
            && run.first % self.group_fragments >= self.reserved_fragments()
            && run.first % per + run.count <= per
    }

    /// How many fragments block `index` of a file has that is `len_bytes` long, if it is no hole: all those of a
    /// block, but for the last one.
    pub(crate) fn fragments_at(&self, len_bytes: u64, index: u64) -> u32 {
        let block_bytes = u64::from(self.block_bytes);
        let last = len_bytes.saturating_sub(1) / block_bytes;
        if index != last || index >= DIRECT as u64 || len_bytes == 0 {
            return self.per_block();
        }
        (len_bytes - last * block_bytes).div_ceil(u64::from(self.fragment_bytes)) as u32
    }

    /// Inodes of the volume.
    pub(crate) fn inodes(&self) -> u32 {
        self.groups() * self.group_inodes
    }

    pub(crate) fn byte_of(&self, fragment: u32) -> u64 {
        u64::from(fragment) * u64::from(self.fragment_bytes)
    }

    pub(crate) fn bytes_of(&self, run: Run) -> Range<u64> {
        self.byte_of(run.first)..self.byte_of(run.first) + self.len_of(run) as u64
    }

    pub(crate) fn len_of(&self, run: Run) -> usize {
        run.count as usize * self.fragment_bytes as usize
    }

    /// The whole block that begins with a fragment.
    pub(crate) fn block_at(&self, first: u32) -> Run {
        Run { first, count: self.per_block() }
    }

    /// Where inode `ino` is.
    pub(crate) fn inode_at(&self, ino: u32) -> u64 {
        let (group, index) = (ino / self.group_inodes, ino % self.group_inodes);
        self.byte_of(group * self.group_fragments + 2 * self.per_block())
            + u64::from(index) * INODE_BYTES as u64
    }

    pub(crate) fn header_at(&self, group: u32) -> u64 {
        self.byte_of(group * self.group_fragments + self.per_block())
    }

    pub(crate) fn inode_map_at(&self, group: u32) -> u64 {
        self.header_at(group) + MAPS_AT as u64
    }

    pub(crate) fn fragment_map_at(&self, group: u32) -> u64 {
        self.inode_map_at(group) + u64::from(self.group_inodes).div_ceil(8)
    }

    pub(crate) fn inode_map_bytes(&self) -> usize {
        self.group_inodes.div_ceil(8) as usize
    }

    pub(crate) fn fragment_map_bytes(&self) -> usize {
        self.group_fragments.div_ceil(8) as usize
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
        let fields = [
            VERSION,
            self.block_bytes,
            self.fragments,
            self.group_fragments,
            self.group_inodes,
            u32::from(clean),
            self.fragment_bytes,
        ];
        for (i, field) in fields.into_iter().enumerate() {
            put_u32(&mut sector, 8 + 4 * i, field);
        }
        let sum = crc32(&sector[..508]);
        put_u32(&mut sector, 508, sum);
        Ok(store.write(self.byte_of(group * self.group_fragments), &sector, When::Now)?)
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
        if !(WITHOUT_FRAGMENTS..=VERSION).contains(&field(0)) {
            return refuse(format!("version {}, expected {VERSION}", field(0)));
        }
        if crc32(&sector[..508]) != get_u32(&sector, 508) {
            return refuse(format!("the superblock at byte {at} does not have the sum that it says"));
        }
        let found = Geometry {
            block_bytes: field(1),
            fragment_bytes: if field(0) == WITHOUT_FRAGMENTS { field(1) } else { field(6) },
            fragments: field(2),
            group_fragments: field(3),
            group_inodes: field(4),
        };
        let len_bytes = u64::from(found.fragments) * u64::from(found.fragment_bytes);
        let format = Format { block_bytes: found.block_bytes, fragment_bytes: found.fragment_bytes };
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
