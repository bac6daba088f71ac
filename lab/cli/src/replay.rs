//! `pageferry replay`: a recording of strace, run again.

use crate::args::Replay;
use crate::run::{chosen, stack};
use crate::show::print_json;
use crate::terminal::{self, print, table};
use pageferry_lab::files::MachineChoice;
use pageferry_lab::record::Law;
use pageferry_lab::workloads::strace::{ReplayReport, replay as run_again};
use pageferry_lab::{LabError, input, text};
use std::process::ExitCode;

/// Runs a recording again.
pub(crate) fn replay(options: &Replay) -> Result<ExitCode, LabError> {
    let (machine, kernel) = chosen(&options.settings, &options.machine, &options.kernel, "")?;
    let path = &options.recording;
    let wrong = |problem: String| LabError::Input { file: path.display().to_string(), problem };
    if let Some(files) = &options.files
        && !files.is_dir()
    {
        let problem = "expected a directory with the files of the recording".to_owned();
        return Err(LabError::Input { file: files.display().to_string(), problem });
    }
    let bytes = input::bytes(path, input::MAX_RECORDED_BYTES)?;
    if let Some(problem) = other_kind(&bytes) {
        return Err(wrong(problem.to_owned()));
    }
    let name = path.display().to_string();
    let replayed = run_again(&machine, &kernel, &name, &bytes, options.files.as_deref())?;
    let broken = Law::broken(&replayed.laws);
    if options.json {
        print_json(&replayed)?;
    } else {
        print(&shown(&replayed, &name, &machine))?;
    }
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let run = format!("replay on {} under {}", replayed.machine, replayed.kernel);
    Err(LabError::Law { run, broken })
}

/// What other command a file is for, if it is one of those that are run again in other ways.
fn other_kind(bytes: &[u8]) -> Option<&'static str> {
    if pageferry_trace::Reader::new(bytes, u64::MAX).is_ok() {
        return Some(
            "a trace of references, expected what strace writes; `pageferry trace show` looks into it",
        );
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = first == Some(&b'{') && serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
    is_json.then_some(
        "JSON, expected what strace writes; a program of `soak` is run by `pageferry soak --replay`",
    )
}

fn shown(replayed: &ReplayReport, name: &str, machine: &MachineChoice) -> String {
    let style = terminal::stdout();
    let plural = |count: u64, one: &str| match count {
        1 => format!("1 {one}"),
        count => {
            format!("{} {one}{}", text::grouped(count as i64), if one.ends_with('s') { "es" } else { "s" })
        }
    };
    let made: u64 = replayed.calls.values().map(|cost| cost.calls).sum();
    let left_out: u64 = replayed.not_modelled.values().sum();
    let mut out = format!(
        "{}  {} of {} on {} under {}\n",
        style.strong("replay"),
        plural(made, "call"),
        name,
        machine.config.title,
        replayed.kernel
    );
    out += &style.faint(&format!(
        "{}; {}{} and {} were there; modelled time {}\n\n",
        plural(replayed.processes as u64, "process"),
        plural(replayed.files as u64, "file"),
        match replayed.links {
            0 => String::new(),
            links => format!(", {}", plural(links as u64, "symbolic link")),
        },
        if replayed.directories == 1 {
            "1 directory".into()
        } else {
            format!("{} directories", replayed.directories)
        },
        text::seconds(replayed.elapsed_us / 1e6)
    ));
    let total: f64 = replayed.calls.values().map(|cost| cost.elapsed_us).sum();
    let is_timed = replayed.calls.values().any(|cost| cost.recorded_us.is_some());
    let mut calls: Vec<_> = replayed.calls.iter().collect();
    calls.sort_by(|a, b| b.1.elapsed_us.total_cmp(&a.1.elapsed_us).then(a.0.cmp(b.0)));
    let row = |(name, cost): &(&String, &pageferry_lab::workloads::strace::Cost)| {
        let share = if total > 0.0 { 100.0 * cost.elapsed_us / total } else { 0.0 };
        let mut row = vec![
            (*name).clone(),
            text::grouped(cost.calls as i64),
            text::grouped(cost.bytes as i64),
            text::seconds(cost.elapsed_us / 1e6),
            format!("{share:.1} %"),
        ];
        if is_timed {
            row.push(cost.recorded_us.map_or_else(String::new, |us| text::seconds(us / 1e6)));
        }
        row
    };
    let mut head = vec!["call", ">calls", ">bytes", ">modelled time", ">share"];
    if is_timed {
        head.push(">as recorded");
    }
    out += &table(&head, &calls.iter().map(row).collect::<Vec<_>>());
    out += &format!("\n{}", stack(&replayed.cycles));
    if left_out > 0 {
        let mut rows: Vec<_> = replayed.not_modelled.iter().collect();
        rows.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let rows: Vec<_> =
            rows.into_iter().map(|(name, count)| vec![name.clone(), text::grouped(*count as i64)]).collect();
        out += &format!("\n{}", table(&["not modelled", ">calls"], &rows));
    }
    out += "\n";
    if let Some((line, expected)) = &replayed.first_skipped {
        let count = plural(replayed.skipped, "line");
        out += &format!("{count} left out that strace did not write; the first is line {line}: {expected}\n");
    }
    if replayed.unfinished > 0 {
        out += &format!("{} cut off and left out\n", plural(replayed.unfinished, "call"));
    }
    if replayed.waits > 0 {
        out += &format!(
            "{} waited for another process's call, as in the recording\n",
            plural(replayed.waits, "call")
        );
    }
    match replayed.deviations {
        0 => out += "Every call answered as was recorded.\n",
        count => {
            out += &format!("{} answered otherwise than was recorded:\n", plural(count as u64, "call"));
            for deviation in &replayed.first_deviations {
                out += &format!("  line {}, {}: {}\n", deviation.line, deviation.call, deviation.what);
            }
            if count > replayed.first_deviations.len() {
                out += &format!("  and {} more\n", count - replayed.first_deviations.len());
            }
        }
    }
    if replayed.laws.iter().all(|law| law.held) {
        let count = replayed.laws.len();
        out += &style
            .green(&format!("All {count} laws hold; every answer and every byte is the plain model's."));
        out += "\n";
    }
    out + &style.faint(&format!("{} on this host\n", text::seconds(replayed.host_ms / 1e3)))
}
