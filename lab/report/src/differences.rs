//! What comes out otherwise than published, and why.
//!
//! The reason is stated beside the published number (`otherwise` in `papers/*.toml`). Where it has none, as the number
//! comes out in the runs that this version was made with, what is told is what these runs have done otherwise. So no
//! difference is without a word.

use pageferry_lab::judge::Reproduction;
use pageferry_lab::judge::{Comparison, Statement, statements};
use serde::Serialize;

/// A published statement that does not come out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// Where the page tells of it.
    pub anchor: String,
    /// The published number's name.
    pub published: String,
    /// What is compared, in words.
    pub what: String,
    /// The paper's short name and the section.
    pub source: String,
    /// What the paper says.
    pub theirs: String,
    /// The comparisons that fail.
    pub rows: Vec<Comparison>,
    /// The reason, in paragraphs; never none.
    pub why: Vec<String>,
}

/// Where the page tells why the statement `published` does not come out.
pub(super) fn anchor(published: &str) -> String {
    format!("differs-{published}")
}

/// All published statements that do not come out, each with its reason.
pub(super) fn differences(all: &Reproduction) -> Vec<Difference> {
    let otherwise = statements(&all.comparisons).into_iter().filter(|s| !s.agrees);
    let own = all.own();
    otherwise.map(|s| difference(all, &own, s)).collect()
}

fn difference(all: &Reproduction, own: &[String], s: Statement) -> Difference {
    Difference {
        anchor: anchor(&s.published),
        why: why(all, own, &s),
        rows: s.rows.into_iter().filter(|row| !row.agrees).collect(),
        what: s.what,
        published: s.published,
        source: s.source,
        theirs: s.theirs,
    }
}

fn why(all: &Reproduction, own: &[String], s: &Statement) -> Vec<String> {
    let stated = all.published(&s.published).and_then(|number| number.otherwise.clone());
    let own = own.iter().filter(|name| s.rows.iter().any(|row| row.experiment == **name));
    let own: Vec<&str> = own.map(String::as_str).collect();
    let mut why: Vec<String> = stated.into_iter().collect();
    if !own.is_empty() {
        why.push(format!(
            "`{}` is an experiment of one's own: what it changes may be the reason.",
            own.join("`, `")
        ));
    }
    if why.is_empty() && all.quick {
        why.push(
            "This is a quick run, of shorter transfers and fewer repetitions. In a full one it comes out as \
             published."
                .into(),
        );
    }
    if why.is_empty() {
        why.push(
            "No reason is known: with the files and the program of this version it comes out as published. What \
             was changed since is the first place to look."
                .into(),
        );
    }
    why
}
