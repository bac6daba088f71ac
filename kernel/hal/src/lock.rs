//! Spin locks with a declared order.
//!
//! A lock owns what it protects. The type comes from the machine ([`crate::Machine::Lock`]): a modelled lock charges
//! for atomics and waiting and checks the order below at run time; a bare-metal lock is an atomic word.
//!
//! # Order
//! The UVM paper (3.2) orders map, amap, object, anon, page queues; [`LockClass`] adds the other floors around it. A
//! lock may be taken only while every lock already held by the same thread has a *lower* class; against the order only
//! [`SpinLock::try_lock`] is allowed, and a thread that fails gives up or starts over. Two locks of one class are never
//! held together, except by `try_lock`. A thread holds no spin lock when it sleeps. (The map lock is a sleep lock, made
//! from a short-held lock of class [`LockClass::MAP_INTERLOCK`]; `vm` keeps its place, above all of these, by types.)

use core::fmt;
use core::ops::DerefMut;

/// A class of locks: its name, and its place in the order.
///
/// A kernel declares its classes as constants, and makes each lock with the class that it is of
/// ([`crate::Machine::new_lock`]). The classes of the kernel floors here are constants of this type; a kernel of
/// another design has its own:
///
/// ```
/// use pageferry_hal::LockClass;
///
/// const INODE: LockClass = LockClass::new("inode", 10);
/// const BUFFER: LockClass = LockClass::new("buffer", 20);
/// const RUN_QUEUE: LockClass = LockClass::new("run queue", 30).masking_interrupts();
///
/// assert!(BUFFER.may_follow(INODE) && !INODE.may_follow(BUFFER));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockClass {
    name: &'static str,
    /// Locks are taken in ascending order. `None`: in any.
    rank: Option<u32>,
    masks_interrupts: bool,
}

impl LockClass {
    /// A class at `rank` in the order: its locks are taken while none is held whose rank is as high, or higher.
    pub const fn new(name: &'static str, rank: u32) -> LockClass {
        LockClass { name, rank: Some(rank), masks_interrupts: false }
    }

    /// A class without a place in the order: its locks may be taken whatever is held, and nothing but a deadlock shows
    /// that two threads took them in different orders.
    pub const fn unordered(name: &'static str) -> LockClass {
        LockClass { name, rank: None, masks_interrupts: false }
    }

    /// The same class, for locks that interrupt or refill handlers take: the holder has interrupts off.
    pub const fn masking_interrupts(self) -> LockClass {
        LockClass { masks_interrupts: true, ..self }
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Its place in the order; `None` for a class without.
    pub const fn rank(self) -> Option<u32> {
        self.rank
    }

    /// True for locks that interrupt or refill handlers take: the holder has interrupts off.
    pub const fn masks_interrupts(self) -> bool {
        self.masks_interrupts
    }

    /// True when the order permits a thread that holds a lock of class `held` to wait for one of this class.
    pub const fn may_follow(self, held: LockClass) -> bool {
        match (self.rank, held.rank) {
            (Some(rank), Some(held)) => rank > held,
            _ => true,
        }
    }
}

impl fmt::Debug for LockClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The classes of the kernel floors, lowest first, with room between them.
impl LockClass {
    /// Process table, descriptors.
    pub const PROCESS: LockClass = LockClass::new("Process", 10);
    /// A pipe, or one direction of a socket pair.
    pub const PIPE: LockClass = LockClass::new("Pipe", 20);
    /// The pool of mbufs and clusters.
    pub const MBUF: LockClass = LockClass::new("Mbuf", 30);
    /// The interlock of a sleepable map lock; held only for a few instructions.
    pub const MAP_INTERLOCK: LockClass = LockClass::new("MapInterlock", 40);
    /// An amap: its slots.
    pub const AMAP: LockClass = LockClass::new("Amap", 50);
    /// A memory object: its pages.
    pub const OBJECT: LockClass = LockClass::new("Object", 60);
    /// An anon: its frame or swap slot.
    pub const ANON: LockClass = LockClass::new("Anon", 70);
    /// The table of frames: free list, queues, wire and loan counts, owners.
    pub const PAGE_QUEUES: LockClass = LockClass::new("PageQueues", 80);
    /// The kernel's address allocator.
    pub const KERNEL_VA: LockClass = LockClass::new("KernelVa", 90);
    /// The cache of ephemeral mappings (`sf_buf_lock`).
    pub const EPHEMERAL: LockClass = LockClass::new("Ephemeral", 100);
    /// The table of reverse mappings.
    pub const REVERSE_MAP: LockClass = LockClass::new("ReverseMap", 110);
    /// One address space's page tables.
    pub const PMAP: LockClass = LockClass::new("Pmap", 120);
    /// The one shootdown in flight (`smp_ipi_mtx`).
    pub const SHOOTDOWN: LockClass = LockClass::new("Shootdown", 130);
    /// What is to be done at some time.
    pub const CALLOUT: LockClass = LockClass::new("Callout", 140);
    /// Run and sleep queues (`sched_lock`); interrupt handlers take it to make threads runnable.
    pub const SCHEDULER: LockClass = LockClass::new("Scheduler", 150).masking_interrupts();
    /// The reserved entries of a TLB: a switch takes it.
    pub const RESERVED_ENTRIES: LockClass = LockClass::new("ReservedEntries", 155).masking_interrupts();
    /// A hash table of translations: the refill handler takes it, whatever it interrupts.
    pub const HASH_TABLE: LockClass = LockClass::new("HashTable", 160).masking_interrupts();

