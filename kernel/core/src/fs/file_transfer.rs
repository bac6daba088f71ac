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
use crate::proc::{PagesCame, Syscall, Uio, UioMode, WaitFlag};
use pageferry_abi::Errno;
use pageferry_hal::{Machine, PAGE_SIZE, Va};

/// Pages that go in one transfer: the reader's map is held so long.
const MAX_PAGES: usize = 256;

impl<M: Machine> Regular<M> {
    /// Reads by pages what is in the file, as `uio` is limited to. Without an address only as much as goes in one
    /// piece. The caller holds the inode's sleep lock.
    pub(super) fn transfer(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        match (uio.mode(), uio.base()) {
            (_, Some(_)) => self.read_to(call, uio),
            (UioMode::Pages, None) => self.read_to_area(call, uio),
            (_, None) => Err(Errno::Fault),
        }
    }

    fn read_to(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let (at, len) = (uio.at(), uio.left());
        let agree = (at.0 ^ uio.offset()).is_multiple_of(PAGE_SIZE as u64);
        let (before, pages) = if agree { whole_pages(at, len) } else { (0, 0) };
        let before = if pages > 0 { before } else { 0 };
        let first = uio.done();
        let mut lent = 0;
        let mut result = self.copy_bytes(call, before, uio);
        while lent < pages && result.is_ok() {
            let count = (pages - lent).min(MAX_PAGES);
            let pays = uio.mode() == UioMode::Pages || call.chooses_lending_file(count, len);
            let Some(Ok(va)) = pays.then(|| self.lend(call, uio.offset(), Some(uio.at()), count)) else {
                break;
            };
            if uio.mode() == UioMode::Auto {
                call.chosen_pages_lent(count);
            }
            uio.pages_came(va, count * PAGE_SIZE, PagesCame::Lent);
            lent += count;
        }
        if result.is_ok() {
            result = self.copy_bytes(call, uio.left(), uio);
        }
        let copied = uio.done() - first - lent * PAGE_SIZE;
        call.machine().count(KernelCounter::TransferBytesCopied, copied as u64);
        result
    }

    fn read_to_area(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let (from, len) = (uio.offset(), uio.left());
        let count = (len / PAGE_SIZE).min(MAX_PAGES);
        if from.is_multiple_of(PAGE_SIZE as u64)
            && count > 0
            && let Ok(at) = self.lend(call, from, None, count)
        {
            uio.pages_came(at, count * PAGE_SIZE, PagesCame::Lent);
            return Ok(());
        }
        if len == 0 {
            return Ok(());
        }
        let (at, filled) = call.give_gathered(WaitFlag::WaitOk, |base| {
            let mut filled = 0;
            let result = self.each_page(call, from, len.min(PAGE_SIZE), false, &mut |kva, done, piece| {
                call.copy_kernel(base + done, kva, piece);
                filled = done + piece;
                Ok(())
            });
            if filled > 0 { Ok(filled) } else { result.map(|()| 0) }
        })?;
        uio.pages_came(at, filled, PagesCame::Donated);
        call.machine().count(KernelCounter::TransferBytesCopied, filled as u64);
        Ok(())
    }

    /// Lends `count` pages of the file from byte `from` on, and makes them the process's memory.
    fn lend(&self, call: &Syscall<'_, M>, from: u64, at: Option<Va>, count: usize) -> Result<Va, Errno> {
        let (m, vm) = (call.machine(), &call.core.vm);
        m.execute(call.core.config.paths.transfer_call);
        let first = from / PAGE_SIZE as u64;
        let anons = vm.loan_object_to_anons(call.thread, &self.inode.object, first..first + count as u64)?;
        let va = call.give_anons(at, anons)?;
        m.count(KernelCounter::PagesLentOn, count as u64);
        Ok(va)
    }
}
