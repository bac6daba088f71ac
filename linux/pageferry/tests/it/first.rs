use pageferry::*;
use pageferry_untested::untested;
use std::time::Duration;

fn config() -> Config {
    Config::new().slots(4).slot_bytes(2 << 20)
}

#[test]
fn a_loan_is_a_snapshot_and_comes_home() {
    if !mmu_here() {
        return;
    }
    let (tx, rx) = Channel::pair(config()).unwrap();
    assert_eq!(tx.level(), Level::Mmu);
    for round in 0..20u8 {
        let mut buffer = tx.buffer(3_000_000).unwrap();
        buffer.fill(round);
        let lent = tx.loan(buffer).unwrap();
        let mut loan = rx.recv().unwrap();
        assert!(loan.iter().all(|&b| b == round));
        assert_eq!((loan.verb(), loan.level(), loan.len()), (Verb::Loan, Level::Mmu, 3_000_000));
        loan.as_mut().unwrap()[5] = 99;
        assert_eq!(lent[5], round);
        assert!(!lent.is_home().unwrap());
        drop(loan);
        let buffer = lent.wait().unwrap();
        assert_eq!(buffer[5], round);
    }
    if has("PAGEMAP_SCAN") {
        assert_eq!(tx.counters().pages_written, 20);
    }
}

/// Whether this host has what [`host::Host::items`] calls so; says so where it has not, and what needs it is not
/// tested.
pub(crate) fn has(name: &str) -> bool {
    let items = host::Host::get().items();
    let item = items.iter().find(|item| item.name == name).expect("an item has that name");
    let has = item.verdict == host::Verdict::Good;
    if !has {
        untested(name, &item.found);
    }
    has
}

/// Whether this host can freeze memory; says so where it cannot, and the test is of what it lacks.
pub(crate) fn mmu_here() -> bool {
    let here = Channel::pair(config()).unwrap().0.level() == Level::Mmu;
    if !here {
        untested("what level mmu promises", "it is not to be had");
    }
    here
}

#[test]
fn all_verbs() {
    let (tx, rx) = Channel::pair(config()).unwrap();
    tx.copy(b"hello").unwrap();
    assert_eq!(&*rx.recv().unwrap(), b"hello");
    tx.copy(&[7; 100_000]).unwrap();
    assert_eq!(&*rx.recv().unwrap(), &[7; 100_000]);
    let mut b = tx.buffer(10).unwrap();
    b.write_from(b"0123456789").unwrap();
    tx.donate(b).unwrap();
    let mut d = rx.recv().unwrap();
    assert_eq!(&*d, b"0123456789");
    d.as_mut().unwrap()[0] = b'x';
    drop(d);
    let mut b = tx.buffer(10).unwrap();
    assert_eq!(&*b, b"x123456789");
    b.write_from(b"zero").unwrap();
    if has("alias") {
        let z = tx.donate_zero(b).unwrap();
        assert_eq!(&*z, &[0; 4]);
        assert_eq!(&*rx.recv().unwrap(), b"zero");
        drop(z);
    } else {
        assert!(matches!(tx.donate_zero(b), Err(Error::Host(HostFault::Unsupported { .. }))));
    }
    let mut s = tx.share(tx.buffer(4).unwrap()).unwrap();
    let Message::Shared(m) = rx.recv_message().unwrap() else { panic!() };
    s.copy_from_slice(b"abcd");
    let mut got = [0; 4];
    m.read_at(0, &mut got).unwrap();
    assert_eq!(&got, b"abcd");
    drop(m);
    s.wait().unwrap();
    assert!(matches!(rx.recv_timeout(Duration::from_millis(5)), Err(Error::TimedOut(_))));
    drop(tx);
    assert!(matches!(rx.recv(), Err(Error::Peer(PeerFault::Dead))));
}

#[test]
fn sealed() {
    let (tx, rx) = Channel::pair(config().require_level(Level::Sealed)).unwrap();
    let mut b = tx.buffer(3_000_000).unwrap();
    b.fill(3);
    let lent = tx.loan(b).unwrap();
    let again = tx.resend(&lent).unwrap();
    let mut a = rx.recv().unwrap();
    let c = rx.recv().unwrap();
    assert!(a.iter().chain(c.iter()).all(|&b| b == 3));
    a.as_mut().unwrap()[0] = 4;
    assert_eq!((a[0], c[0], lent[0]), (4, 3, 3));
    drop((a, c));
    assert!(again.is_home().unwrap());
    // The buffer that comes back is another one, with the same bytes.
    assert!(lent.wait().unwrap().iter().all(|&b| b == 3));
}

#[test]
fn what_is_lent_again_is_what_was_lent() {
    for level in [Level::Mmu, Level::Typed, Level::Sealed] {
        if level == Level::Mmu && !mmu_here() {
            continue;
        }
        let (tx, rx) = Channel::pair(config().require_level(level)).unwrap();
        let mut buffer = tx.buffer(3_000_000).unwrap();
        buffer.fill(5);
        let mut lent = tx.loan(buffer).unwrap();
        for _ in 0..10 {
            let mut loan = rx.recv().unwrap();
            assert!(loan.iter().all(|&byte| byte == 5));
            if level != Level::Typed {
                loan.as_mut().unwrap().fill(6);
            }
            drop(loan);
            lent = tx.loan_again(lent).unwrap();
        }
        drop(rx.recv().unwrap());
        let mut buffer = lent.wait().unwrap();
        assert!(buffer.iter().all(|&byte| byte == 5));
        buffer.fill(7);
        let lent = tx.loan(buffer).unwrap();
        assert!(rx.recv().unwrap().iter().all(|&byte| byte == 7));
        drop(lent);
    }
}

