//! A run that is conducted by another one's turns, and what it tells of its events. See `pageferry_hal::tap`.
//!
//! The turns come as a module. Without one the CPUs run as they like, and their events come in that order.
//!
//! # Turns
//! A counter says which turn it is. The CPU whose turn it is makes its call and goes on until its next one; only then
//! it passes the turn on. So one CPU runs the kernel at a time, and all memory of the kernel is handed over by that
//! counter. CPUs that wait have interrupts as they were, and take them: a shootdown arrives when it arrives, and is
//! only counted; its handler is called at its turn. The timer is not set. At its turn the CPU sends the interrupt to
//! itself, waits for it, and calls the handler. Between two turns of its own a CPU may have to wait until another one
//! is out of a context; an interrupt whose turn comes then is handled there.
//!
//! # What can fail
//! A call of another kind than the turn's, a wait whose condition does not hold, a lock that is not as it was, turns
//! that are over: the events are written all the same, and the machine ends with a line that names turn and CPU.

use crate::lock::Spin;
use crate::metal::Metal;
use crate::runtime::fail;
use crate::{apic, context, cpu};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::asm;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use pageferry_hal::tap::{Call, Event, Handler, Sink, Tap, Turn};
use pageferry_hal::{CpuId, CpuSet, Interrupt, SpinLock};

/// So many are kept, and then written.
const MAX_EVENTS: usize = 4096;
/// Where the events go: QEMU writes what is sent to this port to a file.
const EVENT_PORT: u16 = 0xe9;

/// The turns; none in a run that nobody conducts.
static TURNS: spin::Once<Vec<Turn>> = spin::Once::new();
/// The turn that it is.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The CPUs that have not passed theirs on: one at a time.
static HOLDS: [AtomicBool; CpuSet::MAX_CPUS] = [const { AtomicBool::new(false) }; CpuSet::MAX_CPUS];
/// Interrupts that have arrived at each CPU.
static ARRIVED: [AtomicU64; CpuSet::MAX_CPUS] = [const { AtomicU64::new(0) }; CpuSet::MAX_CPUS];
/// What is to be done about interrupts; set once, never freed.
static HANDLER: AtomicPtr<Handler> = AtomicPtr::new(core::ptr::null_mut());
/// What was done and is not written yet. The lock is taken by no interrupt handler: what is called for them at once
/// only counts.
static EVENTS: Spin<Vec<Event>> = Spin::new(Vec::new());
/// The events are written: what comes later is none.
static OVER: AtomicBool = AtomicBool::new(false);

/// The sink of these runs.
#[derive(Clone, Copy)]
pub(crate) struct Conducted;

/// What the kernel is booted on.
pub(crate) type Booted = Tap<Metal, Conducted>;

/// The machine, tapped.
pub(crate) fn machine() -> Booted {
    Tap::new(Metal, Conducted)
}

/// Has the run conducted by these turns. Called before the kernel is booted.
pub(crate) fn conduct(turns: Vec<Turn>) {
    TURNS.call_once(|| turns);
    context::while_waiting(interrupted);
}

/// What lies between here and [`pageferry_watched_to`] is counted by whoever watches the instructions.
// SAFETY: nothing else here has that name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn pageferry_watched_from() {
    // SAFETY: does nothing; it keeps this function apart from others that do nothing.
    unsafe { asm!("nop", options(nomem, nostack, preserves_flags)) }
}

/// See [`pageferry_watched_from`].
// SAFETY: nothing else here has that name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn pageferry_watched_to() {
    // SAFETY: as above.
    unsafe { asm!("nop", "nop", options(nomem, nostack, preserves_flags)) }
}

/// Writes the events that are not written yet; called once, when the kernel has run.
pub(crate) fn write_events() {
    if !OVER.swap(true, Ordering::AcqRel) {
        write(&mut EVENTS.lock());
    }
}

fn write(events: &mut Vec<Event>) {
    for event in events.drain(..) {
        for word in event.encode() {
            cpu::write_bytes(EVENT_PORT, &word.to_le_bytes());
        }
    }
}

/// How many turns there were, and how many interrupts arrived; nothing for a run that nobody conducted.
pub(crate) fn summary() -> Option<(usize, u64)> {
    let turns = TURNS.get()?.len();
    Some((turns, ARRIVED.iter().map(|arrived| arrived.load(Ordering::Relaxed)).sum()))
}

