//! Lending pages of an object that no address leads to, as a file is read (UVM paper, 4.1.1 and 4.2.3).
//!
//! Each page is brought in, and goes on loan to its borrower, the one anon that an object's page is lent to: the loans
//! of `loan`, without a map. A reader's pages are protected in one batch. A write through a mapping of the file breaks
//! the loan, and so does one by a system call; what was lent stays as it was.
//!
//! Nothing is held between two pages, so the object may be cut meanwhile: then it ends before the page.

use super::loan::{AnonLoan, in_one_batch, loan_anon};
use crate::error::VmError;
use crate::object::{Object, ObjectPageError};
use crate::vm::Vm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{Cause, Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Place, Threads};

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
        let _c = self.machine().scope(Cause::Vm);
        if pages.is_empty() {
            return Err(VmError::Invalid);
        }
        // The loan is one from the first page on: whatever ends this early gives its pages back.
        let mut loan = AnonLoan::new(self, Vec::new());
        match self.lend_object(t, object, pages, &mut loan) {
            Ok(()) => Ok(loan),
            Err(e) => {
                self.release_anons(loan);
                Err(e)
            }
        }
    }

    fn lend_object(
        &self,
        t: &dyn Threads,
        object: &Arc<Object<M>>,
        pages: Range<u64>,
        loan: &mut AnonLoan<M>,
    ) -> Result<(), VmError> {
        loop {
            let seen = self.frames().refusals();
            let rest = pages.start + loan.len_pages() as u64..pages.end;
            match self.lend_resident(t, object, rest, loan) {
                Ok(None) => return Ok(()),
                Ok(Some(missing)) => object.fetch(self, t, missing, self.read_ahead())?,
                // What was lent so far stays so meanwhile.
                Err(VmError::NoMemory) if self.frames().refusals() != seen && self.wait_for_memory(t) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Lends up to the first page that must be fetched, and returns which.
    fn lend_resident(
        &self,
        t: &dyn Threads,
        object: &Arc<Object<M>>,
        pages: Range<u64>,
        loan: &mut AnonLoan<M>,
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
                loan.push(loan_anon(self, frame, pending)?);
                let at = Place::File(page * PAGE_SIZE as u64);
                let parcel = Parcel { by: Means::Loan, at, len_bytes: PAGE_SIZE };
                self.machine().trace_flow(Flow::Page(frame), FlowStep::Taken(parcel));
            }
            Ok(None)
        })
    }
}
