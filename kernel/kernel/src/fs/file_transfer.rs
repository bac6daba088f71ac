//! Reading a file by page transfer (UVM paper, 4.2.3): the pages of its object are lent to anons, which become the
//! reader's anonymous memory. No byte is copied, and unlike a mapping of the file it cuts no map entry and needs no
//! addresses of its own.
//!
//! Only whole pages go, which lie on page boundaries in the file and at the reader's. What is before and behind them is
//! copied; and where pages cannot be lent (one is wired) or are refused at the reader's (one there is wired), the rest
//! of the call is. The last page of a file is whole only if the file fills it: what a mapping has stored behind the end
//! belongs to no reader.
//!
//! The reader has what was in the file at that moment: a later write to the file, or to what was read, goes to another
//! frame.
//!
//! # Locks
//! The inode's sleep lock is held, as for every read.
//!
//! # What can fail
//! What can in reading by copy, which is tried behind every transfer that fails.

use super::vnode::Regular;
use crate::choose::whole_pages;
use crate::counter::KernelCounter;
use crate::proc::Syscall;
use pageferry_abi::{Errno, ReceiveMode, Received};
use pageferry_hal::{Machine, PAGE_SIZE, Va};

/// Pages that go in one transfer: the reader's map is held so long.
const MOST_PAGES: usize = 256;

impl<M: Machine> Regular<M> {
    /// Reads from the offset on, and moves it: up to `len_bytes`, nothing at the end of the file. Without an address
    /// only as much as goes in one piece.
    pub(super) fn transfer(
        &self,
        call: &Syscall<'_, M>,
        mode: ReceiveMode,
        at: Option<Va>,
        len_bytes: usize,
    ) -> Result<Received, Errno> {
        if mode == ReceiveMode::Auto {
            // Measured before the sleep lock is taken, not under it.
            call.move_costs();
        }
        let mut got = Received { at: at.unwrap_or_default(), ..Received::default() };
        let len_bytes = self.read_by(call, len_bytes, |from, len| match (mode, at) {
            (ReceiveMode::Copy, Some(at)) => self.copy_out(call, from, at, len),
            (_, Some(at)) => self.read_to(call, mode, from, at, len, &mut got),
            (ReceiveMode::Transfer, None) => self.read_to_area(call, from, len, &mut got),
            (_, None) => (0, Err(Errno::Fault)),
        })?;
        if len_bytes == 0 {
            return Ok(Received::default());
        }
        Ok(Received { len_bytes, ..got })
    }

    fn read_to(
        &self,
        call: &Syscall<'_, M>,
        mode: ReceiveMode,
        from: u64,
        at: Va,
        len: usize,
        got: &mut Received,
    ) -> (usize, Result<(), Errno>) {
        let agree = (at.0 ^ from).is_multiple_of(PAGE_SIZE as u64);
        let (before, pages) = if agree { whole_pages(at, len) } else { (0, 0) };
        let before = if pages > 0 { before } else { 0 };
        let (mut done, mut result) = self.copy_out(call, from, at, before);
        let mut left = pages;
        while left > 0 && result.is_ok() {
            let count = left.min(MOST_PAGES);
            let pays = mode == ReceiveMode::Transfer || call.chooses_lending_file(count, len);
            if !pays || self.lend(call, from + done as u64, Some(at + done), count).is_err() {
                break;
            }
            if mode == ReceiveMode::Auto {
                call.chosen_pages_lent(count);
            }
            got.lent_pages += count;
            done += count * PAGE_SIZE;
            left -= count;
        }
        if result.is_ok() && done < len {
            let (copied, r) = self.copy_out(call, from + done as u64, at + done, len - done);
            (done, result) = (done + copied, r);
        }
        call.machine().count(KernelCounter::TransferBytesCopied, (done - got.lent_pages * PAGE_SIZE) as u64);
        (done, result)
    }

    fn read_to_area(
        &self,
        call: &Syscall<'_, M>,
        from: u64,
        len: usize,
        got: &mut Received,
    ) -> (usize, Result<(), Errno>) {
        let count = (len / PAGE_SIZE).min(MOST_PAGES);
        if from.is_multiple_of(PAGE_SIZE as u64)
            && count > 0
            && let Ok(at) = self.lend(call, from, None, count)
        {
            (got.at, got.lent_pages) = (at, count);
            return (count * PAGE_SIZE, Ok(()));
        }
        if len == 0 {
            return (0, Ok(()));
        }
        let gathered = call.give_gathered(false, |base| {
            let most = len.min(PAGE_SIZE);
            let (filled, result) = self.each_page(call, from, most, false, |kva, done, piece| {
                call.copy_kernel(base + done, kva, piece);
                Ok(())
            });
            if filled > 0 { Ok(filled) } else { result.map(|()| 0) }
        });
        match gathered {
            Ok((at, filled)) => {
                (got.at, got.donated_pages) = (at, 1);
                call.machine().count(KernelCounter::TransferBytesCopied, filled as u64);
                (filled, Ok(()))
            }
            Err(e) => (0, Err(e)),
        }
    }

    /// Lends `count` pages of the file from byte `from` on, and makes them the process's memory.
    fn lend(&self, call: &Syscall<'_, M>, from: u64, at: Option<Va>, count: usize) -> Result<Va, Errno> {
        let (m, vm) = (call.machine(), &call.kernel.vm);
        m.execute(call.kernel.config.paths.transfer_call);
        let first = from / PAGE_SIZE as u64;
        let anons = vm.loan_object_to_anons(call.thread, &self.inode.object, first..first + count as u64)?;
        let va = call.give_anons(at, anons)?;
        m.count(KernelCounter::PagesLentOn, count as u64);
        Ok(va)
    }
}
