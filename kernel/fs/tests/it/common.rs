//! Random programs over files: what they do, on a volume, and what is known of the outcome.

use pageferry_fs::*;
use std::collections::BTreeMap;

/// A small generator of random numbers.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// One call.
#[derive(Clone, Debug)]
pub enum Call {
    Open(String, bool),
    Close(usize),
    Write(usize, u64, Vec<u8>),
    Read(usize, u64, usize),
    Truncate(usize, u64),
    Fsync(usize),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Rename(String, String),
    Link(String, String),
    /// The link's name, and its path: below [`NOWHERE`].
    Symlink(String, String),
    ReadLink(String),
    List(String),
    Stat(String),
}

/// A name that nothing has: whoever follows a symbolic link of a program finds nothing.
pub const NOWHERE: &str = "nowhere";

/// Open files of a program.
pub const SLOTS: usize = 4;

fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    let names: Vec<&str> =
        (0..depth).map(|_| ["a", "b", "c", "long-name"][random.below(4) as usize]).collect();
    names.join("/")
}

/// Where in a file: mostly within the direct blocks, at times far out.
fn offset(random: &mut Random) -> u64 {
    match random.below(12) {
        0 => random.below(300_000),
        1..=3 => random.below(40_000),
        _ => random.below(7_000),
    }
}

pub fn call(random: &mut Random) -> Call {
    let slot = random.below(SLOTS as u64) as usize;
    match random.below(100) {
        0..=17 => Call::Open(path(random), random.below(4) != 0),
        18..=25 => Call::Close(slot),
        26..=47 => {
            let len = [1, 100, 511, 512, 513, 3000][random.below(6) as usize];
            let first = random.below(250) as u8 + 1;
            let bytes = (0..len).map(|i| first.wrapping_add((i / 7) as u8).max(1)).collect();
            Call::Write(slot, offset(random), bytes)
        }
        48..=57 => Call::Read(slot, offset(random), 4000),
        58..=63 => Call::Truncate(slot, offset(random)),
        64..=67 => Call::Fsync(slot),
        68..=74 => Call::Unlink(path(random)),
        75..=80 => Call::Mkdir(path(random)),
        81..=83 => Call::Rmdir(path(random)),
        84..=89 => Call::Rename(path(random), path(random)),
        90..=91 => {
            // Some are longer than a block.
            let far = "up/".repeat(if random.below(4) == 0 { random.below(330) as usize } else { 0 });
            Call::Symlink(path(random), format!("{NOWHERE}/{far}{}", random.below(1000)))
        }
        92..=93 => Call::Link(path(random), path(random)),
        94..=95 => Call::List(path(random)),
        96 => Call::ReadLink(path(random)),
        _ => Call::Stat(path(random)),
    }
}

/// What a call answers: bytes and numbers, or an error's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Bytes(Vec<u8>),
    Names(Vec<(Vec<u8>, bool)>),
    Stat(bool, u64, u64),
    No(&'static str),
}

pub fn errno(error: &FsError) -> &'static str {
    match error {
        FsError::NotFound => "ENOENT",
        FsError::Exists => "EEXIST",
        FsError::NotDirectory => "ENOTDIR",
        FsError::IsDirectory => "EISDIR",
        FsError::NotEmpty => "ENOTEMPTY",
        FsError::Invalid => "EINVAL",
        FsError::Busy => "EBUSY",
        FsError::NameTooLong => "ENAMETOOLONG",
        FsError::NoSpace => "ENOSPC",
        FsError::TooLarge => "EFBIG",
        FsError::TooManyLinks => "EMLINK",
        FsError::Io(_) => "EIO",
        FsError::Refused(_) | FsError::Damaged(_) => "damaged",
    }
}

/// A volume that runs a program.
pub struct Side {
    pub store: Cached<MemoryDevice>,
    pub volume: Volume,
    pub open: [Option<Ino>; SLOTS],
    /// Where every file has bytes of its own: each one's, and the last that was given to one.
    pub own_bytes: Option<(BTreeMap<Ino, u8>, u8)>,
}

/// A volume in whole blocks of so many bytes.
pub fn blocks_of(block_bytes: u32) -> Format {
    Format::of_blocks(block_bytes)
}

/// A volume in fragments of so many bytes.
pub fn fragments_of(block_bytes: u32, fragment_bytes: u32) -> Format {
    Format { block_bytes, fragment_bytes }
}

/// What the disk has before it is a volume.
pub const OLD_BYTE: u8 = 0xa5;

