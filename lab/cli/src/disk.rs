//! `pageferry disk`: images of disks with the file system of [`pageferry_fs`] on them.
//!
//! An image is read into memory as a whole. One that was not unmounted is repaired there when it is looked into; only
//! `check --repair` changes the file.

use crate::args::{Disk, DiskCheck, DiskCommand, DiskGet, DiskList, DiskMake};
use crate::terminal::{print, tell};
use pageferry_fs::{Cached, Format, FsError, Ino, Kind, MemoryDevice, Volume, Weight, check, repair};
use pageferry_lab::output::PendingFile;
use pageferry_lab::{LabError, input, text};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Image = Cached<MemoryDevice>;

/// The largest image: what `make` makes at most.
const MAX_IMAGE_BYTES: u64 = 1 << 34;

/// Problems that are shown, at most.
const MAX_SHOWN: usize = 50;

pub(crate) fn disk(options: &Disk) -> Result<ExitCode, LabError> {
    match &options.command {
        DiskCommand::Make(options) => make(options),
        DiskCommand::Ls(options) => list(options),
        DiskCommand::Get(options) => get(options),
        DiskCommand::Check(options) => look(options),
    }
}

fn wrong(file: &Path, problem: impl ToString) -> LabError {
    // What is wrong may name what is in the image.
    LabError::Input { file: file.display().to_string(), problem: shown(problem.to_string().as_bytes()) }
}

/// What of a directory is to go into an image.
struct Found {
    name: Vec<u8>,
    what: What,
}

enum What {
    File(HostFile),
    Directory(Vec<Found>),
    /// The path of a symbolic link.
    Link(Vec<u8>),
}

/// A file of the host.
struct HostFile {
    bytes: Vec<u8>,
    /// It takes less room than it has bytes: where they are zero it has holes.
    has_holes: bool,
    /// What tells it from others, where it has more names than one.
    identity: Option<(u64, u64)>,
}

fn read_file(at: &Path) -> io::Result<HostFile> {
    const SECTOR_BYTES: u64 = 512;
    let meta = fs::metadata(at)?;
    let identity = (meta.nlink() > 1).then(|| (meta.dev(), meta.ino()));
    let has_holes = meta.blocks() * SECTOR_BYTES < meta.len();
    Ok(HostFile { bytes: fs::read(at)?, has_holes, identity })
}

/// Reads a directory, its names in order. What is none of these three is told of.
fn read_directory(at: &Path) -> Result<Vec<Found>, LabError> {
    let refuse = |e| LabError::io("read", at, e);
    let mut entries = fs::read_dir(at).map_err(refuse)?.collect::<Result<Vec<_>, _>>().map_err(refuse)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.path();
        let refuse = |e| LabError::io("read", &path, e);
        let kind = entry.file_type().map_err(refuse)?;
        let what = if kind.is_dir() {
            What::Directory(read_directory(&path)?)
        } else if kind.is_file() {
            What::File(read_file(&path).map_err(refuse)?)
        } else if kind.is_symlink() {
            What::Link(fs::read_link(&path).map_err(refuse)?.into_os_string().into_vec())
        } else {
            tell(&format!(
                "pageferry: {} is neither a file, a directory nor a symbolic link, and is left out",
                path.display()
            ));
            continue;
        };
        found.push(Found { name: entry.file_name().into_vec(), what });
    }
    Ok(found)
}

/// Bytes that files take on a disk, by and large.
fn needed(of: &[Found], format: Format) -> u64 {
    let (block_bytes, fragment_bytes) = (u64::from(format.block_bytes), u64::from(format.fragment_bytes));
    let one = |found: &Found| match &found.what {
        What::File(file) => (file.bytes.len() as u64).next_multiple_of(fragment_bytes) * 257 / 256 + 256,
        What::Directory(below) => block_bytes + needed(below, format),
        What::Link(path) => (path.len() as u64).next_multiple_of(fragment_bytes) + 256,
    };
    of.iter().map(|found| one(found) + found.name.len() as u64 * 2).sum()
}

/// Where files of the host with more names than one are in the image.
type Names = BTreeMap<(u64, u64), Ino>;

