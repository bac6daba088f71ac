//! The build script, which embeds the data files: without them there is no build.

#[allow(dead_code, unreachable_pub, reason = "its main is for the build")]
#[path = "../../build.rs"]
mod build;

use std::fs;

#[test]
fn a_crate_without_its_data_files_does_not_build() {
    let dir = tempfile::tempdir().expect("a directory");
    let table = || build::table(dir.path(), "kernels", &mut String::new());
    let said = table().expect_err("there is no folder");
    assert!(said.starts_with("cannot read ") && said.contains("kernels"), "{said}");
    fs::create_dir(dir.path().join("kernels")).expect("made");
    fs::write(dir.path().join("kernels/notes.md"), "").expect("written");
    let said = table().expect_err("there is no file");
    assert!(said.contains("expected kernels as .toml files, found none"), "{said}");
    fs::write(dir.path().join("kernels/a.toml"), "").expect("written");
    assert_eq!(table(), Ok(()));
}
