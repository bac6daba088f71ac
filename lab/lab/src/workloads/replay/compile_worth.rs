//! What a saved miss is worth: the arithmetic between the misses that blocks save and the time that they save.
//!
//! If both fell from one cause, a saved miss would be worth what handling a miss takes. What is more, or less, is a
//! second effect: lines of caches and entries of the TLB that handlers and their tables displaced.

use super::compile_plots::{by_pages, label, name, runs};
use crate::judge::Reproduction;
use crate::plot::{Axis, Chart, Key, Part, Plot, Stack, StackRow, Table};
use crate::record::Record;
use crate::text;

const HANDLING: (&str, &str, &str) = ("tlb", "T", "handling it");
const ELSE: (&str, &str, &str) = ("user", "E", "all else");

/// Of a run by blocks, beside that by pages: misses that are fewer, and cycles that are.
struct Saved {
    misses: f64,
    cycles: f64,
    handling: f64,
}

impl Saved {
    /// `None` where no miss is saved.
    fn by(record: &Record, base: &Record) -> Option<Saved> {
        let busy = |r: &Record| (r.cycles.total - r.cycles.of("idle")) as f64;
        let handling = |r: &Record| (r.cycles.of("tlb_miss") + r.cycles.of("refill")) as f64;
        let misses = base.metric("tlb_misses_total")? - record.metric("tlb_misses_total")?;
        (misses > 0.0).then(|| Saved {
            misses,
            cycles: busy(base) - busy(record),
            handling: handling(base) - handling(record),
        })
    }
}

pub(super) fn worth(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let mut groups = Vec::new();
    let head =
        ["machine", "mapping", "misses", "found in", "files", "misses saved", "cycles saved", "a saved miss"];
    let head = head.into_iter().chain(["of which handling it", "all else", "time over misses, by pages"]);
    let mut table = Table { head: head.map(String::from).collect(), rows: Vec::new() };
    for machine in of.machines_of(experiment) {
        let runs = runs(of, experiment, &machine.name);
        let mut rows = Vec::new();
        for record in &runs {
            let base = by_pages(&runs, record).filter(|base| !std::ptr::eq(*base, *record));
            let Some((base, saved)) = base.and_then(|base| Some((base, Saved::by(record, base)?))) else {
                continue;
            };
            let [each, handling] = [saved.cycles, saved.handling].map(|cycles| cycles / saved.misses);
            let all = (base.cycles.total - base.cycles.of("idle")) as f64;
            let mut row = vec![machine.name.clone()];
            row.extend(name(record));
            row.extend([saved.misses, saved.cycles].map(|value| text::grouped(value as i64)));
            let over = all / base.metric("tlb_misses_total").unwrap_or(f64::INFINITY);
            row.extend([each, handling, each - handling, over].map(|value| format!("{value:.0}")));
            table.rows.push(row);
            let part = |(colour, sign, name): (&'static str, &'static str, &str), value: f64| {
                // What is less than nothing has no length; the table has it.
                Part { colour, sign, name: name.into(), value: value.max(0.0) }
            };
            let parts = vec![part(HANDLING, handling), part(ELSE, each - handling)];
            rows.push(StackRow { name: label(record), parts, shown: format!("{each:.0}") });
        }
        groups.push(Stack { label: machine.name.clone(), rows });
    }
    groups.iter().any(|g| !g.rows.is_empty()).then(|| Plot {
        id: "compile-saved-miss".into(),
        title: "What a miss is worth that blocks save".into(),
        subtitle: "Cycles that are saved with each, of which handling the miss, and all else".into(),
        chart: Chart::Stacks(groups, Axis::linear("cycles a saved miss", "cycles"), 46.0),
        label: "Cycles that are saved with each saved miss, for each mapping and each way to handle a miss".into(),
        legend: [HANDLING, ELSE].map(|(colour, sign, name)| Key::part(colour, sign, name)).into(),
        note: "If misses and time fell from one cause, a saved miss would be worth what handling it takes. What is \
               more is a second effect: lines of the caches and entries of the TLB that handlers and tables displaced. \
               The paper's compile took 10 minutes for 219 million misses: 2.7 microseconds for each, all work \
               between two of them included, or 490 cycles of 180 MHz. For its time to fall by as large a part as its \
               misses, each would have to be worth that; by half the part, half of it."
            .into(),
        table,
    })
}
