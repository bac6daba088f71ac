//! The workloads and experiments that the command knows: those that are built in, or those of another program.

use pageferry_lab::Registry;
use std::sync::OnceLock;

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Has the command know those of `registry`. Only the first counts.
pub(crate) fn set(registry: Registry) {
    let _ = REGISTRY.set(registry);
}

/// The workloads and experiments that there are.
pub(crate) fn registry() -> &'static Registry {
    REGISTRY.get_or_init(Registry::standard)
}
