//! Scenarios: what several processes do to their memory, and what bytes each must then see.
//!
//! A scenario is a file that knows processes, mappings, files and sockets, and nothing of how a kernel does it; so what
//! it expects is expected of any kernel. Its steps are done one after the other, whichever process they are of; those
//! marked `beside` go on together with the next. With `vary` a scenario stands for all combinations of a few values,
//! which steps refer to by `when` and by name; `send` and `receive` say by themselves how bytes are sent and received.
//!
//! A scenario is refused when its steps make no sense in one of its variants: a process that is not there or is there
//! twice, a mapping or a socket that has no such name, a length that is too large to be compared byte by byte.

use pageferry_lab::LabError;
use pageferry_lab::files::catalogue::{self, Source};
use pageferry_sourced::{load_toml, nearest};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most bytes of a range and the largest offset: each is kept and compared on the host as well.
pub const MAX_BYTES: u64 = 64 << 20;
/// The most calls of one step.
pub const MAX_CALLS: u64 = 1 << 16;
/// The most steps, and the most combinations of what varies.
pub const MAX_STEPS: usize = 1000;
/// See [`MAX_STEPS`].
pub const MAX_VARIANTS: usize = 1024;

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        /// The names and texts of those that are built in, by name.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),*];
    };
}

scenarios![
    "child-keeps-what-it-sent",
    "file-to-socket",
    "lent-file-mapping",
    "pinned-while-shared",
    "shared-shadow",
    "writes-after-fork",
];

/// A value that varies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A switch.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A word.
    Word(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Flag(flag) => flag.fmt(f),
            Value::Number(number) => number.fmt(f),
            Value::Word(word) => word.fmt(f),
        }
    }
}

/// A number, or the name of one that varies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// Itself.
    Fixed(u64),
    /// By name.
    Named(String),
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Do {
    /// Makes a file of `len` bytes, `text` over and over.
    Create,
    /// Maps `len` bytes of zero-fill memory and calls it `at`.
    Map,
    /// Maps `len` bytes of `file` and calls them `at`; `shared` or private.
    MapFile,
    /// Unmaps.
    Unmap,
    /// Gives mapped memory other permissions (`access`).
    Protect,
    /// Says what children get (`inherit`).
    Inherit,
    /// Stores `text` over and over.
    Fill,
    /// Loads, and expects `text` over and over.
    Expect,
    /// Makes a pair of connected sockets, called `sockets`.
    SocketPair,
    /// Sends all of a range.
    Send,
    /// Receives into all of a range, in pieces of `piece` bytes.
    Receive,
    /// Makes `child`, which has what the process has.
    Fork,
    /// Ends the process.
    Exit,
    /// Lets the page daemon take what it can.
    PageOut,
}

/// A step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The process that does it.
    pub process: String,
    /// What.
    #[serde(rename = "do")]
    pub what: Do,
    /// The name of the mapping.
    pub at: Option<String>,
    /// Where in the mapping the range begins, in bytes.
    #[serde(default)]
    pub offset: u64,
    /// Its length in bytes.
    pub len: Option<Amount>,
    /// Text that fills the range, over and over.
    pub text: Option<String>,
    /// A file's name.
    pub file: Option<String>,
    /// A mapping of a file changes the file.
    #[serde(default)]
    pub shared: bool,
    /// Permissions: `none`, `read`, `read-write`.
    pub access: Option<String>,
    /// What a child gets: `copy`, `share`, `none`.
    pub inherit: Option<String>,
    /// The names of two sockets.
    pub sockets: Option<[String; 2]>,
    /// The name of a socket.
    pub socket: Option<String>,
    /// Bytes asked for in one call.
    pub piece: Option<u64>,
    /// How to receive, where that does not vary: `copy`, `transfer`.
    pub receive: Option<String>,
    /// The new process.
    pub child: Option<String>,
    /// The next step goes on at the same time.
    #[serde(default)]
    pub beside: bool,
    /// `flag`, `!flag`, `name=value` or `!name=value`: whether the step is done at all.
    pub when: Option<String>,
}

/// A scenario's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// What it shows, in one line.
    pub title: String,
    /// Where the idea is from.
    pub origin: String,
    /// What happens.
    pub summary: String,
    /// What is tried in all combinations.
    #[serde(default)]
    pub vary: BTreeMap<String, Vec<Value>>,
    /// The steps.
    pub step: Vec<Step>,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: ScenarioFile,
}

/// One value for each name that varies.
pub type Variant = BTreeMap<String, Value>;

impl Scenario {
    /// The scenario called `name`, or at a path that ends in `.toml`.
    ///
    /// # Errors
    /// No such scenario, or one that makes no sense.
    pub fn find(name: &str) -> Result<Scenario, LabError> {
        let source = catalogue::find_in(FILES, "scenario", "scenarios", name)?;
        Scenario::parse(&source)
    }

