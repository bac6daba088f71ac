//! The modelled machine as kernel code sees it, and the scheduler of discrete events beneath.
//!
//! # Model
//! Each context is a stackful coroutine; each logical CPU runs one of them and has a clock of its own. The driver
//! resumes the CPU whose clock is lowest; it runs, charging its clock, until it is some cycles ahead of the next one
//! (`run_ahead_cycles` of the machine), then suspends. Calls through which CPUs influence each other at once (locks,
//! interrupts, switches) first wait until no other CPU is behind, so they happen in the order of modelled time; the
//! slack is shorter than an interrupt takes to arrive, so none arrives in a CPU's past. Ties go to the lower CPU
//! number. Nothing depends on the host.
//!
//! In a *seeded* schedule time does not order CPUs: at every call the driver picks one at random, from the seed, or by
//! priorities that are drawn from it (`chance`). That visits interleavings that no cost model would produce, and is
//! what the tests of races run on.
//!
//! # Ownership
//! Everything hangs on one `Inner` behind an `Rc`; a run stays on one host thread. The hardware is borrowed for the
//! length of a step and never across a suspension or a call into kernel code.
//!
//! # Failure
//! A broken rule of the machine's contract panics inside the coroutine; the driver turns panics and deadlocks into
//! [`RunError`]. The stacks of an aborted run are leaked: their values must not be dropped half-way.
//!
//! # Unsafe
//! One place: a coroutine's `Yielder` is reached by pointer, because kernel code below the first frame has no way to
//! pass the reference along. See `Inner::suspend`.

mod calls;
mod chance;
mod driver;
pub(crate) mod event;
mod events;
mod held;
pub(crate) mod inner;
pub(crate) mod locks;
mod look;
mod looks;
mod options;
mod outside;
mod run_error;
mod spinners;
mod wait;
mod waits;
mod watched;

pub use crate::watch::{Action, Observation, Spent};
pub use calls::FlushWindow;
pub use driver::Scope;
pub use event::{Event, EventKind};
pub use locks::{LockCircle, LockId, LockWait};
pub use options::{Jitter, LateSleep, Options, Schedule};
pub use run_error::RunError;
pub use wait::{Wait, WaitCause, Waits};

use crate::account::Snapshot;
use crate::cache::power_on::PoweredOn;
use crate::config::MachineConfig;
use crate::dev::handle::{ModelAudio, ModelDisk};
use crate::dev::nic::handle::ModelNic;
use crate::hw::{CpuState, Hw};
use crate::machine::chance::Chance;
use crate::machine::inner::Inner;
use crate::mmu::oracle::StaleUse;
use crate::outside::clock::OutsideClock;
use crate::params::Params;
use crate::sync::OnThread;
use crate::trace::{Recorder, Recording, Sink};
use crate::watchdog::{Pulse, watch};
use pageferry_hal::{Audio, BlockDevice, Cause, ContextId, CpuId, Cycles, Devices, Machine, Nic, Va};
use pageferry_sourced::Fault;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a context's stack on the host.
const STACK_BYTES: usize = 512 << 10;

/// Machines that were made: a number tells two of them apart, and decides nothing.
static MACHINES: AtomicU64 = AtomicU64::new(1);

/// What a context runs; see [`Machine::context_new`].
type Entry = Box<dyn FnOnce() -> Option<ContextId>>;
/// What CPU 0 runs first.
pub type Boot = Box<dyn FnOnce(&Model) -> Option<ContextId>>;

/// A modelled machine; clones are handles to the same one.
#[derive(Clone)]
pub struct Model(Rc<Inner>);

impl Model {
    /// A machine as configured, switched off.
    ///
    /// # Errors
    /// [`Fault`] when the configuration contradicts itself.
    pub fn new(config: &MachineConfig, options: Options) -> Result<Model, Fault> {
        config.validate()?;
        Ok(Model::of(config, Some(PoweredOn::new(config)), options))
    }

