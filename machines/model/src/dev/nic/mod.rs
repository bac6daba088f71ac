//! The modelled network card: two rings in memory, a bus that it shares with itself, and a wire.
//!
//! A frame that is to be sent is fetched over the bus, some frames ahead of the wire; goes over the wire; and its
//! descriptor is written back. One that arrives is given the oldest buffers that were handed over, goes over the bus,
//! and its descriptor is written back. Bytes move as late as can be: those to be sent are read when the frame is done
//! being sent, those received are written together with the descriptor. So a kernel that writes a frame that is on its
//! way, or looks at one too early, is found out. What the bus carries before, and how many descriptors a write-back
//! takes along, shows in times only.
//!
//! A card that joins segments ([`coalesce`]) gives buffers to frames only behind the bus.
//!
//! The card keeps what it was posted; the descriptors in memory have the words that a driver and a card would write
//! there, for the lines that these take in caches, and for whoever gives a ring away too early. What is posted is in
//! one of the queues here until its answer is taken: [`Card::unanswered`].
//!
//! The state belongs to the hardware, as part of [`crate::outside`], which gives it its time. Misuse by the kernel
//! panics; a frame from the wire never does ([`frame`]). [`handle`] is what a kernel drives it by.

mod coalesce;
pub(crate) mod frame;
pub(crate) mod handle;
mod ring;
#[cfg(test)]
mod tests;

use crate::net::pcap::Pcap;
use crate::outside::agenda::{Agenda, Step};
use crate::outside::dma::Dma;
use crate::outside::frames::{pad, wire_ps};
use crate::params::NicParams;
use coalesce::{Coalescing, Filled};
use frame::{Headers, Segment};
use pageferry_hal::{
    ETHERNET_HEADER_BYTES, Fragment, MacAddress, NIC_DESCRIPTOR_BYTES, NicArrival, NicError, NicEvents,
    NicFlow, NicInfo, NicReceive, NicReceived, NicRing, NicStatistics, NicTransmit, NicTransmitted,
    NicVerdict, Pa,
};
use ring::{Ring, RingItem};
use std::collections::VecDeque;

/// The address of every modelled card: a locally administered one.
pub(crate) const MAC: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x01]);

/// Bytes of frames that are fetched before they can go over the wire have so much room on the card: as on the 8254x,
/// whose 64 KB drivers give to both directions, most of it to what arrives.
const TRANSMIT_BUFFER_BYTES: usize = 16 << 10;

/// Why a card does nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Removed,
    Stopped,
}

impl Over {
    fn error(self) -> NicError {
        match self {
            Over::Removed => NicError::Removed,
            Over::Stopped => NicError::Stopped,
        }
    }
}

/// A frame that has arrived.
struct Arriving {
    ring: NicRing,
    item: Option<RingItem<NicReceive>>,
    frame: Vec<u8>,
    /// Its ring has ended.
    is_lost: bool,
}

pub(crate) struct Card {
    params: NicParams,
    over: Option<Over>,
    transmit: Ring<NicTransmit, NicTransmitted>,
    /// The main ring and the flow ring.
    receive: [Ring<NicReceive, NicReceived>; 2],
    /// What is steered to the flow ring.
    steered: Option<[u8; 12]>,
    /// Frames on their way over the bus, and behind it, waiting for the wire.
    fetching: VecDeque<RingItem<NicTransmit>>,
    fetched: VecDeque<RingItem<NicTransmit>>,
    /// Bytes of both.
    fetched_bytes: usize,
    /// The frame on the wire.
    sending: Option<RingItem<NicTransmit>>,
    /// Frames whose descriptors are being written back.
    sent: VecDeque<RingItem<NicTransmit>>,
    /// Frames on their way over the bus, with their buffers; a card that joins segments looks for these behind it.
    arriving: VecDeque<Arriving>,
    coalescing: Option<Coalescing>,
    /// When the bus is free.
    bus_free_at: u64,
    /// What has happened since the last acknowledgement.
    events: NicEvents,
    /// It has interrupted, and was not acknowledged.
    raised: bool,
    /// It is to interrupt, now.
    raising: bool,
    /// It has asked to interrupt later.
    waits_to_raise: bool,
    /// When it may interrupt again.
    may_raise_at: u64,
    statistics: NicStatistics,
    recorder: Option<Pcap>,
}

