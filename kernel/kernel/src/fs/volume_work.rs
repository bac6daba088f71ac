//! What is done with a volume by name and by bytes, whoever owns it: the kernel ([`super::mount`]) or a file server
//! ([`crate::served`]).
//!
//! A path leads through symbolic links; at its end one is followed or not, as the call says. A path of a link begins at
//! the link's directory, or at the volume's root if it names the mount point; any other leads off the volume, where
//! there is nothing.
//!
//! An owner has a [`Volume`] and a store of buffers, [`Buffered`], and brings both. How bytes go between a buffer and
//! where they are wanted is the caller's: it gets the address of every piece.
//!
//! # Locks
//! None: an owner does one thing at a time.
//!
//! # What can fail
//! What fails in a file system, and the caller's part of moving bytes; then what came before is done.

use super::cursor::Create;
use super::vfs::{Change, DirEntry, Links, Opening, path_below};
use crate::proc::{Uio, UioRw};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::{Errno, FileStat};
use pageferry_fs::{Entry, FsError, Ino, Kind, Stat, Store, Volume, When};
use pageferry_hal::Va;

/// Bytes of a buffer (`BKVASIZE`).
pub(crate) const BUFFER_BYTES: usize = 16384;
pub(crate) const SECTOR: usize = 512;

/// Moves so many bytes between an address of a cached block and the buffer of a call, and that on.
pub(crate) type MovePiece<'a> = &'a mut dyn FnMut(Va, usize, &mut Uio) -> Result<(), Errno>;

/// A store whose buffers have addresses.
pub(crate) trait Buffered: Store {
    /// Accounts for looking up one name of a path.
    fn account_name(&self);

    /// The address of a buffer that has these sectors.
    ///
    /// # Errors
    /// As of the disk, and for want of a buffer.
    fn buffer(&mut self, index: u64, needed: Sectors) -> Result<Va, Errno>;

    /// New bytes are in these sectors of the buffer that was asked for last: they wait to be written.
    fn stored(&mut self, index: u64, which: Sectors);

    /// How many buffers wait to be written, and how many may.
    fn waiting(&self) -> (usize, usize);

    /// Writes the buffer that has waited for longest.
    ///
    /// # Errors
    /// As of the disk.
    fn write_oldest(&mut self) -> Result<(), Errno>;

    /// Does `piece` with each piece of bytes of the disk, at an address and so many: to read them, or, if `writes`, to
    /// write them later. It answers how many it has moved, and why not more.
    ///
    /// # Errors
    /// Those of the disk and of `piece`; the bytes before have moved.
    fn each_piece(
        &mut self,
        at: u64,
        len_bytes: usize,
        writes: bool,
        piece: &mut dyn FnMut(Va, usize) -> (usize, Result<(), Errno>),
    ) -> Result<(), Errno> {
        for (index, span) in spans(at..at + len_bytes as u64) {
            // Where the writer's memory ends, whole sectors would be left with what was there before.
            let needed = if writes { cut_sectors(&span) } else { sectors(&span) };
            let va = self.buffer(index, needed)?;
            let (bytes, moved) = piece(va + span.start, span.len());
            if writes && bytes > 0 {
                self.stored(index, sectors(&(span.start..span.start + bytes)));
            }
            moved?;
        }
        Ok(())
    }

    /// Moves bytes of the disk into a buffer on its way, or from it, to be written later.
    ///
    /// # Errors
    /// Those of the disk and of `piece`; the bytes before have moved.
    fn move_pieces(&mut self, at: u64, len: usize, uio: &mut Uio, piece: MovePiece<'_>) -> Result<(), Errno> {
        let writes = uio.rw() == UioRw::Write;
        self.each_piece(at, len, writes, &mut |va, len| {
            let before = uio.done();
            let moved = piece(va, len, uio);
            (uio.done() - before, moved)
        })
    }

    /// Writes the oldest of what waits, if there is too much of it, until half may wait.
    ///
    /// # Errors
    /// As of the disk.
    fn limit(&mut self) -> Result<(), Errno> {
        let (waiting, most) = self.waiting();
        if waiting > most {
            while self.waiting().0 > most / 2 {
                self.write_oldest()?;
            }
        }
        Ok(())
    }
}

