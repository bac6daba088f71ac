//! `cargo run -p xtask -- metal ...`: the kernel on metal, under QEMU.
//!
//! `amd64` builds the image, boots it, and ends with its exit code; `check` makes many such runs, and looks at what
//! each says. `shell` has a shell in ring 3 on this terminal, and `run` one program. `verify` has the modelled machine
//! conduct a run, and compares; `verify-all` does so for a table of runs, after it has seen that planted defects make
//! a difference, and for what is counted of programs in ring 3, which `count` prints of one. A host without QEMU is
//! told what it lacks.

mod check;
mod counts;
mod image;
mod qemu;
mod stick;
mod verify;

use image::{Image, Programs};
use qemu::{Machine, Qemu};
use std::fmt::{Display, Write as _};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use verify::{Comparison, Verifier};

/// How the command is used.
pub const USAGE: &str =
    "metal amd64 [--cpus N] [--machine q35|pc|microvm] [--memory MB] [--kernel SCHEME] [--usb FILE]
       metal shell [--cpus N] [--machine q35|pc|microvm] [--memory MB] [--kernel SCHEME]
       metal run PROGRAM[,WORD...] [options of shell]
       metal check
       metal verify EXPERIMENT [--cpus N] [--seed S|timed] [--kernel SCHEME] [--defect NAME]
       metal verify random [--program FIRST] [--programs N] [options of verify]
       metal verify-all [--every N] [--csv FILE]
       metal count PROGRAM[,WORD...] [--cpus N] [--kernel SCHEME]";

/// As many as the kernel has room for (`hal::CpuSet::MAX_CPUS`).
const CPUS: RangeInclusive<usize> = 1..=64;
/// Of the machine that QEMU makes. Of fewer the image says itself what it lacks.
const MEMORY_MB: RangeInclusive<u32> = 2..=1 << 20;
/// Programs at random, by number, and how many.
const PROGRAMS: RangeInclusive<u32> = 1..=100_000_000;
/// So many of them are run between a boot and the end: the turns of all are in the memory of the image.
const IN_A_RUN: u32 = 5;
/// Which comparisons are made: each, or every so many.
const EVERY: RangeInclusive<usize> = 1..=1000;

