//! The figure of a message by every mechanism on every machine: its time by cause, against that of a pipe that copies.
//! Where the kernel may tag TLB entries, the machine is there twice, both times against the pipe without tags.

use super::axis::Axis;
use super::charts::{Stack, StackRow, stacks};
use super::figure::{Figure, Table, both};
use super::figures::{causes_in, parts};
use super::reproduction::Reproduction;

/// The mechanisms as they are drawn: name, and the settings that say so.
const MECHANISMS: [(&str, &[(&str, &str)]); 12] = [
    ("pipe, copied", &[("by", "pipe"), ("kernel.pipe.direct", "false")]),
    ("pipe, mapped", &[("by", "pipe"), ("kernel.pipe.direct", "true")]),
    ("socket", &[("by", "socket")]),
    ("loan", &[("by", "loan")]),
    ("transfer", &[("by", "transfer")]),
    ("loan and transfer", &[("by", "both")]),
    ("pass", &[("by", "pass")]),
    ("auto", &[("by", "auto")]),
    ("server, random", &[("by", "ispc"), ("kernel.ispc.method", "random")]),
    ("server, previous", &[("by", "ispc"), ("kernel.ispc.method", "previous")]),
    ("server, proposed", &[("by", "ispc"), ("kernel.ispc.method", "proposed")]),
    ("server, migrating", &[("by", "ispc"), ("kernel.ispc.method", "migrating")]),
];

pub(super) fn by_mechanism(of: &Reproduction, experiment: &str) -> Option<Figure> {
    let mut groups = Vec::new();
    let mut table = Table { head: vec!["machine".into()], rows: Vec::new() };
    table.head.extend(MECHANISMS.iter().map(|(name, _)| format!("{name}, us")));
    for machine in of.machines_of(experiment) {
        let by = |settings: &[(&str, &str)], tagged: bool| {
            let ran = of.records().filter(|r| r.experiment == experiment && r.machine == machine.name);
            let mut ran = ran.filter(|r| r.setting_is("kernel.pmap.tags", "true") == tagged);
            let record = ran.find(|r| settings.iter().all(|(key, word)| r.setting_is(key, word)))?;
            Some((record, record.metric("message_us")?))
        };
        let Some((_, base_us)) = by(MECHANISMS[0].1, false) else { continue };
        for tagged in [false, true] {
            let label = if tagged { format!("{}, tags", machine.name) } else { machine.name.clone() };
            let (mut row, mut rows) = (vec![label.clone()], Vec::new());
            for (name, settings) in MECHANISMS {
                let Some((record, time_us)) = by(settings, tagged) else {
                    row.push(String::new());
                    continue;
                };
                row.push(format!("{time_us:.2}"));
                let rounds = record.settings.get("rounds").and_then(|s| s.number()).unwrap_or(1) as f64;
                // In percent of what the pipe takes: of CPU time, for half a round.
                let factor = machine.nanoseconds(1.0) / 1000.0 / (2.0 * rounds) / base_us * 100.0;
                let mut parts = parts(record, factor);
                parts.retain(|part| part.name != "idle");
                let shown =
                    if time_us < 10.0 { format!("{time_us:.2} us") } else { format!("{time_us:.0} us") };
                rows.push(StackRow { name: name.into(), parts, shown });
            }
            if !rows.is_empty() {
                table.rows.push(row);
                groups.push(Stack { label, rows });
            }
        }
    }
    let legend = causes_in(&groups);
    let (wide, narrow) = both(|width| {
        let axis = Axis::linear("CPU time of a message", "% of a pipe that copies");
        stacks(width, &groups, &axis, 68.0, "CPU time of a message by cause, for each machine and mechanism")
    });
    (!groups.is_empty()).then(|| Figure {
        id: "message-by-mechanism".into(),
        experiment: experiment.into(),
        title: "What a message costs, by every mechanism on every machine".into(),
        subtitle: "CPU time by cause, in percent of the time of a pipe that copies on the same machine; behind each \
                   bar the time".into(),
        wide,
        narrow,
        legend,
        note: "The receiver reads every word and writes another in its place: that is the user code of each bar, and \
               it is the same for all. Where a machine has several CPUs, its bars are what all of them spend, without \
               idling. With tags, TLB entries of a process stay over switches, where hardware walks page tables: what \
               is copied to one place again and again is still there, what was attached, lent or passed had to be \
               invalidated."
            .into(),
        table,
    })
}
