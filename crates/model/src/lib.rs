//! Modelled machines: everything that `pageferry-hal` asks for, in software, deterministic, with every cycle accounted.
//!
//! * [`machine`]: the machine as kernel code sees it; contexts as coroutines under one scheduler of discrete events.
//! * [`config`], [`sourced`], [`mod@range`]: machines described in TOML, each constant with its source and its range.
//! * `hw`: CPUs and the steps that they take; [`mmu`], [`cache`], `memory`: what the steps go through; `dev`: devices.
//! * [`mmu::oracle`]: finds every use of a stale translation.
//! * [`account`]: the accounts and their laws.
//! * [`lock`]: spin locks with costs and a checked order.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod account;
pub mod cache;
pub mod config;
mod dev;
mod hw;
pub mod lock;
pub mod machine;
mod memory;
pub mod mmu;
mod params;
pub mod range;
pub mod sourced;
pub mod trace;

pub use account::{Hardware, Snapshot};
pub use config::MachineConfig;
pub use lock::{ModelGuard, ModelLock};
pub use machine::{Model, Options, RunError, SLACK_CYCLES, Schedule};
pub use mmu::oracle::{StaleUse, Staleness};
pub use range::{Range, Ranges, range};
pub use sourced::{
    ConfigError, Constant, Fault, SourceKind, Sourced, constants_of, load_extending, load_toml, nearest,
};
