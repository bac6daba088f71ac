//! What a channel whose slots are leased does otherwise.
//!
//! # What it holds
//! Who offers and who accepts leases, and how the receiver's slots come to the sender: in packets of the handshake,
//! behind its welcome. All else is in the views.

use super::config::Config;
use super::greet::{receive, send};
use crate::error::{Broken, Error};
use crate::host::Host;
use crate::sys;
use crate::sys::socket::{MAX_FDS, Socket};
use crate::view::MAX_LEASED_SLOTS;
use crate::wire::{Greeting, Kind, Level};
use rustix::fd::OwnedFd;

/// Who the other side of a receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Trusted as this process.
    Same,
    /// It may be hostile, but it can neither pin pages nor stop this process.
    Confined,
    /// It may be hostile.
    Stranger,
}

const BUILT: bool = cfg!(feature = "leased");

/// Whether a sender that trusts its receiver offers leases.
pub(super) fn can_be_offered(config: &Config, host: &Host) -> bool {
    let slots = config.shapes(host).map_or(u32::MAX, |(_, pool)| pool.slots);
    BUILT && host.can_be_leased() && slots <= MAX_LEASED_SLOTS
}

/// Whether a receiver accepts leases, and thereby makes the slots.
pub(super) fn accepts(hello: &Greeting, peer: Peer, host: &Host) -> bool {
    let offered = hello.levels & Level::Leased.bit() != 0 && hello.trusting == 1;
    BUILT && offered && peer != Peer::Stranger && hello.slots <= MAX_LEASED_SLOTS && host.can_lease()
}

/// Sends slots to the sender.
pub(super) fn send_slots(socket: &Socket, slots: &[OwnedFd]) -> Result<(), Error> {
    for (index, some) in slots.chunks(MAX_FDS).enumerate() {
        let mut greeting = Greeting::new(Kind::Slots, sys::page_bytes());
        greeting.slots = (index * MAX_FDS) as u32;
        send(socket, &greeting, &some.iter().collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Waits for so many slots.
pub(super) fn receive_slots(socket: &Socket, slots: u32, config: &Config) -> Result<Vec<OwnedFd>, Error> {
    let mut fds = Vec::with_capacity(slots as usize);
    while fds.len() < slots as usize {
        let wanted = (slots as usize - fds.len()).min(MAX_FDS);
        let (greeting, some) = receive(socket, Kind::Slots, wanted, config.handshake_timeout)?;
        if greeting.slots as usize != fds.len() {
            return Err(Broken::Handshake("slots come in another order").into());
        }
        fds.extend(some);
    }
    Ok(fds)
}
