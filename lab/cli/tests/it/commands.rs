//! What each command does when all is well, and its exit codes.

use crate::common::{command, entries, here, pageferry, text};
use pageferry_report::trace::packet::TraceFile;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn done(dir: &Path, arguments: &[&str]) -> String {
    let output = pageferry(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn run_prints_one_object_with_what_was_promised() {
    let dir = here();
    let arguments = [
        "run",
        "bw-pipe",
        "--machine",
        "xeon-mp",
        "--kernel",
        "original",
        "--set",
        "total_bytes=262144",
        "--seed",
        "7",
        "--json",
    ];
    let run: Value = serde_json::from_str(&done(dir.path(), &arguments)).expect("one JSON object");
    assert_eq!(
        (&run["experiment"], &run["machine"], &run["kernel"]),
        (&"bw-pipe".into(), &"xeon-mp".into(), &"original".into())
    );
    assert_eq!(
        (&run["seed"], &run["payload_ok"], &run["stale_translations"]),
        (&7.into(), &true.into(), &0.into())
    );
    assert!(run["results"]["bandwidth_mb_s"].as_f64().is_some_and(|b| b > 0.0));
    assert_eq!(run["settings"]["total_bytes"], 262_144);
    let counters = [
        "tlb_invalidations_local",
        "tlb_invalidations_remote_issued",
        "shootdown_ipis",
        "ephemeral_hits",
        "ephemeral_misses",
        "tlb_misses",
        "page_faults",
    ];
    for counter in counters {
        assert!(run["counters"][counter].is_u64(), "{counter}");
    }
    assert_eq!(run["counters"]["tlb_invalidations_local"], 128);
    let causes = run["cycles"]["by_cause"].as_object().expect("causes");
    let sum: u64 = causes.values().filter_map(Value::as_u64).sum();
    assert_eq!(run["cycles"]["total"], sum);
    assert!(run["host"]["wall_ms"].is_number());
    let rate = |key: &str| run["host"][key].as_f64().unwrap_or_else(|| panic!("{key} in {}", run["host"]));
    let parts = rate("lines_streamed_per_s") + rate("dependent_accesses_per_s");
    assert!((parts - rate("accesses_per_s")).abs() <= 2.0, "{}", run["host"]);
    assert!(rate("instructions_charged_per_s") > 0.0);
}

#[test]
fn run_prints_text_for_people_without_colours_where_there_is_no_terminal() {
    let said =
        done(here().path(), &["run", "invalidate", "--quick", "--machine", "486", "--kernel", "original"]);
    assert!(said.contains("local_cached_cycles") && said.contains("laws hold"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
}

#[test]
fn a_machine_and_a_kernel_may_be_files() {
    let dir = here();
    let mine = "extends = \"xeon-up\"\n\
                [cpu]\n\
                clock_mhz = { value = 1200, source = \"a test\", kind = \"assumed\" }\n";
    fs::write(dir.path().join("mine.toml"), mine).expect("written");
    fs::write(dir.path().join("base.toml"), "extends = \"sf_buf\"\ntitle = \"base\"\n").expect("written");
    let small = "extends = \"base.toml\"\n\
                 [ephemeral]\n\
                 entries = { value = 8, source = \"a test\", kind = \"assumed\" }\n";
    fs::write(dir.path().join("small.toml"), small).expect("written");
    let arguments = [
        "run",
        "bw-pipe",
        "--quick",
        "--machine",
        "mine.toml",
        "--kernel",
        "small.toml",
        "--set",
        "total_bytes=131072",
        "--json",
    ];
    let run: Value = serde_json::from_str(&done(dir.path(), &arguments)).expect("JSON");
    assert_eq!((&run["machine"], &run["kernel"]), (&"mine".into(), &"small".into()));
    assert_eq!(
        (&run["counters"]["ephemeral_hits"], &run["counters"]["ephemeral_misses"]),
        (&0.into(), &32.into())
    );
    assert!(done(dir.path(), &["machines", "mine.toml"]).contains("1200"));
}

#[test]
fn a_broken_law_is_exit_code_1() {
    let arguments = [
        "run",
        "bw-pipe",
        "--quick",
        "--machine",
        "xeon-mp",
        "--kernel",
        "sf_buf",
        "--set",
        "kernel.planted_fault=lost-wakeup",
    ];
    let output = pageferry(here().path(), &arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("deadlock: every CPU is halted"), "{said}");
    let dir = here();
    let output =
        pageferry(dir.path(), &["pipe", "/dev/zero", "-o", "x", "--set", "kernel.planted_fault=lost-wakeup"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}

#[test]
fn lists_and_details_have_text_and_json() {
    let dir = here();
    for (verb, name, inside) in [
        ("machines", "opteron-mp", "clock_mhz = { value = 1600"),
        ("kernels", "sf_buf", "[paths.ephemeral]"),
        ("experiments", "bw-pipe", "total_bytes"),
    ] {
        assert!(done(dir.path(), &[verb]).contains(name), "{verb}");
        assert!(done(dir.path(), &[verb, name]).contains(inside), "{verb} {name}");
        let all: Value = serde_json::from_str(&done(dir.path(), &[verb, "--json"])).expect("JSON");
        assert!(all[name].is_object(), "{verb}");
        let one: Value = serde_json::from_str(&done(dir.path(), &[verb, name, "--json"])).expect("JSON");
        assert!(one.is_object(), "{verb} {name}");
    }
}

/// All that a machine, kernel or experiment is.
fn whole(folder: &Path, verb: &str, name: &str) -> Value {
    let mut whole: Value = serde_json::from_str(&done(folder, &[verb, name, "--json"])).expect("JSON");
    // The name of a file of one's own is that of the file.
    whole.as_object_mut().expect("an object").remove("name");
    whole
}

#[test]
fn what_is_printed_loads_again_and_is_the_same() {
    let dir = here();
    for (verb, arguments) in [("machines", &[][..]), ("kernels", &[]), ("experiments", &["--toml"])] {
        let all: Value = serde_json::from_str(&done(dir.path(), &[verb, "--json"])).expect("JSON");
        for name in all.as_object().expect("an object").keys() {
            let printed = done(dir.path(), &[&[verb, name][..], arguments].concat());
            fs::write(dir.path().join("mine.toml"), &printed).expect("written");
            assert_eq!(whole(dir.path(), verb, "mine.toml"), whole(dir.path(), verb, name), "{verb} {name}");
        }
    }
    // Of a file that extends one of ours, with plain values, too.
    for (verb, name) in [("machines", "machine"), ("kernels", "kernel")] {
        let path = format!("{}/../../book/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        fs::write(dir.path().join("mine.toml"), done(dir.path(), &[verb, &path])).expect("written");
        assert_eq!(whole(dir.path(), verb, "mine.toml"), whole(dir.path(), verb, &path), "{path}");
    }
}

#[test]
fn the_files_of_the_book_run() {
    let dir = here();
    let book = |name: &str| format!("{}/../../book/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let (machine, kernel, experiment) = (book("machine"), book("kernel"), book("experiment"));
    let arguments = ["run", "bw-pipe", "--quick", "--json", "--machine", &machine, "--kernel", &kernel];
    let run: Value = serde_json::from_str(&done(dir.path(), &arguments)).expect("JSON");
    assert_eq!((&run["machine"], &run["kernel"]), (&"machine".into(), &"kernel".into()));
    let said = done(dir.path(), &["reproduce", &experiment, "--quick", "--out", "mine"]);
    assert!(said.contains("0 runs broke a law"), "{said}");
    assert!(dir.path().join("mine/report.html").is_file());
}

#[test]
fn an_experiment_that_extends_another_is_run_and_printed_whole() {
    let dir = here();
    let mine = "extends = \"bw-pipe\"\ntitle = \"mine\"\nparameters.total_bytes = 262144\n";
    fs::write(dir.path().join("mine.toml"), mine).expect("written");
    let said = done(dir.path(), &["run", "mine.toml", "--json"]);
    let run: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(run["settings"]["total_bytes"], 262144);
    let whole = done(dir.path(), &["experiments", "mine.toml", "--toml"]);
    fs::write(dir.path().join("whole.toml"), whole).expect("written");
    let shown = |file: &str| done(dir.path(), &["experiments", file, "--json"]);
    assert_eq!(shown("mine.toml"), shown("whole.toml"));
    for command in ["run", "reproduce", "experiments", "machines", "kernels"] {
        assert!(done(dir.path(), &[command, "--help"]).contains("NAME|FILE"), "{command}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = command(here().path(), &["machines", "xeon-up"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut first = [0; 1];
    child.stdout.take().expect("piped").read_exact(&mut first).expect("one byte");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn reproduce_writes_the_same_numbers_at_any_number_of_threads() {
    let dir = here();
    for (out, jobs) in [("one", "1"), ("two", "2")] {
        let said = done(dir.path(), &["reproduce", "--quick", "bw-pipe", "--out", out, "--jobs", jobs]);
        assert!(said.contains("published") && said.contains("agree"), "{said}");
    }
    assert_eq!(entries(dir.path()), ["one", "two"]);
    assert_eq!(
        entries(&dir.path().join("one")),
        [
            ".pageferry.json",
            "constants.html",
            "crossovers.csv",
            "dictionary.csv",
            "figures",
            "host.json",
            "inputs.json",
            "metal.html",
            "papers",
            "published.csv",
            "real-host.html",
            "report.html",
            "results.csv",
            "results.json",
            "runs.csv"
        ]
    );
    for file in ["results.json", "results.csv", "figures/pipe-bandwidth.svg"] {
        let read = |out: &str| fs::read(dir.path().join(out).join(file)).expect("readable");
        assert!(read("one") == read("two"), "{file} differs");
    }
    // The folder is enough to report again.
    let said = done(dir.path(), &["report", "one", "--out", "again"]);
    assert!(said.contains("published") && said.contains("agree"), "{said}");
    for file in [
        "report.html",
        "papers/sf-buf.html",
        "results.json",
        "results.csv",
        "runs.csv",
        "published.csv",
        "inputs.json",
    ] {
        let read = |out: &str| fs::read(dir.path().join(out).join(file)).expect("readable");
        assert!(read("one") == read("again"), "{file} differs");
    }
    let words = done(dir.path(), &["reproduce", "--quick", "uvm-pipe", "--out", "words"]);
    let failed: Vec<&str> = words.lines().filter(|line| line.trim_end().ends_with("differs")).collect();
    assert!(failed.iter().any(|line| line.contains("  uvm-pipe: copy above loan at 4K")), "{words}");
    assert!(words.contains("comparisons are left out: not all of their runs were made."), "{words}");
    // Again into the same place: nothing else there is touched.
    fs::write(dir.path().join("one/notes.txt"), "mine").expect("written");
    done(dir.path(), &["reproduce", "--quick", "invalidate", "--out", "one"]);
    assert_eq!(fs::read_to_string(dir.path().join("one/notes.txt")).expect("there"), "mine");
}

#[test]
fn runs_that_were_printed_are_reported() {
    let dir = here();
    fs::create_dir(dir.path().join("runs")).expect("made");
    for kernel in ["original", "sf_buf"] {
        let run = done(dir.path(), &["run", "bw-pipe", "--quick", "--kernel", kernel, "--json"]);
        fs::write(dir.path().join(format!("runs/{kernel}.json")), run).expect("written");
    }
    let said = done(dir.path(), &["report", "runs"]);
    assert!(said.contains("gain in bandwidth over original") && said.contains("+67 %"), "{said}");
    let results = fs::read_to_string(dir.path().join("report/results.csv")).expect("written");
    assert!(results.lines().any(|line| line.starts_with("2,bandwidth_mb_s,MB/s,")), "{results}");
}

#[test]
fn pipe_carries_files_and_streams() {
    let dir = here();
    let bytes: Vec<u8> = (0..200_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    fs::write(dir.path().join("in"), &bytes).expect("written");
    let said =
        done(dir.path(), &["pipe", "in", "-o", "out", "--machine", "opteron-mp", "--kernel", "original"]);
    assert!(
        said.starts_with("identical") && said.contains("TLB invalidations") && said.contains("total"),
        "{said}"
    );
    assert!(fs::read(dir.path().join("out")).expect("there") == bytes);
    assert_eq!(entries(dir.path()), ["in", "out"]);
    let cost: Value =
        serde_json::from_str(&done(dir.path(), &["pipe", "in", "-o", "out", "--json"])).expect("JSON");
    assert_eq!((&cost["len_bytes"], &cost["identical"]), (&200_001.into(), &true.into()));

    let mut child = command(dir.path(), &["pipe", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("all taken");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == bytes, "only the bytes are on standard output");
    assert!(text(&output.stderr).contains("modelled time"));
}

#[test]
fn an_interruption_leaves_nothing_behind() {
    let dir = here();
    let mut child = command(dir.path(), &["pipe", "-o", "out"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(&[1; 200_000]).expect("taken");
    for _ in 0..3_000 {
        if !entries(dir.path()).is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(entries(dir.path()).len(), 1, "the file is begun under another name");
    assert!(!dir.path().join("out").exists());
    let killed =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(killed.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(entries(dir.path()), Vec::<String>::new());
    drop(stdin);
}

#[test]
fn explain_tells_steps_and_lists_what_it_knows() {
    let dir = here();
    let list = done(dir.path(), &["explain"]);
    assert!(["loan", "sf_buf", "direct-pipe"].iter().all(|name| list.contains(name)), "{list}");
    let told = done(dir.path(), &["explain", "loan"]);
    assert!(told.contains("pages lent 4") && told.contains("cow copies 1"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 110), "{told}");
    let json: Value = serde_json::from_str(&done(dir.path(), &["explain", "loan", "--json"])).expect("JSON");
    assert_eq!(json["steps"][0]["counters"]["pages_lent"], 4);
    let output = pageferry(dir.path(), &["explain", "lona"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `loan`"));
    let other = done(dir.path(), &["explain", "direct-pipe", "--kernel", "original"]);
    assert!(other.contains("The words are those of sf_buf; the numbers are those of original."), "{other}");
}

#[test]
fn pipe_copies_and_moves_the_same_bytes() {
    let dir = here();
    let bytes: Vec<u8> = (0..300_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    fs::write(dir.path().join("in"), &bytes).expect("written");
    for machine in ["pentium-pro", "today"] {
        for send in ["copy", "loan", "auto"] {
            for receive in ["copy", "transfer", "auto"] {
                let ways = ["--send", send, "--receive", receive, "--machine", machine, "--json"];
                let said = done(dir.path(), &[&["pipe", "in", "-o", "out"][..], &ways[..]].concat());
                let cost: Value = serde_json::from_str(&said).expect("JSON");
                assert_eq!((&cost["kernel"], &cost["identical"]), (&"uvm".into(), &true.into()));
                assert!(fs::read(dir.path().join("out")).expect("there") == bytes, "{send} {receive}");
                let count = |name: &str| cost["counters"][name].as_u64().expect("a counter");
                // What chooses has tried both, to know what they cost.
                if send != "auto" && receive != "auto" {
                    assert_eq!(count("pages_lent") > 0, send == "loan", "{send} {receive}");
                }
                if receive == "copy" && send == "copy" {
                    assert_eq!(count("pages_donated") + count("pages_lent_on"), 0);
                }
                if receive == "transfer" {
                    assert!(count("pages_donated") + count("pages_lent_on") > 0, "{send} {receive}");
                }
            }
        }
    }
}

#[test]
fn amounts_and_bandwidths_have_their_own_units() {
    let dir = here();
    fs::write(dir.path().join("in"), vec![7; 2 << 20]).expect("written");
    let said = done(dir.path(), &["pipe", "in", "-o", "out"]);
    assert!(said.contains("identical  2.0 MiB through a pipe") && said.contains(" MB/s\n"), "{said}");
    let json: Value =
        serde_json::from_str(&done(dir.path(), &["pipe", "in", "-o", "out", "--json"])).expect("JSON");
    let per_second = (2 << 20) as f64 / json["elapsed_us"].as_f64().expect("a time");
    assert!((json["bandwidth_mb_s"].as_f64().expect("a number") / per_second - 1.0).abs() < 1e-9);
    let machines = done(dir.path(), &["machines"]);
    assert!(machines.contains("2 GiB") && machines.contains("512 KiB"), "{machines}");
}

#[test]
fn a_trace_may_begin_late_and_says_when_it_is_too_late() {
    let dir = here();
    let run = ["run", "ping-pong", "--quick", "--set", "size_bytes=16384", "--trace", "t.trace"];
    let traced = |more: &[&str]| {
        let output = pageferry(dir.path(), &[&run[..], more].concat());
        assert_eq!(output.status.code(), Some(0));
        let trace = fs::read(dir.path().join("t.trace")).expect("written");
        let trace = TraceFile::read(&trace).expect("packets");
        let times: Vec<_> = trace.packet.iter().filter_map(|packet| packet.timestamp).collect();
        (times, text(&output.stderr))
    };
    let (all, _) = traced(&["--trace-from", "0s"]);
    let (part, _) = traced(&["--trace-from", "12.5ms", "--trace-for", "500us"]);
    assert!(part.len() < all.len() && !part.is_empty());
    assert!(part.iter().all(|nanos| (12_500_000..=13_000_000).contains(nanos)));
    // Without being told, it begins with what is measured: boot and set-up are none of it.
    let (own, _) = traced(&["--trace-for", "500us"]);
    let first = own.iter().copied().min().expect("events");
    assert!(first > 1_000_000 && own.iter().all(|nanos| *nanos <= first + 500_001), "from {first}");
    let (none, said) = traced(&["--trace-from", "900s"]);
    assert!(none.is_empty() && said.contains("before the trace began"), "{said}");
}

#[test]
fn a_trace_that_was_recorded_says_how_it_is_run() {
    let dir = here();
    if Command::new("valgrind").arg("--version").output().is_err() {
        return pageferry_untested::untested("trace record", "valgrind is not installed");
    }
    let recorded = pageferry(dir.path(), &["trace", "record", "--out", "true.pft", "--", "true"]);
    let said = text(&recorded.stderr);
    assert_eq!(recorded.status.code(), Some(0), "{said}");
    let run = "run it: pageferry run replay --machine today --kernel sf_buf --set trace=true.pft (it fits ";
    assert!(said.contains(run) && said.contains("opteron-mp, today"), "{said}");
    let run = ["run", "replay", "--set", "trace=true.pft", "--kernel", "sf_buf", "--machine"];
    done(dir.path(), &[&run[..], &["today"]].concat());
    let refused = pageferry(dir.path(), &[&run[..], &["xeon-mp"]].concat());
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("; it fits "), "{said}");
    assert!(said.contains("opteron-mp, today"), "{said}");
}

#[test]
fn the_accessed_bit_is_explained_under_both_rules() {
    let said = done(here().path(), &["explain", "accessed-bit"]);
    assert!(said.contains("under sf_buf-as-printed, and one under sf_buf\n"), "{said}");
    assert!(said.contains("what it read is page A") && said.contains("used a stale translation"), "{said}");
    assert!(said.contains("what it read is page C"), "{said}");
}

#[test]
fn blocks_and_refills_are_explained_side_by_side() {
    let dir = here();
    for (name, part) in [("bat", "a block of 32.0 MiB maps"), ("refill", "It misses itself")] {
        let told = done(dir.path(), &["explain", name]);
        assert!(told.contains("Runs on ppc603 and ppc604 under linux-ppc") && told.contains(part), "{told}");
        assert!(told.lines().all(|line| line.chars().count() <= 110), "{told}");
    }
    let json: Value =
        serde_json::from_str(&done(dir.path(), &["explain", "refill", "--json"])).expect("JSON");
    assert_eq!(json["table"]["rows"].as_array().map(Vec::len), Some(8));
}

#[test]
fn built_in_traces_are_shown() {
    let dir = here();
    let listed = done(dir.path(), &["trace", "show"]);
    assert!(listed.contains("names-cc1") && listed.contains("text-as"), "{listed}");
    let shown = done(dir.path(), &["trace", "show", "names-as"]);
    assert!(shown.contains("exit_group 1"), "{shown}");
    let shown: Value =
        serde_json::from_str(&done(dir.path(), &["trace", "show", "names-as", "--json"])).expect("JSON");
    assert_eq!(shown["architecture"], "ppc");
    assert!(shown["tlb_misses"]["603"][1].as_u64() > shown["tlb_misses"]["604"][1].as_u64());
}
