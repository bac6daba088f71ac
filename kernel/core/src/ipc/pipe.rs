//! Pipes: a one-way stream of bytes between processes, through its kernel buffer. Direct writes are in `pipe_direct`.
//!
//! The buffer grows once, when a large write finds it empty. The behaviour is that of FreeBSD 5's `sys_pipe.c`: which
//! call sleeps where, which wakes which, and when.
//!
//! # Locks
//! Those of `pipe_state`: bytes move under `io`, with the spin lock released.
//!
//! # What can fail
//! Making a pipe, for want of memory. Growing the buffer and finding addresses for direct writes may fail silently: the
//! pipe goes on with what it has. The rest is the callers' bad addresses, signals, and ends that are gone.

use super::pipe_state::{Direct, End, PIPE_USED_BYTES, Pipe, PipeGuard};
use crate::base::Core;
use crate::counter::KernelCounter;
use crate::fs::FileOps;
use crate::proc::{Registry, Syscall, Uio, UioMode};
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_ephemeral::KvaRun;
use pageferry_hal::{
    Access, Cause, Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Place, Threads, Va, page_trunc,
};
use pageferry_vm::{KernelMemory, Vm};

/// Writes up to this size are not mixed with those of others (`PIPE_BUF`).
pub const ATOMIC_WRITE_BYTES: usize = 512;
impl<M: Machine> Pipe<M> {
    // ------------------------------------------------------------------------------------------- reading