    /// All of these.
    pub const FLOORS: [LockClass; 17] = [
        LockClass::PROCESS,
        LockClass::PIPE,
        LockClass::MBUF,
        LockClass::MAP_INTERLOCK,
        LockClass::AMAP,
        LockClass::OBJECT,
        LockClass::ANON,
        LockClass::PAGE_QUEUES,
        LockClass::KERNEL_VA,
        LockClass::EPHEMERAL,
        LockClass::REVERSE_MAP,
        LockClass::PMAP,
        LockClass::SHOOTDOWN,
        LockClass::CALLOUT,
        LockClass::SCHEDULER,
        LockClass::RESERVED_ENTRIES,
        LockClass::HASH_TABLE,
    ];
}

/// A set of classes that have a place in the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LockSet([u64; 4]);

impl LockSet {
    /// No class.
    pub const EMPTY: LockSet = LockSet([0; 4]);

    /// The set with `class` besides.
    ///
    /// # Panics
    /// For a class without a place in the order, or with one beyond 255.
    #[must_use]
    pub fn with(mut self, class: LockClass) -> LockSet {
        let rank = class.rank.expect("a class with a place in the order") as usize;
        self.0[rank / 64] |= 1 << (rank % 64);
        self
    }

    /// True when `class` is in it.
    pub fn contains(self, class: LockClass) -> bool {
        let word = class.rank.and_then(|rank| Some((self.0.get(rank as usize / 64)?, rank % 64)));
        word.is_some_and(|(word, bit)| word & 1 << bit != 0)
    }
}

impl fmt::Debug for LockSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = (0..256).filter(|rank| self.0[rank / 64] & 1 << (rank % 64) != 0);
        f.debug_set().entries(ranks).finish()
    }
}

/// How the locks of the kernel that is modelled are made, which decides what they cost. It changes nothing in what they
/// protect, in who waits for them, or in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockCosts {
    /// They are compiled in where there is one CPU, too, without the lock prefix: nobody waits there, but taking one
    /// costs instructions.
    pub on_one_cpu: bool,
    /// Releasing one is a locked instruction, as taking it is; otherwise it is a store.
    pub release_is_locked: bool,
    /// Classes whose locks that kernel does not have: what they protect here, it has once for each CPU, or under
    /// another lock, or changes by a locked instruction that the path counts ([`crate::CodePath::locked`]).
    pub absent: LockSet,
}

impl Default for LockCosts {
    /// Every lock is there, and both taking and releasing it is locked.
    fn default() -> LockCosts {
        LockCosts { on_one_cpu: true, release_is_locked: true, absent: LockSet::EMPTY }
    }
}

/// A spin lock and what it protects.
pub trait SpinLock<T> {
    /// Proof of holding; gives access to the contents and releases when dropped.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a,
        T: 'a;

    /// Takes the lock, spinning while another CPU holds it. Interrupts stay on, and are off from then on for classes of
    /// [`LockClass::masks_interrupts`].
    ///
    /// # Panics
    /// A modelled lock panics when this breaks the declared order, or when the caller holds the lock already.
    #[track_caller]
    fn lock(&self) -> Self::Guard<'_>;

    /// Takes the lock if it is free; allowed in any order.
    #[track_caller]
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}
