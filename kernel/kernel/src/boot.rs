//! Bringing a kernel up, running it until nothing is left to run, and checking what remains.
//!
//! Boot is single-threaded, on CPU 0, in the boot context; that context then becomes CPU 0's idle context. The
//! interrupt handler knows the kernel only weakly: the machine keeps the handler, and the kernel keeps the machine.
//!
//! # What can fail
//! Booting, where the configuration and the machine do not go together, and the first process, for want of memory.

use crate::Kernel;
use crate::choose::Moves;
use crate::config::{KernelConfig, KernelPaths, SchedConfig};
use crate::dev::{Audio, DevFs, MemoryDisk, Screen, acknowledge};
use crate::error::BootError;
use crate::fs::{FileTable, MOUNT_POINT, MemFs, Mount, MountTable, Volumes};
use crate::ipc::Exports;
use crate::ispc::{DriverCard, Ispc, IspcConfig};
use crate::measure::Measuring;
use crate::net::{Lenders, Net, Pool};
use crate::proc::Role;
use crate::proc::{Killed, Processes};
use crate::sched::{Callouts, Sched, SchedPaths, SoftInt, SoftInts, Thread};
use crate::served::{FileService, NetService};
use crate::sys::{Program, Select, running};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::{Errno, Pid};
use pageferry_ephemeral::Ephemeral;
use pageferry_hal::{
    Cause, Channel, ContextId, CpuId, Cycles, Devices, Interrupt, Interrupted, LockClass, Machine, PAGE_SIZE,
    SpinLock, Threads, TrapKind,
};
use pageferry_pmap::Pmaps;
use pageferry_vm::Vm;

/// The thread system before there are threads: nothing can be waited for.
struct BootThreads;

impl Threads for BootThreads {
    fn sleep(
        &self,
        channel: Channel,
        reason: &'static str,
        _: bool,
        _: &mut dyn FnMut(),
    ) -> Result<(), Interrupted> {
        panic!("the boot context sleeps in {reason} on {channel:?}: no thread can wake it");
    }
    fn wakeup(&self, _: Channel) -> usize {
        0
    }
    fn wakeup_one(&self, _: Channel) -> bool {
        false
    }
    fn pin(&self) {}
    fn unpin(&self) {}
}

/// The clock's handler is to take a small part of a tick.
const MIN_TICK: Cycles = Cycles(10_000);

