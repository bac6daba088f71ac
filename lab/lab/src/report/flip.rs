//! The figure of what a page costs that is received by copy or by flip (page-flip paper, Results: what its profiler saw
//! of locks and of flushes of the TLB): the cycles of all CPUs by cause, for each MTU and clock.

use super::axis::Axis;
use super::charts::{Stack, StackRow, stacks};
use super::figure::{Figure, Table, both};
use super::figures::{causes_in, parts, setting};
use super::looks::CAUSES;
use super::reproduction::Reproduction;
use crate::record::Record;
use crate::text;
use pageferry_hal::PAGE_SIZE;

const CLOCK: &str = "machine.cpu.clock_mhz";
const MTU: &str = "machine.nic.mtu_bytes";

/// The receiver looks at its data, and nothing but clock and MTU differs from the paper's machine.
fn belongs(record: &Record) -> bool {
    record.setting_is("touch", "true")
        && record.setting_is("processes", "1")
        && record.settings.contains_key(CLOCK)
        && !record.settings.contains_key("machine.memory.latency_cycles")
}

pub(super) fn shares(of: &Reproduction, experiment: &str) -> Option<Figure> {
    let records = || of.records().filter(|r| r.experiment == experiment && belongs(r));
    let mut places: Vec<(u64, u64)> = records()
        .filter_map(|record| Some((setting(record, MTU)? as u64, setting(record, CLOCK)? as u64)))
        .collect();
    places.sort_unstable();
    places.dedup();
    let mut table = Table { head: ["MTU", "MHz", "by"].map(String::from).into(), rows: Vec::new() };
    table.head.extend(CAUSES.iter().map(|(_, _, name, _)| format!("{name} (cycles)")));
    let mut groups = Vec::new();
    for (mtu, clock) in places {
        let mut rows = Vec::new();
        for by in ["copy", "flip"] {
            let is_it = |r: &&Record| {
                setting(r, MTU) == Some(mtu as f64)
                    && setting(r, CLOCK) == Some(clock as f64)
                    && r.setting_is("by", by)
            };
            let Some(record) = records().find(is_it) else { continue };
            let Some(bytes) = setting(record, "total_bytes") else { continue };
            let mut parts = parts(record, PAGE_SIZE as f64 / bytes);
            let mut row = vec![mtu.to_string(), clock.to_string(), by.to_owned()];
            row.extend(parts.iter().map(|part| format!("{:.0}", part.value)));
            table.rows.push(row);
            parts.retain(|part| part.name != "idle");
            let busy: f64 = parts.iter().map(|part| part.value).sum();
            rows.push(StackRow { name: by.to_owned(), parts, shown: text::number(busy.round()) });
        }
        groups.push(Stack { label: format!("{mtu}, {clock} MHz"), rows });
    }
    groups.retain(|group| !group.rows.is_empty());
    let legend = causes_in(&groups);
    let (wide, narrow) = both(|width| {
        let axis = Axis::linear("CPU time of a page", "cycles");
        stacks(
            width,
            &groups,
            &axis,
            64.0,
            "Cycles of a page by cause, by copy and by flip, for each MTU and clock",
        )
    });
    (!groups.is_empty()).then(|| Figure {
        id: "flip-shares".into(),
        experiment: experiment.into(),
        title: "Where the cycles of a received page go".into(),
        subtitle: "By MTU and clock: cycles of all CPUs for 4 KiB of payload, with the receiver looking at its \
                   data".into(),
        wide,
        narrow,
        legend,
        note: "The paper's profiler found most stalls of the flip at its locks, and the flush of the TLB painful; a \
               memory access costs more cycles the faster the clock is, and so does a lock."
            .into(),
        table,
    })
}