    /// All that are built in.
    ///
    /// # Errors
    /// None but defects of the files.
    pub fn all() -> Result<Vec<Scenario>, LabError> {
        FILES.iter().map(|(name, _)| Scenario::find(name)).collect()
    }

    fn parse(source: &Source) -> Result<Scenario, LabError> {
        let wrong = |problem: String| LabError::Input { file: source.file.clone(), problem };
        let file: ScenarioFile = load_toml(&source.file, &source.text)?;
        let scenario = Scenario { name: source.name.clone(), file };
        scenario.validate().map_err(wrong)?;
        Ok(scenario)
    }

    /// All combinations of what varies.
    pub fn variants(&self) -> Vec<Variant> {
        let mut all = vec![Variant::new()];
        for (name, values) in &self.file.vary {
            all = all
                .into_iter()
                .flat_map(|variant| {
                    values.iter().map(move |value| {
                        let mut variant = variant.clone();
                        variant.insert(name.clone(), value.clone());
                        variant
                    })
                })
                .collect();
        }
        all
    }

    fn validate(&self) -> Result<(), String> {
        let ScenarioFile { vary, step: steps, .. } = &self.file;
        if steps.is_empty() || vary.values().any(Vec::is_empty) {
            return Err("there is nothing to do".into());
        }
        if steps.len() > MAX_STEPS {
            return Err(format!("{} steps, expected at most {MAX_STEPS}", steps.len()));
        }
        let variants = vary.values().try_fold(1usize, |all, values| all.checked_mul(values.len()));
        if variants.is_none_or(|variants| variants > MAX_VARIANTS) {
            return Err(format!("too many combinations of what varies, expected at most {MAX_VARIANTS}"));
        }
        for (i, step) in steps.iter().enumerate() {
            step.validate(vary).map_err(|problem| format!("step {}: {problem}", i + 1))?;
        }
        self.variants().iter().try_for_each(|variant| self.names(variant))
    }

    /// That every step of `variant` names what is there then.
    fn names(&self, variant: &Variant) -> Result<(), String> {
        let first = self.file.step[0].process.clone();
        let mut living = BTreeMap::from([(first.clone(), Names::default())]);
        let mut ever = BTreeSet::from([first]);
        for (i, step) in self.file.step.iter().enumerate().filter(|(_, step)| step.applies(variant)) {
            let wrong = |problem: String| {
                let with: Vec<_> = variant.iter().map(|(k, v)| format!("{k}={v}")).collect();
                let with =
                    if with.is_empty() { String::new() } else { format!(" (with {})", with.join(" ")) };
                format!("step {}: {problem}{with}", i + 1)
            };
            let Some(own) = living.get_mut(&step.process) else {
                let name = &step.process;
                let problem = if ever.contains(name) {
                    format!("process `{name}` has ended")
                } else {
                    format!("no process `{name}` has been forked{}", near(name, ever.iter()))
                };
                return Err(wrong(problem));
            };
            own.take(step).map_err(wrong)?;
            if let (Do::Fork, Some(child)) = (step.what, &step.child) {
                if !ever.insert(child.clone()) {
                    return Err(wrong(format!("a process is called `{child}` already")));
                }
                let inherited = own.clone();
                living.insert(child.clone(), inherited);
            }
            if step.what == Do::Exit {
                living.remove(&step.process);
            }
        }
        Ok(())
    }
}

/// What a process knows by name.
#[derive(Clone, Default)]
struct Names {
    maps: BTreeSet<String>,
    sockets: BTreeSet<String>,
}

impl Names {
    /// The names that `step` makes are known from now on, those that it uses have to be.
    fn take(&mut self, step: &Step) -> Result<(), String> {
        match step.what {
            Do::Map | Do::MapFile => self.maps.extend(step.at.clone()),
            Do::SocketPair => self.sockets.extend(step.sockets.iter().flatten().cloned()),
            Do::Create | Do::Fork | Do::Exit | Do::PageOut => {}
            _ => {
                if let Some(at) = step.at.as_ref().filter(|at| !self.maps.contains(*at)) {
                    return Err(format!("`{at}` is not mapped{}", near(at, self.maps.iter())));
                }
            }
        }
        let used = step.socket.as_ref().filter(|_| matches!(step.what, Do::Send | Do::Receive));
        match used.filter(|socket| !self.sockets.contains(*socket)) {
            Some(socket) => {
                Err(format!("no socket is called `{socket}`{}", near(socket, self.sockets.iter())))
            }
            None => Ok(()),
        }
    }
}

