//! Ends that never wait, and what is handed on.

use pageferry::*;

fn config() -> Config {
    Config::new().slots(2).slot_bytes(2 << 20)
}

#[test]
fn whoever_only_polls_sees_that_the_peer_is_gone() {
    let (tx, rx) = Channel::pair(config()).unwrap();
    assert_eq!(rx.try_recv().unwrap_err(), Error::WouldBlock);
    drop(tx);
    assert_eq!(rx.try_recv().unwrap_err(), Error::Peer(PeerFault::Dead));

    let (tx, rx) = Channel::pair(config()).unwrap();
    let lent = tx.loan(tx.buffer(3 << 20).unwrap()).unwrap();
    assert!(!lent.is_home().unwrap());
    assert_eq!(tx.try_buffer(1).unwrap_err(), Error::WouldBlock);
    drop(rx);
    assert_eq!(tx.try_buffer(1).unwrap_err(), Error::Peer(PeerFault::Dead));
    assert!(lent.is_home().unwrap(), "nobody can have it any more");
    assert_eq!(lent.wait().unwrap().len(), 3 << 20);
}

#[test]
fn a_loan_token_that_is_only_asked_sees_that_the_peer_is_gone() {
    for level in [Level::Typed, Level::Mmu, Level::Sealed] {
        // Where a level is not to be had, loans are copies, which nobody holds.
        let Ok((tx, rx)) = Channel::pair(config().require_level(level)) else { continue };
        let lent = tx.loan(tx.buffer(1).unwrap()).unwrap();
        let loan = rx.recv().unwrap();
        drop(rx);
        assert!(!lent.is_home().unwrap(), "{level}: the loan is still held");
        drop(loan);
        assert!(lent.is_home().unwrap(), "{level}");
    }
}

#[test]
fn a_buffer_of_a_sealed_channel_is_copied_by_copy_only_and_nothing_is_sent() {
    let (tx, rx) = Channel::pair(config().require_level(Level::Sealed)).unwrap();
    let error = tx.copy_buffer(tx.buffer(10).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Usage(Usage::Verb(_))), "{error}");
    assert_eq!(rx.try_recv().unwrap_err(), Error::WouldBlock);
    assert_eq!(tx.counters().sent, 0);
}

#[test]
fn sealed_memory_is_handed_on_by_copy_where_the_channel_does_not_take_it() {
    let (tx, rx) = Channel::pair(config().require_level(Level::Sealed)).unwrap();
    let (next, last) = Channel::pair(config()).unwrap();
    let mut buffer = tx.buffer(100_000).unwrap();
    buffer.fill(5);
    let _lent = tx.loan_tagged(buffer, 8).unwrap();
    next.forward(&rx.recv().unwrap()).unwrap();
    let loan = last.recv().unwrap();
    assert_eq!((loan.verb(), loan.tag(), loan.len()), (Verb::Copy, 8, 100_000));
    assert!(loan.iter().all(|&byte| byte == 5));
}
