//! `cargo run -p xtask -- metal ...`: the kernel on metal, under QEMU.
//!
//! `amd64` builds the image, boots it, and ends with its exit code; `check` makes many such runs, and looks at what
//! each says. A host without QEMU is told what it lacks. What a run leaves is in the folder `metal` of the target
//! folder.

mod check;
mod image;
mod qemu;

use image::Image;
use qemu::{Machine, Qemu};
use std::process::ExitCode;

/// How the command is used.
pub const USAGE: &str = "metal amd64 [--cpus N] [--machine q35|pc|microvm] [--memory MB] [--kernel SCHEME]
       metal check";

/// Runs the command; its arguments are those behind `metal`.
pub fn run(arguments: &[&str]) -> ExitCode {
    let result = match arguments {
        ["amd64", options @ ..] => amd64(options),
        ["check"] => Image::build(&[]).and_then(|image| check::all(&image)).map(|()| 0),
        _ => Err(format!("usage: {USAGE}")),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the image and boots it, with its messages on standard output.
fn amd64(options: &[&str]) -> Result<u8, String> {
    let mut qemu = Qemu::new(Machine::Q35, 1);
    let mut line = String::new();
    for option in pairs(options)? {
        match option {
            ("--cpus", n) => qemu.cpus = n.parse().map_err(|_| format!("--cpus {n}: expected a number"))?,
            ("--machine", name) => {
                qemu.machine =
                    Machine::named(name).ok_or(format!("--machine {name}: expected q35, pc or microvm"))?;
            }
            ("--memory", mb) => {
                qemu.memory_mb = mb.parse().map_err(|_| format!("--memory {mb}: expected megabytes"))?;
            }
            ("--kernel", scheme) => line = format!("scheme={scheme}"),
            (name, _) => return Err(format!("{name}: expected --cpus, --machine, --memory or --kernel")),
        }
    }
    let end = qemu.with_line(&line).run(&Image::build(&[])?)?;
    print!("{}", end.said);
    Ok(end.code)
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
