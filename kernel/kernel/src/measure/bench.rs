//! What moving data costs on this machine, measured by the kernel itself.
//!
//! # What is measured
//! The kernel does each thing a few times on scratch memory in the address space of the caller, and reads the clock, as
//! real kernels choose their copy loops at boot. So processor, caches, memory, TLB, invalidations and the kernel's own
//! paths are all in the numbers, and no configuration names any of them.
//!
//! * *Copying* a page costs by where the page is, and that depends on how much memory is used between two uses of the
//!   same: the *working set*. The cost is measured for sets of 2, 4, 8, ... pages that are copied in turn.
//! * An *ephemeral mapping* of a page costs what this kernel's scheme makes of it.
//! * *Lending*, *donating*, *lending on* and *passing* cost by the call and by the page: two sizes are measured. What a
//!   receiver by transfer does afterwards, freeing the pages with `anflush`, is part of it.
//! * A *switch* is the way from one thread's run to another's (`rally`). Passing is measured between two threads, too
//!   (`passing`).
//! * *Faults* that come later: the first write to a page after its loan, a write that breaks a loan.
//!
//! # Limits
//! One CPU measures all else. That a page was written by another CPU, and has to come out of its cache, is not in
//! the cost of a copy; choices learn that (`pageferry_costs`).
//!
//! # Locks
//! None is held but the sleep lock of [`super::Measuring`]. Measuring sleeps, faults and makes a thread.
//!
//! # What can fail
//! All of it, for want of memory or of a thread structure; scratch memory is given back.

use super::passing::passing;
use super::rally::{MANY, Rally};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, ReceiveMode};
use pageferry_core::mbuf::Mbuf;
use pageferry_core::proc::Syscall;
use pageferry_costs::{Arrived, CLASSES, Linear, MoveCosts};
use pageferry_ephemeral::{Flags, MappingUser};
use pageferry_hal::{Crossing, Machine, PAGE_SIZE, Prot, Threads, Va};
use pageferry_net::{deliver, lend_or_copy};
use pageferry_vm::Inherit;

/// Pages that are copied to measure a working set, behind those that bring it into its steady state.
const SAMPLE: usize = 32;

/// Measures the costs in the address space of the caller.
///
/// # Errors
/// [`Errno::NoMemory`], or what the parts answer.
pub(super) fn measure<M: Machine>(call: &Syscall<'_, M>, rally: &Arc<Rally<M>>) -> Result<MoveCosts, Errno> {
    let max_pages = call.core.vm.free_frames() / 4;
    let classes = (max_pages.max(1).ilog2() as usize).min(CLASSES);
    if 1 << classes < 4 * MANY {
        return Err(Errno::NoMemory);
    }
    let len = PAGE_SIZE << classes;
    let at = call.space.map(call.thread, None, len, Prot::RW, Inherit::None)?;
    let result = Bench { call, rally, at, classes }.all();
    call.space.unmap(call.thread, at, len).expect("just mapped");
    result
}

/// Scratch memory of the caller's, and the clock.
struct Bench<'a, M: Machine> {
    call: &'a Syscall<'a, M>,
    /// What happens between two threads is measured by it.
    rally: &'a Arc<Rally<M>>,
    at: Va,
    /// Its size: 2 to the power of this many pages.
    classes: usize,
}

