//! A peer that speaks the wire by hand, and lies where it is told to. `WIRE.md` is all that it knows of the library.
//!
//! Programs of tests take this file in by `#[path]`. [`Plan`] says what a peer offers; [`meet_receiver`] and
//! [`meet_sender`] run the handshake against an end of the library, which works in a thread of its own.
#![allow(dead_code, reason = "each program of tests uses a part")]

pub mod emulated;
pub mod idle;

use pageferry::wire::{Descriptor, Note};
use pageferry::{Level, Verb};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longer than any busy host takes for one step.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The seals of a pool and of the ring's areas.
pub const POOL_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);
/// The seals of sealed memory.
pub const SNAPSHOT_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE).union(SealFlags::SEAL);

/// Kinds of greetings.
pub const HELLO: u8 = 1;
pub const WELCOME: u8 = 2;
pub const SETTLED: u8 = 3;
pub const READY: u8 = 4;
pub const REFUSE: u8 = 5;

/// The bit of a level in a set.
pub fn level_bit(level: Level) -> u32 {
    1 << level as u8
}

/// The bit of a verb in a set.
pub fn verb_bit(verb: Verb) -> u32 {
    1 << verb as u8
}

/// What a peer offers and does in the handshake.
#[derive(Clone, Debug)]
pub struct Plan {
    /// It says that it trusts this side.
    pub trusting: bool,
    pub capacity: u32,
    pub inline_bytes: u32,
    pub slots: u32,
    pub slot_bytes: u64,
    /// Sets that it offers, or accepts.
    pub levels: u32,
    pub verbs: u32,
    /// Sets that it settles on; of the level exactly one bit where it is honest.
    pub settled_levels: u32,
    pub settled_verbs: u32,
    /// Bytes of its files, where they are not what they should be.
    pub ring_file_bytes: Option<u64>,
    pub pool_file_bytes: Option<u64>,
    pub ring_seals: SealFlags,
    /// Before it says hello, and before it settles.
    pub pool_seals: SealFlags,
    pub late_seals: SealFlags,
    /// Descriptors that it sends with its first greeting beyond those that it should.
    pub extra_fds: usize,
}

impl Plan {
    /// An honest peer with a small pool and loans at a level; it neither donates nor shares.
    pub fn honest(level: Level) -> Plan {
        let verbs = verb_bit(Verb::Inline) | verb_bit(Verb::Copy) | verb_bit(Verb::Loan);
        Plan {
            trusting: true,
            capacity: 4,
            inline_bytes: 128,
            slots: 4,
            slot_bytes: page_bytes(),
            levels: level_bit(Level::Copy) | level_bit(level),
            verbs,
            settled_levels: level_bit(level),
            settled_verbs: verbs,
            ring_file_bytes: None,
            pool_file_bytes: None,
            ring_seals: POOL_SEALS,
            pool_seals: POOL_SEALS,
            late_seals: SealFlags::empty(),
            extra_fds: 0,
        }
    }

    /// The same with donations: the pool is sealed whole after the receiver has mapped it.
    pub fn donating(level: Level) -> Plan {
        let mut plan = Plan::honest(level);
        plan.verbs |= verb_bit(Verb::Donate) | verb_bit(Verb::Share);
        plan.settled_verbs = plan.verbs;
        plan.pool_seals = SealFlags::SHRINK | SealFlags::GROW;
        plan.late_seals = SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        plan
    }

