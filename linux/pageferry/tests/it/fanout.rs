//! One pool, many receivers.

use crate::first::mmu_here;
use pageferry::*;
use std::time::Duration;

fn config() -> Config {
    Config::new().slots(6).slot_bytes(2 << 20).capacity(4)
}

const PATIENCE: Slow = Slow::Wait(Duration::from_secs(60));

fn send(fan: &mut Fanout, byte: u8) -> Fan {
    let mut buffer = fan.buffer(3000).unwrap();
    buffer.fill(byte);
    fan.loan(buffer).unwrap()
}

fn everywhere(loan: &Loan, byte: u8) -> bool {
    loan.len() == 3000 && loan.iter().all(|&b| b == byte)
}

#[test]
fn all_receivers_read_one_buffer_and_the_last_one_frees_it() {
    for level in [Level::Mmu, Level::Typed, Level::Sealed] {
        if level == Level::Mmu && !mmu_here() {
            continue;
        }
        let mut fan = Fanout::new(config().require_level(level), PATIENCE).unwrap();
        let receivers: Vec<_> = (0..3).map(|_| fan.receiver().unwrap()).collect();
        for round in 0..20 {
            let sent = send(&mut fan, round);
            let mut loans: Vec<_> = receivers.iter().map(|rx| rx.recv().unwrap()).collect();
            assert!(loans.iter().all(|loan| loan.level() == level && everywhere(loan, round)));
            if level != Level::Typed {
                loans[1].as_mut().unwrap().fill(99);
                assert!(everywhere(&loans[0], round) && sent.iter().all(|&b| b == round));
            }
            assert_eq!(sent.readers(), 3);
            drop(loans.pop());
            fan.pump();
            assert_eq!(sent.readers(), if level == Level::Typed { 2 } else { sent.readers() });
            drop(loans);
            fan.pump();
            assert_eq!(sent.readers(), 0);
        }
        fan.pump();
        assert_eq!(fan.slots_taken(), 0);
    }
}

#[test]
fn a_receiver_that_keeps_all_is_given_up_and_told_and_keeps_what_it_has() {
    if !mmu_here() {
        return;
    }
    let mut fan = Fanout::new(config(), Slow::Wait(Duration::from_millis(50))).unwrap();
    let (good, bad) = (fan.receiver().unwrap(), fan.receiver().unwrap());
    let mut kept = Vec::new();
    // Six slots: the seventh buffer needs one that the bad receiver holds.
    for round in 0..12 {
        drop(send(&mut fan, round));
        assert!(everywhere(&good.recv().unwrap(), round));
        if let Ok(loan) = bad.try_recv() {
            kept.push(loan);
        }
    }
    assert_eq!(fan.receivers(), 1);
    assert_eq!(fan.take_evicted(), [2]);
    assert_eq!(kept.len(), 4);
    assert!(kept.iter().zip(0..).all(|(loan, round)| everywhere(loan, round)));
    assert_eq!(bad.recv().unwrap_err(), Error::Peer(PeerFault::Evicted));
    drop(kept);
    fan.pump();
    assert_eq!(fan.slots_taken(), 0);
}

#[test]
fn a_receiver_that_is_slow_misses_the_oldest() {
    if !mmu_here() {
        return;
    }
    let mut fan = Fanout::new(config(), Slow::DropOldest { window: 1, backlog: 2 }).unwrap();
    let (fast, slow) = (fan.receiver().unwrap(), fan.receiver().unwrap());
    for round in 0..10 {
        drop(send(&mut fan, round));
        assert!(everywhere(&fast.recv().unwrap(), round));
    }
    // It had been sent the first; of the others the last two wait.
    let mut seen = vec![slow.recv().unwrap()[0]];
    for _ in 0..2 {
        fan.pump();
        seen.push(slow.recv().unwrap()[0]);
    }
    assert_eq!((seen, fan.dropped()), (vec![0, 8, 9], 7));
    assert!(matches!(slow.try_recv(), Err(Error::WouldBlock)));
}

#[test]
fn a_window_that_the_pool_cannot_serve_is_refused() {
    let mut fan = Fanout::new(config(), Slow::DropOldest { window: 2, backlog: 1 }).unwrap();
    let _two = (fan.receiver().unwrap(), fan.receiver().unwrap());
    assert!(matches!(fan.receiver(), Err(Error::Usage(Usage::Config { key: "window", .. }))));
    assert!(Fanout::new(config(), Slow::DropOldest { window: 0, backlog: 1 }).is_err());
}

#[test]
fn a_receiver_that_goes_leaves_the_others() {
    if !mmu_here() {
        return;
    }
    let mut fan = Fanout::new(config(), PATIENCE).unwrap();
    let (stays, goes) = (fan.receiver().unwrap(), fan.receiver().unwrap());
    let sent = send(&mut fan, 1);
    let loan = goes.recv().unwrap();
    drop(goes);
    // What it still reads stays, and it gets no more.
    for round in 2..10 {
        let _ = send(&mut fan, round);
        while let Ok(loan) = stays.try_recv() {
            drop(loan);
        }
        assert!(everywhere(&loan, 1));
    }
    drop((loan, sent));
    fan.pump();
    assert_eq!((fan.receivers(), fan.slots_taken()), (1, 0));
}

#[test]
fn buffers_of_another_fan_out_are_refused() {
    let (mut one, mut other) =
        (Fanout::new(config(), PATIENCE).unwrap(), Fanout::new(config(), PATIENCE).unwrap());
    let buffer = one.buffer(1).unwrap();
    assert_eq!(other.loan(buffer).unwrap_err(), Error::Usage(Usage::OtherChannel));
    assert_eq!(one.slots_taken(), 0);
}

#[test]
fn who_waits_for_memory_gets_what_another_thread_drops() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut fan = Fanout::new(config().slots(2), PATIENCE).unwrap();
        let rx = fan.receiver().unwrap();
        let out = send(&mut fan, 1);
        let held = rx.recv().unwrap();
        for round in 0..20 {
            let buffer = fan.buffer(3000).unwrap();
            let dropper = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(2));
                drop(buffer);
            });
            drop(fan.buffer(3000).unwrap());
            dropper.join().unwrap();
            let sent = send(&mut fan, round);
            drop(rx.recv().unwrap());
            let dropper = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(2));
                drop(sent);
            });
            drop(fan.buffer(3000).unwrap());
            dropper.join().unwrap();
        }
        drop((held, out));
        done.send(()).unwrap();
    });
    finished.recv_timeout(Duration::from_secs(60)).expect("it is woken");
}
