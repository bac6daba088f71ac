//! `pageferry host`: what the library for Linux finds on this host.

mod doctor;

use crate::args::{Host, HostCommand};
use pageferry_lab::LabError;
use std::process::ExitCode;

pub(crate) fn host(options: &Host) -> Result<ExitCode, LabError> {
    match &options.command {
        HostCommand::Doctor(options) => doctor::doctor(options),
    }
}
