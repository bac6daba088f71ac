//! Bringing a kernel up, running it until nothing is left to run, and checking what remains.
//!
//! Boot is single-threaded, on CPU 0, in the boot context; that context then becomes CPU 0's idle context. The
//! interrupt handler knows the kernel only weakly: the machine keeps the handler, and the kernel keeps the machine.
//!
//! # What can fail
//! Booting, where the configuration and the machine do not go together, and the first process, for want of memory.

use crate::Kernel;
use crate::config::KernelConfig;
use crate::dev::{Audio, Screen, acknowledge};
use crate::error::BootError;
use crate::measure::Measuring;
use crate::sys::{FileServer, NetServer, Program};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use pageferry_abi::{Errno, Pid};
use pageferry_core::base::Core;
use pageferry_core::choose::Moves;
use pageferry_core::config::{CoreConfig, KernelPaths, SchedConfig};
use pageferry_core::disk::{DevFs, Geom, MemoryDisk};
use pageferry_core::fs::{FileTable, MOUNT_POINT, MemFs, Mount, MountTable, MountedVolume, Volumes};
use pageferry_core::ipc::{Exports, MAX_PIPES, PIPE_BYTES, Pipes};
use pageferry_core::mbuf::{Answers, Lenders, Pool};
use pageferry_core::proc::{Processes, Role, Table};
use pageferry_core::sched::{Callouts, Due, Sched, SchedPaths, Select, SoftInt, SoftInts, Thread};
use pageferry_ephemeral::Ephemeral;
use pageferry_hal::StructArena;
use pageferry_hal::{
    Cause, Channel, ContextId, CpuId, Cycles, DeviceId, Devices, Interrupt, Interrupted, Machine, MemoryUse,
    PAGE_SIZE, Threads, TrapKind,
};
use pageferry_ispc::{DriverCard, FileServiceConfig, Ispc, NetServiceConfig};
use pageferry_net::{MAX_SOCKETS, Net, Parts, SOCKET_BYTES, SockBufs};
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

/// Makes the servers that a configuration names.
pub trait Servers<M: Machine> {
    /// The file server's side in the kernel.
    ///
    /// # Errors
    /// [`BootError`].
    fn files(
        &self,
        m: &M,
        config: FileServiceConfig,
        arena: &mut StructArena,
    ) -> Result<Arc<dyn FileServer<M>>, BootError>;

    /// That of the protocol server and the driver's server.
    ///
    /// # Errors
    /// [`BootError`].
    fn net(
        &self,
        m: &M,
        config: NetServiceConfig,
        arena: &mut StructArena,
    ) -> Result<Arc<dyn NetServer<M>>, BootError>;

    /// The kernel has booted: it owns what was made.
    fn started(&self, kernel: &Arc<Kernel<M>>);
}

/// A kernel without servers: one that is configured for some does not boot.
struct NoServers;

impl<M: Machine> Servers<M> for NoServers {
    fn files(
        &self,
        _: &M,
        _: FileServiceConfig,
        _: &mut StructArena,
    ) -> Result<Arc<dyn FileServer<M>>, BootError> {
        Err(BootError::NoServer { service: "files" })
    }

    fn net(
        &self,
        _: &M,
        _: NetServiceConfig,
        _: &mut StructArena,
    ) -> Result<Arc<dyn NetServer<M>>, BootError> {
        Err(BootError::NoServer { service: "net" })
    }

    fn started(&self, _: &Arc<Kernel<M>>) {}
}

/// What the interrupt handler works on.
struct Handled<'a, M: Machine> {
    pmaps: &'a Arc<Pmaps<M>>,
    sched: &'a Arc<Sched<M>>,
    softints: &'a Arc<SoftInts<M>>,
    callouts: &'a Arc<Callouts<M>>,
}

