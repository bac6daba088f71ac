//! The network itself: its parts under their locks, and what everything in it works with.
//!
//! # What it holds
//! A [`Net`] has the control blocks, the way to the wire, what is known of neighbours, fragments and what is on
//! loopback. [`Ip`] is the network at work with none of that held: it takes what it needs, for as long as it does.
//! A [`Stack`] holds the table of control blocks beside, and a [`Conn`](super::conn::Conn) a block.
//!
//! # Locks
//! Those of FreeBSD 5.3: `Network` over the table of control blocks (`tcbinfo`, `udbinfo`), `Connection` over each
//! block (`inp`), `Reassembly` over fragments (`ipqlock`), `Arp` over the table of neighbours, `Driver` over the card's
//! rings and what it has (`EM_LOCK`), `Loopback` over packets on loopback (a `netisr` queue). They come before all
//! other locks, in this order: under them, socket buffers, mbufs and the scheduler are used. A process holds them in a
//! call, the thread behind the card's interrupts while it takes packets in, the clock's while it looks for what is due.
//! What arrives goes through Ethernet and IP, and is summed, with none held. No byte of a process is touched under any.
//!
//! # What can fail
//! Everything that needs an mbuf: then a packet is lost, as on any wire, and TCP sends it again.

use super::alarm::{Part, Rung};
use super::card::Card;
use super::fragments::Fragments;
use super::id::PcbId;
use super::link::{Frames, Link};
use super::neighbours::Table;
use super::pcb::{CONNECTION, Pcbs};
use super::tally::{Counts, Tally};
use crate::config::NetConfig;
use crate::sockbuf::SockBufs;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};
use once_cell::race::OnceBox;
use pageferry_core::base::Core;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::{Chain, Pool};
use pageferry_core::sched::SoftInt;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Cause, Channel, Cycles, DeviceId, LockClass, Machine, Nic, NicInfo, SpinLock, StructArena, Threads, Zone,
};

/// A control block (`inpcb` and `tcpcb`); and what a segment uses of it.
const PCB_BYTES: usize = 256;
pub(super) const PCB_USED_BYTES: usize = 192;
/// The locks come before all others.
const NETWORK: LockClass = LockClass::new("Network", 4);
const REASSEMBLY: LockClass = LockClass::new("Reassembly", 6);
const ARP: LockClass = LockClass::new("Arp", 7);
const DRIVER: LockClass = LockClass::new("Driver", 8);
const LOOPBACK: LockClass = LockClass::new("Loopback", 9);
/// All of them.
pub const LOCK_CLASSES: [LockClass; 6] = [NETWORK, CONNECTION, REASSEMBLY, ARP, DRIVER, LOOPBACK];

/// All of the network: control blocks, the way to the wire, neighbours, fragments and loopback, each under its lock.
pub struct Net<M: Machine> {
    /// Itself, for what comes back to it later.
    pub(super) me: Weak<Net<M>>,
    pub(super) core: Arc<Core<M>>,
    /// Where the buffers of connections are made.
    pub(super) buffers: Arc<SockBufs<M>>,
    pub(super) config: NetConfig,
    /// The server that has the protocols, where that is a process.
    host: OnceBox<Arc<dyn ProtocolHost>>,
    /// What the card is.
    pub(super) card: Option<NicInfo>,
    pub(super) state: M::Lock<State<M>>,
    pub(super) fragments: M::Lock<Fragments>,
    pub(super) arp: M::Lock<Table>,
    pub(super) link: M::Lock<Option<Link<M>>>,
    /// Packets on loopback, which the soft interrupt takes in.
    pub(super) loopback: M::Lock<VecDeque<Chain>>,
    /// The card was not removed, nor stopped. Written under the lock of the way to the wire, read without.
    pub(super) has_wire: AtomicBool,
    /// A connection's frames are steered into its receive area.
    pub(super) has_flow: AtomicBool,
    /// Segments that connections keep until those before them have come.
    pub(super) early: AtomicUsize,
    /// A frame has found no memory since it was last seen to.
    pub(super) is_short: AtomicBool,
    /// A connection's reader waits for more than there is, or may.
    pub(super) has_low_water: AtomicBool,
    /// No more is taken in. Written once, and looked at under the lock of whatever keeps packets.
    pub(super) is_ending: AtomicBool,
    /// The latest time that was seen here: a call may come from a CPU whose clock is behind that.
    latest: AtomicU64,
    /// The number of the next datagram (`ip_id`).
    pub(super) next_ip_id: AtomicU16,
    pub(super) tally: Tally,
}

