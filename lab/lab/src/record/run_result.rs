//! What a run gives.
//!
//! A [`RunResult`] has two parts. The [`Record`] is deterministic: the same configuration and seed give the same record
//! to the last digit, on any host and at any number of threads. [`Host`] says how long it took here, and differs from
//! run to run. Files that are compared or published hold records only.

use crate::files::Setting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run: what it gave, and what it took.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// The deterministic part.
    #[serde(flatten)]
    pub record: Record,
    /// What the run took on this host.
    pub host: Host,
}

/// The deterministic part of a run. Counters, cycles and hardware counts are those of the measured part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The experiment's name.
    pub experiment: String,
    /// The machine's name.
    pub machine: String,
    /// The kernel's name.
    pub kernel: String,
    /// What the payload, and a seeded schedule, are made from.
    pub seed: u64,
    /// What no real machine holds fixed was drawn from the seed too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub perturbed: bool,
    /// The parameters, and every constant that differs from its file.
    pub settings: BTreeMap<String, Setting>,
    /// What the experiment measures. The unit is last in each name.
    pub results: BTreeMap<String, f64>,
    /// Events that the kernel counted.
    pub counters: BTreeMap<String, u64>,
    /// Where the cycles went.
    pub cycles: Cycles,
    /// Events that the machine counted.
    pub hardware: BTreeMap<String, u64>,
    /// Spin locks by class, those that were taken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub locks: BTreeMap<String, LockCounts>,
    /// True when every byte arrived as it was sent.
    pub payload_ok: bool,
    /// Uses of translations that no longer stood.
    pub stale_translations: u64,
    /// The laws that every run obeys, and whether each held.
    pub laws: Vec<Law>,
}

/// How spin locks of a class were used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LockCounts {
    /// Acquisitions.
    pub acquisitions: u64,
    /// Of these, those that had to wait for another CPU.
    pub contended: u64,
    /// How long they did, all CPUs together.
    pub wait_cycles: u64,
}

/// The stacks of causes. Each sums to the clock of its CPU over the measured part.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cycles {
    /// Over all CPUs.
    pub total: u64,
    /// Over all CPUs, by cause.
    pub by_cause: BTreeMap<String, u64>,
    /// For each CPU.
    pub per_cpu: Vec<CpuCycles>,
}

/// One CPU's stack of causes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CpuCycles {
    /// The CPU.
    pub cpu: usize,
    /// What its clock advanced.
    pub total: u64,
    /// By cause; causes of no cycles are left out.
    pub by_cause: BTreeMap<String, u64>,
}

/// A law and whether it held.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Law {
    /// Its name.
    pub name: String,
    /// Whether it held.
    pub held: bool,
    /// What was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Law {
    /// What is wrong, one text for each that did not hold.
    pub fn broken(laws: &[Law]) -> Vec<String> {
        let text = |law: &Law| match &law.fault {
            Some(fault) => format!("{}: {fault}", law.name),
            None => law.name.clone(),
        };
        laws.iter().filter(|law| !law.held).map(text).collect()
    }
}

/// What a run took on the host.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// Wall-clock time of the whole run, starting up included.
    pub wall_ms: f64,
    /// What the measured part took of a CPU, without the filling and checking of payloads. The rates below are by this
    /// time.
    pub measured_ms: f64,
    /// Modelled memory accesses (of a cache line each) in the measured part, a second.
    pub accesses_per_s: f64,
    /// Of these, lines that were streamed through, a second.
    pub lines_streamed_per_s: f64,
    /// The others, which the next step waits for, a second.
    pub dependent_accesses_per_s: f64,
    /// Instructions that were charged, a second. The host does not execute them.
    pub instructions_charged_per_s: f64,
}

impl Law {
    /// A law, and what a check of it found.
    pub fn new(name: &str, checked: Result<(), String>) -> Law {
        Law { name: name.to_owned(), held: checked.is_ok(), fault: checked.err() }
    }
}

impl Record {
    /// The run in a few words: `bw-pipe on xeon-up under sf_buf`.
    pub fn title(&self) -> String {
        format!("{} on {} under {}", self.experiment, self.machine, self.kernel)
    }

    /// True when `key=value` is one of the settings.
    pub fn has_setting(&self, text: &str) -> bool {
        text.split_once('=').is_some_and(|(key, word)| self.setting_is(key.trim(), word.trim()))
    }

    /// True when the setting `key` was made, and reads `word`.
    pub fn setting_is(&self, key: &str, word: &str) -> bool {
        self.settings.get(key).is_some_and(|setting| setting.to_string() == word)
    }

    /// A setting that is a number.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.settings.get(key)?.number().map(|number| number as f64)
    }

    /// A result, counter, hardware count, or cycle count (`cycles.copy`), by name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        if let Some(cause) = name.strip_prefix("cycles.") {
            let stack = &self.cycles;
            return if cause == "total" {
                Some(stack.total as f64)
            } else {
                stack.by_cause.get(cause).map(|c| *c as f64)
            };
        }
        let count = |map: &BTreeMap<String, u64>| map.get(name).map(|count| *count as f64);
        self.results.get(name).copied().or_else(|| count(&self.counters)).or_else(|| count(&self.hardware))
    }

    /// What is wrong, one text for each broken law.
    pub fn broken(&self) -> Vec<String> {
        Law::broken(&self.laws)
    }
}

impl Cycles {
    /// Cycles of `cause` over all CPUs.
    pub fn of(&self, cause: &str) -> u64 {
        self.by_cause.get(cause).copied().unwrap_or(0)
    }

    /// Cycles that were not idle, over all CPUs.
    pub fn busy(&self) -> u64 {
        self.total - self.of("idle")
    }
}
