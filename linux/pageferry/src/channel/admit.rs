//! Whether a descriptor that came is one that an honest peer of this channel could have sent.
//!
//! A descriptor was read once, into registers. Here it is held against the channel (what was settled), the
//! ring (its number) and the pool (its slots and bytes). What passes can be used without another look;
//! anything else closes the channel.

use super::settled::Settled;
use crate::error::Broken;
use crate::ring::{DESCRIPTOR_WORDS, RingGeometry};
use crate::view::Geometry;
use crate::wire::{Descriptor, Extent, Level, Verb};

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
    let in_slots = descriptor.verb != Verb::Inline && descriptor.level != Level::Sealed;
    if descriptor.extents > 0
        && (!in_slots || descriptor.verb == Verb::Copy || descriptor.extents > max_extents(ring))
    {
        return Err(broken("it has extents and cannot"));
    }
    if in_slots && descriptor.extents == 0 {
        let Descriptor { first_slot, slots, offset, len, .. } = descriptor;
        in_pool(first_slot, slots, offset, len, pool).map_err(broken)?;
    } else if descriptor.first_slot != 0 || descriptor.slots != 0 {
        return Err(broken("it names slots and needs none"));
    }
    if descriptor.verb == Verb::Inline && !inline_fits(&descriptor, ring) {
        return Err(broken("it has more bytes than go in the ring"));
    }
    let object = if descriptor.level == Level::Sealed { expected } else { 0 };
    if descriptor.object != object && !planted!(NoObjectCheck) {
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

/// Pieces that a message may have: they are listed in the inline bytes of its cell.
pub(crate) fn max_extents(ring: RingGeometry) -> u16 {
    (ring.inline_bytes as usize / size_of::<Extent>()).min(u16::MAX.into()) as u16
}

/// The pieces of a message, if all of them can be: in the pool, in order, and within the message's length.
/// That they have different slots is seen when these are claimed.
pub(crate) fn admit_extents(
    descriptor: &Descriptor,
    extents: &[Extent],
    pool: Geometry,
) -> Result<(), Broken> {
    let broken = |what| Broken::Descriptor { sequence: descriptor.sequence, what };
    let mut before = 0;
    if planted!(NoExtentCheck) {
        return Ok(());
    }
    for extent in extents {
        in_pool(extent.first_slot, extent.slots, extent.offset, extent.len, pool).map_err(broken)?;
        let end = extent.at.checked_add(extent.len).filter(|&end| end <= descriptor.len);
        match end {
            Some(end) if extent.at >= before => before = end,
            _ => return Err(broken("its extents are out of order, or longer than the message")),
        }
    }
    Ok(())
}

fn in_pool(first_slot: u32, slots: u32, offset: u64, len: u64, pool: Geometry) -> Result<(), &'static str> {
    let end = first_slot.checked_add(slots);
    if slots == 0 || end.is_none_or(|end| end > pool.slots) {
        return Err("its slots are not in the pool");
    }
    let held = u64::from(slots) * pool.slot_bytes as u64;
    if (len == 0 || offset.checked_add(len).is_none_or(|end| end > held)) && !planted!(NoBoundsCheck) {
        return Err("its bytes are not in its slots");
    }
    Ok(())
}
