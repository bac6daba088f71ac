//! What goes from process to process without a socket: pipes of their own kind, memory that is offered, memory of a
//! child.

mod export;
mod pipe;
mod pipe_direct;
mod pipe_state;
mod ptrace;

pub use export::{Carry, Exports, MAX_EXPORTS};
pub use pipe::ATOMIC_WRITE_BYTES;
pub use pipe::{Pipes, create_pipe};
pub use pipe_state::{MAX_PIPES, PIPE_BYTES};
pub use ptrace::{Traced, trace};
