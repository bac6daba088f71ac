//! Devices: what is on a board beside processors and memory.
//!
//! A device is a trait object, handed to the kernel at boot in [`Devices`]; the machine knows of it only that it interrupts
//! ([`crate::Interrupt::Device`]). All devices work alike: a request is handed over and not waited for; the device moves the
//! bytes by itself, to and from physical memory, at some moment until it interrupts; then the kernel takes its answers. Until
//! the answer is taken the memory belongs to the device.
//!
//! * [`block`]: disks. [`audio`]: fragments of sound. A network card has its place beside them.

pub mod audio;
pub mod block;

use alloc::boxed::Box;

/// The number by which a device interrupts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u8);

impl DeviceId {
    /// The most devices on a board.
    pub const MAX_DEVICES: usize = 32;
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// From the device to memory.
    Read,
    /// From memory to the device.
    Write,
}

/// The devices of a board, as far as a kernel drives them.
#[derive(Default)]
pub struct Devices {
    /// The disk, for files and the swap area.
    pub disk: Option<Box<dyn block::BlockDevice>>,
    /// The sound device.
    pub audio: Option<Box<dyn audio::Audio>>,
}
