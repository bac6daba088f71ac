//! What a line costs the host, in each machine's caches: millions of lines a second.
//!
//! `cargo bench -p pageferry-model --bench caches [-- MACHINE/PATTERN]`. Streams go through 32 MB page by page, as the
//! model's copies and clears do; `hot` reads one page again and again; `chase` reads lines in a scattered order, each
//! by itself.

use pageferry_hal::PAGE_SIZE;
use pageferry_model::MachineConfig;
use pageferry_model::cache::{Caches, Kind};
use std::hint::black_box;
use std::time::Instant;

const PAGE: u64 = PAGE_SIZE as u64;
const PAGES: u64 = 8192;

/// Accesses the lines of page number `page`; gives how many, and their cost.
type Pattern = fn(&mut Caches, page: u64) -> (u64, u64);

const PATTERNS: [(&str, Pattern); 5] = [
    ("clear", |caches, page| stream(caches, page % PAGES, true)),
    ("load", |caches, page| stream(caches, page % PAGES, false)),
    ("copy", |caches, page| copy(caches, page % PAGES, PAGES + page % PAGES)),
    ("hot", |caches, _| stream(caches, 0, false)),
    ("chase", chase),
];

fn main() {
    let only = std::env::args().nth(1).filter(|arg| !arg.starts_with('-'));
    let lines: u64 = std::env::var("LINES").map_or(8 << 20, |text| text.parse().expect("a number"));
    for name in ["pentium-pro", "xeon-mp", "opteron-mp", "today"] {
        let machine = MachineConfig::named(name).expect("it is built in");
        for (pattern, run) in PATTERNS {
            if only.as_ref().is_some_and(|only| *only != format!("{name}/{pattern}")) {
                continue;
            }
            let mut caches = Caches::new(&machine);
            let start = Instant::now();
            let (mut done, mut cycles) = (0, 0);
            for page in 0.. {
                let (more, cost) = run(&mut caches, page);
                (done, cycles) = (done + more, cycles + cost);
                if done >= lines {
                    break;
                }
            }
            let rate = done as f64 / start.elapsed().as_secs_f64() / 1e6;
            println!("{name:12} {pattern:6} {rate:6.1} M lines/s {:12} cycles", black_box(cycles));
        }
    }
}

fn stream(caches: &mut Caches, page: u64, write: bool) -> (u64, u64) {
    let lines = PAGE_SIZE / caches.line_bytes();
    let entered = caches.enter(0, page * PAGE);
    (lines as u64, caches.stream_in(entered, page * PAGE, lines, write))
}

fn copy(caches: &mut Caches, from: u64, to: u64) -> (u64, u64) {
    let lines = PAGE_SIZE / caches.line_bytes();
    let (from, to) = (from * PAGE, to * PAGE);
    let (source, target) = (caches.enter(0, from), caches.enter(0, to));
    (2 * lines as u64, caches.copy_in((source, from), (target, to), lines))
}

fn chase(caches: &mut Caches, page: u64) -> (u64, u64) {
    let lines = PAGE / caches.line_bytes() as u64;
    let access = |i: u64| {
        // An odd multiplier makes a permutation of the powers of two that are used here.
        let at = (page * lines + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        caches.access(0, at % (PAGES * PAGE), false, Kind::Latency)
    };
    (lines, (0..lines).map(access).map(u64::from).sum())
}
