//! The sending end.

use crate::border::{self, Out, Wait};
use crate::config::level_number;
use crate::ends::{End, SenderEnd, either};
use crate::fault::{Fault, call};
use crate::handles::Tables;
use crate::lent::verb_number;
use crate::opaque::{pf_buffer, pf_lent, pf_loan, pf_sender};
use crate::table::Handle;
use crate::tokens::{LentToken, LoanToken};
use core::ffi::{c_int, c_void};
use pageferry::trust::Same;
use pageferry::{Arrived, Buffer, Error, Sender, Verb};

/// The receiver reads all of the message.
pub const PF_ARRIVED_TOUCHED: c_int = 1;
/// The receiver hands the message on, or looks at a part of it.
pub const PF_ARRIVED_UNTOUCHED: c_int = 2;

impl SenderEnd {
    fn trusting(&self, verb: &str) -> Result<&Sender<Same>, Fault> {
        match self {
            End::Trusting(sender) => Ok(sender),
            End::Guarded(_) => Err(Fault::usage(format!(
                "{verb} needs a receiver that is trusted: pf_sender_open_trusted(), or pf_channel_pair()"
            ))),
        }
    }

    fn buffer(&self, len: usize, wait: Wait) -> Result<Buffer, Error> {
        either!(self, sender => match wait {
            Wait::Forever => sender.buffer(len),
            // Whoever does not wait here may wait by a poll.
            Wait::Not => sender.watch(|sender| sender.try_buffer(len)),
            Wait::For(time) => sender.buffer_timeout(len, time),
        })
    }
}

fn handle(sender: *mut pf_sender) -> Handle {
    Handle::new(sender.cast(), "sender")
}

/// Finds a sender.
fn with<R>(
    sender: *mut pf_sender,
    does: impl FnOnce(&mut SenderEnd) -> Result<R, Fault>,
) -> Result<R, Fault> {
    Tables::get().senders.with(handle(sender), does)
}

/// Sends a buffer, and has a token for it.
///
/// # Safety
/// `lent` is NULL or a place for a handle.
unsafe fn send(
    sender: *mut pf_sender,
    buffer: *mut pf_buffer,
    lent: *mut *mut pf_lent,
    wait: Wait,
    does: impl FnOnce(&SenderEnd, Buffer) -> Result<LentToken, SendRefusal>,
) -> Result<(), Fault> {
    // SAFETY: by the caller's promise.
    let mut out = unsafe { Out::handle(lent, "lent") }?;
    let tables = Tables::get();
    let room = tables.lents.reserve()?;
    let token = with(sender, |end| give(buffer, wait, |buffer| does(end, buffer)))?;
    out.set_handle(room.fill(token));
    Ok(())
}

/// The same, to a receiver that is trusted.
///
/// # Safety
/// `lent` is NULL or a place for a handle.
unsafe fn send_trusting(
    sender: *mut pf_sender,
    buffer: *mut pf_buffer,
    lent: *mut *mut pf_lent,
    verb: &str,
    does: impl FnOnce(&Sender<Same>, Buffer) -> Result<LentToken, SendRefusal>,
) -> Result<(), Fault> {
    // SAFETY: by the caller's promise.
    let mut out = unsafe { Out::handle(lent, "lent") }?;
    let room = Tables::get().lents.reserve()?;
    let token = with(sender, |end| {
        let sender = end.trusting(verb)?;
        give(buffer, Wait::Forever, |buffer| does(sender, buffer))
    })?;
    out.set_handle(room.fill(token));
    Ok(())
}

/// Why a buffer was not sent, and the buffer.
type SendRefusal = (Error, Buffer);

/// Uses a buffer up, where that succeeds.
fn give<R>(
    buffer: *mut pf_buffer,
    wait: Wait,
    does: impl FnOnce(Buffer) -> Result<R, SendRefusal>,
) -> Result<R, Fault> {
    let buffer = Handle::new(buffer.cast(), "buffer");
    Tables::get().buffers.consume(buffer, |buffer| {
        does(buffer).map_err(|(error, back)| {
            // What was sealed and cannot be had anew is no buffer any more.
            (wait.fault(error), Some(back).filter(|back| back.capacity() > 0))
        })
    })
}

/// Ends sending. The receiver takes what was sent, and then sees that the sender is gone. Buffers, lent
/// memory and what they point to stay valid until they are freed themselves.
#[unsafe(no_mangle)]
pub extern "C" fn pf_sender_free(sender: *mut pf_sender) -> c_int {
    call(|| Tables::get().senders.free(handle(sender)))
}

/// What loans of this channel promise: one of PF_LEVEL_*. It is what was asked for, or PF_LEVEL_COPY where
/// the host or the peer cannot have that.
///
/// # Safety
/// `level` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_level(sender: *mut pf_sender, level: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(level, "level", 0) }?;
        with(sender, |end| {
            out.set(level_number(either!(end, sender => sender.level())));
            Ok(())
        })
    })
}

