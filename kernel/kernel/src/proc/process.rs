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
//! unwind, but from then on all of its calls do nothing (see [`crate::User`]).

use super::copyio::Syscall;
use super::registry::Registry;
use crate::Kernel;
use crate::choose::KeptStats;
use crate::fs::FileTable;
use crate::ipc::{MAX_PIPES, PIPE_BYTES, Pipe};
use crate::ispc::FILES;
use crate::net::{MAX_SOCKETS, SOCKET_BYTES, SockBuf};
use crate::sched::{MAX_THREADS, Thread, ThreadId};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use litemap::LiteMap;
use pageferry_abi::{Errno, Pid};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Cause, Channel, Crossing, LockClass, Machine, SpinLock, StructArena, StructVa, Threads, Trap, Zone,
};
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
pub(crate) struct Process<M: Machine> {
    pub(crate) pid: Pid,
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) at: StructVa,
    pub(crate) space: Arc<Space<M>>,
    pub(crate) files: M::Lock<FileTable<M>>,
    pub(crate) killed: AtomicBool,
    /// What its loans and its copies have cost, for the choice between them.
    pub(crate) loans: KeptStats,
}

impl<M: Machine> Process<M> {
    /// What its thread sleeps on for a child.
    fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }
}

/// What a process is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Itself: the kernel runs as long as there is one.
    Program,
    /// A service of the kernel's, by its number ([`crate::ispc`]): the kernel has begun it, and it ends with the last
    /// program.
    Server(u32),
    /// To measure something with, for as long as that takes.
    Partner,
}

/// What a process's thread runs; it ends with [`Kernel::exit`].
pub(crate) type Body<M> = Box<dyn FnOnce(Arc<Process<M>>, Thread<M>)>;

/// A process as the table knows it.
struct Record<M: Machine> {
    parent: Option<Pid>,
    process: Weak<Process<M>>,
    space: Weak<Space<M>>,
    thread: ThreadId,
    at: StructVa,
    exited: bool,
}

/// The table. See the [module](self).
pub(crate) struct Processes<M: Machine> {
    table: LiteMap<Pid, Record<M>>,
    next: u32,
    /// Processes that have not exited.
    alive: usize,
    /// And those of [`Role::Program`] that have not begun to.
    programs: usize,
    killed: Vec<Killed>,
    structures: Zone,
    pub(crate) pipes: Registry<Pipe<M>>,
    /// Directions of connected sockets.
    pub(crate) sockets: Registry<SockBuf<M>>,
}

impl<M: Machine> Processes<M> {
    pub(crate) fn new(arena: &mut StructArena) -> Result<Processes<M>, ArenaFull> {
        Ok(Processes {
            table: LiteMap::new(),
            next: 1,
            alive: 0,
            programs: 0,
            killed: Vec::new(),
            structures: arena.zone("processes", MAX_THREADS, PROCESS_BYTES)?,
            pipes: Registry::new(arena.zone("pipes", MAX_PIPES, PIPE_BYTES)?),
            sockets: Registry::new(arena.zone("sockets", MAX_SOCKETS, SOCKET_BYTES)?),
        })
    }

    /// Entries, exited or not.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
    pub(crate) fn killed(&self) -> &[Killed] {
        &self.killed
    }
    /// The parent of a process that has not exited, and its memory.
    pub(crate) fn memory_of(&self, pid: Pid) -> Option<(Option<Pid>, Arc<Space<M>>)> {
        let record = self.table.get(&pid).filter(|r| !r.exited)?;
        Some((record.parent, record.space.upgrade()?))
    }

    /// Takes `pid` out of the table.
    fn reap(&mut self, pid: Pid) {
        let record = self.table.remove(&pid).expect("a process is reaped once");
        assert!(record.exited, "a living process is reaped");
        self.structures.free(record.at);
    }
}

impl<M: Machine> Kernel<M> {
    /// Makes a process whose thread runs `body` in `space`. On failure the caller still has `space`.
    pub(crate) fn create_process(
        self: &Arc<Self>,
        parent: Option<Pid>,
        name: &str,
        space: Arc<Space<M>>,
        files: FileTable<M>,
        role: Role,
        body: Body<M>,
    ) -> Result<Pid, Errno> {
        let (pid, at) = {
            let mut table = self.processes.lock();
            let at = table.structures.alloc().ok_or(Errno::NoMemory)?;
            let pid = Pid(table.next);
            table.next += 1;
            (pid, at)
        };
        let files = self.machine.new_lock(LockClass::PROCESS, files);
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
        let Some(thread) = Thread::create(&self.sched, name, Some(space), body) else {
            self.processes.lock().structures.free(at);
            return Err(Errno::NoMemory);
        };
        {
            let mut table = self.processes.lock();
            table
                .table
                .insert(pid, Record { parent, process: known, space: memory, thread, at, exited: false });
            table.alive += 1;
            table.programs += usize::from(role == Role::Program);
        }
        self.sched.launch(thread);
        Ok(pid)
    }

