//! All tests of this crate that stand outside of it, as one program: what they share is compiled and linked once.

mod cache;
mod common;
mod complexes;
mod disk;
mod fetch;
mod locks;
mod machine;
mod machines;
mod memory_speed;
mod mmu;
mod nic;
mod pct;
mod sync;
mod testing;
mod translation;
mod waits;
