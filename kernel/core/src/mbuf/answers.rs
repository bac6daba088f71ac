//! Memory of the kernel's that the null protocol answers with, without mbufs (UVM paper, 5.2: the socket's receive knew
//! nothing of pages in mbufs then).
//!
//! An [`Answer`] is wired pages in a row of kernel addresses, as many as the largest read has asked for. A reader takes
//! it, copies out of it or gives its pages away (4.2.1: their mappings are removed, and other pages take their place),
//! and puts it back. Who reads meanwhile makes one of its own; one is kept, the larger, as long as a socket is open.
//!
//! # Locks
//! One lock, of the mbufs' class, for a moment; an answer belongs to who has taken it.
//!
//! # What can fail
//! Taking one, for want of frames or addresses. An answer whose pages were given away and cannot be replaced is freed.

use super::addresses::Addresses;
use crate::counter::KernelCounter;
use crate::defect::NetDefect;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_defects::Planted;
use pageferry_ephemeral::FlushAt;
use pageferry_hal::{LockClass, Machine, PAGE_SIZE, Pfn, Prot, SpinLock, Threads, Va, VaRange};
use pageferry_pmap::Reach;
use pageferry_vm::{KernelPages, Vm, VmError};

/// Makes what the null protocol answers with, and keeps one answer for the next read.
pub struct Answers<M: Machine> {
    vm: Arc<Vm<M>>,
    addresses: Addresses<M>,
    max_pages: usize,
    defect: Planted<NetDefect>,
    state: M::Lock<State>,
}

struct State {
    /// Open sockets of the null protocol.
    sockets: usize,
    kept: Option<Answer>,
}

/// Pages to answer with. To be put back with [`Answers::put_back`].
#[must_use = "an answer must be put back"]
#[derive(Debug)]
pub struct Answer {
    pages: KernelPages,
    /// Where the kernel has them, if no direct map does.
    mapped: Option<VaRange>,
}

impl Answer {
    /// Its pages.
    pub fn frames(&self) -> &[Pfn] {
        self.pages.frames()
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.frames().len() * PAGE_SIZE
    }
}

impl<M: Machine> Answers<M> {
    /// None yet; each will have `max_pages` at most.
    pub fn new(
        vm: Arc<Vm<M>>,
        flush_at: FlushAt,
        max_pages: usize,
        defect: Planted<NetDefect>,
    ) -> Answers<M> {
        let state = vm.machine().new_lock(LockClass::MBUF, State { sockets: 0, kept: None });
        Answers { addresses: Addresses::new(vm.clone(), flush_at), vm, max_pages, defect, state }
    }

    /// A socket that answers is opened.
    pub fn open(&self) {
        self.state.lock().sockets += 1;
    }

    /// A socket that answers is closed.
    pub fn close(&self) {
        let left = {
            let mut state = self.state.lock();
            state.sockets -= 1;
            if state.sockets == 0 { state.kept.take() } else { None }
        };
        left.into_iter().for_each(|answer| self.free(answer));
    }

    /// An answer to a read of `len` bytes, or one that is shorter where there are not so many pages.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    ///
    /// # Locks
    /// Sleeps for frames: no spin lock may be held.
    pub fn take(&self, t: &dyn Threads, len: usize) -> Result<Answer, Errno> {
        let wanted = len.div_ceil(PAGE_SIZE).clamp(1, self.max_pages);
        let kept = self.state.lock().kept.take();
        match kept {
            Some(answer) if answer.frames().len() >= wanted => return Ok(answer),
            Some(short) => self.free(short),
            None => {}
        }
        let pages = self.vm.kernel_pages_waiting(t, wanted)?;
        match self.addresses.map(pages.frames(), Prot::RW) {
            Ok(mapped) => Ok(Answer { pages, mapped }),
            Err(e) => {
                self.vm.free_kernel_pages(pages);
                Err(e.into())
            }
        }
    }

