//! The figures of the compile of a kernel (PPC paper): where the time goes under each mapping of the kernel and each
//! way to handle a miss, and whose the TLB's entries are.

use super::by_use::{self, Counted};
use crate::judge::Reproduction;
use crate::plot::{Axis, Bar, Chart, Group, HERE, Key, Part, Plot, Stack, StackRow, Table, causes_in, parts};
use crate::record::{Record, RunResult};
use crate::text;
use pageferry_hal::MemoryUse;

/// What the table tells of refills and of the hash table.
const EVENTS: [&str; 5] =
    ["nested_refills", "hash_evictions", "hash_users_displaced", "hash_kernel_displaced", "hash_reclaimed"];

/// All charts of the experiment whose runs are there.
pub(super) fn all(of: &Reproduction, experiment: &str) -> Vec<Plot> {
    // They hold mappings against each other: of runs with one alone there is nothing to be seen.
    let by_blocks = |run: &&RunResult| run.record.experiment == experiment && name(&run.record)[0] != "pte";
    if !of.firsts().any(|run| by_blocks(&run)) {
        return Vec::new();
    }
    [time, entries, uses].into_iter().filter_map(|plot| plot(of, experiment)).collect()
}

/// What the settings of a run are called: the mapping, how misses are handled, whether there is a hash table, and
/// whether files are found in memory.
pub(super) fn name(record: &Record) -> [String; 4] {
    let word = |key: &str| record.settings.get(key).map(ToString::to_string).unwrap_or_default();
    let hash = if word("kernel.refill.hash") == "false" { "none" } else { "hash table" };
    [word("kernel.pmap.mapping"), word("kernel.refill.reload"), hash.into(), word("cache")]
}

/// The runs of the experiment on a machine: by how misses are handled, then by mapping.
pub(super) fn runs<'a>(of: &'a Reproduction, experiment: &str, machine: &str) -> Vec<&'a Record> {
    let mut runs: Vec<&Record> = of
        .firsts()
        .map(|run| &run.record)
        .filter(|r| r.experiment == experiment && r.machine == machine)
        .collect();
    let place = |all: &[&str], word: &str| all.iter().position(|w| *w == word).unwrap_or(all.len());
    runs.sort_by_key(|r| {
        let [mapping, reload, hash, cache] = name(r);
        let reload = place(&["slow", "slow-insert", "fast"], &reload);
        (reload, hash == "none", cache == "cold", place(&["pte", "bat", "bat-io"], &mapping))
    });
    runs
}

/// The run with the kernel mapped by pages that another one is held against.
pub(super) fn by_pages<'a>(runs: &[&'a Record], record: &Record) -> Option<&'a Record> {
    let [_, others @ ..] = name(record);
    let is_it = |r: &&&Record| {
        let [mapping, its @ ..] = name(r);
        mapping == "pte" && its == others
    };
    runs.iter().find(is_it).copied()
}

/// How the kernel that the paper began with handles a miss.
fn base_reload(machine: &str) -> &'static str {
    if machine.starts_with("ppc603") { "slow-insert" } else { "slow" }
}

pub(super) fn label(record: &Record) -> String {
    let [mapping, reload, hash, cache] = name(record);
    let without = if hash == "none" { ", no hash table" } else { "" };
    let from = if cache == "cold" { ", from disk" } else { "" };
    format!("{mapping}, {reload}{without}{from}")
}

