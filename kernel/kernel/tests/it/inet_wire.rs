//! Connections over wires that lose, repeat, overtake and flip bits: what one side has said is what the other hears,
//! whatever the seed. `PAGEFERRY_CONNECTIONS` says how many seeds.

use crate::common::far::*;
use crate::common::*;
use pageferry_kernel::*;
use pageferry_model::net::Wire;
use pageferry_model::{Model, Schedule};
use std::fs::File;
use std::path::Path;

/// How bad the wire of a seed is: each kind of harm alone, and all together.
fn wire(seed: u64) -> Wire {
    let some = |kind: u64, ppm: u32| if seed % 5 == kind || seed % 5 == 4 { ppm } else { 0 };
    Wire {
        seed,
        loss_ppm: some(0, 30_000),
        duplicate_ppm: some(1, 100_000),
        reorder_ppm: some(2, 100_000),
        corrupt_ppm: some(3, 20_000),
        delay_ns: seed % 3 * 40_000,
        reorder_ns: 100_000 + seed % 7 * 50_000,
    }
}

/// Writes what goes over the wire to the folder that `PAGEFERRY_PCAP` names, if there is one.
fn record(m: &Model, what: &str) {
    if let Some(folder) = std::env::var_os("PAGEFERRY_PCAP") {
        let name = Path::new(&folder).join(format!("connections-{what}.pcap"));
        m.record_frames(File::create(name).expect("a file in the folder that PAGEFERRY_PCAP names"));
    }
}

/// A conversation over the wire of a seed.
fn conversation(seed: u64) -> NetCounts {
    let name = ["xeon-mp", "today", "mini-soft", "xeon-up", "mini-hash:2"][(seed / 5 % 5) as usize];
    let mut config = internet();
    let net = config.net.as_mut().expect("it has one");
    net.checksum_offload = seed.is_multiple_of(2);
    net.initial_sequence = (seed as u32).wrapping_mul(0x9e37_79b9);
    if seed.is_multiple_of(3) {
        // The wrap comes within a connection.
        net.initial_sequence = u32::MAX - (seed % 20_000) as u32;
    }
    let len = 10_000 + (seed * 7919 % 30_000) as usize;
    let plan = Plan {
        echoed: len,
        heard: len / 2,
        answered: len / 3,
        chunk: 500 + (seed * 31 % 9000) as usize,
        closes_first: false,
    };
    let ended =
        converse_on(name, Schedule::Timed, config, wire(seed), plan, |m| record(m, &seed.to_string()));
    ended.kernel.expect("it booted").net_counts()
}

#[test]
fn every_connection_says_the_same_on_both_sides() {
    let count = std::env::var("PAGEFERRY_CONNECTIONS").ok();
    let count: u64 = count.map_or(150, |count| count.parse().expect("a number of connections"));
    let first: u64 = std::env::var("PAGEFERRY_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    // Each seed is two connections: theirs and ours.
    let all: Vec<NetCounts> = (first..first + count.div_ceil(2)).map(conversation).collect();
    let sum = |of: fn(&NetCounts) -> u64| all.iter().map(of).sum::<u64>();
    let seen = [sum(|c| c.retransmitted), sum(|c| c.out_of_order), sum(|c| c.malformed)];
    println!("{count} connections: {seen:?} sent again, out of order, malformed");
    assert!(seen.iter().all(|seen| *seen > 0), "the wires were good: {seen:?}");
}

#[test]
fn every_connection_says_the_same_over_a_wire_that_does_nothing() {
    for (offload, what) in [(false, "lossless-0"), (true, "lossless-1")] {
        let mut config = internet();
        config.net.as_mut().expect("it has one").checksum_offload = offload;
        let plan =
            Plan { echoed: 200_000, heard: 90_000, answered: 70_000, chunk: 9000, closes_first: false };
        let ended = converse_on("today", Schedule::Timed, config, Wire::default(), plan, |m| record(m, what));
        let counts = ended.kernel.expect("it booted").net_counts();
        assert_eq!((counts.retransmitted, counts.malformed), (0, 0), "{counts:?}");
    }
}
