//! What the kernel counts: calls, threads, and what carries data.

use pageferry_ephemeral::EphemeralCounter;
use pageferry_hal::Metric;
use pageferry_pmap::PmapCounter;
use pageferry_vm::VmCounter;

pageferry_hal::counters! {
    /// What the kernel counts: calls, threads, and what carries data.
    pub enum KernelCounter from pageferry_vm::VmCounter::END => {
        /// Interprocessor interrupts sent to make an idle CPU look at the run queue.
        ReschedIpis = "resched_ipis",
        /// System calls.
        Syscalls = "syscalls",
        /// Context switches.
        Switches = "switches",
        /// Sleeps.
        Sleeps = "sleeps",
        /// Threads made runnable by wakeups.
        Wakeups = "wakeups",
        /// Bytes moved by kernel copies.
        BytesCopied = "bytes_copied" in "bytes",
        /// Pipe writes that went through the kernel buffer.
        PipeBufferedWrites = "pipe_buffered_writes",
        /// Pipe writes that handed over wired pages.
        PipeDirectWrites = "pipe_direct_writes",
        /// Clusters of mbufs taken from their pool.
        Clusters = "clusters",
        /// Pages that a sender lent to a socket.
        PagesLent = "pages_lent",
        /// Loans that were refused to a socket; the bytes were copied.
        LoansRefused = "loans_refused",
        /// Pages of clusters that became a receiver's.
        PagesDonated = "pages_donated",
        /// Bytes that a process got where a card has put them in its receive area.
        BytesPlaced = "bytes_placed" in "bytes",
        /// Pages on loan that a receiver got.
        PagesLentOn = "pages_lent_on",
        /// Bytes that a receiver by transfer got by copy all the same.
        TransferBytesCopied = "transfer_bytes_copied" in "bytes",
        /// Packets that the Internet protocols have taken in.
        PacketsReceived = "packets_received",
        /// Packets that they have handed to an interface.
        PacketsSent = "packets_sent",
        /// Requests that processes have made of servers.
        IspcRequests = "ispc_requests",
        /// Sleeps for want of a reserved TLB entry.
        EntrySleeps = "entry_sleeps",
        /// Pages that a driver got to receive into, each with an ephemeral mapping.
        ReceivePages = "receive_pages",
        /// Clusters that a driver got to receive into because there was no such page, or no mapping for it.
        ReceivePagesRefused = "receive_pages_refused",
        /// Threads that ran before one that had waited longer, because the TLB had more of their spaces.
        TlbChoices = "tlb_choices",
    }
}

/// All that is counted, floor by floor.
pub fn metrics() -> impl Iterator<Item = Metric> {
    let floors =
        [PmapCounter::METRICS, EphemeralCounter::METRICS, VmCounter::METRICS, KernelCounter::METRICS];
    floors.into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_place_in_the_list() {
        for (place, metric) in metrics().enumerate() {
            assert_eq!(metric.index(), place, "{}", metric.name());
        }
        assert_eq!(metrics().count(), usize::from(KernelCounter::END));
        assert!(metrics().all(|metric| metrics().filter(|other| other.name() == metric.name()).count() == 1));
    }
}
