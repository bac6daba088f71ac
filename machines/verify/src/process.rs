//! A process of any machine, as the programs of `pageferry-workloads` see it. What fails in one of its children is told
//! to the verdict.

use crate::verdict::Verdict;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use pageferry_abi::PassMode;
use pageferry_hal::{CpuId, Cycles, Instructions, Machine, Prot, Va};
use pageferry_kernel::{
    Arrived, Carrier, Errno, ExportId, ExportTo, Fd, Imported, InvalidateKind, Pid, ReceiveMode, SendMode,
    User,
};
use pageferry_vm::Inherit;
use pageferry_workloads::{Child, Os};

/// A process.
pub struct Process<'a, M: Machine> {
    user: &'a User<M>,
    verdict: Arc<Verdict>,
}

impl<'a, M: Machine> Process<'a, M> {
    /// The process that `user` is.
    pub fn new(user: &'a User<M>, verdict: &Arc<Verdict>) -> Process<'a, M> {
        Process { user, verdict: verdict.clone() }
    }
}

impl<M: Machine> Os for Process<'_, M> {
    fn pid(&self) -> Pid {
        self.user.pid()
    }

    fn fork(&self, name: &str, child: Child) -> Result<Pid, Errno> {
        let verdict = self.verdict.clone();
        let program = move |user: &User<M>| {
            let ended = child(&Process::new(user, &verdict));
            verdict.ends(ended);
        };
        self.user.fork(name, Box::new(program))
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
        let received = match mode {
            ReceiveMode::Copy => return Ok((self.user.receive(from, at, len_bytes)?, false)),
            ReceiveMode::Transfer => self.user.receive_transfer(from, Some(at), len_bytes)?,
            ReceiveMode::Auto => self.user.receive_auto(from, at, len_bytes)?,
        };
        let pages = received.donated_pages + received.lent_pages;
        Ok((received.len_bytes, mode == ReceiveMode::Transfer || pages > 0))
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
        let imported = self.user.import(id, None)?;
        // The judge looks at it through the machine, and finds it only if it is mapped.
        self.user.load(imported.at, &mut vec![0; imported.len_bytes]);
        Ok(imported)
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
