//! Widths and lengths: a line has at most 120 characters, a file of Rust at most 800 lines.
//!
//! A table of Markdown cannot be cut, and what was recorded or made by a program is not for people to read; both are
//! left out.

use crate::{Fault, Tree};

/// The widest that a line may be, in characters.
pub const MAX_WIDTH: usize = 120;
/// The longest that a file of Rust may be, in lines.
pub const MAX_LINES: usize = 800;

/// Whether people read a file line by line.
pub fn is_read(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ends = [".rs", ".toml", ".md", ".py", ".pyi", ".sh", ".c", ".h"];
    ends.iter().any(|end| name.ends_with(end))
        || path.starts_with(".ci/")
        || (!name.contains('.') && is_script(path))
}

fn is_script(path: &str) -> bool {
    ["/install", "/newer", "/wheels", "/host-costs"].iter().any(|end| path.ends_with(end))
}

/// Lines that are too wide, with their numbers.
pub fn wide<'a>(path: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let table = |line: &str| path.ends_with(".md") && line.trim_start().starts_with('|');
    let lines = (1..).zip(text.lines());
    lines.filter(|(_, line)| line.chars().count() > MAX_WIDTH && !table(line)).collect()
}

/// Lines that are too wide and files that are too long.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_read(path)) {
        for (number, line) in wide(path, text) {
            let width = line.chars().count();
            faults.push(Fault::new(
                path,
                number,
                format!("{width} characters wide: expected {MAX_WIDTH} at most"),
            ));
        }
        let lines = text.lines().count();
        if path.ends_with(".rs") && lines > MAX_LINES {
            faults.push(Fault::new(path, 0, format!("{lines} lines long: expected {MAX_LINES} at most")));
        }
    }
    faults
}
