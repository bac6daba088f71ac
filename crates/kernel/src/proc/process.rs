//! Processes: an address space, descriptors, one thread, and a place in the family.
//!
//! # What it holds
//! The table of processes says who is whose parent and who has exited without having been waited for; it also keeps the
//! modelled addresses of process and pipe structures, and remembers who was killed. A [`Process`] itself is owned by its
//! thread; nothing of it but the entry in the table outlives that.
//!
//! # Locks
//! The table and each process's descriptors have a lock of class `Process`; no two are held together.
//!
//! # What can fail
//! Making a process, for want of memory or structures. A process that uses an address it has not is killed: it does not
//! unwind, but from then on all of its calls do nothing (see [`crate::User`]).

use super::copyio::Caller;
use super::pid::Pid;
use crate::Kernel;
use crate::error::Errno;
use crate::fs::{File, FileTable, Open};
use crate::ipc::{End, MAX_PIPES, PIPE_BYTES, Pipe};
use crate::net::{SOCKET_BYTES, Stream};
use crate::sched::{MAX_THREADS, Thread, ThreadId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Cause, Channel, Crossing, LockClass, Machine, SpinLock, StructArena, StructVa, Threads, Trap, Va, Zone,
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
    pub(crate) at: StructVa,
    pub(crate) space: Arc<Space<M>>,
    pub(crate) files: M::Lock<FileTable<M>>,
    pub(crate) killed: AtomicBool,
}

impl<M: Machine> Process<M> {
    /// What its thread sleeps on for a child.
    fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }
}

/// What a process's thread runs; it ends with [`Kernel::exit`].
pub(crate) type Body<M> = Box<dyn FnOnce(Arc<Process<M>>, Thread<M>)>;

/// A process as the table knows it.
struct Record<M: Machine> {
    parent: Option<Pid>,
    space: Weak<Space<M>>,
    thread: ThreadId,
    at: StructVa,
    exited: bool,
}

/// The table. See the [module](self).
pub(crate) struct Processes<M: Machine> {
    table: BTreeMap<Pid, Record<M>>,
    next: u32,
    /// Processes that have not exited.
    alive: usize,
    killed: Vec<Killed>,
    structures: Zone,
    pipe_structures: Zone,
    /// Pipes that exist, by address; for checks.
    pipes: BTreeMap<Va, Weak<Pipe<M>>>,
    socket_structures: Zone,
    /// Directions of connected sockets that exist, by address; for checks.
    sockets: BTreeMap<Va, Weak<Stream<M>>>,
}

/// Directions of connected sockets at a time.
const MAX_SOCKETS: usize = 512;

