//! The scheduler: sleeping, waking, and the switch from one thread to the next.
//!
//! # What it holds
//! Every thread is in exactly one state: running on a CPU, on a run queue, on the sleep queue of a channel, or new; see
//! `runq`. The policy is that of FreeBSD 5.3's 4BSD scheduler. There is no preemption inside the kernel; a thread gives
//! up its CPU when it sleeps, exits, or returns to user mode with a switch requested.
//!
//! Each CPU has an *idle context*, which runs when nothing else can. It keeps the address space of the last process
//! (lazy), halts, and is woken by an interrupt together with a flag: setting the flag before interrupting means that no
//! wakeup is lost between the look at the queues and the halt.
//!
//! # The clock
//! A CPU that runs a thread is interrupted at every tick; the handler ends the thread's quantum when that is over. A
//! CPU that is idle takes the tick that was set before, and no more.
//!
//! # Locks
//! One, of class `Scheduler`, above all others: a wakeup may be made with any lock held, and by interrupt handlers,
//! since interrupts are off while it is held. It is released *before* the switch. So a thread may be on a run queue, or
//! chosen by another CPU, while it is still on its way out of its own: the machine makes the other CPU wait until the
//! context has been left. Such waits cannot form a circle: a thread that another CPU waits for already goes to its own
//! CPU's idle context, which no other CPU ever runs; so a CPU waits only for one that has made its choice before.
//!
//! # What can fail
//! Making a thread, for want of a structure. Everything else is a broken invariant and panics.

use super::runq::{Entry, Queues};
use super::tcb::{Tcb, ThreadId, ThreadStack, ThreadState};
use crate::config::{ForwardWakeup, SchedConfig};
use crate::counter::KernelCounter;
use crate::defect::SchedDefect;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Access, Cause, Channel, CodePath, ContextId, CpuId, CpuSet, Cycles, Interrupt, Interrupted, LockClass,
    Machine, MemoryUse, SpaceId, SpinLock, StructArena, StructVa, Zone,
};
use pageferry_pmap::Pmaps;
use pageferry_vm::Space;

/// Threads at a time.
pub const MAX_THREADS: usize = 256;
/// Of them, those of the kernel alone: soft-interrupt threads, the page daemon, and those of a disk.
const KERNEL_THREADS: usize = 8;
/// A thread structure: what a sleep, a wakeup and a switch use of it fits two cache lines of 64 bytes.
const THREAD_BYTES: usize = 384;
const THREAD_USED_BYTES: usize = 128;
/// Hash heads of the sleep queues (FreeBSD: `SC_TABLESIZE`), two pointers each.
const SLEEP_HEADS: usize = 128;
const SLEEP_HEAD_BYTES: usize = 16;

/// Path lengths of the scheduler.
#[derive(Clone, Copy)]
pub struct SchedPaths {
    /// Choosing the next thread and switching to it.
    pub switch: CodePath,
    /// Going to sleep, without the switch.
    pub sleep: CodePath,
    /// One wakeup, whether or not a thread sleeps.
    pub wakeup: CodePath,
    /// One clock interrupt.
    pub clock: CodePath,
}

/// The scheduler: run queues and sleep queues, under one lock.
pub struct Sched<M: Machine> {
    machine: M,
    pmaps: Arc<Pmaps<M>>,
    config: SchedConfig,
    paths: SchedPaths,
    queues: M::Lock<Queues<M>>,
    /// For each CPU: look at the run queues soon.
    resched: Box<[AtomicBool]>,
    /// The clock of each CPU.
    clocks: Box<[Clock]>,
    /// No thread will ever run again.
    stopping: AtomicBool,
    /// CPUs other than 0 that have left their idle loop for good.
    stopped: AtomicUsize,
    next_id: AtomicU32,
    /// Modelled address of the sleep queues' heads.
    heads: StructVa,
}

/// A CPU's clock. Written by that CPU alone.
#[derive(Default)]
struct Clock {
    /// The timer is set to the next tick.
    ticks: AtomicBool,
    /// It runs a thread, not its idle context.
    busy: AtomicBool,
    /// When its thread was switched to.
    since_cycles: AtomicU64,
}

/// What a CPU does next.
struct Next<M: Machine> {
    thread: Option<ThreadId>,
    context: ContextId,
    space: Option<Arc<Space<M>>>,
    at: Option<StructVa>,
}

