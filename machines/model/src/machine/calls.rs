//! What the kernel calls on a modelled machine: each call accounts, waits its turn, and is one step on the hardware or
//! several.

use super::{Entry, Model, STACK_BYTES};
use crate::hw::CpuState;
use crate::lock::ModelLock;
use crate::machine::driver::Scope;
use crate::machine::event::EventKind;
use crate::machine::inner::{Routine, Thread};
use crate::machine::wait::Awaited;
use crate::watch::Doing;
use corosensei::stack::DefaultStack;
use pageferry_hal::{
    Access, Asid, Attachment, Block, BlockRegister, Board, Cause, Context, ContextId, CopyFault, Counter,
    CpuId, CpuSet, Crossing, Cycles, Flow, FlowStep, Flush, HashTable, Instructions, Interrupt, Level,
    LockClass, Machine, Mode, Pa, Path, Reference, Refill, Slot, SpaceId, StructVa, Tte, Va, Width,
};
use std::panic::Location;
use std::rc::Rc;

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

    fn trace_process(&self, number: u32, name: &str) {
        let mut hw = self.0.hw.borrow_mut();
        if let Some(recorder) = &mut hw.recorder {
            recorder.process(number, name, self.0.context.get());
        }
    }

    fn trace_attached(&self, process: u32, attachment: Attachment) {
        let mut hw = self.0.hw.borrow_mut();
        let at = hw.cpus[self.0.cpu.get()].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.attached(at, process, attachment);
        }
    }

    fn trace_detached(&self, process: u32, at: Va) {
        let mut hw = self.0.hw.borrow_mut();
        let now = hw.cpus[self.0.cpu.get()].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.detached(now, process, at);
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

    fn dcache_purge(&self, at: Pa, colour: u32) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.purge(cpu, at, colour));
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

    #[track_caller]
    fn tlb_load(&self, slot: Slot, asid: Asid, va: Va, tte: Tte) {
        self.0.poll();
        let by = Location::caller();
        self.0.step(|hw, cpu| hw.tlb_load(cpu, slot, asid, va, tte, by));
    }

    fn tlb_random(&self) -> usize {
        self.0.step(|hw, cpu| hw.tlb_random(cpu))
    }

    fn tlb_search(&self, asid: Asid, va: Va) -> Option<usize> {
        self.0.poll();
        self.0.step(|hw, cpu| hw.tlb_search(cpu, asid, va))
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
            let in_handler = self.0.hw.borrow().cpus[self.0.cpu()].in_handler;
            assert!(!in_handler, "an interrupt handler switches from context {}", me.name);
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
        let cpus = hw.params.cpus;
        assert!(
            cpu.index() < cpus,
            "{cpu:?} is to be started, but this machine has {cpus} CPUs, numbered from 0"
        );
        assert!(hw.cpus[cpu.index()].state == CpuState::Off, "{cpu:?} runs already");
        hw.idle_to(cpu.index(), now);
        hw.cpus[cpu.index()].state = CpuState::Running;
        hw.take_turn(cpu.index());
        let mut contexts = self.0.contexts.borrow_mut();
        let context = &mut contexts[first.0 as usize];
        context.check_free(cpu);
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
        self.0.check_halt(Location::caller());
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
