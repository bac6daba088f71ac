//! Two sets of runs side by side: what moved from the first to the second, and in which causes the cycles moved.
//!
//! Runs are matched by experiment, machine, kernel and settings. A parameter that one side does not know at all came
//! later than its runs: it is taken as having been what is its default now. Of several that are alike in all of these
//! (they differ in their seeds), the first is matched with the first by seed, and so on. Where each side has one run,
//! and both are of one experiment, these are matched whatever they ran on: who names two runs asks for their
//! difference.
//!
//! Looked at are the metrics of judgement, those that the rules and curves of an experiment name, or its results where
//! it names none; or all that there are. A metric moves where it changes by more than a threshold, a percentage of what
//! it was. What was 0 or was not there, and now is another number, moves by more than any.
//!
//! Nothing here can fail: runs that have no match are told as such.

use super::csv::{metrics, table};
use pageferry_lab::files::{Scale, Setting};
use pageferry_lab::judge::Reproduction;
use pageferry_lab::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// What is looked at, and from which change on it is told.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// What is not more than this is not told, in percent.
    pub threshold_percent: f64,
    /// Every metric, and not those of judgement only.
    pub all_metrics: bool,
}

/// What moved between two sets of runs.
#[derive(Debug)]
pub struct Diff<'a> {
    /// How many runs are in both.
    pub runs_in_both: usize,
    /// How many metrics of these were looked at.
    pub metrics: usize,
    /// The runs in which something moved, in the order of the first set.
    pub runs: Vec<RunChange<'a>>,
    /// Runs of the first set that the second does not have.
    pub only_first: Vec<&'a Record>,
    /// Runs of the second set that the first does not have.
    pub only_second: Vec<&'a Record>,
    /// Parameters that came after the runs of one side were made, and what these were taken to have been run with.
    pub taken: Vec<Assumption<'a>>,
    /// By experiment, the settings by which its runs differ.
    varied: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

/// A parameter that the runs of one side do not know, where the other's have its default.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Assumption<'a> {
    /// The experiment.
    pub experiment: &'a str,
    /// The parameter.
    pub key: &'a str,
    /// Its default.
    pub value: &'a Setting,
    /// It is the second side whose runs do not know it.
    pub by_second: bool,
}

/// A run in which something moved.
#[derive(Debug)]
pub struct RunChange<'a> {
    /// What it was.
    pub from: &'a Record,
    /// What it is.
    pub to: &'a Record,
    /// What moved; the furthest first.
    pub changes: Vec<Change>,
    /// Causes whose cycles changed, the largest change first.
    pub causes: Vec<CauseChange<'a>>,
}

/// A metric that moved.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// Its name.
    pub metric: String,
    /// Its unit, where the dictionary has it.
    pub unit: String,
    /// What it was; none where the run did not have it.
    pub from: Option<f64>,
    /// What it is.
    pub to: Option<f64>,
}

/// A cause whose cycles changed.
#[derive(Clone, PartialEq, Debug)]
pub struct CauseChange<'a> {
    /// Its name.
    pub cause: &'a str,
    /// Its cycles in the first run.
    pub from: u64,
    /// Its cycles in the second.
    pub to: u64,
    /// Its part of all cycles that came or went, in percent. Below 0 where they went: shares add up to 100 without
    /// their signs.
    pub share_percent: f64,
}

impl Change {
    /// The change in percent of what it was; none where that was 0 or nothing.
    pub fn percent(&self) -> Option<f64> {
        let (from, to) = (self.from?, self.to?);
        (from != 0.0).then(|| 100.0 * (to - from) / from.abs())
    }

    /// How far it moved, in percent.
    fn distance_percent(&self) -> f64 {
        // A count that one side does not have is one of nothing.
        if self.from.unwrap_or(0.0) == self.to.unwrap_or(0.0) {
            return 0.0;
        }
        self.percent().map_or(f64::INFINITY, f64::abs)
    }
}

