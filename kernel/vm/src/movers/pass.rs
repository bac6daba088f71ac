//! Passing map entries: a range of one address space, with all that is mapped there, appears in another (UVM paper,
//! 4.3).
//!
//! The range may hold several mappings, of any kind, and holes, which stay holes. Entries that reach over an end are
//! cut. Nothing is copied and no page is looked at: the receiver's entries refer to the same amaps and objects, and
//! faults do the rest.
//!
//! Both maps are held exclusively, and always locked in the order of the addresses of their spaces; no other call
//! sleeps for one map with another held. The receiver's entries are made first, as references beside the sender's, and
//! everything that can fail is over before either side loses or sees anything: what is donated leaves the sender when
//! the receiver's side is complete and has only to be put in. So a failure at any step leaves both as they were.

use crate::config::Kind;
use crate::error::VmError;
use crate::map::{Attributes, Entry, Map, MapWrite, collect_entries, copy_entry, page_range, share_entry};
use crate::probe::VmDefect;
use crate::vm::{Space, Vm};
use alloc::vec::Vec;
use pageferry_abi::PassMode;
use pageferry_hal::{Cause, Machine, Threads, Va, VaRange};
use pageferry_pmap::TlbFlush;

/// The two maps; one, when a space passes to itself.
pub(crate) struct Maps<'a, M: Machine> {
    pub(crate) from: MapWrite<'a, M, Map<M>>,
    to: Option<MapWrite<'a, M, Map<M>>>,
}

