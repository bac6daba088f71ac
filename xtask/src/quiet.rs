//! Tests that say by themselves that they have looked at nothing: a harness keeps what a test prints that passes, so
//! that nobody learns of it. `pageferry_untested` says it where it is counted.

use crate::{Fault, Tree};

/// What such lines say.
const SAID: [&str; 3] = ["not tested", "nothing is tested", "nothing was tested"];

/// What prints, in Rust.
const PRINTS: [&str; 3] = ["println!(", "print!(", "writeln!("];

/// What has to print it.
const TELLER: &str = "xtask/untested/";

/// Lines that print what is not tested.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let files = tree.ending(".rs").filter(|(path, _)| !path.starts_with(TELLER));
    let faults = files.flat_map(|(path, text)| {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| {
            PRINTS.iter().any(|print| line.contains(print)) && SAID.iter().any(|said| line.contains(said))
        });
        lines.map(move |(number, _)| {
            Fault::new(
                path,
                number,
                "prints what is not tested: expected pageferry_untested::untested".to_owned(),
            )
        })
    });
    faults.collect()
}
