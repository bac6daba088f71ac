//! The laboratory: experiments on modelled machines, and what is made of their results.
//!
//! * [`registry`]: machines, kernels, experiments and papers by name; [`machines`], [`kernels`], [`experiments`] and
//!   [`papers`] say what is in their files, [`settings`] changes them.
//! * [`plan`]: from experiments to runs; [`run`]: one run, the only place (with [`workload`]) that knows the model and
//!   the kernel; [`execute`]: many runs on all cores.
//! * [`explain`]: small runs that are told step by step.
//! * [`result`]: what a run gives; [`compare`]: results beside published numbers, by the [`rules`] of the experiment;
//!   [`output`]: files, written whole or not at all; [`report`]: figures and the report.
//!
//! Everything of a run except [`result::Host`] is deterministic. Floats appear only behind the model, where integers
//! are turned into rates and ratios.
#![forbid(unsafe_code)]

pub mod compare;
pub mod crossover;
pub mod error;
pub mod execute;
pub mod experiments;
pub mod explain;
mod judge;
pub mod kernels;
pub mod machines;
mod measured;
pub mod output;
pub mod papers;
pub mod plan;
pub mod registry;
pub mod report;
pub mod result;
pub mod rules;
pub mod run;
pub mod scenario;
pub mod settings;
pub mod shape;
mod site;
pub mod text;
pub mod trace;
pub mod workload;

pub use error::{Blame, LabError};
pub use pageferry_model::{Constant, SourceKind, nearest};
