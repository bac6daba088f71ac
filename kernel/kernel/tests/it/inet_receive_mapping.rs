//! Zero-copy receive as FreeBSD has it (sf_buf paper, 2.3; checklist S1.13): each page that the card receives into has
//! an ephemeral mapping, and becomes the receiver's or is copied through that. Every byte is compared; behind every run
//! all mappings and wires are given back and all frames are free.

use crate::common::far::*;
use crate::common::*;
use crate::inet_endings::hasty;
use crate::inet_page_losses::{is_killed_while_it_receives, receives_into_any_buffer};
use crate::inet_zero_copy::{flips_at_line_rate, receive_patterned, with_source_over, with_talker};
use pageferry_ephemeral::{AccessedRule, EphemeralCounter, Scheme};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_model::net::Wire;
use pageferry_pmap::PmapCounter;

const PAGE: usize = PAGE_SIZE;
/// Two pages behind headers of 52 bytes, as a sender with timestamps has them; and behind 40 bytes.
const MTU: u64 = 8244;
const SHORT_HEADERS_MTU: u64 = 8232;

/// A cache with more buffers than the card has pages.
const LARGE: Scheme = Scheme::Cache { entries: 4096, rule: AccessedRule::Safe };
const SCHEMES: [Scheme; 6] = [
    LARGE,
    Scheme::Cache { entries: 64, rule: AccessedRule::Safe },
    Scheme::Cache { entries: 3, rule: AccessedRule::Safe },
    Scheme::PerProcess { entries: 64, caches: 4 },
    Scheme::Original,
    Scheme::Direct,
];

/// A kernel whose card's pages have ephemeral mappings.
pub(crate) fn mapped(scheme: Scheme) -> KernelConfig {
    with_mappings(internet(), scheme)
}

fn with_mappings(mut config: KernelConfig, scheme: Scheme) -> KernelConfig {
    config.ephemeral.scheme = scheme;
    config.net.as_mut().expect("it has one").receive_mapping = ReceiveMapping::Ephemeral;
    config
}

fn mappings_made(ended: &Ended) -> u64 {
    let made = [
        EphemeralCounter::EphemeralHits,
        EphemeralCounter::EphemeralMisses,
        EphemeralCounter::EphemeralDirect,
    ];
    made.into_iter().map(|counter| ended.counter(counter)).sum()
}

/// On all machines of the paper, and others: every page is flipped at line rate, or copied where that is not asked for.
/// Each page that was received into had one mapping.
#[test]
fn every_page_has_a_mapping_and_is_flipped_or_copied() {
    for (name, native) in [
        ("xeon-up", LARGE),
        ("xeon-htt", LARGE),
        ("xeon-mp", LARGE),
        ("xeon-mp-htt", LARGE),
        ("opteron-mp", Scheme::Direct),
        ("today", Scheme::Direct),
        ("mini-soft", LARGE),
        ("sh7751r", Scheme::Hybrid { entries: 1024 }),
    ] {
        // Another kind of machine may have no direct map.
        let native = if other_kind().is_some() { LARGE } else { native };
        for scheme in [native, Scheme::Original] {
            for flips in [true, false] {
                let what = format!("{name}, {scheme:?}, flips {flips}");
                let (ended, pages) = flips_at_line_rate(name, MTU, true, mapped(scheme), flips, |_| ());
                sound(&ended, &what);
                let flipped = ended.counter(KernelCounter::PagesDonated) as usize;
                assert_eq!(flipped, if flips { pages } else { 0 }, "{what}");
                let received = ended.counter(KernelCounter::ReceivePages);
                assert!(received as usize >= pages, "{what}: {received} pages to receive into");
                assert_eq!(ended.counter(KernelCounter::Clusters), 0, "{what}");
                assert_eq!(mappings_made(&ended), received, "{what}: a mapping a page");
            }
        }
    }
}