// --------------------------------------------------------------------------------------------------- names

/// What has a name in a directory, or why nothing was found there.
type Found = Result<(Ino, Kind), FsError>;

/// A path on its way: the directory it has come to, and what is left.
struct Walk<'a> {
    dir: Ino,
    rest: Cow<'a, [u8]>,
    /// Links that were followed.
    links: usize,
}

impl<'a> Walk<'a> {
    fn new(volume: &Volume, path: &'a str) -> Walk<'a> {
        Walk { dir: volume.root(), rest: path.trim_end_matches('/').as_bytes().into(), links: 0 }
    }

    /// The directory of the path, and its last name, which may be a link's.
    fn name(&mut self, volume: &mut Volume, disk: &mut impl Buffered) -> Result<(Ino, Vec<u8>), Errno> {
        let mut from = 0;
        loop {
            disk.account_name();
            let Some(len) = self.rest[from..].iter().position(|byte| *byte == b'/') else { break };
            let first = &self.rest[from..from + len];
            from += len + 1;
            if first.is_empty() {
                continue;
            }
            match volume.lookup_kind(disk, self.dir, first)? {
                (link, Kind::Link) => {
                    let others = self.rest[from..].to_vec();
                    self.follow(volume, disk, link, &others)?;
                    from = 0;
                }
                (found, _) => self.dir = found,
            }
        }
        // The root has no name of its own.
        let name = if self.rest.len() == from { b"." } else { &self.rest[from..] };
        if volume.stat(disk, self.dir)?.kind == Kind::Directory {
            Ok((self.dir, name.to_vec()))
        } else {
            Err(Errno::NotDirectory)
        }
    }

    /// Goes on along the path of a link in the directory it has come to, and then along `others`.
    fn follow(
        &mut self,
        volume: &mut Volume,
        disk: &mut impl Buffered,
        link: Ino,
        others: &[u8],
    ) -> Result<(), Errno> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::Loop);
        }
        let path = volume.read_link(disk, link)?;
        let mut rest = match path.strip_prefix(b"/") {
            None => path,
            Some(_) => {
                self.dir = volume.root();
                let text = core::str::from_utf8(&path).ok();
                text.and_then(|name| path_below(name, MOUNT_POINT)).ok_or(Errno::NoFile)?.as_bytes().to_vec()
            }
        };
        if !others.is_empty() {
            rest.push(b'/');
            rest.extend_from_slice(others);
        }
        let end = rest.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        rest.truncate(end);
        self.rest = rest.into();
        Ok(())
    }

    /// The directory of the path, its last name, which is no link's unless `links` says that it may be, and what that
    /// is.
    fn found(
        &mut self,
        volume: &mut Volume,
        disk: &mut impl Buffered,
        links: Links,
    ) -> Result<(Ino, Vec<u8>, Found), Errno> {
        loop {
            let (dir, name) = self.name(volume, disk)?;
            match volume.lookup_kind(disk, dir, &name) {
                Ok((link, Kind::Link)) if links == Links::Followed => self.follow(volume, disk, link, &[])?,
                found => return Ok((dir, name, found)),
            }
        }
    }
}

/// Where volumes are mounted: what a symbolic link's path begins with that leads somewhere on one.
pub(crate) const MOUNT_POINT: &str = "/mnt";

/// Symbolic links that one path leads through, at most (`MAXSYMLINKS` of FreeBSD).
const MOST_LINKS: usize = 32;

/// The directory of a path, and its last name.
fn walk(volume: &mut Volume, disk: &mut impl Buffered, path: &str) -> Result<(Ino, Vec<u8>), Errno> {
    Walk::new(volume, path).name(volume, disk)
}

