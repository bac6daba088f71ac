//! The calls that make, change and end an address space (`vmspace`).
//!
//! Each changes the map, under its lock held exclusively, and what has to go from the page tables goes in one batch,
//! flushed before the map lock is released and before any frame is given back. Every call checks its arguments first;
//! when it returns an error nothing has changed. Which error says what follows POSIX (`mmap`, `munmap`, `mprotect`).

use super::entry::{Advice, AmapRef, Attributes, Entry, Inherit, ObjectRef};
use super::lock::MapLock;
use super::map::Map;
use crate::config::Kind;
use crate::error::VmError;
use crate::movers::LoanHistory;
use crate::object::Object;
use crate::probe::VmDefect;
use crate::vm::{Space, Vm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Cause, Channel, Machine, PAGE_SHIFT, Prot, Threads, Va, VaRange, page_round};
use pageferry_pmap::TlbFlush;

/// Where a mapping goes (`mmap`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapAddr {
    /// At the lowest addresses that are free.
    Anywhere,
    /// At this address if it is free there; else anywhere. An address that makes no sense is no hint.
    Hint(Va),
    /// At this address, where nothing may be mapped.
    Free(Va),
    /// At this address, instead of what is mapped there (`MAP_FIXED`).
    Replace(Va),
}

/// An object, or part of one, to be mapped.
#[derive(Clone)]
pub struct Mapped<M: Machine> {
    /// The object.
    pub object: Arc<Object<M>>,
    /// Its first page that is mapped.
    pub first_page: u64,
    /// True: writes go to a private copy of the page (promotion). False: to the object.
    pub copy_on_write: bool,
}

impl<M: Machine> Vm<M> {
    /// A new, empty address space.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub fn space(self: &Arc<Self>) -> Result<Arc<Space<M>>, VmError> {
        let structure = self.structures().alloc(Kind::Space)?;
        let pmap = self.pmaps().create(self.frames())?;
        let at = structure.keep();
        let map = MapLock::new(self.machine(), Channel(at.0.0), self.probes().clone(), Map::new(self.user()));
        let space =
            Arc::new(Space { vm: self.clone(), at, map, pmap: Some(pmap), loans: LoanHistory::default() });
        self.journal().space(at.0.0);
        self.structures().register_space(at, &space);
        Ok(space)
    }
}

/// Loads are possible wherever stores or instruction fetches are: no machine here can tell them apart.
fn effective(prot: Prot) -> Prot {
    if prot.is_empty() { prot } else { prot | Prot::READ }
}

/// `at` and a length as a range of whole pages. `wrong` is the error for one that is not a range of user addresses.
pub(crate) fn page_range<M: Machine>(
    vm: &Vm<M>,
    at: Va,
    len_bytes: usize,
    wrong: VmError,
) -> Result<VaRange, VmError> {
    if !at.is_page_aligned() {
        return Err(VmError::Invalid);
    }
    let len_bytes = page_round(len_bytes as u64).ok_or(wrong)?;
    let end = at.0.checked_add(len_bytes).ok_or(wrong)?;
    let range = VaRange::new(at, Va(end));
    if vm.user().covers(&range) { Ok(range) } else { Err(wrong) }
}

impl<M: Machine> Space<M> {
    /// The number of map entries: how fragmented the map is.
    pub fn entry_count(&self, t: &dyn Threads) -> usize {
        self.map.read(t).len()
    }

    /// Maps zero-fill memory of `len_bytes`, rounded up to whole pages; `at` fixes the address, else the lowest that
    /// fits is chosen.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no length, or `at` is not page-aligned. [`VmError::Exists`]: something is mapped there.
    /// [`VmError::NoMemory`]: no room, outside user space, or out of structures.
    pub fn map(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        len_bytes: usize,
        prot: Prot,
        inherit: Inherit,
    ) -> Result<Va, VmError> {
        let place = at.map_or(MapAddr::Anywhere, MapAddr::Free);
        self.map_at(t, place, len_bytes, (prot, Prot::all()), inherit, None)
    }

    /// Maps `len_bytes` of an object, rounded up to whole pages.
    ///
    /// # Errors
    /// As [`Space::map`]; [`VmError::Invalid`] also when the object has no such pages.
    pub fn map_object(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        len_bytes: usize,
        prot: Prot,
        inherit: Inherit,
        mapped: Mapped<M>,
    ) -> Result<Va, VmError> {
        let place = at.map_or(MapAddr::Anywhere, MapAddr::Free);
        self.map_at(t, place, len_bytes, (prot, Prot::all()), inherit, Some(mapped))
    }

    fn refuse_behind_end(mapped: &Mapped<M>, len_bytes: usize) -> Result<(), VmError> {
        let len_pages = page_round(len_bytes as u64).ok_or(VmError::NoMemory)? >> PAGE_SHIFT;
        let end = mapped.first_page.checked_add(len_pages).ok_or(VmError::Invalid)?;
        // A file may be mapped behind its end; touching that is another matter.
        if end > mapped.object.len_pages() && !mapped.object.is_file() {
            return Err(VmError::Invalid);
        }
        Ok(())
    }

