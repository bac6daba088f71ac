//! Devices: what is on a board beside processors and memory.
//!
//! A device is a trait object, handed to the kernel at boot in [`Devices`]; the machine knows of it only that it
//! interrupts ([`crate::Interrupt::Device`]). All devices work alike: a request is handed over and not waited for; the
//! device moves the bytes by itself, to and from physical memory, at some moment until it interrupts; then the kernel
//! takes its answers. Until the answer is taken the memory belongs to the device.
//!
//! * [`device`]: what all have in common. [`block`]: disks. [`audio`]: fragments of sound. [`nic`]: network cards.

pub mod audio;
pub mod block;
pub mod device;
pub mod nic;

use alloc::boxed::Box;

/// The devices of a board, as far as a kernel drives them.
#[derive(Default)]
pub struct Devices {
    /// The disk, for files and the swap area.
    pub disk: Option<Box<dyn block::BlockDevice>>,
    /// The sound device.
    pub audio: Option<Box<dyn audio::Audio>>,
    /// The network card.
    pub nic: Option<Box<dyn nic::Nic>>,
}
