//! The plain model of the files: a tree of names, and bytes. What every call on it answers is what the modelled kernel
//! must answer.
//!
//! What was there before the first call is not recorded. So a recording is gone through twice. The first time names are
//! *found*: where a call tells that something was there, and nothing that was done before has made it, it was there
//! from the beginning, and is as long as what is read of it, or as a `stat` tells. The second time the tree begins with
//! all of that, and is what it is.
//!
//! Names are found at the ends of paths, so which of them are symbolic links has to be known before: what is found is
//! found again with the links that a first time has found, until there are no more.

use super::contents::contents;
use pageferry_kernel::Errno;
use std::collections::BTreeMap;

/// A path below the root, as its names.
pub(super) type Path = Vec<Vec<u8>>;

/// What a recorded call tells of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hint {
    Nothing,
    /// Its directories are there.
    Directories,
    /// It is there itself.
    There {
        is_directory: Option<bool>,
    },
}

pub(super) type Node = usize;

#[derive(Clone, Debug)]
enum Kind {
    File,
    /// A symbolic link: its path.
    Link(Vec<u8>),
    /// Names; those that are known to lead nowhere lead to nothing.
    Directory(BTreeMap<Vec<u8>, Option<Node>>),
}

#[derive(Clone, Debug)]
struct Inode {
    kind: Kind,
    /// The path that it had at the beginning.
    origin: Option<Path>,
    /// A path that it would have had, if it was there: a file that a call may have made.
    perhaps: Option<Path>,
    /// That it is a file was never told.
    is_guess: bool,
    size: u64,
    /// Its length at the beginning, and how much of that is looked at.
    first_size: u64,
    needed: u64,
    was_changed: bool,
    bytes: Vec<u8>,
}

/// What there is at the beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) directories: Vec<Path>,
    /// Symbolic links, and their paths.
    pub(super) links: BTreeMap<Path, Vec<u8>>,
    pub(super) files: Vec<Original>,
}

/// A file that is there at the beginning.
#[derive(Clone, Debug)]
pub(super) struct Original {
    pub(super) path: Path,
    pub(super) size: u64,
    /// Its first bytes; zeros, which are not looked at, are behind them.
    pub(super) bytes: Vec<u8>,
}

/// The tree of names.
pub(super) struct Names {
    nodes: Vec<Inode>,
    finds: bool,
    /// Symbolic links that there were at the beginning.
    links: BTreeMap<Path, Vec<u8>>,
}

/// The longest file that is believed in: a number that is larger is a slip of the recording.
pub(super) const MAX_BYTES: u64 = 1 << 29;

const ROOT: Node = 0;

/// Symbolic links that one path leads through, at most: as many as the modelled kernel follows.
const MAX_LINKS: usize = 32;

impl Names {
    /// A tree of which nothing is known but these symbolic links.
    pub(super) fn finding(links: &BTreeMap<Path, Vec<u8>>) -> Names {
        let mut names = Names { nodes: Vec::new(), finds: true, links: links.clone() };
        names.add(Kind::Directory(BTreeMap::new()), Some(Vec::new()));
        for (path, leads_to) in links {
            for len in 1..path.len() {
                let directory = path[..len].to_vec();
                if names.known(&directory).is_none() {
                    names.put(&directory, Kind::Directory(BTreeMap::new()));
                }
            }
            names.put(path, Kind::Link(leads_to.clone()));
        }
        names
    }

    /// What was there is found.
    pub(super) fn finds(&self) -> bool {
        self.finds
    }

    /// The symbolic links that there were, as far as is known.
    pub(super) fn links(&self) -> &BTreeMap<Path, Vec<u8>> {
        &self.links
    }

    /// The tree that an image has.
    pub(super) fn of(image: &Image) -> Names {
        let mut names = Names { nodes: Vec::new(), finds: false, links: image.links.clone() };
        names.add(Kind::Directory(BTreeMap::new()), Some(Vec::new()));
        for path in &image.directories {
            names.put(path, Kind::Directory(BTreeMap::new()));
        }
        for (path, leads_to) in &image.links {
            names.put(path, Kind::Link(leads_to.clone()));
        }
        for file in &image.files {
            if let Some(node) = names.put(&file.path, Kind::File) {
                let inode = &mut names.nodes[node];
                inode.size = file.size;
                inode.bytes = file.bytes.clone();
            }
        }
        names
    }

