//! Doing what problems ask for, until there are none.
//!
//! A pass does all it can, and the next one looks again: what is cleared may leave others without names. What has no
//! name and holds something gets one in `lost+found`.

use super::report::{Fix, Report};
use super::scan::Scan;
use crate::Ino;
use crate::chunk::{empty_chunk, first_chunk, slots};
use crate::error::FsError;
use crate::inode::{Inode, Kind};
use crate::layout::{Format, Geometry, MAX_PER_BLOCK, POINTERS, ROOT, Run, VERSION, header_words};
use crate::maps::Maps;
use crate::store::{SECTOR_BYTES as CHUNK, Store, When};
use crate::volume::Volume;
use alloc::format;

const MAX_PASSES: usize = 32;
const LOST: &[u8] = b"lost+found";

/// Makes a volume whole that is not mounted. Answers what was wrong with it.
///
/// # Errors
/// [`FsError::Refused`]: it is none, or of another version, or does not get whole. The disk.
pub fn repair(store: &mut dyn Store) -> Result<Report, FsError> {
    let (geometry, unmounted) = match Geometry::read(store, 0) {
        Ok(read) => read,
        Err(e) if is_of_another_version(&e) => return Err(e),
        Err(e) => (from_a_copy(store).ok_or(e)?, false),
    };
    geometry.write(store, 0, false)?;
    let mut first: Option<Report> = None;
    for _ in 0..MAX_PASSES {
        let mut scan = Scan::new(geometry);
        scan.run(store)?;
        let report = scan.report.clone();
        if report.is_clean() {
            store.sync()?;
            geometry.write(store, 0, true)?;
            // What was wrong, and what is there now.
            let problems = first.unwrap_or_default().problems;
            return Ok(Report { problems, unmounted, ..report });
        }
        pass(store, scan)?;
        first.get_or_insert(report);
    }
    Err(FsError::Refused(format!("it was not whole after {MAX_PASSES} repairs")))
}

fn pass(store: &mut dyn Store, scan: Scan) -> Result<(), FsError> {
    let Scan { geometry, report, maps, .. } = scan;
    let only_names = report.problems.iter().all(|p| matches!(p.fix, Fix::Attach(..) | Fix::Maps));
    if only_names {
        maps.store(store)?;
        return attach_all(store, geometry, &report);
    }
    for problem in &report.problems {
        match problem.fix {
            Fix::Superblock(group) => geometry.write(store, group, group != 0)?,
            Fix::Header(group) => {
                store.write(geometry.header_at(group), &header_words(group), When::Later)?;
            }
            Fix::ClearInode(ino) => Inode::FREE.write(&geometry, store, ino, When::Later)?,
            Fix::ClearPointer(at) => store.write(at, &[0; 4], When::Later)?,
            Fix::SetFragments(ino, count) => {
                change(&geometry, store, ino, |inode| inode.fragments = count)?;
            }
            Fix::SetLinks(ino, links) => change(&geometry, store, ino, |inode| inode.links = links)?,
            Fix::RemoveEntry(at, slot) => remove(store, at, slot)?,
            Fix::SetKind(at, slot, kind) => {
                store.write(at + slot as u64 + 6, &[kind.number()], When::Later)?;
            }
            Fix::SetParent(at, slot, ino) => {
                store.write(at + slot as u64, &ino.0.to_le_bytes(), When::Later)?;
            }
            Fix::ResetChunk(0, dir, _) => new_root(store, geometry, &maps, dir)?,
            Fix::ResetChunk(at, dir, is_first) => {
                let chunk = if is_first { first_chunk(dir, Ino(ROOT)) } else { empty_chunk() };
                store.write(at, &chunk, When::Later)?;
            }
            // When all else is whole.
            Fix::Attach(..) | Fix::Maps => {}
        }
    }
    Ok(())
}

fn change(
    geometry: &Geometry,
    store: &mut dyn Store,
    ino: Ino,
    how: impl FnOnce(&mut Inode),
) -> Result<(), FsError> {
    let mut inode = Inode::read(geometry, store, ino)?;
    how(&mut inode);
    inode.write(geometry, store, ino, When::Later)
}

