//! Connections of a host at the far end: what each side says, and what became of it.
//!
//! A connection has a *part*: what the host does in it, as a server or as a client. The socket belongs to the stack; a
//! part is dropped with its socket when the connection is over, and the [`Talk`] stays with whoever asks.

use super::config::SmolConfig;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{self, State};
use smoltcp::time::Duration;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::rc::Rc;

/// The byte at `position` of what a source sends, and of what a [`Service::Discard`] compares with.
pub fn pattern(position: u64) -> u8 {
    let x = position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x >> 31) ^ (x >> 52)) as u8
}

/// What a server does with those who connect to it. It closes its side when there is nothing more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Sends back what it receives, until the client closes its side.
    Echo,
    /// Takes what it receives, and compares it with [`pattern`].
    Discard,
    /// Sends so many bytes of [`pattern`].
    Source(u64),
    /// The same, and closes its side while they are under way, so that its FIN may overtake them. A client that closes
    /// its own side before it has them all may then never get what was lost.
    HastySource(u64),
}

/// A connection that the host makes.
#[derive(Clone, Debug)]
pub struct Client {
    /// Where to.
    pub to: SocketAddrV4,
    /// From which port; no two connections at a time have the same.
    pub from_port: u16,
    /// When.
    pub at_ns: u64,
    /// What it sends.
    pub send: Vec<u8>,
    /// What it expects to receive.
    pub expect: Vec<u8>,
    /// It closes its side as soon as it has sent all; otherwise when it has received what it expects, too. Over a wire
    /// that loses frames, smoltcp 0.12 may then never send what was lost of the answer.
    pub closes_first: bool,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides have closed it, and know that of each other.
    Closed,
    /// It was refused, reset, or given up.
    Broken,
}

/// What has become of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Talk {
    /// When it was open; `None` before.
    pub opened_at_ns: Option<u64>,
    /// How it has ended, and when; `None` before.
    pub ended: Option<(Ended, u64)>,
    /// Bytes that the host has handed to its stack.
    pub sent: u64,
    /// Bytes that it has received.
    pub received: u64,
    /// The first of them that was not as expected. What an echo receives is as expected, whatever it is.
    pub differs_at: Option<u64>,
}

/// Connections, in the order in which they were opened; of a [`Client`], the one.
#[derive(Clone, Debug, Default)]
pub struct Talks(Rc<RefCell<Vec<Talk>>>);

/// What a [`listening`](super::SmolFarEnd::listen) host has to tell: those who have connected.
pub type Listener = Talks;

impl Talks {
    /// All of them as they are now.
    pub fn all(&self) -> Vec<Talk> {
        self.0.borrow().clone()
    }

    /// The only one.
    ///
    /// # Panics
    /// When there is none, or more than one.
    pub fn only(&self) -> Talk {
        let talks = self.0.borrow();
        assert_eq!(talks.len(), 1, "one connection");
        talks[0].clone()
    }

    fn add(&self, talk: Talk) -> usize {
        self.0.borrow_mut().push(talk);
        self.0.borrow().len() - 1
    }
}

/// What the host does in a connection.
#[derive(Debug)]
enum Part {
    Echo { back: VecDeque<u8> },
    Discard,
    Source { bytes: u64, hasty: bool },
    Client(Client),
}

/// A connection that is open, or being opened.
#[derive(Debug)]
struct Connection {
    socket: SocketHandle,
    part: Part,
    talks: Talks,
    /// Which of them.
    nth: usize,
    peer_closed: bool,
}

/// A port that is served, with a socket that waits for the next client.
#[derive(Debug)]
struct Port {
    port: u16,
    service: Service,
    waiting: SocketHandle,
    talks: Talks,
}

/// All connections of a host.
#[derive(Debug, Default)]
pub(super) struct Connections {
    ports: Vec<Port>,
    /// By time.
    planned: Vec<(Client, Talks)>,
    connections: Vec<Connection>,
}

fn socket(config: &SmolConfig) -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; config.buffer_bytes]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_timeout(Some(Duration::from_millis(config.timeout_ms)));
    socket
}

