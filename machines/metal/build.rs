//! Links without the host's start files and libraries, statically, as `link.ld` lays the image out: from the kernel's
//! base on, which the boundary crate says.

use pageferry_hal::isa::x86::AMD64_LAYOUT;

fn main() {
    let base = format!("-Wl,--defsym=kernel_base={:#x}", AMD64_LAYOUT.kernel_base.0);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/link.ld");
    let layout = format!("-Wl,-T,{script}");
    for arg in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,--no-undefined",
        &base,
        &layout,
    ] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={script}");
}
