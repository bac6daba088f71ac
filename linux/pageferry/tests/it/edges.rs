//! Where something is full, or nothing is left: budgets to their last byte, as many ranges and blocks as there may be,
//! and counters that are zero again whatever was done with a message.

use crate::first::mmu_here;
use pageferry::trust::Guarded;
use pageferry::*;
use std::thread;
use std::time::Duration;

const NONE: Duration = Duration::ZERO;

/// Ends with settings of their own.
fn ends(tx: Config, rx: Config) -> (Result<Sender<Guarded>, Error>, Result<Receiver<Guarded>, Error>) {
    let (ours, theirs) = Channel::sockets().unwrap();
    let sender = thread::spawn(move || Channel::sender(ours, tx));
    let receiver = Channel::receiver(theirs, rx);
    (sender.join().unwrap(), receiver)
}

fn config(level: Level) -> Config {
    Config::new().slots(4).slot_bytes(1 << 20).capacity(8).require_level(level)
}

/// What the pool and the ring take of a receiver's budget, as it says when it refuses them.
fn base(level: Level) -> u64 {
    let (_, refused) = ends(config(level), Config::new().budget(1));
    match refused {
        Err(Error::Budget { wanted, .. }) => wanted,
        other => panic!("a receiver with no budget: {other:?}"),
    }
}

#[test]
fn a_receivers_budget_is_used_to_its_last_byte() {
    // In the ring, in a slot, and as memory of its own: what each of so many bytes takes is said by the counter.
    for (level, len) in [(Level::Copy, 1), (Level::Copy, 999), (Level::Copy, 100_000), (Level::Sealed, 5000)]
    {
        let base = base(level);
        let send = |tx: &Sender<Guarded>| match level {
            Level::Sealed => {
                let mut buffer = tx.buffer(len).unwrap();
                buffer.fill(7);
                drop(tx.loan(buffer).unwrap());
            }
            _ => tx.copy(&vec![7; len]).unwrap(),
        };
        let with = |more: u64| {
            let (tx, rx) = ends(config(level), Config::new().budget(base + more));
            (tx.unwrap(), rx.unwrap())
        };
        let (tx, rx) = with(1 << 30);
        send(&tx);
        let held = rx.recv().unwrap();
        let each = rx.counters().bytes_held;
        assert!(each >= len as u64, "{level:?}, {len} bytes take {each}");
        drop(held);
        for (more, fit) in [(each - 1, 0), (each, 1), (2 * each - 1, 1), (2 * each, 2)] {
            let (tx, rx) = with(more);
            let mut held = Vec::new();
            for _ in 0..fit {
                send(&tx);
                held.push(rx.recv().unwrap());
            }
            send(&tx);
            let refused = rx.recv();
            assert!(matches!(refused, Err(Error::Budget { .. })), "{level:?}, {len} bytes: {refused:?}");
            assert_eq!(rx.counters().bytes_held, fit * each, "what was refused is not held");
            if held.pop().is_some() {
                assert!(rx.recv().unwrap().iter().all(|byte| *byte == 7), "there is room for it now");
            }
            drop(held);
            assert_eq!(rx.counters().bytes_held, 0);
        }
    }
}

#[test]
fn a_senders_budget_is_used_to_its_last_byte() {
    const EACH: u64 = 4096;
    let pool = 4 << 20;
    for (more, fit) in [(2 * EACH - 1, 1), (2 * EACH, 2), (3 * EACH - 1, 2), (3 * EACH, 3)] {
        let (tx, rx) =
            ends(config(Level::Sealed).slots(2).slot_bytes(2 << 20).budget(pool + more), Config::new());
        let (tx, rx) = (tx.unwrap(), rx.unwrap());
        let send = || tx.loan_timeout(tx.buffer(1).unwrap(), NONE);
        let lent: Vec<_> = (0..fit).map(|_| send().unwrap()).collect();
        assert!(matches!(send(), Err(Error::TimedOut(_))), "{more} bytes, {fit} are out");
        drop(rx.recv().unwrap());
        assert!(send().is_ok(), "one is home");
        drop(lent);
    }
}

#[test]
fn as_many_ranges_go_in_one_message_as_the_ring_has_room_for() {
    if !mmu_here() {
        return;
    }
    for (inline_bytes, max) in [(64, 2), (128, 4)] {
        let config = Config::new().slots(8).slot_bytes(1).inline_bytes(inline_bytes);
        let (tx, rx) = Channel::pair(config).unwrap();
        for count in 1..=max + 1 {
            let ranges = (0..count).map(|_| Range::Memory(tx.buffer(1).unwrap())).collect();
            let passing = tx.pass(ranges, PassMode::Copy);
            assert_eq!(passing.is_ok(), count <= max, "{count} of {max} ranges");
            if passing.is_ok() {
                let Message::Passed(passed) = rx.recv_message().unwrap() else { panic!("not ranges") };
                assert_eq!(passed.count(), count);
            }
        }
        assert_eq!((tx.counters().slots_taken, tx.counters().out, rx.counters().slots_held), (0, 0, 0));
    }
}

/// What a receiver may do with a message before it lets go of it.
type Use = fn(Loan) -> Result<(), Error>;

const USES: [(&str, Use); 5] = [
    ("drops it", |_| Ok(())),
    ("writes it", |mut loan| loan.as_mut().map(|bytes| bytes[0] = 1)),
    ("writes it twice", |mut loan| loan.as_mut().map(drop).and_then(|()| loan.as_mut().map(drop))),
    ("takes it", |loan| loan.transfer().map(drop)),
    ("copies and writes it", |mut loan| loan.copied().and_then(|_| loan.as_mut().map(drop))),
];

/// Ways in which bytes go.
type Way = fn(&Sender, Buffer) -> Result<(), Error>;

const WAYS: [(&str, Way); 4] = [
    ("copied", |tx, buffer| tx.copy(&buffer)),
    ("lent", |tx, buffer| tx.loan(buffer).map(drop)),
    ("donated", |tx, buffer| tx.donate(buffer)),
    ("shared", |tx, buffer| tx.share(buffer).map(drop)),
];

/// Nothing is counted that is not held, by either side, whatever was sent and whatever became of it.
#[test]
fn counters_are_zero_when_nothing_is_held() {
    for level in [Level::Copy, Level::Typed, Level::Mmu, Level::Sealed] {
        if level == Level::Mmu && !mmu_here() {
            continue;
        }
        let (tx, rx) = Channel::pair(config(level)).unwrap();
        for ((way, send), (what, then)) in WAYS.into_iter().flat_map(|way| USES.map(|what| (way, what))) {
            for len in [1, 4095, 4096, 4097, 300_000, 1 << 20] {
                let mut buffer = tx.buffer(len).unwrap();
                buffer.fill(9);
                if send(&tx, buffer).is_ok() {
                    let loan = rx.recv().unwrap();
                    assert_eq!((loan.len(), loan[len - 1]), (len, 9));
                    then(loan).unwrap();
                }
                let (ours, theirs) = (tx.counters(), rx.counters());
                let left = (ours.out, ours.slots_taken, theirs.slots_held, theirs.bytes_held, theirs.retired);
                assert_eq!(left, (0, 0, 0, 0, 0), "{level:?}, {len} bytes {way}; who receives {what}");
            }
        }
    }
}
