//! What calls are told: policies and path lengths of pipes, sockets, disks and the scheduler.

use crate::defect::{KernelDefect, NetDefect, SchedDefect};
use pageferry_defects::Planted;
use pageferry_hal::{CodePath, Cycles, paths};

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
    /// Path lengths of memory disks and of the file system on them, likewise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct DiskPaths {
        /// One request to a disk, by whoever asks: the call of the device, `physio`, `g_io_request`.
        pub request: CodePath,
        /// Passing it on in the thread `g_down`.
        pub down: CodePath,
        /// Taking it up in the memory disk's thread, apart from its pages.
        pub strategy: CodePath,
        /// One of its pages there, apart from its mapping and the copy.
        pub page: CodePath,
        /// Passing the answer on in the thread `g_up`, to `biodone`.
        pub up: CodePath,
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

/// How long what waits may wait, with soft updates (`metadelay`, `dirdelay`, `filedelay`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyncerDelays {
    /// Inodes and what leads to blocks.
    pub metadata_cycles: Cycles,
    /// Names.
    pub directory_cycles: Cycles,
    /// The bytes of files.
    pub file_cycles: Cycles,
}

/// Memory disks, and what is on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskConfig {
    /// How their frames are mapped.
    pub mapping: FrameMapping,
    /// How a debugger gets at memory.
    pub ptrace: PtraceBy,
    /// Buffers of the file systems on them, 16 KB of addresses each, if there is memory for so many; for 0, a few.
    pub buffers: usize,
    /// Buffers that may wait to be written.
    pub dirty_buffers: usize,
    /// How long they may do so at most, on volumes with soft updates.
    pub syncer: SyncerDelays,
    /// Path lengths.
    pub paths: DiskPaths,
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

/// What the null protocol answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullAnswers {
    /// Clusters of mbufs, by the receive that pipes use (UVM paper, 5.3).
    Clusters,
    /// Memory of its own, in a row, by a receive that knows nothing of mbufs (UVM paper, 5.2: what was done for the
    /// null socket was not enough for pipes).
    Memory,
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
    /// What it answers with.
    pub null_answers: NullAnswers,
    /// A receive by transfer ends before a page that it could take over if its buffer began there: the next one gets
    /// that.
    pub realigns: bool,
}

/// Which idle CPUs a wakeup interrupts, so that they look at the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardWakeup {
    /// The lowest-numbered idle CPU that has not been interrupted for another thread already (FreeBSD 5.3 with
    /// `kern.sched.ipiwakeup.onecpu=1`).
    One,
    /// Every idle CPU; the first takes the thread (FreeBSD 5.3's default).
    All,
    /// The CPU that the thread ran on last if that has nothing else to run, so that the thread finds its data in the
    /// cache: it is idle, or on its way there. Else the lowest-numbered idle one. No other takes the thread then
    /// (NetBSD 5.0, `sched_takecpu()`).
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
    /// Accesses to the interval timer with which a switch reads the time, to know how long the thread ran (`mi_switch`,
    /// `microtime`).
    pub timer_accesses: u32,
    /// What a thread uses of a stack of its own in the kernel, where that is accounted for.
    pub stack: Option<KernelStack>,
    /// Of the threads of a level, the one runs whose address space has most entries in the TLB; `None`: the one that
    /// has waited longest.
    pub by_tlb: Option<ByTlb>,
}

/// Choosing threads by what the TLB holds of their address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByTlb {
    /// How often others may go before the one that has waited longest: then it runs, whatever the TLB holds.
    pub passes: u32,
    /// Looking at one thread that waits.
    pub look: CodePath,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<SchedDefect>,
}

/// The stack that a thread has in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelStack {
    /// From one stack to the next: those of all threads begin at the same place of so many bytes.
    pub spacing_bytes: usize,
    /// What an entry into the kernel writes at its top, and its end reads: registers, and the frames above them.
    pub frame_bytes: usize,
}

impl Default for SchedConfig {
    /// One idle CPU; 100 ms, and 10 ms, at 2.4 GHz.
    fn default() -> SchedConfig {
        SchedConfig {
            forward: ForwardWakeup::One,
            quantum_cycles: Cycles(240_000_000),
            tick_cycles: Cycles(24_000_000),
            timer_accesses: 0,
            stack: None,
            by_tlb: None,
        }
    }
}

/// What calls are told of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// Pipes.
    pub pipe: PipeConfig,
    /// Sockets and mbufs.
    pub socket: SocketConfig,
    /// Memory disks.
    pub disk: DiskConfig,
    /// Path lengths.
    pub paths: KernelPaths,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<KernelDefect>,
    /// Another, of what carries packets.
    pub net_defect: Planted<NetDefect>,
}
