//! Connections, each beside the bytes that it must say.

use super::far_end::{ECHO, SOURCE, SOURCE_BYTES};
use super::steps::{CONNECTIONS, Call, MAX_BYTES, SocketOp};
use pageferry_hal::{Cycles, Prot, Va};
use pageferry_kernel::{Errno, Fd, SendMode, Shutdown, SocketKind, SocketOption, User};
use pageferry_model::Model;
use pageferry_model::net::smol::pattern;
use pageferry_vm::Inherit;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

type U = User<Model>;

/// The port that the machine's own connections go to.
const OWN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
/// The buffers of connections over the wire, and the most bytes that are on their way to the far end and back: half of
/// it, so that the window of this end is never closed. smoltcp does not always ask about one whose opening it was not
/// told.
const WIRE_BUFFER: usize = 65_536;
const MAX_ON_WIRE: usize = WIRE_BUFFER / 2;
/// Bytes of one call of a process that drains.
const CHUNK: usize = 9000;

/// One end of a connection that is here.
struct End {
    fd: Option<Fd>,
    /// What was said to it, and it has not received.
    expects: VecDeque<u8>,
    /// It has said that it sends no more; it has received the end of the stream, or an error.
    finished: bool,
    heard_end: bool,
}

/// A connection: two ends over loopback, one over the wire, where all comes back that is sent, or a file comes.
struct Talk {
    ends: Vec<End>,
    /// What comes is a file; nothing is sent.
    fetches: bool,
    /// What its bytes are made of, and how many were said.
    seed: u64,
    said: usize,
    /// It was reset, or closed with bytes in it: the last ones may be lost.
    torn: bool,
}

/// All connections, and the process that has them.
pub(super) struct Talks<'a> {
    u: &'a U,
    /// The wire is used; else all connections are over loopback.
    wired: bool,
    listening: Fd,
    buffer: Va,
    all: [Option<Talk>; CONNECTIONS],
    made: u64,
}

/// The byte at `at` of a stream.
fn byte(seed: u64, at: usize) -> u8 {
    let x = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(seed | 1);
    ((x >> 29) ^ (x >> 53)) as u8
}

/// What the end of a torn connection may be told.
fn is_loss(e: Errno) -> bool {
    matches!(e, Errno::BrokenPipe | Errno::ConnectionReset | Errno::ConnectionAborted)
}

