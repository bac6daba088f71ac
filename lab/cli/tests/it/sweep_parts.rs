//! A sweep in parts: what other hosts make of it is what one host makes, and what is missing, damaged or hostile is
//! said.

use crate::common::part::{body, sealed};
use crate::common::{done, entries, here, pageferry, text};
use std::fs;
use std::path::Path;

/// What a command says that must be refused.
fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = pageferry(dir, arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty() && !said.contains("panicked"), "{arguments:?}: {said}");
    said
}

const SMALL: [&str; 9] = [
    "sweep",
    "bw-pipe",
    "--quick",
    "--kernel",
    "original,sf_buf",
    "--vary",
    "chunk_bytes=4K..16K:*2",
    "--set",
    "total_bytes=64K",
];

/// `SMALL` with `more`, planned in `parts` parts.
fn planned(dir: &Path, parts: &str, more: &[&str]) {
    done(dir, &[&SMALL[..], &["--plan", "parts", "--parts", parts], more].concat());
}

#[test]
fn parts_that_other_hosts_make_give_the_bytes_of_one_host() {
    let dir = here();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("mine.toml"), "extends = \"xeon-up\"\nname = \"mine\"\n").expect("written");
    let kernel = "extends = \"sf_buf\"\n[ephemeral]\nentries = { value = 64, source = \"mine\", kind = \"assumed\" }\n";
    fs::write(at("few.toml"), kernel).expect("written");
    fs::write(at("own.toml"), "extends = \"bw-pipe\"\ntitle = \"Own\"\n").expect("written");
    let sweep = [
        "sweep",
        "own.toml",
        "--quick",
        "--machine",
        "today,mine.toml",
        "--kernel",
        "original,few.toml",
        "--vary",
        "chunk_bytes=4K,16K",
        "--vary",
        "machine.cpu.clock_mhz=2000,3000",
        "--set",
        "total_bytes=64K",
        "--repeat",
        "2",
        "--seed",
        "5",
        "--metric",
        "elapsed_us",
    ];
    let (table, _) = done(dir.path(), &[&sweep[..], &["--out", "one"]].concat());
    let (_, said) = done(dir.path(), &[&sweep[..], &["--plan", "parts", "--parts", "5"]].concat());
    assert!(said.contains("32 runs in 5 parts"), "{said}");
    for file in ["mine.toml", "few.toml", "own.toml"] {
        fs::remove_file(at(file)).expect("removed");
    }
    // Each on a host of its own.
    for number in 1..=5 {
        let host = here();
        let (part, records) = (format!("part-{number}.toml"), format!("part-{number}.jsonl"));
        fs::copy(at("parts").join(&part), host.path().join(&part)).expect("copied");
        done(host.path(), &["sweep", "run", &part, "-j1"]);
        assert_eq!(entries(host.path()), [records.clone(), part]);
        fs::copy(host.path().join(&records), at("parts").join(&records)).expect("copied");
    }
    let (collected, _) = done(dir.path(), &["sweep", "collect", "parts", "--out", "all"]);
    assert_eq!(collected, table);
    assert_eq!(entries(&at("all")), entries(&at("one")));
    for file in
        ["sweep.csv", "results.json", "results.csv", "runs.csv", "inputs.json", "figures/own-mine.svg"]
    {
        assert!(fs::read(at("all").join(file)).ok() == fs::read(at("one").join(file)).ok(), "{file} differs");
    }
    assert_eq!(fs::read_to_string(at("all/sweep.csv")).expect("text").lines().count(), 33);
    // One part fewer is needed to say what is asked for, and none to say what was run.
    for number in 1..=4 {
        fs::remove_file(at("parts").join(format!("part-{number}.toml"))).expect("removed");
    }
    assert_eq!(done(dir.path(), &["sweep", "collect", "parts"]).0, table);
}

#[test]
fn a_paper_of_ones_own_is_not_needed() {
    let dir = here();
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/papers");
    let paper = fs::read_to_string(papers.join("sf-buf.toml")).expect("text").replace("sfbuf-", "mine-");
    fs::write(dir.path().join("paper.toml"), paper).expect("written");
    let own = "extends = \"bw-pipe\"\npaper = \"paper.toml\"\ncompare = []\n";
    fs::write(dir.path().join("own.toml"), own).expect("written");
    done(dir.path(), &["sweep", "own.toml", "--quick", "--plan", "parts"]);
    for file in ["own.toml", "paper.toml"] {
        fs::remove_file(dir.path().join(file)).expect("removed");
    }
    done(dir.path(), &["sweep", "run", "parts/part-1.toml"]);
    assert!(done(dir.path(), &["sweep", "collect", "parts"]).0.contains("bandwidth_mb_s"));
}

