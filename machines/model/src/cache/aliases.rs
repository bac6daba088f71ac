//! The oracle of stale lines: what each colour of a virtually indexed first level may know of a line of memory.
//!
//! # What it holds
//! For each line, the colours by which it was accessed since they were last purged; those of them that had been, when
//! the line was written by another; and the colour by which it was written and that was not purged since. Lines leave a
//! cache when it pleases the cache, so that they may have left counts for nothing: what is right only when a line
//! happens to have left is wrong.
//!
//! # The rule
//! An access finds something stale if its colour was accessed before another one wrote, or if another one has written
//! and was not written back: then memory is old, and what is stored here and there replaces one another. What a device
//! writes is in no cache afterwards, whatever its colour.
//!
//! Where stores go through the first level, and it takes no line in for them, memory is never old and a store is no
//! access: only what was loaded by one colour before another one wrote is stale.

use pageferry_hal::{Cycles, PAGE_SHIFT, PAGE_SIZE, Pa, Va};

/// Colours that it can tell apart.
pub(crate) const MAX_COLOURS: u32 = 8;

/// What is known of a line; a bit each for colours.
#[derive(Clone, Copy, Default, Debug)]
struct Line {
    /// Accessed by these since they were purged.
    accessed: u8,
    /// Of these, those that another wrote after.
    behind: u8,
    /// Written by this one, and not written back; `accessed` or less. None where stores go through.
    written: u8,
}

/// What is known of a frame.
#[derive(Clone, Debug)]
struct Frame {
    lines: Box<[Line]>,
    /// The store that came last, by which address, and when.
    stored: (Va, Cycles),
}

/// What a stale line was written by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastStore {
    /// The last store to the page.
    pub(crate) by: Va,
    pub(crate) at: Cycles,
}

/// The oracle of a machine whose pages have colours.
#[derive(Clone, Debug)]
pub(crate) struct Aliases {
    colours: u32,
    /// Stores go through.
    through: bool,
    line_shift: u32,
    /// By number of the frame, up to the last that was ever accessed.
    frames: Vec<Option<Frame>>,
}

impl Aliases {
    /// For so many colours; `None` for one.
    pub(crate) fn new(colours: u32, line_bytes: usize, through: bool) -> Option<Aliases> {
        assert!(colours <= MAX_COLOURS, "{colours} colours have no bit each");
        (colours > 1).then(|| Aliases {
            colours,
            through,
            line_shift: line_bytes.trailing_zeros(),
            frames: Vec::new(),
        })
    }

    /// The colour of an address.
    #[inline(always)]
    pub(crate) fn colour(&self, va: Va) -> u32 {
        (va.0 >> PAGE_SHIFT) as u32 & (self.colours - 1)
    }

    /// An access, by an address `va`, to so many lines of one frame, from that of `pa` on.
    ///
    /// # Errors
    /// One of them is stale.
    pub(crate) fn access(
        &mut self,
        (va, pa): (Va, Pa),
        lines: usize,
        write: bool,
        now: Cycles,
    ) -> Result<(), LastStore> {
        let bit = 1u8 << self.colour(va);
        let first = (pa.0 as usize & (PAGE_SIZE - 1)) >> self.line_shift;
        let through = self.through;
        let frame = self.frame(pa);
        let mut wrong = 0;
        for line in &mut frame.lines[first..first + lines] {
            wrong |= (line.behind & bit) | (line.written & !bit);
            if write {
                line.behind |= line.accessed & !bit;
            }
            if !(write && through) {
                line.accessed |= bit;
            }
            if write && !through {
                line.written = bit;
            }
        }
        let (by, at) = frame.stored;
        if write {
            frame.stored = (va, now);
        }
        if wrong == 0 { Ok(()) } else { Err(LastStore { by, at }) }
    }

    /// The first level holds no line of the frame at `pa` under this colour any more.
    pub(crate) fn purge(&mut self, pa: Pa, colour: u32) {
        let Some(Some(frame)) = self.frames.get_mut(pa.pfn().index()) else { return };
        let keep = !(1u8 << colour);
        for line in &mut frame.lines {
            line.accessed &= keep;
            line.behind &= keep;
            line.written &= keep;
        }
    }

