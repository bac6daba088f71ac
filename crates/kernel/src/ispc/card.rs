//! The network card of a kernel whose protocols are servers: what a driver that is a process cannot do itself.
//!
//! The driver's server has a frame in a piece of the area and asks the kernel to hand it to the card: the kernel knows which memory
//! that is, writes its cache lines back, and rings the doorbell. The card reads the piece until the frame is sent, so the driver
//! waits for that before it answers its request; a driver that ends waits, too. Nothing is received: a frame that arrives finds no
//! buffer.
//!
//! # Locks
//! That of [`super::ica::State`], which counts what the card has. The card's interrupt is taken by a soft-interrupt thread.
//!
//! # What can fail
//! A frame that is not the caller's, or longer than the card takes; a card that is not there, or was removed.

use super::ica::{Holder, Ispc};
use crate::error::Errno;
use crate::proc::Syscall;
use alloc::boxed::Box;
use alloc::vec::Vec;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Cause, Channel, DeviceId, ETHERNET_HEADER_BYTES, Fragment, Instructions, Machine, NIC_DESCRIPTOR_BYTES,
    Nic, NicTransmit, PAGE_SHIFT, PAGE_SIZE, Pa, SpinLock, StructArena, StructVa, Threads, Va,
};

/// Bytes of a cache line that is written back at a time.
const LINE_BYTES: usize = 32;

/// The card. See the [module](self).
pub(crate) struct DriverCard {
    nic: Box<dyn Nic>,
    ring: StructVa,
}

impl DriverCard {
    pub(crate) fn new<M: Machine>(
        m: &M,
        nic: Box<dyn Nic>,
        arena: &mut StructArena,
    ) -> Result<DriverCard, ArenaFull> {
        let info = nic.info();
        let base = m.board().layout.kernel_base;
        let mut ring = |slots| arena.array("descriptors", slots, NIC_DESCRIPTOR_BYTES);
        let (transmit, receive) = (ring(info.transmit_slots)?, ring(info.receive_slots)?);
        let pa = |at: StructVa| Pa((at.0 - base) as u64);
        nic.set_rings(pa(transmit), pa(receive));
        Ok(DriverCard { nic, ring: transmit })
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.nic.id()
    }

    /// What a driver sleeps on.
    fn channel(&self) -> Channel {
        Channel(self.ring.0.0)
    }
}

impl<M: Machine> Ispc<M> {
    /// Hands a frame to the card that lies in a piece of the calling server's.
    pub(crate) fn call_card_send(&self, call: &Syscall<'_, M>, at: Va, len: usize) -> Result<(), Errno> {
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
        let start = at - self.range.start();
        let (&first, ica) = state.icas.range(..=start >> PAGE_SHIFT).next_back().ok_or(Errno::Invalid)?;
        if start + len > (first + ica.pages) * PAGE_SIZE {
            return Err(Errno::Invalid);
        }
        if ica.holder != Holder::Process(call.pid) {
            return Err(Errno::Access);
        }
        if state.sending.len() >= info.transmit_slots / 2 {
            return Err(Errno::WouldBlock);
        }
        m.execute(self.config.paths.card_send);
        m.execute(Instructions(self.config.paths.card_line.instructions.0 * len.div_ceil(LINE_BYTES) as u32));
        let (mut fragments, mut done) = (Vec::new(), 0);
        while done < len {
            let offset = (start + done) & (PAGE_SIZE - 1);
            let part = (len - done).min(PAGE_SIZE - offset);
            let frame = call.kernel.vm.pmaps().area_frame((start + done) >> PAGE_SHIFT);
            fragments.push(Fragment { frame, offset, len_bytes: part });
            done += part;
        }
        let tag = state.next;
        state.next += 1;
        state.sending.insert(tag, call.pid);
        drop(state);
        card.nic.post_transmit(NicTransmit { tag, fragments, checksum: None });
        card.nic.start_transmit();
        Ok(())
    }

    /// Waits until the card has sent what the caller has handed over.
    pub(crate) fn call_card_wait(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
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
            if state.sending.values().all(|pid| *pid != call.pid) {
                return;
            }
            let mut held = Some(state);
            let slept = call.thread.sleep(card.channel(), "card", false, &mut || drop(held.take()));
            assert!(slept.is_ok(), "this sleep is not interruptible");
        }
    }

    /// The card has interrupted: takes its answers.
    pub(crate) fn card_interrupt(&self, threads: &dyn Threads) {
        let Some(card) = &self.card else { return };
        card.nic.acknowledge();
        let mut answered = false;
        while let Some(sent) = card.nic.take_transmitted() {
            self.state.lock().sending.remove(&sent.tag);
            answered = true;
        }
        if answered {
            threads.wakeup(card.channel());
        }
    }
}
