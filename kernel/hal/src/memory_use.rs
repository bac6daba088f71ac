//! What the kernel's addresses are for.
//!
//! A kernel says at boot where its text, its structures and its stacks are ([`crate::Account::set_use`]), and whose
//! each frame is that it reaches by its direct map ([`crate::Account::set_frame_use`]). A modelled machine then tells
//! by the missing address alone what a miss of the TLB was for, and whose an entry is.

/// What an address is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum MemoryUse {
    /// A program's own addresses, whoever uses them.
    Users,
    /// The kernel's text.
    Text,
    /// The kernel's structures: its static data and zones.
    Data,
    /// Stacks of threads in the kernel, and the frames that exceptions save registers in.
    Stacks,
    /// Page tables and the hash table.
    Tables,
    /// Pages of files, at the kernel's addresses.
    Files,
    /// Pages of programs, at the kernel's addresses: it clears and copies them.
    Programs,
    /// What the kernel maps page by page, or has frames for: buffers of pipes, clusters, windows.
    #[default]
    Buffers,
    /// Registers and frame buffers of devices.
    Devices,
}

impl MemoryUse {
    /// All of them, in order of declaration.
    pub const ALL: [MemoryUse; 9] = [
        MemoryUse::Users,
        MemoryUse::Text,
        MemoryUse::Data,
        MemoryUse::Stacks,
        MemoryUse::Tables,
        MemoryUse::Files,
        MemoryUse::Programs,
        MemoryUse::Buffers,
        MemoryUse::Devices,
    ];
    /// How many there are.
    pub const COUNT: usize = MemoryUse::ALL.len();

    /// The position in [`MemoryUse::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_in_the_list() {
        for (i, what) in MemoryUse::ALL.into_iter().enumerate() {
            assert_eq!(what.index(), i);
        }
    }
}
