//! The Internet protocols: ARP, IPv4, ICMP, UDP and TCP over mbuf chains (after 4.4BSD), on a network card and on
//! loopback.
//!
//! # What it holds
//! A [`Net`] is all of it: the interfaces, the ARP table, and a *protocol control block* for each socket ([`Pcb`]). The
//! blocks own what is on its way; a socket as a process sees it ([`socket`]) has the number of its block.
//!
//! * [`wire`]: packets' headers, as values. [`pcb`]: blocks, and how an arriving packet finds its own.
//! * [`iface`]: where a packet goes: loopback, or the card. [`link`]: who drives that: [`card`], or a server;
//!   [`repack`]: what a driver can do for a card. [`arp`]: addresses of stations.
//! * [`ip`], [`icmp`], [`udp`], [`tcp`]: the protocols, each with its way in and its way out.
//! * [`socket`]: the files that processes have. [`calls`]: what a process asks of them; [`who`]: whoever has the
//!   protocols.
//!
//! # Locks
//! One lock, of class `Network`, over all of it, as FreeBSD 5 had one over all of TCP (`tcbinfo`). It comes before all
//! other locks: under it, socket buffers, mbufs and the scheduler are used. A process holds it in a call, the thread
//! behind the card's interrupts while it takes packets in, the clock's while it looks for what is due. No byte of a
//! process is touched under it.
//!
//! # What can fail
//! Everything that needs an mbuf: then a packet is lost, as on any wire, and TCP sends it again.

mod arp;
mod calls;
mod card;
mod icmp;
mod iface;
mod ip;
mod link;
mod pcb;
mod repack;
mod socket;
mod tcp;
mod udp;
mod who;
mod wire;

pub use card::clusters_for_card;
pub(crate) use pcb::PcbId;
pub(crate) use socket::InetSocket;
pub(crate) use who::Protocols;

use crate::Kernel;
use crate::config::NetConfig;
use crate::defect::NetDefect;
use crate::sched::SoftInt;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use card::Card;
use link::{Frames, Link};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Cause, Channel, Cycles, DeviceId, LockClass, Machine, Nic, NicInfo, SpinLock, StructArena, Threads, Zone,
};
use pcb::Pcbs;

/// A control block (`inpcb` and `tcpcb`); and what a segment uses of it.
const PCB_BYTES: usize = 256;
const PCB_USED_BYTES: usize = 192;
/// The lock comes before all others.
const NETWORK: LockClass = LockClass::new("Network", 5);

/// All of the network. See the [module](self).
pub(crate) struct Net<M: Machine> {
    config: NetConfig,
    card: Option<DeviceId>,
    state: M::Lock<State<M>>,
}

/// What the lock protects.
pub(crate) struct State<M: Machine> {
    pcbs: Pcbs<M>,
    zone: Zone,
    link: Option<Link<M>>,
    arp: arp::Table,
    /// Packets on loopback, which the soft interrupt takes in.
    loopback: VecDeque<crate::net::chain::Chain>,
    /// The callout that looks for what is due.
    timer: Option<Timer>,
    /// One that has come, and when it was due: the protocol server is to do that.
    rung: Option<(u64, Cycles)>,
    /// How many such callouts there were.
    timers: u64,
    /// The latest time that was seen here: a call may come from a CPU whose clock is behind that.
    latest: Cycles,
    /// The number of the next datagram (`ip_id`).
    next_ip_id: u16,
    /// What initial sequence numbers are made of.
    next_isn: u32,
    counts: Counts,
    kernel: Weak<Kernel<M>>,
    ending: bool,
}

/// A callout: when it is due, and which it is. One that cannot be cancelled any more finds another one here.
struct Timer {
    due: Cycles,
    id: crate::sched::CalloutId,
    number: u64,
}

/// What was done, and what was dropped, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets taken in by IP.
    pub received: u64,
    /// Packets handed to an interface.
    pub sent: u64,
    /// Dropped for what their headers say: too short, wrong sums, another station's, fragments.
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
pub(crate) struct Stack<'a, M: Machine> {
    kernel: &'a Kernel<M>,
    threads: &'a dyn Threads,
    s: &'a mut State<M>,
}

