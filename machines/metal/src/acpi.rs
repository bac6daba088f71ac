//! Which processors there are: from ACPI's table of interrupt controllers (MADT). Source: ACPI specification 6.5, 5.2.
//!
//! Read while the first page tables are in use. A machine without the table, or with one that makes no sense, has the
//! processor that executes this and says no more; whoever wants others then has to name how many.

use crate::handover::read;
use pageferry_hal::CpuSet;

/// Identifiers of APICs, the first so many.
pub(crate) struct Processors {
    /// Identifiers.
    pub(crate) ids: [u32; CpuSet::MAX_CPUS],
    /// How many.
    pub(crate) count: usize,
}

impl Processors {
    /// One, which has this identifier.
    pub(crate) fn only(id: u32) -> Processors {
        let mut ids = [0; CpuSet::MAX_CPUS];
        ids[0] = id;
        Processors { ids, count: 1 }
    }

    fn add(&mut self, id: u32) {
        if self.count < self.ids.len() && !self.ids[..self.count].contains(&id) {
            self.ids[self.count] = id;
            self.count += 1;
        }
    }
}

/// All processors that can be used, the executing one, `me`, first. `None` where there is no table.
pub(crate) fn processors(root: Option<u64>, me: u32) -> Option<Processors> {
    let table = find(root.or_else(search)?)?;
    let len: u32 = read(table + 4)?;
    let end = table + u64::from(len);
    let mut found = Processors::only(me);
    let mut entry = table + 44;
    while entry + 2 <= end {
        let (kind, len): (u8, u8) = (read(entry)?, read(entry + 1)?);
        // A processor that is not enabled cannot be started.
        let (id, flags): (u32, u32) = match kind {
            0 => (u32::from(read::<u8>(entry + 3)?), read(entry + 4)?),
            9 => (read(entry + 4)?, read(entry + 8)?),
            _ => (0, 0),
        };
        if flags & 1 != 0 {
            found.add(id);
        }
        entry += u64::from(len.max(2));
    }
    Some(found)
}

/// Where firmware of PCs keeps the root for those who search.
fn search() -> Option<u64> {
    const ROOT: u64 = u64::from_le_bytes(*b"RSD PTR ");
    (0xe_0000..0x10_0000).step_by(16).find(|&at| read(at) == Some(ROOT))
}

/// The table of interrupt controllers, by way of the list of tables: the new one, with long addresses, or the old.
fn find(root: u64) -> Option<u64> {
    const NAME: u32 = u32::from_le_bytes(*b"APIC");
    let revision: u8 = read(root + 15)?;
    let (list, step) = match (revision, read::<u64>(root + 24)?) {
        (2.., list) if list != 0 => (list, 8),
        _ => (u64::from(read::<u32>(root + 16)?), 4),
    };
    let end = list + u64::from(read::<u32>(list + 4)?);
    let mut entry = list + 36;
    while entry + step <= end {
        let table = if step == 8 { read(entry)? } else { u64::from(read::<u32>(entry)?) };
        if read(table) == Some(NAME) {
            return Some(table);
        }
        entry += step;
    }
    None
}
