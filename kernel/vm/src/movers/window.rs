//! Windows: addresses at which a process sees pages of the kernel's and may only read them (Linux: a mapping of a
//! socket and `TCP_ZEROCOPY_RECEIVE`; it is what became of the page-flip paper's receive).
//!
//! A window is a mapping of an object of its own. What the kernel shows there becomes the object's pages, and is mapped
//! at once; what was there before goes back to the kernel. There is no anon, nothing of the process's own is replaced,
//! and however many pages one call shows, what they replace is flushed in one step. A page that the kernel does not
//! show is not there: touching it is [`VmError::Bus`].
//!
//! The pages stay wired, as a device's do: they are neither paged nor lent, and what is sent from there is copied.
//! Permissions can never grow, and a fork does not inherit a window.
//!
//! # Locks
//! The map shared, then the object's lock, under which mappings go, are flushed, and others come. So no load sees an
//! old page after a new one.
//!
//! # What can fail
//! All that can comes first; nothing has changed then, and the pages come back.

use super::transfer::{Given, KernelPages, Refused};
use crate::error::VmError;
use crate::map::{Entry, Inherit, Map, MapAddr, Mapped, page_range};
use crate::object::{Object, ObjectState};
use crate::page::Wired;
use crate::probe::VmDefect;
use crate::vm::{Space, Vm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{
    Cause, Flow, FlowStep, Machine, Means, PAGE_SHIFT, PAGE_SIZE, Parcel, Pfn, Place, Prot, Threads, Va,
    VaRange, page_round,
};
use pageferry_pmap::TlbFlush;

impl<M: Machine> Space<M> {
    /// Maps a window of `len_bytes`, rounded up to whole pages, without pages.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no length. [`VmError::NoMemory`]: no room, or out of structures.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn map_window(&self, t: &dyn Threads, len_bytes: usize) -> Result<Va, VmError> {
        let vm = &**self.vm();
        let len_pages = page_round(len_bytes as u64).ok_or(VmError::NoMemory)? >> PAGE_SHIFT;
        let object = vm.window_object(len_pages)?;
        let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: false };
        let prots = (Prot::READ, Prot::READ);
        let at = self.map_at(t, MapAddr::Anywhere, len_bytes, prots, Inherit::None, Some(mapped));
        // The mapping has its own reference.
        vm.release_object(object);
        at
    }

    /// Shows kernel pages at `at`, which lies in a window, in place of what is shown there. The kernel maps them no
    /// more, and has flushed. What was shown there goes to the allocator, or where the kernel is configured so
    /// ([`TransferConfig::returns`](crate::TransferConfig::returns)) is the answer: the kernel's pages again, with the
    /// bytes that they had, but for those that somebody has wired meanwhile.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no pages, or `at` is not page-aligned. [`VmError::Fault`]: not all of the range is mapped.
    /// [`VmError::Access`]: it is no window, or of two. [`VmError::Busy`]: it is locked in memory; or somebody has
    /// wired a page there, and others were given the window, who may have locked it. Nothing has changed then, and the
    /// pages come back.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn show_pages(
        &self,
        t: &dyn Threads,
        at: Va,
        pages: KernelPages,
    ) -> Result<Option<KernelPages>, Refused<KernelPages>> {
        self.show(t, at, pages, false)
    }

    /// As [`Space::show_pages`], for pages that the kernel still maps: they stay wired until the caller has undone
    /// that, and has unwired them.
    ///
    /// # Errors
    /// As [`Space::show_pages`].
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn show_pages_wired(
        &self,
        t: &dyn Threads,
        at: Va,
        pages: KernelPages,
    ) -> Result<Given, Refused<KernelPages>> {
        let frames = pages.frames().to_vec();
        let exchanged = self.show(t, at, pages, true)?;
        let len_bytes = frames.len() * PAGE_SIZE;
        Ok(Given { at, wired: Wired::of(frames, 0, len_bytes), exchanged })
    }

    fn show(
        &self,
        t: &dyn Threads,
        at: Va,
        pages: KernelPages,
        stay_wired: bool,
    ) -> Result<Option<KernelPages>, Refused<KernelPages>> {
        let vm = self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let shown = Some((pages.frames(), stay_wired));
        match self.change_window(t, at, pages.frames().len(), VmError::Fault(at), shown) {
            Ok(back) => {
                let shown = pages.into_frames();
                let done = |frame| vm.machine().trace_flow(Flow::Page(frame), FlowStep::Done);
                shown.into_iter().for_each(done);
                let mut back = KernelPages::of(back, vm.tally());
                if !vm.transfer_config().returns {
                    back.take().into_iter().for_each(|pages| vm.free_kernel_pages(pages));
                }
                Ok(back)
            }
            Err(error) => Err(Refused { error, back: pages }),
        }
    }

    /// Takes the pages out of a part of a window; touching it is an error from then on. Answers them as
    /// [`Space::show_pages`] does.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no length, or `at` is not page-aligned. [`VmError::NoMemory`]: not all of the range is
    /// mapped. [`VmError::Access`], [`VmError::Busy`] as of [`Space::show_pages`]. Nothing has changed then.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn clear_window(
        &self,
        t: &dyn Threads,
        at: Va,
        len_bytes: usize,
    ) -> Result<Option<KernelPages>, VmError> {
        let _c = self.vm().machine().scope(Cause::Vm);
        let len_pages = page_round(len_bytes as u64).ok_or(VmError::Invalid)? >> PAGE_SHIFT;
        let back = self.change_window(t, at, len_pages as usize, VmError::NoMemory, None)?;
        Ok(KernelPages::of(back, self.vm().tally()))
    }

    /// Takes what is shown in a range of `len_pages` out, and shows other frames there, as many, if there are any, each
    /// with another wire if they are to have one. Answers what is the kernel's again. Fails with `unmapped` where not
    /// all of the range is mapped.
    fn change_window(
        &self,
        t: &dyn Threads,
        at: Va,
        len_pages: usize,
        unmapped: VmError,
        shown: Option<(&[Pfn], bool)>,
    ) -> Result<Vec<Pfn>, VmError> {
        let vm = &**self.vm();
        if len_pages == 0 {
            return Err(VmError::Invalid);
        }
        let range = page_range(vm, at, len_pages * PAGE_SIZE, unmapped)?;
        let map = self.locked_map().read(t);
        let window = window_of(vm, &map, range, unmapped)?;
        let mut state = window.lock();
        refuse_locked(vm, &map, &state, range)?;
        let paths = vm.transfer_paths();
        paths.once.into_iter().for_each(|once| vm.machine().execute(once));
        let mut back = Vec::new();
        for entry in map.overlapping(range) {
            let (part, pages) = part(entry, range);
            self.revoke_shown(part, &state, &pages);
            for (page, va) in pages.zip(part.pages()) {
                if let Some(frame) = state.pages_mut().remove(&page) {
                    paths.put.into_iter().for_each(|put| vm.machine().execute(put));
                    back.extend(vm.frames().lock().take_back(frame).then_some(frame));
                }
                if let Some((frames, stay_wired)) = shown {
                    let frame = frames[(va - range.start()) / PAGE_SIZE];
                    vm.machine().execute(paths.each);
                    let mut table = vm.frames().lock();
                    table.show(frame, window, page);
                    if stay_wired {
                        table.wire(frame);
                    }
                    drop(table);
                    state.pages_mut().insert(page, frame);
                    self.map_shown(entry, va, frame);
                }
            }
        }
        if vm.has(VmDefect::WindowLosesReplaced) {
            back.clear();
        }
        Ok(back)
    }

    /// Takes away and flushes every mapping of `pages`, which the object has and this space at `part`.
    fn revoke_shown(&self, part: VaRange, state: &ObjectState, pages: &Range<u64>) {
        let vm = self.vm();
        let mut pending = TlbFlush::new();
        pending.merge(vm.pmaps().remove(self.pmap(), part));
        // Others may have been given the window.
        if state.refs() > 1 && !vm.has(VmDefect::WindowKeepsMappings) {
            for &frame in state.pages().range(pages.clone()).map(|(_, frame)| frame) {
                pending.merge(vm.pmaps().page_protect(frame, Prot::empty()));
            }
        }
        match vm.has(VmDefect::WindowWithoutFlush) {
            true => pending.not_cached(vm.pmaps()),
            false => _ = pending.flush(vm.pmaps()),
        }
    }

    /// Maps a page that is shown; nothing is mapped there. Failing costs a fault later.
    fn map_shown(&self, entry: &Entry<M>, page: Va, frame: Pfn) {
        let vm = self.vm();
        let prot = if vm.has(VmDefect::WindowWritable) { Prot::RW } else { entry.attributes.prot };
        let parcel = Parcel { by: Means::Transfer, at: Place::User(page), len_bytes: PAGE_SIZE };
        vm.machine().trace_flow(Flow::Page(frame), FlowStep::Received(parcel));
        if prot.is_empty() {
            return;
        }
        vm.journal().frame(frame);
        if let Ok(change) = vm.pmaps().enter(vm.frames(), self.pmap(), page, frame, prot, false) {
            assert!(change.is_empty(), "something was mapped at {page:?}, which was revoked");
        }
    }
}

