//! Whatever is asked for wrongly: a message that helps, exit code 2, and nothing left behind.

use crate::common::{entries, pageferry, text};
use std::fs;
use std::path::Path;

/// Runs the command in an empty directory of its own; it must refuse. Returns what it says.
fn refused(arguments: &[&str]) -> String {
    refused_in(tempfile::tempdir().expect("a directory").path(), arguments)
}

fn refused_in(dir: &Path, arguments: &[&str]) -> String {
    let before = entries(dir);
    let output = pageferry(dir, arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
    assert!(said.starts_with("pageferry: ") || said.starts_with("error: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(entries(dir), before, "{arguments:?} left something behind");
    said
}

/// Writes `contents` to a file and runs `bw-pipe` with it as the machine or kernel.
fn with_file(option: &str, name: &str, contents: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join(name), contents).expect("written");
    let other = if option == "--machine" { ["--kernel", "sf_buf"] } else { ["--machine", "xeon-up"] };
    refused_in(dir.path(), &["run", "bw-pipe", "--quick", option, name, other[0], other[1]])
}

const RUN: [&str; 7] = ["run", "bw-pipe", "--quick", "--machine", "xeon-up", "--kernel", "sf_buf"];

fn with_setting(setting: &str) -> String {
    refused(&[&RUN[..], &["--set", setting]].concat())
}

#[test]
fn unknown_names_get_the_nearest() {
    let said = refused(&["run", "bw-pip", "--machine", "xeon-up", "--kernel", "sf_buf"]);
    assert!(said.contains("there is no experiment `bw-pip`; did you mean `bw-pipe`?"), "{said}");
    let said = refused(&["run", "bw-pipe", "--machine", "xeon-pu", "--kernel", "sf_buf"]);
    assert!(said.contains("there is no machine `xeon-pu`; did you mean `xeon-up`?"), "{said}");
    let said = refused(&["run", "bw-pipe", "--machine", "xeon-up", "--kernel", "sfbuf"]);
    assert!(said.contains("there is no kernel `sfbuf`; did you mean `sf_buf`?"), "{said}");
    let said = refused(&["machines", "sparc"]);
    assert!(said.contains("there are: 486, alpha-21264"), "{said}");
    let said = refused(&["kernels", "orignal"]);
    assert!(said.contains("did you mean `original`?"), "{said}");
    let said = refused(&["experiments", "invalidat"]);
    assert!(said.contains("did you mean `invalidate`?"), "{said}");
    let said = refused(&["reproduce", "--quick", "bw-pipe", "bwpipe"]);
    assert!(said.contains("did you mean `bw-pipe`?"), "{said}");
    let said = refused(&["pipe", "-o", "x", "--send", "laon"]);
    assert!(said.contains("'loan'"), "{said}");
    let said = refused(&["pipe", "-o", "x", "--receive", "transfr"]);
    assert!(said.contains("'transfer'"), "{said}");
    let said = refused(&["pipe", "-o", "x", "--kernel", "sf_buf", "--receive", "auto"]);
    assert!(said.contains("`sf_buf` are not sockets") && said.contains("`uvm`"), "{said}");
    let said = refused(&["pipe", "-o", "x", "--machine", "xeonmp"]);
    assert!(said.contains("did you mean `xeon-mp`?"), "{said}");
    let said = refused(&["reprodcue"]);
    assert!(said.contains("reproduce"), "{said}");
}

#[test]
fn unknown_keys_get_the_nearest() {
    let said = with_setting("total_byte=4096");
    assert!(said.contains("did you mean `total_bytes`?"), "{said}");
    let said = with_setting("machine.cpu.clok_mhz=3000");
    assert!(said.contains("did you mean `machine.cpu.clock_mhz`?"), "{said}");
    let said = with_setting("kernel.ephemeral.entires=6144");
    assert!(said.contains("did you mean `kernel.ephemeral.entries`?"), "{said}");
    let said = with_setting("entries=6144");
    assert!(said.contains("bw-pipe") && said.contains("total_bytes"), "{said}");
    let said = with_file("--machine", "m.toml", "extends = \"xeon-up\"\n[cpu]\nclok_mhz = 1\n");
    assert!(said.contains("m.toml:3:1: `cpu.clok_mhz`: unknown key"), "{said}");
    assert!(said.contains("did you mean `clock_mhz`?"), "{said}");
}

#[test]
fn bad_values_say_what_was_expected() {
    let said = with_setting("total_bytes=many");
    assert!(
        said.contains("--set total_bytes: `many`, expected a whole number of bytes, at least 1"),
        "{said}"
    );
    let said = with_setting("chunk_bytes=0");
    assert!(said.contains("at least 1"), "{said}");
    let said = with_setting("kernel.ephemeral.honour_private=maybe");
    assert!(said.contains("expected true or false"), "{said}");
    let said = with_setting("total_bytes");
    assert!(said.contains("expected key=value"), "{said}");
    let said = refused(&["pipe", "-o", "x", "--chunk", "0"]);
    assert!(said.contains("--chunk") && said.contains("at least 1 byte"), "{said}");
    let said = refused(&["pipe", "-o", "x", "--set", "total_bytes=1"]);
    assert!(said.contains("expected machine.KEY or kernel.KEY"), "{said}");
}

#[test]
fn broken_files_are_told_with_file_line_and_what_was_expected() {
    let said = with_file("--machine", "m.toml", "extends = \"xeon-up\"\n[cpu]\nclock_mhz = {\n");
    assert!(said.contains("m.toml:3"), "{said}");
    let said = with_file("--machine", "m.toml", "extends = \"xeon-up\"\n[cpu]\nclock_mhz = \"fast\"\n");
    assert!(
        said.contains("m.toml:3:13: `cpu.clock_mhz`:") && said.contains("or { value = ..., source ="),
        "{said}"
    );
    let said = with_file("--machine", "m.toml", "extend = \"xeon-up\"\n");
    assert!(said.contains("sources, extends") && said.contains("did you mean `extends`?"), "{said}");
    let said = with_file("--kernel", "k.toml", "extends = \"sf_buf\"\ntitel = \"mine\"\n");
    assert!(said.contains(", extends;"), "{said}");
    let said = with_file("--machine", "m.toml", "extends = \"xeno\"\n");
    assert!(said.contains("m.toml:1:11: `extends`: there is no machine `xeno` to extend"), "{said}");
    let said = with_file("--machine", "m.toml", "extends = \"xeon-upp\"\n");
    assert!(said.contains("`xeon-upp` to extend; did you mean `xeon-up`?"), "{said}");
    let said = with_file("--kernel", "k.toml", "extends = \"orignal\"\n");
    assert!(said.contains("`orignal` to extend; did you mean `original`?"), "{said}");
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("e.toml"), "extends = \"bw-pip\"\n").expect("written");
    let said = refused_in(dir.path(), &["run", "e.toml"]);
    assert!(said.contains("e.toml:1:11: `extends`: there is no experiment `bw-pip` to extend"), "{said}");
    std::fs::write(dir.path().join("e.toml"), "extends = \"bw-pipe\"\npaper = \"uvmm\"\ncompare = []\n")
        .expect("written");
    let said = refused_in(dir.path(), &["reproduce", "--quick", "e.toml"]);
    assert!(
        said.contains("e.toml:2:9: `paper`: there is no paper `uvmm`, expected one of page-flip"),
        "{said}"
    );
    assert!(said.contains("did you mean `uvm`?") && !said.contains("1 of "), "before any run: {said}");
    let said = with_file("--kernel", "k.toml", "title = \"mine\"\n");
    assert!(said.contains("k.toml") && said.contains("missing key"), "{said}");
    let kind =
        "extends = \"sf_buf\"\n[ephemeral]\nentries = { value = 9, source = \"me\", kind = \"guess\" }\n";
    let said = with_file("--kernel", "k.toml", kind);
    assert!(
        said.contains("k.toml:3") && said.contains("unknown word `guess`, expected one of: paper"),
        "{said}"
    );
    let said = refused(&["run", "bw-pipe", "--machine", "nowhere.toml", "--kernel", "sf_buf"]);
    assert!(said.contains("cannot read nowhere.toml: No such file"), "{said}");
}

#[test]
fn rules_that_cannot_be_judged_are_told_with_file_line_and_key() {
    let said = |old: &str, new: &str| {
        let text = include_str!("../../../lab/experiments/null-read.toml");
        assert!(text.contains(old), "{old}");
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("mine.toml"), text.replacen(old, new, 1)).expect("written");
        refused_in(dir.path(), &["reproduce", "--quick", "mine.toml"])
    };
    let line = |key: &str| {
        let text = include_str!("../../../lab/experiments/null-read.toml");
        1 + text.lines().position(|line| line.starts_with(key)).expect("there")
    };
    let along = "along = { key = \"size_bytes\", values = [8192, 16384, 32768, 65536] }";
    let place = |key: &str, column: usize| format!("mine.toml:{}:{column}: ", line(key));
    let told = said(along, "along = { key = \"size_bytes\", values = [8192, 9000] }");
    assert!(told.contains(&place(along, 9)), "{told}");
    assert!(
        told.contains("`compare[5].along`: 0 runs of the matrix, expected one: on pentium-pro"),
        "{told}"
    );
    assert!(told.contains("size_bytes=9000"), "{told}");
    let told = said(along, "along = { key = \"size_bytes\", values = [8192] }");
    assert!(told.contains("`flat` needs at least 2 values, there are 1"), "{told}");
    let told = said("how = \"flat\"", "how = \"level\"");
    assert!(told.contains("mine.toml:") && told.contains("unknown word `level`"), "{told}");
    let told = said("uvm-read-transfer-rises", "uvm-read-transfer-rise");
    assert!(told.contains("UVM paper has no `uvm-read-transfer-rise`; did you mean"), "{told}");
    let told = said("other_set =", "other =");
    assert!(told.contains("unknown key `other`") && told.contains("other_set"), "{told}");
}

