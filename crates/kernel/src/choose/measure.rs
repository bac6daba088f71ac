//! What moving data costs on this machine, measured by the kernel itself.
//!
//! # What is measured
//! The kernel does each thing a few times on scratch memory in the address space of the caller, and reads the clock, as
//! real kernels choose their copy loops at boot. So processor, caches, memory, TLB, invalidations and the kernel's own paths
//! are all in the numbers, and nothing has to be told about any of them. It is done once, when a cost is first asked for;
//! kernels on which nobody asks do not pay for it.
//!
//! * *Copying* a page costs by where the page is, and that depends on how much memory is used between two uses of the
//!   same: the *working set*. The cost is measured for sets of 2, 4, 8, ... pages that are copied in turn.
//! * An *ephemeral mapping* of a page costs what this kernel's scheme makes of it.
//! * *Lending*, *donating*, *lending on* and *passing* cost by the call and by the page: two sizes are measured. What a
//!   receiver by transfer does afterwards, freeing the pages with `anflush`, is part of it.
//! * A *handover* is the way from one thread's run to another's: see `switch_cost`.
//! * *Faults* that come later: the first write to a page after its loan, a write that breaks a loan, the first touch of a
//!   page that was passed.
//!
//! # Limits
//! One CPU measures all but the handover. That a page was written by another CPU, and has to come out of its cache, is not
//! in the cost of a copy; `auto` learns that.
//!
//! # Locks
//! Whoever measures has a turn in a monitor of class `Pipe`; others wait for it. The result is written once and read
//! without a lock.
//!
//! # What can fail
//! Measuring, for want of memory or of a thread structure. Then everything but copying is taken to cost more than it can be
//! worth, until the costs have been asked for a thousand times more: memory may have grown by then.

use super::switch_cost::{BATON_BYTES, Handover};
use crate::error::Errno;
use crate::net::{ReceiveMode, deliver, lend_or_copy};
use crate::proc::Caller;
use crate::sched::{Monitor, Turn};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use once_cell::race::OnceBox;
use pageferry_ephemeral::Flags;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Access, Crossing, Machine, Mode, PAGE_SIZE, Prot, StructArena, StructVa, Threads, Trap, TrapKind, Va,
};
use pageferry_vm::{Inherit, PassMode, pass};

/// Working sets are measured up to 2 to the power of this many pages (8 MB), if a quarter of the free memory is so much.
const CLASSES: usize = 11;
/// Pages of a call that is measured: what is one loan by default.
const MANY: usize = 16;
/// Pages that are copied to measure a working set, behind those that bring it into its steady state.
const SAMPLE: usize = 32;

/// The cost of one call of `n` pages: `call_cycles + n * page_cycles`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Linear {
    /// Once.
    pub call_cycles: u64,
    /// For each page.
    pub page_cycles: u64,
}

impl Linear {
    /// From the costs of one page and of [`MANY`].
    fn through(one: u64, many: u64) -> Linear {
        let page_cycles = many.saturating_sub(one) / (MANY as u64 - 1);
        Linear { call_cycles: one.saturating_sub(page_cycles), page_cycles }
    }

    /// The cost of `pages`.
    pub fn of(&self, pages: usize) -> u64 {
        self.call_cycles + pages as u64 * self.page_cycles
    }
}

/// What was measured, in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveCosts {
    /// Copying one page to or from the user, by the working set: pages of 2 to the power of the index and 1.
    copy_page: [u64; CLASSES],
    /// An mbuf with a cluster: made, handed to the protocol, and freed.
    pub cluster_cycles: u64,
    /// An ephemeral mapping of a page, made and given up: each page of a file that is copied takes one.
    pub map_cycles: u64,
    /// Lending pages to a socket, until they are given back.
    pub lend: Linear,
    /// Receiving clusters by donation, and freeing what was received.
    pub donate: Linear,
    /// Receiving lent pages by lending them on, and freeing what was received.
    pub lend_on: Linear,
    /// Passing pages: exported, imported.
    pub pass: Linear,
    /// The first write to a page after its loan, beside what a loan of the page costs more then.
    pub rewrite_cycles: u64,
    /// A write that breaks a loan.
    pub break_cycles: u64,
    /// The first touch of a page that was passed.
    pub touch_cycles: u64,
    /// From one thread's run to the other's, when they wait for each other.
    pub handover_cycles: u64,
}

/// How often the costs are asked for in vain between two attempts to measure them.
const ASKED_IN_VAIN: u32 = 1000;

/// What a decision reads of the costs.
const READ_BYTES: usize = 64;

/// Where the costs are kept. See the [module](self).
pub(crate) struct Moves<M: Machine> {
    at: StructVa,
    known: OnceBox<MoveCosts>,
    /// How often the costs are still taken to be unknown before they are measured again.
    unknown: AtomicU32,
    measuring: Monitor<M, Turn>,
    handover: Arc<Handover<M>>,
}