/// Opens a file by its path, or makes one. Directories are not opened, and no symbolic links.
pub(crate) fn open(
    volume: &mut Volume,
    disk: &mut impl Buffered,
    path: &str,
    Opening { create, truncate, links }: Opening,
) -> Result<Ino, Errno> {
    // A file that must be new is not made where a link leads.
    let links = if create == Create::New { Links::Taken } else { links };
    let (dir, name, found) = Walk::new(volume, path).found(volume, disk, links)?;
    let found = match found {
        Err(FsError::NotFound) if create != Create::No => volume.make(disk, dir, &name, Kind::File),
        Ok(_) if create == Create::New => Err(FsError::Exists),
        Ok((_, Kind::Link)) => return Err(Errno::Loop),
        found => found.map(|(ino, _)| ino),
    }?;
    if volume.stat(disk, found)?.kind == Kind::Directory {
        return Err(Errno::IsDirectory);
    }
    if truncate {
        volume.truncate(disk, found, 0)?;
    }
    volume.open(disk, found)?;
    Ok(found)
}

/// Makes a directory, takes a name or an empty directory away.
pub(crate) fn change_name(
    volume: &mut Volume,
    disk: &mut impl Buffered,
    path: &str,
    how: Change,
) -> Result<(), Errno> {
    let (dir, name) = walk(volume, disk, path)?;
    match how {
        Change::MakeDirectory => volume.make(disk, dir, &name, Kind::Directory).map(drop),
        Change::RemoveDirectory => volume.rmdir(disk, dir, &name),
        Change::Unlink => volume.unlink(disk, dir, &name),
    }?;
    Ok(())
}

/// What is known of what has a path.
pub(crate) fn stat(
    volume: &mut Volume,
    disk: &mut impl Buffered,
    path: &str,
    links: Links,
) -> Result<Stat, Errno> {
    let (_, _, found) = Walk::new(volume, path).found(volume, disk, links)?;
    Ok(volume.stat(disk, found?.0)?)
}

/// Gives a file a path more; the file that a symbolic link leads to, not the link.
pub(crate) fn link(volume: &mut Volume, disk: &mut impl Buffered, from: &str, to: &str) -> Result<(), Errno> {
    let (_, _, found) = Walk::new(volume, from).found(volume, disk, Links::Followed)?;
    let (found, _) = found?;
    let (dir, name) = walk(volume, disk, to)?;
    Ok(volume.link(disk, found, dir, &name)?)
}

/// Makes a symbolic link that has a path.
pub(crate) fn make_link(
    volume: &mut Volume,
    disk: &mut impl Buffered,
    path: &str,
    name: &str,
) -> Result<(), Errno> {
    let (dir, name) = walk(volume, disk, name)?;
    volume.make_link(disk, dir, &name, path.as_bytes())?;
    Ok(())
}

/// The path of a symbolic link.
pub(crate) fn read_link(volume: &mut Volume, disk: &mut impl Buffered, name: &str) -> Result<Vec<u8>, Errno> {
    let (_, _, found) = Walk::new(volume, name).found(volume, disk, Links::Taken)?;
    Ok(volume.read_link(disk, found?.0)?)
}

/// Renames.
pub(crate) fn rename(
    volume: &mut Volume,
    disk: &mut impl Buffered,
    from: &str,
    to: &str,
) -> Result<(), Errno> {
    let (from, old) = walk(volume, disk, from)?;
    let (to, new) = walk(volume, disk, to)?;
    Ok(volume.rename(disk, (from, &old), (to, &new))?)
}

/// The names of a directory.
pub(crate) fn entries(
    volume: &mut Volume,
    disk: &mut impl Buffered,
    path: &str,
) -> Result<Vec<Entry>, Errno> {
    let dir = if path.is_empty() {
        volume.root()
    } else {
        let (_, _, found) = Walk::new(volume, path).found(volume, disk, Links::Followed)?;
        found?.0
    };
    Ok(volume.entries(disk, dir)?)
}

/// What a process is told of a file.
pub(crate) fn file_stat(Stat { kind, size_bytes, links, .. }: Stat) -> FileStat {
    FileStat { is_directory: kind == Kind::Directory, is_link: kind == Kind::Link, size_bytes, links }
}

