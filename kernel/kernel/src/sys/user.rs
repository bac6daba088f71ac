//! What a program sees: its memory and its system calls.
//!
//! A program is a Rust closure that runs on a thread of the kernel; everything it does to the machine goes through its
//! [`User`]. Loads and stores run in user mode through the process's page tables and fault like those of any program. A
//! system call enters the kernel, dispatches, does its work, and takes signals and switch requests on the way out.
//!
//! # Killed processes
//! A process that touches an address it has no right to is killed (SIGSEGV). A closure cannot be cut off without
//! unwinding, so it goes on, but its hands are tied: every system call answers [`Errno::Killed`], stores do nothing,
//! loads give zeros. A program that returns when a call fails ends soon; one that loops until a call succeeds never
//! does, and is a defect of the program. What was killed, and why, is in [`Kernel::killed`].

use super::invalidate::invalidate;
use crate::Kernel;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use pageferry_abi::{Errno, Fd, InvalidateKind, Pid, SendMode};
use pageferry_core::config::PipeKind;
use pageferry_core::counter::KernelCounter;
use pageferry_core::fs::File;
use pageferry_core::fs::FileTable;
use pageferry_core::fs::Rights;
use pageferry_core::ipc::create_pipe;
use pageferry_core::proc::Role;
use pageferry_core::proc::Uio;
use pageferry_core::proc::{Body, Process, Syscall};
use pageferry_core::sched::Thread;
use pageferry_hal::Threads;
use pageferry_hal::{
    Cause, CopyFault, CpuId, Crossing, Cycles, Instructions, Machine, Mode, Pfn, Prot, Reference, SpinLock,
    Va,
};
use pageferry_net::{SockBuf, Socket};
use pageferry_vm::{Inherit, Retries, VmError};

/// A user program: what runs in a process's only thread.
pub type Program<M> = Box<dyn FnOnce(&User<M>)>;

/// The system calls and the memory of one process, as its program sees them.
pub struct User<M: Machine> {
    pub(crate) kernel: Arc<Kernel<M>>,
    pub(crate) process: Arc<Process<M>>,
    pub(crate) thread: Thread<M>,
}

/// What the thread of a process does that runs `program`: that, and then the end of the process.
pub(crate) fn running<M: Machine>(kernel: &Arc<Kernel<M>>, program: Program<M>) -> Body<M> {
    let kernel = kernel.clone();
    Box::new(move |process, thread| {
        let user = User { kernel, process, thread };
        let _user = user.machine().scope(Cause::User);
        user.machine().trace_process(user.process.pid.0, &user.process.name);
        program(&user);
        user.kernel.exit(&user.process, &user.thread);
    })
}

impl<M: Machine> Kernel<M> {
    /// Makes a process without a parent that runs `program` in an empty space, with `files` open.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn begin_process(
        self: &Arc<Self>,
        threads: &dyn Threads,
        name: &str,
        role: Role,
        files: FileTable<M>,
        program: Program<M>,
    ) -> Result<Pid, Errno> {
        let space = self.core.vm.space()?;
        let body = running(self, program);
        self.processes
            .create(None, name, space.clone(), files, role, body)
            .inspect_err(|_| space.terminate(threads))
    }
}

impl<M: Machine> User<M> {
    /// The machine.
    pub fn machine(&self) -> &M {
        &self.kernel.core.machine
    }
    /// The kernel; for tests that look inside.
    pub fn kernel(&self) -> &Arc<Kernel<M>> {
        &self.kernel
    }
    /// The process's thread; for tests that call lower floors themselves.
    pub fn thread(&self) -> &Thread<M> {
        &self.thread
    }
    /// The process's address space; for tests that call lower floors themselves.
    pub fn space(&self) -> &Arc<pageferry_vm::Space<M>> {
        &self.process.space
    }
    /// The frame with the data of the page at `va`, mapped or not; for checks that look inside. See
    /// [`pageferry_vm::Space::frame_behind`].
    pub fn frame_behind(&self, va: Va) -> Option<Pfn> {
        self.process.space.frame_behind(va)
    }
    /// The process's number.
    pub fn pid(&self) -> Pid {
        self.process.pid
    }
    /// Signals that the process has taken.
    pub fn signals_taken(&self) -> u32 {
        self.thread.tcb.signals_taken.load(Ordering::Relaxed)
    }
    /// True once a fatal signal has ended the process.
    pub fn is_killed(&self) -> bool {
        self.process.killed.load(Ordering::Relaxed)
    }

