//! How far a side trusts the other.
//!
//! # What it holds
//! Two marks for [`crate::Sender`] and [`crate::Receiver`], which decide at compile time what a channel may
//! do. [`Same`]: the other side is the same program, or one that this process trusts as itself. [`Guarded`]:
//! it may do anything that a process can.
//!
//! A guarded receiver takes only sealed memory and copies, and leased memory of a program that it has started
//! [confined](crate::Confined); a guarded sender neither donates nor shares, and has no leases. Neither can be
//! made to read bytes through a reference that the peer can still change.

mod seal {
    /// Nobody else says what trust is.
    pub trait Sealed {}
}

/// How far a side trusts the other: [`Same`] or [`Guarded`].
pub trait Trust: seal::Sealed + Send + 'static {
    /// Whether the other side is trusted as this process.
    const TRUSTS: bool;
}

/// The other side is the same program, or is trusted as if it were.
#[derive(Debug)]
pub enum Same {}

/// The other side may be hostile.
#[derive(Debug)]
pub enum Guarded {}

impl seal::Sealed for Same {}
impl seal::Sealed for Guarded {}

impl Trust for Same {
    const TRUSTS: bool = true;
}

impl Trust for Guarded {
    const TRUSTS: bool = false;
}
