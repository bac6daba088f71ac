//! The traces that come with the crate. `record/compile.sh` makes them; the README says of what. Constants: nothing
//! fails.

/// A trace and its name.
#[derive(Clone, Copy, Debug)]
pub struct BundledTrace {
    /// The name: source and program.
    pub name: &'static str,
    /// The trace's bytes.
    pub bytes: &'static [u8],
}

macro_rules! bundled {
    ($($name:literal),*) => {
        &[$(BundledTrace { name: $name, bytes: include_bytes!(concat!("../data/", $name, ".pft")) }),*]
    };
}

/// All of them, in the order in which a build would run them.
pub fn bundled() -> &'static [BundledTrace] {
    bundled!(
        "names-cpp",
        "names-cc1",
        "names-as",
        "runq-cc1",
        "runq-as",
        "text-cc1",
        "text-as",
        "build-make",
        "build-gcc",
        "build-sh",
        "getversion-cpp",
        "getversion-cc1",
        "getversion-as",
        "pe-cpp",
        "pe-cc1",
        "pe-as",
        "percent-cpp",
        "percent-cc1",
        "percent-as",
        "build-ld"
    )
}