    /// Maps `len_bytes` of zero-fill memory, or of an object, rounded up to whole pages, at `place`; `prots` are what
    /// may be done there and what may ever be permitted.
    ///
    /// # Errors
    /// As [`Space::map_object`]; [`VmError::Access`] when more is permitted than may ever be. What [`MapAddr::Replace`]
    /// was to replace is still there then.
    pub fn map_at(
        &self,
        t: &dyn Threads,
        place: MapAddr,
        len_bytes: usize,
        prots: (Prot, Prot),
        inherit: Inherit,
        mapped: Option<Mapped<M>>,
    ) -> Result<Va, VmError> {
        let vm = &*self.vm;
        let _c = vm.machine().scope(Cause::Vm);
        if len_bytes == 0 {
            return Err(VmError::Invalid);
        }
        let (prot, max_prot) = (effective(prots.0), effective(prots.1));
        if !max_prot.contains(prot) {
            return Err(VmError::Access);
        }
        mapped.as_ref().map_or(Ok(()), |m| Self::refuse_behind_end(m, len_bytes))?;
        let wanted = match place {
            MapAddr::Anywhere => None,
            MapAddr::Hint(at) => page_range(vm, at, len_bytes, VmError::NoMemory).ok(),
            MapAddr::Free(at) | MapAddr::Replace(at) => {
                Some(page_range(vm, at, len_bytes, VmError::NoMemory)?)
            }
        };
        let mut map = self.map.write(t);
        let free = |range: &VaRange| map.look_up_range(vm, *range).next().is_none();
        let range = match (place, wanted) {
            (MapAddr::Replace(_), Some(range)) => range,
            (_, Some(range)) if free(&range) => range,
            (MapAddr::Free(_), _) => return Err(VmError::Exists),
            _ => {
                let len_bytes = page_round(len_bytes as u64).ok_or(VmError::NoMemory)?;
                let len_pages = (len_bytes >> PAGE_SHIFT) as usize;
                // An object's page has the same colour wherever it is mapped.
                let like = mapped.as_ref().map(|m| Va(m.first_page << PAGE_SHIFT));
                let start = map.find_space(vm, len_pages, like).ok_or(VmError::NoMemory)?;
                VaRange::pages_from(start, len_pages)
            }
        };
        let structure = vm.structures().alloc(Kind::Entry)?;
        let copy_on_write = mapped.as_ref().is_none_or(|m| m.copy_on_write);
        let attributes = Attributes {
            prot,
            max_prot,
            inherit,
            copy_on_write,
            // The amap is made when it is first needed.
            needs_copy: copy_on_write,
            transfer_area: false,
            advice: Advice::Normal,
        };
        self.clip_to_remove(&mut map, range)?;
        let at = structure.keep();
        // Nothing, unless it is to be replaced.
        let replaced = self.take_out(&mut map, range);
        let object = mapped.map(|m| {
            m.object.add_ref(vm);
            ObjectRef { object: m.object, page: m.first_page }
        });
        let amap: Option<AmapRef<M>> = None;
        map.insert(vm, Entry { at, range, attributes, amap, object, locked: Vec::new() });
        drop(map);
        replaced.into_iter().for_each(|entry| entry.dispose(vm));
        Ok(range.start())
    }

    /// Maps the frame buffer, at its own colours and for this space alone: a fork does not inherit it. It is not paged,
    /// lent or protected: to all of these calls it is a range that permits nothing.
    ///
    /// # Errors
    /// As [`Space::map_at`]; [`VmError::Invalid`] also when the board has none.
    pub fn map_frame_buffer(&self, t: &dyn Threads, place: MapAddr) -> Result<Va, VmError> {
        let vm = &*self.vm;
        let pages = vm.machine().board().device_memory.map_or(0, |devices| devices.frame_buffer_pages);
        let len_bytes = pages << PAGE_SHIFT;
        let at = self.map_at(t, place, len_bytes, (Prot::empty(), Prot::empty()), Inherit::None, None)?;
        if let Err(error) = vm.pmaps().enter_frame_buffer(vm.frames(), self.pmap(), at) {
            self.unmap(t, at, len_bytes)?;
            return Err(error.into());
        }
        Ok(at)
    }

