//! Rules: how a result is set beside a published statement, as the `[[compare]]` tables of an experiment say.
//!
//! A rule takes one result of the runs with certain settings, on some machines and under one kernel. A number is held
//! against it, or a statement in words is turned into a test: an order (above that of another kernel, of other
//! machines, of runs with other settings) or a shape along a setting that varies. What the test is, at which values and
//! within which tolerance, stands in the rule and nowhere else. A rule says all that its test needs and nothing else;
//! whether it fits its experiment and its paper is asked in `rule_check`.

use super::setting::key_value;
use serde::{Deserialize, Serialize};

/// What a curve does on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// It ends above its beginning, and never falls.
    Rises,
    /// It ends below its beginning, and never rises.
    Falls,
    /// No two values are different.
    Flat,
    /// It rises to a value inside, and falls from there.
    Peaks,
}

/// How a result stands beside a published statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The metric against the number, or against the range.
    #[default]
    Value,
    /// The metric's gain over that of another kernel, or of the runs with `base`, against the number or the range, a
    /// percentage.
    Gain,
    /// That gain exceeds the gain in runs with other settings.
    GainsMore,
    /// The metric is 0.
    Zero,
    /// The metric reaches `bound`.
    AtLeast,
    /// The metric does not exceed `bound`.
    AtMost,
    /// The metric is that of runs with other settings, or of another kernel, within the tolerance.
    SameAs,
    /// The metric exceeds that of another kernel, of other machines, or of runs with other settings; `along` a setting,
    /// at each of its values.
    MoreThan,
    /// What the metric is less than in runs with other settings, or of another kernel with those, against the number or
    /// the range: a percentage of theirs, where the published unit is one.
    Less,
    /// `along` a setting the metric [rises](Shape::Rises).
    Rises,
    /// It [falls](Shape::Falls).
    Falls,
    /// It is [flat](Shape::Flat).
    Flat,
    /// It [has a peak](Shape::Peaks).
    Peaks,
    /// The greatest fall of the metric, from a value to any later one `along` a setting, is smaller than in runs with
    /// other settings.
    FallsLess,
    /// What the metric is more than in runs with other settings is at least `bound` percent of what `whole` is more.
    ShareOfDifference,
}

impl How {
    /// The shape of a curve that is asked for.
    pub fn shape(self) -> Option<Shape> {
        match self {
            How::Rises => Some(Shape::Rises),
            How::Falls => Some(Shape::Falls),
            How::Flat => Some(Shape::Flat),
            How::Peaks => Some(Shape::Peaks),
            How::Value | How::Gain | How::Zero | How::AtLeast | How::AtMost => None,
            How::SameAs | How::MoreThan | How::FallsLess | How::GainsMore | How::Less => None,
            How::ShareOfDifference => None,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            How::Value => "value",
            How::Gain => "gain",
            How::GainsMore => "gains_more",
            How::Zero => "zero",
            How::AtLeast => "at_least",
            How::AtMost => "at_most",
            How::SameAs => "same_as",
            How::MoreThan => "more_than",
            How::Less => "less",
            How::Rises => "rises",
            How::Falls => "falls",
            How::Flat => "flat",
            How::Peaks => "peaks",
            How::FallsLess => "falls_less",
            How::ShareOfDifference => "share_of_difference",
        }
    }
}

/// A setting that varies, and the values at which the rule looks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Along {
    /// As for `--set`.
    pub key: String,
    /// Its values, ascending.
    pub values: Vec<i64>,
}

/// One rule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The id of the published statement. Several rules may name one: it agrees when all of them do.
    pub published: String,
    /// What is compared.
    #[serde(default)]
    pub how: How,
    /// On each of these machines.
    pub machines: Vec<String>,
    /// Under this kernel.
    pub kernel: String,
    /// This result, counter or hardware count.
    pub metric: String,
    /// Of the runs with these settings only, as for `--set`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// For gains and orders: the other kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// For orders: the other machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_machines: Vec<String>,
    /// For orders: the settings of the other runs, instead of `set`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_set: Vec<String>,
    /// For gains in runs of one kernel: the settings of the runs that are exceeded, in place of those in `set` and
    /// `other_set`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base: Vec<String>,
    /// For shapes, and for orders that hold at several values: the setting that varies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub along: Option<Along>,
    /// For shapes: what counts as no difference, in percent of the smaller value. For orders: what has to be exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance_percent: Option<f64>,
    /// For bounds and shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// For shares: the metric of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
}