fn time(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let mut groups = Vec::new();
    let head = ["machine", "mapping", "misses", "found in", "files", "s", "against pages", "TLB misses"];
    let head = head.into_iter().chain(["against pages", "hash table misses", "against pages", "nested"]);
    let head =
        head.chain(["entries that gave way", "programs' for the kernel's", "the kernel's for programs'"]);
    let head = head.chain(["entries reclaimed"]);
    let mut table = Table { head: head.map(String::from).collect(), rows: Vec::new() };
    for machine in of.machines_of(experiment) {
        let runs = runs(of, experiment, &machine.name);
        let mut rows = Vec::new();
        for record in &runs {
            let mut row = vec![machine.name.clone()];
            row.extend(name(record));
            let of_run = |r: &Record, metric: &str| r.metric(metric).unwrap_or(0.0);
            let base = by_pages(&runs, record);
            let fell = |metric: &str| match base.map(|base| of_run(base, metric)) {
                Some(before) if before > 0.0 => {
                    format!("{:+.1} %", 100.0 * (of_run(record, metric) / before - 1.0))
                }
                _ => String::new(),
            };
            let seconds = of_run(record, "wall_s");
            row.push(format!("{seconds:.3}"));
            row.push(fell("wall_s"));
            for metric in ["tlb_misses_total", "hash_misses"] {
                row.push(text::grouped(of_run(record, metric) as i64));
                row.push(fell(metric));
            }
            for metric in EVENTS {
                row.push(text::grouped(of_run(record, metric) as i64));
            }
            table.rows.push(row);
            let factor = machine.nanoseconds(1.0) / 1e9;
            let mut parts = parts(record, factor);
            parts.retain(|part| part.name != "idle");
            rows.push(StackRow { name: label(record), parts, shown: format!("{seconds:.2}") });
        }
        groups.push(Stack { label: machine.name.clone(), rows });
    }
    let legend = causes_in(&groups);
    groups.iter().any(|g| !g.rows.is_empty()).then(|| Plot {
        id: "compile-time".into(),
        title: "What the compile of a kernel spends its time on".into(),
        subtitle: "Seconds, by how the kernel is mapped and how a TLB miss is handled".into(),
        chart: Chart::Stacks(groups, Axis::linear("time of the compile", "s"), 46.0),
        label: "Time of the compile by cause, for each mapping and each way to handle a miss".into(),
        legend,
        note: "How much TLB misses, hash table misses and the time fall by the blocks is held out of what the paper \
               says here: these are predictions, made without it. The paper's compile had 219 million TLB misses, 1 \
               million hash table misses and took 10 minutes, of which this one is less than a hundredth. Bars leave \
               out the time in which the CPU waits for the disk; the numbers beside them have it."
            .into(),
        table,
    })
}

fn entries(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let mut groups = Vec::new();
    let head =
        ["machine", "mapping", "misses", "found in", "files", "the kernel's share, %", "its most entries"];
    let mut table = Table { head: head.map(String::from).to_vec(), rows: Vec::new() };
    for machine in of.machines_of(experiment) {
        let mut bars = Vec::new();
        for record in runs(of, experiment, &machine.name) {
            let metric = |name: &str| record.metric(name).unwrap_or(0.0);
            let share = metric("kernel_tlb_share_percent");
            let mut row = vec![machine.name.clone()];
            row.extend(name(record));
            row.extend([format!("{share:.2}"), format!("{:.0}", metric("kernel_tlb_high_water"))]);
            table.rows.push(row);
            let [mapping, reload, hash, cache] = name(record);
            // Under blocks there is nothing to be seen; one bar says so.
            if hash == "none" || (mapping != "pte" && label(record) != "bat, slow") {
                continue;
            }
            // Where it is compared: the 603 looks into the hash table in assembler, the 604 by hardware.
            let is_compared = mapping == "pte" && cache != "cold" && reload == base_reload(&machine.name);
            let published =
                of.published("bat-os-third").filter(|_| is_compared).and_then(|number| number.value);
            bars.push(Bar {
                series: HERE.into(),
                name: label(record),
                value: share,
                shown: format!("{share:.1}"),
                published,
            });
        }
        groups.push(Group { label: machine.name.clone(), bars });
    }
    groups.iter().any(|g| !g.bars.is_empty()).then(|| Plot {
        id: "compile-entries".into(),
        title: "The kernel's share of the TLB".into(),
        subtitle: "Percent of the entries in use, in samples every 10,000 cycles".into(),
        chart: Chart::Bars(groups, Axis::linear("share of the entries in use", "%")),
        label: "The kernel's share of the TLB's entries".into(),
        legend: vec![Key::bar(HERE, HERE), Key::published(HERE, HERE)],
        note: "The paper does not say on which of its machines, and with which handlers, a third of the entries were \
               the kernel's."
            .into(),
        table,
    })
}

