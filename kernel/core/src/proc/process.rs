//! Processes: an address space, descriptors, one thread of its own, and a place in the family.
//!
//! # What it holds
//! The table of processes has each one's parent, and those that have exited without having been waited for; it also
//! keeps the structures of processes, pipes and sockets, and the list of those that were killed. A [`Process`] itself
//! is owned by its thread; nothing of it but the entry in the table outlives that.
//!
//! # Locks
//! The table and each process's descriptors have a lock of class `Process`; no two are held together.
//!
//! # What can fail
//! Making a process, for want of memory or structures. A process that uses an address it has not is killed: it does not
//! unwind, but from then on all of its calls do nothing (see `User`).

use super::copyio::Syscall;
use crate::base::Core;
use crate::choose::KeptStats;
use crate::fs::FileTable;
use crate::sched::{MAX_THREADS, Thread, ThreadId};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use litemap::LiteMap;
use pageferry_abi::{Errno, Pid};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Channel, LockClass, Machine, SpinLock, StructArena, StructVa, Threads, Trap, Zone};
use pageferry_vm::Space;

/// A process structure.
const PROCESS_BYTES: usize = 512;

/// A process that a fatal signal has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Its number.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// The access that could not be made (SIGSEGV).
    pub trap: Trap,
}

/// What a process's thread owns.
pub struct Process<M: Machine> {
    /// Its number.
    pub pid: Pid,
    /// Its name, for reports.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    pub(crate) at: StructVa,
    /// Its memory.
    pub space: Arc<Space<M>>,
    /// Its descriptors.
    pub files: M::Lock<FileTable<M>>,
    /// It was killed: its calls do nothing any more.
    pub killed: AtomicBool,
    /// What its loans and its copies have cost, for the choice between them.
    pub loans: KeptStats,
}

impl<M: Machine> Process<M> {
    /// What its thread sleeps on for a child.
    fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }
}

/// What is known of a process from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub pid: Pid,
    /// Whose child it is.
    pub parent: Option<Pid>,
    /// Its name; none once it has exited.
    pub name: Option<String>,
    /// It sleeps.
    pub is_asleep: bool,
}

/// What a process is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Itself: the kernel runs as long as there is one.
    Program,
    /// A service of the kernel's, by its number (`pageferry_ispc`): the kernel has begun it, and it ends with the last
    /// program.
    Server(u32),
    /// To measure something with, for as long as that takes.
    Partner,
}

/// What a process's thread runs; it ends with [`Processes::begin_exit`], what else is to be done, and
/// [`Processes::end_exit`].
pub type Body<M> = Box<dyn FnOnce(Arc<Process<M>>, Thread<M>)>;

/// A process as the table knows it.
struct Record<M: Machine> {
    parent: Option<Pid>,
    process: Weak<Process<M>>,
    space: Weak<Space<M>>,
    thread: ThreadId,
    at: StructVa,
    exited: bool,
}

/// All processes: who is whose parent, who has exited and was not waited for, and who was killed.
pub struct Processes<M: Machine> {
    core: Arc<Core<M>>,
    table: M::Lock<Table<M>>,
}

/// What the lock protects.
pub struct Table<M: Machine> {
    records: LiteMap<Pid, Record<M>>,
    next: u32,
    /// Processes that have not exited.
    alive: usize,
    /// And those of [`Role::Program`] that have not begun to.
    programs: usize,
    killed: Vec<Killed>,
    structures: Zone,
}

impl<M: Machine> Table<M> {
    /// Without any.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(arena: &mut StructArena) -> Result<Table<M>, ArenaFull> {
        Ok(Table {
            records: LiteMap::new(),
            next: 1,
            alive: 0,
            programs: 0,
            killed: Vec::new(),
            structures: arena.zone("processes", MAX_THREADS, PROCESS_BYTES)?,
        })
    }

    /// Takes `pid` out of the table.
    fn reap(&mut self, pid: Pid) {
        let record = self.records.remove(&pid).expect("a process is reaped once");
        assert!(record.exited, "a living process is reaped");
        self.structures.free(record.at);
    }
}

