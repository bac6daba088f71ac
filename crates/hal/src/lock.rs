//! Spin locks with a declared order.
//!
//! A lock owns what it protects. The type comes from the machine ([`crate::Machine::Lock`]): a modelled lock charges
//! for atomics and waiting and checks the order below at run time; a bare-metal lock is an atomic word.
//!
//! # Order
//! The UVM paper (3.2) orders map, amap, object, anon, page queues; [`LockClass`] adds the other floors around it. A
//! lock may be taken only while every lock already held by the same thread has a *lower* class; against the order only
//! [`SpinLock::try_lock`] is allowed, and a thread that fails gives up or starts over. Two locks of one class are never held
//! together, except by `try_lock`. A thread holds no spin lock when it sleeps. (The map lock is a sleep lock, made from
//! a short-held lock of class [`LockClass::MapInterlock`]; `vm` keeps its place, above all of these, by types.)

use core::ops::DerefMut;

/// The place of a lock in the order, lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LockClass {
    /// Process table, descriptors.
    Process,
    /// A pipe, or one direction of a socket pair.
    Pipe,
    /// The pool of mbufs and clusters.
    Mbuf,
    /// The interlock of a sleepable map lock; held only for a few instructions.
    MapInterlock,
    /// An amap: its slots.
    Amap,
    /// A memory object: its pages.
    Object,
    /// An anon: its frame or swap slot.
    Anon,
    /// The table of frames: free list, queues, wire and loan counts, owners.
    PageQueues,
    /// The kernel's address allocator.
    KernelVa,
    /// The cache of ephemeral mappings (`sf_buf_lock`).
    Ephemeral,
    /// The table of reverse mappings.
    ReverseMap,
    /// One address space's page tables.
    Pmap,
    /// The one shootdown in flight (`smp_ipi_mtx`).
    Shootdown,
    /// What is to be done at some time.
    Callout,
    /// Run and sleep queues (`sched_lock`); interrupt handlers take it to make threads runnable.
    Scheduler,
    /// A hash table of translations: the refill handler takes it, whatever it interrupts.
    HashTable,
}

impl LockClass {
    /// True for locks that interrupt or refill handlers take: the holder has interrupts off.
    pub const fn masks_interrupts(self) -> bool {
        matches!(self, LockClass::Scheduler | LockClass::HashTable)
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
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}