impl<M: Machine> Net<M> {
    /// The network of a kernel that is being booted, with the card if there is one, or what it is if a server drives
    /// it.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub(crate) fn new(
        m: &M,
        config: NetConfig,
        nic: Option<Box<dyn Nic>>,
        driven: Option<NicInfo>,
        arena: &mut StructArena,
    ) -> Result<Net<M>, ArenaFull> {
        let link = match nic {
            Some(nic) => Some(Link::Card(Card::new(m, nic, config.paths.receive_buffer, arena)?)),
            None => driven.map(|info| Link::Driver(Frames::new(info))),
        };
        let state = State {
            pcbs: Pcbs::default(),
            zone: arena.zone("protocol control blocks", config.sockets, PCB_BYTES)?,
            arp: arp::Table::default(),
            loopback: VecDeque::new(),
            timer: None,
            rung: None,
            timers: 0,
            latest: Cycles(0),
            next_ip_id: 1,
            next_isn: config.first_sequence,
            counts: Counts::default(),
            kernel: Weak::new(),
            ending: false,
            link,
        };
        let card = match &state.link {
            Some(Link::Card(card)) => Some(card.id()),
            _ => None,
        };
        Ok(Net { config, card, state: m.new_lock(NETWORK, state) })
    }

    /// The card's number, if there is one.
    pub(crate) fn card(&self) -> Option<DeviceId> {
        self.card
    }

    /// Makes the thread behind the card's interrupts, and gives the card its buffers. Called before any thread runs.
    pub(crate) fn start(&self, kernel: &Arc<Kernel<M>>, threads: &dyn Threads) {
        self.state.lock().kernel = Arc::downgrade(kernel);
        if kernel.net_service.is_some() {
            return;
        }
        let its = kernel.clone();
        kernel.softints.start(SoftInt::Net, Box::new(move |t| its.net_interrupt(t)));
        self.with(kernel, threads, |stack| stack.fill_card());
    }

    /// Works on the network with its lock held.
    pub(super) fn with<R>(
        &self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        work: impl FnOnce(&mut Stack<'_, M>) -> R,
    ) -> R {
        let _c = kernel.machine.scope(Cause::Protocol);
        let mut held = self.state.lock();
        let mut stack = Stack { kernel, threads, s: &mut held };
        stack.s.latest = stack.now();
        let result = work(&mut stack);
        stack.arm_timer();
        result
    }

    /// What was done, and what was dropped.
    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Tests that nothing is left when no process is.
    ///
    /// # Errors
    /// What is left, in words.
    pub(crate) fn check_quiescent(&self) -> Result<(), String> {
        let state = self.state.lock();
        let (blocks, looped) = (state.pcbs.len(), state.loopback.len());
        let (queued, posted) = (state.arp.queued(), state.link.as_ref().map_or(0, Link::under_way));
        match (blocks, looped, queued, posted) {
            (0, 0, 0, 0) => Ok(()),
            _ => Err(format!(
                "{blocks} control blocks, {looped} packets on loopback, {queued} that wait for an address and {posted} \
                 buffers of the card, or frames for it, are left"
            )),
        }
    }

    /// Tests what holds at any time.
    ///
    /// # Errors
    /// What is broken, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.state.lock().pcbs.check()
    }
}

impl<M: Machine> Kernel<M> {
    /// The network, if this kernel has one.
    pub(crate) fn net(&self) -> Option<&Net<M>> {
        self.net.as_ref()
    }

    /// What the network has done and dropped; nothing of a kernel without one.
    pub fn net_counts(&self) -> Counts {
        self.net.as_ref().map(Net::counts).unwrap_or_default()
    }

    /// Behind the card's interrupts, and behind packets on loopback.
    fn net_interrupt(&self, threads: &dyn Threads) {
        let Some(net) = &self.net else { return };
        loop {
            let more = net.with(self, threads, |stack| {
                let from_card = stack.reap_card();
                stack.take_from_loopback() || from_card
            });
            if !more {
                return;
            }
        }
    }

