//! The kernel's side: which processes serve, one request of the protocol server, and those who wait for a socket.
//!
//! # What it holds
//! A [`NetService`] knows both servers, each from the moment in which it is begun until it has ended, and whether the
//! card's driver is still wanted. A request is made in the system call of a process, with the pieces that this process
//! keeps for that ([`crate::ispc`]).
//!
//! # Locks
//! Those of its parts, none while a request is made.
//!
//! # What can fail
//! Beginning a server; a request, by the server's end.

use super::super::home::Home;
use super::super::request::{Asking, Bytes, Completion, exchange};
use super::super::service::Service;
use super::waiters::Waiters;
use super::words::Request;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, Pid};
use pageferry_core::proc::Syscall;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Machine, PAGE_SIZE, StructArena, Threads};
use pageferry_ispc::{DRIVER, NetServiceConfig, NetServiceDefect, PROTOCOLS};
use pageferry_kernel::{Program, User};
use pageferry_net::PcbId;

/// What a server runs.
pub(super) type Served<M> = fn(&User<M>, &Arc<NetService<M>>);

/// What the two servers run.
pub(super) struct Programs<M: Machine> {
    pub(super) protocols: Served<M>,
    pub(super) driver: Served<M>,
}

/// See the [module](self).
pub(super) struct NetService<M: Machine> {
    pub(super) home: Home<M>,
    programs: Programs<M>,
    pub(super) config: NetServiceConfig,
    pub(super) protocols: Service<M>,
    pub(super) driver: Service<M>,
    pub(super) waiters: Waiters<M>,
    /// No program is left: no server is begun any more.
    ending: AtomicBool,
    /// There was a driver's server.
    had_driver: AtomicBool,
    /// It could not serve: another is begun with the next socket.
    driver_failed: AtomicBool,
}

impl<M: Machine> NetService<M> {
    pub(super) fn new(
        m: &M,
        config: NetServiceConfig,
        programs: Programs<M>,
        arena: &mut StructArena,
    ) -> Result<NetService<M>, ArenaFull> {
        let at = arena.array("network service", 2, 64)?;
        Ok(NetService {
            home: Home::new(),
            programs,
            config,
            protocols: Service::new(m, at, PROTOCOLS, "protocol server"),
            driver: Service::new(m, at.element(1, 64), DRIVER, "driver"),
            waiters: Waiters::new(m),
            ending: AtomicBool::new(false),
            had_driver: AtomicBool::new(false),
            driver_failed: AtomicBool::new(false),
        })
    }

    pub(super) fn has(&self, defect: NetServiceDefect) -> bool {
        self.config.defect.is(defect)
    }

    /// The process that has the protocols, if there is one; and the one that has the card.
    pub(super) fn servers(&self) -> (Option<Pid>, Option<Pid>) {
        (self.protocols.server(), self.driver.server())
    }

    /// The most bytes of a request.
    pub(super) fn max_bytes(&self) -> usize {
        self.config.data_pages * PAGE_SIZE
    }

    /// Something has changed for a socket.
    ///
    /// # Locks
    /// Any may be held but the scheduler's.
    pub(super) fn changed(&self, threads: &dyn Threads, id: PcbId) {
        if !self.has(NetServiceDefect::WaiterForgotten) {
            self.waiters.changed(threads, id.handle());
        }
    }

    /// Something is due: the protocol server does it.
    pub(super) fn has_work(&self, threads: &dyn Threads) {
        if !self.has(NetServiceDefect::TimeUntold) {
            self.tell_protocols(threads);
        }
    }

    /// There is work for the protocol server, or perhaps a driver that takes frames.
    pub(super) fn tell_protocols(&self, threads: &dyn Threads) {
        let Some(kernel) = self.home.kernel() else { return };
        kernel.ispc().into_iter().for_each(|ispc| _ = ispc.notify(threads, kernel.machine(), PROTOCOLS));
    }

    // ------------------------------------------------------------------------------------------- the servers

