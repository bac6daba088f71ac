//! The processes of a workload: the first, and the others.
//!
//! A process that could not do its work leaves in the [`OutcomeCell`] why, and ends.

use super::outcome::OutcomeCell;
use crate::text;
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Program, User};
use pageferry_model::Model;
use pageferry_workloads::CallError;

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

/// The program of another process, or of one that needs no buffers.
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
