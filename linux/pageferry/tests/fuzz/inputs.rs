//! What bytes of any kind do to an end of the library: each function takes some, plays a hostile peer by them, and
//! panics where something that must hold does not.
//!
//! One thread is both sides: the peer says all that it will say before the library looks.

use crate::peer::{self, HELLO, Map, Plan, READY, SETTLED, WELCOME};
use pageferry::wire::{Descriptor, Level, Note, Verb};
use pageferry::*;
use rustix::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

const CAPACITY: u32 = 4;
const INLINE_BYTES: u32 = 128;
const BUDGET: u64 = 4 << 20;

/// Bytes as they are asked for; zeros when there are no more.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A number that is often near one that matters.
    fn number(&mut self) -> u64 {
        let near = u64::from(self.byte() % 8);
        match self.byte() % 8 {
            0..=3 => near,
            4 => peer::page_bytes().wrapping_sub(4).wrapping_add(near),
            5 => u64::MAX - near,
            6 => (1 << 32) - 4 + near,
            _ => u64::from_ne_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn config(level: Level) -> Config {
    let config = Config::new().slots(1).slot_bytes(1).capacity(CAPACITY).inline_bytes(INLINE_BYTES);
    config.budget(BUDGET).level(level).spin(Duration::ZERO).handshake_timeout(Duration::from_secs(60))
}

fn plan(level: Level) -> Plan {
    Plan { capacity: CAPACITY, inline_bytes: INLINE_BYTES, ..Plan::honest(level) }
}

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[&OwnedFd]) {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
    let _ = peer::send(socket, bytes, &fds);
}

fn level(input: &mut Input<'_>, levels: &[Level]) -> Level {
    levels[usize::from(input.byte()) % levels.len()]
}

/// Packets of the handshake: honest ones with bytes changed, left out, said twice, cut, with other descriptors.
pub fn handshake(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (ours, theirs) = peer::sockets();
    let is_sender = input.byte() % 2 == 0;
    let level = level(&mut input, &[Level::Sealed, Level::Copy, Level::Mmu]);
    let plan = plan(level);
    let ring = if is_sender { plan.forward_bytes() } else { plan.reverse_bytes() };
    let (ring, _) = peer::memfd(ring, 4096, peer::POOL_SEALS);
    let (pool, _) = peer::memfd(u64::from(plan.slots) * plan.slot_bytes, 4096, peer::POOL_SEALS);
    let honest: [(u8, Vec<&OwnedFd>); 2] = if is_sender {
        [(HELLO, vec![&ring, &pool]), (SETTLED, vec![])]
    } else {
        [(WELCOME, vec![&ring]), (READY, vec![])]
    };
    for (kind, mut fds) in honest {
        let mut greeting = plan.greeting(kind).to_vec();
        for _ in 0..input.byte() % 4 {
            let (at, value) = (usize::from(input.byte()) % greeting.len(), input.number() as u8);
            greeting[at] = value;
        }
        match input.byte() {
            0..=15 => continue,
            16..=31 => greeting.truncate(usize::from(input.byte())),
            32..=47 => greeting.resize(usize::from(input.byte()) * 4, 7),
            48..=63 => fds.push(&pool),
            64..=79 => drop(fds.pop()),
            80..=95 => fds.reverse(),
            96..=111 => send(&ours, &greeting, &fds),
            _ => (),
        }
        send(&ours, &greeting, &fds);
    }
    rustix::net::shutdown(&ours, Shutdown::Write).unwrap();
    let error = if is_sender {
        match Channel::receiver(theirs, config(level)) {
            Ok(receiver) => receiver.recv().err(),
            Err(error) => Some(error),
        }
    } else {
        match Channel::sender(theirs, config(level)) {
            Ok(sender) => sender.try_buffer(1).err(),
            Err(error) => Some(error),
        }
    };
    let blamed = matches!(error, None | Some(Error::Peer(_) | Error::Budget { .. } | Error::WouldBlock));
    assert!(blamed, "{error:?} does not blame the peer");
}

/// Words of the ring, counters, notes and sealed memory, to a receiver that keeps some of what comes.
pub fn messages(bytes: &[u8]) {
    let mut input = Input(bytes);
    let trusted = input.byte() % 2 == 0;
    let levels: &[Level] = if trusted { &Level::ALL } else { &[Level::Copy, Level::Sealed] };
    let level = level(&mut input, levels);
    let level = if level == Level::Leased { Level::Mmu } else { level };
    let plan = plan(level);
    let (ours, theirs) = peer::sockets();
    let (ring, forward) = peer::memfd(plan.forward_bytes(), plan.forward_bytes() as usize, peer::POOL_SEALS);
    let (pool, _) = peer::memfd(u64::from(plan.slots) * plan.slot_bytes, 4096, peer::POOL_SEALS);
    send(&ours, &plan.greeting(HELLO), &[&ring, &pool]);
    send(&ours, &plan.greeting(SETTLED), &[]);
    if trusted {
        // SAFETY: what the peer lends it does not write: it has one thread, which is this one.
        receive(
            &mut input,
            &unsafe { Channel::trusted_receiver(theirs, config(level)) }.unwrap(),
            &plan,
            &ours,
            &forward,
            &pool,
        );
    } else {
        receive(
            &mut input,
            &Channel::receiver(theirs, config(level)).unwrap(),
            &plan,
            &ours,
            &forward,
            &pool,
        );
    }
}

fn receive<T: trust::Trust>(
    input: &mut Input<'_>,
    receiver: &Receiver<T>,
    plan: &Plan,
    socket: &OwnedFd,
    forward: &Map,
    pool: &OwnedFd,
) {
    let sealed = peer::snapshot(peer::page_bytes(), 1, peer::SNAPSHOT_SEALS);
    let (mut published, mut kept, mut broken) = (0u64, Vec::new(), None);
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        let cell = 512 + 8 * (published % u64::from(CAPACITY)) as usize;
        match input.byte() % 8 {
            0..=2 => {
                let mut words = message(input, receiver.level(), published).words();
                for _ in 0..(input.byte() % 8).saturating_sub(4) {
                    words[usize::from(input.byte() % 8)] = input.number();
                }
                if words[6] != 0 || receiver.level() == Level::Sealed {
                    send(socket, &Note::Object(published).bytes(), &[&sealed]);
                }
                words
                    .iter()
                    .enumerate()
                    .for_each(|(at, &word)| forward.word(cell + at).store(word, Ordering::Relaxed));
                published = published.wrapping_add(1);
                forward.word(0).store(published, Ordering::SeqCst);
            }
            3 => forward.word(0).store(input.number(), Ordering::SeqCst),
            4 => forward.word(cell + usize::from(input.byte() % 64)).store(input.number(), Ordering::Relaxed),
            5 => {
                let fd = if input.byte().is_multiple_of(2) { &sealed } else { pool };
                let mut note = Note::Object(input.number()).bytes();
                note[0] = b"wboeowoo"[usize::from(input.byte() % 8)];
                send(socket, &note, &vec![fd; usize::from(input.byte() % 3)]);
            }
            6 => kept.truncate(usize::from(input.byte() % 4)),
            _ => (),
        }
        match receiver.try_recv() {
            Ok(loan) => {
                assert!(broken.is_none(), "closed for good");
                let sum: u64 = loan.iter().map(|&byte| u64::from(byte)).sum();
                kept.push((sum, loan));
            }
            Err(error @ Error::Peer(_)) => {
                assert_eq!(*broken.get_or_insert(error.clone()), error, "closed for good");
            }
            Err(Error::WouldBlock | Error::Budget { .. }) => assert!(broken.is_none(), "closed for good"),
            Err(error) => panic!("{error} blames neither the peer nor a limit"),
        }
        let counters = receiver.counters();
        assert!(counters.slots_held <= plan.slots && counters.bytes_held <= BUDGET);
    }
    for (sum, loan) in &kept {
        assert_eq!(*sum, loan.iter().map(|&byte| u64::from(byte)).sum::<u64>(), "loans stay valid");
    }
    drop(kept);
    assert_eq!((receiver.counters().slots_held, receiver.counters().bytes_held), (0, 0));
}

