//! Memory that was lent, reached past the library: by its name in /proc, and by mappings of one's own.
#![allow(dead_code, reason = "each program of tests uses a part")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes of a slot, and of a mapping.
pub const LEN: usize = 2 << 20;

/// The number of the file that is mapped at an address.
fn inode_at(address: usize) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (low, high) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(low)..number(high)).contains(&address)
    });
    line.unwrap().split_whitespace().nth(4).unwrap().parse().unwrap()
}

/// A path by which the memory at an address can be opened, as whoever has a descriptor of it can.
pub fn path_to(address: *const u8) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let inode = inode_at(address as usize);
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let found = fds.map(|fd| fd.path()).find(|path| {
        std::fs::metadata(path).is_ok_and(|file| file.ino() == inode)
            && std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("pageferry-slot"))
    });
    found.unwrap().to_str().unwrap().to_owned()
}

/// Opens memory for writing, past the library. Waits while it is leased, except where that is not wanted.
pub fn open_writable(path: &str, wait: bool) -> std::io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path).unwrap();
    let flags = libc::O_RDWR | libc::O_CLOEXEC | if wait { 0 } else { libc::O_NONBLOCK };
    // SAFETY: the path ends with a zero.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    if fd == -1 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A mapping of a file's first bytes.
pub struct Map(pub *mut u8);

impl Map {
    pub fn new(fd: &OwnedFd, prot: i32) -> Map {
        // SAFETY: the kernel chooses addresses at which nothing is mapped.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), LEN, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Map(at.cast())
    }

    /// What is mapped at an address, once more.
    pub fn again(address: *mut u8) -> Map {
        // SAFETY: an old length of zero leaves what is mapped there.
        let at = unsafe { libc::mremap(address.cast(), 0, LEN, libc::MREMAP_MAYMOVE) };
        assert_ne!(at, libc::MAP_FAILED);
        Map(at.cast())
    }

    pub fn store(&self, byte: u8) {
        // SAFETY: mapped writable by whoever calls this.
        unsafe { self.0.write_volatile(byte) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.0.cast(), LEN) };
    }
}
