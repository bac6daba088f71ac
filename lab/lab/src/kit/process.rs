//! The processes of a workload: the first, the others, and a pipe between two of them.
//!
//! A process that could not do its work leaves in the [`OutcomeCell`] why, and ends.

use super::outcome::OutcomeCell;
use crate::text;
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Fd, Program, User};
use pageferry_model::Model;
use pageferry_workloads::{CallError, named};

/// The program of a first process, which needs `buffers_bytes` of memory; why it could not do its work is left in
/// `cell`.
pub fn first_process(
    cell: OutcomeCell,
    buffers_bytes: usize,
    work: impl FnOnce(&User<Model>) -> Result<(), CallError> + 'static,
) -> Program<Model> {
    Box::new(move |user: &User<Model>| {
        if let Err(problem) = room_for(user, buffers_bytes) {
            cell.borrow_mut().failed = Some(problem);
        } else if let Err((what, errno)) = work(user) {
            cell.borrow_mut().fail(what, errno);
        }
    })
}

/// The program of another process.
pub fn other_process(
    cell: OutcomeCell,
    work: impl FnOnce(&User<Model>) -> Result<(), CallError> + 'static,
) -> Program<Model> {
    Box::new(move |user: &User<Model>| {
        if let Err((what, errno)) = work(user) {
            cell.borrow_mut().fail(what, errno);
        }
    })
}

/// What a process does at its end of a pipe.
pub type AtEnd<W> = fn(&W, &User<Model>, Fd) -> Result<(), CallError>;

/// A pipe: a child does `write` of the work at its one end, the caller `read` at the other.
pub fn over_a_pipe<W: Clone + 'static>(
    user: &User<Model>,
    cell: &OutcomeCell,
    work: &W,
    write: AtEnd<W>,
    read: AtEnd<W>,
) -> Result<(), CallError> {
    let (from, to) = user.pipe().map_err(named("pipe"))?;
    let theirs = work.clone();
    let writer = other_process(cell.clone(), move |user| {
        user.close(from).map_err(named("close"))?;
        write(&theirs, user, to)?;
        user.close(to).map_err(named("close"))
    });
    user.fork("writer", writer).map_err(named("fork"))?;
    user.close(to).map_err(named("close"))?;
    let result = read(work, user, from);
    // Without a reader the writer ends, too: no wait for ever after a failure.
    user.close(from).map_err(named("close"))?;
    user.wait().map_err(named("wait"))?;
    result
}

/// Refuses buffers that do not fit the machine's free memory: a process that touched them would be killed.
pub fn room_for(user: &User<Model>, buffers_bytes: usize) -> Result<(), String> {
    // Page tables take a thousandth of what they map, and something is needed besides.
    let wanted = buffers_bytes / PAGE_SIZE + buffers_bytes / PAGE_SIZE / 500 + 64;
    let free = user.kernel().vm().free_frames();
    if wanted <= free {
        return Ok(());
    }
    let (wanted, free) = (wanted.saturating_mul(PAGE_SIZE), free * PAGE_SIZE);
    Err(format!(
        "buffers of {} do not fit: {} of memory are free",
        text::bytes(wanted as u64),
        text::bytes(free as u64)
    ))
}