#[test]
fn numbers_that_no_machine_could_have_are_told_with_their_bounds() {
    for (key, text) in [
        ("cpu]\nload_root_cycles", "9223372036854775808"),
        ("cpu]\nclock_mhz", "18446744073709551616"),
        ("cpu]\nclock_mhz", "-1"),
        ("memory]\nsize_mb", "0xffff_ffff_ffff_ffff"),
    ] {
        let file = format!(
            "extends = \"xeon-up\"\n[{key} = {{ value = {text}, source = \"me\", kind = \"assumed\" }}\n"
        );
        let said = with_file("--machine", "m.toml", &file);
        let key = key.replace("]\n", ".");
        assert!(said.contains("m.toml:3:") && said.contains(&format!("`{key}`: ")), "{said}");
        assert!(said.contains(", expected 0 to 1000000") || said.contains(", expected 1 to "), "{said}");
    }
    let file = "extends = \"sf_buf\"\n\
                [paths.vm]\n\
                fault = { value = 5_000_000_000, source = \"me\", kind = \"assumed\" }\n";
    let said = with_file("--kernel", "k.toml", file);
    assert!(said.contains("k.toml:3:9: `paths.vm.fault`: 5000000000, expected 0 to 1000000"), "{said}");
    let long = "9".repeat(50);
    for (setting, bound) in [
        (format!("machine.cpu.load_root_cycles={long}"), "expected 0 to 1000000"),
        ("machine.cache.L2.ways=17".into(), "17, expected 1 to 16"),
        (format!("kernel.sched.hz={}", u64::MAX), "expected 1 to 100000"),
        (format!("chunk_bytes={long}"), "at most 4294967296"),
        ("total_bytes=1099511627777".into(), "at most 1099511627776"),
    ] {
        let said = with_setting(&setting);
        assert!(said.contains(setting.split('=').next().expect("a key")) && said.contains(bound), "{said}");
    }
}

