//! The C ABI of pageferry: `include/pageferry.h`, which is made from this crate, has all that there is to say
//! to its users.
//!
//! # How it is made
//! A call takes its arguments apart in `border`, finds what handles stand for in `handles`, and does what the
//! Rust library does. Its error becomes a code in `fault`, where a panic ends too. The files `channel` to
//! `loan` are the calls, in the order of the header.
//!
//! # Safety
//! What C promises is written at each call, and is little: addresses are NULL or lead to what they say.
//! Handles are no addresses, so nothing need be promised of them. References to a message's memory live for
//! one call at most; what C stores meanwhile is C's own race.
#![allow(non_camel_case_types, reason = "these are the names of the header")]
#![allow(clippy::result_large_err, reason = "an error of a call that uses a value up may bring it back")]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pageferry is for Linux on 64-bit machines: a handle has 64 bits");

pub mod border;
pub mod buffer;
pub mod channel;
pub mod config;
mod ends;
pub mod fault;
mod handles;
pub mod lent;
pub mod loan;
pub mod opaque;
pub mod receiver;
pub mod sender;
mod table;
mod tokens;