impl Card {
    pub(crate) fn new(params: NicParams) -> Card {
        Card {
            params,
            over: None,
            transmit: Ring::new("transmit", params.transmit_slots, params.frames),
            receive: [("receive", params.receive_slots), ("flow", params.flow_slots)]
                .map(|(name, slots)| Ring::new(name, slots, params.frames)),
            steered: None,
            fetching: VecDeque::new(),
            fetched: VecDeque::new(),
            fetched_bytes: 0,
            sending: None,
            sent: VecDeque::new(),
            arriving: VecDeque::new(),
            coalescing: (params.coalesce_bytes > 0).then(|| Coalescing::new(params.coalesce_bytes)),
            bus_free_at: 0,
            events: NicEvents::default(),
            raised: false,
            raising: false,
            waits_to_raise: false,
            may_raise_at: 0,
            statistics: NicStatistics::default(),
            recorder: None,
        }
    }

    pub(crate) fn info(&self) -> NicInfo {
        let p = &self.params;
        NicInfo {
            mac: MAC,
            mtu_bytes: p.mtu,
            transmit_slots: p.transmit_slots,
            receive_slots: p.receive_slots,
            flow_slots: p.flow_slots,
            transmit_fragments: p.transmit_fragments,
            transmit_checksum: p.transmit_checksum,
            receive_checksum: p.receive_checksum,
            header_split: p.header_split,
            coalesce_bytes: p.coalesce_bytes,
            link_mbit_s: p.link_mbit_s,
        }
    }

    /// From here on what goes over the wire is recorded, as the card sees it.
    pub(crate) fn record(&mut self, recorder: Pcap) -> Option<Pcap> {
        self.recorder.replace(recorder)
    }

    pub(crate) fn take_recorder(&mut self) -> Option<Pcap> {
        self.recorder.take()
    }

    // -------------------------------------------------------------------------------------------- what the kernel does

    pub(crate) fn set_rings(&mut self, transmit: Pa, receive: Pa) {
        self.transmit.set(transmit);
        self.ring(NicRing::Main).set(receive);
    }

    pub(crate) fn set_flow_ring(&mut self, at: Pa) {
        assert!(self.params.flow_slots > 0, "a card that has no flow ring is told that it is at {at:?}");
        self.ring(NicRing::Flow).set(at);
    }

    fn ring(&mut self, ring: NicRing) -> &mut Ring<NicReceive, NicReceived> {
        &mut self.receive[ring as usize]
    }

    /// Steers a flow, or ends that: what was posted to the flow ring comes back, and what is on its way there is lost.
    pub(crate) fn steer(&mut self, flow: Option<NicFlow>) {
        let Some(flow) = flow else {
            self.steered = None;
            let mut begun = Vec::new();
            for arriving in &mut self.arriving {
                if arriving.ring == NicRing::Flow {
                    arriving.is_lost = true;
                    begun.extend(arriving.item.take());
                }
            }
            let open = self.coalescing.as_mut().map(|coalescing| coalescing.give_up(NicRing::Flow));
            self.come_back(
                NicRing::Flow,
                open.unwrap_or_default().into_iter().chain(begun),
                NicError::Stopped,
            );
            return;
        };
        assert!(self.ring(NicRing::Flow).is_set(), "{flow:?} is steered to a ring that was not set");
        assert!(self.steered.is_none(), "{flow:?} is steered, and so is another");
        self.steered = self.over.is_none().then(|| Headers::flow_of(flow));
    }

    /// All that a receive ring has, and these items of it, come back without a frame.
    fn come_back(
        &mut self,
        ring: NicRing,
        begun: impl Iterator<Item = RingItem<NicReceive>>,
        error: NicError,
    ) {
        let result = Err(error);
        let ring = self.ring(ring);
        for RingItem { what, places } in begun {
            ring.answer(&places, NicReceived { tag: what.tag, result });
        }
        ring.answer_rest(|buffer| NicReceived { tag: buffer.tag, result });
    }