/// How many files, directories and symbolic links there are.
fn fill(
    volume: &mut Volume,
    image: &mut Image,
    names: &mut Names,
    dir: Ino,
    all: &[Found],
) -> Result<[usize; 3], FsError> {
    let mut counts = [0; 3];
    for found in all {
        match &found.what {
            What::File(file) => {
                counts[0] += 1;
                let known = file.identity.and_then(|identity| names.get(&identity));
                if let Some(ino) = known {
                    volume.link(image, *ino, dir, &found.name)?;
                    continue;
                }
                let ino = volume.make(image, dir, &found.name, Kind::File)?;
                write_file(volume, image, ino, file)?;
                names.extend(file.identity.map(|identity| (identity, ino)));
            }
            What::Directory(below) => {
                let ino = volume.make(image, dir, &found.name, Kind::Directory)?;
                let more = fill(volume, image, names, ino, below)?;
                counts = [counts[0] + more[0], counts[1] + more[1] + 1, counts[2] + more[2]];
            }
            What::Link(path) => {
                volume.make_link(image, dir, &found.name, path)?;
                counts[2] += 1;
            }
        }
    }
    Ok(counts)
}

/// Writes a file, but for its holes.
fn write_file(volume: &mut Volume, image: &mut Image, ino: Ino, file: &HostFile) -> Result<(), FsError> {
    let block_bytes = volume.geometry().block_bytes as usize;
    let mut at = 0;
    for block in file.bytes.chunks(block_bytes) {
        let is_hole = file.has_holes && block.iter().all(|&byte| byte == 0);
        let mut done = 0;
        while done < block.len() && !is_hole {
            done += volume.write(image, ino, (at + done) as u64, &block[done..])?;
        }
        at += block.len();
    }
    // A hole at the end is none that was written behind.
    if file.has_holes { volume.truncate(image, ino, at as u64) } else { Ok(()) }
}

fn make(options: &DiskMake) -> Result<ExitCode, LabError> {
    let bytes = |text: &str| text.parse().expect("one of those that may be");
    let block_bytes: u32 = bytes(&options.block_bytes);
    let fragment_bytes = options.fragment_bytes.as_deref().map_or(block_bytes, bytes);
    let format = Format { block_bytes, fragment_bytes };
    format.check().map_err(|e| wrong(&options.out, e))?;
    let found = read_directory(&options.directory)?;
    let min = needed(&found, format) * 5 / 4 + (1 << 20);
    let mut len_bytes = options.size_mb.map_or(min.next_multiple_of(1 << 20), |mb| u64::from(mb) << 20);
    loop {
        let mut image = Cached::new(MemoryDevice::new(len_bytes as usize));
        let filled = Volume::format(&mut image, format).and_then(|mut volume| {
            let root = volume.root();
            let counts = fill(&mut volume, &mut image, &mut Names::new(), root, &found)?;
            volume.unmount(&mut image)?;
            Ok(counts)
        });
        match filled {
            Ok([files, directories, links]) => {
                let bytes = image.into_device();
                let mut file = PendingFile::create(&options.out)?;
                file.write_all(bytes.bytes()).map_err(|e| LabError::io("write", &options.out, e))?;
                file.commit()?;
                let (out, len) = (options.out.display(), text::bytes(len_bytes));
                let links = if links == 0 { String::new() } else { format!(", {links} symbolic links") };
                print(&format!("{out}: {len}, {files} files and {directories} directories{links}\n"))?;
                return Ok(ExitCode::SUCCESS);
            }
            // Many small files: more inodes than a small disk has.
            Err(FsError::NoSpace | FsError::Refused(_))
                if options.size_mb.is_none() && len_bytes < 1 << 33 =>
            {
                len_bytes *= 2;
            }
            Err(e) => return Err(wrong(&options.directory, format!("in {}: {e}", text::bytes(len_bytes)))),
        }
    }
}

