//! `pageferry host`.

use crate::common::{pageferry, text};
use serde_json::Value;

#[test]
fn doctor_tells_a_line_an_item() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = pageferry(dir.path(), &["host", "doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let items: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
    assert!(items.len() > 20);
    for item in &items {
        let verdict = item["verdict"].as_str().expect("a word");
        assert!(["good", "hinders", "note"].contains(&verdict));
        assert!(verdict != "hinders" || item["change"].is_string(), "{item}");
    }
    let output = pageferry(dir.path(), &["host", "doctor"]);
    assert_eq!(output.status.code(), Some(0));
    let table = text(&output.stdout);
    for item in &items {
        let name = item["name"].as_str().expect("a word");
        assert!(table.lines().any(|line| line.starts_with(name)), "{name}");
    }
}