    /// Fills a buffer with what is there, at least one byte; nothing at the end of the stream.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`], [`Errno::Interrupted`], or a bad address. Bytes that could not be delivered stay in the
    /// pipe.
    pub fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(call.core.config.paths.pipe_call);
        m.touch(self.at(), PIPE_USED_BYTES, Access::Write);
        let (mut held, locked) = self.lock_io(call, self.lock(), true);
        locked?;
        let mut have_io = true;
        let result = loop {
            if uio.left() == 0 {
                break Ok(());
            }
            if held.count > 0 {
                let (again, result) = self.read_buffer(call, held, uio);
                held = again;
                if result.is_err() {
                    break result;
                }
            } else if matches!(held.direct, Direct::Ready { .. }) {
                let (again, result) = self.read_direct(call, held, uio);
                held = again;
                if result.is_err() {
                    break result;
                }
            } else if held.writer_gone {
                break Ok(());
            } else {
                self.wake_writer(call, &mut held);
                if uio.done() > 0 {
                    break Ok(());
                }
                if uio.wait.is_no_wait() {
                    break Err(Errno::WouldBlock);
                }
                self.unlock_io(call, &mut held);
                held.want_read = true;
                let (again, woken) = self.wait(call, held, "piperd", true);
                let (again, locked) = match woken {
                    Ok(()) => self.lock_io(call, again, true),
                    Err(e) => (again, Err(e)),
                };
                held = again;
                if locked.is_err() {
                    have_io = false;
                    break locked;
                }
            }
        };
        if have_io {
            self.unlock_io(call, &mut held);
        }
        // Writers sleep until two thirds of the small buffer are free: fewer switches.
        if held.count < call.core.config.pipe.buffer_bytes / 3 {
            self.wake_writer(call, &mut held);
        }
        drop(held);
        result
    }

    /// Moves one contiguous piece out of the buffer. Holds the sleep lock.
    fn read_buffer<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: PipeGuard<'a, M>,
        uio: &mut Uio,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        let (size, out) = (held.size(), held.out);
        let len = held.count.min(uio.left()).min(size - out);
        let from = held.base() + out;
        drop(held);
        let (to, before) = (uio.at(), uio.done());
        let result = call.uiomove(from, len, uio);
        let mut held = self.lock();
        assert!(held.io.is_taken() && held.out == out, "another thread has read under the sleep lock");
        let len = uio.done() - before;
        trace_buffer(call, from, len, |at| (to + at, FlowStep::Received));
        held.count -= len;
        // An empty buffer begins at its start again, where it is still warm.
        held.out = if held.count == 0 { 0 } else { (out + len) % size };
        (held, result)
    }

    // ------------------------------------------------------------------------------------------- writing

    /// Takes all of a buffer, or what there is space for if the call does not wait.
    ///
    /// # Errors
    /// [`Errno::BrokenPipe`] when the last reader is gone before all is written; [`Errno::WouldBlock`],
    /// [`Errno::Interrupted`] or a bad address.
    pub fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let m = call.machine();
        let config = &call.core.config.pipe;
        let _c = m.scope(Cause::Protocol);
        m.execute(call.core.config.paths.pipe_call);
        m.touch(self.at(), PIPE_USED_BYTES, Access::Write);
        let (held, locked) = self.lock_io(call, self.lock(), true);
        locked?;
        let mut held = self.grow_for(call, held, uio.len());
        self.unlock_io(call, &mut held);
        let mut direct = config.direct && !uio.wait.is_no_wait();
        let result = loop {
            if uio.left() == 0 {
                break Ok(());
            }
            if held.reader_gone {
                break Err(Errno::BrokenPipe);
            }
            let (again, result) = if direct && uio.left() >= config.min_direct_bytes {
                self.write_direct(call, held, uio)
            } else {
                self.write_buffered(call, held, uio)
            };
            held = again;
            match result {
                // No frames can be wired or no addresses found: the buffer needs neither.
                Err(Errno::NoMemory) if direct => direct = false,
                Err(e) => break Err(e),
                Ok(()) => {}
            }
        };
        if held.count > 0 {
            self.wake_reader(call, &mut held);
        }
        drop(held);
        result
    }

    /// One step of a buffered write: moves what there is space for, or sleeps.
    fn write_buffered<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        mut held: PipeGuard<'a, M>,
        uio: &mut Uio,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        let (len, atomic) = (uio.left(), uio.len() <= ATOMIC_WRITE_BYTES);
        let space = |held: &PipeGuard<'_, M>| {
            let space = held.size() - held.count;
            let blocked = !matches!(held.direct, Direct::None) || (atomic && space < len);
            if blocked { 0 } else { space.min(len) }
        };
        if space(&held) > 0 {
            let (again, locked) = self.lock_io(call, held, true);
            held = again;
            if locked.is_err() {
                return (held, locked);
            }
            // The state may have changed while this thread waited for the sleep lock.
            let len = if held.reader_gone { 0 } else { space(&held) };
            let mut result = Ok(());
            if len > 0 {
                (held, result) = self.fill_buffer(call, held, len, uio);
            }
            self.unlock_io(call, &mut held);
            return (held, result);
        }
        self.wake_reader(call, &mut held);
        if uio.wait.is_no_wait() {
            return (held, Err(Errno::WouldBlock));
        }
        held.want_write = true;
        self.wait(call, held, "pipewr", true)
    }

    /// Moves `len` bytes into the free part of the buffer, in two pieces where it wraps. Holds the sleep lock.
    fn fill_buffer<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: PipeGuard<'a, M>,
        len: usize,
        uio: &mut Uio,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        let (size, base, count) = (held.size(), held.base(), held.count);
        assert!(count + len <= size, "{len} bytes do not fit a buffer of {size} that holds {count}");
        let start = (held.out + count) % size;
        drop(held);
        call.machine().count(KernelCounter::PipeBufferedWrites, 1);
        let first = len.min(size - start);
        let (from, before) = (uio.at(), uio.done());
        let mut result = call.uiomove(base + start, first, uio);
        if result.is_ok() && first < len {
            result = call.uiomove(base, len - first, uio);
        }
        let done = uio.done() - before;
        let whole = first.min(done);
        trace_buffer(call, base + start, whole, |at| (from + at, FlowStep::Sent));
        trace_buffer(call, base, done - whole, |at| (from + whole + at, FlowStep::Sent));
        let mut held = self.lock();
        assert_eq!((held.out + held.count) % size, start, "another thread has written under the sleep lock");
        held.count += done;
        (held, result)
    }

    /// Takes the large buffer if a write of `len_bytes` exceeds the small one, that is empty, and there is memory:
    /// without, the small one serves, so no thread waits for it. Holds the sleep lock.
    fn grow_for<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: PipeGuard<'a, M>,
        len_bytes: usize,
    ) -> PipeGuard<'a, M> {
        let config = &call.core.config.pipe;
        let small = held.size() < config.big_buffer_bytes;
        let free = held.count == 0 && matches!(held.direct, Direct::None) && !held.reader_gone;
        if len_bytes <= config.buffer_bytes || !small || !free {
            return held;
        }
        drop(held);
        let larger = call.core.vm.kernel_alloc(config.big_buffer_bytes / PAGE_SIZE);
        let mut held = self.lock();
        let Ok(larger) = larger else { return held };
        assert_eq!(held.count, 0, "another thread has written under the sleep lock");
        held.out = 0;
        let smaller = held.memory.replace(larger).expect("a pipe in use has its buffer");
        drop(held);
        call.core.vm.kernel_free(smaller);
        self.lock()
    }

    // ------------------------------------------------------------------------------------------- closing

    /// Closes an end for good. True when the other is gone too: then nothing is left of the pipe but its structure.
    pub fn close(&self, core: &Core<M>, threads: &dyn Threads, end: End) -> bool {
        let _c = core.machine.scope(Cause::Protocol);
        let mut held = self.lock();
        let gone = match end {
            End::Read => &mut held.reader_gone,
            End::Write => &mut held.writer_gone,
        };
        assert!(!core::mem::replace(gone, true), "an end of a pipe is closed twice");
        if !(held.reader_gone && held.writer_gone) {
            self.wake_all(threads);
            return false;
        }
        assert!(!held.io.is_taken(), "a pipe without ends is in use");
        assert!(matches!(held.direct, Direct::None), "a pipe without ends has a direct write");
        let (memory, kva) = (held.memory.take(), held.kva.take());
        drop(held);
        self.give_back(core, memory, kva);
        true
    }

    fn give_back(&self, core: &Core<M>, memory: Option<KernelMemory>, kva: Option<KvaRun>) {
        let vm: &Vm<M> = &core.vm;
        vm.kernel_free(memory.expect("a pipe in use has its buffer"));
        if let Some(kva) = kva {
            core.ephemeral.release_run(kva);
        }
    }
}