/// Groups of the hash table that an idle CPU looks through before it looks for threads again.
const IDLE_GROUPS: usize = 8;

impl<M: Machine> Sched<M> {
    /// Without threads.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(
        pmaps: Arc<Pmaps<M>>,
        config: SchedConfig,
        paths: SchedPaths,
        arena: &mut StructArena,
    ) -> Result<Sched<M>, ArenaFull> {
        let machine = pmaps.machine().clone();
        let cpus = machine.board().cpus;
        let heads = arena.array("sleep queues", SLEEP_HEADS, SLEEP_HEAD_BYTES)?;
        let stacks = match config.stack {
            Some(stack) => Some(arena.zone("kernel stacks", MAX_THREADS, stack.spacing_bytes)?),
            None => None,
        };
        if let Some((at, len_bytes)) = stacks.as_ref().map(Zone::span) {
            machine.set_use(at.0, len_bytes, MemoryUse::Stacks);
        }
        let queues = Queues::new(cpus, arena.zone("threads", MAX_THREADS, THREAD_BYTES)?, stacks);
        Ok(Sched {
            queues: machine.new_lock(LockClass::SCHEDULER, queues),
            resched: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
            clocks: (0..cpus).map(|_| Clock::default()).collect(),
            stopping: AtomicBool::new(false),
            stopped: AtomicUsize::new(0),
            next_id: AtomicU32::new(1),
            machine,
            pmaps,
            config,
            paths,
            heads,
        })
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// True when the executing CPU has been requested to look at its run queues, and has not yet.
    pub fn resched_requested(&self) -> bool {
        self.resched[self.machine.cpu().index()].load(Ordering::Acquire)
    }

    fn touch_sleep_queue(&self, channel: Channel) {
        let head = (channel.0 >> 6) as usize % SLEEP_HEADS;
        self.machine.touch(self.heads.element(head, SLEEP_HEAD_BYTES), SLEEP_HEAD_BYTES, Access::Write);
    }

    // ------------------------------------------------------------------------------------------- making and ending

    /// Makes a thread that will run `body`, which gets its control block, in `space`, once it is launched. `None` when
    /// there is no structure left.
    pub fn create(
        self: &Arc<Self>,
        name: &str,
        space: Option<Arc<Space<M>>>,
        soft_interrupt: bool,
        body: Box<dyn FnOnce(Arc<Tcb>)>,
    ) -> Option<ThreadId> {
        let (at, stack) = {
            let mut q = self.queues.lock();
            // Processes leave some for the kernel's own threads.
            if space.is_some() && q.threads.len() >= MAX_THREADS - KERNEL_THREADS {
                return None;
            }
            // There are as many stacks as threads.
            (q.zone.alloc()?, q.stacks.as_mut().and_then(Zone::alloc))
        };
        let stack = stack.zip(self.config.stack).map(|(at, its)| ThreadStack { at, its });
        let id = ThreadId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let tcb = Arc::new(Tcb::new(id, name.to_string(), soft_interrupt, stack));
        let (sched, mine) = (self.clone(), tcb.clone());
        let entry = Box::new(move || {
            sched.switched_in();
            body(mine);
            Some(sched.exit(id))
        });
        let context = self.machine.context_new(name, entry);
        let entry = Entry { tcb, context, space, state: ThreadState::New, last_cpu: CpuId(0), at };
        self.queues.lock().threads.insert(id, entry);
        Some(id)
    }

    /// Makes a new thread runnable.
    pub fn launch(&self, id: ThreadId) {
        let mut q = self.queues.lock();
        assert_eq!(q.entry(id).state, ThreadState::New, "a thread is launched twice");
        q.entry(id).last_cpu = self.machine.cpu();
        self.make_runnable(&mut q, id);
    }

    /// Puts a new thread to sleep on `channel`: it begins when it is woken.
    pub fn launch_asleep(&self, id: ThreadId, channel: Channel, reason: &'static str) {
        let mut q = self.queues.lock();
        let entry = q.entry(id);
        assert_eq!(entry.state, ThreadState::New, "a thread is launched twice");
        entry.state = ThreadState::Asleep { channel, reason, interruptible: false };
        q.sleepers.entry(channel).or_default().push_back(id);
    }

    /// From here on the thread runs in the kernel's addresses only, and its space may be destroyed.
    pub fn leave_space(&self, tcb: &Tcb) {
        let space = self.queues.lock().entry(tcb.id).space.take();
        assert!(space.is_some(), "{} has left its address space before", tcb.name);
        self.pmaps.activate(None, None);
    }

    /// The calling thread goes on in another address space; the caller sees to it that the one that it leaves is held
    /// elsewhere.
    ///
    /// # Panics
    /// When it has left its own before.
    pub fn change_space(&self, tcb: &Tcb, to: &Arc<Space<M>>) {
        let from = self.queues.lock().entry(tcb.id).space.replace(to.clone());
        let from = from.unwrap_or_else(|| panic!("{} has left its address space before", tcb.name));
        self.pmaps.activate(Some(from.pmap()), Some(to.pmap()));
    }

    /// The address space that `id` runs in.
    pub fn space_of(&self, id: ThreadId) -> Option<SpaceId> {
        let mut q = self.queues.lock();
        q.threads.get_mut(&id)?.space.as_ref().map(|space| space.pmap().id())
    }

    /// Ends the calling thread; answers what its CPU continues with. That is the idle context: the next thread may
    /// still be on its way out of another CPU, and only a switch can wait for that.
    fn exit(&self, id: ThreadId) -> ContextId {
        let _c = self.machine.scope(Cause::Switch);
        let me = self.machine.cpu();
        let mut q = self.queues.lock();
        let entry = q.threads.remove(&id).expect("a thread exits once");
        assert_eq!(entry.state, ThreadState::Running(me), "{} exits where it does not run", entry.tcb.name);
        assert_eq!(entry.tcb.pins.load(Ordering::Relaxed), 0, "{} exits while pinned", entry.tcb.name);
        q.zone.free(entry.at);
        if let (Some(stacks), Some(stack)) = (&mut q.stacks, entry.tcb.stack) {
            stacks.free(stack.at);
        }
        self.choose_idle(&mut q, me).context
    }

    // ------------------------------------------------------------------------------------------- switching

    /// Decides what `me` runs next, and notes it in the queues.
    fn choose(&self, q: &mut Queues<M>, me: CpuId) -> Next<M> {
        // Threads that were queued before the flag was set are found in the queues below.
        self.resched[me.index()].store(false, Ordering::Relaxed);
        let Some(id) = self.dequeue(q, me) else { return self.choose_idle(q, me) };
        q.running[me.index()] = Some(id);
        q.idle.remove(me);
        let entry = q.entry(id);
        entry.state = ThreadState::Running(me);
        entry.last_cpu = me;
        Next { thread: Some(id), context: entry.context, space: entry.space.clone(), at: Some(entry.at) }
    }

    /// Takes the thread that `me` runs next off its queue: the one that has waited longest, or the one whose space the
    /// TLB knows best ([`SchedConfig::by_tlb`]); of several, the one that has waited longest.
    fn dequeue(&self, q: &mut Queues<M>, me: CpuId) -> Option<ThreadId> {
        let Some(by_tlb) = self.config.by_tlb else { return q.dequeue(me, |_, _, _| 0) };
        // Who lets others run does so.
        let leaving = q.running[me.index()];
        q.dequeue(me, |threads, waiting, passed| {
            if passed >= by_tlb.passes && !by_tlb.defect.is(SchedDefect::PassedForEver) {
                return 0;
            }
            let (mut best, mut max_entries) = (0, 0);
            for (at, (_, id)) in waiting.iter().enumerate().filter(|(_, (_, id))| Some(*id) != leaving) {
                self.machine.execute(by_tlb.look);
                let space = threads.get(id).and_then(|entry| entry.space.as_ref());
                let entries = space.map_or(0, |space| self.pmaps.live_entries(space.pmap()));
                if entries > max_entries {
                    (best, max_entries) = (at, entries);
                }
            }
            self.machine.count(KernelCounter::TlbChoices, u64::from(best > 0));
            best
        })
    }

    fn choose_idle(&self, q: &mut Queues<M>, me: CpuId) -> Next<M> {
        q.running[me.index()] = None;
        self.clocks[me.index()].busy.store(false, Ordering::Relaxed);
        let context = q.idle_contexts[me.index()].expect("every CPU that switches has an idle context");
        Next { thread: None, context, space: None, at: None }
    }

    /// Does what a switch to `next` takes, apart from the switch itself.
    fn prepare(&self, next: Next<M>) -> ContextId {
        self.machine.count(KernelCounter::Switches, 1);
        self.machine.execute(self.paths.switch);
        if self.config.timer_accesses > 0 {
            self.machine.touch_timer(self.config.timer_accesses);
        }
        if let Some(at) = next.at {
            self.machine.touch(at, THREAD_USED_BYTES, Access::Write);
        }
        self.pmaps.activate(None, next.space.as_deref().map(Space::pmap));
        next.context
    }

    /// Leaves the CPU to another thread, or to the idle context; the caller has set the state of `tcb`. Returns when a
    /// CPU has chosen it again, at once if it is this one.
    fn switch_away(&self, tcb: &Tcb, mut q: <M::Lock<Queues<M>> as SpinLock<Queues<M>>>::Guard<'_>) {
        let me = self.machine.cpu();
        let next = match q.entry(tcb.id).state {
            // Woken on the way, and chosen by another CPU, which waits for this context to be left.
            ThreadState::Running(_) => self.choose_idle(&mut q, me),
            _ => self.choose(&mut q, me),
        };
        drop(q);
        if next.thread != Some(tcb.id) {
            let context = self.prepare(next);
            self.machine.context_switch(context);
        }
        self.switched_in();
    }

    /// The executing CPU begins to run the calling thread, and its quantum begins.
    fn switched_in(&self) {
        let clock = &self.clocks[self.machine.cpu().index()];
        let now = self.machine.now();
        clock.since_cycles.store(now.0, Ordering::Relaxed);
        clock.busy.store(true, Ordering::Relaxed);
        if !clock.ticks.swap(true, Ordering::Relaxed) {
            self.machine.set_timer(Some(now + self.config.tick_cycles));
        }
    }

    /// Binds the calling thread to a CPU, on which it runs from here on, or to none (`sched_bind`, `sched_unbind`). It
    /// is not pinned.
    ///
    /// # Locks
    /// Takes `Scheduler`; the caller holds none.
    pub fn bind(&self, tcb: &Tcb, cpu: Option<CpuId>) {
        let _c = self.machine.scope(Cause::Switch);
        let mut q = self.queues.lock();
        tcb.bound.store(cpu.map_or(0, |cpu| u32::from(cpu.0) + 1), Ordering::Relaxed);
        let Some(cpu) = cpu.filter(|cpu| *cpu != self.machine.cpu()) else { return };
        q.enqueue(tcb.id, Some(cpu));
        self.resched[cpu.index()].store(true, Ordering::Release);
        q.idle.remove(cpu);
        self.interrupt(CpuSet::only(cpu));
        self.switch_away(tcb, q);
    }

    // ------------------------------------------------------------------------------------------- the clock

    /// The timer has run out: ends the quantum of the thread that runs, and sets the timer anew; on an idle CPU to when
    /// something is to be done, `due`, if there is anything. (So what a thread wants done at some time needs no timer
    /// of its own: its CPU has the next tick before it.)
    ///
    /// # Locks
    /// Takes none: for the interrupt handler.
    pub fn tick(&self, due: Option<Cycles>) {
        let m = &self.machine;
        m.execute(self.paths.clock);
        let me = m.cpu().index();
        let (clock, now) = (&self.clocks[me], m.now());
        let busy = clock.busy.load(Ordering::Relaxed);
        clock.ticks.store(busy, Ordering::Relaxed);
        if busy {
            let since = Cycles(clock.since_cycles.load(Ordering::Relaxed));
            if now.saturating_sub(since) >= self.config.quantum_cycles {
                self.resched[me].store(true, Ordering::Relaxed);
            }
            m.set_timer(Some(now + self.config.tick_cycles));
        } else {
            m.set_timer(due);
        }
    }

    /// Lets waiting threads run before the caller, if there are any.
    pub fn yield_from(&self, tcb: &Tcb) {
        let _c = self.machine.scope(Cause::Switch);
        let me = self.machine.cpu();
        let mut q = self.queues.lock();
        if !q.has_work(me) {
            self.resched[me.index()].store(false, Ordering::Relaxed);
            self.switched_in();
            return;
        }
        let place = q.place(tcb.id, false);
        q.enqueue(tcb.id, place);
        if place.is_none() {
            self.interrupt_idle(&mut q);
        }
        self.switch_away(tcb, q);
    }

    // ------------------------------------------------------------------------------------------- sleeping

    /// See [`pageferry_hal::Threads::sleep`].
    pub fn sleep(
        &self,
        tcb: &Tcb,
        channel: Channel,
        reason: &'static str,
        interruptible: bool,
        release: &mut dyn FnMut(),
    ) -> Result<(), Interrupted> {
        let m = &self.machine;
        let _c = m.scope(Cause::Switch);
        m.execute(self.paths.sleep);
        m.sleeps_next();
        {
            let mut q = self.queues.lock();
            if interruptible && tcb.signals.load(Ordering::Relaxed) > 0 {
                drop(q);
                release();
                return Err(Interrupted);
            }
            self.touch_sleep_queue(channel);
            q.sleepers.entry(channel).or_default().push_back(tcb.id);
            let entry = q.entry(tcb.id);
            assert!(matches!(entry.state, ThreadState::Running(_)), "{} sleeps, but does not run", tcb.name);
            entry.state = ThreadState::Asleep { channel, reason, interruptible };
            m.touch(entry.at, THREAD_USED_BYTES, Access::Write);
        }
        m.count(KernelCounter::Sleeps, 1);
        release();
        // A wakeup in between has put the thread on a run queue, or another CPU has even chosen it: both are correct.
        self.switch_away(tcb, self.queues.lock());
        if tcb.interrupted.swap(false, Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }

    /// Makes up to `max_woken` threads that sleep on `channel` runnable, the longest sleeper first; answers how many.
    pub fn wakeup(&self, channel: Channel, max_woken: usize) -> usize {
        let m = &self.machine;
        let _c = m.scope(Cause::Switch);
        m.execute(self.paths.wakeup);
        let mut q = self.queues.lock();
        self.touch_sleep_queue(channel);
        let mut woken = 0;
        while woken < max_woken {
            let Some(&id) = q.sleepers.get(&channel).and_then(VecDeque::front) else { break };
            q.remove_sleeper(id, channel);
            let entry = q.entry(id);
            assert!(matches!(entry.state, ThreadState::Asleep { channel: c, .. } if c == channel));
            m.touch(entry.at, THREAD_USED_BYTES, Access::Write);
            entry.tcb.boosted.store(true, Ordering::Relaxed);
            self.make_runnable(&mut q, id);
            woken += 1;
        }
        m.count(KernelCounter::Wakeups, woken as u64);
        woken
    }

    /// Sends a signal: it ends an interruptible sleep, now or the next one before the return to user mode. False when
    /// there is no such thread.
    pub fn signal(&self, id: ThreadId) -> bool {
        let _c = self.machine.scope(Cause::Switch);
        let mut q = self.queues.lock();
        let Some(entry) = q.threads.get_mut(&id) else { return false };
        self.machine.execute(self.paths.wakeup);
        entry.tcb.signals.fetch_add(1, Ordering::Relaxed);
        if let ThreadState::Asleep { channel, interruptible: true, .. } = entry.state {
            entry.tcb.interrupted.store(true, Ordering::Relaxed);
            entry.tcb.boosted.store(true, Ordering::Relaxed);
            q.remove_sleeper(id, channel);
            self.make_runnable(&mut q, id);
        }
        true
    }

    /// Puts a thread on a run queue and makes a CPU look there.
    fn make_runnable(&self, q: &mut Queues<M>, id: ThreadId) {
        let me = self.machine.cpu();
        let level = q.entry(id).tcb.level();
        let affine = self.config.forward == ForwardWakeup::Last;
        let place = q.place(id, affine);
        q.enqueue(id, place);
        match place {
            Some(cpu) if affine && q.looks_by_itself(id, cpu) => {}
            Some(cpu) if cpu == me && q.idle.contains(me) => {
                self.interrupt_idle(q);
            }
            Some(cpu) if cpu != me => {
                self.resched[cpu.index()].store(true, Ordering::Release);
                q.idle.remove(cpu);
                self.interrupt(CpuSet::only(cpu));
            }
            None if self.interrupt_idle(q) => {}
            _ => {
                // No other CPU will: this one does, when its thread returns to user mode, if that has a lower level.
                let running = q.running[me.index()].and_then(|r| q.threads.get(&r));
                if running.is_some_and(|r| level < r.tcb.level()) {
                    self.resched[me.index()].store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Interrupts idle CPUs for the run queue that all share; false when there is none.
    fn interrupt_idle(&self, q: &mut Queues<M>) -> bool {
        let me = self.machine.cpu();
        if q.idle.contains(me) {
            // An interrupt has ended this CPU's halt: it looks by itself.
            q.idle.remove(me);
            self.resched[me.index()].store(true, Ordering::Release);
            return true;
        }
        let targets = match self.config.forward {
            ForwardWakeup::One | ForwardWakeup::Last => {
                q.idle.iter().next().map_or(CpuSet::EMPTY, CpuSet::only)
            }
            ForwardWakeup::All => q.idle,
        };
        q.idle = q.idle.difference(targets);
        for cpu in targets.iter() {
            self.resched[cpu.index()].store(true, Ordering::Release);
        }
        self.interrupt(targets);
        !targets.is_empty()
    }

    fn interrupt(&self, targets: CpuSet) {
        if !targets.is_empty() {
            self.machine.count(KernelCounter::ReschedIpis, targets.len() as u64);
            self.machine.send_ipi(targets, Interrupt::Reschedule);
        }
    }

    // ------------------------------------------------------------------------------------------- idle CPUs

    /// Names the context that `cpu` runs when there is no thread for it.
    pub fn set_idle_context(&self, cpu: CpuId, context: ContextId) {
        let before = self.queues.lock().idle_contexts[cpu.index()].replace(context);
        assert_eq!(before, None, "{cpu:?} has two idle contexts");
    }

    /// The life of an idle context: runs threads as they come, halts in between, returns when the kernel stops.
    pub fn idle_loop(&self) {
        let m = &self.machine;
        let me = m.cpu();
        let _idle = m.scope(Cause::Idle);
        loop {
            {
                let _c = m.scope(Cause::Switch);
                let mut q = self.queues.lock();
                let next = self.choose(&mut q, me);
                if next.thread.is_some() {
                    drop(q);
                    let context = self.prepare(next);
                    m.context_switch(context);
                    continue;
                }
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
                q.idle.insert(me);
            }
            let flag = &self.resched[me.index()];
            // Something to do while there is nothing else: a few groups at a time, so that a thread that comes waits
            // little.
            while !flag.load(Ordering::Acquire) && self.pmaps.reclaim(IDLE_GROUPS) == IDLE_GROUPS {}
            m.idle_until(&mut || {
                flag.swap(false, Ordering::Acquire) || self.stopping.load(Ordering::Acquire)
            });
        }
    }

    /// Makes all CPUs leave their idle loops, once nothing runs on them any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let others = self.machine.cpus().difference(CpuSet::only(self.machine.cpu()));
        self.interrupt(others);
    }

    /// A CPU other than 0 has left its idle loop.
    pub fn stopped_here(&self) {
        self.stopped.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits, on CPU 0, until all others have stopped.
    pub fn wait_for_stopped(&self) {
        let others = self.machine.board().cpus - 1;
        self.machine.spin_until(&mut || self.stopped.load(Ordering::Acquire) == others);
    }

    // ------------------------------------------------------------------------------------------- inspection

    /// Threads that exist.
    pub fn threads(&self) -> usize {
        self.queues.lock().threads.len()
    }

    /// True when `id` sleeps.
    pub fn is_asleep(&self, id: ThreadId) -> bool {
        self.queues.lock().threads.get(&id).is_some_and(|t| matches!(t.state, ThreadState::Asleep { .. }))
    }

    /// What `id` waits for, if it sleeps until another thread does something: not for a device or for memory.
    pub fn waits_for(&self, id: ThreadId) -> Option<&'static str> {
        match self.queues.lock().threads.get(&id)?.state {
            ThreadState::Asleep { reason, interruptible: true, .. } => Some(reason),
            _ => None,
        }
    }

    /// One line for each thread that sleeps.
    pub fn sleepers(&self) -> String {
        self.queues.lock().describe_sleepers()
    }

    /// Tests that every thread is where its state says.
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self) -> Result<(), String> {
        self.queues.lock().check()
    }
}
