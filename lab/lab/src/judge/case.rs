//! One rule on one machine: what the runs gave, and whether it is as published.
//!
//! A rule is judged only when all the runs that it looks at were made: a shape with a value missing is not judged.

use super::shape::greatest_fall;
use crate::files::{Compare, Experiment, How, Published, Shape};
use crate::record::Record;
use crate::text;

/// How near counts as agreement: within a tenth.
pub const TOLERANCE: f64 = 0.1;

/// The outcome, in the words and numbers of [`super::compare::Comparison`].
pub(crate) struct Verdict {
    pub(crate) ours: String,
    pub(crate) theirs: String,
    pub(crate) reading: Option<String>,
    /// The settings that hold for all that was looked at.
    pub(crate) under: Option<String>,
    pub(crate) value: f64,
    pub(crate) ratio: Option<f64>,
    pub(crate) agrees: bool,
}

/// What a rule looks at on one machine.
pub(crate) struct Case<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) rule: &'a Compare,
    pub(crate) published: &'a Published,
    pub(crate) machine: &'a str,
    /// The runs of the experiment.
    pub(crate) records: &'a [&'a Record],
}

impl Case<'_> {
    /// The outcome, if the runs are there.
    pub(crate) fn judge(&self) -> Option<Verdict> {
        let Case { rule, published, machine, .. } = *self;
        let metric = |kernel: &str| self.metric(machine, kernel, &rule.set, None);
        let two = self.two();
        let plain = |value: f64, ratio, agrees| Verdict {
            ours: self.shown(value),
            theirs: published.shown(),
            reading: None,
            under: two.under.clone(),
            value,
            ratio,
            agrees,
        };
        match rule.how {
            How::Value => {
                let value = metric(&rule.kernel)?;
                let (ratio, agrees) = near(value, published);
                Some(plain(value, ratio, agrees))
            }
            How::Gain => {
                let gain = self.gain(&rule.set)?;
                let (ratio, agrees) = near(gain, published);
                Some(Verdict {
                    ours: format!("{gain:+.0} %"),
                    theirs: format!("+{}", published.shown()),
                    ..plain(gain, ratio, agrees)
                })
            }
            How::GainsMore => {
                let (gain, other) = (self.gain(&rule.set)?, self.gain(&rule.other_set)?);
                let Two { this, that, .. } = &two;
                let over = settings(&rule.base);
                let over = if over.is_empty() { over } else { format!(" over {over}") };
                let bounded = rule.bound.map(|max| format!(", where at most {max} % of it are"));
                let is_little = rule.bound.is_none_or(|max| 100.0 * other <= max * gain);
                Some(Verdict {
                    ours: format!("{gain:+.1} % against {other:+.1} %"),
                    reading: Some(format!(
                        "more is gained{over} with {this} than with {that}{}",
                        bounded.unwrap_or_default()
                    )),
                    ..plain(gain, None, gain > other && is_little)
                })
            }
            How::Zero => {
                let value = metric(&rule.kernel)?;
                let theirs =
                    if published.direction.is_some() { "none".to_owned() } else { published.shown() };
                Some(Verdict { ours: text::number(value), theirs, ..plain(value, None, value == 0.0) })
            }
            How::AtLeast => {
                let value = metric(&rule.kernel)?;
                Some(plain(value, None, value >= rule.bound?))
            }
            How::AtMost => {
                let value = metric(&rule.kernel)?;
                Some(plain(value, None, value <= rule.bound?))
            }
            How::SameAs => {
                let value = metric(&rule.kernel)?;
                let kernel = rule.over.as_ref().unwrap_or(&rule.kernel);
                let other_set = if rule.other_set.is_empty() { &rule.set } else { &rule.other_set };
                let other = self.metric(machine, kernel, other_set, None)?;
                let Two { this, that, .. } = &two;
                let within = text::number(rule.tolerance_percent?);
                Some(Verdict {
                    ours: format!("{} against {}", self.number(value), self.shown(other)),
                    reading: Some(match &rule.over {
                        Some(over) => format!("{} as {over}, within {within} %", rule.kernel),
                        None => format!("{this} as {that}, within {within} %"),
                    }),
                    ..plain(value, None, (value / other - 1.0).abs() <= rule.tolerance())
                })
            }
            How::Less => {
                let value = metric(&rule.kernel)?;
                let kernel = rule.over.as_ref().unwrap_or(&rule.kernel);
                let other = self.metric(machine, kernel, &rule.other_set, None)?;
                let percent = published.unit == "%";
                let less = if percent { 100.0 * (other - value) / other } else { other - value };
                let (ratio, agrees) = near(less, published);
                Some(Verdict {
                    ours: in_unit(less, &published.unit),
                    reading: Some(format!("less with {} than with {}", two.this, two.that)),
                    ..plain(less, ratio, agrees)
                })
            }
            How::MoreThan => self.more_than(),
            How::Rises | How::Falls | How::Flat | How::Peaks => self.shape(rule.how.shape()?),
            How::FallsLess => self.falls_less(),
            How::ShareOfDifference => {
                let more = |metric: &str| {
                    let of = |set| self.metric_called(metric, machine, &rule.kernel, set, None);
                    Some(of(&rule.set)? - of(&rule.other_set)?)
                };
                let (bound, whole) = (rule.bound?, rule.whole.as_deref()?);
                let (part, all) = (more(&rule.metric)?, more(whole)?);
                let Two { this, that, .. } = &two;
                let share = 100.0 * part / all;
                Some(Verdict {
                    ours: format!("{} of {}, {share:.0} %", text::number(part), text::number(all)),
                    reading: Some(format!(
                        "of what {this} has more of {} than {that}, at least {} % are {}",
                        words(whole),
                        text::number(bound),
                        words(&rule.metric)
                    )),
                    // Of nothing more there is no share.
                    ..plain(share, None, all > 0.0 && share >= bound)
                })
            }
        }
    }

    /// Above all others at each place; reported is the place where the lead is smallest.
    fn more_than(&self) -> Option<Verdict> {
        let rule = self.rule;
        let at = |place: Option<i64>| {
            let value = self.metric(self.machine, &rule.kernel, &rule.set, place)?;
            let kernel = rule.over.iter().map(|over| self.metric(self.machine, over, &rule.set, place));
            let machines = rule.other_machines.iter();
            let machines = machines.map(|other| self.metric(other, &rule.kernel, &rule.set, place));
            let set = (!rule.other_set.is_empty())
                .then(|| self.metric(self.machine, &rule.kernel, &rule.other_set, place));
            let others: Vec<f64> = kernel.chain(machines).chain(set).collect::<Option<_>>()?;
            Some((place, value, others.into_iter().fold(f64::MIN, f64::max)))
        };
        let all: Vec<_> = rule.places().into_iter().map(at).collect::<Option<_>>()?;
        let (place, value, max) = all.iter().copied().min_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))?;
        let ours = format!("{} against {}", self.number(value), self.shown(max));
        let by = match rule.tolerance_percent {
            Some(percent) => format!(", by more than {} %", text::number(percent)),
            None => String::new(),
        };
        let two = self.two();
        let (this, that) = match &rule.over {
            Some(over) => (&rule.kernel, over),
            None => (&two.this, &two.that),
        };
        let reading = || format!("{this} above {that}{}{by}", self.range());
        Some(Verdict {
            ours: place.map_or(ours.clone(), |at| format!("{ours} at {}", self.place(at))),
            theirs: self.published.shown(),
            reading: (!rule.other_set.is_empty() || !by.is_empty()).then(reading),
            under: two.under.clone(),
            value,
            ratio: None,
            agrees: all.iter().all(|(_, value, max)| *value > max * (1.0 + rule.tolerance())),
        })
    }

    fn shape(&self, shape: Shape) -> Option<Verdict> {
        let rule = self.rule;
        let (places, values) = self.line(&rule.set)?;
        let seen = shape.seen(&values, rule.tolerance());
        let last = *seen.at.last()?;
        let at_place = |&at: &usize| {
            let value = if at == last { self.shown(values[at]) } else { self.number(values[at]) };
            format!("{value} at {}", self.place(places[at]))
        };
        let verb = match shape {
            Shape::Rises => "rises",
            Shape::Falls => "falls",
            Shape::Flat => "is level",
            Shape::Peaks => "has a peak",
        };
        let within = match rule.tolerance_percent {
            Some(percent) if percent > 0.0 => format!(", within {} %", text::number(percent)),
            _ => String::new(),
        };
        Some(Verdict {
            ours: seen.at.iter().map(at_place).collect::<Vec<_>>().join(", "),
            theirs: self.published.shown(),
            reading: Some(format!("{} {verb}{}{within}", self.name(&rule.set), self.range())),
            under: None,
            value: *values.last()?,
            ratio: None,
            agrees: seen.agrees,
        })
    }

    fn falls_less(&self) -> Option<Verdict> {
        let rule = self.rule;
        let fall = |set: &[String]| Some(100.0 * greatest_fall(&self.line(set)?.1));
        let (ours, other) = (fall(&rule.set)?, fall(&rule.other_set)?);
        let Two { this, that, under } = self.two();
        Some(Verdict {
            ours: format!("by {ours:.0} % against {other:.0} %"),
            theirs: self.published.shown(),
            reading: Some(format!("{this} falls less than {that}{}", self.range())),
            under,
            value: ours,
            ratio: None,
            agrees: ours * (1.0 + rule.tolerance()) < other,
        })
    }

    /// The gain over the other kernel, or over the runs with the rule's `base`, in percent.
    fn gain(&self, set: &[String]) -> Option<f64> {
        let rule = self.rule;
        let base = match &rule.over {
            Some(over) => self.metric(self.machine, over, set, None)?,
            None => self.metric(self.machine, &rule.kernel, &rule.base_of(set), None)?,
        };
        Some((self.metric(self.machine, &rule.kernel, set, None)? / base - 1.0) * 100.0)
    }

    /// The metric of the run there, with `set` and the setting that varies at `place`.
    fn metric(&self, machine: &str, kernel: &str, set: &[String], place: Option<i64>) -> Option<f64> {
        self.metric_called(&self.rule.metric, machine, kernel, set, place)
    }

    fn metric_called(
        &self,
        metric: &str,
        machine: &str,
        kernel: &str,
        set: &[String],
        place: Option<i64>,
    ) -> Option<f64> {
        let at = self.rule.at(place);
        let has = |r: &Record| set.iter().chain(&at).all(|text| r.has_setting(text));
        let run = self.records.iter().find(|r| r.machine == machine && r.kernel == kernel && has(r))?;
        run.metric(metric)
    }

    /// The metric along the setting that varies: where, and what.
    fn line(&self, set: &[String]) -> Option<(Vec<i64>, Vec<f64>)> {
        let places: Vec<i64> = self.rule.places().into_iter().flatten().collect();
        let value = |&at: &i64| self.metric(self.machine, &self.rule.kernel, set, Some(at));
        let values = places.iter().map(value).collect::<Option<_>>()?;
        Some((places, values))
    }

    /// A value of the metric, in the unit that reports have it in.
    fn shown(&self, value: f64) -> String {
        in_unit(value, unit(&self.rule.metric))
    }

    /// As [`Case::shown`], without the unit.
    fn number(&self, value: f64) -> String {
        text::number(value * text::report_unit(unit(&self.rule.metric)).1)
    }

    /// A value of the setting that varies.
    fn place(&self, at: i64) -> String {
        let key = self.rule.along.as_ref().map_or("", |along| along.key.as_str());
        let name = key.rsplit('.').next().unwrap_or(key);
        if key.ends_with("_bytes") { text::size(at as f64) } else { format!("{name} {}", text::grouped(at)) }
    }

    /// The range of places that the rule looks at.
    fn range(&self) -> String {
        let values = self.rule.along.as_ref().map_or(&[][..], |along| &along.values);
        match values {
            [] => String::new(),
            [one] => format!(" at {}", self.place(*one)),
            [first, .., last] => format!(", {} to {}", self.place(*first), self.place(*last)),
        }
    }

    /// What the experiment's curves call the runs with `set`.
    fn line_name(&self, set: &[String]) -> Option<String> {
        let same = |other: &[String]| set.len() == other.len() && set.iter().all(|text| other.contains(text));
        let lines = self.experiment.file.curves.iter().flat_map(|curves| &curves.lines);
        lines.into_iter().find(|line| same(&line.set)).map(|line| line.name.clone())
    }

    /// The same, or the settings where no curve has them.
    fn name(&self, set: &[String]) -> String {
        self.line_name(set).unwrap_or_else(|| settings(set))
    }

    /// What the rule compares with each other: by the names of curves, or by the settings in which they differ.
    fn two(&self) -> Two {
        let rule = self.rule;
        if rule.other_set.is_empty() {
            let under = (!rule.set.is_empty()).then(|| settings(&rule.set));
            return Two { this: self.name(&rule.set), that: String::new(), under };
        }
        if let (Some(this), Some(that)) = (self.line_name(&rule.set), self.line_name(&rule.other_set)) {
            return Two { this, that, under: None };
        }
        let (shared, own): (Vec<_>, Vec<_>) = rule.set.iter().partition(|text| rule.other_set.contains(text));
        let others = rule.other_set.iter().filter(|text| !rule.set.contains(text));
        let or_kernel = |own: String, kernel: &str| if own.is_empty() { kernel.to_owned() } else { own };
        Two {
            this: or_kernel(settings(own), &rule.kernel),
            that: or_kernel(settings(others), rule.over.as_ref().unwrap_or(&rule.kernel)),
            under: (!shared.is_empty()).then(|| settings(shared)),
        }
    }
}

