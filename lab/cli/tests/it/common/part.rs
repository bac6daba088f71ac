//! Parts of sweeps as somebody would forge them: changed, under a sum that is right.

use super::{pageferry, text};
use sha2::{Digest as _, Sha256};

/// The only part of a small sweep, with `settings` as on the command line.
pub fn planned(settings: &[String]) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let sweep = "sweep bw-pipe --quick --kernel original,sf_buf --plan parts --parts 1";
    let arguments: Vec<&str> = sweep.split(' ').chain(settings.iter().map(String::as_str)).collect();
    let output = pageferry(dir.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::read_to_string(dir.path().join("parts/part-1.toml")).expect("text")
}

/// `part`, all but its first line replaced by `body`, under a sum that is right.
pub fn sealed(part: &str, body: &[u8]) -> Vec<u8> {
    let (words, _) = part.lines().next().and_then(|first| first.rsplit_once(' ')).expect("a first line");
    let sum: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
    [words.as_bytes(), b" ", sum.as_bytes(), b"\n", body].concat()
}

/// What is below the first line.
pub fn body(part: &str) -> &str {
    part.split_once('\n').expect("lines").1
}

/// `body` with the lines of `before` that say how much is to be done: that is not what is tried.
pub fn as_small(body: &[u8], before: &str) -> Vec<u8> {
    let says = |line: &[u8]| [&b"repeat ="[..], b"set ="].iter().any(|key| line.starts_with(key));
    let mut kept = before.lines().map(str::as_bytes).filter(|line| says(line));
    let lines = body.split(|byte| *byte == b'\n');
    let lines: Vec<&[u8]> =
        lines.map(|line| if says(line) { kept.next().unwrap_or(line) } else { line }).collect();
    lines.join(&b'\n')
}
