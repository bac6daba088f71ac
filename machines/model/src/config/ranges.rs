//! What the numbers of a machine file may be.

use pageferry_hal::{CpuSet, PAGE_SIZE};
use pageferry_sourced::{Ranges, range};

/// The largest cost of one action: far above what any takes, and small enough for a run to come to its end with it.
pub(super) const MAX_COST: i64 = 1_000_000;

/// What the numbers of a machine file may be. What they mean is said at the fields of
/// [`MachineConfig`](super::MachineConfig).
pub const RANGES: Ranges = Ranges(&[
    range("cpu.clock_mhz", 1, 100_000),
    range("cpu.packages", 1, CpuSet::MAX_CPUS as i64),
    range("cpu.threads_per_package", 1, CpuSet::MAX_CPUS as i64),
    range("complex.packages", 1, CpuSet::MAX_CPUS as i64),
    range("cpu.cpi_milli", 1, 1_000_000),
    range("cpu.loop_cpi_milli", 1, 1_000_000),
    range("cpu.lock_instructions", 0, 100_000),
    range("cpu.run_ahead_cycles", 0, 1_000_000),
    range("cpu.smt_slowdown_milli", 1000, 100_000),
    range("memory.clock_mhz", 1, 100_000),
    range("memory.latency_cycles", 1, MAX_COST),
    range("memory.dram.clock_cycles", 1, 1000),
    range("memory.dram.beat_bytes", 1, 4096),
    range("memory.dram.*_clocks", 0, 100),
    range("memory.dram.max_*", 1, 64),
    range("*_cycles", 0, MAX_COST),
    range("memory.latency_ns", 1, MAX_COST / 10),
    range("memory.size_mb", 1, 1 << 16),
    range("tlb.*.entries", 1, 1 << 16),
    range("tlb.*.ways", 0, 1 << 16),
    range("tlb.data.superpage_entries", 0, 1 << 16),
    range("tlb.data.gigabyte_entries", 0, 1 << 16),
    range("mmu.asid_bits", 1, 20),
    range("mmu.soft.reserved_entries", 0, 1 << 16),
    range("mmu.blocks.registers", 1, 16),
    range("mmu.blocks.instruction_registers", 1, 16),
    range("mmu.blocks.*_bytes", PAGE_SIZE as i64, 1 << 32),
    range("mmu.area.len_bytes", PAGE_SIZE as i64, 1 << 32),
    // The Alpha's addresses have 43 bits, those of all others with areas 32.
    range("mmu.area.va", 0, (1 << 43) - 1),
    range("mmu.area.*", 0, (1 << 32) - 1),
    // The model keeps the order of use of a set in one word.
    range("*cache.ways", 1, 16),
    range("*cache.size_bytes", 1, 1 << 30),
    range("*cache.line_bytes", 8, 4096),
    range("timer.access_ns", 0, 1_000_000),
    range("io.register_pages", 1, 1 << 12),
    range("io.frame_buffer_bytes", 1 << 17, 1 << 26),
    range("disk.size_mb", 1, 1 << 22),
    range("disk.access_us", 0, 10_000_000),
    range("disk.turn_us", 0, 10_000_000),
    range("disk.bandwidth_mb_s", 1, 100_000),
    range("audio.bytes_per_s", 1000, 100_000_000_000),
    range("audio.card_pages", 1, 1024),
    range("nic.link_mbit_s", 1, 1_000_000),
    // What every link has to carry (RFC 791), and jumbo frames.
    range("nic.mtu_bytes", 68, 9216),
    range("nic.flow_slots", 0, 4096),
    range("nic.*_slots", 2, 4096),
    range("nic.transmit_fragments", 1, 256),
    range("nic.interrupt_gap_ns", 0, 1_000_000_000),
    range("nic.dma_latency_ns", 0, 1_000_000),
    range("nic.dma_mb_s", 1, 1_000_000),
    range("nic.register_*_ns", 0, 1_000_000),
    range("nic.coalesce_bytes", 0, 61_440),
    range("nic.write_back_line_cycles", 0, 10_000),
]);
