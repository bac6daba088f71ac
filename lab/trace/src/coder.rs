//! A binary range coder: bits, each under a probability that adapts, to bytes and back.
//!
//! [`Coder::bit`] both writes and reads, so that one function describes a format for both ways: an [`Encoder`] takes
//! the bit that it is given and returns it, a [`Decoder`] returns the bit that it finds. The model above owns the
//! probabilities. Nothing fails: a decoder that runs out of bytes goes on with zeros, and any bytes give some bits.

/// The probability that the next bit is 0, of 4,096.
pub(crate) type Chance = u16;

const ONE: u16 = 1 << 12;
/// What a bit is taken for that was never seen.
pub(crate) const EVEN: Chance = ONE / 2;
/// How slowly chances follow what is seen.
const RATE: u32 = 4;
/// Below it another byte is shifted in or out.
const TOP: u32 = 1 << 24;

/// Either direction.
pub(crate) trait Coder {
    /// One bit under `chance`, which learns of it.
    fn bit(&mut self, chance: &mut Chance, bit: bool) -> bool;

    /// The lowest `count` bits of `value`, as likely 0 as 1.
    fn plain(&mut self, count: u32, value: u64) -> u64;
}

fn learn(chance: &mut Chance, bit: bool) {
    if bit {
        *chance -= *chance >> RATE;
    } else {
        *chance += (ONE - *chance) >> RATE;
    }
}

/// To bytes.
pub(crate) struct Encoder {
    low: u64,
    range: u32,
    /// The byte that a carry could still change, and how many 0xff follow it.
    held: u8,
    followers: u64,
    begun: bool,
    bytes: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> Encoder {
        Encoder { low: 0, range: u32::MAX, held: 0, followers: 0, begun: false, bytes: Vec::new() }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        for _ in 0..5 {
            self.shift();
        }
        // A decoder goes on with zeros.
        while self.bytes.last() == Some(&0) {
            self.bytes.pop();
        }
        self.bytes
    }

    fn shift(&mut self) {
        if self.low < 0xff00_0000 || self.low > u64::from(u32::MAX) {
            let carry = (self.low >> 32) as u8;
            if self.begun {
                self.bytes.push(self.held.wrapping_add(carry));
            }
            for _ in 0..self.followers {
                self.bytes.push(0xff_u8.wrapping_add(carry));
            }
            self.begun = true;
            self.followers = 0;
            self.held = (self.low >> 24) as u8;
        } else {
            self.followers += 1;
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }
}

impl Coder for Encoder {
    fn bit(&mut self, chance: &mut Chance, bit: bool) -> bool {
        let bound = (self.range >> 12) * u32::from(*chance);
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        learn(chance, bit);
        while self.range < TOP {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    fn plain(&mut self, count: u32, value: u64) -> u64 {
        for at in (0..count).rev() {
            self.range >>= 1;
            if value >> at & 1 == 1 {
                self.low += u64::from(self.range);
            }
            while self.range < TOP {
                self.range <<= 8;
                self.shift();
            }
        }
        value
    }
}

/// From bytes.
pub(crate) struct Decoder<'a> {
    range: u32,
    code: u32,
    bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Decoder<'a> {
        let mut decoder = Decoder { range: u32::MAX, code: 0, bytes };
        for _ in 0..4 {
            decoder.code = decoder.code << 8 | decoder.next();
        }
        decoder
    }

    fn next(&mut self) -> u32 {
        match self.bytes {
            [first, rest @ ..] => {
                self.bytes = rest;
                u32::from(*first)
            }
            [] => 0,
        }
    }
}

impl Coder for Decoder<'_> {
    fn bit(&mut self, chance: &mut Chance, _: bool) -> bool {
        let bound = (self.range >> 12) * u32::from(*chance);
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        learn(chance, bit);
        while self.range < TOP {
            self.range <<= 8;
            self.code = self.code << 8 | self.next();
        }
        bit
    }

    fn plain(&mut self, count: u32, _: u64) -> u64 {
        let mut value = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            value = value << 1 | u64::from(bit);
            while self.range < TOP {
                self.range <<= 8;
                self.code = self.code << 8 | self.next();
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_come_back(
            bits in prop::collection::vec((any::<bool>(), 0..4_usize, any::<u64>(), 0..65_u32), 0..2_000)
        ) {
            let mut chances = [EVEN; 4];
            let mut encoder = Encoder::new();
            for &(bit, of, value, count) in &bits {
                encoder.bit(&mut chances[of], bit || of == 3);
                encoder.plain(count, value);
            }
            let bytes = encoder.finish();
            let mut chances = [EVEN; 4];
            let mut decoder = Decoder::new(&bytes);
            for &(bit, of, value, count) in &bits {
                prop_assert_eq!(decoder.bit(&mut chances[of], false), bit || of == 3);
                let lowest = if count == 0 { 0 } else { value & (u64::MAX >> (64 - count)) };
                prop_assert_eq!(decoder.plain(count, 0), lowest);
            }
        }
    }
}