#[test]
fn a_clock_that_leaves_no_time_is_refused() {
    let settings = ["--set", "machine.cpu.clock_mhz=1", "--set", "kernel.sched.hz=100000"];
    let said = refused(&[&RUN[..], &settings].concat());
    assert!(said.contains("100000 clock interrupts a second are one every 10 cycles"), "{said}");
}

#[test]
fn an_experiment_has_what_its_workload_reads_and_no_more() {
    let said = |old: &str, new: &str| {
        let text = include_str!("../../../lab/experiments/cost-growth.toml");
        assert!(text.contains(old), "{old}");
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("mine.toml"), text.replacen(old, new, 1)).expect("written");
        refused_in(dir.path(), &["run", "mine.toml", "--quick"])
    };
    let told = said("[parameters.times]", "[parameters.time]");
    assert!(told.contains("`parameters.time`: the workload reads no such thing, only n, times"), "{told}");
    assert!(told.contains("did you mean `times`?"), "{told}");
    let told = said("[choices.of]", "[choices.fo]");
    assert!(told.contains("`choices.fo`: ") && told.contains("did you mean `of`?"), "{told}");
    // Where nothing is there in its place, it is missing.
    let cut = include_str!("../../../lab/experiments/cost-growth.toml");
    let (from, to) =
        (cut.find("[parameters.times]").expect("there"), cut.find("[choices.of]").expect("there"));
    let told = said(&cut[from..to], "");
    assert!(told.contains("`parameters`: `times` is missing, which the workload reads"), "{told}");
    let told = said("\"lookup\"", "\"look\"");
    assert!(told.contains("`choices.of.allowed`: `look`, expected some of: loan"), "{told}");
    let told = said("min = 1", "min = 0");
    assert!(told.contains("min`: 0, expected 1 to"), "{told}");
    let told = said("order = ", "order = -");
    assert!(told.contains("`order`: -") && told.contains("expected 0 to 1000000"), "{told}");
    for repeat in ["0", "10001", "4000000000", "-1"] {
        let told = said("order = ", &format!("repeat = {repeat}\norder = "));
        assert!(told.contains(&format!("`repeat`: {repeat}, expected 1 to 10000")), "{told}");
    }
}

