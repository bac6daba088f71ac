//! Handshakes that come to nothing: both sides learn why, and who is to blame.

use crate::pitfalls::{alone, peer};
use pageferry::*;
use pageferry_untested::untested;
use peer::{HELLO, Plan, REFUSE, SETTLED, WELCOME};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

type Lie = fn(&mut [u8; 56]);

/// Peers that are no peers for this side, and what both sides say of them.
const UNFIT: [(&str, Lie); 3] = [
    ("no version in common: 9 to 9 there, 1 here", |g| g[10..14].copy_from_slice(&[9, 0, 9, 0])),
    ("another machine: ELF number 8 ", |g| g[14] = 8),
    ("with pages of 65536 bytes there", |g| g[16..20].copy_from_slice(&65536u32.to_ne_bytes())),
];

/// What the library's end refuses with, as the raw peer hears it.
fn refusal(socket: &OwnedFd) -> String {
    loop {
        let (bytes, _) = peer::recv(socket);
        assert!(!bytes.is_empty(), "it is gone, and has not said why");
        if bytes[8] == REFUSE {
            return String::from_utf8(bytes[56..].to_vec()).unwrap();
        }
    }
}

fn config() -> Config {
    Config::new().slots(1).slot_bytes(1)
}

/// A receiver that hears a greeting, and what it made of that.
fn greeted(bytes: &[u8], config: Config) -> (Error, String) {
    let (ours, theirs) = peer::sockets();
    let plan = Plan::honest(Level::Sealed);
    let (ring, _) = peer::memfd(plan.forward_bytes(), 4096, plan.ring_seals);
    let (pool, _) = peer::memfd(plan.pool_bytes(), 4096, plan.pool_seals);
    peer::send(&ours, bytes, &[ring.as_fd(), pool.as_fd()]).unwrap();
    let error = Channel::receiver(theirs, config).unwrap_err();
    (error, refusal(&ours))
}

/// A sender that hears an answer to its greeting, and what it made of that.
fn answered(answer: impl FnOnce(&Plan) -> Vec<u8>) -> (Error, String) {
    let (ours, theirs) = peer::sockets();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| Channel::sender(theirs, config()).unwrap_err());
        let mut plan = Plan::honest(Level::Copy);
        plan.learn(&peer::recv(&ours).0);
        let (ring, _) = peer::memfd(plan.reverse_bytes(), 4096, plan.ring_seals);
        peer::send(&ours, &answer(&plan), &[ring.as_fd()]).unwrap();
        (sender.join().unwrap(), refusal(&ours))
    })
}

#[test]
fn a_peer_of_another_version_or_machine_is_told_so() {
    for (what, lie) in UNFIT {
        let mut greeting = Plan::honest(Level::Sealed).greeting(HELLO);
        lie(&mut greeting);
        let answer = |plan: &Plan| {
            let mut greeting = plan.greeting(WELCOME);
            lie(&mut greeting);
            greeting.to_vec()
        };
        for (error, told) in [greeted(&greeting, config()), answered(answer)] {
            assert!(matches!(error, Error::Peer(PeerFault::Unfit(_))), "{error}");
            assert!(error.to_string().contains(what), "{error}");
            assert_eq!(told, error.to_string(), "the other side hears the same");
        }
    }
}

#[test]
fn a_peer_that_says_what_has_no_meaning_is_told_so() {
    let plan = Plan::honest(Level::Sealed);
    let mut odd = plan.greeting(HELLO);
    odd[44] = 1;
    let too_long = [plan.greeting(HELLO).as_slice(), &[0; 600]].concat();
    for bytes in [&odd[..], &odd[..20], b"", &plan.greeting(SETTLED), &too_long] {
        for (error, told) in [greeted(bytes, config()), answered(|_| bytes.to_vec())] {
            assert!(matches!(error, Error::Peer(PeerFault::Broken(_))), "{error}");
            assert_eq!(told, error.to_string());
        }
    }
}

#[test]
fn a_peer_that_does_not_have_a_level_is_told_so() {
    let (error, told) = {
        let (ours, theirs) = peer::sockets();
        std::thread::scope(|scope| {
            let required = config().require_level(Level::Sealed);
            let receiver = scope.spawn(|| Channel::receiver(theirs, required).unwrap_err());
            let plan = Plan::honest(Level::Copy);
            let (ring, _) = peer::memfd(plan.forward_bytes(), 4096, plan.ring_seals);
            let (pool, _) = peer::memfd(plan.pool_bytes(), 4096, plan.pool_seals);
            peer::send(&ours, &plan.greeting(HELLO), &[ring.as_fd(), pool.as_fd()]).unwrap();
            peer::recv(&ours);
            peer::send(&ours, &plan.greeting(SETTLED), &[]).unwrap();
            (receiver.join().unwrap(), refusal(&ours))
        })
    };
    assert_eq!(error, Error::Peer(PeerFault::Unfit("it does not offer level sealed".to_owned())));
    assert_eq!(told, error.to_string());
    // Between two ends of the library.
    let (ours, theirs) = Channel::sockets().unwrap();
    std::thread::scope(|scope| {
        let required = config().require_level(Level::Mmu);
        let sender = scope.spawn(|| Channel::sender(ours, required).unwrap_err());
        let receiver = Channel::receiver(theirs, config()).unwrap_err();
        let sender = sender.join().unwrap();
        if let Error::Host(_) = sender {
            untested("what level mmu promises", "it is not to be had");
            return;
        }
        assert_eq!(sender, Error::Peer(PeerFault::Unfit("it does not accept level mmu".to_owned())));
        assert_eq!(receiver, Error::Peer(PeerFault::Refused(sender.to_string())));
        let read = "the peer: refused the channel, saying `the peer: does not fit this side: it does not accept level \
                    mmu`";
        assert_eq!(receiver.to_string(), read);
    });
}

#[test]
fn a_peer_that_is_late_is_told_so() {
    let short = config().handshake_timeout(Duration::from_millis(20));
    let (ours, theirs) = peer::sockets();
    let error = Channel::receiver(theirs, short.clone()).unwrap_err();
    assert_eq!(error, Error::TimedOut(Duration::from_millis(20)));
    assert_eq!(refusal(&ours), error.to_string());
    let (ours, theirs) = peer::sockets();
    let error = Channel::sender(theirs, short).unwrap_err();
    assert!(matches!(error, Error::TimedOut(_)));
    assert_eq!(refusal(&ours), error.to_string());
}

/// What this host lacks is told as well: the peer would look for the fault in itself.
#[test]
fn a_side_that_cannot_says_why() {
    if !alone("refusals::a_side_that_cannot_says_why") {
        return;
    }
    drop(Channel::pair(config()).unwrap());
    verify::fail("memfd_create", libc::ENOMEM, 0);
    let (ours, theirs) = peer::sockets();
    let error = Channel::sender(theirs, config()).unwrap_err();
    assert!(matches!(error, Error::Host(_)), "{error}");
    assert_eq!(refusal(&ours), error.to_string());
    let (ours, theirs) = peer::sockets();
    let error = Channel::sender(theirs, config().budget(1)).unwrap_err();
    assert!(matches!(error, Error::Usage(_)), "{error}");
    assert_eq!(refusal(&ours), error.to_string());
    let sealed = config().require_level(Level::Leased);
    let (ours, theirs) = peer::sockets();
    let error = Channel::sender(theirs, sealed).unwrap_err();
    assert_eq!(refusal(&ours), error.to_string());
}
