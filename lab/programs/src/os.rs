//! The system calls that the programs make.

use alloc::boxed::Box;
use pageferry_abi::{
    Errno, ExportId, ExportTo, Fd, Imported, InvalidateKind, PassMode, Pid, ReceiveMode, SendMode,
};
use pageferry_costs::{Arrived, Carrier};
use pageferry_hal::{CpuId, Cycles, Instructions, Va};

/// A system call that failed: what it was for, and why.
pub type CallError = (&'static str, Errno);

/// The failure of a system call that was for `what`.
pub fn named(what: &'static str) -> impl Fn(Errno) -> CallError {
    move |errno| (what, errno)
}

/// The program of a child.
pub type Child = Box<dyn FnOnce(&dyn Os) -> Result<(), CallError>>;

/// A kernel, as one of its processes sees it. Each call fails as the kernel's own does.
pub trait Os {
    /// The number of the process.
    fn pid(&self) -> Pid;
    /// Begins a child, which has all descriptors of its parent. What fails in it is told to the judge of the run.
    fn fork(&self, name: &str, child: Child) -> Result<Pid, Errno>;
    /// Waits until a child has ended.
    fn wait(&self) -> Result<(), Errno>;
    /// Binds the process to a CPU.
    fn bind_cpu(&self, cpu: CpuId) -> Result<(), Errno>;

    /// Memory that can be read and written, all zeros; a child gets a copy.
    fn map(&self, len_bytes: usize) -> Result<Va, Errno>;
    /// Gives memory back.
    fn unmap(&self, at: Va, len_bytes: usize) -> Result<(), Errno>;
    /// Writes memory.
    fn store(&self, at: Va, bytes: &[u8]);
    /// Reads memory.
    fn load(&self, from: Va, bytes: &mut [u8]);
    /// Executes instructions that refer to no memory.
    fn compute(&self, instructions: Instructions);

    /// A pipe: the end to read from, and the end to write to.
    fn pipe(&self) -> Result<(Fd, Fd), Errno>;
    /// Two local sockets, connected to each other.
    fn socket_pair(&self) -> Result<(Fd, Fd), Errno>;
    /// A socket whose protocol frees what it gets, and answers with what it has.
    fn null_socket(&self) -> Result<Fd, Errno>;
    /// Reads from a descriptor; how many bytes came.
    fn read(&self, from: Fd, to: Va, len_bytes: usize) -> Result<usize, Errno>;
    /// Writes to a descriptor; how many bytes were taken.
    fn write(&self, to: Fd, from: Va, len_bytes: usize) -> Result<usize, Errno>;
    /// Sends to a socket.
    fn send(&self, to: Fd, from: Va, len_bytes: usize, mode: SendMode) -> Result<usize, Errno>;
    /// Receives to `at`: how many bytes came, and whether pages came, which are to be flushed.
    fn receive(&self, from: Fd, at: Va, len_bytes: usize, mode: ReceiveMode) -> Result<(usize, bool), Errno>;
    /// Frees pages that were received.
    fn flush(&self, at: Va, len_bytes: usize) -> Result<(), Errno>;
    /// Closes a descriptor.
    fn close(&self, fd: Fd) -> Result<(), Errno>;

    /// Offers memory to other processes; the number of the offer.
    fn export(&self, at: Va, len_bytes: usize, mode: PassMode, to: ExportTo) -> Result<ExportId, Errno>;
    /// Takes what is offered, to where there is room.
    fn import(&self, id: ExportId) -> Result<Imported, Errno>;

    /// Measures what moving pages costs, once, if that is not known.
    fn measure_moves(&self) -> Result<(), Errno>;
    /// What carries a buffer to another process at less cost.
    fn choose_carrier(&self, len_bytes: usize, arrived: Arrived) -> Result<Carrier, Errno>;
    /// Repeats an invalidation of a TLB entry; how long all of them took.
    fn invalidate(&self, kind: InvalidateKind, times: u32) -> Result<Cycles, Errno>;
}