/// Plans are counted before they are made: a host's memory is not for trying.
#[test]
fn more_runs_than_anyone_waits_for_and_seeds_that_are_not_there_are_refused() {
    let said = refused(&["reproduce", "--quick", "--repeat", "10000"]);
    assert!(said.contains("runs, expected at most 100000"), "{said}");
    let last = u64::MAX.to_string();
    for command in [&["run"][..], &["sweep"], &["reproduce", "--quick"]] {
        let said = refused(&[command, &["bw-pipe", "--seed", &last, "--repeat", "2"]].concat());
        assert!(said.contains(&format!("--seed {last}: the last of 2 seeds is above {last}")), "{said}");
    }
}

#[test]
fn a_cache_of_zero_entries_is_refused() {
    let said = with_setting("kernel.ephemeral.entries=0");
    assert!(said.contains("kernel.ephemeral.entries: 0, expected at least 1"), "{said}");
    let file =
        "extends = \"sf_buf\"\n\n[ephemeral]\nentries = { value = 0, source = \"me\", kind = \"assumed\" }\n";
    let said = with_file("--kernel", "k.toml", file);
    assert!(said.contains("k.toml:4:11: `ephemeral.entries`: 0, expected at least 1"), "{said}");
}

#[test]
fn more_cpus_than_a_set_can_hold_are_refused() {
    let said = with_setting("machine.cpu.packages=65");
    assert!(said.contains("machine.cpu.packages: 65, expected 1 to 64"), "{said}");
    let file =
        "extends = \"xeon-htt\"\n[cpu]\npackages = { value = 40, source = \"me\", kind = \"assumed\" }\n";
    let said = with_file("--machine", "m.toml", file);
    assert!(said.contains("80 CPUs in all, expected at most 64"), "{said}");
}

#[test]
fn more_memory_than_there_is_is_refused() {
    let said = with_setting("machine.memory.size_mb=8192");
    assert!(said.contains("8192 MiB, expected 1 to 4096"), "{said}");
    let said = with_setting("machine.memory.size_mb=2");
    assert!(said.contains("xeon-up under sf_buf: the machine has 512 frames, the kernel needs"), "{said}");
    let said = with_setting("chunk_bytes=4000000000");
    assert!(said.contains("xeon-up under sf_buf: buffers of") && said.contains("do not fit"), "{said}");
    let said = with_setting("kernel.ephemeral.entries=4000000");
    assert!(said.contains("xeon-up under sf_buf: "), "{said}");
}

