//! The figures: which numbers go into which chart.

use super::answer;
use super::axis::Axis;
use super::charts::{
    Bar, Dot, DotRow, Group, Line, Panel, Part, Stack, StackRow, bars, dots, history, stacks,
};
use super::compile;
use super::curves;
use super::figure::{Figure, Key, Table, both};
use super::flip;
use super::ispc;
use super::looks::{CAUSES, Look, Looks};
use super::message;
use super::real_host;
use super::reproduction::Reproduction;
use crate::files::{Compare, How};
use crate::judge::TOLERANCE;
use crate::record::Record;
use crate::text;

/// All figures for which there are numbers: what comes out of each paper, then those of the experiments, in order.
pub(super) fn all(of: &Reproduction) -> Vec<Figure> {
    let looks = of.looks();
    let mut found = answer::figures(of);
    for experiment in &of.experiments {
        let name = &experiment.name;
        let figures = match experiment.file.workload.as_str() {
            "flip-receive" => vec![flip::shares(of, name)],
            _ if !experiment.file.curves.is_empty() => Vec::new(),
            "bw-pipe" => vec![
                bandwidth(of, name, &looks),
                gain(of, name, &looks),
                causes(of, name),
                invalidations(of, name),
            ],
            "invalidate" => vec![costs(of, name, &looks), invlpg(of, name, &looks)],
            // About how the kernel handles misses: nothing where hardware does.
            "kernel-compile" if of.machines_of(name).any(|m| m.config.mmu.refill.is_none()) => Vec::new(),
            "kernel-compile" => vec![compile::time(of, name), compile::entries(of, name, &looks)],
            "ephemeral-hit" => vec![hits(of, name, &looks)],
            "ispc" => vec![ispc::steps(of, name)],
            "message" => vec![message::by_mechanism(of, name)],
            _ => Vec::new(),
        };
        found.extend(figures.into_iter().flatten());
        found.extend(curves::figures(of, experiment, &looks));
    }
    // A page of experiments of one's own is about these.
    if of.own().is_empty() {
        found.extend(real_host::figures(&looks));
    }
    distinct(found)
}

/// `figures` with titles and ids that are there once: experiments of one's own may be called and drawn like others.
fn distinct(mut figures: Vec<Figure>) -> Vec<Figure> {
    for i in 1..figures.len() {
        let (before, rest) = figures.split_at_mut(i);
        let figure = &mut rest[0];
        if before.iter().any(|other| other.id == figure.id) {
            figure.id = format!("{}-{}", figure.experiment, figure.id);
        }
        if before.iter().any(|other| other.title == figure.title) {
            figure.title = format!("{} ({})", figure.title, figure.experiment);
        }
    }
    figures
}

impl Reproduction {
    fn record(&self, experiment: &str, machine: &str, kernel: &str) -> Option<&Record> {
        self.records().find(|r| r.experiment == experiment && r.machine == machine && r.kernel == kernel)
    }

    /// The published value that a rule of `experiment` compares with `metric` on `machine`.
    fn value_of(&self, experiment: &str, how: How, machine: &str, metric: &str) -> Option<f64> {
        let experiment = self.experiments.iter().find(|e| e.name == experiment)?;
        let meant =
            |c: &&Compare| c.how == how && c.metric == metric && c.machines.iter().any(|m| m == machine);
        let rule = experiment.file.compare.iter().find(meant)?;
        self.published(&rule.published)?.value
    }

    /// The looks of everything that figures draw: lines, kernels, and machines.
    fn looks(&self) -> Looks {
        let curves = self.experiments.iter().flat_map(|e| &e.file.curves);
        let lines = curves.flat_map(|curves| &curves.lines).map(|line| line.name.as_str());
        let kernels = self.kernels.iter().map(|kernel| kernel.name.as_str());
        let hits = self.experiments.iter().filter(|e| e.file.workload == "ephemeral-hit");
        let machines = hits.flat_map(|e| self.machines_of(&e.name)).map(|machine| machine.name.as_str());
        Looks::of(lines.chain(kernels).chain([HERE]).chain(machines))
    }

