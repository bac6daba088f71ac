//! What a request of a server costs, and a message without data over a socket, measured between two processes.
//!
//! The kernel begins a process, the *partner*. First the caller and it send each other a byte over a socket, round
//! after round; then the caller makes requests of it, with a data piece that both touch, page by page. Half of the
//! least round is a message. So the switch, the queue or the crossing, attaching, detaching and the misses that follow
//! are in the numbers, whatever the method.
//!
//! # Locks
//! The sleep lock of [`super::Measuring`]; no spin lock.
//!
//! # What can fail
//! All of it, for want of memory, structures or reserved entries, and where the kernel has no servers. Then a request
//! is taken to cost more than it can be worth.

use super::rally::MANY;
use crate::Kernel;
use crate::sys::Program;
use crate::sys::User;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, Fd, SendMode};
use pageferry_core::fs::{File, FileTable};
use pageferry_core::proc::{Role, Syscall, Uio};
use pageferry_costs::{Linear, RequestCosts};
use pageferry_hal::{Crossing, Machine, PAGE_SIZE, Prot, Va};
use pageferry_ispc::{Inquiry, Ispc, MEASURED, Wait};
use pageferry_net::SockBuf;
use pageferry_net::Socket;
use pageferry_vm::Inherit;

/// Rounds of which the least counts, behind one that brings both into their steady state.
const ROUNDS: usize = 8;
/// The partner's end of the sockets, its only descriptor.
const ITS_SOCKET: Fd = Fd(0);

/// What requests cost here; more than they can be worth, where there are no servers or it cannot be measured.
pub(super) fn measure<M: Machine>(kernel: &Arc<Kernel<M>>, call: &Syscall<'_, M>) -> RequestCosts {
    let Some(ispc) = kernel.ispc() else { return RequestCosts::NEVER };
    Pair { kernel, call, ispc }.measure().unwrap_or(RequestCosts::NEVER)
}

/// The caller, and what it asks the partner by.
struct Pair<'a, M: Machine> {
    kernel: &'a Arc<Kernel<M>>,
    call: &'a Syscall<'a, M>,
    ispc: &'a Ispc<M>,
}

impl<M: Machine> Pair<'_, M> {
    fn measure(&self) -> Result<RequestCosts, Errno> {
        let Syscall { thread, space, .. } = *self.call;
        let own = space.map(thread, None, PAGE_SIZE, Prot::RW, Inherit::None)?;
        let costs = self.with_partner(own);
        space.unmap(thread, own, PAGE_SIZE).expect("just mapped");
        costs
    }

    fn with_partner(&self, own: Va) -> Result<RequestCosts, Errno> {
        let Pair { kernel, call, .. } = *self;
        let bytes = call.core.config.pipe.socket_buffer_bytes;
        let buffer = || SockBuf::create(call.core, kernel.sockets(), bytes, None);
        let (there, back) = (buffer()?, buffer()?);
        let socket = |receive, send| Socket { receive: Some(receive), send: Some(send) }.open();
        let ours = Arc::new(socket(back.clone(), there.clone()));
        let theirs = Arc::new(socket(there, back));
        let mut files = FileTable::new();
        files.share(theirs.clone());
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let program: Program<M> = Box::new(move |user| play(user, &told));
        let begun = kernel.begin_process(call.thread, "partner", Role::Partner, files, program);
        if begun.is_err() {
            theirs.close(self.call);
        } else {
            // It has its end open until the messages are over.
            drop(theirs);
        }
        let message = begun.and_then(|_| self.messages(&ours, own));
        // It goes on with requests when there are no more messages; it serves already.
        ours.close(self.call);
        let partner = begun?;
        let costs = message.and_then(|message_cycles| {
            let max_pages = self.ispc.max_data_pages();
            let many = MANY.min(max_pages);
            let request = Linear::through(self.requests(1)?, many, self.requests(many)?);
            Ok(RequestCosts { message_cycles, request, max_pages })
        });
        over.store(true, Ordering::Relaxed);
        _ = kernel.send_signal(partner);
        costs
    }

    /// The way out to a program, and in again.
    fn cross(&self) {
        let m = self.call.machine();
        m.cross(Crossing::SyscallExit);
        m.cross(Crossing::SyscallEnter);
        m.execute(self.call.core.config.paths.syscall);
    }

    /// Half of the least of some rounds.
    fn half_round(&self, mut round: impl FnMut() -> Result<(), Errno>) -> Result<u64, Errno> {
        let m = self.call.machine();
        let mut min_cycles = u64::MAX;
        for _ in 0..=ROUNDS {
            let began = m.now();
            round()?;
            min_cycles = min_cycles.min(m.now().saturating_sub(began).0);
        }
        Ok(min_cycles / 2)
    }

    fn messages(&self, ours: &File<M>, at: Va) -> Result<u64, Errno> {
        self.half_round(|| {
            self.cross();
            ours.write(self.call, Uio::write(at, 1, SendMode::Copy))?;
            self.cross();
            match ours.read(self.call, Uio::read(at, 1))?.len_bytes {
                0 => Err(Errno::BrokenPipe),
                _ => Ok(()),
            }
        })
    }

    fn requests(&self, pages: usize) -> Result<u64, Errno> {
        let pieces = self.ispc.take_kept(self.call, pages, false)?;
        let data = pieces.data.ok_or(Errno::NoMemory)?;
        let round = || {
            self.cross();
            self.call.store_bytes(pieces.control, &[1; 8])?;
            self.ispc.request_for(self.call, (MEASURED, None), pieces, false)?;
            self.call.fetch_bytes(pieces.control, &mut [0; 8])?;
            (0..pages).try_for_each(|page| self.call.store_bytes(data + page * PAGE_SIZE, &[1; 8]))
        };
        let min_cycles = self.half_round(round);
        self.ispc.put_kept(self.call, pieces);
        min_cycles
    }
}

/// What the partner does: it serves, but first it answers messages as long as there are any; then requests, until it is
/// told.
fn play<M: Machine>(user: &User<M>, over: &Arc<AtomicBool>) {
    let is_over = |user: &User<M>| over.load(Ordering::Relaxed) || user.is_killed();
    let Ok(byte) = user.map(PAGE_SIZE, Prot::RW, Inherit::None) else { return };
    let answer = |user: &User<M>, inquiry: &Inquiry| {
        let mut word = [0; 8];
        user.load(inquiry.control, &mut word);
        if let Some((data, len)) = inquiry.data {
            (0..len).step_by(PAGE_SIZE).for_each(|at| user.store(data + at, &word));
        }
        user.store(inquiry.control, &word);
    };
    let serves = match user.ispc_crosses() {
        true => user.ispc_serve_by(MEASURED, Box::new(answer)),
        false => user.ispc_serve(MEASURED),
    };
    if serves.is_err() {
        return;
    }
    while let Ok(1) = user.read(ITS_SOCKET, byte, 1) {
        if user.write(ITS_SOCKET, byte, 1).is_err() {
            break;
        }
    }
    while !is_over(user) {
        match user.ispc_receive(Wait::Yes) {
            Ok(inquiry) => {
                answer(user, &inquiry);
                _ = user.ispc_return(inquiry.id);
            }
            Err(Errno::Interrupted) => {}
            Err(_) => _ = user.yield_now(),
        }
    }
}