    /// The ring that a frame goes to.
    fn ring_for(&self, frame: &[u8]) -> NicRing {
        let Some(steered) = self.steered else { return NicRing::Main };
        let flow = Headers::of(frame).and_then(|headers| headers.flow(frame));
        if flow == Some(steered) { NicRing::Flow } else { NicRing::Main }
    }

    /// Takes a frame to be sent; the descriptors that it fills.
    pub(crate) fn post_transmit(&mut self, packet: NicTransmit) -> Vec<Pa> {
        let (p, fragments) = (&self.params, &packet.fragments);
        let len = len_of(&packet);
        assert!(
            fragments.len() <= p.transmit_fragments,
            "a frame of {} fragments, of which a card takes {}",
            fragments.len(),
            p.transmit_fragments
        );
        assert!(
            (ETHERNET_HEADER_BYTES..=ETHERNET_HEADER_BYTES + p.mtu).contains(&len),
            "a frame of {len} bytes, with an MTU of {}",
            p.mtu
        );
        if let Some(sum) = packet.checksum {
            assert!(p.transmit_checksum, "a card that computes no checksums is asked for one");
            assert!(sum.from < len && sum.at + 2 <= len, "{sum:?} lies outside of a frame of {len} bytes");
        }
        let places = self.transmit.fill(packet.fragments.iter(), packet.tag);
        match self.over {
            None => self.transmit.posted.push_back(places.of(packet)),
            Some(over) => {
                let answer = NicTransmitted { tag: packet.tag, result: Err(over.error()) };
                self.transmit.answer(&places, answer);
            }
        }
        places.addresses
    }

    /// Takes buffers for a frame; the descriptors that they fill.
    pub(crate) fn post_receive(&mut self, ring: NicRing, buffer: NicReceive) -> Vec<Pa> {
        let split = self.params.header_split;
        assert!(buffer.header.is_none() || split, "a card that splits no headers off has a buffer for them");
        assert!(!buffer.data.is_empty(), "there is no buffer for data");
        let fragments: Vec<Fragment> = buffer.header.into_iter().chain(buffer.data.iter().copied()).collect();
        let is_steered = ring == NicRing::Main || self.steered.is_some() || self.over.is_some();
        assert!(is_steered, "buffers are posted to the flow ring, and no flow is steered");
        let over = self.over;
        let ring = self.ring(ring);
        let places = ring.fill(fragments.iter(), buffer.tag);
        match over {
            None => ring.posted.push_back(places.of(buffer)),
            Some(over) => {
                let answer = NicReceived { tag: buffer.tag, result: Err(over.error()) };
                ring.answer(&places, answer);
            }
        }
        places.addresses
    }

    pub(crate) fn start_transmit(&mut self, now: u64, agenda: &mut Agenda) {
        self.transmit.hand_over();
        self.fetch(now, agenda);
    }

    pub(crate) fn start_receive(&mut self, ring: NicRing) {
        self.ring(ring).hand_over();
    }

    pub(crate) fn acknowledge(&mut self, now: u64, agenda: &mut Agenda) -> NicEvents {
        match self.over {
            Some(Over::Removed) => NicEvents { removed: true, ..NicEvents::default() },
            Some(Over::Stopped) => NicEvents::default(),
            None => {
                self.raised = false;
                if self.has_open() && !self.waits_to_raise {
                    self.raise_later(now, agenda);
                }
                std::mem::take(&mut self.events)
            }
        }
    }

    /// Segments wait for others of their flow.
    fn has_open(&self) -> bool {
        self.coalescing.as_ref().is_some_and(Coalescing::is_open)
    }

    /// The oldest answer of the transmit ring, and the descriptors that are looked at for it.
    pub(crate) fn take_transmitted(&mut self) -> (Vec<Pa>, Option<NicTransmitted>) {
        self.transmit.take()
    }

    /// As [`Card::take_transmitted`], of a receive ring.
    pub(crate) fn take_received(&mut self, ring: NicRing) -> (Vec<Pa>, Option<NicReceived>) {
        self.ring(ring).take()
    }

    pub(crate) fn statistics(&self) -> NicStatistics {
        self.statistics
    }

    /// What was posted and whose answers were not taken: frames to be sent, and buffers.
    pub(crate) fn unanswered(&self) -> (usize, usize) {
        (self.transmit.unanswered, self.receive.iter().map(|ring| ring.unanswered).sum())
    }

