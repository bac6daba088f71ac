//! What kind of kernel to boot: policies and path lengths, chosen at run time over one code base.

use crate::defect::{KernelDefect, NetDefect};
use crate::ispc::IspcConfig;
use core::net::Ipv4Addr;
use pageferry_defects::Planted;
use pageferry_ephemeral::EphemeralConfig;
use pageferry_hal::{Board, CodePath, Cycles, Text, paths};
use pageferry_pmap::PmapConfig;
use pageferry_vm::VmConfig;

paths! {
    /// Path lengths of this floor, without the memory accesses and without what other floors do for it. All zero by
    /// default, for a machine on which the instructions themselves take the time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct KernelPaths {
        /// Dispatch of a system call, behind the hardware's entry.
        pub syscall: CodePath,
        /// Choosing the next thread and switching to it.
        pub switch: CodePath,
        /// Going to sleep, without the switch.
        pub sleep: CodePath,
        /// One clock interrupt.
        pub clock: CodePath,
        /// One wakeup, whether or not a thread sleeps.
        pub wakeup: CodePath,
        /// One call of `pipe_read` or `pipe_write`, without what follows.
        pub pipe_call: CodePath,
        /// Setting up one copy to or from user memory (`uiomove`).
        pub uiomove: CodePath,
        /// Looking up one page of a direct write (`vm_fault_quick`, `pmap_extract_and_hold`), without its memory
        /// accesses.
        pub pipe_page: CodePath,
        /// One export, import or withdrawal, apart from passing the memory.
        pub export: CodePath,
        /// fork and exit, apart from their VM work.
        pub process: CodePath,
        /// One call of `sosend`, without what follows.
        pub sosend: CodePath,
        /// One call of `soreceive`, without what follows.
        pub soreceive: CodePath,
        /// Passing one mbuf to the protocol and appending it to a socket buffer, or asking the null protocol for data.
        pub protocol: CodePath,
        /// One call that moves pages into a process or flushes them out, beside what is done for each page.
        pub transfer_call: CodePath,
        /// Allocating or freeing an mbuf, and the step to the next one.
        pub mbuf: CodePath,
        /// Allocating or freeing a cluster.
        pub cluster: CodePath,
    }
}

paths! {
    /// Path lengths of the Internet protocols and the card's driver, likewise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct NetPaths {
        /// `tcp_output`, for each segment.
        pub tcp_output: CodePath,
        /// `tcp_input`, for each segment.
        pub tcp_input: CodePath,
        /// `udp_output`, for each datagram.
        pub udp_output: CodePath,
        /// `udp_input`, for each datagram.
        pub udp_input: CodePath,
        /// `ip_output`, for each packet.
        pub ip_output: CodePath,
        /// `ip_input`, for each packet.
        pub ip_input: CodePath,
        /// `ether_output`, for each frame.
        pub ether_output: CodePath,
        /// `ether_input`, for each frame.
        pub ether_input: CodePath,
        /// Queueing a packet on loopback.
        pub loopback: CodePath,
        /// Handing a frame to the card.
        pub driver_output: CodePath,
        /// One interrupt of the card, apart from the frames.
        pub driver_interrupt: CodePath,
        /// Taking a frame from the card.
        pub driver_input: CodePath,
        /// Giving the card a buffer to receive into.
        pub receive_buffer: CodePath,
        /// One timer of one connection.
        pub timer: CodePath,
        /// One step of 32 bytes of a checksum that the CPU computes.
        pub checksum: CodePath,
    }
}

paths! {
    /// Path lengths of memory disks and of the file system on them, likewise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct DiskPaths {
        /// One request to a memory disk, apart from its pages.
        pub request: CodePath,
        /// Looking one name up in a directory (`namei`, the directory's search apart from its bytes).
        pub lookup: CodePath,
        /// One call of `ffs_read` or `ffs_write`, without its blocks.
        pub file_call: CodePath,
        /// Getting a block's buffer and letting go of it (`bread`, `brelse`).
        pub buffer: CodePath,
        /// Taking a block or an inode from the free maps, or giving it back.
        pub alloc: CodePath,
    }
}