    fn kernel_keys(&self, experiment: &str, looks: &Looks, key: fn(&Look, &str) -> Key) -> Vec<Key> {
        let ran = |name: &str| self.records().any(|r| r.experiment == experiment && r.kernel == name);
        let kernels = self.kernels.iter().filter(|k| ran(&k.name));
        kernels.map(|k| key(&looks.look(&k.name), &k.file.title)).collect()
    }
}

/// What was run here, where there is one series only.
pub(super) const HERE: &str = "here";

fn bandwidth(of: &Reproduction, experiment: &str, looks: &Looks) -> Option<Figure> {
    let mut groups = Vec::new();
    let mut table = Table { head: vec!["machine".into()], rows: Vec::new() };
    table.head.extend(of.kernels.iter().map(|k| format!("{}, MB/s", k.file.title)));
    for machine in of.machines_of(experiment) {
        let mut row = vec![machine.name.clone()];
        let mut bars = Vec::new();
        for kernel in &of.kernels {
            let record = of.record(experiment, &machine.name, &kernel.name);
            let Some(value) = record.and_then(|r| r.metric("bandwidth_mb_s")) else {
                row.push(String::new());
                continue;
            };
            row.push(format!("{value:.1}"));
            bars.push(Bar {
                look: looks.look(&kernel.name),
                name: kernel.file.title.clone(),
                value,
                shown: text::grouped(value.round() as i64),
                published: None,
            });
        }
        table.rows.push(row);
        groups.push(Group { label: machine.name.clone(), bars });
    }
    let (wide, narrow) = both(|width| {
        let axis = Axis::linear("bandwidth", "MB/s");
        bars(width, &groups, &axis, "Pipe bandwidth for each machine and kernel")
    });
    (!groups.is_empty()).then(|| Figure {
        id: "pipe-bandwidth".into(),
        experiment: experiment.into(),
        title: "Pipe bandwidth".into(),
        subtitle: "MB (10⁶ bytes) a second, from one process to another".into(),
        wide,
        narrow,
        legend: of.kernel_keys(experiment, looks, Key::bar),
        note: "The paper prints no absolute bandwidths; only the gains can be compared.".into(),
        table,
    })
}

fn gain(of: &Reproduction, experiment: &str, looks: &Looks) -> Option<Figure> {
    let mut rows = Vec::new();
    let head = ["machine", "kernel", "gain, %", "published, %"].map(String::from).to_vec();
    let mut table = Table { head, rows: Vec::new() };
    for machine in of.machines_of(experiment) {
        let of_kernel = |kernel: &str| of.record(experiment, &machine.name, kernel)?.metric("bandwidth_mb_s");
        let Some(base) = of_kernel("original") else { continue };
        let published = of.value_of(experiment, How::Gain, &machine.name, "bandwidth_mb_s");
        let mut dots = Vec::new();
        for kernel in of.kernels.iter().filter(|k| k.name != "original") {
            let Some(value) = of_kernel(&kernel.name) else { continue };
            let gain = (value / base - 1.0) * 100.0;
            let theirs = published.filter(|_| kernel.name == "sf_buf").map(text::number).unwrap_or_default();
            table.rows.push(vec![
                machine.name.clone(),
                kernel.file.title.clone(),
                format!("{gain:.1}"),
                theirs,
            ]);
            dots.push(Dot { look: looks.look(&kernel.name), name: kernel.file.title.clone(), value: gain });
        }
        let band = published.map(|p| {
            let ratio = 1.0 + p / 100.0;
            ((ratio * (1.0 - TOLERANCE) - 1.0) * 100.0, (ratio * (1.0 + TOLERANCE) - 1.0) * 100.0)
        });
        rows.push(DotRow { label: machine.name.clone(), dots, published, band });
    }
    let (wide, narrow) = both(|width| {
        let axis = Axis::linear("gain in bandwidth", "%");
        dots(width, &rows, &axis, "Gain in pipe bandwidth over the original kernel")
    });
    let mut legend = of.kernel_keys(experiment, looks, Key::mark);
    legend.retain(|key| key.label != "original");
    if rows.iter().any(|row| row.published.is_some()) {
        legend.push(Key::published(&looks.look("sf_buf"), "sf_buf"));
        legend.push(Key::band("within 10 % of the published ratio"));
    }
    (rows.iter().any(|r| !r.dots.is_empty())).then(|| Figure {
        id: "pipe-gain".into(),
        experiment: experiment.into(),
        title: "Gain over the original kernel".into(),
        subtitle: "Pipe bandwidth, percent more than under original".into(),
        wide,
        narrow,
        legend,
        note: "Where there is no diamond, no published value is at hand: the gain is a prediction.".into(),
        table,
    })
}

