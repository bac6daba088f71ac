//! Moving pages into an address space (UVM paper, 4.2): the kernel's, each with a new anon; or anons on loan.
//!
//! Afterwards they are ordinary anonymous memory. They go to a range that is mapped, where they take the place of the
//! anons (or the view of an object) that were there; or into the space's *transfer area*, addresses with a few amaps
//! that stay when what was received there is flushed out with [`Space::anflush`].
//!
//! They are mapped at once, where that needs no waiting: the receiver is about to use the pages (UVM paper, 5.3: a
//! mapping is added to the receiving process). What could not be mapped is faulted in.
//!
//! The map is held exclusively. All that can fail comes first and is undone if something does: the entries get amaps of
//! their own and these get room. Then, amap by amap, every mapping of what is replaced is revoked and flushed, and only
//! then the slots change. So no load sees an old page after a new one.
//!
//! A page that is wired is not replaced: the kernel may be writing there.
//!
//! What is replaced is freed; or the kernel gets it back for what it has given, if nobody else has it
//! ([`Space::exchange_pages`], [`TransferConfig::returns`](crate::TransferConfig::returns)).

use super::loan::AnonLoan;
use crate::anon::{Amap, AmapState, Anon};
use crate::config::Kind;
use crate::error::VmError;
use crate::map::{Advice, AmapRef, Attributes, Entry, Inherit, Map, collect_entries, of_colour, page_range};
use crate::page::{KernelUse, Wired};
use crate::probe::{Tally, VmDefect};
use crate::vm::{Space, Vm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{
    Cause, CodePath, Flow, FlowStep, Machine, Means, PAGE_SHIFT, PAGE_SIZE, Parcel, Pfn, Place, Prot,
    Threads, Va, VaRange,
};
use pageferry_pmap::TlbFlush;

/// Amaps of a transfer area.
const AREA_AMAPS: usize = 4;
/// Slots of each.
const AREA_AMAP_PAGES: usize = 1024;

/// Frames of the kernel's that hold data: clusters of mbufs, a driver's buffers. Their bytes are whatever was there
/// before: code that fills them and lets user code see them must overwrite all of each.
#[must_use = "kernel pages must be transferred or freed"]
#[derive(Debug)]
pub struct KernelPages {
    frames: Vec<Pfn>,
    tally: Tally,
}

impl KernelPages {
    /// The frames, in order.
    pub fn frames(&self) -> &[Pfn] {
        &self.frames
    }

    /// Adds the pages of `more` behind these.
    pub fn append(&mut self, mut more: KernelPages) {
        self.frames.append(&mut more.frames);
    }

    /// Takes the pages from `first` on out.
    ///
    /// # Panics
    /// When there are fewer than `first`.
    pub fn split_off(&mut self, first: usize) -> KernelPages {
        KernelPages { frames: self.frames.split_off(first), tally: self.tally.clone() }
    }

    /// For a defect: the same frames once more, as if they were others.
    pub fn claimed_again(&self) -> KernelPages {
        self.tally.kernel_pages.add(self.frames.len());
        KernelPages { frames: self.frames.clone(), tally: self.tally.clone() }
    }

    /// For a defect: lets go of frames that are the kernel's no more.
    pub fn forget(self) {
        self.into_frames();
    }

    /// Frames that are the kernel's already, if there are any.
    pub(super) fn of(frames: Vec<Pfn>, tally: &Tally) -> Option<KernelPages> {
        if frames.is_empty() {
            return None;
        }
        tally.kernel_pages.add(frames.len());
        Some(KernelPages { frames, tally: tally.clone() })
    }

    pub(super) fn into_frames(mut self) -> Vec<Pfn> {
        self.tally.kernel_pages.sub(self.frames.len());
        core::mem::take(&mut self.frames)
    }
}

impl Drop for KernelPages {
    /// Pages that are given back are no longer in here.
    fn drop(&mut self) {
        self.tally.lost.add(self.frames.len());
    }
}

/// What became of pages that were given to a process while the kernel maps them still.
#[must_use = "what is wired must be unwired, and what came in exchange freed"]
#[derive(Debug)]
pub struct Given {
    /// Where the first is.
    pub at: Va,
    /// A wire on each of them, to be taken off when the kernel maps them no more.
    pub wired: Wired,
    /// Pages that were there before, if they are the kernel's.
    pub exchanged: Option<KernelPages>,
}

/// What was refused comes back, with the reason.
#[must_use = "what was refused is still owed"]
#[derive(Debug)]
pub struct Refused<T> {
    /// Why.
    pub error: VmError,
    /// What was to be moved.
    pub back: T,
}

/// What was put into a space: where it is, and whose place it has taken.
struct Insertion<M: Machine> {
    at: Va,
    /// With the references that slots had.
    replaced: Vec<Arc<Anon<M>>>,
}

/// What a transfer executes beside changing mappings and anons, as the kernel is configured.
pub(super) struct TransferPaths {
    /// For all pages together.
    pub(super) once: Option<CodePath>,
    /// For each page.
    pub(super) each: CodePath,
    /// For each page that was replaced and is freed, if that is not counted with the others.
    pub(super) put: Option<CodePath>,
}

impl<M: Machine> Vm<M> {
    pub(super) fn transfer_paths(&self) -> TransferPaths {
        let (path, config) = (self.paths().transfer, self.transfer_config());
        let locked = |locked: u32| CodePath { locked, ..CodePath::of(0) };
        let once = config.locked_once.min(path.locked);
        let put = if config.returns { config.put_locked.min(path.locked - once) } else { 0 };
        TransferPaths {
            once: (once > 0).then(|| locked(once)),
            each: CodePath { locked: path.locked - once - put, ..path },
            put: (put > 0).then(|| locked(put)),
        }
    }

    /// Allocates `len_pages` frames for the kernel's data.
    ///
    /// # Errors
    /// [`VmError::Invalid`] for no pages; [`VmError::NoMemory`], at once.
    ///
    /// # Locks
    /// Takes the page queues.
    pub fn kernel_pages(&self, len_pages: usize) -> Result<KernelPages, VmError> {
        self.kernel_pages_by(None, len_pages)
    }

    /// The same for a caller that may sleep: waits for the page daemon where frames are short.
    ///
    /// # Errors
    /// As [`Vm::kernel_pages`]; [`VmError::NoMemory`] where waiting does not help, as [`Vm::wait_for_memory`] finds
    /// out.
    ///
    /// # Locks
    /// Sleeps: no spin lock may be held.
    pub fn kernel_pages_waiting(&self, t: &dyn Threads, len_pages: usize) -> Result<KernelPages, VmError> {
        self.kernel_pages_by(Some(t), len_pages)
    }

    fn kernel_pages_by(&self, t: Option<&dyn Threads>, len_pages: usize) -> Result<KernelPages, VmError> {
        if len_pages == 0 {
            return Err(VmError::Invalid);
        }
        let frames = self.kernel_frames(t, KernelUse::Data, len_pages)?;
        self.tally().kernel_pages.add(len_pages);
        Ok(KernelPages { frames, tally: self.tally().clone() })
    }

    /// Gives such frames back. The kernel maps them no more, and has flushed.
    ///
    /// # Locks
    /// Takes the page queues.
    pub fn free_kernel_pages(&self, pages: KernelPages) {
        let frames = pages.into_frames();
        frames.iter().rev().for_each(|&f| self.frames().free_kernel(f, KernelUse::Data));
    }
}

impl<M: Machine> Space<M> {
    /// Makes kernel pages this space's anonymous memory: at `at`, or in the transfer area. The kernel maps them no
    /// more, and has flushed. Returns the address of the first.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no pages, or `at` is not page-aligned. [`VmError::Fault`]: not all of the range is mapped.
    /// [`VmError::Access`]: it may not be written, or is no memory of its own (a mapping that writes to its object).
    /// [`VmError::Busy`]: a page there is wired. [`VmError::NoMemory`]: also when the transfer area is full. Nothing
    /// has changed then, and the pages come back.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn transfer_pages(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        pages: KernelPages,
    ) -> Result<Va, Refused<KernelPages>> {
        let moved = self.transfer_kernel_pages(t, at, pages, false)?;
        self.let_go(moved.replaced, false);
        Ok(moved.at)
    }

    /// As [`Space::transfer_pages`]; where the kernel is configured so, pages that are replaced and are nobody else's
    /// are the kernel's then, in place of those that it gives: no more than these. They have whatever bytes the process
    /// had there.
    ///
    /// # Errors
    /// As [`Space::transfer_pages`].
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn exchange_pages(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        pages: KernelPages,
    ) -> Result<(Va, Option<KernelPages>), Refused<KernelPages>> {
        let Insertion { at, replaced } = self.transfer_kernel_pages(t, at, pages, false)?;
        let frames = self.let_go(replaced, self.vm().transfer_config().returns);
        Ok((at, KernelPages::of(frames, self.vm().tally())))
    }

    /// As [`Space::transfer_pages`], for pages that the kernel still maps: they stay wired until the caller has undone
    /// that, and has unwired them.
    ///
    /// # Errors
    /// As [`Space::transfer_pages`].
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn transfer_pages_wired(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        pages: KernelPages,
    ) -> Result<Given, Refused<KernelPages>> {
        let frames = pages.frames.clone();
        let Insertion { at, replaced } = self.transfer_kernel_pages(t, at, pages, true)?;
        self.let_go(replaced, false);
        let len_bytes = frames.len() * PAGE_SIZE;
        Ok(Given { at, wired: Wired::of(frames, 0, len_bytes), exchanged: None })
    }

    fn transfer_kernel_pages(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        pages: KernelPages,
        stay_wired: bool,
    ) -> Result<Insertion<M>, Refused<KernelPages>> {
        let vm = self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let mut anons = Vec::with_capacity(pages.frames.len());
        let mut error = vm.needs_anons().err();
        for &frame in pages.frames.iter().filter(|_| error.is_none()) {
            match Anon::of_frame(vm, frame) {
                Ok(anon) => anons.push(anon),
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        let adopt = |anons: &[Arc<Anon<M>>]| {
            let mut table = vm.frames().lock();
            for (anon, &frame) in anons.iter().zip(&pages.frames) {
                match stay_wired {
                    true => table.adopt_wired(frame, anon),
                    false => table.adopt(frame, anon),
                }
            }
        };
        let moved = match error {
            Some(e) => Err(e),
            None => self.insert_anons(t, at, &anons, adopt),
        };
        match moved {
            Ok(moved) => {
                let theirs_now = pages.into_frames();
                let done = |frame| vm.machine().trace_flow(Flow::Page(frame), FlowStep::Done);
                theirs_now.into_iter().for_each(done);
                Ok(moved)
            }
            Err(error) => {
                anons.into_iter().for_each(|anon| anon.forget(vm));
                Err(Refused { error, back: pages })
            }
        }
    }

    /// Makes anons on loan this space's anonymous memory: at `at`, or in the transfer area. Returns the address of the
    /// first. Writing to them copies, as long as the lender has them too.
    ///
    /// # Errors
    /// As [`Space::transfer_pages`].
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn transfer_anons(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        anons: AnonLoan<M>,
    ) -> Result<Va, Refused<AnonLoan<M>>> {
        let _c = self.vm().machine().scope(Cause::Vm);
        match self.insert_anons(t, at, anons.anons(), |_| ()) {
            Ok(Insertion { at, replaced }) => {
                self.let_go(replaced, false);
                let _in_slots_now = anons.into_anons();
                Ok(at)
            }
            Err(error) => Err(Refused { error, back: anons }),
        }
    }

    /// Puts `anons`, with their references, in the slots of a range; `commit` is called when nothing can fail any more
    /// and no other thread can find them yet. Returns what they have replaced, which the caller lets go.
    fn insert_anons(
        &self,
        t: &dyn Threads,
        at: Option<Va>,
        anons: &[Arc<Anon<M>>],
        commit: impl FnOnce(&[Arc<Anon<M>>]),
    ) -> Result<Insertion<M>, VmError> {
        let vm = &**self.vm();
        if anons.is_empty() {
            return Err(VmError::Invalid);
        }
        let mut map = self.locked_map().write(t);
        let range = match at {
            Some(at) => page_range(vm, at, anons.len() * PAGE_SIZE, VmError::Fault(at))?,
            None => {
                let first = anons[0].lock().frame;
                let like = first.map(|frame| Va(u64::from(vm.pmaps().best_colour(frame)) << PAGE_SHIFT));
                find_in_area(vm, &mut map, anons.len(), like)?
            }
        };
        if !map.covers(vm, range) {
            return Err(VmError::Fault(range.start()));
        }
        let writable = |a: Attributes| a.prot.contains(Prot::RW) || vm.has(VmDefect::TransferIntoReadOnly);
        let takes = |a: Attributes| a.copy_on_write && writable(a);
        if !map.overlapping(range).all(|e| takes(e.attributes)) {
            return Err(VmError::Access);
        }
        copy_amaps(vm, &mut map, range)?;
        if !vm.has(VmDefect::TransferOverWired) {
            refuse_wired(vm, &map, range)?;
        }
        reserve(vm, &map, range)?;
        commit(anons);
        let mut replaced = Vec::new();
        let mut anons = anons.iter();
        let paths = vm.transfer_paths();
        paths.once.into_iter().for_each(|once| vm.machine().execute(once));
        for entry in map.overlapping(range) {
            let (part, aref, slots) = part(entry, range).expect("each has an amap");
            let mut amap = aref.amap.lock();
            self.revoke(entry, part, &amap, &slots);
            for (slot, page) in slots.zip(part.pages()) {
                vm.machine().execute(paths.each);
                let anon = anons.next().expect("as many anons as pages").clone();
                self.map_received(entry, page, &anon);
                replaced.extend(amap.put(vm, slot, anon));
            }
        }
        if vm.has(VmDefect::TransferLeaksReplaced) {
            replaced.clear();
        }
        assert!(anons.next().is_none(), "as many pages as anons");
        drop(map);
        Ok(Insertion { at: range.start(), replaced })
    }

    /// Drops the references that slots had on what was replaced. Where it `returns`, answers the frames that are the
    /// kernel's now, because they were nobody else's.
    fn let_go(&self, replaced: Vec<Arc<Anon<M>>>, returns: bool) -> Vec<Pfn> {
        let vm = self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let put = vm.transfer_paths().put;
        let mut returned = Vec::new();
        for anon in replaced {
            match returns.then(|| anon.give_frame_up(vm)).flatten() {
                Some(frame) => returned.push(frame),
                None => put.into_iter().for_each(|put| vm.machine().execute(put)),
            }
            let twice = vm.has(VmDefect::TransferFreesShared) && anon.lock().refs > 1;
            anon.drop_ref(vm);
            if twice {
                anon.drop_ref(vm);
            }
        }
        returned
    }

    /// Maps the page of `anon`, which goes into the slot of `page`; nothing is mapped there. Failing costs a fault
    /// later.
    fn map_received(&self, entry: &Entry<M>, page: Va, anon: &Anon<M>) {
        let vm = self.vm();
        let state = anon.lock();
        // What is in the swap area comes in when it is touched.
        let Some(frame) = state.usable() else { return };
        let mut prot = entry.attributes.prot;
        if state.refs > 1 || vm.frames().loan_count(frame) > 0 {
            prot.remove(Prot::WRITE);
        }
        vm.journal().frame(frame);
        let parcel = Parcel { by: Means::Transfer, at: Place::User(page), len_bytes: PAGE_SIZE };
        vm.machine().trace_flow(Flow::Page(frame), FlowStep::Received(parcel));
        if let Ok(change) = vm.pmaps().enter(vm.frames(), self.pmap(), page, frame, prot, false) {
            assert!(change.is_empty(), "something was mapped at {page:?}, which was revoked");
        }
    }

    /// Takes away and flushes every mapping of what is seen through `slots`, which the part `part` of `entry` covers.
    fn revoke(&self, entry: &Entry<M>, part: VaRange, amap: &AmapState<M>, slots: &Range<u64>) {
        let vm = self.vm();
        let mut pending = TlbFlush::new();
        pending.merge(vm.pmaps().remove(self.pmap(), part));
        if !vm.has(VmDefect::TransferKeepsMappings) && amap.slot_refs().max_of(slots.clone()) > 1 {
            for (_, anon) in amap.anons(slots.clone()) {
                // What is in the swap area alone is not mapped.
                if let Some(frame) = anon.lock().frame {
                    pending.merge(vm.pmaps().page_protect(frame, Prot::empty()));
                }
            }
            if let Some(oref) = &entry.object {
                let first = entry.object_page(oref, part.start());
                let state = oref.object.lock();
                for &frame in state.pages().range(first..first + part.len_pages() as u64).map(|(_, f)| f) {
                    pending.merge(vm.pmaps().page_protect(frame, Prot::empty()));
                }
            }
        }
        match vm.has(VmDefect::TransferWithoutFlush) {
            true => pending.not_cached(vm.pmaps()),
            false => _ = pending.flush(vm.pmaps()),
        }
    }

    /// Removes the anons of a range and keeps its amaps, so that the next transfer finds them (UVM paper, 4.2.2). What
    /// is read there afterwards is what the object below has, or zero.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no length, or `at` is not page-aligned. [`VmError::NoMemory`]: not all of the range is
    /// mapped, or no structures are left. [`VmError::Busy`]: a page there is wired. Nothing has changed then.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn anflush(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<(), VmError> {
        let vm = &**self.vm();
        vm.needs_anons()?;
        let _c = vm.machine().scope(Cause::Vm);
        if len_bytes == 0 {
            return Err(VmError::Invalid);
        }
        let range = page_range(vm, at, len_bytes, VmError::NoMemory)?;
        let mut map = self.locked_map().write(t);
        if !map.covers(vm, range) {
            return Err(VmError::NoMemory);
        }
        refuse_wired(vm, &map, range)?;
        // An amap that waits to be copied is another's too. One that does not exist has no anons.
        let waiting = |e: &Entry<M>| e.amap.is_some() && e.attributes.needs_copy;
        let starts: Vec<Va> =
            map.overlapping(range).filter(|e| waiting(e)).map(|e| e.range.start()).collect();
        for start in starts {
            map.look_up_mut(vm, start).expect("just seen").amap_copy(vm)?;
        }
        let mut removed = Vec::new();
        for entry in map.overlapping(range) {
            let Some((part, aref, slots)) = part(entry, range) else { continue };
            let mut amap = aref.amap.lock();
            if !vm.has(VmDefect::AnflushKeepsMappings) {
                self.revoke(entry, part, &amap, &slots);
            }
            amap.take(vm, slots, &mut removed);
        }
        drop(map);
        for anon in removed {
            vm.machine().execute(vm.paths().transfer);
            anon.drop_ref(vm);
        }
        Ok(())
    }
}

/// What `entry` has of `range`: the pages, the amap, the slots. Nothing for an entry without amap.
pub(crate) fn part<M: Machine>(
    entry: &Entry<M>,
    range: VaRange,
) -> Option<(VaRange, &AmapRef<M>, Range<u64>)> {
    let part = entry.range.intersect(&range)?;
    let aref = entry.amap.as_ref()?;
    let first = entry.slot(aref, part.start());
    Some((part, aref, first..first + part.len_pages() as u64))
}

pub(crate) fn copy_amaps<M: Machine>(vm: &Vm<M>, map: &mut Map<M>, range: VaRange) -> Result<(), VmError> {
    let starts: Vec<Va> = map.overlapping(range).map(|e| e.range.start()).collect();
    for start in starts {
        let entry = map.look_up_mut(vm, start).expect("just seen");
        if entry.amap.is_some() && vm.has(VmDefect::TransferForgetsCopy) {
            continue;
        }
        entry.amap_copy(vm)?;
    }
    Ok(())
}

fn refuse_wired<M: Machine>(vm: &Vm<M>, map: &Map<M>, range: VaRange) -> Result<(), VmError> {
    for (_, aref, slots) in map.overlapping(range).filter_map(|e| part(e, range)) {
        if aref.amap.lock().anons(slots).any(|(_, anon)| anon.is_wired(vm)) {
            return Err(VmError::Busy);
        }
    }
    Ok(())
}

/// Makes room in the amaps of `range`, or leaves them as they are.
fn reserve<M: Machine>(vm: &Vm<M>, map: &Map<M>, range: VaRange) -> Result<(), VmError> {
    let parts = || map.overlapping(range).filter_map(|e| part(e, range));
    for (_, aref, mut slots) in parts() {
        let mut amap = aref.amap.lock();
        let reserved = slots.try_for_each(|slot| amap.reserve(vm, slot));
        drop(amap);
        if let Err(e) = reserved {
            for (_, aref, slots) in parts() {
                let mut amap = aref.amap.lock();
                slots.for_each(|slot| amap.trim(vm, slot));
            }
            return Err(e);
        }
    }
    Ok(())
}

/// Free pages of the transfer area, which is made if there is none; of the colour of `like`, if there are such.
///
/// # Errors
/// [`VmError::NoMemory`].
fn find_in_area<M: Machine>(
    vm: &Vm<M>,
    map: &mut Map<M>,
    len_pages: usize,
    like: Option<Va>,
) -> Result<VaRange, VmError> {
    if len_pages > AREA_AMAPS * AREA_AMAP_PAGES {
        return Err(VmError::NoMemory);
    }
    let is_left = |area| area_entries(vm, map, area).next().is_some();
    if !map.transfer_area.is_some_and(is_left) {
        map.transfer_area = Some(make_area(vm, map)?);
    }
    let area = map.transfer_area.expect("just made");
    let start = of_colour(vm, len_pages, like, |len_pages| free_run(vm, map, area, len_pages));
    let start = start.ok_or(VmError::NoMemory)?;
    Ok(VaRange::pages_from(start, len_pages))
}

fn area_entries<'a, M: Machine>(
    vm: &'a Vm<M>,
    map: &'a Map<M>,
    area: VaRange,
) -> impl Iterator<Item = &'a Entry<M>> {
    map.look_up_range(vm, area).filter(|e| e.attributes.transfer_area && e.attributes.prot.contains(Prot::RW))
}

