//! The kernel as an assembly of owners: each part owns what it is about, and holds what it needs of others.
//!
//! # Locks
//! Those of its parts.

use crate::config::KernelConfig;
use crate::dev::{Audio, Screen};
use crate::measure::Measuring;
use crate::sys::{FileServer, NetServer};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, Pid};
use pageferry_core::base::Core;
use pageferry_core::config::NullAnswers;
use pageferry_core::disk::MemoryDisk;
use pageferry_core::fs::{MemFs, MountTable, MountedVolume, Volumes};
use pageferry_core::ipc::{Exports, Pipes};
use pageferry_core::proc::{Killed, Listed, Processes};
use pageferry_costs::{MoveCosts, RequestCosts};
use pageferry_ephemeral::Ephemeral;
use pageferry_hal::{Machine, Va};
use pageferry_ispc::Ispc;
use pageferry_net::{Counts, Net, Protocols, SockBufs};
use pageferry_vm::Vm;

/// A running kernel. See the [crate].
pub struct Kernel<M: Machine> {
    pub(crate) config: KernelConfig,
    pub(crate) core: Arc<Core<M>>,
    pub(crate) processes: Processes<M>,
    pub(crate) pipes: Arc<Pipes<M>>,
    pub(crate) sockets: Arc<SockBufs<M>>,
    pub(crate) exports: Exports<M>,
    pub(crate) net: Option<Arc<Net<M>>>,
    pub(crate) ispc: Option<Arc<Ispc<M>>>,
    pub(crate) file_server: Option<Arc<dyn FileServer<M>>>,
    pub(crate) net_server: Option<Arc<dyn NetServer<M>>>,
    pub(crate) measuring: Measuring<M>,
    pub(crate) files: Arc<MemFs<M>>,
    pub(crate) audio: Arc<Audio<M>>,
    pub(crate) memory_disk: Arc<MemoryDisk<M>>,
    pub(crate) mounted: Arc<MountedVolume<M>>,
    pub(crate) mounts: MountTable<M>,
    /// Who has the volume: the kernel, or a server.
    pub(crate) volumes: Arc<dyn Volumes<M>>,
    pub(crate) screen: Screen,
    pub(crate) boot_free_frames: usize,
}

impl<M: Machine> Kernel<M> {
    /// The machine that it runs on.
    pub fn machine(&self) -> &M {
        &self.core.machine
    }
    /// What it was booted with.
    pub fn config(&self) -> &KernelConfig {
        &self.config
    }
    /// Its VM system.
    pub fn vm(&self) -> &Arc<Vm<M>> {
        &self.core.vm
    }
    /// What its calls stand on.
    pub fn core(&self) -> &Arc<Core<M>> {
        &self.core
    }
    /// Where the buffers of its sockets are made.
    pub(crate) fn sockets(&self) -> &Arc<SockBufs<M>> {
        &self.sockets
    }
    /// Its network, if it has one.
    pub fn net(&self) -> Option<&Arc<Net<M>>> {
        self.net.as_ref()
    }
    /// Its communication area, if it has one.
    pub fn ispc(&self) -> Option<&Arc<Ispc<M>>> {
        self.ispc.as_ref()
    }
    /// Where the free clusters of the mbufs' pool are, the next to be used first. For experiments that look at what was
    /// sent.
    pub fn free_clusters(&self) -> Vec<Va> {
        self.core.mbufs.free_clusters()
    }
    /// Where the pages are that a null socket answers the next read with. For experiments that write what it is to
    /// answer.
    pub fn null_answer(&self) -> Vec<Va> {
        match self.core.config.socket.null_answers {
            NullAnswers::Clusters => self.core.mbufs.free_clusters(),
            NullAnswers::Memory => self.core.answers.next(),
        }
    }
    /// Blocks of the disk that no file has.
    pub fn free_file_blocks(&self) -> usize {
        self.files.free_blocks()
    }
    /// The process that serves files, under a kernel that has none of its own; nothing before a volume is mounted.
    pub fn file_server(&self) -> Option<Pid> {
        self.file_server.as_ref().and_then(|server| server.server())
    }
    /// The processes that have the protocols and the card, under a kernel whose servers have them; nothing before there
    /// is a socket.
    pub fn net_servers(&self) -> (Option<Pid>, Option<Pid>) {
        self.net_server.as_ref().map_or((None, None), |server| server.servers())
    }
    /// What the network has done and dropped; nothing of a kernel without one.
    pub fn net_counts(&self) -> Counts {
        self.net.as_ref().map(|net| net.counts()).unwrap_or_default()
    }
    /// Who has the protocols, if anybody has.
    pub(crate) fn protocols(&self) -> Option<&dyn Protocols<M>> {
        match (&self.net_server, &self.net) {
            (Some(server), _) => Some(&**server),
            (None, Some(net)) => Some(net),
            (None, None) => None,
        }
    }
    /// What moving data costs here, and what requests of servers do, if that was measured.
    pub fn measured_costs(&self) -> Option<(MoveCosts, RequestCosts)> {
        self.core.moves.known().copied()
    }
    /// Its ephemeral mappings.
    pub fn ephemeral(&self) -> &Ephemeral<M, Vm<M>> {
        &self.core.ephemeral
    }
    /// Its processes.
    pub fn processes(&self) -> Vec<Listed> {
        self.processes.list()
    }
    /// Processes that were killed by a fatal signal, in order.
    pub fn killed(&self) -> Vec<Killed> {
        self.processes.killed()
    }
    /// One line for each thread that sleeps: for reports of deadlocks.
    pub fn sleepers(&self) -> String {
        self.core.sched.sleepers()
    }
    /// True when the process `pid` sleeps; for tests that must not act before it does.
    pub fn is_asleep(&self, pid: Pid) -> bool {
        self.processes.is_asleep(pid)
    }
    /// What the process `pid` waits for, if only another process can end its wait; for programs that look for processes
    /// that block each other.
    pub fn waits_for(&self, pid: Pid) -> Option<&'static str> {
        self.processes.waits_for(pid)
    }
    /// Sends a signal to a living process.
    ///
    /// # Errors
    /// [`Errno::NoProcess`].
    pub fn send_signal(&self, pid: Pid) -> Result<(), Errno> {
        self.processes.send_signal(pid)
    }
}