/// Ends the machine: the runs have parted.
fn part(why: fmt::Arguments<'_>) -> ! {
    cpu::disable_interrupts();
    write_events();
    fail(format_args!("the run has parted from its schedule: {why}"))
}

/// The CPU has no turn any more, if it had one.
fn pass_on(cpu: CpuId) {
    if HOLDS[cpu.index()].swap(false, Ordering::Relaxed) {
        NEXT.fetch_add(1, Ordering::AcqRel);
    }
}

/// Calls the handler that the kernel has set.
fn handle(cpu: CpuId, interrupt: Interrupt) {
    if interrupt == Interrupt::Timer {
        let arrived = &ARRIVED[cpu.index()];
        let before = arrived.load(Ordering::Relaxed);
        apic::interrupt_by_timer();
        while arrived.load(Ordering::Relaxed) == before {
            cpu::pause();
        }
    }
    // SAFETY: the pointer is null or was leaked by `handles`, so the handler lives for ever.
    let handler = unsafe { HANDLER.load(Ordering::Acquire).as_ref() };
    match handler {
        Some(handler) => handler(interrupt),
        None => part(format_args!("{interrupt:?} is handled before there is a handler")),
    }
}

/// Handles an interrupt if it is the turn of this CPU to do so.
fn interrupted() {
    let cpu = cpu::number();
    let turn = TURNS.get().and_then(|turns| turns.get(NEXT.load(Ordering::Acquire)));
    if let Some(interrupt) = turn.filter(|turn| turn.cpu == cpu).and_then(|turn| turn.call.interrupt()) {
        HOLDS[cpu.index()].store(true, Ordering::Relaxed);
        handle(cpu, interrupt);
        pass_on(cpu);
    }
}

impl Sink for Conducted {
    fn begins(&self, cpu: CpuId, call: Call) -> Option<Turn> {
        let turns = TURNS.get()?;
        if OVER.load(Ordering::Relaxed) {
            return None;
        }
        pass_on(cpu);
        loop {
            let at = NEXT.load(Ordering::Acquire);
            let Some(turn) = turns.get(at) else {
                part(format_args!("it is over after {at} turns, and {cpu:?} makes a call ({call:?})"));
            };
            if turn.cpu != cpu {
                cpu::pause();
                continue;
            }
            HOLDS[cpu.index()].store(true, Ordering::Relaxed);
            if turn.call == call {
                return Some(*turn);
            }
            let Some(interrupt) = turn.call.interrupt() else {
                part(format_args!("turn {at} is {turn:?}, which makes another call ({call:?})"));
            };
            handle(cpu, interrupt);
            pass_on(cpu);
        }
    }

    fn returns(&self, _: CpuId, call: Call, value: u64) {
        let at = NEXT.load(Ordering::Relaxed);
        let turn = TURNS.get().and_then(|turns| turns.get(at));
        if let Some(turn) = turn.filter(|turn| call == Call::Try && turn.value != value) {
            part(format_args!("turn {at} is {turn:?}, which finds a lock that is not as it was"));
        }
    }

    fn finds(&self, cpu: CpuId, call: Call, holds: bool) {
        if !holds {
            let at = NEXT.load(Ordering::Relaxed);
            part(format_args!(
                "at turn {at} {cpu:?} has waited ({call:?}), and what it waits for does not hold"
            ));
        }
    }

    fn handles(&self, handler: Handler) -> Handler {
        if TURNS.get().is_none() {
            return handler;
        }
        HANDLER.store(Box::into_raw(Box::new(handler)), Ordering::Release);
        Box::new(|_| {
            ARRIVED[cpu::number().index()].fetch_add(1, Ordering::Relaxed);
        })
    }

    fn sets_timer(&self) -> bool {
        TURNS.get().is_none()
    }

    fn leaves(&self, cpu: CpuId) {
        pass_on(cpu);
    }

    fn tells(&self, event: Event) {
        if !OVER.load(Ordering::Relaxed) {
            let mut events = EVENTS.lock();
            events.push(event);
            if events.len() >= MAX_EVENTS {
                write(&mut events);
            }
        }
    }
}
