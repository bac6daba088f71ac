//! The link to the real world without privileges: a host at the far end of the modelled wire that forwards a real port.
//!
//! For each real connection it makes one to the machine, by a TCP of its own (`smoltcp`), and carries bytes both ways.
//! What is not taken by one side is not read from the other, so windows close as they would. An end of a stream is
//! handed on as one; a real connection that fails resets the machine's.
//!
//! While the machine is idle, this waits for the real world and lets modelled time pass with it.

use super::service::HTTP;
use pageferry_lab::run::{FAR_END, MACHINE, PREFIX_BITS};
use pageferry_model::net::FarEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as At;
use smoltcp::wire::{EthernetAddress, EthernetFrame, HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Bytes that a connection buffers, each way.
const BUFFER_BYTES: usize = 256 << 10;
/// Connections at a time; others wait in the real port's backlog.
const MAX_CONNECTIONS: usize = 64;
/// The first port of this host, and the last.
const PORTS: std::ops::RangeInclusive<u16> = 20_000..=60_000;
/// The longest wait in the real world.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// The station's address.
const STATION: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1 << 4]);

/// The frames between the wire and the stack.
struct Frames {
    in_: VecDeque<Vec<u8>>,
    out: VecDeque<Vec<u8>>,
    /// As large as the machine's card takes them.
    mtu_bytes: usize,
}

struct FrameIn(Vec<u8>);
struct FramesOut<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::RxToken for FrameIn {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for FramesOut<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl phy::Device for Frames {
    type RxToken<'a> = FrameIn;
    type TxToken<'a> = FramesOut<'a>;

    fn receive(&mut self, _: At) -> Option<(FrameIn, FramesOut<'_>)> {
        let frame = self.in_.pop_front()?;
        Some((FrameIn(frame), FramesOut(&mut self.out)))
    }

    fn transmit(&mut self, _: At) -> Option<FramesOut<'_>> {
        Some(FramesOut(&mut self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu_bytes + EthernetFrame::<&[u8]>::header_len();
        capabilities
    }
}

/// A real connection and the one to the machine.
struct Pair {
    real: TcpStream,
    socket: SocketHandle,
    /// The real side has said all.
    real_ended: bool,
    /// The machine has said all, and the real side knows.
    machine_ended: bool,
    /// What the last turn could not do for the real side: it was not ready to be read from, or written to.
    awaits_read: bool,
    awaits_write: bool,
}

/// Connections of the host, carried to the machine and back.
pub(super) struct Forward {
    listener: TcpListener,
    stop: Arc<AtomicBool>,
    frames: Frames,
    interface: Interface,
    sockets: SocketSet<'static>,
    pairs: Vec<Pair>,
    next_port: u16,
    /// Modelled time, as it was told last or has passed in waiting since.
    now_ns: u64,
    /// The real world has something since then.
    ready: bool,
}

/// What this host stamps its segments with (RFC 7323): milliseconds of its own.
fn milliseconds() -> u32 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_millis() as u32
}

fn at(now_ns: u64) -> At {
    At::from_micros((now_ns / 1000) as i64)
}

impl Forward {
    pub(super) fn new(listener: TcpListener, mtu_bytes: u64, stop: Arc<AtomicBool>) -> Forward {
        let mut frames = Frames { in_: VecDeque::new(), out: VecDeque::new(), mtu_bytes: mtu_bytes as usize };
        let mut config = Config::new(HardwareAddress::Ethernet(STATION));
        config.random_seed = 1;
        let mut interface = Interface::new(config, &mut frames, at(0));
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(FAR_END.into(), PREFIX_BITS)).expect("there is room for one");
        });
        Forward {
            listener,
            stop,
            frames,
            interface,
            sockets: SocketSet::new(Vec::new()),
            pairs: Vec::new(),
            next_port: *PORTS.start(),
            now_ns: 0,
            ready: true,
        }
    }

    /// Takes real connections in, moves what can be moved, and lets the stack work.
    fn turn(&mut self, now_ns: u64) {
        self.now_ns = now_ns.max(self.now_ns);
        self.ready = false;
        self.accept();
        self.interface.poll(at(self.now_ns), &mut self.frames, &mut self.sockets);
        let mut i = 0;
        while i < self.pairs.len() {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.pairs[i].socket);
            if self.pairs[i].pump(socket) {
                i += 1;
            } else {
                let pair = self.pairs.swap_remove(i);
                self.sockets.get_mut::<tcp::Socket<'_>>(pair.socket).abort();
                self.interface.poll(at(self.now_ns), &mut self.frames, &mut self.sockets);
                self.sockets.remove(pair.socket);
            }
        }
        self.interface.poll(at(self.now_ns), &mut self.frames, &mut self.sockets);
    }

    fn accept(&mut self) {
        while self.pairs.len() < MAX_CONNECTIONS {
            let Ok((real, _)) = self.listener.accept() else { return };
            if real.set_nonblocking(true).is_err() || real.set_nodelay(true).is_err() {
                continue;
            }
            let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER_BYTES]);
            let mut socket = tcp::Socket::new(buffer(), buffer());
            socket.set_nagle_enabled(false);
            // As the host's own TCP does: with them a segment that fills a large frame holds whole pages.
            socket.set_tsval_generator(Some(milliseconds));
            let port = self.next_port;
            self.next_port = if port == *PORTS.end() { *PORTS.start() } else { port + 1 };
            let begun = socket.connect(self.interface.context(), (MACHINE, HTTP), port);
            begun.expect("a fresh socket connects from a port");
            let socket = self.sockets.add(socket);
            self.pairs.push(Pair {
                real,
                socket,
                real_ended: false,
                machine_ended: false,
                awaits_read: false,
                awaits_write: false,
            });
        }
    }
}

