//! The cost of a hit in the mapping cache (sf_buf paper, 4.2): the same few pages are mapped and unmapped in turn.
//!
//! Each page is mapped once before, so that every allocation of the measured part is a hit, or, on the direct map,
//! needs nothing. Mappings are CPU-private, as those of pipes.
//!
//! No program of system calls: what is measured is what the kernel does inside of one. A call that repeated it would
//! add to what is measured its own way in and out, the memory that it allocates and the first round of misses; and the
//! host is timed in parts, between which a call cannot be left. So this calls the kernel's own parts.

use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{Outcome, OutcomeCell};
use crate::plot::{Axis, Chart, Key, Line, Panel, Plot, Table};
use crate::record::{Metric, Record, metric};
use crate::run::{Testbed, Workload};
use crate::text;
use cpu_time::ThreadTime;
use pageferry_ephemeral::{AllocError, Flags, MappingUser};
use pageferry_hal::{Machine as _, PAGE_SIZE, Pfn, Threads as _};
use pageferry_kernel::{Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::VmError;

/// The host is timed in this many parts, and the fastest counts: whatever else the host does only makes parts slower.
const BATCHES: u64 = 20;

/// The workload.
pub(crate) struct EphemeralHit;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        times: u64 = 1..=1 << 30,
        pages: usize = 1..=1 << 20,
    }
}

impl Workload for EphemeralHit {
    const NAME: &'static str = "ephemeral-hit";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.times / 10
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric("pair_cycles", "cycles", "An allocation and a release of an ephemeral mapping."),
            metric("pair_ns", "ns", "An allocation and a release of an ephemeral mapping, in time."),
        ]
    }

    /// The program of the experiment's only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let (times, pages) = (p.times, p.pages);
        let (model, cycle_ns) = (testbed.model.clone(), testbed.machine.nanoseconds(1.0));
        Ok(Box::new(move |user: &User<Model>| {
            let outcome = &mut *cell.borrow_mut();
            match measure(user, &model, pages, times, outcome) {
                Ok(cycles) => {
                    let pair = cycles as f64 / times as f64;
                    outcome.results.insert("pair_cycles".into(), pair);
                    outcome.results.insert("pair_ns".into(), pair * cycle_ns);
                }
                Err(problem) => outcome.failed = Some(problem),
            }
        }))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        if experiment.file.curves.is_empty() {
            hits(of, &experiment.name).into_iter().collect()
        } else {
            Vec::new()
        }
    }
}

/// Cycles of all pairs.
fn measure(
    user: &User<Model>,
    model: &Model,
    pages: usize,
    times: u64,
    outcome: &mut Outcome,
) -> Result<u64, String> {
    let (kernel, thread) = (user.kernel(), user.thread());
    let refused = |e: VmError| format!("{pages} pages of kernel memory: {e}");
    let memory = kernel.vm().kernel_alloc(pages).map_err(refused)?;
    let frames: Vec<Pfn> = (0..pages)
        .filter_map(|page| kernel.vm().pmaps().read_kernel_entry(memory.va() + page * PAGE_SIZE))
        .map(|entry| entry.frame)
        .collect();
    thread.pin();
    let pair = |frame: Pfn| -> Result<(), AllocError> {
        let mapping = kernel.ephemeral().alloc(thread, frame, MappingUser::Other, Flags::PRIVATE)?;
        kernel.ephemeral().free(thread, mapping);
        Ok(())
    };
    let message = |e: AllocError| e.to_string();
    frames.iter().try_for_each(|&frame| pair(frame)).map_err(message)?;
    let (before, began) = (model.begin_measuring(), model.now());
    let mut pairs = frames.iter().cycle().take(times as usize);
    let mut fastest = f64::INFINITY;
    for batch in 0..BATCHES {
        let len = times * (batch + 1) / BATCHES - times * batch / BATCHES;
        let host = ThreadTime::now();
        for frame in pairs.by_ref().take(len as usize) {
            pair(*frame).map_err(message)?;
        }
        if len > 0 {
            fastest = fastest.min(host.elapsed().as_secs_f64() / len as f64);
        }
    }
    outcome.measured_s = fastest * times as f64;
    let cycles = (model.now() - began).0;
    outcome.measured = Some(model.end_measuring().since(&before));
    thread.unpin();
    kernel.vm().kernel_free(memory);
    Ok(cycles)
}

fn hits(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let head = ["machine", "entries", "modelled cycles", "modelled µs", "host µs"].map(String::from).to_vec();
    let mut table = Table { head, rows: Vec::new() };
    let entries = |r: &Record| r.number("kernel.ephemeral.entries").unwrap_or(0.0);
    let mut sizes: Vec<f64> = of.records().filter(|r| r.experiment == experiment).map(entries).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let (mut cycles, mut host, mut legend) = (Vec::new(), Vec::new(), Vec::new());
    for machine in of.machines_of(experiment) {
        let series = &machine.name;
        let line = || Line { series: series.clone(), name: machine.name.clone(), points: Vec::new() };
        let (mut modelled, mut real) = (line(), line());
        let runs = of.firsts().filter(|run| run.record.experiment == experiment);
        for run in runs.filter(|run| run.record.machine == machine.name) {
            let Some(pair) = run.record.metric("pair_cycles") else { continue };
            let size = entries(&run.record);
            let at = sizes.iter().position(|s| *s == size).unwrap_or(0);
            let pairs = run.record.number("times").unwrap_or(1.0);
            let host_us = run.host.measured_ms * 1e3 / pairs;
            modelled.points.push((at, pair, None));
            real.points.push((at, host_us, None));
            table.rows.push(vec![
                machine.name.clone(),
                text::number(size),
                format!("{pair:.1}"),
                text::number(machine.nanoseconds(pair) / 1e3),
                text::number(host_us),
            ]);
        }
        cycles.push(modelled);
        host.push(real);
        legend.push(Key::line(series, &machine.name));
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
        panel("time on this host, to model it", "µs", host),
    ];
    found.then(|| Plot {
        id: "hit-cost".into(),
        title: "Cost of a hit, by entries of the cache".into(),
        subtitle: "One sf_buf_alloc and sf_buf_free of a page that is mapped already".into(),
        chart: Chart::History(panels.into()),
        label: "Cost of a hit for caches of different sizes".into(),
        legend,
        note: "The paper says that the expected time is constant (1 and 4.2). The Opteron is made to use a cache here; \
               by itself it has the direct map. Times on the host vary from run to run."
            .into(),
        table,
    })
}
