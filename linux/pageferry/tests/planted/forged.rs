//! Peers that send what no honest peer sends.

use crate::peer::{self, Plan, RawSender, level_bit, meet_receiver, meet_sender};
use crate::{Found, holds, patience};
use pageferry::trust::{Guarded, Same};
use pageferry::wire::{Descriptor, Extent, Note};
use pageferry::{Broken, Channel, Config, Error, Level, Message, PeerFault, Receiver, Verb};
use rustix::fs::SealFlags;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::IntoBytes as _;

type Trusted = Result<Receiver<Same>, Error>;

fn trusting(plan: Plan) -> (Result<RawSender, String>, Trusted) {
    // SAFETY: no reference of this process is into memory that the peer writes: checks look at lengths and errors.
    meet_receiver(plan, |socket| unsafe { Channel::trusted_receiver(socket, Config::new()) })
}

fn guarded(plan: Plan, config: Config) -> (Result<RawSender, String>, Result<Receiver<Guarded>, Error>) {
    meet_receiver(plan, |socket| Channel::receiver(socket, config))
}

/// An honest channel with loans.
fn lending() -> (RawSender, Receiver<Same>) {
    let (peer, rx) = trusting(Plan::honest(Level::Typed));
    (peer.unwrap(), rx.unwrap())
}

fn loan(peer: &RawSender) -> Descriptor {
    peer.message(Verb::Loan, Level::Typed, 0, 1)
}

/// What a receiver makes of a message that cannot be.
fn refuses(mut peer: RawSender, rx: &Receiver<Same>, descriptor: Descriptor) -> Found {
    peer.say(descriptor);
    holds(matches!(rx.recv_timeout(patience()), Err(Error::Peer(PeerFault::Broken(_)))))
}

pub fn sequence() -> Found {
    let (peer, rx) = lending();
    let next = loan(&peer);
    refuses(peer, &rx, Descriptor { sequence: 1, ..next })
}

/// The length is right and wrong in turn: what was checked is what is used.
pub fn changing() -> Found {
    for _ in 0..300 {
        let (mut peer, rx) = lending();
        let (right, wrong) = (loan(&peer), Descriptor { len: 0, ..loan(&peer) });
        peer.say(right);
        let done = AtomicBool::new(false);
        let received = std::thread::scope(|scope| {
            scope.spawn(|| {
                let word = peer.forward.word(peer.cell(0) + 4);
                while !done.load(Ordering::Relaxed) {
                    word.store(wrong.len, Ordering::Relaxed);
                    word.store(right.len, Ordering::Relaxed);
                }
            });
            let received = rx.recv_timeout(patience());
            done.store(true, Ordering::Relaxed);
            received
        });
        match received {
            Ok(loan) if loan.len() == 1 => (),
            Err(Error::Peer(PeerFault::Broken(_))) => (),
            _ => return Found::Fails,
        }
    }
    Found::Holds
}

pub fn bounds() -> Found {
    let (peer, rx) = lending();
    let (next, slot) = (loan(&peer), peer.plan.slot_bytes);
    refuses(peer, &rx, Descriptor { offset: 1, len: slot, ..next })
}

pub fn empty() -> Found {
    let (peer, rx) = lending();
    let next = loan(&peer);
    refuses(peer, &rx, Descriptor { len: 0, ..next })
}

pub fn inline_bounds() -> Found {
    let (peer, rx) = lending();
    let next = peer.inline(u64::from(peer.plan.inline_bytes) + 1);
    refuses(peer, &rx, next)
}

pub fn overlap() -> Found {
    let (mut peer, rx) = lending();
    peer.say(loan(&peer));
    let _first = rx.recv_timeout(patience()).unwrap();
    let next = loan(&peer);
    refuses(peer, &rx, next)
}

pub fn level() -> Found {
    let (peer, rx) = lending();
    let next = loan(&peer);
    refuses(peer, &rx, Descriptor { level: Level::Mmu, ..next })
}

