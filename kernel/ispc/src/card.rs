//! The network card of a kernel whose protocols are servers: what a driver that is a process cannot do itself.
//!
//! The driver's server has a frame in a piece of the area and asks the kernel to hand it to the card: the kernel knows
//! which memory that is, writes its cache lines back, and rings the doorbell. The card reads the piece until the frame
//! is sent, so the driver answers its request only then: it waits for that, or goes on with others and is told. A
//! driver that ends waits, too. What arrives is in [`super::received`]: where nobody has given the card a piece for it,
//! a frame finds no buffer.
//!
//! # Locks
//! That of [`super::state::State`], which counts what the card has. The card's interrupt is taken by a soft-interrupt
//! thread.
//!
//! # What can fail
//! A frame that is not the caller's, or longer than the card takes; a card that is not there, or was removed.

use super::driver_card::{DriverCard, Sending};
use super::port::{DRIVER, RequestId};
use super::state::{Holder, Ispc};
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_core::proc::Syscall;
use pageferry_hal::{
    Cause, ETHERNET_HEADER_BYTES, Fragment, Instructions, Machine, NicChecksum, NicTransmit, PAGE_SHIFT,
    PAGE_SIZE, SpinLock, Threads, Va,
};

/// Bytes of a cache line that is written back at a time.
const LINE_BYTES: usize = 32;

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
        m.execute(Instructions(self.config.paths.card_line.instructions.0 * len.div_ceil(LINE_BYTES) as u32));
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
        let (answered, told) = self.take_answers(card);
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
    fn take_answers(&self, card: &DriverCard) -> (bool, bool) {
        let (mut answered, mut told) = (false, false);
        while let Some(sent) = card.nic.take_transmitted() {
            let mut state = self.state.lock();
            if let Some(Sending { pid, request: Some(id), .. }) = state.sending.remove(&sent.tag) {
                state.sent.push_back((pid, id));
                told = true;
            }
            answered = true;
        }
        (answered, told)
    }

    /// No process is left: the card is stopped, and gives back what it has.
    pub fn stop_card(&self, m: &M) {
        let Some(card) = &self.card else { return };
        card.nic.stop();
        while let Some(sent) = card.nic.take_transmitted() {
            self.state.lock().sending.remove(&sent.tag);
        }
        self.take_received(m, card);
        let mut state = self.state.lock();
        let arrived: Vec<_> = state.receiving.arrived.drain(..).collect();
        arrived.into_iter().for_each(|arrival| self.free(m, &mut state, arrival.page));
    }
}