impl<M: Machine> Moves<M> {
    pub(crate) fn new(m: &M, arena: &mut StructArena) -> Result<Moves<M>, ArenaFull> {
        let at = arena.array("costs of moving", 1, size_of::<MoveCosts>())?;
        let baton = arena.array("baton", 1, BATON_BYTES)?;
        let (measuring, handover) = (Monitor::new(m, at, Turn::default()), Arc::new(Handover::new(m, baton)));
        Ok(Moves { at, known: OnceBox::new(), unknown: AtomicU32::new(0), measuring, handover })
    }
}

impl MoveCosts {
    /// What it is taken to be where it could not be measured: nothing is worth more than a copy.
    const UNKNOWN: MoveCosts = {
        let never = Linear { call_cycles: u64::MAX >> 32, page_cycles: 0 };
        MoveCosts {
            copy_page: [0; CLASSES],
            cluster_cycles: 0,
            map_cycles: 0,
            lend: never,
            donate: never,
            lend_on: never,
            pass: never,
            rewrite_cycles: 0,
            break_cycles: 0,
            touch_cycles: 0,
            handover_cycles: 0,
        }
    };

    /// Copying a page while `working_set_bytes` are used in turn.
    pub fn copy_page_cycles(&self, working_set_bytes: usize) -> u64 {
        let set = working_set_bytes.max(2 * PAGE_SIZE);
        let class = set.ilog2() as usize - (2 * PAGE_SIZE).ilog2() as usize;
        if class >= CLASSES - 1 {
            return self.copy_page[CLASSES - 1];
        }
        let (below, above) = (self.copy_page[class], self.copy_page[class + 1]);
        let size = (2 * PAGE_SIZE) << class;
        // Between two sets that were measured the cost is taken to change evenly.
        (below * (2 * size - set) as u64 + above * (set - size) as u64) / size as u64
    }
}

impl<M: Machine> Caller<'_, M> {
    /// What moving data costs here; measured now if it never was.
    pub(crate) fn move_costs(&self) -> &MoveCosts {
        let moves = &self.kernel.moves;
        self.machine().touch(moves.at, READ_BYTES, Access::Read);
        if let Some(known) = moves.known.get() {
            return known;
        }
        if moves.unknown.load(Ordering::Relaxed) > 0 {
            moves.unknown.fetch_sub(1, Ordering::Relaxed);
            return &MoveCosts::UNKNOWN;
        }
        let turn = &moves.measuring;
        // No signal ends this wait, so it has no error.
        drop(turn.take_turn(self.thread, turn.lock(), |turn| turn, "measuring", false).0);
        if moves.known.get().is_none() {
            match self.measure() {
                Ok(costs) => drop(moves.known.set(Box::new(costs))),
                Err(_) => moves.unknown.store(ASKED_IN_VAIN, Ordering::Relaxed),
            }
        }
        turn.end_turn(self.thread, &mut turn.lock(), |turn| turn);
        moves.known.get().unwrap_or(&MoveCosts::UNKNOWN)
    }

    fn measure(&self) -> Result<MoveCosts, Errno> {
        let room = self.kernel.vm.free_frames() / 4;
        let classes = (room.max(1).ilog2() as usize).min(CLASSES);
        if 1 << classes < 4 * MANY {
            return Err(Errno::NoMemory);
        }
        let len = PAGE_SIZE << classes;
        let at = self.space.map(self.thread, None, len, Prot::RW, Inherit::None)?;
        let result = Bench { call: self, at, classes }.all();
        self.space.unmap(self.thread, at, len).expect("just mapped");
        result
    }
}

/// Scratch memory of the caller's, and the clock.
struct Bench<'a, M: Machine> {
    call: &'a Caller<'a, M>,
    at: Va,
    /// Its size: 2 to the power of this many pages.
    classes: usize,
}