    /// The protocol server; it is begun if there is none, and with it a driver's.
    pub(super) fn serving(self: &Arc<Self>, call: &Syscall<'_, M>) -> Result<Pid, Errno> {
        loop {
            if let Some(server) = self.protocols.server() {
                if self.driver_failed.swap(false, Ordering::Relaxed) {
                    // It may find now what it did not find before.
                    self.tell_protocols(call.thread);
                }
                return Ok(server);
            }
            let program = self.running(self.programs.protocols);
            match self.protocols.begin(&self.home.kernel_of_call(), call.thread, program) {
                // The card is to have buffers before anybody knows of a socket.
                Ok(()) => {
                    self.protocols.wait_begun(call)?;
                    self.driver.wait_settled(call);
                }
                // Another call has begun it, or it is about to end.
                Err(Errno::Busy) => _ = self.protocols.wait_settled(call),
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins a driver's server if there is none, and there is a card for it. The protocol server asks for that, and is
    /// told when it serves.
    pub(super) fn ensure_driver(self: &Arc<Self>, threads: &dyn Threads) {
        let kernel = self.home.kernel_of_call();
        let can_be = !self.ending.load(Ordering::Relaxed) && !self.driver_failed.load(Ordering::Relaxed);
        let wanted = can_be && kernel.net().is_some_and(|net| net.has_link());
        let again = self.had_driver.load(Ordering::Relaxed) && self.has(NetServiceDefect::DriverNotReplaced);
        if wanted && !again && !self.driver.is_there() {
            self.had_driver.store(true, Ordering::Relaxed);
            let program = self.running(self.programs.driver);
            // For want of memory, another time.
            _ = self.driver.begin(&kernel, threads, program);
        }
    }

    fn running(self: &Arc<Self>, program: Served<M>) -> Program<M> {
        let its = self.clone();
        Box::new(move |user| program(user, &its))
    }

    /// A server, the caller, has ended, however it began.
    pub(super) fn ended(&self, threads: &dyn Threads, service: u32) {
        if service == DRIVER {
            let served = self.driver.ended(threads);
            self.driver_failed.store(!served, Ordering::Relaxed);
            return self.tell_protocols(threads);
        }
        let kernel = self.home.kernel_of_call();
        if let Some(net) = kernel.net().filter(|_| !self.has(NetServiceDefect::ConnectionsKept)) {
            net.forget_all(threads);
        }
        self.protocols.ended(threads);
        if !self.has(NetServiceDefect::DeathUntold) {
            self.waiters.all_changed(threads);
            // Who polls finds out, too.
            kernel.core().select.changed(threads);
        }
    }

    /// The last process that is none of the kernel's servers ends: all connections are ended, and the servers.
    pub(super) fn end(&self, call: &Syscall<'_, M>) {
        self.ending.store(true, Ordering::Relaxed);
        for service in [&self.protocols, &self.driver] {
            // One that does not answer has ended, or ends.
            let Some(server) = service.wait_settled(call) else { continue };
            let whom = (service.number, Some(server));
            if self.ask_of(call, whom, &Request::End, Bytes::None, false).is_ok() {
                // Where threads cross into it, its own sleeps; now that this one has left it may end.
                _ = self.home.kernel_of_call().send_signal(server);
            }
        }
    }

    /// Tests that nobody waits.
    ///
    /// # Errors
    /// What is left, in words.
    pub(super) fn check_quiescent(&self) -> Result<(), String> {
        match self.waiters.is_empty() {
            true => Ok(()),
            false => Err("calls that wait for a socket of a server's are left".into()),
        }
    }

    // ------------------------------------------------------------------------------------------- one request

    /// Makes a request of the protocol server, with bytes that go with it or come back. `expected` says which process
    /// it must be.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`], [`Errno::ConnectionReset`]: it dies, or has died. [`Errno::Fault`]: not one byte
    /// could be taken from the program. [`Errno::NoMemory`]; [`Errno::Interrupted`], only if `interruptible`.
    pub(super) fn ask(
        &self,
        call: &Syscall<'_, M>,
        expected: Pid,
        request: &Request,
        bytes: Bytes<'_>,
        interruptible: bool,
    ) -> Result<Completion, Errno> {
        let expected = Some(expected).filter(|_| !self.has(NetServiceDefect::ServerNotAsked));
        self.ask_of(call, (PROTOCOLS, expected), request, bytes, interruptible)
    }

    fn ask_of(
        &self,
        call: &Syscall<'_, M>,
        (service, expected): (u32, Option<Pid>),
        request: &Request,
        bytes: Bytes<'_>,
        interruptible: bool,
    ) -> Result<Completion, Errno> {
        let max_pages = self.config.data_pages;
        let asking = Asking { service, expected, max_pages, interruptible, keeps_attached: false };
        let goes = matches!(bytes, Bytes::From(..) | Bytes::By(..));
        let mut words = |taken| {
            let envelope = request.envelope();
            Ok(if goes { envelope.with_len(taken) } else { envelope }.bytes())
        };
        let lost = self.has(NetServiceDefect::ReadTooFar);
        let mut not_taken = |done: &Completion| -> Option<Vec<u8>> {
            let (taken, got) = (done.moved.0, done.answer.value as usize);
            let Request::Read { handle, .. } = *request else { return None };
            let is_short = done.answer.error.is_none() && taken < got && !lost;
            is_short.then(|| Request::Unread { handle, from: taken, len: got - taken }.envelope().bytes())
        };
        let kernel = self.home.kernel_of_call();
        let ispc = kernel.ispc().ok_or(Errno::NotSupported)?;
        exchange(call, ispc, &asking, &mut words, bytes, &mut not_taken)
    }
}