fn near<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let near = nearest(name, known.map(String::as_str));
    near.map_or_else(String::new, |n| format!(", did you mean `{n}`?"))
}

impl Step {
    fn validate(&self, vary: &BTreeMap<String, Vec<Value>>) -> Result<(), String> {
        let needs = |there: bool, key: &str| if there { Ok(()) } else { Err(format!("`{key}` is missing")) };
        let range = || needs(self.at.is_some(), "at").and_then(|()| needs(self.len.is_some(), "len"));
        match self.what {
            Do::Create => {
                needs(self.file.is_some(), "file")?;
                needs(self.len.is_some(), "len")?;
                needs(self.text.is_some(), "text")?;
            }
            Do::Map | Do::Unmap => range()?,
            Do::MapFile => range().and_then(|()| needs(self.file.is_some(), "file"))?,
            Do::Protect => range().and_then(|()| needs(self.access.is_some(), "access"))?,
            Do::Inherit => range().and_then(|()| needs(self.inherit.is_some(), "inherit"))?,
            Do::Fill | Do::Expect => range().and_then(|()| needs(self.text.is_some(), "text"))?,
            Do::SocketPair => needs(self.sockets.is_some(), "sockets")?,
            Do::Send | Do::Receive => range().and_then(|()| needs(self.socket.is_some(), "socket"))?,
            Do::Fork => needs(self.child.is_some(), "child")?,
            Do::Exit | Do::PageOut => {}
        }
        if self.text.as_ref().is_some_and(String::is_empty) {
            return Err("`text` is empty".into());
        }
        let one_of = |key: &str, value: &Option<String>, allowed: &[&str]| match value {
            Some(value) if !allowed.contains(&value.as_str()) => {
                Err(format!("{key} = `{value}`, expected {}", allowed.join(", ")))
            }
            _ => Ok(()),
        };
        one_of("access", &self.access, &["none", "read", "read-write"])?;
        one_of("inherit", &self.inherit, &["copy", "share", "none"])?;
        one_of("receive", &self.receive, &["copy", "transfer"])?;
        if let Some(Amount::Named(name)) = &self.len
            && !vary.get(name).is_some_and(|v| v.iter().all(|v| matches!(v, Value::Number(_))))
        {
            return Err(format!("len = `{name}`, which is no number that varies"));
        }
        let lens: Vec<(&str, u64)> = match &self.len {
            Some(Amount::Fixed(len)) => vec![("len", *len)],
            Some(Amount::Named(name)) => (vary[name].iter())
                .filter_map(|v| if let Value::Number(len) = v { Some((name.as_str(), *len)) } else { None })
                .collect(),
            None => Vec::new(),
        };
        let longest = lens.iter().map(|(_, len)| *len).max().unwrap_or(0);
        let piece = self.piece.map(|piece| ("piece", piece));
        if let Some((key, len)) =
            lens.into_iter().chain(piece).find(|(_, len)| !(1..=MAX_BYTES).contains(len))
        {
            return Err(format!("{key} = {len}, expected 1 to {MAX_BYTES} bytes"));
        }
        if let Some((piece, calls)) = self.piece.map(|piece| (piece, longest.div_ceil(piece)))
            && calls > MAX_CALLS
        {
            return Err(format!("piece = {piece}, which is {calls} calls, expected at most {MAX_CALLS}"));
        }
        if self.offset > MAX_BYTES {
            return Err(format!("offset = {}, expected 0 to {MAX_BYTES} bytes", self.offset));
        }
        if let Some(when) = &self.when {
            let (name, _) = condition(when);
            if !vary.contains_key(name) {
                return Err(format!("when = `{when}`: `{name}` does not vary"));
            }
        }
        Ok(())
    }

    /// True when the step is done in `variant`.
    pub(super) fn applies(&self, variant: &Variant) -> bool {
        let Some(when) = &self.when else { return true };
        let (name, wanted) = condition(when);
        let value = variant[name].to_string();
        (value == wanted.unwrap_or("true")) != when.starts_with('!')
    }
}

