//! Sockets of the Internet protocols, as workloads open them.

use crate::kit::{CallError, named};
use pageferry_kernel::{Fd, SocketKind, SocketOption, User};
use pageferry_model::Model;

/// A stream socket with buffers of so many bytes.
///
/// # Errors
/// A call that failed.
pub fn stream_socket(user: &User<Model>, buffers_bytes: usize) -> Result<Fd, CallError> {
    let fd = user.socket(SocketKind::Stream).map_err(named("socket"))?;
    for option in [SocketOption::SendBuffer(buffers_bytes), SocketOption::ReceiveBuffer(buffers_bytes)] {
        user.set_socket_option(fd, option).map_err(named("set the socket's buffers"))?;
    }
    Ok(fd)
}
