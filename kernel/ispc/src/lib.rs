//! Communication between processes by memory that is attached to one of them at a time (ISPC; Yamauchi et al., 3):
//! servers are processes, a request and its data are pages of the communication area, and the kernel attaches them and
//! queues requests.
//!
//! * `config`: the methods of attaching, and what a kernel chooses.
//! * `state`: all of it, under its lock. `ica`: pieces of the area, their owners, and the entries that attach them.
//! * `kept`: requests that the kernel makes for a process, and the pieces that it keeps for them, which are in
//!   `keeping`.
//! * `port`: what is queued for a process; requests.
//! * `call`: the system calls.
//! * `events`: what servers of the kernel's wait for.
//! * `cross`: threads that go into their server, by its `gate`, and come back.
//! * `card`: the network card, for a driver that is a server, with what it has in `driver_card`. `received`: what
//!   arrives.
//! * `services`: what the kernel's own servers are told.
//! * `ending`: what becomes of all that when a process ends, and the laws that hold.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod call;
mod card;
mod config;
mod cross;
mod driver_card;
mod ending;
mod events;
mod gate;
mod ica;
mod keeping;
mod kept;
mod pages;
mod port;
mod received;
mod services;
mod state;

pub use call::{Completed, Wait};
pub use config::{IspcConfig, IspcDefect, IspcError, IspcPaths, Method};
pub use driver_card::DriverCard;
pub use events::{Event, Finished};
pub use gate::Inquiry;
pub use kept::Pieces;
pub use port::RequestId;
pub use port::{DRIVER, FILES, MEASURED, MIN_OWN, PROTOCOLS};
pub use received::ReceivedFrame;
pub use services::{
    FileServiceConfig, FileServiceDefect, NetServiceConfig, NetServiceDefect, NetServicePaths,
};
pub use state::Ispc;
