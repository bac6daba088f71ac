//! Tests that say by themselves that they have looked at nothing: a harness keeps what a test prints that passes, so
//! that nobody learns of it. `pageferry_untested` says it where it is counted.

use crate::{Fault, Tree};

/// What they say.
const SAID: [&str; 3] = ["not tested", "nothing is tested", "nothing was tested"];

/// What prints, in Rust.
const PRINTS: [&str; 4] = ["println!(", "print!(", "writeln!(", "write!("];

/// What has to print it, and what has the words for it.
const EXEMPT: [&str; 2] = ["xtask/untested/", "xtask/src/quiet.rs"];

/// Places that print what is not tested.
pub fn check(tree: &Tree) -> Vec<Fault> {
    tree.ending(".rs")
        .filter(|(path, _)| !EXEMPT.iter().any(|exempt| path.starts_with(exempt)))
        .flat_map(of_file)
        .collect()
}

fn of_file((path, text): (&str, &str)) -> Vec<Fault> {
    let prints = PRINTS.iter().flat_map(|print| text.match_indices(print)).map(|(at, _)| at);
    // What is printed may stand on lines of its own, up to the end of the call.
    let says = |at: &usize| {
        let call = text[*at..].split(");").next().unwrap_or_default();
        SAID.iter().any(|said| call.contains(said))
    };
    let fault = |at| {
        let line = text[..at].split('\n').count();
        Fault::new(path, line, "prints what is not tested: expected pageferry_untested::untested".to_owned())
    };
    prints.filter(says).map(fault).collect()
}