#[test]
fn outputs_that_cannot_be_written_are_told_before_the_work() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("file"), "precious").expect("written");
    let said = refused_in(dir.path(), &["reproduce", "--quick", "--out", "file"]);
    assert!(said.contains("cannot write file: it is a file, expected a directory"), "{said}");
    let said = refused_in(dir.path(), &["reproduce", "--quick", "--out", "file/below"]);
    assert!(said.contains("cannot write file/below: Not a directory"), "{said}");
    for out in [".", "/"] {
        let said = refused_in(dir.path(), &["reproduce", "--quick", "--out", out]);
        assert!(said.contains("it is not empty, and its files are not results of pageferry; name"), "{said}");
    }
    for missing in ["no/such/file", &format!("file/{}", "x".repeat(300))] {
        let said = refused_in(dir.path(), &["run", "invalidate", "--quick", "--trace", missing]);
        assert!(said.starts_with(&format!("pageferry: cannot write {missing}: ")), "{said}");
        let said = refused_in(dir.path(), &["soak", "--keep", missing]);
        assert!(said.starts_with(&format!("pageferry: cannot write {missing}: ")), "{said}");
    }
    let said = refused_in(dir.path(), &["pipe", "file", "-o", "no/such/file"]);
    assert!(said.contains("cannot write no/such/file"), "{said}");
    let said = refused_in(dir.path(), &["pipe", "file", "-o", "."]);
    assert!(said.contains("cannot write .: it is a directory"), "{said}");
    assert_eq!(fs::read_to_string(dir.path().join("file")).expect("readable"), "precious");
}

#[test]
fn times_of_a_trace_are_refused_before_the_run() {
    let dir = tempfile::tempdir().expect("a directory");
    for time in ["2", "ms", "-1ms", "2 minutes", "1e3ms", "0x2s", "infs", "1.2.3us", ""] {
        for option in ["--trace-from", "--trace-for"] {
            let option = format!("{option}={time}");
            let said = refused_in(dir.path(), &["run", "invalidate", "--trace", "t.json", &option]);
            let expected = "expected a time such as 2ms, 500us, 1.5s or 100ns";
            assert!(said.contains(expected) && said.contains(&option[..11]), "{said}");
        }
    }
    let said = refused_in(dir.path(), &["run", "invalidate", "--trace", "t.json", "--trace-for", "0ms"]);
    assert!(said.contains("expected more than no time"), "{said}");
    let said = refused_in(dir.path(), &["run", "invalidate", "--trace", "t.json", "--trace-from", "9e9s"]);
    assert!(said.contains("expected a time"), "{said}");
    let said =
        refused_in(dir.path(), &["run", "invalidate", "--trace", "t.json", "--trace-from", "9999999s"]);
    assert!(said.contains("expected at most 1000000s"), "{said}");
    let said = refused_in(dir.path(), &["run", "invalidate", "--trace-from", "2ms"]);
    assert!(said.contains("--trace <FILE>"), "{said}");
    assert!(!dir.path().join("t.json").exists(), "nothing was run");
}

#[test]
fn more_threads_than_any_host_has_are_refused() {
    for jobs in ["1025", "100000", "18446744073709551615", "-1"] {
        let jobs = format!("--jobs={jobs}");
        for command in [&["reproduce", "--quick", "invalidate"][..], &["soak", "--steps", "1"][..]] {
            let said = refused(&[command, &[&jobs]].concat());
            assert!(said.contains("expected 0 to 1024"), "{said}");
        }
    }
    let said = refused(&["soak", "--minutes", "18446744073709551615"]);
    assert!(said.contains("expected 1 to 527040"), "{said}");
    let said = refused(&["soak", "--steps", "0"]);
    assert!(said.contains("expected 1 to 1000000000000"), "{said}");
    let said = refused(&["scenarios", "--seeds", "99999999999999"]);
    assert!(said.contains("expected 0 to 1000000"), "{said}");
}

