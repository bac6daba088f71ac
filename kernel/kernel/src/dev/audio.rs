//! The sound device: playing what processes send, recording what they receive (UVM paper, 4.1.3 and 4.2.3: audio
//! playback as a use of loans, audio recording as one of page transfer).
//!
//! What is on its way to or from the device is in mbufs, as in sockets. A *player* fills clusters, or lends its pages,
//! and the device reads them where they are; when their sound has ended they are freed, and loans given back. A
//! *recorder* gets the clusters that the device has filled: copied out, or donated. A card with memory of its own
//! records into that, and then everything is copied: pages of a card stay the card's. Recording begins with the first
//! call that receives and goes on until the device is closed; what no call fetches in time is lost, as with any
//! microphone.
//!
//! One open file at a time has the device. The last close waits until the device has played all, and has released all
//! memory.
//!
//! # Locks
//! A monitor (class `Pipe`). Playing and recording have a sleep lock each; the thread that holds one may copy and
//! fault. A thread that waits for the device releases it meanwhile, so sounds of two processes may alternate. Answers
//! of the device are taken by the thread behind its interrupt, under the monitor's spin lock.
//!
//! # What can fail
//! Copies and loans, as for a socket; memory for clusters; signals end waits. Everything before the point of failure
//! has been played or received.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_core::mbuf::{CardPage, Mbuf, Pool};
use pageferry_core::sched::{Monitor, MonitorGuard, SleepLock};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    self as hal, AudioDone, AudioRequest, DeviceId, Machine, PAGE_SIZE, StructArena, Threads, Transfer,
};
use pageferry_vm::{Object, Vm};

/// Pages that the device has at a time, for each direction: what it plays or records between two calls.
pub(crate) const PAGES: usize = 8;
/// The structure in memory.
const AUDIO_BYTES: usize = 256;

/// The driver's state. See the [module](self).
pub(crate) struct Audio<M: Machine> {
    device: Option<Box<dyn hal::Audio>>,
    pub(crate) state: Monitor<M, State<M>>,
}

pub(crate) struct State<M: Machine> {
    open: bool,
    pub(crate) play_lock: SleepLock,
    pub(crate) record_lock: SleepLock,
    next_tag: u64,
    /// The card's memory, while it is open.
    card: Option<Card<M>>,
    /// Oldest first.
    playing: VecDeque<OnItsWay>,
    recording: VecDeque<OnItsWay>,
}

/// Memory on the card.
struct Card<M: Machine> {
    object: Arc<Object<M>>,
    /// Free, if no mbuf refers to it.
    pages: Vec<Arc<CardPage>>,
}

/// An mbuf that the device has, or has done with.
struct OnItsWay {
    mbuf: Mbuf,
    /// The last of its fragments: the others are done before it.
    last_tag: u64,
    done: bool,
}

impl<M: Machine> State<M> {
    fn new() -> State<M> {
        State {
            open: false,
            play_lock: SleepLock::default(),
            record_lock: SleepLock::default(),
            next_tag: 0,
            card: None,
            playing: VecDeque::new(),
            recording: VecDeque::new(),
        }
    }

    /// Pages that may be recorded into at a time.
    fn max_recording(&self) -> usize {
        self.card.as_ref().map_or(PAGES, |card| card.pages.len().min(PAGES))
    }

    /// A free page of the card, if it has memory.
    pub(crate) fn free_card_page(&self) -> Option<Arc<CardPage>> {
        let card = self.card.as_ref()?;
        let free = card.pages.iter().find(|page| Arc::strong_count(page) == 1);
        Some(free.expect("as many mbufs as pages").clone())
    }

    pub(crate) fn hand_over(&mut self, device: &dyn hal::Audio, transfer: Transfer, mbuf: Mbuf) {
        let fragments = mbuf.fragments().expect("no mbuf for a device is small");
        for (frame, offset, len_bytes) in fragments {
            device.submit(AudioRequest { tag: self.next_tag, transfer, frame, offset, len_bytes });
            self.next_tag += 1;
        }
        let queue = match transfer {
            Transfer::Read => &mut self.recording,
            Transfer::Write => &mut self.playing,
        };
        queue.push_back(OnItsWay { mbuf, last_tag: self.next_tag - 1, done: false });
    }

    /// The device has done with a fragment.
    fn note_done(&mut self, answer: AudioDone) {
        let mut all = self.playing.iter_mut().chain(&mut self.recording);
        if let Some(it) = all.find(|it| it.last_tag == answer.tag) {
            it.done = true;
        }
    }

    /// Nothing is being recorded, and nothing recorded is left.
    pub(crate) fn records_nothing(&self) -> bool {
        self.recording.is_empty()
    }

    /// True while the device could have more pages to record into.
    pub(crate) fn wants_pages(&self) -> bool {
        self.recording.len() < self.max_recording()
    }

    /// Room for what is to be played, in bytes: whole pages.
    pub(crate) fn space(&self) -> usize {
        let pages = |it: &OnItsWay| it.mbuf.len().div_ceil(PAGE_SIZE);
        PAGES.saturating_sub(self.playing.iter().map(pages).sum()) * PAGE_SIZE
    }

