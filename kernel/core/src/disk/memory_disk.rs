//! A memory disk: frames that are read and written as the sectors of a disk (`md`; sf_buf paper, 2.2).
//!
//! # What it holds
//! At most one disk. Its pages get their frames when they are first written or read, and keep them until the disk is
//! destroyed; what was never written reads as zeros. The frames are the disk's alone, so they need no wiring; they are
//! mapped only while bytes move, page by page or a request at once, by a [`Window`].
//!
//! Requests come by `geom` and wait in a queue for the disk's thread, which copies (`mdstart_swap`). That
//! thread waits for nothing else: the frames of a request are got before it is on its way ([`MemoryDisk::io`]).
//!
//! # Locks
//! One over the frames, of class `Pipe`, and that of the queue; none is held while bytes move. FreeBSD 5.3's thread
//! held Giant too.
//!
//! # What can fail
//! A first use of a page, for want of frames. Making a disk where there is one, and destroying one that is open.

use super::geom::{Bio, Provider, Station};
use crate::base::Core;
use crate::counter::KernelCounter;
use crate::defect::KernelDefect;
use crate::proc::{UioRw, Visibility, Window};
use crate::sched::Monitor;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_ephemeral::MappingUser;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Pfn, StructArena, Threads, Va};
use pageferry_vm::KernelPages;

/// The memory disk of a kernel (`md`): at most one, whose pages get frames when they are first written or read.
pub struct MemoryDisk<M: Machine> {
    state: Monitor<M, State>,
    queue: Station<M>,
}

/// What a disk and its queue take in memory, each a cache line.
const STRUCTURE_BYTES: usize = 64;

#[derive(Default)]
struct State {
    disk: Option<Pages>,
    /// It is being made, or destroyed.
    changing: bool,
    opens: u32,
}

struct Pages {
    frames: Vec<Option<Page>>,
}

struct Page {
    frame: KernelPages,
    /// Nothing was written to it: its bytes are whoever's.
    is_new: bool,
}

