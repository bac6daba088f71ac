//! Receiving: from mbufs into a process's memory, by copy or by transfer (4.4BSD, `soreceive`; UVM paper, 4.2.3 and
//! 5.2).
//!
//! A receiver gets what there is, up to what it asked for. By *copy*, each mbuf is copied out and freed. By *transfer*,
//! the page of a full cluster with one reference is donated (kernel page transfer), as is a disposable page that a
//! driver has received into (sf_buf paper, 2.3: zero-copy receive); pages that their sender has lent are lent on
//! (anonymous page transfer), and everything else is copied: parts of pages, small mbufs, shared clusters, and whatever
//! does not fall on a page of the receiver's or is refused there. A page is transferred only if all of its bytes were
//! sent, so nothing else of the sender's or of the kernel's can be read.
//!
//! With an address given, pages and copied bytes go there, in order. Without, the first run of pages goes to the
//! transfer area and the call returns with it; if there is no such run, up to a page of bytes is gathered in a clear
//! page and that is transferred.
//!
//! A kernel may *realign*: where only its place in the buffer keeps a page from being taken over, the call ends before
//! it, and the next, whose buffer begins on a page, gets it.
//!
//! In a *window* only whole pages go, which it shows. Before what fills none the call ends, and says how much that is.
//!
//! In a *receive area* the process gets what has arrived there as it is, and is told where; what has come elsewhere is
//! copied to a page of the area. Bytes that are *discarded* go nowhere: what that takes is what all ways to receive
//! have in common, and no way of placing data can do without.
//!
//! # Locks
//! A receiver owns the mbufs that it has taken out of a socket, and holds that socket's sleep lock for receiving. Bytes
//! and pages move with no spin lock held.
//!
//! # What can fail
//! Waits, by a signal; memory; the receiver's addresses. A call that has received anything does not fail; what could
//! not be delivered stays in the socket.

use super::sockbuf::{SockBuf, SockBufGuard};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use pageferry_abi::{Errno, Placed, ReceiveMode};
use pageferry_core::choose::Peer;
use pageferry_core::counter::KernelCounter;
use pageferry_core::mbuf::{AreaId, AreaUse, Mbuf};
use pageferry_core::proc::{PagesCame, Syscall, Uio, UioMode, WaitFlag};
use pageferry_hal::{Cause, FlowStep, Machine, PAGE_SIZE, Place, Va};
use pageferry_vm::AnonLoan;

/// A receiver on its way through the mbufs that it has taken out of a socket.
pub struct Receiver<'a, M: Machine> {
    call: &'a Syscall<'a, M>,
    uio: &'a mut Uio,
    /// Where the data comes from.
    peer: Peer,
    /// Pages go to an address that the kernel chooses.
    to_area: bool,
    /// Pages were refused: the rest is copied.
    refused: bool,
    /// Neither way pays for the rest of the run: what is left of it is shorter.
    no_donation: bool,
    no_lending: bool,
    /// What comes next cannot be shown.
    stopped: bool,
    /// The area that it is received into, and what has come there, for the process.
    area: Option<AreaId>,
    placed: Vec<Mbuf>,
    mbufs: VecDeque<Mbuf>,
}

