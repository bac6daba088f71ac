//! Where results go: what is replaced, what is kept, and what is left when the command is interrupted.

use crate::common::{command, entries, here, pageferry, text};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn code(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), text(&output.stderr))
}

fn done(dir: &Path, arguments: &[&str]) -> String {
    let output = pageferry(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = pageferry(dir, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// Every file below `dir`, with its contents.
pub fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in entries(dir) {
        let path = dir.join(&name);
        if path.is_dir() {
            all.extend(tree(&path).into_iter().map(|(below, bytes)| (Path::new(&name).join(below), bytes)));
        } else {
            all.insert(name.into(), fs::read(path).expect("readable"));
        }
    }
    all
}

#[test]
fn a_piped_file_keeps_its_mode_links_are_followed_and_names_may_be_long() {
    let dir = here();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("in"), vec![3; 10_000]).expect("written");
    fs::write(path("out"), "old").expect("written");
    fs::set_permissions(path("out"), fs::Permissions::from_mode(0o604)).expect("mine");
    std::os::unix::fs::symlink("out", path("link")).expect("made");
    done(dir.path(), &["pipe", "in", "-o", "link"]);
    assert!(fs::symlink_metadata(path("link")).expect("there").is_symlink());
    let meta = fs::metadata(path("out")).expect("there");
    assert_eq!((meta.len(), meta.mode() & 0o7777), (10_000, 0o604));
    fs::set_permissions(path("out"), fs::Permissions::from_mode(0o444)).expect("mine");
    assert!(refused(dir.path(), &["pipe", "in", "-o", "out"]).contains("cannot write out: it is read-only"));
    std::os::unix::fs::symlink("nowhere", path("dangling")).expect("made");
    let said = refused(dir.path(), &["pipe", "in", "-o", "dangling"]);
    assert!(said.contains("a symbolic link that leads nowhere"), "{said}");
    let long = "x".repeat(250);
    done(dir.path(), &["pipe", "in", "-o", &long]);
    assert_eq!(entries(dir.path()), ["dangling", "in", "link", "out", &long]);
}

#[test]
fn a_standard_output_that_takes_nothing_is_told_and_no_panic() {
    let dir = here();
    fs::write(dir.path().join("in"), vec![3; 300_000]).expect("written");
    let shell = |line: &str| {
        let line = line.replace("pageferry", env!("CARGO_BIN_EXE_pageferry"));
        Command::new("bash").args(["-c", &line]).current_dir(dir.path()).output().expect("it starts")
    };
    // Its reader is gone; it was never opened; it is full.
    for (line, wrong) in [
        ("pageferry pipe in -o - | true; exit ${PIPESTATUS[0]}", "Broken pipe"),
        ("(sleep 0.5; pageferry pipe in -o out) | true; exit ${PIPESTATUS[0]}", "Broken pipe"),
        ("pageferry pipe in -o - >&-", "it is closed"),
        ("pageferry pipe in -o out > /dev/full", "No space left"),
        ("pageferry machines > /dev/full", "No space left"),
    ] {
        let (code, said) = code(&shell(line));
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains("cannot write standard output: ") && said.contains(wrong), "{line}: {said}");
    }
    // Standard error may be gone as well.
    for line in [
        "(sleep 0.2; pageferry machines; echo $? > code) 2>&1 | true",
        "(sleep 0.2; pageferry reproduce --quick invalidate --out results; echo $? > code) 2>&1 | true",
    ] {
        assert!(shell(line).status.success(), "{line}");
        assert_eq!(fs::read_to_string(dir.path().join("code")).expect("written").trim(), "0", "{line}");
    }
}

