//! Results beside published numbers.
//!
//! A comparison has a *standing*. `Given`: the published number is itself a constant of the model (an instruction's
//! latency), so agreement only shows that the model does what it was told. `Calibrated`: some constant was fitted to
//! it. `Predicted`: neither; here agreement means something. The standing is derived from the constants' own sources,
//! never declared.

use crate::experiments::{Compare, Experiment, How};
use crate::papers::{Paper, Published, Relation, Role};
use crate::result::Record;
use crate::text;
use pageferry_model::{Constant, SourceKind};
use serde::{Deserialize, Serialize};

/// How near counts as agreement: within a tenth.
pub const TOLERANCE: f64 = 0.1;

/// What the model was told about a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The number itself.
    Given,
    /// A constant was fitted to it.
    Calibrated,
    /// Nothing.
    Predicted,
}

/// One result beside a published number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The id of the number.
    pub published: String,
    /// The paper's short name and the section.
    pub source: String,
    /// The experiment.
    pub experiment: String,
    /// The machine.
    pub machine: String,
    /// The kernel.
    pub kernel: String,
    /// What is compared, in words.
    pub what: String,
    /// Ours, for tables.
    pub ours: String,
    /// The paper's, for tables.
    pub theirs: String,
    /// Ours as a number, in the paper's unit.
    pub ours_value: f64,
    /// The paper's as a number, where it is one.
    pub theirs_value: Option<f64>,
    /// Ours divided by the paper's; of gains, the quotient of the ratios.
    pub ratio: Option<f64>,
    /// Whether ours agrees: within 10 %, within the range, or as the paper says in words.
    pub agrees: bool,
    /// What the model was told.
    pub standing: Standing,
}

/// All comparisons with one published statement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Statement {
    /// The id of the number.
    pub published: String,
    /// The paper's short name and the section.
    pub source: String,
    /// What is compared, in words.
    pub what: String,
    /// What the paper says.
    pub theirs: String,
    /// What the model was told.
    pub standing: Standing,
    /// True for a number that ours can be divided by; false for a tendency, an order or a bound.
    pub in_numbers: bool,
    /// Whether all agree.
    pub agrees: bool,
    /// The comparisons.
    pub rows: Vec<Comparison>,
}

/// `comparisons` by what the paper states, in order of appearance.
pub fn statements(comparisons: &[Comparison]) -> Vec<Statement> {
    let mut found: Vec<Statement> = Vec::new();
    for c in comparisons {
        let at = found.iter().position(|s| s.published == c.published).unwrap_or_else(|| {
            found.push(Statement {
                published: c.published.clone(),
                source: c.source.clone(),
                what: c.what.clone(),
                theirs: c.theirs.clone(),
                standing: c.standing,
                in_numbers: c.ratio.is_some(),
                agrees: true,
                rows: Vec::new(),
            });
            found.len() - 1
        });
        found[at].agrees &= c.agrees;
        found[at].rows.push(c.clone());
    }
    found
}

/// All comparisons of `experiment` for which `records` has the runs. `constants` are all constants of the machines and
/// kernels that were run.
pub fn compare(
    experiment: &Experiment,
    paper: &Paper,
    records: &[Record],
    constants: &[Constant],
) -> Vec<Comparison> {
    let ours: Vec<&Record> = records.iter().filter(|r| r.experiment == experiment.name).collect();
    let mut found = Vec::new();
    for rule in &experiment.file.compare {
        let Some(published) = paper.number(&rule.published) else { continue };
        for machine in &rule.machines {
            let Some((value, outcome)) = judge(rule, published, machine, &ours) else { continue };
            found.push(Comparison {
                published: published.id.clone(),
                source: format!("{}, {}", paper.short, published.section),
                experiment: experiment.name.clone(),
                machine: machine.clone(),
                kernel: rule.kernel.clone(),
                what: describe(rule, published),
                ours: outcome.ours,
                theirs: outcome.theirs,
                ours_value: value,
                theirs_value: published.value,
                ratio: outcome.ratio,
                agrees: outcome.agrees,
                standing: standing(published, constants),
            });
        }
    }
    found
}

