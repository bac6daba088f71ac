//! Embeds the data files of this crate (kernels, experiments, papers), so that the command needs no files
//! beside it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut code = String::new();
    for folder in ["kernels", "experiments", "papers"] {
        if let Err(problem) = table(&root, folder, &mut code) {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    }
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("embedded.rs");
    fs::write(out, code).expect("the build directory can be written");
    ExitCode::SUCCESS
}

/// One static table of (name, text) for the TOML files of `folder`, sorted by name.
///
/// # Errors
/// When there is no such folder, or none in it: a crate without them would build, and know nothing.
pub(crate) fn table(root: &Path, folder: &str, code: &mut String) -> Result<(), String> {
    let dir = root.join(folder);
    println!("cargo:rerun-if-changed={}", dir.display());
    let entries = fs::read_dir(&dir).map_err(|e| format!("cannot read {}: {e}", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.map_err(|e| format!("cannot read {}: {e}", dir.display()))?.path());
    }
    files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    files.sort_by_key(|path| path.file_stem().map(|stem| stem.to_owned()));
    if files.is_empty() {
        return Err(format!("{}: expected {folder} as .toml files, found none", dir.display()));
    }
    writeln!(code, "pub(super) static {}: &[(&str, &str)] = &[", folder.to_uppercase()).expect("a String");
    for path in files {
        println!("cargo:rerun-if-changed={}", path.display());
        let name = path.file_stem().and_then(|s| s.to_str()).expect("file names are UTF-8");
        writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string()).expect("a String");
    }
    code.push_str("];\n");
    Ok(())
}
