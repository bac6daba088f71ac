//! [`Machine`] for a tap. Each call is made as written here: turn, call, turn over, event. No closures around them: the
//! place of the caller would be lost, by which a modelled machine names who did something wrong.

use super::event::{Event, EventKind as Kind};
use super::lock::TapLock;
use super::turn::Call;
use super::{Sink, Tap};
use crate::account::{Account, Crossing};
use crate::addr::{Pa, Pfn, Va};
use crate::arena::StructVa;
use crate::board::Board;
use crate::cause::Cause;
use crate::cpu::{CpuId, CpuSet};
use crate::flow::{Attachment, Flow, FlowStep, Level};
use crate::lock::{LockClass, LockCosts};
use crate::machine::{ContextId, Interrupt, Machine};
use crate::memory_use::MemoryUse;
use crate::metric::Metric;
use crate::mmu::{Asid, Block, BlockRegister, Context, Flush, HashTable, Slot, SpaceId, Tte, Width};
use crate::oracle::Oracle;
use crate::path::CodePath;
use crate::recorder::Recorder;
use crate::time::{Cycles, Instructions};
use crate::tlb::{Refill, Tlb};
use crate::trap::{Access, CopyFault, Mode};
use alloc::boxed::Box;

impl<M: Machine, S: Sink> Tap<M, S> {
    /// The end of a call that goes to data.
    fn data(&self, kind: Kind, words: [u64; Event::WORDS], done: &Result<(), CopyFault>) {
        self.end(Call::Data);
        self.tell(kind, words);
        if let Err(fault) = done {
            self.tell(Kind::Fault, Event::fault(fault));
        }
    }
}

impl<M: Machine, S: Sink> Machine for Tap<M, S> {
    type Lock<T: 'static> = TapLock<M, S, T>;

    fn board(&self) -> Board {
        self.machine.board()
    }

    fn cpu(&self) -> CpuId {
        self.machine.cpu()
    }

    fn now(&self) -> Cycles {
        let turn = self.begin(Call::Now);
        let now = turn.map_or_else(|| self.machine.now(), |turn| Cycles(turn.value));
        self.sink.returns(self.machine.cpu(), Call::Now, now.0);
        self.tell(Kind::Now, [now.0, 0, 0, 0, 0]);
        now
    }