impl<'a, M: Machine> Receiver<'a, M> {
    /// # Errors
    /// [`Errno::Fault`]: only whole pages can go to an address that the kernel chooses. [`Errno::Invalid`]: a window
    /// shows whole pages.
    pub fn new(call: &'a Syscall<'a, M>, uio: &'a mut Uio, peer: Peer) -> Result<Receiver<'a, M>, Errno> {
        let to_area = Receiver::<M>::goes_to_area(uio)?;
        let (refused, no_donation, no_lending, stopped) = (false, false, false, false);
        let (area, placed, mbufs) = (None, Vec::new(), VecDeque::new());
        let receiver = Receiver {
            call,
            uio,
            peer,
            to_area,
            refused,
            no_donation,
            no_lending,
            stopped,
            area,
            placed,
            mbufs,
        };
        Ok(receiver)
    }

    /// Whether pages go to an address that the kernel chooses.
    ///
    /// # Errors
    /// As [`Receiver::new`].
    pub(super) fn goes_to_area(uio: &Uio) -> Result<bool, Errno> {
        let needs_no_base = matches!(uio.mode(), UioMode::Pages | UioMode::Placed | UioMode::Discarded);
        if uio.base().is_none() && !needs_no_base {
            return Err(Errno::Fault);
        }
        if uio.mode() == UioMode::Shown && (!uio.at().is_page_aligned() || uio.left() < PAGE_SIZE) {
            return Err(Errno::Invalid);
        }
        Ok(uio.base().is_none() && uio.mode() == UioMode::Pages)
    }

    /// Bytes that there is still room for.
    pub fn left(&self) -> usize {
        self.uio.left()
    }

    /// Bytes that have been received.
    pub fn done(&self) -> usize {
        self.uio.done()
    }

    /// Whether the call waits.
    pub fn wait(&self) -> WaitFlag {
        self.uio.wait
    }

    /// Nothing more may be added where it would have to go behind what is there and need not be free.
    pub fn wants_more(&self) -> bool {
        let stops = self.to_area && self.done() > 0 || self.stopped;
        !stops && self.left() >= if self.uio.mode() == UioMode::Shown { PAGE_SIZE } else { 1 }
    }

    /// Moves `mbufs` as far as they are wanted; returns what is left of them.
    pub fn deliver_all(&mut self, mbufs: VecDeque<Mbuf>) -> (VecDeque<Mbuf>, Result<(), Errno>) {
        self.mbufs = mbufs;
        let result = self.deliver();
        (core::mem::take(&mut self.mbufs), result)
    }

    /// Moves what was taken, as far as it is wanted.
    fn deliver(&mut self) -> Result<(), Errno> {
        while !self.mbufs.is_empty() && self.wants_more() {
            match self.uio.mode() {
                UioMode::Copy | UioMode::Pinned => self.copy()?,
                UioMode::Pages | UioMode::Auto => self.transfer()?,
                UioMode::Shown => self.show()?,
                UioMode::Placed => self.place()?,
                UioMode::Discarded => self.discard(),
            }
        }
        Ok(())
    }

    /// Copies from the first mbuf.
    fn copy(&mut self) -> Result<(), Errno> {
        let (call, pool) = (self.call, &self.call.core.mbufs);
        let mbuf = self.mbufs.front().expect("the caller has seen one");
        let max_bytes = mbuf.len().min(self.left());
        let (to, before) = (self.uio.at(), self.done());
        let (wait, uio) = (self.uio.wait, &mut *self.uio);
        let copied =
            pool.look((call.thread, wait), mbuf, 0, max_bytes, |from, len| call.uiomove(from, len, uio));
        let len = self.done() - before;
        pool.trace(mbuf, len, Place::User(to), FlowStep::Received);
        self.consume(len);
        copied.and_then(|result| result)
    }

    /// Notes that `len` bytes of the first mbuf are delivered, and frees it when it is empty.
    fn consume(&mut self, len: usize) {
        let mbuf = self.mbufs.front_mut().expect("the caller has seen one");
        mbuf.advance(len);
        if mbuf.is_empty() {
            let mbuf = self.mbufs.pop_front().expect("just seen");
            self.call.core.mbufs.free(mbuf);
        }
    }

    // ------------------------------------------------------------------------------------------- transfer

    /// The one place where it is decided how each byte goes.
    fn transfer(&mut self) -> Result<(), Errno> {
        let aligned = self.to_area || self.uio.at().is_page_aligned();
        if !aligned && self.uio.mode() == UioMode::Pages && self.ends_before_page() {
            self.stopped = true;
            return Ok(());
        }
        let pages = if aligned && !self.refused { self.left() / PAGE_SIZE } else { 0 };
        let donatable = self.donatable(if self.no_donation { 0 } else { pages });
        if donatable > 0 && self.donation_pays(donatable) {
            // What is refused is copied in the next turn.
            self.donate(donatable);
            return Ok(());
        }
        let first = self.mbufs.front().expect("the caller has seen one");
        let lent = first.whole_lent_pages().min(pages);
        if donatable == 0 && lent > 0 && self.lending_on_pays(lent) && self.lend_on(pages) {
            return Ok(());
        }
        let before = self.done();
        let copied = if self.to_area { self.gather() } else { self.copy() };
        let count = (self.done() - before) as u64;
        self.call.machine().count(KernelCounter::TransferBytesCopied, count);
        copied
    }

    /// How many of the first mbufs, up to `max_pages`, are pages that go together. Pages of clusters and disposable
    /// pages are given away in different ways: a run is of one kind.
    fn donatable(&self, max_pages: usize) -> usize {
        let pool = &self.call.core.mbufs;
        let disposable = self.mbufs.front().is_some_and(Mbuf::is_disposable);
        let donates = |m: &&Mbuf| pool.is_donatable(m) && m.is_disposable() == disposable;
        self.mbufs.iter().take(max_pages).take_while(donates).count()
    }

    /// What comes next is a page that the next call can take over, if its buffer begins where this one does.
    fn ends_before_page(&self) -> bool {
        let core = self.call.core;
        let begins_well =
            self.uio.base().is_some_and(|base| base.is_page_aligned()) && self.uio.len() >= PAGE_SIZE;
        let first = self.mbufs.front().expect("the caller has seen one");
        core.config.socket.realigns && begins_well && !self.refused && core.mbufs.is_donatable(first)
    }

    fn donation_pays(&mut self, pages: usize) -> bool {
        if self.uio.mode() == UioMode::Auto {
            let len = self.uio.len();
            self.no_donation = self.no_donation || !self.call.chooses_donation(pages, len, self.peer);
        }
        !self.no_donation
    }

    fn lending_on_pays(&mut self, pages: usize) -> bool {
        if self.uio.mode() == UioMode::Auto {
            self.no_lending = self.no_lending || !self.call.chooses_lending_on(pages, self.uio.len());
        }
        !self.no_lending
    }

    /// Where transferred pages go.
    fn target(&self) -> Option<Va> {
        (!self.to_area).then(|| self.uio.at())
    }

    /// Donates the pages of the first `count` mbufs, which are of one kind, unless they are refused.
    fn donate(&mut self, count: usize) {
        self.refused = self.give(count, self.target()).is_err();
    }

    /// Shows the pages that come first; or stops, where what comes first is none.
    fn show(&mut self) -> Result<(), Errno> {
        let count = self.donatable(self.left() / PAGE_SIZE);
        if count > 0 {
            return self.give(count, Some(self.uio.at()));
        }
        let pool = &self.call.core.mbufs;
        let staying = self.mbufs.iter().take_while(|mbuf| !pool.is_donatable(mbuf));
        self.uio.copies_first(staying.map(Mbuf::len).sum());
        self.stopped = true;
        Ok(())
    }

    /// Gives the pages of the first `count` mbufs, which are of one kind, to the receiver. What is refused stays.
    fn give(&mut self, count: usize, target: Option<Va>) -> Result<(), Errno> {
        let (call, shows) = (self.call, self.uio.mode() == UioMode::Shown);
        call.machine().execute(call.core.config.paths.transfer_call);
        let (space, pool) = (call.space, &call.core.mbufs);
        let mbufs: Vec<Mbuf> = self.mbufs.drain(..count).collect();
        let len = mbufs.iter().map(Mbuf::len).sum();
        let at = target.unwrap_or_default();
        let donated = match mbufs.first().is_some_and(Mbuf::is_disposable) {
            true => pool.give_disposables(mbufs, |pages| {
                let given = match shows {
                    true => space.show_pages_wired(call.thread, at, pages),
                    false => space.transfer_pages_wired(call.thread, target, pages),
                };
                given.map_err(|refused| (refused.error, refused.back))
            }),
            false => pool.donate(mbufs, |pages| {
                let given = match shows {
                    true => space.show_pages(call.thread, at, pages).map(|exchanged| (at, exchanged)),
                    false => space.exchange_pages(call.thread, target, pages),
                };
                given.map_err(|refused| (refused.error, refused.back))
            }),
        };
        match donated {
            Ok(va) => {
                self.uio.pages_came(va, len, PagesCame::Donated);
                Ok(())
            }
            Err(refused) => {
                let error = refused.error();
                refused.back.into_iter().rev().for_each(|mbuf| self.mbufs.push_front(mbuf));
                Err(error)
            }
        }
    }

    /// Throws the first mbuf away, or as much of it as is wanted.
    fn discard(&mut self) {
        let len = self.mbufs.front().expect("the caller has seen one").len().min(self.left());
        self.uio.advance(len);
        self.consume(len);
    }

    // ------------------------------------------------------------------------------------------- in an area

    /// The process gets what comes first where it is, if that is in its area; else a copy there.
    fn place(&mut self) -> Result<(), Errno> {
        let area = self.area.expect("a receiver of places has an area");
        let pool = &self.call.core.mbufs;
        let first = self.mbufs.front_mut().expect("the caller has seen one");
        if pool.area_of(first) != Some(area) {
            return self.copy_to(area);
        }
        let len = first.len().min(self.uio.left());
        let mbuf = if len < first.len() {
            let part = pool.share(first, len)?;
            first.advance(len);
            part
        } else {
            self.mbufs.pop_front().expect("just seen")
        };
        self.uio.advance(len);
        self.call.machine().count(KernelCounter::BytesPlaced, len as u64);
        self.placed.push(mbuf);
        Ok(())
    }

    /// Copies what comes first, up to a page of it, to a page of the area.
    fn copy_to(&mut self, area: AreaId) -> Result<(), Errno> {
        let (call, pool, wait) = (self.call, &self.call.core.mbufs, self.uio.wait);
        let free = pool.area_pages(area, AreaUse::Copy, 1).pop().ok_or(Errno::NoMemory)?;
        let mut page = pool.over_area_page(free)?;
        let max_bytes = self.left().min(PAGE_SIZE);
        // While one mapping is held, no other is waited for.
        let copied = pool.look((call.thread, wait), &page, 0, PAGE_SIZE, |to, _| {
            self.copy_front(to, max_bytes, WaitFlag::NoWait, |mbuf| pool.area_of(mbuf) != Some(area))
        });
        // What was copied before it failed is received.
        let (used, result) = copied.unwrap_or_else(|e| (Vec::new(), Err(e)));
        let filled = used.iter().sum();
        if filled == 0 {
            pool.free(page);
            return result.and(Err(Errno::NoMemory));
        }
        used.into_iter().for_each(|len| self.consume(len));
        page.truncate(filled);
        self.uio.advance(filled);
        self.placed.push(page);
        Ok(())
    }

    /// Lends up to `max_pages` of the first mbufs on; false when they were refused.
    fn lend_on(&mut self, max_pages: usize) -> bool {
        let (call, target) = (self.call, self.target());
        call.machine().execute(call.core.config.paths.transfer_call);
        let mut parts = Vec::new();
        let mut all: Option<AnonLoan<M>> = None;
        let mut pages = 0;
        for mbuf in &self.mbufs {
            let count = mbuf.whole_lent_pages().min(max_pages - pages);
            let Some(anons) = (count > 0).then(|| call.core.mbufs.lend_on(mbuf, count)).and_then(Result::ok)
            else {
                break;
            };
            match &mut all {
                None => all = Some(anons),
                Some(all) => all.append(anons),
            }
            pages += count;
            parts.push(count * PAGE_SIZE);
            // What is behind a part that is not all of an mbuf does not begin here.
            if count * PAGE_SIZE < mbuf.len() {
                break;
            }
        }
        let Some(anons) = all else { return false };
        match call.give_anons(target, anons) {
            Ok(va) => {
                parts.into_iter().for_each(|len| self.consume(len));
                self.uio.pages_came(va, pages * PAGE_SIZE, PagesCame::Lent);
                call.machine().count(KernelCounter::PagesLentOn, pages as u64);
                if self.uio.mode() == UioMode::Auto {
                    call.chosen_pages_lent(pages);
                }
                true
            }
            Err(_) => {
                self.refused = true;
                false
            }
        }
    }

    /// Copies to `to` from the first mbufs, as long as they are `wanted`, up to `max_bytes`: how much of each, up to
    /// the first that could not be looked at.
    fn copy_front(
        &self,
        to: Va,
        max_bytes: usize,
        wait: WaitFlag,
        wanted: impl Fn(&Mbuf) -> bool,
    ) -> (Vec<usize>, Result<(), Errno>) {
        let (call, pool) = (self.call, &self.call.core.mbufs);
        let (mut used, mut filled) = (Vec::new(), 0);
        for mbuf in self.mbufs.iter().take_while(|mbuf| wanted(mbuf)) {
            let len = mbuf.len().min(max_bytes - filled);
            let mut done = 0;
            while done < len {
                let copied = pool.look((call.thread, wait), mbuf, done, len - done, |from, piece| {
                    call.copy_kernel(to + filled + done, from, piece);
                    piece
                });
                match copied {
                    Ok(piece) => done += piece,
                    Err(e) => return (used, Err(e)),
                }
            }
            filled += len;
            used.push(len);
            if filled == max_bytes {
                break;
            }
        }
        (used, Ok(()))
    }

    /// Gathers up to a page of bytes in a clear page, and transfers that to the transfer area.
    fn gather(&mut self) -> Result<(), Errno> {
        let (call, pool) = (self.call, &self.call.core.mbufs);
        let (max_bytes, wait) = (self.left().min(PAGE_SIZE), self.uio.wait);
        let mut used = Vec::new();
        let (va, _) = call.give_gathered(wait, |base| {
            let (lens, result) = self.copy_front(base, max_bytes, wait, |_| true);
            used = lens;
            result.map(|()| used.iter().sum())
        })?;
        let mut filled = 0;
        for len in used {
            let mbuf = self.mbufs.front().expect("its bytes were gathered");
            pool.trace(mbuf, len, Place::User(va + filled), FlowStep::Received);
            filled += len;
            self.consume(len);
        }
        self.uio.pages_came(va, filled, PagesCame::Donated);
        Ok(())
    }
}

/// Receives `mbufs` as if they had been in a socket: for measuring.
///
/// # Errors
/// As [`SockBuf::receive`]. The mbufs are freed in any case.
pub fn deliver<M: Machine>(
    call: &Syscall<'_, M>,
    mode: ReceiveMode,
    at: Va,
    len: usize,
    mbufs: Vec<Mbuf>,
) -> Result<(), Errno> {
    let mut uio = Uio::receive(Some(at), len, mode);
    let mut receiver = Receiver::new(call, &mut uio, Peer::Null)?;
    let (rest, result) = receiver.deliver_all(mbufs.into());
    rest.into_iter().for_each(|mbuf| call.core.mbufs.free(mbuf));
    result
}

impl<M: Machine> SockBuf<M> {
    /// Fills a buffer with what is there, at least one byte; nothing at the end of the stream.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`], [`Errno::Interrupted`], or a bad address. Bytes that could not be delivered stay in the
    /// socket. By pages also [`Errno::NoMemory`], when the transfer area is full; [`Errno::Fault`] where an address is
    /// needed and missing.
    pub fn receive(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        self.receive_by(call, &mut Receiver::new(call, uio, Peer::Socket)?)
    }

