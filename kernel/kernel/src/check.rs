//! The laws that hold in a kernel at any time, and when nothing runs any more.
//!
//! # Locks
//! Those of the parts, one after the other. Called with none held.

use crate::Kernel;
use alloc::format;
use alloc::string::String;
use pageferry_hal::Machine;

impl<M: Machine> Kernel<M> {
    /// Tests the laws that hold at any time: those of the VM system, the scheduler's queues, the ephemeral mappings,
    /// the socket buffers, and that every frame that is handed through a pipe or a socket is wired. Called with no lock
    /// held; other CPUs may go on.
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self) -> Result<(), String> {
        self.core.vm.check()?;
        self.core.sched.check()?;
        self.core.ephemeral.check()?;
        let pipes = self.pipes.all();
        for pipe in pipes {
            let held = pipe.lock();
            if let Some(frame) =
                held.direct.frames().iter().find(|&&f| self.core.vm.frame_info(f).wire_count == 0)
            {
                return Err(format!("{frame:?} is handed through a pipe, but not wired"));
            }
        }
        let sockets = self.sockets.all();
        let is_lent = |frame| {
            let info = self.core.vm.frame_info(frame);
            info.wire_count > 0 && info.loan_count > 0
        };
        sockets.iter().try_for_each(|socket| socket.check(is_lent))?;
        self.ispc.as_ref().map_or(Ok(()), |ispc| ispc.check(&self.core))?;
        self.net.as_ref().map_or(Ok(()), |net| net.check())
    }

    /// Tests that nothing is left behind when no process is: frames as after boot, nothing wired, no mapping held.
    ///
    /// # Errors
    /// What is left, in words.
    pub fn check_quiescent(&self) -> Result<(), String> {
        self.check()?;
        let (processes, pipes) = (self.processes.count(), self.pipes.all().len());
        let threads = self.core.sched.threads();
        if (processes, pipes, threads) != (0, 0, 0) {
            return Err(format!("{processes} processes, {pipes} pipes and {threads} threads are left"));
        }
        let lenders = self.core.lenders.count();
        if lenders != 0 {
            return Err(format!("{lenders} lenders are waiting for their pages"));
        }
        let areas = self.core.mbufs.areas();
        if areas != 0 {
            return Err(format!("{areas} receive areas are left"));
        }
        if !self.audio.is_at_rest() {
            return Err("the sound device is open, or has memory".into());
        }
        let exports = self.exports.count();
        if exports != 0 {
            return Err(format!("{exports} offers of memory are left"));
        }
        self.net.as_ref().map_or(Ok(()), |net| net.check_quiescent())?;
        self.ispc.as_ref().map_or(Ok(()), |ispc| ispc.check_quiescent())?;
        self.net_server.as_ref().map_or(Ok(()), |server| server.check_quiescent())?;
        let (sockets, (mbufs, clusters)) = (self.sockets.count(), self.core.mbufs.in_use());
        if (sockets, mbufs, clusters) != (0, 0, 0) {
            return Err(format!("{sockets} sockets, {mbufs} mbufs and {clusters} clusters are left"));
        }
        let (null_sockets, kept) = self.core.answers.in_use();
        if (null_sockets, kept) != (0, 0) {
            return Err(format!("{null_sockets} null sockets and {kept} pages for their answers are left"));
        }
        if self.core.callouts.count() > 0 {
            return Err(format!("{} callouts are left", self.core.callouts.count()));
        }
        let ephemeral = &self.core.ephemeral;
        let (held, runs, waiting) = (ephemeral.held(), ephemeral.kva_runs(), ephemeral.waiting());
        if (held, runs, waiting) != (0, 0, 0) {
            return Err(format!(
                "{held} ephemeral mappings and {runs} runs of kernel addresses are held, {waiting} threads wait for one"
            ));
        }
        // First: files without a name, an opener and a mapping end here.
        let cached = self.files.resident_pages(&self.core.vm);
        if self.memory_disk.exists() || self.mounted.exists() {
            return Err("the memory disk is left, or mounted".into());
        }
        let free = self.core.vm.free_frames() + cached;
        if free != self.boot_free_frames {
            return Err(format!(
                "{free} frames are free or hold files, after boot it was {}",
                self.boot_free_frames
            ));
        }
        Ok(())
    }
}
