//! Export and import: ranges of address spaces offered to other processes (UVM paper, 4.3.2).
//!
//! # What it holds
//! One table of offers. A process *exports* a range of its addresses: it chooses how the memory is to be passed and
//! which processes may have it, and gets a number for the offer. Nothing is passed yet. One of those *imports* the
//! offer by its number: then what is mapped in the range at that moment goes to the importer (`pageferry_vm::pass`), or
//! its pages are lent to it. Memory that is shared or copied can be imported any number of times, memory that is
//! donated once: the import takes the offer with it.
//!
//! # Life of an offer
//! From the export to the import that takes it, the withdrawal by its maker, or the exit of its maker. Numbers are
//! never used twice, so a number that was given out and is no longer there has been taken back, and one that was never
//! given out is nonsense.
//!
//! # Locks
//! One of class `Process`, held for a look-up only; never while memory is passed. An import of a donation claims the
//! offer first: a second one finds it busy and neither waits nor passes anything. An import that fails leaves the offer
//! as it was. The maker may exit at any point of an import: its map lock decides whether the memory was passed before
//! or is gone.
//!
//! # What can fail
//! An export, for want of a structure or because nothing is mapped; an import, for the importer's sake or because the
//! offer is gone. Nothing has changed then on either side.

use crate::proc::Syscall;
use alloc::sync::Arc;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_abi::{Errno, ExportId, ExportTo, Imported, PassMode, Pid};
use pageferry_hal::LockClass;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Access, Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Place, SpinLock, StructArena, StructVa, Va,
    Zone,
};
use pageferry_vm::{Space, pass, passable};

/// Offers that can stand at a time.
pub const MAX_EXPORTS: usize = 1024;

/// An offer: range, mode, permission, maker, and links.
const EXPORT_BYTES: usize = 48;

/// How what is offered gets to the importer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    /// As map entries.
    Pass(PassMode),
    /// As pages that are lent to anons.
    Loan,
}

struct Export<M: Machine> {
    structure: StructVa,
    maker: Pid,
    space: Arc<Space<M>>,
    at: Va,
    len_bytes: usize,
    carry: Carry,
    to: ExportTo,
    /// An import of a donation is under way.
    claimed: bool,
}

impl<M: Machine> Export<M> {
    fn is_donation(&self) -> bool {
        matches!(self.carry, Carry::Pass(PassMode::Donate | PassMode::DonateZero))
    }
}

/// Memory that processes offer to others, by number.
pub struct Exports<M: Machine> {
    table: M::Lock<Table<M>>,
}

struct Table<M: Machine> {
    offers: LiteMap<ExportId, Export<M>>,
    next: u64,
    structures: Zone,
}

impl<M: Machine> Table<M> {
    /// The offer called `id`.
    ///
    /// # Errors
    /// [`Errno::Removed`] when it no longer stands, [`Errno::Invalid`] when it never did.
    fn get(&mut self, id: ExportId) -> Result<&mut Export<M>, Errno> {
        let known = (1..self.next).contains(&id.0);
        self.offers.get_mut(&id).ok_or(if known { Errno::Removed } else { Errno::Invalid })
    }

    /// Takes an offer out; the caller drops it without the lock, as it may be the last to know the space.
    fn remove(&mut self, id: ExportId) -> Option<Export<M>> {
        let export = self.offers.remove(&id)?;
        self.structures.free(export.structure);
        Some(export)
    }
}