    /// Takes an answer back.
    pub fn put_back(&self, answer: Answer) {
        let freed = {
            let mut state = self.state.lock();
            let longer = state.kept.as_ref().is_none_or(|kept| kept.frames().len() < answer.frames().len());
            match state.sockets > 0 && longer {
                true => state.kept.replace(answer),
                false => Some(answer),
            }
        };
        freed.into_iter().for_each(|answer| self.free(answer));
    }

    /// The address of a byte, and up to `len` how many follow it in a row.
    pub fn row(&self, answer: &Answer, at: usize, len: usize) -> (Va, usize) {
        match answer.mapped {
            Some(range) => (range.start() + at, len),
            None => {
                let base = self.addresses.direct(answer.frames()[at / PAGE_SIZE], Reach::Read);
                (base + at % PAGE_SIZE, len.min(PAGE_SIZE - at % PAGE_SIZE))
            }
        }
    }

    /// Takes the first `count` pages out of an answer: the kernel maps them no more. Then `give` puts them somewhere,
    /// and others take their place, those first that it has got in exchange; or it gives them back, and all is as
    /// before. The answer is gone if there are no others.
    pub fn give<R>(
        &self,
        answer: Answer,
        count: usize,
        give: impl FnOnce(KernelPages) -> Result<(R, Option<KernelPages>), (VmError, KernelPages)>,
    ) -> (Option<Answer>, Result<R, VmError>) {
        let Answer { mut pages, mapped } = answer;
        let rest = pages.split_off(count);
        let given_up = mapped.map(|range| VaRange::pages_from(range.start(), count));
        if let Some(range) = given_up {
            let change = self.vm.pmaps().kremove(range);
            match self.defect.is(NetDefect::FlippedNotFlushed) {
                true => change.not_cached(self.vm.pmaps()),
                false => _ = change.flush(self.vm.pmaps()),
            }
            self.vm.kernel_pages_change(range);
        }
        let (first, result) = match give(pages) {
            Ok((given, exchanged)) => {
                self.vm.machine().count(KernelCounter::PagesDonated, count as u64);
                (self.fill_up(exchanged, count), Ok(given))
            }
            Err((error, pages)) => (Ok(pages), Err(error)),
        };
        let Ok(mut pages) = first else {
            self.addresses.unmap(mapped);
            self.vm.free_kernel_pages(rest);
            return (None, result);
        };
        if let Some(range) = given_up {
            self.vm.kernel_pages_change(range);
            self.vm.pmaps().kenter(range.start(), pages.frames(), Prot::RW).not_cached(self.vm.pmaps());
        }
        pages.append(rest);
        (Some(Answer { pages, mapped }), result)
    }

    /// `count` pages, of which there are some.
    fn fill_up(&self, some: Option<KernelPages>, count: usize) -> Result<KernelPages, VmError> {
        let missing = count - some.as_ref().map_or(0, |pages| pages.frames().len());
        let Some(mut pages) = some else { return self.vm.kernel_pages(count) };
        match if missing > 0 { self.vm.kernel_pages(missing).map(Some) } else { Ok(None) } {
            Ok(more) => {
                more.into_iter().for_each(|more| pages.append(more));
                Ok(pages)
            }
            Err(e) => {
                self.vm.free_kernel_pages(pages);
                Err(e)
            }
        }
    }

    fn free(&self, Answer { pages, mapped }: Answer) {
        self.addresses.unmap(mapped);
        self.vm.free_kernel_pages(pages);
    }

    /// Gives back what is kept; answers how many pages.
    pub fn drain(&self) -> usize {
        let kept = self.state.lock().kept.take();
        kept.map_or(0, |answer| {
            let count = answer.frames().len();
            self.free(answer);
            count
        })
    }

    /// Where the pages are that the next read is answered with. For experiments that write what is found there.
    pub fn next(&self) -> Vec<Va> {
        let state = self.state.lock();
        let Some(answer) = &state.kept else { return Vec::new() };
        (0..answer.frames().len()).map(|page| self.row(answer, page * PAGE_SIZE, 1).0).collect()
    }

    /// Open sockets, and pages that are kept.
    pub fn in_use(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.sockets, state.kept.as_ref().map_or(0, |answer| answer.frames().len()))
    }
}
