//! The figure of one step of communication by a common area (SH-4 paper, Figure 2): its parts, stacked, for each
//! operation and each way to attach memory.

use super::axis::Axis;
use super::charts::{Part, Stack, StackRow, stacks};
use super::figure::{Figure, Key, Table, both};
use super::reproduction::Reproduction;
use crate::record::Record;

/// The parts, as the paper draws them: metric, colour, sign, name.
const PARTS: [(&str, &str, &str, &str); 6] = [
    ("process_switch_us", "sys", "Y", "process switch"),
    ("first_access_us", "tlb", "T", "first access"),
    ("ica_detach_us", "local", "D", "detachment"),
    ("ica_attach_us", "pte", "A", "attachment"),
    ("system_call_us", "kva", "S", "system call"),
    ("other_us", "proto", "O", "other"),
];

const OPS: [&str; 4] = ["sync-request", "async-request", "sync-return", "async-return"];
const METHODS: [&str; 4] = ["random", "previous", "proposed", "migrating"];

pub(super) fn steps(of: &Reproduction, experiment: &str) -> Option<Figure> {
    let mut groups = Vec::new();
    let head = ["machine", "operation", "data", "method", "us"].into_iter().chain(PARTS.map(|part| part.3));
    let head = head.chain(["TLB misses", "entries written"]);
    let mut table = Table { head: head.map(String::from).collect(), rows: Vec::new() };
    for machine in of.machines_of(experiment) {
        for op in OPS {
            for data in ["false", "true"] {
                let mut rows = Vec::new();
                for method in METHODS {
                    let is_it = |r: &&Record| {
                        r.experiment == experiment
                            && r.machine == machine.name
                            && r.setting_is("op", op)
                            && r.setting_is("data", data)
                            && r.setting_is("kernel.ispc.method", method)
                    };
                    let Some(record) = of.records().find(is_it) else { continue };
                    let metric = |name: &str| record.metric(name).unwrap_or(0.0);
                    let time = metric("time_us");
                    let mut row: Vec<String> = [&machine.name, op, data, method].map(String::from).to_vec();
                    row.push(format!("{time:.2}"));
                    row.extend(PARTS.map(|(name, ..)| format!("{:.2}", metric(name))));
                    row.push(format!("{:.1}", metric("tlb_misses_per_step")));
                    row.push(format!("{:.1}", metric("entries_written_per_step")));
                    table.rows.push(row);
                    let part = |(name, colour, sign, label): (&str, &'static str, &'static str, &str)| Part {
                        colour,
                        sign,
                        name: label.into(),
                        value: metric(name),
                    };
                    let parts = PARTS.map(part).into();
                    rows.push(StackRow { name: method.into(), parts, shown: format!("{time:.1}") });
                }
                let with = if data == "true" { "with data" } else { "without data" };
                if !rows.is_empty() {
                    groups.push(Stack { label: format!("{op}, {with}"), rows });
                }
            }
        }
    }
    let legend = PARTS.map(|(_, colour, sign, name)| Key::part(colour, sign, name)).into();
    let (wide, narrow) = both(|width| {
        let axis = Axis::linear("time of one step", "us");
        stacks(
            width,
            &groups,
            &axis,
            46.0,
            "Time of one step of communication by its parts, for each operation and method",
        )
    });
    (!groups.is_empty()).then(|| Figure {
        id: "ispc-steps".into(),
        experiment: experiment.into(),
        title: "What a request or a return between processes takes".into(),
        subtitle: "Microseconds, by operation, data, and how memory is attached".into(),
        wide,
        narrow,
        legend,
        note: "SH-4 paper, Figure 2. By how much random is slower is held out of what the paper says here: it is \
               predicted without it. By the method `migrating`, which the paper does not have, a thread crosses into \
               its server: it has no asynchronous steps."
            .into(),
        table,
    })
}
