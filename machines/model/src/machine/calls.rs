//! What the kernel calls on a modelled machine: each call accounts, waits its turn, and is one step on the hardware or
//! several. What only accounts, judges, records, or is there on some machines, is in rooms of its own.

mod account;
mod oracle;
mod recorder;
mod tlb;

pub use oracle::FlushWindow;

use super::{Entry, Model, STACK_BYTES};
use crate::hw::CpuState;
use crate::hw::priced::Work;
use crate::lock::ModelLock;
use crate::machine::event::EventKind;
use crate::machine::inner::{Routine, Thread};
use crate::machine::wait::WaitCause;
use crate::mmu::access::Exception;
use corosensei::stack::DefaultStack;
use pageferry_hal::{
    Access, Account, Board, Cause, Context, ContextId, CopyFault, CpuId, CpuSet, Cycles, Flush, Instructions,
    Interrupt, LockClass, Machine, Mode, Pa, Reference, Va, Width,
};
use std::cell::Cell;
use std::panic::Location;
use std::rc::Rc;

impl Machine for Model {
    type Lock<T: 'static> = ModelLock<T>;

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
        if self.0.options.stalls.is_some() {
            self.0.step(|hw, cpu| hw.stall(cpu));
        }
        Cycles(self.0.clock())
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
        // Made in this part before the one that was refused: a miss is taken up where it was, and is one miss.
        let made = Cell::new(0);
        let all = self.0.by_parts(Location::caller(), what, references.len(), |hw, cpu, done, deadline| {
            let mut n = made.take();
            // One that was refused ends the part when it is made: the next may miss too.
            let end = if n > 0 { done + n + 1 } else { references.len() };
            match hw.refer(cpu, &mut references[done..end], &mut n, deadline) {
                Ok(()) => Ok(n),
                Err(Exception::Trap(_)) if n > 0 => Ok(n),
                Err(refused) => {
                    made.set(n);
                    Err(refused)
                }
            }
        });
        all.map_err(|fault| CopyFault { done_bytes: fault.done_bytes + made.get(), ..fault })
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
                let way = if same { hw.params.ipi_same_package } else { hw.params.ipi_other_package };
                let arrival = hw.delayed(now + way);
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
        let before = self.0.begin_wait(WaitCause::Condition, Location::caller());
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
        self.0.pulse.name_context(name);
        if let Some(recorder) = &mut self.0.hw.borrow_mut().recorder {
            recorder.context(name);
        }
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
            hw.charge_work(cpu, Work::Switches, cycles);
            hw.counts.switches += 1;
        });
        if to == self.0.context.get() {
            return;
        }
        if self.0.contexts.borrow()[to].on_cpu.is_some() {
            let before = self.0.begin_wait(WaitCause::Context, Location::caller());
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
        let before = self.0.begin_wait(WaitCause::Interrupt, Location::caller());
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
