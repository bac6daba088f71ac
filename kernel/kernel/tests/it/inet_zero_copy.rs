//! Pages through the network: what is sent where it lies, and what is received by taking pages over. Every byte is
//! compared with what was there at the time of the call; nothing is held when all is over.

use crate::common::far::*;
use crate::common::*;
use pageferry_ephemeral::{AccessedRule, EphemeralCounter, Scheme};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::config::NicConfig;
use pageferry_model::net::Wire;
use pageferry_model::net::line::{Call, End, LineConfig, LineHost, Speech, Talker};
use pageferry_model::net::smol::{Service, SmolConfig, SmolFarEnd};
use pageferry_model::{Schedule, Sourced};
use std::net::SocketAddrV4;

const PAGE: usize = PAGE_SIZE;
pub(crate) const MAPPINGS: [LentMapping; 3] = [LentMapping::Run, LentMapping::Pages, LentMapping::WhileRead];
const CACHES: [Scheme; 3] = [
    Scheme::Cache { entries: 64, rule: AccessedRule::Safe },
    Scheme::Cache { entries: 3, rule: AccessedRule::Safe },
    Scheme::Original,
];

/// A kernel that comes by addresses of lent pages in such a way.
pub(crate) fn kernel(mapping: LentMapping, scheme: Scheme, offload: bool) -> KernelConfig {
    let mut config = internet();
    (config.socket.lent_mapping, config.ephemeral.scheme) = (mapping, scheme);
    if mapping == LentMapping::Pages {
        // Each page in an mbuf of its own (FreeBSD 5, `socow_setup`).
        config.socket.loan_bytes = PAGE;
    }
    config.net.as_mut().expect("it has one").checksum_offload = offload;
    config
}

/// Every kernel of these tests: mapping, scheme, and whether the card sums.
fn kernels() -> Vec<(LentMapping, Scheme, bool)> {
    let each = |mapping| CACHES.into_iter().chain([Scheme::Direct]).map(move |scheme| (mapping, scheme));
    let all = MAPPINGS.into_iter().flat_map(each);
    all.flat_map(|(mapping, scheme)| [true, false].map(|offload| (mapping, scheme, offload))).collect()
}

fn ephemeral_mappings(ended: &Ended) -> u64 {
    [EphemeralCounter::EphemeralHits, EphemeralCounter::EphemeralMisses]
        .into_iter()
        .map(|c| ended.counter(c))
        .sum()
}

/// Sends stream 5 from memory at `at`, which is written over as soon as each call returns.
pub(crate) fn lend_all(u: &U, fd: Fd, at: Va, chunk: usize, len: usize) {
    let mut done = 0;
    while done < len {
        let part = bytes(5, done, chunk.min(len - done));
        u.store(at, &part);
        let mut sent = 0;
        while sent < part.len() {
            sent += u.send(fd, at + sent, part.len() - sent, SendMode::Loan).expect("the other end is there");
        }
        u.store(at, &vec![0xee; part.len()]);
        done += part.len();
    }
}

/// A far end that takes what comes, and what it must have heard.
fn to_far_end(name: &str, config: KernelConfig, len: usize, send: impl FnOnce(&U, Fd) + 'static) -> Ended {
    over_wire(name, config, Wire::default(), len, send)
}

pub(crate) fn over_wire(
    name: &str,
    config: KernelConfig,
    wire: Wire,
    len: usize,
    send: impl FnOnce(&U, Fd) + 'static,
) -> Ended {
    let what = format!("{:?}, {:?}", config.socket.lent_mapping, config.ephemeral.scheme);
    let (ended, heard) = over_wire_of(name, config, wire, len, send);
    sound(&ended, &what);
    heard.unwrap_or_else(|e| panic!("{what}: {e}"));
    ended
}