/// Who was at the other end when the connection was made, as the kernel knows it: process (0 where it has no
/// number here), user, group.
///
/// # Safety
/// `pid`, `uid` and `gid` are NULL or places for numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_peer(
    sender: *mut pf_sender,
    pid: *mut i32,
    uid: *mut u32,
    gid: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out =
            unsafe { (Out::new(pid, "pid", 0)?, Out::new(uid, "uid", 0)?, Out::new(gid, "gid", 0)?) };
        with(sender, |end| {
            let peer = either!(end, sender => sender.peer())?;
            out.0.set(peer.pid);
            out.1.set(peer.uid);
            out.2.set(peer.gid);
            Ok(())
        })
    })
}

/// How many messages were sent, and how many of them are out: sent, and not given back.
///
/// # Safety
/// `sent` and `out` are NULL or places for numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_counters(sender: *mut pf_sender, sent: *mut u64, out: *mut u64) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut to = unsafe { (Out::new(sent, "sent", 0)?, Out::new(out, "out", 0)?) };
        with(sender, |end| {
            let counters = either!(end, sender => sender.counters());
            to.0.set(counters.sent);
            to.1.set(counters.out);
            Ok(())
        })
    })
}

/// Memory for a message of `len` bytes. Waits, while the receiver holds what there is, `timeout_ms` at most
/// (or PF_WAIT, PF_NOWAIT). What it finds there is older, or zero.
///
/// PF_EUSAGE: `len` is 0 or more than the pool has; or this process itself holds all slots as buffers and
/// lent memory, so that waiting would never end. PF_EPEER_*: the receiver is gone. PF_EWOULDBLOCK,
/// PF_ETIMEDOUT.
///
/// # Safety
/// `buffer` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_buffer(
    sender: *mut pf_sender,
    len: usize,
    timeout_ms: c_int,
    buffer: *mut *mut pf_buffer,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::handle(buffer, "buffer") }?;
        let wait = Wait::from_ms(timeout_ms)?;
        let room = Tables::get().buffers.reserve()?;
        let buffer = with(sender, |end| end.buffer(len, wait).map_err(|error| wait.fault(error)))?;
        out.set_handle(room.fill(buffer));
        Ok(())
    })
}

/// Waits until one more message can be sent, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT): the next call that
/// sends does not wait for that. Only on a sealed channel it may wait all the same, for memory that is out
/// counts against the budget there.
///
/// PF_EPEER_*: the receiver is gone. PF_EWOULDBLOCK, PF_ETIMEDOUT: as many messages are out as the
/// configuration's `capacity`.
#[unsafe(no_mangle)]
pub extern "C" fn pf_sender_room(sender: *mut pf_sender, timeout_ms: c_int) -> c_int {
    call(|| {
        let wait = Wait::from_ms(timeout_ms)?;
        with(sender, |end| {
            either!(end, sender => sender.wait_room(wait.at_most())).map_err(|error| wait.fault(error))
        })
    })
}

/// Lends a buffer: the receiver reads it where it is, until it gives it back. `tag` is a number for the
/// receiver. Waits, while as many messages are out as the configuration's `capacity`, `timeout_ms` at most
/// (or PF_WAIT, PF_NOWAIT).
///
/// Its pointer may be read on. What is stored through it from now on, by whatever thread, is a page of this process
/// alone and never reaches the message; but at PF_LEVEL_COPY it may, until the receiver has copied it.
///
/// It uses `buffer` up. PF_EPEER_*: the receiver is gone. PF_EWOULDBLOCK, PF_ETIMEDOUT: there was no room.
///
/// # Safety
/// `lent` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_loan(
    sender: *mut pf_sender,
    buffer: *mut pf_buffer,
    tag: u64,
    timeout_ms: c_int,
    lent: *mut *mut pf_lent,
) -> c_int {
    call(|| {
        let wait = Wait::from_ms(timeout_ms)?;
        // SAFETY: by the caller's promise.
        unsafe {
            send(sender, buffer, lent, wait, |end, buffer| {
                either!(end, sender => sender.loan_timeout_or_return(buffer, tag, wait.at_most()))
                    .map(LentToken::Lent)
            })
        }
    })
}

/// Gives a buffer away: the receiver alone reads and writes it, where it is. Its memory is free again when
/// the receiver gives it back. `tag` is a number for the receiver. Waits, while as many messages are out as
/// the configuration's `capacity`.
///
/// A touch of its pointer is a fault (SIGSEGV) from now on.
///
/// It uses `buffer` up. PF_EUSAGE: the receiver is not trusted, or one side has PF_CONFIG_NO_DONATIONS, or
/// the channel is sealed or leased. PF_EPEER_*: the receiver is gone.
#[unsafe(no_mangle)]
pub extern "C" fn pf_sender_donate(sender: *mut pf_sender, buffer: *mut pf_buffer, tag: u64) -> c_int {
    call(|| {
        with(sender, |end| {
            let sender = end.trusting("a donation")?;
            give(buffer, Wait::Forever, |buffer| sender.donate_or_return(buffer, tag))
        })
    })
}

