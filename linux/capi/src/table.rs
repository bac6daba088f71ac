//! Handles: what C holds instead of a pointer.
//!
//! # The model
//! A handle is a number that looks like a pointer: a mark, a kind, the index of an entry in a table, and the
//! generation of that entry. Nothing is ever read through it. A handle that was freed, is NULL, is of another
//! kind, or is no handle at all is found by comparing numbers, and the caller is told so. An entry whose
//! generations are used up is never used again, so no two handles of a process are equal, ever. The marks are
//! addresses that no process can have, so that a program which reads through a handle all the same ends
//! there.
//!
//! # Who owns what
//! A live entry owns its value. A call borrows it (`Table::with`): a second call that comes meanwhile
//! waits, where calls on that kind are short, or is refused. A call that uses a handle up
//! (`Table::consume`) claims the entry first, so of two calls that use up or free one handle exactly one
//! succeeds. `Table::free` during a borrow ends the handle at once, and the value when the borrow ends.
//!
//! # Locks
//! One around the entries, never held while anything else is done; one around each value, which is taken
//! before the former where both are held.
//!
//! # Forked children
//! A child has tables of its own, which begin behind the numbers of its parent's: see `handles`.

use crate::fault::Fault;
use core::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Sender = 1,
    Receiver = 2,
    Listener = 3,
    Buffer = 4,
    Lent = 5,
    Loan = 6,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Sender, Kind::Receiver, Kind::Listener, Kind::Buffer, Kind::Lent, Kind::Loan];

    /// As error texts name it.
    fn name(self) -> &'static str {
        match self {
            Kind::Sender => "a pf_sender",
            Kind::Receiver => "a pf_receiver",
            Kind::Listener => "a pf_listener",
            Kind::Buffer => "a pf_buffer",
            Kind::Lent => "a pf_lent",
            Kind::Loan => "a pf_loan",
        }
    }
}

/// Neither the highest nor the lowest half of any address space, with four or with five levels of tables, and
/// whatever an Arm processor ignores of the highest byte.
const MARK: u64 = 0x504;
const MARK_SHIFT: u32 = 52;
const KIND_SHIFT: u32 = 48;
const GENERATION_SHIFT: u32 = 20;
/// The last generation that an entry can have.
const LAST_GENERATION: u32 = (1 << 28) - 1;
/// Entries of a table, at most.
const MAX_ENTRIES: u32 = 1 << 20;

/// One more than the highest index that a handle of this process or of its parents may have.
static END: AtomicU32 = AtomicU32::new(0);

/// The index at which the tables of a new process begin: behind all that its parents may have given out.
pub(crate) fn end() -> u32 {
    END.load(Ordering::Acquire).min(MAX_ENTRIES)
}

/// An argument of a call that should be a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle {
    bits: u64,
    /// As the header calls the argument.
    name: &'static str,
}

impl Handle {
    pub(crate) fn new(pointer: *const c_void, name: &'static str) -> Handle {
        Handle { bits: pointer.addr() as u64, name }
    }

    /// What it looks like.
    pub(crate) fn kind(self) -> Result<Kind, Fault> {
        if self.bits == 0 {
            return Err(Fault::usage(format!("`{}` is NULL", self.name)));
        }
        let kind = Kind::ALL.into_iter().find(|&kind| kind as u64 == (self.bits >> KIND_SHIFT) & 0xf);
        kind.filter(|_| self.bits >> MARK_SHIFT == MARK)
            .ok_or_else(|| Fault::usage(format!("`{}` is no handle of this library", self.name)))
    }

    fn index(self) -> u32 {
        (self.bits as u32) & (MAX_ENTRIES - 1)
    }

    fn generation(self) -> u32 {
        ((self.bits >> GENERATION_SHIFT) as u32) & LAST_GENERATION
    }

    fn freed(self) -> Fault {
        Fault::usage(format!("`{}` was freed or used up before", self.name))
    }

    fn busy(self) -> Fault {
        Fault::usage(format!("`{}` is in use by a call of another thread", self.name))
    }
}

type Value<T> = Arc<Mutex<Option<T>>>;

/// The values of one kind of handle.
#[derive(Debug)]
pub(crate) struct Table<T> {
    kind: Kind,
    /// The index of its first entry. Lower ones were a parent's.
    first: u32,
    /// Calls on a value are short, so that another one waits.
    patient: bool,
    last_generation: u32,
    entries: Mutex<Entries<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    all: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    held: Slot<T>,
}