/// What the mappings cost differs between kernels, and only that: by the original scheme every CPU is told when a page
/// is mapped and when it is not any more; by the cache next to never.
#[test]
fn a_mapping_costs_invalidations_in_the_original_kernel_only() {
    if other_kind().is_some() {
        return;
    }
    const PAGES: u64 = 256;
    let counts = |name, scheme, flips| {
        let (ended, _) = flips_at_line_rate(name, MTU, true, mapped(scheme), flips, |_| ());
        sound(&ended, name);
        let counts = |counters: &[PmapCounter]| counters.iter().map(|&c| ended.counter(c)).sum::<u64>();
        let received = ended.counter(KernelCounter::ReceivePages);
        let hits = ended.counter(EphemeralCounter::EphemeralHits);
        let local = counts(&[PmapCounter::TlbInvalidationsLocal]);
        let remote = counts(&[PmapCounter::TlbInvalidationsRemoteIssued]);
        (received, hits, local, remote, ended.counter(PmapCounter::ShootdownIpis))
    };
    for (name, others) in
        [("xeon-up", 0), ("xeon-htt", 1), ("xeon-mp", 1), ("xeon-mp-htt", 3), ("opteron-mp", 1)]
    {
        for flips in [true, false] {
            let (received, hits, local, remote, ipis) = counts(name, Scheme::Original, flips);
            assert_eq!(hits, 0, "{name}");
            assert!(local >= 2 * received, "{name}: {local} local invalidations of {received} pages");
            // The first pages are mapped before there is another CPU to tell.
            let told = (received + PAGES) * u64::from(others > 0);
            assert!(
                remote >= told && ipis >= told * others,
                "{name}: {remote} remote, {ipis} interrupts for {received} pages"
            );
            let scheme = if name == "opteron-mp" { Scheme::Direct } else { LARGE };
            let (again, hits, less, _, ipis) = counts(name, scheme, flips);
            assert_eq!(again, received, "{name}: the card is the same");
            assert!(hits > 0 || scheme == Scheme::Direct, "{name}: pages come round again");
            // What is left is of the receiver's own addresses.
            assert!(
                less + 2 * received <= local,
                "{name}: {less} local invalidations, {local} by the original"
            );
            if !flips {
                assert!(ipis <= others, "{name}: {ipis} interrupts, when the buffer goes");
            }
            assert!(ipis < received, "{name}: {ipis} interrupts");
        }
    }
}

/// Whole pages at a page's address are flipped; into anything else the same bytes are copied through the mappings,
/// those of small frames and headers too.
#[test]
fn what_is_not_a_page_for_a_page_is_copied_through_its_mapping() {
    const LEN: usize = 64 * PAGE;
    for (mtu, split, offset, chunk, flips) in [
        (SHORT_HEADERS_MTU, true, 0, 8 * PAGE, true),
        (SHORT_HEADERS_MTU, true, 8, 8 * PAGE, false),
        (SHORT_HEADERS_MTU, true, 2048, 8 * PAGE, false),
        (SHORT_HEADERS_MTU, true, 0, PAGE - 1, false),
        (SHORT_HEADERS_MTU, false, 0, 8 * PAGE, false),
        (4135, true, 0, 8 * PAGE, false),
        (1500, true, 0, 8 * PAGE, false),
        (1500, false, 0, 8 * PAGE, false),
        (300, true, 0, 8 * PAGE, false),
    ] {
        for scheme in SCHEMES {
            for name in ["xeon-mp", "mini-soft"] {
                let what = format!("{name}, {scheme:?}, MTU {mtu}, split {split}, at {offset}, {chunk}");
                let m = with_source_over(Wire::default(), name, mtu, split, LEN as u64);
                let ended =
                    run_on(m, name, &what, mapped(scheme), move |u| receive_patterned(u, offset, chunk, LEN));
                let donated = ended.counter(KernelCounter::PagesDonated);
                assert!(if flips { donated >= 12 } else { donated <= 1 }, "{what}: {donated} pages");
                assert!(ended.counter(KernelCounter::ReceivePages) > 0, "{what}");
            }
        }
    }
}

