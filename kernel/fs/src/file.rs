//! The bytes of files: pieces to read and to write, cutting and growing, `fsync`.
//!
//! Bytes behind the end of a file, in its last fragment, are zeros.

use crate::Ino;
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::layout::{DIRECT, Run};
use crate::store::{Store, When};
use crate::volume::Volume;
use alloc::vec;

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
        let first = self.shown_block_of(store, ino, at / block_bytes)?;
        let mut there = (block_bytes - at % block_bytes) as usize;
        let mut next = 1;
        while there < len {
            let block = self.shown_block_of(store, ino, at / block_bytes + u64::from(next))?;
            if block != first.map(|first| first + next * self.geometry.per_block()) {
                break;
            }
            there += block_bytes as usize;
            next += 1;
        }
        let at = first.map(|first| self.geometry.byte_of(first) + at % block_bytes);
        Ok(Piece { at, len_bytes: there.min(len) })
    }

    /// The first fragment of a block of a file, of which the store is told.
    fn shown_block_of(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        index: u64,
    ) -> Result<Option<u32>, FsError> {
        let Some(first) = self.block_of(store, ino, index)? else { return Ok(None) };
        let room = self.node(store, ino)?.room_bytes;
        let count = self.geometry.fragments_at(room, index);
        store.block(self.geometry.bytes_of(Run { first, count }));
        Ok(Some(first))
    }

    /// The piece of a file from byte `at` on, within one block, for writing: its fragments are taken if there are none,
    /// and cleared where they are not about to be written. The file is as long as before: see [`Volume::wrote`].
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
        let (index, offset) = (at / block_bytes, at % block_bytes);
        let len = len_bytes.min((block_bytes - offset) as usize);
        if index >= self.geometry.max_blocks() {
            return Err(FsError::TooLarge);
        }
        let end = at + len as u64;
        self.reach(store, ino, end)?;
        let (run, is_new) = self.take_block_of(store, ino, index, end, When::Later)?;
        let node = self.node(store, ino)?;
        node.room_bytes = node.room_bytes.max(end);
        store.block(self.geometry.bytes_of(run));
        let start = self.geometry.byte_of(run.first);
        let whole = self.geometry.len_of(run);
        if is_new && len < whole && !self.defect.is(FsDefect::FreshNotCleared) {
            let cleared = store.write(start, &vec![0; whole], When::Later);
            cleared.or_else(|e| self.give_back(store, ino, at).and(Err(e.into())))?;
        }
        Ok(Target { at: start + offset, len_bytes: len, is_new })
    }

    /// A file was written up to byte `end`: it is at least so long.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn wrote(&mut self, store: &mut dyn Store, ino: Ino, end: u64) -> Result<(), FsError> {
        self.change(store, ino, When::Later, |inode| inode.size = inode.size.max(end))?;
        let node = self.node(store, ino)?;
        node.room_bytes = node.room_bytes.max(end);
        Ok(())
    }

    /// Takes from a file the block with byte `at`, which it has just got and which could not be written. What another
    /// file had there must not come to light.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn give_back(&mut self, store: &mut dyn Store, ino: Ino, at: u64) -> Result<(), FsError> {
        self.give_back_block(store, ino, at / u64::from(self.geometry.block_bytes))
    }

    /// Takes from a file the blocks behind its end, which it has got for bytes that do not come.
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn give_back_behind(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let size = self.node(store, ino)?.inode.size;
        self.cut(store, ino, size, size)
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
            let Target { at: to, len_bytes: len, is_new } = match piece {
                Ok(piece) => piece,
                Err(e) => break Err(e),
            };
            if let Err(e) = store.write(to, &bytes[done..][..len], When::Later) {
                if is_new {
                    self.give_back(store, ino, at + done as u64)?;
                }
                break Err(e.into());
            }
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
    /// [`FsError::TooLarge`], [`FsError::IsDirectory`], [`FsError::Damaged`], the disk; [`FsError::NoSpace`], where the
    /// block that it ends in is to be a whole one.
    pub fn truncate(&mut self, store: &mut dyn Store, ino: Ino, size_bytes: u64) -> Result<(), FsError> {
        self.begin(store)?;
        let inode = self.node(store, ino)?.inode;
        inode.has_bytes()?;
        if size_bytes > self.geometry.max_bytes() {
            return Err(FsError::TooLarge);
        }
        if size_bytes < inode.size {
            let block_bytes = u64::from(self.geometry.block_bytes);
            let (index, offset) = (size_bytes / block_bytes, size_bytes % block_bytes);
            if offset != 0
                && !self.defect.is(FsDefect::TailNotCleared)
                && let Some(first) = self.shown_block_of(store, ino, index)?
            {
                let kept = Run { first, count: self.geometry.fragments_at(size_bytes, index) };
                let zeros = vec![0; self.geometry.len_of(kept) - offset as usize];
                store.write(self.geometry.byte_of(first) + offset, &zeros, When::Later)?;
            }
            self.cut(store, ino, size_bytes, size_bytes)?;
        } else if size_bytes > inode.size {
            self.reach(store, ino, size_bytes)?;
            self.wrote(store, ino, size_bytes)?;
        }
        self.let_go(store, ino)
    }

    /// Returns when a file is on the disk, with its length and all that leads to its bytes (`fsync`).
    ///
    /// # Errors
    /// [`FsError::Damaged`], the disk.
    pub fn fsync(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        self.begin(store)?;
        let inode = self.node(store, ino)?.inode;
        let fragment_bytes = u64::from(self.geometry.fragment_bytes);
        let mut at = 0;
        while at < inode.size {
            let left = usize::try_from(inode.size - at).unwrap_or(usize::MAX);
            let piece = self.piece(store, ino, at, left)?;
            if piece.len_bytes == 0 {
                break;
            }
            if let Some(from) = piece.at {
                // The rest of the last fragment is the file's, too.
                let end = (from + piece.len_bytes as u64).next_multiple_of(fragment_bytes);
                store.flush(from..end)?;
            }
            at += piece.len_bytes as u64;
        }
        for (which, depth) in [(DIRECT, 1), (DIRECT + 1, 2)] {
            let root = self.sound_block(inode.pointers[which])?;
            if root == 0 || self.defect.is(FsDefect::SyncForgetsIndirect) {
                continue;
            }
            for i in 0..if depth == 2 { self.geometry.pointers() } else { 0 } {
                let indirect = self.pointer(store, root, i)?;
                if indirect != 0 {
                    store.flush(self.geometry.bytes_of(self.geometry.block_at(indirect)))?;
                }
            }
            store.flush(self.geometry.bytes_of(self.geometry.block_at(root)))?;
        }
        self.change(store, ino, When::Now, |_| ())?;
        self.flush_inode(store, ino)?;
        self.let_go(store, ino)
    }
}