    /// What has been played.
    fn played(&mut self) -> Vec<Mbuf> {
        let count = self.playing.iter().take_while(|it| it.done).count();
        self.playing.drain(..count).map(|it| it.mbuf).collect()
    }

    /// What has been recorded, up to `len` bytes or a little more.
    pub(crate) fn recorded(&mut self, len: usize) -> VecDeque<Mbuf> {
        let mut taken = VecDeque::new();
        let mut sum = 0;
        while sum < len && self.recording.front().is_some_and(|it| it.done) {
            let mbuf = self.recording.pop_front().expect("just seen").mbuf;
            sum += mbuf.len();
            taken.push_back(mbuf);
        }
        taken
    }

    /// What a receiver has not consumed is next for the one behind it.
    pub(crate) fn put_back(&mut self, rest: VecDeque<Mbuf>) {
        for mbuf in rest.into_iter().rev() {
            self.recording.push_front(OnItsWay { mbuf, last_tag: u64::MAX, done: true });
        }
    }

    fn is_under_way(&self) -> bool {
        self.playing.iter().chain(&self.recording).any(|it| !it.done)
    }
}

impl<M: Machine> Audio<M> {
    pub(crate) fn new(
        m: &M,
        device: Option<Box<dyn hal::Audio>>,
        arena: &mut StructArena,
    ) -> Result<Audio<M>, ArenaFull> {
        let at = arena.array("sound device", 1, AUDIO_BYTES)?;
        Ok(Audio { device, state: Monitor::new(m, at, State::new()) })
    }

    /// The number by which the device interrupts, if there is one.
    pub(crate) fn id(&self) -> Option<DeviceId> {
        self.device.as_ref().map(|device| device.id())
    }

    /// The device, which a process has open.
    pub(crate) fn device(&self) -> &dyn hal::Audio {
        &**self.device.as_ref().expect("only a device that is there was opened")
    }

    pub(crate) fn lock(&self) -> MonitorGuard<'_, M, State<M>> {
        self.state.lock()
    }

    /// True when the device is not open and has no memory.
    pub(crate) fn is_at_rest(&self) -> bool {
        let held = self.lock();
        !held.open && held.playing.is_empty() && held.recording.is_empty()
    }

    /// Takes the device's answers, frees what has been played, and wakes the threads that wait. To be called after
    /// its interrupt, not by its handler: it takes locks.
    pub(crate) fn interrupt(&self, mbufs: &Pool<M>, t: &dyn Threads) {
        while let Some(answer) = self.device.as_ref().and_then(|device| device.take_done()) {
            let played = {
                let mut held = self.lock();
                held.note_done(answer);
                held.played()
            };
            played.into_iter().for_each(|mbuf| mbufs.free(mbuf));
            self.state.wake_all(t);
        }
    }

    /// Gives the device memory on its card, if it has any.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    fn attach_card(&self, vm: &Vm<M>, mbufs: &Pool<M>) -> Result<(), Errno> {
        let count = self.device().card_pages();
        if count == 0 {
            return Ok(());
        }
        let mut card = Card { object: vm.device_object(count)?, pages: Vec::new() };
        for page in 0..count {
            let frame = card.object.device_frame(page);
            match mbufs.card_page(frame) {
                Ok(page) => card.pages.push(page),
                Err(e) => {
                    card.detach(vm, mbufs);
                    return Err(e.into());
                }
            }
        }
        self.lock().card = Some(card);
        Ok(())
    }

    /// Opens the device, for one file at a time.
    ///
    /// # Errors
    /// [`Errno::NotSupported`] if the machine has none; [`Errno::Busy`] while it is open; [`Errno::NoMemory`].
    pub(crate) fn open(&self, vm: &Vm<M>, mbufs: &Pool<M>) -> Result<(), Errno> {
        if self.device.is_none() {
            return Err(Errno::NotSupported);
        }
        if core::mem::replace(&mut self.lock().open, true) {
            return Err(Errno::Busy);
        }
        self.attach_card(vm, mbufs).inspect_err(|_| self.lock().open = false)
    }

    /// The last descriptor is gone: waits until the device is done, and frees what it had.
    pub(crate) fn close(&self, vm: &Vm<M>, mbufs: &Pool<M>, t: &dyn Threads) {
        let mut held = self.lock();
        while held.is_under_way() {
            held = self.state.wait(t, held, "sound", false).0;
        }
        let (playing, recording) = (core::mem::take(&mut held.playing), core::mem::take(&mut held.recording));
        let card = held.card.take();
        drop(held);
        playing.into_iter().chain(recording).for_each(|it| mbufs.free(it.mbuf));
        card.into_iter().for_each(|card| card.detach(vm, mbufs));
        self.lock().open = false;
    }
}

impl<M: Machine> Card<M> {
    fn detach(self, vm: &Vm<M>, mbufs: &Pool<M>) {
        self.pages.into_iter().for_each(|page| mbufs.forget_card_page(page));
        vm.release_object(self.object);
    }
}
