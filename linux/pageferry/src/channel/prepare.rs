//! Sealed memory that is made before it is asked for.
//!
//! # What it holds
//! [`Prepared`] gives a sender its drafts. A sender that asks for the same size twice asks for it again, so from the
//! second request on a thread makes the next draft while the sender fills this one. One draft at most is ready. A
//! request of another size drops it, and the thread rests until that size is asked for again. The thread has no part
//! of the channel, so it keeps none alive; [`Prepared::end`] ends it and waits for it, for as long as one draft takes.
//!
//! # How much
//! What is ready is a quarter of the sender's budget at most, and no more than the *room*: what of the budget the pool
//! and sealed memory that is out have left. The thread makes none where the room is not for two, this and what the
//! sender fills. Where sealed memory needs the room, what is ready goes.
//!
//! # Locks
//! One, around what is ready. Drafts are made and dropped without it. The lock of the sender may be held outside of it.
//! It is the standard library's also where schedules of threads are tried (`crate::sync`): who has it waits for
//! nothing.
//!
//! # fork
//! A child has no such thread, and the lock may be held there for ever. So a child only tries it; if it gets it, it
//! drops what is ready, and forgets the thread.
//!
//! # What can fail
//! What fails in the thread is not told: the next request makes its own draft, and says what fails then.

use crate::error::Error;
use crate::host::Host;
use crate::sys::{fork, threads};
use crate::view::Draft;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Memory that a thread makes before it is asked for.
#[derive(Debug)]
pub(crate) struct Prepared {
    shop: Arc<Shop>,
    host: &'static Host,
    generation: u32,
}

/// What a sender shares with its thread.
#[derive(Debug)]
struct Shop {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of the last request, as they are made.
    len: usize,
    ready: Option<Draft>,
    /// The thread is to make one.
    asked: bool,
    room: u64,
    /// Bytes that are made ahead, at most.
    max: u64,
    thread: Option<JoinHandle<()>>,
    /// Nothing is made any more.
    ended: bool,
}

impl State {
    fn has_room(&self) -> bool {
        self.len as u64 <= self.room.min(self.max)
    }

    /// Whether the next one has room beside what the sender fills.
    fn has_room_for_next(&self) -> bool {
        self.has_room() && self.len as u64 <= self.room / 2
    }
}

impl Prepared {
    /// Nothing is ready. `room`: what of the budget is left.
    pub(crate) fn new(host: &'static Host, budget: u64, room: u64) -> Prepared {
        let state = State { room, max: budget / 4, ..State::default() };
        let shop = Shop { state: Mutex::new(state), news: Condvar::new() };
        Prepared { shop: Arc::new(shop), host, generation: fork::generation() }
    }

    /// Zero memory for `len` bytes.
    pub(crate) fn take(&self, len: usize) -> Result<Draft, Error> {
        let len = Draft::whole(len, self.host)?;
        let mut state = self.shop.lock();
        let ready = state.ready.take();
        state.asked = state.len == len && state.has_room_for_next() && !state.ended;
        state.len = len;
        let asked = state.asked;
        if asked && state.thread.is_none() {
            let (shop, host) = (Arc::clone(&self.shop), self.host);
            state.thread = threads::start("pageferry-seal", move || shop.work(host)).ok();
        }
        drop(state);
        if asked {
            self.shop.news.notify_one();
        }
        match ready.filter(|draft| draft.len() == len) {
            Some(draft) => Ok(draft),
            None => Draft::new(len, self.host),
        }
    }

    /// So much of the budget is left.
    pub(crate) fn allow(&self, room: u64) {
        let mut state = self.shop.lock();
        state.room = room;
        let excess = if state.has_room() { None } else { state.ready.take() };
        drop(state);
        drop(excess);
    }

    /// Drops what is ready, and ends the thread. From now on each request makes its own draft.
    pub(crate) fn end(&self) {
        if self.generation != fork::generation() {
            let Ok(mut state) = self.shop.state.try_lock() else { return };
            // By now its number may be that of a thread of this process.
            core::mem::forget(state.thread.take());
            state.ready = None;
            return;
        }
        let mut state = self.shop.lock();
        state.ended = true;
        let (thread, ready) = (state.thread.take(), state.ready.take());
        drop(state);
        self.shop.news.notify_one();
        drop(ready);
        if let Some(thread) = thread {
            // It panicked, if at all, for want of memory.
            let _ = thread.join();
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shop {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does.
    fn work(&self, host: &Host) {
        let mut state = self.lock();
        while !state.ended {
            if !state.asked || state.ready.is_some() || !state.has_room() {
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.asked = false;
            let len = state.len;
            drop(state);
            let mut made = Draft::new(len, host).ok();
            state = self.lock();
            if !state.ended && state.len == len && state.has_room() {
                state.ready = made.take();
            } else {
                drop(state);
                drop(made);
                state = self.lock();
            }
        }
    }
}
