//! What kind of kernel to boot: policies and path lengths, chosen at run time over one code base.

use pageferry_core::config::{CoreConfig, DiskConfig, KernelPaths, PipeConfig, SchedConfig, SocketConfig};
use pageferry_core::defect::KernelDefect;
use pageferry_defects::Planted;
use pageferry_ephemeral::EphemeralConfig;
use pageferry_hal::{Board, CodePath, LockClass, LockCosts, Text};
use pageferry_ispc::IspcConfig;
use pageferry_net::NetConfig;
use pageferry_pmap::PmapConfig;
use pageferry_vm::VmConfig;

/// The classes of all locks that a kernel makes, apart from those of its servers.
pub fn lock_classes() -> impl Iterator<Item = LockClass> {
    LockClass::FLOORS.into_iter().chain(pageferry_net::LOCK_CLASSES)
}

/// Everything that distinguishes one kernel from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// Page tables and shootdowns.
    pub pmap: PmapConfig,
    /// Virtual memory.
    pub vm: VmConfig,
    /// Ephemeral mappings.
    pub ephemeral: EphemeralConfig,
    /// Pipes.
    pub pipe: PipeConfig,
    /// Sockets.
    pub socket: SocketConfig,
    /// The Internet protocols, for a kernel that has them.
    pub net: Option<NetConfig>,
    /// Memory disks.
    pub disk: DiskConfig,
    /// Communication by a common area, for a kernel that has it.
    pub ispc: Option<IspcConfig>,
    /// Bytes before the kernel's structures, and what they put off: which sets of a cache each of them falls into. No
    /// two builds of a kernel have it alike.
    pub skew_bytes: usize,
    /// Files at a time that there is room for at least; for 0, a few hundred.
    pub files: usize,
    /// The scheduler.
    pub sched: SchedConfig,
    /// How the locks of the kernel that is modelled are made.
    pub locks: LockCosts,
    /// Before the programs that are made at boot begin, it is measured what copying and moving data costs. Otherwise
    /// the kernel knows that when a program has it measured ([`crate::User::measure_moves`]), and until then copies
    /// where it is to choose.
    pub measures_at_boot: bool,
    /// Path lengths of this floor.
    pub paths: KernelPaths,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<KernelDefect>,
}

impl KernelConfig {
    /// What calls are told of it.
    pub(crate) fn core(&self) -> CoreConfig {
        let KernelConfig { pipe, socket, disk, paths, defect, net, .. } = *self;
        let net_defect = net.map_or(Planted::NONE, |net| net.defect);
        CoreConfig { pipe, socket, disk, paths, defect, net_defect }
    }

    /// Gives the paths of all floors their places in the kernel's text, one behind the other.
    pub(crate) fn lay_out(&mut self, board: &Board) -> Text {
        let mut text = Text::new(board);
        let place = &mut |path: &mut CodePath| text.place(path);
        self.paths.each_mut(place);
        self.disk.paths.each_mut(place);
        self.vm.paths.each_mut(place);
        if let Some(paging) = &mut self.vm.paging {
            paging.paths.each_mut(place);
        }
        self.vm.anonymous.each_path_mut(place);
        self.ephemeral.paths.each_mut(place);
        self.pmap.paths.each_mut(place);
        self.pmap.refill.paths.each_mut(place);
        if let Some(net) = &mut self.net {
            net.paths.each_mut(place);
        }
        if let (Some(ispc), Some(area)) = (&mut self.ispc, &mut self.pmap.area) {
            ispc.paths.each_mut(place);
            area.paths.each_mut(place);
            // Where there is a network.
            if let (Some(net), Some(_)) = (&mut ispc.net, &self.net) {
                net.paths.each_mut(place);
            }
        }
        // What few kernels have lies behind all else, which stays in its place.
        self.pmap.refill.beside.each_mut(place);
        if let Some(by_tlb) = &mut self.sched.by_tlb {
            place(&mut by_tlb.look);
        }
        text
    }
}
