//! `cargo run -p xtask -- tidy` and `-- figures`: see the library.

use std::process::ExitCode;
use xtask::{Tree, check, figures};

fn main() -> ExitCode {
    let tree = Tree::of_this_repository();
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => {
            let faults = check(&tree);
            for fault in &faults {
                println!("{fault}");
            }
            println!("{} files, {} faults", tree.files().len(), faults.len());
            if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some("figures") => {
            print!("{}", figures::of(&tree));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy | figures");
            ExitCode::from(2)
        }
    }
}