    fn new_lock<T: 'static>(&self, class: LockClass, value: T) -> TapLock<M, S, T> {
        TapLock { lock: self.machine.new_lock(class, value), tap: self.clone() }
    }

    #[track_caller]
    fn load(&self, mode: Mode, from: Va, buf: &mut [u8]) -> Result<(), CopyFault> {
        self.begin(Call::Data);
        let done = self.machine.load(mode, from, buf);
        let loaded = done.as_ref().map_or_else(|fault| fault.done_bytes, |()| buf.len());
        let sum = Event::sum(&buf[..loaded]);
        self.data(Kind::Load, [from.0, buf.len() as u64, Event::mode(mode), sum, 0], &done);
        done
    }

    #[track_caller]
    fn store(&self, mode: Mode, to: Va, bytes: &[u8]) -> Result<(), CopyFault> {
        self.begin(Call::Data);
        let done = self.machine.store(mode, to, bytes);
        let words = [to.0, bytes.len() as u64, Event::mode(mode), Event::sum(bytes), 0];
        self.data(Kind::Store, words, &done);
        done
    }

    #[track_caller]
    fn fetch(&self, mode: Mode, at: Va, path: Instructions) -> Result<(), CopyFault> {
        self.begin(Call::Account);
        let done = self.machine.fetch(mode, at, path);
        self.end(Call::Account);
        if let Err(fault) = &done {
            self.tell(Kind::Fault, Event::fault(fault));
        }
        done
    }

    #[track_caller]
    fn copy_in(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.begin(Call::Data);
        let done = self.machine.copy_in(to, from, len_bytes);
        self.data(Kind::CopyIn, [to.0, from.0, len_bytes as u64, 0, 0], &done);
        done
    }

    #[track_caller]
    fn copy_out(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.begin(Call::Data);
        let done = self.machine.copy_out(to, from, len_bytes);
        self.data(Kind::CopyOut, [to.0, from.0, len_bytes as u64, 0, 0], &done);
        done
    }

    #[track_caller]
    fn copy_kernel(&self, to: Va, from: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.begin(Call::Data);
        let done = self.machine.copy_kernel(to, from, len_bytes);
        self.data(Kind::CopyKernel, [to.0, from.0, len_bytes as u64, 0, 0], &done);
        done
    }

    #[track_caller]
    fn zero(&self, to: Va, len_bytes: usize) -> Result<(), CopyFault> {
        self.begin(Call::Data);
        let done = self.machine.zero(to, len_bytes);
        self.data(Kind::Zero, [to.0, len_bytes as u64, 0, 0, 0], &done);
        done
    }

    fn pt_load(&self, at: Pa, width: Width) -> u64 {
        self.begin(Call::Table);
        let value = self.machine.pt_load(at, width);
        self.end(Call::Table);
        self.tell(Kind::PtLoad, [at.0, value, 0, 0, 0]);
        value
    }

    fn pt_store(&self, at: Pa, width: Width, value: u64) {
        self.begin(Call::Table);
        self.machine.pt_store(at, width, value);
        self.end(Call::Table);
        self.tell(Kind::PtStore, [at.0, value, 0, 0, 0]);
    }

    fn pt_swap(&self, at: Pa, width: Width, value: u64) -> u64 {
        self.begin(Call::Table);
        let old = self.machine.pt_swap(at, width, value);
        self.end(Call::Table);
        self.tell(Kind::PtSwap, [at.0, value, old, 0, 0]);
        old
    }

    fn pt_replace(&self, at: Pa, width: Width, old: u64, new: u64) -> Result<(), u64> {
        self.begin(Call::Table);
        let replaced = self.machine.pt_replace(at, width, old, new);
        self.end(Call::Table);
        self.tell(Kind::PtReplace, [at.0, old, new, replaced.err().unwrap_or(old), 0]);
        replaced
    }

    fn pt_clear(&self, at: Pa) {
        self.begin(Call::Table);
        self.machine.pt_clear(at);
        self.end(Call::Table);
        self.tell(Kind::PtClear, [at.0, 0, 0, 0, 0]);
    }

    fn activate(&self, context: Context) {
        self.begin(Call::Tlb);
        self.machine.activate(context);
        self.end(Call::Tlb);
        let Context { space, root, asid, keep } = context;
        self.tell(Kind::Activate, [space.0.into(), root.0, asid.0.into(), keep.into(), 0]);
    }

    #[track_caller]
    fn tlb_flush(&self, what: Flush) {
        self.begin(Call::Tlb);
        self.machine.tlb_flush(what);
        self.end(Call::Tlb);
        self.tell(Kind::Flush, Event::flush(what));
    }

    #[track_caller]
    fn send_ipi(&self, to: CpuSet, interrupt: Interrupt) {
        self.begin(Call::Send);
        self.machine.send_ipi(to, interrupt);
        self.end(Call::Send);
        let cpus = to.iter().fold(0, |cpus, cpu| cpus | 1 << cpu.0);
        self.tell(Kind::Send, [Event::interrupt(interrupt), cpus, 0, 0, 0]);
    }

    #[track_caller]
    fn spin_until(&self, done: &mut dyn FnMut() -> bool) {
        match self.begin(Call::Spin) {
            Some(_) => self.sink.finds(self.machine.cpu(), Call::Spin, done()),
            None => self.machine.spin_until(done),
        }
        self.end(Call::Spin);
    }

    fn set_timer(&self, at: Option<Cycles>) {
        self.begin(Call::Timer);
        if self.sink.sets_timer() {
            self.machine.set_timer(at);
        }
        self.end(Call::Timer);
        self.tell(Kind::SetTimer, [at.map_or(u64::MAX, |at| at.0), 0, 0, 0, 0]);
    }

    fn set_interrupt_handler(&self, handler: Box<dyn Fn(Interrupt)>) {
        let tap = self.clone();
        let told = move |interrupt| {
            tap.tell(Kind::Handle, [Event::interrupt(interrupt), 0, 0, 0, 0]);
            handler(interrupt);
            tap.tell(Kind::Return, [Event::interrupt(interrupt), 0, 0, 0, 0]);
        };
        self.machine.set_interrupt_handler(self.sink.handles(Box::new(told)));
    }

    fn context_new(&self, name: &str, entry: Box<dyn FnOnce() -> Option<ContextId>>) -> ContextId {
        let tap = self.clone();
        let told = move || {
            tap.begin(Call::Begin);
            tap.end(Call::Begin);
            tap.tell(Kind::ContextBegin, [tap.machine.context_current().0.into(), 0, 0, 0, 0]);
            let next = entry();
            tap.sink.leaves(tap.machine.cpu());
            next
        };
        let context = self.machine.context_new(name, Box::new(told));
        self.tell(Kind::ContextNew, [context.0.into(), 0, 0, 0, 0]);
        context
    }

    fn context_current(&self) -> ContextId {
        self.machine.context_current()
    }

    #[track_caller]
    fn context_switch(&self, to: ContextId) {
        self.begin(Call::Leave);
        // To nobody: for a modelled machine to change CPUs here, where it must.
        self.machine.send_ipi(CpuSet::EMPTY, Interrupt::Reschedule);
        self.end(Call::Leave);
        self.tell(Kind::ContextSwitch, [to.0.into(), 0, 0, 0, 0]);
        self.sink.leaves(self.machine.cpu());
        self.machine.context_switch(to);
        self.begin(Call::GoOn);
        self.end(Call::GoOn);
    }

    #[track_caller]
    fn start_cpu(&self, cpu: CpuId, first: ContextId) {
        self.machine.start_cpu(cpu, first);
        self.tell(Kind::StartCpu, [cpu.0.into(), first.0.into(), 0, 0, 0]);
    }

    #[track_caller]
    fn idle_until(&self, done: &mut dyn FnMut() -> bool) {
        match self.begin(Call::Idle) {
            Some(_) => self.sink.finds(self.machine.cpu(), Call::Idle, done()),
            None => self.machine.idle_until(done),
        }
        self.end(Call::Idle);
    }
}