/// What a rule compares, in words, and the settings that hold for both.
struct Two {
    this: String,
    that: String,
    under: Option<String>,
}

/// Settings as they are shown: by the last word of their keys.
fn settings(set: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let shown = |text: &str| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        format!("{}={value}", key.rsplit('.').next().unwrap_or(key))
    };
    set.into_iter().map(|text| shown(text.as_ref())).collect::<Vec<_>>().join(", ")
}

/// A metric's name in words, without its unit.
pub(super) fn words(metric: &str) -> String {
    let name = metric
        .trim_end_matches("_mb_s")
        .trim_end_matches("_mbit_s")
        .trim_end_matches("_ns")
        .trim_end_matches("_cycles");
    match name {
        "local_cached" => "cost of a local invalidation in time".to_owned(),
        _ => name.replace('_', " "),
    }
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

/// A value of this unit, in the one that reports have it in.
fn in_unit(value: f64, unit: &str) -> String {
    let (unit, by) = text::report_unit(unit);
    format!("{} {unit}", text::number(value * by)).trim_end().to_owned()
}

/// The unit at the end of a metric's name.
fn unit(metric: &str) -> &'static str {
    let units = [
        ("_mbit_per_cpu_percent", "Mbit/s/%"),
        ("_mbit_s", "Mbit/s"),
        ("_cycles", "cycles"),
        ("_ns", "ns"),
        ("_mb_s", "MB/s"),
        ("_percent", "%"),
        ("_us", "µs"),
        ("_per_s", "1/s"),
        ("_s", "s"),
    ];
    units.iter().find(|(suffix, _)| metric.ends_with(suffix)).map_or("", |(_, unit)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Paper;
    use pageferry_sourced::load_toml;
    use std::collections::BTreeMap;

    const SIZES: [i64; 4] = [4096, 8192, 16384, 32768];

    /// A run of `null-read` that received by `receive`, with buffers of `size` bytes.
    fn record(receive: &str, size: i64, bandwidth: f64) -> Record {
        let settings = [("receive", receive.to_owned()), ("size_bytes", size.to_string())];
        Record {
            experiment: "null-read".into(),
            machine: "pentium-pro".into(),
            kernel: "uvm".into(),
            seed: 1,
            perturbed: false,
            settings: settings.map(|(k, v)| (k.to_owned(), crate::files::Setting::Text(v))).into(),
            results: [("bandwidth_mb_s".to_owned(), bandwidth)].into(),
            counters: BTreeMap::new(),
            cycles: Default::default(),
            hardware: BTreeMap::new(),
            locks: BTreeMap::new(),
            payload_ok: true,
            stale_translations: 0,
            laws: Vec::new(),
        }
    }

    /// The curves of copy and of transfer over [`SIZES`].
    fn curves(copy: [f64; 4], transfer: [f64; 4]) -> Vec<Record> {
        let line = |name: &'static str, values: [f64; 4]| {
            SIZES.into_iter().zip(values).map(move |(size, value)| record(name, size, value))
        };
        line("copy", copy).chain(line("transfer", transfer)).collect()
    }

    /// What comes of the rule that says `text` beside its constant parts.
    fn judged(text: &str, records: &[Record]) -> Option<Verdict> {
        let constant = "published = \"uvm-read-transfer-final-dip\"\nmachines = [\"pentium-pro\"]\nkernel = \"uvm\"\n\
                        metric = \"bandwidth_mb_s\"\n";
        let rule: Compare = load_toml("a rule", &format!("{constant}{text}")).expect("a rule");
        let experiment = Experiment::unchecked("null-read");
        let paper = Paper::find("uvm").expect("embedded");
        let published = paper.number(&rule.published).expect("stated");
        let records: Vec<&Record> = records.iter().collect();
        let case = Case {
            experiment: &experiment,
            rule: &rule,
            published,
            machine: "pentium-pro",
            records: &records,
        };
        case.judge()
    }

    const ALONG: &str = "along = { key = \"size_bytes\", values = [4096, 8192, 16384, 32768] }\n";
    const COPY: &str = "set = [\"receive=copy\"]\n";
    const OTHER: &str = "other_set = [\"receive=transfer\"]\n";

    #[test]
    fn an_order_holds_at_every_value_or_not_at_all() {
        let more = format!("how = \"more_than\"\n{COPY}{OTHER}{ALONG}");
        let outcome =
            |text: &str, copy, transfer| judged(text, &curves(copy, transfer)).expect("all is there");
        let all = outcome(&more, [9.0, 12.0, 30.0, 40.0], [8.0, 6.0, 5.0, 4.0]);
        assert!(all.agrees);
        assert_eq!(all.ours, "9 against 8 MB/s at 4K", "where it is nearest to being not");
        assert_eq!(all.reading.as_deref(), Some("copy above transfer, 4K to 32K"));
        let one = outcome(&more, [9.0, 6.0, 30.0, 40.0], [8.0, 6.0, 5.0, 4.0]);
        assert!(!one.agrees, "as much is not more");
        assert_eq!(one.ours, "6 against 6 MB/s at 8K");
        let by = format!("{more}tolerance_percent = 10\n");
        assert!(!outcome(&by, [8.8, 12.0, 30.0, 40.0], [8.0, 6.0, 5.0, 4.0]).agrees);
        let enough = outcome(&by, [8.9, 12.0, 30.0, 40.0], [8.0, 6.0, 5.0, 4.0]);
        assert!(enough.agrees);
        assert_eq!(enough.reading.as_deref(), Some("copy above transfer, 4K to 32K, by more than 10 %"));
    }

    #[test]
    fn an_order_at_one_value_looks_there_only() {
        let at = "along = { key = \"size_bytes\", values = [16384] }\n";
        let more = format!("how = \"more_than\"\n{COPY}{OTHER}{at}");
        let found = judged(&more, &curves([1.0, 1.0, 3.0, 1.0], [2.0; 4])).expect("it is there");
        assert!(found.agrees);
        assert_eq!((found.ours.as_str(), found.value), ("3 against 2 MB/s at 16K", 3.0));
        assert_eq!(found.reading.as_deref(), Some("copy above transfer at 16K"));
    }

    #[test]
    fn shapes_come_with_the_places_that_show_them() {
        let outcome = |how: &str, copy| {
            let rule = format!("how = \"{how}\"\ntolerance_percent = 10\n{COPY}{ALONG}");
            let found = judged(&rule, &curves(copy, [1.0; 4])).expect("all is there");
            (found.agrees, found.ours, found.reading.expect("it says what is tested"))
        };
        let with = |ours: &str, reading: &str| (ours.to_owned(), reading.to_owned());
        let agrees = |(ours, reading)| (true, ours, reading);
        let differs = |(ours, reading)| (false, ours, reading);
        let rises = "copy rises, 4K to 32K, within 10 %";
        assert_eq!(outcome("rises", [1.0, 4.0, 3.9, 8.0]), agrees(with("1 at 4K, 8 MB/s at 32K", rises)));
        assert_eq!(outcome("rises", [1.0, 4.0, 3.0, 8.0]), differs(with("4 at 8K, 3 MB/s at 16K", rises)));
        let falls = "copy falls, 4K to 32K, within 10 %";
        assert_eq!(outcome("falls", [8.0, 8.5, 3.0, 1.0]), agrees(with("8 at 4K, 1 MB/s at 32K", falls)));
        assert_eq!(outcome("falls", [8.0, 9.0, 3.0, 1.0]), differs(with("8 at 4K, 9 MB/s at 8K", falls)));
        let level = "copy is level, 4K to 32K, within 10 %";
        assert_eq!(outcome("flat", [8.0, 8.1, 7.9, 8.0]), agrees(with("8.1 at 8K, 7.9 MB/s at 16K", level)));
        assert_eq!(outcome("flat", [8.0, 8.1, 7.0, 8.0]), differs(with("8.1 at 8K, 7 MB/s at 16K", level)));
        let peak = "copy has a peak, 4K to 32K, within 10 %";
        assert_eq!(
            outcome("peaks", [1.0, 9.0, 4.0, 4.1]),
            agrees(with("1 at 4K, 9 at 8K, 4.1 MB/s at 32K", peak))
        );
        assert_eq!(outcome("peaks", [1.0, 2.0, 4.0, 4.1]), differs(with("1 at 4K, 4.1 MB/s at 32K", peak)));
    }

    #[test]
    fn the_lesser_fall_is_compared_with_the_greater() {
        let less = format!("how = \"falls_less\"\n{COPY}{OTHER}{ALONG}");
        let found = judged(&less, &curves([5.0, 8.0, 6.0, 7.0], [9.0, 3.0, 9.0, 9.0])).expect("all is there");
        assert_eq!((found.agrees, found.ours.as_str()), (true, "by 25 % against 67 %"));
        assert_eq!(found.reading.as_deref(), Some("copy falls less than transfer, 4K to 32K"));
        assert!(!judged(&less, &curves([9.0, 3.0, 9.0, 9.0], [5.0, 8.0, 6.0, 7.0])).expect("there").agrees);
        assert!(!judged(&less, &curves([2.0; 4], [2.0; 4])).expect("there").agrees, "neither falls");
    }

    #[test]
    fn of_a_curve_with_a_value_missing_nothing_is_said() {
        let lacking = |receive: &str| -> Vec<Record> {
            let mut records = curves([8.0, 4.0, 2.0, 1.0], [9.0, 8.0, 7.0, 6.0]);
            records.retain(|r| {
                !(r.has_setting(&format!("receive={receive}")) && r.has_setting("size_bytes=8192"))
            });
            assert_eq!(records.len(), 7);
            records
        };
        for how in ["rises", "falls", "flat", "peaks"] {
            let rule = format!("how = \"{how}\"\ntolerance_percent = 0\n{COPY}{ALONG}");
            assert!(judged(&rule, &lacking("copy")).is_none(), "{how}");
            assert!(judged(&rule, &lacking("transfer")).is_some(), "{how}");
        }
        for how in ["more_than", "falls_less"] {
            let rule = format!("how = \"{how}\"\n{COPY}{OTHER}{ALONG}");
            assert!(judged(&rule, &lacking("copy")).is_none(), "{how}");
            assert!(judged(&rule, &lacking("transfer")).is_none(), "{how}");
        }
    }
}
