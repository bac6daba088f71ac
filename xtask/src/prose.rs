//! The front page: README has at most 100 lines. What does not fit is a chapter of the book.

use crate::{Fault, Tree};

/// The longest that the front page may be, in lines.
pub const MAX_README_LINES: usize = 100;

/// A front page that is too long, or none.
pub fn check(tree: &Tree) -> Vec<Fault> {
    match tree.text("README.md").map(|text| text.lines().count()) {
        None => vec![Fault::new("README.md", 0, "there is none")],
        Some(lines) if lines > MAX_README_LINES => {
            vec![Fault::new("README.md", 0, format!("{lines} lines: expected {MAX_README_LINES} at most"))]
        }
        Some(_) => Vec::new(),
    }
}