impl<'a> Diff<'a> {
    /// What moved from `first` to `second`.
    pub fn new(first: &'a Reproduction, second: &'a Reproduction, scope: Scope) -> Diff<'a> {
        let mut diff = Diff {
            runs_in_both: 0,
            metrics: 0,
            runs: Vec::new(),
            only_first: Vec::new(),
            only_second: Vec::new(),
            taken: Vec::new(),
            varied: varied(first.records().chain(second.records())),
        };
        let units: BTreeMap<&str, &str> = (first.dictionary.iter().chain(&second.dictionary))
            .map(|entry| (&*entry.metric, &*entry.unit))
            .collect();
        let judged = judged(&[first, second]);
        let (pairs, taken) = pairs(first, second, &mut diff.only_first, &mut diff.only_second);
        diff.taken = taken;
        for Assumption { experiment, key, .. } in &diff.taken {
            if let Some(keys) = diff.varied.get_mut(experiment)
                && first.records().chain(second.records()).all(|r| alike(r, experiment, key, &diff.taken))
            {
                keys.remove(key);
            }
        }
        for (from, to) in pairs {
            diff.runs_in_both += 1;
            let names = names(from, to, &judged, scope);
            let change = |metric: String| Change {
                unit: units.get(&*metric).copied().unwrap_or_default().to_owned(),
                from: value(from, &metric),
                to: value(to, &metric),
                metric,
            };
            let mut changes: Vec<Change> = names.into_iter().map(change).collect();
            changes.retain(|change| change.from.is_some() || change.to.is_some());
            diff.metrics += changes.len();
            changes.retain(|change| change.distance_percent() > scope.threshold_percent);
            changes.sort_by(|a, b| b.distance_percent().total_cmp(&a.distance_percent()));
            if !changes.is_empty() {
                diff.runs.push(RunChange { from, to, changes, causes: causes(from, to) });
            }
        }
        diff
    }

    /// All that moved, each with its run; the furthest first.
    pub fn changes(&self) -> Vec<(&RunChange<'a>, &Change)> {
        let of = |run| std::iter::repeat(run);
        let mut all: Vec<_> = self.runs.iter().flat_map(|run| of(run).zip(&run.changes)).collect();
        all.sort_by(|(_, a), (_, b)| b.distance_percent().total_cmp(&a.distance_percent()));
        all
    }

    /// The run in a few words: experiment, machine, kernel, and the settings by which runs of the experiment differ.
    pub fn title(&self, record: &Record) -> String {
        self.title_of_change(record, record)
    }

    /// As [`Diff::title`], with both values of what two runs do not share: `original -> sf_buf`.
    pub fn title_of_change(&self, from: &Record, to: &Record) -> String {
        let both = |a: &str, b: &str| if a == b { a.to_owned() } else { format!("{a} -> {b}") };
        let mut parts =
            vec![from.experiment.clone(), both(&from.machine, &to.machine), both(&from.kernel, &to.kernel)];
        for key in self.varied.get(&*from.experiment).into_iter().flatten() {
            let word = |record: &Record| record.settings.get(*key).map(Setting::to_string);
            let (a, b) = (word(from), word(to));
            if a.is_some() || b.is_some() {
                let [a, b] = [a, b].map(|word| word.unwrap_or_else(|| "as in its file".to_owned()));
                parts.push(format!("{key}={}", both(&a, &b)));
            }
        }
        parts.join(", ")
    }

    /// What moved, the causes, and the runs that one side has, as a table for programs. Machine, kernel, seed and
    /// settings are those of the second run, or of the only one.
    pub fn csv(&self) -> String {
        let head = [
            "what",
            "experiment",
            "machine",
            "kernel",
            "seed",
            "settings",
            "metric",
            "unit",
            "from",
            "to",
            "change_percent",
            "share_percent",
        ];
        let row = |what: &str, record: &Record, rest: [String; 6]| {
            let settings =
                serde_json::to_string(&record.settings).expect("plain data can be written as JSON");
            let run = [&*record.experiment, &record.machine, &record.kernel].map(str::to_owned);
            let all = [what.to_owned()].into_iter().chain(run).chain([record.seed.to_string(), settings]);
            all.chain(rest).collect::<Vec<_>>()
        };
        let maybe = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        let mut rows = Vec::new();
        for (run, change) in self.changes() {
            let (from, to, percent) = (maybe(change.from), maybe(change.to), maybe(change.percent()));
            let (metric, unit) = (change.metric.clone(), change.unit.clone());
            rows.push(row("metric", run.to, [metric, unit, from, to, percent, String::new()]));
        }
        for run in &self.runs {
            for cause in &run.causes {
                let metric = format!("cycles.{}", cause.cause);
                let percent = maybe(percent(cause.from, cause.to));
                let (from, to) = (cause.from.to_string(), cause.to.to_string());
                let share = cause.share_percent.to_string();
                rows.push(row("cause", run.to, [metric, "cycles".into(), from, to, percent, share]));
            }
        }
        let sides = [("only_a", &self.only_first), ("only_b", &self.only_second)];
        for (what, runs) in sides {
            rows.extend(runs.iter().map(|record| row(what, record, Default::default())));
        }
        table(&head, rows.into_iter())
    }
}

