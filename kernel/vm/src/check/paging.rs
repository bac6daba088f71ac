//! The laws of paging: queues, the swap area, locked memory.

use super::laws::law;
use crate::object::Object;
use crate::page::{Holder, Queue};
use crate::vm::Vm;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use pageferry_hal::Machine;

/// A frame is on a paging queue exactly when it is pageable, and nothing is busy when no thread is at work.
pub(super) fn check_queues<M: Machine>(vm: &Vm<M>) -> Result<(), String> {
    let mut table = vm.frames().lock();
    if !table.keeps_queues() {
        return Ok(());
    }
    let mut listed = [0; 2];
    for (frame, f) in table.known() {
        law!(!f.busy, "{frame:?} ({:?}) is busy, and no thread works on it", f.info());
        let queue = f.queue;
        law!(
            f.is_pageable() == (queue != Queue::None),
            "{frame:?} ({:?}) is on the paging queue {queue:?}",
            f.info()
        );
        match queue {
            Queue::None => {}
            Queue::Active => listed[0] += 1,
            Queue::Inactive => listed[1] += 1,
        }
    }
    let walked = [table.walk_queue(Queue::Active), table.walk_queue(Queue::Inactive)];
    law!(listed == walked, "{listed:?} frames are active and inactive, {walked:?} are on the queues");
    let free = (table.free_count(), vm.frames().free_now());
    law!(free.0 == free.1, "{} frames are free, {} are shown", free.0, free.1);
    Ok(())
}

/// Each slot has one holder, that knows it; slots are free, held or bad; "only there" counts pages without frames.
pub(super) fn check_swap<M: Machine>(vm: &Vm<M>, objects: &[Arc<Object<M>>]) -> Result<(), String> {
    let census = vm.swap().census();
    let holders = vm.swap().holders();
    let (held, mut only, mut only_anons, mut of_objects) = (holders.len(), 0, 0, 0);
    law!(
        census.free + census.bad + held == census.slots,
        "{} free, {} bad and {held} held slots are not {}",
        census.free,
        census.bad,
        census.slots
    );
    for (slot, holder) in holders {
        let (knows, resident) = match holder {
            Holder::Anon(anon) => {
                let Some(anon) = anon.upgrade() else { return Err(format!("{slot:?} is a dead anon's")) };
                let state = anon.lock();
                only_anons += usize::from(state.frame.is_none());
                (state.swap == Some(slot), state.frame.is_some())
            }
            Holder::Page(object, page) => {
                let Some(object) = object.upgrade() else {
                    return Err(format!("{slot:?} is a dead object's"));
                };
                of_objects += 1;
                let state = object.lock();
                (state.swap.get(&page) == Some(&slot), state.pages().contains_key(&page))
            }
        };
        law!(knows, "{slot:?} has a holder that knows nothing of it");
        only += usize::from(!resident);
    }
    law!(
        only_anons == census.only_anons,
        "{only_anons} anons are there only, {} are counted",
        census.only_anons
    );
    law!(only == census.only, "{only} pages are in the swap area only, {} are counted", census.only);
    let known: usize = objects.iter().map(|o| o.lock().swap.len()).sum();
    law!(known == of_objects, "objects know {known} slots, {of_objects} slots are theirs");
    let requests = vm.io().under_way();
    law!(requests == 0, "{requests} requests to the disk are under way, and no thread waits");
    let heads = vm.io().heads_in_use();
    law!(heads == 0, "{heads} heads of buffers are in use, and no request is under way");
    Ok(())
}
