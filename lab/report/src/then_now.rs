//! Tables of then and now: from where on each mechanism pays, what it is worth to map a kernel by few large pieces, and
//! how good the kernel's own choices are.

use pageferry_lab::files::Setting;
use pageferry_lab::judge::Reproduction;
use pageferry_lab::judge::{AutoChoice, Crossover, NOW, Pays, SHARE_OF_BEST};
use pageferry_lab::plot::Axis;
use pageferry_lab::record::Record;
use pageferry_lab::text::{number, report_unit, size};
use serde::Serialize;

/// A mechanism: from where on it pays.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PaysRow {
    /// The experiment's title.
    pub experiment: String,
    /// The mechanism, what it replaces, and under which condition.
    pub mechanism: String,
    /// The machine of the time.
    pub machine: String,
    /// From which size, clock, load or speed on, there.
    pub then: String,
    /// The same on a current machine; empty if it was not run.
    pub now: String,
}

/// A way to map the kernel's own memory, held against pages of 4 KB.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MappingRow {
    /// The experiment's title.
    pub experiment: String,
    /// The machine.
    pub machine: String,
    /// What maps the kernel.
    pub mapping: String,
    /// The settings in which runs of the experiment on the machine differ otherwise.
    pub with: String,
    /// The TLB misses with pages of 4 KB.
    pub misses: String,
    /// How many more of them or fewer there are.
    pub change_of_misses: String,
    /// How much longer it takes, or shorter.
    pub change_of_time: String,
}

/// A choice by the kernel over all sizes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ChosenRow {
    /// The experiment's title.
    pub experiment: String,
    /// The line.
    pub line: String,
    /// The machine.
    pub machine: String,
    /// At how many sizes it is near the best fixed choice, or better.
    pub near: usize,
    /// At how many sizes it was run.
    pub sizes: usize,
    /// The least share of the best, and where.
    pub worst: String,
    /// Where it is not near, with the share of the best.
    pub exceptions: String,
}

/// A value of what curves are over, in the unit that reports have it in.
pub(super) fn place(x: f64, unit: &str) -> String {
    let (unit, by) = report_unit(unit);
    let x = x * by;
    match unit {
        "bytes" => size(x),
        "" => number(x),
        unit => format!("{} {unit}", number(x)),
    }
}

/// What the curves behind a crossover are over, where that is not a size.
pub(super) fn axis_of(c: &Crossover) -> Option<String> {
    (c.unit != "bytes").then(|| Axis::name_of(&c.x))
}

fn words(c: &Crossover) -> String {
    match c.pays {
        Pays::Always => "always".into(),
        Pays::From(x) => format!("from {}", place(x, &c.unit)),
        Pays::Never => "never".into(),
    }
}

/// The key of the setting that maps the kernel, and of what belongs to it.
const MAPPING: &str = "kernel.pmap.mapping";
const PAGES: &str = "kernel.pmap.mapping=pte";
const PERCENT: &str = "kernel.pmap.fragmented_percent";

/// How the kernel of a run is mapped, where the run says so.
fn mapping(record: &Record) -> Option<String> {
    let word = record.settings.get(MAPPING)?.to_string();
    Some(match word.as_str() {
        "pte" => "pages of 4 KB".into(),
        "bat" => "blocks".into(),
        "bat-io" => "blocks, devices too".into(),
        "bat-process" => "blocks, a process's too".into(),
        "2m" => "pages of 2 MB".into(),
        "1g" => "pages of 1 GB".into(),
        "fragmented" => match record.settings.get(PERCENT) {
            Some(percent) => format!("pages of 2 MB, {percent} % split"),
            None => "pages of 2 MB, some split".into(),
        },
        _ => word,
    })
}

/// The settings of a run but those that map the kernel.
fn others(record: &Record) -> impl Iterator<Item = (&String, &Setting)> + Clone {
    record.settings.iter().filter(|(key, _)| *key != MAPPING && *key != PERCENT)
}

/// By how much `ours` differs from `theirs`, in percent.
fn change(ours: f64, theirs: f64) -> String {
    let percent = 100.0 * (ours / theirs - 1.0);
    let digits = if percent.abs() < 9.95 { 1 } else { 0 };
    let text = format!("{percent:+.digits$} %").replace('-', "−");
    if text.trim_matches(['+', '−', ' ', '%']).trim_matches(['0', '.']).is_empty() {
        "0 %".into()
    } else {
        text
    }
}

fn title_of(all: &Reproduction, experiment: &str) -> String {
    let found = all.experiments.iter().find(|e| e.name == experiment);
    found.map_or_else(|| experiment.to_owned(), |e| e.file.title.clone())
}

