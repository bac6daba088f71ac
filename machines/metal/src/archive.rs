//! The programs that a loader brings: a tar archive as a module. It is looked through before the kernel is booted, and
//! kept for good.
//!
//! An archive that is cut off or damaged, one without programs, and one that is too large is an error that says so.

use alloc::vec::Vec;
use core::fmt;
use tar_no_std::{CorruptDataError, TarArchiveRef};

/// The longest archive.
const MAX_BYTES: usize = 8 << 20;

/// Why a module is no archive of programs.
pub(crate) enum BadArchive {
    /// It is none, or a part of one.
    Corrupt(CorruptDataError),
    /// There is nothing in it.
    Empty,
    /// It has more bytes than there is room for.
    TooLong(usize),
}

impl fmt::Display for BadArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadArchive::Corrupt(why) => {
                write!(f, "the module is no archive of programs, or a part of one: {why:?}")
            }
            BadArchive::Empty => f.write_str("the archive has no programs"),
            BadArchive::TooLong(len) => {
                write!(f, "the archive has {len} bytes: expected {MAX_BYTES} at most")
            }
        }
    }
}

/// A program: its name, and its image.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) image: &'static [u8],
}

static PROGRAMS: spin::Once<Vec<Program>> = spin::Once::new();

/// Takes the programs of a module, which is copied.
pub(crate) fn take(module: &[u8]) -> Result<(), BadArchive> {
    if module.len() > MAX_BYTES {
        return Err(BadArchive::TooLong(module.len()));
    }
    TarArchiveRef::new(module).map_err(BadArchive::Corrupt)?;
    let kept = module.to_vec().leak();
    let archive = TarArchiveRef::new(kept).map_err(BadArchive::Corrupt)?;
    let mut programs = Vec::new();
    for entry in archive.entries() {
        let (name, image) = (entry.filename(), entry.data());
        if let Ok(name) = name.as_str() {
            let name = name.as_bytes().to_vec().leak();
            programs.extend(core::str::from_utf8(name).ok().map(|name| Program { name, image }));
        }
    }
    if programs.is_empty() {
        return Err(BadArchive::Empty);
    }
    PROGRAMS.call_once(|| programs);
    Ok(())
}

/// The programs; none without an archive.
pub(crate) fn programs() -> &'static [Program] {
    PROGRAMS.get().map_or(&[], |programs| programs)
}
