//! Communication between processes by memory that is attached to one of them at a time (ISPC; Yamauchi et al., 3):
//! servers are processes, a request and its data are pages of the communication area, and the kernel attaches them and
//! queues requests.
//!
//! * `config`: the methods of attaching, and what a kernel chooses.
//! * `ica`: pieces of the area, their owners, and the entries that attach them.
//! * `kept`: requests that the kernel makes for a process, and the pieces that it keeps for them.
//! * `port`: what is queued for a process; requests.
//! * `call`: the system calls.
//! * `events`: what servers of the kernel's wait for.
//! * `cross`: threads that go into their server, and come back.
//! * `card`: the network card, for a driver that is a server. `received`: what arrives.
//! * `ending`: what becomes of all that when a process ends, and the laws that hold.

mod call;
mod card;
mod config;
mod cross;
mod ending;
mod events;
mod ica;
mod kept;
mod port;
mod received;

pub use call::{Completed, Inquiry, Wait};
pub(crate) use card::DriverCard;
pub use config::{IspcConfig, IspcDefect, IspcError, IspcPaths, Method};
pub use cross::Procedure;
pub(crate) use events::{Event, Finished};
pub(crate) use ica::Ispc;
pub(crate) use kept::Pieces;
pub use port::RequestId;
pub(crate) use port::{DRIVER, FILES, LEAST_OWN, MEASURED, PROTOCOLS};
pub(crate) use received::Taken;