#[test]
fn a_store_to_what_is_sealed_misses_it() {
    let sealed = config().require_level(Level::Sealed).copy_on_write(true);
    let Ok((tx, rx)) = Channel::pair(sealed) else { return };
    let mut buffer = tx.buffer(3_000_000).unwrap();
    buffer.fill(1);
    let at = buffer.as_mut_ptr();
    let lent = tx.loan(buffer).unwrap();
    assert!(!has("PAGEMAP_SCAN") || !lent.is_written().unwrap());
    // SAFETY: mapped, privately; nothing here has a reference to that byte.
    unsafe { at.add(2_500_000).write_volatile(9) };
    assert!(lent.is_written().unwrap());
    let again = tx.resend(&lent).unwrap();
    for _ in 0..2 {
        assert!(rx.recv().unwrap().iter().all(|&byte| byte == 1), "the store is in the message");
    }
    drop(again);
    assert!(lent.wait().unwrap().iter().all(|&byte| byte == 1), "what was sent comes back");
}

#[test]
fn a_store_to_what_is_lent_is_noticed() {
    if !mmu_here() || !has("PAGEMAP_SCAN") {
        return;
    }
    let (tx, rx) = Channel::pair(config().copy_on_write(true)).unwrap();
    let mut buffer = tx.buffer(3_000_000).unwrap();
    buffer.fill(1);
    let at = buffer.as_mut_ptr();
    let lent = tx.loan(buffer).unwrap();
    assert!(!lent.is_written().unwrap());
    // SAFETY: mapped, privately; nothing here has a reference to that byte.
    unsafe { at.add(2_500_000).write_volatile(9) };
    assert!(lent.is_written().unwrap());
    assert_eq!(rx.recv().unwrap()[2_500_000], 1);
    // Safe code has no such stores, and where they are faults there are none to be noticed.
    let (tx, _rx) = Channel::pair(config()).unwrap();
    assert!(!tx.loan(tx.buffer(10).unwrap()).unwrap().is_written().unwrap());
}

#[test]
fn a_message_is_put_together_piece_by_piece() {
    let (tx, rx) = Channel::pair(config()).unwrap();
    let mut buffer = tx.buffer(200_000).unwrap();
    buffer.write_at(0, b"head").unwrap();
    buffer.write_at(64, &[7; 100_000]).unwrap();
    assert_eq!(buffer.len(), 200_000);
    for (offset, len) in [(199_999, 2), (200_000, 1), (usize::MAX, 1), (usize::MAX - 99, 100)] {
        let error = buffer.write_at(offset, &vec![0; len]).unwrap_err();
        assert!(matches!(error, Error::Usage(Usage::TooLong { pool: 200_000, .. })), "{error}");
    }
    drop(tx.loan(buffer).unwrap());
    let loan = rx.recv().unwrap();
    assert_eq!((&loan[..4], loan[63], loan[64], loan[100_063]), (&b"head"[..], 0, 7, 7));
}

#[test]
fn room_in_the_ring_is_waited_for_without_a_buffer() {
    let (tx, rx) = Channel::pair(config().capacity(2)).unwrap();
    tx.wait_room(Duration::ZERO).unwrap();
    tx.copy(b"a").unwrap();
    tx.copy(b"b").unwrap();
    assert!(matches!(tx.wait_room(Duration::from_millis(1)), Err(Error::TimedOut(_))));
    drop(rx.recv().unwrap());
    tx.wait_room(Duration::ZERO).unwrap();
    tx.copy(b"c").unwrap();
    drop(rx);
    assert!(matches!(tx.wait_room(Duration::from_secs(120)), Err(Error::Peer(PeerFault::Dead))));
}

#[test]
fn what_cannot_be_sent_comes_back_where_it_was() {
    let (tx, rx) = Channel::pair(config()).unwrap();
    let mut buffers: Vec<_> = (1..=3u8).map(|fill| (fill, tx.buffer(1_000_000).unwrap())).collect();
    for (fill, buffer) in &mut buffers {
        buffer.fill(*fill);
    }
    let last = tx.loan(tx.buffer(1).unwrap()).unwrap();
    drop(rx);
    // It comes home, for the receiver is gone: from then on that is known.
    last.wait().unwrap();
    for (fill, buffer) in buffers {
        let at = buffer.as_ptr();
        let (error, mut buffer) = match fill {
            1 => tx.loan_or_return(buffer, 7).unwrap_err(),
            2 if has("alias") => tx.donate_zero_or_return(buffer, 7).unwrap_err(),
            _ => tx.share_or_return(buffer, 7).unwrap_err(),
        };
        assert_eq!(error, Error::Peer(PeerFault::Dead));
        assert_eq!((buffer.as_ptr(), buffer[999_999]), (at, fill));
        buffer[0] = 9;
    }
}
