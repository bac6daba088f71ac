//! Channels whose slots the receiver has made and leases. The tests fork, plant defects, and count descriptors, so they
//! are a program of their own, and each is alone in it.

mod child;
mod confined;
mod handshake;
mod honest;
#[path = "../peer/idle.rs"]
mod idle;
mod memory;
#[path = "../peer/uring.rs"]
mod uring;
mod writers;

use idle::Idle;
use memory::{LEN, Map, open_writable, path_to};
use pageferry::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn config() -> Config {
    Config::new().copy_on_write(true).slots(4).slot_bytes(LEN).require_level(Level::Leased)
}

/// Whether this host has leases; the tests have nothing to say of one that has not.
fn can_lease() -> bool {
    let items = host::Host::get().items();
    items.iter().any(|item| item.name == "leases" && item.verdict == host::Verdict::Good)
}

/// No other test of this program runs meanwhile. `None`: this host has no leases.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    // To ask whether there are leases takes descriptors, too.
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    can_lease().then_some(alone)
}

fn filled(tx: &Sender, len: usize, byte: u8) -> Buffer {
    let mut buffer = tx.buffer(len).unwrap();
    buffer.fill(byte);
    buffer
}

fn all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|&b| b == byte)
}

fn refused(error: &Error) -> bool {
    matches!(error, Error::Peer(PeerFault::Broken(Broken::Descriptor { what, .. })) if what.contains("can still write"))
}

fn broken(error: &Error) -> bool {
    *error == Error::Peer(PeerFault::Broken(Broken::LeaseBroken))
}
