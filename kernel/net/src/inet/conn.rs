//! A control block at work: its lock held, and the table's as long as that is needed.
//!
//! # Locks
//! The table's (`tcbinfo`, `udbinfo` of FreeBSD 5) comes first, then the block's (`inp`). What changes which blocks
//! there are, their names, or who hands out what, needs both. The rest needs the block's alone: then the table is let
//! go ([`Conn::release_table`]), so that segments of other connections are taken in and sent meanwhile. Nobody holds
//! the locks of two blocks.

use super::alarm::Part;
use super::id::PcbId;
use super::pcb::{Block, Kind, Pcb};
use super::stack::{Ip, Net, Stack, State};
use super::tcp::Tcb;
use core::ops::Deref;
use pageferry_abi::Errno;
use pageferry_core::defect::NetDefect;
use pageferry_hal::{Machine, SpinLock, Threads};

/// A block that is held. See the [module](self).
pub(super) struct Conn<'c, 'a, M: Machine> {
    pub(super) ip: Ip<'a, M>,
    stack: &'c mut Stack<'a, M>,
    pub(super) id: PcbId,
    pub(super) pcb: &'c mut Pcb<M>,
}

impl<'a, M: Machine> Deref for Conn<'_, 'a, M> {
    type Target = Ip<'a, M>;
    fn deref(&self) -> &Ip<'a, M> {
        &self.ip
    }
}

impl<'a, M: Machine> Stack<'a, M> {
    /// Works on a block, if there is one of this number.
    pub(super) fn on<R>(&mut self, id: PcbId, work: impl FnOnce(&mut Conn<'_, 'a, M>) -> R) -> Option<R> {
        let block = self.table().pcbs.block(id)?;
        self.on_block(id, &block, work)
    }

    /// Works on a block that the caller has at hand, unless it is gone.
    fn on_block<R>(
        &mut self,
        id: PcbId,
        block: &Block<M>,
        work: impl FnOnce(&mut Conn<'_, 'a, M>) -> R,
    ) -> Option<R> {
        let mut held = block.lock();
        if held.is_gone {
            return None;
        }
        let mut conn = Conn { ip: self.ip, stack: self, id, pcb: &mut held };
        let result = work(&mut conn);
        conn.tell_table();
        conn.set_alarm();
        Some(result)
    }
}

impl<M: Machine> Net<M> {
    /// Works on a block that the caller has at hand, without the table.
    ///
    /// # Errors
    /// [`Errno::BadFd`] when it is gone.
    pub(super) fn on_block<R>(
        &self,
        threads: &dyn Threads,
        (id, block): (PcbId, &Block<M>),
        work: impl FnOnce(&mut Conn<'_, '_, M>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut stack = Stack::without_table(self.ip(threads));
        stack.on_block(id, block, |conn| work(conn)).unwrap_or(Err(Errno::BadFd))
    }
}

impl<M: Machine> Conn<'_, '_, M> {
    /// The table, which is held.
    ///
    /// # Panics
    /// When it was let go.
    pub(super) fn table(&mut self) -> &mut State<M> {
        self.stack.table()
    }

    /// Lets go of the table: what follows is about this block alone.
    pub(super) fn release_table(&mut self) {
        self.tell_table();
        self.stack.release_table();
    }

    /// Has the table know what it has to know of the block, as long as it is held.
    fn tell_table(&mut self) {
        let forgotten_at = match &self.pcb.kind {
            Kind::Tcp(tcb) => tcb.forgotten_at(),
            Kind::Udp(_) => None,
        };
        let id = self.id;
        if self.stack.has_table()
            && let Some(entry) = self.table().pcbs.get_mut(id)
        {
            entry.forgotten_at = forgotten_at;
        }
    }

    /// The TCP part of the block.
    pub(super) fn tcb(&mut self) -> &mut Tcb<M> {
        self.pcb.tcb()
    }

    /// Gives the block back.
    pub(super) fn remove(&mut self) {
        let (id, at) = (self.id, self.pcb.at);
        if let Kind::Udp(udp) = &mut self.pcb.kind {
            udp.end().into_iter().for_each(|datagram| self.ip.free(datagram.bytes));
        }
        self.pcb.is_gone = true;
        let table = self.table();
        table.pcbs.remove(id);
        table.zone.free(at);
    }

    /// Has what is due first come then.
    fn set_alarm(&mut self) {
        if self.has(NetDefect::AlarmNotMoved) && !self.stack.has_table() {
            return;
        }
        let is_over = self.pcb.is_gone || self.is_ending();
        let first = self.pcb.deadline().filter(|_| !is_over);
        self.ip.net.set_alarm(&mut self.pcb.alarm, Part::Block(self.id), first);
    }
}
