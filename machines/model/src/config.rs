//! A machine as its file describes it: `machines/*.toml`, of this crate ([`crate::machines`]) or of yours.
//!
//! Every number is [`Sourced`](pageferry_sourced::Sourced); in a file of your own it may also be plain, without a
//! source. Times have their unit in the key: `_us` and `_ns` are time, `_cycles` are cycles of the CPU's clock. What
//! happens outside of the CPU takes its time whatever that clock is: the cycles of `[memory]`, and of the delivery of
//! interrupts, are counted by `memory.clock_mhz`. A file may name another in `extends`: its tables are then laid upon
//! those of the other key by key, so that the members of a family share their constants.
//!
//! # Where what lies
//! `machine` has the whole and its small tables; `cache`, `fetch`, `mmu` and `nic` have a table each. None of them
//! judges. [`MachineConfig::validate`] (`validate`, with `ranges`) refuses what no machine could be; the rest of the
//! model relies on it and does not ask again. `parse` reads a file.

mod cache;
mod fetch;
mod machine;
mod mmu;
mod nic;
mod number;
mod parse;
mod ranges;
mod validate;

pub use cache::{CacheConfig, WritePolicy};
pub use fetch::{InstructionCacheConfig, InstructionTlbConfig};
pub use machine::{
    ArchName, AudioConfig, ComplexConfig, CpuConfig, DiskConfig, DramConfig, IoConfig, IpiConfig,
    MachineConfig, MemoryConfig, SecondTlbConfig, TlbConfig, TlbLevelConfig,
};
pub use mmu::{
    AreaConfig, BlocksConfig, InvalidatesName, MmuConfig, RefillConfig, ReplaceName, SoftConfig, WalkerName,
};
pub use nic::NicConfig;
pub use number::Number;
pub use ranges::RANGES;
