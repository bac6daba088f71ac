//! Disposable pages: what a driver receives into where the receiver is to take the page over (FreeBSD 5,
//! `ZERO_COPY_SOCKETS` and `EXT_DISPOSABLE`; sf_buf paper, 2.3).
//!
//! # What it holds
//! A page of the kernel's with an ephemeral mapping, both made when the driver takes the page and owned by the mbufs
//! that show it. The mapping is *shared*: the CPU that takes the card's interrupt makes it, and any CPU may copy
//! through it or free it. (The paper does not say which it is.) Unlike a cluster, a disposable page is not kept: with
//! its last mbuf it goes back to the VM system. How a receiver gets it is in `receive`.
//!
//! # Locks
//! None of its own. A page and its mapping belong to the owner of the mbuf.
//!
//! # What can fail
//! Getting one, for want of a frame or of a mapping that is free at once: a driver must not sleep.

use crate::defect::NetDefect;
use crate::sched::{Sched, Waker};
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_defects::Planted;
use pageferry_ephemeral::{Ephemeral, Flags, Mapping, MappingUser};
use pageferry_hal::{Flow, FlowStep, Machine, Pfn, Va};
use pageferry_vm::{KernelPages, Vm};

/// A page to receive into, and its mapping.
#[derive(Debug)]
pub(super) struct Disposable {
    pub(super) pages: KernelPages,
    pub(super) mapping: Mapping,
}

impl Disposable {
    pub(super) fn frames(&self) -> &[Pfn] {
        self.pages.frames()
    }
}

/// Makes disposable pages, and ends them.
pub(super) struct Disposables<M: Machine> {
    vm: Arc<Vm<M>>,
    ephemeral: Arc<Ephemeral<M, Vm<M>>>,
    /// For waking those that wait for a mapping.
    waker: Waker<M>,
    defect: Planted<NetDefect>,
}

impl<M: Machine> Disposables<M> {
    pub(super) fn new(
        vm: Arc<Vm<M>>,
        ephemeral: Arc<Ephemeral<M, Vm<M>>>,
        sched: &Arc<Sched<M>>,
        defect: Planted<NetDefect>,
    ) -> Disposables<M> {
        Disposables { vm, ephemeral, waker: Waker::new(sched), defect }
    }

    /// How many there may be among so many clusters. Others sleep until a mapping is free: a half of the cache is
    /// theirs.
    pub(super) fn max_among(&self, clusters: usize) -> usize {
        let max = self.ephemeral.buffers().map_or(clusters, |buffers| clusters.min(buffers / 2));
        if self.defect.is(NetDefect::ReceiveMappingsAll) { clusters } else { max }
    }

    pub(super) fn make(&self) -> Result<Disposable, Errno> {
        let private = self.defect.is(NetDefect::ReceiveMappingPrivate);
        let private = if private { Flags::PRIVATE } else { Flags::empty() };
        let pages = self.vm.kernel_pages(1)?;
        let (frame, flags) = (pages.frames()[0], Flags::NOWAIT | private);
        match self.ephemeral.alloc(&self.waker, frame, MappingUser::Socket, flags) {
            Ok(mapping) => Ok(Disposable { pages, mapping }),
            Err(e) => {
                self.vm.free_kernel_pages(pages);
                Err(e.into())
            }
        }
    }

    /// The address of its first byte.
    pub(super) fn va(&self, disposable: &Disposable) -> Va {
        self.ephemeral.kva(&disposable.mapping)
    }

    /// The last mbuf that showed it is gone.
    pub(super) fn end(&self, Disposable { pages, mapping }: Disposable) {
        let done = |&frame| self.vm.machine().trace_flow(Flow::Page(frame), FlowStep::Done);
        pages.frames().iter().for_each(done);
        self.unmap(mapping);
        self.vm.free_kernel_pages(pages);
    }

    /// The mapping of a page that goes, or has gone to a process.
    pub(super) fn unmap(&self, mapping: Mapping) {
        match self.defect.is(NetDefect::ReceiveMappingKept) {
            true => drop(mapping),
            false => self.ephemeral.free(&self.waker, mapping),
        }
    }
}