    /// As [`Model::new`], but every access to memory takes one cycle and no cache is looked at: for tests that ask what
    /// happens, not when.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn flat(config: &MachineConfig, options: Options) -> Result<Model, Fault> {
        config.validate()?;
        Ok(Model::of(config, None, options))
    }

    fn of(config: &MachineConfig, caches: Option<PoweredOn>, mut options: Options) -> Model {
        let (params, board) = (Params::from_config(config), config.board());
        let end = OutsideClock { mhz: config.cpu.clock_mhz.value }.end();
        options.cycle_limit = Some(options.cycle_limit.map_or(Cycles(end), |limit| Cycles(limit.0.min(end))));
        let (cpus, run_ahead) = (params.cpus, params.run_ahead);
        let chance = match options.schedule {
            Schedule::Timed => None,
            Schedule::Seeded(seed) => Some(Chance::random(seed)),
            Schedule::Pct { seed, depth, steps } => Some(Chance::priorities(seed, depth, steps, cpus)),
        };
        Model(Rc::new(Inner {
            hw: RefCell::new(Hw::new(params, caches, &options)),
            contexts: RefCell::default(),
            handler: RefCell::default(),
            refill: RefCell::default(),
            board,
            run_ahead,
            text: Cell::new(None),
            cpu: Cell::new(0),
            context: Cell::new(0),
            current: RefCell::new(vec![usize::MAX; cpus]),
            others_at: Cell::new(u64::MAX),
            seeded: chance.is_some(),
            options,
            failure: RefCell::default(),
            waits: RefCell::new(vec![None; cpus]),
            spins_for: RefCell::new(vec![None; cpus]),
            spinners: Cell::default(),
            those_that_spin: RefCell::default(),
            acts: Cell::new(0),
            in_vain: Cell::new(0),
            quiet_from: Cell::new(0),
            pulse: Pulse::new(options.keep_events),
            chance: RefCell::new(chance),
            looks: RefCell::default(),
            number: MACHINES.fetch_add(1, Ordering::Relaxed),
            running: Cell::new(false),
        }))
    }

    /// Switches the machine on: CPU 0 runs `boot`, until every CPU has stopped.
    ///
    /// # Errors
    /// [`RunError`]: a deadlock, a panic, the first use of a stale translation, or CPUs that wait for ever.
    pub fn run(&self, boot: Boot) -> Result<(), RunError> {
        let model = self.clone();
        let first = self.context_new("boot", Box::new(move || boot(&model)));
        self.0.contexts.borrow_mut()[first.0 as usize].causes = vec![Cause::Boot];
        self.start_cpu(CpuId(0), first);
        self.0.running.set(true);
        let options = &self.0.options;
        let watched = options.host_limit.map(|limit| watch(&self.0.pulse, limit, &options.schedule));
        let on_thread = OnThread::new(&self.0);
        let result = catch_unwind(AssertUnwindSafe(|| self.0.drive()));
        drop((watched, on_thread));
        self.0.running.set(false);
        // The handlers hold the kernel, which holds this machine: let go of them, or neither is ever freed.
        self.0.handler.borrow_mut().take();
        self.0.refill.borrow_mut().take();
        let result = result.unwrap_or_else(|panic| {
            let text = (panic.downcast_ref::<&str>().map(|s| s.to_string()))
                .or_else(|| panic.downcast_ref::<String>().cloned());
            Err(RunError::Panicked(text.unwrap_or_else(|| "(no message)".into())))
        });
        // Stands whatever became of the panic that it caused.
        let result = self.0.failure.borrow_mut().take().map_or(result, Err);
        if result.is_err() {
            for context in self.0.contexts.borrow_mut().iter_mut() {
                std::mem::forget(context.routine.take());
            }
        }
        result
    }

    /// Begins to record where the time goes, what moves, and how much there is of what: `sink` is told.
    pub fn record(&self, recording: Recording, mut sink: Box<dyn Sink>) {
        self.0.contexts.borrow().iter().for_each(|context| sink.context(&context.name));
        let mut hw = self.0.hw.borrow_mut();
        hw.recorder = Some(Box::new(Recorder::new(hw.cpus.len(), recording, sink)));
    }

    /// Ends what [`Model::record`] began. When the last of what happened was over, in the window or behind it.
    pub fn end_recording(&self) -> Option<Cycles> {
        let recorder = self.0.hw.borrow_mut().recorder.take()?;
        Some(Cycles(recorder.finish()))
    }

    /// The measured part of a run begins now: the accounts as they stand, and where a recording of that part begins. A
    /// machine that is not switched on has no parts yet.
    pub fn begin_measuring(&self) -> Snapshot {
        let at_cycles = self.now().0;
        if self.0.running.get()
            && let Some(recorder) = &mut self.0.hw.borrow_mut().recorder
        {
            recorder.begin_measuring(at_cycles);
        }
        self.snapshot()
    }

    /// The measured part is over: the accounts as they stand.
    pub fn end_measuring(&self) -> Snapshot {
        let at_cycles = self.now().0;
        if let Some(recorder) = &mut self.0.hw.borrow_mut().recorder {
            recorder.end_measuring(at_cycles);
        }
        self.snapshot()
    }

    /// The accounts as they stand now; halted CPUs are idle up to this moment.
    pub fn snapshot(&self) -> Snapshot {
        let mut hw = self.0.hw.borrow_mut();
        let now = if self.0.running.get() {
            hw.cpus[self.0.cpu.get()].clock
        } else {
            hw.cpus.iter().map(|c| c.clock).max().unwrap_or(0)
        };
        for cpu in 0..hw.cpus.len() {
            if hw.cpus[cpu].state != CpuState::Running {
                let arrival = hw.cpus[cpu].pending.front().map_or(now, |&(at, _)| at.min(now));
                hw.idle_to(cpu, arrival);
            }
        }
        hw.snapshot()
    }

    /// Uses of stale translations that were found, the first ones in full.
    pub fn stale_uses(&self) -> Vec<StaleUse> {
        self.0.hw.borrow().oracle.found().to_vec()
    }

    /// What CPUs did last, in the order in which they did it: as many events as [`Options::keep_events`] says.
    pub fn events(&self) -> Vec<Event> {
        self.0.last_events()
    }

    /// In a seeded schedule, for how many turns there was a choice between CPUs.
    pub(crate) fn turns(&self) -> u64 {
        self.0.chance.borrow().as_ref().map_or(0, Chance::turns)
    }

    /// The laws of the machine: accounts balance, caches and TLBs are consistent, no stale translation was used unless
    /// [that is tolerated](Options::tolerate_stale); at the end of a run, no window is open and no lock is held.
    ///
    /// # Errors
    /// The law that is broken, in words.
    pub fn check(&self) -> Result<(), String> {
        let hw = self.0.hw.borrow();
        hw.check()?;
        if let Some(stale) = hw.oracle.error() {
            return Err(stale.to_string());
        }
        if !self.0.running.get() {
            if hw.disk.unanswered() > 0 {
                return Err(format!("{} requests to the disk were not answered", hw.disk.unanswered()));
            }
            if hw.audio.unanswered() > 0 {
                return Err(format!("{} fragments of sound were not answered", hw.audio.unanswered()));
            }
            if let Some(outside) = &hw.outside {
                let (frames, buffers) = outside.card.unanswered();
                if frames > 0 {
                    return Err(format!("{frames} frames to be sent were not answered by the network card"));
                }
                if buffers > 0 {
                    return Err(format!("{buffers} buffers were not given back by the network card"));
                }
            }
            if hw.oracle.open_windows() > 0 {
                return Err(format!(
                    "windows of changes that were opened and never closed (`close_flush_window`): {}",
                    hw.oracle.open_windows()
                ));
            }
            if let Some(c) = self.0.contexts.borrow().iter().find(|c| !c.held.is_empty()) {
                return Err(format!("context {} ended holding {:?}", c.name, c.held));
            }
        }
        Ok(())
    }

    /// Reads bytes as the executing CPU would see them, without cost, TLB or fault; false where nothing is mapped.
    pub fn peek(&self, from: Va, buf: &mut [u8]) -> bool {
        let hw = self.0.hw.borrow();
        let mut done = 0;
        while done < buf.len() {
            let at = from + done;
            let Some(pa) = hw.peek(self.0.cpu.get(), at) else { return false };
            let len = (buf.len() - done).min(pageferry_hal::PAGE_SIZE - at.offset());
            hw.memory.read(pa, &mut buf[done..done + len]);
            done += len;
        }
        true
    }

    /// True when the executing CPU would see these bytes, looked at as by [`Model::peek`].
    pub fn shows(&self, at: Va, bytes: &[u8]) -> bool {
        let hw = self.0.hw.borrow();
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done;
            let len = (bytes.len() - done).min(pageferry_hal::PAGE_SIZE - at.offset());
            let seen = hw.peek(self.0.cpu.get(), at);
            if !seen.is_some_and(|pa| hw.memory.holds(pa, &bytes[done..done + len])) {
                return false;
            }
            done += len;
        }
        true
    }

    /// Writes bytes where the executing CPU would, without cost, TLB, fault or dirty bit; false, with the bytes up to
    /// there written, where nothing is mapped. For payloads that must differ without the writer's spending time on it.
    pub fn poke(&self, to: Va, bytes: &[u8]) -> bool {
        let mut hw = self.0.hw.borrow_mut();
        let mut done = 0;
        while done < bytes.len() {
            let at = to + done;
            let Some(pa) = hw.peek(self.0.cpu.get(), at) else { return false };
            let len = (bytes.len() - done).min(pageferry_hal::PAGE_SIZE - at.offset());
            hw.memory.bytes_mut(pa, len).copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
        true
    }

    /// Looks at the kernel from outside, in the middle of a run: what `look` does with locks is neither charged nor
    /// ordered. For checks in user mode, while no other CPU can be in the middle of something that is looked at.
    pub fn inspect<R>(&self, look: impl FnOnce() -> R) -> R {
        let was_running = self.0.running.replace(false);
        let inside = self.0.pulse.leave();
        let result = look();
        self.0.pulse.resume(inside);
        self.0.running.set(was_running);
        result
    }

    /// Writes bytes to a frame, without cost: as [`Model::poke`], for data that is mapped nowhere.
    pub fn poke_frame(&self, frame: pageferry_hal::Pfn, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= pageferry_hal::PAGE_SIZE, "the bytes leave the frame");
        self.0.hw.borrow_mut().memory.bytes_mut(frame.pa() + offset, bytes.len()).copy_from_slice(bytes);
    }

    /// The bytes of a frame, without cost.
    pub fn frame_bytes(&self, frame: pageferry_hal::Pfn) -> Vec<u8> {
        let mut bytes = vec![0; pageferry_hal::PAGE_SIZE];
        self.0.hw.borrow().memory.read(frame.pa(), &mut bytes);
        bytes
    }

    /// For tests: from now on requests to the disk that touch `blocks` fail; with `broken` false, no more.
    pub fn break_disk(&self, blocks: std::ops::Range<u64>, broken: bool) {
        self.0.hw.borrow_mut().disk.set_broken(blocks, broken);
    }

    /// All that the sound device has played.
    pub fn played(&self) -> Vec<u8> {
        self.0.hw.borrow().audio.played().to_vec()
    }

    /// `len_bytes` of what the sound device records, from `position` on.
    pub fn sound(position: u64, len_bytes: usize) -> Vec<u8> {
        (position..).take(len_bytes).map(crate::dev::audio::sound).collect()
    }

    /// How often the sound device had nothing to play after it had begun, and nowhere to record to.
    pub fn audio_gaps(&self) -> (u64, u64) {
        self.0.hw.borrow().audio.gaps()
    }

    /// The bytes of a block of the disk, without cost.
    pub fn disk_block(&self, block: u64) -> Vec<u8> {
        self.0.hw.borrow().disk.block(block)
    }

    /// True when a frame holds exactly these bytes.
    pub fn frame_is(&self, frame: pageferry_hal::Pfn, bytes: &[u8]) -> bool {
        bytes.len() == pageferry_hal::PAGE_SIZE && self.0.hw.borrow().memory.holds(frame.pa(), bytes)
    }

    /// What is on this board beside processors and memory. A disk that is asked for can be had once or many times: all
    /// are the same disk.
    pub fn devices(&self) -> Devices {
        let hw = self.0.hw.borrow();
        let disk =
            hw.params.disk.is_some().then(|| Box::new(ModelDisk(self.0.clone())) as Box<dyn BlockDevice>);
        let audio = hw.params.audio.is_some().then(|| Box::new(ModelAudio(self.0.clone())) as Box<dyn Audio>);
        let nic = hw.params.nic.is_some().then(|| Box::new(ModelNic(self.0.clone())) as Box<dyn Nic>);
        Devices { disk, audio, nic }
    }

    /// The most entries that the kernel's addresses had in the TLBs of one CPU, in a
    /// [sample](crate::account::SAMPLE_CYCLES) since this was asked last.
    pub fn take_max_kernel_entries(&self) -> usize {
        std::mem::take(&mut self.0.hw.borrow_mut().max_kernel_entries)
    }

    /// Entries in the TLB of a CPU's core.
    pub fn tlb_entries(&self, cpu: CpuId) -> usize {
        self.0.hw.borrow().tlb_live(cpu.index())
    }
}
