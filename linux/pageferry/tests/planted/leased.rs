//! What a lease keeps out.

use crate::lent::{LEN, Map, open_writable, path_to};
use crate::{Found, holds};
use pageferry::{Broken, Channel, Config, Error, Lent, Level, Loan, PeerFault, Receiver, Sender, verify};

fn pair() -> Option<(Sender, Receiver)> {
    Channel::pair(Config::new().slots(2).slot_bytes(LEN).require_level(Level::Leased)).ok()
}

/// A message that the receiver holds.
fn held(tx: &Sender, rx: &Receiver) -> (Lent, Loan) {
    let mut buffer = tx.buffer(LEN).unwrap();
    buffer.fill(7);
    let lent = tx.loan(buffer).unwrap();
    (lent, rx.recv().unwrap())
}

/// What has a writer is not read.
pub fn hidden_writer() -> Found {
    let Some((tx, rx)) = pair() else { return Found::NotHere };
    let mut buffer = tx.buffer(LEN).unwrap();
    buffer.fill(7);
    let writer = Map::again(buffer.as_mut_ptr());
    let _lent = tx.loan(buffer).unwrap();
    let Ok(loan) = rx.recv() else { return Found::Holds };
    writer.store(66);
    holds(loan[0] == 7)
}

/// A peer that tried to write to what it had lent is at fault.
pub fn broken_lease() -> Found {
    let Some((tx, rx)) = pair() else { return Found::NotHere };
    let (lent, loan) = held(&tx, &rx);
    open_writable(&path_to(lent.as_ptr()), false).unwrap_err();
    drop(loan);
    holds(rx.try_recv().unwrap_err() == Error::Peer(PeerFault::Broken(Broken::LeaseBroken)))
}

/// What the receiver has is its own before a writer has the memory.
pub fn saved() -> Found {
    let Some((tx, rx)) = pair() else { return Found::NotHere };
    let (lent, loan) = held(&tx, &rx);
    let path = path_to(lent.as_ptr());
    open_writable(&path, false).unwrap_err();
    verify::look_at_leases();
    let writer = open_writable(&path, false).unwrap();
    Map::new(&writer, libc::PROT_READ | libc::PROT_WRITE).store(66);
    holds(loan[0] == 7)
}
