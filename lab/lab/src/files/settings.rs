//! `--set key=value`: changes to an experiment's parameters, a machine's constants or a kernel's values.
//!
//! `total_bytes=1048576` is a parameter of the experiment; `machine.cpu.clock_mhz=3000` and
//! `kernel.ephemeral.entries=6144` are keys of the machine and kernel files (elements of a list go by their `name`:
//! `machine.cache.L2.size_bytes=1048576`). A changed constant says in its source that it was changed.

use super::kernels::{KernelChoice, KernelFile};
use super::machines::MachineChoice;
use super::ranges::RANGES as KERNEL;
use super::setting::{Setting, parse_integer};
use super::units::{hint_of, unit_of};
use crate::error::LabError;
use pageferry_model::MachineConfig;
use pageferry_model::config::RANGES as MACHINE;
use pageferry_sourced::{Fault, Ranges, SourceKind, load_toml, nearest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use toml::Value;

/// What was given with `--set`, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Parameters of the experiment.
    pub parameters: Vec<(String, String)>,
    /// Keys of the machine file.
    pub machine: Vec<(String, String)>,
    /// Keys of the kernel file.
    pub kernel: Vec<(String, String)>,
}

impl Settings {
    /// Takes `key=value` texts apart.
    ///
    /// # Errors
    /// A text without `=` or without a key.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Settings, LabError> {
        let mut settings = Settings::default();
        for text in texts {
            let text = text.as_ref();
            let problem = "expected key=value, such as total_bytes=1048576 or machine.cpu.clock_mhz=3000";
            let (key, value) = text.split_once('=').ok_or_else(|| setting(text, problem))?;
            let (key, value) = (key.trim(), value.trim());
            if key.is_empty() || value.is_empty() {
                return Err(setting(text, problem));
            }
            settings.add(key, value);
        }
        Ok(settings)
    }

    /// Adds one change.
    pub fn add(&mut self, key: &str, value: &str) {
        let (list, key) = if let Some(key) = key.strip_prefix("machine.") {
            (&mut self.machine, key)
        } else if let Some(key) = key.strip_prefix("kernel.") {
            (&mut self.kernel, key)
        } else {
            (&mut self.parameters, key)
        };
        list.push((key.to_owned(), value.to_owned()));
    }

    /// These, with the short names of an experiment written out.
    pub fn written_out(&self, short: &BTreeMap<String, String>) -> Settings {
        let mut all = Settings { parameters: Vec::new(), ..self.clone() };
        for (key, value) in &self.parameters {
            all.add(short.get(key).unwrap_or(key), value);
        }
        all
    }

    /// What is changed of `machine` and `kernel`, by full keys, as records have it.
    pub fn changes(&self, machine: &MachineChoice, kernel: &KernelChoice) -> BTreeMap<String, Setting> {
        let recorded = |text: &str, is_word: &dyn Fn() -> bool| match Setting::parse(text) {
            // Few texts look like numbers with a unit.
            Setting::Text(_) if parse_integer(text).is_some() && !is_word() => Setting::with_unit(text),
            setting => setting,
        };
        let of_machine = self
            .machine
            .iter()
            .map(|(key, text)| (format!("machine.{key}"), recorded(text, &|| machine.is_word(key))));
        let of_kernel = self
            .kernel
            .iter()
            .map(|(key, text)| (format!("kernel.{key}"), recorded(text, &|| kernel.is_word(key))));
        of_machine.chain(of_kernel).collect()
    }

    /// `machine` with its changes.
    ///
    /// # Errors
    /// A key that no machine has (with the nearest), a value of the wrong type, or an impossible machine.
    pub fn machine(&self, machine: MachineChoice) -> Result<MachineChoice, LabError> {
        if self.machine.is_empty() {
            return Ok(machine);
        }
        let config = machine.form().with(&self.machine, &MachineConfig::validate)?;
        Ok(MachineChoice { config, ..machine })
    }

    /// `kernel` with its changes.
    ///
    /// # Errors
    /// A key that no kernel has (with the nearest), a value of the wrong type, or an impossible kernel.
    pub fn kernel(&self, kernel: KernelChoice) -> Result<KernelChoice, LabError> {
        if self.kernel.is_empty() {
            return Ok(kernel);
        }
        let file = kernel.form().with(&self.kernel, &KernelFile::validate)?;
        Ok(KernelChoice { file, ..kernel })
    }
}

/// The range of the constant `key` of a machine; none for one that cannot be set.
pub(crate) fn machine_range(machine: &MachineChoice, key: &str) -> Option<(i64, i64)> {
    machine.form().range(key)
}

/// The range of the value `key` of a kernel; none for one that cannot be set.
pub(crate) fn kernel_range(kernel: &KernelChoice, key: &str) -> Option<(i64, i64)> {
    kernel.form().range(key)
}

