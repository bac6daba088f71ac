//! `pageferry replay`: what it prints of a recording, and what it says of files that are none.

use crate::common::{pageferry, text};
use std::fs;
use std::path::Path;

const RECORDING: &str = "9 open(\"/f\", O_RDONLY) = 3\n\
                         9 read(3, \"\"..., 4096) = 4096 <0.000007>\n\
                         9 read(3, \"\"..., 4096) = 904 <0.000003>\n\
                         9 socket(AF_UNIX, SOCK_STREAM, 0) = 4\n\
                         9 noise\n\
                         9 stat(\"/f\", {st_mode=S_IFREG|0644, st_size=4999, ...}) = 0\n\
                         9 +++ exited with 0 +++\n";

fn run(dir: &Path, arguments: &[&str], code: i32) -> (String, String) {
    let output = pageferry(dir, arguments);
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}{complained}");
    (said, complained)
}

#[test]
fn a_recording_is_run_again_and_told_of() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::write(at.join("a.strace"), RECORDING).unwrap();
    let (said, _) = run(at, &["replay", "a.strace", "--machine", "xeon-up", "--kernel", "original"], 0);
    for expected in [
        "replay  4 calls of a.strace on",
        "1 process; 1 file and 0 directories were there",
        "read      2  5,000",
        "10.00 µs",
        "cycles, all CPUs",
        "not modelled",
        "socket            1",
        "1 line left out that strace did not write; the first is line 5: expected a call such as",
        "1 call answered otherwise than was recorded:\n  line 6, stat: its length: 4999 recorded, 5000 here",
        "laws hold; every answer and every byte is the plain model's.",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let (json, _) = run(at, &["replay", "a.strace", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["machine"], &json["kernel"]), (&"xeon-mp".into(), &"sf_buf".into()));
    assert_eq!((&json["calls"]["read"]["bytes"], &json["not_modelled"]["socket"]), (&5000.into(), &1.into()));
}

#[test]
fn what_is_no_recording_is_named_and_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path();
    fs::write(at.join("a.strace"), RECORDING).unwrap();
    fs::write(at.join("a.json"), "{\"ops\": []}").unwrap();
    fs::write(at.join("a.pft"), pageferry_trace::bundled()[0].bytes).unwrap();
    fs::write(at.join("a.txt"), "a few words\nof no use\n").unwrap();
    for (arguments, expected) in [
        (
            &["replay", "a.json"][..],
            "a.json: JSON, expected what strace writes; a program of `soak` is run by",
        ),
        (
            &["replay", "a.pft"],
            "a.pft: a trace of references, expected what strace writes; `pageferry trace show`",
        ),
        (&["replay", "a.txt"], "a.txt: not what strace writes: line 1: expected a call such as"),
        (&["replay", "missing"], "missing"),
        (&["replay", "a.strace", "--files", "nowhere"], "nowhere: expected a directory"),
        (&["replay", "a.strace", "--machine", "xeon-mpp"], "xeon-mp"),
        (&["replay", "a.strace", "--set", "size_bytes=1"], "expected machine.KEY or kernel.KEY"),
    ] {
        let (_, complained) = run(at, arguments, 2);
        assert!(complained.contains(expected), "{complained}");
    }
}
