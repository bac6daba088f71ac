//! One request of a client, in a system call of its: what goes there, what comes back.
//!
//! The words go in the calling process's kept control piece, bytes in a kept data piece; both are attached to it for
//! the time of the request only ([`crate::ispc`]). No lock is held meanwhile.
//!
//! # What can fail
//! A request: its server dies, or has died; the caller's addresses; reserved entries that only the caller could free.

use super::answer::{ANSWER_BYTES, Answer};
use alloc::vec::Vec;
use pageferry_abi::{Errno, Pid, SendMode};
use pageferry_core::proc::{Syscall, Uio};
use pageferry_hal::{Machine, PAGE_SIZE, Va};
use pageferry_ispc::{Ispc, Pieces};

/// Where the bytes of a request come from, or go to.
pub(super) enum Bytes<'a> {
    None,
    /// From the program's buffer, up to so many; it is moved on by what was taken.
    From(&'a mut Uio, usize),
    /// From elsewhere, so many at most: what is called puts them to an address, and answers how many.
    By(&'a mut dyn FnMut(Va) -> Result<usize, Errno>, usize),
    /// To the program's buffer, so many at most; it is moved on by what was put there.
    To(&'a mut Uio, usize),
    /// To the kernel's memory.
    ToKernel(Va, usize),
    /// To nowhere else: as many as the lower half of the answer's second value says are taken from the piece.
    Taken(&'a mut Vec<u8>),
}

impl Bytes<'_> {
    fn max_bytes(&self) -> usize {
        match *self {
            Bytes::None => 0,
            Bytes::From(_, len) | Bytes::By(_, len) | Bytes::To(_, len) | Bytes::ToKernel(_, len) => len,
            Bytes::Taken(_) => PAGE_SIZE,
        }
    }
}

/// Who is asked: a service, and which process it must be, if that matters. And how.
pub(super) struct Asking {
    pub(super) service: u32,
    pub(super) expected: Option<Pid>,
    /// The most pages of data that go with it.
    pub(super) max_pages: usize,
    pub(super) interruptible: bool,
    /// A defect: its pieces stay attached.
    pub(super) keeps_attached: bool,
}

/// What a request has come to.
pub(super) struct Completion {
    pub(super) answer: Answer,
    pub(super) server: Pid,
    /// How many bytes the program's memory gave or took, and why not all.
    pub(super) moved: (usize, Result<(), Errno>),
}

impl Completion {
    /// The answer of a request that moves no bytes.
    pub(super) fn answer(self) -> Result<Answer, Errno> {
        self.answer.error.map_or(Ok(self.answer), Err)
    }
}

/// Makes a request, with bytes that go with it or come back. `words` writes it, for so many bytes that go there. When
/// the bytes that came were not all taken, `behind` may make another with the same pieces.
///
/// # Errors
/// [`Errno::ConnectionRefused`], [`Errno::ConnectionReset`]: the server dies, or has died. [`Errno::Fault`]: not one
/// byte could be taken from the program. [`Errno::NameTooLong`], [`Errno::NoMemory`]; [`Errno::Interrupted`], only if
/// interruptible.
pub(super) fn exchange<M: Machine>(
    call: &Syscall<'_, M>,
    ispc: &Ispc<M>,
    asking: &Asking,
    words: &mut dyn FnMut(usize) -> Result<Vec<u8>, Errno>,
    mut bytes: Bytes<'_>,
    behind: &mut dyn FnMut(&Completion) -> Option<Vec<u8>>,
) -> Result<Completion, Errno> {
    let pieces =
        ispc.take_kept(call, data_pages(bytes.max_bytes(), asking.max_pages), asking.interruptible)?;
    let done = (|| {
        let done = with_pieces(call, ispc, asking, pieces, words, &mut bytes)?;
        if let Some(other) = behind(&done) {
            call.store_bytes(pieces.control, &other)?;
            // The server has died since: nothing is left that could be put right.
            _ = ispc.request_for(call, (asking.service, asking.expected), pieces, false);
        }
        Ok(done)
    })();
    if !asking.keeps_attached {
        ispc.put_kept(call, pieces);
    }
    done
}

fn with_pieces<M: Machine>(
    call: &Syscall<'_, M>,
    ispc: &Ispc<M>,
    asking: &Asking,
    pieces: Pieces,
    words: &mut dyn FnMut(usize) -> Result<Vec<u8>, Errno>,
    bytes: &mut Bytes<'_>,
) -> Result<Completion, Errno> {
    let data = pieces.data.unwrap_or(pieces.control);
    let mut taken = (0, Ok(()));
    match bytes {
        Bytes::From(uio, len) => {
            taken = moved(call, data, *len, uio);
            if taken.0 == 0 && *len > 0 {
                taken.1?;
            }
        }
        Bytes::By(put, _) => taken.0 = put(data)?,
        _ => {}
    }
    call.store_bytes(pieces.control, &words(taken.0)?)?;
    let server = ispc.request_for(call, (asking.service, asking.expected), pieces, asking.interruptible)?;
    let mut answered = [0; ANSWER_BYTES];
    call.fetch_bytes(pieces.control, &mut answered)?;
    let answer = Answer::of(&answered);
    match bytes {
        Bytes::To(uio, len) => taken = moved(call, data, (answer.value as usize).min(*len), uio),
        Bytes::ToKernel(to, len) => {
            let len = (answer.value as usize).min(*len);
            taken = moved(call, *to, len, &mut Uio::write(data, len, SendMode::Copy));
        }
        Bytes::Taken(into) => {
            into.resize((answer.more as u32 as usize).min(PAGE_SIZE), 0);
            call.fetch_bytes(data, into)?;
        }
        Bytes::None | Bytes::From(..) | Bytes::By(..) => {}
    }
    Ok(Completion { answer, server, moved: taken })
}

/// Moves `len` bytes between a piece and a buffer; how many came, and why not all.
fn moved<M: Machine>(
    call: &Syscall<'_, M>,
    kva: Va,
    len: usize,
    uio: &mut Uio,
) -> (usize, Result<(), Errno>) {
    let before = uio.done();
    let result = call.uiomove(kva, len, uio);
    (uio.done() - before, result)
}

/// How long a data piece for so many bytes is: of few lengths, because each is kept.
fn data_pages(len_bytes: usize, max_pages: usize) -> usize {
    match len_bytes.div_ceil(PAGE_SIZE) {
        0 => 0,
        pages => pages.next_power_of_two().min(max_pages),
    }
}