/// Bytes went into the buffer at `at`, or out of it: page by page, with the user's address of each piece.
fn trace_buffer<M: Machine>(
    call: &Syscall<'_, M>,
    at: Va,
    len: usize,
    user: impl Fn(usize) -> (Va, fn(Parcel) -> FlowStep),
) {
    let mut done = 0;
    while done < len && call.machine().is_traced() {
        let piece = at + done;
        let len_bytes = (PAGE_SIZE - piece.offset()).min(len - done);
        let (va, step) = user(done);
        let parcel = Parcel { by: Means::Copy, at: Place::User(va), len_bytes };
        let page = Va(page_trunc(piece.0));
        call.machine().trace_flow(Flow::Buffer(page), step(parcel));
        done += len_bytes;
    }
}

/// All pipes of a kernel.
pub type Pipes<M> = Registry<M, Pipe<M>>;

/// A pipe, and where its structure comes from.
struct PipeRef<M: Machine> {
    pipe: Arc<Pipe<M>>,
    pipes: Arc<Pipes<M>>,
}

impl<M: Machine> PipeRef<M> {
    /// Closes an end; with the last one the pipe goes.
    fn close(&self, call: &Syscall<'_, M>, end: End) {
        if self.pipe.close(call.core, call.thread, end) {
            self.pipes.remove(self.pipe.at());
        }
    }
}

/// The end of a pipe that is read.
pub struct ReadEnd<M: Machine>(PipeRef<M>);

/// The end of a pipe that is written. It knows copies only.
pub struct WriteEnd<M: Machine>(PipeRef<M>);

/// Makes a pipe and its structure. Waits for memory.
///
/// # Locks
/// Sleeps: no spin lock may be held.
///
/// # Errors
/// [`Errno::NoMemory`], when waiting does not help.
pub fn create_pipe<M: Machine>(
    core: &Core<M>,
    pipes: &Arc<Pipes<M>>,
    t: &dyn Threads,
) -> Result<(ReadEnd<M>, WriteEnd<M>), Errno> {
    if core.vm.allocation_fails() {
        return Err(Errno::NoMemory);
    }
    let at = pipes.alloc()?;
    let pipe = Pipe::new(core, t, at).inspect_err(|_| pipes.free(at))?;
    pipes.insert(at, &pipe);
    let end = || PipeRef { pipe: pipe.clone(), pipes: pipes.clone() };
    Ok((ReadEnd(end()), WriteEnd(end())))
}

impl<M: Machine> FileOps<M> for ReadEnd<M> {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::NotSupported);
        }
        self.0.pipe.read(call, uio)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        self.0.close(call, End::Read);
    }
}

impl<M: Machine> FileOps<M> for WriteEnd<M> {
    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::NotSupported);
        }
        self.0.pipe.write(call, uio)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        self.0.close(call, End::Write);
    }
}
