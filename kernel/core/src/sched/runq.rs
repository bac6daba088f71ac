//! Where every thread is: on a run queue, on a sleep queue, or running. Plain data under the scheduler's lock.
//!
//! Each run queue has four levels, because work behind interrupts comes first, a thread that was woken inside the
//! kernel runs before those in user mode, and one may want to run last; within a level, first come first served.
//! Threads that one CPU is to run, being pinned or because it was idle, wait on the queue of that CPU, all others on
//! one for all CPUs; a CPU takes from the two the thread on the higher level, or the one that has waited longer. It is
//! owned by the scheduler.
//!
//! # What can fail
//! Nothing: broken invariants panic.

use super::tcb::{Tcb, ThreadId, ThreadState};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use litemap::LiteMap;
use pageferry_hal::{Channel, ContextId, CpuId, CpuSet, Machine, StructVa, Zone};
use pageferry_vm::Space;

/// A thread, as the scheduler knows it.
pub struct Entry<M: Machine> {
    /// What the thread itself has of it, too.
    pub tcb: Arc<Tcb>,
    /// Its registers and stack, which the machine switches to.
    pub context: ContextId,
    /// The address space to run in; `None` for a thread of the kernel, or one that has left its own.
    pub space: Option<Arc<Space<M>>>,
    /// It says on which of the queues below the thread is; [`Queues::check`] holds it to that.
    pub state: ThreadState,
    /// Where it ran last; before that, where it was started.
    pub last_cpu: CpuId,
    /// Its structure, from the zone.
    pub at: StructVa,
}

/// A run queue: four levels, each in order of arrival.
#[derive(Default)]
pub struct RunQueue {
    levels: [VecDeque<(u64, ThreadId)>; 4],
    /// How often another went before the first of each level, since that is the first.
    passed: [u32; 4],
}

impl RunQueue {
    /// Level and arrival of the first.
    fn first(&self) -> Option<(usize, u64)> {
        self.levels.iter().enumerate().find_map(|(level, q)| q.front().map(|&(stamp, _)| (level, stamp)))
    }
    /// Takes one of the highest level: by the place that `choose` answers, of several that wait there.
    fn pop(&mut self, choose: impl FnOnce(&VecDeque<(u64, ThreadId)>, u32) -> usize) -> Option<ThreadId> {
        let (level, queue) = self.levels.iter_mut().enumerate().find(|(_, queue)| !queue.is_empty())?;
        let at = if queue.len() > 1 { choose(queue, self.passed[level]) } else { 0 };
        self.passed[level] = if at == 0 { 0 } else { self.passed[level] + 1 };
        queue.remove(at).map(|(_, id)| id)
    }
}

/// What the lock protects.
pub struct Queues<M: Machine> {
    /// All threads that have not ended.
    pub threads: LiteMap<ThreadId, Entry<M>>,
    /// Threads that any CPU may run.
    pub shared: RunQueue,
    /// Threads that only this CPU may run, for each CPU.
    pub own: Vec<RunQueue>,
    /// Who sleeps on a channel, the longest sleeper first. A channel without sleepers has no entry.
    pub sleepers: LiteMap<Channel, VecDeque<ThreadId>>,
    /// The thread that each CPU runs; `None` while it idles.
    pub running: Vec<Option<ThreadId>>,
    /// What each CPU runs when it has no thread; `None` until it has started.
    pub idle_contexts: Vec<Option<ContextId>>,
    /// CPUs that halt, or are about to, and have not been interrupted for a thread.
    pub idle: CpuSet,
    arrivals: u64,
    /// Where structures of threads come from.
    pub zone: Zone,
    /// And their stacks in the kernel, where those are accounted for.
    pub stacks: Option<Zone>,
}

impl<M: Machine> Queues<M> {
    /// Empty queues for `cpus` CPUs; thread structures come from `zone`, and kernel stacks from `stacks`.
    pub fn new(cpus: usize, zone: Zone, stacks: Option<Zone>) -> Queues<M> {
        Queues {
            threads: LiteMap::new(),
            shared: RunQueue::default(),
            own: (0..cpus).map(|_| RunQueue::default()).collect(),
            sleepers: LiteMap::new(),
            running: vec![None; cpus],
            idle_contexts: vec![None; cpus],
            idle: CpuSet::EMPTY,
            arrivals: 0,
            zone,
            stacks,
        }
    }

    /// A thread that is known to be there: one that has ended makes it panic.
    pub fn entry(&mut self, id: ThreadId) -> &mut Entry<M> {
        self.threads.get_mut(&id).expect("a thread that does not exist any more")
    }

    /// The CPU that alone may run the thread next: the one it is pinned or bound to, or, if `affine`, that which it ran
    /// on last where that has nothing else to run, or else an idle one.
    pub fn place(&mut self, id: ThreadId, affine: bool) -> Option<CpuId> {
        let entry = self.entry(id);
        let (last, stays) = (entry.last_cpu, affine && !entry.tcb.soft_interrupt);
        if entry.tcb.pins.load(Ordering::Relaxed) > 0 {
            Some(last)
        } else if let Some(bound) = entry.tcb.bound.load(Ordering::Relaxed).checked_sub(1) {
            Some(CpuId(bound as u8))
        } else if stays && self.has_nothing_but(id, last) {
            Some(last)
        } else if stays {
            self.idle.iter().next()
        } else {
            None
        }
    }

