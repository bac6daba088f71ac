//! Some sectors of a buffer, a bit each.

use core::ops::Range;

/// Bytes of a buffer (`BKVASIZE`), and of a piece of the disk.
pub const BUFFER_BYTES: usize = 16384;
pub(super) const SECTOR: usize = 512;

/// Some sectors of a buffer, a bit each.
pub(super) type Sectors = u32;

/// The bits of a run of sectors.
pub(super) fn bits(run: &Range<usize>) -> Sectors {
    (((1u64 << run.end) - 1) & !((1u64 << run.start) - 1)) as Sectors
}

/// Those that some bytes of a piece lie in.
pub(super) fn sectors(span: &Range<usize>) -> Sectors {
    bits(&(span.start / SECTOR..span.end.div_ceil(SECTOR)))
}

/// The sectors that a span has only a part of.
pub(super) fn cut_sectors(span: &Range<usize>) -> Sectors {
    let mut cut = 0;
    if !span.start.is_multiple_of(SECTOR) {
        cut |= 1 << (span.start / SECTOR);
    }
    if !span.end.is_multiple_of(SECTOR) {
        cut |= 1 << (span.end / SECTOR);
    }
    cut
}

/// The runs of neighbours.
pub(super) fn runs(of: Sectors) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    core::iter::from_fn(move || {
        let start = (from..Sectors::BITS as usize).find(|&bit| of & 1 << bit != 0)?;
        let end = (start..Sectors::BITS as usize).find(|&bit| of & 1 << bit == 0);
        from = end.unwrap_or(Sectors::BITS as usize);
        Some(start..from)
    })
}
