//! Links the programs without the host's start files and libraries, statically, as `link.ld` lays them out.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/link.ld");
    let layout = format!("-Wl,-T,{script}");
    for arg in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,--no-undefined",
        "-Wl,-z,max-page-size=4096",
        &layout,
    ] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={script}");
}