/// A machine or a kernel as TOML: what a setting is made in.
#[derive(Debug)]
pub(super) struct Form {
    word: &'static str,
    tree: toml::Table,
    ranges: &'static Ranges,
}

impl Form {
    fn of<T: Serialize>(word: &'static str, config: &T, ranges: &'static Ranges) -> Form {
        let tree = toml::Table::try_from(config).expect("what was read from TOML can be written as TOML");
        Form { word, tree, ranges }
    }

    /// Puts `text` in place of the value of `key`, by itself: whether it fits the others is not asked.
    ///
    /// # Errors
    /// A key that is not there (with the nearest), or a value of the wrong type or out of range.
    pub(super) fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match find(&mut self.tree, key) {
            Some((plain, leaf)) => replace_number(leaf, &plain, text, self.ranges),
            None => Err(unknown(self.word, key, &self.tree)),
        }
    }

    /// What it is with each of `changes`.
    ///
    /// # Errors
    /// Those of [`set`](Self::set), and what `check` says of the whole.
    fn with<T: DeserializeOwned>(
        mut self,
        changes: &[(String, String)],
        check: &dyn Fn(&T) -> Result<(), Fault>,
    ) -> Result<T, LabError> {
        let word = self.word;
        let full = |key: &str| format!("{word}.{key}");
        for (key, text) in changes {
            self.set(key, text).map_err(|problem| setting(&full(key), problem))?;
        }
        // A check of the whole names the key that it refuses; a value that cannot be read is the last change's.
        let last = changes.last().map_or(String::new(), |(key, _)| full(key));
        let changed: T = load_toml("", &self.tree.to_string()).map_err(|e| setting(&last, e.problem))?;
        check(&changed).map_err(|fault| setting(&full(&fault.key), fault.problem))?;
        Ok(changed)
    }

    fn range(&mut self, key: &str) -> Option<(i64, i64)> {
        let (plain, _) = find(&mut self.tree, key)?;
        Some(self.ranges.of(&plain).map_or((i64::MIN, i64::MAX), |range| (range.min, range.max)))
    }
}

impl MachineChoice {
    pub(super) fn form(&self) -> Form {
        Form::of("machine", &self.config, &MACHINE)
    }
}

impl KernelChoice {
    pub(super) fn form(&self) -> Form {
        Form::of("kernel", &self.file, &KERNEL)
    }
}

impl MachineChoice {
    /// Whether `key` has a word, or true and false.
    pub fn is_word(&self, key: &str) -> bool {
        is_word(&self.config, key)
    }

    /// The least and the greatest that the number `key` may be; none for what is no number.
    pub fn range(&self, key: &str) -> Option<(i64, i64)> {
        number_range(&self.config, key, &MACHINE)
    }
}

impl KernelChoice {
    /// Whether `key` has a word, or true and false.
    pub fn is_word(&self, key: &str) -> bool {
        is_word(&self.file, key)
    }

    /// The least and the greatest that the number `key` may be; none for what is no number.
    pub fn range(&self, key: &str) -> Option<(i64, i64)> {
        number_range(&self.file, key, &KERNEL)
    }
}

fn is_word<T: Serialize>(config: &T, key: &str) -> bool {
    let mut tree = toml::Table::try_from(config).expect("what was read from TOML can be written as TOML");
    let Some((_, leaf)) = find(&mut tree, key) else { return false };
    let value = leaf.as_table().and_then(|table| table.get("value")).unwrap_or(leaf);
    value.is_str() || value.is_bool()
}

fn number_range<T: Serialize>(config: &T, key: &str, ranges: &Ranges) -> Option<(i64, i64)> {
    let mut tree = toml::Table::try_from(config).expect("what was read from TOML can be written as TOML");
    let (plain, leaf) = find(&mut tree, key)?;
    let number = leaf.as_table().and_then(|table| table.get("value")).unwrap_or(leaf);
    number.as_integer()?;
    ranges.of(&plain).map(|range| (range.min, range.max))
}

fn setting(key: &str, problem: impl Into<String>) -> LabError {
    LabError::Setting { key: key.to_owned(), problem: problem.into() }
}

/// The value at the dotted `key`, and its key as in a file, without names of elements.
fn find<'a>(tree: &'a mut toml::Table, key: &str) -> Option<(String, &'a mut Value)> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let value = tree.get_mut(first)?;
    let Some(rest) = rest else { return Some((first.to_owned(), value)) };
    let (below, value) = match value {
        Value::Table(table) if !table.contains_key("value") => find(table, rest)?,
        Value::Array(items) => {
            let (name, rest) = rest.split_once('.')?;
            let item =
                items.iter_mut().find(|item| item.get("name").and_then(Value::as_str) == Some(name))?;
            find(item.as_table_mut()?, rest)?
        }
        _ => return None,
    };
    Some((format!("{first}.{below}"), value))
}

