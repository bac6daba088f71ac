//! The example of a port, run.

#[path = "../../examples/port.rs"]
mod port;

#[test]
fn pmap_runs_on_a_machine_of_ones_own() {
    port::main();
}
