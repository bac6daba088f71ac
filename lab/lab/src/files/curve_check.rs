//! Whether the curves of an experiment fit its matrix and what its workload measures.
//!
//! A line that no run could be on, a metric that no run has and a name that no other line bears would draw nothing, and
//! say nothing. They are refused when the experiment's file is read, with the nearest name that would do.

use super::experiment_file::{Better, CurveLine, Curves, ExperimentFile, Matrix, Scale, Worse};
use super::matched::{bare, check_kernel, check_metric, check_set, runs_with, unknown};
use super::reads::Metrics;
use super::setting::Setting;
use pageferry_sourced::{Fault, nearest};

/// Refuses curves of `file` that would draw less than they say; its runs have `metrics`.
pub(super) fn check(file: &ExperimentFile, metrics: &Metrics) -> Result<(), Fault> {
    for (i, curves) in file.curves.iter().enumerate() {
        let key = format!("curves[{i}]");
        check_metric(&format!("{key}.metric"), &curves.metric, metrics)?;
        check_across(file, &format!("{key}.x"), &curves.x)?;
        let fault = |key: String, problem: String| Err(Fault { key, problem, suggestion: None });
        let mut ranked = curves.lines.iter().filter(|line| line.over.is_some() || !line.best_of.is_empty());
        let unit = metrics.get(&curves.metric).map_or("", String::as_str);
        if let (Some(line), None) = (ranked.next(), curves.better.or(Better::of_unit(unit))) {
            let problem = format!(
                "`{}` is held against another line, and the unit `{unit}` does not tell which is better: \
                 say `better = \"more\"` or `better = \"less\"`",
                line.name
            );
            return fault(format!("{key}.metric"), problem);
        }
        for (j, line) in curves.lines.iter().enumerate() {
            check_line(file, curves, &format!("{key}.lines[{j}]"), line)?;
        }
    }
    Ok(())
}

/// Refuses what curves cannot be over: it is no number that runs have.
fn check_across(file: &ExperimentFile, key: &str, x: &str) -> Result<(), Fault> {
    if file.choices.contains_key(x) {
        let problem = format!("`{x}` is a word, expected a number that the runs have");
        return Err(Fault { key: key.into(), problem, suggestion: None });
    }
    if file.parameters.contains_key(x) || file.set_keys().any(|set| set == x) {
        return Ok(());
    }
    let known = file.parameters.keys().map(String::as_str).chain(file.set_keys());
    Err(unknown(key, format!("the runs have no number `{x}`"), x, known))
}

fn check_line(file: &ExperimentFile, curves: &Curves, key: &str, line: &CurveLine) -> Result<(), Fault> {
    let fault = |key: String, problem: String| Err(Fault { key, problem, suggestion: None });
    if let Some(kernel) = &line.kernel {
        check_kernel(file, &format!("{key}.kernel"), kernel)?;
    }
    for set in &line.set {
        check_set(file, &format!("{key}.set"), set)?;
    }
    if runs_with(file, None, line.kernel.as_deref(), &line.set) == 0 {
        let under = line.kernel.as_ref().map_or_else(String::new, |kernel| format!(" under {kernel}"));
        let problem = format!("no run of the matrix{under} has {}", line.set.join(" "));
        return fault(format!("{key}.set"), problem);
    }
    let others = || curves.lines.iter().map(|line| line.name.as_str());
    let named = line.over.iter().map(|name| ("over", name));
    for (of, name) in named.chain(line.best_of.iter().map(|name| ("best_of", name))) {
        if others().all(|other| other != name) {
            return Err(unknown(
                format!("{key}.{of}"),
                format!("no line is called `{name}`"),
                name,
                others(),
            ));
        }
    }
    let tells = !line.worse.is_empty() || line.min_percent_of_best.is_some();
    if tells && line.best_of.is_empty() {
        let problem = format!("`{}` says how near to the best it is, and has no `best_of`", line.name);
        return fault(key.to_owned(), problem);
    }
    match file.worse_nowhere(line, &curves.x) {
        Some((problem, suggestion)) => Err(Fault { key: key.to_owned(), problem, suggestion }),
        None => Ok(()),
    }
}

impl ExperimentFile {
    /// A place at which `line` tells that it is worse, and at which nothing of the matrix is; and the nearest word.
    fn worse_nowhere(&self, line: &CurveLine, x: &str) -> Option<(String, Option<String>)> {
        for (i, Worse { machine, x: at, .. }) in line.worse.iter().enumerate() {
            let place = format!("`{}` is worse on `{machine}` at {x} = {at}", line.name);
            let has = |block: &&Matrix| block.machines.iter().any(|name| bare(name) == machine);
            let (on, others): (Vec<&Matrix>, Vec<&Matrix>) = self.matrix.iter().partition(has);
            if on.is_empty() {
                let there = others.iter().flat_map(|block| &block.machines).map(|name| bare(name));
                let near = nearest(machine, there).map(str::to_owned);
                return Some((format!("{place}, and the matrix has no such machine"), near));
            }
            // Judged is what is run at this scale.
            let unvaried = self.parameters.get(x).map(|parameter| parameter.at(Scale::Reproduce));
            let is_there = |block: &&Matrix| match block
                .vary
                .iter()
                .find(|vary| self.full_key(&vary.key) == self.full_key(x))
            {
                Some(vary) => vary.values.contains(&Setting::Integer(*at)),
                None => unvaried == Some(*at),
            };
            if !on.iter().any(is_there) {
                return Some((format!("{place}, and the matrix has no such run"), None));
            }
            if line.worse[..i].iter().any(|before| before.machine == *machine && before.x == *at) {
                return Some((format!("{place} is told twice"), None));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Experiment;

    #[test]
    fn what_is_told_to_be_worse_is_in_the_matrix() {
        let file = Experiment::unchecked("sound").file;
        let message = |change: fn(&mut Worse)| {
            let mut file = file.clone();
            let told = file.curves.iter_mut().flat_map(|curves| &mut curves.lines);
            let line = told.max_by_key(|line| line.worse.len()).expect("there are some");
            let (one, other) = (line.worse[0].clone(), line.worse[0].clone());
            line.worse = vec![Worse { x: 4096, ..one }, Worse { x: 16384, ..other }];
            change(&mut line.worse[0]);
            file.curves
                .iter()
                .flat_map(|c| c.lines.iter().map(|l| (l, &c.x)))
                .find_map(|(l, x)| file.worse_nowhere(l, x))
        };
        assert_eq!(message(|_| ()), None);
        let (problem, near) = message(|worse| worse.machine = "todya".into()).expect("refused");
        assert!(
            problem.contains("`todya` at size_bytes = 4096, and the matrix has no such machine"),
            "{problem}"
        );
        assert_eq!(near.as_deref(), Some("today"));
        let (problem, _) = message(|worse| worse.x = 8193).expect("refused");
        assert!(
            problem.contains("`pentium-pro` at size_bytes = 8193, and the matrix has no such run"),
            "{problem}"
        );
        let (problem, _) = message(|worse| worse.x = 16384).expect("refused");
        assert!(problem.ends_with("is told twice"), "{problem}");
    }
}
