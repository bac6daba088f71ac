//! Programs as files (`execve`): an ELF image takes the place of what a process has in memory.
//!
//! The header of an image is in the file's first page, which is mapped for as long as it is read (sf_buf paper, 2.4);
//! its segments are private mappings of the file, and memory behind them where a segment is longer than what the file
//! has of it. What runs in a process stays the closure that made the call: an image is memory, and not code that this
//! kernel could run.
//!
//! # What can fail
//! An image that is none, or asks for what a process cannot have: nothing has changed. Once the old memory is gone,
//! only a want of memory; the process then has a part of the new one.

use super::copyio::Syscall;
use crate::fs::{File, MapRequest};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_hal::{Machine, Mode, PAGE_SIZE, Prot, Va};
use pageferry_vm::{Inherit, MapAddr};

const LOAD: u32 = 1;
const EXECUTABLE: u16 = 2;

/// A part of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    offset: u64,
    at: u64,
    /// What the file has of it, and how long it is.
    file_bytes: u64,
    len_bytes: u64,
    writable: bool,
}

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Header {
    entry: u64,
    segments: Vec<Segment>,
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
    if number(16, 2)? != u64::from(EXECUTABLE) {
        return None;
    }
    let word = if wide { 8 } else { 4 };
    let entry = number(24, word)?;
    let table = usize::try_from(number(24 + word, word)?).ok()?;
    let (size_at, count_at) = if wide { (54, 56) } else { (42, 44) };
    let (size, count) = (number(size_at, 2)? as usize, number(count_at, 2)? as usize);
    if size < if wide { 56 } else { 32 } {
        return None;
    }
    let mut segments = Vec::new();
    for i in 0..count {
        let head = table.checked_add(i.checked_mul(size)?)?;
        let field = |narrow_at: usize, wide_at: usize, len: usize| {
            number(head.checked_add(if wide { wide_at } else { narrow_at })?, len)
        };
        if number(head, 4)? != u64::from(LOAD) {
            continue;
        }
        let segment = Segment {
            offset: field(4, 8, word)?,
            at: field(8, 16, word)?,
            file_bytes: field(16, 32, word)?,
            len_bytes: field(20, 40, word)?,
            writable: field(24, 4, 4)? & 2 != 0,
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
    Some(Header { entry, segments })
}

impl<M: Machine> Syscall<'_, M> {
    /// The header of an image.
    fn header(&self, file: &File<M>) -> Result<Header, Errno> {
        let mut found = None;
        let vnode = file.as_vnode().map_err(|_| Errno::NotExecutable)?;
        vnode.with_header(self, &mut |va, len| {
            let mut page = vec![0; len];
            let loaded = self.machine().load(Mode::Kernel, va, &mut page);
            loaded.unwrap_or_else(|e| panic!("the kernel's own address is mapped: {e:?}"));
            found = parse(&page);
            Ok(())
        })?;
        let header = found.ok_or(Errno::NotExecutable)?;
        let layout = self.machine().board().layout;
        let within = |s: &Segment| {
            let len = usize::try_from(s.len_bytes).ok()?;
            Some(s.at >= PAGE_SIZE as u64 && layout.is_user(Va(s.at), len.checked_add(PAGE_SIZE)?))
        };
        if header.segments.iter().all(|s| within(s) == Some(true)) {
            Ok(header)
        } else {
            Err(Errno::NotExecutable)
        }
    }

    /// Lets the image in `file` be the caller's memory; where it would begin.
    pub fn exec(&self, file: &Arc<File<M>>) -> Result<Va, Errno> {
        let header = self.header(file)?;
        let size = file.as_vnode()?.size_bytes(self)?;
        if header.segments.iter().any(|s| s.offset.checked_add(s.file_bytes).is_none_or(|end| end > size)) {
            return Err(Errno::NotExecutable);
        }
        self.space.terminate(self.thread);
        for Segment { offset, at, file_bytes, len_bytes, writable } in header.segments {
            let in_page = at as usize % PAGE_SIZE;
            let start = Va(at - in_page as u64);
            let prot = if writable { Prot::RW } else { Prot::READ };
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
        Ok(Va(header.entry))
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
            let _ = parse(&page[..len]);
        }
    }
}
