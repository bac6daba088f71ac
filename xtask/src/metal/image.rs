//! The image and the programs in ring 3, as cargo builds them: outside the workspace, quickly.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An image that was built.
pub(super) struct Image {
    /// The ELF file.
    pub(super) path: PathBuf,
}

/// The root of the repository.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the repository")
}

/// Programs of ring 3, and their names in the archive.
const PROGRAMS: [&str; 4] = ["shell", "micro", "bad", "sound"];

/// Where cargo puts what is built here.
fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("machines/metal/target"), Into::into)
}

/// Builds what a manifest describes, outside the workspace.
fn build(manifest: &str, features: &[&str], target: &Path) -> Result<(), String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--profile", "metal", "--features", &features.join(",")]);
    cargo.arg("--manifest-path").arg(root().join(manifest)).arg("--target-dir").arg(target);
    let built = cargo.status().map_err(|e| format!("cargo does not run: {e}"))?;
    if built.success() { Ok(()) } else { Err(format!("{manifest} cannot be built")) }
}

impl Image {
    /// Builds it with these features.
    pub(super) fn build(features: &[&str]) -> Result<Image, String> {
        // Images of other features lie beside each other, so that none is built twice.
        let target = target_folder();
        let target = if features.is_empty() { target } else { target.join(features.join("-")) };
        build("machines/metal/Cargo.toml", features, &target)?;
        Ok(Image { path: target.join("metal/pageferry-boot") })
    }
}

/// The programs of ring 3, in an archive.
pub(super) struct Programs {
    /// The archive.
    pub(super) path: PathBuf,
}

impl Programs {
    /// Builds them, and puts them into an archive.
    pub(super) fn build() -> Result<Programs, String> {
        let target = target_folder().join("user");
        build("machines/user/Cargo.toml", &[], &target)?;
        let folder = target.join("metal");
        let path = folder.join("programs.tar");
        let packed = || -> std::io::Result<()> {
            let mut archive = tar::Builder::new(File::create(&path)?);
            for name in PROGRAMS {
                archive.append_path_with_name(folder.join(name), name)?;
            }
            archive.finish()
        };
        packed().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Programs { path })
    }
}
