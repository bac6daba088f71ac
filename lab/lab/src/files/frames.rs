//! Memory: `[frames]`, `[structures]`, `[shadows]`, `[transfer]` and `[paging]` of a kernel's file.
//!
//! In which order frames are used again, how large structures are, what anonymous memory is made of, how pages are
//! moved into it, and what takes back frames that are used no longer. A kernel without the second has those that
//! [`StructureSizes::of`] says; one without the third has amaps and anons; one without the fourth does all of a
//! transfer for each page, and frees what is replaced; one without the fifth has memory that stays full when it is
//! full.

use super::locks::LocksFile;
use super::words::FreedToName;
use pageferry_hal::{CodePath, Width};
use pageferry_sourced::{Fault, Sourced};
use pageferry_vm::{
    Anonymous, BufferHeads, FreeLists, FreedTo, PagingConfig, PagingPaths, ShadowConfig, ShadowPaths,
    StructureSizes, StructuresConfig, TransferConfig,
};
use serde::{Deserialize, Serialize};

/// Physical memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FramesFile {
    /// To the head of the free list, where they are taken from, or to its tail.
    pub freed_to: Sourced<FreedToName>,
    /// Where they are taken for pages that are to be clear. See [`FreeLists::clear_from_tail`].
    pub clear_from: Sourced<FreedToName>,
    /// See [`FreeLists::colours`].
    pub colours: Sourced<i64>,
    /// See [`FreeLists::max_colour_step`].
    pub max_colour_step: Sourced<i64>,
}

impl FramesFile {
    /// What a file that has this table, or none, says.
    pub(super) fn lists(table: Option<&FramesFile>) -> FreeLists {
        let Some(frames) = table else { return FreeLists::one(FreedTo::Head) };
        FreeLists {
            freed_to: frames.freed_to.value.into(),
            clear_from_tail: FreedTo::from(frames.clear_from.value) == FreedTo::Tail,
            colours: frames.colours.value as u32,
            max_colour_step: frames.max_colour_step.value as u32,
        }
    }

    pub(super) fn validate(&self) -> Result<(), Fault> {
        if !self.colours.value.is_positive() || !(self.colours.value as u64).is_power_of_two() {
            let problem = format!("{}, expected a power of two", self.colours.value);
            return Err(Fault { key: "frames.colours".into(), problem, suggestion: None });
        }
        Ok(())
    }
}

/// The kernel's structures: bytes of each where pointers have 4 bytes, and where they have 8. See [`StructuresConfig`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructuresFile {
    /// `vm_page`.
    pub page_bytes: Sourced<u32>,
    /// With pointers of 8 bytes.
    pub page_bytes_64: Sourced<u32>,
    /// `vm_anon`.
    pub anon_bytes: Sourced<u32>,
    /// With pointers of 8 bytes.
    pub anon_bytes_64: Sourced<u32>,
    /// `vm_map_entry`.
    pub entry_bytes: Sourced<u32>,
    /// With pointers of 8 bytes.
    pub entry_bytes_64: Sourced<u32>,
    /// The fixed part of a `vm_amap`.
    pub amap_bytes: Sourced<u32>,
    /// With pointers of 8 bytes.
    pub amap_bytes_64: Sourced<u32>,
    /// What an amap has for each slot.
    pub slot_bytes: Sourced<u32>,
    /// With pointers of 8 bytes.
    pub slot_bytes_64: Sourced<u32>,
    /// `uvm_object`.
    pub object_bytes: Sourced<u32>,
    /// With pointers of 8 bytes.
    pub object_bytes_64: Sourced<u32>,
    /// `vmspace`.
    pub space_bytes: Sourced<u32>,
    /// With pointers of 8 bytes.
    pub space_bytes_64: Sourced<u32>,
    /// `pv_entry`, a reverse mapping.
    pub pv_bytes: Sourced<u32>,
    /// With pointers of 8 bytes.
    pub pv_bytes_64: Sourced<u32>,
    /// Pages of objects and of the kernel are found by a hash table; if not, by what objects have of their own.
    pub page_hash: Sourced<bool>,
}

impl StructuresFile {
    /// Bytes of a reverse mapping, for pointers of this width.
    pub fn pv_bytes(&self, pointer: Width) -> usize {
        let bytes = match pointer {
            Width::Four => &self.pv_bytes,
            Width::Eight => &self.pv_bytes_64,
        };
        bytes.value as usize
    }

    /// What it says for pointers of this width.
    pub fn config(&self, pointer: Width) -> StructuresConfig {
        let of = |four: &Sourced<u32>, eight: &Sourced<u32>| match pointer {
            Width::Four => four.value as usize,
            Width::Eight => eight.value as usize,
        };
        StructuresConfig {
            sizes: StructureSizes {
                page_bytes: of(&self.page_bytes, &self.page_bytes_64),
                anon_bytes: of(&self.anon_bytes, &self.anon_bytes_64),
                entry_bytes: of(&self.entry_bytes, &self.entry_bytes_64),
                amap_bytes: of(&self.amap_bytes, &self.amap_bytes_64),
                slot_bytes: of(&self.slot_bytes, &self.slot_bytes_64),
                object_bytes: of(&self.object_bytes, &self.object_bytes_64),
                space_bytes: of(&self.space_bytes, &self.space_bytes_64),
            },
            page_hash: self.page_hash.value,
        }
    }
}

/// Chains of shadow objects, in place of amaps and anons. See [`ShadowConfig`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowsFile {
    /// The most neighbouring pages of one object that go to the swap area in one request.
    pub cluster_pages: Sourced<u64>,
    /// Instructions of looking for a page in one object of a chain.
    pub search: Sourced<u32>,
    /// Instructions of putting a new object before another.
    pub shadow: Sourced<u32>,
    /// Instructions of marking one page at a fork.
    pub mark: Sourced<u32>,
    /// Instructions of one page that a collapse or a bypass looks at.
    pub collapse: Sourced<u32>,
}