/// The name in a condition, and the value that it asks for.
fn condition(when: &str) -> (&str, Option<&str>) {
    let plain = when.strip_prefix('!').unwrap_or(when);
    match plain.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (plain, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Scenario, String> {
        let source = Source { name: "x".into(), file: "x.toml".into(), text: text.into() };
        Scenario::parse(&source).map_err(|e| e.to_string())
    }

    const HEAD: &str = "title = 't'\norigin = 'o'\nsummary = 's'\n";

    #[test]
    fn those_built_in_are_sound() {
        let all = Scenario::all().unwrap();
        assert!(all.len() >= 6);
        assert!(all.iter().map(|s| s.variants().len()).sum::<usize>() > 50);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let e = parse(&format!("{HEAD}[[step]]\nprocess = 'a'\ndo = 'map'\nat = 'm'\n")).unwrap_err();
        assert_eq!(e, "x.toml: step 1: `len` is missing");
        let two = "[[step]]\nprocess = 'parent'\ndo = 'page_out'\n[[step]]\nprocess = 'parnt'\ndo = 'exit'\n";
        let e = parse(&format!("{HEAD}{two}")).unwrap_err();
        assert_eq!(e, "x.toml: step 2: no process `parnt` has been forked, did you mean `parent`?");
        let e = parse(&format!("{HEAD}[[step]]\nprocess = 'a'\ndo = 'exit'\nwhen = 'late'\n")).unwrap_err();
        assert!(e.ends_with("`late` does not vary"), "{e}");
        assert!(
            parse(&format!("{HEAD}[[step]]\nprocess = 'a'\ndo = 'dance'\n")).unwrap_err().contains("dance")
        );
    }

    #[test]
    fn what_no_kernel_could_do_is_refused_with_its_step() {
        let of = |steps: &str| parse(&format!("{HEAD}{steps}")).map_or_else(|e| e, |_| "nothing".into());
        let step = |text: &str| format!("[[step]]\nprocess = 'a'\n{text}\n");
        let bound = "expected 1 to 67108864 bytes";
        for len in ["9223372036854775808", "20_000_000_000", "0"] {
            let said = of(&step(&format!("do = 'map'\nat = 'm'\nlen = {len}")));
            assert_eq!(said, format!("x.toml: step 1: len = {}, {bound}", len.replace('_', "")));
        }
        let said =
            of(&format!("[vary]\nsize = [1, 99999999999]\n{}", step("do = 'map'\nat = 'm'\nlen = 'size'")));
        assert_eq!(said, format!("x.toml: step 1: size = 99999999999, {bound}"));
        let said = of(&step("do = 'map'\nat = 'm'\nlen = 99999999999999999999"));
        assert!(said.starts_with("x.toml:8:"), "{said}");
        let fork = step("do = 'fork'\nchild = 'b'");
        assert_eq!(of(&[&fork[..], &fork].concat()), "x.toml: step 2: a process is called `b` already");
        assert!(of(&step("do = 'fork'\nchild = 'a'")).ends_with("a process is called `a` already"));
        let one = "[vary]\nf = [true, false]\n";
        let forks = format!("{one}{fork}when = 'f'\n{fork}when = '!f'\n");
        assert_eq!(of(&forks), "nothing", "only one of them in each variant");
        let late = format!("{one}{fork}when = 'f'\n{}", step("do = 'exit'").replace("'a'", "'b'"));
        assert_eq!(of(&late), "x.toml: step 2: no process `b` has been forked (with f=false)");
        let exit = step("do = 'exit'");
        assert_eq!(of(&[&exit[..], &exit].concat()), "x.toml: step 2: process `a` has ended");
        let fill = |at: &str| step(&format!("do = 'fill'\nat = '{at}'\nlen = 1\ntext = 'x'"));
        let map = step("do = 'map'\nat = 'some'\nlen = 1");
        let said = of(&[&map[..], &fill("smoe")].concat());
        assert_eq!(said, "x.toml: step 2: `smoe` is not mapped, did you mean `some`?");
        let send = step("do = 'send'\nat = 'some'\nlen = 1\nsocket = 'out'");
        assert_eq!(of(&[&map[..], &send].concat()), "x.toml: step 2: no socket is called `out`");
        let receive = step("do = 'receive'\nsocket = 'in'\nat = 'm'\nlen = 5_000_000\npiece = 2");
        assert_eq!(of(&receive), "x.toml: step 1: piece = 2, which is 2500000 calls, expected at most 65536");
        let many = (0..11).map(|i| format!("v{i} = [true, false]\n")).collect::<String>();
        assert!(of(&format!("[vary]\n{many}{exit}")).contains("expected at most 1024"));
    }

    #[test]
    fn conditions() {
        let text = format!(
            "{HEAD}[vary]\nf = [true, false]\nw = ['a', 'b']\n[[step]]\nprocess = 'p'\ndo = 'exit'\n"
        );
        let scenario = parse(&text).unwrap();
        assert_eq!(scenario.variants().len(), 4);
        let holds = |when: &str| {
            let step = Step { when: Some(when.into()), ..scenario.file.step[0].clone() };
            scenario.variants().iter().filter(|v| step.applies(v)).count()
        };
        assert_eq!(["f", "!f", "w=a", "!w=a", "w=c"].map(holds), [2, 2, 2, 2, 0]);
    }
}
