//! The map lock: shared or exclusive, and its holder may sleep.
//!
//! It stands first in the order of the UVM paper (3.2), above all spin locks. The lock owns the map: [`MapRead`] and
//! [`MapWrite`] are the only ways to it. Asking for one takes `&dyn Threads`, because it may sleep; anons, amaps,
//! objects and frames never see a `Threads`, so nothing that runs under their locks can ask for a map. (At run time the
//! interlock's class, lower than theirs, catches the same.)
//!
//! Made from an interlock of class `MapInterlock`, held for a few instructions, and sleeping. A waiting writer keeps
//! new readers out, so that it gets its turn. A thread holds a map once at most.

use crate::probe::Probes;
use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
use pageferry_hal::{Channel, LockClass, Machine, SpinLock, Threads};

pub(crate) struct MapLock<M: Machine, T: 'static> {
    channel: Channel,
    probes: Probes,
    state: M::Lock<State<T>>,
}

pub(crate) struct State<T> {
    /// What the lock owns. Away while a writer has it; shared with the readers.
    contents: Option<Arc<T>>,
    readers: u32,
    writers_waiting: u32,
    sleepers: u32,
}

impl<T> State<T> {
    fn is_free(&self) -> bool {
        self.contents.is_some() && self.readers == 0
    }
}

type Guard<'a, M, T> = <<M as Machine>::Lock<State<T>> as SpinLock<State<T>>>::Guard<'a>;

/// The map, shared: it does not change.
pub(crate) struct MapRead<'a, M: Machine, T: 'static> {
    lock: &'a MapLock<M, T>,
    threads: &'a dyn Threads,
    contents: Option<Arc<T>>,
}

/// The map, exclusively.
pub(crate) struct MapWrite<'a, M: Machine, T: 'static> {
    lock: &'a MapLock<M, T>,
    threads: &'a dyn Threads,
    contents: Option<Arc<T>>,
}

impl<M: Machine, T: 'static> MapLock<M, T> {
    /// `channel` is where waiters sleep.
    pub(crate) fn new(machine: &M, channel: Channel, probes: Probes, contents: T) -> MapLock<M, T> {
        let state = State { contents: Some(Arc::new(contents)), readers: 0, writers_waiting: 0, sleepers: 0 };
        MapLock { channel, probes, state: machine.new_lock(LockClass::MAP_INTERLOCK, state) }
    }

    pub(crate) fn read<'a>(&'a self, threads: &'a dyn Threads) -> MapRead<'a, M, T> {
        let mut state = self.state.lock();
        while state.contents.is_none() || state.writers_waiting > 0 {
            state = self.wait(threads, state);
        }
        state.readers += 1;
        MapRead { lock: self, threads, contents: state.contents.clone() }
    }

    pub(crate) fn write<'a>(&'a self, threads: &'a dyn Threads) -> MapWrite<'a, M, T> {
        let mut state = self.state.lock();
        if !state.is_free() {
            state.writers_waiting += 1;
            while !state.is_free() {
                state = self.wait(threads, state);
            }
            state.writers_waiting -= 1;
        }
        self.probes.journal.space(self.channel.0);
        MapWrite { lock: self, threads, contents: state.contents.take() }
    }

    /// The map as it is, without holding it; `None` while a writer has it. Only for checks while no thread is at work:
    /// a writer that comes before the result is dropped panics.
    pub(crate) fn peek(&self) -> Option<Arc<T>> {
        self.state.lock().contents.clone()
    }

    /// Sleeps until the lock may have become free.
    fn wait<'a>(&'a self, threads: &'a dyn Threads, mut state: Guard<'a, M, T>) -> Guard<'a, M, T> {
        state.sleepers += 1;
        let mut held = Some(state);
        let slept = threads.sleep(self.channel, "map lock", false, &mut || drop(held.take()));
        assert!(slept.is_ok(), "this sleep is not interruptible");
        assert!(held.is_none(), "the interlock is released before sleeping");
        let mut state = self.state.lock();
        state.sleepers -= 1;
        state
    }

    fn wake(&self, threads: &dyn Threads, state: Guard<'_, M, T>) {
        let anybody = state.sleepers > 0;
        drop(state);
        if anybody {
            threads.wakeup(self.channel);
        }
    }
}

impl<M: Machine, T: 'static> Deref for MapRead<'_, M, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.contents.as_ref().expect("held until dropped")
    }
}

impl<M: Machine, T: 'static> Drop for MapRead<'_, M, T> {
    fn drop(&mut self) {
        // First the contents, then the count: a writer that sees no readers must find itself alone.
        self.contents = None;
        let mut state = self.lock.state.lock();
        assert!(state.readers > 0, "a reader leaves that never came");
        state.readers -= 1;
        if state.readers == 0 {
            self.lock.wake(self.threads, state);
        }
    }
}

impl<M: Machine, T: 'static> Deref for MapWrite<'_, M, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.contents.as_ref().expect("held until dropped")
    }
}

impl<M: Machine, T: 'static> DerefMut for MapWrite<'_, M, T> {
    fn deref_mut(&mut self) -> &mut T {
        let contents = self.contents.as_mut().expect("held until dropped");
        Arc::get_mut(contents).expect("a writer is alone")
    }
}

impl<M: Machine, T: 'static> Drop for MapWrite<'_, M, T> {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock();
        assert!(state.contents.is_none() && state.readers == 0, "a writer was not alone");
        state.contents = self.contents.take();
        self.lock.wake(self.threads, state);
    }
}