fn listening(sockets: &mut SocketSet<'static>, config: &SmolConfig, port: u16) -> SocketHandle {
    let mut socket = socket(config);
    socket.listen(port).expect("a port other than 0");
    sockets.add(socket)
}

impl Connections {
    pub(super) fn listen(
        &mut self,
        sockets: &mut SocketSet<'static>,
        config: &SmolConfig,
        port: u16,
        service: Service,
    ) -> Talks {
        let talks = Talks::default();
        let waiting = listening(sockets, config, port);
        self.ports.push(Port { port, service, waiting, talks: talks.clone() });
        talks
    }

    pub(super) fn connect(&mut self, client: Client) -> Talks {
        let talks = Talks::default();
        let at = self.planned.partition_point(|(other, _)| other.at_ns <= client.at_ns);
        self.planned.insert(at, (client, talks.clone()));
        talks
    }

    /// When the next connection is to be made.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.planned.first().map(|(client, _)| client.at_ns)
    }

    /// Does what can be done in all connections; true when that was anything.
    pub(super) fn serve(
        &mut self,
        interface: &mut Interface,
        sockets: &mut SocketSet<'static>,
        config: &SmolConfig,
        now_ns: u64,
    ) -> bool {
        let before = self.connections.len();
        self.accept(sockets, config);
        self.call(interface, sockets, config, now_ns);
        let mut changed = self.connections.len() != before;
        self.connections.retain_mut(|connection| {
            changed |= connection.go_on(sockets.get_mut(connection.socket), now_ns);
            let over = sockets.get::<tcp::Socket<'_>>(connection.socket).state() == State::Closed;
            if over {
                // An empty one keeps its place: the stack asks the first socket that would take a packet, and one that
                // listens is to be asked last. Else it would take a SYN that comes twice for a new call.
                let nothing = || tcp::SocketBuffer::new(Vec::new());
                *sockets.get_mut(connection.socket) = tcp::Socket::new(nothing(), nothing());
            }
            !over
        });
        changed
    }

    /// Has a part in each connection that a client has made, and another socket wait for the next.
    fn accept(&mut self, sockets: &mut SocketSet<'static>, config: &SmolConfig) {
        for port in &mut self.ports {
            if sockets.get::<tcp::Socket<'_>>(port.waiting).is_listening() {
                continue;
            }
            let socket = std::mem::replace(&mut port.waiting, listening(sockets, config, port.port));
            let part = match port.service {
                Service::Echo => Part::Echo { back: VecDeque::new() },
                Service::Discard => Part::Discard,
                Service::Source(bytes) => Part::Source { bytes, hasty: false },
                Service::HastySource(bytes) => Part::Source { bytes, hasty: true },
            };
            let nth = port.talks.add(Talk::default());
            let talks = port.talks.clone();
            self.connections.push(Connection { socket, part, talks, nth, peer_closed: false });
        }
    }

    /// Makes the connections that are due.
    fn call(
        &mut self,
        interface: &mut Interface,
        sockets: &mut SocketSet<'static>,
        config: &SmolConfig,
        now_ns: u64,
    ) {
        let due = self.planned.partition_point(|(client, _)| client.at_ns <= now_ns);
        for (client, talks) in self.planned.drain(..due) {
            let mut socket = socket(config);
            socket
                .connect(interface.context(), client.to, client.from_port)
                .unwrap_or_else(|error| panic!("a connection to {} cannot be made: {error}", client.to));
            let nth = talks.add(Talk::default());
            let socket = sockets.add(socket);
            self.connections.push(Connection {
                socket,
                part: Part::Client(client),
                talks,
                nth,
                peer_closed: false,
            });
        }
    }
}

