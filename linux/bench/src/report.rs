//! What was measured, as tables, as JSON and as CSV.

use crate::bars::{Bar, Outcome, bars};
use crate::cell::{Method, Pattern, Wait};
use crate::series::{MAX_SPREAD, Report, Series, size};
use crate::stats::{Estimate, spread};
use crate::surroundings::Surroundings;
use comfy_table::{CellAlignment, Table, presets};
use core::fmt::Write as _;
use serde::Serialize;
use std::io;

/// Microseconds, for people.
pub(crate) fn micros(nanos: f64) -> String {
    let us = nanos / 1e3;
    match us {
        _ if us >= 1e4 => format!("{:.1}k", us / 1e3),
        _ if us >= 100.0 => format!("{us:.0}"),
        _ => format!("{us:.1}"),
    }
}

fn ratio(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// A line of the files.
#[derive(Serialize)]
struct Line {
    method: &'static str,
    bytes: usize,
    pattern: &'static str,
    wait: &'static str,
    repetitions: usize,
    nanos: f64,
    nanos_low: f64,
    nanos_high: f64,
    base: &'static str,
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    floor_spread: Option<f64>,
}

#[derive(Serialize)]
struct Json<'a> {
    surroundings: &'a Surroundings,
    fill_nanos: f64,
    import_nanos: &'a [f64],
    notes: &'a [String],
    lines: Vec<Line>,
    bars: Vec<Bar>,
    series: &'a [Series],
}

impl Report {
    fn lines(&self) -> Vec<Line> {
        let line = |series: &Series| {
            let nanos = Estimate::of(&series.nanos)?;
            let ratio = self.ratios(series);
            Some(Line {
                method: series.method.name(),
                bytes: series.bytes,
                pattern: series.pattern.name(),
                wait: series.wait.name(),
                repetitions: series.nanos.len(),
                nanos: nanos.median,
                nanos_low: nanos.low,
                nanos_high: nanos.high,
                base: self.base.name(),
                ratio: ratio.map(|ratio| ratio.median),
                ratio_low: ratio.map(|ratio| ratio.low),
                ratio_high: ratio.map(|ratio| ratio.high),
                floor_spread: self.floor_spread(series.bytes, series.pattern, series.wait),
            })
        };
        self.series.iter().filter_map(line).collect()
    }

    /// All of it as JSON: times in nanoseconds.
    pub fn json(&self) -> String {
        let Report { surroundings, notes, series, fill_nanos, import_nanos, .. } = self;
        let json = Json {
            surroundings,
            fill_nanos: *fill_nanos,
            import_nanos,
            notes,
            lines: self.lines(),
            bars: bars(self),
            series,
        };
        serde_json::to_string_pretty(&json).expect("plain data can be written as JSON")
    }

    /// A line for each method and cell: times in nanoseconds.
    pub fn csv(&self, to: impl io::Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(to);
        for line in self.lines() {
            csv.serialize(line).map_err(io::Error::other)?;
        }
        csv.flush()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.surroundings);
        match self.is_far() {
            Some(true) => text.push_str("The two CPUs do not share a cache, as far as the floor tells.\n"),
            Some(false) => text.push_str("The two CPUs share a cache, as far as the floor tells.\n"),
            None => (),
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        let base = if self.base == Method::Floor { "the floor" } else { self.base.name() };
        let _ = writeln!(
            text,
            "Times {base} of the same repetition [interval of 95 %], then microseconds of a message."
        );
        for &wait in Wait::ALL {
            for &pattern in Pattern::ALL {
                if let Some(table) = self.table(pattern, wait) {
                    let _ = write!(text, "\n{}, {}\n{table}\n", pattern.name(), wait.name());
                }
            }
        }
        let bars = bars(self);
        if !bars.is_empty() {
            let _ = write!(text, "\nBars\n{}\n", bars_table(&bars));
            if bars.iter().any(|bar| bar.outcome == Outcome::NoVerdict) {
                text.push_str(
                    "There is no verdict where the interval holds the limit, or where the floor (marked !) or the \
                     method itself varies too much.\n",
                );
            }
        }
        text
    }

    fn table(&self, pattern: Pattern, wait: Wait) -> Option<Table> {
        let here: Vec<_> =
            self.series.iter().filter(|series| (series.pattern, series.wait) == (pattern, wait)).collect();
        let mut sizes: Vec<_> = here.iter().map(|series| series.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() {
            return None;
        }
        let mut table = plain();
        table.set_header(core::iter::once(String::new()).chain(sizes.iter().map(|&bytes| size(bytes))));
        for &method in Method::ALL {
            let cell = |&bytes: &usize| {
                let series = self.series(method, bytes, pattern, wait);
                series.map_or_else(String::new, |series| self.cell(series))
            };
            let cells: Vec<_> = sizes.iter().map(cell).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                table.add_row(core::iter::once(method.name().to_owned()).chain(cells));
            }
        }
        right(&mut table);
        Some(table)
    }

    fn cell(&self, series: &Series) -> String {
        let Some(time) = Estimate::of(&series.nanos) else { return String::new() };
        let us = micros(time.median);
        if series.method == Method::Floor {
            let spread = spread(&series.nanos);
            let mark = if spread > MAX_SPREAD { "!" } else { "" };
            return format!("varies {:.0} %{mark}  {us}", 100.0 * spread);
        }
        match self.ratios(series) {
            _ if series.method == self.base => us,
            None => us,
            Some(Estimate { median, low, high }) => {
                format!("{} [{}-{}]  {us}", ratio(median), ratio(low), ratio(high))
            }
        }
    }
}

pub(crate) fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn right(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn bars_table(bars: &[Bar]) -> Table {
    let mut table = plain();
    table.set_header(["", "at", "wanted", "measured [95 %]", ""]);
    for bar in bars {
        let Estimate { median, low, high } = bar.measured;
        let number =
            |value: f64| if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
        table.add_row([
            bar.what.to_owned(),
            bar.at.clone(),
            format!("{} {} {}", bar.sign, number(bar.limit), bar.unit),
            format!("{} [{}, {}]", number(median), number(low), number(high)),
            bar.outcome.name().to_owned(),
        ]);
    }
    table
}