#[test]
fn parts_that_are_missing_or_no_good_are_named() {
    let dir = here();
    planned(dir.path(), "6", &[]);
    let records = |part: usize| dir.path().join(format!("parts/part-{part}.jsonl"));
    let said = refused(dir.path(), &["sweep", "collect", "parts", "--out", "out"]);
    assert!(said.contains("6 of 6 parts have to be run before it can be collected: 1,2,3,4,5,6"), "{said}");
    let all: Vec<String> = (1..=6).map(|part| format!("parts/part-{part}.toml")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    done(dir.path(), &[&["sweep", "run"], &all[..]].concat());
    done(dir.path(), &["sweep", "collect", "parts"]);
    let good = |part| fs::read(records(part)).expect("readable");
    // Missing; cut short; a digit changed; of another version; of another part.
    fs::remove_file(records(1)).expect("removed");
    let cut = good(2).len() - 10;
    fs::write(records(2), &good(2)[..cut]).expect("written");
    fs::write(records(3), text(&good(3)).replace("\"seed\":1", "\"seed\":2")).expect("written");
    fs::write(records(4), text(&good(4)).replacen("\"version\":\"", "\"version\":\"9.", 1)).expect("written");
    fs::copy(records(6), records(5)).expect("copied");
    let said = refused(dir.path(), &["sweep", "collect", "parts", "--out", "out"]);
    for line in [
        "part 1: it was not run",
        "part 2: its records are damaged: they were cut short",
        "part 3: its records are damaged: they were cut short or changed",
        "part 4: pageferry 9.",
        "part 5: its records are those of part 6",
        "parts: 5 of 6 parts have to be run before it can be collected: 1,2,3,4,5",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("part 6:") && !dir.path().join("out").exists(), "{said}");
    // A plan of something else in the same folder: what was run for the first is not taken for it.
    planned(dir.path(), "6", &["--seed", "2"]);
    let said = refused(dir.path(), &["sweep", "collect", "parts"]);
    assert!(said.contains("part 6: its records are of another sweep"), "{said}");
    // An empty folder, and none.
    fs::create_dir(dir.path().join("empty")).expect("made");
    assert!(refused(dir.path(), &["sweep", "collect", "empty"]).contains("empty: it has no part of a sweep"));
    assert!(refused(dir.path(), &["sweep", "collect", "none"]).contains("cannot read none"));
}

/// `part` with `from` replaced by `to`, under a sum that is right.
fn forged(part: &str, from: &str, to: &str) -> Vec<u8> {
    assert!(body(part).contains(from), "{from}");
    sealed(part, body(part).replacen(from, to, 1).as_bytes())
}

#[test]
fn hostile_parts_are_refused_with_file_and_key() {
    let dir = here();
    planned(dir.path(), "2", &["--machine", "xeon-up", "--metric", "bandwidth_mb_s"]);
    let file = dir.path().join("parts/part-1.toml");
    let good = fs::read_to_string(&file).expect("text");
    let told = |contents: &[u8]| {
        fs::write(&file, contents).expect("written");
        let said = refused(dir.path(), &["sweep", "run", "parts/part-1.toml"]);
        assert!(said.contains("parts/part-1.toml"), "no file: {said}");
        said
    };
    for part in [0, 1, 40, 80, 200, good.len() / 2, good.len() - 2] {
        told(&good.as_bytes()[..part]);
    }
    told(&[0xff, 0xfe]);
    assert!(told(good.replacen("seed = 1", "seed = 2", 1).as_bytes()).contains("cut short or changed"));
    for (from, to, key, problem) in [
        ("version = \"", "version = \"9.", "version", "planned it, and this is pageferry"),
        ("format = 1", "format = 2", "version", "planned it"),
        ("format = 1", "formt = 1", "format", ""),
        ("part = 1\n", "part = 3\n", "part", "3, expected 1 to 2"),
        ("parts = 2", "parts = 100", "parts", "100, expected at most 6"),
        ("parts = 2", "parts = 0", "part", "expected 1 to 0"),
        ("part = 1\n", "part = -1\n", "part", "-1"),
        ("seed = 1", "seed = \"x\"", "sweep.seed", ""),
        ("seed = 1", "seed = -1", "sweep.seed", "expected at least 0"),
        ("seed = 1", "seed = 1\nsed = 1", "sweep.sed", ""),
        ("repeat = 1", "repeat = 0", "sweep.repeat", "expected 1 to 10000"),
        ("quick = true", "quick = true\nresume = true", "sweep.resume", ""),
        ("8192, 16384]", "8192, 8192]", "sweep.vary[0]", "`8192` is there twice"),
        ("8192, 16384]", "8192, -5]", "sweep", "--vary chunk_bytes"),
        ("key = \"chunk_bytes\"", "key = \"chunk_byte\"", "sweep", "did you mean `chunk_bytes`"),
        ("total_bytes=65536", "total_bytes", "sweep", "expected key=value"),
        ("metric = \"bandwidth_mb_s\"", "metric = \"bandwith_mb_s\"", "sweep", "did you mean"),
        ("name = \"xeon-up\"\n\n", "name = \"../up\"\n\n", "sweep.machines[0].name", "without its folder"),
        ("name = \"sf_buf\"\n\n", "name = \"original\"\n\n", "sweep", "`original` is there twice"),
        ("paper = \"", "paper = \"/etc/x.toml", "sweep.experiment", "there is no paper"),
        ("workload = \"bw-pipe\"", "workload = \"bw-pip\"", "sweep.experiment", "did you mean `bw-pipe`?"),
        ("clock_mhz = { value = ", "clock_mhz = { value = -", "sweep.machines[0].file.cpu.clock_mhz", ""),
        (
            "entries = { value = ",
            "entries = { value = 99999999999",
            "sweep.kernels[0].file.ephemeral.entries",
            "",
        ),
        ("files = []", "files = [{ path = \"/dev/zero\", sha256 = \"\" }]", "", "/dev/zero"),
    ] {
        let said = match from {
            "files = []" => {
                fs::write(&file, forged(&good, from, to)).expect("written");
                refused(dir.path(), &["sweep", "run", "parts/part-1.toml"])
            }
            _ => told(&forged(&good, from, to)),
        };
        assert!(said.contains(&format!("`{key}")) || key.is_empty(), "{to}: no key {key}: {said}");
        assert!(said.contains(problem), "{to}: {said}");
    }
    assert_eq!(entries(&dir.path().join("parts")), [".pageferry.json", "part-1.toml", "part-2.toml"]);
    // The part before its first change is good, still.
    fs::write(&file, &good).expect("written");
    done(dir.path(), &["sweep", "run", "parts/part-1.toml"]);
}

#[test]
fn a_recording_that_runs_read_is_told_of_and_has_to_be_the_same() {
    let dir = here();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/recordings");
    let first = fs::read_dir(&recording).expect("recordings").find_map(|entry| {
        let path = entry.expect("an entry").path();
        (path.is_file() && path.extension().is_some_and(|e| e == "strace")).then_some(path)
    });
    let Some(first) = first else { panic!("no recording in {}", recording.display()) };
    fs::copy(first, dir.path().join("my.log")).expect("copied");
    let (_, said) =
        done(dir.path(), &["sweep", "replay", "--quick", "--vary", "trace=my.log", "--plan", "parts"]);
    assert!(said.contains("Its runs read my.log"), "{said}");
    fs::write(dir.path().join("my.log"), "something else").expect("written");
    let said = refused(dir.path(), &["sweep", "run", "parts/part-1.toml"]);
    assert!(said.contains("my.log: it is not what it was when the sweep was planned"), "{said}");
    fs::remove_file(dir.path().join("my.log")).expect("removed");
    assert!(refused(dir.path(), &["sweep", "run", "parts/part-1.toml"]).contains("my.log"));
}

#[test]
fn options_of_the_one_are_none_of_the_other() {
    let dir = here();
    for (arguments, expected) in [
        (&["bw-pipe", "--plan", "p", "--out", "o"][..], "cannot be used with"),
        (&["bw-pipe", "--parts", "3"], "--plan"),
        (&["bw-pipe", "--plan", "p", "--parts", "0"], "expected 1 to 100000"),
        (&["--quick", "run", "p"], "cannot be used with"),
        (&["bw-pipe", "--plan", "p", "--seed", "9223372036854775808"], "in a plan"),
        (&["run"], "PART"),
        (&["collect"], "DIR"),
        (&["collect", "p", "--force"], "--out"),
        (&[], "EXPERIMENT"),
    ] {
        let said = refused(dir.path(), &[&["sweep"], arguments].concat());
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}
