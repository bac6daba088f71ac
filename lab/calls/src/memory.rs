//! The memory of a process: it maps and unmaps it, by parts, and says what may be done to it and what becomes of it.

use super::process::{Actor, Buffer};
use super::reference::{Backing, Region, What};
use super::steps::{MAX_REGION_PAGES, Part, Passage, Protection, REGIONS};
use alloc::rc::Rc;
use alloc::vec;
use pageferry_hal::{Machine, PAGE_SIZE, Prot};
use pageferry_kernel::Errno;
use pageferry_vm::{Inherit, Madvise, MapAddr};

impl<M: Machine> Actor<'_, M> {
    pub(super) fn gets(&self, region: Region) {
        let mut reference = self.reference.borrow_mut();
        reference.processes[self.me].as_mut().expect("it is alive").regions.push(region);
    }

    /// A region, and which of its pages: the first, and how many.
    fn part(&self, part: Part) -> Option<(usize, Region, usize, usize)> {
        let (index, region) = self.copy_of(part.region)?;
        let page = part.page % region.pages;
        let pages = part.pages.min(region.pages - page);
        Some((index, region, page, pages))
    }

    /// The part as a region by itself.
    pub(super) fn cut(&self, part: Part) -> Option<usize> {
        let (index, _, page, pages) = self.part(part)?;
        Some(self.reference.borrow_mut().cut(self.me, index, page, pages))
    }

    pub(super) fn has_room(&self) -> bool {
        self.count().1 < REGIONS
    }

    pub(super) fn map(&self, pages: usize, shared: bool) {
        if !self.has_room() {
            return;
        }
        let inherit = if shared { Inherit::Share } else { Inherit::Copy };
        let at = self.tried(|u| u.map(pages * PAGE_SIZE, Prot::RW, inherit)).expect("there are addresses");
        let bytes = vec![0; pages * PAGE_SIZE];
        let backing = if shared { Backing::Common(Rc::new(bytes.into())) } else { Backing::Own(bytes) };
        self.gets(Region::new(at, pages, backing, inherit));
    }

    pub(super) fn map_file(&self, which: usize, shared: bool) {
        let Some((fd, _, What::File { node, .. })) = self.descriptor(which) else { return };
        let len = self.reference.borrow().nodes[node].bytes.len();
        let pages = len.div_ceil(PAGE_SIZE).min(MAX_REGION_PAGES);
        if pages == 0 || !self.has_room() {
            return;
        }
        let mapped =
            self.tried(|u| u.map_file(fd, 0, MapAddr::Anywhere, pages * PAGE_SIZE, Prot::RW, shared));
        if mapped == Err(Errno::NotSupported) {
            return;
        }
        let at = mapped.expect("it can be mapped");
        self.reference.borrow_mut().map(node, shared);
        let inherit = if shared { Inherit::Share } else { Inherit::Copy };
        let backing = Backing::File { node, shared, own: vec![None; pages] };
        self.gets(Region::new(at, pages, backing, inherit));
    }

    pub(super) fn unmap(&self, region: usize) {
        self.compare(region);
        let mut reference = self.reference.borrow_mut();
        let region = reference.processes[self.me].as_mut().expect("it is alive").regions.remove(region);
        reference.unmap(&region);
        drop(reference);
        assert_eq!(self.tried(|u| u.unmap(region.at, region.pages * PAGE_SIZE)), Ok(()));
    }

    pub(super) fn unmap_part(&self, part: Part) {
        if let Some(region) = self.cut(part) {
            self.unmap(region);
        }
    }

    pub(super) fn protect(&self, part: Part, to: Protection) {
        let Some((index, region, page, pages)) = self.part(part) else { return };
        let prot = match to {
            Protection::Nothing => Prot::empty(),
            Protection::Read => Prot::READ,
            Protection::ReadWrite => Prot::RW,
        };
        assert_eq!(self.tried(|u| u.protect(region.at + page * PAGE_SIZE, pages * PAGE_SIZE, prot)), Ok(()));
        let mut reference = self.reference.borrow_mut();
        let region = &mut reference.processes[self.me].as_mut().expect("it is alive").regions[index];
        region.prot[page..page + pages].fill(prot);
    }

    /// What a child has of a region: of a file's, what it would have, or nothing.
    pub(super) fn inherit(&self, which: usize, how: Passage) {
        let Some((index, region)) = self.copy_of(which) else { return };
        let how = match (how, &region.backing) {
            (Passage::Donate | Passage::DonateZero, _) => Inherit::None,
            (_, Backing::File { shared: true, .. })
            | (Passage::Share, Backing::Own(_) | Backing::Common(_)) => Inherit::Share,
            _ => Inherit::Copy,
        };
        assert_eq!(self.tried(|u| u.inherit(region.at, region.pages * PAGE_SIZE, how)), Ok(()));
        let mut reference = self.reference.borrow_mut();
        reference.processes[self.me].as_mut().expect("it is alive").regions[index].inherit = how;
    }

    pub(super) fn advise(&self, part: Part, needs: bool) {
        let Some((_, region, page, pages)) = self.part(part) else { return };
        let advice = if needs { Madvise::WillNeed } else { Madvise::DontNeed };
        let advised = self.tried(|u| u.advise(region.at + page * PAGE_SIZE, pages * PAGE_SIZE, advice));
        assert_eq!(advised, Ok(()));
    }

    pub(super) fn sync_memory(&self, part: Part) {
        let Some((_, region, page, pages)) = self.part(part) else { return };
        let synced = self.tried(|u| u.sync_memory(region.at + page * PAGE_SIZE, pages * PAGE_SIZE));
        assert_eq!(synced, Ok(()));
    }

    /// A call whose memory begins where the process may not do that itself moves nothing, and takes nothing.
    pub(super) fn refused(&self, which: usize, len: usize, writes: bool) {
        let Some((fd, open, what)) = self.descriptor(which) else { return };
        let size = 3 * PAGE_SIZE;
        let memory = self.u.map(size, Prot::RW, Inherit::Copy).expect("there are addresses");
        let prot = if writes { Prot::empty() } else { Prot::READ };
        assert_eq!(self.u.protect(memory, PAGE_SIZE, prot), Ok(()));
        let at = memory + (PAGE_SIZE - 1);
        let len = 1 + len % (2 * PAGE_SIZE);
        let answer = if writes { self.u.write(fd, at, len) } else { self.u.read(fd, at, len) };
        assert_eq!(self.u.unmap(memory, size), Ok(()));
        let reference = self.reference.borrow();
        let expected = match what {
            // Of a file that is mapped privately nobody knows who sees what.
            What::File { node, .. } if writes && reference.nodes[node].private > 0 => true,
            What::File { .. } if writes => answer == Err(Errno::Fault),
            What::End { .. } | What::Sound if writes => answer.is_err(),
            What::File { node, offset, .. } if offset < reference.nodes[node].bytes.len() as u64 => {
                answer == Err(Errno::Fault)
            }
            What::End { input: Some(input), .. } if reference.streams[input].may_be_reset => {
                answer != Ok(len)
            }
            What::End { input: Some(input), .. } if !reference.streams[input].queue.is_empty() => {
                let is_under_way = reference.streams[input].back.is_some();
                answer == Err(Errno::Fault) || is_under_way && answer == Err(Errno::WouldBlock)
            }
            _ => matches!(answer, Ok(0) | Err(_)),
        };
        let (verb, place) = if writes { ("write", "from") } else { ("read", "to") };
        assert!(expected, "{answer:?} is the answer to a {verb} {place} where that is not permitted");
        if let What::File { node, append: true, .. } = what
            && writes
        {
            // As in BSD, whoever appends is at the end before that.
            let end = reference.nodes[node].bytes.len() as u64;
            drop(reference);
            self.move_to(open, end);
        }
    }

    pub(super) fn lock(&self, which: usize, on: bool) {
        let Some((index, region)) = self.copy_of(which) else { return };
        let len = region.pages * PAGE_SIZE;
        if on {
            // More than may be locked is another matter.
            if self.tried(|u| u.lock_memory(region.at, len)).is_err() {
                return;
            }
        } else {
            assert_eq!(self.tried(|u| u.unlock_memory(region.at, len)), Ok(()));
        }
        let mut reference = self.reference.borrow_mut();
        reference.processes[self.me].as_mut().expect("it is alive").regions[index].is_locked = on;
    }

    pub(super) fn flush(&self, which: usize) {
        let Some((index, region)) = self.copy_of(which) else { return };
        if region.is_locked || region.permits(0, Prot::RW) < region.pages {
            return;
        }
        let Backing::Own(bytes) = &region.backing else { return };
        assert_eq!(self.tried(|u| u.anflush(region.at, bytes.len())), Ok(()));
        let buffer = Buffer { region: index, offset: 0, len: bytes.len(), at: region.at };
        self.stored(buffer, &vec![0; bytes.len()]);
    }
}
