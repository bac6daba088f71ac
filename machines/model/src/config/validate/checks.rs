//! What the checks of several tables have in common.

use crate::config::machine::MachineConfig;
use crate::config::number::Number;
use pageferry_sourced::Fault;

/// The tags of the model have 29 bits.
const MAX_TAGS: u64 = 1 << 29;

/// The fault of a key.
pub(super) fn fault<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { key: key.into(), problem: problem.into(), suggestion: None })
}

/// Refuses what is no power of two.
pub(super) fn power_of_two(key: &str, number: &Number) -> Result<(), Fault> {
    if number.value.is_power_of_two() {
        return Ok(());
    }
    fault(key, format!("{}, expected a power of two", number.value))
}

/// Refuses ways that entries cannot be divided into.
pub(super) fn tlb_geometry(table: &str, entries: &Number, ways: &Number) -> Result<(), Fault> {
    let ways_key = format!("{table}.ways");
    if ways.value == 0 {
        return Ok(());
    }
    if ways.value > entries.value {
        return fault(ways_key, format!("{}, expected 0 to {}", ways.value, entries.value));
    }
    if !entries.value.is_multiple_of(ways.value) || !(entries.value / ways.value).is_power_of_two() {
        let entries = entries.value;
        return fault(
            ways_key,
            format!("{}, expected {entries} entries / ways to be a power of two", ways.value),
        );
    }
    Ok(())
}

/// Whether lines of memory that share a set, each in so many colours, can be told apart by the model's tags.
pub(super) fn tags_suffice(machine: &MachineConfig, sets: u64, line_bytes: u64, colours: u32) -> bool {
    let lines_behind = machine.memory.size_mb.value.saturating_mul(1 << 20) / line_bytes / sets;
    lines_behind * u64::from(colours) <= MAX_TAGS
}