    fn put(&mut self, path: &Path, kind: Kind) -> Option<Node> {
        let (name, directories) = path.split_last()?;
        let mut at = ROOT;
        for name in directories {
            at = self.child(at, name).flatten()?;
        }
        // What was taken for a directory may have turned out to be a link.
        if !self.is_directory(at) {
            return None;
        }
        let node = self.add(kind, Some(path.clone()));
        self.enter(at, name, node);
        Some(node)
    }

    fn add(&mut self, kind: Kind, origin: Option<Path>) -> Node {
        self.nodes.push(Inode {
            kind,
            origin,
            perhaps: None,
            is_guess: false,
            size: 0,
            first_size: 0,
            needed: 0,
            was_changed: false,
            bytes: Vec::new(),
        });
        self.nodes.len() - 1
    }

    fn enter(&mut self, directory: Node, name: &[u8], node: Node) {
        if let Kind::Directory(names) = &mut self.nodes[directory].kind {
            names.insert(name.to_vec(), Some(node));
        }
    }

    fn leave(&mut self, directory: Node, name: &[u8]) {
        let finds = self.finds;
        if let Kind::Directory(names) = &mut self.nodes[directory].kind {
            if finds {
                names.insert(name.to_vec(), None);
            } else {
                names.remove(name);
            }
        }
    }

    /// What is known of a name in a directory.
    fn child(&self, directory: Node, name: &[u8]) -> Option<Option<Node>> {
        match &self.nodes[directory].kind {
            Kind::Directory(names) => names.get(name).copied(),
            Kind::File | Kind::Link(_) => None,
        }
    }

    /// What is known to be at a path; links are not followed.
    pub(super) fn known(&self, path: &[Vec<u8>]) -> Option<Node> {
        path.iter().try_fold(ROOT, |at, name| self.child(at, name).flatten())
    }

    /// A path that leads to a node, where there is one.
    pub(super) fn path_of(&self, node: Node) -> Option<Path> {
        let mut directories: Vec<(Node, Path)> = vec![(ROOT, Vec::new())];
        while let Some((directory, path)) = directories.pop() {
            let Kind::Directory(names) = &self.nodes[directory].kind else { continue };
            for (name, there) in names.iter().filter_map(|(name, there)| Some((name, (*there)?))) {
                let path: Path = path.iter().chain([name]).cloned().collect();
                if there == node {
                    return Some(path);
                }
                directories.push((there, path));
            }
        }
        None
    }

    /// The path of a symbolic link.
    pub(super) fn leads_to(&self, node: Node) -> Option<&[u8]> {
        match &self.nodes[node].kind {
            Kind::Link(path) => Some(path),
            Kind::File | Kind::Directory(_) => None,
        }
    }