    /// Unmaps the pages of a range, mapped or not. What has no other reference is freed at once.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no length, `at` is not page-aligned, or outside user space. [`VmError::NoMemory`]: a map
    /// entry must be cut and there is no structure for it.
    pub fn unmap(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<(), VmError> {
        let _c = self.vm.machine().scope(Cause::Vm);
        if len_bytes == 0 {
            return Err(VmError::Invalid);
        }
        let range = page_range(&self.vm, at, len_bytes, VmError::Invalid)?;
        self.remove(t, range)
    }

    fn remove(&self, t: &dyn Threads, range: VaRange) -> Result<(), VmError> {
        let vm = &*self.vm;
        let mut map = self.map.write(t);
        self.clip_to_remove(&mut map, range)?;
        let entries = self.take_out(&mut map, range);
        drop(map);
        for entry in entries {
            entry.dispose(vm);
        }
        Ok(())
    }

    /// Lets entries, and what maps them, begin and end at both ends of a range that is to be removed.
    pub(crate) fn clip_to_remove(&self, map: &mut Map<M>, range: VaRange) -> Result<(), VmError> {
        let vm = &*self.vm;
        vm.pmaps().split_block(vm.frames(), self.pmap(), range)?;
        map.clip(vm, range)
    }

    /// Takes the entries out of a clipped range, and removes and flushes their mappings.
    fn take_out(&self, map: &mut Map<M>, range: VaRange) -> Vec<Entry<M>> {
        let vm = &*self.vm;
        let entries = map.extract(vm, range);
        let mut pending = TlbFlush::new();
        let skip = vm.has(VmDefect::UnmapKeepsMappings) && range != vm.user();
        for entry in entries.iter().filter(|_| !skip) {
            pending.merge(vm.pmaps().remove(self.pmap(), entry.range));
        }
        if vm.has(VmDefect::UnmapWithoutFlush) {
            pending.not_cached(vm.pmaps());
        } else {
            pending.flush(vm.pmaps());
        }
        entries
    }

    /// Changes what may be done in a range. A length of zero changes nothing.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: `at` is not page-aligned. [`VmError::NoMemory`]: a page of the range is not mapped, or
    /// lies outside user space, or there is no structure for a map entry. [`VmError::Access`]: the mapping can never
    /// permit that.
    pub fn protect(&self, t: &dyn Threads, at: Va, len_bytes: usize, prot: Prot) -> Result<(), VmError> {
        let prot = effective(prot);
        self.change(t, at, len_bytes, |attributes| {
            if !attributes.max_prot.contains(prot) && !self.vm.has(VmDefect::ProtectBeyondMaximum) {
                return Err(VmError::Access);
            }
            Ok(Attributes { prot, ..attributes })
        })
    }

    /// Changes what happens to a range at fork (`minherit`). A length of zero changes nothing.
    ///
    /// # Errors
    /// As [`Space::protect`], but for the last.
    pub fn inherit(
        &self,
        t: &dyn Threads,
        at: Va,
        len_bytes: usize,
        inherit: Inherit,
    ) -> Result<(), VmError> {
        self.change(t, at, len_bytes, |attributes| Ok(Attributes { inherit, ..attributes }))
    }

    /// Gives the pages of a range the attributes that `new` makes of their old ones, if it does so for all of them.
    pub(crate) fn change(
        &self,
        t: &dyn Threads,
        at: Va,
        len_bytes: usize,
        new: impl Fn(Attributes) -> Result<Attributes, VmError>,
    ) -> Result<(), VmError> {
        let vm = &*self.vm;
        let _c = vm.machine().scope(Cause::Vm);
        let range = page_range(vm, at, len_bytes, VmError::NoMemory)?;
        if range.is_empty() {
            return Ok(());
        }
        let mut map = self.map.write(t);
        if !map.covers(vm, range) {
            return Err(VmError::NoMemory);
        }
        for entry in map.overlapping(range) {
            new(entry.attributes)?;
        }
        map.clip(vm, range)?;
        let mut pending = TlbFlush::new();
        for entry in map.within_mut(range) {
            vm.machine().execute(vm.paths().map_entry);
            let old = entry.attributes;
            entry.attributes = new(old)?;
            // Permissions that are gained come with the next fault.
            if !entry.attributes.prot.contains(old.prot) && !vm.has(VmDefect::ProtectKeepsMappings) {
                pending.merge(vm.pmaps().protect(self.pmap(), entry.range, entry.attributes.prot));
            }
        }
        pending.flush(vm.pmaps());
        map.join_around(vm, range);
        Ok(())
    }

    /// Unmaps everything; the last reference may then be dropped.
    pub fn terminate(&self, t: &dyn Threads) {
        let _c = self.vm.machine().scope(Cause::Vm);
        let removed = self.remove(t, self.vm.user());
        assert!(removed.is_ok(), "all of user space cuts no map entry: {removed:?}");
    }
}

impl<M: Machine> Drop for Space<M> {
    /// Gives the page tables back. A space that was not terminated keeps what it has, and [`Vm::check`] reports it: a
    /// destructor cannot sleep for the map lock, and a panic in one would hide the first.
    fn drop(&mut self) {
        let Some(pmap) = self.pmap.take() else { return };
        let empty = self.map.peek().is_some_and(|map| map.len() == 0) && pmap.attachments() == 0;
        self.vm.journal().space(self.at.0.0);
        self.vm.structures().forget_space(self.at);
        if !empty {
            self.vm.tally().abandoned.add(1);
            let _kept = core::mem::ManuallyDrop::new(pmap);
            return;
        }
        self.vm.pmaps().destroy(self.vm.frames(), pmap);
        self.vm.structures().free(Kind::Space, self.at);
    }
}
