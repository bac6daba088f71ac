//! The plain numbers of a machine, taken from its configuration once, for the hot paths.

use crate::account::{TICK_PERIODS, TICK_TIMER_HZ};
use crate::config::{InvalidatesName, MachineConfig, Number, RefillConfig};
use crate::mmu::size::PageShifts;
use crate::mmu::tlb::{Replace, TlbGeometry, TlbShape};
use crate::outside::clock::OutsideClock;
use pageferry_hal::{Block, BlockRegisters, Instructions, Layout, LockSet, Mmu, PAGE_SIZE, Va};

/// What it costs a CPU to invalidate for all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BroadcastCycles {
    pub(crate) page: u64,
    /// To wait until all have done it.
    pub(crate) sync: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Params {
    pub(crate) layout: Layout,
    pub(crate) mmu: Mmu,
    pub(crate) asids: u32,
    pub(crate) blocks: Option<BlockRegisters>,
    /// What the machine maps by itself, before block registers.
    pub(crate) fixed: Vec<Block>,
    pub(crate) shifts: PageShifts,
    pub(crate) cpus: usize,
    pub(crate) packages: usize,
    pub(crate) threads_per_package: usize,
    pub(crate) frames: usize,
    /// Pages of devices' memory behind them.
    pub(crate) device_pages: usize,
    /// One access to a port of the interval timer.
    pub(crate) timer_access: u64,
    pub(crate) register: u64,
    pub(crate) frame_buffer_line: u64,
    pub(crate) cpi_milli: u64,
    pub(crate) smt_slowdown_milli: u64,
    pub(crate) lock_instructions: Instructions,
    /// Releasing a lock is a locked instruction, too.
    pub(crate) release_is_locked: bool,
    /// Classes of locks that cost nothing.
    pub(crate) absent_locks: LockSet,
    pub(crate) lock_waiter: u64,
    pub(crate) run_ahead: u64,
    pub(crate) atomic: u64,
    pub(crate) syscall_enter: u64,
    pub(crate) syscall_exit: u64,
    pub(crate) trap_enter: u64,
    pub(crate) trap_exit: u64,
    pub(crate) invalidate_page: u64,
    pub(crate) invalidate_all: u64,
    /// What is invalidated by a tag that is not the own, where hardware walks page tables.
    pub(crate) invalidate_other: u64,
    pub(crate) load_root: u64,
    pub(crate) context_switch: u64,
    pub(crate) halt_wake: u64,
    pub(crate) ipi_send: u64,
    pub(crate) ipi_same_package: u64,
    pub(crate) ipi_other_package: u64,
    pub(crate) ipi_entry: u64,
    pub(crate) ipi_exit: u64,
    /// A cache line written by another package.
    transfer: u64,
    /// Packages of a complex, and a cache line written by another one of them; all packages are alike without.
    complex: Option<(usize, u64)>,
    pub(crate) tlb: TlbShape,
    /// The TLB for instructions, where fetches look into one.
    pub(crate) instruction_tlb: Option<TlbShape>,
    /// A look from there into the TLB for data that hits, where that has all translations.
    pub(crate) data_hit: Option<u64>,
    pub(crate) tlb_second_cycles: u64,
    pub(crate) tlb_shared: bool,
    pub(crate) walk_overhead: u64,
    /// One further entry of a line of the hash table; `None` when each costs a load.
    pub(crate) hash_probe: Option<u64>,
    /// An invalidation of a page drops all of its set.
    pub(crate) invalidates_class: bool,
    /// An invalidation of a page reaches all CPUs.
    /// Where one CPU invalidates for all.
    pub(crate) broadcast: Option<BroadcastCycles>,
    /// Around the kernel's refill handler.
    pub(crate) refill_enter: u64,
    pub(crate) refill_exit: u64,
    /// One load of the TLB by software.
    pub(crate) tlb_load: u64,
    /// Looking at one entry of the TLB by software, where it can.
    pub(crate) search: Option<u64>,
    /// A load of a reserved entry.
    pub(crate) reserved_load: u64,
    /// Writing one block register.
    pub(crate) block_set: u64,
    pub(crate) line_bytes: usize,
    /// Colours of pages, and what it costs to write back and drop one line of a page under one of them; more if it is
    /// dirty.
    pub(crate) colours: u32,
    pub(crate) writes_through: bool,
    pub(crate) purge_line: u64,
    pub(crate) write_back_line: u64,
    /// A load that hits the first level.
    pub(crate) first_level: u64,
    pub(crate) disk: Option<DiskParams>,
    pub(crate) audio: Option<AudioParams>,
    pub(crate) nic: Option<NicParams>,
    /// From a tick of a CPU's clock to the next ([`TICK_PERIODS`](crate::account::TICK_PERIODS)).
    pub(crate) tick_cycles: u64,
}