/// A server that has the protocols, as a process.
pub trait ProtocolHost {
    /// Something has changed for a socket.
    ///
    /// # Locks
    /// Any may be held but the scheduler's.
    fn changed(&self, threads: &dyn Threads, id: PcbId);

    /// Something is due, which the server does.
    fn has_work(&self, threads: &dyn Threads);
}

/// What a network has in memory: made at boot, before the rest of it.
pub struct Parts<M: Machine> {
    state: State<M>,
    link: Option<Link<M>>,
}

/// The table of control blocks, and what is given to them.
pub(super) struct State<M: Machine> {
    pub(super) pcbs: Pcbs<M>,
    pub(super) zone: Zone,
    /// Alarms that the protocol server is to see to.
    pub(super) rung: Vec<Rung>,
    /// What initial sequence numbers are made of.
    pub(super) next_isn: u32,
}

/// The table, held.
type TableGuard<'a, M> = <<M as Machine>::Lock<State<M>> as SpinLock<State<M>>>::Guard<'a>;

/// The network at work, with none of its locks held.
pub(super) struct Ip<'a, M: Machine> {
    pub(super) net: &'a Net<M>,
    pub(super) threads: &'a dyn Threads,
}

impl<M: Machine> Clone for Ip<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Ip<'_, M> {}

/// The network at work, with the table of control blocks, until that is let go.
pub(super) struct Stack<'a, M: Machine> {
    pub(super) ip: Ip<'a, M>,
    held: Option<TableGuard<'a, M>>,
}

impl<'a, M: Machine> Deref for Stack<'a, M> {
    type Target = Ip<'a, M>;
    fn deref(&self) -> &Ip<'a, M> {
        &self.ip
    }
}

impl<'a, M: Machine> Stack<'a, M> {
    /// For who has a block at hand.
    pub(super) fn without_table(ip: Ip<'a, M>) -> Stack<'a, M> {
        Stack { ip, held: None }
    }

    /// The table, which is held.
    ///
    /// # Panics
    /// When it was let go.
    pub(super) fn table(&mut self) -> &mut State<M> {
        self.held.as_mut().expect("what needs the table holds it")
    }

    pub(super) fn has_table(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn release_table(&mut self) {
        self.held = None;
    }
}

impl<M: Machine> Parts<M> {
    /// With the card if there is one, or what it is if a server drives it.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(
        m: &M,
        config: &NetConfig,
        nic: Option<Box<dyn Nic>>,
        driven: Option<NicInfo>,
        arena: &mut StructArena,
    ) -> Result<Parts<M>, ArenaFull> {
        let link = match nic {
            Some(nic) => {
                let receiving = (config.paths.receive_buffer, config.receive_mapping);
                Some(Link::Card(Box::new(Card::new(m, nic, receiving, arena)?)))
            }
            None => driven.map(|info| Link::Driver(Frames::new(info))),
        };
        let state = State {
            pcbs: Pcbs::default(),
            zone: arena.zone("protocol control blocks", config.sockets, PCB_BYTES)?,
            rung: Vec::new(),
            next_isn: config.initial_sequence,
        };
        Ok(Parts { state, link })
    }

    /// The card's number, if the kernel drives it itself.
    pub fn card(&self) -> Option<DeviceId> {
        match &self.link {
            Some(Link::Card(card)) => Some(card.id()),
            _ => None,
        }
    }
}

impl<M: Machine> Net<M> {
    /// The network of a kernel that is being booted.
    pub fn new(
        core: &Arc<Core<M>>,
        buffers: Arc<SockBufs<M>>,
        config: NetConfig,
        parts: Parts<M>,
    ) -> Arc<Net<M>> {
        let (m, Parts { state, link }) = (&core.machine, parts);
        Arc::new_cyclic(|me| Net {
            me: me.clone(),
            core: core.clone(),
            buffers,
            config,
            host: OnceBox::new(),
            card: link.as_ref().map(|link| *link.info()),
            has_wire: AtomicBool::new(link.is_some()),
            has_flow: AtomicBool::new(false),
            early: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
            has_low_water: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            latest: AtomicU64::new(0),
            next_ip_id: AtomicU16::new(1),
            tally: Tally::default(),
            state: m.new_lock(NETWORK, state),
            fragments: m.new_lock(REASSEMBLY, Fragments::default()),
            arp: m.new_lock(ARP, Table::default()),
            link: m.new_lock(DRIVER, link),
            loopback: m.new_lock(LOOPBACK, VecDeque::new()),
        })
    }