/// Sends to an echo over such a wire, and compares what comes back, whatever comes of it; and what was wrong with what
/// the far end heard.
pub(crate) fn over_wire_of(
    name: &str,
    config: KernelConfig,
    wire: Wire,
    len: usize,
    send: impl FnOnce(&U, Fd) + 'static,
) -> (Ended, Result<(), String>) {
    let mut far = far_end(1);
    let echo = far.listen(ECHO.port(), Service::Echo);
    let m = machine_with(name, Schedule::Timed, wire, far);
    let ended = try_run_on(m, name, config, move |u| {
        let fd = connected(u, ECHO);
        let reader = fork(u, "reader", move |u| {
            let at = map(u, 4 * PAGE);
            assert!(read_all(u, fd, at, 4 * PAGE, usize::MAX) == bytes(5, 0, len), "what comes back");
        });
        send(u, fd);
        u.shutdown(fd, Shutdown::Send).expect("connected");
        assert_eq!(u.wait().ok(), Some(reader));
        u.close(fd).expect("open");
    });
    let heard = echo.all().iter().map(|talk| talk.received).sum::<u64>();
    let right = if heard == len as u64 { Ok(()) } else { Err(format!("{heard} bytes of {len} were heard")) };
    (ended, right)
}

#[test]
fn pages_of_a_process_go_out_where_they_lie() {
    const LEN: usize = 200_000;
    for (mapping, scheme, offload) in kernels() {
        for name in ["xeon-mp", "opteron-mp"] {
            let ended = to_far_end(name, kernel(mapping, scheme, offload), LEN, |u, fd| {
                let at = map(u, 9 * PAGE);
                lend_all(u, fd, at + 100, 8 * PAGE, LEN);
            });
            let lent = ended.counter(KernelCounter::PagesLent);
            let refused = ended.counter(KernelCounter::LoansRefused);
            assert!(
                lent + refused >= 30,
                "{lent} pages are lent, {refused} loans refused: {mapping:?}, {scheme:?}"
            );
            if matches!(scheme, Scheme::Cache { entries: 64, .. }) && other_kind().is_none() {
                let mapped = ephemeral_mappings(&ended);
                match (mapping, offload) {
                    (LentMapping::Run, _) | (LentMapping::WhileRead, true) => {
                        assert_eq!(mapped, 0, "{mapping:?}")
                    }
                    (LentMapping::Pages, _) => assert_eq!(mapped, lent, "one a page"),
                    (LentMapping::WhileRead, false) => assert!(mapped >= lent, "each sum takes one"),
                }
            }
        }
    }
}

/// The way back and forth on loopback: the receiver copies out of the pages that were lent, or has them lent on.
#[test]
fn pages_that_are_lent_over_loopback_are_read_or_lent_on() {
    const LEN: usize = 150_000;
    for (mapping, scheme, _) in kernels().into_iter().filter(|(_, _, offload)| *offload) {
        for transfers in [false, true] {
            let config = kernel(mapping, scheme, true);
            let ended = run("xeon-mp", Schedule::Timed, config, move |u| {
                let listening = our_server(u, 1);
                fork(u, "receiver", move |u| {
                    let (fd, _) = u.accept(listening).expect("a connection");
                    let at = map(u, 16 * PAGE);
                    let mut heard = Vec::new();
                    loop {
                        let got = match transfers {
                            true => u.receive_transfer(fd, Some(at), 16 * PAGE).expect("connected").len_bytes,
                            false => u.read(fd, at, 16 * PAGE).expect("connected"),
                        };
                        let mut part = vec![0; got];
                        u.load(at, &mut part);
                        heard.extend(part);
                        if got == 0 {
                            break;
                        }
                    }
                    assert!(heard == bytes(5, 0, LEN), "what was sent");
                });
                let fd = connected(u, SocketAddrV4::new(LOCALHOST, OUR_PORT));
                let at = map(u, 8 * PAGE);
                lend_all(u, fd, at, 8 * PAGE, LEN);
                u.close(fd).expect("open");
                u.wait().expect("the receiver");
            });
            assert!(ended.counter(KernelCounter::PagesLent) > 0, "{mapping:?}, {scheme:?}");
        }
    }
}

