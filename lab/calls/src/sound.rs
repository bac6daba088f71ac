//! The sound device, where there is one: one open file at a time has it, and what is played is what was written or
//! lent. What is recorded is what it is, and counts from then on.

use super::process::{Actor, Buffer};
use super::reference::What;
use super::steps::DESCRIPTORS;
use alloc::vec::Vec;
use pageferry_hal::{Machine, PAGE_SIZE};
use pageferry_kernel::{Errno, Fd, User};

/// The most that is played at once: the last close waits until all is.
const MAX_PLAYED: usize = 2 * PAGE_SIZE;

impl<M: Machine> Actor<'_, M> {
    pub(super) fn open_sound(&self) {
        if self.count().0 >= DESCRIPTORS {
            return;
        }
        let opened = self.tried(User::open_audio);
        if matches!(opened, Err(Errno::NotSupported)) {
            return;
        }
        let is_open =
            self.reference.borrow().opens.iter().any(|o| o.refs > 0 && matches!(o.what, What::Sound));
        if is_open {
            return assert_eq!(opened, Err(Errno::Busy), "one at a time has it");
        }
        let fd = opened.expect("nobody has it");
        assert_eq!(self.u.set_nonblocking(fd, true), Ok(()));
        let open = self.reference.borrow_mut().open(What::Sound);
        self.has(fd, open);
    }

    /// Plays what is in a buffer, or as much of it as there is space for.
    pub(super) fn play(
        &self,
        fd: Fd,
        buffer: Buffer,
        call: impl Fn(&User<M>, Fd, Buffer) -> Result<usize, Errno>,
    ) {
        let buffer = Buffer { len: buffer.len.min(MAX_PLAYED), ..buffer };
        let bytes = self.held(buffer);
        match self.tried(|u| call(u, fd, buffer)) {
            // As a kernel without that kind of send says; or it has enough to play.
            Err(Errno::NotSupported | Errno::WouldBlock) => {}
            Err(e) => panic!("it plays: {e}"),
            Ok(len) => {
                assert!((1..=bytes.len()).contains(&len), "{len} bytes of {}", bytes.len());
                self.reference.borrow_mut().played.extend(&bytes[..len]);
            }
        }
    }

    /// Fills a buffer with what was recorded.
    pub(super) fn record(&self, buffer: Buffer, call: impl Fn(&User<M>) -> Result<usize, Errno>) {
        match self.tried(call) {
            Err(Errno::WouldBlock) => {}
            Err(e) => panic!("it records: {e}"),
            Ok(len) => {
                assert!((1..=buffer.len).contains(&len), "{len} bytes of {}", buffer.len);
                let found: Vec<u8> = self.load(buffer.at, len);
                self.stored(buffer, &found);
            }
        }
    }
}