/// As pf_sender_donate(), with zero memory in the buffer's place: its pointer may be read and written on,
/// until `lent` is freed. `lent` cannot be waited for by pf_lent_wait().
///
/// # Safety
/// `lent` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_donate_zero(
    sender: *mut pf_sender,
    buffer: *mut pf_buffer,
    tag: u64,
    lent: *mut *mut pf_lent,
) -> c_int {
    // SAFETY: by the caller's promise.
    call(|| unsafe {
        send_trusting(sender, buffer, lent, "a donation", |sender, buffer| {
            sender.donate_zero_or_return(buffer, tag).map(LentToken::Zeroed)
        })
    })
}

/// Shows a buffer to the receiver while this side goes on to write it. There is no protection: the receiver
/// sees stores when the machine shows them to it. Waits, while as many messages are out as the
/// configuration's `capacity`.
///
/// Its pointer may be read and written on, until `lent` is waited for or freed. `tag` is a number for the
/// receiver.
///
/// It uses `buffer` up. PF_EUSAGE: the receiver is not trusted, or the channel is sealed or leased.
/// PF_EPEER_*: the receiver is gone.
///
/// # Safety
/// `lent` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_share(
    sender: *mut pf_sender,
    buffer: *mut pf_buffer,
    tag: u64,
    lent: *mut *mut pf_lent,
) -> c_int {
    // SAFETY: by the caller's promise.
    call(|| unsafe {
        send_trusting(sender, buffer, lent, "shared memory", |sender, buffer| {
            sender.share_or_return(buffer, tag).map(LentToken::Sharing)
        })
    })
}

/// Sends `len` bytes by copy: the caller's memory is the caller's again when this returns. `tag` is a number
/// for the receiver. Waits, while there is no room, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT).
///
/// PF_EUSAGE: `data` is NULL, or `len` is more than the pool has. PF_EPEER_*: the receiver is gone.
/// PF_EWOULDBLOCK, PF_ETIMEDOUT: nothing was sent.
///
/// # Safety
/// `data` is NULL or has `len` bytes that nobody writes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_copy(
    sender: *mut pf_sender,
    data: *const c_void,
    len: usize,
    tag: u64,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        let wait = Wait::from_ms(timeout_ms)?;
        // SAFETY: by the caller's promise.
        let bytes = unsafe { border::bytes(data, len, "data") }?;
        with(sender, |end| {
            let copied = either!(end, sender => match wait {
                Wait::Forever => sender.copy_tagged(bytes, tag),
                _ => sender.copy_tagged_timeout(bytes, tag, wait.at_most()),
            });
            copied.map_err(|error| wait.fault(error))
        })
    })
}

/// Sends a buffer by copy: the receiver copies it out, and its memory comes home at once. `tag` is a number
/// for the receiver. Waits, while as many messages are out as the configuration's `capacity`. What is stored
/// through its pointer may reach the message until `lent` is home.
///
/// It uses `buffer` up. PF_EUSAGE: the channel is sealed. PF_EPEER_*: the receiver is gone.
///
/// # Safety
/// `lent` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_copy_buffer(
    sender: *mut pf_sender,
    buffer: *mut pf_buffer,
    tag: u64,
    lent: *mut *mut pf_lent,
) -> c_int {
    // SAFETY: by the caller's promise.
    call(|| unsafe {
        send(sender, buffer, lent, Wait::Forever, |end, buffer| {
            either!(end, sender => sender.copy_buffer_or_return(buffer, tag)).map(LentToken::Lent)
        })
    })
}

fn arrival(arrived: c_int) -> Result<Arrived, Fault> {
    match arrived {
        PF_ARRIVED_TOUCHED => Ok(Arrived::Touched),
        PF_ARRIVED_UNTOUCHED => Ok(Arrived::Untouched),
        _ => Err(Fault::usage(format!("`arrived` is {arrived}; expected one of PF_ARRIVED_*"))),
    }
}