    /// Gives back what the process has at places of the receive area, and then receives into it as
    /// [`SockBuf::receive`] does; where what came is.
    ///
    /// # Errors
    /// As [`SockBuf::receive`]; [`Errno::Invalid`]: there is no area, or the process does not have all of that;
    /// [`Errno::NoMemory`]: the process has all of it.
    pub fn receive_placed(
        &self,
        call: &Syscall<'_, M>,
        back: &[Placed],
        uio: &mut Uio,
    ) -> Result<Vec<Placed>, Errno> {
        let area = self.lock().area.ok_or(Errno::Invalid)?;
        call.core.mbufs.take_back_places(area, back)?;
        let mut receiver = Receiver::new(call, uio, Peer::Socket)?;
        receiver.area = Some(area);
        let result = self.receive_by(call, &mut receiver);
        let placed = call.core.mbufs.place(area, receiver.placed);
        uio.outcome(result).map(|_| placed)
    }

    fn receive_by(&self, call: &Syscall<'_, M>, receiver: &mut Receiver<'_, M>) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(call.core.config.paths.soreceive);
        self.touch(m);
        let (mut held, locked) = self.lock_receiving(call, self.lock());
        locked?;
        let (result, has_lock) = loop {
            if !receiver.wants_more() {
                break (Ok(()), true);
            }
            if !held.is_empty() && self.may_begin(&held, receiver) {
                let (again, result) = self.receive_some(held, receiver);
                held = again;
                if result.is_err() {
                    break (result, true);
                }
            } else if held.has_ended() || receiver.done() > 0 {
                break (Ok(()), true);
            } else if receiver.wait().is_no_wait() {
                break (Err(Errno::WouldBlock), true);
            } else {
                let enough = self.enough(&held, receiver.left());
                held.wakes_at = if held.want_read { held.wakes_at.min(enough) } else { enough };
                let (again, result) = self.wait_for_data(call, held);
                held = again;
                if result.is_err() {
                    break (result, false);
                }
            }
        };
        if has_lock {
            self.unlock_receiving(call, &mut held);
        }
        if receiver.done() > 0 {
            self.wake_writer(call, &mut held);
        }
        drop(held);
        result
    }

    /// There is enough for a receiver to begin with, or it goes on with what there is.
    fn may_begin(&self, held: &SockBufGuard<'_, M>, receiver: &Receiver<'_, M>) -> bool {
        receiver.done() > 0
            || receiver.wait().is_no_wait()
            || held.has_ended()
            || self.has_enough(held, receiver.left())
    }

    /// Takes mbufs out, delivers them with the lock released, and puts back what is left.
    fn receive_some<'a>(
        &'a self,
        mut held: SockBufGuard<'a, M>,
        receiver: &mut Receiver<'_, M>,
    ) -> (SockBufGuard<'a, M>, Result<(), Errno>) {
        let before = receiver.done();
        let taken: VecDeque<Mbuf> = held.take(receiver.left()).into();
        drop(held);
        let memory = |mbufs: &VecDeque<Mbuf>| mbufs.iter().map(Mbuf::memory_bytes).sum::<usize>();
        let memory_before = memory(&taken);
        let (rest, result) = receiver.deliver_all(taken);
        let freed = memory_before - memory(&rest);
        let mut held = self.lock();
        held.put_back(rest.into(), receiver.done() - before, freed);
        (held, result)
    }
}