impl<M: Machine> Bench<'_, M> {
    fn all(&self) -> Result<MoveCosts, Errno> {
        let mut copy_page = [0; CLASSES];
        for class in 0..CLASSES {
            // Without the memory for more, more is taken to cost as much.
            copy_page[class] =
                if class < self.classes { self.copying(1 << class)? } else { copy_page[class - 1] };
        }
        let lend = Linear::through(self.lending(1)?, self.lending(MANY)?);
        let (rewrite_cycles, break_cycles) = self.writing(lend.of(1))?;
        let (pass, touch_cycles) = self.passing()?;
        Ok(MoveCosts {
            copy_page,
            cluster_cycles: self.cluster()?,
            map_cycles: self.mapping()?,
            lend,
            donate: Linear::through(self.donating(1)?, self.donating(MANY)?),
            lend_on: Linear::through(self.lending_on(1)?, self.lending_on(MANY)?),
            pass,
            rewrite_cycles,
            break_cycles,
            touch_cycles,
            handover_cycles: self.call.kernel.moves.handover.measure(self.call.kernel, self.call.thread)?,
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
    fn least(&self, mut work: impl FnMut() -> Result<u64, Errno>) -> Result<u64, Errno> {
        let mut least = u64::MAX;
        for _ in 0..3 {
            least = least.min(work()?);
        }
        Ok(least)
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
        m.execute(self.call.kernel.config.paths.syscall);
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
        let (kernel, m) = (self.call.kernel, self.call.machine());
        self.least(|| {
            let work = || {
                let mbuf = kernel.mbufs.alloc(PAGE_SIZE)?;
                m.execute(kernel.config.paths.protocol);
                kernel.mbufs.free(mbuf);
                Ok(())
            };
            Ok(self.time(work)?.0)
        })
    }

    fn mapping(&self) -> Result<u64, Errno> {
        let Caller { kernel, thread, .. } = *self.call;
        let pages = kernel.vm.kernel_pages(1)?;
        let result = self.least(|| {
            let work = || {
                thread.pin();
                let mapped = kernel.ephemeral.alloc(thread, pages.frames()[0], Flags::PRIVATE);
                let mapped = mapped.map(|mapping| kernel.ephemeral.free(thread, mapping));
                thread.unpin();
                Ok(mapped?)
            };
            Ok(self.time(work)?.0)
        });
        kernel.vm.free_kernel_pages(pages);
        result
    }

    fn lending(&self, pages: usize) -> Result<u64, Errno> {
        self.least(|| {
            let work = || {
                let mbuf = lend_or_copy(self.call, self.source(), pages * PAGE_SIZE)?;
                self.call.machine().execute(self.call.kernel.config.paths.protocol);
                self.call.kernel.mbufs.free(mbuf);
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
            self.call.kernel.mbufs.free(mbuf);
            Ok(())
        })?;
        let dearer = (fresh + freed).saturating_sub(again);
        Ok((after.saturating_sub(done) + dearer, during?.saturating_sub(done) + dearer))
    }

    /// Receives `mbufs` by transfer, and frees what was received.
    fn transferring(&self, mbufs: Vec<crate::net::Mbuf>, pages: usize) -> Result<(), Errno> {
        let len = pages * PAGE_SIZE;
        deliver(self.call, ReceiveMode::Transfer, self.target(), len, mbufs)?;
        self.cross();
        self.call.machine().execute(self.call.kernel.config.paths.transfer_call);
        Ok(self.call.space.anflush(self.call.thread, self.target(), len)?)
    }

    fn donating(&self, pages: usize) -> Result<u64, Errno> {
        let pool = &self.call.kernel.mbufs;
        self.least(|| {
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
        self.least(|| {
            let mbuf = lend_or_copy(self.call, self.source(), pages * PAGE_SIZE)?;
            Ok(self.time(|| self.transferring(alloc::vec![mbuf], pages))?.0)
        })
    }

    /// Passing, there and back between two address spaces made for that; and a touch of what came.
    fn passing(&self) -> Result<(Linear, u64), Errno> {
        let vm = &self.call.kernel.vm;
        let one = vm.space()?;
        let other = match vm.space() {
            Ok(other) => other,
            Err(e) => {
                one.terminate(self.call.thread);
                return Err(e.into());
            }
        };
        let run = |pages: usize| -> Result<(u64, u64), Errno> {
            let (m, t) = (self.call.machine(), self.call.thread);
            let len = pages * PAGE_SIZE;
            let touch = |space: &pageferry_vm::Space<M>, at: Va| -> Result<u64, Errno> {
                let kind = TrapKind::NotPresent;
                let mut last = 0;
                for page in 0..pages {
                    let va = at + page * PAGE_SIZE;
                    let trap = Trap { va, access: Access::Write, mode: Mode::User, kind };
                    let fault = || {
                        m.cross(Crossing::TrapEnter);
                        space.fault(t, trap)?;
                        m.cross(Crossing::TrapExit);
                        Ok(())
                    };
                    last = self.time(fault)?.0;
                }
                Ok(last)
            };
            let mut at = one.map(t, None, len, Prot::RW, Inherit::None)?;
            touch(&one, at)?;
            let (mut from, mut to) = (&one, &other);
            let (mut least, mut touched) = (u64::MAX, 0);
            for _ in 0..4 {
                let work = || {
                    for _ in 0..2 {
                        self.cross();
                        m.execute(self.call.kernel.config.paths.export);
                    }
                    Ok(pass(from, to, t, at, len, None, PassMode::Donate)?)
                };
                let (cycles, arrived) = self.time(work)?;
                touched = touch(to, arrived)?;
                (least, at) = (least.min(cycles), arrived);
                core::mem::swap(&mut from, &mut to);
            }
            Ok((least, touched))
        };
        let result = run(1)
            .and_then(|(few, _)| run(MANY).map(|(many, touched)| (Linear::through(few, many), touched)));
        one.terminate(self.call.thread);
        other.terminate(self.call.thread);
        result
    }
}
