//! What has to happen around `fork`.
//!
//! # The two dangers
//! * A child of a *sender* would have the sender's shared mapping, and could write into what is lent. So
//!   shared mappings stay out of children, and the child maps the same memory copy-on-write at the same
//!   addresses: it reads its data, and nobody sees its stores.
//! * A child of a *receiver* keeps its private view of what the receiver holds at that moment. Were the
//!   memory given back, the child would see the next message there. So a *fence* stands from the fork on: a
//!   pipe whose one end only the child has, and its heirs. What was held at the fork is not given back before
//!   the pipe hangs up, when the child and its heirs have ended or called `exec`.
//!
//! # What it holds
//! A registry of the process's channels; the fences that stand; the number of forks. The child's channels are
//! dead: their sockets are replaced, so that the peer of a parent that dies is not kept waiting by a child,
//! and [`generation`] differs, by which every call refuses. Descriptors that no child is to have ([`Own`]) are
//! closed there. What each process has anew, whatever its parent had, is [`PerProcess`].
//!
//! # Locks
//! The registry and the fences, in this order. `fork` takes both before and releases both after, so that no
//! thread holds them in the child. The child's handler allocates nothing and calls only what may be called in
//! a signal handler.
//!
//! # What it does not see
//! A raw `clone` or `vfork` runs no handlers: such a child has the socket, too, and the peer does not see that the
//! parent has ended before the child does. A child that outlives a receiver's process may see later messages in what
//! it has inherited, for the sender sees at once that the receiver is gone, and then takes all memory as home. It
//! could only wait for the child if the child kept the socket; then a child that lives for ever, as a daemon's does,
//! would hide that its parent has died.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::pipe::PipeFlags;
use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

/// Forks between the process that started and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Forks that this process has made.
static FORKS: AtomicU64 = AtomicU64::new(0);
static REGISTRY: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static FENCES: Mutex<Vec<Fence>> = Mutex::new(Vec::new());
/// Replaces the sockets of a child.
static PLACEHOLDER: OnceLock<Option<OwnedFd>> = OnceLock::new();

struct Entry {
    number: u64,
    socket: Option<RawFd>,
    memory: Vec<Memory>,
    /// A child has this descriptor no more.
    own: Option<RawFd>,
}

/// Memory that stays out of children, and that a child maps copy-on-write at the same addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    at: usize,
    len: usize,
    /// Mapped piece by piece: what of it a child has inherited stays as it is.
    piece: usize,
    file: RawFd,
}

impl Memory {
    /// `len` bytes from `at` on are the start of a file.
    pub(super) fn new(at: *const u8, len: usize, piece: usize, file: &OwnedFd) -> Memory {
        Memory { at: at as usize, len, piece, file: file.as_raw_fd() }
    }
}

struct Fence {
    /// The fork that it is for.
    fork: u64,
    hangs_up: OwnedFd,
}

/// What a fork in progress holds: the locks, and the ends of its fence.
struct Forking {
    registry: MutexGuard<'static, Vec<Entry>>,
    fences: MutexGuard<'static, Vec<Fence>>,
    fence: Option<(OwnedFd, OwnedFd)>,
}

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

/// Forks that lie between the start of the program and this process. What was made under another number
/// belongs to a parent.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Forks that this process has made and that are through.
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Acquire)
}

/// Whether a child of a fork after the first `forks` may still see what this process held then.
pub(crate) fn fenced_since(forks: u64) -> bool {
    if planted!(NoForkFence) {
        return false;
    }
    let mut fences = FENCES.lock().unwrap_or_else(PoisonError::into_inner);
    if fences.is_empty() {
        return false;
    }
    fences.retain(|fence| !has_hung_up(&fence.hangs_up));
    fences.iter().any(|fence| fence.fork > forks)
}

fn has_hung_up(pipe: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut fds = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// Does something during which no child is made, except by calls that run no handlers. `doing` enters nothing here.
pub(crate) fn without_children<R>(doing: impl FnOnce() -> R) -> R {
    install();
    let _registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    doing()
}

/// Has the handlers called from now on.
fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let _ = PLACEHOLDER.set(rustix::event::eventfd(0, flags).ok());
        // SAFETY: the three handlers live as long as the program, and call nothing that may not be called
        // around a fork.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    });
}

/// A channel's entry in the registry; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Registration(u64);

/// Enters a channel: the socket that a child must not hold, and the memory that a child sees copy-on-write.
pub(crate) fn register(socket: BorrowedFd<'_>, memory: Vec<Memory>) -> Registration {
    enter(Some(socket.as_raw_fd()), memory)
}

/// Enters memory that no channel has.
pub(crate) fn register_memory(memory: Memory) -> Registration {
    enter(None, vec![memory])
}

fn enter(socket: Option<RawFd>, memory: Vec<Memory>) -> Registration {
    install();
    let number = next_number();
    lock_registry().push(Entry { number, socket, memory, own: None });
    Registration(number)
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn lock_registry() -> MutexGuard<'static, Vec<Entry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock_registry().retain(|entry| entry.number != self.0);
    }
}