pub fn verb() -> Found {
    let (peer, rx) = lending();
    let next = loan(&peer);
    refuses(peer, &rx, Descriptor { verb: Verb::Share, ..next })
}

pub fn extents() -> Found {
    let (mut peer, rx) = lending();
    let next = Descriptor { extents: 1, slots: 0, len: 10, ..loan(&peer) };
    let piece = Extent { at: 0, len: 11, offset: 0, first_slot: 0, slots: 1 };
    peer.forward.write(peer.inline_at(0), piece.as_bytes());
    peer.say(next);
    holds(match rx.recv_message() {
        Err(Error::Peer(PeerFault::Broken(_))) => true,
        Ok(Message::Passed(_)) => false,
        other => panic!("neither ranges nor an error: {other:?}"),
    })
}

fn sealed(number: u64) -> Descriptor {
    Descriptor {
        sequence: 0,
        verb: Verb::Loan,
        level: Level::Sealed,
        extents: 0,
        first_slot: 0,
        slots: 0,
        offset: 0,
        len: 1,
        tag: 0,
        object: number,
    }
}

pub fn object() -> Found {
    let (peer, rx) = trusting(Plan::honest(Level::Sealed));
    let (peer, rx) = (peer.unwrap(), rx.unwrap());
    for number in 0..2 {
        peer.object(number, &peer::snapshot(4096, number as u8, peer::SNAPSHOT_SEALS));
    }
    refuses(peer, &rx, sealed(1))
}

pub fn unsealed_object() -> Found {
    let (peer, rx) = trusting(Plan::honest(Level::Sealed));
    let (peer, rx) = (peer.unwrap(), rx.unwrap());
    peer.object(0, &peer::snapshot(4096, 1, SealFlags::SHRINK | SealFlags::SEAL));
    refuses(peer, &rx, sealed(0))
}

fn refused(plan: Plan, as_it_should: impl FnOnce(Broken) -> bool) -> Found {
    let (peer, rx) = trusting(plan);
    assert_eq!(peer.is_ok(), rx.is_ok(), "both know, or neither does");
    holds(broken(rx).is_some_and(as_it_should))
}

pub fn unsealed_pool() -> Found {
    let plan = Plan { pool_seals: SealFlags::SHRINK | SealFlags::GROW, ..Plan::honest(Level::Typed) };
    refused(plan, |broken| broken == Broken::NotSealed { what: "pool" })
}

/// Of both areas: each side looks at the other's.
pub fn unsealed_ring() -> Found {
    let plan = Plan { ring_seals: SealFlags::SHRINK | SealFlags::GROW, ..Plan::honest(Level::Copy) };
    let forward = refused(plan.clone(), |broken| broken == Broken::NotSealed { what: "ring" });
    let (_, tx) = meet_sender(plan, |socket| Channel::sender(socket, Config::new().slots(1).slot_bytes(1)));
    let reverse = broken(tx) == Some(Broken::NotSealed { what: "ring" });
    assert_eq!(forward == Found::Holds, reverse, "both sides look, or neither does");
    forward
}

fn broken<T>(end: Result<T, Error>) -> Option<Broken> {
    match end {
        Err(Error::Peer(PeerFault::Broken(broken))) => Some(broken),
        _ => None,
    }
}

pub fn late_seal() -> Found {
    let plan = Plan { late_seals: SealFlags::empty(), ..Plan::donating(Level::Typed) };
    refused(plan, |broken| broken == Broken::NotSealed { what: "pool" })
}

pub fn pool_size() -> Found {
    let honest = Plan::honest(Level::Typed);
    let twice = 2 * u64::from(honest.slots) * honest.slot_bytes;
    let plan = Plan { pool_file_bytes: Some(twice), ..honest };
    refused(plan, |broken| matches!(broken, Broken::Size { what: "pool", found, .. } if found == twice))
}

