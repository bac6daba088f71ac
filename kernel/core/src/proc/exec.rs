//! Programs as files (`execve`): an ELF image takes the place of what a process has in memory.
//!
//! The header of an image is in the file's first page, which is mapped for as long as it is read (sf_buf paper, 2.4);
//! its segments are private mappings of the file, and memory behind them where a segment is longer than what the file
//! has of it. What runs in a process stays the closure that made the call: an image is memory, and not code that this
//! kernel could run.
//!
//! A file that begins with `#!` names the image that is to interpret it (`imgact_shell.c`); that must be an image
//! itself. An image may name a dynamic linker (`PT_INTERP`, `imgact_elf.c`), which is put behind it and begins in its
//! place. Each of these files has its first page mapped in its turn.
//!
//! # What can fail
//! An image that is none, or asks for what a process cannot have, and an interpreter that is not there: nothing has
//! changed. Once the old memory is gone, only a want of memory; the process then has a part of the new one.

use super::copyio::Syscall;
use crate::fs::{File, MapRequest};
use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_hal::{Machine, Mode, PAGE_SIZE, Prot, Va};
use pageferry_vm::{Inherit, MapAddr};

const LOAD: u64 = 1;
const INTERP: u64 = 3;
/// An image that has its place, and one that may be put anywhere.
const EXECUTABLE: u64 = 2;
const DYNAMIC: u64 = 3;
/// The longest line that names an interpreter, with its end (`MAXSHELLCMDLEN`).
const MAX_LINE_BYTES: usize = 128;
/// The longest path of a dynamic linker, with the zero behind it.
const MAX_LINKER_BYTES: usize = 256;
/// A dynamic linker begins so far behind its image's end, where data can grow to.
const LINKER_GAP: u64 = 1 << 20;

/// A part of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    offset: u64,
    at: u64,
    /// What the file has of it, and how long it is.
    file_bytes: u64,
    len_bytes: u64,
    writable: bool,
    executable: bool,
}

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Header {
    entry: u64,
    segments: Vec<Segment>,
    /// It may be put anywhere: its addresses count from where it is.
    moves: bool,
    /// The path of its dynamic linker.
    linker: Option<String>,
}

/// What a file's first page says of it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum FirstPage {
    Image(Header),
    /// The path of what interprets it.
    Script(String),
}

/// An image, and the file that it is in.
type ImageFile<M> = (Arc<File<M>>, Header);

/// Finds a file by its path.
pub type FindFile<'a, M> = &'a dyn Fn(&str) -> Result<Arc<File<M>>, Errno>;

/// Reads a file's first page.
fn first_page(page: &[u8]) -> Option<FirstPage> {
    match page.strip_prefix(b"#!") {
        Some(line) => script(line).map(FirstPage::Script),
        None => parse(page).map(FirstPage::Image),
    }
}

/// The path in the line behind `#!`. What follows it are arguments, which no program here is given.
fn script(line: &[u8]) -> Option<String> {
    let line = &line[..line.len().min(MAX_LINE_BYTES - 2)];
    let line = line.split(|byte| *byte == b'\n').next().filter(|first| first.len() < line.len())?;
    let path = core::str::from_utf8(line).ok()?.split([' ', '\t']).find(|word| !word.is_empty())?;
    Some(path.to_owned())
}