impl<'a, M: Machine> Maps<'a, M> {
    pub(crate) fn lock(from: &'a Space<M>, to: &'a Space<M>, t: &'a dyn Threads) -> Maps<'a, M> {
        let lock = |space: &'a Space<M>| space.locked_map().write(t);
        let (source, target) = (from.struct_va().0, to.struct_va().0);
        if source == target {
            return Maps { from: lock(from), to: None };
        }
        if source < target {
            let from = lock(from);
            Maps { from, to: Some(lock(to)) }
        } else {
            let to = lock(to);
            Maps { from: lock(from), to: Some(to) }
        }
    }

    pub(crate) fn to(&mut self) -> &mut Map<M> {
        match &mut self.to {
            Some(to) => to,
            None => &mut self.from,
        }
    }
}

/// Tests that [`pass`] could be asked for `len_bytes` from `at` in `from`: an offer that can never be taken is refused
/// when it is made.
///
/// # Errors
/// [`VmError::Invalid`] and [`VmError::Fault`], as of [`pass`].
///
/// # Locks
/// Sleeps for the map lock: no spin lock may be held.
pub fn passable<M: Machine>(
    from: &Space<M>,
    t: &dyn Threads,
    at: Va,
    len_bytes: usize,
) -> Result<(), VmError> {
    let vm = &**from.vm();
    let _c = vm.machine().scope(Cause::Vm);
    if len_bytes == 0 {
        return Err(VmError::Invalid);
    }
    let range = page_range(vm, at, len_bytes, VmError::Fault(at))?;
    match from.locked_map().read(t).look_up_range(vm, range).next() {
        Some(_) => Ok(()),
        None => Err(VmError::Fault(at)),
    }
}

/// Passes `len_bytes`, in whole pages, from `at` in `from` to `to`: at `to_at`, or at the lowest addresses that are
/// free. Returns where. Both may be the same space. Protection and inheritance go along.
///
/// # Errors
/// [`VmError::Invalid`]: no length, or an address that is not page-aligned. [`VmError::Fault`]: nothing is mapped in
/// the range, or it is no range of user addresses. [`VmError::Exists`]: something is mapped at `to_at`.
/// [`VmError::NoMemory`]: no room, or out of structures. Nothing has changed then, on either side, but that a map entry
/// may stay cut where memory was to be shared that was never touched.
///
/// # Locks
/// Sleeps for both map locks: no spin lock may be held.
pub fn pass<M: Machine>(
    from: &Space<M>,
    to: &Space<M>,
    t: &dyn Threads,
    at: Va,
    len_bytes: usize,
    to_at: Option<Va>,
    mode: PassMode,
) -> Result<Va, VmError> {
    let vm = &**from.vm();
    assert!(core::ptr::eq(vm, &**to.vm()), "memory is passed within one machine");
    let _c = vm.machine().scope(Cause::Vm);
    if len_bytes == 0 {
        return Err(VmError::Invalid);
    }
    let range = page_range(vm, at, len_bytes, VmError::Fault(at))?;
    let fixed = to_at.map(|to_at| page_range(vm, to_at, len_bytes, VmError::NoMemory)).transpose()?;
    let mut maps = Maps::lock(from, to, t);
    if maps.from.look_up_range(vm, range).next().is_none() {
        return Err(VmError::Fault(at));
    }
    let target = match fixed {
        Some(target) if maps.to().look_up_range(vm, target).next().is_some() => return Err(VmError::Exists),
        Some(target) => target,
        None => {
            let start =
                maps.to().find_space(vm, range.len_pages(), Some(range.start())).ok_or(VmError::NoMemory)?;
            VaRange::pages_from(start, range.len_pages())
        }
    };
    match mode {
        PassMode::Donate | PassMode::DonateZero => from.clip_to_remove(&mut maps.from, range)?,
        PassMode::Share | PassMode::Copy => maps.from.clip(vm, range)?,
    }
    let prepared = prepare(vm, t, &mut maps.from, range, mode).and_then(|passed| {
        let zeroed =
            if mode == PassMode::DonateZero { zero_fill(vm, &maps.from, range) } else { Ok(Vec::new()) };
        match zeroed {
            Ok(zeroed) => Ok((passed, zeroed)),
            Err(e) => {
                passed.into_iter().for_each(|entry| entry.dispose(vm));
                Err(e)
            }
        }
    });
    let (passed, zeroed) = match prepared {
        Ok(prepared) => prepared,
        Err(e) => {
            if vm.has(VmDefect::DonateLosesOnFailure) && mode == PassMode::Donate {
                for entry in maps.from.extract(vm, range) {
                    vm.pmaps().remove(from.pmap(), entry.range).flush(vm.pmaps());
                    entry.dispose(vm);
                }
            }
            maps.from.join_around(vm, range);
            return Err(e);
        }
    };
    // From here on nothing fails.
    if mode == PassMode::Copy {
        from.commit_deferred(&mut maps.from, &passed);
    }
    let mut taken = Vec::new();
    if matches!(mode, PassMode::Donate | PassMode::DonateZero) {
        taken = maps.from.extract(vm, range);
        let mut pending = TlbFlush::new();
        for entry in taken.iter().filter(|_| !vm.has(VmDefect::DonateKeepsMappings)) {
            pending.merge(vm.pmaps().remove(from.pmap(), entry.range));
        }
        pending.flush(vm.pmaps());
        zeroed.into_iter().for_each(|entry| maps.from.insert(vm, entry));
    }
    for mut entry in passed {
        let offset = entry.range.start() - range.start();
        entry.range = VaRange::pages_from(target.start() + offset, entry.range.len_pages());
        maps.to().insert(vm, entry);
    }
    maps.from.join_around(vm, range);
    drop(maps);
    taken.into_iter().for_each(|entry| entry.dispose(vm));
    Ok(target.start())
}

/// The receiver's entries, still at the sender's addresses. On failure none is left.
fn prepare<M: Machine>(
    vm: &Vm<M>,
    t: &dyn Threads,
    map: &mut Map<M>,
    range: VaRange,
    mode: PassMode,
) -> Result<Vec<Entry<M>>, VmError> {
    let made = map.within_mut(range).map(|entry| {
        vm.machine().execute(vm.paths().pass);
        let mut entry = match mode {
            PassMode::Share => share_entry(vm, entry),
            PassMode::Copy => copy_entry(vm, t, entry),
            PassMode::Donate | PassMode::DonateZero => entry.duplicate(vm),
        }?;
        entry.attributes.transfer_area = false;
        Ok(entry)
    });
    collect_entries(vm, made)
}

/// Zero-fill entries to stand where the sender's entries stood. On failure none is left.
fn zero_fill<M: Machine>(vm: &Vm<M>, map: &Map<M>, range: VaRange) -> Result<Vec<Entry<M>>, VmError> {
    let made = map.overlapping(range).map(|entry| {
        let at = vm.structures().alloc(Kind::Entry)?.keep();
        let attributes =
            Attributes { copy_on_write: true, needs_copy: true, transfer_area: false, ..entry.attributes };
        Ok(Entry { at, range: entry.range, attributes, amap: None, object: None, locked: Vec::new() })
    });
    collect_entries(vm, made)
}