impl<M: Machine, S: Sink> Account for Tap<M, S> {
    type Scope = M::Scope;

    /// On any machine, so that what is counted is told on all.
    const ACCOUNTING: bool = true;

    fn scope(&self, cause: Cause) -> M::Scope {
        self.machine.scope(cause)
    }

    #[track_caller]
    fn execute(&self, path: impl Into<CodePath>) {
        self.begin(Call::Account);
        self.machine.execute(path);
        self.end(Call::Account);
    }

    fn set_text(&self, at: StructVa) {
        self.machine.set_text(at);
    }

    fn set_use(&self, at: Va, len_bytes: usize, what: MemoryUse) {
        self.machine.set_use(at, len_bytes, what);
    }

    fn set_direct_map(&self, at: Va, frames: usize) {
        self.machine.set_direct_map(at, frames);
    }

    fn set_frame_use(&self, frame: Pfn, what: MemoryUse) {
        self.machine.set_frame_use(frame, what);
    }

    fn count(&self, counter: impl Into<Metric>, n: u64) {
        let metric = counter.into();
        self.machine.count(metric, n);
        self.tell(Kind::Count, [metric.index() as u64, n, 0, 0, 0]);
    }

    fn count_at(&self, counter: impl Into<Metric>, at: Va, n: u64) {
        let metric = counter.into();
        self.machine.count_at(metric, at, n);
        self.tell(Kind::Count, [metric.index() as u64, n, 0, 0, 0]);
    }