    /// Ends a process: its descriptors, its memory, its place in the table. Its thread ends right after.
    pub(crate) fn exit(self: &Arc<Self>, process: &Process<M>, thread: &Thread<M>) {
        let m = &self.machine;
        let _c = m.scope(Cause::Syscall);
        m.cross(Crossing::SyscallEnter);
        m.execute(self.config.paths.process);
        let Process { space, pid, loans, .. } = process;
        let call = Syscall { kernel: self, thread, space, pid: *pid, loans };
        self.ispc.iter().for_each(|ispc| ispc.close_gate(&call, process));
        let files = process.files.lock().take_all();
        files.into_iter().for_each(|file| file.close(&call));
        self.withdraw_all(process.pid);
        self.lenders.watch(process.pid, false);
        if self.was_last_program(process) {
            self.file_service.iter().for_each(|service| service.end(&call));
            self.net_service.iter().for_each(|service| service.end(&call));
        }
        self.ispc.iter().for_each(|ispc| ispc.end(&call));
        match process.role {
            Role::Server(FILES) => self.file_service.iter().for_each(|service| service.ended(thread)),
            Role::Server(other) => {
                self.net_service.iter().for_each(|service| service.ended(self, thread, other));
            }
            Role::Program | Role::Partner => {}
        }
        // Nothing may sleep on the space's behalf once it is gone, and no CPU may run on it.
        self.sched.leave_space(&thread.tcb);
        process.space.terminate(thread);
        let mut table = self.processes.lock();
        let orphans: Vec<Pid> =
            table.table.iter().filter(|(_, r)| r.parent == Some(process.pid)).map(|(&pid, _)| pid).collect();
        for pid in orphans {
            let record = table.table.get_mut(&pid).expect("listed above");
            record.parent = None;
            if record.exited {
                table.reap(pid);
            }
        }
        let record = table.table.get_mut(&process.pid).expect("a process exits once");
        record.exited = true;
        match record.parent.and_then(|parent| table.table.get(&parent)).map(|r| r.at) {
            Some(parent_at) => {
                thread.wakeup(Channel(parent_at.0.0));
            }
            None => table.reap(process.pid),
        }
        table.alive -= 1;
        let last = table.alive == 0;
        drop(table);
        if last {
            self.let_go_of_the_disk(thread);
            self.stop(thread);
        }
    }

    /// A process has begun to end; true when no program is left but those that have, too.
    fn was_last_program(&self, process: &Process<M>) -> bool {
        let mut table = self.processes.lock();
        let is_program = process.role == Role::Program;
        table.programs -= usize::from(is_program);
        is_program && table.programs == 0
    }

    /// What the last process has left mounted, because it was killed, is unmounted, and its disk goes
    /// (`vfs_unmountall`).
    fn let_go_of_the_disk(&self, thread: &Thread<M>) {
        // It may fail to write: the disk goes, and what was on it.
        _ = self.mount.let_go(self, thread, false);
        _ = self.memory_disk.detach(self);
    }

    /// Waits for a child to exit and forgets it.
    pub(crate) fn wait_for_child(&self, thread: &Thread<M>, process: &Process<M>) -> Result<Pid, Errno> {
        loop {
            let mut table = self.processes.lock();
            let mut children = table.table.iter().filter(|(_, r)| r.parent == Some(process.pid)).peekable();
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
    pub(crate) fn send_signal(&self, pid: Pid) -> Result<(), Errno> {
        let table = self.processes.lock();
        let target = table.table.get(&pid).filter(|r| !r.exited).map(|r| r.thread);
        drop(table);
        match target {
            Some(thread) if self.sched.signal(thread) => Ok(()),
            _ => Err(Errno::NoProcess),
        }
    }

    /// Ends another process: from now on nothing that it does has any effect, and what it sleeps for does not keep it.
    pub(crate) fn kill_process(&self, pid: Pid) -> Result<(), Errno> {
        let process = {
            let table = self.processes.lock();
            table.table.get(&pid).filter(|r| !r.exited).and_then(|r| r.process.upgrade())
        };
        process.ok_or(Errno::NoProcess)?.killed.store(true, Ordering::Relaxed);
        self.send_signal(pid)
    }

    /// True when the process `pid` sleeps; for tests that must not act before it does.
    pub fn is_asleep(&self, pid: Pid) -> bool {
        let thread = self.processes.lock().table.get(&pid).map(|r| r.thread);
        thread.is_some_and(|t| self.sched.is_asleep(t))
    }

    /// What the process `pid` waits for, if only another process can end its wait; for programs that look for processes
    /// that block each other.
    pub fn waits_for(&self, pid: Pid) -> Option<&'static str> {
        let thread = self.processes.lock().table.get(&pid).map(|r| r.thread);
        thread.and_then(|t| self.sched.waits_for(t))
    }

    /// Notes that an access of `process` could not be made. Where threads of others run in it, its own may sleep: it is
    /// told.
    pub(crate) fn kill(&self, process: &Process<M>, trap: Trap) {
        if !process.killed.swap(true, Ordering::Relaxed) {
            let killed = Killed { pid: process.pid, name: process.name.clone(), trap };
            self.processes.lock().killed.push(killed);
            if self.ispc.as_ref().is_some_and(|ispc| ispc.has_gate(process.pid)) {
                _ = self.send_signal(process.pid);
            }
        }
    }

    /// Makes a child of `process` whose thread runs `body` in a copy of its address space.
    pub(crate) fn fork_process(
        self: &Arc<Self>,
        call: &Syscall<'_, M>,
        process: &Process<M>,
        name: &str,
        body: Body<M>,
    ) -> Result<Pid, Errno> {
        self.machine.execute(self.config.paths.process);
        let space = call.space.fork(call.thread)?;
        let files = process.files.lock().inherit();
        self.create_process(Some(process.pid), name, space.clone(), files, Role::Program, body)
            .inspect_err(|_| space.terminate(call.thread))
    }
}
