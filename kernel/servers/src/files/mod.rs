//! The file server: a process that owns the file system of a kernel whose servers are processes (Yamauchi et al., 3.1).
//!
//! # The model
//! A kernel that is configured so ([`pageferry_ispc::FileServiceConfig`]) has no file system of its own. The calls that
//! make or mount a volume begin a process, the server. It has the memory disk open as a device file, keeps its buffers
//! in its own memory, and serves requests: what is to be done is written in a control piece of the communication area,
//! and bytes come and go in a data piece. Programs make the same system calls as under any kernel; for those on the
//! volume the kernel makes requests of the server, from the calling process and with pieces that are attached to it,
//! and copies between those and the program's buffers.
//!
//! * `words`: what requests look like.
//! * `service`: which process serves, and one request. `client`: the calls of names.
//! * `file`: an open file of a server.
//! * `server`: what the server does with a request. `buffers`: its buffers.
//!
//! # Who owns what
//! The server has the volume, what is open, and where each open file is read or written next: so processes that share a
//! descriptor share that. The kernel has descriptors, rights, and who the server is. An open file belongs to the server
//! that opened it: one that is begun later knows nothing of it
//! ([`Errno::ConnectionReset`](crate::Errno::ConnectionReset)).
//!
//! # What can fail
//! All that fails in a file system, as its server answers it; and the server, by its end.

mod buffers;
mod client;
mod file;
mod server;
mod service;
mod words;

pub(crate) use client::Files;
