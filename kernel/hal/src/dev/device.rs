//! What all devices have in common: a number, and two ways for bytes to go.

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
