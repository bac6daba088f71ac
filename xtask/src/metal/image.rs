//! The image, as cargo builds it: outside the workspace, quickly.

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

impl Image {
    /// Builds it with these features.
    pub(super) fn build(features: &[&str]) -> Result<Image, String> {
        let manifest = root().join("machines/metal/Cargo.toml");
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("machines/metal/target"), Into::into);
        // Images of other features lie beside each other, so that none is built twice.
        let target = if features.is_empty() { target } else { target.join(features.join("-")) };
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--profile", "metal", "--features", &features.join(",")]);
        cargo.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(&target);
        let built = cargo.status().map_err(|e| format!("cargo does not run: {e}"))?;
        if !built.success() {
            return Err("the image cannot be built".into());
        }
        Ok(Image { path: target.join("metal/pageferry-boot") })
    }
}
