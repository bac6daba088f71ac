//! What goes from process to process without a socket: pipes of their own kind, memory that is offered, memory of a
//! child.

mod export;
mod pipe;
mod pipe_direct;
mod pipe_state;
mod ptrace;

pub(crate) use export::{Carry, Exports};
pub use export::{ExportId, ExportTo, Imported, MAX_EXPORTS};
pub use pipe::ATOMIC_WRITE_BYTES;
pub(crate) use pipe::{ReadEnd, WriteEnd};
pub(crate) use pipe_state::{MAX_PIPES, PIPE_BYTES, Pipe};
pub(crate) use ptrace::Traced;
