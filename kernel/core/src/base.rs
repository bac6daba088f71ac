//! What every call needs, whatever it is about: the machine, memory, threads, mbufs, and what waits for time.
//!
//! # What it holds
//! A [`Core`] owns the floors that calls stand on. It knows of no file, no process and no protocol: what is open holds
//! what it needs of those itself. The kernel that is assembled from all of it owns the core and shares it with every
//! call ([`crate::proc::Syscall`]).
//!
//! # Locks
//! Those of its parts; none of its own.
//!
//! # What can fail
//! Nothing here.

use crate::choose::Moves;
use crate::config::CoreConfig;
use crate::disk::Geom;
use crate::mbuf::{Answers, Lenders, Pool};
use crate::sched::{Callouts, Sched, Select, SoftInts};
use alloc::sync::Arc;
use pageferry_ephemeral::Ephemeral;
use pageferry_hal::Machine;
use pageferry_vm::Vm;

/// See the [module](self).
pub struct Core<M: Machine> {
    /// The machine.
    pub machine: M,
    /// What calls are told of the configuration.
    pub config: CoreConfig,
    /// Virtual memory.
    pub vm: Arc<Vm<M>>,
    /// Ephemeral mappings.
    pub ephemeral: Arc<Ephemeral<M, Vm<M>>>,
    /// Who runs, and who sleeps.
    pub sched: Arc<Sched<M>>,
    /// Where mbufs and clusters come from.
    pub mbufs: Pool<M>,
    /// What the null protocol answers with, where that is no clusters.
    pub answers: Answers<M>,
    /// Processes that watch what they have lent.
    pub lenders: Arc<Lenders<M>>,
    /// Threads that wait for one of several descriptors.
    pub select: Select,
    /// What moving data costs here.
    pub moves: Moves,
    /// Work behind interrupts.
    pub softints: Arc<SoftInts<M>>,
    /// The way of requests to the disk.
    pub geom: Arc<Geom<M>>,
    /// What is to be done at some time.
    pub callouts: Arc<Callouts<M>>,
}

impl<M: Machine> Core<M> {
    /// Gives back what is kept to be used again: free clusters, and an answer of the null protocol; how many pages.
    pub fn drain(&self) -> usize {
        self.mbufs.drain() + self.answers.drain()
    }
}
