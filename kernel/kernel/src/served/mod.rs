//! Parts of the kernel that are processes: the file system, the protocols, the driver of the network card.
//!
//! Programs make the same system calls as under a kernel that has these parts itself. For the calls that a server has
//! to do with, the kernel makes requests of it, from the calling process: words in a control piece of the communication
//! area, bytes in a data piece.
//!
//! * [`files`]: the file server.
//! * [`net`]: the protocol server and the driver's server.
//! * `service`: which process serves. `request`: one request of a client; `answer`: what comes back. `inside`: what a
//!   server has, where several threads may be inside.

mod answer;
mod files;
mod inside;
mod net;
mod request;
mod service;
mod word;

pub(crate) use files::FileService;
pub use files::{FileServiceConfig, FileServiceDefect};
pub(crate) use net::NetService;
pub use net::{NetServiceConfig, NetServiceDefect, NetServicePaths};