    // ------------------------------------------------------------------------------------------- memory

    /// Stores bytes in user memory, faulting as needed; a bad address kills the process.
    pub fn store(&self, at: Va, bytes: &[u8]) {
        self.access(bytes.len(), |done| self.machine().store(Mode::User, at + done, &bytes[done..]));
    }

    /// Loads bytes from user memory, faulting as needed; a bad address kills the process and gives zeros.
    pub fn load(&self, from: Va, buf: &mut [u8]) {
        let done =
            self.access(buf.len(), |done| self.machine().load(Mode::User, from + done, &mut buf[done..]));
        buf[done..].fill(0);
    }

    /// Makes an access of `len_bytes` again behind every fault; answers how many bytes it got to.
    fn access(&self, len_bytes: usize, mut attempt: impl FnMut(usize) -> Result<(), CopyFault>) -> usize {
        let mut done = 0;
        let mut retries = Retries::default();
        self.interruption();
        while done < len_bytes && !self.is_killed() {
            match attempt(done) {
                Ok(()) => return len_bytes,
                Err(fault) => {
                    done += fault.done_bytes;
                    assert!(done < len_bytes, "an access that is complete cannot fault");
                    retries.again(fault.trap.va);
                    self.take_fault(fault);
                }
            }
        }
        done
    }

    /// The way out of the kernel.
    fn return_to_user(&self) {
        self.thread.return_to_user();
    }

    /// Takes a fault of the program: makes the page resident, or kills the process. A machine whose programs are no
    /// closures calls it when the processor has refused an access of theirs.
    pub fn take_fault(&self, fault: CopyFault) {
        let m = self.machine();
        let _c = m.scope(Cause::Fault);
        self.thread.cross(Crossing::TrapEnter);
        if self.process.space.fault(&self.thread, fault.trap).is_err() {
            self.kernel.kill_by(&self.process, fault.trap);
        }
        self.return_to_user();
        self.thread.cross(Crossing::TrapExit);
    }

    /// Executes a straight run of instructions at `at`, in user mode, faulting as needed where the machine fetches
    /// instructions; a bad address kills the process there. Elsewhere it is [`User::compute`].
    pub fn execute_at(&self, at: Va, path: Instructions) {
        let bytes = self.machine().board().instruction_bytes as usize;
        self.access(path.0 as usize * bytes, |done| {
            let left = Instructions(path.0 - (done / bytes) as u32);
            self.machine().fetch(Mode::User, at + done, left)
        });
    }

    /// Makes references in user mode ([`Machine::refer`]), faulting as needed; a bad address kills the process there.
    /// Interrupts are looked for before the first: many are better made by several calls.
    pub fn refer(&self, references: &mut [Reference]) {
        self.access(references.len(), |done| self.machine().refer(&mut references[done..]));
    }

    /// User-mode computation, nowhere in particular: its instructions are at hand.
    pub fn compute(&self, path: Instructions) {
        if !self.is_killed() {
            self.interruption();
            self.machine().execute(path);
        }
    }

    /// Lets others run, if an interrupt has asked for that. A closure has no instructions in user mode, so interrupts
    /// are looked for between its steps; other programs are interrupted, and then it is called.
    pub fn interruption(&self) {
        if self.thread.should_yield() {
            let m = self.machine();
            let _c = m.scope(Cause::Interrupt);
            self.thread.cross(Crossing::TrapEnter);
            self.return_to_user();
            self.thread.cross(Crossing::TrapExit);
        }
    }

    // ------------------------------------------------------------------------------------------- system calls

