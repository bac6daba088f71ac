//! Devices: each a state of its own that moves bytes when its interrupt arrives, and a handle that a kernel drives it by.
//!
//! The state belongs to the hardware and is borrowed with it; the handle is the machine under another trait.

pub(crate) mod audio;
pub(crate) mod disk;

use crate::machine::Model;
use pageferry_hal::{Audio, AudioDone, AudioRequest, BlockDevice, DeviceId, Devices, DiskDone, DiskRequest};

/// The disk's number.
pub(crate) const DISK: DeviceId = DeviceId(0);
/// The sound device's number.
pub(crate) const AUDIO: DeviceId = DeviceId(1);

/// A modelled disk.
struct ModelDisk(Model);
/// A modelled sound device.
struct ModelAudio(Model);

impl Model {
    /// What is on this board beside processors and memory. A disk that is asked for can be had once or many times: all are
    /// the same disk.
    pub fn devices(&self) -> Devices {
        let hw = self.0.hw.borrow();
        let disk =
            hw.params.disk.is_some().then(|| Box::new(ModelDisk(self.clone())) as Box<dyn BlockDevice>);
        let audio = hw.params.audio.is_some().then(|| Box::new(ModelAudio(self.clone())) as Box<dyn Audio>);
        Devices { disk, audio }
    }
}

impl BlockDevice for ModelDisk {
    fn id(&self) -> DeviceId {
        DISK
    }
    fn blocks(&self) -> u64 {
        self.0.0.hw.borrow().params.disk.map_or(0, |d| d.blocks)
    }
    fn submit(&self, request: DiskRequest) {
        self.0.0.submit(|hw, cpu| hw.disk_submit(cpu, request));
    }
    fn take_done(&self) -> Option<DiskDone> {
        self.0.0.poll();
        self.0.0.step(|hw, _| hw.disk.take_done())
    }
}

impl Audio for ModelAudio {
    fn id(&self) -> DeviceId {
        AUDIO
    }
    fn bytes_per_s(&self) -> u64 {
        self.0.0.hw.borrow().params.audio.map_or(0, |a| a.bytes_per_s)
    }
    fn card_pages(&self) -> u64 {
        self.0.0.hw.borrow().params.audio.map_or(0, |a| a.card_pages)
    }
    fn submit(&self, request: AudioRequest) {
        self.0.0.submit(|hw, cpu| hw.audio_submit(cpu, request));
    }
    fn take_done(&self) -> Option<AudioDone> {
        self.0.0.poll();
        self.0.0.step(|hw, _| hw.audio.take_done())
    }
}