/// An honest message; of which slot, the input says.
fn message(input: &mut Input<'_>, level: Level, sequence: u64) -> Descriptor {
    let mut message = Descriptor {
        sequence,
        verb: Verb::Inline,
        level: Level::Copy,
        extents: 0,
        first_slot: 0,
        slots: 0,
        offset: 0,
        len: u64::from(input.byte() % 129),
        tag: 0,
        object: 0,
    };
    match (input.byte() % 4, level) {
        (0, _) => (),
        (_, Level::Sealed) => {
            (message.verb, message.level, message.object) = (Verb::Loan, Level::Sealed, sequence);
            message.len += 1;
        }
        (kind, level) => {
            (message.first_slot, message.slots, message.len) =
                (u32::from(input.byte() % 5), 1, message.len + 1);
            if kind > 1 && level != Level::Copy {
                (message.verb, message.level) = (Verb::Loan, level);
            } else {
                message.verb = Verb::Copy;
            }
        }
    }
    message
}

/// Acknowledgements, counters and notes, to a sender that lends and copies.
pub fn acknowledgements(bytes: &[u8]) {
    let mut input = Input(bytes);
    let level = level(&mut input, &[Level::Copy, Level::Mmu, Level::Sealed]);
    let plan = plan(level);
    let (ours, theirs) = peer::sockets();
    let (ring, reverse) = peer::memfd(plan.reverse_bytes(), plan.reverse_bytes() as usize, peer::POOL_SEALS);
    send(&ours, &plan.greeting(WELCOME), &[&ring]);
    send(&ours, &plan.greeting(READY), &[]);
    let sender = Channel::sender(theirs, config(level)).unwrap();
    let (mut acks, mut lent, mut broken) = (0u64, Vec::new(), None);
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        let cell = 512 + 2 * (acks % u64::from(CAPACITY)) as usize;
        let done = match input.byte() % 8 {
            0 => sender.try_copy(&[1; 64]),
            1 => sender
                .try_buffer(64)
                .and_then(|buffer| sender.loan_timeout(buffer, Duration::ZERO))
                .map(|token| lent.push(token)),
            2 | 3 => {
                reverse.word(cell).store(input.number(), Ordering::Relaxed);
                reverse.word(cell + 1).store(input.number(), Ordering::Relaxed);
                acks = acks.wrapping_add(1);
                reverse.word(0).store(acks, Ordering::SeqCst);
                Ok(())
            }
            4 => {
                reverse.word(0).store(input.number(), Ordering::SeqCst);
                Ok(())
            }
            5 => {
                let mut note = Note::Object(input.number()).bytes();
                note[0] = b"wwwbeowx"[usize::from(input.byte() % 8)];
                send(&ours, &note, &vec![&ring; usize::from(input.byte() % 8 / 6)]);
                Ok(())
            }
            6 => lent.pop().map_or(Ok(()), |token: Lent| match token.wait_timeout(Duration::ZERO) {
                Ok(_) => Ok(()),
                Err((error, _)) => Err(error),
            }),
            _ => sender.try_buffer(1).map(drop),
        };
        match done {
            Err(error @ Error::Peer(_)) => {
                let before = broken.get_or_insert(error.clone());
                assert_eq!(*before, error, "closed for good");
            }
            Ok(()) | Err(Error::WouldBlock | Error::TimedOut(_) | Error::Usage(Usage::AllHeldHere)) => (),
            Err(error) => panic!("{error} blames neither the peer nor a limit"),
        }
        assert!(sender.counters().slots_taken <= 1);
    }
}