fn read_image(at: &Path) -> Result<Image, LabError> {
    let is_file = fs::metadata(at).map_err(|e| LabError::io("read", at, e))?.is_file();
    if !is_file && !at.is_dir() {
        return Err(wrong(at, "a device or a pipe, expected a file with an image"));
    }
    let bytes = input::bytes(at, MAX_IMAGE_BYTES)?;
    Ok(Cached::new(MemoryDevice::from_bytes(bytes)))
}

fn mounted(at: &Path) -> Result<(Image, Volume), LabError> {
    let mut image = read_image(at)?;
    let volume = Volume::mount(&mut image).map_err(|e| wrong(at, e))?;
    Ok((image, volume))
}

/// The inode at a path of an image.
fn find(volume: &mut Volume, image: &mut Image, path: &str) -> Result<Ino, FsError> {
    let mut at = volume.root();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = volume.lookup(image, at, name.as_bytes())?;
    }
    Ok(at)
}

/// A name as it is shown: without what a terminal would obey.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn list(options: &DiskList) -> Result<ExitCode, LabError> {
    let (mut image, mut volume) = mounted(&options.image)?;
    let path = options.path.as_deref().unwrap_or("");
    let refuse = |e: FsError| wrong(&options.image, format!("`{path}`: {e}"));
    let start = find(&mut volume, &mut image, path).map_err(refuse)?;
    let mut lines = String::new();
    // What is below a directory that was shown before is not shown again: a damaged image may lead in a circle.
    let mut seen = std::collections::BTreeSet::new();
    let mut next = vec![(start, path.trim_matches('/').to_owned())];
    while let Some((ino, at)) = next.pop() {
        let stat = volume.stat(&mut image, ino).map_err(refuse)?;
        match stat.kind {
            Kind::File => {
                lines.push_str(&format!("{:>12}  {}\n", stat.size_bytes, at));
                continue;
            }
            Kind::Link => {
                let path = volume.read_link(&mut image, ino).map_err(refuse)?;
                lines.push_str(&format!("{:>12}  {at} -> {}\n", "", shown(&path)));
                continue;
            }
            Kind::Directory => {}
        }
        if !at.is_empty() {
            lines.push_str(&format!("{:>12}  {at}/\n", ""));
        }
        if seen.insert(ino) {
            let entries = volume.entries(&mut image, ino).map_err(refuse)?;
            for entry in entries.into_iter().rev() {
                let name = shown(&entry.name);
                next.push((entry.ino, if at.is_empty() { name } else { format!("{at}/{name}") }));
            }
        }
    }
    print(&lines)?;
    Ok(ExitCode::SUCCESS)
}

fn get(options: &DiskGet) -> Result<ExitCode, LabError> {
    let (mut image, mut volume) = mounted(&options.image)?;
    let refuse = |e: FsError| wrong(&options.image, format!("`{}`: {e}", options.path));
    let ino = find(&mut volume, &mut image, &options.path).map_err(refuse)?;
    let stat = volume.stat(&mut image, ino).map_err(refuse)?;
    if stat.kind == Kind::Link {
        let path = volume.read_link(&mut image, ino).map_err(refuse)?;
        let problem =
            format!("`{}` is a symbolic link to {}; name what it leads to", options.path, shown(&path));
        return Err(wrong(&options.image, problem));
    }
    if stat.kind == Kind::File {
        let mut file = PendingFile::create(&options.out)?;
        copy_out(&mut volume, &mut image, ino, &mut file)
            .map_err(refuse)?
            .map_err(|e| LabError::io("write", &options.out, e))?;
        file.commit()?;
        return Ok(ExitCode::SUCCESS);
    }
    let taken = take(&mut volume, &mut image, &mut BTreeMap::new(), ino, &options.out, 0);
    taken.map_err(|e| match e {
        CopyError::Volume(e) => refuse(e),
        CopyError::Host(at, e) => LabError::io("write", at, e),
    })?;
    Ok(ExitCode::SUCCESS)
}

enum CopyError {
    Volume(FsError),
    Host(PathBuf, io::Error),
}

/// Directories within each other, at most.
const MAX_DEEP: usize = 1000;