/// A descriptor of this process alone: a child that `fork` makes finds it closed. In a child, dropping it does
/// nothing, since its number may be that of something else by then.
#[derive(Debug)]
pub(crate) struct Own {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    number: u64,
    generation: u32,
}

impl Own {
    /// Owns what `open` opens. No child is made between the two. `open` enters nothing here.
    pub(crate) fn new<E>(
        open: impl FnOnce() -> core::result::Result<OwnedFd, E>,
    ) -> core::result::Result<Own, E> {
        install();
        let mut registry = lock_registry();
        let fd = open()?;
        let number = next_number();
        let own = if planted!(ChildKeepsFile) { None } else { Some(fd.as_raw_fd()) };
        registry.push(Entry { number, socket: None, memory: Vec::new(), own });
        Ok(Own { fd: Some(fd), number, generation: generation() })
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        self.fd.as_ref().expect("a descriptor is there until it is dropped")
    }
}

impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().as_fd()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        if self.generation != generation() {
            core::mem::forget(fd);
            return;
        }
        // A child that was made between the two would have the descriptor, or close another one of the same number.
        let mut registry = lock_registry();
        registry.retain(|entry| entry.number != self.number);
        drop(fd);
    }
}

/// A value that each process makes for itself: a child forgets its parent's, whose locks threads may hold that the
/// child has not.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    made: AtomicPtr<OfProcess<T>>,
}

#[derive(Debug)]
struct OfProcess<T> {
    generation: u32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess { made: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The value of this process, which `make` makes at the first call.
    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &T {
        install();
        let generation = generation();
        let found = self.made.load(Ordering::Acquire);
        // SAFETY: what is there was made by `get`, and is dropped by nobody but `drop`.
        if let Some(made) = unsafe { found.as_ref() }.filter(|made| made.generation == generation) {
            return &made.value;
        }
        let made = Box::into_raw(Box::new(OfProcess { generation, value: make() }));
        let exchanged = self.made.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire);
        let there = match exchanged {
            Ok(_) => made,
            Err(there) => {
                // SAFETY: nobody else has seen what was made here.
                drop(unsafe { Box::from_raw(made) });
                there
            }
        };
        // SAFETY: as above. Another thread of this process was first, if any.
        unsafe { &(*there).value }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let made = *self.made.get_mut();
        // SAFETY: as in `get`; nobody has a reference any more.
        if unsafe { made.as_ref() }.is_some_and(|made| made.generation == generation()) {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

extern "C" fn before() {
    let registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    let fences = FENCES.lock().unwrap_or_else(PoisonError::into_inner);
    // Descriptors alone are nothing that a child could see.
    let is_seen = registry.iter().any(|entry| entry.socket.is_some() || !entry.memory.is_empty());
    let fence = if is_seen { rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok() } else { None };
    let forking = Forking { registry, fences, fence };
    // A thread that is ending has no such place any more; it forks without a fence.
    let _ = FORKING.try_with(|place| place.borrow_mut().replace(forking));
}

extern "C" fn after_in_parent() {
    let forking = FORKING.try_with(|place| place.borrow_mut().take()).ok().flatten();
    let fork = FORKS.load(Ordering::Relaxed) + 1;
    if let Some(mut forking) = forking {
        if let Some((hangs_up, _childs)) = forking.fence.take() {
            forking.fences.push(Fence { fork, hangs_up });
        }
        FORKS.store(fork, Ordering::Release);
    }
}

extern "C" fn after_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let forking = FORKING.try_with(|place| place.borrow_mut().take()).ok().flatten();
    let Some(mut forking) = forking else { return };
    if let Some((_hangs_up, childs)) = forking.fence.take() {
        // It stays open until this process and its heirs have ended.
        let _ = std::os::fd::IntoRawFd::into_raw_fd(childs);
    }
    let placeholder = PLACEHOLDER.get().and_then(Option::as_ref);
    for entry in forking.registry.iter() {
        if let (Some(placeholder), Some(socket)) = (placeholder, entry.socket)
            && !planted!(ChildKeepsSocket)
        {
            // SAFETY: the number is a socket of ours, which this process must not use; its owner closes the
            // placeholder instead.
            unsafe { libc::dup3(placeholder.as_raw_fd(), socket, libc::O_CLOEXEC) };
        }
        if planted!(NoAtfork) {
            continue;
        }
        entry.memory.iter().copied().for_each(map_in_child);
    }
    // Memory was mapped by some of them.
    for own in forking.registry.iter_mut().filter_map(|entry| entry.own.take()) {
        // SAFETY: the number is a descriptor of ours, which nobody in this process uses or closes any more.
        unsafe { libc::close(own) };
    }
}

fn map_in_child(Memory { at, len, piece, file }: Memory) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
    for offset in (0..len).step_by(piece) {
        let at = (at + offset) as *mut libc::c_void;
        // SAFETY: the addresses are a region of ours, of which the shared mappings stayed out of this child;
        // references of the parent's find their bytes there. Nothing that is mapped is replaced.
        unsafe { libc::mmap(at, piece.min(len - offset), prot, flags, file, offset as libc::off_t) };
    }
}