impl<M: Machine> Kernel<M> {
    /// Brings the kernel up on CPU 0, in the boot context, with the devices that it is to drive.
    ///
    /// # Errors
    /// [`BootError`]: this configuration and this machine do not go together.
    pub fn boot(machine: M, devices: Devices, mut config: KernelConfig) -> Result<Arc<Kernel<M>>, BootError> {
        let _c = machine.scope(Cause::Boot);
        let pipe = &config.pipe;
        let whole = |bytes: usize| bytes > 0 && bytes.is_multiple_of(PAGE_SIZE);
        if !whole(pipe.buffer_bytes)
            || !whole(pipe.big_buffer_bytes)
            || pipe.big_buffer_bytes < pipe.buffer_bytes
        {
            let (buffer_bytes, big_buffer_bytes) = (pipe.buffer_bytes, pipe.big_buffer_bytes);
            return Err(BootError::PipeBuffer { buffer_bytes, big_buffer_bytes });
        }
        let high_water_bytes = config.socket.high_water_bytes.min(pipe.socket_buffer_bytes);
        let loan_bytes = config.socket.loan_bytes;
        if high_water_bytes < PAGE_SIZE || !whole(loan_bytes) {
            return Err(BootError::SocketBuffer { high_water_bytes, loan_bytes });
        }
        let board = machine.board();
        if let Some(ispc) = &config.ispc {
            config.pmap.area = Some(ispc.area(&board)?);
        }
        let text = board.fetches.then(|| config.lay_out(&board));
        let (pmaps, boot) = Pmaps::bootstrap(machine.clone(), config.pmap)?;
        let (pmaps, mut arena) = (Arc::new(pmaps), boot.arena);
        let refiller = Arc::downgrade(&pmaps);
        machine.set_refill(Box::new(move |miss| {
            refiller.upgrade().map_or(Err(TrapKind::NotPresent), |pmaps| pmaps.handle_miss(miss))
        }));
        pmaps.init_cpu();
        if let Some(text) = text {
            machine.set_text(arena.array("text", text.len_bytes(), 1)?);
        }
        let vm = Vm::new(config.vm, pmaps.clone(), devices.disk, &mut arena, boot.kva, boot.first_free)?;
        let ephemeral = Ephemeral::new(config.ephemeral, pmaps.clone(), vm.clone(), &mut arena)?;
        #[cfg(feature = "verify")]
        let ephemeral = {
            let mut ephemeral = ephemeral;
            if config.defect.is(crate::KernelDefect::MissingShootdown) {
                ephemeral.plant(pageferry_ephemeral::EphemeralDefect::FlushedHereOnly);
            }
            ephemeral
        };
        let paths = &config.paths;
        let SchedConfig { quantum_cycles, tick_cycles, .. } = config.sched;
        if tick_cycles < MIN_TICK || quantum_cycles < tick_cycles {
            return Err(BootError::Clock { quantum_cycles, tick_cycles });
        }
        let KernelPaths { switch, sleep, wakeup, clock, .. } = *paths;
        let paths = SchedPaths { switch, sleep, wakeup, clock };
        let audio = Arc::new(Audio::new(&machine, devices.audio, &mut arena)?);
        let sched = Arc::new(Sched::new(pmaps.clone(), config.sched, paths, &mut arena)?);
        let memory_disk = MemoryDisk::new(&machine, &mut arena)?;
        let mount = Arc::new(Mount::new(&machine, &mut arena)?);
        let lenders = Arc::new(Lenders::new(&sched, &mut arena)?);
        let ephemeral = Arc::new(ephemeral);
        let mbufs = Pool::new(vm.clone(), ephemeral.clone(), (&sched, lenders.clone()), &config, &mut arena)?;
        let processes = machine.new_lock(LockClass::PROCESS, Processes::new(&mut arena)?);
        let exports = machine.new_lock(LockClass::PROCESS, Exports::new(&mut arena)?);
        let softints = Arc::new(SoftInts::new(&sched));
        let callouts = Arc::new(Callouts::new(&machine));
        let weak = Arc::downgrade(&pmaps);
        let work = Arc::downgrade(&softints);
        let (net, own_card) = match (config.net, config.ispc, devices.nic) {
            (Some(its), Some(IspcConfig { net: Some(_), .. }), nic) => {
                let card = match nic {
                    Some(nic) => Some(DriverCard::new(&machine, nic, &mut arena)?),
                    None => None,
                };
                let info = card.as_ref().map(DriverCard::info);
                (Some(Net::new(&machine, its, None, info, &mut arena)?), card)
            }
            (Some(its), _, nic) => (Some(Net::new(&machine, its, nic, None, &mut arena)?), None),
            (None, Some(_), Some(nic)) => (None, Some(DriverCard::new(&machine, nic, &mut arena)?)),
            (None, ..) => (None, None),
        };
        let card = net.as_ref().and_then(Net::card).or(own_card.as_ref().map(DriverCard::id));
        let behind = [(vm.disk_id(), SoftInt::Disk), (audio.id(), SoftInt::Sound), (card, SoftInt::Net)];
        let (clock, due, m) = (Arc::downgrade(&sched), callouts.clone(), machine.clone());
        machine.set_interrupt_handler(Box::new(move |interrupt| match interrupt {
            Interrupt::Shootdown => {
                weak.upgrade().into_iter().for_each(|pmaps| pmaps.handle_shootdown());
            }
            // The sender has set a flag, which is looked at behind the halt or on the way to user mode.
            Interrupt::Reschedule => {}
            Interrupt::Timer => {
                let (Some(sched), Some(softints)) = (clock.upgrade(), work.upgrade()) else { return };
                if due.is_due(m.now()) {
                    softints.schedule(SoftInt::Clock);
                }
                sched.tick(due.first_due().filter(|first| *first > m.now()));
            }
            Interrupt::Device(id) => {
                weak.upgrade().into_iter().for_each(|pmaps| acknowledge(&pmaps));
                let kind = behind.iter().find(|(device, _)| *device == Some(id)).map(|(_, kind)| *kind);
                let kind = kind.unwrap_or_else(|| panic!("{id:?} interrupts, and nothing drives it"));
                work.upgrade().into_iter().for_each(|softints| softints.schedule(kind));
            }
        }));
        let ispc = match (config.ispc, pmaps.area_range()) {
            (Some(its), Some(range)) => Some(Ispc::new(&machine, its, range, own_card, &mut arena)?),
            _ => None,
        };
        let file_service = match ispc.as_ref().and_then(|ispc| Some((ispc, ispc.config.files?))) {
            Some((ispc, mut files)) => {
                files.data_pages = files.data_pages.min(ispc.most_data_pages()).max(1);
                Some(Arc::new(FileService::new(&machine, files, &mut arena)?))
            }
            None => None,
        };
        let net_service = match ispc.as_ref().and_then(|ispc| Some((ispc, ispc.config.net?))) {
            Some((ispc, mut its)) if net.is_some() => {
                its.data_pages = its.data_pages.min(ispc.most_data_pages()).max(1);
                // Most of the area is for programs.
                let pieces = ispc.range.len_pages().min(ispc.config.pieces) / ispc.card_pages();
                its.frames = its.frames.min(pieces / 8).max(1);
                its.buffers = its.buffers.min(pieces / 4).max(1);
                Some(NetService::new(&machine, its, &mut arena)?)
            }
            _ => None,
        };
        let files = Arc::new(MemFs::new(&vm, config.files, &mut arena)?);
        let volumes: Arc<dyn Volumes<M>> = match &file_service {
            Some(service) => service.clone(),
            None => mount.clone(),
        };
        let mounts =
            MountTable::new(files.clone()).with(MOUNT_POINT, volumes.clone()).with("/dev", Arc::new(DevFs));
        let moves = Moves::new(&mut arena)?;
        let measuring = Measuring::new(&machine, &moves, &mut arena)?;
        let boot_free_frames = vm.free_frames();
        Ok(Arc::new(Kernel {
            machine,
            config,
            vm,
            ephemeral,
            sched,
            mbufs,
            net,
            ispc,
            file_service,
            net_service,
            select: Select::default(),
            moves,
            measuring,
            processes,
            exports,
            files,
            audio,
            memory_disk,
            mount,
            mounts,
            volumes,
            lenders,
            softints,
            callouts,
            screen: Screen::default(),
            boot_free_frames,
        }))
    }