/// What a process is told of the names in a directory. Bytes of names that are no UTF-8 are replaced.
pub(crate) fn dir_entries(entries: &[Entry]) -> Vec<DirEntry> {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    entries.iter().map(|e| (shown(&e.name), e.kind == Kind::Directory)).collect()
}

// --------------------------------------------------------------------------------------------------- bytes

/// Fills a buffer with the bytes of a file: `piece` moves what is there, `hole` as many zeros.
///
/// # Errors
/// Those of the disk, of `piece` and of `hole`; the bytes before have moved.
pub(crate) fn read_bytes(
    volume: &mut Volume,
    disk: &mut impl Buffered,
    ino: Ino,
    uio: &mut Uio,
    piece: MovePiece<'_>,
    hole: &mut dyn FnMut(usize, &mut Uio) -> Result<(), Errno>,
) -> Result<(), Errno> {
    while uio.left() > 0 {
        let next = volume.piece(disk, ino, uio.offset(), uio.left())?;
        match next.at {
            _ if next.len_bytes == 0 => break,
            Some(from) => disk.move_pieces(from, next.len_bytes, uio, piece)?,
            // Nothing to copy from.
            None => hole(next.len_bytes, uio)?,
        }
    }
    Ok(())
}

/// Has `piece` bring the bytes of a file from a buffer.
///
/// # Errors
/// Those of the disk and of `piece`; the bytes before have moved.
pub(crate) fn write_bytes(
    volume: &mut Volume,
    disk: &mut impl Buffered,
    ino: Ino,
    uio: &mut Uio,
    piece: MovePiece<'_>,
) -> Result<(), Errno> {
    uio.offset().checked_add(uio.left() as u64).ok_or(Errno::TooLarge)?;
    let mut result = Ok(());
    while uio.left() > 0 && result.is_ok() {
        let next = match volume.piece_to_write(disk, ino, uio.offset(), uio.left()) {
            Ok(next) => next,
            Err(e) => {
                result = Err(e.into());
                break;
            }
        };
        let (to, len, before) = (next.at, next.len_bytes, uio.done());
        let how = disk.move_pieces(to, len, uio, piece);
        let moved = uio.done() - before;
        if next.is_new && moved < len {
            // The writer's memory ends: what another file had there is not this one's.
            disk.write(to + moved as u64, &vec![0; len - moved], When::Later)?;
        }
        result = how.and_then(|()| disk.limit());
    }
    if uio.done() > 0 {
        volume.wrote(disk, ino, uio.offset())?;
    }
    result
}

// --------------------------------------------------------------------------------------------------- buffers

/// Some sectors of a buffer, a bit each.
pub(crate) type Sectors = u32;

pub(crate) fn sectors(span: &Range<usize>) -> Sectors {
    let (first, end) = (span.start / SECTOR, span.end.div_ceil(SECTOR));
    (((1u64 << end) - 1) & !((1u64 << first) - 1)) as Sectors
}

/// The sectors that a span has only a part of.
pub(crate) fn cut_sectors(span: &Range<usize>) -> Sectors {
    let mut cut = 0;
    if !span.start.is_multiple_of(SECTOR) {
        cut |= 1 << (span.start / SECTOR);
    }
    if !span.end.is_multiple_of(SECTOR) {
        cut |= 1 << (span.end / SECTOR);
    }
    cut
}

/// The runs of neighbours.
pub(crate) fn runs(of: Sectors) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    core::iter::from_fn(move || {
        let start = (from..Sectors::BITS as usize).find(|&bit| of & 1 << bit != 0)?;
        let end = (start..Sectors::BITS as usize).find(|&bit| of & 1 << bit == 0);
        from = end.unwrap_or(Sectors::BITS as usize);
        Some(start..from)
    })
}

/// The buffers that a range of the disk lies in, and what of each.
pub(crate) fn spans(bytes: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let size = BUFFER_BYTES as u64;
    let all = if bytes.is_empty() { 0..0 } else { bytes.start / size..bytes.end.div_ceil(size) };
    all.map(move |index| {
        let from = bytes.start.saturating_sub(index * size) as usize;
        (index, from..(bytes.end - index * size).min(size) as usize)
    })
}