impl RunChange<'_> {
    /// The change of all cycles in percent; none where there were none.
    pub fn cycles_percent(&self) -> Option<f64> {
        percent(self.from.cycles.total, self.to.cycles.total)
    }
}

fn percent(from: u64, to: u64) -> Option<f64> {
    (from != 0).then(|| 100.0 * (to as f64 - from as f64) / from as f64)
}

/// What a record says of a metric. A cause that is not listed has no cycles.
fn value(record: &Record, metric: &str) -> Option<f64> {
    record.metric(metric).or_else(|| metric.starts_with("cycles.").then_some(0.0))
}

/// By experiment, the metrics that its rules and curves name, on either side.
fn judged<'a>(sides: &[&'a Reproduction]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for experiment in sides.iter().flat_map(|side| &side.experiments) {
        let of = all.entry(&experiment.name).or_default();
        of.extend(experiment.file.compare.iter().map(|rule| &*rule.metric));
        of.extend(experiment.file.curves.iter().map(|curves| &*curves.metric));
    }
    all
}

/// The metrics to look at.
fn names(
    from: &Record,
    to: &Record,
    judged: &BTreeMap<&str, BTreeSet<&str>>,
    scope: Scope,
) -> BTreeSet<String> {
    if scope.all_metrics {
        return metrics(from).into_keys().chain(metrics(to).into_keys()).collect();
    }
    match judged.get(&*from.experiment) {
        Some(named) if !named.is_empty() => named.iter().map(|name| (*name).to_owned()).collect(),
        _ => from.results.keys().chain(to.results.keys()).cloned().collect(),
    }
}

/// True where `record` is of another experiment, does not know `key`, or has the value that was taken for it.
fn alike(record: &Record, experiment: &str, key: &str, taken: &[Assumption<'_>]) -> bool {
    let value = record.settings.get(key);
    let is_taken = |t: &Assumption<'_>| (t.experiment, t.key, Some(t.value)) == (experiment, key, value);
    record.experiment != experiment || value.is_none() || taken.iter().any(is_taken)
}

/// What runs are matched by: of the settings, those that both sides know.
type Match<'a> = (&'a str, &'a str, &'a str, Vec<(&'a str, &'a Setting)>);

/// By experiment, the keys of its records.
type Keys<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn keys(side: &Reproduction) -> Keys<'_> {
    let mut all: Keys<'_> = BTreeMap::new();
    for record in side.records() {
        all.entry(&record.experiment).or_default().extend(record.settings.keys().map(String::as_str));
    }
    all
}

/// Whether a parameter or a choice has its default: in long runs, in those of a matrix, or in quick ones.
fn is_default(of: &Reproduction, experiment: &str, key: &str, value: &Setting) -> bool {
    let Some(file) = of.experiments.iter().find(|e| e.name == experiment).map(|e| &e.file) else {
        return false;
    };
    if let Some(parameter) = file.parameters.get(key) {
        let scales = [Scale::Full, Scale::Reproduce, Scale::Quick];
        return scales.into_iter().any(|scale| value.number() == Some(parameter.at(scale)));
    }
    file.choices.get(key).is_some_and(|choice| value.to_string() == choice.value)
}

/// What `record` of `of` is matched by, and which of its settings `known`, the other side, does not know.
fn matched<'a>(
    of: &Reproduction,
    record: &'a Record,
    known: &Keys<'_>,
) -> (Match<'a>, Vec<(&'a str, &'a Setting)>) {
    let known = known.get(&*record.experiment);
    let later = |(key, value): &(&'a str, &'a Setting)| {
        known.is_some_and(|keys| !keys.contains(key)) && is_default(of, &record.experiment, key, value)
    };
    let settings = record.settings.iter().map(|(key, value)| (key.as_str(), value));
    let (later, both): (Vec<_>, Vec<_>) = settings.partition(later);
    ((&record.experiment, &record.machine, &record.kernel, both), later)
}

