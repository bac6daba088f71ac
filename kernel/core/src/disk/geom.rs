//! The way of a request to the disk and back (FreeBSD 5: GEOM, `geom_io.c`).
//!
//! # What it holds
//! Two queues, each with a thread: requests on their way down to the disk (`g_down`) and answers on their way up to who
//! asked (`g_up`). Between them the disk has a queue and a thread of its own (a [`Provider`]). So a request is handed
//! over four times: whoever asks to `g_down`, that to the disk's thread, that to `g_up`, and that to whoever asked, who
//! sleeps meanwhile. It also holds the structures of requests, and the addresses at which callers' pages are mapped for
//! them ([`super::physio`]).
//!
//! The threads are made with the disk and end with it.
//!
//! # Locks
//! Each queue has one, of class `Pipe`; so have the answers (`bdonelock`). None is held while a request is worked on.
//!
//! # What can fail
//! Making the threads, for want of structures. What a request needs that may be short is got by whoever asks before it
//! is on its way: the threads never wait for memory, so the page daemon may ask too.

use crate::config::{CoreConfig, DiskPaths};
use crate::defect::KernelDefect;
use crate::proc::UioRw;
use crate::sched::{MAX_THREADS, Monitor, Sched, Thread};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use litemap::LiteMap;
use pageferry_abi::Errno;
use pageferry_defects::Planted;
use pageferry_ephemeral::{AllocError, Ephemeral, KvaRun, MappingUser};
use pageferry_hal::arena::{ArenaFull, Zone};
use pageferry_hal::{Access, Cause, Channel, Machine, StructArena, StructVa, Threads, Va};
use pageferry_vm::Vm;

/// A `struct bio` of the 32-bit architectures, of which every thread on its way uses most.
const BIO_BYTES: usize = 128;
/// A queue: its lock, its ends and its length.
const QUEUE_BYTES: usize = 64;

/// A request on its way (`struct bio`).
pub(super) struct Bio {
    /// Its structure, on which whoever asked sleeps.
    at: StructVa,
    /// Of the disk, which is ready for all of it.
    pub bytes: Range<u64>,
    /// Where in the kernel's addresses the bytes come from or go to.
    pub data: Va,
    /// Which way (`bio_cmd`).
    pub rw: UioRw,
    /// Bytes that have moved.
    pub done: usize,
    /// How it ended.
    pub result: Result<(), Errno>,
}

/// Requests that wait for the thread whose queue it is.
pub(super) struct Station<M: Machine> {
    thread: &'static str,
    queue: Monitor<M, Queue>,
}

#[derive(Default)]
struct Queue {
    bios: VecDeque<Bio>,
    ending: bool,
}

impl<M: Machine> Station<M> {
    /// The empty queue of a thread of that name, in the structure at `at`.
    pub fn new(machine: &M, at: StructVa, thread: &'static str) -> Station<M> {
        Station { thread, queue: Monitor::new(machine, at, Queue::default()) }
    }

    fn touch(&self, machine: &M, bio: StructVa) {
        machine.touch(self.queue.at(), QUEUE_BYTES, Access::Write);
        machine.touch(bio, BIO_BYTES, Access::Write);
    }

    /// Appends a request, and wakes the thread.
    fn put(&self, machine: &M, threads: &dyn Threads, bio: Bio) {
        let mut queue = self.queue.lock();
        self.touch(machine, bio.at);
        queue.bios.push_back(bio);
        drop(queue);
        self.queue.wake_all(threads);
    }

    /// The next request: sleeps until there is one; nothing when the thread is to end.
    fn next(&self, machine: &M, threads: &dyn Threads) -> Option<Bio> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(bio) = queue.bios.pop_front() {
                self.touch(machine, bio.at);
                return Some(bio);
            }
            if queue.ending {
                return None;
            }
            (queue, _) = self.queue.wait(threads, queue, self.thread, false);
        }
    }

    fn end(&self, threads: &dyn Threads) {
        self.queue.lock().ending = true;
        self.queue.wake_all(threads);
    }

    /// May be used again, by another thread.
    fn reopen(&self) {
        let mut queue = self.queue.lock();
        assert!(queue.bios.is_empty(), "a request of {} was left behind", self.thread);
        queue.ending = false;
    }
}

