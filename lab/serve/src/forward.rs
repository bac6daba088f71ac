//! The link to the real world without privileges: a host at the far end of the modelled wire that forwards a real port.
//!
//! For each real connection it makes one to the machine, by a TCP of its own (`smoltcp`); a [`Pair`] carries bytes both
//! ways.
//!
//! While the machine is idle, this waits for the real world and lets modelled time pass with it, whatever the real
//! world has that nobody can take now ([`Watch`]). Once the server is to stop, modelled time no longer waits for it.

use super::pair::Pair;
use super::service::HTTP;
use super::watch::Watch;
use pageferry_lab::run::{FAR_END, MACHINE, PREFIX_BITS};
use pageferry_model::net::FarEnd;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as At;
use smoltcp::wire::{EthernetAddress, EthernetFrame, HardwareAddress, IpCidr};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Bytes that a connection buffers, each way.
const BUFFER_BYTES: usize = 256 << 10;
/// Connections at a time of which the machine has not said all; others wait in the real port's backlog.
const MAX_TALKING: usize = 64;
/// Of these, the ones that the machine has not yet answered. More that begin at the same moment would overflow the
/// machine's card together, and again together each time that they are tried again.
const MAX_BEGINNING: usize = 16;
/// Connections at a time, with those whose clients do not end them.
const MAX_CONNECTIONS: usize = 512;
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

/// The listening port's number among the sources.
const LISTENER: u64 = 0;

