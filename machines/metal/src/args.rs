//! The command line: words of the form `name=value`. One that is not known, or whose value makes no sense, is an error
//! that names it.

use crate::provoke::Provoked;
use pageferry_verify::Selection;
use pageferry_verify::selection::BadWord;

/// What the command line asks for.
#[derive(Clone, Copy)]
pub(crate) struct Args {
    /// What is run.
    pub(crate) selection: Selection,
    /// An exception that is to happen instead of the program.
    pub(crate) provoked: Option<Provoked>,
}

impl Args {
    /// Reads a command line.
    pub(crate) fn parse(line: &str) -> Result<Args, BadWord<'_>> {
        let mut args = Args { selection: Selection::default(), provoked: None };
        for word in line.split_ascii_whitespace() {
            let bad = |expected| BadWord { word, expected };
            if args.selection.take(word)? {
                continue;
            }
            let value = word.strip_prefix("provoke=");
            let value = value.ok_or(bad("cpus=, frames=, scheme=, experiment=, defect= or provoke="))?;
            let provoked = Provoked::named(value).ok_or(bad("provoke=undefined, guard, double or panic"))?;
            args.provoked = Some(provoked);
        }
        Ok(args)
    }
}