/// Copies a directory out; `names` are of files that have more than one, and were copied.
fn take(
    volume: &mut Volume,
    image: &mut Image,
    names: &mut BTreeMap<Ino, PathBuf>,
    dir: Ino,
    to: &Path,
    depth: usize,
) -> Result<(), CopyError> {
    if depth > MAX_DEEP {
        let why = format!("directories lie more than {MAX_DEEP} deep");
        return Err(CopyError::Volume(FsError::Damaged(why)));
    }
    fs::create_dir(to).map_err(|e| CopyError::Host(to.to_owned(), e))?;
    let mut links = Vec::new();
    for entry in volume.entries(image, dir).map_err(CopyError::Volume)? {
        // A name of an image that was made elsewhere must not lead out of the folder.
        if entry.name.contains(&b'/') || entry.name.contains(&0) {
            let why = format!("`{}` is no name", shown(&entry.name));
            return Err(CopyError::Volume(FsError::Damaged(why)));
        }
        let at = to.join(std::ffi::OsStr::from_bytes(&entry.name));
        match entry.kind {
            Kind::Directory => take(volume, image, names, entry.ino, &at, depth + 1)?,
            Kind::File => {
                let host = |e| CopyError::Host(at.clone(), e);
                if let Some(first) = names.get(&entry.ino) {
                    fs::hard_link(first, &at).map_err(host)?;
                    continue;
                }
                if volume.stat(image, entry.ino).map_err(CopyError::Volume)?.links > 1 {
                    names.insert(entry.ino, at.clone());
                }
                let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&at).map_err(host)?;
                copy_out(volume, image, entry.ino, &mut file).map_err(CopyError::Volume)?.map_err(host)?;
            }
            Kind::Link => links.push((at, volume.read_link(image, entry.ino).map_err(CopyError::Volume)?)),
        }
    }
    // Nothing is written any more where one leads to.
    for (at, path) in links {
        let made = std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&path), &at);
        made.map_err(|e| CopyError::Host(at, e))?;
    }
    Ok(())
}

fn copy_out(
    volume: &mut Volume,
    image: &mut Image,
    ino: Ino,
    to: &mut dyn io::Write,
) -> Result<io::Result<()>, FsError> {
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let len = volume.read(image, ino, at, &mut piece)?;
        if len == 0 {
            return Ok(Ok(()));
        }
        if let Err(e) = to.write_all(&piece[..len]) {
            return Ok(Err(e));
        }
        at += len as u64;
    }
}

fn look(options: &DiskCheck) -> Result<ExitCode, LabError> {
    let mut image = read_image(&options.image)?;
    let refuse = |e: FsError| wrong(&options.image, e);
    let report = if options.repair {
        let report = repair(&mut image).map_err(refuse)?;
        let mut file = PendingFile::create(&options.image)?;
        let device = image.into_device();
        file.write_all(device.bytes()).map_err(|e| LabError::io("write", &options.image, e))?;
        file.commit()?;
        report
    } else {
        check(&mut image).map_err(refuse)?
    };
    let mut lines = String::new();
    for problem in report.problems.iter().take(MAX_SHOWN) {
        let weight = match problem.weight {
            Weight::Damage => "damage",
            Weight::Leftover => "leftover",
        };
        lines.push_str(&format!("{weight:>8}  {}\n", shown(problem.text.as_bytes())));
    }
    if report.problems.len() > MAX_SHOWN {
        lines.push_str(&format!("          and {} more\n", report.problems.len() - MAX_SHOWN));
    }
    let image = options.image.display();
    let (files, directories, fragments) = (report.files, report.directories, report.fragments);
    let links = if report.links == 0 { String::new() } else { format!("{} symbolic links, ", report.links) };
    let unmounted = if report.unmounted { "" } else { "; it was not unmounted" };
    let found = match report.problems.len() {
        0 => "whole".to_owned(),
        count if options.repair => format!("whole again, {count} problems repaired"),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    lines.push_str(&format!(
        "{image}: {found}; {files} files, {directories} directories, {links}{fragments} fragments{unmounted}\n"
    ));
    print(&lines)?;
    Ok(if report.is_clean() || options.repair { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
