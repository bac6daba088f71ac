//! Files of numbers that say where they are from: machines, kernels, experiments, published results.
//!
//! Each constant is a [`Sourced`] value: the number, the text that names its source, and how far that source can be
//! trusted; a table of [`Ranges`] says what each number may be. [`load_toml`] reads a file, [`load_extending`] one that
//! is laid upon others, and [`to_toml`] writes one that loads again. Everything that can be wrong with such a file is
//! one [`ConfigError`]: the file is always to blame, and the error says where in it, which key, and what was expected
//! there.
#![forbid(unsafe_code)]

mod error;
mod load;
mod place;
mod range;
mod sourced;
mod value;
mod wanted;
mod write;

pub use error::{ConfigError, Fault, nearest};
pub use load::{load_extending, load_toml};
pub use range::{Range, Ranges, range};
pub use sourced::{Constant, SourceKind, Sourced, constants_of};
pub use write::to_toml;
