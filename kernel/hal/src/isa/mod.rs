//! What instruction sets prescribe: formats of entries that hardware reads, and where its addresses are.
//!
//! Nothing outside this module names an instruction set. A machine puts its [`crate::board::Board`] together from these
//! descriptions; walkers of modelled machines and the `pmap` read and write entries by them.
//!
//! * [`radix`]: page tables in levels, and [`x86`], the two formats of that kind.
//! * [`hash`]: a table of hashed entries ([`powerpc`]).
//! * [`sh4`], [`sparc64`], [`alpha`], [`ia64`]: no table that hardware knows.

pub mod alpha;
pub mod hash;
pub mod ia64;
pub mod powerpc;
pub mod radix;
pub mod sh4;
pub mod sparc64;
pub mod x86;

pub use radix::RadixFormat;
