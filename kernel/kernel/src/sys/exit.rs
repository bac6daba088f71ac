//! The end of a process: what each part of the kernel has of it goes.
//!
//! # Locks
//! Those of the parts, one after the other.

use crate::Kernel;
use alloc::sync::Arc;
use pageferry_core::proc::{Process, Role, Syscall};
use pageferry_core::sched::Thread;
use pageferry_hal::{Cause, Crossing, Machine, SpinLock, Threads, Trap};
use pageferry_ispc::FILES;

impl<M: Machine> Kernel<M> {
    /// Ends a process: its descriptors, its memory, its place in the table. Its thread ends right after.
    pub(crate) fn exit(self: &Arc<Self>, process: &Process<M>, thread: &Thread<M>) {
        let m = &self.core.machine;
        let _c = m.scope(Cause::Syscall);
        m.cross(Crossing::SyscallEnter);
        m.execute(self.core.config.paths.process);
        let Process { space, pid, loans, .. } = process;
        let call = Syscall { core: &self.core, thread, space, pid: *pid, loans };
        self.ispc.iter().for_each(|ispc| ispc.close_gate(&call, process));
        let files = process.files.lock().take_all();
        files.into_iter().for_each(|file| file.close(&call));
        self.exports.withdraw_all(*pid);
        self.core.lenders.watch(*pid, false);
        if self.processes.begin_exit(process) {
            self.file_server.iter().for_each(|server| server.end(&call));
            self.net_server.iter().for_each(|server| server.end(&call));
        }
        self.ispc.iter().for_each(|ispc| ispc.end(&call));
        match process.role {
            Role::Server(FILES) => self.file_server.iter().for_each(|server| server.ended(thread)),
            Role::Server(other) => self.net_server.iter().for_each(|server| server.ended(thread, other)),
            Role::Program | Role::Partner => {}
        }
        if self.processes.end_exit(process, thread) {
            self.let_go_of_the_disk(thread);
            self.stop(thread);
        }
    }

    /// What the last process has left mounted, because it was killed, is unmounted, and its disk goes
    /// (`vfs_unmountall`).
    fn let_go_of_the_disk(&self, thread: &Thread<M>) {
        // It may fail to write: the disk goes, and what was on it.
        _ = self.mounted.let_go(&self.core, thread, false);
        _ = self.memory_disk.detach(&self.core, thread);
    }

    /// The last process is gone: nothing is left to run.
    fn stop(&self, threads: &dyn Threads) {
        self.net.iter().for_each(|net| net.end(threads));
        if self.net_server.is_some() {
            self.ispc.iter().for_each(|ispc| ispc.stop_card(&self.core.machine));
        }
        if self.config.vm.paging.is_some() {
            self.core.vm.stop_page_daemon(threads);
        } else {
            self.core.softints.end();
        }
    }

    /// Notes that an access of `process` could not be made. Where threads of others run in it, its own may sleep: it is
    /// told.
    pub(crate) fn kill_by(&self, process: &Process<M>, trap: Trap) {
        let has_gate = || self.ispc.as_ref().is_some_and(|ispc| ispc.has_gate(process.pid));
        if self.processes.killed_by(process, trap) && has_gate() {
            _ = self.processes.send_signal(process.pid);
        }
    }
}
