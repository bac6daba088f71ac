//! Physical memory: bytes, frame after frame.
//!
//! A frame takes from the host what it holds up to its last byte that was ever written; what lies beyond are zeros. A
//! machine of 3 GB costs the host only what the run writes, and a frame that holds a word costs a line.

use pageferry_hal::{PAGE_SHIFT, PAGE_SIZE, Pa, Pfn, Width};

/// The least that a written frame takes.
const MIN_BYTES: usize = 64;

/// Physical memory of one machine.
pub(crate) struct Memory {
    /// By frame, where in `kept` its beginning is; 0, which is empty, for those that hold zeros.
    places: Vec<u32>,
    /// Beginnings of frames: as long as a power of two, or empty.
    kept: Vec<Box<[u8]>>,
    /// Places in `kept` that no frame has.
    free: Vec<u32>,
}

impl Memory {
    pub(crate) fn new(frames: usize) -> Memory {
        Memory { places: vec![0; frames], kept: vec![Box::default()], free: Vec::new() }
    }

    /// The frame and the offset of `len_bytes` at `at`.
    fn place(&self, at: Pa, len_bytes: usize) -> (usize, usize) {
        let (frame, offset) = ((at.0 >> PAGE_SHIFT) as usize, at.0 as usize % PAGE_SIZE);
        assert!(
            frame < self.places.len(),
            "{len_bytes} bytes at {at:?} lie outside physical memory: a translation leads nowhere"
        );
        assert!(offset + len_bytes <= PAGE_SIZE, "{len_bytes} bytes at {at:?} lie in more than one frame");
        (frame, offset)
    }

    /// What is kept of `len_bytes` at `at`; zeros follow up to that length.
    fn kept(&self, at: Pa, len_bytes: usize) -> &[u8] {
        let (frame, offset) = self.place(at, len_bytes);
        let kept = &self.kept[self.places[frame] as usize];
        &kept[offset.min(kept.len())..(offset + len_bytes).min(kept.len())]
    }

    /// Reads bytes of one frame.
    pub(crate) fn read(&self, at: Pa, buf: &mut [u8]) {
        let kept = self.kept(at, buf.len());
        let (written, zeros) = buf.split_at_mut(kept.len());
        written.copy_from_slice(kept);
        zeros.fill(0);
    }

    /// True when these bytes are at `at`, in one frame.
    pub(crate) fn holds(&self, at: Pa, bytes: &[u8]) -> bool {
        let kept = self.kept(at, bytes.len());
        let (written, zeros) = bytes.split_at(kept.len());
        written == kept && zeros.iter().all(|&byte| byte == 0)
    }

    /// Bytes of one frame, to be written.
    pub(crate) fn bytes_mut(&mut self, at: Pa, len_bytes: usize) -> &mut [u8] {
        let (frame, offset) = self.place(at, len_bytes);
        let end = offset + len_bytes;
        if self.places[frame] == 0 {
            self.places[frame] = self.new_place();
        }
        let kept = &mut self.kept[self.places[frame] as usize];
        if kept.len() < end {
            grow(kept, end);
        }
        &mut kept[offset..end]
    }

    /// A place in `kept` that no frame has.
    fn new_place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.kept.push(Box::default());
            u32::try_from(self.kept.len() - 1).expect("frames have numbers of 32 bits")
        })
    }

    /// Fills a frame with zeros.
    pub(crate) fn clear_frame(&mut self, frame: Pfn) {
        let frames = self.places.len();
        let place = self.places.get_mut(frame.index()).map(std::mem::take);
        let place =
            place.unwrap_or_else(|| panic!("{frame:?} is to be cleared, but there are {frames} frames"));
        if place != 0 {
            self.kept[place as usize] = Box::default();
            self.free.push(place);
        }
    }

    /// Fills a part of one frame with zeros.
    pub(crate) fn clear(&mut self, at: Pa, len_bytes: usize) {
        let (frame, offset) = self.place(at, len_bytes);
        let kept = &mut self.kept[self.places[frame] as usize];
        let (from, to) = (offset.min(kept.len()), (offset + len_bytes).min(kept.len()));
        kept[from..to].fill(0);
    }

    /// Moves bytes from a frame to another, or within one.
    ///
    /// # Panics
    /// When the ranges overlap: the copy instruction modelled here would behave differently from a memmove.
    pub(crate) fn copy(&mut self, to: Pa, from: Pa, len_bytes: usize) {
        let overlap = to.0 < from.0 + len_bytes as u64 && from.0 < to.0 + len_bytes as u64;
        assert!(!overlap, "a copy between overlapping physical ranges");
        let (source, target) = (self.place(from, len_bytes), self.place(to, len_bytes));
        let kept = self.kept(from, len_bytes).len();
        if kept > 0 {
            self.bytes_mut(to, kept);
            let places = [source.0, target.0].map(|frame| self.places[frame] as usize);
            if source.0 == target.0 {
                self.kept[places[0]].copy_within(source.1..source.1 + kept, target.1);
            } else {
                let [from, to] = self.kept.get_disjoint_mut(places).expect("two frames");
                to[target.1..target.1 + kept].copy_from_slice(&from[source.1..source.1 + kept]);
            }
        }
        if kept < len_bytes {
            self.clear(to + kept, len_bytes - kept);
        }
    }

    #[inline]
    pub(crate) fn load_word(&self, at: Pa, width: Width) -> u64 {
        let mut bytes = [0; 8];
        let kept = self.kept(at, width.bytes());
        bytes[..kept.len()].copy_from_slice(kept);
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn store_word(&mut self, at: Pa, width: Width, value: u64) {
        let bytes = value.to_le_bytes();
        assert!(width == Width::Eight || value >> 32 == 0, "{value:#x} does not fit four bytes");
        self.bytes_mut(at, width.bytes()).copy_from_slice(&bytes[..width.bytes()]);
    }
}

