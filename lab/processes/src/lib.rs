//! The programs of `pageferry-workloads` as processes of the kernel, on any machine.
//!
//! [`Process`] makes each call of [`Os`] as the system call of that name. It holds nothing but the process and a
//! [`Watch`], which is told of what the calls themselves do not tell. An error is the system call's.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use pageferry_abi::{
    Errno, ExportId, ExportTo, Fd, Imported, InvalidateKind, PassMode, Pid, ReceiveMode, SendMode,
};
use pageferry_costs::{Arrived, Carrier};
use pageferry_hal::{CpuId, Cycles, Instructions, Machine, Prot, Va};
use pageferry_kernel::User;
use pageferry_vm::Inherit;
use pageferry_workloads::{CallError, Child, Os};

/// Who looks at processes while they work. A child is told to a clone of its parent's.
pub trait Watch<M: Machine>: Clone + 'static {
    /// A process begins its work.
    fn meets(&self, user: &User<M>);

    /// A process has ended its work, or given it up: its memory goes when it exits.
    fn leaves(&self, pid: Pid);

    /// What came of the work of a process that was forked.
    fn ended(&self, ended: Result<(), CallError>);

    /// Pages of another process were mapped, and nobody has touched them yet.
    fn imported(&self, user: &User<M>, imported: &Imported);
}

/// A process, and who looks at it.
pub struct Process<'a, M: Machine, W: Watch<M>> {
    user: &'a User<M>,
    watch: W,
}

impl<'a, M: Machine, W: Watch<M>> Process<'a, M, W> {
    /// The process that `user` is, which begins its work.
    pub fn new(user: &'a User<M>, watch: &W) -> Process<'a, M, W> {
        watch.meets(user);
        Process { user, watch: watch.clone() }
    }
}

impl<M: Machine, W: Watch<M>> Drop for Process<'_, M, W> {
    fn drop(&mut self) {
        self.watch.leaves(self.user.pid());
    }
}

/// Receives to `at` as `mode` says. Returns how many bytes came, and whether pages came, which are to be flushed out.
///
/// # Errors
/// Those of the system calls.
pub fn receive_by<M: Machine>(
    user: &User<M>,
    from: Fd,
    at: Va,
    len_bytes: usize,
    mode: ReceiveMode,
) -> Result<(usize, bool), Errno> {
    let received = match mode {
        ReceiveMode::Copy => return Ok((user.receive(from, at, len_bytes)?, false)),
        ReceiveMode::Transfer => user.receive_transfer(from, Some(at), len_bytes)?,
        ReceiveMode::Auto => user.receive_auto(from, at, len_bytes)?,
    };
    let pages = received.donated_pages + received.lent_pages;
    Ok((received.len_bytes, mode == ReceiveMode::Transfer || pages > 0))
}

impl<M: Machine, W: Watch<M>> Os for Process<'_, M, W> {
    fn pid(&self) -> Pid {
        self.user.pid()
    }

    fn fork(&self, name: &str, child: Child) -> Result<Pid, Errno> {
        let watch = self.watch.clone();
        let program = move |user: &User<M>| {
            let ended = child(&Process::new(user, &watch));
            watch.ended(ended);
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
        let imported = self.user.import(id, None)?;
        self.watch.imported(self.user, &imported);
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
