//! The protocol server: a program that has sockets, and does what requests ask for.
//!
//! # What it holds
//! [`Sockets`] are the sockets by handle, and [frames](Frames) on their way to the driver's server. The protocols
//! themselves are the kernel's code ([`pageferry_net::inet`]), which no other process runs: the server calls it as a
//! library, without system calls.
//!
//! # Requests
//! One at a time, also where several threads are inside ([`Inside`]). Each is done, then what is due and what is on
//! loopback, then frames go out, then it is answered: so what an answer says is sent was sent. Where queued requests
//! take reserved entries, frames may have to wait until the answer has given some back.
//!
//! # What can fail
//! The protocols. A killed server does what it is told to nothing: its calls fail, and its makers are told of its death
//! whatever it answers.

use super::super::answer::Answer;
use super::super::inside::{Inside, Whole};
use super::super::word::Word;
use super::frames::Frames;
use super::service::NetService;
use super::words::{Envelope, Request};
use alloc::boxed::Box;
use alloc::sync::Arc;
use litemap::LiteMap;
use pageferry_abi::{Errno, SendMode};
use pageferry_core::fs::FileOps;
use pageferry_core::fs::SocketOps;
use pageferry_core::mbuf::Chain;
use pageferry_core::proc::Syscall;
use pageferry_core::proc::Uio;
use pageferry_core::proc::WaitFlag;
use pageferry_hal::{Machine, Va};
use pageferry_ispc::{Event, Finished, Inquiry, Ispc, PROTOCOLS, Wait};
use pageferry_kernel::User;
use pageferry_net::{InetSocket, Net};

/// See the [module](self).
struct Sockets<M: Machine> {
    service: Arc<NetService<M>>,
    by_handle: LiteMap<u64, InetSocket<M>>,
    frames: Frames,
    over: bool,
}

impl<M: Machine> Whole for Sockets<M> {
    fn is_over(&self) -> bool {
        self.over
    }
}

/// The parts of the kernel that a protocol server has to do with.
fn parts<M: Machine>(user: &User<M>) -> (&Arc<Ispc<M>>, &Arc<Net<M>>) {
    match (user.kernel().ispc(), user.kernel().net()) {
        (Some(ispc), Some(net)) => (ispc, net),
        _ => unreachable!("it is begun where protocols are served"),
    }
}

/// What the process of a protocol server does, until it is told to end.
pub(super) fn run<M: Machine>(user: &User<M>, service: &Arc<NetService<M>>) {
    let (ispc, net) = parts(user);
    let frames = Frames::new(service.config.frames, net.mtu_bytes());
    let sockets = Sockets { service: service.clone(), by_handle: LiteMap::new(), frames, over: false };
    let inside = match Inside::new(user, sockets) {
        Ok(inside) => Arc::new(inside),
        Err(error) => return service.protocols.began(user.thread(), user.pid(), Err(error)),
    };
    let serves = if user.ispc_crosses() {
        let shared = inside.clone();
        user.ispc_serve_by(PROTOCOLS, Box::new(move |user, inquiry| serve(&shared, user, inquiry)))
    } else {
        user.ispc_serve(PROTOCOLS)
    };
    if serves.is_ok() {
        service.ensure_driver(user.thread());
    }
    service.protocols.began(user.thread(), user.pid(), serves);
    while serves.is_ok() && !inside.is_over() && !user.is_killed() {
        match user.system_call(|call| ispc.next_event(call, Wait::Yes)) {
            Ok(Event::Request(inquiry)) => {
                serve(&inside, user, &inquiry);
                // Its maker may have died, and the request with it.
                _ = user.ispc_return(inquiry.id);
                with(&inside, user, |sockets| sockets.send(user, Wait::Yes));
            }
            Ok(Event::Done(finished)) => with(&inside, user, |sockets| {
                sockets.sent(user, finished);
                sockets.send(user, Wait::Yes);
            }),
            Ok(Event::Notice) => with(&inside, user, |sockets| {
                // The one that there was may have died.
                service.ensure_driver(user.thread());
                sockets.work(user);
                sockets.send(user, Wait::Yes);
            }),
            Err(Errno::Interrupted) => {}
            // No frame for a page table: another time.
            Err(_) => _ = user.yield_now(),
        }
    }
}

/// Does something with the sockets that no request asks for.
fn with<M: Machine>(inside: &Inside<M, Sockets<M>>, user: &User<M>, work: impl FnOnce(&mut Sockets<M>)) {
    if let Ok(mut sockets) = inside.take(user, false) {
        work(&mut sockets);
        inside.put(user, sockets);
    }
}