/// How the frames are mapped that the kernel looks at for a moment: in memory disks, in exec, in ptrace, in the vnode
/// pager (sf_buf paper, 2). Pipes and sockets say so for themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FrameMapping {
    /// Each has addresses of its own for as long as a request takes, and maps page after page there, with a flush
    /// before and a flush behind (the original kernel).
    Own,
    /// Each asks for an ephemeral mapping of every page.
    #[default]
    Ephemeral,
}

/// How a debugger gets at the memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PtraceBy {
    /// A few pages at a time stand in its own map (UVM paper, 4.3.1).
    #[default]
    QuickRef,
    /// Each page is wired, and mapped for a moment (sf_buf paper, 2.5).
    Frames,
}

/// Memory disks, and what is on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskConfig {
    /// How their frames are mapped.
    pub mapping: FrameMapping,
    /// How a debugger gets at memory.
    pub ptrace: PtraceBy,
    /// Buffers of the file systems on them, 16 KB each; for 0, a few.
    pub buffers: usize,
    /// Buffers that may wait to be written.
    pub dirty_buffers: usize,
    /// Path lengths.
    pub paths: DiskPaths,
}

/// A driver copies segments as a card with header split would deliver them (page-flip paper, Appendix B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repack {
    /// And flushes the copy from the caches, where the card's bytes would not be either.
    pub flushes: bool,
}

/// The Internet protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetConfig {
    /// The card's address.
    pub address: Ipv4Addr,
    /// Bits of it that its neighbours share.
    pub prefix_bits: u8,
    /// The neighbour that leads to all others.
    pub gateway: Option<Ipv4Addr>,
    /// Control blocks at a time: one for each socket, and for each connection that outlives its own.
    pub sockets: usize,
    /// The most bytes of a packet on loopback (`LOMTU`).
    pub loopback_mtu_bytes: usize,
    /// Packets that may wait on loopback.
    pub loopback_packets: usize,
    /// The buffer for sending of a stream socket, unless it asks for another.
    pub send_buffer_bytes: usize,
    /// That for receiving, likewise.
    pub receive_buffer_bytes: usize,
    /// Memory of the datagrams that a socket keeps, likewise.
    pub datagram_buffer_bytes: usize,
    /// The driver copies what arrives into pages of its own, where the card does not split headers off.
    pub repack: Option<Repack>,
    /// What the card can do about checksums, it does.
    pub checksum_offload: bool,
    /// Cycles of a millisecond.
    pub ms_cycles: Cycles,
    /// How long an acknowledgement may wait for other segments.
    pub delayed_ack_ms: u64,
    /// So many segments in order are acknowledged at once; one means that no acknowledgement waits.
    pub ack_segments: u32,
    /// A segment with more data is cut to a multiple of it; 0 where none is.
    pub segment_unit_bytes: usize,
    /// What may be under way at first: so many segments, but no more than `first_window_bytes` unless that is less than
    /// two.
    pub first_window_segments: usize,
    /// See there (RFC 3390).
    pub first_window_bytes: usize,
    /// The timeout that a connection begins with (RFC 6298: a second).
    pub first_timeout_ms: u64,
    /// The shortest timeout.
    pub least_timeout_ms: u64,
    /// The longest.
    pub most_timeout_ms: u64,
    /// The least time between two probes of a window that is closed.
    pub least_probe_ms: u64,
    /// The most.
    pub most_probe_ms: u64,
    /// A segment is sent again so many times before the connection is given up (4.4BSD: 12, `TCP_MAXRXTSHIFT`); a SYN
    /// half as often.
    pub retransmissions: u32,
    /// How long TIME_WAIT lasts: twice the life of a segment.
    pub time_wait_ms: u64,
    /// The sequence number that the first connection begins with; others begin farther on.
    pub first_sequence: u32,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<NetDefect>,
    /// Path lengths.
    pub paths: NetPaths,
}

