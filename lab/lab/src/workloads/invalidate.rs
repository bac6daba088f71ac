//! The cost of invalidations (sf_buf paper, 3): a custom system call repeats one many times.
//!
//! The program is [`invalidate::Invalidate`].

use crate::error::LabError;
use crate::files::{Experiment, How};
use crate::judge::Reproduction;
use crate::kit::{Onlooker, OutcomeCell, Process, other_process};
use crate::plot::{Axis, Bar, Chart, Group, HERE, Key, Line, Panel, Plot, Table};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use crate::text;
use cpu_time::ThreadTime;
use pageferry_hal::Cycles;
use pageferry_kernel::{InvalidateKind, Program};
use pageferry_model::{MachineConfig, Model};
use pageferry_workloads::invalidate;

/// The workload.
pub(crate) struct Invalidate;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        times: u32 = 1..=1 << 30,
    }
}

impl Workload for Invalidate {
    const NAME: &'static str = "invalidate";

    type Parameters = Parameters;

    fn weight(p: &Parameters, machine: &MachineConfig) -> u64 {
        let cpus = machine.cpus() as u64;
        u64::from(p.times).saturating_mul(1 + 4 * (cpus - 1)) / 4
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "local_cached_cycles",
                "cycles",
                "A local invalidation with the page-table entry in the cache.",
            ),
            metric(
                "local_cached_ns",
                "ns",
                "A local invalidation with the page-table entry in the cache, in time.",
            ),
            metric(
                "local_uncached_cycles",
                "cycles",
                "A local invalidation with the page-table entry in memory.",
            ),
            metric(
                "local_uncached_ns",
                "ns",
                "A local invalidation with the page-table entry in memory, in time.",
            ),
            metric("remote_cycles", "cycles", "A shootdown, as its sender sees it.").of_some_runs(),
            metric("remote_ns", "ns", "A shootdown, as its sender sees it, in time.").of_some_runs(),
        ]
    }

    /// The program of the experiment's only process. Remote invalidations are measured where there is another CPU.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let program = invalidate::Invalidate { times: p.times, remote: testbed.machine.config.cpus() > 1 };
        let (model, cycle_ns) = (testbed.model.clone(), testbed.machine.nanoseconds(1.0));
        let onlooker = Onlooker::new(&model, &cell);
        // There are no buffers. To look for room takes a lock, which is in the cache then.
        Ok(other_process(cell.clone(), move |user| {
            let (before, began) = (model.begin_measuring(), ThreadTime::now());
            let mut took = |kind, cycles: Cycles| {
                let (name, cycles) = (name(kind), cycles.0 as f64 / f64::from(program.times));
                let results = &mut cell.borrow_mut().results;
                results.insert(format!("{name}_cycles"), cycles);
                results.insert(format!("{name}_ns"), cycles * cycle_ns);
            };
            program.run(&Process::new(user, &onlooker), &mut took)?;
            let outcome = &mut *cell.borrow_mut();
            outcome.measured_s = began.elapsed().as_secs_f64();
            outcome.measured = Some(model.end_measuring().since(&before));
            Ok(())
        }))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        if !experiment.file.curves.is_empty() {
            return Vec::new();
        }
        [costs, invlpg].into_iter().filter_map(|plot| plot(of, &experiment.name)).collect()
    }
}

/// As metrics are called.
fn name(kind: InvalidateKind) -> &'static str {
    match kind {
        InvalidateKind::LocalCached => "local_cached",
        InvalidateKind::LocalUncached => "local_uncached",
        InvalidateKind::Remote => "remote",
    }
}