    /// A greeting with what this plan says.
    pub fn greeting(&self, kind: u8) -> [u8; 56] {
        let mut bytes = [0; 56];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, b"PGFERRY\n");
        put(8, &[kind, self.trusting.into()]);
        put(10, &1u16.to_ne_bytes());
        put(12, &1u16.to_ne_bytes());
        put(14, &(if cfg!(target_arch = "aarch64") { 183u16 } else { 62 }).to_ne_bytes());
        put(16, &(page_bytes() as u32).to_ne_bytes());
        let (levels, verbs) = match kind {
            SETTLED => (self.settled_levels, self.settled_verbs),
            _ => (self.levels, self.verbs),
        };
        put(24, &levels.to_ne_bytes());
        put(28, &verbs.to_ne_bytes());
        put(32, &self.capacity.to_ne_bytes());
        put(36, &self.inline_bytes.to_ne_bytes());
        put(40, &self.slots.to_ne_bytes());
        put(48, &self.slot_bytes.to_ne_bytes());
        bytes
    }

    pub fn forward_bytes(&self) -> u64 {
        pages(4096 + u64::from(self.capacity) * (64 + u64::from(self.inline_bytes)))
    }

    pub fn reverse_bytes(&self) -> u64 {
        pages(4096 + u64::from(self.capacity) * 16)
    }

    pub fn pool_bytes(&self) -> u64 {
        u64::from(self.slots) * self.slot_bytes
    }

    /// Takes the shapes that a sender has said in its greeting.
    pub fn learn(&mut self, hello: &[u8]) {
        let u32_at = |at: usize| u32::from_ne_bytes(hello[at..at + 4].try_into().unwrap());
        self.capacity = u32_at(32);
        self.inline_bytes = u32_at(36);
        self.slots = u32_at(40);
        self.slot_bytes = u64::from_ne_bytes(hello[48..56].try_into().unwrap());
    }
}

pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(page_bytes())
}

/// A memfd with these seals; its first `mapped` bytes are mapped here, writable, from before it was sealed.
pub fn memfd(bytes: u64, mapped: usize, seals: SealFlags) -> (OwnedFd, Map) {
    let fd = rustix::fs::memfd_create("peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    let map = Map::new(&fd, mapped, true);
    if !seals.is_empty() {
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    }
    (fd, map)
}

/// Memory that nobody can write, filled with a byte.
pub fn snapshot(bytes: u64, byte: u8, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::io::write(&fd, &vec![byte; bytes as usize]).unwrap();
    if !seals.is_empty() {
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    }
    fd
}

/// A shared mapping of a file.
#[derive(Debug)]
pub struct Map {
    at: *mut u8,
    len: usize,
}

// SAFETY: a range of addresses; words are atomic ones, and who stores bytes says why that is no race.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    pub fn new(fd: &OwnedFd, len: usize, writable: bool) -> Map {
        let prot = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: the kernel chooses addresses at which nothing is mapped.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Map { at: at.cast(), len }
    }

    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len);
        // SAFETY: within the mapping.
        unsafe { self.at.add(offset) }
    }

    /// A word of 64 bits.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!((index + 1) * 8 <= self.len);
        // SAFETY: mapped as long as `self` lives, aligned, and accessed by atomic accesses alone.
        unsafe { AtomicU64::from_ptr(self.at.add(index * 8).cast()) }
    }

    /// Stores bytes, as any program could.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        for (index, &byte) in bytes.iter().enumerate() {
            // SAFETY: within the mapping, and mapped writable.
            unsafe { self.at.add(offset + index).write_volatile(byte) };
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// Two sockets that are each other's peer.
pub fn sockets() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
}

/// What came over a socket: bytes (none where the other side is gone), and descriptors.
pub type Packet = (Vec<u8>, Vec<OwnedFd>);

