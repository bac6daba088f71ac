//! What a hit costs the host, in nanoseconds, at caches of 1 K, 64 K and 1 M entries: look-up, acquire, release.
//!
//! `cargo bench -p pageferry-ephemeral`. Two orders of access: a small set again and again (a pipe's pages: everything
//! in the host's caches) and all entries in a scattered order (one miss of the host's caches is part of the price).

use pageferry_ephemeral::index::{MappingIndex, Untraced};
use pageferry_hal::{CpuSet, Pfn};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 4_000_000;

fn main() {
    println!("{:>10} {:>16} {:>16}", "entries", "16 frames, ns", "all frames, ns");
    for entries in [1usize << 10, 64 << 10, 1 << 20] {
        let mut index = MappingIndex::new(entries, CpuSet::first(1));
        for frame in 0..entries as u32 {
            let id = index.victim().expect("a new index has victims");
            index.rebind(id, Pfn(frame), &mut Untraced);
            index.release(id, &mut Untraced);
        }
        let few = hits_ns(&mut index, |i| i & 15);
        // An odd multiplier makes a permutation of the powers of two used here.
        let mask = entries as u32 - 1;
        let all = hits_ns(&mut index, |i| i.wrapping_mul(0x9e37_79b1) & mask);
        println!("{entries:>10} {few:>16.1} {all:>16.1}");
    }
}

fn hits_ns(index: &mut MappingIndex, frame: impl Fn(u32) -> u32) -> f64 {
    let start = Instant::now();
    for i in 0..ROUNDS {
        let id = index.find(Pfn(black_box(frame(i))), &mut Untraced).expect("every frame is mapped");
        index.acquire(id, &mut Untraced);
        black_box(index.release(id, &mut Untraced));
    }
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}