impl<M: Machine> Processes<M> {
    /// Those in `table`, over `core`.
    pub fn new(core: &Arc<Core<M>>, table: Table<M>) -> Processes<M> {
        let table = core.machine.new_lock(LockClass::PROCESS, table);
        Processes { core: core.clone(), table }
    }

    /// Entries, exited or not.
    pub fn count(&self) -> usize {
        self.table.lock().records.len()
    }

    /// All of them, in the order of their numbers.
    pub fn list(&self) -> Vec<Listed> {
        let known: Vec<_> = {
            let table = self.table.lock();
            table.records.iter().map(|(&pid, r)| (pid, r.parent, r.process.upgrade(), r.thread)).collect()
        };
        let listed =
            |(pid, parent, process, thread): (Pid, Option<Pid>, Option<Arc<Process<M>>>, ThreadId)| Listed {
                pid,
                parent,
                is_asleep: process.is_some() && self.core.sched.is_asleep(thread),
                name: process.map(|process| process.name.clone()),
            };
        known.into_iter().map(listed).collect()
    }

    /// Those that a fatal signal has ended, in order.
    pub fn killed(&self) -> Vec<Killed> {
        self.table.lock().killed.clone()
    }

    /// The memory of `pid`, for its parent.
    ///
    /// # Errors
    /// [`Errno::NoProcess`]; [`Errno::Access`] for all others.
    pub fn memory_of_child(&self, parent: Pid, pid: Pid) -> Result<Arc<Space<M>>, Errno> {
        let table = self.table.lock();
        let record = table.records.get(&pid).filter(|r| !r.exited).ok_or(Errno::NoProcess)?;
        let space = record.space.upgrade().ok_or(Errno::NoProcess)?;
        if record.parent == Some(parent) { Ok(space) } else { Err(Errno::Access) }
    }

    /// Makes a process whose thread runs `body` in `space`. On failure the caller still has `space`.
    pub fn create(
        &self,
        parent: Option<Pid>,
        name: &str,
        space: Arc<Space<M>>,
        files: FileTable<M>,
        role: Role,
        body: Body<M>,
    ) -> Result<Pid, Errno> {
        let (pid, at) = {
            let mut table = self.table.lock();
            let at = table.structures.alloc().ok_or(Errno::NoMemory)?;
            let pid = Pid(table.next);
            table.next += 1;
            (pid, at)
        };
        let files = self.core.machine.new_lock(LockClass::PROCESS, files);
        let killed = AtomicBool::new(false);
        let process = Process {
            pid,
            name: name.to_string(),
            role,
            at,
            space: space.clone(),
            files,
            killed,
            loans: KeptStats::default(),
        };
        let (process, memory) = (Arc::new(process), Arc::downgrade(&space));
        let known = Arc::downgrade(&process);
        let body = Box::new(move |thread| body(process, thread));
        let Some(thread) = Thread::create(&self.core.sched, name, Some(space), body) else {
            self.table.lock().structures.free(at);
            return Err(Errno::NoMemory);
        };
        {
            let mut table = self.table.lock();
            table
                .records
                .insert(pid, Record { parent, process: known, space: memory, thread, at, exited: false });
            table.alive += 1;
            table.programs += usize::from(role == Role::Program);
        }
        self.core.sched.launch(thread);
        Ok(pid)
    }

    /// A process begins to end: what it has open, to be closed; and whether no program is left but those that have
    /// begun to, too.
    pub fn begin_exit(&self, process: &Process<M>) -> bool {
        let mut table = self.table.lock();
        let is_program = process.role == Role::Program;
        table.programs -= usize::from(is_program);
        is_program && table.programs == 0
    }

