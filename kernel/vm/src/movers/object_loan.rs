//! Lending pages of an object that no address leads to, as a file is read (UVM paper, 4.1.1 and 4.2.3).
//!
//! Each page is brought in, and goes on loan to its borrower, the one anon that an object's page is lent to: the loans
//! of `loan`, without a map. A reader's pages are protected in one batch. A write through a mapping of the file breaks
//! the loan, and so does one by a system call; what was lent stays as it was. Pages are lent to the kernel the same
//! way, wired, as `sendfile` wants them (sf_buf paper, 2.3).
//!
//! Nothing is held between two pages, so the object may be cut meanwhile: then it ends before the page.

use super::loan::{AnonLoan, KernelLoan, LoanTarget, in_one_batch};
use crate::error::VmError;
use crate::object::{Object, ObjectPageError};
use crate::vm::Vm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Place, Threads};

impl<M: Machine> Vm<M> {
    /// Lends pages of an object as anons.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no pages, or the object ends before the last. [`VmError::Busy`]: a page is wired.
    /// [`VmError::Io`]; [`VmError::NoMemory`]. Nothing is lent then.
    ///
    /// # Locks
    /// Sleeps for the disk: no spin lock may be held.
    pub fn loan_object_to_anons(
        &self,
        t: &dyn Threads,
        object: &Arc<Object<M>>,
        pages: Range<u64>,
    ) -> Result<AnonLoan<M>, VmError> {
        match self.lend_object(t, object, pages, LoanTarget::Anons(Vec::new()))? {
            LoanTarget::Anons(anons) => Ok(AnonLoan::new(self, anons)),
            LoanTarget::Kernel(_) => unreachable!("a target stays what it is"),
        }
    }

    /// Lends the pages with `len_bytes` bytes of an object, from byte `at` on, to the kernel.
    ///
    /// # Errors
    /// As [`Vm::loan_object_to_anons`].
    ///
    /// # Locks
    /// Sleeps for the disk: no spin lock may be held.
    pub fn loan_object_to_kernel(
        &self,
        t: &dyn Threads,
        object: &Arc<Object<M>>,
        at: u64,
        len_bytes: usize,
    ) -> Result<KernelLoan, VmError> {
        let page = PAGE_SIZE as u64;
        let end = at.checked_add(len_bytes as u64).filter(|end| *end > at).ok_or(VmError::Invalid)?;
        match self.lend_object(t, object, at / page..end.div_ceil(page), LoanTarget::Kernel(Vec::new()))? {
            LoanTarget::Kernel(frames) => Ok(KernelLoan::new(self, frames, (at % page) as usize, len_bytes)),
            LoanTarget::Anons(_) => unreachable!("a target stays what it is"),
        }
    }

    /// Lends all of `pages`, or none.
    fn lend_object(
        &self,
        t: &dyn Threads,
        object: &Arc<Object<M>>,
        pages: Range<u64>,
        mut target: LoanTarget<M>,
    ) -> Result<LoanTarget<M>, VmError> {
        self.needs_anons()?;
        let _c = self.machine().scope(Cause::Vm);
        if pages.is_empty() {
            return Err(VmError::Invalid);
        }
        loop {
            let seen = self.frames().refusals();
            let rest = pages.start + target.len() as u64..pages.end;
            let failed = match self.lend_resident(t, object, rest, &mut target) {
                Ok(None) => return Ok(target),
                Ok(Some(missing)) => match object.fetch(self, t, missing, self.read_ahead()) {
                    Ok(()) => continue,
                    Err(e) => e,
                },
                // What was lent so far stays so meanwhile.
                Err(VmError::NoMemory) if self.frames().refusals() != seen && self.wait_for_memory(t) => {
                    continue;
                }
                Err(e) => e,
            };
            target.give_back(self);
            return Err(failed);
        }
    }

    /// Lends up to the first page that must be fetched, and returns which.
    fn lend_resident(
        &self,
        t: &dyn Threads,
        object: &Arc<Object<M>>,
        pages: Range<u64>,
        target: &mut LoanTarget<M>,
    ) -> Result<Option<u64>, VmError> {
        in_one_batch(self, t, |pending| {
            for page in pages {
                self.machine().execute(self.paths().loan);
                let mut state = object.lock();
                let frame = match object.page(self, &mut state, page) {
                    Ok(frame) => frame,
                    Err(ObjectPageError::NotResident) => return Ok(Some(page)),
                    Err(ObjectPageError::NoMemory) => return Err(VmError::NoMemory),
                    Err(ObjectPageError::Pager(_)) => return Err(VmError::Io),
                    Err(ObjectPageError::BehindEnd) => return Err(VmError::Invalid),
                };
                target.take_object(self, frame, pending)?;
                target.trace(self, frame, Place::File(page * PAGE_SIZE as u64));
            }
            Ok(None)
        })
    }
}
