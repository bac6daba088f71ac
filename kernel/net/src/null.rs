//! The null protocol: it discards what is sent, and answers at once with pages as they are (UVM paper, 5.1 and 5.2).
//! For measuring.
//!
//! It answers with memory of its own, in a row, by a receive of its own that knows nothing of mbufs; or, as the kernel
//! is configured, with clusters, by the receive that pipes use. By *copy* the bytes of an answer are copied out. By
//! *transfer* its whole pages are given to the receiver at once, if they go to pages' addresses and are not refused;
//! what is left is copied.
//!
//! # Locks
//! None of its own; bytes and pages move with no spin lock held.
//!
//! # What can fail
//! Memory; the receiver's addresses. A call that has received anything does not fail.

use super::soreceive::Receiver;
use super::sosend::send_to_null;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_core::base::Core;
use pageferry_core::choose::Peer;
use pageferry_core::config::NullAnswers;
use pageferry_core::counter::KernelCounter;
use pageferry_core::fs::{File, FileOps, Rights, SocketOps};
use pageferry_core::mbuf::Answer;
use pageferry_core::proc::{PagesCame, Syscall, Uio, UioMode, WaitFlag};
use pageferry_hal::{Cause, Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Place, Va};

/// A socket of the null protocol.
pub struct NullSocket(());

impl NullSocket {
    /// A new one as an open file.
    pub fn open<M: Machine>(core: &Core<M>) -> File<M> {
        core.answers.open();
        File::socket(Box::new(NullSocket(())), Rights::READ_WRITE)
    }
}

impl<M: Machine> FileOps<M> for NullSocket {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(call.core.config.paths.soreceive);
        m.execute(call.core.config.paths.protocol);
        // There is nothing to wait for but memory.
        uio.wait = WaitFlag::WaitOk;
        match call.core.config.socket.null_answers {
            NullAnswers::Clusters => receive_clusters(call, uio),
            NullAnswers::Memory => receive_memory(call, uio),
        }
    }

    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        send_to_null(call, uio)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        call.core.answers.close();
    }
}

impl<M: Machine> SocketOps<M> for NullSocket {}

/// The answer is as many bytes as are asked for, or as many as there are clusters for.
fn receive_clusters<M: Machine>(call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
    let pool = &call.core.mbufs;
    let mut receiver = Receiver::new(call, uio, Peer::Null)?;
    let len = receiver.left();
    let (mut answered, mut answer) = (0, VecDeque::new());
    while answered < len {
        let piece = (len - answered).min(PAGE_SIZE);
        match pool.cluster_for(Some(call.thread), piece) {
            Ok(mbuf) => answer.push_back(mbuf),
            Err(e) if answered == 0 => return Err(e),
            Err(_) => break,
        }
        answered += piece;
    }
    let (rest, result) = receiver.deliver_all(answer);
    rest.into_iter().for_each(|mbuf| pool.free(mbuf));
    result
}

/// The answer is as many bytes as are asked for, or as many as an answer may have.
fn receive_memory<M: Machine>(call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
    let to_area = Receiver::<M>::goes_to_area(uio)?;
    if uio.left() == 0 {
        return Ok(());
    }
    let answers = &call.core.answers;
    let mut answer = answers.take(call.thread, uio.left())?;
    let len = uio.left().min(answer.len_bytes());
    let pages = len / PAGE_SIZE;
    let result = match uio.mode() {
        UioMode::Discarded => {
            uio.advance(len);
            Ok(())
        }
        UioMode::Placed => Err(Errno::NotSupported),
        UioMode::Copy | UioMode::Pinned => copy(call, &answer, len, uio),
        UioMode::Pages | UioMode::Auto | UioMode::Shown => {
            let aligned = to_area || uio.at().is_page_aligned();
            let mut refused = None;
            if pages > 0 && aligned && pays(call, pages, uio) {
                match give(call, answer, pages, uio) {
                    (Some(left), result) => (answer, refused) = (left, result.err()),
                    // What was given has come; there is nothing to answer the rest with.
                    (None, result) => return result,
                }
            }
            match (uio.mode(), refused) {
                (UioMode::Shown, Some(e)) => Err(e),
                (UioMode::Shown, None) => Ok(()),
                // To an address that the kernel chooses goes nothing behind what is there.
                _ if to_area && uio.done() > 0 => Ok(()),
                _ => {
                    let before = uio.done();
                    let copied =
                        if to_area { gather(call, &answer, len, uio) } else { copy(call, &answer, len, uio) };
                    call.machine().count(KernelCounter::TransferBytesCopied, (uio.done() - before) as u64);
                    copied
                }
            }
        }
    };
    answers.put_back(answer);
    result
}

