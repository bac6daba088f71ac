//! What a process does to others: it offers memory and takes what they offer, looks into its children as a debugger
//! does, sends signals and kills; and what it learns of a descriptor that others use, too.

use super::process::Actor;
use super::reference::{Backing, Offer, Reference, Region, What};
use super::steps::{Bytes, Part, Passage};
use alloc::rc::Rc;
use alloc::vec;
use pageferry_hal::{Cycles, Machine, PAGE_SIZE};
use pageferry_kernel::{Errno, ExportTo, Pid, Polled};
use pageferry_vm::PassMode;

impl<M: Machine> Actor<'_, M> {
    /// What a descriptor is ready for is what a call would do.
    pub(super) fn poll(&self, which: usize) {
        let Some((fd, _, what)) = self.descriptor(which) else { return };
        let mut polled = [Polled::new(fd, true, true)];
        let count = self.u.poll(&mut polled, Some(Cycles(0)));
        let [polled] = polled;
        assert_eq!(count, Ok(usize::from(polled.is_ready())));
        let reference = self.reference.borrow();
        let (input, output, is_socket) = match what {
            What::End { input, output, is_socket } => (input, output, is_socket),
            What::File { .. } => {
                return assert!(polled.ready.readable && polled.ready.writable, "a file is always ready");
            }
            What::Sound => return,
        };
        // A pipe that is no socket counts as ready whatever is in it.
        if let Some(input) = input {
            let stream = &reference.streams[input];
            let readable = stream.is_due();
            let is_under_way = stream.back.is_some();
            assert!(polled.ready.readable >= readable || is_under_way, "there is something to read");
            let none = is_socket && !readable && !stream.may_be_reset;
            assert!(!(none && polled.ready.readable), "there is nothing to read");
        }
        if let Some(output) = output.filter(|output| reference.streams[*output].back.is_none()) {
            let stream = &reference.streams[output];
            let writable = stream.queue.is_empty() || stream.readers == 0;
            assert!(polled.ready.writable >= writable, "there is room, or nobody reads");
        }
    }

    // ------------------------------------------------------------------------------------------- memory

    /// Offers memory of its own, or that it shares.
    pub(super) fn offer(&self, part: Part, how: Passage) {
        let Some((_, region)) = self.copy_of(part.region) else { return };
        if matches!(region.backing, Backing::File { .. }) {
            return;
        }
        let page = part.page % region.pages;
        let (at, pages) = (region.at + page * PAGE_SIZE, part.pages.min(region.pages - page));
        let mode = match how {
            Passage::Share => PassMode::Share,
            Passage::Copy => PassMode::Copy,
            Passage::Donate => PassMode::Donate,
            Passage::DonateZero => PassMode::DonateZero,
        };
        let id = self
            .tried(|u| u.export(at, pages * PAGE_SIZE, mode, ExportTo::Anyone))
            .expect("it can be offered");
        self.reference.borrow_mut().offers.push(Offer { id, maker: self.u.pid(), at, pages, mode });
    }

    /// Takes an offer, or takes its own back. What is passed is what its maker has there now.
    pub(super) fn import(&self, which: usize) {
        let offers = self.reference.borrow().offers.len();
        if offers == 0 {
            return;
        }
        let which = which % offers;
        let offer = self.reference.borrow().offers[which];
        let maker = self.process_of(offer.maker);
        if maker == Some(self.me) {
            assert_eq!(self.u.withdraw(offer.id), Ok(()));
            assert_eq!(self.u.import(offer.id, None), Err(Errno::Removed), "it was taken back");
            self.reference.borrow_mut().offers.swap_remove(which);
            return;
        }
        let Some(maker) = maker else {
            // It has unmapped all that it had but receive areas, or is no more.
            match self.u.import(offer.id, None) {
                Ok(area) => assert_eq!(self.u.unmap(area.at, area.len_bytes), Ok(())),
                Err(e) => assert!(matches!(e, Errno::Removed | Errno::Fault), "its maker has ended: {e}"),
            }
            self.reference.borrow_mut().offers.swap_remove(which);
            return;
        };
        let Some((index, page)) = self.region_at(maker, &offer).filter(|_| self.has_room()) else { return };
        assert_eq!(self.u.withdraw(offer.id), Err(Errno::Access), "it is another's");
        if let Some((_, taken)) = self.copy_of(0) {
            let refused = self.u.import(offer.id, Some(taken.at));
            assert_eq!(refused, Err(Errno::Invalid), "something is there: nothing has changed");
        }
        let imported = self.tried(|u| u.import(offer.id, None)).expect("it is there");
        assert_eq!(imported.len_bytes, offer.pages * PAGE_SIZE);
        let mut reference = self.reference.borrow_mut();
        let index = reference.cut(maker, index, page, offer.pages);
        if offer.mode == PassMode::Share {
            let holdings = reference.processes[maker].as_mut().expect("it is alive");
            Reference::make_common(&mut holdings.regions[index]);
        }
        let holdings = reference.processes[maker].as_mut().expect("it is alive");
        let given = holdings.regions[index].clone();
        match offer.mode {
            PassMode::Donate => drop(holdings.regions.remove(index)),
            PassMode::DonateZero => {
                let zeros = Backing::Own(vec![0; given.pages * PAGE_SIZE]);
                holdings.regions[index] = Region { backing: zeros, first: 0, ..given.clone() };
            }
            PassMode::Share | PassMode::Copy => {}
        }
        if matches!(offer.mode, PassMode::Donate | PassMode::DonateZero) {
            reference.offers.swap_remove(which);
            drop(reference);
            assert_eq!(self.u.import(offer.id, None), Err(Errno::Removed), "it was donated");
            reference = self.reference.borrow_mut();
        }
        let got = if offer.mode == PassMode::Copy { reference.copied(&given) } else { given };
        drop(reference);
        self.gets(Region { at: imported.at, is_locked: false, ..got });
    }

    /// The region of the maker that has all of an offer, and the page of it that the offer begins with; none that is
    /// locked or of a file.
    fn region_at(&self, maker: usize, offer: &Offer) -> Option<(usize, usize)> {
        let reference = self.reference.borrow();
        let regions = &reference.processes[maker].as_ref()?.regions;
        let index = regions
            .iter()
            .position(|region| (region.at..region.at + region.pages * PAGE_SIZE).contains(&offer.at))?;
        let region = &regions[index];
        let page = (offer.at.0 - region.at.0) as usize / PAGE_SIZE;
        let fits = page + offer.pages <= region.pages && !region.is_locked;
        (fits && !matches!(region.backing, Backing::File { .. })).then_some((index, page))
    }

    /// Copies between its own memory and that of a child, whatever the child may do with that at the moment.
    pub(super) fn trace(&self, process: usize, theirs: (usize, usize), own: Bytes, writes: bool) {
        let (region, offset) = theirs;
        let traced = {
            let reference = self.reference.borrow();
            let Some(holdings) = &reference.processes[process] else { return };
            if process == self.me || holdings.regions.is_empty() {
                return;
            }
            let index = region % holdings.regions.len();
            let region = holdings.regions[index].clone();
            let usable = reference.usable(&region);
            if usable == 0 || matches!(region.backing, Backing::File { .. }) {
                return;
            }
            let contents = reference.contents(&region);
            (holdings.pid, holdings.parent, index, region, offset % usable, contents)
        };
        let (pid, parent, index, region, offset, contents) = traced;
        let own = if writes { self.buffer(own) } else { self.room(own) };
        let Some(own) = own.filter(|own| !self.is_same(own.region, &region)) else { return };
        let (at, len) = (region.at + offset, own.len.min(contents.len() - offset));
        let answer = match writes {
            true => self.tried(|u| u.ptrace_write(pid, at, own.at, len)),
            false => self.tried(|u| u.ptrace_read(pid, at, own.at, len)),
        };
        if parent != self.u.pid() {
            return assert_eq!(answer, Err(Errno::Access), "it is no child of this one");
        }
        // Short of memory, it may copy a part.
        let is_short = self.fail.get().is_some() && matches!(answer, Ok(1..));
        let len = if is_short { len.min(answer.unwrap_or(0)) } else { len };
        assert_eq!(answer, Ok(len));
        let own = super::process::Buffer { len, ..own };
        if writes {
            let bytes = self.held(own);
            self.reference.borrow_mut().store(process, index, offset, &bytes);
        } else {
            self.arrived(own, &contents[offset..offset + len]);
        }
    }

    /// A region of this process and another's are the same memory.
    fn is_same(&self, own: usize, other: &Region) -> bool {
        let reference = self.reference.borrow();
        let Some(holdings) = &reference.processes[self.me] else { return false };
        match (&holdings.regions[own].backing, &other.backing) {
            (Backing::Common(one), Backing::Common(other)) => Rc::ptr_eq(one, other),
            _ => false,
        }
    }

    // ------------------------------------------------------------------------------------------- signals

    fn process_of(&self, pid: Pid) -> Option<usize> {
        let reference = self.reference.borrow();
        reference.processes.iter().position(|process| process.as_ref().is_some_and(|p| p.pid == pid))
    }

    /// The number of another process that is alive.
    fn other(&self, process: usize) -> Option<Pid> {
        let reference = self.reference.borrow();
        reference.processes[process].as_ref().map(|process| process.pid).filter(|pid| *pid != self.u.pid())
    }

    /// Each signal is taken once.
    pub(super) fn takes_signals(&self) {
        let sent = self.reference.borrow().processes[self.me].as_ref().map_or(0, |process| process.signals);
        if self.u.signals_taken() != sent {
            // A child may not have been in user mode yet.
            assert_eq!(self.u.null_call(), Ok(()));
        }
        assert_eq!(self.u.signals_taken(), sent, "signals taken, and sent");
    }

    pub(super) fn signal(&self, process: usize) {
        let Some(pid) = self.other(process) else { return };
        assert_eq!(self.u.signal(pid), Ok(()));
        self.reference.borrow_mut().processes[process].as_mut().expect("it is alive").signals += 1;
    }

    /// Kills another process, and waits until nothing is left of it but its number.
    pub(super) fn kill(&self, process: usize) {
        let Some(pid) = self.other(process) else { return };
        assert_eq!(self.u.kill(pid), Ok(()));
        while self.u.kill(pid).is_ok() {
            _ = self.u.yield_now();
        }
        self.reference.borrow_mut().end(process);
    }
}
