//! `pageferry machines`, `kernels` and `experiments`: lists, and with a name one in full.
//!
//! Of two machines or kernels, the constants are shown in which they differ: a value that differs, or that one has.
//!
//! A machine or kernel is printed as a file that loads again and is the same. So is an experiment, with `--toml`; by
//! default it is told in words.

use crate::args::{Show, ShowConstants};
use crate::terminal::{self, print, table};
use pageferry_lab::files::catalogue::{self, Kind, names};
use pageferry_lab::files::{Experiment, ExperimentFile, KernelChoice, MachineChoice};
use pageferry_lab::{Constant, LabError, load_toml, text, to_toml};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// Lists machines, or shows one.
pub(crate) fn machines(options: &ShowConstants) -> Result<ExitCode, LabError> {
    let ShowConstants { show: options, diff, ranges } = options;
    if let Some([a, b]) = diff.as_deref() {
        let [a, b] = [MachineChoice::find(a)?, MachineChoice::find(b)?];
        return differing([(&a.name, a.constants()), (&b.name, b.constants())], options.json);
    }
    match &options.name {
        Some(name) => {
            let machine = MachineChoice::find(name)?;
            if *ranges {
                return print_ranges(machine.constants(), |key| machine.range(key));
            }
            let config = &machine.config;
            let shown = Listing {
                name: &machine.name,
                title: &config.title,
                summary: &config.description,
                constants: machine.constants(),
                sources: &config.sources,
            };
            if options.json {
                return print_json(&shown);
            }
            print_toml("machines", name, config)
        }
        None => {
            let all = all(Kind::Machine, MachineChoice::find)?;
            if options.json {
                return print_json(&all.iter().map(|m| (&m.name, &m.config)).collect::<BTreeMap<_, _>>());
            }
            let rows: Vec<_> = all.iter().map(machine_row).collect();
            let head = ["machine", ">CPUs", ">MHz", "data TLB", "caches", ">memory", "what it is"];
            print(&table(&head, &rows))?;
            hint("machines");
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn machine_row(machine: &MachineChoice) -> Vec<String> {
    let config = &machine.config;
    let tlb = &config.tlb;
    let second = tlb.second.as_ref().map_or(String::new(), |s| format!(" + {}", s.entries.value));
    let caches: Vec<_> =
        config.cache.iter().map(|c| format!("{} {}", c.name, size(c.size_bytes.value))).collect();
    vec![
        machine.name.clone(),
        config.cpus().to_string(),
        config.cpu.clock_mhz.value.to_string(),
        format!("{}{second}", tlb.data.entries.value),
        caches.join(", "),
        size(config.memory_bytes()),
        config.title.clone(),
    ]
}

/// A power of two in its largest unit.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = units.iter().find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift));
    fits.map_or_else(|| text::bytes(bytes), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

/// Lists kernels, or shows one.
pub(crate) fn kernels(options: &ShowConstants) -> Result<ExitCode, LabError> {
    let ShowConstants { show: options, diff, ranges } = options;
    if let Some([a, b]) = diff.as_deref() {
        let [a, b] = [KernelChoice::find(a)?, KernelChoice::find(b)?];
        return differing([(&a.name, a.constants()), (&b.name, b.constants())], options.json);
    }
    match &options.name {
        Some(name) => {
            let kernel = KernelChoice::find(name)?;
            if *ranges {
                return print_ranges(kernel.constants(), |key| kernel.range(key));
            }
            let shown = Listing {
                name: &kernel.name,
                title: &kernel.file.title,
                summary: &kernel.file.summary,
                constants: kernel.constants(),
                sources: &kernel.file.sources,
            };
            if options.json {
                return print_json(&shown);
            }
            print_toml("kernels", name, &kernel.file)
        }
        None => {
            let all = all(Kind::Kernel, KernelChoice::find)?;
            if options.json {
                return print_json(&all.iter().map(|k| (&k.name, &k.file)).collect::<BTreeMap<_, _>>());
            }
            let rows: Vec<_> = all.iter().map(|k| vec![k.name.clone(), k.file.summary.clone()]).collect();
            print(&table(&["kernel", "what it is"], &rows))?;
            hint("kernels");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Lists experiments, or shows one.
pub(crate) fn experiments(options: &Show) -> Result<ExitCode, LabError> {
    let Some(name) = &options.name else {
        let all = crate::registry::registry().experiments()?;
        if options.json {
            return print_json(&all.iter().map(|e| (&e.name, &e.file)).collect::<BTreeMap<_, _>>());
        }
        let row = |e: &Experiment| {
            vec![e.name.clone(), e.file.title.clone(), format!("{}, {}", e.file.paper_name(), e.file.section)]
        };
        print(&table(
            &["experiment", "what it measures", "paper, section"],
            &all.iter().map(row).collect::<Vec<_>>(),
        ))?;
        hint("experiments");
        return Ok(ExitCode::SUCCESS);
    };
    if options.toml {
        // A faulty one is not printed. The file of one that extends no other is all of it, remarks included.
        let experiment = crate::registry::registry().experiment(name)?;
        let text = catalogue::find(Kind::Experiment, name)?.text;
        if load_toml::<ExperimentFile>(name, &text).is_err() {
            return print_toml("experiments", &format!("{name} --toml"), &experiment.file);
        }
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let experiment = crate::registry::registry().experiment(name)?;
    if options.json {
        return print_json(&experiment.file);
    }
    let (style, file) = (terminal::stdout(), &experiment.file);
    let mut out = format!(
        "{}  {}, {}\n{}\n\n",
        style.strong(&file.title),
        file.paper_name(),
        file.section,
        file.summary
    );
    let row = |(name, p): (&String, &pageferry_lab::files::Parameter)| {
        vec![
            name.clone(),
            p.value.to_string(),
            p.quick.unwrap_or(p.value).to_string(),
            p.min.to_string(),
            experiment.max_of(name).to_string(),
            p.unit.clone(),
            p.source.clone(),
        ]
    };
    let rows: Vec<_> = file.parameters.iter().map(row).collect();
    out += &table(&["parameter (--set)", ">default", ">quick", ">from", ">to", "unit", "source"], &rows);
    if !file.choices.is_empty() {
        let row = |(name, c): (&String, &pageferry_lab::files::Choice)| {
            vec![name.clone(), c.value.clone(), c.allowed.join(", "), c.source.clone()]
        };
        let rows: Vec<_> = file.choices.iter().map(row).collect();
        out += &format!("\n{}", table(&["choice (--set)", "default", "of", "source"], &rows));
    }
    out += "\n";
    for block in &file.matrix {
        out += &format!("runs on {}\n  under {}\n", block.machines.join(", "), block.kernels.join(", "));
        for vary in &block.vary {
            let values: Vec<_> = vary.values.iter().map(ToString::to_string).collect();
            out += &format!("  with {} = {}\n", vary.key, values.join(", "));
        }
    }
    let mut compared: Vec<_> = file.compare.iter().map(|c| c.published.as_str()).collect();
    compared.dedup();
    if !compared.is_empty() {
        out += &format!("compared with {}\n", compared.join(", "));
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Each number with the least and the greatest that it may be.
fn print_ranges(
    constants: Vec<Constant>,
    range: impl Fn(&str) -> Option<(i64, i64)>,
) -> Result<ExitCode, LabError> {
    let row = |constant: Constant| {
        let (min, max) = range(&constant.key)?;
        Some(vec![constant.key, constant.value, min.to_string(), max.to_string()])
    };
    let rows: Vec<_> = constants.into_iter().filter_map(row).collect();
    print(&table(&["number", ">value", ">from", ">to"], &rows))?;
    Ok(ExitCode::SUCCESS)
}

/// A machine or a kernel in full.
#[derive(Serialize)]
struct Listing<'a> {
    name: &'a str,
    title: &'a str,
    summary: &'a str,
    constants: Vec<Constant>,
    sources: &'a BTreeMap<String, String>,
}

/// A constant in which two machines or kernels differ.
#[derive(Serialize)]
struct Difference<'a> {
    key: &'a str,
    a: Option<&'a Constant>,
    b: Option<&'a Constant>,
}

/// Shows the constants in which two differ.
fn differing(sides: [(&str, Vec<Constant>); 2], as_json: bool) -> Result<ExitCode, LabError> {
    let mut both: BTreeMap<&str, [Option<&Constant>; 2]> = BTreeMap::new();
    for (side, (_, constants)) in sides.iter().enumerate() {
        constants.iter().for_each(|constant| both.entry(&constant.key).or_default()[side] = Some(constant));
    }
    let differs = |[a, b]: [Option<&Constant>; 2]| a.map(|a| &a.value) != b.map(|b| &b.value);
    let of = both.len();
    both.retain(|_, constants| differs(*constants));
    let all: Vec<_> = both.into_iter().map(|(key, [a, b])| Difference { key, a, b }).collect();
    if as_json {
        return print_json(&all);
    }
    let row = |d: &Difference<'_>| {
        let value = |of: Option<&Constant>| of.map_or("none", |constant| &constant.value).to_owned();
        let source = |of: Option<&Constant>| of.map_or("", |constant| &constant.source).to_owned();
        vec![d.key.to_owned(), value(d.a), value(d.b), source(d.a), source(d.b)]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let [a, b] = [sides[0].0, sides[1].0];
    let mut out = String::new();
    if !rows.is_empty() {
        let head = [
            "constant".to_owned(),
            format!(">{a}"),
            format!(">{b}"),
            format!("source in {a}"),
            format!("source in {b}"),
        ];
        out = table(&head.each_ref().map(String::as_str), &rows) + "\n";
    }
    out += &format!("{a} and {b} differ in {} of {of} constants.\n", all.len());
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn all<T>(kind: Kind, find: impl Fn(&str) -> Result<T, LabError>) -> Result<Vec<T>, LabError> {
    names(kind).into_iter().map(find).collect()
}

fn hint(verb: &str) {
    if std::io::stdout().is_terminal() {
        crate::progress::note(&format!("\npageferry {verb} NAME shows one in full."));
    }
}

/// A file that loads again, with all that it was laid upon.
fn print_toml<T: Serialize>(verb: &str, name: &str, config: &T) -> Result<ExitCode, LabError> {
    print(&format!("# As `pageferry {verb} {name}` prints it.\n\n{}", to_toml(config)))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<ExitCode, LabError> {
    let mut json = serde_json::to_string_pretty(value).expect("plain data can be written as JSON");
    json.push('\n');
    print(&json)?;
    Ok(ExitCode::SUCCESS)
}
