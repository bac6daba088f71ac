//! The system calls of sockets: pairs, the null protocol, sending by loan, receiving by transfer; and what a lender may
//! ask.

use super::user::User;
use alloc::vec::Vec;
use pageferry_abi::{Errno, Fd, Placed, ReceiveMode, Received, SendMode, ShownPages};
use pageferry_core::fs::FilePart;
use pageferry_core::proc::Uio;
use pageferry_costs::{Arrived, Carrier};
use pageferry_hal::{Machine, PAGE_SIZE, Prot, SpinLock, Va};
use pageferry_net::{NullSocket, SockBuf, Socket};

impl<M: Machine> User<M> {
    /// Makes two sockets connected to each other: what is sent on one is received on the other (`socketpair`).
    ///
    /// # Errors
    /// [`Errno::NoMemory`], [`Errno::TooManyFiles`].
    pub fn socket_pair(&self) -> Result<(Fd, Fd), Errno> {
        self.system_call(|call| {
            if !self.process.files.lock().has_room(2) {
                return Err(Errno::TooManyFiles);
            }
            let bytes = call.core.config.socket.high_water_bytes;
            let buffer = || SockBuf::create(call.core, &self.kernel.sockets, bytes, None);
            let there = buffer()?;
            let back = buffer().inspect_err(|_| there.discard())?;
            let socket = |receive, send| Socket { receive: Some(receive), send: Some(send) }.open();
            let mut files = self.process.files.lock();
            Ok((files.insert(socket(back.clone(), there.clone())), files.insert(socket(there, back))))
        })
    }

    /// Makes a socket of the null protocol: it discards what is sent, and what is received is pages as they are, as
    /// many as are asked for, at once (UVM paper, 5.1 and 5.2). For measuring.
    ///
    /// # Errors
    /// [`Errno::NotSupported`] if this kernel has no such protocol, [`Errno::TooManyFiles`].
    pub fn null_socket(&self) -> Result<Fd, Errno> {
        self.system_call(|call| {
            if !call.core.config.socket.null_protocol {
                return Err(Errno::NotSupported);
            }
            let mut files = self.process.files.lock();
            if !files.has_room(1) {
                return Err(Errno::TooManyFiles);
            }
            Ok(files.insert(NullSocket::open(call.core)))
        })
    }

    /// Sends `len_bytes` by copy or by loan, or as is cheaper; fewer only if a signal came, the descriptor is
    /// non-blocking, or the memory ends. What is received is what is at `from` now, also if it is changed before it is
    /// received; but for pages that are only pinned ([`SendMode::Pin`]).
    ///
    /// # Errors
    /// As [`User::write`]; [`Errno::NoMemory`]; [`Errno::NotSupported`] for other than copies to a pipe that is no
    /// socket.
    pub fn send(&self, fd: Fd, from: Va, len_bytes: usize, mode: SendMode) -> Result<usize, Errno> {
        self.system_call(|call| self.get(fd)?.write(call, Uio::write(from, len_bytes, mode)))
    }

    /// Sends `len_bytes` of a file from byte `from` on over a connected socket, as many as there are; the file's own
    /// offset stays (`sendfile`). By copy, by loan of the file's pages, or as is cheaper. Answers how many were sent:
    /// fewer only if the file ends, a signal came, or the socket is non-blocking.
    ///
    /// # Errors
    /// [`Errno::BadFd`]; [`Errno::NotSupported`] for what is no socket, or no file; [`Errno::NotConnected`],
    /// [`Errno::BrokenPipe`], [`Errno::WouldBlock`], [`Errno::Interrupted`], [`Errno::Io`], [`Errno::NoMemory`].
    pub fn send_file(
        &self,
        socket: Fd,
        file: Fd,
        from: u64,
        len_bytes: usize,
        mode: SendMode,
    ) -> Result<usize, Errno> {
        self.system_call(|call| {
            let (socket, file) = (self.get(socket)?, self.get(file)?);
            let (target, source) = (socket.as_socket()?, file.as_vnode().map_err(|_| Errno::NotSupported)?);
            if !file.rights().readable || !socket.rights().writable {
                return Err(Errno::BadFd);
            }
            target.send_file(call, source, FilePart { from, len_bytes, mode }, socket.wait())
        })
    }

    /// Receives up to `len_bytes` by copy: the same as [`User::read`].
    ///
    /// # Errors
    /// As [`User::read`].
    pub fn receive(&self, fd: Fd, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.read(fd, to, len_bytes)
    }