/// Sets the handler of all interrupts; those of devices have the work done that is `behind` them.
fn handle_interrupts<M: Machine>(
    machine: &M,
    handled: &Handled<'_, M>,
    behind: [(Option<DeviceId>, SoftInt); 3],
) {
    let weak = Arc::downgrade(handled.pmaps);
    let work = Arc::downgrade(handled.softints);
    let (clock, callouts, m) = (Arc::downgrade(handled.sched), handled.callouts.clone(), machine.clone());
    machine.set_interrupt_handler(Box::new(move |interrupt| match interrupt {
        Interrupt::Shootdown => {
            weak.upgrade().into_iter().for_each(|pmaps| pmaps.handle_shootdown());
        }
        // The sender has set a flag, which is looked at behind the halt or on the way to user mode.
        Interrupt::Reschedule => {}
        Interrupt::Timer => {
            let (Some(sched), Some(softints)) = (clock.upgrade(), work.upgrade()) else { return };
            let next = match callouts.first_due(m.now()) {
                Due::Now => {
                    softints.schedule(SoftInt::Clock);
                    None
                }
                Due::At(next) => Some(next),
                Due::Never => None,
            };
            sched.tick(next);
        }
        Interrupt::Device(id) => {
            weak.upgrade().into_iter().for_each(|pmaps| acknowledge(&pmaps));
            let kind = behind.iter().find(|(device, _)| *device == Some(id)).map(|(_, kind)| *kind);
            let kind = kind.unwrap_or_else(|| panic!("{id:?} interrupts, and nothing drives it"));
            work.upgrade().into_iter().for_each(|softints| softints.schedule(kind));
        }
    }));
}

impl<M: Machine> Kernel<M> {
    /// Brings the kernel up on CPU 0, in the boot context, with the devices that it is to drive. It has no parts that
    /// are processes; see [`Kernel::boot_with`].
    ///
    /// # Errors
    /// [`BootError`]: this configuration and this machine do not go together.
    pub fn boot(machine: M, devices: Devices, config: KernelConfig) -> Result<Arc<Kernel<M>>, BootError> {
        Kernel::boot_with(machine, devices, config, &NoServers)
    }