/// Times outside of the CPUs are in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NicParams {
    pub(crate) clock: OutsideClock,
    /// Frames of memory, which is all that it reaches.
    pub(crate) frames: usize,
    pub(crate) link_mbit_s: u64,
    pub(crate) mtu: usize,
    pub(crate) transmit_slots: usize,
    pub(crate) receive_slots: usize,
    /// Of the flow ring; 0 for none.
    pub(crate) flow_slots: usize,
    pub(crate) transmit_fragments: usize,
    pub(crate) transmit_checksum: bool,
    pub(crate) receive_checksum: bool,
    pub(crate) header_split: bool,
    /// Data of a flow that is joined; 0 for none.
    pub(crate) coalesce_bytes: usize,
    pub(crate) interrupt_gap_ps: u64,
    pub(crate) dma_latency_ps: u64,
    pub(crate) dma_mb_s: u64,
    /// In cycles of the CPU.
    pub(crate) register_read: u64,
    pub(crate) register_write: u64,
    /// A line that is written back before the card reads it, besides what memory takes; `None` where it looks into
    /// caches.
    pub(crate) write_back_line: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AudioParams {
    pub(crate) bytes_per_s: u64,
    pub(crate) card_pages: u64,
    pub(crate) clock_hz: u64,
}

impl AudioParams {
    /// How long `len` bytes take.
    pub(crate) fn cycles_for(self, len: u64) -> u64 {
        (u128::from(len) * u128::from(self.clock_hz)).div_ceil(u128::from(self.bytes_per_s)) as u64
    }