    pub(crate) fn stop(&mut self, agenda: &mut Agenda) {
        if self.over.is_none() {
            self.give_back(Over::Stopped, agenda);
        }
    }

    /// The card is taken out.
    pub(crate) fn remove(&mut self, agenda: &mut Agenda) {
        if self.over == Some(Over::Removed) {
            return;
        }
        // One that was stopped has given everything back, and interrupts no more.
        let interrupts = self.over.is_none();
        self.give_back(Over::Removed, agenda);
        if interrupts {
            self.statistics.interrupts += 1;
            self.raising = true;
        }
    }

    /// Answers all that it has, in the order in which it was posted, and forgets what it was about to do.
    fn give_back(&mut self, over: Over, agenda: &mut Agenda) {
        self.over = Some(over);
        agenda.forget_steps();
        (self.raising, self.fetched_bytes) = (false, 0);
        let result = Err(over.error());
        let on_their_way = (self.sent.drain(..))
            .chain(self.sending.take())
            .chain(self.fetched.drain(..))
            .chain(self.fetching.drain(..));
        let result_of = |tag| NicTransmitted { tag, result };
        for RingItem { what, places } in on_their_way.collect::<Vec<_>>() {
            self.transmit.answer(&places, result_of(what.tag));
        }
        self.transmit.answer_rest(|packet| result_of(packet.tag));
        let arriving = std::mem::take(&mut self.arriving);
        let (main, flow): (Vec<_>, Vec<_>) = arriving.into_iter().partition(|a| a.ring == NicRing::Main);
        for (ring, arriving) in [(NicRing::Main, main), (NicRing::Flow, flow)] {
            let open =
                self.coalescing.as_mut().map(|coalescing| coalescing.give_up(ring)).unwrap_or_default();
            let begun = open.into_iter().chain(arriving.into_iter().filter_map(|arriving| arriving.item));
            self.come_back(ring, begun, over.error());
        }
    }

    // ------------------------------------------------------------------------------------------ what it does by itself

    /// The next step of this kind is due. A frame that has gone over the wire, if that was it.
    pub(crate) fn step(
        &mut self,
        now: u64,
        step: Step,
        agenda: &mut Agenda,
        dma: &mut Dma<'_>,
    ) -> Option<Vec<u8>> {
        match step {
            Step::Fetched => {
                let frame = self.fetching.pop_front().expect("a frame for each fetch");
                self.fetched.push_back(frame);
                self.send(now, agenda);
            }
            Step::Sent => return Some(self.sent(now, agenda, dma)),
            Step::TransmitWritten => {
                let RingItem { what, places } = self.sent.pop_front().expect("a frame for each write-back");
                places.write_back(dma, 0);
                self.statistics.transmitted += 1;
                self.transmit.answer(&places, NicTransmitted { tag: what.tag, result: Ok(()) });
                self.events.transmitted = true;
                self.want_interrupt(now, agenda, dma);
            }
            Step::ReceiveWritten => {
                let arriving = self.arriving.pop_front().expect("a frame for each write-back");
                let Arriving { ring, item, frame, is_lost } = arriving;
                match item {
                    Some(item) => {
                        let arrival = self.deliver(&item.what, &frame, dma);
                        self.statistics.received += 1;
                        self.done(Filled { ring, item, arrival }, dma);
                    }
                    None if is_lost => self.statistics.missed += 1,
                    None => self.coalesce(ring, &frame, dma),
                }
                if self.events != NicEvents::default() || self.has_open() {
                    self.want_interrupt(now, agenda, dma);
                }
            }
            Step::Interrupt => {
                self.waits_to_raise = false;
                if (self.events != NicEvents::default() || self.has_open()) && !self.raised {
                    self.raise(now, dma);
                }
            }
        }
        None
    }

    /// Moves so many bytes over the bus, behind what is moved already; when that is done.
    fn move_over_bus(&mut self, now: u64, len_bytes: usize) -> u64 {
        let takes = (len_bytes as u64 * 1_000_000).div_ceil(self.params.dma_mb_s);
        self.bus_free_at = self.bus_free_at.max(now) + takes;
        self.bus_free_at + self.params.dma_latency_ps
    }

