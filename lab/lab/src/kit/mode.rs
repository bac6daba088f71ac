//! How bytes are sent and received: by copy, without one, or as the kernel chooses.

use pageferry_hal::Va;
use pageferry_kernel::{Arrived, Carrier, Errno, Fd, ReceiveMode, SendMode, User};
use pageferry_model::Model;
use pageferry_workloads::{CallError, named};

crate::choice! {
    /// What carries a buffer from process to process.
    pub enum By {
        /// A socket, which copies it.
        Socket = "socket",
        /// It is passed.
        Pass = "pass",
        /// What is cheaper.
        Auto = "auto",
    }
}

/// Whether buffers are passed, by a `by` choice. For `auto` the kernel says what is cheaper for buffers of
/// this size that are used like this, once: both ends have to do the same.
pub fn by_pass(user: &User<Model>, by: By, size_bytes: usize, arrived: Arrived) -> Result<bool, CallError> {
    if by != By::Auto {
        return Ok(by == By::Pass);
    }
    user.measure_moves().map_err(named("measure"))?;
    let carrier = user.choose_carrier(size_bytes, arrived).map_err(named("choose a carrier"))?;
    Ok(carrier == Carrier::Pass)
}

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

/// Where the kernel is to choose, lets it measure what its choices rest on before anything is sent, so that both ends
/// begin as they do without a choice.
pub fn measure_first(user: &User<Model>, send: SendMode, receive: ReceiveMode) -> Result<(), CallError> {
    if send == SendMode::Auto || receive == ReceiveMode::Auto {
        user.measure_moves().map_err(named("measure"))?;
    }
    Ok(())
}