/// The one window that `range` lies in.
fn window_of<'a, M: Machine>(
    vm: &Vm<M>,
    map: &'a Map<M>,
    range: VaRange,
    unmapped: VmError,
) -> Result<&'a Arc<Object<M>>, VmError> {
    if !map.covers(vm, range) {
        return Err(unmapped);
    }
    let mut objects = map.overlapping(range).map(|e| match &e.object {
        Some(oref) if oref.object.is_window() && !e.attributes.copy_on_write => Ok(&oref.object),
        _ => Err(VmError::Access),
    });
    let first = objects.next().expect("it is covered")?;
    for other in objects {
        if !Arc::ptr_eq(first, other?) {
            return Err(VmError::Access);
        }
    }
    Ok(first)
}

/// What `entry` has of `range`, and which pages of the window that is.
fn part<M: Machine>(entry: &Entry<M>, range: VaRange) -> (VaRange, Range<u64>) {
    let part = entry.range.intersect(&range).expect("it overlaps");
    let oref = entry.object.as_ref().expect("a window is an object");
    let first = entry.object_page(oref, part.start());
    (part, first..first + part.len_pages() as u64)
}

/// Refuses to change what is locked in memory: here, or by others who were given the window, for whom a wire speaks.
fn refuse_locked<M: Machine>(
    vm: &Vm<M>,
    map: &Map<M>,
    state: &ObjectState,
    range: VaRange,
) -> Result<(), VmError> {
    let table = vm.frames().lock();
    let held = |entry: &Entry<M>| {
        let (_, pages) = part(entry, range);
        state.pages().range(pages).any(|(_, &frame)| table.get(frame).info().wire_count > 1)
    };
    let is_locked = |entry: &Entry<M>| !entry.locked.is_empty() || state.refs() > 1 && held(entry);
    match map.overlapping(range).any(is_locked) && !vm.has(VmDefect::WindowOverLocked) {
        true => Err(VmError::Busy),
        false => Ok(()),
    }
}
