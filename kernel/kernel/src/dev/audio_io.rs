//! The sound device as an open file: playing and recording, as a process does it. The state, its locks and what can
//! fail: see `audio`.

use super::audio::{PAGES, State};
use crate::choose::{Peer, Sending};
use crate::fs::FileOps;
use crate::net::{Receiver, Sender, Supply};
use crate::proc::Syscall;
use crate::sched::{Held, Which};
use alloc::boxed::Box;
use pageferry_abi::{Errno, ReceiveMode, Received, SendMode};
use pageferry_hal::{Cause, FlowStep, Machine, PAGE_SIZE, Place, Transfer, Va};

/// The sound device as an open file.
pub(crate) struct AudioFile;

impl<M: Machine> FileOps<M> for AudioFile {
    fn read(
        &self,
        call: &Syscall<'_, M>,
        to: Va,
        len_bytes: usize,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        Ok(call.record(ReceiveMode::Copy, Some(to), len_bytes, nonblocking)?.len_bytes)
    }

    fn read_transfer(
        &self,
        call: &Syscall<'_, M>,
        mode: ReceiveMode,
        at: Option<Va>,
        len_bytes: usize,
        nonblocking: bool,
    ) -> Result<Received, Errno> {
        call.record(mode, at, len_bytes, nonblocking)
    }

    fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        call.play(from, len_bytes, mode, nonblocking)
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        call.kernel.audio.close(&call.kernel.vm, &call.kernel.mbufs, call.thread);
    }
}

impl<M: Machine> Syscall<'_, M> {
    /// Plays `len` bytes: returns when the device has them all, or with `nonblocking` what it has space for.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`], [`Errno::Interrupted`], [`Errno::NoMemory`] or a bad address, only if nothing was taken.
    fn play(&self, from: Va, len: usize, mode: SendMode, nonblocking: bool) -> Result<usize, Errno> {
        let (m, audio) = (self.machine(), &self.kernel.audio);
        let _c = m.scope(Cause::Protocol);
        m.execute(self.kernel.config.paths.sosend);
        let sending = Sending { from, len, peer: Peer::Device, space: PAGES * PAGE_SIZE };
        let mut sender = Sender::to_device(self, sending, mode, nonblocking);
        let (mut held, mut result) = self.lock_sound(audio.lock(), |s| &mut s.play_lock, nonblocking);
        let mut has_lock = result.is_ok();
        while result.is_ok() && sender.left() > 0 {
            let space = held.space();
            if space > 0 {
                drop(held);
                let (mbuf, made) = sender.next(space);
                result = made;
                held = audio.lock();
                if let Some(mbuf) = mbuf {
                    m.execute(self.kernel.config.paths.protocol);
                    self.kernel.mbufs.trace(&mbuf, mbuf.len(), Place::Device, FlowStep::Received);
                    held.hand_over(self.kernel.audio.device(), Transfer::Write, mbuf);
                }
            } else if nonblocking {
                result = Err(Errno::WouldBlock);
            } else {
                (held, result) = self.wait_for_sound(held, |s| &mut s.play_lock);
                has_lock = result.is_ok();
            }
        }
        if has_lock {
            audio.state.release(self.thread, &mut held, |s| &mut s.play_lock);
        }
        drop(held);
        if sender.done() > 0 { Ok(sender.done()) } else { result.map(|()| 0) }
    }

    /// Receives up to `len` bytes of what has been recorded, at least one.
    ///
    /// # Errors
    /// As those of a socket that is received from.
    fn record(
        &self,
        mode: ReceiveMode,
        at: Option<Va>,
        len: usize,
        nonblocking: bool,
    ) -> Result<Received, Errno> {
        let (m, audio) = (self.machine(), &self.kernel.audio);
        let _c = m.scope(Cause::Protocol);
        m.execute(self.kernel.config.paths.soreceive);
        let mut receiver = Receiver::of_device(self, mode, at, len, nonblocking)?;
        let (mut held, mut result) = self.lock_sound(audio.lock(), |s| &mut s.record_lock, nonblocking);
        let mut has_lock = result.is_ok();
        while result.is_ok() && receiver.wants_more() {
            (held, result) = self.keep_recording(held, nonblocking);
            let recorded = held.recorded(receiver.left());
            if !recorded.is_empty() {
                drop(held);
                for mbuf in &recorded {
                    self.kernel.mbufs.trace(mbuf, mbuf.len(), Place::Device, FlowStep::Taken);
                }
                let (rest, delivered) = receiver.deliver_all(recorded);
                result = delivered;
                held = audio.lock();
                held.put_back(rest);
            } else if receiver.received().len_bytes > 0 || result.is_err() {
                break;
            } else if nonblocking {
                result = Err(Errno::WouldBlock);
            } else {
                (held, result) = self.wait_for_sound(held, |s| &mut s.record_lock);
                has_lock = result.is_ok();
            }
        }
        if has_lock {
            if result.is_ok() {
                (held, _) = self.keep_recording(held, nonblocking);
            }
            audio.state.release(self.thread, &mut held, |s| &mut s.record_lock);
        }
        drop(held);
        let got = receiver.received();
        if got.len_bytes > 0 { Ok(got) } else { result.map(|()| Received::default()) }
    }

    /// Takes a sleep lock; with `nonblocking`, at once or not at all. The spin lock is held before and after.
    fn lock_sound<'a>(
        &'a self,
        held: Held<'a, M, State<M>>,
        which: Which<State<M>>,
        nonblocking: bool,
    ) -> (Held<'a, M, State<M>>, Result<(), Errno>) {
        let mut held = held;
        if nonblocking && which(&mut held).is_taken() {
            return (held, Err(Errno::WouldBlock));
        }
        self.kernel.audio.state.acquire(self.thread, held, which, "sound", true)
    }

    /// Waits for the device, without the sleep lock, and takes that again. The spin lock is held before and after.
    ///
    /// # Errors
    /// [`Errno::Interrupted`]: the sleep lock is not held.
    fn wait_for_sound<'a>(
        &'a self,
        held: Held<'a, M, State<M>>,
        which: Which<State<M>>,
    ) -> (Held<'a, M, State<M>>, Result<(), Errno>) {
        let state = &self.kernel.audio.state;
        let mut held = held;
        state.release(self.thread, &mut held, which);
        let (held, waited) = state.wait(self.thread, held, "sound", true);
        match waited {
            Ok(()) => state.acquire(self.thread, held, which, "sound", true),
            Err(e) => (held, Err(e)),
        }
    }

    /// Gives the device pages to record into, as many as it may have.
    ///
    /// # Errors
    /// [`Errno::NoMemory`] when it has none at all.
    fn keep_recording<'a>(
        &'a self,
        mut held: Held<'a, M, State<M>>,
        nonblocking: bool,
    ) -> (Held<'a, M, State<M>>, Result<(), Errno>) {
        while held.wants_pages() {
            let page = held.free_card_page();
            drop(held);
            let made = match page {
                Some(page) => self.kernel.mbufs.over_card(&page),
                None => self.kernel.mbufs.cluster_for(self.sleeper(nonblocking), PAGE_SIZE),
            };
            held = self.kernel.audio.lock();
            match made {
                Ok(mbuf) => held.hand_over(self.kernel.audio.device(), Transfer::Read, mbuf),
                Err(_) if !held.records_nothing() => break,
                Err(e) => return (held, Err(e)),
            }
        }
        (held, Ok(()))
    }
}
