//! What is done with a volume by name and by bytes, whoever owns it: the kernel (`mount`) or a file server
//! (`pageferry_servers`).
//!
//! A path leads through symbolic links; at its end one is followed or not, as the call says. A path of a link begins at
//! the link's directory, or at the volume's root if it names the mount point. Any other leads off the volume, and so
//! does `..` from its root: the call has done nothing then ([`Errno::CrossDevice`]), and [`way_off`] says where to.
//!
//! An owner has a [`Volume`] and a cache of its disk, [`Cached`], and brings both. How bytes go between a buffer and
//! where they are wanted is the caller's: it gets the address of every piece.
//!
//! # Locks
//! None: an owner does one thing at a time.
//!
//! # What can fail
//! What fails in a file system, and the caller's part of moving bytes; then what came before is done.

use super::buffer_cache::{Cached, MovePiece, Strategy};
use super::cursor::Create;
use super::vfs::{Change, DirEntry, Links, Lookup, MAX_LINKS, Opening, WayOff, path_below};
use crate::proc::Uio;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use pageferry_abi::{Errno, FileStat};
use pageferry_fs::{Entry, FsError, Ino, Kind, Stat, Store, Volume, When};

// --------------------------------------------------------------------------------------------------- names

/// What has a name in a directory, or why nothing was found there.
type Found = Result<(Ino, Kind), FsError>;

/// A path on its way: the directory it has come to, and what is left.
struct Walk<'a> {
    dir: Ino,
    rest: Cow<'a, [u8]>,
    /// Links that were followed.
    links: usize,
    /// Where it has led off the volume.
    off: Option<WayOff>,
}

