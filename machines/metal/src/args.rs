//! The command line: words of the form `name=value`. One that is not known, or whose value makes no sense, is an error
//! that names it. A program's own words stand behind its name, with commas between: `program=micro,pipe`.

use crate::provoke::Provoked;
use pageferry_verify::Selection;
use pageferry_verify::selection::BadWord;

/// What the command line asks for.
pub(crate) struct Args<'a> {
    /// What is run.
    pub(crate) selection: Selection,
    /// An exception that is to happen instead of the program.
    pub(crate) provoked: Option<Provoked>,
    /// The program of the archive that is run, and the words that it is given.
    pub(crate) program: Option<Called<'a>>,
}

/// A program, and the words behind its name.
#[derive(Clone, Copy)]
pub(crate) struct Called<'a> {
    pub(crate) name: &'a str,
    /// With commas between them.
    pub(crate) words: &'a str,
}

impl Args<'_> {
    /// Reads a command line.
    pub(crate) fn parse(line: &str) -> Result<Args<'_>, BadWord<'_>> {
        let mut args = Args { selection: Selection::default(), provoked: None, program: None };
        for word in line.split_ascii_whitespace() {
            let bad = |expected| BadWord { word, expected };
            if args.selection.take(word)? {
                continue;
            }
            if let Some(program) = word.strip_prefix("program=") {
                let (name, words) = program.split_once(',').unwrap_or((program, ""));
                args.program = Some(Called { name, words });
                continue;
            }
            let value = word.strip_prefix("provoke=");
            let value = value.ok_or(bad(
                "cpus=, frames=, scheme=, experiment=, pipes=, preempt=, program=, defect= or provoke=",
            ))?;
            let provoked = Provoked::named(value)
                .ok_or(bad("provoke=undefined, guard, double, panic, read-user or run-user"))?;
            args.provoked = Some(provoked);
        }
        Ok(args)
    }
}