    /// A process ends: its memory goes, its children are nobody's, and its parent is told. True when no process is left
    /// that has not ended. Its thread ends right after.
    pub fn end_exit(&self, process: &Process<M>, thread: &Thread<M>) -> bool {
        // Nothing may sleep on the space's behalf once it is gone, and no CPU may run on it.
        self.core.sched.leave_space(&thread.tcb);
        process.space.terminate(thread);
        let mut table = self.table.lock();
        let orphans: Vec<Pid> = table
            .records
            .iter()
            .filter(|(_, r)| r.parent == Some(process.pid))
            .map(|(&pid, _)| pid)
            .collect();
        for pid in orphans {
            let record = table.records.get_mut(&pid).expect("listed above");
            record.parent = None;
            if record.exited {
                table.reap(pid);
            }
        }
        let record = table.records.get_mut(&process.pid).expect("a process exits once");
        record.exited = true;
        match record.parent.and_then(|parent| table.records.get(&parent)).map(|r| r.at) {
            Some(parent_at) => {
                thread.wakeup(Channel(parent_at.0.0));
            }
            None => table.reap(process.pid),
        }
        table.alive -= 1;
        table.alive == 0
    }

    /// Waits for a child to exit and forgets it.
    pub fn wait_for_child(&self, thread: &Thread<M>, process: &Process<M>) -> Result<Pid, Errno> {
        loop {
            let mut table = self.table.lock();
            let mut children = table.records.iter().filter(|(_, r)| r.parent == Some(process.pid)).peekable();
            if children.peek().is_none() {
                return Err(Errno::NoChild);
            }
            if let Some((&pid, _)) = children.find(|(_, r)| r.exited) {
                table.reap(pid);
                return Ok(pid);
            }
            drop(children);
            let mut held = Some(table);
            thread.sleep(process.channel(), "wait", true, &mut || drop(held.take()))?;
        }
    }

    /// Sends a signal to a living process.
    pub fn send_signal(&self, pid: Pid) -> Result<(), Errno> {
        let table = self.table.lock();
        let target = table.records.get(&pid).filter(|r| !r.exited).map(|r| r.thread);
        drop(table);
        match target {
            Some(thread) if self.core.sched.signal(thread) => Ok(()),
            _ => Err(Errno::NoProcess),
        }
    }

    /// Ends another process: from now on nothing that it does has any effect, and what it sleeps for does not keep it.
    pub fn kill(&self, pid: Pid) -> Result<(), Errno> {
        let process = {
            let table = self.table.lock();
            table.records.get(&pid).filter(|r| !r.exited).and_then(|r| r.process.upgrade())
        };
        process.ok_or(Errno::NoProcess)?.killed.store(true, Ordering::Relaxed);
        // One that has seen that on another CPU may have ended by now, as was asked for.
        _ = self.send_signal(pid);
        Ok(())
    }

    /// True when the process `pid` sleeps; for tests that must not act before it does.
    pub fn is_asleep(&self, pid: Pid) -> bool {
        let thread = self.table.lock().records.get(&pid).map(|r| r.thread);
        thread.is_some_and(|t| self.core.sched.is_asleep(t))
    }

    /// What the process `pid` waits for, if only another process can end its wait; for programs that look for processes
    /// that block each other.
    pub fn waits_for(&self, pid: Pid) -> Option<&'static str> {
        let thread = self.table.lock().records.get(&pid).map(|r| r.thread);
        thread.and_then(|t| self.core.sched.waits_for(t))
    }

    /// Notes that an access of `process` could not be made. True if nothing had killed it before.
    pub fn killed_by(&self, process: &Process<M>, trap: Trap) -> bool {
        let first = !process.killed.swap(true, Ordering::Relaxed);
        if first {
            let killed = Killed { pid: process.pid, name: process.name.clone(), trap };
            self.table.lock().killed.push(killed);
        }
        first
    }

    /// Makes a child of `process` whose thread runs `body` in a copy of its address space.
    pub fn fork(
        &self,
        call: &Syscall<'_, M>,
        process: &Process<M>,
        name: &str,
        body: Body<M>,
    ) -> Result<Pid, Errno> {
        self.core.machine.execute(self.core.config.paths.process);
        let space = call.space.fork(call.thread)?;
        let files = process.files.lock().inherit();
        self.create(Some(process.pid), name, space.clone(), files, Role::Program, body)
            .inspect_err(|_| space.terminate(call.thread))
    }
}