impl<M: Machine> Exports<M> {
    /// Without offers.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(m: &M, arena: &mut StructArena) -> Result<Exports<M>, ArenaFull> {
        let structures = arena.zone("exports", MAX_EXPORTS, EXPORT_BYTES)?;
        let table = Table { offers: LiteMap::new(), next: 1, structures };
        Ok(Exports { table: m.new_lock(LockClass::PROCESS, table) })
    }

    /// Offers that stand.
    pub fn count(&self) -> usize {
        self.table.lock().offers.len()
    }

    /// Makes an offer of the caller's memory.
    pub fn export(
        &self,
        call: &Syscall<'_, M>,
        range: (Va, usize),
        carry: Carry,
        to: ExportTo,
    ) -> Result<ExportId, Errno> {
        let (at, len_bytes) = range;
        call.machine().execute(call.core.config.paths.export);
        if carry == Carry::Loan && !len_bytes.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::Invalid);
        }
        passable(call.space, call.thread, at, len_bytes)?;
        if call.core.vm.allocation_fails() {
            return Err(Errno::NoMemory);
        }
        let mut exports = self.table.lock();
        let structure = exports.structures.alloc().ok_or(Errno::NoMemory)?;
        call.machine().touch(structure, EXPORT_BYTES, Access::Write);
        let id = ExportId(exports.next);
        exports.next += 1;
        let (maker, space) = (call.pid, call.space.clone());
        let export = Export { structure, maker, space, at, len_bytes, carry, to, claimed: false };
        exports.offers.insert(id, export);
        let parcel = parcel(carry, at, len_bytes);
        call.machine().trace_flow(Flow::Range(id.0), FlowStep::Sent(parcel));
        Ok(id)
    }

    /// Brings what `id` offers into the caller's address space.
    pub fn import(&self, call: &Syscall<'_, M>, id: ExportId, to_at: Option<Va>) -> Result<Imported, Errno> {
        call.machine().execute(call.core.config.paths.export);
        let (from, at, len_bytes, carry, donation) = {
            let mut exports = self.table.lock();
            let export = exports.get(id)?;
            call.machine().touch(export.structure, EXPORT_BYTES, Access::Read);
            if export.to != ExportTo::Anyone && export.to != ExportTo::Process(call.pid) {
                return Err(Errno::Access);
            }
            if export.claimed {
                return Err(Errno::Busy);
            }
            export.claimed = export.is_donation();
            (export.space.clone(), export.at, export.len_bytes, export.carry, export.claimed)
        };
        let passed = match carry {
            Carry::Pass(mode) => pass(&from, call.space, call.thread, at, len_bytes, to_at, mode),
            Carry::Loan => {
                from.loan_to_anons(call.thread, at, len_bytes).and_then(|anons| call.give_anons(to_at, anons))
            }
        };
        let mut exports = self.table.lock();
        let done = match passed {
            Ok(at) => {
                let parcel = parcel(carry, at, len_bytes);
                call.machine().trace_flow(Flow::Range(id.0), FlowStep::Received(parcel));
                let taken = if donation { exports.remove(id) } else { None };
                drop(exports);
                drop(taken);
                Ok(Imported { at, len_bytes: len_bytes.next_multiple_of(PAGE_SIZE) })
            }
            Err(error) => match exports.get(id) {
                Ok(export) => {
                    export.claimed = false;
                    Err(error.into())
                }
                // Its maker has exited meanwhile.
                Err(gone) => Err(gone),
            },
        };
        // Perhaps the last reference: not under a lock.
        drop(from);
        done
    }

    /// Takes an offer back.
    pub fn withdraw(&self, call: &Syscall<'_, M>, id: ExportId) -> Result<(), Errno> {
        call.machine().execute(call.core.config.paths.export);
        let mut exports = self.table.lock();
        let export = exports.get(id)?;
        call.machine().touch(export.structure, EXPORT_BYTES, Access::Write);
        if export.maker != call.pid {
            return Err(Errno::Access);
        }
        if export.claimed {
            return Err(Errno::Busy);
        }
        let withdrawn = exports.remove(id);
        drop(exports);
        drop(withdrawn);
        Ok(())
    }

    /// Takes all offers of a process back that exits.
    pub fn withdraw_all(&self, maker: Pid) {
        let mut exports = self.table.lock();
        let ids: Vec<ExportId> =
            exports.offers.iter().filter(|(_, e)| e.maker == maker).map(|(&id, _)| id).collect();
        let withdrawn: Vec<Export<M>> = ids.into_iter().filter_map(|id| exports.remove(id)).collect();
        drop(exports);
        drop(withdrawn);
    }
}

/// What goes from one address space to another, as its owner there has it.
fn parcel(carry: Carry, at: Va, len_bytes: usize) -> Parcel {
    let by = match carry {
        Carry::Pass(_) => Means::Pass,
        Carry::Loan => Means::Loan,
    };
    Parcel { by, at: Place::User(at), len_bytes: len_bytes.next_multiple_of(PAGE_SIZE) }
}
