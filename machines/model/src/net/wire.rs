//! What a wire does to frames: nothing, or what wires and the switches between them do at times.
//!
//! Each direction is a lane of its own, with its own random numbers from the seed; every frame draws as many of them,
//! so that one that is lost changes nothing for the next. A lane says when which frame comes out at its end, and holds
//! none.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What happens to frames on their way, in each direction. The default is a wire that does nothing to them, and takes
/// no time but what the link needs to put them onto it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Where its random numbers come from.
    pub seed: u64,
    /// How many of a million frames are lost.
    pub loss_ppm: u32,
    /// How many of a million frames arrive twice.
    pub duplicate_ppm: u32,
    /// How many of a million frames take [`reorder_ns`](Wire::reorder_ns) longer, so that others overtake them.
    pub reorder_ppm: u32,
    /// How many of a million frames have one bit flipped, where no checksum of a link sees it: in the memory of a
    /// switch.
    pub corrupt_ppm: u32,
    /// How long all frames take.
    pub delay_ns: u64,
    /// How much longer those take that are overtaken.
    pub reorder_ns: u64,
}

/// One direction of a wire.
#[derive(Debug)]
pub(crate) struct Lane {
    wire: Wire,
    rng: ChaCha8Rng,
}

impl Lane {
    /// The lane of this number.
    pub(crate) fn new(wire: Wire, number: u64) -> Lane {
        let mut rng = ChaCha8Rng::seed_from_u64(wire.seed);
        rng.set_stream(number);
        Lane { wire, rng }
    }

    /// Takes a frame in at a time in picoseconds; when, and as what, it comes out.
    pub(crate) fn carry(
        &mut self,
        ps: u64,
        mut frame: Vec<u8>,
    ) -> impl Iterator<Item = (u64, Vec<u8>)> + use<> {
        let Wire { loss_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, delay_ns, reorder_ns, .. } = self.wire;
        let mut happens = |ppm: u32| self.rng.next_u32() % 1_000_000 < ppm;
        let (lost, twice) = (happens(loss_ppm), happens(duplicate_ppm));
        let (late, flipped) = (happens(reorder_ppm), happens(corrupt_ppm));
        let place = self.rng.next_u32() as usize;
        if flipped {
            let bit = place % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        let after_ns = delay_ns.saturating_add(if late { reorder_ns } else { 0 });
        let at = ps.saturating_add(after_ns.saturating_mul(1000));
        let copies = if lost { 0 } else { 1 + usize::from(twice) };
        std::iter::repeat_n((at, frame), copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(wire: Wire, frames: u64) -> Vec<(u64, Vec<u8>)> {
        let mut lane = Lane::new(wire, 0);
        (0..frames).flat_map(|i| lane.carry(i * 1000, vec![i as u8; 60])).collect()
    }

    #[test]
    fn a_good_wire_does_nothing() {
        let all = carried(Wire { delay_ns: 7, ..Wire::default() }, 300);
        assert!((0..300).zip(&all).all(|(i, got)| *got == (i * 1000 + 7000, vec![i as u8; 60])));
        assert_eq!(all.len(), 300);
    }

    #[test]
    fn a_bad_wire_does_what_it_is_told_as_often() {
        let count = |wire| carried(wire, 100_000).len() as i64;
        assert!((count(Wire { loss_ppm: 100_000, ..Wire::default() }) - 90_000).abs() < 500);
        assert!((count(Wire { duplicate_ppm: 100_000, ..Wire::default() }) - 110_000).abs() < 500);
        let late = carried(Wire { reorder_ppm: 10_000, reorder_ns: 50, ..Wire::default() }, 100_000);
        let late = (0..).zip(&late).filter(|(i, (at, _))| *at == i * 1000 + 50_000).count() as i64;
        assert!((late - 1000).abs() < 100, "{late}");
        let flipped = carried(Wire { corrupt_ppm: 1_000_000, ..Wire::default() }, 1000);
        let bits = |i: usize, frame: &[u8]| frame.iter().map(|b| (b ^ i as u8).count_ones()).sum::<u32>();
        assert!(flipped.iter().enumerate().all(|(i, (_, frame))| bits(i, frame) == 1));
    }

    #[test]
    fn what_becomes_of_a_frame_depends_on_the_seed_alone() {
        let wire = |seed, duplicate_ppm| Wire { seed, loss_ppm: 200_000, duplicate_ppm, ..Wire::default() };
        assert_eq!(carried(wire(1, 0), 100), carried(wire(1, 0), 100));
        assert_ne!(carried(wire(1, 0), 100), carried(wire(2, 0), 100));
        // Of those that arrive twice, the same are lost.
        let mut twice = carried(wire(1, 500_000), 100);
        twice.dedup();
        assert_eq!(carried(wire(1, 0), 100), twice);
    }
}