/// As [`replace`], where a number may be in the range of the key `plain` and may have a unit.
fn replace_number(leaf: &mut Value, plain: &str, text: &str, ranges: &Ranges) -> Result<(), String> {
    let number = |text: &str| {
        let digits = parse_integer(text).map_or_else(|| text.to_owned(), |number| number.to_string());
        let unit = unit_of(plain);
        let told = |problem| if unit.is_empty() { problem } else { format!("{problem} {unit}") };
        ranges.setting(plain, &digits).map_err(told)
    };
    replace(leaf, text, &number)
}

/// Puts `text`, read as what was there before, in place of `leaf`; numbers are read by `number`.
fn replace(leaf: &mut Value, text: &str, number: &dyn Fn(&str) -> Result<i64, String>) -> Result<(), String> {
    match leaf {
        Value::Table(table) if table.contains_key("value") => {
            replace(table.get_mut("value").expect("just seen"), text, number)?;
            table.insert("source".into(), Value::String("set on the command line".into()));
            table.insert("kind".into(), Value::String(SourceKind::Assumed.name().into()));
            table.remove("against");
        }
        Value::Integer(old) => *old = number(text)?,
        Value::Boolean(flag) => {
            *flag = text.parse().map_err(|_| format!("`{text}`, expected true or false"))?;
        }
        Value::String(word) => text.clone_into(word),
        Value::Table(table) => {
            let keys: Vec<_> = table.keys().map(String::as_str).collect();
            return Err(format!("is a table, expected one of its keys: {}", keys.join(", ")));
        }
        _ => return Err("cannot be set".to_owned()),
    }
    Ok(())
}

fn unknown(prefix: &str, key: &str, tree: &toml::Table) -> String {
    let mut known = Vec::new();
    collect("", &Value::Table(tree.clone()), &mut known);
    // Of one that is written without its table, the one in whichever table.
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let in_a_table = || {
        let lasts: Vec<String> = known.iter().map(|known| last(known)).collect();
        let near = nearest(&last(key), lasts.iter().map(String::as_str))?;
        known.iter().find(|known| last(known) == near).map(String::as_str)
    };
    match nearest(key, known.iter().map(String::as_str)).or_else(in_a_table) {
        Some(name) => format!("unknown key; did you mean `{prefix}.{name}`?"),
        None => format!("unknown key; `pageferry {prefix}s NAME` lists them{}", hint_of(prefix, key)),
    }
}

/// The dotted keys of all values.
fn collect(path: &str, value: &Value, known: &mut Vec<String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Table(table) if !table.contains_key("value") => {
            table.iter().for_each(|(name, value)| collect(&below(name), value, known));
        }
        Value::Array(items) => {
            for item in items {
                if let Some(name) = item.get("name").and_then(Value::as_str) {
                    collect(&below(name), item, known);
                }
            }
        }
        _ => known.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Result<MachineChoice, LabError> {
        Settings::parse(&[text])?.machine(MachineChoice::find("xeon-up").expect("embedded"))
    }

    fn kernel(text: &str) -> Result<KernelChoice, LabError> {
        Settings::parse(&[text])?.kernel(KernelChoice::find("sf_buf").expect("embedded"))
    }

    #[test]
    fn a_constant_is_changed_and_says_so() {
        let machine = machine("machine.cpu.clock_mhz=3000").expect("good");
        assert_eq!(machine.config.cpu.clock_mhz.value, 3000);
        assert_eq!(machine.config.cpu.clock_mhz.source, "set on the command line");
        let kernel = kernel("kernel.ephemeral.entries=6_144").expect("good");
        assert_eq!(kernel.file.ephemeral.entries.value, 6144);
    }

    #[test]
    fn list_elements_go_by_name() {
        let machine = machine("machine.cache.L2.size_bytes=1048576").expect("good");
        assert_eq!(machine.config.cache[1].size_bytes.value, 1 << 20);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let message = |r: Result<KernelChoice, LabError>| r.expect_err("refused").to_string();
        assert_eq!(
            message(kernel("kernel.ephemeral.entrys=1")),
            "--set kernel.ephemeral.entrys: unknown key; did you mean `kernel.ephemeral.entries`?"
        );
        assert!(message(kernel("kernel.ephemeral.entries=0")).contains("expected at least 1"));
        assert!(message(kernel("kernel.ephemeral.entries=many")).contains("expected a whole number"));
        assert!(message(kernel("kernel.ephemeral.scheme=magic")).contains("magic"));
        assert!(message(kernel("kernel.ephemeral=1")).contains("is a table"));
        assert!(message(kernel("nonsense")).contains("expected key=value"));
        assert!(
            machine("machine.cpu.packages=65").expect_err("refused").to_string().contains("expected 1 to 64")
        );
    }
}
