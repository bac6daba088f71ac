//! Changing mappings: of the kernel, of users, of the communication area, of devices; by address and by frame.

mod area;
mod colours;
mod copy_page;
mod device;
mod entry;
mod grow;
mod kernel;
mod life;
mod page;
mod protect;
mod reclaim;
mod user;

pub use reclaim::HashCensus;
