//! Direct pipe writes: the writer's pages are handed to the reader, and the bytes are copied once.
//!
//! The writer finds and wires the pages of a piece of its buffer, puts them in the pipe, and sleeps until the reader
//! has drained them (sf_buf paper, 2.1; FreeBSD 5, `pipe_direct_write`). Which side maps them is a policy
//! ([`PipeMapping`]):
//! * `WriterRun`: the writer, all at once, into a [`KvaRun`](pageferry_ephemeral::KvaRun) that the pipe keeps. The
//!   reader may run on another CPU, so every TLB is invalidated, at mapping and at unmapping.
//! * `ReaderPage`: the reader, page by page, each by a private ephemeral mapping for the time of the copy.
//!
//! # The owner of the run
//! The state holds it from the end of its making until the writer takes it back, and only its writer does. The reader
//! shares it while it copies, under the pipe's sleep lock. While there is one, no other write begins, direct or
//! buffered: bytes stay in order.
//!
//! # Locks
//! Those of `pipe_state`: a run is made, read and undone under the sleep lock, and waited for without it.
//!
//! # What can end it early
//! A signal: the bytes that are left move into the kernel buffer, so that the writer's pages are its own again. The
//! last reader's end: they are lost, and the writer learns it.

use super::pipe_state::{Direct, Pipe, PipeGuard, Run};
use crate::config::PipeMapping;
use crate::counter::KernelCounter;
use crate::defect::KernelDefect;
use crate::proc::{Syscall, Uio};
use alloc::sync::Arc;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_ephemeral::{Flags, MappingUser};
use pageferry_hal::{Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Pfn, Place, Prot, Threads, Va};
use pageferry_vm::VmError;

