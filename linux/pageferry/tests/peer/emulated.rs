//! What an emulator of user programs (qemu-user) does otherwise than a kernel.
//!
//! A test that needs one of these asks [`works`]. The answer is found by trying, and only where
//! `PAGEFERRY_EMULATED` is set may it be no: a kernel that lacks one of them fails the test.

use pageferry_untested::untested;
use rustix::fs::MemfdFlags;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;

/// What a test needs of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// `MADV_DONTFORK`. qemu-user says that it has done so, and the child has the mapping.
    KeptFromChildren,
    /// `mremap` with an old size of zero duplicates a shared mapping. qemu-user: `ENOMEM`, for the range is empty.
    Duplicated,
    /// `MADV_REMOVE`. qemu-user says that it has done so, and the pages are there.
    Removed,
    /// `MSG_CTRUNC`, where descriptors do not fit. qemu-user takes up to twice as many from the kernel as the program
    /// has room for, keeps the rest open itself, and sets the flag only where there were still more.
    CutDescriptors,
    /// `process_vm_writev`. qemu-user: `ENOSYS`.
    WrittenByOthers,
}

/// Whether the test can be had here; says so where it cannot.
pub fn works(need: Need) -> bool {
    let works = match need {
        Need::KeptFromChildren => kept_from_children(),
        Need::Duplicated => Page::new().duplicated(),
        Need::Removed => Page::new().removed(),
        Need::CutDescriptors => cut_descriptors(),
        Need::WrittenByOthers => Page::new().written(),
    };
    if !works {
        assert!(
            std::env::var_os("PAGEFERRY_EMULATED").is_some(),
            "this kernel lacks what a test needs: {need:?}"
        );
        untested(format_args!("{need:?}"), why(need));
    }
    works
}

/// Whether a thread may be woken much later than by a kernel, so that what another one does in between cannot be timed;
/// says so.
pub fn is_untimed() -> bool {
    let untimed = std::env::var_os("PAGEFERRY_EMULATED").is_some();
    if untimed {
        untested("what happens in time", "threads of an emulator are not woken in time");
    }
    untimed
}

/// Why a test cannot be had.
pub fn why(need: Need) -> &'static str {
    match need {
        Need::KeptFromChildren => "the emulator ignores MADV_DONTFORK",
        Need::Duplicated => "the emulator does not duplicate mappings by mremap",
        Need::Removed => "the emulator ignores MADV_REMOVE",
        Need::CutDescriptors => {
            "the emulator keeps descriptors for which a program has no room, and does not say so (MSG_CTRUNC)"
        }
        Need::WrittenByOthers => "the emulator has no process_vm_writev",
    }
}

/// A page of a memfd, mapped shared, which starts with a 1. It stays until the process ends.
struct Page(*mut libc::c_void);

const LEN: usize = 4096;

impl Page {
    fn new() -> Page {
        let fd = rustix::fs::memfd_create("page", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, LEN as u64).unwrap();
        rustix::io::pwrite(&fd, &[1], 0).unwrap();
        let map = super::Map::new(&fd, LEN, true);
        let page = Page(map.at(0).cast());
        std::mem::forget(map);
        page
    }

    fn first(&self) -> u8 {
        // SAFETY: mapped readable until the process ends.
        unsafe { self.0.cast::<u8>().read_volatile() }
    }

    fn duplicated(&self) -> bool {
        // SAFETY: the old mapping stays, and the new one comes where nothing is mapped.
        unsafe { libc::mremap(self.0, 0, LEN, libc::MREMAP_MAYMOVE) != libc::MAP_FAILED }
    }

    fn removed(&self) -> bool {
        // SAFETY: the page is this value's; nobody has a reference to it.
        unsafe { libc::madvise(self.0, LEN, libc::MADV_REMOVE) == 0 && self.first() == 0 }
    }

    fn written(&self) -> bool {
        let byte = 9u8;
        let local = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
        let remote = libc::iovec { iov_base: self.0, iov_len: 1 };
        // SAFETY: the page is this value's; nobody has a reference to it.
        let written =
            unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        written == 1 && self.first() == byte
    }
}

fn kept_from_children() -> bool {
    let page = Page::new();
    // SAFETY: the page is this function's, and the child makes only calls that may be made after a fork.
    unsafe {
        assert_eq!(libc::madvise(page.0, LEN, libc::MADV_DONTFORK), 0);
        let child = libc::fork();
        if child == 0 {
            let absent = libc::mincore(page.0, LEN, [0u8; 1].as_mut_ptr()) == -1;
            libc::_exit(if absent { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status == 0
    }
}

fn cut_descriptors() -> bool {
    use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};
    let (ours, theirs) = super::sockets();
    // More than there is room for, and less than twice as many.
    super::send(&ours, b"w", &[ours.as_fd(); 16]).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 8];
    let got = rustix::net::recvmsg(
        &theirs,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    got.unwrap().flags.contains(ReturnFlags::CTRUNC)
}
