//! Zero-copy receive as FreeBSD has it (sf_buf paper, 2.3): the stream of `flip_receive`, where the pages that the card
//! receives into may have ephemeral mappings, and into a buffer that may begin off a page boundary.
//!
//! Into whole pages at a page's address the card's pages are flipped, and their mappings end unused; into anything else
//! the bytes are copied through the mappings. The paper gives no numbers for it, and says neither which CPUs a mapping
//! is for nor what its receiver does with the data: here mappings are shared, and by `touch` the receiver looks at
//! every word or at none. What differs between kernels is counted: mappings that were made or found, invalidations, and
//! interrupts to other CPUs.

use super::flip_receive::{Destination, Receiving};
use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::OutcomeCell;
use crate::plot::{Axis, CAUSES, Chart, Plot, Stack, StackRow, Table, causes_in, parts};
use crate::record::{Metric, Record};
use crate::run::{Testbed, Workload};
use crate::text;
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Program, ReceiveMode};
use pageferry_model::{MachineConfig, Model};

/// Instructions a byte of a receiver that makes and compares words of four bytes: four to make one, four to compare.
const LOOK_INSTRUCTIONS: u32 = 2;

pub(crate) struct ZeroCopyReceive;

crate::choice! {
    /// How data is received.
    pub(crate) enum By {
        Copy = "copy",
        Flip = "flip",
    }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        socket_bytes: usize = 4096..=16 << 20,
        read_bytes: usize = 1..=16 << 20,
        /// How far behind a page boundary the receiver's buffer begins.
        offset_bytes: usize = 0..=4095,
        warmup_bytes: u64 = 0..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        by: By,
        /// The receiver compares what it gets.
        touch: bool,
    }
}

impl Workload for ZeroCopyReceive {
    const NAME: &'static str = "zero-copy-receive";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        super::weight(p.total_bytes, p.warmup_bytes)
    }

    fn metrics() -> Vec<Metric> {
        super::METRICS.into()
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let receiving = Receiving {
            into: Destination::Buffer(match p.by {
                By::Copy => ReceiveMode::Copy,
                By::Flip => ReceiveMode::Transfer,
            }),
            low_water_bytes: 1,
            touch: p.touch.then_some(LOOK_INSTRUCTIONS),
            socket_bytes: p.socket_bytes,
            read_bytes: p.read_bytes,
            offset_bytes: p.offset_bytes,
            warmup_bytes: p.warmup_bytes,
            total_bytes: p.total_bytes,
            cpu: None,
            tells_own: false,
            beside: None,
        };
        receiving.program(testbed, cell)
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        shares(of, &experiment.name).into_iter().collect()
    }
}

// ---------------------------------------------------------------------------------------- the figure

const MAPPING: &str = "kernel.net.receive_mapping";

/// It asks to flip as much at a time as its socket takes, by mappings of each page.
fn belongs(record: &Record) -> bool {
    record.setting_is("by", "flip")
        && record.setting_is(MAPPING, "ephemeral")
        && record.number("read_bytes") == record.number("socket_bytes")
}

/// What a received page costs under each kernel, flipped or copied, on each machine: the cycles of all CPUs by cause.
fn shares(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let records = || of.records().filter(|r| r.experiment == experiment && belongs(r));
    let mut machines: Vec<&str> = Vec::new();
    for record in records() {
        if !machines.contains(&record.machine.as_str()) {
            machines.push(&record.machine);
        }
    }
    let mut table = Table { head: ["machine", "kernel", "how"].map(String::from).into(), rows: Vec::new() };
    table.head.extend(CAUSES.iter().map(|(_, _, name, _)| format!("{name} (cycles)")));
    let mut groups = Vec::new();
    for machine in machines {
        let mut rows = Vec::new();
        for (how, aligned) in [("flipped", true), ("copied", false)] {
            let is_it =
                |r: &&Record| r.machine == machine && (r.number("offset_bytes") == Some(0.0)) == aligned;
            for record in records().filter(is_it) {
                let Some(bytes) = record.number("total_bytes") else { continue };
                let mut parts = parts(record, PAGE_SIZE as f64 / bytes);
                let mut row = vec![machine.to_owned(), record.kernel.clone(), how.to_owned()];
                row.extend(parts.iter().map(|part| format!("{:.0}", part.value)));
                table.rows.push(row);
                parts.retain(|part| part.name != "idle");
                let busy: f64 = parts.iter().map(|part| part.value).sum();
                let name = format!("{}, {how}", record.kernel);
                rows.push(StackRow { name, parts, shown: text::number(busy.round()) });
            }
        }
        groups.push(Stack { label: machine.to_owned(), rows });
    }
    let legend = causes_in(&groups);
    (!groups.is_empty()).then(|| Plot {
        id: "zero-copy-receive-shares".into(),
        title: "Where the cycles of a received page go, by kernel".into(),
        subtitle: "By machine: cycles of all CPUs for 4 KiB of payload, flipped into whole pages or copied into a \
                   buffer off a page boundary"
            .into(),
        chart: Chart::Stacks(groups, Axis::linear("CPU time of a page", "cycles"), 64.0),
        label: "Cycles of a page by cause, flipped and copied, under each kernel, for each machine".into(),
        legend,
        note: "Each page has an ephemeral mapping from the driver on. The original kernel tells all CPUs when it makes \
               one and when it ends; the cache of sf_buf does not, and the direct map has nothing to tell. The paper \
               has no numbers for this."
            .into(),
        table,
    })
}
