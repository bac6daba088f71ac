//! The network card of a kernel whose protocols are servers: what a driver that is a process cannot do itself.
//!
//! The driver's server has a frame in a piece of the area and asks the kernel to hand it to the card: the kernel knows
//! which memory that is, writes its cache lines back, and rings the doorbell. The card reads the piece until the frame
//! is sent. A driver that trusts nobody answers its request only then: it waits for that, or goes on with others and is
//! told. One that answers at once leaves it to whoever gets the piece back not to write there yet; a piece that is
//! freed meanwhile is given to nobody before the card has read it. A driver that ends waits. What arrives is in
//! [`super::received`]: where nobody has given the card a piece for it, a frame finds no buffer.
//!
//! # Locks
//! That of [`super::state::State`], which counts what the card has. The card's interrupt is taken by a soft-interrupt
//! thread.
//!
//! # What can fail
//! A frame that is not the caller's, or longer than the card takes; a card that is not there, or was removed.

use super::config::IspcDefect;
use super::driver_card::{DriverCard, Sending};
use super::port::{DRIVER, RequestId};
use super::state::{Holder, Ispc, State};
use alloc::vec::Vec;
use pageferry_abi::{Errno, Pid};
use pageferry_core::proc::Syscall;
use pageferry_hal::{
    Cause, ETHERNET_HEADER_BYTES, Fragment, Machine, NicChecksum, NicTransmit, PAGE_SHIFT, PAGE_SIZE,
    SpinLock, Threads, Va,
};