/// Of both areas, as for the seals.
pub fn ring_size() -> Found {
    let plan = Plan { ring_file_bytes: Some(1 << 20), ..Plan::honest(Level::Copy) };
    let of_ring = |broken| matches!(broken, Broken::Size { what: "ring", found: 0x10_0000, .. });
    let forward = refused(plan.clone(), of_ring);
    let (_, tx) = meet_sender(plan, |socket| {
        Channel::sender(socket, Config::new().slots(1).slot_bytes(1).capacity(4).inline_bytes(128))
    });
    assert_eq!(forward == Found::Holds, broken(tx).is_some_and(of_ring), "both sides look, or neither does");
    forward
}

/// A guarded receiver takes sealed memory and copies, whatever its peer says in the end.
pub fn settled() -> Found {
    let plan = Plan::honest(Level::Mmu);
    assert_ne!(plan.settled_levels, level_bit(Level::Copy));
    let (_, rx) = guarded(plan, Config::new());
    holds(matches!(rx, Err(Error::Peer(PeerFault::Broken(Broken::Handshake(_))))))
}

pub fn pool_budget() -> Found {
    let plan = Plan::honest(Level::Copy);
    let held = pool_and_ring(&plan);
    let (_, rx) = guarded(plan, Config::new().budget(held - 1));
    holds(matches!(rx, Err(Error::Budget { wanted, .. }) if wanted == held))
}

/// What a receiver counts from the start: all pages that reading could allocate.
fn pool_and_ring(plan: &Plan) -> u64 {
    let capacity = u64::from(plan.capacity);
    let ring = 2 * 4096 + capacity * (64 + u64::from(plan.inline_bytes) + 16);
    u64::from(plan.slots) * plan.slot_bytes + ring
}

pub fn copy_budget() -> Found {
    let plan = Plan::honest(Level::Copy);
    let (held, slot) = (pool_and_ring(&plan), plan.slot_bytes);
    let (peer, rx) = guarded(plan, Config::new().budget(held + 2 * slot));
    let (mut peer, rx) = (peer.unwrap(), rx.unwrap());
    let mut kept = Vec::new();
    for _ in 0..2 {
        peer.say(peer.message(Verb::Copy, Level::Copy, 0, slot));
        kept.push(rx.recv_timeout(patience()).unwrap());
    }
    peer.say(peer.message(Verb::Copy, Level::Copy, 0, 1));
    let third = rx.recv_timeout(patience());
    if !matches!(third, Err(Error::Budget { .. })) {
        return Found::Fails;
    }
    // What is dropped makes room, and the message is still there.
    kept.clear();
    holds(rx.recv_timeout(patience()).is_ok())
}

/// From now on this process can have no more descriptors.
fn no_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // The three standard streams are open.
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
}

/// The error says that descriptors were lost, so that whoever reads it looks at the limit.
pub fn control() -> Found {
    let plan = Plan::honest(Level::Copy);
    let (ring, pool) = (
        peer::memfd(plan.forward_bytes(), 4096, plan.ring_seals),
        peer::memfd(plan.pool_bytes(), 4096, plan.pool_seals),
    );
    let (ours, theirs) = peer::sockets();
    peer::send(&ours, &plan.greeting(peer::HELLO), &[ring.0.as_fd(), pool.0.as_fd()]).unwrap();
    no_descriptors();
    let error = Channel::receiver(theirs, Config::new()).unwrap_err();
    holds(error == Error::Peer(PeerFault::Broken(Broken::DescriptorsLost)))
}

pub fn control_of_note() -> Found {
    let (peer, rx) = lending();
    peer::send(&peer.socket, &Note::Wake.bytes(), &[peer.pool_fd.as_fd()]).unwrap();
    no_descriptors();
    let error = rx.recv_timeout(patience()).unwrap_err();
    holds(error == Error::Peer(PeerFault::Broken(Broken::DescriptorsLost)))
}
