//! Words that do not stand in code, with those that stand in their place. One list, here.
//!
//! Only names are looked at: what comments and texts say is read by people. The list grows as areas are cleaned up.

use crate::{Fault, Tree};
use proc_macro2::{TokenStream, TokenTree};
use std::str::FromStr as _;

/// What a name must not have as a part, in small letters or large, and what to say instead.
pub const BANNED: &[(&str, &str)] = &[("most_", "max_"), ("least_", "min_")];

/// Names that are the field's for all that.
const ALLOWED: &[&str] = &["least_recently"];

/// Where banned words still stand, by the beginning of the path.
pub const NOT_YET: &[&str] = &[
    "lab/cli/src/replay.rs",
    "lab/cli/src/trace.rs",
    "lab/lab/",
    "lab/soak/src/whole.rs",
    "lab/teach/",
    "lab/serve/",
    "lab/report/",
];

/// Names with banned words.
pub fn check(tree: &Tree) -> Vec<Fault> {
    check_by(BANNED, NOT_YET, tree)
}

/// The same by another list.
pub fn check_by(banned: &[(&str, &str)], not_yet: &[&str], tree: &Tree) -> Vec<Fault> {
    let looked_at =
        tree.ending(".rs").filter(|(path, _)| !not_yet.iter().any(|start| path.starts_with(start)));
    let mut faults = Vec::new();
    for (path, text) in looked_at {
        // A quick look first: nearly every file has none.
        let small = text.to_lowercase();
        if !banned.iter().any(|(word, _)| small.contains(word)) {
            continue;
        }
        let Ok(tokens) = TokenStream::from_str(text) else { continue };
        for (line, name) in names(tokens) {
            for (word, instead) in banned.iter().filter(|(word, _)| has(&name, word)) {
                faults.push(Fault::new(
                    path,
                    line,
                    format!("`{name}`: expected `{instead}` in the place of `{word}`"),
                ));
            }
        }
    }
    faults
}

/// Whether a word is the beginning of a name, or stands in it behind `_`.
fn has(name: &str, word: &str) -> bool {
    let name = name.to_lowercase();
    let allowed = ALLOWED.iter().any(|allowed| name.contains(allowed));
    !allowed && name.match_indices(word).any(|(at, _)| at == 0 || name[..at].ends_with('_'))
}

fn names(tokens: TokenStream) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) => found.push((name.span().start().line, name.to_string())),
            TokenTree::Group(group) => found.extend(names(group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}
