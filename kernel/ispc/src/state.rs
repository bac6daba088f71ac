//! All of ISPC: pieces of the area by their first page, ports, requests, and the reserved entries that are free.
//!
//! # Locks
//! One of class `Pipe` over [`State`]; another of that class over the gates, and the two are never held together.

use super::config::{Attaching, IspcConfig, IspcDefect};
use super::driver_card::{DriverCard, Receiving, Sending};
use super::gate::{Activation, Gate};
use super::keeping::PieceCache;
use super::port::{Port, Request, RequestId};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_abi::{Errno, Pid};
use pageferry_core::sched::ThreadId;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Access, Channel, LockClass, Machine, PAGE_SHIFT, StructArena, StructVa, Va, VaRange, Zone,
};

/// A port, a piece or a request: numbers, links, and what is said of them.
const STRUCTURE_BYTES: usize = 64;

/// The owner of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This process, to which it is attached.
    Process(Pid),
    /// No process: it goes with this request.
    Request(RequestId),
    /// Nobody: this process has it again when the kernel makes a request for it ([`super::kept`]).
    Kept(Pid),
    /// No process: the network card receives into it, or has ([`super::received`]); or it was freed while the card
    /// reads it, and is free when that is done.
    Card,
}

/// A piece of the area.
pub struct Ica {
    /// How long it is.
    pub pages: usize,
    /// Its structure.
    pub at: StructVa,
    /// Whose it is. There is one holder at any time.
    pub holder: Holder,
    /// Reserved entries that attach it, in the order of what they map.
    pub entries: Vec<usize>,
    /// A page table attaches it.
    pub tabled: bool,
    /// A server has it from [`Ispc::alloc_kept`], and knows of it itself while it keeps it.
    pub servers_own: bool,
}

/// All of it. See the [module](self).
pub struct State {
    /// By first page.
    pub icas: LiteMap<usize, Ica>,
    /// Of the processes that have communicated, or serve, and have not ended.
    pub ports: LiteMap<Pid, Port>,
    /// Each until its maker has been told of its outcome; when the maker has ended, until it is done.
    pub requests: LiteMap<RequestId, Request>,
    /// The number of the next request, or of what the card is next given.
    pub next: u64,
    /// By service.
    pub servers: LiteMap<u32, Pid>,
    /// Servers' permanent reserved entries that are free. The last is taken first.
    pub free_server: Vec<usize>,
    /// The other reserved entries that are free, likewise.
    pub free: Vec<usize>,
    /// Where those of ports, pieces and requests come from.
    pub structures: Zone,
    /// Frames that the card has, and whose they are.
    pub sending: LiteMap<u64, Sending>,
    /// Requests whose frames were sent, and who is to answer them.
    pub sent: VecDeque<(Pid, RequestId)>,
    /// What the card receives into, and has received.
    pub receiving: Receiving,
    /// Where threads are that have crossed into servers: the last is where they run.
    pub inside: LiteMap<ThreadId, Vec<Activation>>,
    /// What processes keep for requests that the kernel makes for them.
    pub kept: LiteMap<Pid, PieceCache>,
}

impl State {
    /// It serves something.
    pub fn is_server(&self, pid: Pid) -> bool {
        self.ports.get(&pid).is_some_and(|port| port.service.is_some())
    }
}

/// The part of a kernel. See the [module](super).
pub struct Ispc<M: Machine> {
    /// What the kernel was told of it.
    pub config: IspcConfig,
    pub(crate) attaching: Attaching,
    /// Where it is.
    pub range: VaRange,
    /// Where threads sleep for an entry.
    pub(super) at: StructVa,
    pub(crate) state: M::Lock<State>,
    /// What threads may cross into. Its lock is never held together with the other.
    pub gates: M::Lock<LiteMap<Pid, Arc<Gate<M>>>>,
    /// The card, where no protocols of the kernel's own have it.
    pub card: Option<DriverCard>,
}

impl<M: Machine> Ispc<M> {
    /// An area without pieces.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(
        m: &M,
        config: IspcConfig,
        attaching: Attaching,
        range: VaRange,
        card: Option<DriverCard>,
        arena: &mut StructArena,
    ) -> Result<Ispc<M>, ArenaFull> {
        let at = arena.array("communication", 1, STRUCTURE_BYTES)?;
        let structures = arena.zone("pieces and requests", config.pieces, STRUCTURE_BYTES)?;
        let reserved = if attaching.by_entries { config.reserved } else { 0 };
        let servers = if attaching.servers_see_all { config.server_entries } else { 0 };
        let state = State {
            icas: LiteMap::new(),
            ports: LiteMap::new(),
            requests: LiteMap::new(),
            next: 1,
            servers: LiteMap::new(),
            free_server: (0..servers).rev().collect(),
            free: (servers..reserved).rev().collect(),
            structures,
            sending: LiteMap::new(),
            sent: VecDeque::new(),
            receiving: Receiving::default(),
            inside: LiteMap::new(),
            kept: LiteMap::new(),
        };
        let gates = m.new_lock(LockClass::PIPE, LiteMap::new());
        Ok(Ispc { config, attaching, range, at, state: m.new_lock(LockClass::PIPE, state), gates, card })
    }

    pub(crate) fn has(&self, defect: IspcDefect) -> bool {
        self.config.defect.is(defect)
    }

    /// What a thread sleeps on that wants an entry.
    pub fn entries(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// The first page of the piece at `va`.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: no page of the area begins there.
    pub fn page(&self, va: Va) -> Result<usize, Errno> {
        match self.range.contains(va) && va.is_page_aligned() {
            true => Ok((va - self.range.start()) >> PAGE_SHIFT),
            false => Err(Errno::Invalid),
        }
    }

    pub(crate) fn va(&self, page: usize) -> Va {
        self.range.start() + (page << PAGE_SHIFT)
    }

    pub(crate) fn touch(&self, m: &M, at: StructVa) {
        m.touch(at, STRUCTURE_BYTES, Access::Write);
    }
}