/// A stack of the causes in `cycles`, times `factor`.
pub(super) fn parts(record: &Record, factor: f64) -> Vec<Part> {
    let part = |(colour, sign, name, causes): &(&'static str, &'static str, &str, &[&str])| {
        let cycles: u64 = causes.iter().map(|cause| record.cycles.of(cause)).sum();
        Part { colour, sign, name: (*name).into(), value: cycles as f64 * factor }
    };
    CAUSES.iter().map(part).collect()
}

/// The keys of the causes that occur in `groups`.
pub(super) fn causes_in(groups: &[Stack]) -> Vec<Key> {
    let parts = || groups.iter().flat_map(|g| &g.rows).flat_map(|r| &r.parts);
    let used = CAUSES.iter().filter(|(_, _, name, _)| parts().any(|p| p.name == *name && p.value > 0.0));
    used.map(|(colour, sign, name, _)| Key::part(colour, sign, name)).collect()
}

fn causes(of: &Reproduction, experiment: &str) -> Option<Figure> {
    let mut groups = Vec::new();
    let mut table = Table { head: vec!["machine".into(), "kernel".into()], rows: Vec::new() };
    table.head.extend(CAUSES.iter().map(|(_, _, name, _)| (*name).to_owned()));
    for machine in of.machines_of(experiment) {
        let mut rows = Vec::new();
        for kernel in &of.kernels {
            let Some(record) = of.record(experiment, &machine.name, &kernel.name) else { continue };
            let Some(bytes) = setting(record, "total_bytes") else { continue };
            let factor = machine.nanoseconds(1.0) / 1000.0 * 65536.0 / bytes;
            let mut parts = parts(record, factor);
            let mut row = vec![machine.name.clone(), kernel.file.title.clone()];
            row.extend(parts.iter().map(|p| format!("{:.2}", p.value)));
            table.rows.push(row);
            parts.retain(|part| part.name != "idle");
            let busy: f64 = parts.iter().map(|part| part.value).sum();
            rows.push(StackRow { name: kernel.file.title.clone(), parts, shown: format!("{busy:.1}") });
        }
        groups.push(Stack { label: machine.name.clone(), rows });
    }
    let legend = causes_in(&groups);
    let (wide, narrow) = both(|width| {
        let axis = Axis::linear("CPU time for 64 KiB", "µs");
        stacks(width, &groups, &axis, 46.0, "CPU time by cause for each machine and kernel")
    });
    (!groups.is_empty()).then(|| Figure {
        id: "pipe-cycles".into(),
        experiment: experiment.into(),
        title: "Where the time goes".into(),
        subtitle: "Microseconds of CPU time spent on 64 KiB, all CPUs together".into(),
        wide,
        narrow,
        legend,
        note: "Every cycle of every CPU has one cause, and with the idle time, which is left out here, the causes sum \
               to the clocks."
            .into(),
        table,
    })
}

/// A setting that is a number.
pub(super) fn setting(record: &Record, key: &str) -> Option<f64> {
    record.settings.get(key)?.number().map(|number| number as f64)
}

