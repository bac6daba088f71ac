//! Who asks for kernel addresses of frames, and what is counted for each of them (sf_buf paper, 2: the uses of
//! ephemeral mappings).
//!
//! A mapping and a run keep their user, so that what it costs to unmake them is counted for the same one. Nothing is
//! decided by it.

use crate::counter::EphemeralCounter;
use pageferry_hal::Machine;
use pageferry_pmap::Invalidations;

/// Who uses an ephemeral mapping, or a run of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingUser {
    /// Direct writes of pipes.
    Pipe,
    /// Pages lent to sockets, and pages that a card receives into.
    Socket,
    /// Pages of memory disks.
    MemoryDisk,
    /// Pages of callers, mapped for the thread of a driver (`physio`).
    Physio,
    /// Buffers of file systems.
    Buffers,
    /// Pages of files, for reads and writes of their bytes.
    Files,
    /// Headers of executables.
    Exec,
    /// Pages of traced processes.
    Ptrace,
    /// Pages that the vnode pager fills block by block.
    VnodePager,
    /// Everything else: measurements and tests.
    Other,
}

impl MappingUser {
    /// All there are.
    pub const ALL: [MappingUser; 10] = [
        MappingUser::Pipe,
        MappingUser::Socket,
        MappingUser::MemoryDisk,
        MappingUser::Physio,
        MappingUser::Buffers,
        MappingUser::Files,
        MappingUser::Exec,
        MappingUser::Ptrace,
        MappingUser::VnodePager,
        MappingUser::Other,
    ];

    /// True for what the sf_buf paper calls uses of ephemeral mappings (2). The others keep what they map, or map the
    /// same way in every kernel.
    pub const fn is_ephemeral(self) -> bool {
        !matches!(self, MappingUser::Physio | MappingUser::Buffers)
    }

    /// What counts the pages mapped for it.
    pub const fn mappings(self) -> EphemeralCounter {
        match self {
            MappingUser::Pipe => EphemeralCounter::MappingsByPipe,
            MappingUser::Socket => EphemeralCounter::MappingsBySocket,
            MappingUser::MemoryDisk => EphemeralCounter::MappingsByMemoryDisk,
            MappingUser::Physio => EphemeralCounter::MappingsByPhysio,
            MappingUser::Buffers => EphemeralCounter::MappingsByBuffers,
            MappingUser::Files => EphemeralCounter::MappingsByFiles,
            MappingUser::Exec => EphemeralCounter::MappingsByExec,
            MappingUser::Ptrace => EphemeralCounter::MappingsByPtrace,
            MappingUser::VnodePager => EphemeralCounter::MappingsByVnodePager,
            MappingUser::Other => EphemeralCounter::MappingsByOther,
        }
    }

    /// What counts the invalidations issued for its mappings, here and elsewhere.
    pub const fn invalidations(self) -> EphemeralCounter {
        match self {
            MappingUser::Pipe => EphemeralCounter::InvalidationsByPipe,
            MappingUser::Socket => EphemeralCounter::InvalidationsBySocket,
            MappingUser::MemoryDisk => EphemeralCounter::InvalidationsByMemoryDisk,
            MappingUser::Physio => EphemeralCounter::InvalidationsByPhysio,
            MappingUser::Buffers => EphemeralCounter::InvalidationsByBuffers,
            MappingUser::Files => EphemeralCounter::InvalidationsByFiles,
            MappingUser::Exec => EphemeralCounter::InvalidationsByExec,
            MappingUser::Ptrace => EphemeralCounter::InvalidationsByPtrace,
            MappingUser::VnodePager => EphemeralCounter::InvalidationsByVnodePager,
            MappingUser::Other => EphemeralCounter::InvalidationsByOther,
        }
    }

    /// What counts those of them that were asked of other CPUs.
    pub const fn remote_invalidations(self) -> EphemeralCounter {
        match self {
            MappingUser::Pipe => EphemeralCounter::RemoteInvalidationsByPipe,
            MappingUser::Socket => EphemeralCounter::RemoteInvalidationsBySocket,
            MappingUser::MemoryDisk => EphemeralCounter::RemoteInvalidationsByMemoryDisk,
            MappingUser::Physio => EphemeralCounter::RemoteInvalidationsByPhysio,
            MappingUser::Buffers => EphemeralCounter::RemoteInvalidationsByBuffers,
            MappingUser::Files => EphemeralCounter::RemoteInvalidationsByFiles,
            MappingUser::Exec => EphemeralCounter::RemoteInvalidationsByExec,
            MappingUser::Ptrace => EphemeralCounter::RemoteInvalidationsByPtrace,
            MappingUser::VnodePager => EphemeralCounter::RemoteInvalidationsByVnodePager,
            MappingUser::Other => EphemeralCounter::RemoteInvalidationsByOther,
        }
    }

    /// So many pages were mapped for it.
    pub(crate) fn mapped<M: Machine>(self, machine: &M, pages: usize) {
        machine.count(self.mappings(), pages as u64);
    }

    /// So much was invalidated for it.
    pub(crate) fn invalidated<M: Machine>(self, machine: &M, issued: Invalidations) {
        machine.count(self.invalidations(), issued.local + issued.remote);
        machine.count(self.remote_invalidations(), issued.remote);
    }
}