    /// True when `cpu` has nothing to run but `id`. To take a CPU for busy that is not idle yet would let two CPUs swap
    /// their threads, which then find nothing in the caches.
    fn has_nothing_but(&self, id: ThreadId, cpu: CpuId) -> bool {
        self.idle.contains(cpu) || (self.looks_by_itself(id, cpu) && !self.has_work(cpu))
    }

    /// True when `cpu` takes `id` from its queue without an interrupt: it is on its way from a thread into its idle
    /// context, or is leaving `id`, which was woken before it was gone, and looks at its queues before it halts.
    pub fn looks_by_itself(&self, id: ThreadId, cpu: CpuId) -> bool {
        !self.idle.contains(cpu) && self.running[cpu.index()].is_none_or(|running| running == id)
    }

    /// Appends a thread to the run queue of `cpu`, or to the one that all share.
    pub fn enqueue(&mut self, id: ThreadId, cpu: Option<CpuId>) {
        let stamp = self.arrivals;
        self.arrivals += 1;
        let entry = self.entry(id);
        assert_ne!(entry.state, ThreadState::Queued, "{} is on a run queue already", entry.tcb.name);
        entry.state = ThreadState::Queued;
        let level = entry.tcb.level();
        let queue = match cpu {
            Some(cpu) => &mut self.own[cpu.index()],
            None => &mut self.shared,
        };
        queue.levels[level].push_back((stamp, id));
    }

    /// True when a thread waits that `cpu` may run.
    pub fn has_work(&self, cpu: CpuId) -> bool {
        self.shared.first().is_some() || self.own[cpu.index()].first().is_some()
    }

    /// Takes the next thread for `cpu`: the higher level first, then the queue whose first has waited longer, and there
    /// the one that `choose` names by its place among several, told how often others went before the first of them.
    pub fn dequeue(
        &mut self,
        cpu: CpuId,
        choose: impl FnOnce(&LiteMap<ThreadId, Entry<M>>, &VecDeque<(u64, ThreadId)>, u32) -> usize,
    ) -> Option<ThreadId> {
        let (shared, own) = (self.shared.first(), self.own[cpu.index()].first());
        let from_own = match (shared, own) {
            (Some(s), Some(o)) => o < s,
            (None, o) => o.is_some(),
            (_, None) => false,
        };
        let Queues { threads, shared, own, .. } = self;
        let queue = if from_own { &mut own[cpu.index()] } else { shared };
        queue.pop(|waiting, passed| choose(threads, waiting, passed))
    }

    /// Takes a sleeping thread off its queue.
    pub fn remove_sleeper(&mut self, id: ThreadId, channel: Channel) {
        let queue = self.sleepers.get_mut(&channel).expect("a sleeper is on the queue of its channel");
        let at = queue.iter().position(|&s| s == id).expect("a sleeper is on the queue of its channel");
        queue.remove(at);
        if queue.is_empty() {
            self.sleepers.remove(&channel);
        }
    }

    /// One line for each thread that sleeps.
    pub fn describe_sleepers(&self) -> String {
        let mut text = String::new();
        for entry in self.threads.values() {
            if let ThreadState::Asleep { channel, reason, interruptible } = entry.state {
                let how = if interruptible { "" } else { ", not interruptible" };
                text += &format!("{}: {reason} on {:#x}{how}\n", entry.tcb.name, channel.0);
            }
        }
        text
    }

    /// Tests that every thread is where its state says, and nowhere else.
    pub fn check(&self) -> Result<(), String> {
        for (id, entry) in &self.threads {
            let queues = core::iter::once(&self.shared).chain(&self.own);
            let queued = queues.flat_map(|r| r.levels.iter().flatten()).filter(|(_, t)| t == id).count();
            let asleep = self.sleepers.values().flatten().filter(|t| *t == id).count();
            let expected = match entry.state {
                ThreadState::New | ThreadState::Running(_) => (0, 0),
                ThreadState::Queued => (1, 0),
                ThreadState::Asleep { .. } => (0, 1),
            };
            // A thread on its way to sleep is still listed as running where it was, so no more than this is tested.
            let runs_there = |cpu: CpuId| self.running[cpu.index()] == Some(*id);
            let lost = matches!(entry.state, ThreadState::Running(cpu) if !runs_there(cpu));
            if (queued, asleep) != expected || lost {
                let name = &entry.tcb.name;
                return Err(format!("{name}: {:?}, queued {queued}, asleep {asleep}", entry.state));
            }
            // Both change under this lock: who sends a signal wakes, and who has one does not go to sleep.
            let signals = entry.tcb.signals.load(Ordering::Relaxed);
            if signals > 0 && matches!(entry.state, ThreadState::Asleep { interruptible: true, .. }) {
                return Err(format!("{}: {:?} with {signals} signals", entry.tcb.name, entry.state));
            }
        }
        Ok(())
    }
}
