//! Devices: each a state of its own that moves bytes when its interrupt arrives, and a handle that a kernel drives it
//! by.
//!
//! The state belongs to the hardware and is borrowed with it; the handle (`handle`) is the machine under another trait.

pub(crate) mod audio;
pub(crate) mod disk;
pub(crate) mod handle;
pub(crate) mod nic;

use pageferry_hal::DeviceId;

/// The disk's number.
pub(crate) const DISK: DeviceId = DeviceId(0);
/// The sound device's number.
pub(crate) const AUDIO: DeviceId = DeviceId(1);
/// The network card's number.
pub(crate) const NIC: DeviceId = DeviceId(2);