    /// Makes a process without a parent that will run `program`. Called in the boot context, before [`Kernel::run`].
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn spawn(self: &Arc<Self>, name: &str, program: Program<M>) -> Result<Pid, Errno> {
        let _c = self.machine.scope(Cause::Boot);
        let program = self.behind_measuring(program, &BootThreads);
        let space = self.vm.space()?;
        self.create_process(
            None,
            name,
            space.clone(),
            FileTable::new(),
            Role::Program,
            running(self, program),
        )
        .inspect_err(|_| space.terminate(&BootThreads))
    }

    /// Starts the other CPUs and schedules until no process is left; then every CPU but this one has stopped. The
    /// result is what the boot context's entry returns.
    ///
    /// # Panics
    /// When called twice.
    pub fn run(self: &Arc<Self>) -> Option<ContextId> {
        let m = &self.machine;
        self.sched.set_idle_context(CpuId(0), m.context_current());
        let has_work = self.processes.lock().len() > 0;
        if has_work {
            // Before any CPU runs a thread: what is scheduled, and what ends, finds them.
            self.start_softints();
            if self.config.vm.paging.is_some() {
                self.start_page_daemon();
            }
        }
        for cpu in m.cpus().iter().filter(|&cpu| cpu != CpuId(0)) {
            let kernel = self.clone();
            let entry = Box::new(move || {
                let _c = kernel.machine.scope(Cause::Idle);
                kernel.vm.pmaps().init_cpu();
                kernel.sched.idle_loop();
                kernel.vm.pmaps().retire_cpu();
                kernel.sched.stopped_here();
                None
            });
            let context = m.context_new(&format!("idle{}", cpu.0), entry);
            self.sched.set_idle_context(cpu, context);
            m.start_cpu(cpu, context);
        }
        if !has_work {
            self.sched.stop();
        }
        self.sched.idle_loop();
        let _c = m.scope(Cause::Idle);
        self.sched.wait_for_stopped();
        self.mbufs.drain();
        None
    }

    /// Makes the threads behind the interrupts of the devices that there are, and of the clock.
    fn start_softints(self: &Arc<Self>) {
        if self.vm.disk_id().is_some() {
            let kernel = self.clone();
            self.softints.start(SoftInt::Disk, Box::new(move |t| kernel.vm.disk_interrupt(t)));
        }
        if self.audio.id().is_some() {
            let kernel = self.clone();
            self.softints.start(SoftInt::Sound, Box::new(move |t| kernel.audio.interrupt(&kernel.mbufs, t)));
        }
        if let Some(net) = self.net() {
            net.start(self, &BootThreads);
        }
        if self.ispc.as_ref().is_some_and(|ispc| ispc.card.is_some()) {
            let kernel = self.clone();
            let work = move |t: &Thread<M>| {
                kernel.ispc.iter().for_each(|ispc| ispc.card_interrupt(t, &kernel.machine));
            };
            self.softints.start(SoftInt::Net, Box::new(work));
        }
        let (callouts, m) = (self.callouts.clone(), self.machine.clone());
        self.softints.start(SoftInt::Clock, Box::new(move |t| callouts.run(t, m.now())));
    }