/// Segments that are lost come again, others wait for them, and some come twice: those that are not wanted give their
/// pages and mappings back.
#[test]
fn pages_go_when_segments_are_lost_doubled_or_late() {
    const LEN: usize = 64 * PAGE;
    for scheme in SCHEMES {
        for seed in 0..6 {
            let wire = Wire {
                seed,
                loss_ppm: 30_000,
                duplicate_ppm: 30_000,
                reorder_ppm: 50_000,
                reorder_ns: 2_000_000,
                corrupt_ppm: 10_000,
                delay_ns: 500_000,
            };
            let m = with_source_over(wire, "xeon-mp", SHORT_HEADERS_MTU, true, LEN as u64);
            let ended = run_on(m, "xeon-mp", &format!("{scheme:?}, {seed}"), mapped(scheme), move |u| {
                receive_patterned(u, 0, 8 * PAGE, LEN);
            });
            assert!(ended.counter(KernelCounter::PagesDonated) > 0, "{scheme:?}");
        }
    }
}

/// Whatever the receiver's pages are, and whoever else has them. A page that is refused, because the receiver's own is
/// locked, keeps its mapping, by which it is copied.
#[test]
fn whatever_a_buffer_is_a_mapped_page_is_taken_over_or_copied() {
    for scheme in [LARGE, Scheme::Original, Scheme::Direct] {
        receives_into_any_buffer("xeon-mp", mapped(scheme));
    }
}

#[test]
fn who_is_killed_leaves_no_mapping_behind() {
    for scheme in [LARGE, Scheme::Cache { entries: 8, rule: AccessedRule::Safe }, Scheme::Original] {
        (0..60).step_by(5).for_each(|seed| is_killed_while_it_receives(with_mappings(hasty(), scheme), seed));
    }
}

/// What nobody has read goes with its connection: closed, reset, or left behind by a process that ends.
#[test]
fn what_is_not_read_gives_its_mappings_back() {
    for scheme in SCHEMES {
        for reset in [false, true] {
            let m = with_talker("xeon-mp", MTU, 64 * PAGE);
            let config = with_mappings(hasty(), scheme);
            let ended = run_on(m, "xeon-mp", &format!("{scheme:?}, reset {reset}"), config, move |u| {
                fork(u, "reader", move |u| {
                    let fd = connected(u, SOURCE);
                    u.set_socket_option(fd, SocketOption::ResetOnClose(reset)).expect("open");
                    let at = map(u, PAGE);
                    assert_eq!(u.receive_transfer(fd, Some(at), PAGE).map(|got| got.len_bytes), Ok(PAGE));
                    u.sleep_for(Cycles(20_000_000)).expect("alive");
                });
                u.wait().expect("the reader");
            });
            assert!(ended.counter(KernelCounter::PacketsReceived) > 4, "{scheme:?}: much more has come");
        }
    }
}

/// A driver that finds no mapping does not wait for one: a cluster stands in, and that is counted. Nor does it take
/// what others wait for: a pipe's reader finds its own mappings in a cache that is far smaller than the card's ring.
#[test]
fn a_cache_that_is_used_up_stops_neither_the_card_nor_others() {
    for (name, entries) in
        [("xeon-mp", 1), ("xeon-mp", 2), ("xeon-mp", 8), ("xeon-up", 64), ("xeon-mp-htt", 64)]
    {
        let (ended, _) = try_pipe_beside_the_card(name, small_cache(entries));
        sound(&ended, &format!("{name}, {entries} entries"));
        let (mapped, refused) =
            (ended.counter(KernelCounter::ReceivePages), ended.counter(KernelCounter::ReceivePagesRefused));
        assert!(refused > 0, "{name}, {entries}: {mapped} pages, {refused} refused");
        assert_eq!(mapped > 0, entries > 1, "{name}, {entries}");
    }
}