/// A disk: its queue, and what its thread does.
pub(super) trait Provider<M: Machine> {
    /// Where its thread takes requests from.
    fn queue(&self) -> &Station<M>;

    /// Does what a request asks for, and notes in it how far that came. In the disk's thread, which must not wait for
    /// memory.
    fn strategy(&self, threads: &dyn Threads, bio: &mut Bio);
}

/// What happened to a request: the bytes that have moved, and why not all.
type Outcome = (usize, Result<(), Errno>);

struct Answers {
    bios: Zone,
    /// Answers that nobody has taken yet, by the address of their requests.
    done: LiteMap<u64, Outcome>,
    /// Addresses for callers' pages that no request uses (`getpbuf`).
    runs: Vec<KvaRun>,
    /// Threads that have not ended.
    threads: usize,
}

/// The way of requests to the disk of a kernel and back (GEOM): two queues with a thread each, and the answers.
pub struct Geom<M: Machine> {
    sched: Arc<Sched<M>>,
    ephemeral: Arc<Ephemeral<M, Vm<M>>>,
    paths: DiskPaths,
    defect: Planted<KernelDefect>,
    down: Station<M>,
    up: Station<M>,
    answers: Monitor<M, Answers>,
}

/// Who serves a queue.
#[derive(Clone, Copy)]
enum Server {
    Down,
    Disk,
    Up,
}