    /// The path without symbolic links on the way, and without one at its end if that is followed.
    ///
    /// # Errors
    /// There are too many of them, or a path goes back on a way that is none.
    pub(super) fn resolve(&self, path: &Path, follows: bool) -> Result<Path, Errno> {
        let mut done: Path = Vec::new();
        let mut rest: Vec<Vec<u8>> = path.iter().rev().cloned().collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == b".." {
                if !self.finds {
                    let node = self.known(&done).ok_or(Errno::NoFile)?;
                    if !self.is_directory(node) {
                        return Err(Errno::NotDirectory);
                    }
                }
                done.pop();
                continue;
            }
            done.push(name);
            let leads_to = self.known(&done).and_then(|node| self.leads_to(node));
            let Some(leads_to) = leads_to.filter(|_| follows || !rest.is_empty()) else { continue };
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::Loop);
            }
            done.pop();
            if leads_to.starts_with(b"/") {
                done.clear();
            }
            let names = leads_to.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
            rest.extend(names.rev().map(<[u8]>::to_vec));
        }
        Ok(done)
    }

    /// A call tells that a symbolic link is there: its path, or only how long that is.
    pub(super) fn is_link(&mut self, node: Node, leads_to: Option<&[u8]>, len: u64) {
        let Some(origin) = self.nodes[node].origin.clone().filter(|origin| self.finds && !origin.is_empty())
        else {
            return;
        };
        match leads_to {
            Some(path) => drop(self.links.insert(origin, path.to_vec())),
            // Where it leads, there is nothing.
            None => drop(self.links.entry(origin).or_insert(vec![b'x'; len.clamp(1, 255) as usize])),
        }
    }

    /// What a name in a directory leads to. What a call tells of is found.
    fn step(&mut self, directory: Node, name: &[u8], is_directory: Option<Option<bool>>) -> Option<Node> {
        if let Some(known) = self.child(directory, name) {
            return known;
        }
        let told = is_directory.filter(|_| self.finds)?;
        // A directory that was made was empty.
        let mut path = self.nodes[directory].origin.clone()?;
        path.push(name.to_vec());
        let kind = if told == Some(true) { Kind::Directory(BTreeMap::new()) } else { Kind::File };
        let node = self.add(kind, Some(path));
        self.nodes[node].is_guess = told.is_none();
        self.enter(directory, name, node);
        Some(node)
    }

    /// The directory that a path's last name is in.
    fn directory_of<'a>(&mut self, path: &'a Path, hint: Hint) -> Result<(Node, &'a [u8]), Errno> {
        let Some((name, directories)) = path.split_last() else { return Ok((ROOT, b".")) };
        let told = (hint != Hint::Nothing).then_some(Some(true));
        let mut at = ROOT;
        for name in directories {
            at = self.step(at, name, told).ok_or(Errno::NoFile)?;
            if told.is_some() {
                self.is_directory_after_all(at);
            }
            if !self.is_directory(at) {
                return Err(Errno::NotDirectory);
            }
        }
        Ok((at, name))
    }

    /// What a path leads to.
    pub(super) fn find(&mut self, path: &Path, hint: Hint) -> Result<Node, Errno> {
        let (directory, name) = self.directory_of(path, hint)?;
        if name == b"." {
            return Ok(ROOT);
        }
        let told = match hint {
            Hint::There { is_directory } => Some(is_directory),
            _ => None,
        };
        let node = self.step(directory, name, told).ok_or(Errno::NoFile)?;
        if told == Some(Some(true)) {
            self.is_directory_after_all(node);
        }
        Ok(node)
    }

    /// A path leads nowhere, as a call tells.
    pub(super) fn is_missing(&mut self, path: &Path) {
        if self.finds
            && let Ok((directory, name)) = self.directory_of(path, Hint::Nothing)
            && self.child(directory, name).is_none()
            && name != b"."
        {
            self.leave(directory, name);
        }
    }

    /// What was taken for a file is a directory.
    pub(super) fn is_directory_after_all(&mut self, node: Node) {
        let inode = &mut self.nodes[node];
        if inode.is_guess && inode.origin.is_some() {
            inode.kind = Kind::Directory(BTreeMap::new());
            inode.is_guess = false;
        }
    }

    pub(super) fn is_directory(&self, node: Node) -> bool {
        matches!(self.nodes[node].kind, Kind::Directory(_))
    }

    /// How many names are in a directory.
    pub(super) fn count(&self, node: Node) -> u64 {
        match &self.nodes[node].kind {
            Kind::Directory(names) => names.values().flatten().count() as u64,
            Kind::File | Kind::Link(_) => 0,
        }
    }

    /// The path that a directory had at the beginning.
    pub(super) fn origin(&self, node: Node) -> Option<&Path> {
        self.nodes[node].origin.as_ref()
    }

    // ---------------------------------------------------------------------------------------------- changes of names

    /// Makes a file, which was `perhaps` there, and which a call tells of.
    pub(super) fn make_file(&mut self, path: &Path, perhaps: bool) -> Result<Node, Errno> {
        self.make(path, Kind::File, perhaps)
    }

    /// Makes a symbolic link, if a call that did so tells of it; else answers what it would be told.
    pub(super) fn make_link(&mut self, path: &Path, leads_to: &[u8], did: bool) -> Result<(), Errno> {
        if did {
            return self.make(path, Kind::Link(leads_to.to_vec()), false).map(drop);
        }
        self.is_free(path)
    }

    fn make(&mut self, path: &Path, kind: Kind, perhaps: bool) -> Result<Node, Errno> {
        let (directory, name) = self.directory_of(path, Hint::Directories)?;
        if name == b"." || self.child(directory, name).flatten().is_some() {
            return Err(Errno::Exists);
        }
        let was_unknown = self.child(directory, name).is_none();
        let node = self.add(kind, None);
        if perhaps && was_unknown && self.finds {
            let path = self.nodes[directory].origin.clone();
            self.nodes[node].perhaps = path.map(|mut path| {
                path.push(name.to_vec());
                path
            });
        }
        self.enter(directory, name, node);
        Ok(node)
    }

    pub(super) fn make_directory(&mut self, path: &Path, did: bool) -> Result<(), Errno> {
        if did {
            return self.make(path, Kind::Directory(BTreeMap::new()), false).map(drop);
        }
        self.is_free(path)
    }

    /// Something could be made at a path.
    ///
    /// # Errors
    /// Why it could not.
    pub(super) fn is_free(&mut self, path: &Path) -> Result<(), Errno> {
        let (directory, name) = self.directory_of(path, Hint::Nothing)?;
        let is_there = name == b"." || self.child(directory, name).flatten().is_some();
        if is_there { Err(Errno::Exists) } else { Ok(()) }
    }

    /// Takes a file's name away, if a call that did so tells of it; else answers what it would be told. So do those
    /// below.
    pub(super) fn unlink(&mut self, path: &Path, did: bool) -> Result<(), Errno> {
        let node = self.find(path, told(did, Some(false)))?;
        if self.is_directory(node) {
            return Err(Errno::IsDirectory);
        }
        let (directory, name) = self.directory_of(path, Hint::Nothing)?;
        if did {
            self.leave(directory, name);
        }
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, path: &Path, did: bool) -> Result<(), Errno> {
        let node = self.find(path, told(did, Some(true)))?;
        if !self.is_directory(node) {
            return Err(Errno::NotDirectory);
        }
        let (directory, name) = self.directory_of(path, Hint::Nothing)?;
        if name == b"." {
            return Err(Errno::Invalid);
        }
        if self.count(node) > 0 {
            return Err(Errno::NotEmpty);
        }
        if did {
            self.leave(directory, name);
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, did: bool) -> Result<(), Errno> {
        // Both ways are gone before anything else is looked at.
        let (old_directory, old) =
            self.directory_of(from, if did { Hint::Directories } else { Hint::Nothing })?;
        let (directory, new) = self.directory_of(to, if did { Hint::Directories } else { Hint::Nothing })?;
        if old == b"." || new == b"." {
            return Err(Errno::Busy);
        }
        let node = self.find(from, told(did, None))?;
        if self.is_directory(node) && to.len() > from.len() && to[..from.len()] == from[..] {
            return Err(Errno::Invalid);
        }
        if let Some(there) = self.child(directory, new).flatten() {
            if there == node {
                return Ok(());
            }
            if from.len() > to.len() && from[..to.len()] == to[..] {
                return Err(Errno::NotEmpty);
            }
            match (self.is_directory(node), self.is_directory(there)) {
                (false, true) => return Err(Errno::IsDirectory),
                (true, false) => return Err(Errno::NotDirectory),
                (true, true) if self.count(there) > 0 => return Err(Errno::NotEmpty),
                _ => {}
            }
        }
        if did {
            self.leave(old_directory, old);
            self.enter(directory, new, node);
        }
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path, did: bool) -> Result<(), Errno> {
        let node = self.find(from, told(did, Some(false)))?;
        let (directory, name) = self.directory_of(to, if did { Hint::Directories } else { Hint::Nothing })?;
        if name == b"." || self.child(directory, name).flatten().is_some() {
            return Err(Errno::Exists);
        }
        if self.is_directory(node) {
            return Err(Errno::IsDirectory);
        }
        if did {
            self.enter(directory, name, node);
        }
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------- bytes

    pub(super) fn size(&self, node: Node) -> u64 {
        self.nodes[node].size
    }

    /// A call tells that a file is so long, at least.
    pub(super) fn is_as_long_as(&mut self, node: Node, size: u64) {
        let inode = &mut self.nodes[node];
        if !self.finds || size > MAX_BYTES || size <= inode.size || !matches!(inode.kind, Kind::File) {
            return;
        }
        if inode.origin.is_none() {
            inode.origin = inode.perhaps.take();
        }
        if inode.origin.is_some() {
            inode.size = size;
            inode.first_size = size;
        }
    }

    /// A `stat` tells how long a file is; one that was written says nothing of what it was.
    pub(super) fn is_long(&mut self, node: Node, size: u64) {
        if !self.nodes[node].was_changed {
            self.is_as_long_as(node, size);
        }
    }

    /// The bytes up to here are looked at.
    pub(super) fn looked_at(&mut self, node: Node, end: u64) {
        let inode = &mut self.nodes[node];
        inode.needed = inode.needed.max(end.min(inode.first_size));
    }

    /// Bytes of a file; fewer at its end.
    pub(super) fn read(&self, node: Node, at: u64, len: u64) -> Vec<u8> {
        let inode = &self.nodes[node];
        let len = inode.size.saturating_sub(at).min(len) as usize;
        let mut bytes = vec![0; if self.finds { 0 } else { len }];
        if !self.finds {
            let from = (at as usize).min(inode.bytes.len());
            let there = (inode.bytes.len() - from).min(len);
            bytes[..there].copy_from_slice(&inode.bytes[from..from + there]);
        }
        bytes
    }

    /// How much more of a file is held when it is written up to here.
    pub(super) fn growth(&self, node: Node, end: u64) -> u64 {
        end.saturating_sub(self.nodes[node].bytes.len() as u64)
    }

    pub(super) fn write(&mut self, node: Node, at: u64, bytes: &[u8]) {
        let finds = self.finds;
        let inode = &mut self.nodes[node];
        let end = at + bytes.len() as u64;
        inode.was_changed = true;
        inode.size = inode.size.max(end);
        if !finds && !bytes.is_empty() {
            if inode.bytes.len() < end as usize {
                inode.bytes.resize(end as usize, 0);
            }
            inode.bytes[at as usize..end as usize].copy_from_slice(bytes);
        }
    }

    pub(super) fn truncate(&mut self, node: Node, size: u64) {
        let inode = &mut self.nodes[node];
        inode.was_changed = true;
        inode.perhaps = None;
        inode.size = size;
        inode.bytes.truncate(size as usize);
    }

    /// How much of what was there at the beginning is looked at.
    pub(super) fn needed_bytes(&self) -> u64 {
        self.nodes.iter().filter(|inode| inode.origin.is_some()).map(|inode| inode.needed).sum()
    }

    /// All that was there at the beginning, with bytes made up, or taken from `given`.
    pub(super) fn image(&self, given: &dyn Fn(&Path, usize) -> Option<Vec<u8>>) -> Image {
        let mut image = Image::default();
        let mut all: Vec<(&Path, &Inode)> =
            self.nodes.iter().filter_map(|inode| Some((inode.origin.as_ref()?, inode))).collect();
        // A directory is before what is in it.
        all.sort_by_key(|(path, _)| *path);
        all.dedup_by_key(|(path, _)| *path);
        for (path, inode) in all.into_iter().filter(|(path, _)| !path.is_empty()) {
            match &inode.kind {
                Kind::Directory(_) => image.directories.push(path.clone()),
                Kind::Link(leads_to) => drop(image.links.insert(path.clone(), leads_to.clone())),
                Kind::File => {
                    let needed = inode.needed as usize;
                    let mut bytes = contents(image.files.len() as u64, 0, needed);
                    if let Some(given) = given(path, needed) {
                        let len = given.len().min(needed);
                        bytes[..len].copy_from_slice(&given[..len]);
                    }
                    image.files.push(Original { path: path.clone(), size: inode.first_size, bytes });
                }
            }
        }
        image
    }
}

/// What a call tells of a path that it did something with, if it did.
fn told(did: bool, is_directory: Option<bool>) -> Hint {
    if did { Hint::There { is_directory } } else { Hint::Nothing }
}
