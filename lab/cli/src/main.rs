//! The `pageferry` command, with the workloads that are built in.
#![forbid(unsafe_code)]

use pageferry_lab::Registry;
use std::process::ExitCode;

fn main() -> ExitCode {
    pageferry_cli::main_with(Registry::standard())
}
