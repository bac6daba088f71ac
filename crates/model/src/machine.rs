//! The modelled machine as kernel code sees it, and the scheduler of discrete events beneath.
//!
//! # Model
//! Each context is a stackful coroutine; each logical CPU runs one of them and has a clock of its own. The driver
//! resumes the CPU whose clock is lowest; it runs, charging its clock, until it is [`SLACK_CYCLES`] ahead of the next
//! one, then suspends. Calls through which CPUs influence each other at once (locks, interrupts, switches) first wait
//! until no other CPU is behind, so they happen in the order of modelled time; the slack is shorter than an interrupt
//! takes to arrive, so none arrives in a CPU's past. Ties go to the lower CPU number. Nothing depends on the host.
//!
//! In a *seeded* schedule time does not order CPUs: at every call the driver picks one at random, from the seed. That
//! visits interleavings that no cost model would produce, and is what the tests of races run on.
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

mod driver;
mod events;
pub(crate) mod held;
pub(crate) mod inner;
mod options;
mod run_error;
pub(crate) mod turns;
mod waits;
pub(crate) mod watched;

pub use driver::Scope;
pub use events::{Event, EventKind};
pub use held::{LockCircle, LockWait};
pub use inner::SLACK_CYCLES;
pub use options::{Options, Schedule};
pub use run_error::RunError;
pub use waits::{Awaited, Wait, Waits};
pub use watched::{Doing, Spent, Watched};

