//! `pageferry host`: what the library for Linux finds on this host.

mod doctor;

use crate::args::{Host, HostCommand};
use pageferry_bench::BenchError;
use pageferry_lab::LabError;
use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) fn host(options: &Host) -> Result<ExitCode, LabError> {
    match &options.command {
        HostCommand::Doctor(options) => doctor::doctor(options),
        HostCommand::Bench(options) => ended("bench", options.run(peer())),
        HostCommand::Calibrate(options) => ended("calibrate", options.run(peer())),
        HostCommand::Predict(options) => ended("predict", options.run(peer())),
        HostCommand::Peer(options) => ended("peer", options.run(&peer())),
    }
}

/// The arguments with which this program is the other process.
fn peer() -> Vec<OsString> {
    vec!["host".into(), "peer".into()]
}

fn ended(what: &str, ended: Result<(), BenchError>) -> Result<ExitCode, LabError> {
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(LabError::Input { file: format!("host {what}"), problem: error.to_string() }),
    }
}