    /// Makes the thread behind the card's interrupts, and gives the card its buffers. Called before any thread runs.
    pub fn start(self: &Arc<Self>, threads: &dyn Threads) {
        let its = self.clone();
        self.core.softints.start(SoftInt::Net, Box::new(move |t| its.interrupt(t)));
        let _c = self.core.machine.scope(Cause::Protocol);
        self.ip(threads).fill_card();
    }

    /// Has `host` run the protocols, in place of that thread. Called before any thread runs.
    pub fn start_in(&self, host: Arc<dyn ProtocolHost>) {
        drop(self.host.set(Box::new(host)));
    }

    /// The server that has the protocols, if one has.
    pub(super) fn host(&self) -> Option<&dyn ProtocolHost> {
        self.host.get().map(|host| &**host)
    }

    /// A frame is lost for want of memory, which others may have to give up. (What finds a queue full is counted alike,
    /// and is nobody's fault but that queue's.)
    pub(super) fn found_no_memory(&self) {
        self.tally.no_room.add(1);
        self.is_short.store(true, Relaxed);
    }

    /// There may be something to give up where memory is short; else the lock need not be taken.
    pub(super) fn may_drain(&self) -> bool {
        self.early.load(Relaxed) > 0 || self.has_low_water.load(Relaxed)
    }

    /// The network at work.
    pub(super) fn ip<'a>(&'a self, threads: &'a dyn Threads) -> Ip<'a, M> {
        let ip = Ip { net: self, threads };
        self.latest.fetch_max(ip.m().now().0, Relaxed);
        ip
    }

    /// Works on the control blocks.
    pub(super) fn with<'a, R>(
        &'a self,
        threads: &'a dyn Threads,
        work: impl FnOnce(&mut Stack<'a, M>) -> R,
    ) -> R {
        let _c = self.core.machine.scope(Cause::Protocol);
        work(&mut self.stack(threads))
    }

    /// The control blocks at work.
    pub(super) fn stack<'a>(&'a self, threads: &'a dyn Threads) -> Stack<'a, M> {
        let held = Some(self.state.lock());
        Stack { ip: self.ip(threads), held }
    }

    /// Behind the card's interrupts, and behind packets on loopback.
    fn interrupt(&self, threads: &dyn Threads) {
        let _c = self.core.machine.scope(Cause::Protocol);
        loop {
            let ip = self.ip(threads);
            let from_card = ip.reap_card();
            if !ip.take_from_loopback() && !from_card {
                return;
            }
        }
    }

    /// A socket may be ready now that was not before: those who wait for it look again.
    pub(super) fn changed(&self, threads: &dyn Threads, id: PcbId) {
        self.core.select.changed(threads);
        if let Some(host) = self.host() {
            host.changed(threads, id);
        }
    }