/// A device that never ends is not read until memory is full, and a file whose name has another ending is not taken for
/// a name.
#[test]
fn what_is_no_file_of_its_kind_is_told_as_that() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |arguments: &[&str]| refused_in(dir.path(), arguments);
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("zero.toml")).unwrap();
    for arguments in
        [&["machines", "zero.toml"][..], &["scenarios", "zero.toml"], &["soak", "--replay", "/dev/zero"]]
    {
        let told = refused(arguments);
        assert!(told.contains("more than 16.0 MiB, expected at most 16.0 MiB"), "{arguments:?}: {told}");
    }
    let told = refused(&["disk", "check", "/dev/zero"]);
    assert!(told.contains("/dev/zero: a device or a pipe, expected a file with an image"), "{told}");
    std::fs::write(dir.path().join("mine"), "extends = \"xeon-up\"\n").unwrap();
    for (arguments, word) in [
        (&["run", "bw-pipe", "--machine", "mine"][..], "machine"),
        (&["run", "bw-pipe", "--kernel", "./mine"], "kernel"),
        (&["experiments", "mine"], "experiment"),
    ] {
        let told = refused(arguments);
        assert!(
            told.contains(&format!("mine: a file that describes a {word} has a name that ends in `.toml`")),
            "{told}"
        );
    }
    let told = refused(&["soak", "--replay", "mine"]);
    assert!(told.contains("mine: not a program that `pageferry soak` has kept"), "{told}");
    std::fs::write(dir.path().join("bytes.toml"), b"ab\xff").unwrap();
    assert!(refused(&["kernels", "bytes.toml"]).contains("bytes.toml: not text: byte 2 is no UTF-8"));
}

/// Nobody is told to come to a server that will not be there.
#[test]
fn a_server_that_cannot_be_says_only_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |arguments: &[&str]| refused_in(dir.path(), arguments);
    std::fs::write(dir.path().join("file"), "x").unwrap();
    std::fs::create_dir(dir.path().join("site")).unwrap();
    for arguments in [
        &["serve", "nothing", "--port", "0"][..],
        &["serve", "file", "--port", "0"],
        &["serve", "site", "--port", "0", "--machine", "pentium"],
        &["serve", "site", "--port", "0", "--uploads", "file"],
        &["serve", "site", "--port", "0", "--pcap", "site"],
    ] {
        let told = refused(arguments);
        assert!(!told.contains("http://"), "{arguments:?}: {told}");
    }
}

#[test]
fn a_full_device_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("in"), vec![1; 300_000]).expect("written");
    let said = refused_in(dir.path(), &["pipe", "in", "-o", "/dev/full"]);
    assert!(said.contains("cannot write /dev/full: No space left on device"), "{said}");
}

#[test]
fn inputs_that_cannot_be_read_leave_the_old_output() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("out"), "old").expect("written");
    let said = refused_in(dir.path(), &["pipe", "missing", "-o", "out"]);
    assert!(said.contains("cannot read missing: No such file"), "{said}");
    let said = refused_in(dir.path(), &["pipe", ".", "-o", "out"]);
    assert!(said.contains("cannot read .: it is a directory"), "{said}");
    // Readable by nobody after it is open: the memory of a process, from address 0.
    let said = refused_in(dir.path(), &["pipe", "/proc/self/mem", "-o", "out"]);
    assert!(said.contains("cannot read /proc/self/mem: "), "{said}");
    assert_eq!(fs::read_to_string(dir.path().join("out")).expect("readable"), "old");
}

#[test]
fn traces_that_cannot_be_shown_or_recorded() {
    let said = refused(&["trace", "show", "names-cc"]);
    assert!(said.contains("there is no trace `names-cc`; did you mean `names-cc1`?"), "{said}");
    let said = refused(&["trace", "show", "none.pft"]);
    assert!(said.contains("cannot read none.pft"), "{said}");
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("text.pft"), "not one\n").expect("written");
    let said = refused_in(dir.path(), &["trace", "show", "text.pft"]);
    assert!(said.contains("text.pft: byte 0: not a trace"), "{said}");
    let said = refused(&["trace", "record", "--arch", "pcc", "--", "true"]);
    assert!(said.contains("'ppc'"), "{said}");
    let said = refused(&["trace", "record", "--env", "HOME", "--", "true"]);
    assert!(said.contains("expected NAME=VALUE"), "{said}");
    let said = refused(&["trace", "record", "--", "no-such-program"]);
    assert!(said.contains("there is no program `no-such-program` in the folders of PATH"), "{said}");
    let said = refused(&["trace", "record", "--out", "no-such-folder/x.pft", "--", "true"]);
    assert!(said.contains("no-such-folder/x.pft"), "{said}");
}

