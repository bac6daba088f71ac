//! Who sees which bytes.

use crate::{Found, can_load, can_store, holds, mmu_pair, pair, patience};
use pageferry::{Buffer, Channel, Config, Error, HostFault, Sender};

fn filled(tx: &Sender, byte: u8) -> Buffer {
    let mut buffer = tx.buffer(5000).unwrap();
    buffer.fill(byte);
    buffer
}

/// What the sender stores by an old pointer misses the message.
pub fn stray_store() -> Found {
    let Some((tx, rx)) = mmu_pair() else { return Found::NotHere };
    let mut buffer = filled(&tx, 1);
    let stray = buffer.as_mut_ptr();
    let _lent = tx.loan(buffer).unwrap();
    can_store(stray, 2);
    holds(rx.recv().unwrap()[0] == 1)
}

/// So it does from the moment on at which the receiver can have the message.
pub fn stray_store_at_arrival() -> Found {
    let Some((tx, rx)) = mmu_pair() else { return Found::NotHere };
    let (to, addresses) = std::sync::mpsc::channel::<usize>();
    let receiver = std::thread::spawn(move || {
        addresses.iter().all(|stray| {
            let loan = rx.recv().unwrap();
            can_store(stray as *mut u8, 2);
            loan[0] == 1
        })
    });
    // The receiver goes away as soon as it has seen a store: any of these can fail then.
    for _ in 0..200 {
        let Ok(mut buffer) = tx.buffer(5000) else { break };
        buffer.fill(1);
        if to.send(buffer.as_mut_ptr() as usize).is_err() {
            break;
        }
        let Ok(lent) = tx.loan(buffer) else { break };
        if lent.wait().is_err() {
            break;
        }
    }
    drop((to, tx));
    holds(receiver.join().unwrap())
}

/// What a receiver wrote to its view of a slot is not what it sees of the next message there.
pub fn shadow() -> Found {
    let Some((tx, rx)) = mmu_pair() else { return Found::NotHere };
    let lent = tx.loan(filled(&tx, 1)).unwrap();
    let mut loan = rx.recv().unwrap();
    loan.as_mut().unwrap().fill(99);
    drop(loan);
    drop(lent);
    let _lent = tx.loan(filled(&tx, 2)).unwrap();
    holds(rx.recv().unwrap().iter().all(|&byte| byte == 2))
}

/// Nor is it when the next message comes as soon as the slot is home.
pub fn clean_when_home() -> Found {
    let Some((tx, rx)) = mmu_pair() else { return Found::NotHere };
    for round in 1..200 {
        let lent = tx.loan(filled(&tx, round)).unwrap();
        let mut loan = rx.recv().unwrap();
        loan.as_mut().unwrap().fill(0);
        let dropping = std::thread::spawn(move || drop(loan));
        let mut buffer = lent.wait().unwrap();
        buffer.fill(round + 1);
        let _lent = tx.loan(buffer).unwrap();
        let right = rx.recv_timeout(patience()).map(|loan| loan.iter().all(|&byte| byte == round + 1));
        dropping.join().unwrap();
        if !matches!(right, Ok(true)) {
            return Found::Fails;
        }
    }
    Found::Holds
}

/// What is written to a slot that has come home is in the next message.
pub fn written_anew() -> Found {
    let Some((tx, rx)) = mmu_pair() else { return Found::NotHere };
    let lent = tx.loan(filled(&tx, 1)).unwrap();
    drop(rx.recv().unwrap());
    let mut buffer = lent.wait().unwrap();
    // What is read-only still would end this process.
    if !can_store(buffer.as_mut_ptr(), 2) {
        return Found::Fails;
    }
    buffer.fill(2);
    let _lent = tx.loan(buffer).unwrap();
    holds(rx.recv().unwrap().iter().all(|&byte| byte == 2))
}

/// A process whose slots are all lent has no mapping left by which it can write to them.
pub fn no_writable_mapping() -> Found {
    let Some((tx, _rx)) = mmu_pair() else { return Found::NotHere };
    let Ok(before) = std::fs::read_to_string("/proc/self/maps") else { return Found::NotHere };
    let writable = |maps: &str| {
        let of_pool = maps.lines().filter(|line| line.contains("pageferry-pool"));
        of_pool.filter(|line| line.contains(" rw-s ")).count()
    };
    assert!(writable(&before) > 0, "a slot that is not lent is writable: {before}");
    let _lent = tx.loan(filled(&tx, 1)).unwrap();
    holds(writable(&std::fs::read_to_string("/proc/self/maps").unwrap()) == 0)
}

/// The sender cannot look at what it has donated.
pub fn donated_is_hidden() -> Found {
    let (tx, _rx) = pair();
    let buffer = filled(&tx, 1);
    let stray = buffer.as_ptr();
    assert!(can_load(stray));
    tx.donate(buffer).unwrap();
    holds(!can_load(stray))
}

/// The receiver cannot write to a donation that it has given back.
pub fn given_back_is_closed() -> Found {
    let (tx, rx) = pair();
    tx.donate(filled(&tx, 1)).unwrap();
    let mut donation = rx.recv().unwrap();
    let stray = donation.as_mut().unwrap().as_mut_ptr();
    assert!(can_store(stray, 2));
    drop(donation);
    holds(!can_store(stray, 3))
}

/// A limit on the length of files is an error of a channel, and no signal that kills.
pub fn file_limit() -> Found {
    use rustix::process::{Resource, Rlimit, setrlimit};
    drop(pair());
    crate::children::in_child(|| {
        setrlimit(Resource::Fsize, Rlimit { current: Some(4096), maximum: Some(4096) }).unwrap();
        let made = Channel::pair(Config::new().slots(1).slot_bytes(1));
        let Err(Error::Host(HostFault::Failed { failed })) = made else { return false };
        failed.call == "ftruncate" && failed.errno.raw_os_error() == libc::EFBIG
    })
}
