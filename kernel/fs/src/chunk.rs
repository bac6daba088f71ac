//! The format of directories: names and their inodes, in chunks of a sector, so that every change of a name is one
//! write.
//!
//! ```text
//! entry:  0 inode  4 length of the entry  6 kind  7 length of the name  8 name, filled up to a multiple of four
//! ```
//!
//! The entries of a chunk fill it; an entry is as long as it likes, so what a name that went had is its forerunner's.
//! The first of a chunk keeps its place, with inode 0.

use crate::Ino;
use crate::inode::Kind;
use crate::layout::{get_u16, get_u32, put_u32};
use crate::store::SECTOR_BYTES as CHUNK;
use alloc::vec::Vec;

const HEAD: usize = 8;
/// Where an entry has its kind.
pub(crate) const KIND_AT: usize = 6;
pub(crate) const MAX_NAME: usize = 255;

/// An entry in a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) ino: u32,
    pub(crate) kind: u8,
    pub(crate) name_len: usize,
}

impl Slot {
    pub(crate) fn name<'a>(&self, chunk: &'a [u8]) -> &'a [u8] {
        &chunk[self.at + HEAD..][..self.name_len]
    }

    /// Bytes that the entry needs.
    pub(crate) fn used(&self) -> usize {
        if self.ino == 0 { 0 } else { room_for(self.name_len) }
    }
}

/// The length of the entry of a name.
pub(crate) fn room_for(name_len: usize) -> usize {
    HEAD + name_len.next_multiple_of(4)
}

pub(crate) fn put_entry(chunk: &mut [u8], at: usize, len: usize, ino: u32, kind: u8, name: &[u8]) {
    put_u32(chunk, at, ino);
    chunk[at + 4..at + 6].copy_from_slice(&(len as u16).to_le_bytes());
    chunk[at + 6] = kind;
    chunk[at + 7] = name.len() as u8;
    chunk[at + HEAD..][..name.len()].copy_from_slice(name);
}

/// The entries of a chunk, if they make sense.
pub(crate) fn slots(chunk: &[u8]) -> Result<Vec<Slot>, &'static str> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < CHUNK {
        let len = usize::from(get_u16(chunk, at + 4));
        let slot = Slot {
            at,
            len,
            ino: get_u32(chunk, at),
            kind: chunk[at + 6],
            name_len: usize::from(chunk[at + 7]),
        };
        if len < HEAD || len % 4 != 0 || at + len > CHUNK {
            return Err("an entry is longer than its chunk, or too short");
        }
        if slot.ino != 0 && (slot.name_len == 0 || room_for(slot.name_len) > len) {
            return Err("a name does not fit its entry");
        }
        if slot.ino != 0 && Kind::of(slot.kind.into()).is_none() {
            return Err("an entry is of no known kind");
        }
        all.push(slot);
        at += len;
    }
    Ok(all)
}

/// A chunk without names.
pub(crate) fn empty_chunk() -> [u8; CHUNK] {
    let mut chunk = [0; CHUNK];
    put_entry(&mut chunk, 0, CHUNK, 0, 0, b"");
    chunk
}

/// The first chunk of a directory.
pub(crate) fn first_chunk(own: Ino, parent: Ino) -> [u8; CHUNK] {
    let mut chunk = empty_chunk();
    put_entry(&mut chunk, 0, 12, own.0, 2, b".");
    put_entry(&mut chunk, 12, CHUNK - 12, parent.0, 2, b"..");
    chunk
}

/// The largest entry that there is room for among these.
pub(crate) fn room_in(slots: &[Slot]) -> u16 {
    slots.iter().map(|slot| slot.len - slot.used()).max().unwrap_or(0) as u16
}

/// The largest entry that a chunk has room for.
pub(crate) fn room_in_chunk(chunk: &[u8]) -> u16 {
    slots(chunk).map_or(0, |slots| room_in(&slots))
}
