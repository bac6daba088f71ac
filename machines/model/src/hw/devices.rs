//! Devices as a CPU sees them: requests that it hands in, and what their interrupts bring; and what is outside of the
//! CPUs.

use super::Hw;
use crate::dev::nic::Card;
use crate::dev::{AUDIO, DISK, NIC};
use crate::outside::Outside;
use crate::outside::agenda::Agenda;
use crate::outside::dma::Dma;
use pageferry_hal::{AudioRequest, DeviceId, DiskRequest, Interrupt, Pa, Transfer};

impl Hw {
    /// Takes in a request to the disk; its interrupt is on its way to CPU 0 from here on. Answers when it arrives.
    pub(crate) fn disk_submit(&mut self, cpu: usize, request: DiskRequest) -> u64 {
        let params = self.params.disk.expect("there is no disk");
        let at = self.disk.submit(params, self.cpus[cpu].clock, request);
        let at = self.delayed(at);
        self.interrupt_at(0, at, Interrupt::Device(DISK));
        at
    }

    /// As [`Hw::disk_submit`], for a fragment of sound.
    pub(crate) fn audio_submit(&mut self, cpu: usize, request: AudioRequest) -> u64 {
        let params = self.params.audio.expect("there is no sound device");
        let at = self.audio.submit(params, self.cpus[cpu].clock, request);
        let at = self.delayed(at);
        self.interrupt_at(0, at, Interrupt::Device(AUDIO));
        at
    }

    /// A device's interrupt has arrived: the bytes are where they belong.
    pub(crate) fn device_arrived(&mut self, device: DeviceId) {
        match device {
            DISK => {
                let DiskRequest { frames, transfer, .. } = self.disk.complete(&mut self.memory);
                frames.into_iter().for_each(|f| self.snoop(f.pa(), pageferry_hal::PAGE_SIZE, transfer));
            }
            AUDIO => {
                let request = self.audio.complete(&mut self.memory);
                self.snoop(request.frame.pa() + request.offset, request.len_bytes, request.transfer);
            }
            // Its bytes have moved already.
            NIC => {}
            _ => unreachable!("{device:?} is no device of this board"),
        }
    }

    /// What a device has written is in no cache. What it has read may stay there.
    fn snoop(&mut self, at: Pa, len_bytes: usize, transfer: Transfer) {
        if transfer == Transfer::Read {
            self.dma().drop_lines(at, len_bytes);
        }
    }

    fn dma(&mut self) -> Dma<'_> {
        let Hw { memory, caches, aliases, params, .. } = self;
        Dma {
            memory,
            caches: caches.as_mut(),
            aliases: aliases.as_deref_mut(),
            line_bytes: params.line_bytes,
        }
    }

    /// The next event outside of the CPUs takes place.
    pub(crate) fn outside_happens(&mut self) {
        let mut outside = self.outside.take().expect("without a card nothing is due");
        let at = outside.next_at();
        let mut dma = self.dma();
        let interrupts = outside.happen(&mut dma);
        self.outside_at = outside.next_at();
        self.outside = Some(outside);
        if interrupts {
            let at = self.delayed(at);
            self.interrupt_at(0, at, Interrupt::Device(NIC));
        }
    }

    /// A CPU does something to the network card.
    pub(crate) fn at_card<R>(&mut self, cpu: usize, act: impl FnOnce(&mut Card, u64, &mut Agenda) -> R) -> R {
        let clock = self.cpus[cpu].clock;
        self.at_outside(|outside| outside.at(clock, act))
    }

    /// Something is done to what is outside of the CPUs.
    ///
    /// # Panics
    /// When there is no card.
    pub(crate) fn at_outside<R>(&mut self, act: impl FnOnce(&mut Outside) -> R) -> R {
        let outside = self.outside.as_mut().expect("there is no network card on this machine");
        let done = act(outside);
        (self.outside_at, self.has_far_end) = (outside.next_at(), outside.has_far_end());
        done
    }
}
