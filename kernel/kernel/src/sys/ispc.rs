//! The system calls of communication by the common area. See [`crate::ispc`] for what they do.

use super::user::User;
use alloc::boxed::Box;
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_core::proc::{Process, Role, Syscall};
use pageferry_core::sched::Thread;
use pageferry_hal::{Machine, Va};
use pageferry_ispc::{Completed, Inquiry, Ispc, MIN_OWN, RequestId, Wait};

/// What a thread runs that has crossed into a server: it gets the server's memory and calls, and the request.
pub type Procedure<M> = Box<dyn Fn(&User<M>, &Inquiry)>;

impl<M: Machine> User<M> {
    fn ispc_call<R>(
        &self,
        work: impl FnOnce(&Ispc<M>, &Syscall<'_, M>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.system_call(|call| work(self.kernel.ispc.as_ref().ok_or(Errno::NotSupported)?, call))
    }

    /// Tests that programs leave the services of the kernel's own processes alone, which trust the kernel with what
    /// requests say.
    fn may_name(&self, service: u32) -> Result<(), Errno> {
        let is_own = service >= MIN_OWN;
        if is_own && self.process.role == Role::Program { Err(Errno::Access) } else { Ok(()) }
    }

    /// A piece of the communication area of so many pages, clear, that this process has.
    ///
    /// # Errors
    /// [`Errno::NotSupported`] by a kernel without an area, as for all of these calls. [`Errno::Invalid`] for no pages.
    /// [`Errno::NoMemory`] when the area is full, or the caller would wait for reserved TLB entries that it has itself,
    /// or that do not exist. [`Errno::WouldBlock`] when no reserved TLB entry is free and `wait` says so.
    /// [`Errno::Interrupted`].
    pub fn ica_alloc(&self, pages: usize, wait: Wait) -> Result<Va, Errno> {
        self.ispc_call(|ispc, call| ispc.call_alloc(call, pages, wait))
    }

    /// Gives a piece back that this process has.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: none begins at `at`. [`Errno::Access`]: it is another's, or on its way. [`Errno::Busy`]: it
    /// came with a request that is not answered.
    pub fn ica_free(&self, at: Va) -> Result<(), Errno> {
        self.ispc_call(|ispc, call| ispc.call_free(call, at))
    }

    /// Makes this process the server of `service`: requests are queued for [`User::ispc_receive`].
    ///
    /// # Errors
    /// [`Errno::NotSupported`] also by a kernel whose threads cross into servers. [`Errno::AddressInUse`]: another is.
    /// [`Errno::Invalid`]: it serves already. [`Errno::WouldBlock`]: no reserved entries of servers' are left.
    /// [`Errno::Access`]: the service is one of the kernel's own, the highest numbers, which no program may serve or
    /// ask.
    pub fn ispc_serve(&self, service: u32) -> Result<(), Errno> {
        self.may_name(service)?;
        self.ispc_call(|ispc, call| ispc.call_serve(call, service))
    }

    /// Makes this process the server of `service`: threads that make requests cross into it, run `procedure` and go
    /// back. Its own thread has nothing to do with them: [`User::ispc_receive`] sleeps until a signal comes.
    ///
    /// # Errors
    /// As of [`User::ispc_serve`]; [`Errno::NotSupported`] by a kernel that queues requests.
    pub fn ispc_serve_by(&self, service: u32, procedure: Procedure<M>) -> Result<(), Errno> {
        self.may_name(service)?;
        let kernel = Arc::downgrade(&self.kernel);
        let enter = Box::new(move |process: &Arc<Process<M>>, thread: &Thread<M>, inquiry: &Inquiry| {
            let kernel = kernel.upgrade().expect("a kernel is there as long as a call of it is in progress");
            procedure(&User { kernel, process: process.clone(), thread: thread.clone() }, inquiry);
        });
        self.ispc_call(|ispc, call| ispc.call_serve_by(call, &self.process, service, enter))
    }

    /// True when threads cross into servers ([`User::ispc_serve_by`]), and requests are not queued.
    pub fn ispc_crosses(&self) -> bool {
        self.kernel.ispc.as_ref().is_some_and(|ispc| ispc.config.method.crosses())
    }

    /// Makes a request of a server: the two pieces go there, and come back with the answer, for which this waits. Where
    /// threads cross into servers, this one does.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`]: no process serves that. [`Errno::Invalid`], [`Errno::Access`] as of
    /// [`User::ica_free`]. [`Errno::ConnectionReset`]: the server has died; the pieces are back.
    /// [`Errno::Interrupted`]: by a signal, before the server had taken the request; the pieces are back.
    /// [`Errno::WouldBlock`]: the answer is there, but no reserved entry is free for its pieces: they come with
    /// [`User::ispc_result`]. [`Errno::NoMemory`].
    pub fn ispc_request(&self, service: u32, control: Va, data: Option<Va>, wait: Wait) -> Result<(), Errno> {
        self.may_name(service)?;
        let pieces = (control, data);
        self.ispc_call(|ispc, call| match self.ispc_crosses() {
            true => ispc.call_cross(call, service, pieces, wait),
            false => ispc.call_request(call, service, pieces, true, wait).map(|_| ()),
        })
    }

    /// The same, without waiting: the answer comes with [`User::ispc_result`].
    ///
    /// # Errors
    /// As [`User::ispc_request`], but for those that an answer brings; [`Errno::NotSupported`] where threads cross into
    /// servers.
    pub fn ispc_post(&self, service: u32, control: Va, data: Option<Va>) -> Result<RequestId, Errno> {
        self.may_name(service)?;
        self.ispc_call(|ispc, call| ispc.call_request(call, service, (control, data), false, Wait::No))
    }

    /// The next request made of this server.
    ///
    /// # Errors
    /// [`Errno::NotSupported`]: it is no server. [`Errno::NoMemory`]: there will be no reserved TLB entries for the
    /// request's pieces as long as the server keeps what it has. [`Errno::WouldBlock`], [`Errno::Interrupted`].
    pub fn ispc_receive(&self, wait: Wait) -> Result<Inquiry, Errno> {
        self.ispc_call(|ispc, call| ispc.call_receive(call, wait))
    }

    /// Answers a request: its pieces go back.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: there is no such request. [`Errno::Access`]: it is not this server's to answer.
    /// [`Errno::Busy`]: one of its pieces is on its way with another request.
    pub fn ispc_return(&self, id: RequestId) -> Result<(), Errno> {
        self.ispc_call(|ispc, call| ispc.call_return(call, id))
    }

    /// Hands a frame to the network card that lies in a piece of this server's, where no protocols of the kernel's own
    /// have the card. The card reads it until [`User::card_wait`] returns; who writes there before changes what is
    /// sent.
    ///
    /// # Errors
    /// [`Errno::NotSupported`]: there is no such card. [`Errno::MessageSize`]: no frame has that length.
    /// [`Errno::Invalid`], [`Errno::Access`]: it is not in a piece, or not in one that this server has.
    /// [`Errno::WouldBlock`]: the ring is full.
    pub fn card_send(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.ispc_call(|ispc, call| ispc.call_card_send(call, (at, len_bytes), None, None))
    }

    /// Waits until the card has sent all that this process has handed over.
    ///
    /// # Errors
    /// [`Errno::NotSupported`].
    pub fn card_wait(&self) -> Result<(), Errno> {
        self.ispc_call(|ispc, call| ispc.call_card_wait(call))
    }

    /// The next of this process's posted requests that is done; its pieces are attached again.
    ///
    /// # Errors
    /// [`Errno::NoChild`]: nothing is outstanding. [`Errno::WouldBlock`], [`Errno::Interrupted`].
    pub fn ispc_result(&self, wait: Wait) -> Result<Completed, Errno> {
        self.ispc_call(|ispc, call| ispc.call_result(call, wait))
    }
}
