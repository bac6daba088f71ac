//! The handles that a kernel drives devices by: each is the machine under another trait.

use crate::dev::{AUDIO, DISK};
use crate::machine::inner::Inner;
use pageferry_hal::{Audio, AudioDone, AudioRequest, BlockDevice, DeviceId, DiskDone, DiskRequest};
use std::rc::Rc;

/// A modelled disk.
pub(crate) struct ModelDisk(pub(crate) Rc<Inner>);
/// A modelled sound device.
pub(crate) struct ModelAudio(pub(crate) Rc<Inner>);

impl BlockDevice for ModelDisk {
    fn id(&self) -> DeviceId {
        DISK
    }
    fn blocks(&self) -> u64 {
        self.0.hw.borrow().params.disk.map_or(0, |d| d.blocks)
    }
    fn submit(&self, request: DiskRequest) {
        self.0.submit(|hw, cpu| hw.disk_submit(cpu, request));
    }
    fn take_done(&self) -> Option<DiskDone> {
        self.0.poll();
        self.0.step(|hw, _| hw.disk.take_done())
    }
}

impl Audio for ModelAudio {
    fn id(&self) -> DeviceId {
        AUDIO
    }
    fn bytes_per_s(&self) -> u64 {
        self.0.hw.borrow().params.audio.map_or(0, |a| a.bytes_per_s)
    }
    fn card_pages(&self) -> u64 {
        self.0.hw.borrow().params.audio.map_or(0, |a| a.card_pages)
    }
    fn submit(&self, request: AudioRequest) {
        self.0.submit(|hw, cpu| hw.audio_submit(cpu, request));
    }
    fn take_done(&self) -> Option<AudioDone> {
        self.0.poll();
        self.0.step(|hw, _| hw.audio.take_done())
    }
}
