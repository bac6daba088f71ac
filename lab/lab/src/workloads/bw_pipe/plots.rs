//! The figures of pipe bandwidth (sf_buf paper, 6.3): bandwidths, gains, where the time goes, what is invalidated.

use crate::files::How;
use crate::judge::{Reproduction, TOLERANCE};
use crate::plot::{
    Axis, Bar, CAUSES, Chart, Dot, DotRow, Group, Key, Part, Plot, Stack, StackRow, Table, causes_in, parts,
};
use crate::text;

/// All charts of the experiment whose runs are there.
pub(super) fn all(of: &Reproduction, experiment: &str) -> Vec<Plot> {
    [bandwidth, gain, causes, invalidations].into_iter().filter_map(|plot| plot(of, experiment)).collect()
}

fn bandwidth(of: &Reproduction, experiment: &str) -> Option<Plot> {
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
                series: kernel.name.clone(),
                name: kernel.file.title.clone(),
                value,
                shown: text::grouped(value.round() as i64),
                published: None,
            });
        }
        table.rows.push(row);
        groups.push(Group { label: machine.name.clone(), bars });
    }
    (!groups.is_empty()).then(|| Plot {
        id: "pipe-bandwidth".into(),
        title: "Pipe bandwidth".into(),
        subtitle: "MB (10⁶ bytes) a second, from one process to another".into(),
        chart: Chart::Bars(groups, Axis::linear("bandwidth", "MB/s")),
        label: "Pipe bandwidth for each machine and kernel".into(),
        legend: of.kernel_keys(experiment, Key::bar),
        note: "The paper prints no absolute bandwidths; only the gains can be compared.".into(),
        table,
    })
}

fn gain(of: &Reproduction, experiment: &str) -> Option<Plot> {
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
            dots.push(Dot { series: kernel.name.clone(), name: kernel.file.title.clone(), value: gain });
        }
        let band = published.map(|p| {
            let ratio = 1.0 + p / 100.0;
            ((ratio * (1.0 - TOLERANCE) - 1.0) * 100.0, (ratio * (1.0 + TOLERANCE) - 1.0) * 100.0)
        });
        rows.push(DotRow { label: machine.name.clone(), dots, published, band });
    }
    let mut legend = of.kernel_keys(experiment, Key::mark);
    legend.retain(|key| key.label != "original");
    if rows.iter().any(|row| row.published.is_some()) {
        legend.push(Key::published("sf_buf", "sf_buf"));
        legend.push(Key::band("within 10 % of the published ratio"));
    }
    (rows.iter().any(|r| !r.dots.is_empty())).then(|| Plot {
        id: "pipe-gain".into(),
        title: "Gain over the original kernel".into(),
        subtitle: "Pipe bandwidth, percent more than under original".into(),
        chart: Chart::Dots(rows, Axis::linear("gain in bandwidth", "%")),
        label: "Gain in pipe bandwidth over the original kernel".into(),
        legend,
        note: "Where there is no diamond, no published value is at hand: the gain is a prediction.".into(),
        table,
    })
}

fn causes(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let mut groups = Vec::new();
    let mut table = Table { head: vec!["machine".into(), "kernel".into()], rows: Vec::new() };
    table.head.extend(CAUSES.iter().map(|(_, _, name, _)| (*name).to_owned()));
    for machine in of.machines_of(experiment) {
        let mut rows = Vec::new();
        for kernel in &of.kernels {
            let Some(record) = of.record(experiment, &machine.name, &kernel.name) else { continue };
            let Some(bytes) = record.number("total_bytes") else { continue };
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
    (!groups.is_empty()).then(|| Plot {
        id: "pipe-cycles".into(),
        title: "Where the time goes".into(),
        subtitle: "Microseconds of CPU time spent on 64 KiB, all CPUs together".into(),
        chart: Chart::Stacks(groups, Axis::linear("CPU time for 64 KiB", "µs"), 46.0),
        label: "CPU time by cause for each machine and kernel".into(),
        legend,
        note: "Every cycle of every CPU has one cause, and with the idle time, which is left out here, the causes sum \
               to the clocks."
            .into(),
        table,
    })
}

fn invalidations(of: &Reproduction, experiment: &str) -> Option<Plot> {
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
    (!groups.is_empty()).then(|| Plot {
        id: "pipe-invalidations".into(),
        title: "TLB invalidations issued".into(),
        subtitle: "Pages invalidated, local and remote, in the measured part".into(),
        chart: Chart::Stacks(groups, Axis::linear("pages invalidated", "count"), 112.0),
        label: "TLB invalidations issued for each machine and kernel".into(),
        legend: vec![Key::part("local", "L", "local"), Key::part("shoot", "R", "remote, issued")],
        note:
            "A remote invalidation is counted once, by the CPU that asks for it, however many CPUs are asked \
               (sf_buf paper, 6.3)."
                .into(),
        table,
    })
}
