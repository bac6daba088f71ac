//! The system calls that the programs make.

use alloc::boxed::Box;
use pageferry_abi::{Errno, Fd, ReceiveMode, SendMode};
use pageferry_hal::Va;

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
    /// Memory that can be read and written, all zeros; a child gets a copy.
    fn map(&self, len_bytes: usize) -> Result<Va, Errno>;
    /// Writes memory.
    fn store(&self, at: Va, bytes: &[u8]);
    /// A pipe: the end to read from, and the end to write to.
    fn pipe(&self) -> Result<(Fd, Fd), Errno>;
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
    /// Begins a child, which has all descriptors of its parent. What fails in it is told to the judge of the run.
    fn fork(&self, name: &str, child: Child) -> Result<(), Errno>;
    /// Waits until a child has ended.
    fn wait(&self) -> Result<(), Errno>;
}