#[test]
fn results_go_where_none_are_lost() {
    let dir = here();
    done(dir.path(), &["reproduce", "--quick", "invalidate", "--out", "a/b/c"]);
    assert_eq!(entries(&dir.path().join("a/b")), ["c"]);
    let out = dir.path().join("a/b/c");
    let marker = fs::read_to_string(out.join(".pageferry.json")).expect("there");
    fs::write(out.join(".pageferry.json"), marker.replace("\"full\": false", "\"full\": true"))
        .expect("written");
    for less in [&["--quick"][..], &["invalidate"], &["invalidate", "--quick"]] {
        let said = refused(dir.path(), &[&["reproduce", "--out", "a/b/c"], less].concat());
        assert!(said.contains("the results of a full run") && said.contains("--force"), "{said}");
    }
    done(dir.path(), &["reproduce", "--quick", "invalidate", "--out", "a/b/c", "--force"]);
    done(dir.path(), &["reproduce", "--quick", "invalidate", "--out", "a/b/c"]);
    // What a run that is no more had written goes with it; what is the user's stays.
    assert!(out.join("figures/invlpg-history.svg").is_file());
    fs::write(out.join("figures/mine.txt"), "mine").expect("written");
    done(dir.path(), &["reproduce", "--quick", "bw-pipe", "--out", "a/b/c"]);
    let figures = entries(&out.join("figures"));
    assert!(
        figures.contains(&"mine.txt".into()) && figures.contains(&"pipe-bandwidth.svg".into()),
        "{figures:?}"
    );
    assert!(!figures.contains(&"invlpg-history.svg".into()), "{figures:?}");
}

/// The runs that an interrupted reproduction has kept.
pub fn journal(dir: &Path) -> Vec<u8> {
    fs::read(dir.join("out.unfinished/runs.jsonl")).unwrap_or_default()
}

fn keep(dir: &Path, journal: &[u8]) {
    fs::create_dir_all(dir.join("out.unfinished")).expect("made");
    fs::write(dir.join("out.unfinished/runs.jsonl"), journal).expect("written");
}

pub fn lines(journal: &[u8]) -> usize {
    journal.iter().filter(|byte| **byte == b'\n').count()
}

fn signal(child: &std::process::Child, name: &str) {
    let id = child.id().to_string();
    Command::new("kill").args([&format!("-{name}"), &id]).status().expect("kill is there");
}