/// Takes an entry out of its chunk; the chunk may have changed in this pass.
fn remove(store: &mut dyn Store, at: u64, slot_at: usize) -> Result<(), FsError> {
    let mut chunk = [0; CHUNK];
    store.read(at, &mut chunk)?;
    if slots(&chunk).is_ok_and(|slots| slots.iter().any(|slot| slot.at == slot_at)) {
        store.write(at + slot_at as u64, &[0; 4], When::Later)?;
    }
    Ok(())
}

/// An empty root directory, in a block that is free.
fn new_root(store: &mut dyn Store, geometry: Geometry, maps: &Maps, root: Ino) -> Result<(), FsError> {
    let free = |block: &Run| geometry.is_data(*block) && maps.is_free(*block);
    let mut blocks = (0..geometry.fragments).step_by(geometry.per_block() as usize);
    let block =
        blocks.find_map(|first| Some(geometry.block_at(first)).filter(free)).ok_or(FsError::NoSpace)?;
    let mut bytes = empty_chunk().repeat(geometry.block_bytes as usize / CHUNK);
    bytes[..CHUNK].copy_from_slice(&first_chunk(root, root));
    store.write(geometry.byte_of(block.first), &bytes, When::Later)?;
    let mut pointers = [0; POINTERS];
    pointers[0] = block.first;
    let size = u64::from(geometry.block_bytes);
    let fragments = block.count;
    let inode = Inode { kind: Some(Kind::Directory), links: 2, fragments, size, pointers };
    inode.write(&geometry, store, root, When::Later)
}

/// Gives names in `lost+found` to what has none. What finds no room there is ended.
fn attach_all(store: &mut dyn Store, geometry: Geometry, report: &Report) -> Result<(), FsError> {
    let mut volume = Volume::new(geometry, Maps::load(geometry, store)?);
    let root = volume.root();
    for problem in &report.problems {
        let Fix::Attach(ino, kind) = problem.fix else { continue };
        let lost = match volume.find(store, root, LOST) {
            Ok((lost, Kind::Directory)) => Ok(lost),
            Ok(_) => volume.make(store, root, b"lost+found-", Kind::Directory),
            Err(FsError::NotFound) => volume.make(store, root, LOST, Kind::Directory),
            Err(e) => Err(e),
        };
        let name = format!("#{}", ino.0);
        let named = lost.and_then(|lost| volume.enter(store, lost, name.as_bytes(), ino, kind));
        match named {
            Ok(()) => {}
            Err(FsError::Io(e)) => return Err(e.into()),
            Err(_) => Inode::FREE.write(&geometry, store, ino, When::Later)?,
        }
    }
    volume.sync(store)
}

/// The geometry that a copy of the superblock tells, where the first one cannot be read.
fn from_a_copy(store: &mut dyn Store) -> Option<Geometry> {
    let powers = |from: u32, to: u32| {
        core::iter::successors(Some(from), |n| Some(2 * n)).take_while(move |n| *n <= to)
    };
    let formats = powers(CHUNK as u32, 65536).flat_map(|block_bytes| {
        let fragments = powers((block_bytes / MAX_PER_BLOCK).max(CHUNK as u32), block_bytes);
        fragments.map(move |fragment_bytes| Format { block_bytes, fragment_bytes })
    });
    formats.into_iter().find_map(|format| {
        let likely = Geometry::new(format, u64::MAX >> 32).ok()?;
        let second = u64::from(likely.group_fragments) * u64::from(format.fragment_bytes);
        Geometry::read(store, second).ok().map(|(geometry, _)| geometry)
    })
}

/// Why a volume whose superblock was refused is not to be repaired from a copy.
fn is_of_another_version(error: &FsError) -> bool {
    let this = format!("version {VERSION},");
    matches!(error, FsError::Refused(why) if why.starts_with("version") && !why.starts_with(&this))
}
