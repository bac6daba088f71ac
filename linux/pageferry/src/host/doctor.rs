//! What helps or hinders on this host, a line an item.

use super::{Host, Works};

/// How an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// The library falls back to something dearer.
    Hinders,
    /// Worth knowing; no setting is wrong.
    Note,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// A word for it.
    pub name: &'static str,
    /// How it stands.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What it gives, or what the library does without it.
    pub effect: &'static str,
    /// The setting that would change it, where one would.
    pub change: Option<&'static str>,
}

impl Host {
    /// What helps or hinders here.
    pub fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for (works, name, effect, without, change) in TRICKS {
            let good = self.has(works);
            items.push(Item {
                name,
                verdict: if good { Verdict::Good } else { Verdict::Hinders },
                found: if good { "works" } else { "does not work" }.to_owned(),
                effect: if good { effect } else { without },
                change: (!good).then_some(change),
            });
        }
        items
    }
}

/// The trick, its name, what it gives, what happens without it, and what would change that.
const TRICKS: [(Works, &str, &str, &str, &str); 1] = [(
    Works::COLLAPSE,
    "huge pages",
    "pools are mapped 2 MB at a time",
    "pools are mapped by small pages: `auto` copies what is refilled",
    "a kernel from 6.1 on with CONFIG_TRANSPARENT_HUGEPAGE",
)];
