//! The ways to receive a stream that systems have today: the stream of `flip_receive`, copied, flipped, shown in a
//! window (Linux: `TCP_ZEROCOPY_RECEIVE`), or put by the card into memory of the process's own (io_uring's zero-copy
//! receive). And a bound on all of them: bytes that are received and thrown away, which no card that places data
//! directly, nor RDMA, could receive at less as long as the kernel has TCP.
//!
//! A window shows whole pages only. What comes in other pieces is received by copy, as the call says that it must be. A
//! receiver waits until so much is there as it asks for, however it gets it (`SO_RCVLOWAT`): so many pages one call can
//! move. With `touch` it looks at every word, else at none.

use super::flip_receive::{Destination, Reader, Receiving};
use crate::error::LabError;
use crate::kit::OutcomeCell;
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Program, ReceiveMode};
use pageferry_model::{MachineConfig, Model};

/// Instructions a byte of a receiver that makes and compares words of eight bytes: four to make one, four to compare.
const LOOK_INSTRUCTIONS: u32 = 1;

pub(crate) struct ReceiveWays;

crate::choice! {
    /// How data is received.
    pub(crate) enum By {
        Copy = "copy",
        Flip = "flip",
        Window = "window",
        Area = "area",
        Nothing = "nothing",
        Auto = "auto",
    }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        socket_bytes: usize = 4096..=16 << 20,
        read_bytes: usize = 4096..=16 << 20,
        area_bytes: usize = 8192..=1 << 30,
        warmup_bytes: u64 = 0..=1 << 32,
        /// A window may show the rest of a page more than the warm-up.
        total_bytes: u64 = 4096..=1 << 40,
        by: By,
        reader: Reader,
        /// The receiver compares what it gets.
        touch: bool,
        /// It waits for as much as it asks for.
        waits: bool,
    }
}

impl Workload for ReceiveWays {
    const NAME: &'static str = "receive-ways";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        super::weight(p.total_bytes, p.warmup_bytes)
    }

    fn metrics() -> Vec<Metric> {
        let own = metric(
            "receiver_us_per_mb",
            "us",
            "Busy time of the receiver's CPU, where the card interrupts another, for each MiB of payload: what a \
             measurement of the process alone sees.",
        );
        super::METRICS.into_iter().chain([own.of_some_runs()]).collect()
    }

    /// A card that fills an area has a ring of its own for that.
    fn adapt(p: &Parameters, machine: &mut MachineConfig) {
        let by_area = machine.nic.as_mut().filter(|_| p.by == By::Area);
        if let Some(nic) = by_area
            && nic.flow_slots.as_ref().is_none_or(|slots| slots.value == 0)
        {
            nic.flow_slots = Some(nic.receive_slots.clone());
        }
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let cpu = p
            .reader
            .cpu(&testbed.machine.config, testbed.seed)
            .map_err(|lacking| testbed.incompatible(lacking))?;
        let splits = testbed.machine.config.nic.as_ref().is_some_and(|nic| nic.header_split.value);
        if p.by == By::Area && !splits {
            return Err(
                testbed.incompatible("by = area: expected a card that splits headers off (nic.header_split)")
            );
        }
        if p.by == By::Nothing && p.touch {
            return Err(testbed
                .incompatible("touch = true: expected false, for by = nothing leaves nothing to look at"));
        }
        let receiving = Receiving {
            into: match p.by {
                By::Copy => Destination::Buffer(ReceiveMode::Copy),
                By::Flip => Destination::Buffer(ReceiveMode::Transfer),
                By::Auto => Destination::Buffer(ReceiveMode::Auto),
                By::Window => Destination::Window,
                By::Area => Destination::Area(p.area_bytes.next_multiple_of(PAGE_SIZE)),
                By::Nothing => Destination::Nowhere,
            },
            touch: p.touch.then_some(LOOK_INSTRUCTIONS),
            socket_bytes: p.socket_bytes,
            read_bytes: p.read_bytes,
            low_water_bytes: if p.waits { p.read_bytes } else { 1 },
            offset_bytes: 0,
            warmup_bytes: p.warmup_bytes,
            total_bytes: p.total_bytes,
            cpu,
            tells_own: true,
            beside: None,
        };
        receiving.program(testbed, cell)
    }
}