#[test]
fn damaged_traces_are_not_replayed() {
    let dir = tempfile::tempdir().expect("a directory");
    let whole = pageferry_trace::bundled().iter().find(|t| t.name == "runq-as").expect("it is there").bytes;
    let replay = |bytes: &[u8]| {
        fs::write(dir.path().join("x.pft"), bytes).expect("written");
        let arguments =
            ["run", "replay", "--machine", "ppc603", "--kernel", "linux-ppc", "--set", "trace=x.pft"];
        let said = refused_in(dir.path(), &arguments);
        assert!(said.contains("x.pft: "), "{said}");
        said
    };
    let changed = |at: usize, to: u8| {
        let mut bytes = whole.to_vec();
        bytes[at] = to;
        bytes
    };
    assert!(replay(&[]).contains("byte 0: not a trace"), "empty");
    assert!(replay(b"#!/bin/sh\nexit 0\n").contains("byte 0: not a trace"), "text");
    assert!(replay(&changed(8, 9)).contains("a trace of version 9, expected version"), "another version");
    let half = whole.len() / 2;
    assert!(replay(&whole[..half]).contains("the trace ends, expected"), "cut off");
    let said = replay(&changed(half, !whole[half]));
    assert!(said.contains("has the checksum") && said.contains("expected"), "{said}");
    let mut longer = whole.to_vec();
    longer.push(0);
    let said = replay(&longer);
    assert!(said.contains("expected"), "{said}");
}

#[test]
fn what_is_recorded_must_fit_the_machine() {
    let mut bytes = Vec::new();
    let header = pageferry_trace::Header {
        architecture: "x86_64".to_owned(),
        rules: pageferry_trace::Rules::STANDARD,
        recorder: "a test".to_owned(),
        command: vec!["far".to_owned()],
    };
    let mut recorder = pageferry_trace::Recorder::new(&mut bytes, &header).expect("written");
    recorder.fetch(0x7fff_f7fe_0000, 4).and_then(|()| recorder.load(0x1000, 4)).expect("written");
    recorder.finish().expect("written");
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("far.pft"), bytes).expect("written");
    let arguments =
        ["run", "replay", "--machine", "ppc603", "--kernel", "linux-ppc", "--set", "trace=far.pft"];
    let said = refused_in(dir.path(), &arguments);
    assert!(said.contains("far.pft: ") || said.contains("far: "), "{said}");
    assert!(said.contains("expected addresses from"), "{said}");
}

#[test]
fn a_read_of_more_pages_than_the_kernel_has_clusters_is_refused() {
    for experiment in ["transfer-area", "push-down"] {
        let set = "kernel.socket.clusters=1";
        let said = refused(&["run", experiment, "--quick", "--set", "size_bytes=8192", "--set", set]);
        assert!(
            said.contains("socket.clusters = 1: expected at least 2, as many as a read brings"),
            "{said}"
        );
    }
    let said = refused(&["run", "null-read", "--quick", "--set", "kernel.socket.clusters=0"]);
    assert!(said.contains("socket.clusters = 0: expected at least 1"), "{said}");
    // What is written goes by small mbufs where there are no clusters.
    let dir = tempfile::tempdir().expect("a directory");
    let output =
        pageferry(dir.path(), &["run", "null-write", "--quick", "--set", "kernel.socket.clusters=0"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_packet_is_waited_for_however_long_a_drivers_path_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = "extends = \"original\"\n[net.paths]\ndriver_output = 1000000\n";
    fs::write(dir.path().join("slow.toml"), path).expect("written");
    let run =
        ["run", "packet", "--quick", "--kernel", "slow.toml", "--set", "packets=2", "--set", "warmup=1"];
    let output = pageferry(dir.path(), &run);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
