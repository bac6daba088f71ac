//! `pageferry report`.

use crate::args::Report;
use crate::progress::note;
use crate::reproduce::shown;
use crate::terminal::print;
use pageferry_lab::LabError;
use pageferry_lab::output::{About, PendingDir};
use pageferry_report::{Report as _, folder};
use std::process::ExitCode;

/// Writes the report of the records in a folder.
pub(crate) fn report(options: &Report) -> Result<ExitCode, LabError> {
    let of = folder::read(crate::registry::registry(), &options.folder)?;
    // What another report left is replaced; what a reproduction left only where it is of less, or by force.
    let dir = PendingDir::begin(&options.out, About { quick: of.quick, ..About::default() }, options.force)?;
    of.write(dir)?;
    print(&shown(&of))?;
    let page = options.out.join("report.html");
    note(&format!("\nThe report of {} runs: {}", of.runs.len(), page.display()));
    match of.broken().into_iter().next() {
        None => Ok(ExitCode::SUCCESS),
        Some((run, broken)) => Err(LabError::Law { run, broken }),
    }
}