/// Makes what is kept of a frame at least `len_bytes` long.
#[cold]
fn grow(kept: &mut Box<[u8]>, len_bytes: usize) {
    let mut longer = std::mem::take(kept).into_vec();
    let len_bytes = len_bytes.next_power_of_two().max(MIN_BYTES);
    longer.reserve_exact(len_bytes - longer.len());
    longer.resize(len_bytes, 0);
    *kept = longer.into_boxed_slice();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAMES: usize = 3;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Write { at: usize, len: usize, byte: u8 },
        Copy { to: usize, from: usize, len: usize },
        Clear { at: usize, len: usize },
        ClearFrame { frame: usize },
        Word { at: usize, value: u32 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let at = || 0..FRAMES * PAGE_SIZE;
        let len = || prop_oneof![1..80usize, 1..PAGE_SIZE + 1];
        let step = prop_oneof![
            (at(), len(), any::<u8>()).prop_map(|(at, len, byte)| Step::Write { at, len, byte }),
            (at(), at(), len()).prop_map(|(to, from, len)| Step::Copy { to, from, len }),
            (at(), len()).prop_map(|(at, len)| Step::Clear { at, len }),
            (0..FRAMES).prop_map(|frame| Step::ClearFrame { frame }),
            (at(), any::<u32>()).prop_map(|(at, value)| Step::Word { at: at / 8 * 8, value }),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn frames_hold_what_plain_bytes_hold(steps in steps()) {
            let (mut memory, mut plain) = (Memory::new(FRAMES), vec![0u8; FRAMES * PAGE_SIZE]);
            let left = |at: usize| PAGE_SIZE - at % PAGE_SIZE;
            for step in steps {
                match step {
                    Step::Write { at, len, byte } => {
                        let len = len.min(left(at));
                        memory.bytes_mut(Pa(at as u64), len).fill(byte);
                        plain[at..at + len].fill(byte);
                    }
                    Step::Copy { to, from, len } => {
                        let len = len.min(left(to)).min(left(from)).min(to.abs_diff(from));
                        if len > 0 {
                            memory.copy(Pa(to as u64), Pa(from as u64), len);
                            plain.copy_within(from..from + len, to);
                        }
                    }
                    Step::Clear { at, len } => {
                        let len = len.min(left(at));
                        memory.clear(Pa(at as u64), len);
                        plain[at..at + len].fill(0);
                    }
                    Step::ClearFrame { frame } => {
                        memory.clear_frame(Pfn(frame as u32));
                        plain[frame * PAGE_SIZE..][..PAGE_SIZE].fill(0);
                    }
                    Step::Word { at, value } => {
                        memory.store_word(Pa(at as u64), Width::Four, u64::from(value));
                        plain[at..at + 4].copy_from_slice(&value.to_le_bytes());
                        let here: [u8; 8] = plain[at..at + 8].try_into().expect("eight");
                        prop_assert_eq!(memory.load_word(Pa(at as u64), Width::Eight), u64::from_le_bytes(here));
                    }
                }
            }
            for frame in 0..FRAMES {
                let (at, expected) = (Pfn(frame as u32).pa(), &plain[frame * PAGE_SIZE..][..PAGE_SIZE]);
                let mut bytes = vec![0xff; PAGE_SIZE];
                memory.read(at, &mut bytes);
                prop_assert_eq!(&bytes, expected);
                prop_assert!(memory.holds(at, expected));
                bytes[PAGE_SIZE - 1] ^= 1;
                prop_assert!(!memory.holds(at, &bytes));
            }
        }
    }

    #[test]
    fn a_frame_takes_what_was_written() {
        let mut memory = Memory::new(2);
        memory.bytes_mut(Pa(5), 1)[0] = 1;
        memory.copy(Pa(PAGE_SIZE as u64), Pa(0), PAGE_SIZE);
        let kept = |memory: &Memory| memory.kept.iter().map(|f| f.len()).collect::<Vec<_>>();
        assert_eq!(kept(&memory), [0, 64, 64]);
        memory.clear_frame(Pfn(0));
        assert_eq!(kept(&memory), [0, 0, 64]);
        memory.bytes_mut(Pa(100), 1)[0] = 1;
        assert_eq!(kept(&memory), [0, 128, 64], "the place is used again");
    }
}
