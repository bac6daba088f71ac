//! What can be done with what is behind an open file: with any ([`FileOps`]), with one that has bytes by number
//! ([`VnodeOps`]), with a socket ([`SocketOps`]).
//!
//! Whoever implements a kind owns what is behind it. A call that fails has moved its buffer on by what it did before;
//! what that means to the process is decided in [`super::File`], once for all kinds.
//!
//! # Locks
//! Operations may sleep, and take locks from class `Process` on: no lock is held before and after.
//!
//! # What can fail
//! What Unix has it to, see each. The defaults are for a kind that lacks an operation.

use crate::mbuf::AreaId;
use crate::proc::{Syscall, Uio, WaitFlag};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use pageferry_abi::{Errno, Placed, Readiness, SendMode, Shutdown, SocketKind, SocketOption};
use pageferry_hal::{Machine, Prot, StructVa, Va};
use pageferry_vm::{KernelLoan, MapAddr, PushDown};

/// What can be done with an open file of any kind. [`File`](super::File) has tested, before it asks a kind to read or
/// write, that the file is open for that and that the buffer lies within user space.
pub trait FileOps<M: Machine> {
    /// Fills the buffer, with what is there: by copy, or by pages.
    fn read(&self, _call: &Syscall<'_, M>, _uio: &mut Uio) -> Result<(), Errno> {
        Err(Errno::BadFd)
    }

    /// Takes all of the buffer, by copy or otherwise; of a call that does not wait, what there is room for.
    fn write(&self, _call: &Syscall<'_, M>, _uio: &mut Uio) -> Result<(), Errno> {
        Err(Errno::BadFd)
    }

    /// What it is ready for, where it is open for that: of most kinds, anything at any time.
    fn readiness(&self, _call: &Syscall<'_, M>) -> Readiness {
        Readiness { readable: true, writable: true, hung_up: false }
    }

