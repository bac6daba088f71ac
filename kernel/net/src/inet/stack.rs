//! The network itself: its state under one lock, and what everything in it works with.
//!
//! # What it holds
//! A [`Net`] has the state, with the blocks, the way to the wire, what is known of neighbours and what is on loopback;
//! a [`Stack`] is that state, held, for the protocols to work on.
//!
//! # Locks
//! One lock, of class `Network`, over all of it, as FreeBSD 5 had one over all of TCP (`tcbinfo`). It comes before all
//! other locks: under it, socket buffers, mbufs and the scheduler are used. A process holds it in a call, the thread
//! behind the card's interrupts while it takes packets in, the clock's while it looks for what is due. No byte of a
//! process is touched under it.
//!
//! # What can fail
//! Everything that needs an mbuf: then a packet is lost, as on any wire, and TCP sends it again.

use super::card::Card;
use super::fragments::Fragments;
use super::id::PcbId;
use super::link::{Frames, Link};
use super::neighbours::Table;
use super::pcb::Pcbs;
use crate::config::NetConfig;
use crate::sockbuf::SockBufs;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use once_cell::race::OnceBox;
use pageferry_core::base::Core;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::{Chain, Pool};
use pageferry_core::sched::{CalloutId, SoftInt};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Cause, Channel, Cycles, DeviceId, LockClass, Machine, Nic, NicInfo, SpinLock, StructArena, Threads, Zone,
};

/// A control block (`inpcb` and `tcpcb`); and what a segment uses of it.
const PCB_BYTES: usize = 256;
pub(super) const PCB_USED_BYTES: usize = 192;
/// The lock comes before all others.
const NETWORK: LockClass = LockClass::new("Network", 5);

/// All of the network: blocks, the way to the wire, neighbours and loopback, under one lock.
pub struct Net<M: Machine> {
    /// Itself, for what comes back to it later.
    pub(super) me: Weak<Net<M>>,
    pub(super) core: Arc<Core<M>>,
    /// Where the buffers of connections are made.
    pub(super) buffers: Arc<SockBufs<M>>,
    pub(super) config: NetConfig,
    /// The server that has the protocols, where that is a process.
    host: OnceBox<Arc<dyn ProtocolHost>>,
    pub(super) state: M::Lock<State<M>>,
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
}

/// What the lock protects.
pub(super) struct State<M: Machine> {
    pub(super) pcbs: Pcbs<M>,
    pub(super) zone: Zone,
    pub(super) link: Option<Link<M>>,
    pub(super) arp: Table,
    pub(super) fragments: Fragments,
    /// Packets on loopback, which the soft interrupt takes in.
    pub(super) loopback: VecDeque<Chain>,
    /// The callout that looks for what is due.
    pub(super) timer: Option<Timer>,
    /// One that has come, and when it was due: the protocol server is to do that.
    pub(super) rung: Option<(u64, Cycles)>,
    /// How many such callouts there were.
    pub(super) timers: u64,
    /// The latest time that was seen here: a call may come from a CPU whose clock is behind that.
    pub(super) latest: Cycles,
    /// The number of the next datagram (`ip_id`).
    pub(super) next_ip_id: u16,
    /// What initial sequence numbers are made of.
    pub(super) next_isn: u32,
    pub(super) counts: Counts,
    pub(super) ending: bool,
}

/// A callout: when it is due, and which it is. One that cannot be cancelled any more finds another one here.
pub(super) struct Timer {
    pub(super) due: Cycles,
    pub(super) id: CalloutId,
    pub(super) number: u64,
}

/// What was done, and what was dropped, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets taken in by IP.
    pub received: u64,
    /// Packets handed to an interface.
    pub sent: u64,
    /// Dropped for what their headers say: too short, wrong sums, another station's; fragments that do not fit each
    /// other.
    pub malformed: u64,
    /// Dropped for want of memory, or room in a queue.
    pub no_room: u64,
    /// Packets that no socket is for.
    pub no_socket: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that came out of order, or twice.
    pub out_of_order: u64,
    /// Connections that ended by a reset, sent or received.
    pub reset: u64,
}

