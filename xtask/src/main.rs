//! `cargo run -p xtask -- tidy`, `figures`, `arrows PACKAGE` and `metal ...`: see the library.

use std::process::ExitCode;
use xtask::{Tree, check, circles, crates, figures, metal};

fn main() -> ExitCode {
    let tree = Tree::of_this_repository();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => {
            let faults = check(&tree);
            for fault in &faults {
                println!("{fault}");
            }
            println!("{} files, {} faults", tree.files().len(), faults.len());
            if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        ["figures"] => {
            print!("{}", figures::of(&tree));
            ExitCode::SUCCESS
        }
        // What each file of a package uses of the others: where a circle is to be cut.
        ["arrows", name] => {
            for package in crates::of(&tree).iter().filter(|package| package.name == name) {
                for (file, used) in circles::arrows(&tree, package) {
                    println!("{file}: {}", used.into_iter().collect::<Vec<_>>().join(" "));
                }
            }
            ExitCode::SUCCESS
        }
        ["metal", ref rest @ ..] => metal::run(rest),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy | figures | arrows PACKAGE | metal ...");
            eprintln!("       {}", metal::USAGE);
            ExitCode::from(2)
        }
    }
}