/// A file goes out where it lies. What is written to it, or cut from it, meanwhile is not what is sent.
#[test]
fn a_file_goes_out_where_it_lies() {
    const LEN: usize = 40 * PAGE + 123;
    for (mapping, scheme, offload) in kernels() {
        let ended = to_far_end("xeon-mp", kernel(mapping, scheme, offload), LEN, |u, fd| {
            let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
            let file = u.open("page", flags).expect("made");
            let at = map(u, 16 * PAGE);
            write_all(u, file, at, 16 * PAGE, 5, LEN);
            let mut sent = 0;
            while sent < LEN {
                let max_bytes = (7 * PAGE + 50).min(LEN - sent);
                let now = u.send_file(fd, file, sent as u64, max_bytes, SendMode::Loan).expect("connected");
                assert_eq!(now, max_bytes);
                // What was sent may still wait for its acknowledgement.
                u.seek(file, sent as u64).expect("open");
                u.store(at, &vec![0xee; now]);
                let mut written = 0;
                while written < now {
                    written += u.write(file, at, now - written).expect("there is room");
                }
                sent += now;
                u.truncate(file, sent as u64).and_then(|()| u.truncate(file, LEN as u64)).expect("open");
                u.seek(file, sent as u64).expect("open");
                for from in (sent..LEN).step_by(16 * PAGE) {
                    let part = bytes(5, from, (16 * PAGE).min(LEN - from));
                    u.store(at, &part);
                    assert_eq!(u.write(file, at, part.len()), Ok(part.len()));
                }
            }
            u.close(file).and_then(|()| u.unlink("page")).expect("it is there");
        });
        assert!(ended.counter(KernelCounter::PagesLent) >= 30, "{}", ended.counter(KernelCounter::PagesLent));
    }
}

/// The sender of pages is told when they are back: not before the other end has acknowledged them.
#[test]
fn a_sender_learns_when_its_pages_are_back() {
    for mapping in MAPPINGS {
        let wire = Wire { delay_ns: 50_000_000, ..Wire::default() };
        over_wire("xeon-mp", kernel(mapping, CACHES[0], true), wire, 8 * PAGE, |u, fd| {
            u.watch_loans(true).expect("alive");
            let at = map(u, 8 * PAGE);
            u.store(at, &bytes(5, 0, 8 * PAGE));
            assert_eq!(u.send(fd, at, 8 * PAGE, SendMode::Loan), Ok(8 * PAGE));
            assert!(u.pages_on_loan().expect("it watches") > 0, "nothing is acknowledged yet");
            u.wait_for_loans().expect("they come back");
            assert_eq!(u.pages_on_loan(), Ok(0));
        });
    }
}

/// A process that ends, or is killed, with pages on loan to a connection that goes on.
#[test]
fn lent_pages_outlive_their_process_and_their_connection() {
    for (mapping, scheme, offload) in kernels() {
        for delay_ns in [0, 3_000_000] {
            let mut far = far_end(1);
            far.listen(DISCARD.port(), Service::Discard);
            let wire = Wire { delay_ns, loss_ppm: 50_000, seed: 5, ..Wire::default() };
            let m = machine_with("xeon-mp", Schedule::Timed, wire, far);
            run_on(m, "xeon-mp", "lent", kernel(mapping, scheme, offload), move |u| {
                for reset in [false, true] {
                    fork(u, "sender", move |u| {
                        let fd = connected(u, DISCARD);
                        u.set_socket_option(fd, SocketOption::ResetOnClose(reset)).expect("open");
                        let at = map(u, 8 * PAGE);
                        u.store(at, &bytes(5, 0, 8 * PAGE));
                        let _ = u.send(fd, at, 8 * PAGE, SendMode::Loan);
                    });
                }
                u.wait().and_then(|_| u.wait()).expect("the senders");
            });
        }
    }
}

// ---------------------------------------------------------------------------------------------------- receiving

/// A machine with such an MTU, and a source at the far end of its wire.
fn with_source(name: &str, mtu: u64, split: bool, len: u64) -> pageferry_model::Model {
    with_source_over(Wire::default(), name, mtu, split, len)
}

/// As [`with_source`], over such a wire.
pub(crate) fn with_source_over(
    wire: Wire,
    name: &str,
    mtu: u64,
    split: bool,
    len: u64,
) -> pageferry_model::Model {
    with_source_and_ring(wire, name, mtu, split, len, None)
}

/// As [`with_source_over`], with a card that has so few descriptors for receiving.
pub(crate) fn with_source_and_ring(
    wire: Wire,
    name: &str,
    mtu: u64,
    split: bool,
    len: u64,
    receive_slots: Option<u64>,
) -> pageferry_model::Model {
    with_source_by(wire, name, len, |nic| {
        if let Some(slots) = receive_slots {
            nic.receive_slots = Sourced::assumed(slots, "a test's");
        }
        nic.mtu_bytes = Sourced::assumed(mtu, "a test's");
        nic.header_split = Sourced::assumed(split, "a test's");
    })
}

