//! The runs that an experiment asks for.

use pageferry_lab::files::Setting;
use pageferry_lab::run::{Choices, Registry, RunSpec, matrix};
use std::sync::Arc;

fn plan(name: &str) -> Vec<RunSpec> {
    let registry = Registry::standard();
    matrix(&registry, &Arc::new(registry.experiment(name).expect("embedded")), Choices::default())
        .expect("good")
}

#[test]
fn matrices_are_expanded_in_order() {
    let runs = plan("bw-pipe");
    assert_eq!(runs[0].title(), "bw-pipe on xeon-up under original");
    assert_eq!(runs[14].title(), "bw-pipe on opteron-mp under sf_buf-shared");
    assert_eq!(plan("invalidate").len(), 20);
}

#[test]
fn varied_settings_show_in_titles_and_records() {
    let runs = plan("ephemeral-hit");
    assert_eq!(runs[0].title(), "ephemeral-hit on xeon-up under sf_buf, entries 1024");
    assert_eq!(runs[0].settings()["kernel.ephemeral.entries"], Setting::Integer(1024));
    assert_eq!(runs[0].kernel.file.ephemeral.entries.value, 1024);
}