    /// How many bytes go by in `cycles`.
    pub(crate) fn bytes_in(self, cycles: u64) -> u64 {
        (u128::from(cycles) * u128::from(self.bytes_per_s) / u128::from(self.clock_hz)) as u64
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskParams {
    pub(crate) blocks: u64,
    /// Seek and rotation.
    pub(crate) access: u64,
    /// What a write waits for that goes on where the last request ended.
    pub(crate) turn: u64,
    /// Moving one block.
    pub(crate) block: u64,
}

impl Params {
    /// The numbers of a valid configuration.
    pub(crate) fn from_config(c: &MachineConfig) -> Params {
        let geometry = |entries: &Number, ways: &Number| TlbGeometry {
            entries: entries.value as usize,
            ways: ways.value as usize,
        };
        let board = c.board();
        let shifts = match board.mmu {
            Mmu::Radix(format) => PageShifts {
                superpage: format.superpage_shift(),
                huge: board.huge_pages.then(|| format.huge_shift()),
                part: None,
            },
            Mmu::Soft { large, part, .. } => PageShifts {
                superpage: u32::from(large[0]),
                huge: large.get(1).map(|&shift| u32::from(shift)),
                part: part.map(u32::from),
            },
            // One further size, which nothing loads.
            Mmu::Hash => PageShifts { superpage: 20, huge: None, part: None },
        };
        let data = &c.tlb.data;
        let refill = |cost: fn(&RefillConfig) -> &Number| c.mmu.refill.as_ref().map_or(0, |r| cost(r).value);
        Params {
            layout: board.layout,
            mmu: board.mmu,
            asids: board.asids,
            blocks: board.blocks,
            fixed: c.fixed_blocks(),
            shifts,
            cpus: board.cpus,
            packages: c.cpu.packages.value as usize,
            threads_per_package: c.cpu.threads_per_package.value as usize,
            frames: board.frames,
            device_pages: board.device_memory.map_or(0, |d| d.pages()),
            timer_access: c
                .timer
                .as_ref()
                .map_or(0, |timer| timer.access_ns.value * c.cpu.clock_mhz.value / 1000),
            register: c.io.as_ref().map_or(0, |io| c.outside_cycles(&io.register_cycles)),
            frame_buffer_line: c.io.as_ref().map_or(0, |io| c.outside_cycles(&io.frame_buffer_line_cycles)),
            cpi_milli: c.cpu.cpi_milli.value,
            smt_slowdown_milli: c.cpu.smt_slowdown_milli.value,
            lock_instructions: Instructions(c.cpu.lock_instructions.value as u32),
            release_is_locked: true,
            absent_locks: LockSet::EMPTY,
            lock_waiter: c.cpu.lock_waiter_cycles.as_ref().map_or(0, |cycles| cycles.value),
            run_ahead: c.cpu.run_ahead_cycles.value,
            atomic: c.cpu.atomic_cycles.value,
            syscall_enter: c.cpu.syscall_enter_cycles.value,
            syscall_exit: c.cpu.syscall_exit_cycles.value,
            trap_enter: c.cpu.trap_enter_cycles.value,
            trap_exit: c.cpu.trap_exit_cycles.value,
            invalidate_page: c.cpu.invalidate_page_cycles.value,
            invalidate_all: c.cpu.invalidate_all_cycles.value,
            invalidate_other: c.mmu.invalidate_other_cycles.as_ref().map_or(0, |cycles| cycles.value),
            load_root: c.cpu.load_root_cycles.value,
            context_switch: c.cpu.context_switch_cycles.value,
            halt_wake: c.cpu.halt_wake_cycles.value,
            ipi_send: c.ipi.send_cycles.value,
            ipi_same_package: c.outside_cycles(&c.ipi.deliver_same_package_cycles),
            ipi_other_package: c.outside_cycles(&c.ipi.deliver_other_package_cycles),
            ipi_entry: c.ipi.entry_cycles.value,
            ipi_exit: c.ipi.exit_cycles.value,
            transfer: c.outside_cycles(&c.memory.transfer_cycles),
            complex: c.complex.as_ref().map(|c| (c.packages.value as usize, c.transfer_cycles.value)),
            tlb: TlbShape {
                first: geometry(&data.entries, &data.ways),
                superpages: data.superpage_entries.value as usize,
                huge_pages: data.gigabyte_entries.as_ref().map_or(0, |entries| entries.value as usize),
                second: c.tlb.second.as_ref().map(|s| geometry(&s.entries, &s.ways)),
                second_superpages: c
                    .tlb
                    .second
                    .as_ref()
                    .and_then(|s| s.superpages.as_ref())
                    .is_some_and(|s| s.value),
                shifts,
                replace: c.replacement(),
                reserved: c.mmu.soft.as_ref().map_or(0, |soft| soft.reserved_entries.value as usize),
            },
            instruction_tlb: c.tlb.instruction.as_ref().map(|i| TlbShape {
                first: geometry(&i.entries, &i.ways),
                superpages: 0,
                huge_pages: 0,
                second: None,
                second_superpages: false,
                shifts,
                replace: Replace::Lru,
                reserved: 0,
            }),
            data_hit: c.tlb.instruction.as_ref().and_then(|i| Some(i.data_hit_cycles.as_ref()?.value)),
            tlb_second_cycles: c.tlb.second.as_ref().map_or(0, |s| s.hit_cycles.value),
            tlb_shared: c.tlb.shared_by_siblings.value,
            walk_overhead: c.tlb.walk_overhead_cycles.value,
            hash_probe: c.mmu.hash_probe_cycles.as_ref().map(|cycles| cycles.value),
            invalidates_class: c.mmu.invalidates.as_ref().is_some_and(|i| i.value == InvalidatesName::Class),
            broadcast: c.mmu.broadcast().map(|(page, sync)| BroadcastCycles { page, sync }),
            refill_enter: refill(|r| &r.enter_cycles),
            refill_exit: refill(|r| &r.exit_cycles),
            tlb_load: refill(|r| &r.tlb_load_cycles),
            reserved_load: (c.mmu.soft.as_ref())
                .and_then(|soft| Some(soft.reserved_load_cycles.as_ref()?.value))
                .unwrap_or_else(|| refill(|r| &r.tlb_load_cycles)),
            search: c.mmu.soft.as_ref().and_then(|soft| Some(soft.search_cycles.as_ref()?.value)),
            block_set: c.mmu.blocks.as_ref().map_or(0, |b| b.set_cycles.value),
            first_level: c.cache[0].latency_cycles.value,
            line_bytes: c.cache[0].line_bytes.value as usize,
            colours: board.colours,
            writes_through: board.writes_through,
            purge_line: c.cache[0].purge_line_cycles.as_ref().map_or(0, |cycles| cycles.value),
            write_back_line: c.write_back_cycles(),
            disk: c.disk.as_ref().map(|d| DiskParams {
                blocks: (d.size_mb.value << 20) / PAGE_SIZE as u64,
                access: d.access_us.value * c.cpu.clock_mhz.value,
                turn: d.turn_us.as_ref().map_or(0, |turn| turn.value * c.cpu.clock_mhz.value),
                block: (PAGE_SIZE as u64 * c.cpu.clock_mhz.value).div_ceil(d.bandwidth_mb_s.value),
            }),
            audio: c.audio.as_ref().map(|a| AudioParams {
                bytes_per_s: a.bytes_per_s.value,
                card_pages: a.card_pages.as_ref().map_or(0, |p| p.value),
                clock_hz: c.cpu.clock_mhz.value * 1_000_000,
            }),
            tick_cycles: c.cpu.clock_mhz.value * 1_000_000 * TICK_PERIODS / TICK_TIMER_HZ,
            nic: c.nic.as_ref().map(|nic| {
                let clock = OutsideClock { mhz: c.cpu.clock_mhz.value };
                let cycles = |ns: &Number| (ns.value * clock.mhz + 500) / 1000;
                NicParams {
                    clock,
                    frames: board.frames,
                    link_mbit_s: nic.link_mbit_s.value,
                    mtu: nic.mtu_bytes.value as usize,
                    transmit_slots: nic.transmit_slots.value as usize,
                    receive_slots: nic.receive_slots.value as usize,
                    flow_slots: nic.flow_slots.as_ref().map_or(0, |n| n.value as usize),
                    transmit_fragments: nic.transmit_fragments.value as usize,
                    transmit_checksum: nic.transmit_checksum.value,
                    receive_checksum: nic.receive_checksum.value,
                    header_split: nic.header_split.value,
                    coalesce_bytes: nic.coalesce_bytes.as_ref().map_or(0, |n| n.value as usize),
                    interrupt_gap_ps: nic.interrupt_gap_ns.value * 1000,
                    dma_latency_ps: nic.dma_latency_ns.value * 1000,
                    dma_mb_s: nic.dma_mb_s.value,
                    register_read: cycles(&nic.register_read_ns),
                    register_write: cycles(&nic.register_write_ns),
                    write_back_line: nic.write_back_line_cycles.as_ref().map(|n| n.value),
                }
            }),
        }
    }
}

impl Params {
    /// What a cache line takes to `package` that another one has written.
    pub(crate) fn transfer(&self, from: usize, package: usize) -> u64 {
        match self.complex {
            Some((size, near)) if from / size == package / size => near,
            _ => self.transfer,
        }
    }

    /// The same of a line that all of `others`, a bit each, have: a load has it from the nearest of them, and a store
    /// waits for the farthest.
    pub(crate) fn transfer_from(&self, others: u64, is_store: bool, package: usize) -> u64 {
        let each = (0..self.packages).filter(|other| others >> other & 1 != 0);
        let cycles = each.map(|other| self.transfer(other, package));
        let wanted = if is_store { cycles.max() } else { cycles.min() };
        wanted.unwrap_or(0)
    }
}

/// The lowest address that one of the blocks maps; the highest there is, if there are none.
pub(crate) fn lowest<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Va {
    blocks.into_iter().map(|block| block.va).min().unwrap_or(Va(u64::MAX))
}