/// The network at work: its state, held, and what it works with.
pub(super) struct Stack<'a, M: Machine> {
    pub(super) net: &'a Net<M>,
    pub(super) threads: &'a dyn Threads,
    pub(super) s: &'a mut State<M>,
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
            Some(nic) => Some(Link::Card(Card::new(
                m,
                nic,
                (config.paths.receive_buffer, config.receive_mapping),
                arena,
            )?)),
            None => driven.map(|info| Link::Driver(Frames::new(info))),
        };
        let state = State {
            pcbs: Pcbs::default(),
            zone: arena.zone("protocol control blocks", config.sockets, PCB_BYTES)?,
            arp: Table::default(),
            fragments: Fragments::default(),
            loopback: VecDeque::new(),
            timer: None,
            rung: None,
            timers: 0,
            latest: Cycles(0),
            next_ip_id: 1,
            next_isn: config.initial_sequence,
            counts: Counts::default(),
            ending: false,
            link,
        };
        Ok(Parts { state })
    }

    /// The card's number, if the kernel drives it itself.
    pub fn card(&self) -> Option<DeviceId> {
        match &self.state.link {
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
        Arc::new_cyclic(|me| Net {
            me: me.clone(),
            core: core.clone(),
            buffers,
            config,
            host: OnceBox::new(),
            state: core.machine.new_lock(NETWORK, parts.state),
        })
    }

    /// Makes the thread behind the card's interrupts, and gives the card its buffers. Called before any thread runs.
    pub fn start(self: &Arc<Self>, threads: &dyn Threads) {
        let its = self.clone();
        self.core.softints.start(SoftInt::Net, Box::new(move |t| its.interrupt(t)));
        self.with(threads, |stack| stack.fill_card());
    }

    /// Has `host` run the protocols, in place of that thread. Called before any thread runs.
    pub fn start_in(&self, host: Arc<dyn ProtocolHost>) {
        drop(self.host.set(Box::new(host)));
    }

    /// The server that has the protocols, if one has.
    pub(super) fn host(&self) -> Option<&dyn ProtocolHost> {
        self.host.get().map(|host| &**host)
    }

    /// Works on the network with its lock held.
    pub(super) fn with<R>(&self, threads: &dyn Threads, work: impl FnOnce(&mut Stack<'_, M>) -> R) -> R {
        let _c = self.core.machine.scope(Cause::Protocol);
        let mut held = self.state.lock();
        let mut stack = Stack { net: self, threads, s: &mut held };
        stack.s.latest = stack.now();
        let result = work(&mut stack);
        stack.arm_timer();
        result
    }

    /// Behind the card's interrupts, and behind packets on loopback.
    fn interrupt(&self, threads: &dyn Threads) {
        loop {
            let more = self.with(threads, |stack| {
                let from_card = stack.reap_card();
                stack.take_from_loopback() || from_card
            });
            if !more {
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
        self.with(threads, |stack| stack.end());
    }

    /// What was done, and what was dropped.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Tests that nothing is left when no process is.
    ///
    /// # Errors
    /// What is left, in words.
    pub fn check_quiescent(&self) -> Result<(), String> {
        let state = self.state.lock();
        let (blocks, looped) = (state.pcbs.len(), state.loopback.len());
        let queued = state.arp.queued() + state.fragments.queued();
        let posted = state.link.as_ref().map_or(0, Link::under_way);
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
        self.state.lock().pcbs.check()
    }
}

impl<M: Machine> Stack<'_, M> {
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
        self.m().now().max(self.s.latest)
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

    /// Has the callout come when the first deadline of any block does.
    pub(super) fn arm_timer(&mut self) {
        let first = match self.s.ending {
            true => None,
            false => {
                let (s, fragments) = (&self.s, self.s.fragments.first_deadline());
                [s.pcbs.first_deadline(), s.arp.first_deadline(), fragments].into_iter().flatten().min()
            }
        };
        if self.s.timer.as_ref().map(|timer| timer.due) == first {
            return;
        }
        if let Some(timer) = self.s.timer.take() {
            self.net.core.callouts.cancel(timer.id);
        }
        if let Some(due) = first {
            let weak = self.net.me.clone();
            self.s.timers += 1;
            let number = self.s.timers;
            let call = Box::new(move |threads: &dyn Threads| {
                let Some(net) = weak.upgrade() else { return };
                match net.host() {
                    None => net.with(threads, |stack| stack.time_passes(number, due)),
                    Some(host) => {
                        net.state.lock().rung = Some((number, due));
                        host.has_work(threads);
                    }
                }
            });
            self.s.timer = Some(Timer { due, id: self.net.core.callouts.add(due, call), number });
        }
    }

    /// Does what is due, in callout `number`, which was due at `due`: this CPU's clock may be behind that.
    pub(super) fn time_passes(&mut self, number: u64, due: Cycles) {
        self.s.timer.take_if(|timer| timer.number == number);
        self.s.latest = self.s.latest.max(due);
        let now = self.now();
        self.arp_timers(now);
        self.fragment_timers(now);
        for id in self.s.pcbs.due(now) {
            self.tcp_timers(id, now);
        }
    }

    /// Ends all: what is connected is reset, what is queued is freed, the card is stopped.
    pub(super) fn end(&mut self) {
        for id in self.s.pcbs.ids() {
            self.abort(id);
        }
        self.s.ending = true;
        self.throw_away();
    }

    /// Frees all that is on its way, and takes back what the card has.
    pub(super) fn throw_away(&mut self) {
        let looped: alloc::vec::Vec<_> = self.s.loopback.drain(..).collect();
        looped.into_iter().for_each(|chain| self.free(chain));
        let queued = [self.s.arp.take_all(), self.s.fragments.take_all()];
        queued.into_iter().flatten().for_each(|chain| self.free(chain));
        self.stop_link();
    }
}
