//! Planted defects where pages go through the network: each is caught by what is there for it, and the same program
//! passes without it.

use crate::common::*;
use crate::inet_zero_copy::{flips_at_line_rate, lend_all, over_wire_of};
use pageferry_ephemeral::{AccessedRule, Scheme};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::net::Wire;
use pageferry_vm::VmDefect;

const PAGE: usize = PAGE_SIZE;

/// A kernel that sends pages by mappings of each, with a defect.
fn with(defect: Planted<NetDefect>) -> KernelConfig {
    let mut config = internet();
    (config.socket.lent_mapping, config.socket.loan_bytes) = (LentMapping::Pages, PAGE);
    config.ephemeral.scheme = Scheme::Cache { entries: 64, rule: AccessedRule::Safe };
    let net = config.net.as_mut().expect("it has one");
    (net.defect, net.retransmissions) = (defect, 6);
    config
}

/// What is wrong behind a run, if anything.
pub(crate) fn complaint(ended: &Ended) -> Result<(), String> {
    ended.result.as_ref().map_err(ToString::to_string)?;
    if let Some(stale) = ended.m.stale_uses().first() {
        return Err(stale.to_string());
    }
    ended.kernel.as_ref().expect("it booted").check_quiescent()
}

/// `program` says what is wrong with a kernel and a VM system with a defect, and nothing without.
fn is_caught(
    net: Planted<NetDefect>,
    vm: Option<VmDefect>,
    program: impl Fn(KernelConfig, Option<VmDefect>) -> Result<(), String>,
) {
    assert_eq!(program(with(Planted::NONE), None), Ok(()), "a sound kernel");
    assert!(program(with(net), vm).is_err(), "{net:?}, {vm:?}: not caught");
}

fn plant(u: &U, defect: Option<VmDefect>) {
    u.kernel().vm().plant(defect);
}

/// A process lends pages to a connection and writes to them at once; on a wire that loses, so that they are sent again.
fn lends_and_writes(config: KernelConfig, defect: Option<VmDefect>) -> Result<(), String> {
    const LEN: usize = 40 * PAGE;
    let wire = Wire { delay_ns: 2_000_000, loss_ppm: 20_000, seed: 3, ..Wire::default() };
    let ended = over_wire_of("xeon-mp", config, wire, LEN, move |u, fd| {
        plant(u, defect);
        let at = map(u, 8 * PAGE);
        lend_all(u, fd, at, 8 * PAGE, LEN);
    });
    complaint(&ended.0).and(ended.1)
}

/// A file of a page and a bit is sent by loan, and written to at once.
fn sends_a_file(config: KernelConfig, defect: Option<VmDefect>) -> Result<(), String> {
    const LEN: usize = 9 * PAGE + 123;
    let wire = Wire { delay_ns: 2_000_000, ..Wire::default() };
    let ended = over_wire_of("xeon-mp", config, wire, LEN, move |u, fd| {
        plant(u, defect);
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = u.open("page", flags).expect("made");
        let at = map(u, 16 * PAGE);
        write_all(u, file, at, 16 * PAGE, 5, LEN);
        assert_eq!(u.send_file(fd, file, 0, 16 * PAGE, SendMode::Loan), Ok(LEN));
        u.seek(file, 0).expect("open");
        u.store(at, &vec![0xee; LEN]);
        assert_eq!(u.write(file, at, LEN), Ok(LEN));
        u.truncate(file, 1)
            .and_then(|()| u.close(file))
            .and_then(|()| u.unlink("page"))
            .expect("it is there");
    });
    complaint(&ended.0).and(ended.1)
}