impl<'a> Talks<'a> {
    pub(super) fn new(u: &'a U, wired: bool) -> Talks<'a> {
        let listening = u.socket(SocketKind::Stream).expect("a socket");
        u.bind(listening, OWN).expect("the port is free");
        u.listen(listening, 4).expect("it listens");
        let buffer = u.map(MAX_BYTES, Prot::RW, Inherit::Copy).expect("memory");
        u.store(buffer, &[0; MAX_BYTES]);
        Talks { u, wired, listening, buffer, all: [const { None }; CONNECTIONS], made: 0 }
    }

    pub(super) fn end(self) {
        self.u.close(self.listening).expect("open");
    }

    /// Does what makes sense of a step.
    pub(super) fn step(&mut self, call: &Call) {
        let slot = call.connection % CONNECTIONS;
        let u = self.u;
        if let SocketOp::Wait { us } = call.op {
            return u.sleep_for(Cycles(u64::from(us) * 2400)).expect("alive");
        }
        if let SocketOp::Connect { wire, buffer } = call.op {
            if self.all[slot].is_none() {
                self.all[slot] = Some(self.connect(wire, buffer));
            }
            return;
        }
        if call.op == SocketOp::Fetch {
            if self.wired && self.all[slot].is_none() {
                self.all[slot] = Some(self.fetch());
            }
            return;
        }
        let Some(mut talk) = self.all[slot].take() else { return };
        let end = usize::from(call.other_end) % talk.ends.len();
        match call.op {
            SocketOp::Send { len } => talk.send(u, end, self.buffer, len.min(MAX_BYTES)),
            SocketOp::Receive { len } => talk.receive(u, end, self.buffer, len.min(MAX_BYTES)),
            SocketOp::Shutdown => talk.finish(u, end),
            SocketOp::Close => talk.close(u, end, false),
            SocketOp::Reset => talk.close(u, end, true),
            SocketOp::Drain { len } => talk.drain(u, self.buffer, len),
            SocketOp::Connect { .. } | SocketOp::Fetch | SocketOp::Wait { .. } => {}
        }
        if talk.ends.iter().any(|end| end.fd.is_some()) {
            self.all[slot] = Some(talk);
        }
    }

    fn connect(&mut self, wire: bool, buffer: usize) -> Talk {
        let (u, wire) = (self.u, wire && self.wired);
        let buffer = if wire { WIRE_BUFFER } else { buffer };
        self.set_buffers(self.listening, buffer);
        let mut fds = vec![self.open(if wire { ECHO } else { OWN }, buffer)];
        if !wire {
            fds.push(u.accept(self.listening).expect("it is there").0);
        }
        self.talk(fds)
    }

    fn fetch(&mut self) -> Talk {
        let fd = self.open(SOURCE, WIRE_BUFFER);
        let mut talk = self.talk(vec![fd]);
        talk.fetches = true;
        let [end] = &mut talk.ends[..] else { unreachable!("one end is here") };
        end.expects = (0..SOURCE_BYTES as u64).map(pattern).collect();
        talk
    }

    fn open(&self, to: SocketAddrV4, buffer: usize) -> Fd {
        let fd = self.u.socket(SocketKind::Stream).expect("a socket");
        self.set_buffers(fd, buffer);
        self.u.connect(fd, to).expect("something listens");
        fd
    }

    fn set_buffers(&self, fd: Fd, bytes: usize) {
        for option in [SocketOption::SendBuffer(bytes), SocketOption::ReceiveBuffer(bytes)] {
            self.u.set_socket_option(fd, option).expect("a size");
        }
    }

    fn talk(&mut self, fds: Vec<Fd>) -> Talk {
        let end = |fd| {
            self.u.set_nonblocking(fd, true).expect("open");
            End { fd: Some(fd), expects: VecDeque::new(), finished: false, heard_end: false }
        };
        let ends = fds.into_iter().map(end).collect();
        self.made += 1;
        Talk { ends, fetches: false, seed: self.made, said: 0, torn: false }
    }
}

impl Talk {
    /// The end to which goes what `end` says.
    fn peer(&self, end: usize) -> usize {
        (self.ends.len() - 1) - end
    }

    /// Of so many bytes, as many as may be sent now.
    fn room(&self, len: usize) -> usize {
        match self.ends.len() {
            _ if self.fetches => 0,
            1 => len.min(MAX_ON_WIRE - self.ends[0].expects.len()),
            _ => len,
        }
    }

    fn send(&mut self, u: &U, end: usize, buffer: Va, len: usize) {
        let len = self.room(len);
        if len == 0 {
            return;
        }
        let Some(fd) = self.ends[end].fd.filter(|_| !self.ends[end].finished) else { return };
        let bytes: Vec<u8> = (self.said..self.said + len).map(|at| byte(self.seed, at)).collect();
        u.store(buffer, &bytes);
        // Its pages go out where they lie, and the next call writes to them.
        let mode = if len.is_multiple_of(2) { SendMode::Loan } else { SendMode::Copy };
        match u.send(fd, buffer, len, mode) {
            Ok(sent) => {
                assert!(0 < sent && sent <= len, "{sent} of {len} bytes were sent");
                self.says(end, &bytes[..sent]);
            }
            Err(Errno::WouldBlock) => {}
            Err(e) => assert!(self.torn && is_loss(e), "sending: {e}"),
        }
    }

    fn says(&mut self, end: usize, bytes: &[u8]) {
        self.said += bytes.len();
        let peer = self.peer(end);
        self.ends[peer].expects.extend(bytes);
    }

