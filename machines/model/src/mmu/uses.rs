//! What kernel addresses are for, as the kernel has said it: so that misses and entries can be told apart by their
//! address alone.

use pageferry_hal::{MemoryUse, PAGE_SHIFT, Pfn, Va};

/// What addresses are for.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Addresses by their first and the first behind them, in order; no two meet.
    ranges: Vec<(Va, Va, MemoryUse)>,
    /// The direct map: its first address, and how many frames it has.
    direct: Option<(Va, usize)>,
    /// By frame, as far as something was said of any.
    frames: Vec<MemoryUse>,
}

impl Uses {
    /// So many bytes are for this, whatever was said of them before.
    pub(crate) fn set(&mut self, at: Va, len_bytes: usize, what: MemoryUse) {
        let end = at + len_bytes;
        if at == end {
            return;
        }
        let cut = |&(from, to, old): &(Va, Va, MemoryUse)| {
            [(from, to.min(at), old), (from.max(end), to, old)].into_iter().filter(|(from, to, _)| from < to)
        };
        self.ranges = self.ranges.iter().flat_map(cut).chain([(at, end, what)]).collect();
        self.ranges.sort_unstable();
    }

    pub(crate) fn set_direct_map(&mut self, at: Va, frames: usize) {
        self.direct = Some((at, frames));
    }

    pub(crate) fn set_frame(&mut self, frame: Pfn, what: MemoryUse) {
        if self.frames.len() <= frame.index() {
            self.frames.resize(frame.index() + 1, MemoryUse::default());
        }
        self.frames[frame.index()] = what;
    }

    /// What a kernel address is for.
    pub(crate) fn of(&self, va: Va) -> MemoryUse {
        let behind = self.ranges.partition_point(|(from, ..)| *from <= va);
        if let Some(&(_, end, what)) = self.ranges[..behind].last()
            && va < end
        {
            return what;
        }
        let frame = match self.direct {
            Some((at, frames)) if va >= at && ((va - at) >> PAGE_SHIFT) < frames => (va - at) >> PAGE_SHIFT,
            _ => return MemoryUse::Buffers,
        };
        self.frames.get(frame).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_hal::PAGE_SIZE;

    #[test]
    fn what_is_said_later_holds() {
        let mut uses = Uses::default();
        uses.set(Va(0x1000), 0x8000, MemoryUse::Data);
        uses.set(Va(0x3000), 0x800, MemoryUse::Text);
        uses.set(Va(0x8000), 0x2000, MemoryUse::Stacks);
        let at = [0xfff, 0x1000, 0x2fff, 0x3000, 0x37ff, 0x3800, 0x7fff, 0x8000, 0x9fff, 0xa000];
        let (b, d, t, s) = (MemoryUse::Buffers, MemoryUse::Data, MemoryUse::Text, MemoryUse::Stacks);
        assert_eq!(at.map(|va| uses.of(Va(va))), [b, d, d, t, t, d, d, s, s, b]);
    }

    #[test]
    fn of_the_direct_map_the_frame_decides_where_nothing_else_is_said() {
        let mut uses = Uses::default();
        let base = Va(0x10_0000);
        uses.set(base, PAGE_SIZE, MemoryUse::Data);
        uses.set_direct_map(base, 4);
        uses.set_frame(Pfn(0), MemoryUse::Programs);
        uses.set_frame(Pfn(2), MemoryUse::Files);
        let pages = [0, 1, 2, 3, 4].map(|page| uses.of(base + page * PAGE_SIZE + 5));
        let buffers = MemoryUse::Buffers;
        assert_eq!(pages, [MemoryUse::Data, buffers, MemoryUse::Files, buffers, buffers]);
    }
}