impl<'a> Walk<'a> {
    fn new(volume: &Volume, at: Lookup<'a>) -> Walk<'a> {
        let rest = at.path.trim_end_matches('/').as_bytes().into();
        Walk { dir: volume.root(), rest, links: at.followed, off: None }
    }

    /// It leads off the volume, by `path` from the root of all.
    fn leave(&mut self, path: Vec<u8>) -> Errno {
        let Ok(path) = String::from_utf8(path) else { return Errno::NoFile };
        self.off = Some(WayOff { path, followed: self.links });
        Errno::CrossDevice
    }

    /// The directory of the path, and its last name, which may be a link's.
    fn name(
        &mut self,
        volume: &mut Volume,
        disk: &mut Cached<'_, impl Strategy>,
    ) -> Result<(Ino, Vec<u8>), Errno> {
        let mut from = 0;
        loop {
            disk.account_name();
            let Some(len) = self.rest[from..].iter().position(|byte| *byte == b'/') else { break };
            let first = &self.rest[from..from + len];
            from += len + 1;
            if first.is_empty() {
                continue;
            }
            if first == b".." && self.dir == volume.root() {
                let rest = self.rest[from..].to_vec();
                return Err(self.leave(rest));
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
        if name == b".." && self.dir == volume.root() {
            return Err(self.leave(Vec::new()));
        }
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
        disk: &mut Cached<'_, impl Strategy>,
        link: Ino,
        others: &[u8],
    ) -> Result<(), Errno> {
        // The number is a client's, where a server looks up.
        self.links = self.links.saturating_add(1);
        if self.links > MAX_LINKS {
            return Err(Errno::Loop);
        }
        let mut rest = volume.read_link(disk, link)?;
        if !others.is_empty() {
            rest.push(b'/');
            rest.extend_from_slice(others);
        }
        if rest.starts_with(b"/") {
            let text = core::str::from_utf8(&rest).map_err(|_| Errno::NoFile)?;
            rest = match path_below(text, MOUNT_POINT) {
                Some(behind) => behind.as_bytes().to_vec(),
                None => return Err(self.leave(rest)),
            };
            self.dir = volume.root();
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
        disk: &mut Cached<'_, impl Strategy>,
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
pub const MOUNT_POINT: &str = "/mnt";

/// The directory of a path, and its last name.
fn walk(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    at: Lookup<'_>,
) -> Result<(Ino, Vec<u8>), Errno> {
    Walk::new(volume, at).name(volume, disk)
}

/// Where a path leads off the volume, if it does ([`FileSystem::way_off`](super::vfs::FileSystem::way_off)).
pub fn way_off(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    at: Lookup<'_>,
    links: Links,
) -> Result<Option<WayOff>, Errno> {
    let mut walk = Walk::new(volume, at);
    let here = match links {
        Links::Taken => walk.name(volume, disk).map(drop),
        Links::Followed => walk.found(volume, disk, links).and_then(|(_, _, found)| Ok(found.map(|_| ())?)),
    };
    match here {
        Err(Errno::CrossDevice) => Ok(walk.off),
        here => here.map(|()| None),
    }
}

/// Opens a file by its path, or makes one. Directories are not opened, and no symbolic links.
pub fn open(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    at: Lookup<'_>,
    Opening { create, truncate, links }: Opening,
) -> Result<Ino, Errno> {
    // A file that must be new is not made where a link leads.
    let links = if create == Create::New { Links::Taken } else { links };
    let (dir, name, found) = Walk::new(volume, at).found(volume, disk, links)?;
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
pub fn change_name(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    at: Lookup<'_>,
    how: Change,
) -> Result<(), Errno> {
    let (dir, name) = walk(volume, disk, at)?;
    match how {
        Change::MakeDirectory => volume.make(disk, dir, &name, Kind::Directory).map(drop),
        Change::RemoveDirectory => volume.rmdir(disk, dir, &name),
        Change::Unlink => volume.unlink(disk, dir, &name),
    }?;
    Ok(())
}

/// What is known of what has a path.
pub fn stat(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    at: Lookup<'_>,
    links: Links,
) -> Result<Stat, Errno> {
    let (_, _, found) = Walk::new(volume, at).found(volume, disk, links)?;
    Ok(volume.stat(disk, found?.0)?)
}

/// Gives a file a path more; the file that a symbolic link leads to, not the link.
pub fn link(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    from: Lookup<'_>,
    to: Lookup<'_>,
) -> Result<(), Errno> {
    let (_, _, found) = Walk::new(volume, from).found(volume, disk, Links::Followed)?;
    let (found, _) = found?;
    let (dir, name) = walk(volume, disk, to)?;
    Ok(volume.link(disk, found, dir, &name)?)
}

/// Makes a symbolic link that has a path.
pub fn make_link(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    path: &str,
    at: Lookup<'_>,
) -> Result<(), Errno> {
    let (dir, name) = walk(volume, disk, at)?;
    volume.make_link(disk, dir, &name, path.as_bytes())?;
    Ok(())
}

/// The path of a symbolic link.
pub fn read_link(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    at: Lookup<'_>,
) -> Result<Vec<u8>, Errno> {
    let (_, _, found) = Walk::new(volume, at).found(volume, disk, Links::Taken)?;
    Ok(volume.read_link(disk, found?.0)?)
}

/// Renames.
pub fn rename(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    from: Lookup<'_>,
    to: Lookup<'_>,
) -> Result<(), Errno> {
    let (from, old) = walk(volume, disk, from)?;
    let (to, new) = walk(volume, disk, to)?;
    Ok(volume.rename(disk, (from, &old), (to, &new))?)
}

/// The names of a directory.
pub fn entries(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
    at: Lookup<'_>,
) -> Result<Vec<Entry>, Errno> {
    let dir = if at.path.is_empty() {
        volume.root()
    } else {
        let (_, _, found) = Walk::new(volume, at).found(volume, disk, Links::Followed)?;
        found?.0
    };
    Ok(volume.entries(disk, dir)?)
}

/// What a process is told of a file.
pub fn file_stat(Stat { kind, size_bytes, links, .. }: Stat) -> FileStat {
    FileStat { is_directory: kind == Kind::Directory, is_link: kind == Kind::Link, size_bytes, links }
}

/// What a process is told of the names in a directory. Bytes of names that are no UTF-8 are replaced.
pub fn dir_entries(entries: &[Entry]) -> Vec<DirEntry> {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    entries.iter().map(|e| (shown(&e.name), e.kind == Kind::Directory)).collect()
}

// --------------------------------------------------------------------------------------------------- bytes

/// Fills a buffer with the bytes of a file: `piece` moves what is there, `hole` as many zeros.
///
/// # Errors
/// Those of the disk, of `piece` and of `hole`; the bytes before have moved.
pub fn read_bytes(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
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
pub fn write_bytes(
    volume: &mut Volume,
    disk: &mut Cached<'_, impl Strategy>,
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
        let (to, len, before, at) = (next.at, next.len_bytes, uio.done(), uio.offset());
        let how = disk.move_pieces(to, len, uio, piece);
        let moved = uio.done() - before;
        if next.is_new && moved < len {
            // The writer's memory ends: what another file had there is not this one's.
            if let Err(e) = disk.write(to + moved as u64, &vec![0; len - moved], When::Later) {
                volume.give_back(disk, ino, at)?;
                uio.take_back(before);
                result = Err(e.into());
                break;
            }
        }
        result = how.and_then(|()| disk.limit());
    }
    if uio.done() > 0 {
        volume.wrote(disk, ino, uio.offset())?;
    }
    result
}