/// How a use is drawn, and what it is called.
fn look(what: MemoryUse) -> (&'static str, &'static str, &'static str) {
    match what {
        MemoryUse::Users => ("user", "U", "programs' own addresses"),
        MemoryUse::Text => ("copy", "X", "kernel text"),
        MemoryUse::Data => ("tlb", "D", "kernel data"),
        MemoryUse::Stacks => ("local", "S", "kernel stacks"),
        MemoryUse::Tables => ("pte", "T", "page tables, hash table"),
        MemoryUse::Files => ("eph", "F", "page cache"),
        MemoryUse::Programs => ("vm", "P", "pages cleared and copied"),
        MemoryUse::Buffers => ("proto", "B", "pipe buffers"),
        MemoryUse::Devices => ("lock", "I", "devices"),
    }
}

/// What is counted by use, and what it is called in the table.
const COUNTED: [(Counted, &str); 3] = [
    (Counted::Entries, "entries in use, %"),
    (Counted::TlbMisses, "TLB misses"),
    (Counted::HashMisses, "hash table misses, %"),
];

fn uses(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let mut groups = Vec::new();
    let head = ["machine", "mapping", "misses", "found in", "files", "what"].into_iter();
    let head = head.chain(MemoryUse::ALL.map(|what| look(what).2)).map(String::from).collect();
    let mut table = Table { head, rows: Vec::new() };
    for machine in of.machines_of(experiment) {
        let mut rows = Vec::new();
        for record in runs(of, experiment, &machine.name) {
            let value = |what, counted| record.metric(by_use::name(what, counted)).unwrap_or(0.0);
            for (counted, called) in COUNTED {
                let mut row = vec![machine.name.clone()];
                row.extend(name(record));
                row.push(called.to_owned());
                row.extend(MemoryUse::ALL.map(|what| match counted {
                    Counted::Entries | Counted::HashMisses => format!("{:.2}", value(what, counted)),
                    Counted::TlbMisses => text::grouped(value(what, counted) as i64),
                }));
                table.rows.push(row);
            }
            let [mapping, _, hash, _] = name(record);
            if mapping != "pte" || hash == "none" {
                continue;
            }
            let part = |what| {
                let (colour, sign, name) = look(what);
                Part { colour, sign, name: name.into(), value: value(what, Counted::Entries) }
            };
            let parts: Vec<Part> =
                MemoryUse::ALL.into_iter().filter(|what| *what != MemoryUse::Users).map(part).collect();
            let all: f64 = parts.iter().map(|part| part.value).sum();
            rows.push(StackRow { name: label(record), parts, shown: format!("{all:.1}") });
        }
        groups.push(Stack { label: machine.name.clone(), rows });
    }
    let legend = MemoryUse::ALL.into_iter().filter(|what| *what != MemoryUse::Users).map(|what| {
        let (colour, sign, name) = look(what);
        Key::part(colour, sign, name)
    });
    groups.iter().any(|g| !g.rows.is_empty()).then(|| Plot {
        id: "compile-uses".into(),
        title: "What the kernel's entries of the TLB are of".into(),
        subtitle: "Percent of the entries in use, in samples every 10,000 cycles".into(),
        chart: Chart::Stacks(groups, Axis::linear("share of the entries in use", "%"), 46.0),
        label: "The kernel's entries of the TLB by what they map, for each way to handle a miss".into(),
        legend: legend.collect(),
        note: "The paper's third is of kernel text, data and I/O pages, which it does not tell apart. The table also \
               has the misses of the TLBs and of the hash table by what is missed; they sum to all."
            .into(),
        table,
    })
}
