//! The small programs that measure a kernel, in ring 3.
#![no_std]
#![no_main]

use pageferry_user::{main, say};

main!(run);

fn run(line: &str) -> u64 {
    say!("micro: {line}\n");
    0
}