/// Runs that belong together.
type Pairs<'a> = Vec<(&'a Record, &'a Record)>;

/// The runs that are in both, in the order of the first, and what was taken as their defaults; what is left of each
/// side.
fn pairs<'a>(
    first: &'a Reproduction,
    second: &'a Reproduction,
    only_first: &mut Vec<&'a Record>,
    only_second: &mut Vec<&'a Record>,
) -> (Pairs<'a>, Vec<Assumption<'a>>) {
    if let ([from], [to]) = (&*first.runs, &*second.runs)
        && from.record.experiment == to.record.experiment
    {
        return (vec![(&from.record, &to.record)], Vec::new());
    }
    let (first_keys, second_keys) = (keys(first), keys(second));
    let mut left: BTreeMap<Match<'_>, Vec<&Record>> = BTreeMap::new();
    for record in second.records() {
        left.entry(matched(second, record, &first_keys).0).or_default().push(record);
    }
    // The last is taken first.
    left.values_mut().for_each(|alike| alike.sort_by_key(|record| std::cmp::Reverse(record.seed)));
    let mut froms: Vec<(usize, &Record)> = first.records().enumerate().collect();
    froms.sort_by_key(|(_, record)| record.seed);
    let mut found = Vec::new();
    let mut alone = Vec::new();
    let mut taken = BTreeSet::new();
    for (place, from) in froms {
        let (by, later) = matched(first, from, &second_keys);
        let Some(to) = left.get_mut(&by).and_then(Vec::pop) else {
            alone.push((place, from));
            continue;
        };
        found.push((place, (from, to)));
        let of = |by_second| {
            let experiment = &*from.experiment;
            move |(key, value): (&'a str, &'a Setting)| Assumption { experiment, key, value, by_second }
        };
        taken.extend(later.into_iter().map(of(true)));
        taken.extend(matched(second, to, &first_keys).1.into_iter().map(of(false)));
    }
    found.sort_by_key(|(place, _)| *place);
    alone.sort_by_key(|(place, _)| *place);
    only_first.extend(alone.into_iter().map(|(_, record)| record));
    let pairs: BTreeSet<*const Record> = found.iter().map(|(_, (_, to))| std::ptr::from_ref(*to)).collect();
    only_second.extend(second.records().filter(|record| !pairs.contains(&std::ptr::from_ref(*record))));
    (found.into_iter().map(|(_, pair)| pair).collect(), taken.into_iter().collect())
}

/// By experiment, the settings that not all of its runs share.
fn varied<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut by_experiment: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    records.for_each(|record| by_experiment.entry(&record.experiment).or_default().push(record));
    let keys = |of: Vec<&'a Record>| {
        let all: BTreeSet<&str> = of.iter().flat_map(|r| r.settings.keys().map(String::as_str)).collect();
        let varies = |key: &&str| of.iter().any(|r| r.settings.get(*key) != of[0].settings.get(*key));
        all.into_iter().filter(varies).collect()
    };
    by_experiment.into_iter().map(|(experiment, of)| (experiment, keys(of))).collect()
}

/// Causes whose cycles changed, the largest change first.
fn causes<'a>(from: &'a Record, to: &'a Record) -> Vec<CauseChange<'a>> {
    let all: BTreeSet<&str> =
        from.cycles.by_cause.keys().chain(to.cycles.by_cause.keys()).map(String::as_str).collect();
    let change = |cause: &'a str| {
        let (from, to) = (from.cycles.of(cause), to.cycles.of(cause));
        CauseChange { cause, from, to, share_percent: 0.0 }
    };
    let mut changes: Vec<_> = all.into_iter().map(change).filter(|change| change.from != change.to).collect();
    let moved: u64 = changes.iter().map(|change| change.from.abs_diff(change.to)).sum();
    for change in &mut changes {
        change.share_percent = 100.0 * (change.to as f64 - change.from as f64) / moved as f64;
    }
    changes.sort_by_key(|change| std::cmp::Reverse(change.from.abs_diff(change.to)));
    changes
}
