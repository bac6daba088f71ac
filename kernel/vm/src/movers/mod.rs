//! What moves pages instead of bytes: loans to the kernel and to anons, transfer into an address space, passing of map
//! entries, pushing down to an object, quick references, windows; and what is kept about loans.

mod batches;
mod loan;
mod loan_history;
mod object_loan;
mod pass;
mod push_down;
mod quick_ref;
mod transfer;
mod window;

pub(crate) use batches::ProtectBatches;
pub use loan::{AnonLoan, KernelLoan};
pub use loan_history::{LoanHistory, LoanOutcome};
pub use pass::{pass, passable};
pub use push_down::PushDown;
pub use quick_ref::{QUICK_REF_PAGES, QuickRef, quick_ref};
pub use transfer::{Given, KernelPages, Refused};
