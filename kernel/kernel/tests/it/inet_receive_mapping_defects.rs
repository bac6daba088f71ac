//! Planted defects of zero-copy receive by ephemeral mappings: each is caught by what is there for it, and the same
//! program passes without it.

use crate::common::far::*;
use crate::common::*;
use crate::inet_page_defects::complaint;
use crate::inet_receive_mapping::{mapped, small_cache, try_pipe_beside_the_card};
use crate::inet_zero_copy::{flips_at_line_rate, with_talker, with_talker_and_ring};
use pageferry_ephemeral::{AccessedRule, Scheme};
use pageferry_hal::*;
use pageferry_kernel::*;

const PAGE: usize = PAGE_SIZE;
const MTU: u64 = 8244;

type Outcome = Result<(), String>;

fn cache(entries: usize) -> KernelConfig {
    mapped(Scheme::Cache { entries, rule: AccessedRule::Safe })
}

/// `program` finds nothing wrong with a sound kernel, and something with one that has the defect.
fn is_caught(defect: NetDefect, config: KernelConfig, program: impl Fn(KernelConfig) -> Outcome) {
    assert_eq!(program(config), Ok(()), "a sound kernel");
    let mut broken = config;
    let net = broken.net.as_mut().expect("it has one");
    (net.defect, net.retransmissions) = (defect.into(), 6);
    assert!(program(broken).is_err(), "{defect:?}: not caught");
}

/// Receives at line rate, by flips or by copies.
fn receives(mtu: u64, flips: bool) -> impl Fn(KernelConfig) -> Outcome {
    move |config| complaint(&flips_at_line_rate("xeon-mp", mtu, true, config, flips, |_| ()).0)
}

/// Receives into memory that is locked, which refuses other pages.
fn receives_into_locked_memory(config: KernelConfig) -> Outcome {
    const LEN: usize = 16 * PAGE;
    let m = with_talker("xeon-mp", MTU, LEN);
    complaint(&try_run_on(m, "xeon-mp", config, |u| {
        let fd = connected(u, SOURCE);
        let at = map(u, LEN);
        u.store(at, &[0x77; LEN]);
        u.lock_memory(at, LEN).expect("there is room");
        let mut got = 0;
        while got < LEN {
            let now = u.receive_transfer(fd, Some(at + got), LEN - got).expect("connected").len_bytes;
            assert!(now > 0, "it has not said all");
            got += now;
        }
        let mut seen = vec![0; LEN];
        u.load(at, &mut seen);
        assert!(seen == bytes(5, 0, LEN), "what was said");
        u.unlock_memory(at, LEN).and_then(|()| u.close(fd)).expect("open");
    }))
}

#[test]
fn a_mapping_is_shared() {
    for flips in [true, false] {
        is_caught(NetDefect::ReceiveMappingPrivate, cache(4096), receives(MTU, flips));
        is_caught(NetDefect::ReceiveMappingPrivate, cache(16), receives(MTU, flips));
    }
}

#[test]
fn a_mapping_ends_with_its_page() {
    for config in [cache(4096), cache(16), mapped(Scheme::Original)] {
        for flips in [true, false] {
            is_caught(NetDefect::ReceiveMappingKept, config, receives(MTU, flips));
        }
    }
}

#[test]
fn a_driver_leaves_mappings_to_others() {
    is_caught(NetDefect::ReceiveMappingsAll, small_cache(8), |config| {
        complaint(&try_pipe_beside_the_card("xeon-mp", config).0)
    });
}

#[test]
fn a_page_that_was_flipped_is_unwired() {
    for config in [cache(4096), mapped(Scheme::Original), mapped(Scheme::Direct)] {
        is_caught(NetDefect::FlippedStaysWired, config, receives(MTU, true));
    }
}

#[test]
fn a_page_that_is_refused_comes_back() {
    is_caught(NetDefect::FlipRefusedLost, cache(4096), receives_into_locked_memory);
}

#[test]
fn a_mapped_page_of_which_a_part_has_come_is_not_flipped() {
    is_caught(NetDefect::FlipOfPart, cache(4096), receives(1500, true));
}

/// Copies what comes through mappings of ever other pages: the process uses those that are free again.
fn receives_through_other_pages(config: KernelConfig) -> Outcome {
    const LEN: usize = 128 * PAGE;
    // Three frames, of three pages each: fewer than a TLB has entries.
    let m = with_talker_and_ring("xeon-mp", MTU, LEN, 12);
    complaint(&try_run_on(m, "xeon-mp", config, |u| {
        let fd = connected(u, SOURCE);
        let (at, taken) = (map(u, PAGE), map(u, LEN));
        u.store(at, &[0; PAGE]);
        let mut heard = 0;
        while heard < LEN {
            let len = u.read(fd, at, PAGE).expect("connected");
            let mut part = vec![0; len];
            u.load(at, &mut part);
            assert!(part == bytes(5, heard, len), "what was said, at {heard}");
            heard += len;
            u.store(taken + heard / PAGE * PAGE % LEN, &[1]);
        }
        u.close(fd).expect("open");
    }))
}

/// Mappings that a small cache takes from one page for another: the CPU that reads is told by the one that maps.
#[test]
fn the_cpu_that_reads_is_told_of_a_new_mapping() {
    let config = cache(24);
    assert_eq!(receives_through_other_pages(config), Ok(()), "a sound kernel");
    let broken = KernelConfig { defect: KernelDefect::MissingShootdown.into(), ..config };
    // The TLB of another kind of machine may have lost the old mapping by itself.
    assert!(other_kind().is_some() || receives_through_other_pages(broken).is_err(), "not caught");
}
