//! What a channel is to be.

use crate::error::{Error, Usage};
use crate::host::Host;
use crate::ring::RingGeometry;
use crate::view::Geometry;
use crate::wire::Level;
use std::time::Duration;

/// What a channel is to be. Each side has one: the sender's says how large pool and ring are, and both say
/// what they will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    slots: u32,
    slot_bytes: usize,
    level: Level,
    require_level: bool,
    donations: bool,
    pub(crate) copy_on_write: bool,
    budget: u64,
    capacity: u32,
    inline_bytes: u32,
    pub(crate) spin: Duration,
    pub(crate) handshake_timeout: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            slots: 8,
            slot_bytes: 4 << 20,
            level: Level::Mmu,
            require_level: false,
            donations: true,
            copy_on_write: false,
            budget: 1 << 30,
            capacity: 64,
            inline_bytes: 16 << 10,
            spin: default_spin(),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// A side that waits looks for so long before it sleeps; with one CPU it would only keep the peer from running.
fn default_spin() -> Duration {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    if cpus < 2 { Duration::ZERO } else { Duration::from_micros(20) }
}

impl Config {
    /// Eight slots of 4 MB, loans at [`Level::Mmu`], a budget of 1 GB.
    pub fn new() -> Config {
        Config::default()
    }

    /// Slots of the pool: 1 to 4096.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Config {
        self.slots = slots;
        self
    }

    /// Bytes of a slot; rounded up to what the MMU maps at a time (2 MB).
    #[must_use]
    pub fn slot_bytes(mut self, bytes: usize) -> Config {
        self.slot_bytes = bytes;
        self
    }

    /// What loans are to promise. Where this host or the peer cannot have it, messages are copied ([`Level::Copy`]):
    /// ask `level()` of either side, or see [`Config::require_level`].
    #[must_use]
    pub fn level(mut self, level: Level) -> Config {
        self.level = level;
        self.require_level = false;
        self
    }

    /// The same, and no channel at all where it cannot be had.
    #[must_use]
    pub fn require_level(mut self, level: Level) -> Config {
        self.level = level;
        self.require_level = true;
        self
    }

    /// Whether memory can be donated, between sides that trust each other. Costs a mapping.
    #[must_use]
    pub fn donations(mut self, donations: bool) -> Config {
        self.donations = donations;
        self
    }

    /// What a sender's stray stores to lent memory do, at [`Level::Mmu`] and [`Level::Sealed`]: they never reach the
    /// message. Without this they are faults, for the sender's view is made read-only. With it they make pages of
    /// the sender's own; at `Mmu` the view is mapped anew for that, private, which takes about three times as long,
    /// and faults for what is filled next. Safe Rust has no such stores. What hands out pointers to others may need
    /// it.
    #[must_use]
    pub fn copy_on_write(mut self, copy_on_write: bool) -> Config {
        self.copy_on_write = copy_on_write;
        self
    }

    /// Bytes that the peer can make this side hold, at most: the pool, copies, sealed memory. A
    /// sender of sealed memory prepares a quarter of it at most, beside what is out.
    #[must_use]
    pub fn budget(mut self, bytes: u64) -> Config {
        self.budget = bytes;
        self
    }

    /// Messages that are sent and not given back, at most: a power of two from 2 to 4096.
    #[must_use]
    pub fn capacity(mut self, messages: u32) -> Config {
        self.capacity = messages;
        self
    }

    /// Bytes of a message that goes by copy in the ring itself, at most: a multiple of 64, to 1 MB.
    #[must_use]
    pub fn inline_bytes(mut self, bytes: u32) -> Config {
        self.inline_bytes = bytes;
        self
    }

    /// How long a side that waits looks before it sleeps. `Duration::MAX`: it never sleeps.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Config {
        self.spin = spin;
        self
    }

    /// How long the peer may take for each step of the handshake.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Config {
        self.handshake_timeout = timeout;
        self
    }

    /// Whether a channel can be made with it here; the error names the value and what it may be.
    pub fn check(&self) -> Result<(), Error> {
        self.shapes(Host::get()).map(drop)
    }

    pub(crate) fn wanted_level(&self) -> Level {
        self.level
    }

    pub(crate) fn requires_level(&self) -> bool {
        self.require_level
    }

    pub(crate) fn wants_donations(&self) -> bool {
        self.donations
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.budget
    }

    /// The shapes of ring and pool, if they can be.
    pub(crate) fn shapes(&self, host: &Host) -> Result<(RingGeometry, Geometry), Error> {
        let bad = |key, value, expected: &str| Usage::Config { key, value, expected: expected.to_owned() };
        let ring = RingGeometry { capacity: self.capacity, inline_bytes: self.inline_bytes };
        if !ring.is_valid() {
            if !self.capacity.is_power_of_two() || !RingGeometry::CAPACITIES.contains(&self.capacity) {
                return Err(bad("capacity", self.capacity.into(), "a power of two from 2 to 4096").into());
            }
            return Err(
                bad("inline_bytes", self.inline_bytes.into(), "a multiple of 64, up to 1048576").into()
            );
        }
        if !(1..=Geometry::MAX_SLOTS).contains(&self.slots) {
            return Err(bad("slots", self.slots.into(), "1 to 4096").into());
        }
        let slot_bytes = self.slot_bytes.checked_next_multiple_of(host.slot_align().max(host.page_bytes()));
        let pool = slot_bytes.map(|slot_bytes| Geometry { slots: self.slots, slot_bytes });
        let pool = pool.filter(|pool| self.slot_bytes > 0 && pool.checked_bytes().is_some());
        let pool = pool.ok_or_else(|| {
            bad("slot_bytes", self.slot_bytes as u64, "1 or more, and a pool that fits into memory")
        })?;
        if pool.bytes() as u64 > self.budget {
            let expected = format!("at least the pool's {} bytes", pool.bytes());
            return Err(Usage::Config { key: "budget", value: self.budget, expected }.into());
        }
        Ok((ring, pool))
    }
}