#[derive(Debug)]
enum Slot<T> {
    Nothing,
    /// It is about to be filled, or a call is about to use it up.
    Claimed,
    Live(Value<T>),
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind, first: u32, patient: bool) -> Table<T> {
        let entries = Entries { all: Vec::new(), free: Vec::new() };
        Table { kind, first, patient, last_generation: LAST_GENERATION, entries: Mutex::new(entries) }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more than the highest index of an entry.
    #[cfg(test)]
    pub(crate) fn end(&self) -> u32 {
        self.first + self.lock().all.len() as u32
    }

    /// Handles that are live.
    pub(crate) fn live(&self) -> usize {
        self.lock().all.iter().filter(|entry| matches!(entry.held, Slot::Live(_))).count()
    }

    /// Room for a handle. Without it a call does not begin what it could not hand out.
    pub(crate) fn reserve(&self) -> Result<Reserved<'_, T>, Fault> {
        let mut entries = self.lock();
        let index = match entries.free.pop() {
            Some(index) => index,
            None => {
                let index = entries.all.len() as u32;
                if index >= MAX_ENTRIES.saturating_sub(self.first) {
                    let of = self.kind.name();
                    return Err(Fault::budget(format!("{MAX_ENTRIES} handles of the kind of {of} are open")));
                }
                if entries.all.try_reserve(1).is_err()
                    || entries.free.try_reserve(index as usize + 1).is_err()
                {
                    return Err(Fault::budget("no memory is left for another handle".to_owned()));
                }
                entries.all.push(Entry { generation: 1, held: Slot::Nothing });
                index
            }
        };
        entries.all[index as usize].held = Slot::Claimed;
        Ok(Reserved { table: self, index })
    }

    /// The entry that a handle names, if it is live.
    fn find<'a>(&self, entries: &'a mut Entries<T>, handle: Handle) -> Result<&'a mut Entry<T>, Fault> {
        let kind = handle.kind()?;
        if kind != self.kind {
            let (name, is, wanted) = (handle.name, kind.name(), self.kind.name());
            return Err(Fault::usage(format!("`{name}` is {is}; expected {wanted}")));
        }
        let Some(index) = handle.index().checked_sub(self.first) else {
            let name = handle.name;
            let what =
                "belongs to the process that this one was forked from: give a child a channel of its own";
            return Err(Fault::usage(format!("`{name}` {what}")));
        };
        let entry =
            entries.all.get_mut(index as usize).filter(|entry| entry.generation == handle.generation());
        match entry {
            Some(Entry { held: Slot::Nothing, .. }) | None => Err(handle.freed()),
            Some(Entry { held: Slot::Claimed, .. }) => Err(handle.busy()),
            Some(entry) => Ok(entry),
        }
    }

    fn get(&self, handle: Handle) -> Result<Value<T>, Fault> {
        match &self.find(&mut self.lock(), handle)?.held {
            Slot::Live(value) => Ok(Arc::clone(value)),
            _ => Err(handle.busy()),
        }
    }

    fn lock_value<'a>(
        &self,
        value: &'a Value<T>,
        handle: Handle,
    ) -> Result<MutexGuard<'a, Option<T>>, Fault> {
        if self.patient {
            return Ok(value.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match value.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(handle.busy()),
        }
    }

    /// Does something with a value.
    pub(crate) fn with<R>(
        &self,
        handle: Handle,
        does: impl FnOnce(&mut T) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let value = self.get(handle)?;
        let mut guard = self.lock_value(&value, handle)?;
        does(guard.as_mut().ok_or_else(|| handle.freed())?)
    }

    /// Does something that uses a value up, and its handle. An error may bring the value back: then the
    /// handle is as it was.
    pub(crate) fn consume<R>(
        &self,
        handle: Handle,
        does: impl FnOnce(T) -> Result<R, (Fault, Option<T>)>,
    ) -> Result<R, Fault> {
        let value = self.get(handle)?;
        let mut guard = self.lock_value(&value, handle)?;
        let claimed = core::mem::replace(&mut self.find(&mut self.lock(), handle)?.held, Slot::Claimed);
        let claim = Reserved { table: self, index: handle.index() - self.first };
        let taken = guard.take().ok_or_else(|| handle.freed())?;
        match does(taken) {
            Ok(done) => Ok(done),
            Err((fault, None)) => Err(fault),
            Err((fault, Some(back))) => {
                *guard = Some(back);
                claim.hold(claimed);
                Err(fault)
            }
        }
    }

    /// Ends a handle, and its value when no call uses it any more.
    pub(crate) fn free(&self, handle: Handle) -> Result<(), Fault> {
        let mut entries = self.lock();
        let held = core::mem::replace(&mut self.find(&mut entries, handle)?.held, Slot::Nothing);
        self.retire(&mut entries, handle.index() - self.first);
        // Dropping it takes other locks, and may take long.
        drop(entries);
        drop(held);
        Ok(())
    }

    /// The entry begins its next generation, if it has one.
    fn retire(&self, entries: &mut Entries<T>, index: u32) {
        let entry = &mut entries.all[index as usize];
        entry.held = Slot::Nothing;
        entry.generation += 1;
        if entry.generation <= self.last_generation {
            // There is room: it was made with the entry.
            entries.free.push(index);
        }
    }
}

/// An entry that nobody else uses. Dropping it ends the handle.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reserved<'a, T> {
    table: &'a Table<T>,
    index: u32,
}

impl<T> Reserved<'_, T> {
    /// A handle of a value.
    pub(crate) fn fill(self, value: T) -> *mut c_void {
        let Table { kind, first, .. } = *self.table;
        let index = self.index;
        END.fetch_max(first + index + 1, Ordering::AcqRel);
        let generation = self.hold(Slot::Live(Arc::new(Mutex::new(Some(value)))));
        let bits = MARK << MARK_SHIFT
            | (kind as u64) << KIND_SHIFT
            | u64::from(generation) << GENERATION_SHIFT
            | u64::from(first + index);
        core::ptr::without_provenance_mut(bits as usize)
    }

    /// The entry's generation.
    fn hold(self, held: Slot<T>) -> u32 {
        let mut entries = self.table.lock();
        let entry = &mut entries.all[self.index as usize];
        entry.held = held;
        let generation = entry.generation;
        drop(entries);
        core::mem::forget(self);
        generation
    }
}

impl<T> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        self.table.retire(&mut self.table.lock(), self.index);
    }
}

#[cfg(test)]
mod tests;
