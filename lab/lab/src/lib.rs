//! The laboratory: experiments on modelled machines, and what is made of their results.
//!
//! The rooms, from the ground up; each knows those before it:
//!
//! * [`files`]: machines, kernels, experiments and papers by name, what is in their files, and how settings change
//!   them.
//! * [`run`]: from experiments to runs, one run, and many runs on all cores; [`workload`]: what is done in a run.
//! * [`judge`]: results beside published numbers, by the rules of the experiments; from which size a mechanism pays.
//! * [`report`]: figures and the report, and files that are written whole or not at all.
//! * [`teach`]: small runs that are explained step by step, and scenarios.
//!
//! Everything of a run except [`run::Host`] is deterministic. Floats appear only behind the model, where integers are
//! turned into rates and ratios.
#![forbid(unsafe_code)]

pub mod files;
pub mod judge;
pub mod kit;
pub mod output;
pub mod plot;
pub mod record;
pub mod run;
pub mod workloads;

mod error;
pub mod input;
pub mod text;

pub use error::{Blame, LabError};
pub use pageferry_sourced::{Constant, SourceKind, nearest};
pub use run::Registry;

// What workloads outside of this crate are written with.
pub use {pageferry_hal as hal, pageferry_kernel as kernel, pageferry_model as model, pageferry_vm as vm};
