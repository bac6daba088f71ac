//! Whether a descriptor that came is one that an honest peer of this channel could have sent.
//!
//! A descriptor was read once, into registers. Here it is held against the channel (what was settled), the
//! ring (its number) and the pool (its slots and bytes). What passes can be used without another look;
//! anything else closes the channel.

use super::handshake::Settled;
use crate::error::Broken;
use crate::ring::{DESCRIPTOR_WORDS, RingGeometry};
use crate::view::Geometry;
use crate::wire::{Descriptor, Level, Verb};

/// The descriptor, if all of it can be.
pub(crate) fn admit(
    words: &[u64; DESCRIPTOR_WORDS],
    expected: u64,
    settled: &Settled,
    ring: RingGeometry,
    pool: Geometry,
) -> Result<Descriptor, Broken> {
    let broken = |what| Broken::Descriptor { sequence: expected, what };
    let descriptor = Descriptor::parse(words).map_err(broken)?;
    if descriptor.sequence != expected && !planted!(NoSequenceCheck) {
        return Err(broken("its number is not the next one"));
    }
    if !settled.allows(descriptor.verb) && !planted!(NoVerbCheck) {
        return Err(broken("its verb was not agreed on"));
    }
    if !level_fits(&descriptor, settled) && !planted!(NoVerbCheck) {
        return Err(broken("its level was not agreed on"));
    }
    if descriptor.extents != 0 {
        return Err(broken("its extents were not agreed on"));
    }
    let in_slots = descriptor.verb != Verb::Inline && descriptor.level != Level::Sealed;
    if in_slots {
        in_pool(&descriptor, pool).map_err(broken)?;
    } else if descriptor.first_slot != 0 || descriptor.slots != 0 {
        return Err(broken("it names slots and needs none"));
    }
    if descriptor.verb == Verb::Inline && !inline_fits(&descriptor, ring) {
        return Err(broken("it has more bytes than go in the ring"));
    }
    if descriptor.object != if descriptor.level == Level::Sealed { expected } else { 0 } {
        return Err(broken("it names sealed memory that is not its own"));
    }
    Ok(descriptor)
}

fn level_fits(descriptor: &Descriptor, settled: &Settled) -> bool {
    match descriptor.verb {
        Verb::Inline | Verb::Copy => descriptor.level == Level::Copy,
        Verb::Loan => descriptor.level == settled.level && descriptor.level != Level::Copy,
        Verb::Donate | Verb::Share => descriptor.level == Level::Typed,
    }
}

fn inline_fits(descriptor: &Descriptor, ring: RingGeometry) -> bool {
    (descriptor.offset == 0 && descriptor.len <= u64::from(ring.inline_bytes)) || planted!(NoBoundsCheck)
}

fn in_pool(descriptor: &Descriptor, pool: Geometry) -> Result<(), &'static str> {
    let end = descriptor.first_slot.checked_add(descriptor.slots);
    if descriptor.slots == 0 || end.is_none_or(|end| end > pool.slots) {
        return Err("its slots are not in the pool");
    }
    let held = u64::from(descriptor.slots) * pool.slot_bytes as u64;
    let end = descriptor.offset.checked_add(descriptor.len);
    if (descriptor.len == 0 || end.is_none_or(|end| end > held)) && !planted!(NoBoundsCheck) {
        return Err("its bytes are not in its slots");
    }
    Ok(())
}
