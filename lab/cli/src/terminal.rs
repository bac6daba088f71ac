//! Text for people: colours on terminals only, tables that fit, and output that may be cut off.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use pageferry_lab::LabError;
use std::io::{self, IsTerminal as _, Write as _};

/// Whether to use colours.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    colours: bool,
}

fn style(is_terminal: bool) -> Style {
    let asked_not_to = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    Style { colours: is_terminal && !asked_not_to }
}

pub(crate) fn stdout() -> Style {
    style(io::stdout().is_terminal())
}

pub(crate) fn stderr() -> Style {
    style(io::stderr().is_terminal())
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
    pub(crate) fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }
    pub(crate) fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }
    pub(crate) fn strong_red(self, text: &str) -> String {
        self.paint("1;31", text)
    }
    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }
    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }
}

/// Prints to standard output. A reader that has gone away (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), LabError> {
    match put(text) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(LabError::io("write", "standard output", e)),
        _ => Ok(()),
    }
}

/// Prints to standard output what must be read by something.
pub(crate) fn print_all(text: &str) -> Result<(), LabError> {
    put(text).map_err(|e| LabError::io("write", "standard output", e))
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Prints a line to standard error. Where that cannot be written there is no place left to say so.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// True when the process was started without a standard output. The runtime has then opened `/dev/null` for reading and
/// writing in its place, where a shell's `> /dev/null` opens it for writing.
pub(crate) fn stdout_is_closed() -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{OFlags, fcntl_getfl, fstat, major, minor};
        let out = io::stdout();
        let null = fstat(&out).is_ok_and(|s| (major(s.st_rdev), minor(s.st_rdev)) == (1, 3));
        null && fcntl_getfl(&out).is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::RDWR)
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Columns of the terminal that the standard output is.
pub(crate) fn columns() -> Option<usize> {
    Table::new().width().map(usize::from)
}

/// A table without lines but the one below its head. Columns whose head begins with `>` are aligned to the right.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let right = |column: usize| head[column].starts_with('>');
    let align = |column: usize, text: &str| {
        let alignment = if right(column) { CellAlignment::Right } else { CellAlignment::Left };
        Cell::new(text).set_alignment(alignment)
    };
    let names = head.iter().enumerate().map(|(i, name)| align(i, name.trim_start_matches('>')));
    table.set_header(names.collect::<Vec<_>>());
    for row in rows {
        assert_eq!(row.len(), head.len(), "a cell for each column");
        table.add_row(row.iter().enumerate().map(|(i, text)| align(i, text)).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    text
}
