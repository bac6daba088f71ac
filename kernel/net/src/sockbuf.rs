//! One direction of a pair of connected stream sockets: a socket buffer and the mbufs in it (4.4BSD, `uipc_socket.c`,
//! `uipc_socket2.c`, `uipc_usrreq.c`). How bytes get into mbufs is in `sosend`, how they get out in `soreceive`.
//!
//! # What it holds
//! A chain of mbufs, oldest first, and how much they count against two limits: bytes of data, and memory. As in a local
//! socket of 4.4BSD, sent data goes to the receiver's buffer at once, and the sender sleeps while that is full.
//!
//! # Locks
//! The state is in a [`Monitor`]: under a spin lock, and with two sleep locks (`sblock`), one for the thread that sends
//! and one for the thread that receives. A receiver takes the mbufs that it works on out of the chain; they count until
//! it is done with them.
//!
//! # What can fail
//! Nothing here but sleeping, by a signal.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use pageferry_abi::Errno;
use pageferry_core::base::Core;
use pageferry_core::mbuf::{self, AreaId, Chain, MBUF_BYTES, Mbuf, Pool};
use pageferry_core::proc::{Registry, Syscall};
use pageferry_core::sched::{self, Monitor, SleepLock};
use pageferry_hal::{Access, Cause, Machine, PAGE_SIZE, Pfn, StructVa, Threads};

/// Directions of connected sockets at a time.
pub const MAX_SOCKETS: usize = 512;
/// Bytes of the structure of one.
pub const SOCKET_BYTES: usize = 256;
/// How many of them a call uses.
pub const SOCKET_USED_BYTES: usize = 128;

/// One direction of a connected pair: the mbufs in it, and how much they count.
pub struct SockBuf<M: Machine> {
    monitor: Monitor<M, Buffer>,
    fill: Arc<Fill>,
    limits: Limits,
    /// The connection that has it, if it is one of TCP's.
    upcall: Option<Box<dyn Upcall>>,
    /// Where its structure comes from.
    all: Arc<SockBufs<M>>,
}

/// All socket buffers of a kernel.
pub type SockBufs<M> = Registry<M, SockBuf<M>>;

/// Who is told of what happens to a buffer (`so_upcall`): the protocol that brings the bytes to another host.
pub trait Upcall {
    /// Bytes were put into it, to be sent.
    ///
    /// # Locks
    /// None is held.
    fn sent(&self, threads: &dyn Threads);

    /// Its socket may be ready now that was not before.
    ///
    /// # Locks
    /// Any may be held but the scheduler's.
    fn changed(&self, threads: &dyn Threads);
}

/// A connected socket: where it receives, and where it sends. The ends of a pipe do only one of both.
pub struct Socket<M: Machine> {
    /// Where it receives, if it does.
    pub receive: Option<Arc<SockBuf<M>>>,
    /// Where it sends, if it does.
    pub send: Option<Arc<SockBuf<M>>>,
}

/// A socket buffer's limits.
#[derive(Clone, Copy)]
struct Limits {
    /// Bytes of data (`sb_hiwat`).
    high_water_bytes: usize,
    /// Bytes of memory that the mbufs take (`sb_mbmax`).
    memory_bytes: usize,
    /// A sender that wants to send more than this sleeps only while there is less space (`sb_lowat`).
    low_water_bytes: usize,
}

/// How full a buffer is, including what a receiver has taken out and is not done with. It is changed under the spin
/// lock; TCP looks at it without, as at `sb_cc` with `inp` held alone.
#[derive(Default)]
struct Fill {
    /// Bytes of data (`sb_cc`).
    bytes: AtomicUsize,
    /// Bytes of memory (`sb_mbcnt`).
    memory: AtomicUsize,
}

impl Fill {
    fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn memory(&self) -> usize {
        self.memory.load(Relaxed)
    }

    fn add(&self, bytes: usize, memory: usize) {
        self.bytes.store(self.bytes() + bytes, Relaxed);
        self.memory.store(self.memory() + memory, Relaxed);
    }

    fn subtract(&self, bytes: usize, memory: usize) {
        self.bytes.store(self.bytes() - bytes, Relaxed);
        self.memory.store(self.memory() - memory, Relaxed);
    }
}

