//! The data dictionary: every metric that a run can have, its unit, and what it means.
//!
//! A metric has one name and one meaning in all tables. Counts of the kernel and causes of cycles say themselves what
//! they are; what experiments and the machine measure is listed here.

use pageferry_hal::{Cause, Counter};
use serde::{Deserialize, Serialize};

/// What a metric is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its name in `results.csv`; those of cycles by cause begin with `cycles.`.
    pub metric: String,
    /// Its unit; `count` for events.
    pub unit: String,
    /// What it means.
    pub about: String,
}

/// A metric of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
}

/// A metric: its name, with the unit last; its unit; what it means.
pub const fn metric(name: &'static str, unit: &'static str, about: &'static str) -> Metric {
    Metric { name, unit, about }
}

/// What experiments measure.
const RESULTS: [(&str, &str, &str); 36] = [
    ("bandwidth_mb_s", "MB/s", "Payload through the whole path in modelled time; an MB is 1,000,000 bytes."),
    ("beside_mb_s", "MB/s", "Memory that other processes computed over meanwhile, all together."),
    ("busy_bandwidth_mb_s", "MB/s", "Payload in the time in which a CPU was not idle."),
    ("busy_cycles_per_page", "cycles", "Cycles in which a CPU was not idle, for each page of payload."),
    ("cpu_percent", "%", "Time in which a CPU was not idle, of all CPUs that the kernel sees."),
    ("cycles_per_call", "cycles", "Modelled time of one call of what grows."),
    ("cycles_per_unit", "cycles", "Modelled time of one call, for each unit that it deals with."),
    ("efficiency_mbit_per_cpu_percent", "Mbit/s/%", "Throughput by CPU use."),
    ("elapsed_cycles_per_page", "cycles", "Modelled time for each page of payload."),
    ("elapsed_cycles_per_round", "cycles", "Modelled time of one round through all processes."),
    ("elapsed_cycles_per_transfer", "cycles", "Modelled time of one transfer from a process to the other."),
    ("elapsed_us", "us", "Modelled time of the measured part."),
    (
        "ephemeral_hit_rate_percent",
        "%",
        "Allocations from the cache of ephemeral mappings that found the page mapped.",
    ),
    (
        "flush_cycles_per_page",
        "cycles",
        "Cycles of TLB invalidations, the CPU's own and those of others, for each page of payload.",
    ),
    (
        "kernel_tlb_high_water",
        "count",
        "The most entries of both TLBs of a CPU that the kernel's addresses had in a sample, once warm.",
    ),
    ("kernel_tlb_misses", "count", "Misses of both TLBs at kernel addresses."),
    (
        "kernel_tlb_share_percent",
        "%",
        "Entries of both TLBs in use that the kernel's addresses had, in samples.",
    ),
    ("load_percent", "%", "Time in which a CPU was not idle."),
    ("lock_cycles_per_page", "cycles", "Cycles of locks and of waiting for them, for each page of payload."),
    (
        "million_references_per_s",
        "1e6/s",
        "References of recorded programs a second of modelled time, in millions.",
    ),
    (
        "misses_per_million_references",
        "count",
        "Misses of both TLBs for each 1,000,000 references of the program.",
    ),
    ("references", "count", "Instructions, loads and stores of recorded programs."),
    (
        "hash_misses_per_s",
        "1/s",
        "Look-ups of a translation in the hash table that did not find it, a second.",
    ),
    ("tlb_misses_per_s", "1/s", "Misses of the TLBs for data and for instructions, a second."),
    ("tlb_misses_total", "count", "Misses of the TLBs for data and for instructions together."),
    ("wall_s", "s", "Modelled time of the measured part."),
    ("local_cached_cycles", "cycles", "A local invalidation with the page-table entry in the cache."),
    ("local_cached_ns", "ns", "The same in time."),
    ("local_uncached_cycles", "cycles", "A local invalidation with the page-table entry in memory."),
    ("local_uncached_ns", "ns", "The same in time."),
    ("pair_cycles", "cycles", "An allocation and a release of an ephemeral mapping."),
    ("pair_ns", "ns", "The same in time."),
    ("remote_cycles", "cycles", "A shootdown, as its sender sees it."),
    ("remote_ns", "ns", "The same in time."),
    ("throughput_mbit_s", "Mbit/s", "Payload through the whole path in modelled time, in 1,000,000 bits."),
    (
        "tlb_invalidations",
        "count",
        "Pages invalidated in the own TLB, and pages whose invalidation was requested of others.",
    ),
];

/// What a step of communication by a common area takes.
const ISPC: [(&str, &str, &str); 14] = [
    ("time_us", "us", "Modelled time of one step, from the sender's call to the receiver's first access."),
    ("process_switch_us", "us", "Of that: sleeping, waking, choosing the next thread and switching to it."),
    ("first_access_us", "us", "Of that: the receiver's first access to what came, with the misses in it."),
    ("ica_detach_us", "us", "Of that: detaching memory of the area from its sender."),
    ("ica_attach_us", "us", "Of that: attaching memory of the area to its receiver."),
    ("system_call_us", "us", "Of that: entering and leaving the kernel."),
    ("other_us", "us", "Of that: all else, such as tests and queues."),
    ("round_us", "us", "Modelled time of a request, its return, and what the application does beside them."),
    ("tlb_misses_per_round", "count", "Misses of the TLB for data in all of that."),
    (
        "message_us",
        "us",
        "Modelled time from handing a message over until the other process has gone over it.",
    ),
    ("tlb_misses_per_step", "count", "Misses of the TLB for data in one step."),
    ("entries_written_per_step", "count", "Reserved TLB entries written or cleared in one step."),
    ("call_us", "us", "Modelled time of a call that reads or writes a file."),
    ("tlb_misses_per_call", "count", "Misses of the TLB for data in one such call."),
];