    fn receive(&mut self, u: &U, end: usize, buffer: Va, len: usize) {
        let Some(fd) = self.ends[end].fd else { return };
        // What fills pages of the buffer may take their place.
        let read = match len.is_multiple_of(2) {
            true => u.receive_transfer(fd, Some(buffer), len).map(|got| got.len_bytes),
            false => u.read(fd, buffer, len),
        };
        match read {
            Ok(0) => self.hears_end(end),
            Ok(got) => self.hears(u, end, buffer, got, len),
            Err(Errno::WouldBlock) => assert!(!self.ends[end].heard_end, "behind its end a stream is open"),
            Err(e) => {
                assert!(self.torn && is_loss(e), "receiving: {e}");
                self.ends[end].heard_end = true;
            }
        }
    }

    fn hears(&mut self, u: &U, end: usize, buffer: Va, got: usize, len: usize) {
        let mut bytes = vec![0; got];
        u.load(buffer, &mut bytes);
        let End { expects, heard_end, .. } = &mut self.ends[end];
        assert!(!*heard_end, "bytes come behind the end");
        assert!(got <= len.min(expects.len()), "{got} bytes of {len} came, {} were due", expects.len());
        let due: Vec<u8> = expects.drain(..got).collect();
        let differs = due.iter().zip(&bytes).position(|(due, got)| due != got);
        assert_eq!(differs, None, "other bytes came than were said");
    }

    fn hears_end(&mut self, end: usize) {
        let peer = &self.ends[self.peer(end)];
        let said = self.fetches || peer.finished || peer.fd.is_none();
        let End { expects, heard_end, .. } = &mut self.ends[end];
        assert!(self.torn || said, "an end comes that nobody said");
        assert!(self.torn || expects.is_empty(), "{} bytes are lost", expects.len());
        *heard_end = true;
    }

    fn finish(&mut self, u: &U, end: usize) {
        // The host would not send again what is lost of the file.
        let keeps_open = self.fetches && !self.ends[end].heard_end;
        if let Some(fd) = self.ends[end].fd.filter(|_| !keeps_open) {
            match u.shutdown(fd, Shutdown::Send) {
                Ok(()) => self.ends[end].finished = true,
                Err(e) => assert!(self.torn && e == Errno::NotConnected, "shutdown: {e}"),
            }
        }
    }

    fn close(&mut self, u: &U, end: usize, by_reset: bool) {
        let Some(fd) = self.ends[end].fd.take() else { return };
        // What it has not heard is lost, and then its own last bytes may be.
        self.torn |= by_reset || !self.ends[end].heard_end;
        if by_reset {
            u.set_socket_option(fd, SocketOption::ResetOnClose(true)).expect("open");
        }
        u.close(fd).expect("open");
    }

    /// Writes by processes that wait, reads until nothing more comes, and closes.
    fn drain(&mut self, u: &U, buffer: Va, len: usize) {
        let len = self.room(len);
        let whole = self.ends.iter().all(|end| end.fd.is_some()) && !self.torn;
        let mut writers = 0;
        for end in (0..self.ends.len()).filter(|_| whole) {
            let fd = self.ends[end].fd.expect("it is open");
            u.set_nonblocking(fd, false).expect("open");
            if self.fetches || self.ends[end].finished {
                continue;
            }
            let bytes: Vec<u8> = (self.said..self.said + len).map(|at| byte(self.seed, at)).collect();
            self.says(end, &bytes);
            self.ends[end].finished = true;
            u.fork("writer", Box::new(move |u: &U| write_all(u, fd, &bytes))).expect("a child");
            writers += 1;
        }
        for end in (0..self.ends.len()).filter(|_| whole) {
            while !self.ends[end].heard_end {
                self.receive(u, end, buffer, CHUNK);
            }
        }
        for _ in 0..writers {
            u.wait().expect("a writer");
        }
        (0..self.ends.len()).for_each(|end| self.close(u, end, false));
    }
}

fn write_all(u: &U, fd: Fd, bytes: &[u8]) {
    let buffer = u.map(CHUNK, Prot::RW, Inherit::Copy).expect("memory");
    for chunk in bytes.chunks(CHUNK) {
        u.store(buffer, chunk);
        let mut sent = 0;
        while sent < chunk.len() {
            sent += u.write(fd, buffer + sent, chunk.len() - sent).expect("it is connected");
        }
    }
    u.shutdown(fd, Shutdown::Send).expect("it is connected");
}
