//! Host time of one modelled access of a copy, the best of nine runs: `cargo run --release --example cache_speed`.

use std::hint::black_box;
use std::time::Instant;

use pageferry_model::cache::{Caches, Kind};
use pageferry_model::config::MachineConfig;

/// Copies `len_bytes` again and again from one place to another; gives nanoseconds per access.
fn copy_ns(caches: &mut Caches, packages: usize, len_bytes: u64) -> f64 {
    let line = caches.line_bytes() as u64;
    let rounds = ((2 << 20) / len_bytes).max(1);
    let mut cycles = 0u64;
    let start = Instant::now();
    for round in 0..rounds {
        let package = round as usize % packages;
        for pa in (0..len_bytes).step_by(line as usize) {
            cycles += u64::from(caches.access(package, 0x10_0000 + pa, false, Kind::Stream));
            cycles += u64::from(caches.access(package, 0x80_0000 + pa, true, Kind::Stream));
        }
    }
    let accesses = 2 * rounds * len_bytes / line;
    let ns = start.elapsed().as_nanos() as f64 / accesses as f64;
    black_box(cycles);
    caches.check().expect("the laws hold");
    ns
}

fn main() {
    println!("{:<14} {:>10} {:>12} {:>14}", "machine", "copy", "one package", "all packages");
    for name in ["xeon-up", "xeon-mp", "opteron-mp", "pentium-iii"] {
        let machine = MachineConfig::named(name).expect("a machine");
        let packages = machine.cpu.packages.value as usize;
        for len_kb in [2, 16, 64, 256, 4096] {
            let best = |packages: usize| {
                let mut caches = Caches::new(&machine);
                (0..60).map(|_| copy_ns(&mut caches, packages, len_kb << 10)).fold(f64::MAX, f64::min)
            };
            let (one, all) = (best(1), best(packages));
            println!("{name:<14} {len_kb:>7} KB {one:>9.1} ns {all:>11.1} ns");
        }
    }
}
