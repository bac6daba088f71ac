//! The whole command over a registry of one's own: `run`, `sweep`, `reproduce` and the others know the workload of the
//! example `own_experiment` here, beside those that are built in.
//!
//! `cargo run -p pageferry-cli --example own_command -- sweep fork-touch --vary pages=16,64`

#[allow(dead_code, reason = "its own `main` is for the other example")]
#[path = "../../report/examples/own_experiment/main.rs"]
mod own_experiment;

// ANCHOR: command
fn main() -> std::process::ExitCode {
    pageferry_cli::main_with(own_experiment::registry())
}
// ANCHOR_END: command