impl ShadowsFile {
    /// What a file that has this table, or none, says.
    pub(super) fn anonymous(table: Option<&ShadowsFile>) -> Anonymous {
        table.map_or(Anonymous::Amaps, |shadows| {
            Anonymous::Shadows(ShadowConfig {
                cluster_pages: shadows.cluster_pages.value as usize,
                paths: ShadowPaths {
                    search: CodePath::of(shadows.search.value),
                    shadow: CodePath::of(shadows.shadow.value),
                    mark: CodePath::of(shadows.mark.value),
                    collapse: CodePath::of(shadows.collapse.value),
                },
            })
        })
    }
}

/// Moving pages into an address space. See [`TransferConfig`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferFile {
    /// So many of the locked instructions of `locks.on_path.vm.transfer` are made once a call, and not for each page.
    pub locked_once: Sourced<u32>,
    /// So many of them give a page that is replaced to the allocator.
    pub put_locked: Sourced<u32>,
    /// A page that is replaced goes back to whom the new one comes from, and not to the allocator.
    pub returns: Sourced<bool>,
}

impl TransferFile {
    /// What a file that has this table, or none, says.
    pub(super) fn config(table: Option<&TransferFile>) -> TransferConfig {
        table.map_or_else(TransferConfig::default, |transfer| TransferConfig {
            locked_once: transfer.locked_once.value,
            returns: transfer.returns.value,
            put_locked: transfer.put_locked.value,
        })
    }

    /// Refuses more locked instructions than there are on the path.
    pub(super) fn validate(&self, locks: Option<&LocksFile>) -> Result<(), Fault> {
        let path = locks.and_then(|locks| locks.on_path.get("vm")?.get("transfer")).map_or(0, |n| n.value);
        let named = self.locked_once.value.saturating_add(self.put_locked.value);
        if named <= path {
            return Ok(());
        }
        let max = path.saturating_sub(self.put_locked.value);
        Err(Fault {
            key: "transfer.locked_once".into(),
            problem: format!(
                "{}, expected at most {max}: locks.on_path.vm.transfer is {path}, of which transfer.put_locked are {}",
                self.locked_once.value, self.put_locked.value
            ),
            suggestion: None,
        })
    }
}

/// The page daemon and its swap area. See [`PagingConfig`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagingFile {
    /// The swap area, in MB (of 2^20 bytes), at the start of the disk.
    pub swap_mb: Sourced<u64>,
    /// Fewer free frames wake the page daemon.
    pub free_min_pages: Sourced<u64>,
    /// It goes on until so many are free.
    pub free_target_pages: Sourced<u64>,
    /// The last free frames, for the kernel only.
    pub kernel_reserve_pages: Sourced<u64>,
    /// The last of these, for the page daemon only.
    pub daemon_reserve_pages: Sourced<u64>,
    /// The part of pageable frames that is kept inactive.
    pub inactive_percent: Sourced<u64>,
    /// The most pages in one request.
    pub cluster_pages: Sourced<u64>,
    /// The most pages that come in behind one of a file.
    pub read_ahead_pages: Sourced<u64>,
    /// The part of memory that processes may lock.
    pub lock_limit_percent: Sourced<u64>,
    /// Instructions of the page daemon's look at one frame.
    pub scan: Sourced<u32>,
    /// Instructions of one request to the disk, and of taking its answer.
    pub io: Sourced<u32>,
    /// Heads of buffers, where the kernel has them.
    pub heads: Option<HeadsFile>,
}

/// What the kernel keeps of each block of a request, and the hash table of blocks that it keeps. See [`BufferHeads`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadsFile {
    /// Bytes of a head.
    pub head_bytes: Sourced<u64>,
    /// Bytes of a block, a page or a part of it.
    pub block_bytes: Sourced<u64>,
    /// Pointers of the hash table.
    pub buckets: Sourced<u64>,
}

impl PagingFile {
    pub(super) fn config(&self) -> PagingConfig {
        PagingConfig {
            swap_pages: (self.swap_mb.value << 20 >> pageferry_hal::PAGE_SHIFT) as u32,
            free_min_pages: self.free_min_pages.value as usize,
            free_target_pages: self.free_target_pages.value as usize,
            kernel_reserve_pages: self.kernel_reserve_pages.value as usize,
            daemon_reserve_pages: self.daemon_reserve_pages.value as usize,
            inactive_percent: self.inactive_percent.value as usize,
            cluster_pages: self.cluster_pages.value as usize,
            read_ahead_pages: self.read_ahead_pages.value as usize,
            lock_limit_percent: self.lock_limit_percent.value as usize,
            heads: self.heads.as_ref().map(|heads| BufferHeads {
                head_bytes: heads.head_bytes.value as usize,
                block_bytes: heads.block_bytes.value as usize,
                buckets: heads.buckets.value as usize,
            }),
            paths: PagingPaths { scan: CodePath::of(self.scan.value), io: CodePath::of(self.io.value) },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::files::KernelChoice;

    #[test]
    fn there_is_a_power_of_two_of_colours() {
        let mut file = KernelChoice::find("original").expect("built in").file;
        for colours in [1, 2, 32, 1 << 12] {
            file.frames.as_mut().expect("it says how frames are taken").colours.value = colours;
            file.validate().expect("a power of two");
        }
        for colours in [3, 33, 48] {
            file.frames.as_mut().expect("it says how frames are taken").colours.value = colours;
            assert_eq!(file.validate().expect_err("no power of two").key, "frames.colours");
        }
    }
}