/// Runs the command; its arguments are those behind `metal`.
pub fn run(arguments: &[&str]) -> ExitCode {
    match command(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn command(arguments: &[&str]) -> Result<u8, String> {
    match arguments {
        ["amd64", options @ ..] => amd64(options),
        ["shell", options @ ..] => ring3("shell", options),
        ["run", program, options @ ..] => ring3(program, options),
        ["check"] => check::all(&Image::build(&[])?, &Programs::build()?).map(|()| 0),
        ["verify", experiment, options @ ..] => verify_one(experiment, options),
        ["verify-all", options @ ..] => verify_all(options).map(|()| 0),
        ["count", program, options @ ..] => count(program, options),
        _ => Err(format!("usage: {USAGE}")),
    }
}

/// Has a program of ring 3 run on this terminal.
fn ring3(program: &str, options: &[&str]) -> Result<u8, String> {
    let mut qemu = Qemu::new(Machine::Q35, 1);
    for option in pairs(options)? {
        if !choose(&mut qemu, option)? {
            return Err(format!("{}: expected --cpus, --machine, --memory or --kernel", option.0));
        }
    }
    let (image, programs) = (Image::build(&[])?, Programs::build()?);
    qemu.with_programs(&programs.path, program).run_here(&image)
}

/// Takes an option that says what machine it is to be; false if it is not one.
fn choose(qemu: &mut Qemu, option: (&str, &str)) -> Result<bool, String> {
    match option {
        ("--cpus", n) => qemu.cpus = number("--cpus", n, CPUS)?,
        ("--machine", name) => {
            qemu.machine =
                Machine::named(name).ok_or(format!("--machine {name}: expected q35, pc or microvm"))?;
        }
        ("--memory", mb) => qemu.memory_mb = number("--memory", mb, MEMORY_MB)?,
        ("--kernel", scheme) => qemu.line = format!("scheme={scheme}"),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Builds the image and boots it, with its messages on standard output; or writes a stick from which a PC does.
fn amd64(options: &[&str]) -> Result<u8, String> {
    let mut qemu = Qemu::new(Machine::Q35, 1);
    let mut stick = None;
    for option in pairs(options)? {
        match option {
            ("--usb", file) => stick = Some(Path::new(file)),
            (name, _) if !choose(&mut qemu, option)? => {
                return Err(format!("{name}: expected --cpus, --machine, --memory, --kernel or --usb"));
            }
            _ => {}
        }
    }
    if let Some(to) = stick {
        if let Some(name) = ["--cpus", "--machine", "--memory"].iter().find(|name| options.contains(name)) {
            return Err(format!("{name}: expected without --usb, which is for any PC"));
        }
        stick::write(&Image::build(&[])?, &qemu.line, to)?;
        println!("{}: boots a PC from a USB stick or a CD", to.display());
        return Ok(0);
    }
    let end = qemu.run(&Image::build(&[])?)?;
    print!("{}", end.said);
    Ok(end.code)
}

/// One comparison, with all that it finds.
fn verify_one(experiment: &str, options: &[&str]) -> Result<u8, String> {
    let mut comparison = Comparison {
        experiment: experiment.into(),
        cpus: 1,
        seed: "timed".into(),
        scheme: "original".into(),
        defect: None,
        programs: None,
    };
    let (mut first, mut count) = (1, 1);
    for option in pairs(options)? {
        match option {
            ("--program", n) if experiment == "random" => first = number("--program", n, PROGRAMS)?,
            ("--programs", n) if experiment == "random" => count = number("--programs", n, PROGRAMS)?,
            ("--cpus", n) => comparison.cpus = number("--cpus", n, CPUS)?,
            ("--seed", seed) => comparison.seed = seed.into(),
            ("--kernel", scheme) => comparison.scheme = scheme.into(),
            ("--defect", name) => comparison.defect = Some(name.into()),
            (name, _) => {
                let more = if experiment == "random" { ", --program, --programs" } else { "" };
                return Err(format!("{name}: expected --cpus, --seed, --kernel{more} or --defect"));
            }
        }
    }
    let verifier = Verifier::build(comparison.defect.is_some())?;
    if experiment == "random" {
        return verify_random(&verifier, comparison, first, count);
    }
    let (said, equal) = verifier.compare(&comparison)?;
    print!("{said}");
    Ok(u8::from(!equal))
}

/// Programs at random, some in each run, until one is found of which not all is the same.
fn verify_random(verifier: &Verifier, comparison: Comparison, first: u32, count: u32) -> Result<u8, String> {
    let end = first.saturating_add(count);
    let mut all = 0;
    for from in (first..end).step_by(IN_A_RUN as usize) {
        let some = IN_A_RUN.min(end - from);
        let comparison = Comparison { programs: Some((from, some)), ..comparison.clone() };
        let (said, equal) = verifier.compare(&comparison)?;
        if !equal {
            print!("{said}");
            println!("not the same in programs {from} to {}", from + some - 1);
            return Ok(1);
        }
        let events = said.lines().find(|line| line.starts_with("all "));
        all += events.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0);
        println!("programs {first} to {} of {}: {all} events, all the same", from + some - 1, end - 1);
    }
    Ok(0)
}

/// Has one of the small programs run in ring 3, and prints what is counted of its measured part.
fn count(program: &str, options: &[&str]) -> Result<u8, String> {
    let (mut cpus, mut scheme) = (1, "direct");
    for option in pairs(options)? {
        match option {
            ("--cpus", n) => cpus = number("--cpus", n, CPUS)?,
            ("--kernel", name) => scheme = name,
            (name, _) => return Err(format!("{name}: expected --cpus or --kernel")),
        }
    }
    let (image, programs) = (Image::build(&[])?, Programs::build()?);
    let counted = counts::on_metal(&image, &programs, program, scheme, cpus)?;
    for (name, value) in counted.shared {
        println!("{name} {value}");
    }
    Ok(0)
}

/// Has the small programs run in ring 3 and on the model, each with all schemes or with one of them in turn, and
/// compares what is counted. How many differ.
fn count_all(verifier: &Verifier, every: usize, csv: &mut String) -> Result<usize, String> {
    const SCHEMES: [&str; 3] = ["direct", "cache", "original"];
    let (image, programs) = (Image::build(&[])?, Programs::build()?);
    // A comparison that cannot fail proves nothing: another scheme counts other things.
    let [other, ours] = [SCHEMES[0], SCHEMES[2]];
    let metal = counts::on_metal(&image, &programs, "bw-pipe", other, 1)?;
    let model = counts::on_model(&mut verifier.program(), "bw-pipe", ours)?;
    let differing = counts::compare(&model, &metal).differing.len();
    println!("bw-pipe, {ours} on the model and {other} in ring 3: {differing} counts differ");
    if differing == 0 {
        return Err("another scheme makes no difference".into());
    }
    let pairs = counts::PROGRAMS.into_iter().flat_map(|program| SCHEMES.map(|scheme| (program, scheme)));
    let mut wrong = 0;
    for (program, scheme) in pairs.step_by(every) {
        let model = counts::on_model(&mut verifier.program(), program, scheme)?;
        let metal = counts::on_metal(&image, &programs, program, scheme, 1)?;
        let counts::Difference { compared, differing, left_out } = counts::compare(&model, &metal);
        let left_out = left_out.map(|what| format!("; left out: {what}")).unwrap_or_default();
        println!(
            "{program}, {scheme}, ring 3: {compared} counts, {} of them differ; {} faults of its own{left_out}",
            differing.len(),
            metal.own.get("faults").unwrap_or(&0)
        );
        for (name, model, metal) in &differing {
            println!("  {name}: model {model}, metal {metal}");
        }
        let quoted = if program.contains(',') { format!("\"{program}\"") } else { program.to_owned() };
        let _ = writeln!(csv, "ring 3,{quoted},{scheme},1,timed,{compared},{}", differing.len());
        wrong += usize::from(!differing.is_empty());
    }
    Ok(wrong)
}

/// Defects first, and schedules that do not fit; then all comparisons, or every so many of them. What came of them can
/// be written to a file.
fn verify_all(options: &[&str]) -> Result<(), String> {
    let (mut every, mut file) = (1, None);
    for option in pairs(options)? {
        match option {
            ("--every", n) => every = number("--every", n, EVERY)?,
            ("--csv", path) => file = Some(path),
            (name, _) => return Err(format!("{name}: expected --every or --csv")),
        }
    }
    let mut csv = String::from("what,experiment,scheme,cpus,seed,compared,differ\n");
    let verifier = Verifier::build(true)?;
    let counted = |said: &str| {
        let line = said.lines().find(|line| line.ends_with(" lines differ"));
        line.unwrap_or("no line says how many differ").to_owned()
    };
    for control in verify::controls() {
        let (said, equal) = verifier.compare(&control)?;
        let Comparison { defect, experiment, cpus, .. } = &control;
        println!(
            "planted {}, {experiment}, {cpus} CPUs: {}",
            defect.as_deref().unwrap_or("none"),
            counted(&said)
        );
        if equal || !said.contains(" lines differ") {
            return Err(format!("{said}a defect makes no difference"));
        }
    }
    part_from_schedule(&verifier)?;
    refuse_schedules(&verifier)?;
    let mut wrong = 0;
    for comparison in verify::matrix().into_iter().step_by(every) {
        let Comparison { experiment, cpus, seed, scheme, .. } = &comparison;
        let (said, equal) = verifier.compare(&comparison)?;
        let all = said.lines().find(|line| line.starts_with("all ")).unwrap_or("all");
        println!("{experiment:<10} {scheme:<9} {cpus} CPUs, seed {seed:<6} {all}: {}", counted(&said));
        let events = all.split_whitespace().nth(1).unwrap_or("0");
        let differ = counted(&said);
        let differ = differ.split_whitespace().next().unwrap_or("-");
        let _ = writeln!(csv, "conducted,{experiment},{scheme},{cpus},{seed},{events},{differ}");
        if !equal {
            print!("{said}");
            wrong += 1;
        }
    }
    wrong += count_all(&verifier, every, &mut csv)?;
    if let Some(file) = file {
        fs::write(file, csv).map_err(|e| format!("{file}: {e}"))?;
    }
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} runs on metal are not the model's")) }
}

/// A kernel with a defect on metal, conducted by a sound one, makes other calls: the run ends there.
fn part_from_schedule(verifier: &Verifier) -> Result<(), String> {
    let control = verify::controls().pop().expect("there are some");
    verifier.record(&Comparison { defect: None, ..control.clone() })?;
    let (said, code) = verifier.conduct(&control, &verifier.turns())?;
    let expected = "the run has parted from its schedule: turn ";
    if code != 1 || said.trim_end().lines().count() != 1 || !said.contains(expected) {
        return Err(format!("code {code}, expected one line with `{expected}`, and it said\n{said}"));
    }
    print!("planted {} on metal alone: {said}", control.defect.unwrap_or_default());
    Ok(())
}

/// A schedule that is cut off, damaged, none, or of another program: one line, and code 1.
fn refuse_schedules(verifier: &Verifier) -> Result<(), String> {
    let echo = verify::matrix().into_iter().find(|one| one.experiment == "echo").expect("it is in the table");
    verifier.record(&echo)?;
    let turns = verifier.turns();
    let whole = fs::read(&turns).map_err(|e| format!("{}: {e}", turns.display()))?;
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    let other = Comparison { experiment: "carry".into(), ..echo.clone() };
    for (file, run, expected) in [
        (&whole[..whole.len() / 2], &echo, "it is cut off"),
        (&whole[..10], &echo, "it is cut off"),
        (&damaged[..], &echo, "the schedule is damaged"),
        (&[7; 64][..], &echo, "the module is no schedule"),
        (&whole[..], &other, "the schedule is of another program"),
    ] {
        let path = turns.with_file_name("bad.bin");
        fs::write(&path, file).map_err(|e| format!("{}: {e}", path.display()))?;
        let (said, code) = verifier.conduct(run, &path)?;
        if code != 1 || said.trim_end().lines().count() != 1 || !said.contains(expected) {
            return Err(format!("code {code}, expected one line with `{expected}`, and it said\n{said}"));
        }
    }
    println!("5 schedules that do not fit: refused");
    Ok(())
}

/// The number that an option has, which QEMU is not to read in a way of its own.
fn number<N: FromStr + PartialOrd + Display>(
    name: &str,
    text: &str,
    range: RangeInclusive<N>,
) -> Result<N, String> {
    let (min, max) = (range.start(), range.end());
    let fits = text.parse().ok().filter(|number| range.contains(number));
    fits.ok_or_else(|| format!("{name} {text}: expected {min} to {max}"))
}

/// Options, each with its value.
fn pairs<'a>(options: &[&'a str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    let pair = |two: &[&'a str]| match *two {
        [name, value] => Ok((name, value)),
        [name] => Err(format!("{name}: expected a value behind it")),
        _ => unreachable!("chunks of two"),
    };
    options.chunks(2).map(pair).collect()
}
