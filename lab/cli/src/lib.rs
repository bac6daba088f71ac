//! The `pageferry` command, as a library: a program with workloads of its own is the same command over its own
//! registry.
//!
//! ```no_run
//! use pageferry_lab::Registry;
//!
//! fn main() -> std::process::ExitCode {
//!     pageferry_cli::main_with(Registry::standard()) // .with::<MyWorkload>()
//! }
//! ```
//!
//! Exit codes: 0 when all is well; 1 when a run broke a law (its numbers are not to be trusted), or when `diff` found
//! that something moved; 2 when what was asked for cannot be done: bad usage, a bad name, key, value or file, an input
//! that cannot be read, an output that cannot be written; 128 and the signal's number when a signal ended it, 130 for
//! Ctrl-C. Nothing half-written is left behind in any case.
#![forbid(unsafe_code)]

mod args;
mod diff;
mod disk;
mod explain;
#[cfg(target_os = "linux")]
mod host;
mod kept;
mod manual;
mod metal;
mod numbers;
mod pipe;
mod progress;
mod registry;
mod replay;
mod report;
mod reproduce;
mod run;
mod scenarios;
mod sensitivity;
mod serve;
mod show;
mod soak;
mod sweep;
mod terminal;
mod trace;

use args::{Arguments, Command};
use clap::Parser as _;
use pageferry_lab::output;
use pageferry_lab::{Blame, LabError, Registry};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::process::ExitCode;
use terminal::tell;

/// Does what the command line of this process says, with the workloads and experiments of `registry`. The code that it
/// gives is what the process ends with.
///
/// A process calls it once: of a second registry nothing is known.
pub fn main_with(registry: Registry) -> ExitCode {
    registry::set(registry);
    let arguments = Arguments::parse();
    // A server ends by a signal, and then tells what it did: it watches for itself.
    let watched = match arguments.command {
        Command::Serve(_) => Ok(()),
        // So does a comparison, which takes away what other programs leave.
        #[cfg(target_os = "linux")]
        Command::Host(ref options) if options.hears_signals() => Ok(()),
        _ => watch_signals(),
    };
    if let Err(error) = watched {
        tell(&format!("pageferry: cannot watch for interruptions: {error}"));
    }
    let done = match arguments.command {
        Command::Reproduce(options) => reproduce::reproduce(&options),
        Command::Report(options) => report::report(&options),
        Command::Diff(options) => diff::diff(&options),
        Command::Run(options) => run::run(&options),
        Command::Sweep(options) => sweep::sweep(&options),
        Command::Sensitivity(options) => sensitivity::sensitivity(&options),
        Command::Machines(options) => show::machines(&options),
        Command::Kernels(options) => show::kernels(&options),
        Command::Experiments(options) => show::experiments(&options),
        Command::Pipe(options) => pipe::pipe(&options),
        Command::Explain(options) => explain::explain(&options),
        Command::Scenarios(options) => scenarios::scenarios(&options),
        Command::Replay(options) => replay::replay(&options),
        Command::Serve(options) => serve::serve(&options),
        Command::Soak(options) => soak::soak(&options),
        Command::Trace(options) => trace::trace(&options),
        Command::Disk(options) => disk::disk(&options),
        #[cfg(target_os = "linux")]
        Command::Host(options) => host::host(&options),
        Command::Completions(options) => manual::completions(&options),
        Command::Man(options) => manual::man(&options),
    };
    // A run that ended badly may still hold an output.
    output::remove_pending();
    match done {
        Ok(code) => code,
        Err(error) => {
            tell_error(&error);
            code_of(error.blame())
        }
    }
}

/// What is half-written goes away also when a signal ends the process, which ends as the signal would have ended it.
fn watch_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            output::end(128 + signal, |kept| {
                for folder in kept {
                    let folder = folder.display();
                    tell(&format!(
                        "\npageferry: interrupted. Finished runs are kept beside {folder}: `--resume` goes on with them"
                    ));
                }
            });
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map(drop)
}

fn tell_error(error: &LabError) {
    tell(&format!("{}: {error}", terminal::stderr().strong_red("pageferry")));
}

fn code_of(blame: Blame) -> ExitCode {
    match blame {
        Blame::Law => ExitCode::from(1),
        Blame::Input => ExitCode::from(2),
    }
}