/// A machine with such a card, and a source at the far end of such a wire, with frames of the same size.
pub(crate) fn with_source_by(
    wire: Wire,
    name: &str,
    len: u64,
    card: impl FnOnce(&mut NicConfig),
) -> pageferry_model::Model {
    let mut mtu_bytes = 0;
    let m = machine_by(name, Schedule::Timed, |config| {
        let nic = config.nic.as_mut().expect("it has a card");
        card(nic);
        mtu_bytes = nic.mtu_bytes.value as usize;
    });
    let config = SmolConfig { ip: FAR_ADDRESS, seed: 1, mtu_bytes, ..SmolConfig::default() };
    let mut far = SmolFarEnd::new(config);
    far.listen(SOURCE.port(), Service::Source(len));
    m.attach_over(wire, Box::new(far));
    m
}

/// Receives all that the source sends by transfer, so many bytes at a time, `offset` bytes behind a page boundary.
pub(crate) fn receive_patterned(u: &U, offset: usize, chunk: usize, len: usize) {
    let fd = connected(u, SOURCE);
    let area = map(u, chunk.next_multiple_of(PAGE) + PAGE);
    u.store(area, &vec![0xdd; chunk.next_multiple_of(PAGE) + PAGE]);
    let mut heard = Vec::new();
    loop {
        let got = u.receive_transfer(fd, Some(area + offset), chunk).expect("connected");
        let mut part = vec![0; got.len_bytes];
        u.load(area + offset, &mut part);
        heard.extend(part);
        if got.len_bytes == 0 {
            break;
        }
    }
    assert!(heard == patterned(len), "what was sent");
    u.close(fd).expect("open");
}

/// By conditions the card's page becomes the receiver's (page-flip paper; checklist F.10): split headers, a payload of
/// whole pages, a buffer of whole pages on a page. Else it is copied; and every byte is right either way.
#[test]
fn full_pages_from_the_card_become_the_receivers() {
    const LEN: usize = 64 * PAGE;
    // Headers of 40 bytes.
    for (mtu, split, offset, chunk, flips) in [
        (4136, true, 0, 8 * PAGE, true),
        (8232, true, 0, 8 * PAGE, true),
        (8232, true, 0, PAGE, true),
        (4136, false, 0, 8 * PAGE, false),
        (4136, true, 8, 8 * PAGE, false),
        (4136, true, 0, PAGE - 1, false),
        (4135, true, 0, 8 * PAGE, false),
        (1500, true, 0, 8 * PAGE, false),
    ] {
        for name in ["xeon-mp", "today", "mini-soft"] {
            let m = with_source(name, mtu, split, LEN as u64);
            let what = format!("MTU {mtu}, split {split}, at {offset}, {chunk}");
            let ended = run_on(m, name, &what, internet(), move |u| receive_patterned(u, offset, chunk, LEN));
            let donated = ended.counter(KernelCounter::PagesDonated);
            match flips {
                true => assert!(donated >= 12, "{what}, {name}: {donated} pages"),
                // A stream whose segments are no pages may still fall on one now and then, but not with a header in
                // front.
                false => assert!(donated <= 1, "{what}, {name}: {donated} pages"),
            }
        }
    }
}

/// Says so many bytes of stream 5 to whom connects, and hears nothing. Each connection is to end well, unless it
/// `may_break`.
struct Says {
    len: usize,
    may_break: bool,
}

impl Talker for Says {
    fn accepts(&mut self, _: u64, _: u16) -> Option<Speech> {
        Some(Speech::of(bytes(5, 0, self.len), true))
    }
    fn calls(&mut self, _: u64, _: u64) -> Option<Call> {
        None
    }
    fn next_call_at(&mut self, _: u64) -> Option<u64> {
        None
    }
    fn hears(&mut self, _: u64, _: u64, _: u64, _: &[u8]) {}
    fn ended(&mut self, _: u64, _: u64, how: End) {
        assert!(how == End::Closed || self.may_break, "{how:?}");
    }
}

