//! Who gets leases and who does not.

use super::*;

#[test]
fn slots_come_in_as_many_packets_as_they_need() {
    let Some(_alone) = alone() else { return };
    for slots in [1, 7, 8, 9, 20, 256] {
        let config = config().slots(slots).slot_bytes(1);
        let (tx, rx) = Channel::pair(config).unwrap();
        let lent: Vec<_> = (0..slots.min(60)).map(|n| tx.loan(filled(&tx, 10, n as u8)).unwrap()).collect();
        for n in 0..slots.min(60) {
            assert!(all(&rx.recv().unwrap(), n as u8));
        }
        lent.into_iter().for_each(|lent| drop(lent.wait().unwrap()));
    }
}

#[test]
fn more_slots_than_leases_are_for_have_none() {
    let Some(_alone) = alone() else { return };
    let error = Channel::pair(config().slots(257).slot_bytes(1)).unwrap_err();
    assert!(matches!(error, Error::Host(HostFault::Unsupported { .. })), "{error}");
    let (tx, _rx) = Channel::pair(config().level(Level::Leased).slots(257).slot_bytes(1)).unwrap();
    assert_eq!(tx.level(), Level::Copy);
}

#[test]
fn a_peer_that_may_be_hostile_gets_none_and_the_pool_takes_their_place() {
    let Some(_alone) = alone() else { return };
    let (ours, theirs) = Channel::sockets().unwrap();
    std::thread::scope(|scope| {
        // SAFETY: the receiver is this test.
        let sender = scope.spawn(move || unsafe {
            Channel::trusted_sender(ours, Config::new().slots(4).slot_bytes(LEN).level(Level::Leased))
        });
        let rx = Channel::receiver(theirs, Config::new()).unwrap();
        let tx = sender.join().unwrap().unwrap();
        assert_eq!((tx.level(), rx.level()), (Level::Copy, Level::Copy));
        assert_eq!(tx.huge_pages(), Channel::pair(Config::new()).unwrap().0.huge_pages());
        let lent = tx.loan(filled(&tx, 3_000_000, 7)).unwrap();
        let message = rx.recv().unwrap();
        assert!(all(&message, 7) && message.level() == Level::Copy);
        drop(lent.wait().unwrap());
    });
}

#[test]
fn a_sender_that_trusts_nobody_offers_none() {
    let Some(_alone) = alone() else { return };
    let (ours, _theirs) = Channel::sockets().unwrap();
    let error = Channel::sender(ours, config()).unwrap_err();
    assert!(matches!(&error, Error::Usage(Usage::Verb(what)) if what.contains("trust")), "{error}");
}

#[test]
fn a_receiver_that_requires_leases_refuses_a_sender_without() {
    let Some(_alone) = alone() else { return };
    let (ours, theirs) = Channel::sockets().unwrap();
    std::thread::scope(|scope| {
        // SAFETY: the receiver is this test.
        let sender = scope.spawn(move || unsafe { Channel::trusted_sender(ours, Config::new()) });
        // SAFETY: the sender is this test.
        let error = unsafe { Channel::trusted_receiver(theirs, config()) }.unwrap_err();
        assert!(matches!(&error, Error::Peer(PeerFault::Unfit(_))), "{error}");
        let told = sender.join().unwrap().unwrap_err();
        assert_eq!(told, Error::Peer(PeerFault::Refused(error.to_string())));
    });
}

#[test]
fn a_fan_out_has_none() {
    let Some(_alone) = alone() else { return };
    let slow = Slow::Wait(std::time::Duration::from_secs(60));
    assert!(matches!(Fanout::new(config(), slow), Err(Error::Usage(Usage::Verb(_)))));
}

#[test]
fn a_pool_that_is_larger_than_the_budget_is_refused() {
    let Some(_alone) = alone() else { return };
    let (ours, theirs) = Channel::sockets().unwrap();
    std::thread::scope(|scope| {
        // SAFETY: the receiver is this test.
        let sender = scope.spawn(move || unsafe { Channel::trusted_sender(ours, config()) });
        // SAFETY: the sender is this test.
        let small = unsafe { Channel::trusted_receiver(theirs, Config::new().budget(3 * LEN as u64)) };
        assert!(matches!(small.unwrap_err(), Error::Budget { .. }));
        assert!(matches!(sender.join().unwrap().unwrap_err(), Error::Peer(PeerFault::Refused(_))));
    });
}
