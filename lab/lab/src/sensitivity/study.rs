//! The runs of a study: the baseline, a screen, every constant up, and down where up moved something.
//!
//! To save runs it is assumed that a constant moves nothing downwards that it does not move upwards by a bit, and
//! that a group of constants that moves nothing when all of it goes up has none that does. Runs that nothing watched
//! needs are not made again.
//!
//! What can fail: a run of the baseline; whatever [`Maker`] says. A changed run that is refused, or breaks a law, is
//! told, and what needs it stays as it was.

use super::effect::{effects, flips};
use super::knobs::{Filter, Knob, changed, knobs};
use super::rank::{Sensitivity, Turn};
use super::watched::{Observer, Value};
use crate::error::LabError;
use crate::files::Experiment;
use crate::record::{Record, RunResult, common_dictionary};
use crate::run::RunSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Constants that are screened together, at most.
const GROUP: usize = 8;

/// Makes runs, and tells what goes on.
pub trait Maker {
    /// What each run of `plan` gave; `what` says what they are for.
    ///
    /// # Errors
    /// When none can be made.
    fn make(&mut self, what: &str, plan: &[RunSpec]) -> Result<Vec<Result<RunResult, LabError>>, LabError>;

    /// Tells something.
    fn note(&mut self, text: &str);
}

/// What a changed run gave.
enum Outcome {
    Same,
    Moved(Box<Record>),
    Refused(String),
}

/// What runs gave, each with its constant.
type Outcomes = Vec<((usize, usize), Outcome)>;

/// The runs as they are, and what is watched of them.
struct Base {
    plan: Vec<RunSpec>,
    records: Vec<Record>,
    watched: Vec<(Observer, Vec<usize>, Vec<Value>)>,
    /// The runs that are made again.
    needed: Vec<usize>,
}

/// Changes the constants of the runs of `plan` by `share` of their values, as far as `filter` takes them.
///
/// # Errors
/// A run of `plan` that fails; a filter that leaves nothing; what `maker` says.
pub fn study(
    plan: Vec<RunSpec>,
    filter: &Filter,
    share: f64,
    maker: &mut dyn Maker,
) -> Result<Sensitivity, LabError> {
    let taken: Vec<&RunSpec> = plan.iter().filter(|run| filter.takes(run)).collect();
    let (all, words) = knobs(&taken, filter)?;
    let pairs: usize = taken.iter().map(|run| all.iter().filter(|knob| knob.is_of(run)).count()).sum();
    if pairs == 0 {
        let problem = "no run that is judged has such a constant on such a machine under such a kernel";
        return Err(LabError::Option {
            option: "--machine, --kernel, --key".into(),
            problem: problem.into(),
        });
    }
    maker.note(&format!(
        "{} constants in {} of {} runs: at most {} runs, and fewer where a constant moves nothing. {words} words and \
         flags are left out.",
        all.len(),
        taken.len(),
        plan.len(),
        plan.len() + 2 * pairs
    ));
    let base = Base::new(plan, filter, maker)?;
    let mut study = Study { base, knobs: all, share, clamped: BTreeSet::new() };
    let mut pairs = study.screened(maker)?;
    let mut turns: BTreeMap<(usize, bool), Turn> = BTreeMap::new();
    for up in [true, false] {
        let outcomes = study.turned(&pairs, up, maker)?;
        let mut moved = Vec::new();
        let mut by_knob: BTreeMap<usize, Vec<(usize, Outcome)>> = BTreeMap::new();
        for ((run, knob), outcome) in outcomes {
            if !matches!(outcome, Outcome::Same) {
                moved.push((run, knob));
            }
            by_knob.entry(knob).or_default().push((run, outcome));
        }
        for (knob, outcomes) in by_knob {
            turns.insert((knob, up), study.judged(knob, up, outcomes));
        }
        pairs = moved;
    }
    Ok(study.told(turns, words))
}

impl Base {
    fn new(plan: Vec<RunSpec>, filter: &Filter, maker: &mut dyn Maker) -> Result<Base, LabError> {
        let made = maker.make("as they are", &plan)?;
        let records: Vec<Record> =
            made.into_iter().map(|run| Ok(run?.record)).collect::<Result<_, LabError>>()?;
        if let Some(record) = records.iter().find(|record| !record.broken().is_empty()) {
            return Err(LabError::Law { run: record.title(), broken: record.broken() });
        }
        let mut experiments: Vec<Arc<Experiment>> = Vec::new();
        for run in &plan {
            if experiments.iter().all(|e| e.name != run.experiment.name) {
                experiments.push(run.experiment.clone());
            }
        }
        let (mut watched, mut needed) = (Vec::new(), Vec::new());
        for experiment in &experiments {
            let places: Vec<usize> =
                (0..plan.len()).filter(|&at| plan[at].experiment.name == experiment.name).collect();
            let mut machines: Vec<String> = Vec::new();
            for &at in &places {
                if !machines.contains(&plan[at].machine.name) {
                    machines.push(plan[at].machine.name.clone());
                }
            }
            let dictionary = common_dictionary(plan[places[0]].workload.metrics());
            let one = Observer::new(experiment, machines, dictionary);
            let own: Vec<Record> = places.iter().map(|&at| records[at].clone()).collect();
            let values = one.values(&own);
            let used =
                |&(at, place): &(usize, usize)| filter.takes(&plan[place]) && one.needs(&own, at, &values);
            needed.extend(places.iter().copied().enumerate().filter(used).map(|(_, place)| place));
            watched.push((one, places, values));
        }
        Ok(Base { plan, records, watched, needed })
    }
}