    /// Fetches as many frames as there is room for.
    fn fetch(&mut self, now: u64, agenda: &mut Agenda) {
        while let Some(next) = self.transmit.handed.front() {
            let len = len_of(&next.what);
            if self.fetched_bytes > 0 && self.fetched_bytes + len > TRANSMIT_BUFFER_BYTES {
                return;
            }
            let frame = self.transmit.handed.pop_front().expect("it was just there");
            let at = self.move_over_bus(now, len + frame.places.bytes());
            agenda.step_at(at, Step::Fetched);
            self.fetched_bytes += len;
            self.fetching.push_back(frame);
        }
    }

    /// Sends the next frame, if the wire is free.
    fn send(&mut self, now: u64, agenda: &mut Agenda) {
        if self.sending.is_some() {
            return;
        }
        let Some(frame) = self.fetched.pop_front() else { return };
        let len = len_of(&frame.what);
        self.fetched_bytes -= len;
        agenda.step_at(now + wire_ps(&self.params, len), Step::Sent);
        self.sending = Some(frame);
        self.fetch(now, agenda);
    }

    /// The frame on the wire has been sent: its bytes, which are read only now.
    fn sent(&mut self, now: u64, agenda: &mut Agenda, dma: &Dma<'_>) -> Vec<u8> {
        let frame = self.sending.take().expect("a frame is on the wire");
        let mut bytes = Vec::new();
        for f in &frame.what.fragments {
            let before = bytes.len();
            bytes.resize(before + f.len_bytes, 0);
            dma.read(f.frame.pa() + f.offset, &mut bytes[before..]);
        }
        if let Some(checksum) = frame.what.checksum {
            frame::put_checksum(&mut bytes, checksum);
        }
        pad(&mut bytes);
        if let Some(recorder) = &mut self.recorder {
            recorder.frame(now, &bytes);
        }
        agenda.step_at(self.move_over_bus(now, NIC_DESCRIPTOR_BYTES), Step::TransmitWritten);
        self.sent.push_back(frame);
        self.send(now, agenda);
        bytes
    }

    /// A frame has come over the wire.
    pub(crate) fn arrives(&mut self, now: u64, frame: Vec<u8>, agenda: &mut Agenda) {
        if self.over.is_some() {
            return;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.frame(now, &frame);
        }
        // The first bit of an address says that it is a group's.
        if frame[..6] != MAC.0 && frame[0] & 1 == 0 {
            self.statistics.filtered += 1;
        } else if frame.len() > ETHERNET_HEADER_BYTES + self.params.mtu {
            self.statistics.too_long += 1;
        } else if self.coalescing.is_some() {
            let at = self.move_over_bus(now, frame.len() + NIC_DESCRIPTOR_BYTES);
            agenda.step_at(at, Step::ReceiveWritten);
            let ring = self.ring_for(&frame);
            self.arriving.push_back(Arriving { ring, item: None, frame, is_lost: false });
        } else {
            let ring = self.ring_for(&frame);
            let Some(item) = self.buffers_for(ring, &frame) else { return };
            let at = self.move_over_bus(now, frame.len() + item.places.bytes());
            agenda.step_at(at, Step::ReceiveWritten);
            self.arriving.push_back(Arriving { ring, item: Some(item), frame, is_lost: false });
        }
    }

    /// The next buffers of a ring, if a frame fits into them; else it is lost.
    fn buffers_for(&mut self, ring: NicRing, frame: &[u8]) -> Option<RingItem<NicReceive>> {
        match self.ring(ring).handed.front() {
            None => self.statistics.missed += 1,
            Some(next) if !has_room(&next.what, frame) => self.statistics.too_long += 1,
            Some(_) => return self.ring(ring).handed.pop_front(),
        }
        None
    }