/// What the spin lock protects.
#[derive(Default)]
pub struct Buffer {
    chain: VecDeque<Mbuf>,
    fill: Arc<Fill>,
    /// Held by the thread that sends (`sblock` of `so_snd`).
    pub sending: SleepLock,
    /// Held by the thread that receives.
    pub receiving: SleepLock,
    /// A receiver sleeps for bytes.
    pub want_read: bool,
    /// The one of these that is content with the least waits for so many.
    pub(crate) wakes_at: usize,
    /// Bytes that a receiver waits for, if it wants so many (`sb_lowat`); 0 is as good as 1.
    low_water: usize,
    /// A sender sleeps for space.
    pub want_write: bool,
    /// Nobody will receive any more: what is sent fails.
    pub reader_gone: bool,
    /// Nobody will send any more: behind what is there the stream ends.
    pub writer_gone: bool,
    /// Nothing more is sent, although the writer is there (`shutdown`).
    pub is_sealed: bool,
    /// Nothing more is received, although the reader is there: what comes is freed.
    pub is_deaf: bool,
    /// The memory of a process that what arrives is to be in, as long as that reads here.
    pub(crate) area: Option<AreaId>,
}

/// The spin lock, held.
pub type SockBufGuard<'a, M> = sched::MonitorGuard<'a, M, Buffer>;

impl Buffer {
    /// No mbuf is in it. A receiver may have taken some out, and put the rest back.
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// Behind what is there nothing comes.
    pub fn has_ended(&self) -> bool {
        self.writer_gone || self.is_deaf
    }

    /// Nothing more may be sent.
    pub fn refuses(&self) -> bool {
        self.reader_gone || self.is_sealed
    }

    /// The mbufs with the first `len` bytes, or all.
    pub fn take(&mut self, len: usize) -> Vec<Mbuf> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < len {
            let Some(mbuf) = self.chain.pop_front() else { break };
            bytes += mbuf.len();
            taken.push(mbuf);
        }
        taken
    }

    /// Puts what is left of taken mbufs back; `moved` bytes and `freed` bytes of memory are gone.
    pub fn put_back(&mut self, rest: Vec<Mbuf>, moved: usize, freed: usize) {
        rest.into_iter().rev().for_each(|mbuf| self.chain.push_front(mbuf));
        self.fill.subtract(moved, freed);
    }

    /// The mbufs that are in it, the first to be received first.
    pub fn chain(&self) -> impl Iterator<Item = &Mbuf> {
        self.chain.iter()
    }
}

impl<M: Machine> SockBuf<M> {
    /// Makes one direction of a connection, with a buffer of `high_water_bytes`, among `all`.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: too many are open.
    pub fn create(
        core: &Core<M>,
        all: &Arc<SockBufs<M>>,
        high_water_bytes: usize,
        upcall: Option<Box<dyn Upcall>>,
    ) -> Result<Arc<SockBuf<M>>, Errno> {
        let limits = Limits {
            high_water_bytes,
            memory_bytes: 2 * high_water_bytes,
            low_water_bytes: high_water_bytes.min(PAGE_SIZE),
        };
        all.make(|at| {
            let fill = Arc::<Fill>::default();
            let buffer = Buffer { fill: fill.clone(), ..Buffer::default() };
            let monitor = Monitor::new(&core.machine, at, buffer);
            Arc::new(SockBuf { monitor, fill, limits, upcall, all: all.clone() })
        })
    }

    /// What it has space for when it is empty.
    pub fn high_water_bytes(&self) -> usize {
        self.limits.high_water_bytes
    }

    pub(crate) fn at(&self) -> StructVa {
        self.monitor.at()
    }