/// Which side maps the pages of a direct pipe write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeMapping {
    /// The writer, as one run into addresses that the pipe keeps (`pmap_qenter`; the original kernel).
    WriterRun,
    /// The reader, page by page, by an ephemeral mapping.
    ReaderPage,
}

/// What a pipe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeKind {
    /// A mechanism of its own (FreeBSD 5, `sys_pipe.c`); the rest of [`PipeConfig`] describes it.
    Fifo,
    /// A pair of connected sockets, as in 4.4BSD (UVM paper, 5.3).
    Socket,
}

/// How pipes move data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeConfig {
    /// What a pipe is.
    pub kind: PipeKind,
    /// For pipes that are sockets: bytes that the socket buffer takes, at least a page.
    pub socket_buffer_bytes: usize,
    /// False: always copy through the kernel buffer.
    pub direct: bool,
    /// Writes of at least this many bytes go direct (`PIPE_MINDIRECT`).
    pub min_direct_bytes: usize,
    /// The kernel buffer (`PIPE_SIZE`), in whole pages.
    pub buffer_bytes: usize,
    /// The size that the buffer grows to for larger writes (`BIG_PIPE_SIZE`), in whole pages.
    pub big_buffer_bytes: usize,
    /// Which side maps the pages of direct writes.
    pub mapping: PipeMapping,
}

/// How the kernel comes by addresses for pages that were lent to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LentMapping {
    /// With the loan, for all of its pages in a row (UVM paper, 4.1: `uvm_loan` and `pmap_kenter_pa`).
    Run,
    /// With the loan, page by page, by ephemeral mappings that any CPU may use (sf_buf paper, 2.3).
    Pages,
    /// While the kernel looks at a page, by an ephemeral mapping of the CPU that looks. A page that only a card reads
    /// takes none.
    WhileRead,
}

/// Sockets and mbufs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Bytes that a socket buffer takes before a sender sleeps (`sb_hiwat`), at least a page. Pipes have their own.
    pub high_water_bytes: usize,
    /// The most that is lent in one mbuf, in whole pages.
    pub loan_bytes: usize,
    /// How the kernel comes by addresses for what is lent.
    pub lent_mapping: LentMapping,
    /// The most clusters, each of a page (`nmbclusters`).
    pub clusters: usize,
    /// There is a null protocol: it frees what is sent, and answers with pages as they are, whatever they hold. That is
    /// for measuring (UVM paper, 5.1) and for nothing else.
    pub null_protocol: bool,
}

/// Which idle CPUs a wakeup interrupts, so that they look at the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardWakeup {
    /// The lowest-numbered idle CPU that has not been interrupted for another thread already (FreeBSD 5.3 with
    /// `kern.sched.ipiwakeup.onecpu=1`).
    One,
    /// Every idle CPU; the first takes the thread (FreeBSD 5.3's default).
    All,
    /// The CPU that the thread ran on last if that is idle, so that the thread finds its data in the cache; else the
    /// lowest-numbered idle one. No other takes the thread then (NetBSD 5.0, `sched_takecpu()`, which looks for an idle
    /// CPU in both cases).
    Last,
}

/// The scheduler: FreeBSD 5.3's 4BSD scheduler, as far as it shows in data movement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedConfig {
    /// Which idle CPUs a wakeup interrupts.
    pub forward: ForwardWakeup,
    /// How long a thread runs before others of its level run (FreeBSD: 100 ms).
    pub quantum_cycles: Cycles,
    /// From one clock interrupt to the next, on a CPU that runs a thread (FreeBSD: `hz` of 100).
    pub tick_cycles: Cycles,
}

impl Default for SchedConfig {
    /// One idle CPU; 100 ms, and 10 ms, at 2.4 GHz.
    fn default() -> SchedConfig {
        SchedConfig {
            forward: ForwardWakeup::One,
            quantum_cycles: Cycles(240_000_000),
            tick_cycles: Cycles(24_000_000),
        }
    }
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
    /// Files at a time that there is room for at least; for 0, a few hundred.
    pub files: usize,
    /// The scheduler.
    pub sched: SchedConfig,
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
        text
    }
}
