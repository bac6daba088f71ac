//! The model's side of a comparison runs what it is told to, and all of it.
#![cfg(feature = "host")]

use std::process::Command;

/// Bytes that were looked at and found right when the model ran so many programs at random, from a number on.
fn right_bytes(first: u32, programs: u32) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_pageferry-verify"))
        .args(["record".as_ref(), folder.path().as_os_str(), "timed".as_ref()])
        .args(["experiment=random".to_owned(), format!("first={first}"), format!("programs={programs}")])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let words: Vec<&str> = said.split_whitespace().collect();
    let at = words
        .windows(2)
        .position(|pair| pair == ["bytes", "right,"])
        .expect("it says how many bytes were right");
    words[at - 1].parse().expect("a number")
}

/// Programs in one run look at as many bytes as each in a run of its own: none is left out, and none runs twice.
#[test]
fn as_many_programs_run_as_are_asked_for() {
    let alone: Vec<u64> = (3..6).map(|number| right_bytes(number, 1)).collect();
    assert!(alone.iter().all(|&bytes| bytes > 0) && alone[0] != alone[2], "{alone:?}");
    for programs in 1..=3 {
        assert_eq!(right_bytes(3, programs), alone[..programs as usize].iter().sum(), "{programs} programs");
    }
}
