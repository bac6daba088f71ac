//! How bytes are sent and received: by copy, without one, or as the kernel chooses.

use super::outcome::{Failed, named};
use crate::run::plan::RunSpec;
use pageferry_hal::{PAGE_SIZE, Va};
use pageferry_kernel::{Arrived, Carrier, Errno, Fd, ReceiveMode, SendMode, User};
use pageferry_model::Model;

/// Whether buffers are passed, by the word of a `by` choice. For `auto` the kernel says what is cheaper for buffers of
/// this size that are used like this, once: both ends have to do the same.
pub(super) fn by_pass(
    user: &User<Model>,
    word: &str,
    size_bytes: usize,
    arrived: Arrived,
) -> Result<bool, Failed> {
    if word != "auto" {
        return Ok(word == "pass");
    }
    let carrier = user.choose_carrier(size_bytes, arrived).map_err(named("choose a carrier"))?;
    Ok(carrier == Carrier::Pass)
}

/// The mode that a `send` choice asks for; copies for any other word.
pub(super) fn send_mode(spec: &RunSpec) -> SendMode {
    match spec.choice("send") {
        "loan" => SendMode::Loan,
        "auto" => SendMode::Auto,
        _ => SendMode::Copy,
    }
}

/// The mode that a `receive` choice asks for; copies for any other word.
pub(super) fn receive_mode(spec: &RunSpec) -> ReceiveMode {
    match spec.choice("receive") {
        "transfer" => ReceiveMode::Transfer,
        "auto" => ReceiveMode::Auto,
        _ => ReceiveMode::Copy,
    }
}

/// Receives to `at` as `mode` says. Returns how many bytes came, and whether pages came, which are to be flushed out.
pub(crate) fn receive_by(
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
pub(super) fn measure_first(user: &User<Model>, send: SendMode, receive: ReceiveMode) -> Result<(), Failed> {
    if send == SendMode::Auto || receive == ReceiveMode::Auto {
        user.choose_carrier(PAGE_SIZE, Arrived::Touched).map_err(named("measure"))?;
    }
    Ok(())
}
