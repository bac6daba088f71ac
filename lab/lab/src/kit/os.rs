//! The modelled kernel as the programs of `pageferry-workloads` see it.

use super::mode::receive_by;
use super::outcome::OutcomeCell;
use super::process::other_process;
use pageferry_hal::{Prot, Va};
use pageferry_kernel::{Errno, Fd, ReceiveMode, SendMode, User};
use pageferry_model::Model;
use pageferry_vm::Inherit;
use pageferry_workloads::{Child, Os};

/// A process of the modelled machine. Where a child of it fails is left in the run's outcome.
pub(crate) struct Process<'a> {
    pub(crate) user: &'a User<Model>,
    pub(crate) outcome: OutcomeCell,
}

impl Os for Process<'_> {
    fn map(&self, len_bytes: usize) -> Result<Va, Errno> {
        self.user.map(len_bytes, Prot::RW, Inherit::Copy)
    }

    fn store(&self, at: Va, bytes: &[u8]) {
        self.user.store(at, bytes);
    }

    fn pipe(&self) -> Result<(Fd, Fd), Errno> {
        self.user.pipe()
    }

    fn null_socket(&self) -> Result<Fd, Errno> {
        self.user.null_socket()
    }

    fn read(&self, from: Fd, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.user.read(from, to, len_bytes)
    }

    fn write(&self, to: Fd, from: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.user.write(to, from, len_bytes)
    }

    fn send(&self, to: Fd, from: Va, len_bytes: usize, mode: SendMode) -> Result<usize, Errno> {
        self.user.send(to, from, len_bytes, mode)
    }

    fn receive(&self, from: Fd, at: Va, len_bytes: usize, mode: ReceiveMode) -> Result<(usize, bool), Errno> {
        receive_by(self.user, from, at, len_bytes, mode)
    }

    fn flush(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.user.anflush(at, len_bytes)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.user.close(fd)
    }

    fn fork(&self, name: &str, child: Child) -> Result<(), Errno> {
        let outcome = self.outcome.clone();
        let program = other_process(outcome.clone(), move |user| child(&Process { user, outcome }));
        self.user.fork(name, program).map(drop)
    }

    fn wait(&self) -> Result<(), Errno> {
        self.user.wait().map(drop)
    }
}