fn invalidations(of: &Reproduction, experiment: &str) -> Option<Figure> {
    let mut groups = Vec::new();
    let head = ["machine", "kernel", "local", "remote, issued"].map(String::from).to_vec();
    let mut table = Table { head, rows: Vec::new() };
    for machine in of.machines_of(experiment) {
        let mut rows = Vec::new();
        for kernel in &of.kernels {
            let Some(record) = of.record(experiment, &machine.name, &kernel.name) else { continue };
            let count = |metric: &str| record.metric(metric).unwrap_or(0.0);
            let (local, remote) =
                (count("tlb_invalidations_local"), count("tlb_invalidations_remote_issued"));
            let title = kernel.file.title.clone();
            table.rows.push(vec![
                machine.name.clone(),
                title.clone(),
                text::number(local),
                text::number(remote),
            ]);
            let part = |colour, sign, name: &str, value| Part { colour, sign, name: name.to_owned(), value };
            let shown = match (local, remote) {
                (0.0, 0.0) => "0".to_owned(),
                (_, 0.0) => text::number(local),
                _ => format!("{} + {}", text::number(local), text::number(remote)),
            };
            let parts = vec![part("local", "L", "local", local), part("shoot", "R", "remote", remote)];
            rows.push(StackRow { name: title, parts, shown });
        }
        groups.push(Stack { label: machine.name.clone(), rows });
    }
    let (wide, narrow) = both(|width| {
        let axis = Axis::linear("pages invalidated", "count");
        stacks(width, &groups, &axis, 112.0, "TLB invalidations issued for each machine and kernel")
    });
    (!groups.is_empty()).then(|| Figure {
        id: "pipe-invalidations".into(),
        experiment: experiment.into(),
        title: "TLB invalidations issued".into(),
        subtitle: "Pages invalidated, local and remote, in the measured part".into(),
        wide,
        narrow,
        legend: vec![Key::part("local", "L", "local"), Key::part("shoot", "R", "remote, issued")],
        note:
            "A remote invalidation is counted once, by the CPU that asks for it, however many CPUs are asked \
               (sf_buf paper, 6.3)."
                .into(),
        table,
    })
}

fn costs(of: &Reproduction, experiment: &str, looks: &Looks) -> Option<Figure> {
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
    let kernels =
        |name: &str| of.records().filter(|r| r.experiment == experiment && r.machine == name).count();
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
            bars.push(Bar { look: looks.look(name), name: name.into(), value, shown, published });
        }
        table.rows.push(row);
        groups.push(Group { label: machine.name.clone(), bars });
    }
    let (wide, narrow) = both(|width| {
        bars(width, &groups, &Axis::linear("cost", "cycles"), "Cost of a TLB invalidation for each machine")
    });
    let names = kinds.map(|(_, name)| name);
    let marked = |name: &&str| {
        groups.iter().flat_map(|g| &g.bars).any(|bar| bar.name == *name && bar.published.is_some())
    };
    let keys = names.iter().map(|name| Key::bar(&looks.look(name), name));
    let theirs = names.iter().filter(|name| marked(name));
    let legend = keys.chain(theirs.map(|name| Key::published(&looks.look(name), name))).collect();
    (!groups.is_empty()).then(|| Figure {
        id: "invalidation-cost".into(),
        experiment: experiment.into(),
        title: "What an invalidation costs".into(),
        subtitle: "Cycles of the CPU that issues it".into(),
        wide,
        narrow,
        legend,
        note: "A remote invalidation is waited for until every other CPU has answered.".into(),
        table,
    })
}

