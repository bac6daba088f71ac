//! The ring on words of this process: how full it gets, what wraps, and that a peer's counters are not believed.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// An area that both sides see.
#[derive(Clone, Debug)]
struct Words(Arc<Vec<AtomicU64>>);

impl Words {
    fn new(words: usize) -> Words {
        Words(Arc::new((0..words).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Area for Words {
    fn load(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }

    fn store(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }

    fn release(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Release);
    }
}

struct Both {
    outbox: Outbox<Words>,
    inbox: Inbox<Words>,
    forward: Words,
    reverse: Words,
}

fn ring(capacity: u32) -> Both {
    let geometry = RingGeometry { capacity, inline_bytes: 64 };
    let (forward, reverse) = (Words::new(geometry.forward_words()), Words::new(geometry.reverse_words()));
    Both {
        outbox: Outbox::new(geometry, forward.clone(), reverse.clone()),
        inbox: Inbox::new(geometry, forward.clone(), reverse.clone()),
        forward,
        reverse,
    }
}

fn message(number: u64) -> [u64; DESCRIPTOR_WORDS] {
    core::array::from_fn(|word| number << 8 | word as u64)
}

impl Both {
    fn send(&mut self) {
        let number = self.outbox.next_sequence().unwrap();
        self.outbox.publish(message(number));
    }

    fn take(&mut self) -> u64 {
        let number = self.inbox.next_sequence();
        assert_eq!(self.inbox.peek(), Ok(Some(message(number))));
        self.inbox.taken();
        number
    }
}

#[test]
fn the_areas_have_their_golden_shape() {
    let geometry = RingGeometry { capacity: 64, inline_bytes: 16 << 10 };
    assert_eq!(geometry.forward_words(), 512 + 64 * 8);
    assert_eq!(geometry.forward_bytes(), 4096 + 64 * 64 + 64 * 16384);
    assert_eq!(geometry.reverse_bytes(), 4096 + 64 * 16);
    assert_eq!(geometry.inline_offset(0), 4096 + 64 * 64);
    assert_eq!(geometry.inline_offset(65), 4096 + 64 * 64 + 16384);
    let mut both = ring(4);
    both.send();
    both.take();
    both.inbox.ack([7, 9]);
    both.outbox.begin_sleep();
    both.inbox.begin_sleep();
    let word = |words: &Words, at| words.load(at);
    assert_eq!((word(&both.forward, 0), word(&both.forward, 8)), (1, 1));
    assert_eq!((0..8).map(|at| word(&both.forward, 512 + at)).collect::<Vec<_>>(), message(0));
    assert_eq!((word(&both.reverse, 0), word(&both.reverse, 8)), (1, 1));
    assert_eq!((word(&both.reverse, 512), word(&both.reverse, 513)), (7, 9));
}

#[test]
fn only_powers_of_two_in_bounds_are_shapes() {
    let valid = |capacity, inline_bytes| RingGeometry { capacity, inline_bytes }.is_valid();
    assert!(valid(2, 0) && valid(4096, 1 << 20) && valid(64, 64));
    for capacity in [0, 1, 3, 63, 8192, 1 << 31, u32::MAX] {
        assert!(!valid(capacity, 0), "{capacity}");
    }
    for inline_bytes in [1, 63, 65, (1 << 20) + 64, u32::MAX] {
        assert!(!valid(64, inline_bytes), "{inline_bytes}");
    }
}

#[test]
fn a_full_ring_takes_no_more_until_one_is_acknowledged() {
    let mut both = ring(4);
    for _ in 0..4 {
        both.send();
    }
    assert_eq!(both.outbox.next_sequence(), Err(RingFull));
    assert_eq!(both.outbox.out(), 4);
    for _ in 0..4 {
        both.take();
    }
    assert_eq!(both.inbox.peek(), Ok(None));
    assert_eq!(both.outbox.next_sequence(), Err(RingFull), "taken is not given back");
    both.inbox.ack([2, 0]);
    assert_eq!(both.outbox.next_sequence(), Err(RingFull), "not read yet");
    assert_eq!(both.outbox.next_ack(), Ok(Some([2, 0])));
    assert_eq!(both.outbox.next_sequence(), Ok(4));
}

#[test]
fn cells_wrap_around_and_acknowledgements_come_in_any_order() {
    let mut both = ring(4);
    let mut held = Vec::new();
    for round in 0..100u64 {
        both.send();
        held.push(both.take());
        if held.len() == 4 {
            let back = held.remove((round % 4) as usize);
            both.inbox.ack([back, round]);
            assert!(both.outbox.has_ack());
            assert_eq!(both.outbox.next_ack(), Ok(Some([back, round])));
            assert!(!both.outbox.has_ack());
        }
    }
    assert_eq!(both.outbox.published(), 100);
    assert_eq!(both.outbox.out(), 3);
}

#[test]
fn a_counter_of_messages_that_cannot_be_is_a_fault() {
    for forged in [5, 6, 1 << 32, 1 << 63, u64::MAX] {
        let both = ring(4);
        both.forward.store(PUBLISHED, forged);
        let fault = RingFault::Published { before: 0, now: forged, capacity: 4 };
        assert_eq!(both.inbox.peek(), Err(fault), "{forged}");
    }
    let mut both = ring(4);
    both.send();
    both.take();
    both.inbox.ack([0, 0]);
    both.forward.store(PUBLISHED, 0);
    assert_eq!(
        both.inbox.peek(),
        Err(RingFault::Published { before: 1, now: 0, capacity: 4 }),
        "it goes backward"
    );
}

#[test]
fn more_messages_out_than_cells_are_a_fault() {
    let mut both = ring(4);
    for _ in 0..4 {
        both.send();
        both.take();
    }
    both.forward.store(PUBLISHED, 5);
    assert!(both.inbox.peek().is_err(), "four are out, and none was given back");
    both.inbox.ack([0, 0]);
    assert!(both.inbox.peek().is_ok());
    both.forward.store(PUBLISHED, 6);
    assert!(both.inbox.peek().is_err());
}

#[test]
fn a_counter_of_acknowledgements_that_cannot_be_is_a_fault() {
    for forged in [2, 1 << 32, u64::MAX] {
        let mut both = ring(4);
        both.send();
        both.reverse.store(PUBLISHED, forged);
        let fault = RingFault::Acknowledged { before: 0, now: forged, out: 1 };
        assert_eq!(both.outbox.next_ack(), Err(fault), "{forged}");
    }
    let mut both = ring(4);
    both.send();
    both.take();
    both.inbox.ack([0, 0]);
    assert_eq!(both.outbox.next_ack(), Ok(Some([0, 0])));
    both.reverse.store(PUBLISHED, 0);
    assert_eq!(both.outbox.next_ack(), Err(RingFault::Acknowledged { before: 1, now: 0, out: 0 }));
}

#[test]
fn who_sleeps_is_to_be_woken() {
    let mut both = ring(4);
    assert!(!both.outbox.publish(message(0)));
    both.inbox.begin_sleep();
    assert!(both.inbox.has_message());
    assert!(both.outbox.publish(message(1)));
    both.inbox.end_sleep();
    assert!(!both.outbox.publish(message(2)));
    both.take();
    assert!(!both.inbox.ack([0, 0]));
    both.outbox.begin_sleep();
    both.take();
    assert!(both.inbox.ack([1, 0]));
    both.outbox.end_sleep();
    // Any number that a peer writes there counts.
    both.reverse.store(ASLEEP, u64::MAX);
    assert!(both.outbox.publish(message(3)));
}

proptest! {
    /// Any order of calls, beside a list that does the same.
    #[test]
    fn it_is_a_queue(steps in proptest::collection::vec((0..3u8, any::<usize>()), 0..300), power in 1..5u32) {
        let capacity = 1u64 << power;
        let mut both = ring(capacity as u32);
        let (mut sent, mut taken, mut read) = (0, 0, 0);
        let (mut held, mut acked) = (Vec::new(), Vec::new());
        for (step, which) in steps {
            match step {
                0 if sent - read < capacity => {
                    both.send();
                    sent += 1;
                }
                0 => prop_assert_eq!(both.outbox.next_sequence(), Err(RingFull)),
                1 if taken < sent => {
                    held.push(both.take());
                    taken += 1;
                }
                1 => prop_assert_eq!(both.inbox.peek(), Ok(None)),
                _ if which % 2 == 0 && !held.is_empty() => {
                    let back = held.remove(which / 2 % held.len());
                    both.inbox.ack([back, which as u64]);
                    acked.push([back, which as u64]);
                }
                _ => {
                    let expected = acked.get(read as usize).copied();
                    prop_assert_eq!(both.outbox.next_ack(), Ok(expected));
                    read += u64::from(expected.is_some());
                }
            }
        }
    }

    /// A peer that writes what it likes to its own area: no panic, and never more than there are cells.
    #[test]
    fn forged_words_give_faults_and_nothing_else(
        words in proptest::collection::vec((0..1024usize, any::<u64>(), 0..6u64), 1..50),
    ) {
        let mut both = ring(4);
        let (mut taken, mut acked) = (0u64, 0u64);
        for (at, word, small) in words {
            let at = if at % 3 == 0 { PUBLISHED } else { at % 544 };
            let word = if at % 2 == 0 { small } else { word };
            both.forward.store(at, word);
            while let Ok(Some(_)) = both.inbox.peek() {
                both.inbox.taken();
                taken += 1;
                prop_assert!(taken - acked <= 4);
            }
            if small == 0 && acked < taken {
                both.inbox.ack([acked, 0]);
                acked += 1;
            }
        }
    }
}