/// A process that watches its loans lends, and waits for them.
fn waits_for_its_pages(config: KernelConfig, _: Option<VmDefect>) -> Result<(), String> {
    let wire = Wire { delay_ns: 50_000_000, ..Wire::default() };
    let ended = over_wire_of("xeon-mp", config, wire, 4 * PAGE, |u, fd| {
        u.watch_loans(true).expect("alive");
        let at = map(u, 4 * PAGE);
        u.store(at, &bytes(5, 0, 4 * PAGE));
        assert_eq!(u.send(fd, at, 4 * PAGE, SendMode::Loan), Ok(4 * PAGE));
        assert!(u.pages_on_loan().expect("it watches") > 0, "nothing is acknowledged yet");
        u.wait_for_loans().expect("they come back");
    });
    complaint(&ended.0).and(ended.1)
}

/// A process lends the same page twice, and gives it up while both are on their way.
fn lends_twice(config: KernelConfig, defect: Option<VmDefect>) -> Result<(), String> {
    let wire = Wire { delay_ns: 2_000_000, ..Wire::default() };
    let ended = over_wire_of("xeon-mp", config, wire, PAGE, move |u, fd| {
        plant(u, defect);
        let (one, other) = u.socket_pair().expect("sockets");
        let at = map(u, PAGE);
        u.store(at, &bytes(5, 0, PAGE));
        assert_eq!(u.send(one, at, PAGE, SendMode::Loan), Ok(PAGE));
        assert_eq!(u.send(fd, at, PAGE, SendMode::Loan), Ok(PAGE));
        u.unmap(at, PAGE).expect("mapped");
        // Whatever frame was freed is used again.
        let used = map(u, 64 * PAGE);
        u.store(used, &vec![0xee; 64 * PAGE]);
        assert!(read_all(u, other, used, PAGE, PAGE) == bytes(5, 0, PAGE), "what was sent");
        u.sleep_for(Cycles(24_000_000)).expect("alive");
        u.store(used, &vec![0xee; 64 * PAGE]);
    });
    complaint(&ended.0).and(ended.1)
}

/// Receives by taking pages over, at line rate; by a driver that copies, if `repack`.
fn flips(mtu: u64, repack: bool) -> impl Fn(KernelConfig, Option<VmDefect>) -> Result<(), String> {
    move |mut config, defect| {
        let net = config.net.as_mut().expect("it has one");
        net.repack = repack.then_some(Repack { flushes: false });
        let (ended, _) = flips_at_line_rate("xeon-mp", mtu, !repack, config, true, move |u| plant(u, defect));
        complaint(&ended)
    }
}

#[test]
fn a_page_of_which_a_part_has_come_is_not_flipped() {
    is_caught(NetDefect::FlipOfPart.into(), None, flips(1500, false));
}

#[test]
fn lenders_are_told_and_not_too_early() {
    is_caught(NetDefect::LenderNotTold.into(), None, waits_for_its_pages);
    is_caught(NetDefect::LenderToldEarly.into(), None, waits_for_its_pages);
}

#[test]
fn mappings_of_lent_pages_are_shared_and_end() {
    is_caught(NetDefect::LentMappingKept.into(), None, lends_and_writes);
    is_caught(NetDefect::LentMappingPrivate.into(), None, lends_and_writes);
}

#[test]
fn what_lies_behind_the_end_of_a_file_is_not_sent() {
    is_caught(NetDefect::FileBeyondEnd.into(), None, sends_a_file);
}

#[test]
fn a_driver_that_copies_puts_all_in_its_place() {
    is_caught(NetDefect::RepackedElsewhere.into(), None, flips(4148, true));
}

#[test]
fn what_is_sent_is_what_was_there() {
    for defect in [VmDefect::LoanWithoutProtect, VmDefect::LoanLeaked] {
        is_caught(Planted::NONE, Some(defect), lends_and_writes);
    }
    is_caught(Planted::NONE, Some(VmDefect::OrphanFreedEarly), lends_twice);
    is_caught(Planted::NONE, Some(VmDefect::LoanLeaked), sends_a_file);
}

#[test]
fn what_a_flip_replaces_goes() {
    is_caught(Planted::NONE, Some(VmDefect::TransferLeaksReplaced), flips(4148, false));
}