impl<M: Machine> Geom<M> {
    /// Without threads.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(
        sched: &Arc<Sched<M>>,
        ephemeral: &Arc<Ephemeral<M, Vm<M>>>,
        config: &CoreConfig,
        arena: &mut StructArena,
    ) -> Result<Geom<M>, ArenaFull> {
        let at = arena.array("requests of disks", 3, QUEUE_BYTES)?;
        let (machine, structure) = (sched.machine(), |place| at.element(place, QUEUE_BYTES));
        let bios = arena.zone("bios", MAX_THREADS, BIO_BYTES)?;
        let answers = Answers { bios, done: LiteMap::new(), runs: Vec::new(), threads: 0 };
        Ok(Geom {
            sched: sched.clone(),
            ephemeral: ephemeral.clone(),
            paths: config.disk.paths,
            defect: config.defect,
            down: Station::new(machine, structure(0), "g_down"),
            up: Station::new(machine, structure(1), "g_up"),
            answers: Monitor::new(machine, structure(2), answers),
        })
    }

    // ------------------------------------------------------------------------------------------- who asks

    /// Has the disk move `bytes` of its own to `data` or from there, and sleeps until that is done: answers how many
    /// have moved, and why not all (`g_io_request`, `biowait`). No signal ends the sleep. The disk has its threads.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub(super) fn request(
        &self,
        threads: &dyn Threads,
        (bytes, data, rw): (Range<u64>, Va, UioRw),
    ) -> (usize, Result<(), Errno>) {
        let m = self.sched.machine();
        m.execute(self.paths.request);
        let at = self.answers.lock().bios.alloc().expect("a thread asks for one thing at a time");
        self.down.put(m, threads, Bio { at, bytes, data, rw, done: 0, result: Ok(()) });
        self.wait(threads, at)
    }

    /// Sleeps until the request at `at` has been answered (`biowait`).
    fn wait(&self, threads: &dyn Threads, at: StructVa) -> Outcome {
        loop {
            let mut answers = self.answers.lock();
            if let Some(outcome) = answers.done.remove(&at.0.0) {
                answers.bios.free(at);
                return outcome;
            }
            let mut held = Some(answers);
            let slept = threads.sleep(Channel(at.0.0), "physio", false, &mut || drop(held.take()));
            assert!(slept.is_ok(), "this sleep is not interruptible");
        }
    }

    /// Addresses for the pages of a caller's buffer, as many as a request may have.
    ///
    /// # Errors
    /// [`AllocError::NoAddresses`].
    pub(super) fn run(&self, len_pages: usize) -> Result<KvaRun, AllocError> {
        let kept = self.answers.lock().runs.pop();
        kept.map_or_else(|| self.ephemeral.kva_run(len_pages, MappingUser::Physio), Ok)
    }

    /// Nothing is mapped there any more.
    pub(super) fn keep(&self, run: KvaRun) {
        self.answers.lock().runs.push(run);
    }

    // ------------------------------------------------------------------------------------------- the threads

    /// Makes the threads between whoever asks and `disk`. There are none.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: there is no structure for a thread.
    ///
    /// # Locks
    /// May sleep: no spin lock may be held.
    pub(super) fn start(
        self: &Arc<Self>,
        threads: &dyn Threads,
        disk: &Arc<dyn Provider<M>>,
    ) -> Result<(), Errno> {
        for server in [Server::Down, Server::Disk, Server::Up] {
            let (geom, its) = (self.clone(), disk.clone());
            let body = Box::new(move |thread: Thread<M>| geom.serve(&thread, &*its, server));
            let station = self.station(&**disk, server);
            let Some(made) = Thread::create(&self.sched, station.thread, None, body) else {
                self.stop(threads, disk.queue());
                return Err(Errno::NoMemory);
            };
            self.answers.lock().threads += 1;
            self.sched.launch_asleep(made, station.queue.channel(), station.thread);
        }
        Ok(())
    }

    /// Ends the threads, and gives back what requests have used. None is on its way. `disk` is the queue of the disk.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub(super) fn stop(&self, threads: &dyn Threads, disk: &Station<M>) {
        let stations = [&self.down, disk, &self.up];
        stations.iter().for_each(|station| station.end(threads));
        let mut answers = self.answers.lock();
        while answers.threads > 0 {
            (answers, _) = self.answers.wait(threads, answers, "g_stop", false);
        }
        assert!(answers.done.is_empty() && answers.bios.live() == 0, "a request has no answer");
        let runs = core::mem::take(&mut answers.runs);
        drop(answers);
        runs.into_iter().for_each(|run| self.ephemeral.release_run(run));
        stations.iter().for_each(|station| station.reopen());
    }

    fn station<'a>(&'a self, disk: &'a dyn Provider<M>, server: Server) -> &'a Station<M> {
        match server {
            Server::Down => &self.down,
            Server::Disk => disk.queue(),
            Server::Up => &self.up,
        }
    }

    /// The life of one of the threads.
    fn serve(&self, thread: &Thread<M>, disk: &dyn Provider<M>, server: Server) {
        let (m, paths) = (self.sched.machine(), &self.paths);
        let _c = m.scope(Cause::Protocol);
        let station = self.station(disk, server);
        while let Some(mut bio) = station.next(m, thread) {
            match server {
                Server::Down => {
                    m.execute(paths.down);
                    disk.queue().put(m, thread, bio);
                }
                Server::Disk => {
                    m.execute(paths.strategy);
                    disk.strategy(thread, &mut bio);
                    self.up.put(m, thread, bio);
                }
                Server::Up => {
                    m.execute(paths.up);
                    self.answer(thread, bio);
                }
            }
        }
        self.answers.lock().threads -= 1;
        self.answers.wake_all(thread);
    }

    /// Tells whoever asked (`biodone`).
    fn answer(&self, threads: &dyn Threads, bio: Bio) {
        let before = self.answers.lock().done.insert(bio.at.0.0, (bio.done, bio.result));
        assert!(before.is_none(), "a request is answered twice");
        if !self.defect.is(KernelDefect::DiskAnswerLost) {
            threads.wakeup(Channel(bio.at.0.0));
        }
    }
}