    /// The last process is gone: connections end, the card gives its buffers back.
    pub fn end(&self, threads: &dyn Threads) {
        self.with(threads, |stack| {
            for id in stack.table().pcbs.ids() {
                stack.on(id, |conn| conn.abort());
            }
            self.is_ending.store(true, Relaxed);
        });
        self.ip(threads).throw_away();
    }

    /// What was done, and what was dropped.
    pub fn counts(&self) -> Counts {
        self.tally.counts()
    }

    /// Tests that nothing is left when no process is.
    ///
    /// # Errors
    /// What is left, in words.
    pub fn check_quiescent(&self) -> Result<(), String> {
        let blocks = self.state.lock().pcbs.len();
        let looped = self.loopback.lock().len();
        let waiting = self.arp.lock().queued();
        let queued = waiting + self.fragments.lock().queued();
        let posted = self.link.lock().as_ref().map_or(0, Link::under_way);
        match (blocks, looped, queued, posted) {
            (0, 0, 0, 0) => Ok(()),
            _ => Err(format!(
                "{blocks} control blocks, {looped} on loopback, {queued} that wait for an address or their rest \
                 and {posted} buffers of the card, or frames for it, are left"
            )),
        }
    }

    /// Tests what holds at any time.
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self) -> Result<(), String> {
        let state = self.state.lock();
        let (early, counted) = (state.pcbs.early(), self.early.load(Relaxed));
        if early != counted {
            return Err(format!("{counted} segments are counted that came too early, of {early}"));
        }
        // Nothing is to come any more once it is ending.
        state.pcbs.check(!self.is_ending.load(Relaxed))
    }
}

impl<M: Machine> Ip<'_, M> {
    pub(super) fn m(&self) -> &M {
        &self.net.core.machine
    }

    pub(super) fn config(&self) -> &NetConfig {
        &self.net.config
    }

    /// This defect is planted.
    pub(super) fn has(&self, defect: NetDefect) -> bool {
        self.config().defect.is(defect)
    }

    pub(super) fn pool(&self) -> &Pool<M> {
        &self.net.core.mbufs
    }

    /// The time, which does not go back.
    pub(super) fn now(&self) -> Cycles {
        self.m().now().max(Cycles(self.net.latest.load(Relaxed)))
    }

    pub(super) fn cycles(&self, ms: u64) -> Cycles {
        Cycles(self.config().ms_cycles.0 * ms)
    }

    pub(super) fn free(&self, chain: Chain) {
        chain.free(self.pool());
    }

    pub(super) fn wake(&self, id: PcbId, channel: Channel) {
        self.threads.wakeup(channel);
        self.net.changed(self.threads, id);
    }

    /// No more is kept: whatever comes is freed.
    pub(super) fn is_ending(&self) -> bool {
        self.net.is_ending.load(Relaxed)
    }

    /// Does what is due of a part, by callout `number`, which was due at `due`: this CPU's clock may be behind that.
    pub(super) fn time_passes(&self, part: Part, number: u64, due: Cycles) {
        let _c = self.m().scope(Cause::Protocol);
        self.net.latest.fetch_max(due.0, Relaxed);
        let now = self.now();
        match part {
            Part::Block(id) => self.net.with(self.threads, |stack| {
                stack.on(id, |conn| {
                    conn.pcb.alarm.came(number);
                    if conn.pcb.deadline().is_some_and(|at| at <= now) {
                        conn.tcp_timers(now);
                    }
                });
            }),
            Part::Arp => self.arp_timers(number, now),
            Part::Fragments => self.fragment_timers(number, now),
        }
    }

    /// Frees all that is on its way, and takes back what the card has.
    pub(super) fn throw_away(&self) {
        let _c = self.m().scope(Cause::Protocol);
        let looped = core::mem::take(&mut *self.net.loopback.lock());
        looped.into_iter().for_each(|chain| self.free(chain));
        let waiting = self.with_arp(Table::take_all);
        let parts = self.with_fragments(Fragments::take_all);
        waiting.into_iter().chain(parts).for_each(|chain| self.free(chain));
        self.stop_link();
    }
}
