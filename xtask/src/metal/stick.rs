//! A USB stick or a CD from which a PC boots the image, by GRUB. Made by `grub-mkrescue` (Debian's packages
//! `grub-common`, `grub-pc-bin`, `xorriso` and `mtools`).

use super::image::Image;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Whether there is what makes one.
pub(super) fn can_write() -> bool {
    let asked = Command::new("grub-mkrescue").arg("--version").output();
    asked.is_ok_and(|output| output.status.success())
}

/// Writes `to`, from which the image boots with this command line.
pub(super) fn write(image: &Image, line: &str, to: &Path) -> Result<(), String> {
    let folder = image.path.with_file_name("stick");
    let grub = folder.join("boot/grub");
    let failed = |e| format!("{}: {e}", grub.display());
    fs::create_dir_all(&grub).map_err(failed)?;
    fs::copy(&image.path, folder.join("boot/pageferry")).map_err(failed)?;
    let config = format!("set timeout=0\nmenuentry pageferry {{\n  multiboot2 /boot/pageferry {line}\n}}\n");
    fs::write(grub.join("grub.cfg"), config).map_err(failed)?;
    let made = Command::new("grub-mkrescue").arg("-o").arg(to).arg(&folder).output();
    let made = made.map_err(|e| format!("grub-mkrescue does not run: {e}"))?;
    if made.status.success() {
        return Ok(());
    }
    Err(format!(
        "{}: grub-mkrescue fails: {}",
        to.display(),
        String::from_utf8_lossy(&made.stderr).trim_end()
    ))
}
