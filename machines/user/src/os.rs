//! The calls of the small programs, made in ring 3: loads and stores are instructions, the rest is `syscall`.
//!
//! A child is a fork that calls a closure and ends; it has a copy of all memory, so what the closure holds is there.

use crate::call::{call, call_for_one, exit, fork, wait};
use crate::say;
use pageferry_abi::call::{Call, Word as _};
use pageferry_abi::{
    Errno, ExportId, ExportTo, Fd, Imported, InvalidateKind, PassMode, Pid, ReceiveMode, SendMode,
};
use pageferry_costs::{Arrived, Carrier};
use pageferry_hal::{CpuId, Cycles, Instructions, Va};
use pageferry_workloads::{Child, Os};

/// The process that runs this.
#[derive(Clone, Copy, Debug)]
pub struct Ring3;

fn descriptors([first, second]: [u64; 2]) -> (Fd, Fd) {
    (Fd(first as u32), Fd(second as u32))
}

impl Os for Ring3 {
    fn pid(&self) -> Pid {
        // Cannot fail.
        Pid(call_for_one(Call::Pid, [0; 5]).unwrap_or_default() as u32)
    }

    fn fork(&self, name: &str, child: Child) -> Result<Pid, Errno> {
        if let Some(pid) = fork(name)? {
            // The child's copy runs it.
            core::mem::forget(child);
            return Ok(pid);
        }
        match child(&Ring3) {
            Ok(()) => exit(0),
            Err((what, errno)) => {
                say!("{what}: {errno}\n");
                exit(1)
            }
        }
    }

    fn wait(&self) -> Result<(), Errno> {
        wait().map(drop)
    }

    fn bind_cpu(&self, cpu: CpuId) -> Result<(), Errno> {
        call(Call::BindCpu, [cpu.0.into(), 0, 0, 0, 0]).map(drop)
    }

    fn map(&self, len_bytes: usize) -> Result<Va, Errno> {
        call_for_one(Call::Map, [len_bytes as u64, 0, 0, 0, 0]).map(Va)
    }

    fn unmap(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        call(Call::Unmap, [at.0, len_bytes as u64, 0, 0, 0]).map(drop)
    }

    fn store(&self, at: Va, bytes: &[u8]) {
        // SAFETY: programs store to what they have mapped, where no value of Rust's lives; elsewhere the kernel ends
        // the process, as it does for one that is no Rust.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at.0 as *mut u8, bytes.len()) }
    }

    fn load(&self, from: Va, bytes: &mut [u8]) {
        // SAFETY: as in `store`.
        unsafe { core::ptr::copy_nonoverlapping(from.0 as *const u8, bytes.as_mut_ptr(), bytes.len()) }
    }

    fn compute(&self, instructions: Instructions) {
        for _ in 0..instructions.0 {
            core::hint::black_box(());
        }
    }

    fn pipe(&self) -> Result<(Fd, Fd), Errno> {
        call(Call::Pipe, [0; 5]).map(descriptors)
    }

    fn socket_pair(&self) -> Result<(Fd, Fd), Errno> {
        call(Call::SocketPair, [0; 5]).map(descriptors)
    }

    fn null_socket(&self) -> Result<Fd, Errno> {
        call_for_one(Call::NullSocket, [0; 5]).map(|fd| Fd(fd as u32))
    }

    fn read(&self, from: Fd, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        call_for_one(Call::Read, [from.0.into(), to.0, len_bytes as u64, 0, 0]).map(|len| len as usize)
    }

    fn write(&self, to: Fd, from: Va, len_bytes: usize) -> Result<usize, Errno> {
        call_for_one(Call::Write, [to.0.into(), from.0, len_bytes as u64, 0, 0]).map(|len| len as usize)
    }

    fn send(&self, to: Fd, from: Va, len_bytes: usize, mode: SendMode) -> Result<usize, Errno> {
        let arguments = [to.0.into(), from.0, len_bytes as u64, mode.word(), 0];
        call_for_one(Call::Send, arguments).map(|len| len as usize)
    }

    fn receive(&self, from: Fd, at: Va, len_bytes: usize, mode: ReceiveMode) -> Result<(usize, bool), Errno> {
        let arguments = [from.0.into(), at.0, len_bytes as u64, mode.word(), 0];
        call(Call::Receive, arguments).map(|[len, pages]| (len as usize, pages != 0))
    }

    fn flush(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        call(Call::Flush, [at.0, len_bytes as u64, 0, 0, 0]).map(drop)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        call(Call::Close, [fd.0.into(), 0, 0, 0, 0]).map(drop)
    }

    fn export(&self, at: Va, len_bytes: usize, mode: PassMode, to: ExportTo) -> Result<ExportId, Errno> {
        let to = match to {
            ExportTo::Anyone => 0,
            ExportTo::Process(pid) => u64::from(pid.0) + 1,
        };
        call_for_one(Call::Export, [at.0, len_bytes as u64, mode.word(), to, 0]).map(ExportId)
    }

    fn import(&self, id: ExportId) -> Result<Imported, Errno> {
        let [at, len_bytes] = call(Call::Import, [id.0, 0, 0, 0, 0])?;
        Ok(Imported { at: Va(at), len_bytes: len_bytes as usize })
    }

    fn measure_moves(&self) -> Result<(), Errno> {
        call(Call::MeasureMoves, [0; 5]).map(drop)
    }

    fn choose_carrier(&self, len_bytes: usize, arrived: Arrived) -> Result<Carrier, Errno> {
        let touched = arrived == Arrived::Touched;
        let passes = call_for_one(Call::ChooseCarrier, [len_bytes as u64, touched.into(), 0, 0, 0])?;
        Ok(if passes == 0 { Carrier::Socket } else { Carrier::Pass })
    }

    fn invalidate(&self, kind: InvalidateKind, times: u32) -> Result<Cycles, Errno> {
        call_for_one(Call::Invalidate, [kind.word(), times.into(), 0, 0, 0]).map(Cycles)
    }
}
