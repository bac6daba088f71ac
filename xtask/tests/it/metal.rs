//! What `metal` is asked for and cannot be is refused before anything is built or started.

use std::process::Command;

#[test]
fn options_that_cannot_be_are_refused() {
    let cases: [(&[&str], &str); 12] = [
        (&["amd64", "--cpus", "0"], "--cpus 0: expected 1 to 64"),
        (&["amd64", "--cpus", "65"], "--cpus 65: expected 1 to 64"),
        (&["amd64", "--cpus", "two"], "--cpus two: expected 1 to 64"),
        (&["amd64", "--cpus"], "--cpus: expected a value behind it"),
        (&["amd64", "--memory", "0"], "--memory 0: expected 2 to 1048576"),
        (&["amd64", "--machine", "q36"], "--machine q36: expected q35, pc or microvm"),
        (&["amd64", "--cpsu", "2"], "--cpsu: expected --cpus, --machine, "),
        (&["amd64", "--usb", "/nowhere/f", "--cpus", "2"], "--cpus: expected without --usb"),
        (&["verify", "echo", "--cpus", "-1"], "--cpus -1: expected 1 to 64"),
        (&["verify", "echo", "--sed", "1"], "--sed: expected --cpus, --seed, "),
        (&["verify-all", "--every", "0"], "--every 0: expected 1 to 1000"),
        (&["amd65"], "usage: metal amd64 "),
    ];
    for (arguments, says) in cases {
        let ran = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("metal").args(arguments).output();
        let ran = ran.expect("it starts");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.code() == Some(1) && said.starts_with(says),
            "{arguments:?}: {:?} {said}",
            ran.status
        );
    }
}