/// A kernel with pipes that are read through ephemeral mappings, of which there are few.
pub(crate) fn small_cache(entries: usize) -> KernelConfig {
    let pipes = sf_buf(entries);
    let mut config = mapped(pipes.ephemeral.scheme);
    config.pipe = pipes.pipe;
    config
}

/// Sends through a pipe, then receives; and how many pages it asked for.
pub(crate) fn try_pipe_beside_the_card(name: &'static str, config: KernelConfig) -> (Ended, usize) {
    flips_at_line_rate(name, MTU, true, config, true, |u| {
        const LEN: usize = 64 * PAGE;
        let (from, to) = u.pipe().expect("a pipe");
        let writer = fork(u, "writer", move |u| {
            let at = map(u, 16 * PAGE);
            write_all(u, to, at, 16 * PAGE, 7, LEN);
        });
        u.close(to).expect("open");
        let at = map(u, 16 * PAGE);
        assert!(read_all(u, from, at, 16 * PAGE, usize::MAX) == bytes(7, 0, LEN), "what was written");
        assert_eq!(u.wait(), Ok(writer));
        u.close(from).expect("open");
    })
}

/// Where frames or clusters are short the card has fewer pages, and what comes then is lost and comes again.
#[test]
fn short_memory_loses_frames_and_no_bytes() {
    const LEN: usize = 64 * PAGE;
    for scheme in [LARGE, Scheme::Original] {
        // The card's ring takes 192, and what a connection holds 24.
        for clusters in [216, 240] {
            let mut config = mapped(scheme);
            config.socket.clusters = clusters;
            let m = with_source_over(Wire::default(), "xeon-mp", SHORT_HEADERS_MTU, true, LEN as u64);
            run_on(m, "xeon-mp", &format!("{scheme:?}, {clusters} clusters"), config, move |u| {
                receive_patterned(u, 0, 8 * PAGE, LEN);
            });
        }
        let m = with_source_over(Wire::default(), "xeon-mp", SHORT_HEADERS_MTU, true, LEN as u64);
        run_on(m, "xeon-mp", &format!("{scheme:?}, no frames"), mapped(scheme), move |u| {
            let hoarded = hoard(u, 48);
            receive_patterned(u, 0, 8 * PAGE, LEN);
            u.kernel().vm().free_kernel_pages(hoarded);
        });
    }
}

/// A driver that copies for a card that splits no headers takes such pages for what it copies.
#[test]
fn a_driver_that_copies_has_mapped_pages_too() {
    for scheme in [LARGE, Scheme::Original] {
        let mut config = mapped(scheme);
        config.net.as_mut().expect("it has one").repack = Some(Repack { flushes: false });
        let (ended, pages) = flips_at_line_rate("xeon-mp", MTU, false, config, true, |_| ());
        sound(&ended, &format!("{scheme:?}"));
        assert_eq!(ended.counter(KernelCounter::PagesDonated) as usize, pages, "{scheme:?}");
        assert_eq!(ended.counter(KernelCounter::Clusters), 0, "{scheme:?}");
    }
}

/// In any order of steps: which CPU makes, reads and frees a mapping is up to the seed.
#[test]
fn mappings_are_shared_whatever_the_order_of_steps() {
    const LEN: usize = 24 * PAGE;
    for seed in 0..12 {
        for scheme in [LARGE, Scheme::Cache { entries: 8, rule: AccessedRule::Safe }, Scheme::Original] {
            let config = mapped(scheme);
            let echo = move |u: &U| echo(u, LEN, 4 * PAGE);
            let mut far = far_end(1);
            far.listen(ECHO.port(), pageferry_model::net::smol::Service::Echo);
            let m = machine_with("xeon-mp-htt", Schedule::Seeded(seed), Wire::default(), far);
            run_on(m, "xeon-mp-htt", &format!("{scheme:?}, seed {seed}"), config, echo);
        }
    }
}
