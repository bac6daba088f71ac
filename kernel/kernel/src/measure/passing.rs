//! What passing memory costs, measured between two address spaces that are in use.
//!
//! The caller and a partner (`rally`) pass pages to and fro, each into its own address space, and touch what came or do
//! not. So where there are several CPUs, what the sender's CPU still has in its TLB is invalidated there, and the
//! structures of the memory come out of its cache.
//!
//! # Locks
//! None of its own. Only the thread whose turn it is writes to [`Passed`].
//!
//! # What can fail
//! Passing, and making the partner, for want of memory or structures. The memory that was passed is unmapped in any
//! case.

use super::rally::MANY;
use super::rally::Rally;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use pageferry_abi::Errno;
use pageferry_core::proc::Syscall;
use pageferry_core::sched::Thread;
use pageferry_costs::{Arrived, Linear};
use pageferry_hal::{Access, CodePath, Crossing, Machine, Mode, PAGE_SIZE, Prot, Trap, TrapKind, Va};
use pageferry_vm::{Inherit, PassMode, Space, VmError, pass};

/// Passes there and back, behind one of each that brings both into their steady state.
const ROUNDS: usize = 4;

/// What passing costs by the number of pages, the touches of what arrives with it.
///
/// # Errors
/// What mapping and passing answer.
pub(super) fn passing<M: Machine>(
    call: &Syscall<'_, M>,
    rally: &Arc<Rally<M>>,
    arrived: Arrived,
) -> Result<Linear, Errno> {
    let few = between_two(call, rally, 1, arrived)?;
    Ok(Linear::through(few, MANY, between_two(call, rally, MANY, arrived)?))
}

fn between_two<M: Machine>(
    call: &Syscall<'_, M>,
    rally: &Arc<Rally<M>>,
    pages: usize,
    arrived: Arrived,
) -> Result<u64, Errno> {
    let len = pages * PAGE_SIZE;
    let at = call.space.map(call.thread, None, len, Prot::RW, Inherit::None)?;
    let other = match call.core.vm.space() {
        Ok(other) => other,
        Err(e) => {
            call.space.unmap(call.thread, at, len).expect("just mapped");
            return Err(e.into());
        }
    };
    let passed = Arc::new(Passed {
        machine: call.machine().clone(),
        paths: [call.core.config.paths.syscall, call.core.config.paths.export],
        len,
        at: AtomicU64::new(at.0),
        is_here: AtomicBool::new(true),
        min_cycles: AtomicU64::new(u64::MAX),
        arrived,
    });
    let played = passed.play(call, rally, &other);
    if passed.is_here.load(Relaxed) {
        call.space.unmap(call.thread, passed.at(), len).expect("it is here");
    }
    other.terminate(call.thread);
    played.map(|()| passed.min_cycles.load(Relaxed))
}

/// Memory on its way to and fro, and what that took.
struct Passed<M: Machine> {
    machine: M,
    /// What is executed on the way of the two system calls: of each, and for each.
    paths: [CodePath; 2],
    len: usize,
    at: AtomicU64,
    /// It is the caller's.
    is_here: AtomicBool,
    arrived: Arrived,
    min_cycles: AtomicU64,
}

impl<M: Machine> Passed<M> {
    fn at(&self) -> Va {
        Va(self.at.load(Relaxed))
    }

    fn play(
        self: &Arc<Self>,
        call: &Syscall<'_, M>,
        rally: &Arc<Rally<M>>,
        other: &Arc<Space<M>>,
    ) -> Result<(), Errno> {
        let (theirs, from, to) = (self.clone(), call.space.clone(), other.clone());
        let stroke = Box::new(move |thread: &Thread<M>| {
            if theirs.is_here.load(Relaxed) {
                // What fails here stays where it is, and is found there.
                let _ = theirs.fetch(thread, &from, &to);
            }
        });
        self.touch(call.thread, call.space)?;
        rally.with_partner(call.thread, Some(other), stroke, || {
            for _ in 0..=ROUNDS {
                if self.is_here.load(Relaxed) {
                    return Err(Errno::NoMemory);
                }
                self.fetch(call.thread, other, call.space)?;
                rally.partners_turn(call.thread);
            }
            self.fetch(call.thread, other, call.space)
        })?
    }

    /// Gets the memory from one space into that of the calling thread, and touches it.
    fn fetch(&self, thread: &Thread<M>, from: &Space<M>, to: &Space<M>) -> Result<(), Errno> {
        let m = &self.machine;
        let began = m.now();
        for _ in 0..2 {
            m.cross(Crossing::SyscallExit);
            m.cross(Crossing::SyscallEnter);
            self.paths.iter().for_each(|path| m.execute(*path));
        }
        let arrived = pass(from, to, thread, self.at(), self.len, None, PassMode::Donate)?;
        self.at.store(arrived.0, Relaxed);
        self.is_here.fetch_xor(true, Relaxed);
        if self.arrived == Arrived::Touched {
            self.touch(thread, to)?;
        }
        self.min_cycles.fetch_min(m.now().saturating_sub(began).0, Relaxed);
        Ok(())
    }

    /// Touches every page, as a process does that finds none of them in its page tables.
    fn touch(&self, thread: &Thread<M>, space: &Space<M>) -> Result<(), VmError> {
        let m = &self.machine;
        for page in (0..self.len).step_by(PAGE_SIZE) {
            let kind = TrapKind::NotPresent;
            let trap = Trap { va: self.at() + page, access: Access::Write, mode: Mode::User, kind };
            m.cross(Crossing::TrapEnter);
            space.fault(thread, trap)?;
            m.cross(Crossing::TrapExit);
        }
        Ok(())
    }
}
