//! Memory that was sent, as its sender has it.

use crate::border::{Out, Wait};
use crate::fault::{Fault, call};
use crate::handles::Tables;
use crate::opaque::{pf_buffer, pf_lent};
use crate::table::Handle;
use crate::tokens::LentToken;
use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};
use pageferry::Verb;

/// The bytes came in the ring: a copy.
pub const PF_VERB_INLINE: c_int = 1;
/// The receiver copied the bytes out.
pub const PF_VERB_COPY: c_int = 2;
/// The receiver reads the memory where it is.
pub const PF_VERB_LOAN: c_int = 3;
/// The receiver alone has the memory.
pub const PF_VERB_DONATE: c_int = 4;
/// Both have the memory.
pub const PF_VERB_SHARE: c_int = 5;

/// As the header calls it.
pub(crate) fn verb_number(verb: Verb) -> c_int {
    match verb {
        Verb::Inline => PF_VERB_INLINE,
        Verb::Copy => PF_VERB_COPY,
        Verb::Loan => PF_VERB_LOAN,
        Verb::Donate => PF_VERB_DONATE,
        Verb::Share => PF_VERB_SHARE,
    }
}

fn handle(lent: *mut pf_lent) -> Handle {
    Handle::new(lent.cast(), "lent")
}

fn with<R>(lent: *mut pf_lent, does: impl FnOnce(&mut LentToken) -> Result<R, Fault>) -> Result<R, Fault> {
    Tables::get().lents.with(handle(lent), does)
}

/// Waits until the receiver has given the memory back, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT), and has
/// it as a buffer again, with the bytes that were sent. A receiver that is gone has given back all that it
/// had. `lent` is used up where this succeeds, and stays as it was otherwise. Sealed memory stays sealed:
/// what comes back is a copy.
///
/// PF_EUSAGE: `lent` is of pf_sender_donate_zero(). PF_EWOULDBLOCK, PF_ETIMEDOUT: it is not home.
///
/// # Safety
/// `buffer` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_lent_wait(
    lent: *mut pf_lent,
    timeout_ms: c_int,
    buffer: *mut *mut pf_buffer,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::handle(buffer, "buffer") }?;
        let wait = Wait::from_ms(timeout_ms)?;
        let tables = Tables::get();
        let room = tables.buffers.reserve()?;
        let buffer = tables.lents.consume(handle(lent), |lent| match lent {
            LentToken::Lent(lent) => lent
                .wait_timeout(wait.at_most())
                .map_err(|(error, lent)| (wait.fault(error), Some(LentToken::Lent(lent)))),
            LentToken::Sharing(sharing) => sharing
                .wait_timeout(wait.at_most())
                .map_err(|(error, sharing)| (wait.fault(error), Some(LentToken::Sharing(sharing)))),
            zeroed @ LentToken::Zeroed(_) => {
                let said =
                    "`lent` is of pf_sender_donate_zero(): its memory comes home by itself once it is freed";
                Err((Fault::usage(said.to_owned()), Some(zeroed)))
            }
        })?;
        out.set_handle(room.fill(buffer));
        Ok(())
    })
}

/// Whether the receiver has given the memory back: 1 or 0.
///
/// # Safety
/// `home` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_lent_is_home(lent: *mut pf_lent, home: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(home, "home", 0) }?;
        with(lent, |lent| {
            let home = match lent {
                LentToken::Lent(lent) => lent.is_home(),
                LentToken::Sharing(sharing) => sharing.is_home(),
                LentToken::Zeroed(zeroed) => zeroed.is_home(),
            };
            out.set(home?.into());
            Ok(())
        })
    })
}

/// What happened to the memory: one of PF_VERB_*.
///
/// # Safety
/// `verb` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_lent_verb(lent: *mut pf_lent, verb: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(verb, "verb", 0) }?;
        with(lent, |lent| {
            out.set(verb_number(match lent {
                LentToken::Lent(lent) => lent.verb(),
                LentToken::Sharing(_) => Verb::Share,
                LentToken::Zeroed(_) => Verb::Donate,
            }));
            Ok(())
        })
    })
}

/// Where the memory is, and how many bytes it has: to be read until `lent` is waited for, lent again or
/// freed. Of pf_sender_donate_zero() it is the zero memory.
///
/// # Safety
/// `data` and `len` are NULL or places for the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_lent_data(
    lent: *mut pf_lent,
    data: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { (Out::new(data, "data", null())?, Out::new(len, "len", 0)?) };
        with(lent, |lent| {
            let bytes: &[u8] = match lent {
                LentToken::Lent(lent) => lent,
                LentToken::Sharing(sharing) => sharing,
                LentToken::Zeroed(zeroed) => zeroed,
            };
            out.0.set(bytes.as_ptr().cast());
            out.1.set(bytes.len());
            Ok(())
        })
    })
}

/// The same, to be written: shared memory, which the receiver sees, or the zero memory of
/// pf_sender_donate_zero().
///
/// PF_EUSAGE: it is lent or copied, and not the sender's to write.
///
/// # Safety
/// `data` and `len` are NULL or places for the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_lent_data_mut(
    lent: *mut pf_lent,
    data: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { (Out::new(data, "data", null_mut())?, Out::new(len, "len", 0)?) };
        with(lent, |lent| {
            let bytes: &mut [u8] = match lent {
                LentToken::Lent(_) => {
                    let said = "`lent` is lent or copied: wait for it to write to it again";
                    return Err(Fault::usage(said.to_owned()));
                }
                LentToken::Sharing(sharing) => sharing,
                LentToken::Zeroed(zeroed) => zeroed,
            };
            out.0.set(bytes.as_mut_ptr().cast());
            out.1.set(bytes.len());
            Ok(())
        })
    })
}

/// Frees the token, and lets the memory come home by itself. Its pointer must not be used any more. The
/// receiver keeps what it has.
#[unsafe(no_mangle)]
pub extern "C" fn pf_lent_free(lent: *mut pf_lent) -> c_int {
    call(|| Tables::get().lents.free(handle(lent)))
}