    /// Enters the kernel, works, and returns.
    pub fn system_call<R>(&self, work: impl FnOnce(&Syscall<'_, M>) -> Result<R, Errno>) -> Result<R, Errno> {
        let _c = self.enter()?;
        let result = work(&self.call());
        self.leave();
        result
    }

    /// Work of a server of the kernel's with kernel code that it has as a library: without entering the kernel, which
    /// costs nothing.
    ///
    /// # Errors
    /// [`Errno::Killed`]; those of the work.
    pub fn library<R>(&self, work: impl FnOnce(&Syscall<'_, M>) -> Result<R, Errno>) -> Result<R, Errno> {
        if self.is_killed() {
            return Err(Errno::Killed);
        }
        work(&self.call())
    }

    /// Into the kernel; until what is returned is dropped, cycles are a system call's.
    fn enter(&self) -> Result<M::Scope, Errno> {
        if self.is_killed() {
            return Err(Errno::Killed);
        }
        let m = self.machine();
        let scope = m.scope(Cause::Syscall);
        self.thread.cross(Crossing::SyscallEnter);
        m.execute(self.kernel.core.config.paths.syscall);
        m.count(KernelCounter::Syscalls, 1);
        Ok(scope)
    }

    /// Back to the process.
    fn leave(&self) {
        assert!(!self.thread.is_pinned(), "a system call of {} left its thread pinned", self.process.name);
        self.return_to_user();
        self.thread.cross(Crossing::SyscallExit);
    }

    fn call(&self) -> Syscall<'_, M> {
        let Process { space, pid, loans, .. } = &*self.process;
        Syscall { core: &self.kernel.core, thread: &self.thread, space, pid: *pid, loans }
    }

    /// A system call that does nothing: what entering and leaving the kernel takes (`getppid`, in the way of lmbench).
    ///
    /// # Errors
    /// [`Errno::Killed`].
    pub fn null_call(&self) -> Result<(), Errno> {
        self.system_call(|_| Ok(()))
    }

    /// Binds the process to a CPU, on which it runs when this returns, or to none (FreeBSD's `cpuset_setaffinity` with
    /// one CPU, or with all). A child is bound to none.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a CPU that the machine does not have.
    pub fn bind_cpu(&self, cpu: Option<CpuId>) -> Result<(), Errno> {
        self.system_call(|call| {
            if cpu.is_some_and(|cpu| !call.machine().cpus().contains(cpu)) {
                return Err(Errno::Invalid);
            }
            call.thread.bind(cpu);
            Ok(())
        })
    }

    /// Has the process run only where no other can, from here on, or as others do (FreeBSD's `rtprio` with
    /// `RTP_PRIO_IDLE`). A child runs as others do.
    ///
    /// # Errors
    /// [`Errno::Killed`].
    pub fn run_last(&self, last: bool) -> Result<(), Errno> {
        self.system_call(|call| {
            call.thread.tcb.last.store(last, Ordering::Relaxed);
            Ok(())
        })
    }

    /// The open file behind a descriptor.
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub(crate) fn get(&self, fd: Fd) -> Result<Arc<File<M>>, Errno> {
        self.process.files.lock().get(fd)
    }

    /// Maps zero-filled memory at an address that the kernel chooses (`mmap`).
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a length of zero, [`Errno::NoMemory`].
    pub fn map(&self, len_bytes: usize, prot: Prot, inherit: Inherit) -> Result<Va, Errno> {
        self.system_call(|call| Ok(call.space.map(call.thread, None, len_bytes, prot, inherit)?))
    }

    /// Unmaps memory (`munmap`).
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a range that is not page-aligned or not in user space.
    pub fn unmap(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.system_call(|call| Ok(call.space.unmap(call.thread, at, len_bytes)?))
    }

    /// Changes permissions (`mprotect`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]; [`Errno::NoMemory`] where nothing is mapped; [`Errno::Access`] where the mapping can never
    /// permit that.
    pub fn protect(&self, at: Va, len_bytes: usize, prot: Prot) -> Result<(), Errno> {
        self.system_call(|call| {
            call.space.protect(call.thread, at, len_bytes, prot).map_err(|e| match e {
                VmError::Access => Errno::Access,
                e => e.into(),
            })
        })
    }

    /// Makes a child that runs `program` in a copy of this address space, with the same descriptors.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn fork(&self, name: &str, program: Program<M>) -> Result<Pid, Errno> {
        let body = running(&self.kernel, program);
        self.system_call(|call| self.kernel.processes.fork(call, &self.process, name, body))
    }

    /// Waits for a child to exit.
    ///
    /// # Errors
    /// [`Errno::NoChild`], [`Errno::Interrupted`].
    pub fn wait(&self) -> Result<Pid, Errno> {
        self.system_call(|call| self.kernel.processes.wait_for_child(call.thread, &self.process))
    }

