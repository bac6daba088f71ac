//! What moving data costs on a machine: the tables that a kernel's choices are made from.
//!
//! A kernel measures them. [`MoveCosts::UNKNOWN`] and [`RequestCosts::NEVER`] stand for what it did not or could not
//! measure: then nothing is worth more than a copy.

use crate::{Linear, PAGE_BYTES, between};

/// Working sets are measured up to 2 to the power of this many pages (8 MB), if a quarter of the free memory is so
/// much.
pub const CLASSES: usize = 11;

/// What was measured, in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveCosts {
    /// Copying one page to or from the user, by the working set: pages of 2 to the power of the index and 1.
    pub copy_page: [u64; CLASSES],
    /// An mbuf with a cluster: made, handed to the protocol, and freed.
    pub cluster_cycles: u64,
    /// An ephemeral mapping of a page, made and given up: each page of a file that is copied takes one.
    pub map_cycles: u64,
    /// Lending pages to a socket, until they are given back.
    pub lend: Linear,
    /// Receiving clusters by donation, and freeing what was received.
    pub donate: Linear,
    /// Receiving lent pages by lending them on, and freeing what was received.
    pub lend_on: Linear,
    /// Passing pages that no receiver touches: exported, imported.
    pub pass: Linear,
    /// Passing pages, each of which every receiver touches.
    pub pass_touched: Linear,
    /// The first write to a page after its loan, beside what a loan of the page costs more then.
    pub rewrite_cycles: u64,
    /// A write that breaks a loan.
    pub break_cycles: u64,
    /// From one thread's run to the other's, when they wait for each other.
    pub switch_cycles: u64,
}

impl MoveCosts {
    /// What it is taken to be where it was not measured: nothing is worth more than a copy.
    pub const UNKNOWN: MoveCosts = {
        let never = Linear::NEVER;
        MoveCosts {
            copy_page: [0; CLASSES],
            cluster_cycles: 0,
            map_cycles: 0,
            lend: never,
            donate: never,
            lend_on: never,
            pass: never,
            pass_touched: never,
            rewrite_cycles: 0,
            break_cycles: 0,
            switch_cycles: 0,
        }
    };

    /// Copying a page while `working_set_bytes` are used over and over. Between two sets that were measured the cost is
    /// taken to change evenly.
    pub fn copy_page_cycles(&self, working_set_bytes: usize) -> u64 {
        const LEAST: usize = 2 * PAGE_BYTES;
        let set = working_set_bytes.max(LEAST);
        let class = (set.ilog2() - LEAST.ilog2()) as usize;
        if class >= CLASSES - 1 {
            return self.copy_page[CLASSES - 1];
        }
        let of = |class: usize| ((LEAST as u64) << class, self.copy_page[class]);
        between(of(class), of(class + 1), set as u64)
    }
}

/// What a request of a server that is a process costs, in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestCosts {
    /// A message without data over a socket, to the other process's run.
    pub message_cycles: u64,
    /// A request, or its answer, by the pages of its data.
    pub request: Linear,
    /// That can go with it.
    pub max_pages: usize,
}

impl RequestCosts {
    /// Where there are no such servers, or it was not measured: nothing goes with a request.
    pub const NEVER: RequestCosts = RequestCosts { message_cycles: 0, request: Linear::NEVER, max_pages: 0 };
}
