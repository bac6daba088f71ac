//! Between which limits the numbers of a kernel file are.

use pageferry_sourced::{Ranges, range};

/// What a buffer of a pipe or a socket may hold: a page to 16 MB.
const MIN_BUFFER: i64 = pageferry_hal::PAGE_SIZE as i64;
pub(super) const MAX_BUFFER: i64 = 1 << 24;
/// The longest path, and frames of the largest machine.
const MAX_INSTRUCTIONS: i64 = 1_000_000;
const MAX_PAGES: i64 = 1 << 28;

/// What the numbers of a kernel file may be. What they mean is said at the fields of [`super::KernelFile`].
pub(super) const RANGES: Ranges = Ranges(&[
    range("pmap.fragmented_percent", 0, 100),
    range("pmap.scatter", 1, (1 << 20) - 1),
    range("ephemeral.entries", 0, 1 << 24),
    range("ephemeral.list_entries", 1, 1 << 24),
    range("pipe.min_direct_bytes", 1, MAX_BUFFER),
    range("pipe.*_bytes", MIN_BUFFER, MAX_BUFFER),
    range("socket.*_bytes", MIN_BUFFER, MAX_BUFFER),
    range("socket.clusters", 0, 1 << 20),
    range("disk.buffers", 8, 1 << 20),
    range("disk.dirty_buffers", 1, 1 << 20),
    range("disk.syncer.*", 0, 86_400),
    range("disk.paths.*", 0, MAX_INSTRUCTIONS),
    range("sched.quantum_ms", 1, 1_000_000),
    range("sched.hz", 1, 100_000),
    range("sched.timer_accesses", 0, 1000),
    range("sched.stack_bytes", 0, 65_536),
    range("sched.stack_frame_bytes", 0, 65_536),
    range("frames.colours", 1, 1 << 12),
    range("frames.max_colour_step", 0, 1 << 12),
    range("structures.page_bytes", 48, 256),
    range("structures.page_bytes_64", 48, 256),
    range("structures.*", 4, 1024),
    range("shadows.cluster_pages", 1, 1024),
    range("shadows.*", 0, MAX_INSTRUCTIONS),
    range("transfer.*", 0, 1000),
    range("paging.swap_mb", 1, 1 << 20),
    range("paging.cluster_pages", 1, 1024),
    range("paging.read_ahead_pages", 0, 1024),
    range("paging.heads.head_bytes", 1, 4096),
    range("paging.heads.block_bytes", 512, 4096),
    range("paging.heads.buckets", 1, 1 << 20),
    range("paging.*_pages", 0, MAX_PAGES),
    range("paging.*_percent", 0, 100),
    range("paging.*", 0, MAX_INSTRUCTIONS),
    range("pmap.*_pages", 0, MAX_PAGES),
    range("refill.*", 0, MAX_INSTRUCTIONS),
    range("tlb.sched_passes", 0, 1000),
    range("tlb.*", 0, MAX_INSTRUCTIONS),
    range("paths.*", 0, MAX_INSTRUCTIONS),
    range("net.sockets", 8, 1 << 16),
    range("net.loopback_mtu_bytes", 576, 65_535),
    range("net.loopback_packets", 1, 1 << 16),
    range("net.*_buffer_bytes", MIN_BUFFER, MAX_BUFFER),
    range("net.segment_unit_bytes", 0, 65_535),
    range("net.initial_window_bytes", 0, MAX_BUFFER),
    range("net.initial_window_segments", 1, 1000),
    range("net.ack_segments", 1, 1000),
    range("net.retransmissions", 1, 1000),
    range("net.delayed_ack_ms", 0, 10_000),
    range("net.*_ms", 1, 86_400_000),
    range("net.paths.*", 0, MAX_INSTRUCTIONS),
    range("ispc.piece_page_bytes", 1, MIN_BUFFER),
    range("ispc.*_bytes", MIN_BUFFER, MAX_BUFFER),
    range("ispc.*_entries", 0, 1 << 12),
    range("ispc.file_pages", 1, 1 << 8),
    range("ispc.network_pages", 1, 1 << 8),
    range("ispc.network_frames", 1, 1 << 7),
    range("ispc.network_buffers", 1, 1 << 7),
    range("ispc.paths.*", 0, MAX_INSTRUCTIONS),
]);