/// Does what a request asks for, and answers it.
fn serve<M: Machine>(inside: &Inside<M, Sockets<M>>, user: &User<M>, inquiry: &Inquiry) {
    let answer = answer(inside, user, inquiry)
        .unwrap_or_else(|error| Answer { error: Some(error), ..Answer::default() });
    user.store(inquiry.control, &answer.bytes());
}

fn answer<M: Machine>(
    inside: &Inside<M, Sockets<M>>,
    user: &User<M>,
    inquiry: &Inquiry,
) -> Result<Answer, Errno> {
    let mut words = [0; Envelope::BYTES];
    user.load(inquiry.control, &mut words);
    let request = Request::of(&words)?;
    let interruptible = !matches!(
        request,
        Request::Close { .. }
            | Request::Unread { .. }
            | Request::FrameIn { .. }
            | Request::CardGone
            | Request::End
    );
    let mut sockets = inside.take(user, interruptible)?;
    let answer = user.library(|call| sockets.answer(call, parts(user).1, &request, inquiry));
    sockets.work(user);
    sockets.send(user, Wait::No);
    if sockets.over {
        sockets.send_all(user);
    }
    inside.put(user, sockets);
    answer
}

impl<M: Machine> Sockets<M> {
    /// Does what is due, and takes in what is on loopback.
    fn work(&self, user: &User<M>) {
        // A killed server does nothing any more.
        _ = user.library(|call| {
            parts(user).1.work(call.thread);
            Ok(())
        });
    }

    /// A frame was sent, or lost with a driver that died.
    fn sent(&mut self, user: &User<M>, finished: Finished) {
        if self.frames.done(finished).is_err() {
            parts(user).1.frame_lost();
        }
    }

    /// Sends frames that wait. Those that find no reserved entries stay where they are.
    fn send(&mut self, user: &User<M>, wait: Wait) {
        let (ispc, net) = parts(user);
        if net.has_frames() {
            let Sockets { service, frames, .. } = self;
            _ = user.system_call(|call| frames.send(call, service, (ispc, net), wait));
        }
    }

    /// Sends all frames that wait, as long as there is a driver.
    fn send_all(&mut self, user: &User<M>) {
        let (ispc, net) = parts(user);
        while net.has_frames() && self.service.driver.is_there() && !user.is_killed() {
            self.send(user, Wait::Yes);
            if !net.has_frames() {
                return;
            }
            match user.system_call(|call| ispc.next_event(call, Wait::Yes)) {
                Ok(Event::Done(finished)) => self.sent(user, finished),
                // A frame that has arrived: it is for nobody.
                Ok(Event::Request(inquiry)) => _ = user.ispc_return(inquiry.id),
                Ok(Event::Notice) | Err(_) => {}
            }
        }
    }