/// What a web server does.
const WEB: [(&str, &str, &str); 4] = [
    ("requests_per_s", "1/s", "Requests answered, a second of modelled time."),
    ("bytes_per_request", "bytes", "Bytes that clients heard, for each request that was answered meanwhile."),
    ("log_lines_skipped", "count", "Lines of the log that could not be read."),
    ("log_first_skipped_line", "", "The number of the first of them."),
];

/// What a short mapping costs, by its parts.
const SCHEMES: [(&str, &str, &str); 4] = [
    (
        "address_cycles_per_page",
        "cycles",
        "Allocating and freeing kernel addresses, for each page that was mapped for a moment.",
    ),
    ("local_cycles_per_page", "cycles", "Invalidations in the own TLB, likewise."),
    (
        "remote_cycles_per_page",
        "cycles",
        "Invalidations in other TLBs, on the CPUs that ask and on those that are asked.",
    ),
    ("mapping_cycles_per_page", "cycles", "Making, finding and ending mappings, likewise."),
];

/// What PostMark tells of itself.
const POSTMARK: [(&str, &str, &str); 9] = [
    ("transactions_per_s", "1/s", "PostMark's transactions, a second of modelled time while it makes them."),
    (
        "read_mb_s",
        "MB/s",
        "Bytes of files read, in the time of the whole of PostMark; an MB is 1,000,000 bytes.",
    ),
    ("write_mb_s", "MB/s", "Bytes of files written, likewise."),
    ("files_created", "count", "Files that PostMark made."),
    ("files_read", "count", "Files that it read."),
    ("files_appended", "count", "Files that it made longer."),
    ("files_deleted", "count", "Files that it took away."),
    ("file_bytes_read", "bytes", "Bytes that it read."),
    ("file_bytes_written", "bytes", "Bytes that it wrote."),
];

/// What the machine counts.
const HARDWARE: [(&str, &str, &str); 18] = [
    ("tlb_lookups", "count", "Look-ups in TLBs for data."),
    ("tlb_hits", "count", "Look-ups that found an entry, in either level."),
    ("tlb_second_level_hits", "count", "Those that found it in the second level."),
    ("tlb_misses", "count", "Look-ups that found none."),
    ("walks", "count", "Walks of page tables by hardware."),
    ("accesses", "count", "Accesses to memory, each of a cache line."),
    ("page_invalidations", "count", "Invalidations of one page that a CPU executed."),
    ("ipis_sent", "count", "Interprocessor interrupts sent, one for each CPU."),
    ("interrupts", "count", "Interrupts taken."),
    ("bytes_copied_by_hardware", "bytes", "Bytes that copies by CPUs moved."),
    ("context_switches", "count", "Switches of contexts, the idle ones among them."),
    (
        "stale_uses_in_window",
        "count",
        "Uses of translations that a flush under way was about to remove: no errors.",
    ),
    ("stale_uses", "count", "Uses of stale translations: errors."),
    ("fetch_tlb_lookups", "count", "Look-ups in TLBs for instructions, where a machine describes them."),
    ("fetch_tlb_hits", "count", "Those that found an entry."),
    ("fetch_tlb_misses", "count", "Those that found none."),
    ("icache_lookups", "count", "Look-ups in instruction caches, where a machine describes them."),
    ("icache_hits", "count", "Those that found the line."),
];

/// Beside these.
const MORE: [(&str, &str, &str); 3] = [
    ("icache_misses", "count", "Look-ups in instruction caches that did not find the line."),
    ("cycles.total", "cycles", "Cycles of all CPUs over the measured part: what all causes sum to."),
    ("payload_ok", "0 or 1", "Every byte arrived as it was sent."),
];

/// All metrics: those of every run, and those of workloads.
pub fn common_dictionary<'a>(of_workloads: impl Iterator<Item = &'a Metric>) -> Vec<Entry> {
    let listed =
        RESULTS.into_iter().chain(ISPC).chain(WEB).chain(POSTMARK).chain(SCHEMES).chain(HARDWARE).chain(MORE);
    let entry = |metric: &str, unit: &str, about: &str| Entry {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        about: about.to_owned(),
    };
    let mut all: Vec<Entry> = listed.map(|(metric, unit, about)| entry(metric, unit, about)).collect();
    let bytes = |c: &Counter| matches!(c, Counter::BytesCopied | Counter::TransferBytesCopied);
    all.extend(
        Counter::ALL.iter().map(|c| entry(c.name(), if bytes(c) { "bytes" } else { "count" }, c.about())),
    );
    all.extend(Cause::ALL.iter().map(|c| entry(&format!("cycles.{}", c.name()), "cycles", c.about())));
    for metric in of_workloads {
        if all.iter().all(|entry| entry.metric != metric.name) {
            all.push(entry(metric.name, metric.unit, metric.about));
        }
    }
    all
}
