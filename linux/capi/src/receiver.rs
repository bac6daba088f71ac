//! The receiving end.

use crate::border::{Out, Wait};
use crate::config::level_number;
use crate::ends::{ReceiverEnd, either};
use crate::fault::{Fault, call};
use crate::handles::Tables;
use crate::opaque::{pf_loan, pf_receiver};
use crate::table::Handle;
use crate::tokens::LoanToken;
use core::ffi::{c_int, c_uint};
use pageferry::{Error, Message};

/// The message is read where it is. It can be made writable later.
pub const PF_RECV_READ: c_uint = 0;
/// The message can be written to at once: as by pf_loan_data_mut().
pub const PF_RECV_COPY_ON_WRITE: c_uint = 1;
/// The bytes move to memory of this process, and the sender has its memory back at once: as by
/// pf_loan_transfer().
pub const PF_RECV_TRANSFER: c_uint = 2;
/// Memory that the sender shares comes as such, to be read while the sender writes it. Without this flag its
/// bytes are copied, so that what comes never changes.
pub const PF_RECV_SHARED: c_uint = 4;

impl ReceiverEnd {
    fn next(&mut self, wait: Wait) -> Result<Message, Error> {
        if let Some(kept) = self.kept.take() {
            return Ok(kept);
        }
        either!(self.end, receiver => match wait {
            Wait::Forever => receiver.recv_message(),
            // Whoever does not wait here may wait by a poll.
            Wait::Not => receiver.watch(|receiver| receiver.try_recv_message()),
            Wait::For(time) => receiver.recv_message_timeout(time),
        })
    }

    /// The next message, as it was asked for. Where it cannot be had so, the next call has it.
    fn recv(&mut self, flags: c_uint, wait: Wait) -> Result<LoanToken, Fault> {
        let message = self.next(wait).map_err(|error| wait.fault(error))?;
        let mut received = match message {
            Message::Shared(shared) if flags & PF_RECV_SHARED != 0 => LoanToken::Shared(shared),
            message => match message.settle() {
                Ok(loan) => LoanToken::Loan(loan),
                Err((error, message)) => return Err(self.keep(message, error)),
            },
        };
        let made = match &mut received {
            LoanToken::Loan(loan) if flags & PF_RECV_COPY_ON_WRITE != 0 => loan.as_mut().map(drop),
            LoanToken::Loan(_) if flags & PF_RECV_TRANSFER != 0 => received.transfer(),
            _ => Ok(()),
        };
        match (made, received) {
            (Ok(()), received) => Ok(received),
            (Err(error), LoanToken::Loan(loan)) => Err(self.keep(Message::Loan(loan), error)),
            (Err(error), _) => Err(error.into()),
        }
    }

    fn keep(&mut self, message: Message, error: Error) -> Fault {
        self.kept = Some(message);
        error.into()
    }
}

fn handle(receiver: *mut pf_receiver) -> Handle {
    Handle::new(receiver.cast(), "receiver")
}

fn with<R>(
    receiver: *mut pf_receiver,
    does: impl FnOnce(&mut ReceiverEnd) -> Result<R, Fault>,
) -> Result<R, Fault> {
    Tables::get().receivers.with(handle(receiver), does)
}

/// Ends receiving. The sender has back what was not received. Messages that were stay valid until they are
/// released.
#[unsafe(no_mangle)]
pub extern "C" fn pf_receiver_free(receiver: *mut pf_receiver) -> c_int {
    call(|| Tables::get().receivers.free(handle(receiver)))
}

/// What loans of this channel promise: one of PF_LEVEL_*.
///
/// # Safety
/// `level` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_receiver_level(receiver: *mut pf_receiver, level: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(level, "level", 0) }?;
        with(receiver, |end| {
            out.set(level_number(either!(end.end, receiver => receiver.level())));
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
pub unsafe extern "C" fn pf_receiver_peer(
    receiver: *mut pf_receiver,
    pid: *mut i32,
    uid: *mut u32,
    gid: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out =
            unsafe { (Out::new(pid, "pid", 0)?, Out::new(uid, "uid", 0)?, Out::new(gid, "gid", 0)?) };
        with(receiver, |end| {
            let peer = either!(end.end, receiver => receiver.peer())?;
            out.0.set(peer.pid);
            out.1.set(peer.uid);
            out.2.set(peer.gid);
            Ok(())
        })
    })
}

/// How many messages were received, and how many bytes of copies and sealed memory they hold.
///
/// # Safety
/// `received` and `held` are NULL or places for numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_receiver_counters(
    receiver: *mut pf_receiver,
    received: *mut u64,
    held: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut to = unsafe { (Out::new(received, "received", 0)?, Out::new(held, "held", 0)?) };
        with(receiver, |end| {
            let counters = either!(end.end, receiver => receiver.counters());
            to.0.set(counters.received);
            to.1.set(counters.bytes_held);
            Ok(())
        })
    })
}

/// The next message. Waits for it, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT). `flags` are PF_RECV_*,
/// or-ed; one of PF_RECV_COPY_ON_WRITE and PF_RECV_TRANSFER at most. After PF_EWOULDBLOCK the receiver's
/// descriptor can be polled: see pf_fd().
///
/// PF_EPEER_DEAD: the sender is gone, and all of its messages were received. PF_EPEER_BROKEN: the sender
/// broke the protocol, and the channel is closed. PF_EHOST, PF_EBUDGET: the message cannot be taken for want
/// of memory; it stays the next one. PF_EWOULDBLOCK, PF_ETIMEDOUT: nothing came.
///
/// # Safety
/// `loan` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_recv(
    receiver: *mut pf_receiver,
    flags: c_uint,
    timeout_ms: c_int,
    loan: *mut *mut pf_loan,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::handle(loan, "loan") }?;
        let wait = Wait::from_ms(timeout_ms)?;
        let writable = PF_RECV_COPY_ON_WRITE | PF_RECV_TRANSFER;
        if flags & !(writable | PF_RECV_SHARED) != 0 || flags & writable == writable {
            return Err(Fault::usage(format!(
                "`flags` is {flags:#x}; expected PF_RECV_*, and not both PF_RECV_COPY_ON_WRITE and PF_RECV_TRANSFER"
            )));
        }
        let room = Tables::get().loans.reserve()?;
        let received = with(receiver, |end| end.recv(flags, wait))?;
        out.set_handle(room.fill(received));
        Ok(())
    })
}