struct Study {
    base: Base,
    knobs: Vec<Knob>,
    share: f64,
    /// Constants that a range held back.
    clamped: BTreeSet<(usize, bool)>,
}

impl Study {
    /// Runs and their constants that may move them: a group that moves nothing is left out.
    fn screened(&self, maker: &mut dyn Maker) -> Result<Vec<(usize, usize)>, LabError> {
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for &run in &self.base.needed {
            let own = (0..self.knobs.len()).filter(|&knob| self.knobs[knob].is_of(&self.base.plan[run]));
            let own: Vec<usize> = own.collect();
            let table = |knob: usize| {
                let key = &self.knobs[knob].key;
                key.split('.').next().map(|first| (self.knobs[knob].part, first.to_owned()))
            };
            for of_table in own.chunk_by(|&a, &b| table(a) == table(b)) {
                groups.extend(of_table.chunks(GROUP).map(|group| (run, group.to_vec())));
            }
        }
        let (mut plan, mut tried, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        for (run, group) in groups {
            let values: Vec<(&Knob, i64)> = (group.iter().map(|&knob| &self.knobs[knob]))
                .filter_map(|knob| Some((knob, knob.turned(true, self.share)?.0)))
                .collect();
            match changed(&self.base.plan[run], &values) {
                Ok(spec) if group.len() > 1 => {
                    plan.push(spec);
                    tried.push((run, group));
                }
                // What is refused as a whole is tried one by one.
                _ => pairs.extend(group.into_iter().map(|knob| (run, knob))),
            }
        }
        let what = "with groups of constants changed, to see which matter";
        for ((run, group), made) in tried.into_iter().zip(maker.make(what, &plan)?) {
            if !matches!(self.outcome(run, made), Outcome::Same) {
                pairs.extend(group.into_iter().map(|knob| (run, knob)));
            }
        }
        pairs.sort_unstable();
        Ok(pairs)
    }

    /// What each of `pairs` gives with its constant changed.
    fn turned(
        &mut self,
        pairs: &[(usize, usize)],
        up: bool,
        maker: &mut dyn Maker,
    ) -> Result<Outcomes, LabError> {
        let (mut plan, mut tried, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        for &(run, at) in pairs {
            let knob = &self.knobs[at];
            let Some((value, clamped)) = knob.turned(up, self.share) else {
                // It stands at the end of its range; the other way it may move.
                self.clamped.insert((at, up));
                outcomes.push(((run, at), Outcome::Refused(String::new())));
                continue;
            };
            if clamped {
                self.clamped.insert((at, up));
            }
            match changed(&self.base.plan[run], &[(knob, value)]) {
                Ok(spec) => {
                    plan.push(spec);
                    tried.push((run, at));
                }
                Err(error) => outcomes.push(((run, at), Outcome::Refused(error.to_string()))),
            }
        }
        let what = if up { "with one constant up" } else { "with one constant down" };
        for ((run, knob), made) in tried.into_iter().zip(maker.make(what, &plan)?) {
            outcomes.push(((run, knob), self.outcome(run, made)));
        }
        Ok(outcomes)
    }

    fn outcome(&self, run: usize, made: Result<RunResult, LabError>) -> Outcome {
        let base = &self.base.records[run];
        match made {
            Err(error) => Outcome::Refused(error.to_string()),
            Ok(made) => match made.record.broken() {
                broken if !broken.is_empty() => Outcome::Refused(broken.join("; ")),
                _ => {
                    let record = Record { settings: base.settings.clone(), ..made.record };
                    if record == *base { Outcome::Same } else { Outcome::Moved(Box::new(record)) }
                }
            },
        }
    }

    /// What is watched with a constant changed.
    fn judged(&self, at: usize, up: bool, outcomes: Vec<(usize, Outcome)>) -> Turn {
        let value = self.knobs[at].turned(up, self.share).map_or(self.knobs[at].value, |turned| turned.0);
        let mut turn = Turn::default();
        let mut records = BTreeMap::new();
        for (run, outcome) in outcomes {
            match outcome {
                Outcome::Same => {}
                Outcome::Moved(record) => drop(records.insert(run, Some(*record))),
                Outcome::Refused(why) => {
                    records.insert(run, None);
                    // One run tells for all.
                    if !why.is_empty() && turn.refused.is_empty() {
                        let (key, why) = (self.knobs[at].full_key(), why.trim_start_matches("--set "));
                        turn.refused.push(format!("{key} {value} in {}: {why}", self.base.plan[run].title()));
                    }
                }
            }
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (watched, places, values) in &self.base.watched {
            before.extend(values);
            if !places.iter().any(|place| records.contains_key(place)) {
                after.extend(values.iter().cloned());
                continue;
            }
            let now = |place: &usize| match records.get(place) {
                Some(changed) => changed.clone(),
                None => Some(self.base.records[*place].clone()),
            };
            let own: Vec<Record> = places.iter().filter_map(now).collect();
            let new = watched.values(&own);
            let kept = |old: &Value| new.iter().find(|new| new.id == old.id).unwrap_or(old).clone();
            let new: Vec<Value> = values.iter().map(kept).collect();
            turn.effects.extend(effects(values, &new, (at, up, value)));
            after.extend(new);
        }
        turn.flips = flips(&before, &after.iter().collect::<Vec<_>>(), up);
        turn
    }

    fn told(self, turns: BTreeMap<(usize, bool), Turn>, words: usize) -> Sensitivity {
        let values = self.base.watched.into_iter().flat_map(|(_, _, values)| values);
        Sensitivity::new(self.knobs, self.share, turns, values.collect(), words, self.clamped)
    }
}