    /// The same, with the servers that the configuration names made by `servers`.
    ///
    /// # Errors
    /// [`BootError`].
    pub fn boot_with(
        machine: M,
        devices: Devices,
        mut config: KernelConfig,
        servers: &dyn Servers<M>,
    ) -> Result<Arc<Kernel<M>>, BootError> {
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
        machine.set_locks(config.locks);
        let text = board.fetches.then(|| config.lay_out(&board));
        let (pmaps, boot) = Pmaps::bootstrap(machine.clone(), config.pmap)?;
        let (pmaps, mut arena) = (Arc::new(pmaps), boot.arena);
        arena.array("what lies before", config.skew_bytes, 1)?;
        let refiller = Arc::downgrade(&pmaps);
        machine.set_refill(Box::new(move |miss| {
            refiller.upgrade().map_or(Err(TrapKind::NotPresent), |pmaps| pmaps.handle_miss(miss))
        }));
        pmaps.init_cpu();
        if let Some(text) = text {
            let at = arena.array("text", text.len_bytes(), 1)?;
            machine.set_text(at);
            machine.set_use(at.0, text.len_bytes(), MemoryUse::Text);
        }
        let vm = Vm::new(config.vm, pmaps.clone(), devices.disk, &mut arena, boot.kva, boot.first_free)?;
        let ephemeral = Ephemeral::new(config.ephemeral, pmaps.clone(), vm.clone(), &mut arena)?;
        #[cfg(feature = "verify")]
        let ephemeral = {
            let mut ephemeral = ephemeral;
            if config.defect.is(crate::KernelDefect::MissingShootdown) {
                ephemeral.plant(pageferry_ephemeral::EphemeralDefect::FlushedHereOnly);
            }
            if config.defect.is(crate::KernelDefect::MissingPolicyFlush) {
                ephemeral.plant(pageferry_ephemeral::EphemeralDefect::FlushLeftOut);
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
        let memory_disk = Arc::new(MemoryDisk::new(&machine, &mut arena)?);
        let mounted = Arc::new(MountedVolume::new(&machine, memory_disk.clone(), &mut arena)?);
        let lenders = Arc::new(Lenders::new(&sched, &mut arena)?);
        let ephemeral = Arc::new(ephemeral);
        let core_config = config.core();
        let CoreConfig { socket, paths, net_defect, .. } = core_config;
        let pool_config = (&socket, paths, net_defect);
        let notified = (&sched, lenders.clone());
        let mbufs = Pool::new(vm.clone(), ephemeral.clone(), notified, pool_config, &mut arena)?;
        let flush_at = ephemeral.flush_policy().at;
        let answers = Answers::new(vm.clone(), flush_at, socket.clusters.max(1), net_defect);
        let processes = Table::new(&mut arena)?;
        let pipes = Arc::new(Pipes::new(&machine, arena.zone("pipes", MAX_PIPES, PIPE_BYTES)?));
        let sockets = Arc::new(SockBufs::new(&machine, arena.zone("sockets", MAX_SOCKETS, SOCKET_BYTES)?));
        let exports = Exports::new(&machine, &mut arena)?;
        let softints = Arc::new(SoftInts::new(&sched));
        let callouts = Arc::new(Callouts::new(&machine));
        let serves_net = config.ispc.is_some_and(|ispc| ispc.net.is_some());
        let (parts, own_card) = match (config.net, devices.nic) {
            (Some(its), nic) if serves_net => {
                let card = match nic {
                    Some(nic) => Some(DriverCard::new(&machine, nic, &mut arena)?),
                    None => None,
                };
                let info = card.as_ref().map(DriverCard::info);
                (Some((its, Parts::new(&machine, &its, None, info, &mut arena)?)), card)
            }
            (Some(its), nic) => (Some((its, Parts::new(&machine, &its, nic, None, &mut arena)?)), None),
            (None, Some(nic)) if config.ispc.is_some() => {
                (None, Some(DriverCard::new(&machine, nic, &mut arena)?))
            }
            (None, _) => (None, None),
        };
        let card = parts.as_ref().and_then(|(_, parts)| parts.card());
        let card = card.or(own_card.as_ref().map(DriverCard::id));
        let behind = [(vm.disk_id(), SoftInt::Disk), (audio.id(), SoftInt::Sound), (card, SoftInt::Net)];
        let handled = Handled { pmaps: &pmaps, sched: &sched, softints: &softints, callouts: &callouts };
        handle_interrupts(&machine, &handled, behind);
        let ispc = match (config.ispc, pmaps.area_range()) {
            (Some(its), Some(range)) => {
                let attaching = its.attaching(&machine.board())?;
                Some(Arc::new(Ispc::new(&machine, its, attaching, range, own_card, &mut arena)?))
            }
            _ => None,
        };
        let file_server = match ispc.as_ref().and_then(|ispc| Some((ispc, ispc.config.files?))) {
            Some((ispc, mut files)) => {
                files.data_pages = files.data_pages.min(ispc.max_data_pages()).max(1);
                Some(servers.files(&machine, files, &mut arena)?)
            }
            None => None,
        };
        let net_server = match ispc.as_ref().and_then(|ispc| Some((ispc, ispc.config.net?))) {
            Some((ispc, mut its)) if parts.is_some() => {
                its.data_pages = its.data_pages.min(ispc.max_data_pages()).max(1);
                // Most of the area is for programs.
                let pieces = ispc.range.len_pages().min(ispc.config.pieces) / ispc.card_pages();
                its.frames = its.frames.min(pieces / 8).max(1);
                its.buffers = its.buffers.min(pieces / 4).max(1);
                Some(servers.net(&machine, its, &mut arena)?)
            }
            _ => None,
        };
        let files = Arc::new(MemFs::new(&vm, config.files, &mut arena)?);
        let volumes: Arc<dyn Volumes<M>> = match &file_server {
            Some(server) => server.clone(),
            None => Arc::new(Mount::new(mounted.clone())),
        };
        let mounts = MountTable::new(files.clone())
            .with(MOUNT_POINT, volumes.clone())
            .with("/dev", Arc::new(DevFs::new(memory_disk.clone())));
        let moves = Moves::new(&mut arena)?;
        let measuring = Measuring::new(&machine, &moves, &mut arena)?;
        let geom = Arc::new(Geom::new(&sched, &ephemeral, &core_config, &mut arena)?);
        let boot_free_frames = vm.free_frames();
        let core = Arc::new(Core {
            machine,
            config: core_config,
            vm,
            ephemeral,
            sched,
            mbufs,
            answers,
            lenders,
            select: Select::default(),
            moves,
            softints,
            geom,
            callouts,
        });
        let net = parts.map(|(its, parts)| Net::new(&core, sockets.clone(), its, parts));
        let processes = Processes::new(&core, processes);
        let kernel = Arc::new(Kernel {
            config,
            core,
            processes,
            pipes,
            sockets,
            exports,
            net,
            ispc,
            file_server,
            net_server,
            measuring,
            files,
            audio,
            memory_disk,
            mounted,
            mounts,
            volumes,
            screen: Screen::default(),
            boot_free_frames,
        });
        servers.started(&kernel);
        if let (Some(server), Some(net)) = (&kernel.net_server, &kernel.net) {
            net.start_in(server.host());
        }
        Ok(kernel)
    }

    /// Makes a process without a parent that will run `program`. Called in the boot context, before [`Kernel::run`].
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn spawn(self: &Arc<Self>, name: &str, program: Program<M>) -> Result<Pid, Errno> {
        let _c = self.core.machine.scope(Cause::Boot);
        let program = self.behind_measuring(program, &BootThreads);
        self.begin_process(&BootThreads, name, Role::Program, FileTable::new(), program)
    }

    /// Starts the other CPUs and schedules until no process is left; then every CPU but this one has stopped. The
    /// result is what the boot context's entry returns.
    ///
    /// # Panics
    /// When called twice.
    pub fn run(self: &Arc<Self>) -> Option<ContextId> {
        let m = &self.core.machine;
        self.core.sched.set_idle_context(CpuId(0), m.context_current());
        let has_work = self.processes.count() > 0;
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
                let _c = kernel.core.machine.scope(Cause::Idle);
                kernel.core.vm.pmaps().init_cpu();
                kernel.core.sched.idle_loop();
                kernel.core.vm.pmaps().retire_cpu();
                kernel.core.sched.stopped_here();
                None
            });
            let context = m.context_new(&format!("idle{}", cpu.0), entry);
            self.core.sched.set_idle_context(cpu, context);
            m.start_cpu(cpu, context);
        }
        if !has_work {
            self.core.sched.stop();
        }
        self.core.sched.idle_loop();
        let _c = m.scope(Cause::Idle);
        self.core.sched.wait_for_stopped();
        self.core.drain();
        None
    }

    /// Makes the threads behind the interrupts of the devices that there are, and of the clock.
    fn start_softints(self: &Arc<Self>) {
        if self.core.vm.disk_id().is_some() {
            let kernel = self.clone();
            self.core.softints.start(SoftInt::Disk, Box::new(move |t| kernel.core.vm.disk_interrupt(t)));
        }
        if self.audio.id().is_some() {
            let kernel = self.clone();
            self.core
                .softints
                .start(SoftInt::Sound, Box::new(move |t| kernel.audio.interrupt(&kernel.core.mbufs, t)));
        }
        if let Some(net) = self.net.as_ref().filter(|_| self.net_server.is_none()) {
            net.start(&BootThreads);
        }
        if self.ispc.as_ref().is_some_and(|ispc| ispc.card.is_some()) {
            let kernel = self.clone();
            let work = move |t: &Thread<M>| {
                kernel.ispc.iter().for_each(|ispc| ispc.card_interrupt(t, &kernel.core.machine));
            };
            self.core.softints.start(SoftInt::Net, Box::new(work));
        }
        let (callouts, m) = (self.core.callouts.clone(), self.core.machine.clone());
        self.core.softints.start(SoftInt::Clock, Box::new(move |t| callouts.run(t, m.now())));
    }

    /// The page daemon stops after all processes: it may have pages of some that have exited on their way. The threads
    /// behind interrupts stop after it.
    fn start_page_daemon(self: &Arc<Self>) {
        let kernel = self.clone();
        let body = Box::new(move |thread: Thread<M>| {
            let _c = kernel.core.machine.scope(Cause::Vm);
            kernel.core.vm.run_page_daemon(&thread, &|| kernel.core.drain());
            kernel.core.softints.end();
        });
        let daemon =
            Thread::create(&self.core.sched, "pagedaemon", None, body).expect("some are kept for the kernel");
        self.core.vm.launch_page_daemon();
        self.core.sched.launch(daemon);
    }
}