impl<M: Machine> Ispc<M> {
    /// Hands a frame to the card that lies in a piece of the calling server's, which the card reads until it is sent.
    /// `request` is what is to be answered then ([`Ispc::take_sent`]), if the caller does not wait for that.
    ///
    /// # Errors
    /// [`Errno::NotSupported`], [`Errno::MessageSize`], [`Errno::Invalid`], [`Errno::Access`]; [`Errno::WouldBlock`]:
    /// the card has as many as half of its ring takes.
    pub fn call_card_send(
        &self,
        call: &Syscall<'_, M>,
        (at, len): (Va, usize),
        checksum: Option<NicChecksum>,
        request: Option<RequestId>,
    ) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        let card = self.card.as_ref().ok_or(Errno::NotSupported)?;
        let info = card.nic.info();
        if len < ETHERNET_HEADER_BYTES || len > ETHERNET_HEADER_BYTES + info.mtu_bytes {
            return Err(Errno::MessageSize);
        }
        if !self.range.contains(at) {
            return Err(Errno::Invalid);
        }
        let mut state = self.state.lock();
        if state.ports.get(&call.pid).is_none_or(|port| port.service.is_none()) {
            return Err(Errno::Access);
        }
        if state.receiving.removed {
            return Err(Errno::Removed);
        }
        let start = at - self.range.start();
        // The last that does not begin behind it.
        let place =
            state.icas.find_index(&(start >> PAGE_SHIFT)).unwrap_or_else(|behind| behind.wrapping_sub(1));
        let (&page, ica) = state.icas.get_indexed(place).ok_or(Errno::Invalid)?;
        if start + len > (page + ica.pages) * PAGE_SIZE {
            return Err(Errno::Invalid);
        }
        if ica.holder != Holder::Process(call.pid) {
            return Err(Errno::Access);
        }
        if state.sending.len() >= (info.transmit_slots / 2).max(1) {
            return Err(Errno::WouldBlock);
        }
        let (first, last) = ((start & !(PAGE_SIZE - 1)), start + len);
        if (last - first).div_ceil(PAGE_SIZE) > info.transmit_fragments {
            return Err(Errno::MessageSize);
        }
        m.execute(self.config.paths.card_send);
        let (mut fragments, mut done) = (Vec::new(), 0);
        while done < len {
            let offset = (start + done) & (PAGE_SIZE - 1);
            let part = (len - done).min(PAGE_SIZE - offset);
            let frame = call.core.vm.pmaps().area_frame((start + done) >> PAGE_SHIFT);
            fragments.push(Fragment { frame, offset, len_bytes: part });
            done += part;
        }
        let tag = state.next;
        state.next += 1;
        state.sending.insert(tag, Sending { pid: call.pid, page, request });
        drop(state);
        if !self.has(IspcDefect::NotWrittenBack) {
            card.nic.write_back(&fragments);
        }
        card.nic.post_transmit(NicTransmit { tag, fragments, checksum });
        card.nic.start_transmit();
        Ok(())
    }

    /// Waits until the card has sent what the caller has handed over.
    pub fn call_card_wait(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        if self.card.is_none() {
            return Err(Errno::NotSupported);
        }
        self.wait_sent(call);
        Ok(())
    }

    /// Sleeps as long as the card has something of the caller's.
    pub(super) fn wait_sent(&self, call: &Syscall<'_, M>) {
        let Some(card) = &self.card else { return };
        loop {
            let state = self.state.lock();
            if state.sending.values().all(|sending| sending.pid != call.pid) {
                return;
            }
            let mut held = Some(state);
            let slept = call.thread.sleep(card.channel(), "card", false, &mut || drop(held.take()));
            assert!(slept.is_ok(), "this sleep is not interruptible");
        }
    }

    /// A request of the caller's whose frame was sent, to be answered.
    pub fn take_sent(&self, call: &Syscall<'_, M>) -> Option<RequestId> {
        let mut state = self.state.lock();
        let at = state.sent.iter().position(|(pid, _)| *pid == call.pid)?;
        state.sent.remove(at).map(|(_, id)| id)
    }

    /// The card has interrupted: takes its answers, and tells the driver's server.
    pub fn card_interrupt(&self, threads: &dyn Threads, m: &M) {
        let Some(card) = &self.card else { return };
        let events = card.nic.acknowledge();
        m.execute(self.config.paths.card_interrupt);
        let (answered, told) = self.take_answers(m, card);
        if answered {
            threads.wakeup(card.channel());
        }
        let lost = events.removed && !core::mem::replace(&mut self.state.lock().receiving.removed, true);
        if self.take_received(m, card) || told || lost {
            self.notify(threads, m, DRIVER);
        }
    }

    /// Takes what the card says of frames that it was to send: whether there was any, and one whose request is to be
    /// answered.
    fn take_answers(&self, m: &M, card: &DriverCard) -> (bool, bool) {
        let (mut answered, mut told) = (false, false);
        while let Some(sent) = card.nic.take_transmitted() {
            let mut state = self.state.lock();
            if let Some((pid, id)) = self.was_sent(m, &mut state, sent.tag) {
                state.sent.push_back((pid, id));
                told = true;
            }
            answered = true;
        }
        (answered, told)
    }

    /// The card reads this frame no more: its piece is free if it was freed meanwhile. Whose request is to be answered.
    fn was_sent(&self, m: &M, state: &mut State, tag: u64) -> Option<(Pid, RequestId)> {
        let Sending { pid, page, request } = state.sending.remove(&tag)?;
        let freed = state.icas.get(&page).is_some_and(|ica| ica.holder == Holder::Card);
        if freed && !state.receiving.has(page) {
            self.free(m, state, page);
        }
        request.map(|id| (pid, id))
    }

    /// No process is left: the card is stopped, and gives back what it has.
    pub fn stop_card(&self, m: &M) {
        let Some(card) = &self.card else { return };
        card.nic.stop();
        while let Some(sent) = card.nic.take_transmitted() {
            self.was_sent(m, &mut self.state.lock(), sent.tag);
        }
        self.take_received(m, card);
        let mut state = self.state.lock();
        let arrived: Vec<_> = state.receiving.arrived.drain(..).collect();
        arrived.into_iter().for_each(|arrival| self.free(m, &mut state, arrival.page));
    }
}