impl<M: Machine> Pipe<M> {
    /// Hands over up to a buffer's length of the caller's pages, and waits until they are read. The buffer is moved on
    /// by what is out of the writer's hands, even with an error.
    ///
    /// # Errors
    /// [`Errno::Interrupted`], [`Errno::BrokenPipe`], a bad address, or [`Errno::NoMemory`]: then the buffer may do.
    pub fn write_direct<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: PipeGuard<'a, M>,
        uio: &mut Uio,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        let (mut held, waited) = self.wait_until_empty(call, held);
        if waited.is_err() {
            return (held, waited);
        }
        held.direct = Direct::Building;
        let (again, locked) = self.lock_io(call, held, false);
        assert!(locked.is_ok(), "a sleep that no signal can end was interrupted");
        held = again;
        let len = uio.left().min(held.size());
        drop(held);
        let built = self.build(call, uio.at(), len);
        held = self.lock();
        let result = match built {
            Ok(run) => {
                held.direct = Direct::Ready { run: Arc::new(run), done: 0, left: len };
                Ok(())
            }
            Err(e) => {
                held.direct = Direct::None;
                self.wake_writer(call, &mut held);
                Err(e)
            }
        };
        self.unlock_io(call, &mut held);
        if result.is_err() {
            return (held, result);
        }
        call.machine().count(KernelCounter::PipeDirectWrites, 1);
        let (held, waited) = self.wait_until_drained(call, held, true);
        let (held, handed_over, result) = self.finish(call, held, len, waited);
        uio.advance(handed_over);
        (held, result)
    }

    /// Waits until no other direct write is under way and the buffer is empty: direct bytes come behind all others.
    fn wait_until_empty<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        mut held: PipeGuard<'a, M>,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        loop {
            if held.reader_gone {
                return (held, Err(Errno::BrokenPipe));
            }
            let reason = match held.direct {
                Direct::None if held.count == 0 => return (held, Ok(())),
                Direct::None => "pipdwc",
                _ => "pipdww",
            };
            self.wake_reader(call, &mut held);
            held.want_write = true;
            let (again, woken) = self.wait(call, held, reason, true);
            held = again;
            if woken.is_err() {
                return (held, woken);
            }
        }
    }

    /// Sleeps until the reader has taken everything, or cannot.
    fn wait_until_drained<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        mut held: PipeGuard<'a, M>,
        interruptible: bool,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        loop {
            if matches!(held.direct, Direct::Drained { .. }) {
                return (held, Ok(()));
            }
            if held.reader_gone {
                return (held, Err(Errno::BrokenPipe));
            }
            self.wake_reader(call, &mut held);
            let (again, woken) = self.wait(call, held, "pipdwt", interruptible);
            held = again;
            if woken.is_err() {
                return (held, woken);
            }
        }
    }

    /// Takes the run back, read or not.
    fn finish<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: PipeGuard<'a, M>,
        len: usize,
        mut waited: Result<(), Errno>,
    ) -> (PipeGuard<'a, M>, usize, Result<(), Errno>) {
        // A reader may be copying from it.
        let (mut held, locked) = self.lock_io(call, held, false);
        assert!(locked.is_ok(), "a sleep that no signal can end was interrupted");
        let mut moved_bytes = len;
        let run = loop {
            match core::mem::replace(&mut held.direct, Direct::Building) {
                Direct::Drained { run } => break run,
                Direct::Ready { run, done, .. } if held.reader_gone => {
                    moved_bytes = done;
                    waited = Err(Errno::BrokenPipe);
                    break run;
                }
                Direct::Ready { run, done, left } => {
                    assert_eq!(
                        (held.count, done + left),
                        (0, len),
                        "bytes were written around a direct write"
                    );
                    let cloned;
                    (held, cloned) = self.clone_rest(call, held, &run, done, left);
                    if cloned {
                        break run;
                    }
                    // They cannot be reached from here, so they stay the reader's until it is done.
                    held.direct = Direct::Ready { run, done, left };
                    self.unlock_io(call, &mut held);
                    held = self.wait_until_drained(call, held, false).0;
                    held = self.lock_io(call, held, false).0;
                }
                Direct::None | Direct::Building => panic!("the run of a direct write is gone"),
            }
        };
        drop(held);
        self.tear_down(call, run);
        held = self.lock();
        held.direct = Direct::None;
        self.unlock_io(call, &mut held);
        self.wake_writer(call, &mut held);
        (held, moved_bytes, waited)
    }

    /// Finds, wires and perhaps maps the pages of `len` bytes from `from` on. Holds the sleep lock.
    fn build(&self, call: &Syscall<'_, M>, from: Va, len: usize) -> Result<Run, Errno> {
        let config = &call.core.config;
        let wired = call.space.wire(call.thread, from, len, Prot::READ).map_err(|e| match e {
            VmError::Busy => Errno::NoMemory,
            e => e.into(),
        })?;
        let (frames, offset) = (wired.frames().to_vec(), wired.offset());
        assert_eq!(wired.len_bytes(), len, "other bytes were wired than were asked for");
        for _ in &frames {
            call.machine().execute(config.paths.pipe_page);
        }
        let wired = if config.defect.is(KernelDefect::MissingWire) {
            call.core.vm.unwire(wired);
            None
        } else {
            Some(wired)
        };
        let mut run = Run { frames, offset, wired, mapped_at: None };
        if config.pipe.mapping == PipeMapping::WriterRun {
            match self.map_run(call, &run.frames) {
                Ok(at) => run.mapped_at = Some(at),
                Err(e) => {
                    run.wired.take().into_iter().for_each(|w| call.core.vm.unwire(w));
                    return Err(e);
                }
            }
        }
        Ok(run)
    }

    /// Maps a run into the pipe's own addresses, which are found at the first run and kept.
    fn map_run(&self, call: &Syscall<'_, M>, frames: &[Pfn]) -> Result<Va, Errno> {
        let ephemeral = &call.core.ephemeral;
        let (kva, size) = {
            let mut held = self.lock();
            (held.kva.take(), held.size())
        };
        // A piece as long as the buffer touches one page more when it is not aligned.
        let pages = size / PAGE_SIZE + 1;
        assert!(frames.len() <= pages, "a piece is no longer than the buffer");
        let mut kva = match kva {
            Some(kva) if kva.len_pages() >= pages => kva,
            outgrown => {
                outgrown.into_iter().for_each(|kva| ephemeral.release_run(kva));
                ephemeral.kva_run(pages, MappingUser::Pipe)?
            }
        };
        let at = ephemeral.enter_run(&mut kva, frames);
        self.lock().kva = Some(kva);
        Ok(at)
    }

    /// Undoes what [`Pipe::build`] did. Holds the sleep lock, so no reader shares the run.
    fn tear_down(&self, call: &Syscall<'_, M>, run: Arc<Run>) {
        let run = Arc::into_inner(run).expect("only a reader under the sleep lock shares a run");
        if run.mapped_at.is_some() {
            let mut kva = self.lock().kva.take().expect("a mapped run is in the pipe's addresses");
            call.core.ephemeral.remove_run(&mut kva);
            self.lock().kva = Some(kva);
        }
        if let Some(wired) = run.wired {
            call.core.vm.unwire(wired);
        }
    }

    /// Moves what is left of a run into the empty kernel buffer; false, and nothing moved, if no addresses are left to
    /// reach it by. Holds the sleep lock.
    fn clone_rest<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        mut held: PipeGuard<'a, M>,
        run: &Run,
        done: usize,
        left: usize,
    ) -> (PipeGuard<'a, M>, bool) {
        assert!(left <= held.size(), "a piece of a direct write fits the buffer");
        held.out = 0;
        let to = held.base();
        drop(held);
        let mut at = 0;
        let result = self.each_piece(call, run, done, left, &mut |from, len| {
            call.copy_kernel(to + at, from, len);
            at += len;
            Ok(())
        });
        let mut held = self.lock();
        let all = result.is_ok();
        assert!(!all || at == left, "bytes of an interrupted writer were lost");
        if all {
            held.count = left;
        }
        (held, all)
    }

    /// Moves bytes of the run to the user. Holds the sleep lock.
    pub fn read_direct<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: PipeGuard<'a, M>,
        uio: &mut Uio,
    ) -> (PipeGuard<'a, M>, Result<(), Errno>) {
        let Direct::Ready { run, done, left } = &held.direct else {
            panic!("there is nothing to read directly")
        };
        let (run, done, len) = (run.clone(), *done, uio.left().min(*left));
        drop(held);
        trace_direct(call, &run, done..done + len, uio.at());
        let before = uio.done();
        let result = self.each_piece(call, &run, done, len, &mut |from, len| call.uiomove(from, len, uio));
        drop(run);
        let mut held = self.lock();
        self.took(call, &mut held, uio.done() - before);
        (held, result)
    }

    /// The reader has taken `len` bytes of the run.
    fn took(&self, call: &Syscall<'_, M>, held: &mut PipeGuard<'_, M>, len: usize) {
        let state = &mut **held;
        match core::mem::replace(&mut state.direct, Direct::None) {
            Direct::Ready { run, left, .. } if left == len => {
                state.direct = Direct::Drained { run };
                if !call.core.config.defect.is(KernelDefect::LostWakeup) {
                    self.wake_all(call.thread);
                }
            }
            Direct::Ready { run, done, left } => {
                state.direct = Direct::Ready { run, done: done + len, left: left - len };
            }
            _ => panic!("a run vanished while it was read"),
        }
    }

    /// Calls `copy` with the kernel address of each piece of `len` bytes from `done` on.
    fn each_piece(
        &self,
        call: &Syscall<'_, M>,
        run: &Run,
        done: usize,
        len: usize,
        copy: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if let Some(at) = run.mapped_at {
            return copy(at + run.offset + done, len);
        }
        let (ephemeral, thread) = (&call.core.ephemeral, call.thread);
        let mut copied = 0;
        let mut result = Ok(());
        thread.pin();
        while copied < len && result.is_ok() {
            let at = run.offset + done + copied;
            let piece = (PAGE_SIZE - at % PAGE_SIZE).min(len - copied);
            result = ephemeral
                .alloc(thread, run.frames[at / PAGE_SIZE], MappingUser::Pipe, Flags::PRIVATE)
                .map_err(Errno::from)
                .and_then(|mapping| {
                    let result = copy(ephemeral.kva(&mapping) + at % PAGE_SIZE, piece);
                    ephemeral.free(thread, mapping);
                    result
                });
            copied += piece;
        }
        thread.unpin();
        result
    }
}

/// The reader gets these bytes of a run, which go to `to`.
fn trace_direct<M: Machine>(call: &Syscall<'_, M>, run: &Run, bytes: Range<usize>, to: Va) {
    if !call.machine().is_traced() {
        return;
    }
    let mut done = bytes.start;
    while done < bytes.end {
        let at = run.offset + done;
        let len_bytes = (PAGE_SIZE - at % PAGE_SIZE).min(bytes.end - done);
        let place = Place::User(to + (done - bytes.start));
        let parcel = Parcel { by: Means::Copy, at: place, len_bytes };
        call.machine().trace_flow(Flow::Page(run.frames[at / PAGE_SIZE]), FlowStep::Received(parcel));
        done += len_bytes;
    }
}
