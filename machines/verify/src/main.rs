//! The model's side of the comparison.
//!
//! ```text
//! pageferry-verify record FOLDER SEED WORD...    run the model; leaves turns and events in the folder
//! pageferry-verify count PROGRAM,WORD... WORD... run the model; prints what is counted of the program's measured part
//! pageferry-verify compare FOLDER                compare the events of the model and of metal there
//! ```
//!
//! The words are a [`Selection`]; seed `timed` leaves the order of CPUs to their clocks. A run fails by what it finds
//! wrong: an error on standard error, and code 1. `cargo run -p xtask -- metal verify` calls this, and says the rest.

mod compare;
mod count;
mod record;
mod witness;

use pageferry_verify::Selection;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["record", folder, seed, ref words @ ..] => selection(words)
            .and_then(|selection| record::record(Path::new(folder), seed, &selection))
            .map(|()| true),
        ["count", program, ref words @ ..] => selection(words)
            .and_then(|selection| count::count(&program.replace(',', " "), &selection))
            .map(|()| true),
        ["compare", folder] => compare::compare(Path::new(folder)),
        _ => Err("usage: pageferry-verify record FOLDER SEED WORD... | count PROGRAM,WORD... WORD... | \
                  compare FOLDER"
            .into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn selection(words: &[&str]) -> Result<Selection, String> {
    let mut selection = Selection::default();
    for word in words {
        match selection.take(word) {
            Ok(true) => {}
            Ok(false) => {
                return Err(format!(
                    "`{word}`: expected experiment=, first=, programs=, scheme=, pipes=, preempt=, cpus=, frames= or \
                     defect="
                ));
            }
            Err(bad) => return Err(bad.to_string()),
        }
    }
    Ok(selection)
}