/// One packet, if one is there.
pub fn try_recv(socket: impl AsFd) -> Option<Packet> {
    let mut bytes = [0; 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    let len = match got {
        Ok(got) => got.bytes,
        Err(rustix::io::Errno::AGAIN) => return None,
        Err(rustix::io::Errno::CONNRESET) => 0,
        Err(error) => panic!("recvmsg: {error}"),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Some((bytes[..len].to_vec(), fds))
}

/// One packet; waits for it.
pub fn recv(socket: impl AsFd) -> Packet {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(packet) = try_recv(&socket) {
            return packet;
        }
        assert!(Instant::now() < until, "no packet came");
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
    }
}

/// The greeting of a kind, or the reason why none will come.
fn greeting(socket: &OwnedFd, kind: u8) -> Result<Packet, String> {
    let (bytes, fds) = recv(socket);
    match bytes.get(8) {
        None => Err("gone".to_owned()),
        Some(&REFUSE) => Err(String::from_utf8_lossy(&bytes[56..]).into_owned()),
        Some(&found) => {
            assert_eq!(found, kind, "an honest end says the next thing");
            Ok((bytes, fds))
        }
    }
}

/// Words of the counters, and the first word of the cells.
const COUNTER: usize = 0;
const ASLEEP: usize = 8;
const CELLS: usize = 512;

/// A sender that is not the library's.
#[derive(Debug)]
pub struct RawSender {
    pub socket: OwnedFd,
    pub plan: Plan,
    pub forward: Map,
    pub reverse: Map,
    pub pool: Map,
    pub pool_fd: OwnedFd,
    /// Messages that it has published.
    pub published: u64,
    acks: u64,
}

impl RawSender {
    /// Runs the handshake; the error is the reason of the other side.
    pub fn meet(socket: OwnedFd, plan: Plan) -> Result<RawSender, String> {
        let ring_bytes = plan.ring_file_bytes.unwrap_or(plan.forward_bytes());
        let (ring_fd, forward) = memfd(ring_bytes, plan.forward_bytes() as usize, plan.ring_seals);
        let said = u64::from(plan.slots) * plan.slot_bytes;
        let pool_bytes = plan.pool_file_bytes.unwrap_or(said);
        let (pool_fd, pool) = memfd(pool_bytes, said as usize, plan.pool_seals);
        let mut fds = vec![ring_fd.as_fd(), pool_fd.as_fd()];
        fds.extend(std::iter::repeat_n(ring_fd.as_fd(), plan.extra_fds));
        let _ = send(&socket, &plan.greeting(HELLO), &fds);
        let (_, mut fds) = greeting(&socket, WELCOME)?;
        let reverse = Map::new(&fds.remove(0), plan.reverse_bytes() as usize, false);
        if !plan.late_seals.is_empty() {
            rustix::fs::fcntl_add_seals(&pool_fd, plan.late_seals).unwrap();
        }
        let _ = send(&socket, &plan.greeting(SETTLED), &[]);
        greeting(&socket, READY)?;
        Ok(RawSender { socket, plan, forward, reverse, pool, pool_fd, published: 0, acks: 0 })
    }

    /// An honest message of one slot.
    pub fn message(&self, verb: Verb, level: Level, slot: u32, len: u64) -> Descriptor {
        Descriptor {
            sequence: self.published,
            verb,
            level,
            extents: 0,
            first_slot: slot,
            slots: 1,
            offset: 0,
            len,
            tag: 0,
            object: 0,
        }
    }

    /// An honest message in the ring.
    pub fn inline(&self, len: u64) -> Descriptor {
        Descriptor { slots: 0, ..self.message(Verb::Inline, Level::Copy, 0, len) }
    }

    /// The first word of the cell of message `n`.
    pub fn cell(&self, n: u64) -> usize {
        CELLS + 8 * (n % u64::from(self.plan.capacity)) as usize
    }

    /// Where the inline bytes of message `n` are in the forward area.
    pub fn inline_at(&self, n: u64) -> usize {
        let capacity = u64::from(self.plan.capacity);
        (4096 + capacity * 64 + u64::from(self.plan.inline_bytes) * (n % capacity)) as usize
    }

    /// Writes the next cell, counts it, and wakes the receiver.
    pub fn publish(&mut self, words: [u64; 8]) {
        let cell = self.cell(self.published);
        for (index, word) in words.into_iter().enumerate() {
            self.forward.word(cell + index).store(word, Ordering::Relaxed);
        }
        self.published += 1;
        self.count(self.published);
    }

    /// The same, for a descriptor.
    pub fn say(&mut self, descriptor: Descriptor) {
        self.publish(descriptor.words());
    }

    /// Sets the counter of messages, and wakes the receiver.
    pub fn count(&self, published: u64) {
        self.forward.word(COUNTER).store(published, Ordering::SeqCst);
        self.note(Note::Wake);
    }

    pub fn note(&self, note: Note) {
        let _ = send(&self.socket, &note.bytes(), &[]);
    }

    /// Sends sealed memory.
    pub fn object(&self, number: u64, fd: &OwnedFd) {
        let _ = send(&self.socket, &Note::Object(number).bytes(), &[fd.as_fd()]);
    }

    /// Says that it sleeps.
    pub fn sleeps(&self, asleep: u64) {
        self.forward.word(ASLEEP).store(asleep, Ordering::SeqCst);
    }

    /// The next acknowledgement, if one is there.
    pub fn next_ack(&mut self) -> Option<[u64; 2]> {
        if self.reverse.word(COUNTER).load(Ordering::SeqCst) == self.acks {
            return None;
        }
        let cell = CELLS + 2 * (self.acks % u64::from(self.plan.capacity)) as usize;
        self.acks += 1;
        Some([0, 1].map(|word| self.reverse.word(cell + word).load(Ordering::Relaxed)))
    }
}

/// A receiver that is not the library's.
#[derive(Debug)]
pub struct RawReceiver {
    pub socket: OwnedFd,
    /// The shapes are those that the sender said.
    pub plan: Plan,
    pub forward: Map,
    pub reverse: Map,
    pub pool_fd: OwnedFd,
    /// Messages that it has acknowledged.
    pub acknowledged: u64,
}

impl RawReceiver {
    /// Runs the handshake; the error is the reason of the other side.
    pub fn meet(socket: OwnedFd, mut plan: Plan) -> Result<RawReceiver, String> {
        let (hello, mut fds) = greeting(&socket, HELLO)?;
        plan.learn(&hello);
        let pool_fd = fds.pop().unwrap();
        let forward = Map::new(&fds.pop().unwrap(), plan.forward_bytes() as usize, false);
        let ring_bytes = plan.ring_file_bytes.unwrap_or(plan.reverse_bytes());
        let (ring_fd, reverse) = memfd(ring_bytes, plan.reverse_bytes() as usize, plan.ring_seals);
        let mut fds = vec![ring_fd.as_fd()];
        fds.extend(std::iter::repeat_n(ring_fd.as_fd(), plan.extra_fds));
        let _ = send(&socket, &plan.greeting(WELCOME), &fds);
        greeting(&socket, SETTLED)?;
        let _ = send(&socket, &plan.greeting(READY), &[]);
        Ok(RawReceiver { socket, plan, forward, reverse, pool_fd, acknowledged: 0 })
    }

    /// Messages that the sender has published.
    pub fn published(&self) -> u64 {
        self.forward.word(COUNTER).load(Ordering::SeqCst)
    }

    /// The words of message `n`.
    pub fn words(&self, n: u64) -> [u64; 8] {
        let cell = CELLS + 8 * (n % u64::from(self.plan.capacity)) as usize;
        std::array::from_fn(|index| self.forward.word(cell + index).load(Ordering::Relaxed))
    }

    /// Acknowledges a message.
    pub fn ack(&mut self, words: [u64; 2]) {
        let cell = CELLS + 2 * (self.acknowledged % u64::from(self.plan.capacity)) as usize;
        for (index, word) in words.into_iter().enumerate() {
            self.reverse.word(cell + index).store(word, Ordering::Relaxed);
        }
        self.acknowledged += 1;
        self.count(self.acknowledged);
    }

    /// Sets the counter of acknowledgements, and wakes the sender.
    pub fn count(&self, acknowledged: u64) {
        self.reverse.word(COUNTER).store(acknowledged, Ordering::SeqCst);
        let _ = send(&self.socket, &Note::Wake.bytes(), &[]);
    }

    /// Says that it sleeps.
    pub fn sleeps(&self, asleep: u64) {
        self.reverse.word(ASLEEP).store(asleep, Ordering::SeqCst);
    }
}

/// A peer that sends, and what `receiver` has made of the other end of its socket.
pub fn meet_receiver<R: Send>(
    plan: Plan,
    receiver: impl FnOnce(OwnedFd) -> R + Send,
) -> (Result<RawSender, String>, R) {
    let (ours, theirs) = sockets();
    std::thread::scope(|scope| {
        let library = scope.spawn(move || receiver(theirs));
        let peer = RawSender::meet(ours, plan);
        (peer, library.join().unwrap())
    })
}

/// A peer that receives, and what `sender` has made of the other end of its socket.
pub fn meet_sender<R: Send>(
    plan: Plan,
    sender: impl FnOnce(OwnedFd) -> R + Send,
) -> (Result<RawReceiver, String>, R) {
    let (ours, theirs) = sockets();
    std::thread::scope(|scope| {
        let library = scope.spawn(move || sender(theirs));
        let peer = RawReceiver::meet(ours, plan);
        (peer, library.join().unwrap())
    })
}