/// Reads the header of an ELF file of 32 or 64 bits, little-endian, whose program headers lie in its first page.
fn parse(page: &[u8]) -> Option<Header> {
    let number = |at: usize, len: usize| -> Option<u64> {
        let bytes = page.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    if page.get(..4)? != b"\x7fELF" || page.get(5) != Some(&1) {
        return None;
    }
    let wide = match page.get(4)? {
        1 => false,
        2 => true,
        _ => return None,
    };
    let moves = match number(16, 2)? {
        EXECUTABLE => false,
        DYNAMIC => true,
        _ => return None,
    };
    let word = if wide { 8 } else { 4 };
    let entry = number(24, word)?;
    let table = usize::try_from(number(24 + word, word)?).ok()?;
    let (size_at, count_at) = if wide { (54, 56) } else { (42, 44) };
    let (size, count) = (number(size_at, 2)? as usize, number(count_at, 2)? as usize);
    if size < if wide { 56 } else { 32 } {
        return None;
    }
    let mut segments = Vec::new();
    let mut linker = None;
    for i in 0..count {
        let head = table.checked_add(i.checked_mul(size)?)?;
        let field = |narrow_at: usize, wide_at: usize, len: usize| {
            number(head.checked_add(if wide { wide_at } else { narrow_at })?, len)
        };
        match number(head, 4)? {
            LOAD => {}
            INTERP if linker.is_none() => {
                let from = usize::try_from(field(4, 8, word)?).ok()?;
                let len = usize::try_from(field(16, 32, word)?).ok()?;
                let path = page.get(from..from.checked_add(len.min(MAX_LINKER_BYTES))?)?;
                let end = path.iter().position(|byte| *byte == 0).filter(|end| *end > 0)?;
                linker = Some(core::str::from_utf8(&path[..end]).ok()?.to_owned());
                continue;
            }
            INTERP => return None,
            _ => continue,
        }
        let flags = field(24, 4, 4)?;
        let segment = Segment {
            offset: field(4, 8, word)?,
            at: field(8, 16, word)?,
            file_bytes: field(16, 32, word)?,
            len_bytes: field(20, 40, word)?,
            writable: flags & 2 != 0,
            executable: flags & 1 != 0,
        };
        let page = PAGE_SIZE as u64;
        let fits = segment.offset % page == segment.at % page && segment.file_bytes <= segment.len_bytes;
        // What lies behind the file's part is cleared, which takes the right to write.
        if !fits || segment.len_bytes > segment.file_bytes && !segment.writable {
            return None;
        }
        if segment.len_bytes > 0 {
            segments.push(segment);
        }
    }
    segments.sort_by_key(|segment| segment.at);
    let end = |s: &Segment| s.at.checked_add(s.len_bytes)?.checked_next_multiple_of(PAGE_SIZE as u64);
    for two in segments.windows(2) {
        if end(&two[0])? > two[1].at / PAGE_SIZE as u64 * PAGE_SIZE as u64 {
            return None;
        }
    }
    if segments.is_empty() || segments.iter().any(|segment| end(segment).is_none()) {
        return None;
    }
    Some(Header { entry, segments, moves, linker })
}

impl Header {
    /// Where it ends.
    fn end(&self) -> u64 {
        self.segments.iter().map(|s| s.at + s.len_bytes).max().unwrap_or(0)
    }

    /// Puts what may be anywhere to `base`.
    fn moved_to(mut self, base: u64) -> Option<Header> {
        self.entry = self.entry.checked_add(base)?;
        for segment in &mut self.segments {
            segment.at = segment.at.checked_add(base)?;
            segment.at.checked_add(segment.len_bytes)?.checked_next_multiple_of(PAGE_SIZE as u64)?;
        }
        Some(self)
    }
}

impl<M: Machine> Syscall<'_, M> {
    /// What a file's first page says.
    fn first_page(&self, file: &File<M>) -> Result<FirstPage, Errno> {
        let mut found = None;
        let vnode = file.as_vnode().map_err(|_| Errno::NotExecutable)?;
        vnode.with_header(self, &mut |va, len| {
            let mut page = vec![0; len];
            let loaded = self.machine().load(Mode::Kernel, va, &mut page);
            loaded.unwrap_or_else(|e| panic!("the kernel's own address is mapped: {e:?}"));
            found = first_page(&page);
            Ok(())
        })?;
        found.ok_or(Errno::NotExecutable)
    }

    /// An image that is put where it says, or else from `base` on: nothing of it is elsewhere than a process may have
    /// it, or not in the file.
    fn placed(&self, file: &File<M>, header: Header, base: Option<u64>) -> Result<Header, Errno> {
        let size = file.as_vnode()?.size_bytes(self)?;
        let header = match (header.moves, base) {
            (false, None) => Some(header),
            (true, Some(base)) => header.moved_to(base),
            _ => None,
        };
        let layout = self.machine().board().layout;
        let fits = |s: &Segment| {
            let len = usize::try_from(s.len_bytes).ok()?.checked_add(PAGE_SIZE)?;
            let there = s.offset.checked_add(s.file_bytes)? <= size;
            Some(there && s.at >= PAGE_SIZE as u64 && layout.is_user(Va(s.at), len))
        };
        header
            .filter(|header| header.segments.iter().all(|s| fits(s) == Some(true)))
            .ok_or(Errno::NotExecutable)
    }

    /// Lets the image in `file` be the caller's memory, or that in the file that interprets it, which `find` opens by
    /// its path; where it would begin.
    ///
    /// # Errors
    /// [`Errno::NotExecutable`]; those of `find`, for an interpreter: nothing has changed. [`Errno::NoMemory`].
    pub fn exec(&self, file: &Arc<File<M>>, find: FindFile<'_, M>) -> Result<Va, Errno> {
        let mut opened = Vec::new();
        let result = self.images(file, find, &mut opened).and_then(|images| {
            self.space.terminate(self.thread);
            images.iter().try_for_each(|(file, header)| self.map_image(file, header))?;
            // The linker comes last, and begins.
            Ok(Va(images.last().map_or(0, |(_, header)| header.entry)))
        });
        opened.into_iter().for_each(|file| file.close(self));
        result
    }

    /// The image, and the dynamic linker behind it if it has one; what was `opened` for them is the caller's to close.
    fn images(
        &self,
        file: &Arc<File<M>>,
        find: FindFile<'_, M>,
        opened: &mut Vec<Arc<File<M>>>,
    ) -> Result<Vec<ImageFile<M>>, Errno> {
        let mut open = |path: &str| -> Result<Arc<File<M>>, Errno> {
            let file = find(path)?;
            opened.push(file.clone());
            Ok(file)
        };
        let image_in = |file: &Arc<File<M>>| match self.first_page(file)? {
            FirstPage::Image(header) => Ok(header),
            // What interprets is not interpreted itself.
            FirstPage::Script(_) => Err(Errno::NotExecutable),
        };
        let (file, header) = match self.first_page(file)? {
            FirstPage::Image(header) => (file.clone(), header),
            FirstPage::Script(path) => {
                let interpreter = open(&path)?;
                let header = image_in(&interpreter)?;
                (interpreter, header)
            }
        };
        let header = self.placed(&file, header, None)?;
        let behind = (header.end() + LINKER_GAP).next_multiple_of(LINKER_GAP);
        let linker = header.linker.clone();
        let mut images = vec![(file, header)];
        if let Some(path) = linker {
            let linker = open(&path)?;
            let header = image_in(&linker)?;
            images.push((linker.clone(), self.placed(&linker, header, Some(behind))?));
        }
        Ok(images)
    }

    /// Maps an image's segments.
    fn map_image(&self, file: &Arc<File<M>>, header: &Header) -> Result<(), Errno> {
        for &Segment { offset, at, file_bytes, len_bytes, writable, executable } in &header.segments {
            let in_page = at as usize % PAGE_SIZE;
            let start = Va(at - in_page as u64);
            let mut prot = if writable { Prot::RW } else { Prot::READ };
            prot.set(Prot::EXECUTE, executable);
            let from_file = (in_page + file_bytes as usize).next_multiple_of(PAGE_SIZE);
            let all = (in_page + len_bytes as usize).next_multiple_of(PAGE_SIZE);
            let from_file = if file_bytes == 0 { 0 } else { from_file };
            if from_file > 0 {
                let place = MapAddr::Free(start);
                let (offset, max_prot) = (offset - in_page as u64, Prot::all());
                let mapping =
                    MapRequest { offset, place, len_bytes: from_file, prot, max_prot, shared: false };
                file.map(self, mapping)?;
                let end = in_page + file_bytes as usize;
                if len_bytes > file_bytes && end < from_file {
                    self.clear_user(start + end, from_file - end)?;
                }
            }
            if all > from_file {
                let prots = (prot, Prot::all());
                let place = MapAddr::Free(start + from_file);
                self.space.map_at(self.thread, place, all - from_file, prots, Inherit::Copy, None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_header_or_none() {
        let mut state = 1u64;
        let mut page = [0u8; 512];
        for _ in 0..20_000 {
            for byte in &mut page {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            let class = 1 + (page[9] & 1);
            page[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
            page[16..18].copy_from_slice(&[2, 0]);
            let len = page[8] as usize * 2;
            let _ = first_page(&page[..len]);
        }
    }

    #[test]
    fn a_line_names_an_interpreter_or_none() {
        let path = |text: &[u8]| first_page(text);
        let script = |path: &str| Some(FirstPage::Script(path.into()));
        assert_eq!(path(b"#!/bin/sh\necho\n"), script("/bin/sh"));
        assert_eq!(path(b"#! \t/bin/awk  -f\t-x\n"), script("/bin/awk"));
        let long = |len: usize| [b"#!/", &vec![b'x'; len][..], b"\n"].concat();
        assert!(path(&long(MAX_LINE_BYTES - 4)).is_some());
        for none in [
            b"#!".to_vec(),
            b"#!\n/bin/sh\n".to_vec(),
            b"#!/bin/sh".to_vec(),
            b"#!  \n".to_vec(),
            b"#!/\xff\n".to_vec(),
            long(MAX_LINE_BYTES - 3),
        ] {
            assert_eq!(path(&none), None, "{none:?}");
        }
    }
}
