//! What is found in recordings of processes that never were.

#[path = "../../../tests/it/strace_generated/programs.rs"]
mod programs;

use super::circle::PipeRoom;
use super::moments;
use super::ops::Deviation;
use super::plan::{Setting, first_directory, plan};
use pageferry_trace::strace::Log;
use programs::{NO_FILE, recording};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

fn deviations(text: &str) -> Vec<Deviation> {
    let log = Log::read(text.as_bytes());
    assert_eq!((log.skipped.count, log.unfinished), (0, 0), "{:?}: {text}", log.skipped.first);
    moments::plan_of(&log, PipeRoom::NONE, &|_, _| None).expect("a plan").deviations
}

/// What deviates if every call counts when it returned.
fn at_returns(text: &str) -> usize {
    let log = Log::read(text.as_bytes());
    let entries: Vec<_> = log.entries.iter().collect();
    let here = first_directory(&log.entries);
    let setting = Setting { here, lines: log.lines, room: PipeRoom::NONE, given: &|_, _| None };
    plan(&entries, &setting).expect("a plan").plan.deviations.len()
}

#[test]
fn what_may_have_happened_is_no_deviation() {
    let mut are_moved = 0;
    for seed in 0..1500 {
        let text = recording(seed, 4 + seed as usize % 9);
        assert_eq!(deviations(&text), [], "{seed}: {text}");
        are_moved += usize::from(at_returns(&text) > 0);
    }
    assert!(are_moved > 300, "{are_moved}");
}

/// Other answers: a number that is one more, no file where there was one, and one where there was none.
fn altered(draw: &mut ChaCha8Rng, text: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // What the processes do that were forked, and answers that tell of files.
    let is_told = |line: &String| {
        let tells = ["pread64", "stat", "openat", "unlink", "mkdir", "rmdir", "rename", "link", "getdents64"];
        !line.starts_with('1') && line.contains(") = ") && tells.iter().any(|name| line.contains(name))
    };
    let told: Vec<usize> = (0..lines.len()).filter(|at| is_told(&lines[*at])).skip(6).collect();
    let line = &mut lines[*told.get(draw.random_range(0..told.len().max(1)))?];
    let (head, answer) = line.rsplit_once(") = -1").map_or_else(
        || line.rsplit_once(" = ").expect("an answer"),
        |(head, _)| (&line[..head.len() + 1], "-1"),
    );
    *line = match answer {
        "-1" if line.contains("mkdir") => format!("{head} = 0"),
        "-1" if line.contains("openat") => format!("{head} = 77"),
        "-1" if line.contains("unlink") || line.contains("rmdir") => format!("{head} = 0"),
        "-1" => return None,
        _ if line.contains("st_size=") && line.contains("S_IFREG") => {
            line.replacen("st_size=", "st_size=7", 1)
        }
        _ if line.contains("pread64") => format!("{head} = {}", answer.parse::<u64>().expect("a number") / 2),
        _ if line.contains("getdents64") => line.replacen("/* ", "/* 1", 1),
        _ => format!("{head} = {NO_FILE}"),
    };
    Some(lines.join("\n") + "\n").filter(|altered| altered != text)
}

#[test]
fn what_cannot_have_happened_is_a_deviation() {
    let (mut all, mut found) = (0, 0);
    for seed in 0..300 {
        let mut draw = ChaCha8Rng::seed_from_u64(1 << 32 | seed);
        let Some(text) = altered(&mut draw, &recording(seed, 8)) else { continue };
        all += 1;
        found += usize::from(!deviations(&text).is_empty());
    }
    // Another order may explain the others.
    assert!(all > 150 && found * 100 > all * 80, "{found} of {all}");
}
