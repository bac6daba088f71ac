//! How the two sides agree on a channel.
//!
//! # The steps
//! Four messages over the socket, each of which the other side waits for: `Hello` with the sender's area of
//! the ring and its pool; `Welcome` with the receiver's area; `Settled`, after the sender has sealed the
//! pool; `Ready`, after the receiver has looked at the seals. Where the receiver accepts leases, its slots take the
//! pool's place, and follow `Welcome`. A side that does not want the channel says
//! `Refuse` with a reason. Each step is a value, so that one thread can be both sides in turn.
//!
//! # What can fail
//! The peer is believed in nothing: files are looked at for their size and seals before they are mapped, numbers before
//! they are used. How each message goes, and who is told what ended a step, says `greet`.

use super::config::Config;
use super::greet::{receive, send, told};
use super::leased::{self, Peer};
use super::receive::RecvShared;
use super::send::SendShared;
use super::settled::Settled;
use crate::error::{Broken, Error, HostFault, PeerFault, Usage};
use crate::host::Host;
use crate::ring::{Inbox, Mapped, Outbox, RingMemory};
use crate::sys;
use crate::sys::socket::Socket;
use crate::view::{Access, ReceiverView, SenderView};
use crate::wire::{Greeting, Kind, Level, Verb};
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// Verbs that every channel has.
const ALWAYS: u32 = 1 << Verb::Inline as u8 | 1 << Verb::Copy as u8 | 1 << Verb::Loan as u8;

/// A sender that has said hello.
pub(crate) struct Offered {
    socket: Socket,
    config: Config,
    host: &'static Host,
    offer: Offer,
    forward: Mapped,
    view: Arc<SenderView>,
}

/// A sender that has settled.
pub(crate) struct Concluded {
    offered: Offered,
    settled: Settled,
    reverse: Mapped,
}

/// Levels and verbs that a sender offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    levels: u32,
    verbs: u32,
    trusting: bool,
}

impl Offer {
    /// Of a sender to one receiver.
    pub(crate) fn to_one(config: &Config, trusting: bool, host: &Host) -> Result<Offer, Error> {
        let levels = Level::Copy.bit() | Self::wanted(config, trusting, host)?;
        let mut verbs = ALWAYS;
        if trusting && levels & Level::Leased.bit() == 0 {
            verbs |= Verb::Share.bit();
            if config.wants_donations() {
                verbs |= Verb::Donate.bit();
            }
        }
        Ok(Offer { levels, verbs, trusting })
    }

    /// Of a sender of one pool to many: what some of them write, others would see, so there are no donations.
    /// All have the same memory, so sealed memory goes to all or to none.
    pub(crate) fn to_many(config: &Config, host: &Host) -> Result<Offer, Error> {
        if config.wanted_level() == Level::Leased {
            return Err(Usage::Verb("a fan-out has no leases: its receivers share one pool").into());
        }
        let wanted = Self::wanted(config, true, host)?;
        let levels = if wanted == Level::Sealed.bit() { wanted } else { Level::Copy.bit() | wanted };
        Ok(Offer { levels, verbs: ALWAYS, trusting: true })
    }

    /// The level that is wanted, if it can be had here.
    fn wanted(config: &Config, trusting: bool, host: &Host) -> Result<u32, Error> {
        let wanted = config.wanted_level();
        let can = match wanted {
            Level::Copy => true,
            Level::Typed => trusting,
            Level::Mmu => host.can_freeze() && (host.alias() || !config.copy_on_write),
            Level::Leased => trusting && leased::can_be_offered(config, host),
            Level::Sealed => host.can_seal(),
        };
        match can {
            true => Ok(wanted.bit()),
            false if config.requires_level() => Err(unavailable(wanted, trusting)),
            false => Ok(0),
        }
    }

    /// The level that loans have where the receiver accepts all.
    pub(crate) fn level(&self) -> Level {
        let best = Level::ALL.into_iter().rev().find(|level| self.levels & level.bit() != 0);
        best.unwrap_or(Level::Copy)
    }

    fn leases(&self) -> bool {
        self.levels & Level::Leased.bit() != 0
    }

    fn donates(&self) -> bool {
        self.verbs & Verb::Donate.bit() != 0
    }
}

fn unavailable(level: Level, trusting: bool) -> Error {
    let setting = match level {
        Level::Typed if !trusting => {
            return Usage::Verb("level typed is for sides that trust each other").into();
        }
        Level::Leased if !trusting => {
            return Usage::Verb(
                "level leased is for senders that trust their receiver, which can write to it",
            )
            .into();
        }
        Level::Leased => {
            "the library's feature `leased`, file leases on memfds, /proc, and no more than 256 slots"
        }
        Level::Sealed => "a kernel with memfd seals",
        _ => "a kernel with mremap of shared mappings and the seal F_SEAL_FUTURE_WRITE (5.1)",
    };
    HostFault::Unsupported { what: "the level that is required", setting }.into()
}

impl Offered {
    /// Makes the sender's memory and says hello.
    pub(crate) fn hello(socket: Socket, config: Config, trusting: bool) -> Result<Offered, Error> {
        let made = Self::pool(&config, trusting);
        let (offer, view) = told(&socket, made)?;
        Self::hello_with(socket, config, offer, view)
    }