    #[track_caller]
    fn touch(&self, at: StructVa, len_bytes: usize, access: Access) {
        self.machine.touch(at, len_bytes, access);
    }

    #[track_caller]
    fn touch_register(&self, at: Va, access: Access) {
        self.begin(Call::Account);
        self.machine.touch_register(at, access);
        self.end(Call::Account);
    }

    fn touch_timer(&self, accesses: u32) {
        self.begin(Call::Account);
        self.machine.touch_timer(accesses);
        self.end(Call::Account);
    }

    fn set_locks(&self, costs: LockCosts) {
        self.machine.set_locks(costs);
    }

    fn cross(&self, crossing: Crossing) {
        self.begin(Call::Account);
        self.machine.cross(crossing);
        self.end(Call::Account);
        self.tell(Kind::Cross, [crossing as u64, 0, 0, 0, 0]);
    }
}

impl<M: Machine, S: Sink> Oracle for Tap<M, S> {
    type FlushWindow = M::FlushWindow;

    #[track_caller]
    fn mapping_changed(
        &self,
        space: SpaceId,
        va: Va,
        old: Option<Tte>,
        new: Option<Tte>,
        window: Option<&M::FlushWindow>,
    ) {
        self.machine.mapping_changed(space, va, old, new, window);
        self.tell(Kind::Mapping, [space.0.into(), va.0, Event::tte(old), Event::tte(new), 0]);
    }

    fn sleeps_next(&self) {
        self.machine.sleeps_next();
    }

    fn open_flush_window(&self) -> M::FlushWindow {
        self.machine.open_flush_window()
    }

    #[track_caller]
    fn close_flush_window(&self, window: M::FlushWindow) {
        self.machine.close_flush_window(window);
        self.tell(Kind::CloseWindow, [0; Event::WORDS]);
    }
}

impl<M: Machine, S: Sink> Recorder for Tap<M, S> {
    fn trace_flow(&self, flow: Flow, step: FlowStep) {
        self.machine.trace_flow(flow, step);
    }

    fn trace_level(&self, level: Level, change: i64) {
        self.machine.trace_level(level, change);
    }

    fn trace_process(&self, number: u32, name: &str) {
        self.machine.trace_process(number, name);
    }

    fn trace_attached(&self, process: u32, attachment: Attachment) {
        self.machine.trace_attached(process, attachment);
    }

    fn trace_detached(&self, process: u32, at: Va) {
        self.machine.trace_detached(process, at);
    }

    fn is_traced(&self) -> bool {
        self.machine.is_traced()
    }

    fn flush_line(&self, at: Pa) {
        self.machine.flush_line(at);
    }
}

/// What amd64 has not is passed on, and is no turn: these runs are of machines that walk page tables.
impl<M: Machine, S: Sink> Tlb for Tap<M, S> {
    #[track_caller]
    fn tlb_load(&self, slot: Slot, asid: Asid, va: Va, tte: Tte) {
        self.machine.tlb_load(slot, asid, va, tte);
    }

    fn tlb_random(&self) -> usize {
        self.machine.tlb_random()
    }

    fn tlb_search(&self, asid: Asid, va: Va) -> Option<usize> {
        self.machine.tlb_search(asid, va)
    }

    fn tlb_reserve(&self, entries: usize) {
        self.machine.tlb_reserve(entries);
    }

    fn block_set(&self, register: BlockRegister, block: Option<Block>) {
        self.machine.block_set(register, block);
    }

    fn set_hash_table(&self, table: HashTable) {
        self.machine.set_hash_table(table);
    }

    fn set_refill(&self, refill: Refill) {
        self.machine.set_refill(refill);
    }

    fn translate_refill(&self, on: bool) {
        self.machine.translate_refill(on);
    }

    fn refill_depth(&self) -> u32 {
        self.machine.refill_depth()
    }

    fn dcache_purge(&self, at: Pa, colour: u32) {
        self.machine.dcache_purge(at, colour);
    }
}
