//! The driver's server: a program that has the network card.
//!
//! # What it holds
//! Where requests are queued, a [`Driver`]: requests whose frames the card has not taken yet, and those that it reads;
//! pieces for the card to receive into, and control pieces for what arrives. The card itself is the kernel's to touch
//! ([`crate::ispc`]).
//!
//! A frame is handed to the card from the piece where it lies, and its request is answered when the card has read it.
//! Frames that have arrived go to the protocol server one after the other, without waiting for answers. The card's
//! interrupt is a notice.
//!
//! Where threads cross into servers, whoever brings a frame hands it to the card and waits until it is sent; the
//! driver's own thread brings what arrives.
//!
//! # What can fail
//! The card, which may be removed: the protocol server is told once. A protocol server that is not there: what arrives
//! is dropped.

use super::service::NetService;
use super::words::{Envelope, Request};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use litemap::LiteMap;
use pageferry_abi::Errno;
use pageferry_core::proc::Syscall;
use pageferry_hal::{Machine, NicChecksum, Va};
use pageferry_ispc::{
    DRIVER, Event, Inquiry, Ispc, NetServiceDefect, PROTOCOLS, ReceivedFrame, RequestId, Wait,
};
use pageferry_kernel::User;

/// A frame that is to be sent, with a request.
#[derive(Clone, Copy)]
struct Frame {
    id: RequestId,
    at: Va,
    len: usize,
    checksum: Option<NicChecksum>,
}

/// See the [module](self).
struct Driver<M: Machine> {
    service: Arc<NetService<M>>,
    /// Frames that the card has not taken yet,
    pending: VecDeque<Frame>,
    /// and how many it reads.
    sending: usize,
    /// Pieces for the card, and control pieces.
    spare: Vec<Va>,
    controls: Vec<Va>,
    /// With the protocol server: a control piece, and a frame's.
    with_protocols: LiteMap<RequestId, (Va, Option<Va>)>,
    /// A frame that could not be handed on yet.
    held: Option<ReceivedFrame>,
    told_of_removal: bool,
}

fn ispc_of<M: Machine>(user: &User<M>) -> &Arc<Ispc<M>> {
    user.kernel().ispc().unwrap_or_else(|| unreachable!("it is begun where a card is served"))
}

/// What the process of a driver's server does, until it is told to end.
pub(super) fn run<M: Machine>(user: &User<M>, service: &Arc<NetService<M>>) {
    let ispc = ispc_of(user);
    let over = Arc::new(AtomicBool::new(false));
    let serves = if user.ispc_crosses() {
        let (its, over) = (service.clone(), over.clone());
        user.ispc_serve_by(DRIVER, Box::new(move |user, inquiry| visited(&its, user, inquiry, &over)))
    } else {
        user.ispc_serve(DRIVER)
    };
    let mut driver = Driver::new(service.clone());
    if serves.is_ok() {
        driver.fill_card(user);
    }
    service.driver.began(user.thread(), user.pid(), serves);
    service.tell_protocols(user.thread());
    while serves.is_ok() && !user.is_killed() {
        driver.answer_sent(user);
        driver.fill_card(user);
        driver.hand_to_card(user);
        driver.hand_up(user);
        if over.load(Ordering::Relaxed) && driver.pending.is_empty() {
            return;
        }
        match user.system_call(|call| ispc.next_event(call, Wait::Yes)) {
            Ok(Event::Request(inquiry)) => driver.request(user, inquiry, &over),
            Ok(Event::Done(finished)) => {
                let pieces = driver.with_protocols.remove(&finished.id);
                pieces.into_iter().for_each(|pieces| driver.have_back(pieces));
            }
            Ok(Event::Notice) | Err(Errno::Interrupted) => {}
            // No frame for a page table: another time.
            Err(_) => _ = user.yield_now(),
        }
    }
}

/// What is asked for in a control piece.
fn requested<M: Machine>(user: &User<M>, inquiry: &Inquiry) -> Result<Request, Errno> {
    let mut words = [0; Envelope::BYTES];
    user.load(inquiry.control, &mut words);
    Request::of(&words)
}

/// A thread has come with a request.
fn visited<M: Machine>(service: &NetService<M>, user: &User<M>, inquiry: &Inquiry, over: &AtomicBool) {
    let ispc = ispc_of(user);
    match requested(user, inquiry) {
        Ok(Request::FrameOut { checksum, len }) => {
            let Some((at, _)) = inquiry.data else { return };
            let frame = (at, len);
            let waits = !service.has(NetServiceDefect::FrameLetGo);
            // In one call: a driver that is killed between two would let go of what the card reads.
            let send = |call: &Syscall<'_, M>| -> Result<(), Errno> {
                while let Err(error) = ispc.call_card_send(call, frame, checksum, None) {
                    match error {
                        Errno::WouldBlock => ispc.call_card_wait(call)?,
                        // A frame that the card does not take is lost.
                        error => return Err(error),
                    }
                }
                if waits { ispc.call_card_wait(call) } else { Ok(()) }
            };
            _ = user.system_call(send);
        }
        Ok(Request::End) => over.store(true, Ordering::Relaxed),
        _ => {}
    }
}

impl<M: Machine> Driver<M> {
    fn new(service: Arc<NetService<M>>) -> Driver<M> {
        Driver {
            service,
            pending: VecDeque::new(),
            sending: 0,
            spare: Vec::new(),
            controls: Vec::new(),
            with_protocols: LiteMap::new(),
            held: None,
            told_of_removal: false,
        }
    }

    fn have_back(&mut self, (control, data): (Va, Option<Va>)) {
        self.controls.push(control);
        self.spare.extend(data);
    }