fn invlpg(of: &Reproduction, experiment: &str, looks: &Looks) -> Option<Figure> {
    let names = [
        ("486", "486"),
        ("pentium", "Pentium"),
        ("pentium-iii", "Pentium III"),
        ("xeon-up", "Pentium 4 Xeon"),
    ];
    let range = of.published("sfbuf-invlpg-p4").and_then(|p| Some((p.low?, p.high?)));
    let (mut cycles, mut times, mut short, mut table) =
        (Vec::new(), Vec::new(), Vec::new(), Table::default());
    table.head = ["processor", "MHz", "cycles", "ns", "published, cycles"].map(String::from).to_vec();
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
        let ns = machine.nanoseconds(value);
        let row = [title.to_owned(), mhz.to_string(), text::number(value), format!("{ns:.0}"), shown];
        table.rows.push(row.to_vec());
        cycles.push((short.len(), value, published));
        times.push((short.len(), ns, None));
        short.push(title.replace("Pentium 4 Xeon", "P4 Xeon"));
    }
    let look = looks.look(HERE);
    let panel = |unit: &str, points| Panel {
        up: Axis::linear("local invalidation", unit),
        along: Axis::linear("processor", ""),
        names: short.clone(),
        lines: vec![Line { look, name: HERE.into(), points }],
    };
    let panels = [panel("cycles", cycles), panel("ns", times)];
    let (wide, narrow) = both(|width| history(width, &panels, "Cost of invlpg over four processors"));
    (short.len() > 1).then(|| Figure {
        id: "invlpg-history".into(),
        experiment: experiment.into(),
        title: "Four generations of invlpg".into(),
        subtitle: "One local invalidation, page-table entry in the data cache".into(),
        wide,
        narrow,
        legend: vec![Key::line(&look, HERE), Key::published(&look, "cost in cycles")],
        note: "In nanoseconds the clock rates of these particular machines count; the paper gives cycles."
            .into(),
        table,
    })
}

fn hits(of: &Reproduction, experiment: &str, looks: &Looks) -> Option<Figure> {
    let head = ["machine", "entries", "modelled cycles", "modelled ns", "host ns"].map(String::from).to_vec();
    let mut table = Table { head, rows: Vec::new() };
    let entries = |r: &Record| setting(r, "kernel.ephemeral.entries").unwrap_or(0.0);
    let mut sizes: Vec<f64> = of.records().filter(|r| r.experiment == experiment).map(entries).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let (mut cycles, mut host, mut legend) = (Vec::new(), Vec::new(), Vec::new());
    for machine in of.machines_of(experiment) {
        let look = looks.look(&machine.name);
        let line = || Line { look, name: machine.name.clone(), points: Vec::new() };
        let (mut modelled, mut real) = (line(), line());
        let runs = of.runs.iter().filter(|run| run.record.experiment == experiment);
        for run in runs.filter(|run| run.record.machine == machine.name) {
            let Some(pair) = run.record.metric("pair_cycles") else { continue };
            let size = entries(&run.record);
            let at = sizes.iter().position(|s| *s == size).unwrap_or(0);
            let pairs = setting(&run.record, "times").unwrap_or(1.0);
            let host_ns = run.host.measured_ms * 1e6 / pairs;
            modelled.points.push((at, pair, None));
            real.points.push((at, host_ns, None));
            table.rows.push(vec![
                machine.name.clone(),
                text::number(size),
                format!("{pair:.1}"),
                format!("{:.0}", machine.nanoseconds(pair)),
                format!("{host_ns:.0}"),
            ]);
        }
        cycles.push(modelled);
        host.push(real);
        legend.push(Key::line(&look, &machine.name));
    }
    let names: Vec<_> = sizes.iter().map(|size| text::number(*size)).collect();
    let found = !table.rows.is_empty();
    let panel = |name: &str, unit: &str, lines| Panel {
        up: Axis::linear(name, unit),
        along: Axis::linear("entries of the cache", "count"),
        names: names.clone(),
        lines,
    };
    let panels = [
        panel("modelled time of a hit", "cycles", cycles),
        panel("time on this host, to model it", "ns", host),
    ];
    let (wide, narrow) = both(|width| history(width, &panels, "Cost of a hit for caches of different sizes"));
    found.then(|| Figure {
        id: "hit-cost".into(),
        experiment: experiment.into(),
        title: "Cost of a hit, by entries of the cache".into(),
        subtitle: "One sf_buf_alloc and sf_buf_free of a page that is mapped already".into(),
        wide,
        narrow,
        legend,
        note: "The paper says that the expected time is constant (1 and 4.2). The Opteron is made to use a cache here; \
               by itself it has the direct map. Times on the host vary from run to run."
            .into(),
        table,
    })
}
