//! The image of a recorded program as a file that a process can exec: an ELF header in its first bytes, text and data
//! behind.
//!
//! Several recordings are of one program, and each shows only the pages that it refers to: the image has those of all.
//! What no recording refers to is a hole of the file.

use super::recorded::{RecordedProgram, SegmentKind};
use super::shadow::file_page;
use crate::kit::{CallError, named};
use pageferry_hal::{PAGE_SHIFT, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{OpenFlags, User};
use pageferry_model::Model;
use pageferry_vm::Inherit;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of the header, and of the entry of a segment.
const HEADER: usize = 52;
const SEGMENT: usize = 32;

/// The image of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Image {
    /// The name of its file.
    pub(super) program: String,
    /// Where text begins, where data does, and where that ends.
    pub(super) base: Va,
    data: Va,
    end: Va,
    /// Pages that are referred to.
    pages: BTreeSet<u64>,
}

impl Image {
    fn of(recorded: &RecordedProgram) -> Option<Image> {
        let of_file = || recorded.segments.iter().filter(|s| s.kind != SegmentKind::Anonymous);
        let end = of_file().map(|s| s.at + s.len_bytes).max()?;
        let data = of_file().filter(|s| s.kind == SegmentKind::Data).map(|s| s.at).min();
        let base = recorded.base();
        let pages = recorded.pages.range(base.0 >> PAGE_SHIFT..end.0 >> PAGE_SHIFT).copied().collect();
        Some(Image { program: recorded.program.clone(), base, data: data.unwrap_or(end), end, pages })
    }

    fn join(&mut self, other: Image) {
        self.base = self.base.min(other.base);
        self.data = self.data.min(other.data);
        self.end = self.end.max(other.end);
        self.pages.extend(other.pages);
    }

    /// Those of all these programs, by name.
    pub(super) fn all<'a>(of: impl Iterator<Item = &'a RecordedProgram>) -> BTreeMap<String, Image> {
        let mut images: BTreeMap<String, Image> = BTreeMap::new();
        for image in of.filter_map(Image::of) {
            match images.get_mut(&image.program) {
                Some(known) => known.join(image),
                None => _ = images.insert(image.program.clone(), image),
            }
        }
        images
    }

    /// The bytes that the kernel reads of it, in whole lines.
    pub(super) fn header(&self) -> Vec<u8> {
        let segments: Vec<(Va, Va, u32)> =
            [(self.base, self.data, 5), (self.data, self.end, 7)].into_iter().filter(|s| s.0 < s.1).collect();
        let mut bytes = vec![0; (HEADER + SEGMENT * segments.len()).next_multiple_of(32)];
        let mut put = |at: usize, len: usize, value: u32| {
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        put(0, 4, u32::from_le_bytes(*b"\x7fELF"));
        put(4, 3, 0x01_01_01);
        put(16, 2, 2);
        put(24, 4, self.base.0 as u32);
        put(28, 4, HEADER as u32);
        put(42, 2, SEGMENT as u32);
        put(44, 2, segments.len() as u32);
        for (i, (at, end, flags)) in segments.into_iter().enumerate() {
            let (offset, len) = ((at - self.base) as u32, (end - at) as u32);
            let fields = [1, offset, at.0 as u32, 0, len, len, flags];
            for (field, value) in fields.into_iter().enumerate() {
                put(HEADER + SEGMENT * i + 4 * field, 4, value);
            }
        }
        bytes
    }

    /// Makes its file.
    pub(super) fn install(&self, user: &User<Model>) -> Result<(), CallError> {
        let buffer = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = user.open(&self.program, flags).map_err(named("make a program"))?;
        let first = self.base.0 >> PAGE_SHIFT;
        for page in self.pages.iter().map(|page| page - first) {
            let mut bytes = file_page(page);
            if page == 0 {
                let header = self.header();
                bytes[..header.len()].copy_from_slice(&header);
            }
            user.store(buffer, &bytes);
            user.seek(file, page << PAGE_SHIFT).map_err(named("seek"))?;
            user.write(file, buffer, PAGE_SIZE).map_err(named("write a program"))?;
        }
        user.close(file).map_err(named("close"))?;
        user.unmap(buffer, PAGE_SIZE).map_err(named("unmap"))
    }
}