    /// So many bytes of one frame are in no cache, and memory is what counts.
    pub(crate) fn forget(&mut self, pa: Pa, len_bytes: usize) {
        let Some(Some(frame)) = self.frames.get_mut(pa.pfn().index()) else { return };
        let first = (pa.0 as usize & (PAGE_SIZE - 1)) >> self.line_shift;
        let end = ((pa.0 as usize & (PAGE_SIZE - 1)) + len_bytes).div_ceil(1 << self.line_shift);
        frame.lines[first..end].fill(Line::default());
    }

    fn frame(&mut self, pa: Pa) -> &mut Frame {
        let at = pa.pfn().index();
        if at >= self.frames.len() {
            self.frames.resize(at + 1, None);
        }
        let lines = PAGE_SIZE >> self.line_shift;
        let new = || Frame { lines: vec![Line::default(); lines].into(), stored: (Va(0), Cycles(0)) };
        self.frames[at].get_or_insert_with(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Pa = Pa(5 << 12);

    fn aliases() -> Aliases {
        Aliases::new(4, 32, false).expect("four colours")
    }

    /// An address of a colour.
    fn va(colour: u64) -> Va {
        Va(0x40_0000 + (colour << 12))
    }

    fn read(aliases: &mut Aliases, colour: u64) -> bool {
        aliases.access((va(colour), FRAME), 1, false, Cycles(1)).is_ok()
    }

    fn write(aliases: &mut Aliases, colour: u64) -> bool {
        aliases.access((va(colour), FRAME), 1, true, Cycles(2)).is_ok()
    }

    #[test]
    fn all_colours_may_read() {
        let mut aliases = aliases();
        assert!((0..4).chain(0..4).all(|colour| read(&mut aliases, colour)));
    }

    #[test]
    fn what_another_colour_wrote_is_read_after_it_was_purged() {
        let mut aliases = aliases();
        assert!(write(&mut aliases, 2) && write(&mut aliases, 2) && read(&mut aliases, 2));
        assert!(!read(&mut aliases, 1));
        assert!(!write(&mut aliases, 3));
        let mut aliases = super::tests::aliases();
        assert!(write(&mut aliases, 2));
        aliases.purge(FRAME, 1);
        assert!(!read(&mut aliases, 1));
        aliases.purge(FRAME, 2);
        assert!(read(&mut aliases, 2) && read(&mut aliases, 3));
    }

    #[test]
    fn a_copy_from_before_the_store_is_dropped_or_stale() {
        for purges in [false, true] {
            let mut aliases = aliases();
            assert!(read(&mut aliases, 1) && write(&mut aliases, 2));
            aliases.purge(FRAME, 2);
            if purges {
                aliases.purge(FRAME, 1);
            }
            assert_eq!(read(&mut aliases, 1), purges);
            assert!(read(&mut aliases, 0));
        }
    }

    #[test]
    fn where_stores_go_through_only_what_was_loaded_before_is_stale() {
        let through = || Aliases::new(4, 32, true).expect("four colours");
        let mut aliases = through();
        assert!(write(&mut aliases, 2) && read(&mut aliases, 1), "memory has it");
        assert!(write(&mut aliases, 3) && read(&mut aliases, 2), "no line was taken in for the first store");
        assert!(!read(&mut aliases, 1), "loaded before the second store");
        aliases.purge(FRAME, 1);
        assert!(read(&mut aliases, 1));
        // A store to an old line leaves the rest of it old.
        let mut aliases = through();
        assert!(read(&mut aliases, 1) && write(&mut aliases, 2) && !write(&mut aliases, 1));
    }

    #[test]
    fn lines_are_told_apart_and_a_device_leaves_them_as_new() {
        let mut aliases = aliases();
        assert!(write(&mut aliases, 0));
        assert!(aliases.access((va(1), FRAME + 32), 127, true, Cycles(3)).is_ok());
        assert_eq!(
            aliases.access((va(2), FRAME + 64), 1, false, Cycles(4)),
            Err(LastStore { by: va(1), at: Cycles(3) })
        );
        let mut aliases = super::tests::aliases();
        assert!(write(&mut aliases, 0));
        aliases.forget(FRAME + 4, 8);
        assert!(read(&mut aliases, 1));
        assert!(aliases.access((va(1), FRAME), 128, false, Cycles(3)).is_ok());
    }
}