    fn answer(
        &mut self,
        call: &Syscall<'_, M>,
        net: &Arc<Net<M>>,
        request: &Request,
        inquiry: &Inquiry,
    ) -> Result<Answer, Errno> {
        let done = Ok(Answer::default());
        match *request {
            Request::Socket { kind } => {
                let socket = net.create(call, kind)?;
                let handle = socket.id.handle();
                self.by_handle.insert(handle, socket);
                Ok(Answer::value(handle))
            }
            Request::FrameIn { verdict, len } => {
                let (from, room) = inquiry.data.ok_or(Errno::Invalid)?;
                let frame = chain_of(call, from, len.min(room))?;
                net.frame_in(call.thread, frame, verdict);
                done
            }
            // Frames go the other way.
            Request::FrameOut { .. } => Err(Errno::Invalid),
            Request::CardGone => {
                net.lose_link(call.thread);
                done
            }
            Request::Close { handle } => {
                let socket = self.by_handle.remove(&handle).ok_or(Errno::BadFd)?;
                net.close(call.thread, socket.id);
                done
            }
            Request::End => {
                self.by_handle.clear();
                net.end_all(call.thread);
                self.over = true;
                done
            }
            Request::Accept { handle } => {
                let (socket, from) = net.accept(call, self.socket(handle)?.id, WaitFlag::NoWait)?;
                let value = socket.id.handle();
                self.by_handle.insert(value, socket);
                Ok(Answer { value, more: Some(from).word(), error: None })
            }
            Request::Bind { handle, name } => {
                self.socket(handle)?.bind(call, name.ok_or(Errno::Invalid)?).and(done)
            }
            Request::Listen { handle, backlog } => self.socket(handle)?.listen(call, backlog).and(done),
            Request::Connect { handle, to } => {
                let to = to.ok_or(Errno::Invalid)?;
                self.socket(handle)?.connect(call, to, WaitFlag::NoWait).and(done)
            }
            Request::ConnectOutcome { handle } => self.socket(handle)?.connect_outcome().and(done),
            Request::Shutdown { handle, how } => {
                let socket = self.socket(handle)?;
                let ended = socket.shutdown(call, how);
                // Others may wait to write.
                self.service.changed(call.thread, socket.id);
                ended.and(done)
            }
            Request::Names { handle } => {
                let (own, other) = self.socket(handle)?.names(call)?;
                Ok(Answer { value: Some(own).word(), more: other.word(), error: None })
            }
            Request::SetOption { handle, option } => self.socket(handle)?.set_option(call, option).and(done),
            Request::TakeError { handle } => Ok(Answer::value(self.socket(handle)?.take_error(call)?.word())),
            Request::Ready { handle } => Ok(Answer::value(self.socket(handle)?.ready().word())),
            Request::Read { handle, .. }
            | Request::Unread { handle, .. }
            | Request::Write { handle, .. }
            | Request::SendTo { handle, .. }
            | Request::ReceiveFrom { handle, .. } => move_bytes(call, self.socket(handle)?, request, inquiry),
        }
    }

    fn socket(&self, handle: u64) -> Result<&InetSocket<M>, Errno> {
        self.by_handle.get(&handle).ok_or(Errno::BadFd)
    }
}

/// Moves bytes between the data piece and a socket.
fn move_bytes<M: Machine>(
    call: &Syscall<'_, M>,
    socket: &InetSocket<M>,
    request: &Request,
    inquiry: &Inquiry,
) -> Result<Answer, Errno> {
    // For no bytes no data piece is needed.
    let (piece, room) = inquiry.data.unwrap_or((inquiry.control, 0));
    let read = |len: usize| Uio::read(piece, len.min(room)).waiting(WaitFlag::NoWait);
    let write = |len: usize| Uio::write(piece, len.min(room), SendMode::Copy).waiting(WaitFlag::NoWait);
    match *request {
        Request::Read { is_rest: true, .. } if socket.queued()? == 0 => Err(Errno::WouldBlock),
        Request::Read { len, .. } => {
            let mut uio = read(len);
            let result = socket.read(call, &mut uio);
            Ok(Answer::value(uio.outcome(result)? as u64))
        }
        Request::Unread { from, len, .. } => {
            let from = from.min(room);
            let chain = chain_of(call, piece + from, len.min(room - from))?;
            socket.take_back(call, chain).map(|()| Answer::default())
        }
        Request::Write { len, .. } => {
            let mut uio = write(len);
            let result = socket.write(call, &mut uio);
            Ok(Answer::value(uio.outcome(result)? as u64))
        }
        Request::SendTo { to, len, of, .. } if of > len.min(room) => Err(socket.refuse_long(call, to)),
        Request::SendTo { to, len, .. } => {
            let mut uio = write(len);
            socket.send_datagram(call, &mut uio, to)?;
            Ok(Answer::value(uio.len() as u64))
        }
        Request::ReceiveFrom { len, .. } => {
            let mut uio = read(len);
            let from = socket.receive_datagram(call, &mut uio)?;
            Ok(Answer { value: uio.done() as u64, more: Some(from).word(), error: None })
        }
        _ => Err(Errno::Invalid),
    }
}

/// A chain of what is in a piece.
fn chain_of<M: Machine>(call: &Syscall<'_, M>, from: Va, len: usize) -> Result<Chain, Errno> {
    let pool = &call.core.mbufs;
    let (mut chain, mut done) = (Chain::new(), 0);
    while done < len {
        let copied = pool.alloc(len - done).and_then(|mbuf| {
            let (to, part) = (pool.address(&mbuf, 0..mbuf.len()), mbuf.len());
            let copied = call.copy_in(to, from + done, part).map_err(|stopped| stopped.why);
            chain.push_back(mbuf);
            copied.map(|()| part)
        });
        match copied {
            Ok(part) => done += part,
            Err(error) => {
                chain.free(pool);
                return Err(error);
            }
        }
    }
    Ok(chain)
}