    /// Receives up to `len_bytes` by transfer, from a socket or a file: to `at`, whose pages are replaced; or with
    /// `None` to the transfer area, where the bytes begin on a page. What cannot be transferred is copied, to an
    /// address given anywhere. Of a file, whole pages go that lie at the same place of a page there and at `at`.
    ///
    /// # Errors
    /// As [`User::read`]; [`Errno::NoMemory`] also when the transfer area is full; [`Errno::NotSupported`] for a pipe
    /// that is no socket. Nothing was received then.
    pub fn receive_transfer(&self, fd: Fd, at: Option<Va>, len_bytes: usize) -> Result<Received, Errno> {
        self.system_call(|call| self.get(fd)?.read(call, Uio::receive(at, len_bytes, ReceiveMode::Transfer)))
    }

    /// Receives up to `len_bytes` at `at`: pages where that is cheaper on this machine, copied bytes elsewhere. What is
    /// at `at` then is the process's own either way; pages that came need not be flushed.
    ///
    /// # Errors
    /// As [`User::receive_transfer`].
    pub fn receive_auto(&self, fd: Fd, at: Va, len_bytes: usize) -> Result<Received, Errno> {
        self.system_call(|call| {
            self.get(fd)?.read(call, Uio::receive(Some(at), len_bytes, ReceiveMode::Auto))
        })
    }

    /// Maps a window of `len_bytes`, rounded up to whole pages, in which [`User::receive_shown`] shows pages: they can
    /// be read there, and never be written. Touching a page that is not shown ends the process.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: no length. [`Errno::NoMemory`].
    pub fn map_window(&self, len_bytes: usize) -> Result<Va, Errno> {
        self.system_call(|call| Ok(call.space.map_window(call.thread, len_bytes)?))
    }

    /// Receives whole pages from a socket by showing them in a window at `at`, in place of what is shown there: as many
    /// as come next, up to `len_bytes`. What fills no page stays, and is to be received by [`User::receive`]; nothing
    /// behind it can be shown before (`getsockopt` with `TCP_ZEROCOPY_RECEIVE`).
    ///
    /// # Errors
    /// As [`User::read`]; [`Errno::Invalid`] when `at` is within a page, or for less than a page; [`Errno::Fault`] when
    /// it is in no window; [`Errno::Busy`] when it is locked in memory; [`Errno::NotSupported`] for a file or a pipe
    /// that is no socket.
    pub fn receive_shown(&self, fd: Fd, at: Va, len_bytes: usize) -> Result<ShownPages, Errno> {
        self.system_call(|call| self.get(fd)?.show(call, at, len_bytes))
    }

    /// Gives pages back that a window shows (`madvise` with `MADV_DONTNEED`). Those that are shown over need not be.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: no length, or an address within a page. [`Errno::NoMemory`]: not all of the range is mapped.
    /// [`Errno::Fault`]: it is no window. [`Errno::Busy`]: it is locked in memory.
    pub fn clear_window(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.system_call(|call| {
            let pages = call.space.clear_window(call.thread, at, len_bytes)?;
            pages.into_iter().for_each(|pages| call.core.vm.free_kernel_pages(pages));
            Ok(())
        })
    }

    /// Makes `len_bytes` of memory at `at`, whole pages, the receive area of a connected socket: they are wired until
    /// it is closed, and [`User::receive_placed`] answers where in them what has arrived is. True when the card will
    /// put it there by itself; one that can does so for one connection at a time. Else it is copied there (io_uring's
    /// zero-copy receive: `IORING_REGISTER_ZCRX_IFQ`).
    ///
    /// # Errors
    /// [`Errno::Invalid`] for less than two pages, or what is not whole pages; [`Errno::Fault`] where memory is missing
    /// or may not be written; [`Errno::Busy`] when the socket has an area; [`Errno::NotConnected`], [`Errno::BadFd`];
    /// [`Errno::NotSupported`] for what is no stream; [`Errno::NoMemory`].
    pub fn set_receive_area(&self, fd: Fd, at: Va, len_bytes: usize) -> Result<bool, Errno> {
        self.system_call(|call| {
            if !at.is_page_aligned() || !len_bytes.is_multiple_of(PAGE_SIZE) || len_bytes < 2 * PAGE_SIZE {
                return Err(Errno::Invalid);
            }
            let file = self.get(fd)?;
            let socket = file.as_socket()?;
            call.check_buffer(at, len_bytes)?;
            let wired = call.space.wire(call.thread, at, len_bytes, Prot::RW)?;
            let area = call.core.mbufs.open_area(wired);
            socket.set_receive_area(call, area).inspect_err(|_| call.core.mbufs.close_area(area))
        })
    }

