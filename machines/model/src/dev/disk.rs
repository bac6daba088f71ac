//! The modelled disk: blocks with real bytes, one request at a time, done at a time that is known when it is handed in.
//!
//! A request begins when the one before it is done. It takes the access time, unless it goes on where that one ended,
//! and the time to move its blocks. A write that goes on there waits for a turn, where the disk has no cache for
//! writes: when its command arrives, its place has gone by. Its bytes move when its interrupt arrives, as late as can
//! be: a kernel that reuses a frame or writes a page meanwhile is found out. Blocks that were never written hold a
//! pattern, not zeros.
//!
//! The disk belongs to the hardware and is borrowed with it. Blocks can be declared broken, for tests.

use crate::memory::Memory;
use crate::params::DiskParams;
use pageferry_hal::{DiskDone, DiskError, DiskRequest, PAGE_SIZE, Transfer};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What a block holds that was never written.
const VIRGIN: u8 = 0xd5;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    blocks: BTreeMap<u64, Box<[u8]>>,
    under_way: VecDeque<DiskRequest>,
    done: VecDeque<DiskDone>,
    free_at: u64,
    /// Where the last request ended.
    head: u64,
    broken: Vec<Range<u64>>,
}

impl Disk {
    /// Takes a request in at `now`; answers when it will be done.
    ///
    /// # Panics
    /// When the disk has no such blocks, or the request moves nothing.
    pub(crate) fn submit(&mut self, params: DiskParams, now: u64, request: DiskRequest) -> u64 {
        let len = request.frames.len() as u64;
        assert!(len > 0, "a request to the disk moves nothing");
        assert!(request.block + len <= params.blocks, "{request:?} of {} blocks", params.blocks);
        let follows = request.block == self.head;
        let access = match request.transfer {
            _ if !follows => params.access,
            // What follows was read ahead.
            Transfer::Read => 0,
            Transfer::Write => params.turn,
        };
        let at = self.free_at.max(now) + access + len * params.block;
        self.free_at = at;
        self.head = request.block + len;
        self.under_way.push_back(request);
        at
    }

    /// The oldest request is done: moves its bytes. There is one interrupt for each.
    pub(crate) fn complete(&mut self, memory: &mut Memory) -> DiskRequest {
        let request = self.under_way.pop_front().expect("as many interrupts as requests");
        let result = self.transfer(memory, &request);
        self.done.push_back(DiskDone { tag: request.tag, result });
        request
    }

    fn transfer(&mut self, memory: &mut Memory, request: &DiskRequest) -> Result<(), DiskError> {
        for (block, frame) in (request.block..).zip(&request.frames) {
            if self.broken.iter().any(|b| b.contains(&block)) {
                return Err(DiskError { block });
            }
            match request.transfer {
                Transfer::Read => {
                    let bytes = memory.bytes_mut(frame.pa(), PAGE_SIZE);
                    match self.blocks.get(&block) {
                        Some(stored) => bytes.copy_from_slice(stored),
                        None => bytes.fill(VIRGIN),
                    }
                }
                Transfer::Write => {
                    let mut bytes = vec![0; PAGE_SIZE];
                    memory.read(frame.pa(), &mut bytes);
                    self.blocks.insert(block, bytes.into());
                }
            }
        }
        Ok(())
    }

    pub(crate) fn take_done(&mut self) -> Option<DiskDone> {
        self.done.pop_front()
    }

    /// Requests that were not answered yet.
    pub(crate) fn unanswered(&self) -> usize {
        self.under_way.len() + self.done.len()
    }

    /// From now on requests that touch `blocks` fail, or do so no more.
    pub(crate) fn set_broken(&mut self, blocks: Range<u64>, broken: bool) {
        self.broken.retain(|b| *b != blocks);
        if broken {
            self.broken.push(blocks);
        }
    }

    /// The bytes of a block.
    pub(crate) fn block(&self, block: u64) -> Vec<u8> {
        self.blocks.get(&block).map_or_else(|| vec![VIRGIN; PAGE_SIZE], |b| b.to_vec())
    }
}
