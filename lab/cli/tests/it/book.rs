//! The book's examples of sweeps, as a reader types them: each is run, in order, in one folder.

use crate::common::{pageferry, text};
use std::fs;
use std::path::Path;

/// The commands of `page`, without the prompt.
fn commands(page: &str) -> Vec<String> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            commands.push(command.split("  #").next().unwrap_or_default().trim_end().to_owned());
        }
    }
    commands
}

#[test]
fn the_sweeps_of_the_book_run_as_they_stand_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("book/src/sweeps.md")).expect("the page");
    let dir = tempfile::tempdir().expect("a directory");
    fs::copy(root.join("book/examples/machine.toml"), dir.path().join("my.toml")).expect("copied");
    let commands = commands(&page);
    let sweeps = commands.iter().filter(|line| line.starts_with("pageferry sweep ")).count();
    assert!(sweeps >= 9, "{commands:?}");
    for line in &commands {
        let mut words: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
        if line.starts_with("sbatch ") {
            // Slurm's part in it.
            words = ["sweep", "run"].map(str::to_owned).to_vec();
            words.extend((1..=16).map(|part| format!("parts/part-{part}.toml")));
        } else if !line.starts_with("pageferry sweep ") {
            continue;
        } else if !["run", "collect"].contains(&words[1].as_str()) {
            // In full, they take minutes.
            words.push("--quick".to_owned());
        }
        let output = pageferry(dir.path(), &words);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
    }
    for table in ["sweep/sweep.csv", "collected/sweep.csv"] {
        assert!(dir.path().join(table).is_file(), "no {table}");
    }
}

#[test]
fn a_crate_outside_of_the_clone_depends_on_what_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("book/src/own/experiment.md")).expect("the page");
    let manifest =
        page.split("```toml\n").find(|block| block.starts_with("[package]")).expect("a Cargo.toml");
    let manifest = manifest.split("```").next().unwrap_or_default();
    let depends: Vec<&str> = manifest.lines().filter(|line| line.contains("path = ")).collect();
    assert_eq!(depends.len(), 3, "{manifest}");
    for line in depends {
        let (name, path) = line.split_once(" = { path = \"../pageferry/").expect("beside the clone");
        let crate_toml = root.join(path.trim_end_matches("\" }")).join("Cargo.toml");
        let of = fs::read_to_string(&crate_toml).expect("a crate is there");
        assert!(of.contains(&format!("name = \"{name}\"")), "{line}");
    }
}