    fn pool(config: &Config, trusting: bool) -> Result<(Offer, Arc<SenderView>), Error> {
        let host = Host::get();
        let offer = Offer::to_one(config, trusting, host)?;
        let pool = config.shapes(host)?.1;
        // Where leases are accepted, the pool is not used.
        let view =
            if offer.leases() { SenderView::without_pages(pool, host) } else { SenderView::new(pool, host) }?;
        if !offer.donates() {
            view.seal()?;
        }
        Ok((offer, Arc::new(view)))
    }

    /// Says hello with a pool that is there.
    pub(crate) fn hello_with(
        socket: Socket,
        config: Config,
        offer: Offer,
        view: Arc<SenderView>,
    ) -> Result<Offered, Error> {
        let said = Self::say_hello(&socket, &config, offer, &view);
        let forward = told(&socket, said)?;
        Ok(Offered { socket, config, host: Host::get(), offer, forward, view })
    }

    fn say_hello(socket: &Socket, config: &Config, offer: Offer, view: &SenderView) -> Result<Mapped, Error> {
        let host = Host::get();
        let (ring, pool) = config.shapes(host)?;
        let (forward, forward_fd) = RingMemory::forward(ring)?;
        let mut greeting = Greeting::new(Kind::Hello, sys::page_bytes());
        greeting.trusting = offer.trusting.into();
        greeting.slot_align = host.slot_align() as u32;
        greeting.levels = offer.levels;
        greeting.verbs = offer.verbs;
        greeting.capacity = ring.capacity;
        greeting.inline_bytes = ring.inline_bytes;
        greeting.slots = pool.slots;
        greeting.slot_bytes = pool.slot_bytes as u64;
        send(socket, &greeting, &[&forward_fd, view.fd()])?;
        Ok(forward)
    }

    /// Waits for the receiver's answer and settles.
    pub(crate) fn settle(mut self) -> Result<Concluded, Error> {
        let step = self.settled();
        let (settled, reverse) = told(&self.socket, step)?;
        Ok(Concluded { offered: self, settled, reverse })
    }

    fn settled(&mut self) -> Result<(Settled, Mapped), Error> {
        let (greeting, fds) = receive(&self.socket, Kind::Welcome, 1, self.config.handshake_timeout)?;
        greeting.common_version().map_err(PeerFault::Unfit)?;
        greeting.same_machine(sys::page_bytes()).map_err(PeerFault::Unfit)?;
        let ring = self.config.shapes(self.host)?.0;
        let reverse = fds.first().ok_or(Broken::Handshake("the ring is missing"))?;
        let reverse = RingMemory::open_reverse(ring, reverse)?;
        let common = self.offer.levels & greeting.levels;
        let wanted = self.config.wanted_level();
        let choices = [wanted, Level::Copy];
        let level = choices.into_iter().find(|level| common & level.bit() != 0);
        let level = level.ok_or(Broken::Handshake("it accepts no level at all"))?;
        if level != wanted && self.config.requires_level() {
            return Err(PeerFault::Unfit(format!("it does not accept level {wanted}")).into());
        }
        let verbs = self.offer.verbs & (greeting.verbs | ALWAYS);
        let settled = Settled { level, verbs, trusting: self.offer.trusting && greeting.trusting == 1 };
        if self.offer.donates() {
            self.view.seal()?;
        }
        if level == Level::Leased {
            let fds = leased::receive_slots(&self.socket, self.view.geometry().slots, &self.config)?;
            self.view = Arc::new(SenderView::leased(self.view.geometry(), fds, self.host)?);
        } else if self.offer.leases()
            && let Some(view) = Arc::get_mut(&mut self.view)
        {
            view.populate(self.host);
        }
        let mut answer = Greeting::new(Kind::Settled, sys::page_bytes());
        answer.levels = level.bit();
        answer.verbs = verbs;
        send(&self.socket, &answer, &[])?;
        Ok((settled, reverse))
    }
}

impl Concluded {
    /// Waits until the receiver is ready.
    pub(crate) fn finish(self) -> Result<Arc<SendShared>, Error> {
        let Concluded { offered, settled, reverse } = self;
        let ready = receive(&offered.socket, Kind::Ready, 0, offered.config.handshake_timeout);
        told(&offered.socket, ready)?;
        let ring = offered.config.shapes(offered.host)?.0;
        let outbox = Outbox::new(ring, offered.forward, reverse);
        let registered = offered.view.register(&offered.socket);
        Ok(SendShared::new(offered.socket, offered.config, settled, offered.view, outbox, registered))
    }
}

/// A receiver that has welcomed a sender.
pub(crate) struct Welcomed {
    socket: Socket,
    config: Config,
    accepted_levels: u32,
    accepted_verbs: u32,
    trusting: bool,
    inbox: Inbox<Mapped>,
    view: ReceiverView,
}

