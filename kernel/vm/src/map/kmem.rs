//! Kernel memory: addresses of the kernel map with wired frames behind them (`kmem_alloc`).
//!
//! A [`KernelMemory`] holds the addresses, the frames and the mappings until it is given back. Takes the kernel map's
//! lock, the page queues and the pmap's, one after the other. Allocating fails for want of addresses or of frames, and
//! nothing is held then; a caller that may sleep waits for frames first. Giving back cannot fail.

use crate::error::VmError;
use crate::page::{KernelUse, Owner, WantedFrame};
use crate::vm::Vm;
use alloc::vec::Vec;
use pageferry_ephemeral::KernelAddresses;
use pageferry_hal::{Cause, Machine, Mode, PAGE_SIZE, Pfn, Prot, Threads, Va, VaRange};
use pageferry_pmap::Reach;

/// Kernel memory: addresses with wired frames behind them. Given back with [`Vm::kernel_free`].
#[must_use = "kernel memory must be freed"]
#[derive(Debug)]
pub struct KernelMemory {
    range: VaRange,
    frames: Vec<Pfn>,
}

impl KernelMemory {
    /// Its first address.
    pub fn va(&self) -> Va {
        self.range.start()
    }
    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.range.len_bytes()
    }
    /// The frames behind it, in order.
    pub fn frames(&self) -> &[Pfn] {
        &self.frames
    }
}

impl<M: Machine> Vm<M> {
    /// Allocates kernel memory of `len_pages` pages, clear, wired and mapped (`kmem_alloc`).
    ///
    /// # Errors
    /// [`VmError::Invalid`] for no pages; [`VmError::NoMemory`], at once.
    ///
    /// # Locks
    /// May be called with locks below the page queues held; takes the page queues, the kernel map's and the pmap's.
    pub fn kernel_alloc(&self, len_pages: usize) -> Result<KernelMemory, VmError> {
        self.kernel_alloc_by(None, len_pages)
    }

    /// The same for a caller that may sleep: waits for the page daemon where frames are short.
    ///
    /// # Errors
    /// As [`Vm::kernel_alloc`]; [`VmError::NoMemory`] where waiting does not help, as [`Vm::wait_for_memory`] finds
    /// out.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub fn kernel_alloc_waiting(&self, t: &dyn Threads, len_pages: usize) -> Result<KernelMemory, VmError> {
        self.kernel_alloc_by(Some(t), len_pages)
    }

    fn kernel_alloc_by(&self, t: Option<&dyn Threads>, len_pages: usize) -> Result<KernelMemory, VmError> {
        if len_pages == 0 {
            return Err(VmError::Invalid);
        }
        let range = self.kernel_map().alloc(len_pages).ok_or(VmError::NoMemory)?;
        let frames = match self.kernel_frames(t, KernelUse::Memory, len_pages) {
            Ok(frames) => frames,
            Err(e) => {
                self.kernel_map().free(range);
                return Err(e);
            }
        };
        frames.iter().for_each(|&f| self.zero(f));
        self.kernel_pages_change(range);
        self.pmaps().kenter(range.start(), &frames, Prot::RW).flush(self.pmaps());
        Ok(KernelMemory { range, frames })
    }

    /// The kernel's own pages at these addresses are another's from now on, or were: where a hash table has them, their
    /// lists change (UVM paper, 4.2.1: pages are removed from the kernel's data structures).
    pub fn kernel_pages_change(&self, at: VaRange) {
        self.frames().kernel_pages_change(at);
    }

    /// `len_pages` frames for the kernel, each waited for if a `t` may sleep; or none. A waiting caller keeps what it
    /// has: giving all back and retrying might never end, and holding on does, since the wait fails when the daemon
    /// finds nothing more to take.
    pub(crate) fn kernel_frames(
        &self,
        t: Option<&dyn Threads>,
        kernel_use: KernelUse,
        len_pages: usize,
    ) -> Result<Vec<Pfn>, VmError> {
        let mut frames = Vec::new();
        if let Some(t) = t {
            self.poke_daemon(t);
        }
        for _ in 0..len_pages {
            let owner = || Owner::Kernel(kernel_use);
            let frame = match t {
                Some(t) => self.frame_or_wait(t, owner, WantedFrame::ANY),
                None => self.frames().alloc(owner(), WantedFrame::ANY),
            };
            match frame {
                Ok(frame) => frames.push(frame),
                Err(e) => {
                    frames.iter().rev().for_each(|&f| self.frames().free_kernel(f, kernel_use));
                    return Err(e);
                }
            }
        }
        Ok(frames)
    }

    /// Gives kernel memory back.
    ///
    /// # Locks
    /// As [`Vm::kernel_alloc`].
    pub fn kernel_free(&self, memory: KernelMemory) {
        let KernelMemory { range, frames } = memory;
        assert!(
            range.len_pages() == frames.len() && !range.is_empty(),
            "kernel memory is what was allocated"
        );
        self.pmaps().kremove(range).flush(self.pmaps());
        self.kernel_pages_change(range);
        frames.iter().rev().for_each(|&f| self.frames().free_kernel(f, KernelUse::Memory));
        self.kernel_map().free(range);
    }

    /// Stores a page's bytes in a frame, through the direct map or a kernel address of its own.
    ///
    /// # Errors
    /// [`VmError::NoMemory`] when no kernel address is left.
    pub(crate) fn store_frame(&self, frame: Pfn, bytes: &[u8]) -> Result<(), VmError> {
        assert!(bytes.len() == PAGE_SIZE, "a frame is stored whole");
        let store = |va: Va| {
            let _c = self.machine().scope(Cause::Copy);
            let stored = self.machine().store(Mode::Kernel, va, bytes);
            assert!(stored.is_ok(), "the kernel's mapping of {frame:?} at {va:?} refuses stores: {stored:?}");
        };
        if let Some(va) = self.pmaps().direct(frame, Reach::Write) {
            store(va);
            return Ok(());
        }
        let window = self.kernel_map().alloc(1).ok_or(VmError::NoMemory)?;
        self.pmaps().kenter(window.start(), &[frame], Prot::RW).flush(self.pmaps());
        store(window.start());
        self.pmaps().kremove(window).flush(self.pmaps());
        self.kernel_map().free(window);
        Ok(())
    }
}

/// The kernel map's addresses, for `ephemeral` and others that map by themselves.
impl<M: Machine> KernelAddresses for Vm<M> {
    fn alloc(&self, len_pages: usize) -> Option<VaRange> {
        self.kernel_map().alloc(len_pages)
    }
    fn free(&self, range: VaRange) {
        self.kernel_map().free(range);
    }
}