fn costs(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let kinds = [
        ("local_cached_cycles", "local, entry in cache"),
        ("local_uncached_cycles", "local, entry in memory"),
        ("remote_cycles", "remote"),
    ];
    let mut groups = Vec::new();
    let mut table = Table { head: vec!["machine".into()], rows: Vec::new() };
    for (_, name) in kinds {
        table.head.extend([format!("{name}, cycles"), format!("published, {name}")]);
    }
    // Machines that run one kernel only are there for the history of the instruction.
    let kernels = |name: &str| {
        of.firsts().filter(|r| r.record.experiment == experiment && r.record.machine == name).count()
    };
    for machine in of.machines_of(experiment).filter(|m| kernels(&m.name) > 1) {
        let Some(record) = of.record(experiment, &machine.name, "original") else { continue };
        let mut row = vec![machine.name.clone()];
        let mut bars = Vec::new();
        for (metric, name) in kinds {
            let published = of.value_of(experiment, How::Value, &machine.name, metric);
            let value = record.metric(metric);
            row.extend([
                value.map(text::number).unwrap_or_default(),
                published.map(text::number).unwrap_or_default(),
            ]);
            let Some(value) = value else { continue };
            let shown = text::grouped(value.round() as i64);
            bars.push(Bar { series: name.into(), name: name.into(), value, shown, published });
        }
        table.rows.push(row);
        groups.push(Group { label: machine.name.clone(), bars });
    }
    let names = kinds.map(|(_, name)| name);
    let marked = |name: &&str| {
        groups.iter().flat_map(|g| &g.bars).any(|bar| bar.name == *name && bar.published.is_some())
    };
    let keys = names.iter().map(|name| Key::bar(name, name));
    let theirs = names.iter().filter(|name| marked(name));
    let legend = keys.chain(theirs.map(|name| Key::published(name, name))).collect();
    (!groups.is_empty()).then(|| Plot {
        id: "invalidation-cost".into(),
        title: "What an invalidation costs".into(),
        subtitle: "Cycles of the CPU that issues it".into(),
        chart: Chart::Bars(groups, Axis::linear("cost", "cycles")),
        label: "Cost of a TLB invalidation for each machine".into(),
        legend,
        note: "A remote invalidation is waited for until every other CPU has answered.".into(),
        table,
    })
}

fn invlpg(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let names = [
        ("486", "486"),
        ("pentium", "Pentium"),
        ("pentium-iii", "Pentium III"),
        ("xeon-up", "Pentium 4 Xeon"),
    ];
    let range = of.published("sfbuf-invlpg-p4").and_then(|p| Some((p.low?, p.high?)));
    let (mut cycles, mut times, mut short, mut table) =
        (Vec::new(), Vec::new(), Vec::new(), Table::default());
    table.head = ["processor", "MHz", "cycles", "µs", "published, cycles"].map(String::from).to_vec();
    for (name, title) in names {
        let Some(machine) = of.machines.iter().find(|m| m.name == name) else { continue };
        let record = of.record(experiment, name, "original");
        let Some(value) = record.and_then(|r| r.metric("local_cached_cycles")) else { continue };
        let exact = of.value_of(experiment, How::Value, name, "local_cached_cycles").map(|v| (v, v));
        let published = if name == "xeon-up" { range } else { exact };
        let shown = published.map_or(String::new(), |(low, high)| {
            if low == high {
                text::number(low)
            } else {
                format!("{} to {}", text::number(low), text::number(high))
            }
        });
        let mhz = machine.config.cpu.clock_mhz.value;
        let us = machine.nanoseconds(value) / 1e3;
        let row = [title.to_owned(), mhz.to_string(), text::number(value), text::number(us), shown];
        table.rows.push(row.to_vec());
        cycles.push((short.len(), value, published));
        times.push((short.len(), us, None));
        short.push(title.replace("Pentium 4 Xeon", "P4 Xeon"));
    }
    let panel = |unit: &str, points| Panel {
        up: Axis::linear("local invalidation", unit),
        along: Axis::linear("processor", ""),
        names: short.clone(),
        lines: vec![Line { series: HERE.into(), name: HERE.into(), points }],
    };
    let panels = [panel("cycles", cycles), panel("µs", times)];
    (short.len() > 1).then(|| Plot {
        id: "invlpg-history".into(),
        title: "Four generations of invlpg".into(),
        subtitle: "One local invalidation, page-table entry in the data cache".into(),
        chart: Chart::History(panels.into()),
        label: "Cost of invlpg over four processors".into(),
        legend: vec![Key::line(HERE, HERE), Key::published(HERE, "cost in cycles")],
        note: "In microseconds the clock rates of these particular machines count; the paper gives cycles."
            .into(),
        table,
    })
}