/// From where on each mechanism pays: then, on each machine of the time, and now.
pub(super) fn pays_rows(all: &Reproduction) -> Vec<PaysRow> {
    let now = |then: &Crossover| {
        let of = |c: &Crossover| (c.experiment.clone(), c.x.clone(), c.mechanism.clone());
        let same = |c: &&Crossover| c.machine == NOW && of(c) == of(then);
        all.crossovers.iter().find(same).map(words).unwrap_or_default()
    };
    let then = all.crossovers.iter().filter(|c| c.machine != NOW);
    let row = |c: &Crossover| PaysRow {
        experiment: title_of(all, &c.experiment),
        mechanism: {
            let by = axis_of(c).map_or_else(String::new, |axis| format!(", by {axis}"));
            let holds_if =
                c.holds_if.as_ref().map_or_else(String::new, |holds_if| format!(", if {holds_if}"));
            format!("{} over {}{by}{holds_if}", c.mechanism, c.over)
        },
        machine: c.machine.clone(),
        then: words(c),
        now: now(c),
    };
    then.map(row).collect()
}

/// What it is worth to map the kernel otherwise than by pages of 4 KB: each run that does, beside the one that does
/// not.
pub(super) fn mapping_rows(all: &Reproduction) -> Vec<MappingRow> {
    let records: Vec<&Record> =
        all.firsts().map(|run| &run.record).filter(|r| mapping(r).is_some()).collect();
    let row = |ours: &&Record| {
        let like = |r: &&&Record| {
            (&r.experiment, &r.machine, &r.kernel) == (&ours.experiment, &ours.machine, &ours.kernel)
        };
        let pages =
            records.iter().filter(like).find(|r| r.has_setting(PAGES) && others(r).eq(others(ours)))?;
        let varies = |key: &String, value: &Setting| {
            records.iter().filter(like).any(|r| r.settings.get(key) != Some(value))
        };
        let with = others(ours).filter(|(key, value)| varies(key, value));
        let with: Vec<String> = with.map(|(key, value)| format!("{key}={value}")).collect();
        let both = |metric| Some((ours.metric(metric)?, pages.metric(metric)?)).filter(|(_, of)| *of > 0.0);
        // Of both TLBs, where that is told.
        let (misses, of_pages) = both("tlb_misses_total").or_else(|| both("tlb_misses"))?;
        let (time, time_of_pages) = both("elapsed_us")?;
        Some(MappingRow {
            experiment: title_of(all, &ours.experiment),
            machine: ours.machine.clone(),
            mapping: mapping(ours)?,
            with: with.join(", "),
            misses: pageferry_lab::text::number(of_pages),
            change_of_misses: change(misses, of_pages),
            change_of_time: change(time, time_of_pages),
        })
    };
    records.iter().filter(|r| !r.has_setting(PAGES)).filter_map(row).collect()
}

/// How near the kernel's choices come to the best fixed ones.
pub(super) fn chosen_rows(all: &Reproduction) -> Vec<ChosenRow> {
    let key = |c: &AutoChoice| (c.experiment.clone(), c.machine.clone(), c.line.clone());
    let groups = all.chosen.chunk_by(|a, b| key(a) == key(b));
    let in_words = |c: &AutoChoice, one: bool| {
        let share = format!("{:.0} % of {}", 100.0 * c.ratio, c.best);
        if one { share } else { format!("{share} at {}", place(c.x, &c.unit)) }
    };
    let with_reason = |c: &AutoChoice, one: bool| {
        let reason = c.because.as_ref().map_or(String::new(), |because| format!(": {because}"));
        format!("{}{reason}", in_words(c, one))
    };
    let row = |group: &[AutoChoice]| {
        let far = group.iter().filter(|c| c.ratio < SHARE_OF_BEST);
        let worst = group.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio)).expect("a group has one");
        let one = group.len() == 1;
        ChosenRow {
            experiment: title_of(all, &worst.experiment),
            line: worst.line.clone(),
            machine: worst.machine.clone(),
            near: group.len() - far.clone().count(),
            sizes: group.len(),
            worst: in_words(worst, one),
            exceptions: far.map(|c| with_reason(c, one)).collect::<Vec<_>>().join("; "),
        }
    };
    groups.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_in_percent_with_a_sign() {
        assert_eq!(change(105.1, 100.0), "+5.1 %");
        assert_eq!(change(12.0, 100.0), "−88 %");
        assert_eq!(change(0.0, 100.0), "−100 %");
        assert_eq!(change(100.01, 100.0), "0 %");
    }
}