/// Sends a buffer in the way that is cheapest, by what was measured on this host and seen on this channel: by
/// copy or as a loan. pf_lent_verb() says which. `arrived` is what the receiver will do with it: one of
/// PF_ARRIVED_*. `tag` is a number for the receiver. Waits, while as many messages are out as the
/// configuration's `capacity`. What is stored through its pointer may reach the message until `lent` is home,
/// for it may be a copy.
///
/// It uses `buffer` up. PF_EPEER_*: the receiver is gone.
///
/// # Safety
/// `lent` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_auto(
    sender: *mut pf_sender,
    buffer: *mut pf_buffer,
    arrived: c_int,
    tag: u64,
    lent: *mut *mut pf_lent,
) -> c_int {
    call(|| {
        let arrived = arrival(arrived)?;
        // SAFETY: by the caller's promise.
        unsafe {
            send(sender, buffer, lent, Wait::Forever, |end, buffer| {
                either!(end, sender => sender.auto_or_return(buffer, arrived, tag)).map(LentToken::Lent)
            })
        }
    })
}

/// As pf_sender_auto(), for a buffer that is not wanted back: it may also be donated. `verb` is what was
/// done: one of PF_VERB_*. Its pointer must not be used any more.
///
/// It uses `buffer` up. PF_EUSAGE: the receiver is not trusted. PF_EPEER_*: the receiver is gone.
///
/// # Safety
/// `verb` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_auto_give(
    sender: *mut pf_sender,
    buffer: *mut pf_buffer,
    arrived: c_int,
    tag: u64,
    verb: *mut c_int,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(verb, "verb", 0) }?;
        let arrived = arrival(arrived)?;
        let verb: Verb = with(sender, |end| {
            let sender = end.trusting("giving a buffer away")?;
            give(buffer, Wait::Forever, |buffer| sender.auto_give_or_return(buffer, arrived, tag))
        })?;
        out.set(verb_number(verb));
        Ok(())
    })
}

/// Sends the same sealed memory once more: nothing is copied and nothing is sealed again. `lent` stays as it
/// is, and `again` is a handle of its own. `tag` is a number for the receiver. Waits, while there is no room.
///
/// PF_EUSAGE: the memory is not sealed. PF_EPEER_*: the receiver is gone.
///
/// # Safety
/// `again` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_resend(
    sender: *mut pf_sender,
    lent: *mut pf_lent,
    tag: u64,
    again: *mut *mut pf_lent,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::handle(again, "again") }?;
        let tables = Tables::get();
        let room = tables.lents.reserve()?;
        let token = with(sender, |end| {
            tables.lents.with(Handle::new(lent.cast(), "lent"), |lent| match lent {
                LentToken::Lent(lent) => Ok(either!(end, sender => sender.resend_tagged(lent, tag))?),
                _ => Err(Fault::usage("`lent` is no loan: only sealed memory is sent again".to_owned())),
            })
        })?;
        out.set_handle(room.fill(LentToken::Lent(token)));
        Ok(())
    })
}

/// Lends what was lent once more, unchanged: waits until it is home, and while there is no room. `again` is
/// its new handle, and `tag` a number for the receiver.
///
/// It uses `lent` up. PF_EUSAGE: `lent` is no loan, or one of another channel. PF_EPEER_*: the receiver is
/// gone.
///
/// # Safety
/// `again` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_loan_again(
    sender: *mut pf_sender,
    lent: *mut pf_lent,
    tag: u64,
    again: *mut *mut pf_lent,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::handle(again, "again") }?;
        let tables = Tables::get();
        let room = tables.lents.reserve()?;
        let token = with(sender, |end| {
            tables.lents.consume(Handle::new(lent.cast(), "lent"), |lent| match lent {
                LentToken::Lent(lent) => either!(end, sender => sender.loan_again_or_return(lent, tag))
                    .map_err(|(error, lent)| (error.into(), Some(LentToken::Lent(lent)))),
                other => {
                    let fault = Fault::usage("`lent` is no loan: only a loan is lent again".to_owned());
                    Err((fault, Some(other)))
                }
            })
        })?;
        out.set_handle(room.fill(LentToken::Lent(token)));
        Ok(())
    })
}

/// Hands a message on, with its tag. Sealed memory goes as it is, where this channel takes it; anything else
/// is copied. `loan` stays as it is. Waits, while there is no room.
///
/// PF_EUSAGE: `loan` is shared memory, which is none of the receiver's to hand on; or too long. PF_EPEER_*:
/// the receiver is gone.
#[unsafe(no_mangle)]
pub extern "C" fn pf_sender_forward(sender: *mut pf_sender, loan: *mut pf_loan) -> c_int {
    call(|| {
        with(sender, |end| {
            Tables::get().loans.with(Handle::new(loan.cast(), "loan"), |loan| match loan {
                LoanToken::Loan(loan) => Ok(either!(end, sender => sender.forward(loan))?),
                LoanToken::Owned(owned) => {
                    Ok(either!(end, sender => sender.copy_tagged(&owned.bytes, owned.tag))?)
                }
                LoanToken::Shared(_) => Err(Fault::usage(
                    "`loan` is shared memory: receive it without PF_RECV_SHARED to hand on its bytes"
                        .to_owned(),
                )),
            })
        })
    })
}
