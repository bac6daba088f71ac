//! What cycles are spent on.
//!
//! A modelled CPU adds every cycle to exactly one [`Cause`]; the sum over all causes equals its clock, and that is
//! asserted at the end of every run. On bare metal it costs nothing.

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[doc = $doc])* $variant,)* }

        impl $name {
            /// All of them, in order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// The name used in results and reports.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
            /// What it means, in a sentence.
            pub const fn about(self) -> &'static str {
                match self { $($name::$variant => concat!($($doc),*).trim_ascii()),* }
            }
            /// The position in [`Self::ALL`].
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

named! {
    /// Why a cycle was spent.
    Cause {
        /// User code.
        User = "user",
        /// Moving bytes: loads, stores and instructions of copies.
        Copy = "copy",
        /// Clearing pages.
        Zero = "zero",
        /// Walking page tables after a TLB miss (and setting accessed and dirty bits).
        TlbMiss = "tlb_miss",
        /// The kernel's refill handler, on machines that cannot fill the TLB by themselves.
        Refill = "refill",
        /// Invalidating entries of the own TLB.
        InvalidateLocal = "invalidate_local",
        /// Sending invalidations to other CPUs and waiting until they are done.
        ShootdownSent = "shootdown_sent",
        /// Being interrupted for another CPU's invalidation.
        ShootdownReceived = "shootdown_received",
        /// Page faults: entry, look-up, resolution, return.
        Fault = "fault",
        /// Reading and writing page-table entries and reverse mappings.
        PteWork = "pte_work",
        /// Allocating and freeing kernel virtual addresses.
        AddressAllocation = "address_allocation",
        /// Looking up, taking and giving back ephemeral mappings.
        Ephemeral = "ephemeral",
        /// Allocating, freeing, holding and wiring frames.
        Frame = "frame",
        /// Map entries, amaps, anons, objects.
        Vm = "vm",
        /// Atomic instructions of locks, and waiting for them.
        Lock = "lock",
        /// System call entry, exit and dispatch.
        Syscall = "syscall",
        /// Context switches, sleeping, waking, run queues.
        Switch = "switch",
        /// Interrupts other than shootdowns.
        Interrupt = "interrupt",
        /// What carries data: pipes, sockets, mbufs, protocols.
        Protocol = "protocol",
        /// Attaching memory of the communication area to a process.
        IcaAttach = "ica_attach",
        /// Detaching memory of the communication area from a process.
        IcaDetach = "ica_detach",
        /// Computing checksums of packets.
        Checksum = "checksum",
        /// Starting up, before the measured part.
        Boot = "boot",
        /// Nothing to do.
        Idle = "idle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_follow_the_order() {
        for (i, c) in Cause::ALL.iter().enumerate() {
            assert_eq!(c.index(), i);
        }
        assert_eq!(Cause::Zero.about(), "Clearing pages.");
    }
}