    /// Makes a pipe: the end to read from, and the end to write to.
    ///
    /// # Errors
    /// [`Errno::NoMemory`], [`Errno::TooManyFiles`].
    pub fn pipe(&self) -> Result<(Fd, Fd), Errno> {
        self.system_call(|call| {
            if !self.process.files.lock().has_room(2) {
                return Err(Errno::TooManyFiles);
            }
            let (read, write) = match self.kernel.core.config.pipe.kind {
                PipeKind::Fifo => {
                    let (read, write) = create_pipe(call.core, &self.kernel.pipes, call.thread)?;
                    (File::new(read, Rights::READ), File::new(write, Rights::WRITE))
                }
                PipeKind::Socket => {
                    let bytes = call.core.config.pipe.socket_buffer_bytes;
                    let buffer = SockBuf::create(call.core, &self.kernel.sockets, bytes, None)?;
                    let read = Socket { receive: Some(buffer.clone()), send: None };
                    (read.open(), Socket { receive: None, send: Some(buffer) }.open())
                }
            };
            let mut files = self.process.files.lock();
            Ok((files.insert(read), files.insert(write)))
        })
    }

    /// Reads up to `len_bytes`; zero means the end of the stream.
    ///
    /// # Errors
    /// [`Errno::BadFd`], [`Errno::Fault`], [`Errno::WouldBlock`], [`Errno::Interrupted`]; nothing was read then.
    pub fn read(&self, fd: Fd, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| Ok(self.get(fd)?.read(call, Uio::read(to, len_bytes))?.len_bytes))
    }

    /// Writes `len_bytes`; fewer only if a signal came, the descriptor is non-blocking, or the memory ends.
    ///
    /// # Errors
    /// [`Errno::BadFd`], [`Errno::BrokenPipe`]; and, if nothing was written, [`Errno::Fault`], [`Errno::WouldBlock`],
    /// [`Errno::Interrupted`].
    pub fn write(&self, fd: Fd, from: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| self.get(fd)?.write(call, Uio::write(from, len_bytes, SendMode::Copy)))
    }

    /// Makes calls on an open file fail instead of sleep, for all descriptors that share it (`O_NONBLOCK`).
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub fn set_nonblocking(&self, fd: Fd, on: bool) -> Result<(), Errno> {
        self.system_call(|_| {
            self.get(fd)?.set_nonblocking(on);
            Ok(())
        })
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    /// [`Errno::BadFd`].
    pub fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.system_call(|call| {
            let file = self.process.files.lock().remove(fd)?;
            file.close(call);
            Ok(())
        })
    }

    /// Sends a signal: it ends an interruptible sleep of the other, or the next one before it returns to user mode.
    ///
    /// # Errors
    /// [`Errno::NoProcess`].
    pub fn signal(&self, pid: Pid) -> Result<(), Errno> {
        self.system_call(|_| self.kernel.processes.send_signal(pid))
    }

    /// Kills another process (`SIGKILL`): its calls fail from now on, its sleeps end, its loads give zeros. It ends
    /// when its program does.
    ///
    /// # Errors
    /// [`Errno::NoProcess`].
    pub fn kill(&self, pid: Pid) -> Result<(), Errno> {
        self.system_call(|_| self.kernel.processes.kill(pid))
    }

    /// Sleeps for so long, or a tick longer (`nanosleep`).
    ///
    /// # Errors
    /// [`Errno::Interrupted`] by a signal.
    pub fn sleep_for(&self, time: Cycles) -> Result<(), Errno> {
        self.system_call(|call| self.sleep(call, time))
    }

    /// Lets other threads run (`sched_yield`).
    ///
    /// # Errors
    /// None but [`Errno::Killed`].
    pub fn yield_now(&self) -> Result<(), Errno> {
        self.system_call(|call| {
            call.thread.yield_now();
            Ok(())
        })
    }

    /// Repeats an invalidation; answers the cycles of all repetitions together (sf_buf paper, 3).
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn invalidate(&self, kind: InvalidateKind, times: u32) -> Result<Cycles, Errno> {
        self.system_call(|call| invalidate(call, kind, times))
    }
}