    /// Receives up to `len_bytes` into the receive area of a socket, and answers where they are; zero at the end of the
    /// stream. What the process got at the places `back` it is done with: that memory is filled again, whatever becomes
    /// of the rest of the call. With a length of zero it only gives back.
    ///
    /// # Errors
    /// As [`User::read`]; [`Errno::Invalid`] when the socket has no area, or the process does not have what it gives
    /// back; what is before that is given back. [`Errno::NoMemory`] when the process has all of the area.
    pub fn receive_placed(&self, fd: Fd, back: &[Placed], len_bytes: usize) -> Result<Vec<Placed>, Errno> {
        self.system_call(|call| self.get(fd)?.place(call, back, len_bytes))
    }

    /// Receives up to `len_bytes` from a socket, and throws them away (`recv` with `MSG_TRUNC`). What it takes is what
    /// all ways to receive have in common.
    ///
    /// # Errors
    /// As [`User::read`]; [`Errno::NotSupported`] for a file or a pipe that is no socket.
    pub fn discard(&self, fd: Fd, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| self.get(fd)?.discard(call, len_bytes))
    }

    /// Begins, or ends, to watch this process's loans to the kernel. What was lent before is not known.
    ///
    /// # Errors
    /// [`Errno::Killed`] only.
    pub fn watch_loans(&self, on: bool) -> Result<(), Errno> {
        self.system_call(|call| {
            call.core.lenders.watch(call.pid, on);
            Ok(())
        })
    }

    /// How many pages this process has on loan to the kernel: sent, and not yet received, played or thrown away. A page
    /// that is lent twice counts twice.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when loans are not watched.
    pub fn pages_on_loan(&self) -> Result<usize, Errno> {
        self.system_call(|call| call.core.lenders.pages_out(call.pid))
    }

    /// Sleeps until this process has no page on loan to the kernel: from then on it can write to its buffers without a
    /// copy, but for pages that a receiver has got by transfer.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when loans are not watched; [`Errno::Interrupted`].
    pub fn wait_for_loans(&self) -> Result<(), Errno> {
        self.system_call(|call| call.core.lenders.wait(call.thread, call.pid))
    }

    /// Sends up to `len_bytes` of what is to be received on `from` also on `to`, without receiving it and without
    /// copying it: what is there, at least one byte, and as much as there is space for; zero at the end of the stream.
    ///
    /// # Errors
    /// [`Errno::BadFd`]; [`Errno::NotSupported`] for other than connected sockets; [`Errno::Invalid`] when the two are
    /// one; [`Errno::WouldBlock`] when there is no space on `to`, or `from` is non-blocking and empty;
    /// [`Errno::BrokenPipe`], [`Errno::Interrupted`], [`Errno::NoMemory`]. Nothing was sent then.
    pub fn tee(&self, from: Fd, to: Fd, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| {
            let (from, to) = {
                let files = self.process.files.lock();
                (files.get(from)?, files.get(to)?)
            };
            from.as_socket()?.tee(call, to.as_socket()?, len_bytes, from.wait())
        })
    }

    /// Frees the anonymous memory in a range, which stays mapped and is zero then, or what is in the file below (UVM
    /// paper, 4.2.2). For memory that was received by transfer.
    ///
    /// # Errors
    /// [`Errno::Invalid`] for a length of zero or an address within a page, [`Errno::NoMemory`] where not all is
    /// mapped, [`Errno::Busy`] for wired pages.
    pub fn anflush(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.system_call(|call| {
            call.machine().execute(call.core.config.paths.transfer_call);
            Ok(call.space.anflush(call.thread, at, len_bytes)?)
        })
    }

    /// Answers how a buffer of `len_bytes`, whole pages that hold nothing else, gets to another process at less cost on
    /// this machine: over a socket, or passed. `arrived` says what its receivers do with it. A hint: both work.
    ///
    /// # Errors
    /// [`Errno::Killed`] only.
    pub fn choose_carrier(&self, len_bytes: usize, arrived: Arrived) -> Result<Carrier, Errno> {
        self.system_call(|call| Ok(call.choose_carrier(len_bytes, arrived)))
    }

    /// The same for a program that can also have a server's process asked: [`Carrier::Server`], where the kernel has
    /// such. The buffer is a piece of the communication area then.
    ///
    /// # Errors
    /// [`Errno::Killed`] only.
    pub fn choose_any_carrier(&self, len_bytes: usize, arrived: Arrived) -> Result<Carrier, Errno> {
        self.system_call(|call| Ok(call.choose_any_carrier(len_bytes, arrived)))
    }
}
