//! The functions of the fuzz targets, driven by a generator of numbers: for tool chains that have no fuzzer.
//!
//! `PAGEFERRY_FUZZ_CASES=100000 cargo test -p pageferry --test fuzz` tries more, `PAGEFERRY_FUZZ_SEED` others. The
//! targets themselves are in `fuzz/`: `cargo +nightly fuzz run messages` there.

mod inputs;
#[path = "../peer/mod.rs"]
mod peer;

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn drive(target: fn(&[u8]), cases: u64) {
    let seed = number("PAGEFERRY_FUZZ_SEED", 1);
    for case in 0..number("PAGEFERRY_FUZZ_CASES", cases) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed << 40 | case);
        let mut bytes = vec![0; (rng.next_u32() % 512) as usize];
        rng.fill_bytes(&mut bytes);
        if std::panic::catch_unwind(|| target(&bytes)).is_err() {
            panic!("case {case} of seed {seed}: {bytes:?}");
        }
    }
}

#[test]
fn handshakes() {
    drive(inputs::handshake, 500);
}

#[test]
fn messages() {
    drive(inputs::messages, 500);
}

#[test]
fn acknowledgements() {
    drive(inputs::acknowledgements, 500);
}
