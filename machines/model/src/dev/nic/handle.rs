//! The handle that a kernel drives the card by: the machine under another trait.

use super::Card;
use crate::dev::NIC;
use crate::hw::Hw;
use crate::machine::inner::Inner;
use crate::outside::agenda::Agenda;
use pageferry_hal::{
    DeviceId, Fragment, Nic, NicEvents, NicFlow, NicInfo, NicReceive, NicReceived, NicRing, NicStatistics,
    NicTransmit, NicTransmitted, Pa, Width,
};
use std::rc::Rc;

/// A modelled network card.
pub(crate) struct ModelNic(pub(crate) Rc<Inner>);

impl ModelNic {
    /// Looks at the card.
    fn look<R>(&self, look: impl FnOnce(&Card) -> R) -> R {
        let hw = self.0.hw.borrow();
        look(&hw.outside.as_ref().expect("there is a card").card)
    }

    /// Does something to the card that may make something happen, when no CPU is behind.
    fn act<R>(&self, cycles: fn(&Hw) -> u64, act: impl FnOnce(&mut Card, u64, &mut Agenda) -> R) -> R {
        self.0.sync();
        let done = self.0.step(|hw, cpu| {
            // Before it has cost anything: a CPU that is ahead of what is due would come too early for it.
            let done = hw.at_card(cpu, act);
            let cycles = cycles(hw);
            hw.charge(cpu, cycles);
            done
        });
        self.0.outside_changed();
        done
    }
}

/// Writing a register.
fn write(hw: &Hw) -> u64 {
    hw.params.nic.map_or(0, |nic| nic.register_write)
}

/// Reading one.
fn read(hw: &Hw) -> u64 {
    hw.params.nic.map_or(0, |nic| nic.register_read)
}

/// The CPU writes these descriptors.
fn fill(hw: &mut Hw, cpu: usize, places: &[Pa], fragments: &[Fragment]) {
    for (&at, f) in places.iter().zip(fragments) {
        let cost = hw.line(cpu, at, true);
        hw.charge(cpu, cost);
        hw.memory.store_word(at, Width::Eight, (f.frame.pa() + f.offset).0);
        hw.memory.store_word(at + 8, Width::Eight, f.len_bytes as u64);
    }
}

/// Writes back what the CPU's cache has newer of these bytes: how many lines they have, and how many were.
fn write_back(hw: &mut Hw, cpu: usize, fragments: &[Fragment]) -> (u64, u64) {
    let (line_bytes, package) = (hw.params.line_bytes as u64, hw.cpus[cpu].package);
    let (mut lines, mut dirty) = (0, 0);
    for f in fragments {
        let at = f.frame.pa().0 + f.offset as u64;
        for line in at / line_bytes..(at + f.len_bytes as u64).div_ceil(line_bytes) {
            lines += 1;
            let caches = hw.caches.as_mut();
            let was = caches.is_some_and(|caches| caches.live().write_back_line(package, line * line_bytes));
            dirty += u64::from(was);
        }
    }
    (lines, dirty)
}

/// The CPU looks at these descriptors.
fn look_at(hw: &mut Hw, cpu: usize, places: &[Pa]) {
    for &at in places {
        let cost = hw.line(cpu, at, false);
        hw.charge(cpu, cost);
    }
}

impl Nic for ModelNic {
    fn id(&self) -> DeviceId {
        NIC
    }

    fn info(&self) -> NicInfo {
        self.look(Card::info)
    }

    fn set_rings(&self, transmit: Pa, receive: Pa) {
        self.act(write, |card, _, _| card.set_rings(transmit, receive));
    }

    fn write_back(&self, fragments: &[Fragment]) {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let Some(each) = hw.params.nic.and_then(|nic| nic.write_back_line) else { return };
            let (lines, dirty) = write_back(hw, cpu, fragments);
            hw.charge(cpu, lines * each + dirty * hw.params.write_back_line);
        });
    }

    fn post_transmit(&self, packet: NicTransmit) {
        self.0.poll();
        self.0.step(|hw, cpu| {
            if hw.params.nic.is_some_and(|nic| nic.write_back_line.is_some()) {
                let (_, dirty) = write_back(hw, cpu, &packet.fragments);
                assert_eq!(
                    dirty, 0,
                    "lines of {packet:?} are in the cache only, where the card does not look"
                );
            }
            let fragments = packet.fragments.clone();
            let places = hw.at_card(cpu, |card, _, _| card.post_transmit(packet));
            fill(hw, cpu, &places, &fragments);
        });
    }

    fn start_transmit(&self) {
        self.act(write, |card, now, agenda| card.start_transmit(now, agenda));
    }

    fn set_flow_ring(&self, at: Pa) {
        self.act(write, |card, _, _| card.set_flow_ring(at));
    }

    fn steer(&self, flow: Option<NicFlow>) {
        self.act(write, |card, _, _| card.steer(flow));
    }

    fn post_receive(&self, ring: NicRing, buffer: NicReceive) {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let fragments: Vec<Fragment> =
                buffer.header.into_iter().chain(buffer.data.iter().copied()).collect();
            let places = hw.at_card(cpu, |card, _, _| card.post_receive(ring, buffer));
            fill(hw, cpu, &places, &fragments);
        });
    }

    fn start_receive(&self, ring: NicRing) {
        self.act(write, |card, _, _| card.start_receive(ring));
    }

    fn acknowledge(&self) -> NicEvents {
        self.act(read, |card, now, agenda| card.acknowledge(now, agenda))
    }

    fn take_transmitted(&self) -> Option<NicTransmitted> {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let (places, answer) = hw.at_card(cpu, |card, _, _| card.take_transmitted());
            look_at(hw, cpu, &places);
            answer
        })
    }

    fn take_received(&self, ring: NicRing) -> Option<NicReceived> {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let (places, answer) = hw.at_card(cpu, |card, _, _| card.take_received(ring));
            look_at(hw, cpu, &places);
            answer
        })
    }

    fn stop(&self) {
        self.act(write, |card, _, agenda| card.stop(agenda));
    }

    fn statistics(&self) -> NicStatistics {
        self.look(Card::statistics)
    }
}