impl<M: Machine> MemoryDisk<M> {
    /// No disk yet.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(machine: &M, arena: &mut StructArena) -> Result<MemoryDisk<M>, ArenaFull> {
        let at = arena.array("memory disk", 2, STRUCTURE_BYTES)?;
        let queue = at.element(1, STRUCTURE_BYTES);
        Ok(MemoryDisk {
            state: Monitor::new(machine, at, State::default()),
            queue: Station::new(machine, queue, "md0"),
        })
    }

    /// There is a disk.
    pub fn exists(&self) -> bool {
        self.state.lock().disk.is_some()
    }

    /// Makes a disk of `len_bytes` (`mdconfig -a`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: not whole pages, or none. [`Errno::Busy`]: there is one. [`Errno::NoMemory`].
    ///
    /// # Locks
    /// May sleep: no spin lock may be held.
    pub fn attach(
        self: &Arc<Self>,
        core: &Arc<Core<M>>,
        threads: &dyn Threads,
        len_bytes: u64,
    ) -> Result<(), Errno> {
        let pages = usize::try_from(len_bytes / PAGE_SIZE as u64).map_err(|_| Errno::NoMemory)?;
        if pages == 0 || !len_bytes.is_multiple_of(PAGE_SIZE as u64) {
            return Err(Errno::Invalid);
        }
        let mut frames = Vec::new();
        {
            let mut state = self.state.lock();
            if state.disk.is_some() || state.changing {
                return Err(Errno::Busy);
            }
            frames.try_reserve_exact(pages).map_err(|_| Errno::NoMemory)?;
            state.changing = true;
        }
        frames.resize_with(pages, || None);
        let unit: Arc<dyn Provider<M>> = Arc::new(Unit { core: core.clone(), disk: self.clone() });
        let started = core.geom.start(threads, &unit);
        let mut state = self.state.lock();
        state.changing = false;
        state.disk = started.is_ok().then_some(Pages { frames });
        started
    }

    /// Destroys the disk, and what is on it (`mdconfig -d`).
    ///
    /// # Errors
    /// [`Errno::NoDevice`]: there is none. [`Errno::Busy`]: it is open.
    ///
    /// # Locks
    /// Sleeps until its threads have ended: no spin lock may be held.
    pub fn detach(&self, core: &Core<M>, threads: &dyn Threads) -> Result<(), Errno> {
        let disk = {
            let mut state = self.state.lock();
            if state.opens > 0 || state.changing {
                return Err(Errno::Busy);
            }
            let disk = state.disk.take().ok_or(Errno::NoDevice)?;
            state.changing = true;
            disk
        };
        core.geom.stop(threads, &self.queue);
        disk.frames.into_iter().flatten().for_each(|page| core.vm.free_kernel_pages(page.frame));
        self.state.lock().changing = false;
        Ok(())
    }

    /// One more uses the disk.
    pub fn open(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.disk.is_none() {
            return Err(Errno::NoDevice);
        }
        state.opens += 1;
        Ok(())
    }

    /// One less.
    pub fn close(&self) {
        let mut state = self.state.lock();
        assert!(state.opens > 0, "a memory disk is closed more often than it was opened");
        state.opens -= 1;
    }

    /// Its length; the disk is open.
    pub fn len_bytes(&self) -> u64 {
        let state = self.state.lock();
        let disk = state.disk.as_ref().expect("a disk that is open is there");
        disk.frames.len() as u64 * PAGE_SIZE as u64
    }

    /// Pages that have a frame: those that were ever written or read.
    ///
    /// # Errors
    /// [`Errno::NoDevice`]: there is no disk.
    pub fn frames_held(&self) -> Result<usize, Errno> {
        let state = self.state.lock();
        let disk = state.disk.as_ref().ok_or(Errno::NoDevice)?;
        Ok(disk.frames.iter().flatten().count())
    }

    /// Moves whole sectors between the disk and kernel memory at `data`, and sleeps until that is done: answers how
    /// many bytes have moved, and why not all. No signal ends the sleep. The disk is open.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub(crate) fn io(
        &self,
        core: &Core<M>,
        threads: &dyn Threads,
        (bytes, data, rw): (Range<u64>, Va, UioRw),
    ) -> (usize, Result<(), Errno>) {
        let _c = core.machine.scope(Cause::Protocol);
        let mut done = 0;
        while bytes.start + (done as u64) < bytes.end {
            let (moved, result) = match self.reserve(core, threads, bytes.start + done as u64..bytes.end) {
                Ok(bytes) => core.geom.request(threads, (bytes, data + done, rw)),
                Err(e) => (0, Err(e)),
            };
            done += moved;
            if result.is_err() {
                return (done, result);
            }
        }
        (done, Ok(()))
    }

    /// Sees to it that there are frames for `bytes` of the disk, from their beginning on: answers which of them have
    /// some, at least those of one page. The disk is open.
    ///
    /// # Errors
    /// What keeps the first page from having one.
    ///
    /// # Locks
    /// May sleep for memory: no spin lock may be held.
    fn reserve(&self, core: &Core<M>, threads: &dyn Threads, bytes: Range<u64>) -> Result<Range<u64>, Errno> {
        let pages = pages_of(&bytes);
        let mut from = pages.start;
        loop {
            let missing = {
                let state = self.state.lock();
                let frames = &state.disk.as_ref().expect("a disk that is open is there").frames;
                (from..pages.end).find(|page| frames[*page].is_none())
            };
            let Some(page) = missing else { return Ok(bytes) };
            // As GEOM makes a request again that failed for want of memory (`g_io_deliver`, ENOMEM): a file system that
            // has written a part of a change cannot go back.
            let again = |_| core.vm.kernel_pages_waiting(threads, 1);
            match core.vm.kernel_pages_waiting(threads, 1).or_else(again) {
                Ok(frame) => {
                    let mut state = self.state.lock();
                    let disk = state.disk.as_mut().expect("a disk that is open is there");
                    // Another request may have been faster.
                    let mut spare = Some(frame);
                    disk.frames[page].get_or_insert_with(|| {
                        let frame = spare.take().expect("it is used once");
                        Page { frame, is_new: true }
                    });
                    drop(state);
                    spare.into_iter().for_each(|frame| core.vm.free_kernel_pages(frame));
                }
                Err(e) if page == pages.start => return Err(e.into()),
                Err(_) => return Ok(bytes.start..page as u64 * PAGE_SIZE as u64),
            }
            from = page + 1;
        }
    }

    fn move_pages(
        &self,
        core: &Core<M>,
        threads: &dyn Threads,
        window: &mut Window,
        bio: &mut Bio,
    ) -> Result<(), Errno> {
        let m = &core.machine;
        let (pages, len_bytes) = (pages_of(&bio.bytes), (bio.bytes.end - bio.bytes.start) as usize);
        let frames = self.frames(pages.clone());
        window.show_run(core, threads, &frames, Visibility::Private, &mut |shown, va| {
            for (nth, page) in shown.enumerate() {
                m.execute(core.config.disk.paths.page);
                let page = pages.start + page;
                let offset = (bio.bytes.start + bio.done as u64) as usize % PAGE_SIZE;
                let len = (PAGE_SIZE - offset).min(len_bytes - bio.done);
                let (its, data) = (va + nth * PAGE_SIZE, bio.data + bio.done);
                let is_new = self.with_page(page, |page| core::mem::take(&mut page.is_new));
                let whole = bio.rw == UioRw::Write
                    && (len == PAGE_SIZE || core.config.defect.is(KernelDefect::DiskPageNotCleared));
                if is_new && !whole {
                    let _c = m.scope(Cause::Zero);
                    m.zero(its, PAGE_SIZE).expect("the kernel's own address is mapped");
                }
                let _c = m.scope(Cause::Copy);
                let its = its + offset;
                let (to, from) = if bio.rw == UioRw::Write { (its, data) } else { (data, its) };
                m.copy_kernel(to, from, len).expect("the kernel's own addresses are mapped");
                m.count(KernelCounter::BytesCopied, len as u64);
                bio.done += len;
            }
            Ok(())
        })
    }

    /// The frames of pages.
    fn frames(&self, pages: Range<usize>) -> Vec<Pfn> {
        let state = self.state.lock();
        let disk = state.disk.as_ref().expect("a disk that is open is there");
        let frame = |page: &Option<Page>| page.as_ref().expect("a request has its frames").frame.frames()[0];
        disk.frames[pages].iter().map(frame).collect()
    }

    fn with_page<R>(&self, page: usize, work: impl FnOnce(&mut Page) -> R) -> R {
        let mut state = self.state.lock();
        let disk = state.disk.as_mut().expect("a disk that is open is there");
        work(disk.frames[page].as_mut().expect("a request has its frames"))
    }
}

/// The disk with what its thread needs.
struct Unit<M: Machine> {
    core: Arc<Core<M>>,
    disk: Arc<MemoryDisk<M>>,
}

impl<M: Machine> Provider<M> for Unit<M> {
    fn queue(&self) -> &Station<M> {
        &self.disk.queue
    }

    /// Copies page by page. It has its frames.
    fn strategy(&self, threads: &dyn Threads, bio: &mut Bio) {
        let (core, pages) = (&*self.core, pages_of(&bio.bytes));
        bio.result = Window::open_for(core, MappingUser::MemoryDisk, pages.len()).and_then(|mut window| {
            let result = self.disk.move_pages(core, threads, &mut window, bio);
            window.close(core);
            result
        });
    }
}

/// The pages that some bytes of a disk are on.
fn pages_of(bytes: &Range<u64>) -> Range<usize> {
    let page_of = |at: u64| (at / PAGE_SIZE as u64) as usize;
    page_of(bytes.start)..page_of(bytes.end - 1) + 1
}
