//! Memory management units: how an access finds its frame.
//!
//! * `access`: what becomes of one. `context`: what a CPU translates by. `translate`: blocks and fixed areas, then the
//!   TLB, then whatever fills it. `walk`: hardware that walks page tables, or looks into a hash table.
//! * `fetch`: the same for instructions, where the machine describes what they are fetched through.
//! * `tlb`: the TLB of a core. `array`: entries in sets, of which it has several. `size`: the sizes of pages.
//! * `uses`: what kernel addresses are for.
//! * [`oracle`]: what was declared to be true, and uses of translations that are not.

pub(crate) mod access;
mod array;
mod context;
mod fetch;
pub mod oracle;
pub(crate) mod size;
pub(crate) mod tlb;
pub(crate) mod translate;
pub(crate) mod uses;
mod walk;
