//! `pageferry explain`.

use crate::args::Explain;
use crate::show::print_json;
use crate::terminal::{self, print, table};
use pageferry_lab::{LabError, text};
use pageferry_teach::explain::{self, Explanation, Field, Mechanism, Step, Table};
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

/// How wide text and the columns of steps are.
#[derive(Clone, Copy)]
struct Widths {
    text: usize,
    what: usize,
    counted: usize,
}

impl Widths {
    /// What fits a terminal of so many columns; without one, what reads well.
    fn within(columns: Option<usize>) -> Widths {
        // What numbers, cycles and the space between columns take.
        const REST: usize = 20;
        let all = columns.unwrap_or(usize::MAX).clamp(60, 104) - REST;
        let counted = all * 8 / 21;
        Widths { text: (all + REST).min(100), what: all - counted, counted }
    }
}

/// `usual` is false where a kernel was asked for: then there is no counterexample.
fn shown(told: &Explanation, mechanism: &Mechanism, usual: bool) -> String {
    let style = terminal::stdout();
    let widths = Widths::within(terminal::columns());
    let mut out = format!("{}  {}\n\n", style.strong(told.name), told.title);
    out += &format!("{}\n{}\n\n", wrapped(told.text, widths.text), style.faint(told.source));
    let mut number = 0;
    let rows: Vec<_> = (told.steps.iter().enumerate())
        .flat_map(|(index, step)| {
            number += usize::from(!step.part);
            let ends = told.steps.get(index + 1).is_none_or(|next| !next.part);
            rows(widths, number, step, ends)
        })
        .collect();
    let before = mechanism.counterexample.as_ref().filter(|_| usual);
    let before = before.map_or(String::new(), |c| format!("{}, and one under ", c.kernel));
    let runs = if mechanism.more.is_some() { "Runs" } else { "A run" };
    out += &format!("{runs} on {} under {before}{}\n\n", told.machine, told.kernel);
    out += &table(&["", "what happens", "counted", ">cycles"], &rows);
    out += &told.table.as_ref().map_or(String::new(), |table| format!("\n{}", beside(widths, table)));
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

/// The table that several runs end with.
fn beside(widths: Widths, told: &Table) -> String {
    let is_number = |column: usize| told.rows.iter().all(|row| matches!(row[column], Field::Number(_)));
    let mark = |(column, name): (usize, &&str)| format!("{}{name}", if is_number(column) { ">" } else { "" });
    let head: Vec<String> = told.head.iter().enumerate().map(mark).collect();
    let field = |field: &Field| match field {
        Field::Word(word) => word.clone(),
        Field::Number(number) => text::grouped(*number as i64),
    };
    let rows: Vec<Vec<String>> = told.rows.iter().map(|row| row.iter().map(field).collect()).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    format!("{}\n\n{}", wrapped(&told.title, widths.text), table(&head, &rows))
}

/// The row of a step, below the words for those that follow, if it has any. The parts of a step stand close together,
/// up to the one that `ends` it.
fn rows(widths: Widths, number: usize, step: &Step, ends: bool) -> Vec<Vec<String>> {
    let none = String::new;
    let section = step.section.iter().map(|section| {
        vec![
            none(),
            format!("{}\n ", terminal::stdout().strong(&wrapped(section, widths.what))),
            none(),
            none(),
        ]
    });
    section.chain([row(widths, number, step, ends)]).collect()
}

fn row(widths: Widths, number: usize, step: &Step, ends: bool) -> Vec<String> {
    let mut what = match step.part {
        true => format!("- {}", wrapped(&step.what, widths.what - 2).replace('\n', "\n  ")),
        false => wrapped(&step.what, widths.what),
    };
    for note in &step.notes {
        what += &format!("\n{}", wrapped(&format!("({note})"), widths.what));
    }
    let counted: Vec<_> = step.counters.iter().map(|(name, count)| counted(name, *count)).collect();
    let counted = wrapped(&counted.join(", "), widths.counted);
    // A line between steps, so that wrapped ones do not run together.
    let apart = |text: String| if ends { format!("{text}\n ") } else { text };
    let number = if step.part { String::new() } else { number.to_string() };
    vec![number, apart(what), apart(counted), text::grouped(step.busy_cycles as i64)]
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
    fn columns_fit_the_terminal() {
        let Widths { text, what, counted } = Widths::within(None);
        assert_eq!((text, what, counted), (100, 52, 32));
        let Widths { text, what, counted } = Widths::within(Some(80));
        assert_eq!((text, what, counted), (80, 38, 22));
    }

    #[test]
    fn lines_end_between_words_and_counts_stay_with_their_names() {
        assert_eq!(wrapped("one two  three", 7), "one two\nthree");
        assert_eq!(wrapped("a-very-long-word it", 6), "a-very-long-word\nit");
        let line = [counted("page_faults", 4), counted("cow_copies", 1)].join(", ");
        assert_eq!(wrapped(&line, 20), "page faults 4,\ncow copies 1");
    }
}