use crate::account::Snapshot;
use crate::cache::power_on::PoweredOn;
use crate::config::MachineConfig;
use crate::dev::handle::{ModelAudio, ModelDisk};
use crate::hw::{CpuState, Hw};
use crate::lock::ModelLock;
use crate::machine::events::Events;
use crate::machine::inner::{Inner, Routine, Thread};
use crate::mmu::oracle::StaleUse;
use crate::params::Params;
use crate::sourced::Fault;
use crate::trace::{Recorder, Recording, Trace};
use corosensei::stack::DefaultStack;
use pageferry_hal::{
    Access, Asid, Audio, Block, BlockDevice, BlockRegister, Board, Cause, Context, ContextId, CopyFault,
    Counter, CpuId, CpuSet, Crossing, Cycles, Devices, Flow, FlowStep, Flush, HashTable, Instructions,
    Interrupt, Level, LockClass, Machine, Mode, Pa, Path, Reference, Refill, Slot, SpaceId, StructVa, Tte,
    Va, Width,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;

/// Bytes of a context's stack on the host.
const STACK_BYTES: usize = 512 << 10;

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

    fn of(config: &MachineConfig, caches: Option<PoweredOn>, options: Options) -> Model {
        let (params, board) = (Params::from_config(config), config.board());
        let rng = match options.schedule {
            Schedule::Timed => None,
            Schedule::Seeded(seed) => Some(ChaCha8Rng::seed_from_u64(seed)),
        };
        let cpus = params.cpus;
        Model(Rc::new(Inner {
            hw: RefCell::new(Hw::new(params, caches, options.tolerate_stale)),
            contexts: RefCell::default(),
            handler: RefCell::default(),
            refill: RefCell::default(),
            board,
            text: Cell::new(None),
            cpu: Cell::new(0),
            context: Cell::new(0),
            current: RefCell::new(vec![usize::MAX; cpus]),
            others_at: Cell::new(u64::MAX),
            seeded: rng.is_some(),
            options,
            failure: RefCell::default(),
            waits: RefCell::new(vec![None; cpus]),
            spins_for: RefCell::new(vec![None; cpus]),
            in_vain: Cell::new(0),
            events: RefCell::new(Events::with_room(options.keep_events)),
            rng: RefCell::new(rng),
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
        let result = catch_unwind(AssertUnwindSafe(|| self.0.drive()));
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

    /// Begins to record where the time goes, what moves, and how much there is of what.
    pub fn record(&self, recording: Recording) {
        let mut hw = self.0.hw.borrow_mut();
        hw.recorder = Some(Box::new(Recorder::new(hw.cpus.len(), recording)));
    }

    /// What was recorded since [`Model::record`], which ends.
    pub fn take_trace(&self) -> Option<Trace> {
        let recorder = self.0.hw.borrow_mut().recorder.take()?;
        let contexts = self.0.contexts.borrow().iter().map(|c| c.name.clone()).collect();
        Some(recorder.finish(contexts))
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
            if hw.oracle.open_windows() > 0 {
                return Err(format!("{} windows were never closed", hw.oracle.open_windows()));
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

    /// Looks at the kernel from outside, in the middle of a run: what `look` does with locks is neither charged nor ordered.
    /// For checks in user mode, while no other CPU can be in the middle of something that is looked at.
    pub fn inspect<R>(&self, look: impl FnOnce() -> R) -> R {
        let was_running = self.0.running.replace(false);
        let result = look();
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

    /// What is on this board beside processors and memory. A disk that is asked for can be had once or many times: all are
    /// the same disk.
    pub fn devices(&self) -> Devices {
        let hw = self.0.hw.borrow();
        let disk =
            hw.params.disk.is_some().then(|| Box::new(ModelDisk(self.0.clone())) as Box<dyn BlockDevice>);
        let audio = hw.params.audio.is_some().then(|| Box::new(ModelAudio(self.0.clone())) as Box<dyn Audio>);
        Devices { disk, audio }
    }

    /// The most entries that the kernel's addresses had in the TLBs of one CPU, in a [sample](crate::account::SAMPLE_CYCLES)
    /// since this was asked last.
    pub fn take_most_kernel_entries(&self) -> usize {
        std::mem::take(&mut self.0.hw.borrow_mut().most_kernel_entries)
    }

    /// Entries in the TLB of a CPU's core.
    pub fn tlb_entries(&self, cpu: CpuId) -> usize {
        self.0.hw.borrow().tlb_live(cpu.index())
    }
}

/// A window that the oracle holds open for a flush.
#[derive(Debug)]
pub struct FlushWindow(u32);

impl Machine for Model {
    type Lock<T: 'static> = ModelLock<T>;
    type Scope = Scope;
    type FlushWindow = FlushWindow;

    const ACCOUNTING: bool = true;

    fn board(&self) -> Board {
        self.0.board
    }

    fn cpus(&self) -> CpuSet {
        CpuSet::first(self.0.board.cpus)
    }

    fn cpu(&self) -> CpuId {
        CpuId(self.0.cpu() as u8)
    }

    fn now(&self) -> Cycles {
        Cycles(self.0.clock())
    }

    fn scope(&self, cause: Cause) -> Scope {
        self.0.scope(cause)
    }

    #[inline]
    #[track_caller]
    fn execute(&self, path: impl Into<Path>) {
        let path = path.into();
        self.0.poll();
        if let Some(text) = path.text {
            self.0.fetch_text(Location::caller(), text.get(), path.instructions);
        }
        self.0.step(|hw, cpu| {
            hw.execute(cpu, path.instructions);
            hw.did(cpu, Doing::Executes(path));
        });
    }

    fn set_text(&self, at: StructVa) {
        self.0.text.set(Some(at.0));
    }

    fn count(&self, counter: Counter, n: u64) {
        self.0.step(|hw, cpu| {
            hw.counters[counter.index()] += n;
            let at = hw.cpus[cpu].clock;
            if let Some(recorder) = &mut hw.recorder {
                recorder.count(at, counter, n);
            }
        });
    }

    fn trace_flow(&self, flow: Flow, step: FlowStep) {
        let mut hw = self.0.hw.borrow_mut();
        let (cpu, context) = (self.0.cpu.get(), self.0.context.get());
        let at = hw.cpus[cpu].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.step(cpu, at, context, flow, step);
        }
    }

    fn trace_level(&self, level: Level, change: i64) {
        let mut hw = self.0.hw.borrow_mut();
        let at = hw.cpus[self.0.cpu.get()].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.level(at, level, change);
        }
    }

    fn is_traced(&self) -> bool {
        self.0.hw.borrow().recorder.is_some()
    }

    #[track_caller]
    fn touch(&self, at: StructVa, len_bytes: usize, access: Access) {
        if !self.0.running.get() {
            // Looked at from outside: nothing is accounted, and nothing missed.
            return;
        }
        let mut lines = 0;
        let by = Location::caller();
        let touched = self.0.access(by, |hw, cpu| hw.touch(cpu, at.0, len_bytes, access, &mut lines));
        touched.unwrap_or_else(|trap| panic!("a kernel structure is not mapped: {trap}"));
        self.0.step(|hw, cpu| hw.did(cpu, Doing::Touches(at.0, access)));
    }

    fn cross(&self, crossing: Crossing) {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let cycles = match crossing {
                Crossing::SyscallEnter => hw.params.syscall_enter,
                Crossing::SyscallExit => hw.params.syscall_exit,
                Crossing::TrapEnter => hw.params.trap_enter,
                Crossing::TrapExit => hw.params.trap_exit,
            };
            hw.charge(cpu, cycles);
        });
    }

    fn new_lock<T: 'static>(&self, class: LockClass, value: T) -> ModelLock<T> {
        ModelLock::new(self.0.clone(), class, value)
    }

    #[track_caller]
    fn load(&self, mode: Mode, from: Va, buf: &mut [u8]) -> Result<(), CopyFault> {
        let len = buf.len();
        self.0.by_parts(Location::caller(), EventKind::Load(from, len), len, |hw, cpu, done, deadline| {
            let (pa, n) = hw.stream(cpu, from + done, len - done, Access::Read, mode, deadline)?;
            hw.memory.read(pa, &mut buf[done..done + n]);
            Ok(n)
        })
    }

    #[track_caller]
    fn store(&self, mode: Mode, to: Va, bytes: &[u8]) -> Result<(), CopyFault> {
        self.0.by_parts(
            Location::caller(),
            EventKind::Store(to, bytes.len()),
            bytes.len(),
            |hw, cpu, done, deadline| {
                let (pa, n) = hw.stream(cpu, to + done, bytes.len() - done, Access::Write, mode, deadline)?;
                hw.memory.bytes_mut(pa, n).copy_from_slice(&bytes[done..done + n]);
                Ok(n)
            },
        )
    }

    #[track_caller]
    fn fetch(&self, mode: Mode, at: Va, path: Instructions) -> Result<(), CopyFault> {
        if !self.0.board.fetches {
            self.execute(path);
            return Ok(());
        }
        let bytes = self.0.board.instruction_bytes as usize;
        let len = path.0 as usize * bytes;
        let executed =
            self.0.by_parts(Location::caller(), EventKind::Fetch(at, len), len, |hw, cpu, done, deadline| {
                let n = hw.fetch(cpu, at + done, len - done, mode, deadline)?;
                hw.execute(cpu, Instructions(((done + n) / bytes - done / bytes) as u32));
                Ok(n)
            });
        // An instruction that crosses into a page that is refused begins anew.
        executed.map_err(|fault| CopyFault { done_bytes: fault.done_bytes / bytes * bytes, ..fault })
    }

    #[track_caller]
    fn refer(&self, references: &mut [Reference]) -> Result<(), CopyFault> {
        let what = EventKind::Refers(references.len());
        self.0.by_parts(Location::caller(), what, references.len(), |hw, cpu, done, deadline| {
            hw.refer(cpu, &mut references[done..], deadline)
        })
    }

    #[track_caller]
    fn copy_in(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.0.within_user(from, len_bytes, Access::Read)?;
        self.copy_kernel(to, from, len_bytes)
    }

    #[track_caller]
    fn copy_out(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.0.within_user(to, len_bytes, Access::Write)?;
        self.copy_kernel(to, from, len_bytes)
    }

    #[track_caller]
    fn copy_kernel(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        let what = EventKind::Copy { to, from, len_bytes };
        let mut registers = Vec::new();
        self.0.by_parts(Location::caller(), what, len_bytes, |hw, cpu, done, deadline| {
            hw.copy(cpu, (to + done, from + done), len_bytes - done, deadline, &mut registers)
        })
    }

    #[track_caller]
    fn touch_register(&self, at: Va, access: Access) {
        let by = Location::caller();
        self.0.poll();
        let touched = self.0.access(by, |hw, cpu| {
            let found = hw.translate(cpu, at, Mode::Kernel, access)?;
            assert!(found.pa.pfn().index() >= hw.params.frames, "{at:?} is no register of a device");
            let cycles = hw.params.register;
            hw.charge(cpu, cycles);
            Ok(())
        });
        touched.unwrap_or_else(|trap| panic!("a register of a device is not mapped: {trap}"));
    }

    #[track_caller]
    fn zero(&self, to: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.0.by_parts(
            Location::caller(),
            EventKind::Store(to, len_bytes),
            len_bytes,
            |hw, cpu, done, deadline| {
                let (pa, n) =
                    hw.stream(cpu, to + done, len_bytes - done, Access::Write, Mode::Kernel, deadline)?;
                hw.memory.clear(pa, n);
                Ok(n)
            },
        )
    }

    fn pt_load(&self, at: Pa, width: Width) -> u64 {
        self.0.poll();
        self.0.step(|hw, cpu| hw.pt_load(cpu, at, width))
    }

    fn pt_store(&self, at: Pa, width: Width, value: u64) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.pt_store(cpu, at, width, value));
    }

    fn pt_swap(&self, at: Pa, width: Width, value: u64) -> u64 {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let old = hw.pt_load(cpu, at, width);
            hw.pt_store(cpu, at, width, value);
            old
        })
    }

    fn pt_replace(&self, at: Pa, width: Width, old: u64, new: u64) -> Result<(), u64> {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let found = hw.pt_load(cpu, at, width);
            if found != old {
                return Err(found);
            }
            hw.pt_store(cpu, at, width, new);
            Ok(())
        })
    }

    fn pt_clear(&self, at: Pa) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.clear_frame(cpu, at));
    }

    fn flush_line(&self, at: Pa) {
        self.0.step(|hw, _| hw.flush_line(at));
    }

    #[track_caller]
    fn mapping_changed(
        &self,
        space: SpaceId,
        va: Va,
        old: Option<Tte>,
        new: Option<Tte>,
        window: Option<&FlushWindow>,
    ) {
        let by = Location::caller();
        self.0.note(EventKind::Maps { space, va, old, new }, Some(by));
        self.0.step(|hw, cpu| hw.mapping_changed(cpu, (space, va), old, new, window.map(|w| w.0), by));
    }

    fn open_flush_window(&self) -> FlushWindow {
        FlushWindow(self.0.step(|hw, _| hw.oracle.open()))
    }

    #[track_caller]
    fn close_flush_window(&self, window: FlushWindow) {
        self.0.note(EventKind::ClosesWindow, Some(Location::caller()));
        self.0.step(|hw, _| hw.oracle.close(window.0));
    }

    fn activate(&self, context: Context) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.activate(cpu, context));
    }

    #[track_caller]
    fn tlb_flush(&self, what: Flush) {
        self.0.poll();
        self.0.note(EventKind::Flushes(what), Some(Location::caller()));
        self.0.step(|hw, cpu| hw.tlb_flush(cpu, what));
    }

    fn tlb_load(&self, slot: Slot, asid: Asid, va: Va, tte: Tte) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.tlb_load(cpu, slot, asid, va, tte));
    }

    fn tlb_reserve(&self, entries: usize) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.tlb_reserve(cpu, entries));
    }

    fn block_set(&self, register: BlockRegister, block: Option<Block>) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.block_set(cpu, register, block));
    }

    fn translate_refill(&self, on: bool) {
        self.0.step(|hw, cpu| {
            let c = &mut hw.cpus[cpu];
            assert!(c.refills > 0, "only a refill handler works with physical addresses");
            c.untranslated = !on;
        });
    }

    fn refill_depth(&self) -> u32 {
        self.0.step(|hw, cpu| hw.cpus[cpu].refills)
    }

    fn set_hash_table(&self, table: HashTable) {
        let bytes = (table.groups * pageferry_hal::isa::hash::GROUP_BYTES) as u64;
        assert!(
            bytes.is_power_of_two() && table.at.0.is_multiple_of(bytes),
            "{table:?} is not aligned to its size"
        );
        let old = self.0.step(|hw, _| hw.hash_table.replace(table));
        assert!(old.is_none(), "the hash table is set once");
    }

    fn set_refill(&self, refill: Refill) {
        let old = self.0.refill.borrow_mut().replace(Rc::from(refill));
        assert!(old.is_none(), "the refill handler is set once");
    }

    #[track_caller]
    fn send_ipi(&self, to: CpuSet, interrupt: Interrupt) {
        self.0.sync();
        self.0.note(EventKind::Sends(interrupt, to), Some(Location::caller()));
        self.0.step(|hw, me| {
            let mut to = to;
            to.remove(CpuId(me as u8));
            assert!(
                CpuSet::first(hw.params.cpus).covers(to),
                "an interrupt for CPUs that do not exist: {to:?}"
            );
            if to.is_empty() {
                return;
            }
            let send = hw.params.ipi_send;
            hw.charge(me, send);
            let now = hw.cpus[me].clock;
            for target in to.iter().map(CpuId::index) {
                let same = hw.cpus[target].package == hw.cpus[me].package;
                let arrival =
                    now + if same { hw.params.ipi_same_package } else { hw.params.ipi_other_package };
                hw.interrupt_at(target, arrival, interrupt);
                hw.counts.ipis_sent += 1;
                let c = &hw.cpus[target];
                if c.state == CpuState::Halted {
                    self.0.others_at.set(self.0.others_at.get().min(arrival.max(c.clock)));
                }
            }
        });
    }

    #[track_caller]
    fn spin_until(&self, done: &mut dyn FnMut() -> bool) {
        self.0.poll();
        let started = self.0.clock();
        if done() {
            return;
        }
        let before = self.0.begin_wait(Awaited::Condition, Location::caller());
        loop {
            self.0.wait(None);
            if done() {
                break;
            }
        }
        self.0.end_wait(before);
        if !self.0.seeded() {
            // What a handler wrote is seen when it was written, not when the host happened to run it.
            self.0.step(|hw, cpu| {
                let behind = hw.handled_at.saturating_sub(hw.cpus[cpu].clock.max(started));
                hw.charge(cpu, behind);
            });
        }
    }

    fn set_timer(&self, at: Option<Cycles>) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.set_timer(cpu, at.map(|at| at.0)));
    }

    fn set_interrupt_handler(&self, handler: Box<dyn Fn(Interrupt)>) {
        let old = self.0.handler.borrow_mut().replace(Rc::from(handler));
        assert!(old.is_none(), "the interrupt handler is set once");
    }

    fn context_new(&self, name: &str, entry: Entry) -> ContextId {
        let mut contexts = self.0.contexts.borrow_mut();
        let index = contexts.len();
        // A weak handle: a context that never runs must not keep the machine alive.
        let inner = Rc::downgrade(&self.0);
        let stack = DefaultStack::new(STACK_BYTES).expect("the host has no memory for a stack");
        let routine = Routine::with_stack(stack, move |yielder, ()| {
            if let Some(inner) = inner.upgrade() {
                inner.contexts.borrow_mut()[index].yielder = yielder;
            }
            entry()
        });
        contexts.push(Thread {
            name: name.into(),
            routine: Some(routine),
            yielder: std::ptr::null(),
            causes: vec![Cause::User],
            held: Vec::new(),
            wants: None,
            on_cpu: None,
            over: false,
        });
        ContextId(u32::try_from(index).expect("fewer than 2^32 contexts"))
    }

    fn context_current(&self) -> ContextId {
        ContextId(self.0.context.get() as u32)
    }

    #[track_caller]
    fn context_switch(&self, to: ContextId) {
        self.0.sync();
        let to = to.0 as usize;
        {
            let contexts = self.0.contexts.borrow();
            let me = &contexts[self.0.context.get()];
            assert!(me.held.is_empty(), "context {} switches while it holds {:?}", me.name, me.held);
            assert!(!contexts[to].over, "a switch to context {}, which is over", contexts[to].name);
        }
        self.0.step(|hw, cpu| {
            let cycles = hw.params.context_switch;
            hw.charge(cpu, cycles);
            hw.counts.switches += 1;
        });
        if to == self.0.context.get() {
            return;
        }
        if self.0.contexts.borrow()[to].on_cpu.is_some() {
            let before = self.0.begin_wait(Awaited::Context, Location::caller());
            while self.0.contexts.borrow()[to].on_cpu.is_some() {
                self.0.wait(None);
            }
            self.0.end_wait(before);
        }
        self.0.note(EventKind::Switches(to as u32), Some(Location::caller()));
        self.0.contexts.borrow_mut()[to].on_cpu = Some(self.0.cpu());
        self.0.current.borrow_mut()[self.0.cpu()] = to;
        self.0.suspend();
        self.0.take_interrupts();
    }

    #[track_caller]
    fn start_cpu(&self, cpu: CpuId, first: ContextId) {
        let now = if self.0.running.get() { self.0.clock() } else { 0 };
        self.0.note(EventKind::Starts(cpu), Some(Location::caller()));
        let mut hw = self.0.hw.borrow_mut();
        assert!(hw.cpus[cpu.index()].state == CpuState::Off, "{cpu:?} runs already");
        hw.idle_to(cpu.index(), now);
        hw.cpus[cpu.index()].state = CpuState::Running;
        hw.take_turn(cpu.index());
        let mut contexts = self.0.contexts.borrow_mut();
        let context = &mut contexts[first.0 as usize];
        assert!(context.on_cpu.is_none() && !context.over, "context {} cannot be started", context.name);
        context.on_cpu = Some(cpu.index());
        self.0.current.borrow_mut()[cpu.index()] = first.0 as usize;
        self.0.others_at.set(self.0.others_at.get().min(now));
    }

    #[track_caller]
    fn idle_until(&self, done: &mut dyn FnMut() -> bool) {
        self.0.sync();
        if done() {
            return;
        }
        let before = self.0.begin_wait(Awaited::Interrupt, Location::caller());
        loop {
            self.0.step(|hw, cpu| hw.cpus[cpu].state = CpuState::Halted);
            self.0.suspend();
            self.0.step(|hw, cpu| {
                let wake = hw.params.halt_wake;
                hw.charge_to(cpu, Cause::Idle, wake);
            });
            self.0.take_interrupts();
            if done() {
                break;
            }
            self.0.tested_in_vain();
        }
        self.0.end_wait(before);
    }
}