/// The lowest `len_pages` pages in a row without anons.
fn free_run<M: Machine>(vm: &Vm<M>, map: &Map<M>, area: VaRange, len_pages: usize) -> Option<Va> {
    let len_bytes = len_pages * PAGE_SIZE;
    let (mut start, mut end) = (area.start(), area.start());
    for entry in area_entries(vm, map, area) {
        if entry.range.start() != end {
            start = entry.range.start();
        }
        end = entry.range.end();
        if let Some(aref) = &entry.amap {
            for (slot, _) in aref.amap.lock().anons(entry.slots(aref)) {
                let used = entry.range.start() + (slot - aref.slot) as usize * PAGE_SIZE;
                if used - start >= len_bytes {
                    return Some(start);
                }
                start = used + PAGE_SIZE;
            }
        }
        if end - start >= len_bytes {
            return Some(start);
        }
    }
    None
}

fn make_area<M: Machine>(vm: &Vm<M>, map: &mut Map<M>) -> Result<VaRange, VmError> {
    let start = map.find_space_high(vm, AREA_AMAPS * AREA_AMAP_PAGES, None).ok_or(VmError::NoMemory)?;
    let area = VaRange::pages_from(start, AREA_AMAPS * AREA_AMAP_PAGES);
    let range = |i| VaRange::pages_from(start + i * AREA_AMAP_PAGES * PAGE_SIZE, AREA_AMAP_PAGES);
    let entries = collect_entries(vm, (0..AREA_AMAPS).map(|i| area_entry(vm, range(i))))?;
    entries.into_iter().for_each(|entry| map.insert(vm, entry));
    Ok(area)
}

fn area_entry<M: Machine>(vm: &Vm<M>, range: VaRange) -> Result<Entry<M>, VmError> {
    let attributes = Attributes {
        prot: Prot::RW,
        max_prot: Prot::all(),
        inherit: Inherit::Copy,
        copy_on_write: true,
        needs_copy: false,
        transfer_area: true,
        advice: Advice::Normal,
    };
    let structure = vm.structures().alloc(Kind::Entry)?;
    let len_pages = range.len_pages() as u64;
    let amap = Amap::new(vm, len_pages, vm.frames().next_first_colour(len_pages))?;
    let amap = Some(AmapRef { amap, slot: 0 });
    Ok(Entry { at: structure.keep(), range, attributes, amap, object: None, locked: Vec::new() })
}