/// Connections of the host, carried to the machine and back.
pub(super) struct Forward {
    listener: TcpListener,
    /// Clients may wait to be taken.
    clients_wait: bool,
    watch: Watch,
    stop: Arc<AtomicBool>,
    frames: Frames,
    interface: Interface,
    sockets: SocketSet<'static>,
    /// By their numbers among the sources.
    pairs: BTreeMap<u64, Pair>,
    next_source: u64,
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
    /// # Errors
    /// When the host has no descriptors or memory left to watch connections with.
    pub(super) fn new(listener: TcpListener, mtu_bytes: u64, stop: Arc<AtomicBool>) -> io::Result<Forward> {
        let mut frames = Frames { in_: VecDeque::new(), out: VecDeque::new(), mtu_bytes: mtu_bytes as usize };
        let mut config = Config::new(HardwareAddress::Ethernet(STATION));
        config.random_seed = 1;
        let mut interface = Interface::new(config, &mut frames, at(0));
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(FAR_END.into(), PREFIX_BITS)).expect("there is room for one");
        });
        let watch = Watch::new()?;
        watch.add(&listener, LISTENER)?;
        Ok(Forward {
            listener,
            clients_wait: true,
            watch,
            stop,
            frames,
            interface,
            sockets: SocketSet::new(Vec::new()),
            pairs: BTreeMap::new(),
            next_source: LISTENER + 1,
            next_port: *PORTS.start(),
            now_ns: 0,
            ready: true,
        })
    }

    /// Takes real connections in, moves what can be moved, and lets the stack work.
    fn turn(&mut self, now_ns: u64) {
        self.now_ns = now_ns.max(self.now_ns);
        self.ready = false;
        self.accept();
        self.stack();
        let mut over = Vec::new();
        for (source, pair) in &mut self.pairs {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(pair.socket);
            if !pair.pump(socket, self.now_ns) {
                over.push(*source);
            }
        }
        for source in over {
            let pair = self.pairs.remove(&source).expect("it was just there");
            self.sockets.get_mut::<tcp::Socket<'_>>(pair.socket).abort();
            self.stack();
            self.sockets.remove(pair.socket);
        }
        // There may be room now for those who wait.
        self.accept();
        self.stack();
    }

    fn stack(&mut self) {
        self.interface.poll(at(self.now_ns), &mut self.frames, &mut self.sockets);
    }

    fn has_room(&self) -> bool {
        let of = |is: fn(&Pair) -> bool| self.pairs.values().filter(|pair| is(pair)).count();
        self.pairs.len() < MAX_CONNECTIONS
            && of(|pair| !pair.is_delivered()) < MAX_TALKING
            && of(Pair::is_beginning) < MAX_BEGINNING
    }

    fn accept(&mut self) {
        while self.clients_wait && self.has_room() {
            match self.listener.accept() {
                // One that cannot be carried is closed.
                Ok((real, _)) => _ = self.connect(real),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.clients_wait = false,
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
                // No descriptors: when one is free again.
                Err(_) => return,
            }
        }
    }

    /// Begins a connection to the machine for a real one.
    fn connect(&mut self, real: TcpStream) -> io::Result<()> {
        real.set_nonblocking(true)?;
        real.set_nodelay(true)?;
        let source = self.next_source;
        self.watch.add(&real, source)?;
        self.next_source += 1;
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
        self.pairs.insert(source, Pair::new(real, socket));
        Ok(())
    }

    /// Waits for the real world, at most so long; true when it has something.
    fn hear(&mut self, max: Duration) -> bool {
        let news = self.watch.wait(max);
        for news in &news {
            if news.source == LISTENER {
                self.clients_wait = true;
            } else if let Some(pair) = self.pairs.get_mut(&news.source) {
                pair.readable |= news.readable;
                pair.writable |= news.writable;
                pair.failed |= news.failed;
            }
        }
        !news.is_empty()
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
        let stack = self.interface.poll_at(at(now_ns), &self.sockets);
        let stack = stack.map(|due| due.total_micros() as u64 * 1000);
        let pairs = self.pairs.values().filter_map(Pair::ends_at_ns);
        pairs.chain(stack).min().map(|due| due.max(now_ns))
    }

    fn wait(&mut self, now_ns: u64, until_ns: Option<u64>) -> bool {
        self.now_ns = self.now_ns.max(now_ns);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let left = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(self.now_ns)));
            let max = left.unwrap_or(MAX_WAIT).min(MAX_WAIT);
            let began = Instant::now();
            self.ready = self.hear(max);
            self.now_ns += began.elapsed().min(max).as_nanos() as u64;
            // Without an event the machine itself has nothing to wait for: time passes by this.
            if self.ready || until_ns.is_none() {
                return true;
            }
            if until_ns.is_some_and(|until| until <= self.now_ns) {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// A millisecond, and as long as any host takes for it.
    const MS: u64 = 1_000_000;

    /// Waits until nothing is ready any more and time passes by the wait; false if that does not come.
    fn time_passes(forward: &mut Forward) -> bool {
        let mut now = forward.now_ns;
        for _ in 0..2_000 {
            let until = now + 5 * MS;
            let ready = forward.wait(now, Some(until));
            now = forward.now_ns;
            if !ready {
                return now >= until;
            }
            while forward.next_at(now).is_some_and(|at| at <= now) {
                // What it sends goes nowhere: the machine does not answer.
                let _ = forward.poll(now);
            }
        }
        false
    }

    #[test]
    fn what_nobody_takes_does_not_stop_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let mut forward = Forward::new(listener, 1500, Arc::default()).expect("made");
        // More than there is room for, each with bytes that the machine does not take, and some that have failed.
        let mut clients: Vec<TcpStream> =
            (0..MAX_TALKING + 9).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\n").expect("sent");
        }
        assert!(time_passes(&mut forward));
        // It answers none.
        assert_eq!(forward.pairs.len(), MAX_BEGINNING);
        for client in clients.drain(..9) {
            rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("set");
        }
        assert!(time_passes(&mut forward));
        // Those that have failed made room.
        assert_eq!(forward.pairs.len(), MAX_BEGINNING);
        drop(clients);
        assert!(time_passes(&mut forward));
    }

    #[test]
    fn a_wait_ends_when_the_server_is_to_stop() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stop = Arc::new(AtomicBool::new(false));
        let mut forward = Forward::new(listener, 1500, stop.clone()).expect("made");
        stop.store(true, Ordering::Relaxed);
        assert!(!forward.wait(0, None) && !forward.wait(0, Some(u64::MAX)));
    }
}