    pub(crate) fn lock(&self) -> SockBufGuard<'_, M> {
        self.monitor.lock()
    }

    /// The call uses the socket's structure.
    pub fn touch(&self, m: &M) {
        m.touch(self.at(), SOCKET_USED_BYTES, Access::Write);
    }

    // ------------------------------------------------------------------------------------------- sleeping and waking

    /// Takes the sleep lock for sending. The spin lock is held before and after.
    ///
    /// # Errors
    /// [`Errno::Interrupted`]; the sleep lock is not held.
    pub fn lock_sending<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: SockBufGuard<'a, M>,
    ) -> (SockBufGuard<'a, M>, Result<(), Errno>) {
        self.monitor.acquire(call.thread, held, |b| &mut b.sending, "netlck", true)
    }

    /// Takes the sleep lock for receiving. The spin lock is held before and after.
    ///
    /// # Errors
    /// As [`SockBuf::lock_sending`].
    pub fn lock_receiving<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: SockBufGuard<'a, M>,
    ) -> (SockBufGuard<'a, M>, Result<(), Errno>) {
        self.monitor.acquire(call.thread, held, |b| &mut b.receiving, "netlck", true)
    }

    pub(crate) fn unlock_sending(&self, call: &Syscall<'_, M>, held: &mut SockBufGuard<'_, M>) {
        self.monitor.release(call.thread, held, |b| &mut b.sending);
    }

    pub(crate) fn unlock_receiving(&self, call: &Syscall<'_, M>, held: &mut SockBufGuard<'_, M>) {
        self.monitor.release(call.thread, held, |b| &mut b.receiving);
    }

    /// Releases the sleep lock for sending, sleeps for space, and takes it again. The spin lock is held before and
    /// after.
    ///
    /// # Errors
    /// [`Errno::Interrupted`]; the sleep lock is not held.
    pub fn wait_for_space<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        mut held: SockBufGuard<'a, M>,
    ) -> (SockBufGuard<'a, M>, Result<(), Errno>) {
        self.unlock_sending(call, &mut held);
        held.want_write = true;
        match self.monitor.wait(call.thread, held, "netwrt", true) {
            (held, Ok(())) => self.lock_sending(call, held),
            failed => failed,
        }
    }

    /// Releases the sleep lock for receiving, sleeps for data, and takes it again. The spin lock is held before and
    /// after.
    ///
    /// # Errors
    /// [`Errno::Interrupted`]; the sleep lock is not held.
    pub fn wait_for_data<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        mut held: SockBufGuard<'a, M>,
    ) -> (SockBufGuard<'a, M>, Result<(), Errno>) {
        self.unlock_receiving(call, &mut held);
        held.want_read = true;
        match self.monitor.wait(call.thread, held, "netrd", true) {
            (held, Ok(())) => self.lock_receiving(call, held),
            failed => failed,
        }
    }

    /// Wakes the threads that sleep for data, if there are any and there is enough for one (`sorwakeup`).
    pub fn wake_reader(&self, call: &Syscall<'_, M>, held: &mut SockBufGuard<'_, M>) {
        self.wake_for_data(call.thread, held);
    }

    fn wake_for_data(&self, threads: &dyn Threads, held: &mut SockBufGuard<'_, M>) {
        if held.fill.bytes() >= held.wakes_at || self.is_half_full(held) {
            self.monitor.wake(threads, &mut held.want_read);
        }
    }

    /// Says how many bytes a receiver waits for, if it wants so many.
    pub(crate) fn set_low_water(&self, threads: &dyn Threads, bytes: usize) {
        let mut held = self.lock();
        held.low_water = bytes;
        self.monitor.wake(threads, &mut held.want_read);
    }

    /// What a receiver of up to `left` bytes waits for. It is no more than half of what the buffer holds: a sender may
    /// wait for room for a whole segment, and never fill it up.
    pub(crate) fn enough(&self, held: &SockBufGuard<'_, M>, left: usize) -> usize {
        left.min(held.low_water).min(self.limits.high_water_bytes / 2).max(1)
    }

    /// There is enough for a receiver of up to `left` bytes, or what there is takes so much memory that no more may
    /// come.
    pub(crate) fn has_enough(&self, held: &SockBufGuard<'_, M>, left: usize) -> bool {
        held.fill.bytes() >= self.enough(held, left) || self.is_half_full(held)
    }

    /// What there is takes half of the memory that it may: few bytes do where frames are short.
    fn is_half_full(&self, held: &SockBufGuard<'_, M>) -> bool {
        held.fill.memory() >= self.limits.memory_bytes / 2
    }

    /// Memory for what arrives is short. Whoever waits for more than there is has to take that now, and waits for half
    /// as much from now on.
    pub(crate) fn press(&self, threads: &dyn Threads) {
        let mut held = self.lock();
        if !held.chain.is_empty() && !self.has_enough(&held, usize::MAX) {
            held.low_water = held.fill.bytes() / 2;
            self.monitor.wake(threads, &mut held.want_read);
        }
    }

    /// Wakes the threads that sleep for space, if there are any (`sowwakeup`).
    pub fn wake_writer(&self, call: &Syscall<'_, M>, held: &mut SockBufGuard<'_, M>) {
        self.monitor.wake(call.thread, &mut held.want_write);
    }

    // ------------------------------------------------------------------------------------------- the buffer

    /// Bytes that a sender of `want` bytes may send now; zero when it has to wait.
    pub fn space(&self, held: &SockBufGuard<'_, M>, want: usize) -> usize {
        let bytes = self.limits.high_water_bytes.saturating_sub(held.fill.bytes());
        let memory = self.limits.memory_bytes.saturating_sub(held.fill.memory() + MBUF_BYTES);
        let space = bytes.min(memory);
        if space < want.min(self.limits.low_water_bytes) { 0 } else { space.min(want) }
    }

    /// Appends an mbuf (`sbappend`, `sbcompress`). An mbuf that is not needed, because its bytes fit behind the last
    /// one's, comes back.
    pub fn sbappend(
        &self,
        call: &Syscall<'_, M>,
        held: &mut SockBufGuard<'_, M>,
        mbuf: Mbuf,
    ) -> Option<Mbuf> {
        let pool = &call.core.mbufs;
        held.fill.add(mbuf.len(), 0);
        let small = mbuf.memory_bytes() == MBUF_BYTES;
        match held.chain.back_mut() {
            Some(last) if small && last.trailing_space() >= mbuf.len() => {
                let (to, from) = (pool.end(last), pool.address(&mbuf, 0..mbuf.len()));
                call.copy_kernel(to, from, mbuf.len());
                last.extend(mbuf.len());
                Some(mbuf)
            }
            _ => {
                held.fill.add(0, mbuf.memory_bytes());
                held.chain.push_back(mbuf);
                None
            }
        }
    }

    // ------------------------------------------------------------------------------------------- for TCP

    /// Bytes in it.
    pub fn queued(&self) -> usize {
        self.fill.bytes()
    }

    /// Bytes that may still come (`sbspace`).
    pub fn window(&self) -> usize {
        let bytes = self.limits.high_water_bytes.saturating_sub(self.fill.bytes());
        bytes.min(self.limits.memory_bytes.saturating_sub(self.fill.memory()))
    }

    /// Appends what has arrived, as it is, and wakes the reader. What comes when it is read no more is freed.
    pub fn append(&self, core: &Core<M>, threads: &dyn Threads, mut chain: Chain) {
        let mut held = self.lock();
        if !held.reader_gone && !held.is_deaf {
            core.machine.execute(core.config.paths.protocol);
            while let Some(mbuf) = chain.pop_front() {
                held.fill.add(mbuf.len(), mbuf.memory_bytes());
                held.chain.push_back(mbuf);
            }
            self.wake_for_data(threads, &mut held);
        }
        drop(held);
        chain.free(&core.mbufs);
        self.changed(core, threads);
    }

    /// Nothing is put behind what is there now: threads that wait to are told.
    pub fn seal(&self, threads: &dyn Threads) {
        self.lock().is_sealed = true;
        self.monitor.wake_all(threads);
    }

    /// Nothing is read any more: what is there is freed, as what comes will be; threads that wait for more are told.
    pub fn deafen(&self, pool: &Pool<M>, threads: &dyn Threads) {
        let mut held = self.lock();
        held.is_deaf = true;
        let rest = held.take(usize::MAX);
        for mbuf in &rest {
            held.fill.subtract(mbuf.len(), mbuf.memory_bytes());
        }
        drop(held);
        self.monitor.wake_all(threads);
        rest.into_iter().for_each(|mbuf| pool.free(mbuf));
    }

    /// Puts bytes in front that were received and not taken. Where nothing is received any more they are freed.
    pub fn take_back(&self, core: &Core<M>, threads: &dyn Threads, chain: Chain) {
        let mut held = self.lock();
        let unwanted = held.reader_gone || held.is_deaf;
        let mut mbufs: Vec<Mbuf> = chain.into_mbufs();
        if !unwanted {
            for mbuf in mbufs.drain(..).rev() {
                held.fill.add(mbuf.len(), mbuf.memory_bytes());
                held.chain.push_front(mbuf);
            }
            self.monitor.wake(threads, &mut held.want_read);
        }
        drop(held);
        mbufs.into_iter().for_each(|mbuf| core.mbufs.free(mbuf));
        self.changed(core, threads);
    }

    /// Shares `len` bytes from `offset` on (`m_copym`).
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn share(&self, pool: &Pool<M>, offset: usize, len: usize) -> Result<Chain, Errno> {
        let held = self.lock();
        mbuf::share(held.chain.iter(), pool, offset, len)
    }

    /// Frees the first `len` bytes, which have arrived at the other end, and `wakes` the writer (`sbdrop`): always, but
    /// for a planted defect.
    pub fn drop_front(&self, core: &Core<M>, threads: &dyn Threads, len: usize, wakes: bool) {
        let mut held = self.lock();
        let mut left = len;
        while left > 0 {
            let first = held.chain.front_mut().expect("what is acknowledged was sent");
            if first.len() > left {
                let before = first.memory_bytes();
                first.advance(left);
                let freed = before - first.memory_bytes();
                held.fill.subtract(left, freed);
                break;
            }
            let mbuf = held.chain.pop_front().expect("just seen");
            left -= mbuf.len();
            held.fill.subtract(mbuf.len(), mbuf.memory_bytes());
            core.mbufs.free(mbuf);
        }
        if wakes {
            self.monitor.wake(threads, &mut held.want_write);
        }
        drop(held);
        self.changed(core, threads);
    }

    /// A reader would not sleep.
    pub fn is_readable(&self) -> bool {
        let held = self.lock();
        held.has_ended() || !held.chain.is_empty() && self.has_enough(&held, usize::MAX)
    }

    /// A writer would not sleep.
    pub fn is_writable(&self) -> bool {
        let held = self.lock();
        held.refuses() || self.space(&held, self.limits.low_water_bytes) > 0
    }

    /// Its socket may be ready now that was not before: those who wait for it look again.
    pub(super) fn changed(&self, core: &Core<M>, threads: &dyn Threads) {
        match &self.upcall {
            Some(upcall) => upcall.changed(threads),
            None => core.select.changed(threads),
        }
    }

    /// Whoever brings its bytes to another host, if they go there.
    pub(super) fn upcall(&self) -> Option<&dyn Upcall> {
        self.upcall.as_deref()
    }

    // ------------------------------------------------------------------------------------------- ending

    /// Has what arrives be in a receive area, until the reader closes its end.
    ///
    /// # Errors
    /// [`Errno::Busy`]: it has one already.
    pub(crate) fn set_area(&self, area: AreaId) -> Result<(), Errno> {
        let mut held = self.lock();
        match held.area {
            Some(_) => Err(Errno::Busy),
            None => {
                held.area = Some(area);
                Ok(())
            }
        }
    }

    /// Another buffer of this kernel, by its structure.
    pub(super) fn other(&self, at: StructVa) -> Option<Arc<SockBuf<M>>> {
        self.all.get(at)
    }

    /// Gives back one that was never used, or whose ends are both gone.
    pub fn discard(&self) {
        self.all.remove(self.at());
    }

    /// Closes an end by `close`, which answers whether it was the last.
    pub fn end(&self, core: &Core<M>, close: impl FnOnce() -> bool) {
        let _c = core.machine.scope(Cause::Protocol);
        if close() {
            self.discard();
        }
    }

    /// The reader closes its end: what is in the buffer is freed. True when the writer is gone too.
    pub fn close_reader(&self, pool: &Pool<M>, threads: &dyn Threads) -> bool {
        let mut held = self.lock();
        assert!(!core::mem::replace(&mut held.reader_gone, true), "an end of a socket is closed twice");
        assert!(!held.receiving.is_taken(), "a socket is closed while it is read");
        let rest = held.take(usize::MAX);
        held.fill.subtract(held.fill.bytes(), held.fill.memory());
        let (last, area) = (held.writer_gone, held.area.take());
        drop(held);
        self.monitor.wake_all(threads);
        rest.into_iter().for_each(|mbuf| pool.free(mbuf));
        area.into_iter().for_each(|area| pool.close_area(area));
        last
    }

    /// The writer closes its end: what is in the buffer can still be read. True when the reader is gone too.
    pub fn close_writer(&self, threads: &dyn Threads) -> bool {
        let mut held = self.lock();
        assert!(!core::mem::replace(&mut held.writer_gone, true), "an end of a socket is closed twice");
        let last = held.reader_gone;
        drop(held);
        self.monitor.wake_all(threads);
        last
    }

    /// Tests that what is counted is there, and that what is lent to it stays: of such a frame `is_lent` is true.
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self, is_lent: impl Fn(Pfn) -> bool) -> Result<(), String> {
        let held = self.lock();
        // What a receiver works on counts, and is not in the chain.
        let exact = !held.receiving.is_taken();
        let there = |of: fn(&Mbuf) -> usize| held.chain().map(of).sum::<usize>();
        let counts = [
            ("bytes", held.fill.bytes(), there(Mbuf::len)),
            ("bytes of memory", held.fill.memory(), there(Mbuf::memory_bytes)),
        ];
        for (what, counted, there) in counts {
            if there > counted || exact && there != counted {
                return Err(format!("a socket buffer counts {counted} {what} and has {there}"));
            }
        }
        if held.fill.bytes() > self.limits.high_water_bytes {
            return Err(format!("a socket buffer has {} bytes, above its limit", held.fill.bytes()));
        }
        match held.chain().flat_map(Mbuf::lent_frames).find(|&&frame| !is_lent(frame)) {
            Some(frame) => Err(format!("{frame:?} is in a socket, but not on loan and wired")),
            None => Ok(()),
        }
    }
}
