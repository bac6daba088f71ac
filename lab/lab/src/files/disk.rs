//! Memory disks and what is on them: `[disk]` of a kernel's file.

use super::paths::paths;
use super::words::{FrameMappingName, PtraceName};
use pageferry_hal::{CodePath, Cycles};
use pageferry_kernel::{DiskConfig, DiskPaths, SyncerDelays};
use pageferry_sourced::Sourced;
use serde::{Deserialize, Serialize};

paths! {
    /// See [`DiskPaths`].
    DiskPathsFile for DiskPaths { request, down, strategy, page, up, lookup, file_call, buffer, alloc }
}

/// Memory disks, and what is on them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskFile {
    /// How the frames are mapped that the kernel looks at for a moment: of a memory disk, of an executable's header, of
    /// a traced process, of a page that the vnode pager fills.
    pub mapping: Sourced<FrameMappingName>,
    /// How a debugger gets at the memory of a process.
    pub ptrace: Sourced<PtraceName>,
    /// Buffers of the file systems on them, 16 KB each.
    pub buffers: Sourced<u64>,
    /// Buffers that may wait to be written.
    pub dirty_buffers: Sourced<u64>,
    /// How long they may do so at most, on volumes with soft updates.
    pub syncer: SyncerFile,
    /// Path lengths in instructions.
    pub paths: DiskPathsFile,
}

/// When the syncer writes what waits in buffers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncerFile {
    /// Inodes and indirect blocks: so many seconds after the first change.
    pub metadata_s: Sourced<u64>,
    /// Directories, likewise.
    pub directory_s: Sourced<u64>,
    /// The bytes of files, likewise.
    pub file_s: Sourced<u64>,
}

impl DiskFile {
    pub(super) fn config(&self, clock_mhz: u64) -> DiskConfig {
        DiskConfig {
            mapping: self.mapping.value.into(),
            ptrace: self.ptrace.value.into(),
            buffers: self.buffers.value as usize,
            dirty_buffers: self.dirty_buffers.value as usize,
            syncer: self.syncer.delays(clock_mhz),
            paths: self.paths.lengths(),
        }
    }
}

impl SyncerFile {
    fn delays(&self, clock_mhz: u64) -> SyncerDelays {
        let cycles = |seconds: &Sourced<u64>| Cycles(seconds.value * clock_mhz * 1_000_000);
        SyncerDelays {
            metadata_cycles: cycles(&self.metadata_s),
            directory_cycles: cycles(&self.directory_s),
            file_cycles: cycles(&self.file_s),
        }
    }
}