impl<M: Machine> Processes<M> {
    pub(crate) fn new(arena: &mut StructArena) -> Result<Processes<M>, ArenaFull> {
        Ok(Processes {
            table: BTreeMap::new(),
            next: 1,
            alive: 0,
            killed: Vec::new(),
            structures: arena.zone("processes", MAX_THREADS, PROCESS_BYTES)?,
            pipe_structures: arena.zone("pipes", MAX_PIPES, PIPE_BYTES)?,
            pipes: BTreeMap::new(),
            socket_structures: arena.zone("sockets", MAX_SOCKETS, SOCKET_BYTES)?,
            sockets: BTreeMap::new(),
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
    /// Pipes that exist.
    pub(crate) fn pipes(&self) -> Vec<Arc<Pipe<M>>> {
        self.pipes.values().filter_map(Weak::upgrade).collect()
    }

    /// Directions of connected sockets that exist.
    pub(crate) fn sockets(&self) -> Vec<Arc<Stream<M>>> {
        self.sockets.values().filter_map(Weak::upgrade).collect()
    }
    /// How many structures of those are in use.
    pub(crate) fn socket_count(&self) -> usize {
        self.socket_structures.live()
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
        body: Body<M>,
    ) -> Result<Pid, Errno> {
        let (pid, at) = {
            let mut table = self.processes.lock();
            let at = table.structures.alloc().ok_or(Errno::NoMemory)?;
            let pid = Pid(table.next);
            table.next += 1;
            (pid, at)
        };
        let files = self.machine.new_lock(LockClass::Process, files);
        let killed = AtomicBool::new(false);
        let process = Process { pid, name: name.to_string(), at, space: space.clone(), files, killed };
        let (process, memory) = (Arc::new(process), Arc::downgrade(&space));
        let body = Box::new(move |thread| body(process, thread));
        let Some(thread) = Thread::create(&self.sched, name, Some(space), body) else {
            self.processes.lock().structures.free(at);
            return Err(Errno::NoMemory);
        };
        {
            let mut table = self.processes.lock();
            table.table.insert(pid, Record { parent, space: memory, thread, at, exited: false });
            table.alive += 1;
        }
        self.sched.launch(thread);
        Ok(pid)
    }

    /// Ends a process: its descriptors, its memory, its place in the table. Its thread ends right after.
    pub(crate) fn exit(&self, process: &Process<M>, thread: &Thread<M>) {
        let m = &self.machine;
        let _c = m.scope(Cause::Syscall);
        m.cross(Crossing::SyscallEnter);
        m.execute(self.config.paths.process);
        let files = process.files.lock().take_all();
        files.into_iter().for_each(|file| self.release_file(thread, file));
        self.withdraw_all(process.pid);
        self.lenders.watch(process.pid, false);
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
            self.stop(thread);
        }
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

    /// True when the process `pid` sleeps; for tests that must not act before it does.
    pub fn is_asleep(&self, pid: Pid) -> bool {
        let thread = self.processes.lock().table.get(&pid).map(|r| r.thread);
        thread.is_some_and(|t| self.sched.is_asleep(t))
    }

    /// Notes that an access of `process` could not be made.
    pub(crate) fn kill(&self, process: &Process<M>, trap: Trap) {
        if !process.killed.swap(true, Ordering::Relaxed) {
            let killed = Killed { pid: process.pid, name: process.name.clone(), trap };
            self.processes.lock().killed.push(killed);
        }
    }

    // ------------------------------------------------------------------------------------------- descriptors

    /// Makes a pipe and its structure. Waits for memory.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    ///
    /// # Errors
    /// [`Errno::NoMemory`], when waiting does not help.
    pub(crate) fn create_pipe(&self, t: &dyn Threads) -> Result<Arc<Pipe<M>>, Errno> {
        let at = self.processes.lock().pipe_structures.alloc().ok_or(Errno::NoMemory)?;
        let made = Pipe::new(self, t, at);
        let mut table = self.processes.lock();
        match &made {
            Ok(pipe) => {
                table.pipes.insert(at.0, Arc::downgrade(pipe));
            }
            Err(_) => table.pipe_structures.free(at),
        }
        made
    }

    /// Gives up a descriptor's share of an open file; the last closes the end, the last end the pipe.
    pub(crate) fn release_file(&self, threads: &dyn Threads, file: Arc<File<M>>) {
        let Some(file) = Arc::into_inner(file) else { return };
        match file.open {
            Open::Pipe { pipe, end } => self.close_pipe(threads, &pipe, end),
            Open::Socket { receive, send } => {
                receive.into_iter().for_each(|stream| self.close_stream(threads, &stream, End::Read));
                send.into_iter().for_each(|stream| self.close_stream(threads, &stream, End::Write));
            }
            Open::Null => {}
            Open::Regular(file) => self.files.close(&self.vm, threads, file),
            Open::Audio => self.audio.close(&self.vm, &self.mbufs, threads),
        }
    }

    fn close_pipe(&self, threads: &dyn Threads, pipe: &Pipe<M>, end: End) {
        if pipe.close(self, threads, end) {
            let mut table = self.processes.lock();
            table.pipes.remove(&pipe.at().0).expect("a pipe is freed once");
            table.pipe_structures.free(pipe.at());
        }
    }

    /// Makes one direction of a pair of connected sockets, with a buffer of `high_water_bytes`.
    pub(crate) fn create_stream(&self, high_water_bytes: usize) -> Result<Arc<Stream<M>>, Errno> {
        let mut table = self.processes.lock();
        let at = table.socket_structures.alloc().ok_or(Errno::NoMemory)?;
        let stream = Arc::new(Stream::new(self, at, high_water_bytes));
        table.sockets.insert(at.0, Arc::downgrade(&stream));
        Ok(stream)
    }

    /// Gives back a direction that was never used.
    pub(crate) fn discard_stream(&self, stream: &Stream<M>) {
        let mut table = self.processes.lock();
        table.sockets.remove(&stream.at().0).expect("a socket is freed once");
        table.socket_structures.free(stream.at());
    }

    fn close_stream(&self, threads: &dyn Threads, stream: &Stream<M>, end: End) {
        let _c = self.machine.scope(Cause::Protocol);
        let last = match end {
            End::Read => stream.close_reader(&self.mbufs, threads),
            End::Write => stream.close_writer(threads),
        };
        if last {
            self.discard_stream(stream);
        }
    }

    /// Makes a child of `process` whose thread runs `body` in a copy of its address space.
    pub(crate) fn fork_process(
        self: &Arc<Self>,
        call: &Caller<'_, M>,
        process: &Process<M>,
        name: &str,
        body: Body<M>,
    ) -> Result<Pid, Errno> {
        self.machine.execute(self.config.paths.process);
        let space = call.space.fork(call.thread)?;
        let files = process.files.lock().inherit();
        self.create_process(Some(process.pid), name, space.clone(), files, body)
            .inspect_err(|_| space.terminate(call.thread))
    }
}
