//! The laboratory: experiments on modelled machines, and what is made of their results.
//!
//! The rooms, from the ground up; each knows those before it:
//!
//! * [`files`]: machines, kernels, experiments and papers by name, what is in their files, and how settings change
//!   them; the parameters of a workload, as types.
//! * [`record`]: what a run gives, and the dictionary of its metrics. [`plot`]: figures as data.
//! * [`judge`]: results beside published numbers, by the rules of the experiments; from which size a mechanism pays.
//! * [`kit`]: what workloads are written with.
//! * [`run`]: what a workload is, and the registry of them; from experiments to runs, one run, many runs on all cores.
//! * [`sensitivity`]: how far results hang on single constants.
//! * [`workloads`]: those of the experiments that are built in.
//!
//! Beside them, [`output`] has files that are written whole or not at all. Reports, explanations and the web server are
//! crates above this one.
//!
//! Everything of a run except [`record::Host`] is deterministic. Floats appear only behind the model, where integers
//! are turned into rates and ratios.
#![forbid(unsafe_code)]

pub mod files;
pub mod judge;
pub mod kit;
pub mod output;
pub mod plot;
pub mod record;
pub mod run;
pub mod sensitivity;
pub mod workloads;

mod error;
pub mod input;
pub mod text;

mod spread;

pub use error::{Blame, LabError};
pub use pageferry_sourced::{Constant, SourceKind, load_toml, nearest, to_toml};
pub use run::Registry;
pub use spread::Spread;

// What workloads outside of this crate are written with.
pub use {pageferry_hal as hal, pageferry_kernel as kernel, pageferry_model as model, pageferry_vm as vm};