    /// A frame has come over the bus of a card that joins segments.
    fn coalesce(&mut self, ring: NicRing, frame: &[u8], dma: &mut Dma<'_>) {
        let Some(mut coalescing) = self.coalescing.take() else { return };
        let headers = Headers::of(frame);
        let segment = headers.as_ref().and_then(|headers| Segment::of(headers, frame));
        let next = self.ring(ring).handed.front();
        let fits = |s: &Segment<'_>| next.is_none_or(|next| Coalescing::takes(&next.what, s));
        if let Some(segment) = segment.filter(fits) {
            let handed = &mut self.ring(ring).handed;
            let take = || {
                let fits = handed.front().is_some_and(|next| Coalescing::takes(&next.what, &segment));
                if fits { handed.pop_front() } else { None }
            };
            let (done, all) = coalescing.join(ring, &segment, dma, take);
            done.into_iter().for_each(|done| self.done(done, dma));
            let counted = if all { &mut self.statistics.received } else { &mut self.statistics.missed };
            *counted += 1;
        } else {
            let before = headers.and_then(|headers| coalescing.end_of(&headers, frame, dma));
            before.into_iter().for_each(|done| self.done(done, dma));
            if let Some(item) = self.buffers_for(ring, frame) {
                let arrival = self.deliver(&item.what, frame, dma);
                self.statistics.received += 1;
                self.done(Filled { ring, item, arrival }, dma);
            }
        }
        self.coalescing = Some(coalescing);
    }

    /// Buffers have what they are to have: they go to the kernel.
    fn done(&mut self, filled: Filled, dma: &mut Dma<'_>) {
        let Filled { ring, item: RingItem { what, places }, arrival } = filled;
        places.write_back(dma, arrival.header_bytes + arrival.data_bytes);
        self.ring(ring).answer(&places, NicReceived { tag: what.tag, result: Ok(arrival) });
        self.events.received = true;
    }

    /// Writes a frame to its buffers.
    fn deliver(&self, buffer: &NicReceive, frame: &[u8], dma: &mut Dma<'_>) -> NicArrival {
        let (headers, mut rest) = frame.split_at(split_at(buffer, frame));
        if let (Some(header), false) = (buffer.header, headers.is_empty()) {
            dma.write(header.frame.pa() + header.offset, headers);
        }
        let data_bytes = rest.len();
        for f in &buffer.data {
            let (now, later) = rest.split_at(rest.len().min(f.len_bytes));
            if !now.is_empty() {
                dma.write(f.frame.pa() + f.offset, now);
            }
            rest = later;
        }
        let verdict =
            if self.params.receive_checksum { frame::verdict(frame) } else { NicVerdict::Unchecked };
        NicArrival { header_bytes: headers.len(), data_bytes, verdict }
    }

    // ------------------------------------------------------------------------------------------------- interrupts

    /// Something has happened that the kernel is to be told.
    fn want_interrupt(&mut self, now: u64, agenda: &mut Agenda, dma: &mut Dma<'_>) {
        if self.raised || self.waits_to_raise {
            return;
        }
        if now >= self.may_raise_at {
            self.raise(now, dma);
        } else {
            self.raise_later(now, agenda);
        }
    }

    fn raise_later(&mut self, now: u64, agenda: &mut Agenda) {
        self.waits_to_raise = true;
        agenda.step_at(self.may_raise_at.max(now), Step::Interrupt);
    }

    fn raise(&mut self, now: u64, dma: &mut Dma<'_>) {
        let open = self.coalescing.as_mut().map(|coalescing| coalescing.end_all(dma)).unwrap_or_default();
        open.into_iter().for_each(|done| self.done(done, dma));
        self.raised = true;
        self.raising = true;
        self.may_raise_at = now + self.params.interrupt_gap_ps;
        self.statistics.interrupts += 1;
    }

    /// True, once, when the card interrupts.
    pub(crate) fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.raising)
    }
}

fn len_of(packet: &NicTransmit) -> usize {
    packet.fragments.iter().map(|f| f.len_bytes).sum()
}

/// Whether buffers have room for what of a frame goes to each.
fn has_room(buffer: &NicReceive, frame: &[u8]) -> bool {
    let room: usize = buffer.data.iter().map(|f| f.len_bytes).sum();
    frame.len() - split_at(buffer, frame) <= room
}

/// How much of a frame goes to the buffer for headers.
fn split_at(buffer: &NicReceive, frame: &[u8]) -> usize {
    let Some(header) = buffer.header else { return 0 };
    let end = Headers::of(frame).map_or(0, |headers| headers.end());
    if end <= header.len_bytes { end } else { 0 }
}
