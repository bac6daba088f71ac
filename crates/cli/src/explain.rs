//! `pageferry explain`.

use crate::args::Explain;
use crate::show::print_json;
use crate::terminal::{self, print, table};
use pageferry_lab::teach::explain::{self, Explanation, Mechanism, Step};
use pageferry_lab::{LabError, text};
use serde::Serialize;
use std::process::ExitCode;

/// Lists mechanisms, or tells what one does beside the counters of a small run.
pub(crate) fn explain(options: &Explain) -> Result<ExitCode, LabError> {
    let Some(name) = &options.name else { return list(options.json) };
    let mechanism = explain::find(name)?;
    let told = explain::explain(mechanism, options.machine.as_deref(), options.kernel.as_deref())?;
    if options.json {
        print_json(&told)?;
    } else {
        print(&shown(&told, mechanism, options.kernel.is_none()))?;
    }
    let broken = told.broken();
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let run = format!("{} on {} under {}", told.name, told.machine, told.kernel);
    Err(LabError::Law { run, broken })
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    machine: &'static str,
    kernel: &'static str,
}

fn list(json: bool) -> Result<ExitCode, LabError> {
    let lines = explain::all().map(|m| Line {
        name: m.name,
        title: m.title,
        source: m.source,
        machine: m.machine,
        kernel: m.kernel,
    });
    if json {
        return print_json(&lines.collect::<Vec<_>>());
    }
    let rows: Vec<_> = lines.map(|line| vec![line.name.to_owned(), line.title.to_owned()]).collect();
    print(&table(&["mechanism", "what it is"], &rows))?;
    print(
        &terminal::stdout()
            .faint("\npageferry explain loan    tells it step by step, with the counters of a small run\n"),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Columns of text.
const TEXT: usize = 100;
const WHAT: usize = 52;
const COUNTED: usize = 32;

/// `usual` is false where a kernel was asked for: then there is no counterexample.
fn shown(told: &Explanation, mechanism: &Mechanism, usual: bool) -> String {
    let style = terminal::stdout();
    let mut out = format!("{}  {}\n\n", style.strong(told.name), told.title);
    out += &format!("{}\n{}\n\n", wrapped(told.text, TEXT), style.faint(told.source));
    let rows: Vec<_> = told.steps.iter().enumerate().map(|(index, step)| row(index, step)).collect();
    let before = mechanism.counterexample.as_ref().filter(|_| usual);
    let before = before.map_or(String::new(), |c| format!("{}, and one under ", c.kernel));
    out += &format!("A run on {} under {before}{}\n\n", told.machine, told.kernel);
    out += &table(&["", "what happens", "counted", ">cycles"], &rows);
    if told.kernel != mechanism.kernel {
        let (kernel, own) = (mechanism.kernel, &told.kernel);
        out += &format!("\nThe words are those of {kernel}; the numbers are those of {own}.\n");
    }
    let laws = format!(
        "\nAll {} laws hold. Cycles are those of all CPUs, without idle ones; --json has their causes.\n",
        told.laws.len()
    );
    if told.broken().is_empty() {
        out += &style.faint(&laws);
    }
    out
}

fn row(index: usize, step: &Step) -> Vec<String> {
    let mut what = wrapped(&step.what, WHAT);
    for note in &step.notes {
        what += &format!("\n{}", wrapped(&format!("({note})"), WHAT));
    }
    let counted: Vec<_> = step.counters.iter().map(|(name, count)| counted(name, *count)).collect();
    let counted = wrapped(&counted.join(", "), COUNTED);
    // A line between steps, so that wrapped ones do not run together.
    let apart = |text: String| format!("{text}\n ");
    vec![(index + 1).to_string(), apart(what), apart(counted), text::grouped(step.busy_cycles as i64)]
}

/// A counter as people read it.
fn counted(name: &str, count: u64) -> String {
    // Spaces that do not break: a count stays with its name.
    format!("{} {}", name.replace('_', " "), text::grouped(count as i64)).replace(' ', "\u{a0}")
}

/// `text` in lines of at most `width` characters, where its words permit.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n").replace('\u{a0}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words_and_counts_stay_with_their_names() {
        assert_eq!(wrapped("one two  three", 7), "one two\nthree");
        assert_eq!(wrapped("a-very-long-word it", 6), "a-very-long-word\nit");
        let line = [counted("page_faults", 4), counted("cow_copies", 1)].join(", ");
        assert_eq!(wrapped(&line, 20), "page faults 4,\ncow copies 1");
    }
}