impl Connection {
    /// Does what can be done; true when that was anything.
    fn go_on(&mut self, socket: &mut tcp::Socket<'static>, now_ns: u64) -> bool {
        let mut talks = self.talks.0.borrow_mut();
        let talk = &mut talks[self.nth];
        if talk.opened_at_ns.is_none() && socket.may_send() {
            talk.opened_at_ns = Some(now_ns);
        }
        let mut changed = false;
        while socket.can_recv() {
            let room = match &self.part {
                // What cannot be sent back yet is left with the stack, so that the peer stops.
                Part::Echo { back } => socket.send_capacity().saturating_sub(back.len()),
                _ => usize::MAX,
            };
            let part = &mut self.part;
            let taken = socket.recv(|bytes| {
                let len = bytes.len().min(room);
                part.hears(talk, &bytes[..len]);
                (len, len)
            });
            if taken.unwrap_or(0) == 0 {
                break;
            }
            changed = true;
        }
        changed |= self.part.speaks(talk, socket);
        self.peer_closed |= matches!(socket.state(), State::CloseWait | State::Closing | State::TimeWait);
        // What is under way when a side is closed may be lost: smoltcp 0.12 stops sending it again when the peer has
        // closed its side, or closes it meanwhile.
        let hasty = matches!(self.part, Part::Source { hasty: true, .. }) && !self.peer_closed;
        let all_acknowledged = socket.send_queue() == 0;
        if socket.may_send() && (all_acknowledged || hasty) && self.part.is_done(talk, self.peer_closed) {
            socket.close();
            changed = true;
        }
        let closed = socket.state() == State::TimeWait
            // After the last acknowledgement, of which there is no state.
            || socket.state() == State::Closed && self.peer_closed && self.part.is_done(talk, true);
        if talk.ended.is_none() {
            if closed {
                talk.ended = Some((Ended::Closed, now_ns));
            } else if socket.state() == State::Closed {
                talk.ended = Some((Ended::Broken, now_ns));
            }
        }
        changed
    }
}

impl Part {
    /// These bytes were received.
    fn hears(&mut self, talk: &mut Talk, bytes: &[u8]) {
        let from = talk.received;
        talk.received += bytes.len() as u64;
        let part = &*self;
        let expected = |at: u64| match part {
            Part::Echo { .. } => None,
            Part::Discard => Some(pattern(at)),
            // It expects nothing.
            Part::Source { .. } => Some(!bytes[(at - from) as usize]),
            Part::Client(client) => {
                let byte = client.expect.get(at as usize).copied();
                Some(byte.unwrap_or(!bytes[(at - from) as usize]))
            }
        };
        let differs = (from..).zip(bytes).find(|&(at, &byte)| expected(at).is_some_and(|e| e != byte));
        talk.differs_at = talk.differs_at.or(differs.map(|(at, _)| at));
        if let Part::Echo { back } = self {
            back.extend(bytes);
        }
    }

    /// Sends as much as there is room for; true when that was anything.
    fn speaks(&mut self, talk: &mut Talk, socket: &mut tcp::Socket<'static>) -> bool {
        if !socket.can_send() {
            return false;
        }
        let sent = socket.send(|room| {
            let len = match self {
                Part::Echo { back } => {
                    let len = room.len().min(back.len());
                    back.drain(..len).zip(room.iter_mut()).for_each(|(byte, to)| *to = byte);
                    len
                }
                Part::Discard => 0,
                Part::Source { bytes, .. } => {
                    let len = (*bytes - talk.sent).min(room.len() as u64) as usize;
                    room[..len].iter_mut().zip(talk.sent..).for_each(|(to, at)| *to = pattern(at));
                    len
                }
                Part::Client(client) => {
                    let rest = &client.send[talk.sent as usize..];
                    let len = rest.len().min(room.len());
                    room[..len].copy_from_slice(&rest[..len]);
                    len
                }
            };
            (len, len)
        });
        let sent = sent.unwrap_or(0);
        talk.sent += sent as u64;
        sent > 0
    }

    /// True when there is nothing more to say.
    fn is_done(&self, talk: &Talk, peer_closed: bool) -> bool {
        match self {
            Part::Echo { back } => peer_closed && back.is_empty() && talk.sent == talk.received,
            Part::Discard => peer_closed,
            Part::Source { bytes, .. } => talk.sent == *bytes,
            Part::Client(client) => {
                let answered = client.closes_first || talk.received >= client.expect.len() as u64;
                talk.sent == client.send.len() as u64 && (answered || peer_closed)
            }
        }
    }
}