impl<M: Machine> Bench<'_, M> {
    fn all(&self) -> Result<MoveCosts, Errno> {
        let Syscall { core, thread, .. } = *self.call;
        let mut copy_page = [0; CLASSES];
        for class in 0..CLASSES {
            // Without the memory for more, more is taken to cost as much.
            copy_page[class] =
                if class < self.classes { self.copying(1 << class)? } else { copy_page[class - 1] };
        }
        // No loan is longer.
        let lent = MANY.min(core.config.socket.loan_bytes / PAGE_SIZE).max(1);
        let lend = Linear::through(self.lending(1)?, lent, self.lending(lent)?);
        let (rewrite_cycles, break_cycles) = self.writing(lend.of(1))?;
        Ok(MoveCosts {
            copy_page,
            cluster_cycles: self.cluster()?,
            map_cycles: self.mapping()?,
            lend,
            donate: Linear::through(self.donating(1)?, MANY, self.donating(MANY)?),
            lend_on: Linear::through(self.lending_on(1)?, lent, self.lending_on(lent)?),
            pass: passing(self.call, self.rally, Arrived::Untouched)?,
            pass_touched: passing(self.call, self.rally, Arrived::Touched)?,
            rewrite_cycles,
            break_cycles,
            switch_cycles: self.rally.switch_cycles(thread)?,
        })
    }

    /// The time that `work` takes.
    fn time<R>(&self, work: impl FnOnce() -> Result<R, Errno>) -> Result<(u64, R), Errno> {
        let m = self.call.machine();
        let began = m.now();
        let result = work()?;
        // A fault may have slept, and the caller be on another CPU now, whose clock may be behind.
        Ok((m.now().saturating_sub(began).0, result))
    }

    /// The least time of three: what others do meanwhile, and what is cold at first, stays out.
    fn min_cycles(&self, mut work: impl FnMut() -> Result<u64, Errno>) -> Result<u64, Errno> {
        let mut min = u64::MAX;
        for _ in 0..3 {
            min = min.min(work()?);
        }
        Ok(min)
    }

    fn page(&self, index: usize) -> Va {
        self.at + index * PAGE_SIZE
    }

    /// Where data is sent from and received to.
    fn source(&self) -> Va {
        self.at
    }
    fn target(&self) -> Va {
        self.page(MANY)
    }

    fn copy(&self, to: Va, from: Va, len: usize) -> Result<(), Errno> {
        self.call.copy_out(to, from, len).map_err(|stopped| stopped.why)
    }

    /// Another system call.
    fn cross(&self) {
        let m = self.call.machine();
        m.cross(Crossing::SyscallExit);
        m.cross(Crossing::SyscallEnter);
        m.execute(self.call.core.config.paths.syscall);
    }

    /// Copying a page from `half` pages to as many others, in turn.
    fn copying(&self, half: usize) -> Result<u64, Errno> {
        let copy = |index: usize| {
            let page = index % half;
            self.copy(self.page(half + page), self.page(page), PAGE_SIZE)
        };
        (0..half.max(2)).try_for_each(copy)?;
        let sample = half.clamp(2, SAMPLE);
        let (cycles, ()) = self.time(|| (0..sample).try_for_each(copy))?;
        Ok(cycles / sample as u64)
    }

    fn cluster(&self) -> Result<u64, Errno> {
        let (core, m) = (self.call.core, self.call.machine());
        self.min_cycles(|| {
            let work = || {
                let mbuf = core.mbufs.alloc(PAGE_SIZE)?;
                m.execute(core.config.paths.protocol);
                core.mbufs.free(mbuf);
                Ok(())
            };
            Ok(self.time(work)?.0)
        })
    }

    fn mapping(&self) -> Result<u64, Errno> {
        let Syscall { core, thread, .. } = *self.call;
        let pages = core.vm.kernel_pages(1)?;
        let result = self.min_cycles(|| {
            let work = || {
                thread.pin();
                let mapped =
                    core.ephemeral.alloc(thread, pages.frames()[0], MappingUser::Other, Flags::PRIVATE);
                let mapped = mapped.map(|mapping| core.ephemeral.free(thread, mapping));
                thread.unpin();
                Ok(mapped?)
            };
            Ok(self.time(work)?.0)
        });
        core.vm.free_kernel_pages(pages);
        result
    }

    fn lending(&self, pages: usize) -> Result<u64, Errno> {
        self.min_cycles(|| {
            let work = || {
                let mbuf = lend_or_copy(self.call, self.source(), pages * PAGE_SIZE)?;
                self.call.machine().execute(self.call.core.config.paths.protocol);
                self.call.core.mbufs.free(mbuf);
                Ok(())
            };
            Ok(self.time(work)?.0)
        })
    }

    /// A write to a page after its loan, with what the next loan costs more than `again`; and one during its loan.
    fn writing(&self, again: u64) -> Result<(u64, u64), Errno> {
        let write =
            || -> Result<u64, Errno> { Ok(self.time(|| self.copy(self.source(), self.target(), 8))?.0) };
        self.lending(1)?;
        let after = write()?;
        let done = write()?;
        let (fresh, mbuf) = self.time(|| lend_or_copy(self.call, self.source(), PAGE_SIZE))?;
        let during = write();
        let (freed, ()) = self.time(|| {
            self.call.core.mbufs.free(mbuf);
            Ok(())
        })?;
        let dearer = (fresh + freed).saturating_sub(again);
        Ok((after.saturating_sub(done) + dearer, during?.saturating_sub(done) + dearer))
    }

    /// Receives `mbufs` by transfer, and frees what was received.
    fn transferring(&self, mbufs: Vec<Mbuf>, pages: usize) -> Result<(), Errno> {
        let len = pages * PAGE_SIZE;
        deliver(self.call, ReceiveMode::Transfer, self.target(), len, mbufs)?;
        self.cross();
        self.call.machine().execute(self.call.core.config.paths.transfer_call);
        Ok(self.call.space.anflush(self.call.thread, self.target(), len)?)
    }

    fn donating(&self, pages: usize) -> Result<u64, Errno> {
        let pool = &self.call.core.mbufs;
        self.min_cycles(|| {
            let work = || {
                let mut mbufs = Vec::new();
                for _ in 0..pages {
                    match pool.cluster_for(None, PAGE_SIZE) {
                        Ok(mbuf) => mbufs.push(mbuf),
                        Err(e) => {
                            mbufs.into_iter().for_each(|mbuf| pool.free(mbuf));
                            return Err(e);
                        }
                    }
                }
                self.transferring(mbufs, pages)
            };
            Ok(self.time(work)?.0)
        })
    }

    fn lending_on(&self, pages: usize) -> Result<u64, Errno> {
        self.min_cycles(|| {
            let mbuf = lend_or_copy(self.call, self.source(), pages * PAGE_SIZE)?;
            Ok(self.time(|| self.transferring(alloc::vec![mbuf], pages))?.0)
        })
    }
}
