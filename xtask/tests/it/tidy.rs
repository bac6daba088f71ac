//! This repository.

use xtask::{Tree, check};

#[test]
fn the_source_is_tidy() {
    let faults: Vec<String> = check(&Tree::of_this_repository()).iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
