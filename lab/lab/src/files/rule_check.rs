//! Whether the rules of an experiment fit its matrix and its paper.
//!
//! A rule must mean exactly one run of the matrix at each place that it looks at, and ask of a published statement what
//! that can answer. Anything else is refused when the experiment's file is read.

use super::experiment_file::ExperimentFile;
use super::matched::{check_kernel, check_machine, check_metric, check_set, runs_with};
use super::papers::{Paper, Relation};
use super::reads::Metrics;
use super::rules::{Compare, How, Wrong};
use pageferry_sourced::{Fault, nearest};

impl Compare {
    /// That each place that the rule looks at is one run of the matrix of `file`.
    fn runs(&self, file: &ExperimentFile) -> Result<(), Wrong> {
        let under = |kernel| self.machines.iter().map(move |machine| (machine, kernel));
        let mut pairs: Vec<(&String, &String)> = under(&self.kernel).collect();
        pairs.extend(self.over.iter().flat_map(under));
        pairs.extend(self.other_machines.iter().map(|machine| (machine, &self.kernel)));
        let mut sets = vec![("set", self.set.clone())];
        if !self.other_set.is_empty() {
            sets.push(("other_set", self.other_set.clone()));
        }
        if !self.base.is_empty() {
            let bases: Vec<_> = sets.iter().map(|(_, set)| ("base", self.base_of(set))).collect();
            sets.extend(bases);
        }
        for (name, set) in &sets {
            for place in self.places() {
                let wanted: Vec<String> = set.iter().cloned().chain(self.at(place)).collect();
                for (machine, kernel) in &pairs {
                    // Of a rule that says settings for each of two kernels, each set is one kernel's.
                    let of_over = self.over.as_ref() == Some(kernel);
                    if self.how == How::Less && self.over.is_some() && of_over != (*name == "other_set") {
                        continue;
                    }
                    let found = runs_with(file, Some(machine), Some(kernel), &wanted);
                    if found != 1 {
                        let key = if found == 0 && place.is_some() { "along" } else { *name };
                        let with = if wanted.is_empty() { "all settings".into() } else { wanted.join(" ") };
                        let problem = "runs of the matrix, expected one: on";
                        return Err((key, format!("{found} {problem} {machine} under {kernel} with {with}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// That what is published can be held against what the rule asks.
    fn statement(&self, paper: &Paper) -> Result<(), Fault> {
        let fault =
            |key: &str, problem: String, suggestion| Err(Fault { key: key.into(), problem, suggestion });
        let Some(published) = paper.number(&self.published) else {
            let known = paper.numbers.iter().map(|number| number.id.as_str());
            let near = nearest(&self.published, known).map(str::to_owned);
            return fault("published", format!("{} has no `{}`", paper.short, self.published), near);
        };
        let fits = match self.how {
            How::Value | How::Gain | How::Less => {
                published.value.is_some() || published.low.is_some() && published.high.is_some()
            }
            How::Zero | How::AtLeast | How::AtMost => published.relation != Relation::HeldOut,
            How::SameAs
            | How::MoreThan
            | How::GainsMore
            | How::Rises
            | How::Falls
            | How::Flat
            | How::Peaks
            | How::FallsLess
            | How::ShareOfDifference => published.relation == Relation::Direction,
        };
        let (word, shown) = (self.how.word(), published.shown());
        if fits { Ok(()) } else { fault("how", format!("`{word}` of a statement that is `{shown}`"), None) }
    }
}

/// Refuses a name in a rule that nothing in its experiment has; runs have `metrics`.
fn names(file: &ExperimentFile, key: &str, rule: &Compare, metrics: &Metrics) -> Result<(), Fault> {
    check_metric(&format!("{key}.metric"), &rule.metric, metrics)?;
    if let Some(whole) = &rule.whole {
        check_metric(&format!("{key}.whole"), whole, metrics)?;
    }
    for (list, name) in [("machines", &rule.machines), ("other_machines", &rule.other_machines)] {
        name.iter().try_for_each(|name| check_machine(file, &format!("{key}.{list}"), name))?;
    }
    for (of, name) in [("kernel", Some(&rule.kernel)), ("over", rule.over.as_ref())] {
        name.into_iter().try_for_each(|name| check_kernel(file, &format!("{key}.{of}"), name))?;
    }
    for (of, set) in [("set", &rule.set), ("other_set", &rule.other_set), ("base", &rule.base)] {
        set.iter().try_for_each(|text| check_set(file, &format!("{key}.{of}"), text))?;
    }
    match &rule.along {
        Some(along) => check_set(file, &format!("{key}.along.key"), &format!("{}=0", along.key)),
        None => Ok(()),
    }
}

/// Refuses rules of `file` that could not be judged, or not only in one way; its runs have `metrics`.
pub(super) fn check(file: &ExperimentFile, metrics: &Metrics) -> Result<(), Fault> {
    for (i, rule) in file.compare.iter().enumerate() {
        let at = |(key, problem)| Fault { key: format!("compare[{i}].{key}"), problem, suggestion: None };
        rule.fields().map_err(at)?;
        names(file, &format!("compare[{i}]"), rule, metrics)?;
        rule.runs(file).map_err(at)?;
    }
    Ok(())
}

/// Refuses rules of `file` for what `paper` does not state, or not in that way.
pub(super) fn check_statements(file: &ExperimentFile, paper: &Paper) -> Result<(), Fault> {
    for (i, rule) in file.compare.iter().enumerate() {
        rule.statement(paper)
            .map_err(|fault| Fault { key: format!("compare[{i}].{}", fault.key), ..fault })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::catalogue::{self, Kind};
    use pageferry_sourced::load_toml;

    fn null_read() -> ExperimentFile {
        let source = catalogue::embedded(Kind::Experiment, "null-read").expect("embedded");
        load_toml(&source.file, &source.text).expect("good")
    }

    /// What is wrong with a rule of `null-read` that says `text` beside its constant parts.
    fn refused(text: &str) -> String {
        let mut file = null_read();
        let constant = "published = \"uvm-read-copy-8k-64k-flat\"\nmachines = [\"pentium-pro\"]\nkernel = \"uvm\"\n\
                        metric = \"bandwidth_mb_s\"\n";
        file.compare = vec![load_toml("a rule", &format!("{constant}{text}")).expect("a rule")];
        let paper = Paper::find("uvm").expect("embedded");
        let metrics = [("bandwidth_mb_s".to_owned(), "MB/s".to_owned())].into();
        let found = check(&file, &metrics).and_then(|()| check_statements(&file, &paper));
        found.map_or_else(|fault| fault.to_string(), |()| "nothing".into())
    }

    const COPY: &str = "set = [\"receive=copy\"]\n";
    const ALONG: &str = "along = { key = \"size_bytes\", values = [8192, 16384] }\n";
    const WITHIN: &str = "tolerance_percent = 10\n";

    #[test]
    fn rules_that_make_sense_are_taken() {
        for how in ["rises", "falls", "flat"] {
            assert_eq!(refused(&format!("how = \"{how}\"\n{COPY}{ALONG}{WITHIN}")), "nothing");
        }
        let other = "other_set = [\"receive=transfer\"]\n";
        assert_eq!(refused(&format!("how = \"falls_less\"\n{COPY}{other}{ALONG}")), "nothing");
        assert_eq!(refused(&format!("how = \"more_than\"\n{COPY}{other}{ALONG}{WITHIN}")), "nothing");
        let (copy, other) = (
            "set = [\"receive = copy\", \"size_bytes=4096\"]\n",
            "other_set = [\"receive=auto\", \"size_bytes=4096\"]\n",
        );
        assert_eq!(refused(&format!("how = \"more_than\"\n{copy}{other}")), "nothing");
    }

    #[test]
    fn a_test_needs_its_parts_and_no_others() {
        let of = |how: &str, parts: &str| refused(&format!("how = \"{how}\"\n{COPY}{parts}"));
        assert_eq!(of("falls", WITHIN), "`compare[0].along`: missing; `falls` needs it");
        assert_eq!(of("falls", ALONG), "`compare[0].tolerance_percent`: missing; `falls` needs it");
        assert_eq!(of("falls_less", ALONG), "`compare[0].other_set`: missing; `falls_less` needs it");
        assert_eq!(of("gain", ""), "`compare[0].over`: missing; `gain` needs it");
        assert_eq!(of("at_least", ""), "`compare[0].bound`: missing; `at_least` needs it");
        let bound = "bound = 1.0\n";
        assert_eq!(
            of("flat", &[ALONG, WITHIN, bound].concat()),
            "`compare[0].bound`: `flat` has no use for it"
        );
        assert_eq!(of("value", ALONG), "`compare[0].along`: `value` has no use for it");
        let one = "expected one of `over`, `other_machines` and `other_set`, there are";
        assert_eq!(of("more_than", ALONG), format!("`compare[0].how`: `more_than` above what? {one} 0"));
        let two = "over = \"original\"\nother_machines = [\"486\"]\n";
        assert_eq!(of("more_than", two), format!("`compare[0].how`: `more_than` above what? {one} 2"));
    }

    #[test]
    fn places_and_tolerances_must_be_possible() {
        let of = |how: &str, values: &str, percent: &str| {
            let along = format!("along = {{ key = \"size_bytes\", values = {values} }}\n");
            refused(&format!("how = \"{how}\"\n{COPY}{along}tolerance_percent = {percent}\n"))
        };
        assert_eq!(
            of("rises", "[8192]", "10"),
            "`compare[0].along`: `rises` needs at least 2 values, there are 1"
        );
        assert_eq!(
            of("peaks", "[4096, 8192]", "10"),
            "`compare[0].along`: `peaks` needs at least 3 values, there are 2"
        );
        assert_eq!(of("flat", "[8192, 8192]", "10"), "`compare[0].along`: the values are not ascending");
        for percent in ["-1", "100", "nan", "inf"] {
            let said = of("flat", "[4096, 8192]", percent);
            assert!(said.starts_with("`compare[0].tolerance_percent`: "), "{said}");
            assert!(said.ends_with("expected 0 to less than 100"), "{said}");
        }
        let along = "along = { key = \"receive\", values = [1, 2] }\n";
        assert_eq!(
            refused(&format!("how = \"flat\"\n{COPY}{along}{WITHIN}")),
            "`compare[0].along`: `receive` is set too"
        );
    }

    #[test]
    fn each_place_is_one_run_of_the_matrix() {
        let of = |along: &str, set: &str| {
            let along = format!("along = {{ key = \"size_bytes\", values = {along} }}\n");
            refused(&format!("how = \"flat\"\nset = {set}\n{along}{WITHIN}"))
        };
        let refusal = |key: &str, n: usize, with: &str| {
            format!(
                "`compare[0].{key}`: {n} runs of the matrix, expected one: on pentium-pro under uvm with {with}"
            )
        };
        let size = "size_bytes=8192";
        assert_eq!(
            of("[8192, 9000]", "[\"receive=copy\"]"),
            refusal("along", 0, "receive=copy size_bytes=9000")
        );
        assert_eq!(of("[8192, 16384]", "[]"), refusal("set", 3, size));
        assert_eq!(
            of("[8192, 16384]", "[\"receive=cpoy\"]"),
            refusal("along", 0, &format!("receive=cpoy {size}"))
        );
        // What does not vary has to be what it is in the matrix.
        let warm = "[\"receive=copy\", \"warmup_reads=4\"]";
        assert_eq!(of("[8192, 16384]", warm), "nothing");
        let cold = "[\"receive=copy\", \"warmup_reads=0\"]";
        assert_eq!(
            of("[8192, 16384]", cold),
            refusal("along", 0, &format!("receive=copy warmup_reads=0 {size}"))
        );
        let plain = refused("how = \"zero\"\nset = [\"receive=copy\"]\n");
        assert_eq!(plain, refusal("set", 19, "receive=copy"));
    }

    #[test]
    fn what_is_published_must_be_of_the_kind_that_is_asked_for() {
        let at = "set = [\"receive=copy\", \"size_bytes=8192\"]\n";
        assert_eq!(
            refused(&format!("how = \"value\"\n{at}")),
            "`compare[0].how`: `value` of a statement that is `nearly constant`"
        );
        let file = |published: &str, how: &str| {
            let mut file = null_read();
            let rule = file.compare.iter().find(|rule| rule.how.shape().is_some()).expect("a shape");
            let how = if how == "shape" { rule.how } else { How::Zero };
            file.compare = vec![Compare { published: published.into(), how, ..rule.clone() }];
            check_statements(&file, &Paper::find("uvm").expect("embedded")).expect_err("refused")
        };
        let said = file("uvm-read-copy-8k", "shape").to_string();
        assert_eq!(said, "`compare[0].how`: `flat` of a statement that is `225 MB/s`");
        let said = file("uvm-read-transfer-peak", "zero").to_string();
        assert_eq!(said, "`compare[0].how`: `zero` of a statement that is `held out`");
        let unknown = file("uvm-read-copy-8kk", "shape");
        assert_eq!(unknown.to_string(), "`compare[0].published`: UVM paper has no `uvm-read-copy-8kk`");
        assert_eq!(unknown.suggestion.as_deref(), Some("uvm-read-copy-8k"));
    }
}
