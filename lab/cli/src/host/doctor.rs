//! `pageferry host doctor`.

use crate::args::HostDoctor;
use crate::show::print_json;
use crate::terminal::{print, table};
use pageferry::host::{Host, Item};
use pageferry_lab::LabError;
use serde::Serialize;
use std::process::ExitCode;

/// An item as JSON has it.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    verdict: &'a str,
    found: &'a str,
    effect: &'a str,
    change: Option<&'a str>,
}

impl<'a> From<&'a Item> for Line<'a> {
    fn from(item: &'a Item) -> Line<'a> {
        let Item { name, verdict, found, effect, change } = item;
        Line { name, verdict: verdict.name(), found, effect, change: *change }
    }
}

pub(crate) fn doctor(options: &HostDoctor) -> Result<ExitCode, LabError> {
    let items = Host::get().items();
    if options.json {
        return print_json(&items.iter().map(Line::from).collect::<Vec<_>>());
    }
    let row = |item: &Item| {
        let effect = match item.change {
            Some(change) => format!("{}. To change it: {change}", item.effect),
            None => item.effect.to_owned(),
        };
        vec![item.name.to_owned(), item.verdict.name().to_owned(), item.found.clone(), effect]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    print(&table(&["item", "", "found", "what it gives, or what the library does without it"], &rows))?;
    Ok(ExitCode::SUCCESS)
}
