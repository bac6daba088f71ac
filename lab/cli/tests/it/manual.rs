//! What the command tells of itself: its version, completions and manual pages.

use crate::common::{pageferry, text};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is told on standard output, or the error of exit code 2.
fn told(arguments: &[&str], code: i32) -> String {
    let output = pageferry(Path::new("."), arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    text(if code == 0 { &output.stdout } else { &output.stderr })
}

#[test]
fn the_version_has_the_commit() {
    let version = env!("CARGO_PKG_VERSION");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let asked = Command::new("git").arg("-C").arg(&root).args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = asked.ok().filter(|asked| root.join(".git").exists() && asked.status.success());
    let expected = match commit {
        Some(commit) => format!("pageferry {version} ({})\n", text(&commit.stdout).trim()),
        None => format!("pageferry {version}\n"),
    };
    assert_eq!(told(&["--version"], 0), expected);
}

#[test]
fn completions_name_commands_and_their_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = told(&["completions", shell], 0);
        for word in ["pageferry", "reproduce", "threshold"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
    assert!(told(&["completions", "csh"], 2).contains("[possible values: bash, zsh, fish]"));
    // A shell takes the script.
    let script = told(&["completions", "bash"], 0);
    let started = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn();
    let Ok(mut shell) = started else { return };
    shell.stdin.take().expect("piped").write_all(script.as_bytes()).expect("read");
    assert!(shell.wait().expect("it ends").success());
}

#[test]
fn manual_pages_are_of_the_program_and_of_each_command() {
    let page = told(&["man"], 0);
    assert!(
        page.contains(".TH pageferry 1") && page.contains("reproduce") && page.contains("Exit codes"),
        "{page}"
    );
    let page = told(&["man", "diff"], 0);
    assert!(page.contains("pageferry\\-diff") || page.contains("pageferry-diff"), "{page}");
    assert!(page.contains("threshold") && page.contains("something did, or a run broke a law"), "{page}");
    assert!(told(&["man", "disk", "make"], 0).contains("block"), "a command of a command");
    assert!(told(&["man", "dif"], 2).contains("there is no command `dif`; did you mean `diff`?"));
}
