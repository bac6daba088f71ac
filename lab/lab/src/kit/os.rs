//! The modelled kernel as the programs of `pageferry-workloads` see it.

use super::mode::receive_by;
use super::onlooker::Onlooker;
use super::outcome::OutcomeCell;
use super::process::other_process;
use pageferry_hal::{CpuId, Cycles, Instructions, Prot, Va};
use pageferry_kernel::{
    Arrived, Carrier, Errno, ExportId, ExportTo, Fd, Imported, InvalidateKind, Pid, ReceiveMode, SendMode,
    User,
};
use pageferry_model::Model;
use pageferry_vm::{Inherit, PassMode};
use pageferry_workloads::{CallError, Child, Os};

/// A process of the modelled machine, and who looks at it. Where a child of it fails is left in the run's outcome.
pub(crate) struct Process<'a> {
    user: &'a User<Model>,
    onlooker: Onlooker,
}

impl<'a> Process<'a> {
    /// The process that `user` is.
    pub(crate) fn new(user: &'a User<Model>, onlooker: &Onlooker) -> Process<'a> {
        onlooker.meets(user);
        Process { user, onlooker: onlooker.clone() }
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        self.onlooker.leaves(self.user.pid());
    }
}

impl Os for Process<'_> {
    fn pid(&self) -> Pid {
        self.user.pid()
    }

    fn fork(&self, name: &str, child: Child) -> Result<Pid, Errno> {
        let onlooker = self.onlooker.clone();
        let program = other_process(onlooker.cell.clone(), move |user| child(&Process::new(user, &onlooker)));
        self.user.fork(name, program)
    }

    fn wait(&self) -> Result<(), Errno> {
        self.user.wait().map(drop)
    }

    fn bind_cpu(&self, cpu: CpuId) -> Result<(), Errno> {
        self.user.bind_cpu(Some(cpu))
    }

    fn map(&self, len_bytes: usize) -> Result<Va, Errno> {
        self.user.map(len_bytes, Prot::RW, Inherit::Copy)
    }

    fn unmap(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.user.unmap(at, len_bytes)
    }

    fn store(&self, at: Va, bytes: &[u8]) {
        self.user.store(at, bytes);
    }

    fn load(&self, from: Va, bytes: &mut [u8]) {
        self.user.load(from, bytes);
    }

    fn compute(&self, instructions: Instructions) {
        self.user.compute(instructions);
    }

    fn pipe(&self) -> Result<(Fd, Fd), Errno> {
        self.user.pipe()
    }

    fn socket_pair(&self) -> Result<(Fd, Fd), Errno> {
        self.user.socket_pair()
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

    fn export(&self, at: Va, len_bytes: usize, mode: PassMode, to: ExportTo) -> Result<ExportId, Errno> {
        self.user.export(at, len_bytes, mode, to)
    }

    fn import(&self, id: ExportId) -> Result<Imported, Errno> {
        self.user.import(id, None)
    }

    fn measure_moves(&self) -> Result<(), Errno> {
        self.user.measure_moves()
    }

    fn choose_carrier(&self, len_bytes: usize, arrived: Arrived) -> Result<Carrier, Errno> {
        self.user.choose_carrier(len_bytes, arrived)
    }

    fn invalidate(&self, kind: InvalidateKind, times: u32) -> Result<Cycles, Errno> {
        self.user.invalidate(kind, times)
    }
}

/// Where the kernel is to choose, lets it measure what its choices rest on before anything is sent, so that both ends
/// begin as they do without a choice.
pub fn measure_first(user: &User<Model>, send: SendMode, receive: ReceiveMode) -> Result<(), CallError> {
    let onlooker = Onlooker::new(user.machine(), &OutcomeCell::default());
    pageferry_workloads::measure_first(&Process::new(user, &onlooker), send, receive)
}
