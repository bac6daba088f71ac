//! A process has an image take the place of its memory.
//!
//! The image is one page of a file, of which it has all but the end: mapped once to be read, and once more to be stored
//! to, with clear memory behind what the file has of it.

use super::process::Actor;
use super::reference::{Backing, Region, What};
use alloc::vec;
use alloc::vec::Vec;
use pageferry_hal::{Machine, PAGE_SIZE, Prot, Va};
use pageferry_kernel::Errno;
use pageferry_vm::Inherit;

/// Where its text is, and its data.
const TEXT: Va = Va(0x40_0000);
const DATA: Va = Va(0x41_0000);
/// The header, and a table of two segments.
const IMAGE_BYTES: usize = 64 + 2 * 56;
/// Clear memory behind the data's first page.
const CLEAR_PAGES: usize = 2;

/// An ELF header of 64 bits, and nothing else.
fn image() -> Vec<u8> {
    let mut file = vec![0; IMAGE_BYTES];
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let mut put =
        |at: usize, len: usize, value: u64| file[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    let (own, data_bytes) = (IMAGE_BYTES as u64, (PAGE_SIZE * (1 + CLEAR_PAGES)) as u64);
    for (at, len, value) in [(16, 2, 2), (24, 8, TEXT.0 + 64), (32, 8, 64), (54, 2, 56), (56, 2, 2)] {
        put(at, len, value);
    }
    // May be read and run; may be read and stored to.
    for (i, (flags, at, len_bytes)) in [(5, TEXT, own), (6, DATA, data_bytes)].into_iter().enumerate() {
        let head = 64 + 56 * i;
        put(head, 4, 1);
        put(head + 4, 4, flags);
        put(head + 16, 8, at.0);
        put(head + 32, 8, own);
        put(head + 40, 8, len_bytes);
    }
    file
}

impl<M: Machine> Actor<'_, M> {
    pub(super) fn exec(&self, which: usize) {
        let Some((fd, _, What::File { node, append, .. })) = self.descriptor(which) else { return };
        let pid = self.u.pid();
        let has_area = |area: Option<(_, Va)>| area.is_some_and(|(owner, _)| owner == pid);
        // What comes into an area of memory that is gone, nobody could look at.
        if self.reference.borrow().streams.iter().any(|stream| has_area(stream.area)) {
            return;
        }
        let image = image();
        // At an offset, an appending descriptor is another matter from system to system.
        if !append && self.reference.borrow().nodes[node].private == 0 {
            self.make_image(fd, &image);
            self.reference.borrow_mut().write(node, 0, &image);
        }
        let file = self.reference.borrow().nodes[node].bytes.clone();
        if file.starts_with(&image[..4]) && !file.starts_with(&image) {
            // One in which something was stored, which may matter to who loads it or not.
            return;
        }
        while self.region(0).is_some() && file.starts_with(&image) {
            self.compare(0);
            let mut reference = self.reference.borrow_mut();
            let region = reference.processes[self.me].as_mut().expect("it is alive").regions.remove(0);
            reference.unmap(&region);
        }
        let answer = self.tried(|u| u.exec(fd));
        if !file.starts_with(&image) {
            return assert_eq!(answer, Err(Errno::NotExecutable), "nothing has changed");
        }
        assert_eq!(answer, Ok(TEXT + 64));
        let of_file = |own| Backing::File { node, shared: false, own: vec![own] };
        let mut first_page = image;
        first_page.resize(PAGE_SIZE, 0);
        for (at, prot, own) in [(TEXT, Prot::READ | Prot::EXECUTE, None), (DATA, Prot::RW, Some(first_page))]
        {
            self.reference.borrow_mut().map(node, false);
            let region = Region::new(at, 1, of_file(own), Inherit::Copy);
            self.gets(Region { prot: vec![prot], ..region });
        }
        let clear = Backing::Own(vec![0; CLEAR_PAGES * PAGE_SIZE]);
        self.gets(Region::new(DATA + PAGE_SIZE, CLEAR_PAGES, clear, Inherit::Copy));
    }

    /// Writes it to the beginning of a file.
    fn make_image(&self, fd: pageferry_kernel::Fd, image: &[u8]) {
        let at = self.u.map(PAGE_SIZE, Prot::RW, Inherit::Copy).expect("there are addresses");
        self.u.store(at, image);
        assert_eq!(self.u.write_at(fd, 0, at, image.len()), Ok(image.len()));
        assert_eq!(self.u.unmap(at, PAGE_SIZE), Ok(()));
    }
}
