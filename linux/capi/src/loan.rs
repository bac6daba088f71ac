//! Messages that were received.

use crate::border::Out;
use crate::config::level_number;
use crate::fault::{Fault, call};
use crate::handles::Tables;
use crate::lent::verb_number;
use crate::opaque::pf_loan;
use crate::table::Handle;
use crate::tokens::LoanToken;
use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};
use pageferry::{Level, Verb};

fn handle(loan: *mut pf_loan) -> Handle {
    Handle::new(loan.cast(), "loan")
}

fn with<R>(loan: *mut pf_loan, does: impl FnOnce(&mut LoanToken) -> Result<R, Fault>) -> Result<R, Fault> {
    Tables::get().loans.with(handle(loan), does)
}

/// Where the bytes of a message are, and how many: to be read until it is released or moved by
/// pf_loan_transfer(). Nobody changes them, but for shared memory (PF_RECV_SHARED), which the sender writes.
/// Any number of threads may read them.
///
/// PF_EHOST: shared memory cannot be mapped.
///
/// # Safety
/// `data` and `len` are NULL or places for the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_loan_data(
    loan: *mut pf_loan,
    data: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { (Out::new(data, "data", null())?, Out::new(len, "len", 0)?) };
        with(loan, |loan| {
            let (data, bytes) = match loan {
                LoanToken::Loan(loan) => (loan.as_ptr(), loan.len()),
                LoanToken::Owned(owned) => (owned.bytes.as_ptr(), owned.bytes.len()),
                LoanToken::Shared(shared) => (shared.as_ptr(), shared.len()),
            };
            if data.is_null() {
                return Err(Fault::host("mmap", rustix::io::Errno::NOMEM));
            }
            out.0.set(data.cast());
            out.1.set(bytes);
            Ok(())
        })
    })
}

/// The same, to be written to. Nobody else sees what is written, and it lasts until the message is released.
/// Of lent memory the kernel copies each page at the first store to it; donated and copied memory is written
/// where it is; sealed memory is copied whole first, to another address.
///
/// PF_EUSAGE: it is shared memory. PF_EHOST, PF_EBUDGET: the memory is not to be had; the message stays as it
/// was.
///
/// # Safety
/// `data` and `len` are NULL or places for the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_loan_data_mut(
    loan: *mut pf_loan,
    data: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { (Out::new(data, "data", null_mut())?, Out::new(len, "len", 0)?) };
        with(loan, |loan| {
            let bytes: &mut [u8] = match loan {
                LoanToken::Loan(loan) => loan.as_mut()?,
                LoanToken::Owned(owned) => &mut owned.bytes,
                LoanToken::Shared(_) => {
                    let said = "`loan` is shared memory, which is not written by its receiver";
                    return Err(Fault::usage(said.to_owned()));
                }
            };
            out.0.set(bytes.as_mut_ptr().cast());
            out.1.set(bytes.len());
            Ok(())
        })
    })
}

/// Moves the bytes to memory of this process, and gives the sender its memory back at once. The handle stays,
/// and the bytes are at another address: pointers from before must not be used any more. Once moved, it does
/// nothing.
///
/// PF_EUSAGE: it is shared memory. PF_EHOST: the memory is not to be had; the message stays as it was.
#[unsafe(no_mangle)]
pub extern "C" fn pf_loan_transfer(loan: *mut pf_loan) -> c_int {
    call(|| {
        with(loan, |loan| match loan {
            LoanToken::Shared(_) => {
                let said = "`loan` is shared memory: receive it without PF_RECV_SHARED to have its bytes";
                Err(Fault::usage(said.to_owned()))
            }
            loan => Ok(loan.transfer()?),
        })
    })
}

/// The number that the sender gave a message; 0 if none.
///
/// # Safety
/// `tag` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_loan_tag(loan: *mut pf_loan, tag: *mut u64) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(tag, "tag", 0) }?;
        with(loan, |loan| {
            out.set(match loan {
                LoanToken::Loan(loan) => loan.tag(),
                LoanToken::Owned(owned) => owned.tag,
                LoanToken::Shared(shared) => shared.tag(),
            });
            Ok(())
        })
    })
}

/// How many messages came before a message on its channel.
///
/// # Safety
/// `sequence` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_loan_sequence(loan: *mut pf_loan, sequence: *mut u64) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(sequence, "sequence", 0) }?;
        with(loan, |loan| {
            out.set(match loan {
                LoanToken::Loan(loan) => loan.sequence(),
                LoanToken::Owned(owned) => owned.sequence,
                LoanToken::Shared(shared) => shared.sequence(),
            });
            Ok(())
        })
    })
}

/// What happened to the memory of a message: one of PF_VERB_*.
///
/// # Safety
/// `verb` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_loan_verb(loan: *mut pf_loan, verb: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(verb, "verb", 0) }?;
        with(loan, |loan| {
            out.set(verb_number(match loan {
                LoanToken::Loan(loan) => loan.verb(),
                LoanToken::Owned(owned) => owned.verb,
                LoanToken::Shared(_) => Verb::Share,
            }));
            Ok(())
        })
    })
}

/// What was promised of the bytes of a message: one of PF_LEVEL_*.
///
/// # Safety
/// `level` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_loan_level(loan: *mut pf_loan, level: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(level, "level", 0) }?;
        with(loan, |loan| {
            out.set(level_number(match loan {
                LoanToken::Loan(loan) => loan.level(),
                LoanToken::Owned(owned) => owned.level,
                LoanToken::Shared(_) => Level::Typed,
            }));
            Ok(())
        })
    })
}

/// Gives a message back: the sender has its memory again. Its pointer must not be used any more, by any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn pf_loan_release(loan: *mut pf_loan) -> c_int {
    call(|| Tables::get().loans.free(handle(loan)))
}
