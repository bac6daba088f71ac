//! The lock of a tap: the inner machine's, taken when it is the CPU's turn. Letting go is no turn: the model changes no
//! CPUs there.

use super::event::{Event, EventKind};
use super::turn::Call;
use super::{Sink, Tap};
use crate::lock::SpinLock;
use crate::machine::Machine;

/// A lock whose taking is told.
pub struct TapLock<M: Machine, S, T: 'static> {
    pub(super) lock: M::Lock<T>,
    pub(super) tap: Tap<M, S>,
}

impl<M: Machine, S: Sink, T: 'static> SpinLock<T> for TapLock<M, S, T> {
    type Guard<'a> = <M::Lock<T> as SpinLock<T>>::Guard<'a>;

    #[track_caller]
    fn lock(&self) -> Self::Guard<'_> {
        self.tap.begin(Call::Lock);
        let guard = self.lock.lock();
        self.tap.end(Call::Lock);
        guard
    }

    #[track_caller]
    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        self.tap.begin(Call::Try);
        let guard = self.lock.try_lock();
        let taken = u64::from(guard.is_some());
        self.tap.sink.returns(self.tap.machine.cpu(), Call::Try, taken);
        self.tap.sink.tells(Event {
            cpu: self.tap.machine.cpu(),
            kind: EventKind::TryLock,
            words: [taken, 0, 0, 0, 0],
        });
        guard
    }
}
