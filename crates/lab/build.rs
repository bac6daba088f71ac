//! Embeds the data files of the repository (kernels, experiments, papers, scenarios), so that the command needs no
//! files beside it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let mut code = String::new();
    for folder in ["kernels", "experiments", "papers", "scenarios"] {
        table(&root, folder, &mut code);
    }
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("embedded.rs");
    fs::write(out, code).expect("the build directory can be written");
}

/// One static table of (name, text) for the TOML files of `folder`, sorted by name.
fn table(root: &Path, folder: &str, code: &mut String) {
    let dir = root.join(folder);
    println!("cargo:rerun-if-changed={}", dir.display());
    let mut files: Vec<PathBuf> = fs::read_dir(&dir)
        .map(|entries| entries.filter_map(|e| e.ok().map(|e| e.path())).collect())
        .unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    files.sort_by_key(|path| path.file_stem().map(|stem| stem.to_owned()));
    writeln!(code, "pub(super) static {}: &[(&str, &str)] = &[", folder.to_uppercase()).expect("a String");
    for path in files {
        let path = path.canonicalize().expect("it was just listed");
        println!("cargo:rerun-if-changed={}", path.display());
        let name = path.file_stem().and_then(|s| s.to_str()).expect("file names are UTF-8");
        writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string()).expect("a String");
    }
    code.push_str("];\n");
}
