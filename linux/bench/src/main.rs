//! The benchmark as a program of its own, which is quicker to build than the command.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Times messages between two processes")]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare methods
    Bench(pageferry_bench::Arguments),
    /// Measure what `auto` decides by, and keep it
    Calibrate(pageferry_bench::Calibration),
    /// Compare what messages take with what their parts add up to
    Predict(pageferry_bench::Prediction),
    /// The other process
    #[command(hide = true)]
    Peer(pageferry_bench::PeerArguments),
}

fn main() -> ExitCode {
    let done = match Program::parse().command {
        Command::Bench(arguments) => arguments.run(vec!["peer".into()]),
        Command::Calibrate(calibration) => calibration.run(vec!["peer".into()]),
        Command::Predict(prediction) => prediction.run(vec!["peer".into()]),
        Command::Peer(peer) => peer.run(&["peer".into()]),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pageferry-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
