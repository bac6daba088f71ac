//! Descriptors: how a file is opened, what is known of it, what it is ready for.

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fd(pub u32);

bitflags::bitflags! {
    /// How a file is opened.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct OpenFlags: u8 {
        /// To be read.
        const READ = 1;
        /// To be written.
        const WRITE = 2;
        /// Made if there is none of the name (`O_CREAT`).
        const CREATE = 4;
        /// Emptied (`O_TRUNC`); needs [`OpenFlags::WRITE`].
        const TRUNCATE = 8;
        /// With [`OpenFlags::CREATE`]: there must be none of the name (`O_EXCL`).
        const EXCLUSIVE = 16;
        /// Each write begins at its end (`O_APPEND`).
        const APPEND = 32;
        /// Not where a symbolic link leads, if the name is one's (`O_NOFOLLOW`).
        const NO_FOLLOW = 64;
    }
}

/// What is known of a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// It is a directory.
    pub is_directory: bool,
    /// It is a symbolic link; then its length is that of its path.
    pub is_link: bool,
    /// Its length.
    pub size_bytes: u64,
    /// Its names; of a directory also its own and its directories'.
    pub links: u16,
}

/// What a descriptor is ready for (`poll`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// A read would not sleep.
    pub readable: bool,
    /// A write would not sleep.
    pub writable: bool,
    /// The connection is over, or was never made.
    pub hung_up: bool,
}

/// A descriptor that is waited for, and what is of interest; then what it is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// The descriptor.
    pub fd: Fd,
    /// Whether it is waited for until it can be read from.
    pub read: bool,
    /// Whether it is waited for until it can be written to.
    pub write: bool,
    /// What it is ready for. That it is hung up is always of interest.
    pub ready: Readiness,
}

impl Polled {
    /// `fd`, to be read from or written to, of which nothing is known.
    pub fn new(fd: Fd, read: bool, write: bool) -> Polled {
        Polled { fd, read, write, ready: Readiness::default() }
    }

    /// It is ready for what is of interest, or hung up.
    pub fn is_ready(&self) -> bool {
        (self.read && self.ready.readable) || (self.write && self.ready.writable) || self.ready.hung_up
    }
}
