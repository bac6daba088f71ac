//! Words that do not stand in code, with those that stand in their place. One list, here.
//!
//! Only names are looked at: what comments and texts say is read by people. The list grows as areas are cleaned up.

use crate::{Fault, Tree};
use proc_macro2::{TokenStream, TokenTree};
use std::str::FromStr as _;

/// What a name must not have as a part, in small letters or large, nor be without the `_`, and what to say instead.
pub const BANNED: &[(&str, &str)] = &[("most_", "max_"), ("least_", "min_")];

/// Names that are the field's for all that.
const ALLOWED: &[&str] = &["least_recently"];

/// Names that no type has: what was done says nothing of what a thing is.
pub const NO_NOUNS: &[&str] = &[
    "Asked", "Awaited", "Care", "Chosen", "Doing", "Done", "Drawn", "Entered", "Had", "Held", "Judged",
    "Kept", "Known", "Made", "Met", "Moved", "Noted", "Posted", "Seen", "Shown", "Stopped", "Taken", "Told",
    "Touched", "Used", "Wanted", "Watched", "Written",
];

/// Names with banned words.
pub fn check(tree: &Tree) -> Vec<Fault> {
    check_by(BANNED, NO_NOUNS, tree)
}

/// The same by other lists.
pub fn check_by(banned: &[(&str, &str)], no_nouns: &[&str], tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.ending(".rs") {
        // A quick look first: nearly every file has none.
        let small = text.to_lowercase();
        if !banned.iter().any(|(word, _)| small.contains(word.trim_end_matches('_')))
            && !no_nouns.iter().any(|word| text.contains(word))
        {
            continue;
        }
        let Ok(tokens) = TokenStream::from_str(text) else { continue };
        let mut before = String::new();
        for (line, name) in names(tokens) {
            if TYPES.contains(&before.as_str()) && no_nouns.contains(&name.as_str()) {
                faults.push(Fault::new(
                    path,
                    line,
                    format!("`{before} {name}`: expected a noun that says what it is"),
                ));
            }
            before.clone_from(&name);
            let is = |word: &str| name == word.trim_end_matches('_');
            for (word, instead) in banned.iter().filter(|(word, _)| is(word) || has(&name, word)) {
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

/// What a type's name stands behind.
const TYPES: &[&str] = &["struct", "enum", "union", "trait", "type"];

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