/// A machine with such frames and a card that splits headers, and a host of infinite speed that says `len` bytes of
/// stream 5.
pub(crate) fn with_talker(name: &str, mtu: u64, len: usize) -> pageferry_model::Model {
    talker_of(name, mtu, true, Says { len, may_break: true })
}

/// As [`with_talker`], with a card that has so few descriptors for receiving.
pub(crate) fn with_talker_and_ring(name: &str, mtu: u64, len: usize, slots: u64) -> pageferry_model::Model {
    talker_by(name, mtu, true, Says { len, may_break: true }, Some(slots))
}

fn talker_of(name: &str, mtu: u64, split: bool, says: Says) -> pageferry_model::Model {
    talker_by(name, mtu, split, says, None)
}

fn talker_by(
    name: &str,
    mtu: u64,
    split: bool,
    says: Says,
    receive_slots: Option<u64>,
) -> pageferry_model::Model {
    let m = machine_by(name, Schedule::Timed, |config| {
        let nic = config.nic.as_mut().expect("it has a card");
        if let Some(slots) = receive_slots {
            nic.receive_slots = Sourced::assumed(slots, "a test's");
        }
        nic.mtu_bytes = Sourced::assumed(mtu, "a test's");
        nic.header_split = Sourced::assumed(split, "a test's");
    });
    let far = LineConfig { ip: FAR_ADDRESS, mtu_bytes: mtu as usize, ..LineConfig::default() };
    m.attach(Box::new(LineHost::new(far, says)));
    m
}

/// Receives all of it from a host of infinite speed, by flips or copies; how many pages were flipped.
fn at_line_rate(name: &'static str, mtu: u64, split: bool, repack: Option<Repack>, flips: bool) -> usize {
    let mut config = internet();
    config.net.as_mut().expect("it has one").repack = repack;
    let (ended, pages) = flips_at_line_rate(name, mtu, split, config, flips, |_| ());
    sound(&ended, &format!("{name}, MTU {mtu}, {repack:?}"));
    let flipped = ended.counter(KernelCounter::PagesDonated) as usize;
    assert!(flipped == 0 || flipped == pages, "{name}, MTU {mtu}: {flipped} pages");
    flipped
}

/// The same, whatever comes of it, with something done first; and of how many pages it is.
pub(crate) fn flips_at_line_rate(
    name: &'static str,
    mtu: u64,
    split: bool,
    config: KernelConfig,
    flips: bool,
    first: impl FnOnce(&U) + 'static,
) -> (Ended, usize) {
    const LEN: usize = 256 * PAGE;
    let m = talker_of(name, mtu, split, Says { len: LEN, may_break: false });
    let ended = try_run_on(m, name, config, move |u| {
        first(u);
        let fd = connected(u, SOURCE);
        let at = map(u, 8 * PAGE);
        u.store(at, &vec![0xdd; 8 * PAGE]);
        let mut heard = 0;
        while heard < LEN {
            let len = match flips {
                true => u.receive_transfer(fd, Some(at), 8 * PAGE).expect("connected").len_bytes,
                false => u.read(fd, at, 8 * PAGE).expect("connected"),
            };
            let mut part = vec![0; len];
            u.load(at, &mut part);
            assert!(part == bytes(5, heard, len), "at {heard}");
            heard += len;
        }
        assert_eq!(u.read(fd, at, 1), Ok(0), "it has said all");
        u.close(fd).expect("open");
    });
    (ended, LEN / PAGE)
}

/// With payloads of whole pages, as a sender with timestamps has at these MTUs, every page becomes the receiver's; a
/// receiver that copies gets the same. A driver that copies does for the card what that cannot.
#[test]
fn at_line_rate_every_page_is_flipped() {
    let machines =
        [(4148, "xeon-mp"), (8244, "xeon-mp"), (8244, "today"), (4148, "mini-soft"), (8244, "mini-hash:2")];
    for (mtu, name) in machines {
        assert!(at_line_rate(name, mtu, true, None, true) > 0, "{name}, MTU {mtu}");
        assert_eq!(at_line_rate(name, mtu, true, None, false), 0);
        assert_eq!(at_line_rate(name, mtu, false, None, true), 0);
        for flushes in [false, true] {
            assert!(at_line_rate(name, mtu, false, Some(Repack { flushes }), true) > 0, "{name}, MTU {mtu}");
        }
    }
}
