//! A machine around a machine, which tells what is called: to see that two kinds of machine are used in the same way
//! and answer in the same way.
//!
//! A [`Tap`] makes every call on the machine within, and tells its [`Sink`] of each an [`Event`], with what was asked
//! and what was answered. The code is the same whatever the machine, so two logs of events can be compared line by
//! line. What only declares or counts is told, too. Nothing of it is in a kernel that is not booted on a tap.
//!
//! # Turns
//! On several CPUs the order of events is a matter of chance, unless one run conducts the other. A modelled machine
//! lets one CPU go on at a time, and changes CPUs only within calls; so the order in which calls return, with the
//! interrupts that are handled between them and the contexts that begin, is all that the run of another machine needs
//! to be the same. Each of these is a [`Turn`]. The sink of the modelled machine writes them down as they come. That of
//! the other machine lets a CPU begin a call when it is its turn, and not go on behind it before the turn is over,
//! which it is when the CPU is about to make its next call. [`Sink`] says what either does.
//!
//! * A change of contexts is two turns: the old one is left, and something goes on. A synchronising call comes before,
//!   so that the model changes CPUs there and not in the middle.
//! * An interrupt's handler runs where the schedule has it, however early or late the interrupt itself has come.
//! * What a machine's clock says is part of the turn.
//!
//! Locks and contexts are the inner machine's. A call in which the model changes CPUs between two parts, a long copy,
//! is one turn.

mod event;
mod lock;
mod machine;
mod turn;

pub use event::{Event, EventKind};
pub use lock::TapLock;
pub use turn::{Call, Turn};

use crate::cpu::CpuId;
use crate::machine::{Interrupt, Machine};
use alloc::boxed::Box;

/// What is called for interrupts.
pub type Handler = Box<dyn Fn(Interrupt)>;

/// Who is told of events and turns. By default nobody conducts the run, and turns are nobody's business.
pub trait Sink: Clone + 'static {
    /// A CPU is about to make a call. Where the run is conducted this comes back when it is the CPU's turn to make it,
    /// with the turn; elsewhere at once, with nothing.
    fn begins(&self, cpu: CpuId, call: Call) -> Option<Turn> {
        let _ = (cpu, call);
        None
    }
    /// The call has returned; `value` is what [`Turn::value`] is to be.
    fn returns(&self, cpu: CpuId, call: Call, value: u64) {
        let _ = (cpu, call, value);
    }
    /// Of what the CPU waits for, it was found that it `holds`. Asked where the run is conducted: by then it must.
    fn finds(&self, cpu: CpuId, call: Call, holds: bool) {
        let _ = (cpu, call, holds);
    }
    /// Takes what is to be done about interrupts, and gives what is to be called for them. Where the run is conducted,
    /// that is something else; the sink then calls `handler` when it is the CPU's turn to.
    fn handles(&self, handler: Handler) -> Handler {
        handler
    }
    /// Whether the machine's own timer is to be set.
    fn sets_timer(&self) -> bool {
        true
    }
    /// The CPU leaves its context: it is over, or another one goes on. Until that begins or goes on, which is a turn,
    /// the CPU runs nothing of the kernel; it may have to wait until another CPU has left that context.
    fn leaves(&self, cpu: CpuId) {
        let _ = cpu;
    }
    /// Something was done.
    fn tells(&self, event: Event);
}

/// A machine whose calls are told to a sink. See the [module](self).
#[derive(Clone, Debug)]
pub struct Tap<M, S> {
    machine: M,
    sink: S,
}

impl<M: Machine, S: Sink> Tap<M, S> {
    /// A machine around `machine`.
    pub fn new(machine: M, sink: S) -> Tap<M, S> {
        Tap { machine, sink }
    }

    /// The machine within.
    pub fn inner(&self) -> &M {
        &self.machine
    }

    /// Tells of something that the executing CPU has done.
    fn tell(&self, kind: EventKind, words: [u64; Event::WORDS]) {
        self.sink.tells(Event { cpu: self.machine.cpu(), kind, words });
    }

    /// See [`Sink::begins`].
    fn begin(&self, call: Call) -> Option<Turn> {
        self.sink.begins(self.machine.cpu(), call)
    }

    /// See [`Sink::returns`].
    fn end(&self, call: Call) {
        self.sink.returns(self.machine.cpu(), call, 0);
    }
}