impl Pair {
    /// Moves what can be moved; false when the pair is over.
    fn pump(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        (self.awaits_read, self.awaits_write) = (false, false);
        while !self.real_ended && socket.can_send() {
            let moved = socket.send(|room| match self.real.read(room) {
                Ok(len) => (len, Ok(len)),
                Err(e) => (0, Err(e)),
            });
            match moved {
                Ok(Ok(0)) => {
                    self.real_ended = true;
                    socket.close();
                }
                Ok(Ok(_)) => {}
                Ok(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.awaits_read = true;
                    break;
                }
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
        while socket.can_recv() {
            let moved = socket.recv(|bytes| match self.real.write(bytes) {
                Ok(len) => (len, Ok(len)),
                Err(e) => (0, Err(e)),
            });
            match moved {
                Ok(Ok(_)) => {}
                Ok(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.awaits_write = true;
                    break;
                }
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
        let opening = matches!(socket.state(), tcp::State::SynSent | tcp::State::SynReceived);
        if !self.machine_ended && !opening && !socket.may_recv() {
            self.machine_ended = true;
            // All was written: there is nothing to be received any more.
            let _ = self.real.shutdown(Shutdown::Write);
        }
        let over = !socket.is_active() || socket.state() == tcp::State::TimeWait;
        !(over || self.machine_ended && self.real_ended && socket.send_queue() == 0)
    }
}

impl FarEnd for Forward {
    fn arrives(&mut self, now_ns: u64, frame: &[u8]) {
        self.frames.in_.push_back(frame.to_vec());
        self.turn(now_ns);
    }

    fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.frames.out.is_empty() {
            self.turn(now_ns);
        }
        self.frames.out.pop_front()
    }

    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        if self.ready || !self.frames.out.is_empty() {
            return Some(now_ns.max(self.now_ns));
        }
        let due = self.interface.poll_at(at(now_ns), &self.sockets)?;
        Some((due.total_micros() as u64 * 1000).max(now_ns))
    }

    fn wait(&mut self, until_ns: Option<u64>) -> bool {
        let most = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(self.now_ns)));
        let most = most.unwrap_or(MAX_WAIT).min(MAX_WAIT);
        if self.stop.load(Ordering::Relaxed) {
            return false;
        }
        let began = Instant::now();
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for pair in &self.pairs {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, pair.awaits_read);
            flags.set(PollFlags::OUT, pair.awaits_write);
            fds.push(PollFd::new(&pair.real, flags));
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: most.as_nanos() as i64 };
        // A signal ends the wait, as time does.
        let ready = poll(&mut fds, Some(&timeout)).unwrap_or(0) > 0;
        drop(fds);
        let passed = began.elapsed().min(most).as_nanos() as u64;
        self.now_ns += passed;
        self.ready = ready;
        // Without an event the machine itself has nothing to wait for: time passes by this.
        ready || until_ns.is_none()
    }
}
