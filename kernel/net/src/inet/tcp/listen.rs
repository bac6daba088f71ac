//! How connections come to be: asked for by the other end, or by a process.
//!
//! # Locks
//! All of it holds the table: which blocks there are, and who is to hand them out, changes here.

use super::super::conn::Conn;
use super::super::id::PcbId;
use super::super::pcb::{Kind, Listener, Owner, Pcb};
use super::super::stack::{Ip, PCB_USED_BYTES, Stack};
use super::input::Segment;
use super::tcb::{Tcb, TcpState};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use pageferry_abi::Errno;
use pageferry_core::defect::NetDefect;
use pageferry_hal::{Access, Cycles, Machine, StructVa};

impl<M: Machine> Ip<'_, M> {
    /// The timeout that connections begin with.
    pub(in crate::inet) fn first_timeout(&self) -> Cycles {
        self.cycles(self.config().initial_rto_ms)
    }
}

impl<M: Machine> Stack<'_, M> {
    /// A segment for a block that listens: if it asks for a connection, one is begun.
    pub(super) fn listener_input(&mut self, id: PcbId, segment: &Segment) {
        if segment.rst {
            return;
        }
        if segment.ack.is_some() {
            return self.ip.refuse(segment);
        }
        let Some(entry) = self.table().pcbs.get(id) else { return };
        let (at, Some(listener)) = (entry.at, &entry.listener) else { return self.ip.refuse(segment) };
        let room = listener.backlog * 3 / 2;
        let (full, crowded) = (listener.accepting.len() > room, listener.incomplete > room);
        self.m().touch(at, PCB_USED_BYTES, Access::Write);
        if !segment.syn || full {
            self.ip.net.tally.no_room.add(u64::from(full));
            return;
        }
        // Who never answers shuts nobody out: the one that was begun first gives way, as in a full row of FreeBSD's
        // `syncache`. Its other end, if it is one, asks again.
        if crowded && let Some(first) = self.table().pcbs.first_half_open(id) {
            self.ip.net.tally.no_room.add(1);
            self.on(first, |conn| conn.drop_connection(None));
        }
        if self.new_connection(id, segment).is_none() {
            // The other end asks again.
            self.ip.net.tally.no_room.add(1);
        }
    }

    fn new_connection(&mut self, listener: PcbId, segment: &Segment) -> Option<()> {
        let at = self.block()?;
        self.m().touch(at, PCB_USED_BYTES, Access::Write);
        let timeout = self.first_timeout();
        let tcb = self.on(listener, |of| {
            let of = of.tcb();
            let mut tcb = Tcb::new(of.send_bytes, of.receive_bytes, timeout);
            (tcb.no_delay, tcb.receive_low_water) = (of.no_delay, of.receive_low_water);
            tcb
        })?;
        let id = self.insert(Pcb::new(at, Owner::Listener, Kind::Tcp(Box::new(tcb))));
        let table = self.table();
        // Nobody else can have it: no block was found that is connected to these ends.
        table.pcbs.connect(id, segment.local, segment.remote);
        table.pcbs.get_mut(id)?.parent = Some(listener);
        self.on(id, |conn| {
            if conn.prepare((segment.local, segment.remote)).is_err() {
                conn.remove();
                return None;
            }
            conn.take_options(segment);
            let t = conn.tcb();
            t.state = TcpState::SynReceived;
            t.rcv.initial = segment.seq;
            t.rcv.next = segment.seq + 1;
            t.rcv.advertised = t.rcv.next;
            t.snd.window = segment.window;
            conn.table().pcbs.listener(listener)?.incomplete += 1;
            conn.tcp_output();
            Some(())
        })?
    }

    /// Adds a block to the table.
    pub(in crate::inet) fn insert(&mut self, pcb: Pcb<M>) -> PcbId {
        let net = self.ip.net;
        self.table().pcbs.insert(&net.core.machine, pcb)
    }

    /// Room for a block. Where there is none, the connection that has been over for longest is forgotten (FreeBSD 5,
    /// `tcp_timer_2msl_tw`).
    pub(in crate::inet) fn block(&mut self) -> Option<StructVa> {
        if let Some(at) = self.table().zone.alloc() {
            return Some(at);
        }
        let over = self.table().pcbs.first_in_time_wait()?;
        self.on(over, |conn| conn.drop_connection(None));
        self.table().zone.alloc()
    }

    /// The process has closed its descriptor. Connections that nobody has accepted end with their listener.
    pub(in crate::inet) fn close(&mut self, id: PcbId) {
        let children: Vec<PcbId> = self.table().pcbs.children(id).collect();
        for child in children {
            self.on(child, |conn| conn.abort());
        }
        self.on(id, |conn| conn.close());
    }
}

impl<M: Machine> Conn<'_, '_, M> {
    /// Listens from now on.
    pub(in crate::inet) fn listen(&mut self, backlog: usize) {
        self.tcb().state = TcpState::Listen;
        let id = self.id;
        let Some(entry) = self.table().pcbs.get_mut(id) else { return };
        let none = Listener { accepting: VecDeque::new(), backlog, incomplete: 0 };
        entry.listener.get_or_insert(none).backlog = backlog;
    }

    /// Begins a connection between the ends that the table has it connected to.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(in crate::inet) fn begin(&mut self, ends: (SocketAddrV4, SocketAddrV4)) -> Result<(), Errno> {
        self.prepare(ends)?;
        self.tcb().state = TcpState::SynSent;
        self.tcp_output();
        Ok(())
    }

    /// A process takes it from its listener.
    pub(in crate::inet) fn accepted(&mut self) {
        self.pcb.owner = Owner::Process;
        let id = self.id;
        if let Some(entry) = self.table().pcbs.get_mut(id) {
            entry.parent = None;
        }
    }

    /// It is there, and its listener can hand it out; false when there is no such any more.
    pub(super) fn is_to_be_accepted(&mut self) -> bool {
        let id = self.id;
        let table = self.table();
        let parent = table.pcbs.get(id).and_then(|entry| entry.parent);
        let Some((parent, of)) = parent.and_then(|parent| Some((parent, table.pcbs.get_mut(parent)?))) else {
            return false;
        };
        let channel = of.channel();
        let Some(listener) = &mut of.listener else { return false };
        listener.incomplete -= 1;
        listener.accepting.push_back(id);
        // A connection is for one process (FreeBSD, `sonewconn`).
        self.threads.wakeup_one(channel);
        self.net.changed(self.threads, parent);
        true
    }

    /// Its listener has nothing to hand out of it any more, where it was in `state`.
    pub(super) fn leave_listener(&mut self, state: TcpState) {
        let (id, stays) = (self.id, self.has(NetDefect::EndedStaysToAccept));
        let table = self.table();
        let parent = table.pcbs.get_mut(id).and_then(|entry| entry.parent.take());
        let Some(listener) = parent.and_then(|parent| table.pcbs.listener(parent)) else { return };
        match state {
            TcpState::SynReceived => listener.incomplete -= 1,
            _ if stays => {}
            _ => listener.accepting.retain(|child| *child != id),
        }
    }
}
