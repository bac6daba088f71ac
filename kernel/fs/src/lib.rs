//! A file system after the Berkeley Fast File System, as FreeBSD 5 had it, for any kernel or
//! none.
//!
//! A [`Volume`] is what is known in memory of a file system on a [`Store`], the buffers of a disk; every call gets the
//! store, so that a kernel can lend it for the time of a system call. On the disk there are cylinder groups, each with
//! a copy of the superblock, free maps of inodes and fragments, inodes, and blocks ([`layout`]).
//!
//! What is where, from the bottom up:
//!
//! * `error`, `store`: what can go wrong, and what a volume is kept on. `layout`: what is where on the disk.
//! * `inode`, `chunk`: inodes and directories as they are on the disk. `maps`: free inodes and fragments.
//! * `sector`, `soft`, `order`, `ordering`: soft updates; what waits, and what it waits for.
//! * `volume`: what is in memory of a volume. `bmap`: the blocks of a file. `cut`: taking blocks from a file.
//! * `dir`: one name in a directory. `file`: the bytes of files. `names`: making, linking, removing, renaming.
//! * [`check`](mod@check): what is wrong with a volume, and [`repair`]. `mount`: making, mounting and unmounting one.
//!
//! # The order of writes
//! The store writes some changes [at once](When::Now) and others [later](When::Later), in any order. Three rules of FFS
//! say which are written at once, and before what:
//!
//! 1. Nothing points to what is not made yet: an inode is on the disk before a name of it is, a directory's or an
//!    indirect block's contents before a pointer to it.
//! 2. Nothing is used again while something on the disk still points to it: names go before inodes, pointers before
//!    blocks.
//! 3. What is moved has its new name before it loses the old one.
//!
//! Free maps are written later: after a power cut they may be wrong either way, and the checker makes them anew from
//! the inodes. What else a cut may leave is a [`Leftover`](Weight::Leftover): inodes without names, counts that are too
//! high, a directory on its way with two names. Anything else is [`Damage`](Weight::Damage), and no cut leaves any.
//!
//! A volume with [soft updates](Volume::use_soft_updates) does not wait for writes, and has the same order on the disk:
//! see `ordering`, and [`soft`] for how a store keeps it. It promises more: what a power cut leaves of it are inodes
//! without names, counts that are too high and wrong free maps, and no file has in its blocks what another had.
//!
//! # What can fail
//! Every call: for want of space, for names that are there or not, by the disk. A volume that is damaged is met with
//! [`FsError::Damaged`], never with a panic.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bmap;
pub mod check;
mod chunk;
mod cut;
mod defect;
mod dir;
mod errno;
mod error;
mod file;
mod inode;
pub mod layout;
mod maps;
mod mount;
mod names;
mod order;
mod ordering;
mod sector;
pub mod soft;
mod store;
mod volume;

pub use check::{Problem, Report, Weight, check, repair};
pub use defect::FsDefect;
pub use dir::Entry;
pub use error::{FsError, IoError, IoFault};
pub use file::{Piece, Target};
pub use inode::Kind;
pub use layout::{Format, Ino};
pub use sector::SECTOR_BYTES;
pub use soft::SoftUpdates;
pub use store::{Cached, Device, MemoryDevice, Sort, Store, When};
pub use volume::{Stat, Volume};
