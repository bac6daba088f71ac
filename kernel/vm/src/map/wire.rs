//! Wiring user memory for the kernel's use, and letting it go.
//!
//! A direct pipe write, a zero-copy send or a device's transfer wires the frames of a user buffer: they stay where they
//! are, whatever their owner does (sf_buf paper, 2.1 and 2.3). Wires of the same frame nest. A wired frame survives its
//! owner: when that unmaps it or exits, the frame becomes an orphan and is freed with its last wire.
//!
//! Wiring for writing first resolves copy-on-write, so that what the kernel stores is seen by the buffer's owner and by
//! no one else. Wiring for reading pins the frame that is mapped at that moment; if the owner later writes to a page
//! that it shares copy-on-write, the owner moves to a new frame and the wired one keeps the old bytes.
//!
//! A frame is looked up and wired under the lock of the page queues. That is what makes it safe: a frame is only freed
//! under that lock, and only when nothing maps it any more.

use crate::error::VmError;
use crate::page::Wired;
use crate::probe::VmDefect;
use crate::vm::{Space, Vm};
use alloc::vec::Vec;
use pageferry_hal::{
    Access, Cause, Flow, FlowStep, Machine, Means, PAGE_SIZE, Parcel, Pfn, Place, Prot, Threads, Va, VaRange,
    page_round, page_trunc,
};

impl<M: Machine> Space<M> {
    /// Makes the pages of a user buffer resident and wires them (`vm_fault_quick` and `pmap_extract_and_hold`): for the
    /// kernel to read, or, if `prot` says so, to write.
    ///
    /// # Errors
    /// [`VmError::Invalid`] for a length of zero; [`VmError::Fault`] for a page that is not mapped or does not permit
    /// the access; [`VmError::NoMemory`]. Nothing is wired then.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn wire(&self, t: &dyn Threads, at: Va, len_bytes: usize, prot: Prot) -> Result<Wired, VmError> {
        let vm = self.vm();
        if len_bytes == 0 {
            return Err(VmError::Invalid);
        }
        let end = at.checked_add(len_bytes).and_then(|end| page_round(end.0)).ok_or(VmError::Fault(at))?;
        let pages = VaRange::new(Va(page_trunc(at.0)), Va(end));
        if !vm.user().covers(&pages) {
            return Err(VmError::Fault(at));
        }
        let access = if prot.contains(Prot::WRITE) { Access::Write } else { Access::Read };
        let frames = Vec::with_capacity(pages.len_pages());
        let mut wired = Wired::of(frames, at.offset(), len_bytes);
        loop {
            self.wire_resident(t, pages, access, &mut wired.frames);
            let Some(missing) = pages.pages().nth(wired.frames.len()) else {
                if access == Access::Read {
                    wired.sent = true;
                    self.trace_wired(pages, &wired.frames);
                }
                return Ok(wired);
            };
            let missing = missing.max(at);
            let _c = vm.machine().scope(Cause::Fault);
            if let Err(e) = self.resolve(t, missing, access) {
                vm.unwire(wired);
                return Err(if e == VmError::Access { VmError::Fault(missing) } else { e });
            }
        }
    }

    /// Frames that are wired to be read are on their way to their reader.
    fn trace_wired(&self, pages: VaRange, frames: &[Pfn]) {
        for (page, &frame) in pages.pages().zip(frames) {
            let parcel = Parcel { by: Means::Wire, at: Place::User(page), len_bytes: PAGE_SIZE };
            self.vm().machine().trace_flow(Flow::Page(frame), FlowStep::Sent(parcel));
        }
    }

    /// Wires on behind those already in `frames`, up to the first page that is not mapped for `access`.
    fn wire_resident(&self, t: &dyn Threads, pages: VaRange, access: Access, frames: &mut Vec<Pfn>) {
        let vm = self.vm();
        let _c = vm.machine().scope(Cause::Frame);
        // A fork must not come between the look-up and the wire of a frame that is to be written: it would let the
        // child share it.
        let _map = (access == Access::Write).then(|| self.locked_map().read(t));
        let mut table = vm.frames().lock();
        for page in pages.pages().skip(frames.len()) {
            match vm.pmaps().extract(self.pmap(), page) {
                Some((frame, prot)) if prot.permits(access) => {
                    table.wire(frame);
                    table.get_mut(frame).dirty |= access == Access::Write;
                    frames.push(frame);
                }
                _ => break,
            }
        }
        assert!(frames.len() * PAGE_SIZE <= pages.len_bytes(), "more frames than pages are wired");
    }
}

impl<M: Machine> Vm<M> {
    /// Takes the wires off. Frames without an owner are freed with their last one.
    ///
    /// # Locks
    /// Takes the page queues.
    pub fn unwire(&self, mut wired: Wired) {
        if self.has(VmDefect::WireLeaked) {
            wired.frames.pop();
        }
        if wired.frames.is_empty() {
            return;
        }
        let _c = self.machine().scope(Cause::Frame);
        let mut table = self.frames().lock();
        for frame in wired.frames {
            table.unwire(frame);
            if wired.sent {
                self.machine().trace_flow(Flow::Page(frame), FlowStep::Done);
            }
        }
    }
}