struct Outcome {
    ours: String,
    theirs: String,
    ratio: Option<f64>,
    agrees: bool,
}

fn judge(
    rule: &Compare,
    published: &Published,
    machine: &str,
    records: &[&Record],
) -> Option<(f64, Outcome)> {
    let metric = |machine: &str, kernel: &str| {
        let has = |r: &Record| rule.set.iter().all(|text| r.has_setting(text));
        let run = records.iter().find(|r| r.machine == machine && r.kernel == kernel && has(r))?;
        run.metric(&rule.metric)
    };
    let value = metric(machine, &rule.kernel)?;
    let shown = |value: f64| format!("{} {}", text::number(value), unit(&rule.metric)).trim_end().to_owned();
    let theirs = published.shown();
    Some(match rule.how {
        How::Value => {
            let (ratio, agrees) = near(value, published);
            (value, Outcome { ours: shown(value), theirs, ratio, agrees })
        }
        How::Gain => {
            let ours = value / metric(machine, rule.over.as_deref()?)?;
            let ratio = ours / (1.0 + published.value? / 100.0);
            let gain = (ours - 1.0) * 100.0;
            let agrees = (ratio - 1.0).abs() <= TOLERANCE;
            (
                gain,
                Outcome {
                    ours: format!("{gain:+.0} %"),
                    theirs: format!("+{theirs}"),
                    ratio: Some(ratio),
                    agrees,
                },
            )
        }
        How::Zero => {
            let theirs = if published.direction.is_some() { "none".to_owned() } else { theirs };
            (value, Outcome { ours: text::number(value), theirs, ratio: None, agrees: value == 0.0 })
        }
        How::AtLeast => {
            let agrees = value >= rule.bound?;
            (value, Outcome { ours: shown(value), theirs, ratio: None, agrees })
        }
        How::MoreThan => {
            let mut others = Vec::new();
            if let Some(kernel) = &rule.over {
                others.push(metric(machine, kernel)?);
            }
            for other in &rule.other_machines {
                others.push(metric(other, &rule.kernel)?);
            }
            let most = others.into_iter().fold(f64::MIN, f64::max);
            let ours = format!("{} against {}", text::number(value), shown(most));
            (value, Outcome { ours, theirs, ratio: None, agrees: value > most })
        }
    })
}

/// The ratio to the published value, and whether it is near enough. Within a range, the ratio is 1.
fn near(value: f64, published: &Published) -> (Option<f64>, bool) {
    let ratio = match (published.value, published.low, published.high) {
        (Some(theirs), ..) => value / theirs,
        (None, Some(low), Some(high)) => value / value.clamp(low, high),
        _ => return (None, false),
    };
    (Some(ratio), (ratio - 1.0).abs() <= TOLERANCE)
}

/// The unit at the end of a metric's name.
fn unit(metric: &str) -> &'static str {
    let units = [("_cycles", "cycles"), ("_ns", "ns"), ("_mb_s", "MB/s"), ("_percent", "%"), ("_us", "µs")];
    units.iter().find(|(suffix, _)| metric.ends_with(suffix)).map_or("", |(_, unit)| unit)
}

fn describe(rule: &Compare, published: &Published) -> String {
    match (rule.how, &rule.over) {
        (How::Gain, Some(over)) => format!("gain in {} over {over}", words(&rule.metric)),
        (How::MoreThan, Some(over)) => format!("{} above that under {over}", words(&rule.metric)),
        (How::MoreThan, None) => {
            format!("{} above that of {}", words(&rule.metric), rule.other_machines.join(", "))
        }
        _ => published.metric.clone(),
    }
}

