//! Results beside published numbers.
//!
//! A comparison has a *standing*. `Given`: the published number is itself a constant of the model (an instruction's
//! latency), so agreement only shows that the model does what it was given; what a paper has as an input and the model
//! works out of parts is not. `Calibrated`: some constant was fitted to it. `Construction`: the model is made so that
//! it cannot come out otherwise, as the statement says of itself. `Predicted`: none of these; here agreement means
//! something. Of the first two the standing is derived from the constants' own sources, never declared.

use super::case::{Case, Verdict, words};
use crate::files::{Compare, Experiment, How, Paper, Published, Role};
use crate::record::Record;
use crate::spread::Spread;
use pageferry_sourced::{Constant, SourceKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the model was given of a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The number itself.
    Given,
    /// A constant was fitted to it.
    Calibrated,
    /// The mechanism, which can give nothing else.
    Construction,
    /// Nothing: it is told before it is known.
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
    /// What of a statement in words is tested here, and where; none where `what` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<String>,
    /// The settings under which that is, if the experiment has runs with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// Ours, for tables.
    pub ours: String,
    /// The paper's, for tables.
    pub theirs: String,
    /// Ours as a number, in the paper's unit. Of a shape, the last value; of a fall, how great it is in percent.
    pub ours_value: f64,
    /// The paper's as a number, where it is one.
    pub theirs_value: Option<f64>,
    /// Ours divided by the paper's.
    pub ratio: Option<f64>,
    /// Whether ours agrees: within 10 %, within the range, or as the paper says in words.
    pub agrees: bool,
    /// What the model was given.
    pub standing: Standing,
    /// What the repeats gave, where there are several: ours is the one in the middle of those that agree with most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeats>,
}

/// Several runs of what one comparison looks at, each with a seed of its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Repeats {
    /// Of ours as a number.
    pub spread: Spread,
    /// How many of them agree.
    pub agreeing: usize,
    /// For tables: the interval where there is one, and how many agree where not all do or none does. May be empty.
    pub told: String,
}

impl Repeats {
    fn new(spread: Spread, verdicts: &[Verdict]) -> Repeats {
        let agreeing = verdicts.iter().filter(|verdict| verdict.agrees).count();
        let ours = |value: f64| verdicts.iter().find(|v| v.value == value).map_or("", |v| &v.ours);
        let (low, high) = (ours(spread.low), ours(spread.high));
        let in_numbers = verdicts.iter().any(|verdict| verdict.ratio.is_some());
        let mut told = Vec::new();
        if in_numbers && low != high {
            told.push(format!("{low} to {high}"));
        }
        if agreeing > 0 && agreeing < verdicts.len() {
            told.push(format!("{agreeing} of {} repeats agree", verdicts.len()));
        }
        Repeats { spread, agreeing, told: told.join("; ") }
    }
}

impl Comparison {
    /// Ours, and how sure it is where that is known.
    pub fn ours_told(&self) -> String {
        match &self.repeats {
            Some(repeats) if !repeats.told.is_empty() => format!("{} ({})", self.ours, repeats.told),
            _ => self.ours.clone(),
        }
    }

    /// The ratio in two digits. There is none in words, nor of a range from zero that ours is below.
    pub fn ratio_told(&self) -> Option<String> {
        self.ratio.filter(|ratio| ratio.is_finite()).map(|ratio| format!("{ratio:.2}"))
    }