/// Starts what makes runs for the folder `out`, and interrupts it when it has kept `more` of them. The host may not run
/// this test when it should: what was through before is tried again from what there was.
pub fn interrupted(dir: &Path, arguments: &[&str], more: usize, name: &str) -> Output {
    let before = journal(dir);
    for _ in 0..50 {
        let began = Instant::now();
        let mut child =
            command(dir, arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        while child.try_wait().expect("waited for").is_none() {
            if lines(&journal(dir)) >= lines(&before) + more {
                signal(&child, name);
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nothing is kept");
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = child.wait_with_output().expect("it ends");
        if output.status.code() != Some(0) {
            return output;
        }
        fs::remove_dir_all(dir.join("out")).expect("it was through");
        keep(dir, &before);
    }
    panic!("{arguments:?} is through before it can be interrupted")
}

#[test]
fn finished_runs_are_kept_and_gone_on_with() {
    let dir = here();
    let run = ["reproduce", "--quick", "bw-pipe", "-j1"];
    for (name, number) in [("INT", 130), ("TERM", 143), ("KILL", -1)] {
        let (code, said) = code(&interrupted(dir.path(), &run, 1, name));
        assert_eq!(code.unwrap_or(-1), number, "{said}");
        assert_eq!(said.contains("interrupted. Finished runs are kept beside "), number > 0, "{said}");
        assert_eq!(entries(dir.path()), ["out.unfinished"]);
        if number > 0 {
            assert_eq!(entries(&dir.path().join("out.unfinished")), ["runs.jsonl"]);
        }
    }
    // Without --resume it is said, and nothing of it is thrown away before there are results.
    let (_, said) = code(&interrupted(dir.path(), &run, 4, "TERM"));
    assert!(said.contains(" runs are kept from one that was interrupted: `--resume` goes on"), "{said}");
    let said = done(dir.path(), &[&run[..], &["--resume"]].concat());
    assert!(said.lines().filter(|line| line.ends_with("  kept")).count() >= 3, "{said}");
    assert_eq!(entries(dir.path()), ["out"]);
    done(dir.path(), &[&run[..], &["--out", "whole"]].concat());
    for file in ["results.json", "results.csv", "figures/pipe-bandwidth.svg"] {
        let read = |out: &str| fs::read(dir.path().join(out).join(file)).expect("readable");
        assert!(read("out") == read("whole"), "{file} differs");
    }
    let said = done(dir.path(), &[&run[..], &["--resume"]].concat());
    assert!(said.contains("no finished run to go on with"), "{said}");
}

#[test]
fn finished_runs_that_others_have_no_use_for_stay() {
    let dir = here();
    let run = ["reproduce", "--quick", "bw-pipe", "-j1"];
    interrupted(dir.path(), &run, 3, "TERM");
    let kept = lines(&journal(dir.path()));
    for resume in [&[][..], &["--resume"]] {
        let other = ["reproduce", "--quick", "invalidate", "-j1"];
        let said = done(dir.path(), &[&other[..], resume].concat());
        assert!(said.contains(&format!("{kept} other finished runs are kept in ")), "{said}");
        assert_eq!(lines(&journal(dir.path())), kept);
        assert_eq!(entries(&dir.path().join("out.unfinished")), ["runs.jsonl"]);
    }
    let said = done(dir.path(), &[&run[..], &["--resume"]].concat());
    assert_eq!(said.lines().filter(|line| line.ends_with("  kept")).count(), kept, "{said}");
    assert_eq!(entries(dir.path()), ["out"]);
}

/// Sends a signal at many moments while the results are written: they are the old ones or the new ones.
fn interrupt_writing(times: u32) {
    let dir = here();
    let (out, work) = (dir.path().join("out"), dir.path().join("out.unfinished"));
    let plain = ["reproduce", "--quick", "invalidate", "-j1"];
    let other = [&plain[..], &["--seed", "2"]].concat();
    // A journal with every run in it: what resumes from it has only to write.
    let resumed = [&other[..], &["--resume"]].concat();
    interrupted(dir.path(), &other, 5, "KILL");
    while lines(&journal(dir.path())) < 20 {
        interrupted(dir.path(), &resumed, 1, "TERM");
    }
    let journal = journal(dir.path());
    let began = Instant::now();
    done(dir.path(), &resumed);
    let takes = began.elapsed();
    let new = tree(&out);
    fs::remove_dir_all(&out).expect("removed");
    done(dir.path(), &plain);
    let old = tree(&out);
    let kept = here();
    fs::rename(&out, kept.path().join("old")).expect("moved");
    // The moment is sought: later after the old results, earlier after the new, and in larger steps until it has been
    // passed. So the signals gather where the one becomes the other, however busy the host is.
    let (mut wait, mut step) = (takes / 2, takes / 8);
    let (mut news, mut olds, mut was_new) = (0, 0, None);
    let mut time = 0;
    while time < times || ((news == 0 || olds == 0) && time < 10 * times) {
        keep(dir.path(), &journal);
        let copied = Command::new("cp").args(["-r"]).arg(kept.path().join("old")).arg(&out).status();
        assert!(copied.expect("cp is there").success());
        let mut child = command(dir.path(), &resumed)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(wait);
        let (name, number) = if time % 2 == 0 { ("TERM", 143) } else { ("INT", 130) };
        signal(&child, name);
        let ended = child.wait().expect("it ends").code();
        let found = tree(&out);
        assert!(found == old || found == new, "a mix of old and new after signal {time}");
        let is_new = found == new;
        *(if is_new { &mut news } else { &mut olds }) += 1;
        step = if was_new.is_none_or(|was| was == is_new) { step * 2 } else { (step / 4).max(takes / 200) };
        was_new = Some(is_new);
        wait = if is_new { wait.saturating_sub(step) } else { wait + step };
        // It ends by the signal itself before it listens; below is seen that it had not written anything then.
        let own =
            ended == Some(number) || (ended.is_none() && found == old) || (ended == Some(0) && found == new);
        assert!(own, "{ended:?} after signal {time}");
        match entries(dir.path()).as_slice() {
            [one] if one == "out" => assert!(found == new),
            [_, two] if two == "out.unfinished" => assert_eq!(entries(&work), ["runs.jsonl"]),
            others => panic!("left behind: {others:?}"),
        }
        fs::remove_dir_all(&out).expect("removed");
        time += 1;
    }
    println!("{olds} old, {news} new");
    assert!(olds > 0 && news > 0, "{olds} old, {news} new: the signals came at the wrong time");
}

#[test]
fn signals_while_results_are_written_leave_the_old_or_the_new() {
    let times = std::env::var("PAGEFERRY_SIGNALS").map_or(32, |times| times.parse().expect("a number"));
    interrupt_writing(times);
}