fn pays<M: Machine>(call: &Syscall<'_, M>, pages: usize, uio: &Uio) -> bool {
    uio.mode() != UioMode::Auto || call.chooses_donation(pages, uio.len(), Peer::Null)
}

/// Gives the first pages of the answer to the receiver, unless it refuses them. What is left of the answer comes back,
/// if there is anything.
fn give<M: Machine>(
    call: &Syscall<'_, M>,
    answer: Answer,
    count: usize,
    uio: &mut Uio,
) -> (Option<Answer>, Result<(), Errno>) {
    call.machine().execute(call.core.config.paths.transfer_call);
    let (space, t) = (call.space, call.thread);
    let (target, shows) = (uio.base().map(|_| uio.at()), uio.mode() == UioMode::Shown);
    let (left, given) = call.core.answers.give(answer, count, |pages| {
        let given = match target {
            Some(at) if shows => space.show_pages(t, at, pages).map(|exchanged| (at, exchanged)),
            _ => space.exchange_pages(t, target, pages),
        };
        given.map_err(|refused| (refused.error, refused.back))
    });
    let came = given.map(|va| uio.pages_came(va, count * PAGE_SIZE, PagesCame::Donated));
    (left, came.map_err(Errno::from))
}

/// Copies the rest of the answer's first `len` bytes.
fn copy<M: Machine>(call: &Syscall<'_, M>, answer: &Answer, len: usize, uio: &mut Uio) -> Result<(), Errno> {
    while uio.done() < len {
        let (before, to) = (uio.done(), uio.at());
        let (from, row) = call.core.answers.row(answer, before, len - before);
        let copied = call.uiomove(from, row, uio);
        trace(call, answer, before..uio.done(), to);
        copied?;
    }
    Ok(())
}

/// Copies up to a page of the answer to a clear page, and transfers that to the transfer area.
fn gather<M: Machine>(
    call: &Syscall<'_, M>,
    answer: &Answer,
    len: usize,
    uio: &mut Uio,
) -> Result<(), Errno> {
    let (from, len) = call.core.answers.row(answer, 0, len.min(PAGE_SIZE));
    let (va, filled) = call.give_gathered(uio.wait, |base| {
        call.copy_kernel(base, from, len);
        Ok(len)
    })?;
    trace(call, answer, 0..filled, va);
    uio.pages_came(va, filled, PagesCame::Donated);
    Ok(())
}

/// The bytes of an answer have come to `at`, by copy: each page for itself.
fn trace<M: Machine>(call: &Syscall<'_, M>, answer: &Answer, bytes: Range<usize>, at: Va) {
    let m = call.machine();
    if !m.is_traced() {
        return;
    }
    let mut done = bytes.start;
    while done < bytes.end {
        let len_bytes = (PAGE_SIZE - done % PAGE_SIZE).min(bytes.end - done);
        let parcel = Parcel { by: Means::Copy, at: Place::User(at + (done - bytes.start)), len_bytes };
        m.trace_flow(Flow::Page(answer.frames()[done / PAGE_SIZE]), FlowStep::Received(parcel));
        done += len_bytes;
    }
}
