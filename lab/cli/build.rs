//! The version that the command tells: that of the package, and the commit where there is one.
//!
//! Git is asked only where the workspace itself is a checkout: a package that is unpacked within another checkout must
//! not name a commit of that. Where git is not there, or does not answer, the version stands alone; nothing fails.
//! Cargo asks again when the commit that is checked out changes, which the log of HEAD tells, and not at each build.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let commit = if root.join(".git").exists() { commit(&root) } else { None };
    let told = commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo:rustc-env=PAGEFERRY_VERSION={told}");
}

/// The commit that is checked out at `root`.
fn commit(root: &Path) -> Option<String> {
    for log in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(root, &["rev-parse", "--git-path", log])?);
        // Of a file that is not there, cargo would ask at each build.
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let told = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !told.is_empty()).then_some(told)
}
