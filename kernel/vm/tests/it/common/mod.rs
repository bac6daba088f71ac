//! The machine of the random programs, with a panic for what goes wrong.
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "the interface has Arcs; a modelled machine stays on one thread"
)]

use pageferry_hal::Pfn;
use pageferry_model::Schedule;
pub(crate) use pageferry_model::testing::or_other_kind;
pub(crate) use pageferry_soak::rig::{AddressSpace, Job, PAGING, Rig, pattern};
use pageferry_soak::rig::{Site, run};
use pageferry_vm::{FrameState, LoanLocking, PagingConfig};

/// One for each kind of MMU.
pub(crate) const MACHINES: [&str; 5] = ["xeon-up", "opteron-mp", "mini-soft", "mini-hash", "mini-blocks"];

/// Boots a small machine and calls `body` on CPU 0.
pub(crate) fn with_rig(machine: &str, memory_mb: u64, schedule: Schedule, body: impl FnOnce(&Rig) + 'static) {
    with_paging(machine, memory_mb, schedule, None, body);
}

/// As [`with_rig`], with paging.
pub(crate) fn with_paging(
    machine: &str,
    memory_mb: u64,
    schedule: Schedule,
    paging: Option<PagingConfig>,
    body: impl FnOnce(&Rig) + 'static,
) {
    let machine = &or_other_kind(machine);
    let site = Site { machine, memory_mb, schedule, paging, flat: false };
    run(site, body).unwrap_or_else(|e| panic!("{machine}: {e}"));
}

/// As [`with_rig`], by a kernel that chooses `word` too.
pub(crate) fn with_choice(machine: &str, word: &str, memory_mb: u64, body: impl FnOnce(&Rig) + 'static) {
    with_paging_and_choice((machine, word), memory_mb, Schedule::Timed, None, body);
}

/// As [`with_paging`], by a kernel that chooses `word` too.
pub(crate) fn with_paging_and_choice(
    (machine, word): (&str, &str),
    memory_mb: u64,
    schedule: Schedule,
    paging: Option<PagingConfig>,
    body: impl FnOnce(&Rig) + 'static,
) {
    let machine = or_other_kind(machine);
    let (name, cpus) = machine.split_at(machine.find(':').unwrap_or(machine.len()));
    let machine = &format!("{name}+{word}{cpus}");
    let site = Site { machine, memory_mb, schedule, paging, flat: false };
    run(site, body).unwrap_or_else(|e| panic!("{machine}: {e}"));
}

/// Runs `body` on a machine of each kind.
pub(crate) fn on_each(body: impl Fn(&Rig) + Clone + 'static) {
    for machine in MACHINES {
        let body = body.clone();
        with_rig(machine, 24, Schedule::Timed, move |rig| body(rig));
    }
}

/// What owns a frame that its object has let go while a borrower had it, and how many loans there are beside that: the
/// borrower, at once, or where loans are locked as published, when it is next locked for its page.
pub(crate) fn let_go(rig: &Rig, frame: Pfn) -> (FrameState, u32) {
    let info = rig.vm.frame_info(frame);
    match (rig.vm.loan_locking(), info.state) {
        (LoanLocking::Published, FrameState::Orphan) => (FrameState::Anon, info.loan_count - 1),
        (_, state) => (state, info.loan_count),
    }
}
