//! The command line: words of the form `name=value`. One that is not known, or whose value makes no sense, is an error
//! that names it.

use crate::provoke::Provoked;
use pageferry_ephemeral::{AccessedRule, Scheme};
use pageferry_hal::CpuSet;

/// What the command line asks for.
#[derive(Clone, Copy)]
pub(crate) struct Args {
    /// CPUs; all that there are, if it does not say.
    pub(crate) cpus: Option<usize>,
    /// Frames of memory; all, if it does not say.
    pub(crate) frames: Option<usize>,
    /// How ephemeral mappings are made.
    pub(crate) scheme: Scheme,
    /// An exception that is to happen instead of the program.
    pub(crate) provoked: Option<Provoked>,
}

/// A word that is not understood, and what was expected.
pub(crate) struct BadWord<'a>(pub(crate) &'a str, pub(crate) &'static str);

impl Args {
    /// Reads a command line.
    pub(crate) fn parse(line: &str) -> Result<Args, BadWord<'_>> {
        let mut args = Args { cpus: None, frames: None, scheme: Scheme::Direct, provoked: None };
        for word in line.split_ascii_whitespace() {
            let bad = |expected| BadWord(word, expected);
            let (name, value) = word.split_once('=').ok_or(bad("name=value"))?;
            match name {
                "cpus" => {
                    let some = |cpus: &usize| (1..=CpuSet::MAX_CPUS).contains(cpus);
                    args.cpus = Some(value.parse().ok().filter(some).ok_or(bad("1 to 64 CPUs"))?);
                }
                "frames" => args.frames = Some(value.parse().map_err(|_| bad("a number of frames"))?),
                "scheme" => {
                    args.scheme = scheme(value).ok_or(bad("scheme=direct, cache or original"))?;
                }
                "provoke" => {
                    let expected = "provoke=undefined, guard, double or panic";
                    args.provoked = Some(Provoked::named(value).ok_or(bad(expected))?);
                }
                _ => return Err(bad("cpus=, frames=, scheme= or provoke=")),
            }
        }
        Ok(args)
    }
}

fn scheme(name: &str) -> Option<Scheme> {
    match name {
        "direct" => Some(Scheme::Direct),
        // As many as a small machine's; the rule that is safe.
        "cache" => Some(Scheme::Cache { entries: 256, rule: AccessedRule::Safe }),
        "original" => Some(Scheme::Original),
        _ => None,
    }
}