impl Side {
    pub fn new(len_bytes: usize, format: Format, max_dirty: usize, defect: Option<FsDefect>) -> Side {
        let mut store = Cached::with_limit(MemoryDevice::new(len_bytes), max_dirty);
        // Blocks that were used before.
        for sector in 0..len_bytes as u64 / 512 {
            store.write(sector * 512, &[OLD_BYTE; 512], When::Later).unwrap();
        }
        let mut volume = Volume::format(&mut store, format).unwrap();
        defect.into_iter().for_each(|defect| volume.plant(defect));
        Side { store, volume, open: [None; SLOTS], own_bytes: None }
    }

    /// From now on with soft updates.
    pub fn use_soft_updates(&mut self, defect: Option<FsDefect>) {
        self.volume.use_soft_updates(&mut self.store).unwrap();
        let soft = self.store.soft_updates().expect("this store can");
        defect.into_iter().for_each(|defect| soft.plant(defect));
        self.own_bytes = Some((BTreeMap::new(), 0));
    }

    /// The directory of a path, and its last name.
    fn walk<'a>(&mut self, path: &'a str) -> Result<(Ino, &'a [u8]), FsError> {
        let (mut dir, mut rest) = (self.volume.root(), path);
        while let Some((first, others)) = rest.split_once('/') {
            dir = self.volume.lookup(&mut self.store, dir, first.as_bytes())?;
            rest = others;
            match self.volume.stat(&mut self.store, dir)?.kind {
                Kind::Directory => {}
                Kind::File => return Err(FsError::NotDirectory),
                Kind::Link => return Err(FsError::NotFound),
            }
        }
        Ok((dir, rest.as_bytes()))
    }

    pub fn find(&mut self, path: &str) -> Result<Ino, FsError> {
        let (dir, name) = self.walk(path)?;
        self.volume.lookup(&mut self.store, dir, name)
    }

    pub fn run(&mut self, call: &Call) -> Answer {
        let answer = self.try_run(call);
        self.store.check_counts().unwrap_or_else(|e| panic!("{call:?}: {e}"));
        answer.unwrap_or_else(|e| Answer::No(errno(&e)))
    }

    fn try_run(&mut self, call: &Call) -> Result<Answer, FsError> {
        let slot = |side: &Side, slot: usize| side.open[slot].ok_or(FsError::Invalid);
        match call {
            Call::Open(path, create) => {
                let Some(free) = self.open.iter().position(Option::is_none) else { return Ok(Answer::Done) };
                let (dir, name) = self.walk(path)?;
                let ino = match self.volume.lookup(&mut self.store, dir, name) {
                    Err(FsError::NotFound) if *create => {
                        let made = self.volume.make(&mut self.store, dir, name, Kind::File)?;
                        if let Some((bytes, last)) = &mut self.own_bytes {
                            *last = *last % 100 + 1;
                            bytes.insert(made, *last);
                        }
                        made
                    }
                    found => found?,
                };
                match self.volume.stat(&mut self.store, ino)?.kind {
                    Kind::File => {}
                    Kind::Directory => return Err(FsError::IsDirectory),
                    Kind::Link => return Err(FsError::NotFound),
                }
                self.volume.open(&mut self.store, ino)?;
                self.open[free] = Some(ino);
            }
            Call::Close(i) => {
                let ino = slot(self, *i)?;
                self.open[*i] = None;
                self.volume.close(&mut self.store, ino)?;
            }
            Call::Write(i, at, bytes) => {
                let ino = slot(self, *i)?;
                let own = self.own_bytes.as_ref().map(|(of, _)| vec![of[&ino]; bytes.len()]);
                let bytes = own.as_ref().unwrap_or(bytes);
                let mut done = 0;
                while done < bytes.len() {
                    done += self.volume.write(&mut self.store, ino, at + done as u64, &bytes[done..])?;
                }
            }
            Call::Read(i, at, len) => {
                let ino = slot(self, *i)?;
                let mut bytes = vec![0; *len];
                let got = self.volume.read(&mut self.store, ino, *at, &mut bytes)?;
                bytes.truncate(got);
                return Ok(Answer::Bytes(bytes));
            }
            Call::Truncate(i, size) => {
                let ino = slot(self, *i)?;
                self.volume.truncate(&mut self.store, ino, *size)?;
            }
            Call::Fsync(i) => {
                let ino = slot(self, *i)?;
                self.volume.fsync(&mut self.store, ino)?;
            }
            Call::Unlink(path) => {
                let (dir, name) = self.walk(path)?;
                self.volume.unlink(&mut self.store, dir, name)?;
            }
            Call::Mkdir(path) => {
                let (dir, name) = self.walk(path)?;
                self.volume.make(&mut self.store, dir, name, Kind::Directory)?;
            }
            Call::Rmdir(path) => {
                let (dir, name) = self.walk(path)?;
                self.volume.rmdir(&mut self.store, dir, name)?;
            }
            Call::Rename(from, to) => {
                let (from_dir, from) = self.walk(from)?;
                let (to_dir, to) = self.walk(to)?;
                self.volume.rename(&mut self.store, (from_dir, from), (to_dir, to))?;
            }
            Call::Link(from, to) => {
                let ino = self.find(from)?;
                let (dir, name) = self.walk(to)?;
                self.volume.link(&mut self.store, ino, dir, name)?;
            }
            Call::Symlink(name, path) => {
                let (dir, name) = self.walk(name)?;
                self.volume.make_link(&mut self.store, dir, name, path.as_bytes())?;
            }
            Call::ReadLink(path) => {
                let ino = self.find(path)?;
                return Ok(Answer::Bytes(self.volume.read_link(&mut self.store, ino)?));
            }
            Call::List(path) => {
                let ino = self.find(path)?;
                if self.volume.stat(&mut self.store, ino)?.kind == Kind::Link {
                    return Err(FsError::NotFound);
                }
                let entries = self.volume.entries(&mut self.store, ino)?;
                let names = entries.into_iter().map(|e| (e.name, e.kind == Kind::Directory)).collect();
                return Ok(Answer::Names(names));
            }
            Call::Stat(path) => {
                let ino = self.find(path)?;
                let stat = self.volume.stat(&mut self.store, ino)?;
                let is_dir = stat.kind == Kind::Directory;
                let (size, links) = if is_dir { (0, 0) } else { (stat.size_bytes, u64::from(stat.links)) };
                return Ok(Answer::Stat(is_dir, size, links));
            }
        }
        Ok(Answer::Done)
    }

    /// The bytes of a file, if there is one.
    pub fn contents(&mut self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let size = self.volume.stat(&mut self.store, ino)?.size_bytes;
        let mut bytes = vec![0; size as usize];
        let got = self.volume.read(&mut self.store, ino, 0, &mut bytes)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// A symbolic link whose path is none that a program makes, if there is one.
    pub fn odd_link(&mut self) -> Option<String> {
        let mut next = vec![self.volume.root()];
        while let Some(dir) = next.pop() {
            for entry in self.volume.entries(&mut self.store, dir).unwrap_or_default() {
                match entry.kind {
                    Kind::File => {}
                    Kind::Directory => next.push(entry.ino),
                    Kind::Link => {
                        let path = self.volume.read_link(&mut self.store, entry.ino).unwrap_or_default();
                        if !path.starts_with(NOWHERE.as_bytes()) || !path.is_ascii() {
                            return Some(String::from_utf8_lossy(&entry.name).into_owned());
                        }
                    }
                }
            }
        }
        None
    }

    /// Every file.
    pub fn files(&mut self) -> Vec<(String, Ino)> {
        let (mut found, mut next) = (Vec::new(), vec![(self.volume.root(), String::new())]);
        while let Some((dir, prefix)) = next.pop() {
            for entry in self.volume.entries(&mut self.store, dir).unwrap_or_default() {
                let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
                match entry.kind {
                    Kind::File => found.push((path, entry.ino)),
                    Kind::Directory => next.push((entry.ino, format!("{path}/"))),
                    Kind::Link => {}
                }
            }
        }
        found
    }

    /// A file that has bytes of another, or what the disk had before, if there is one.
    pub fn strange_bytes(&mut self) -> Option<String> {
        self.files().into_iter().find_map(|(path, ino)| {
            let bytes = self.contents(ino).ok()?;
            let mut own = bytes.iter().filter(|byte| **byte != 0);
            let first = *own.next()?;
            (first == OLD_BYTE || own.any(|byte| *byte != first)).then_some(path)
        })
    }

    /// All paths of an inode.
    pub fn paths_of(&mut self, ino: Ino) -> Vec<String> {
        let (mut found, mut next) = (Vec::new(), vec![(self.volume.root(), String::new())]);
        while let Some((dir, prefix)) = next.pop() {
            for entry in self.volume.entries(&mut self.store, dir).unwrap_or_default() {
                let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
                if entry.ino == ino {
                    found.push(path.clone());
                }
                if entry.kind == Kind::Directory {
                    next.push((entry.ino, format!("{path}/")));
                }
            }
        }
        found
    }

    /// Unmounts, and looks whether the volume is whole.
    pub fn end(self) -> Result<(), String> {
        let Side { mut store, volume, .. } = self;
        volume.unmount(&mut store).map_err(|e| e.to_string())?;
        let mut again = Cached::new(store.into_device());
        let report = check(&mut again).map_err(|e| e.to_string())?;
        if report.is_clean() && report.unmounted { Ok(()) } else { Err(format!("{:?}", report.problems)) }
    }
}