    /// A socket may be ready now that was not before: those who wait for it look again.
    pub(in crate::net) fn socket_changed(&self, threads: &dyn Threads, id: Option<PcbId>) {
        self.select.changed(threads);
        if let (Some(service), Some(id)) = (&self.net_service, id) {
            service.changed(threads, id);
        }
    }

    /// The last process is gone: connections end, the card gives its buffers back. True when nothing is left that needs
    /// the threads behind interrupts.
    pub(crate) fn end_of_net(&self, threads: &dyn Threads) {
        if let Some(net) = &self.net {
            net.with(self, threads, |stack| stack.end());
        }
    }
}

impl<M: Machine> Stack<'_, M> {
    fn m(&self) -> &M {
        &self.kernel.machine
    }

    fn config(&self) -> &NetConfig {
        &self.kernel.net.as_ref().expect("its network is at work").config
    }

    /// This defect is planted.
    fn has(&self, defect: NetDefect) -> bool {
        self.config().defect.is(defect)
    }

    fn pool(&self) -> &crate::net::Pool<M> {
        &self.kernel.mbufs
    }

    /// The time, which does not go back.
    fn now(&self) -> Cycles {
        self.m().now().max(self.s.latest)
    }

    fn cycles(&self, ms: u64) -> Cycles {
        Cycles(self.config().ms_cycles.0 * ms)
    }

    fn free(&self, chain: crate::net::chain::Chain) {
        chain.free(self.pool());
    }

    fn wake(&self, id: PcbId, channel: Channel) {
        self.threads.wakeup(channel);
        self.kernel.socket_changed(self.threads, Some(id));
    }

    /// Has the callout come when the first deadline of any block does.
    fn arm_timer(&mut self) {
        let first = match self.s.ending {
            true => None,
            false => self.s.pcbs.first_deadline().into_iter().chain(self.s.arp.first_deadline()).min(),
        };
        if self.s.timer.as_ref().map(|timer| timer.due) == first {
            return;
        }
        if let Some(timer) = self.s.timer.take() {
            self.kernel.callouts.cancel(timer.id);
        }
        if let Some(due) = first {
            let weak = self.s.kernel.clone();
            self.s.timers += 1;
            let number = self.s.timers;
            let call = Box::new(move |threads: &dyn Threads| {
                let Some(kernel) = weak.upgrade() else { return };
                let Some(net) = kernel.net() else { return };
                match &kernel.net_service {
                    None => net.with(&kernel, threads, |stack| stack.time_passes(number, due)),
                    Some(service) => {
                        net.state.lock().rung = Some((number, due));
                        service.has_work(&kernel, threads);
                    }
                }
            });
            self.s.timer = Some(Timer { due, id: self.kernel.callouts.add(due, call), number });
        }
    }

    /// Does what is due, in callout `number`, which was due at `due`: this CPU's clock may be behind that.
    fn time_passes(&mut self, number: u64, due: Cycles) {
        self.s.timer.take_if(|timer| timer.number == number);
        self.s.latest = self.s.latest.max(due);
        let now = self.now();
        self.arp_timers(now);
        for id in self.s.pcbs.due(now) {
            self.tcp_timers(id, now);
        }
    }

    /// Ends all: what is connected is reset, what is queued is freed, the card is stopped.
    fn end(&mut self) {
        for id in self.s.pcbs.ids() {
            self.abort(id);
        }
        self.s.ending = true;
        self.throw_away();
    }

    /// Frees all that is on its way, and takes back what the card has.
    fn throw_away(&mut self) {
        let looped: alloc::vec::Vec<_> = self.s.loopback.drain(..).collect();
        looped.into_iter().for_each(|chain| self.free(chain));
        let queued = self.s.arp.take_all();
        queued.into_iter().for_each(|chain| self.free(chain));
        self.stop_link();
    }
}
