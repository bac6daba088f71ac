//! How bytes are received: by copy, without one, or as the kernel chooses.

use pageferry_hal::Va;
use pageferry_kernel::{Errno, Fd, ReceiveMode, User};
use pageferry_model::Model;

/// Receives to `at` as `mode` says. Returns how many bytes came, and whether pages came, which are to be flushed out.
pub fn receive_by(
    user: &User<Model>,
    from: Fd,
    at: Va,
    len_bytes: usize,
    mode: ReceiveMode,
) -> Result<(usize, bool), Errno> {
    let received = match mode {
        ReceiveMode::Copy => return Ok((user.receive(from, at, len_bytes)?, false)),
        ReceiveMode::Transfer => user.receive_transfer(from, Some(at), len_bytes)?,
        ReceiveMode::Auto => user.receive_auto(from, at, len_bytes)?,
    };
    let pages = received.donated_pages + received.lent_pages;
    Ok((received.len_bytes, mode == ReceiveMode::Transfer || pages > 0))
}