    /// The page daemon stops after all processes: it may have pages of some that have exited on their way. The threads
    /// behind interrupts stop after it.
    fn start_page_daemon(self: &Arc<Self>) {
        let kernel = self.clone();
        let body = Box::new(move |thread: Thread<M>| {
            let _c = kernel.machine.scope(Cause::Vm);
            kernel.vm.run_page_daemon(&thread, &|| kernel.mbufs.drain());
            kernel.softints.end();
        });
        let daemon =
            Thread::create(&self.sched, "pagedaemon", None, body).expect("some are kept for the kernel");
        self.vm.launch_page_daemon();
        self.sched.launch(daemon);
    }

    /// The last process is gone: nothing is left to run.
    pub(crate) fn stop(&self, threads: &dyn Threads) {
        self.end_of_net(threads);
        if self.net_service.is_some() {
            self.ispc.iter().for_each(|ispc| ispc.stop_card(&self.machine));
        }
        if self.config.vm.paging.is_some() {
            self.vm.stop_page_daemon(threads);
        } else {
            self.softints.end();
        }
    }

    /// Processes that were killed by a fatal signal, in order.
    pub fn killed(&self) -> Vec<Killed> {
        self.processes.lock().killed().to_vec()
    }

    /// One line for each thread that sleeps: for reports of deadlocks.
    pub fn sleepers(&self) -> String {
        self.sched.sleepers()
    }

    /// Tests the laws that hold at any time: those of the VM system, the scheduler's queues, the ephemeral mappings,
    /// the socket buffers, and that every frame that is handed through a pipe or a socket is wired. Called with no lock
    /// held; other CPUs may go on.
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self) -> Result<(), String> {
        self.vm.check()?;
        self.sched.check()?;
        self.ephemeral.check()?;
        let pipes = self.processes.lock().pipes.all();
        for pipe in pipes {
            let held = pipe.lock();
            if let Some(frame) = held.direct.frames().iter().find(|&&f| self.vm.frame_info(f).wire_count == 0)
            {
                return Err(format!("{frame:?} is handed through a pipe, but not wired"));
            }
        }
        let sockets = self.processes.lock().sockets.all();
        let is_lent = |frame| {
            let info = self.vm.frame_info(frame);
            info.wire_count > 0 && info.loan_count > 0
        };
        sockets.iter().try_for_each(|socket| socket.check(is_lent))?;
        self.ispc.as_ref().map_or(Ok(()), |ispc| ispc.check(self))?;
        self.net().map_or(Ok(()), Net::check)
    }

    /// Tests that nothing is left behind when no process is: frames as after boot, nothing wired, no mapping held.
    ///
    /// # Errors
    /// What is left, in words.
    pub fn check_quiescent(&self) -> Result<(), String> {
        self.check()?;
        let (processes, pipes) = {
            let table = self.processes.lock();
            (table.len(), table.pipes.all().len())
        };
        let threads = self.sched.threads();
        if (processes, pipes, threads) != (0, 0, 0) {
            return Err(format!("{processes} processes, {pipes} pipes and {threads} threads are left"));
        }
        let lenders = self.lenders.len();
        if lenders != 0 {
            return Err(format!("{lenders} lenders are waiting for their pages"));
        }
        if !self.audio.is_at_rest() {
            return Err("the sound device is open, or has memory".into());
        }
        let exports = self.exports.lock().len();
        if exports != 0 {
            return Err(format!("{exports} offers of memory are left"));
        }
        self.net().map_or(Ok(()), Net::check_quiescent)?;
        self.ispc.as_ref().map_or(Ok(()), Ispc::check_quiescent)?;
        self.net_service.as_ref().map_or(Ok(()), NetService::check_quiescent)?;
        let (sockets, (mbufs, clusters)) = (self.processes.lock().sockets.len(), self.mbufs.in_use());
        if (sockets, mbufs, clusters) != (0, 0, 0) {
            return Err(format!("{sockets} sockets, {mbufs} mbufs and {clusters} clusters are left"));
        }
        if self.callouts.len() > 0 {
            return Err(format!("{} callouts are left", self.callouts.len()));
        }
        let (held, runs) = (self.ephemeral.held(), self.ephemeral.kva_runs());
        if (held, runs) != (0, 0) {
            return Err(format!("{held} ephemeral mappings and {runs} runs of kernel addresses are held"));
        }
        // First: files without a name, an opener and a mapping end here.
        let cached = self.files.resident_pages(&self.vm);
        if self.memory_disk.exists() || self.mount.exists() {
            return Err("the memory disk is left, or mounted".into());
        }
        let free = self.vm.free_frames() + cached;
        if free != self.boot_free_frames {
            return Err(format!(
                "{free} frames are free or hold files, after boot it was {}",
                self.boot_free_frames
            ));
        }
        Ok(())
    }
}