    /// A request was made.
    fn request(&mut self, user: &User<M>, inquiry: Inquiry, over: &AtomicBool) {
        match (requested(user, &inquiry), inquiry.data) {
            (Ok(Request::FrameOut { checksum, len }), Some((at, _))) => {
                return self.pending.push_back(Frame { id: inquiry.id, at, len, checksum });
            }
            (Ok(Request::End), _) => over.store(true, Ordering::Relaxed),
            _ => {}
        }
        _ = user.ispc_return(inquiry.id);
    }

    /// Hands frames to the card, as far as it takes them.
    fn hand_to_card(&mut self, user: &User<M>) {
        let ispc = ispc_of(user);
        let lets_go = self.service.has(NetServiceDefect::FrameLetGo);
        while let Some(&Frame { id, at, len, checksum }) = self.pending.front() {
            match user.system_call(|call| ispc.call_card_send(call, (at, len), checksum, Some(id))) {
                // It says when it has room again.
                Err(Errno::WouldBlock) => return,
                Ok(()) if !lets_go => self.sending += 1,
                // A frame that the card does not take is lost.
                Ok(()) | Err(_) => _ = user.ispc_return(id),
            }
            self.pending.pop_front();
        }
    }

    /// Answers requests whose frames the card has read.
    fn answer_sent(&mut self, user: &User<M>) {
        let ispc = ispc_of(user);
        while self.sending > 0 && !user.is_killed() {
            let Ok(Some(id)) = user.library(|call| Ok(ispc.take_sent(call))) else { return };
            // Its maker may have died, and the request with it.
            _ = user.ispc_return(id);
            self.sending -= 1;
        }
    }

    /// Gives the card pieces to receive into.
    fn fill_card(&mut self, user: &User<M>) {
        let ispc = ispc_of(user);
        loop {
            let elsewhere = self.with_protocols.len() + usize::from(self.held.is_some());
            let wants = ispc.card_wants(self.service.config.buffers);
            if wants == 0 || self.spare.is_empty() && wants <= elsewhere {
                return;
            }
            let spare = self.spare.pop();
            let posted = user.system_call(|call| {
                let piece = spare.map_or_else(|| ispc.alloc_kept(call, ispc.card_pages()), Ok)?;
                ispc.card_post(call, piece)
            });
            if posted.is_err() {
                return;
            }
        }
    }

    /// Brings what has arrived to the protocol server.
    fn hand_up(&mut self, user: &User<M>) {
        let ispc = ispc_of(user);
        // A driver that has reserved entries itself does not wait for others: it goes on when it has given its own
        // back.
        let wait = if self.sending + self.pending.len() > 0 { Wait::No } else { Wait::Yes };
        while self.held.is_some() || ispc.card_has_more(self.told_of_removal) {
            match user.system_call(|call| self.hand_one_up(call, ispc, wait)) {
                // More may be on its way.
                Ok(true) => self.fill_card(user),
                Ok(false) => return,
                Err(Errno::Removed) => {
                    let gone = (&Request::CardGone, None);
                    if user.system_call(|call| self.tell(call, ispc, gone, wait)).is_err() {
                        return;
                    }
                    self.told_of_removal = true;
                }
                Err(_) => return,
            }
        }
    }

    /// Brings one frame; false when there is none.
    fn hand_one_up(&mut self, call: &Syscall<'_, M>, ispc: &Ispc<M>, wait: Wait) -> Result<bool, Errno> {
        let taken = match self.held.take() {
            Some(taken) => Some(taken),
            None => ispc.card_take(call)?,
        };
        let Some(taken) = taken else { return Ok(false) };
        let request = Request::FrameIn { verdict: taken.verdict, len: taken.len };
        match self.tell(call, ispc, (&request, Some(taken.at)), wait) {
            Err(error @ (Errno::WouldBlock | Errno::Interrupted)) => {
                self.held = Some(taken);
                Err(error)
            }
            Ok(()) => Ok(true),
            // Nobody wants it: the piece is free for another.
            Err(_) => Ok(true),
        }
    }

    /// Makes a request of the protocol server. The pieces come back when it is answered, or at once if nobody takes it;
    /// only where it would wait the frame's piece is not touched.
    fn tell(
        &mut self,
        call: &Syscall<'_, M>,
        ispc: &Ispc<M>,
        (request, data): (&Request, Option<Va>),
        wait: Wait,
    ) -> Result<(), Errno> {
        let control = self.controls.pop().map_or_else(|| ispc.alloc_kept(call, 1), Ok);
        let control = control.inspect_err(|_| self.spare.extend(data))?;
        let both: Vec<Va> = [Some(control), data].into_iter().flatten().collect();
        if let Err(error) = ispc.attach_kept(call, &both, wait) {
            self.controls.push(control);
            if !matches!(error, Errno::WouldBlock | Errno::Interrupted) {
                self.spare.extend(data);
            }
            return Err(error);
        }
        let written = call.store_bytes(control, &request.envelope().bytes());
        let told = match ispc.config.method.crosses() {
            true => written.and_then(|()| ispc.visit(call, PROTOCOLS, (control, data))).map(|()| None),
            false => written.and_then(|()| ispc.post(call, PROTOCOLS, (control, data))).map(Some),
        };
        match told {
            Ok(Some(id)) => _ = self.with_protocols.insert(id, (control, data)),
            Ok(None) | Err(_) => {
                ispc.keep(call, &both);
                self.have_back((control, data));
            }
        }
        // A frame that nobody wants has been dropped.
        Ok(())
    }
}
