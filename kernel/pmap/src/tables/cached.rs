//! Colours: what the cache may have of a frame, where it is indexed by virtual addresses. See `map::colours`.

/// What an address of the kernel's is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The bytes are read.
    Read,
    /// They are stored to, or may be.
    Write,
}

/// What the cache may have of a frame; a bit for each colour.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cached {
    /// It may hold lines by these.
    pub(crate) by: u8,
    /// By this one they may be newer than memory, or become so without a claim: one of `by`.
    pub(crate) stored: u8,
}

impl Cached {
    pub(crate) const NOWHERE: Cached = Cached { by: 0, stored: 0 };

    /// The colours that a claim has to take the frame away from.
    pub(crate) fn in_the_way(self, bit: u8, reach: Reach) -> u8 {
        match reach {
            Reach::Read => self.stored & !bit,
            Reach::Write => self.by & !bit,
        }
    }
}
