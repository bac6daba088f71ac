//! Giving a process pages: anons that were lent, and a page that bytes were gathered in.
//!
//! # What can fail
//! For want of memory or of addresses; where the process has something wired. Nothing is lost then: what could not be
//! given is given back.

use super::copyio::Syscall;
use super::uio::WaitFlag;
use crate::defect::KernelDefect;
use crate::mbuf::NotDonated;
use pageferry_abi::Errno;
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Va};
use pageferry_vm::{AnonLoan, VmError};

impl<M: Machine> Syscall<'_, M> {
    /// Makes anons on loan the process's memory, or gives them back.
    ///
    /// # Errors
    /// As [`pageferry_vm::Space::transfer_anons`].
    pub fn give_anons(&self, at: Option<Va>, anons: AnonLoan<M>) -> Result<Va, VmError> {
        self.space.transfer_anons(self.thread, at, anons).map_err(|refused| {
            self.core.vm.release_anons(refused.back);
            refused.error
        })
    }

    /// Makes a page, which `fill` writes from its beginning on and answers how far, the process's memory in the
    /// transfer area; behind that it is clear. Returns where it is, and how much was filled.
    ///
    /// # Errors
    /// What `fill` answers; [`Errno::NoMemory`].
    pub fn give_gathered(
        &self,
        wait: WaitFlag,
        fill: impl FnOnce(Va) -> Result<usize, Errno>,
    ) -> Result<(Va, usize), Errno> {
        let (pool, m) = (&self.core.mbufs, self.machine());
        let page = pool.cluster_to_gather(self.sleeper(wait))?;
        let base = pool.address(&page, 0..PAGE_SIZE);
        let filled = match fill(base) {
            Ok(filled) => filled,
            Err(e) => {
                pool.free(page);
                return Err(e);
            }
        };
        if filled < PAGE_SIZE && !self.core.config.defect.is(KernelDefect::GatheredPageNotCleared) {
            let _c = m.scope(Cause::Zero);
            m.zero(base + filled, PAGE_SIZE - filled).expect("the kernel's own addresses are mapped");
        }
        let give = |pages| {
            self.space
                .transfer_pages(self.thread, None, pages)
                .map(|va| (va, None))
                .map_err(|refused| (refused.error, refused.back))
        };
        match pool.donate(alloc::vec![page], give) {
            Ok(va) => Ok((va, filled)),
            Err(NotDonated { error, back }) => {
                back.into_iter().for_each(|mbuf| pool.free(mbuf));
                Err(error.into())
            }
        }
    }
}