    /// The last descriptor is gone: closes what is behind the file.
    fn release(self: Box<Self>, call: &Syscall<'_, M>);
}

/// What can be done with a file that has a length and bytes by number: on a disk, or a disk itself. The defaults are
/// for one that lacks an operation.
pub trait VnodeOps<M: Machine>: FileOps<M> {
    /// Sets where the next read or write begins.
    fn seek(&self, call: &Syscall<'_, M>, to: u64) -> Result<(), Errno>;

    /// The length in bytes.
    fn size_bytes(&self, call: &Syscall<'_, M>) -> Result<u64, Errno>;

    /// Cuts the file, or lets it grow by zeros.
    fn truncate(&self, _call: &Syscall<'_, M>, _size_bytes: u64) -> Result<(), Errno> {
        Err(Errno::BadFd)
    }

    /// Writes what waits to be written, and sleeps until it is on the disk.
    fn sync(&self, _call: &Syscall<'_, M>) -> Result<(), Errno> {
        Err(Errno::BadFd)
    }

    /// Maps a part of it; the rights that it was opened with permit that.
    fn map(&self, _call: &Syscall<'_, M>, _mapping: &MapRequest) -> Result<Va, Errno> {
        Err(Errno::BadFd)
    }

    /// Makes what a private mapping of the file has of its own the file's.
    fn push_down(
        &self,
        _call: &Syscall<'_, M>,
        _at: Va,
        _len_bytes: usize,
        _how: PushDown,
    ) -> Result<usize, Errno> {
        Err(Errno::BadFd)
    }

    /// Calls `work` with the kernel address of the file's first page, of which so many bytes are the file's; for exec,
    /// which any CPU may go on with.
    fn with_header(
        &self,
        _call: &Syscall<'_, M>,
        _work: &mut dyn FnMut(Va, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        Err(Errno::NotExecutable)
    }

    /// Copies up to `len_bytes` from byte `at` on to kernel memory. Answers how many; zero at the end of the file.
    fn read_kernel(
        &self,
        _call: &Syscall<'_, M>,
        _at: u64,
        _to: Va,
        _len_bytes: usize,
    ) -> Result<usize, Errno> {
        Err(Errno::NotSupported)
    }

    /// Lends the kernel up to `len_bytes` from byte `at` on, all in one page; nothing at the end of the file. A file
    /// whose pages cannot be lent is copied.
    fn loan_to_kernel(
        &self,
        _call: &Syscall<'_, M>,
        _at: u64,
        _len_bytes: usize,
    ) -> Result<Option<KernelLoan>, Errno> {
        Err(Errno::NotSupported)
    }
}

/// A mapping of a file that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// The first byte of the file that it shows; a multiple of a page.
    pub offset: u64,
    /// Where in the process's memory.
    pub place: MapAddr,
    /// How much.
    pub len_bytes: usize,
    /// What the process may do with it.
    pub prot: Prot,
    /// What the file was opened for permits at most.
    pub max_prot: Prot,
    /// Stores change the file.
    pub shared: bool,
}

/// A part of a file that is to be sent, and how.
#[derive(Clone, Copy, Debug)]
pub struct FilePart {
    /// Its first byte.
    pub from: u64,
    /// How much at most.
    pub len_bytes: usize,
    /// By copy, or by the file's own pages.
    pub mode: SendMode,
}

/// A connection that was accepted, and who made it.
pub type NewSocket<M> = (Box<dyn SocketOps<M>>, SocketAddrV4);

/// What can be asked of a socket beside what can of any open file. Errors are those of the system calls of the same
/// name; the defaults are for a pair of sockets, which have no names.
pub trait SocketOps<M: Machine>: FileOps<M> {
    /// Stream or datagrams.
    fn kind(&self) -> Result<SocketKind, Errno> {
        Err(Errno::NotSupported)
    }

    /// Binds it to a name of this host (`bind`).
    fn bind(&self, _call: &Syscall<'_, M>, _name: SocketAddrV4) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Listens for connections, of which so many may wait (`listen`).
    fn listen(&self, _call: &Syscall<'_, M>, _backlog: usize) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Takes a connection that was made to it (`accept`).
    fn accept(&self, _call: &Syscall<'_, M>, _wait: WaitFlag) -> Result<NewSocket<M>, Errno> {
        Err(Errno::NotSupported)
    }

    /// Connects it (`connect`).
    fn connect(&self, _call: &Syscall<'_, M>, _to: SocketAddrV4, _wait: WaitFlag) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Ends one or both directions (`shutdown`).
    fn shutdown(&self, _call: &Syscall<'_, M>, _how: Shutdown) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Its own name, and the other end's (`getsockname`, `getpeername`).
    fn names(&self, _call: &Syscall<'_, M>) -> Result<(SocketAddrV4, Option<SocketAddrV4>), Errno> {
        Err(Errno::NotSupported)
    }

    /// Sets an option (`setsockopt`).
    fn set_option(&self, _call: &Syscall<'_, M>, _option: SocketOption) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// What is to be told of it, once (`SO_ERROR`).
    fn take_error(&self, _call: &Syscall<'_, M>) -> Result<Option<Errno>, Errno> {
        Err(Errno::NotSupported)
    }

    /// Sends the buffer as a datagram, whole or not at all.
    fn send_to(
        &self,
        _call: &Syscall<'_, M>,
        _uio: &mut Uio,
        _to: Option<SocketAddrV4>,
    ) -> Result<(), Errno> {
        Err(Errno::NotSupported)
    }

    /// Receives a datagram, or as much of it as the buffer has room for; answers where it comes from.
    fn receive_from(&self, _call: &Syscall<'_, M>, _uio: &mut Uio) -> Result<SocketAddrV4, Errno> {
        Err(Errno::NotSupported)
    }

    /// Makes an area that of what is received here, until it is closed. True when a card will fill it; else what is
    /// received is copied there.
    fn set_receive_area(&self, _call: &Syscall<'_, M>, _area: AreaId) -> Result<bool, Errno> {
        Err(Errno::NotSupported)
    }

    /// Gives back what the process has at places of its area, and then receives into it. Answers where what came is.
    fn receive_placed(
        &self,
        _call: &Syscall<'_, M>,
        _back: &[Placed],
        _uio: &mut Uio,
    ) -> Result<Vec<Placed>, Errno> {
        Err(Errno::NotSupported)
    }

    /// Sends a part of a file, by the file's own pages where that is asked for. Answers how much.
    fn send_file(
        &self,
        _call: &Syscall<'_, M>,
        _file: &dyn VnodeOps<M>,
        _part: FilePart,
        _wait: WaitFlag,
    ) -> Result<usize, Errno> {
        Err(Errno::NotSupported)
    }

    /// Sends up to `len` bytes of what is to be received here also on `to`. Answers how many.
    fn tee(
        &self,
        _call: &Syscall<'_, M>,
        _to: &dyn SocketOps<M>,
        _len: usize,
        _wait: WaitFlag,
    ) -> Result<usize, Errno> {
        Err(Errno::NotSupported)
    }

    /// The structure of the buffer that what is sent here goes to first.
    fn peer_buffer(&self) -> Result<StructVa, Errno> {
        Err(Errno::NotSupported)
    }
}
