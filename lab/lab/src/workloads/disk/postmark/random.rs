//! The random numbers of PostMark 1.5: the Mersenne Twister of 1998, with its seeding of that time.

const WORDS: usize = 624;
const FAR: usize = 397;

/// The generator.
pub(super) struct Random {
    words: [u32; WORDS],
    next: usize,
    draws: u64,
}

impl Random {
    pub(super) fn new(seed: u32) -> Random {
        let mut words = [0; WORDS];
        let mut x = seed;
        let mut step = || {
            let high = x >> 16;
            x = x.wrapping_mul(69069).wrapping_add(1);
            high
        };
        for word in &mut words {
            *word = step() << 16 | step();
        }
        Random { words, next: WORDS, draws: 0 }
    }

    fn generate(&mut self) {
        for i in 0..WORDS {
            let y = self.words[i] & 0x8000_0000 | self.words[(i + 1) % WORDS] & 0x7fff_ffff;
            let odd = if y & 1 == 0 { 0 } else { 0x9908_b0df };
            self.words[i] = self.words[(i + FAR) % WORDS] ^ y >> 1 ^ odd;
        }
        self.next = 0;
    }

    fn word(&mut self) -> u32 {
        if self.next == WORDS {
            self.generate();
        }
        let mut y = self.words[self.next];
        self.next += 1;
        self.draws += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    /// A number below `end`; 0 without a draw where there is none.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { u64::from(self.word()) % end }
    }

    /// Numbers drawn so far.
    #[cfg(test)]
    pub(super) fn draws(&self) -> u64 {
        self.draws
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_program() {
        let mut random = Random::new(42);
        let first = [0; 4].map(|_| random.word());
        assert_eq!(first, [4_179_544_424, 615_236_124, 4_165_290_828, 3_119_652_344]);
    }
}
