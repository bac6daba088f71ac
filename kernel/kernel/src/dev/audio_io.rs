//! The sound device as an open file: playing and recording, as a process does it. The state, its locks and what can
//! fail: see `audio`.

use super::audio::Audio;
use super::audio::{PAGES, State};
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_core::choose::Peer;
use pageferry_core::fs::FileOps;
use pageferry_core::proc::{Syscall, Uio, WaitFlag};
use pageferry_core::sched::{MonitorGuard, Which};
use pageferry_hal::{Cause, FlowStep, Machine, PAGE_SIZE, Place, Transfer};
use pageferry_net::{Receiver, Sender, Supply};

/// The sound device as an open file.
pub(crate) struct AudioFile<M: Machine> {
    audio: Arc<Audio<M>>,
}

impl<M: Machine> AudioFile<M> {
    /// The device, which was [opened](Audio::open).
    pub(crate) fn new(audio: Arc<Audio<M>>) -> AudioFile<M> {
        AudioFile { audio }
    }
}

impl<M: Machine> FileOps<M> for AudioFile<M> {
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        self.record(call, uio)
    }

    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        self.play(call, uio)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        self.audio.close(&call.core.vm, &call.core.mbufs, call.thread);
    }
}

impl<M: Machine> AudioFile<M> {
    /// Plays a buffer: returns when the device has all of it, or what it has space for if the call does not wait.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`], [`Errno::Interrupted`], [`Errno::NoMemory`] or a bad address.
    fn play(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let (m, audio) = (call.machine(), &self.audio);
        let _c = m.scope(Cause::Protocol);
        m.execute(call.core.config.paths.sosend);
        let wait = uio.wait;
        let mut sender = Sender::new(call, uio, Peer::Device, PAGES * PAGE_SIZE);
        let (mut held, mut result) = self.lock_sound(call, audio.lock(), |s| &mut s.play_lock, wait);
        let mut has_lock = result.is_ok();
        while result.is_ok() && sender.left() > 0 {
            let space = held.space();
            if space > 0 {
                drop(held);
                let (mbuf, made) = sender.next(space);
                result = made;
                held = audio.lock();
                if let Some(mbuf) = mbuf {
                    m.execute(call.core.config.paths.protocol);
                    call.core.mbufs.trace(&mbuf, mbuf.len(), Place::Device, FlowStep::Received);
                    held.hand_over(self.audio.device(), Transfer::Write, mbuf);
                }
            } else if wait.is_no_wait() {
                result = Err(Errno::WouldBlock);
            } else {
                (held, result) = self.wait_for_sound(call, held, |s| &mut s.play_lock);
                has_lock = result.is_ok();
            }
        }
        if has_lock {
            audio.state.release(call.thread, &mut held, |s| &mut s.play_lock);
        }
        drop(held);
        result
    }

    /// Fills a buffer with what has been recorded, at least one byte.
    ///
    /// # Errors
    /// As those of a socket that is received from.
    fn record(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let (m, audio) = (call.machine(), &self.audio);
        let _c = m.scope(Cause::Protocol);
        m.execute(call.core.config.paths.soreceive);
        let wait = uio.wait;
        let mut receiver = Receiver::new(call, uio, Peer::Device)?;
        let (mut held, mut result) = self.lock_sound(call, audio.lock(), |s| &mut s.record_lock, wait);
        let mut has_lock = result.is_ok();
        while result.is_ok() && receiver.wants_more() {
            (held, result) = self.keep_recording(call, held, wait);
            let recorded = held.recorded(receiver.left());
            if !recorded.is_empty() {
                drop(held);
                for mbuf in &recorded {
                    call.core.mbufs.trace(mbuf, mbuf.len(), Place::Device, FlowStep::Taken);
                }
                let (rest, delivered) = receiver.deliver_all(recorded);
                result = delivered;
                held = audio.lock();
                held.put_back(rest);
            } else if receiver.done() > 0 || result.is_err() {
                break;
            } else if wait.is_no_wait() {
                result = Err(Errno::WouldBlock);
            } else {
                (held, result) = self.wait_for_sound(call, held, |s| &mut s.record_lock);
                has_lock = result.is_ok();
            }
        }
        if has_lock {
            if result.is_ok() {
                (held, _) = self.keep_recording(call, held, wait);
            }
            audio.state.release(call.thread, &mut held, |s| &mut s.record_lock);
        }
        drop(held);
        result
    }

    /// Takes a sleep lock; where the call does not wait, at once or not at all. The spin lock is held before and after.
    fn lock_sound<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: MonitorGuard<'a, M, State<M>>,
        which: Which<State<M>>,
        wait: WaitFlag,
    ) -> (MonitorGuard<'a, M, State<M>>, Result<(), Errno>) {
        let mut held = held;
        if wait.is_no_wait() && which(&mut held).is_taken() {
            return (held, Err(Errno::WouldBlock));
        }
        self.audio.state.acquire(call.thread, held, which, "sound", true)
    }

    /// Waits for the device, without the sleep lock, and takes that again. The spin lock is held before and after.
    ///
    /// # Errors
    /// [`Errno::Interrupted`]: the sleep lock is not held.
    fn wait_for_sound<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: MonitorGuard<'a, M, State<M>>,
        which: Which<State<M>>,
    ) -> (MonitorGuard<'a, M, State<M>>, Result<(), Errno>) {
        let state = &self.audio.state;
        let mut held = held;
        state.release(call.thread, &mut held, which);
        let (held, waited) = state.wait(call.thread, held, "sound", true);
        match waited {
            Ok(()) => state.acquire(call.thread, held, which, "sound", true),
            Err(e) => (held, Err(e)),
        }
    }

    /// Gives the device pages to record into, as many as it may have.
    ///
    /// # Errors
    /// [`Errno::NoMemory`] when it has none at all.
    fn keep_recording<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        mut held: MonitorGuard<'a, M, State<M>>,
        wait: WaitFlag,
    ) -> (MonitorGuard<'a, M, State<M>>, Result<(), Errno>) {
        while held.wants_pages() {
            let page = held.free_card_page();
            drop(held);
            let made = match page {
                Some(page) => call.core.mbufs.over_card(&page),
                None => call.core.mbufs.cluster_for(call.sleeper(wait), PAGE_SIZE),
            };
            held = self.audio.lock();
            match made {
                Ok(mbuf) => held.hand_over(self.audio.device(), Transfer::Read, mbuf),
                Err(_) if !held.records_nothing() => break,
                Err(e) => return (held, Err(e)),
            }
        }
        (held, Ok(()))
    }
}