fn words(metric: &str) -> String {
    let name = metric.trim_end_matches("_mb_s").trim_end_matches("_ns").trim_end_matches("_cycles");
    match name {
        "local_cached" => "cost of a local invalidation in time".to_owned(),
        _ => name.replace('_', " "),
    }
}

fn standing(published: &Published, constants: &[Constant]) -> Standing {
    let calibrated =
        |c: &Constant| c.kind == SourceKind::Calibrated && c.against.as_deref() == Some(&published.id);
    if constants.iter().any(calibrated) {
        Standing::Calibrated
    } else if published.role == Role::Input && published.relation != Relation::Direction {
        Standing::Given
    } else {
        Standing::Predicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn record(machine: &str, kernel: &str, bandwidth: f64, invalidations: u64) -> Record {
        Record {
            experiment: "bw-pipe".into(),
            machine: machine.into(),
            kernel: kernel.into(),
            seed: 1,
            settings: BTreeMap::new(),
            results: [("bandwidth_mb_s".to_owned(), bandwidth)].into(),
            counters: [("tlb_invalidations".to_owned(), invalidations)].into(),
            cycles: Default::default(),
            hardware: BTreeMap::new(),
            payload_ok: true,
            stale_translations: 0,
            laws: Vec::new(),
        }
    }

    fn compared(records: &[Record], constants: &[Constant]) -> Vec<Comparison> {
        let experiment = Experiment::find("bw-pipe").expect("embedded");
        compare(&experiment, &Paper::find("sf-buf").expect("embedded"), records, constants)
    }

    #[test]
    fn gains_are_judged_as_ratios() {
        let told = |bandwidth: f64| {
            let records =
                [record("xeon-up", "original", 100.0, 9), record("xeon-up", "sf_buf", bandwidth, 0)];
            compared(&records, &[])
                .into_iter()
                .find(|c| c.published == "sfbuf-pipe-gain-xeon-up")
                .expect("compared")
        };
        let c = told(167.0);
        assert!(c.agrees && (c.ratio.expect("a ratio") - 1.0).abs() < 1e-9);
        assert_eq!((c.ours.as_str(), c.theirs.as_str()), ("+67 %", "+67 %"));
        assert!(told(151.0).agrees && !told(150.0).agrees);
        assert!(told(183.6).agrees && !told(184.0).agrees);
    }

    #[test]
    fn a_statement_agrees_when_all_its_machines_do() {
        let records = [record("xeon-mp", "sf_buf", 1.0, 0), record("xeon-up", "sf_buf", 1.0, 3)];
        let statements = statements(&compared(&records, &[]));
        assert_eq!(statements.len(), 1);
        assert_eq!(
            (statements[0].rows.len(), statements[0].agrees, statements[0].in_numbers),
            (2, false, false)
        );
    }

    #[test]
    fn what_was_not_run_is_not_compared() {
        assert_eq!(compared(&[record("xeon-up", "sf_buf", 1.0, 0)], &[]).len(), 1);
        assert!(compared(&[], &[]).is_empty());
    }

    #[test]
    fn zero_means_zero() {
        let told = |n: u64| compared(&[record("xeon-mp", "sf_buf", 1.0, n)], &[])[0].agrees;
        assert!(told(0) && !told(1));
    }

    #[test]
    fn the_standing_comes_from_the_constants() {
        let records = [record("xeon-up", "original", 100.0, 9), record("xeon-up", "sf_buf", 167.0, 0)];
        let fitted = Constant {
            key: "cpu.cpi_milli".into(),
            value: "1".into(),
            source: "fitted".into(),
            kind: SourceKind::Calibrated,
            against: Some("sfbuf-pipe-gain-xeon-up".into()),
        };
        assert_eq!(compared(&records, &[])[0].standing, Standing::Predicted);
        assert_eq!(compared(&records, &[fitted])[0].standing, Standing::Calibrated);
    }
}
