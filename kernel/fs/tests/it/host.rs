//! Random programs beside the host's own file system: names, lengths, bytes, errors.

use crate::common::*;
use pageferry_fs::*;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use tempfile::TempDir;

struct Host {
    root: TempDir,
    open: [Option<File>; SLOTS],
}

impl Host {
    fn new() -> Host {
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Host { root, open: Default::default() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn run(&mut self, call: &Call) -> Answer {
        self.try_run(call).unwrap_or_else(|e| {
            Answer::No(match e.raw_os_error() {
                Some(2) => "ENOENT",
                Some(17) => "EEXIST",
                Some(20) => "ENOTDIR",
                // A link to a directory: EPERM.
                Some(21 | 1) => "EISDIR",
                Some(39) => "ENOTEMPTY",
                Some(22) => "EINVAL",
                other => panic!("{call:?}: {e} {other:?}"),
            })
        })
    }

    fn try_run(&mut self, call: &Call) -> io::Result<Answer> {
        let invalid = || io::Error::from_raw_os_error(22);
        match call {
            Call::Open(path, create) => {
                let Some(free) = self.open.iter().position(Option::is_none) else { return Ok(Answer::Done) };
                let file = OpenOptions::new().read(true).write(true).create(*create).open(self.at(path))?;
                self.open[free] = Some(file);
            }
            Call::Close(i) => drop(self.open[*i].take().ok_or_else(invalid)?),
            Call::Write(i, at, bytes) => {
                self.open[*i].as_ref().ok_or_else(invalid)?.write_all_at(bytes, *at)?
            }
            Call::Read(i, at, len) => {
                let mut bytes = vec![0; *len];
                let got = self.open[*i].as_ref().ok_or_else(invalid)?.read_at(&mut bytes, *at)?;
                bytes.truncate(got);
                return Ok(Answer::Bytes(bytes));
            }
            Call::Truncate(i, size) => self.open[*i].as_ref().ok_or_else(invalid)?.set_len(*size)?,
            Call::Fsync(i) => drop(self.open[*i].as_ref().ok_or_else(invalid)?),
            Call::Unlink(path) => fs::remove_file(self.at(path))?,
            Call::Mkdir(path) => fs::create_dir(self.at(path))?,
            Call::Rmdir(path) => fs::remove_dir(self.at(path))?,
            Call::Rename(from, to) => fs::rename(self.at(from), self.at(to))?,
            Call::Link(from, to) => fs::hard_link(self.at(from), self.at(to))?,
            Call::Symlink(name, path) => std::os::unix::fs::symlink(path, self.at(name))?,
            Call::ReadLink(path) => {
                return Ok(Answer::Bytes(
                    fs::read_link(self.at(path))?.into_os_string().into_encoded_bytes(),
                ));
            }
            Call::List(path) => {
                let mut names = Vec::new();
                for entry in fs::read_dir(self.at(path))? {
                    let entry = entry?;
                    names.push((entry.file_name().into_encoded_bytes(), entry.file_type()?.is_dir()));
                }
                names.sort();
                return Ok(Answer::Names(names));
            }
            Call::Stat(path) => {
                let of = fs::symlink_metadata(self.at(path))?;
                let (size, links) = if of.is_dir() { (0, 0) } else { (of.len(), of.nlink()) };
                return Ok(Answer::Stat(of.is_dir(), size, links));
            }
        }
        Ok(Answer::Done)
    }
}

/// A program of so many steps, on both.
pub fn beside_the_host(seed: u64, steps: usize, defect: Option<FsDefect>) -> Result<(), String> {
    let mut random = Random::new(seed);
    let format = match random.below(8) {
        n @ 0..4 => blocks_of(512 << n),
        4 => fragments_of(4096, 512),
        5 => fragments_of(4096, 1024),
        6 => fragments_of(8192, 4096),
        _ => fragments_of(16384, 2048),
    };
    let mut side = Side::new(4 << 20, format, 64, defect);
    let mut host = Host::new();
    for step in 0..steps {
        let call = call(&mut random);
        // What the host's directory could do and this volume has no room for, it is not asked for.
        if side.volume.free_fragments() * format.fragment_bytes < 1 << 19 {
            break;
        }
        let (ours, theirs) = (side.run(&call), host.run(&call));
        if ours != theirs {
            let shown = format!("{call:?}").chars().take(120).collect::<String>();
            return Err(format!("seed {seed}, step {step}, {shown}: {ours:?}, the host {theirs:?}"));
        }
    }
    side.end().map_err(|e| format!("seed {seed}: {e}"))
}

#[test]
fn random_programs_see_what_they_see_on_the_host() {
    let seeds = std::env::var("PAGEFERRY_FS_SEEDS").map_or(60, |seeds| seeds.parse().expect("a number"));
    for seed in 1..=seeds {
        beside_the_host(seed, 2500, None).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn names_are_as_long_as_on_the_host_and_no_longer() {
    let mut side = Side::new(1 << 20, blocks_of(1024), 64, None);
    let root = side.volume.root();
    let (longest, longer) = (vec![b'x'; 255], vec![b'x'; 256]);
    side.volume.make(&mut side.store, root, &longest, Kind::File).unwrap();
    side.volume.lookup(&mut side.store, root, &longest).unwrap();
    let refused = side.volume.make(&mut side.store, root, &longer, Kind::File);
    assert_eq!(refused, Err(FsError::NameTooLong));
    assert_eq!(side.volume.lookup(&mut side.store, root, &longer), Err(FsError::NameTooLong));
    for bad in [&b""[..], b"a/b", b"a\0b"] {
        assert_eq!(side.volume.make(&mut side.store, root, bad, Kind::File), Err(FsError::Invalid));
    }
    for dots in [&b"."[..], b".."] {
        assert_eq!(side.volume.make(&mut side.store, root, dots, Kind::File), Err(FsError::Exists));
    }
    side.end().unwrap();
}