    /// What is tested, and under which settings, as far as `what` does not say it.
    pub fn test(&self) -> Option<String> {
        let said: Vec<&str> = self.reading.iter().chain(&self.under).map(String::as_str).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
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
    /// What the model was given.
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
    let ours = || records.iter().filter(|r| r.experiment == experiment.name);
    // What belongs together has one seed: a gain is that of two runs whose requests are the same.
    let seeds: BTreeSet<u64> = ours().map(|r| r.seed).collect();
    let repeats: Vec<Vec<&Record>> =
        seeds.iter().map(|seed| ours().filter(|r| r.seed == *seed).collect()).collect();
    let mut found = Vec::new();
    for rule in &experiment.file.compare {
        let Some(published) = paper.number(&rule.published) else { continue };
        for machine in &rule.machines {
            let case = |records| Case { experiment, rule, published, machine, records };
            let verdicts = repeats.iter().filter_map(|records| case(records).judge()).collect();
            let Some((judged, repeats)) = of_repeats(verdicts) else { continue };
            found.push(Comparison {
                published: published.id.clone(),
                source: format!("{}, {}", paper.short, published.section),
                experiment: experiment.name.clone(),
                machine: machine.clone(),
                kernel: rule.kernel.clone(),
                what: describe(rule, published),
                reading: judged.reading,
                under: judged.under,
                ours: judged.ours,
                theirs: judged.theirs,
                ours_value: judged.value,
                theirs_value: published.value,
                ratio: judged.ratio,
                agrees: judged.agrees,
                standing: standing(published, constants),
                repeats,
            });
        }
    }
    found
}

/// The verdict of several repeats. A number agrees when its median does; what is true or not, when it is in more than
/// half of them.
fn of_repeats(mut verdicts: Vec<Verdict>) -> Option<(Verdict, Option<Repeats>)> {
    let mut values: Vec<f64> = verdicts.iter().map(|verdict| verdict.value).collect();
    let spread = Spread::of(&mut values)?;
    if verdicts.len() == 1 {
        return Some((verdicts.remove(0), None));
    }
    let repeats = Repeats::new(spread, &verdicts);
    verdicts.sort_by(|a, b| a.value.total_cmp(&b.value));
    let both = verdicts.len() - 1;
    let mut placed: Vec<(usize, Verdict)> = verdicts.into_iter().enumerate().collect();
    if placed.iter().all(|(_, verdict)| verdict.ratio.is_none()) {
        let majority = 2 * repeats.agreeing > placed.len();
        placed.retain(|(_, verdict)| verdict.agrees == majority);
    }
    // By places, and not by how far values are from the median: of an even number two are as far, and which of them is
    // nearer would be a matter of rounding. The lower one is told: it was measured, as a mean of both was not.
    let (_, nearest) = placed.into_iter().min_by_key(|(place, _)| (2 * place).abs_diff(both))?;
    Some((nearest, Some(repeats)))
}

fn describe(rule: &Compare, published: &Published) -> String {
    match (rule.how, &rule.over) {
        (How::Gain, Some(over)) => format!("gain in {} over {over}", words(&rule.metric)),
        (How::GainsMore, Some(over)) => format!("gain in {} over {over}", words(&rule.metric)),
        (How::MoreThan, Some(over)) => format!("{} above that under {over}", words(&rule.metric)),
        (How::MoreThan, None) if !rule.other_machines.is_empty() => {
            format!("{} above that of {}", words(&rule.metric), rule.other_machines.join(", "))
        }
        _ => published.metric.clone(),
    }
}

fn standing(published: &Published, constants: &[Constant]) -> Standing {
    let calibrated =
        |c: &Constant| c.kind == SourceKind::Calibrated && c.against.as_deref() == Some(&published.id);
    if constants.iter().any(calibrated) {
        Standing::Calibrated
    } else if published.by_construction.is_some() {
        Standing::Construction
    } else if published.role == Role::Input && constants.iter().any(|c| is_taken_from(c, published)) {
        Standing::Given
    } else {
        Standing::Predicted
    }
}

/// True when a constant is this number, as its paper tells it: whole, or less the little that the model charges apart.
fn is_taken_from(constant: &Constant, published: &Published) -> bool {
    const MAX_APART: f64 = 0.05;
    let (Ok(constant_value), Some(value)) = (constant.value.parse::<f64>(), published.value) else {
        return false;
    };
    constant.kind == SourceKind::Paper && (constant_value - value).abs() <= MAX_APART * value.abs()
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
            perturbed: false,
            settings: BTreeMap::new(),
            results: [("bandwidth_mb_s".to_owned(), bandwidth)].into(),
            counters: [("tlb_invalidations".to_owned(), invalidations)].into(),
            cycles: Default::default(),
            hardware: BTreeMap::new(),
            locks: BTreeMap::new(),
            payload_ok: true,
            stale_translations: 0,
            laws: Vec::new(),
        }
    }

    /// Of two values in the middle the lower one is judged, whichever is nearer to their mean by rounding.
    #[test]
    fn the_lower_one_of_two_in_the_middle_is_told() {
        let verdict = |value| Verdict {
            agrees: value < 0.5,
            ratio: Some(value),
            value,
            ours: String::new(),
            theirs: String::new(),
            reading: None,
            under: None,
        };
        for step in 1..500 {
            let (low, high) = (0.1 + f64::from(step) / 7e4, 0.7 + f64::from(step) / 3e4);
            let values = [high, 0.01, low, 0.9 + high];
            let told = of_repeats(values.into_iter().map(verdict).collect());
            assert_eq!(told.map(|(verdict, _)| verdict.value), Some(low));
        }
    }

    fn compared(records: &[Record], constants: &[Constant]) -> Vec<Comparison> {
        let experiment = Experiment::unchecked("bw-pipe");
        compare(&experiment, &Paper::find("sf-buf").expect("embedded"), records, constants)
    }

    #[test]
    fn a_gain_is_compared_with_the_gain() {
        let outcome = |bandwidth: f64| {
            let records =
                [record("xeon-up", "original", 100.0, 9), record("xeon-up", "sf_buf", bandwidth, 0)];
            compared(&records, &[])
                .into_iter()
                .find(|c| c.published == "sfbuf-pipe-gain-xeon-up")
                .expect("compared")
        };
        let c = outcome(167.0);
        assert!(c.agrees && (c.ratio.expect("a ratio") - 1.0).abs() < 1e-9);
        assert_eq!((c.ours.as_str(), c.theirs.as_str()), ("+67 %", "+67 %"));
        assert!(outcome(160.4).agrees && !outcome(160.2).agrees);
        assert!(outcome(173.6).agrees && !outcome(173.8).agrees);
        let half = outcome(133.5).ratio.expect("a ratio");
        assert!((half - 0.5).abs() < 1e-9, "half the gain is half of it");
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
        let outcome = |n: u64| compared(&[record("xeon-mp", "sf_buf", 1.0, n)], &[])[0].agrees;
        assert!(outcome(0) && !outcome(1));
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

    /// An input that no constant is was worked out, whatever the paper did with it.
    #[test]
    fn an_input_is_given_where_a_constant_is_taken_from_the_paper() {
        let paper = Paper::find("sf-buf").expect("embedded");
        let wait = paper.numbers.iter().find(|n| n.id == "sfbuf-xeon-local-pte-cached").expect("it is there");
        let with = |value: &str, kind| {
            let (key, source) = ("cpu.invalidate_page_cycles".into(), "sf-buf, 3".into());
            standing(wait, &[Constant { key, value: value.into(), source, kind, against: None }])
        };
        assert_eq!(with("498", SourceKind::Paper), Standing::Given);
        assert_eq!(with("498", SourceKind::Assumed), Standing::Predicted);
        assert_eq!(with("400", SourceKind::Paper), Standing::Predicted);
        assert_eq!(standing(wait, &[]), Standing::Predicted);
    }
}