/// What a receiver has made of a hello.
struct Accepted {
    inbox: Inbox<Mapped>,
    reverse: OwnedFd,
    view: ReceiverView,
    /// Of slots that are to be leased.
    slots: Vec<OwnedFd>,
    levels: u32,
    verbs: u32,
}

impl Welcomed {
    /// Waits for a sender's hello and answers.
    pub(crate) fn welcome(socket: Socket, config: Config, peer: Peer) -> Result<Welcomed, Error> {
        let step = receive(&socket, Kind::Hello, 2, config.handshake_timeout)
            .and_then(|(greeting, fds)| Self::accept(&greeting, fds, &config, peer));
        let Accepted { inbox, reverse, view, slots, levels, verbs } = told(&socket, step)?;
        let trusting = peer == Peer::Same;
        let mut answer = Greeting::new(Kind::Welcome, sys::page_bytes());
        answer.trusting = trusting.into();
        answer.levels = levels;
        answer.verbs = verbs;
        let sent = send(&socket, &answer, &[&reverse]).and_then(|()| leased::send_slots(&socket, &slots));
        told(&socket, sent)?;
        Ok(Welcomed { socket, config, accepted_levels: levels, accepted_verbs: verbs, trusting, inbox, view })
    }

    fn accept(
        greeting: &Greeting,
        mut fds: Vec<OwnedFd>,
        config: &Config,
        peer: Peer,
    ) -> Result<Accepted, Error> {
        let host = Host::get();
        let trusting = peer == Peer::Same;
        greeting.common_version().map_err(PeerFault::Unfit)?;
        greeting.same_machine(sys::page_bytes()).map_err(PeerFault::Unfit)?;
        let ring = greeting.ring();
        if !ring.is_valid() {
            return Err(Broken::Handshake("the ring has a shape that cannot be").into());
        }
        let pool = crate::view::offered(greeting.slots, greeting.slot_bytes)?;
        // Reading holes allocates them here, so all of both counts.
        let wanted = pool.bytes() as u64 + ring.bytes();
        if wanted > config.max_bytes() && !planted!(NoBudgetCheck) {
            return Err(Error::Budget {
                what: "the peer's pool and ring",
                wanted,
                budget: config.max_bytes(),
                holders: "nothing else is held".to_owned(),
            });
        }
        let mut levels = Level::Copy.bit() | Level::Sealed.bit();
        let mut verbs = ALWAYS;
        if trusting {
            levels |= Level::Typed.bit() | Level::Mmu.bit();
            verbs |= Verb::Share.bit();
            if greeting.verbs & Verb::Donate.bit() != 0 && greeting.trusting == 1 {
                verbs |= Verb::Donate.bit();
            }
        }
        let pool_fd = fds.pop().ok_or(Broken::Handshake("the pool is missing"))?;
        let forward = fds.pop().ok_or(Broken::Handshake("the ring is missing"))?;
        let forward = RingMemory::open_forward(ring, &forward)?;
        let access = Access {
            sealed_later: greeting.verbs & Verb::Donate.bit() != 0,
            donations: verbs & Verb::Donate.bit() != 0,
            in_place: trusting,
        };
        let (view, slots) = if leased::accepts(greeting, peer, host) {
            levels |= Level::Leased.bit();
            ReceiverView::leased(pool, host)?
        } else {
            (ReceiverView::new(pool, pool_fd, access, host)?, Vec::new())
        };
        let (reverse_area, reverse) = RingMemory::reverse(ring)?;
        Ok(Accepted { inbox: Inbox::new(ring, forward, reverse_area), reverse, view, slots, levels, verbs })
    }

    /// Waits for what the sender has settled, looks at it, and says that this side is ready.
    pub(crate) fn ready(self) -> Result<Arc<RecvShared>, Error> {
        let step = receive(&self.socket, Kind::Settled, 0, self.config.handshake_timeout)
            .and_then(|(greeting, _)| self.check(&greeting));
        let settled = told(&self.socket, step)?;
        send(&self.socket, &Greeting::new(Kind::Ready, sys::page_bytes()), &[])?;
        let registered = self.view.register(&self.socket);
        Ok(RecvShared::new(self.socket, self.config, settled, self.view, self.inbox, registered))
    }

    fn check(&self, greeting: &Greeting) -> Result<Settled, Error> {
        let level = Level::ALL.into_iter().find(|level| level.bit() == greeting.levels);
        let level = level.filter(|level| self.accepted_levels & level.bit() != 0 || planted!(NoSettledCheck));
        let level = level.ok_or(Broken::Handshake("it settled on a level that was not accepted"))?;
        if self.accepted_levels & Level::Leased.bit() != 0 && level != Level::Leased {
            return Err(Broken::Handshake("it offered leases and settled on another level").into());
        }
        if greeting.verbs & !self.accepted_verbs != 0 {
            return Err(Broken::Handshake("it settled on a verb that was not accepted").into());
        }
        if self.config.requires_level() && level != self.config.wanted_level() {
            let wanted = self.config.wanted_level();
            return Err(PeerFault::Unfit(format!("it does not offer level {wanted}")).into());
        }
        self.view.verify_sealed()?;
        Ok(Settled { level, verbs: greeting.verbs, trusting: self.trusting })
    }
}
