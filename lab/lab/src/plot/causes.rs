//! The causes of cycles as parts of stacks.

use super::{Key, Part, Stack};
use crate::record::Record;

/// The causes of cycles as they are drawn: colour, sign in the bar, name, causes. Copying is copying, by whatever name.
pub const CAUSES: [(&str, &str, &str, &[&str]); 13] = [
    ("copy", "C", "copying", &["copy"]),
    ("user", "U", "user code", &["user"]),
    ("tlb", "T", "TLB misses", &["tlb_miss", "refill"]),
    ("local", "L", "local invalidation", &["invalidate_local"]),
    ("shoot", "S", "shootdowns", &["shootdown_sent", "shootdown_received"]),
    ("pte", "P", "page-table work", &["pte_work", "ica_attach", "ica_detach"]),
    ("kva", "A", "address allocation", &["address_allocation"]),
    ("eph", "E", "ephemeral mappings", &["ephemeral"]),
    ("vm", "V", "frames, faults, VM", &["frame", "vm", "fault", "zero"]),
    ("lock", "K", "locks", &["lock"]),
    ("proto", "I", "pipe code", &["protocol"]),
    ("sys", "Y", "system calls, switches", &["syscall", "switch", "interrupt", "boot"]),
    ("idle", "", "idle", &["idle"]),
];

/// A stack of the causes in the cycles of `record`, times `factor`.
pub fn parts(record: &Record, factor: f64) -> Vec<Part> {
    let part = |(colour, sign, name, causes): &(&'static str, &'static str, &str, &[&str])| {
        let cycles: u64 = causes.iter().map(|cause| record.cycles.of(cause)).sum();
        Part { colour, sign, name: (*name).into(), value: cycles as f64 * factor }
    };
    CAUSES.iter().map(part).collect()
}

/// The keys of the causes that occur in `groups`.
pub fn causes_in(groups: &[Stack]) -> Vec<Key> {
    let parts = || groups.iter().flat_map(|g| &g.rows).flat_map(|r| &r.parts);
    let used = CAUSES.iter().filter(|(_, _, name, _)| parts().any(|p| p.name == *name && p.value > 0.0));
    used.map(|(colour, sign, name, _)| Key::part(colour, sign, name)).collect()
}
