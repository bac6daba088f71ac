//! The system calls of map entry passing (UVM paper, 4.3): export, import, withdraw, and loans between processes by the
//! same way; and of a debugger.

use super::user::User;
use pageferry_abi::{Errno, ExportId, ExportTo, Imported, PassMode, Pid};
use pageferry_core::ipc::{Carry, Traced, trace};
use pageferry_hal::{Access, Machine, Va};

impl<M: Machine> User<M> {
    /// Offers `len_bytes` of memory at `at`, in whole pages, to be passed as `mode` says to the processes of `to`. The
    /// range may hold several mappings, and holes. What is passed is what is mapped there at the import.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: no length, or `at` is not page-aligned. [`Errno::Fault`]: nothing is mapped there, or the
    /// range leaves user space. [`Errno::NoMemory`]: too many offers stand.
    pub fn export(&self, at: Va, len_bytes: usize, mode: PassMode, to: ExportTo) -> Result<ExportId, Errno> {
        self.system_call(|call| {
            let carry = Carry::Pass(mode);
            self.kernel.exports.export(call, (at, len_bytes), carry, to)
        })
    }

    /// Offers whole pages to be lent to the processes of `to` (UVM paper, 4.1.3: loans between processes). The importer
    /// gets them as anonymous memory: at an address that is mapped, in place of what is there, or in its transfer area,
    /// for `anflush` in the end. Lender and borrower may both write, and then have a copy each. The lender's range must
    /// hold memory everywhere at the import.
    ///
    /// # Errors
    /// As [`User::export`]; [`Errno::Invalid`] also for a length that is not in whole pages.
    pub fn export_loan(&self, at: Va, len_bytes: usize, to: ExportTo) -> Result<ExportId, Errno> {
        self.system_call(|call| self.kernel.exports.export(call, (at, len_bytes), Carry::Loan, to))
    }

    /// Brings what `id` offers into this address space: at `at`, or where it fits. What is passed goes where nothing is
    /// mapped; what is lent takes the place of memory.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: there never was such an offer, `at` is not page-aligned, or something is mapped there.
    /// [`Errno::Removed`]: the offer was taken back, its maker has exited, or it was a donation that has been imported.
    /// [`Errno::Access`]: it is for others, or what is lent would go where this process may not write. [`Errno::Busy`]:
    /// that donation is being imported, or a page is wired that is to be lent or to be replaced. [`Errno::Fault`]:
    /// nothing is mapped any more in the range that is offered, or at `at`. [`Errno::NoMemory`]. Nothing has changed
    /// then.
    pub fn import(&self, id: ExportId, at: Option<Va>) -> Result<Imported, Errno> {
        self.system_call(|call| self.kernel.exports.import(call, id, at))
    }

    /// Takes an offer back. Memory that was imported stays imported.
    ///
    /// # Errors
    /// [`Errno::Invalid`], [`Errno::Removed`], [`Errno::Busy`] as of [`User::import`]. [`Errno::Access`]: it is another
    /// process's.
    pub fn withdraw(&self, id: ExportId) -> Result<(), Errno> {
        self.system_call(|call| self.kernel.exports.withdraw(call, id))
    }

    /// Reads memory of a child, whatever its mapping permits at the moment (`PT_READ_D`). Gives how many bytes it read,
    /// fewer only where the memory of either ends, or the machine's is short.
    ///
    /// # Errors
    /// [`Errno::NoProcess`], [`Errno::Access`]: not a child of this process. [`Errno::Fault`], [`Errno::NoMemory`]:
    /// nothing was read.
    pub fn ptrace_read(&self, pid: Pid, from: Va, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| {
            call.check_buffer(to, len_bytes)?;
            let traced = Traced { theirs: from, own: to, len_bytes, access: Access::Read };
            trace(call, &*self.kernel.processes.memory_of_child(call.pid, pid)?, traced)
        })
    }

    /// Writes memory of a child, whatever its mapping permits at the moment (`PT_WRITE_D`). What the child shares
    /// copy-on-write with others becomes its own first. Gives how many bytes it wrote, fewer only where the memory of
    /// either ends, or the machine's is short.
    ///
    /// # Errors
    /// As of [`User::ptrace_read`].
    pub fn ptrace_write(&self, pid: Pid, to: Va, from: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| {
            call.check_buffer(from, len_bytes)?;
            let traced = Traced { theirs: to, own: from, len_bytes, access: Access::Write };
            trace(call, &*self.kernel.processes.memory_of_child(call.pid, pid)?, traced)
        })
    }
}