/// A key of a rule, and what is wrong with it.
pub(super) type Wrong = (&'static str, String);

impl Compare {
    /// The tolerance as a share; 0 where none is given.
    pub fn tolerance(&self) -> f64 {
        self.tolerance_percent.unwrap_or(0.0) / 100.0
    }

    /// What the rule has to have and may have for what it asks, and that those make sense.
    pub(super) fn fields(&self) -> Result<(), Wrong> {
        let order = self.how == How::MoreThan;
        let same = self.how == How::SameAs;
        let share = self.how == How::ShareOfDifference;
        let bound = share || matches!(self.how, How::AtLeast | How::AtMost);
        let shape = self.how.shape().is_some();
        let two_lines = self.how == How::FallsLess;
        let gains_more = self.how == How::GainsMore;
        let less = self.how == How::Less;
        let gains = gains_more || self.how == How::Gain;
        // Of each key: whether it is there, whether it must be, whether it may be.
        let keys = [
            ("over", self.over.is_some(), gains && self.base.is_empty(), order || less || same),
            ("other_machines", !self.other_machines.is_empty(), false, order),
            (
                "other_set",
                !self.other_set.is_empty(),
                two_lines || share || same && self.over.is_none() || gains_more || less,
                order || same,
            ),
            ("base", !self.base.is_empty(), gains && self.over.is_none(), false),
            ("along", self.along.is_some(), shape || two_lines, order),
            ("tolerance_percent", self.tolerance_percent.is_some(), shape || same, order || two_lines),
            ("bound", self.bound.is_some(), bound, gains_more),
            ("whole", self.whole.is_some(), share, false),
        ];
        let word = self.how.word();
        for (key, there, must, may) in keys {
            match there {
                false if must => return Err((key, format!("missing; `{word}` needs it"))),
                true if !must && !may => return Err((key, format!("`{word}` has no use for it"))),
                _ => {}
            }
        }
        let others = keys[..3].iter().filter(|key| key.1).count();
        if order && others != 1 {
            let expected = "expected one of `over`, `other_machines` and `other_set`";
            return Err(("how", format!("`{word}` above what? {expected}, there are {others}")));
        }
        if self.machines.is_empty() {
            return Err(("machines", "empty, expected at least one".into()));
        }
        // What is above another may be many times as much.
        let max = if order { 100_000.0 } else { 100.0 };
        if let Some(percent) = self.tolerance_percent.filter(|percent| !(0.0..max).contains(percent)) {
            return Err(("tolerance_percent", format!("{percent}, expected 0 to less than {max}")));
        }
        let min = match self.how {
            How::MoreThan => 1,
            How::Peaks => 3,
            _ => 2,
        };
        match &self.along {
            Some(along) if along.values.len() < min => {
                let there = along.values.len();
                Err(("along", format!("`{word}` needs at least {min} values, there are {there}")))
            }
            Some(along) if !along.values.is_sorted_by(|a, b| a < b) => {
                Err(("along", "the values are not ascending".into()))
            }
            Some(along)
                if self.set.iter().chain(&self.other_set).any(|text| key_value(text).0 == along.key) =>
            {
                Err(("along", format!("`{}` is set too", along.key)))
            }
            _ => Ok(()),
        }
    }

    /// Where the rule looks: at each value of the setting that varies, or once.
    pub fn places(&self) -> Vec<Option<i64>> {
        self.along.as_ref().map_or(vec![None], |along| along.values.iter().copied().map(Some).collect())
    }

    /// The settings of the runs that those with `set` are set beside for a gain.
    pub fn base_of(&self, set: &[String]) -> Vec<String> {
        let stays = |text: &&String| {
            let key = key_value(text).0;
            self.base.iter().all(|base| key_value(base).0 != key)
        };
        set.iter().filter(stays).chain(&self.base).cloned().collect()
    }

    /// The setting of one of [`Compare::places`].
    pub fn at(&self, place: Option<i64>) -> Option<String> {
        Some(format!("{}={}", self.along.as_ref()?.key, place?))
    }
}
