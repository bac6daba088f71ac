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
        let port = self.free_port();
        let begun = socket.connect(self.interface.context(), (MACHINE, HTTP), port);
        begun.expect("a fresh socket connects from a port");
        let socket = self.sockets.add(socket);
        self.pairs.insert(source, Pair::new(real, socket));
        Ok(())
    }

    /// The next port, round and round, that no connection has: a client may stay while all others are used once.
    fn free_port(&mut self) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = if port == *PORTS.end() { *PORTS.start() } else { port + 1 };
            // There are more ports than connections.
            if !self.pairs.values().any(|pair| self.port_of(pair) == Some(port)) {
                return port;
            }
        }
    }

    fn port_of(&self, pair: &Pair) -> Option<u16> {
        self.sockets.get::<tcp::Socket<'_>>(pair.socket).local_endpoint().map(|local| local.port)
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
    use smoltcp::iface::SocketHandle;
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

    /// The machine, as far as its TCP goes.
    struct Peer {
        frames: Frames,
        interface: Interface,
        sockets: SocketSet<'static>,
        /// One for each connection that it can take.
        taken: Vec<SocketHandle>,
    }

    impl Peer {
        fn new(connections: usize) -> Peer {
            let mut frames = Frames { in_: VecDeque::new(), out: VecDeque::new(), mtu_bytes: 1500 };
            let station = EthernetAddress([2, 0, 0, 0, 0, 1]);
            let mut interface =
                Interface::new(Config::new(HardwareAddress::Ethernet(station)), &mut frames, at(0));
            interface.update_ip_addrs(|addresses| {
                addresses.push(IpCidr::new(MACHINE.into(), PREFIX_BITS)).expect("there is room for one");
            });
            let mut sockets = SocketSet::new(Vec::new());
            let listen = |_| {
                let buffer = || tcp::SocketBuffer::new(vec![0; 4096]);
                let mut socket = tcp::Socket::new(buffer(), buffer());
                socket.listen(HTTP).expect("a fresh socket listens");
                sockets.add(socket)
            };
            let taken = (0..connections).map(listen).collect();
            Peer { frames, interface, sockets, taken }
        }

        fn socket(&mut self, nth: usize) -> &mut tcp::Socket<'static> {
            self.sockets.get_mut(self.taken[nth])
        }
    }

    /// A server's end, and what is at the other end of its wire.
    struct Wire {
        forward: Forward,
        peer: Peer,
        address: std::net::SocketAddr,
    }

    impl Wire {
        fn new(connections: usize) -> Wire {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.set_nonblocking(true).expect("a socket");
            let address = listener.local_addr().expect("bound");
            let forward = Forward::new(listener, 1500, Arc::default()).expect("made");
            Wire { forward, peer: Peer::new(connections), address }
        }

        fn client(&self) -> TcpStream {
            TcpStream::connect(self.address).expect("it listens")
        }

        /// Lets frames go both ways until something holds; those that `passes` says no to are lost.
        fn until(&mut self, passes: fn(&[u8]) -> bool, holds: impl Fn(&mut Wire) -> bool) {
            for _ in 0..2_000 {
                let now = self.forward.now_ns + MS;
                self.forward.wait(now, Some(now));
                let now = self.forward.now_ns;
                while self.forward.next_at(now).is_some_and(|at| at <= now) {
                    self.peer.frames.in_.extend(self.forward.poll(now).filter(|frame| passes(frame)));
                }
                self.peer.interface.poll(at(now), &mut self.peer.frames, &mut self.peer.sockets);
                for frame in std::mem::take(&mut self.peer.frames.out) {
                    self.forward.arrives(now, &frame);
                }
                if holds(self) {
                    return;
                }
            }
            panic!("it does not come to that");
        }

        /// The connections that have this.
        fn count(&self, is: fn(&Pair) -> bool) -> usize {
            self.forward.pairs.values().filter(|pair| is(pair)).count()
        }

        /// All frames go both ways for a while.
        fn settles(&mut self) {
            let until = self.forward.now_ns + 100 * MS;
            self.until(|_| true, |wire| wire.forward.now_ns >= until);
        }
    }

    /// Of a frame of IPv4 with TCP.
    fn has_data(frame: &[u8]) -> bool {
        frame.windows(3).any(|three| three == b"GET")
    }

    #[test]
    fn ports_go_round_and_none_is_given_twice() {
        let mut wire = Wire::new(6);
        wire.forward.next_port = *PORTS.end() - 1;
        let mut clients: Vec<TcpStream> = (0..4).map(|_| wire.client()).collect();
        wire.until(|_| true, |wire| wire.forward.pairs.len() == 4);
        let ports = |wire: &Wire| -> Vec<u16> {
            wire.forward.pairs.values().filter_map(|pair| wire.forward.port_of(pair)).collect()
        };
        assert_eq!(ports(&wire), [59_999, 60_000, 20_000, 20_001]);
        // All others were used meanwhile.
        wire.forward.next_port = *PORTS.end();
        clients.extend((0..2).map(|_| wire.client()));
        wire.until(|_| true, |wire| wire.forward.pairs.len() == 6);
        assert_eq!(ports(&wire), [59_999, 60_000, 20_000, 20_001, 20_002, 20_003]);
        // Each goes on with its own.
        wire.until(|_| true, |wire| (0..6).all(|nth| wire.peer.socket(nth).may_send()));
    }

    #[test]
    fn a_connection_begins_until_the_machine_has_taken_something() {
        let mut wire = Wire::new(2);
        // One that says nothing has nothing that could be taken, but for its connection.
        let _silent = wire.client();
        wire.until(|_| true, |wire| wire.count(|pair| !pair.is_beginning()) == 1);
        let mut speaking = wire.client();
        speaking.write_all(b"GET /").expect("sent");
        wire.until(|frame| !has_data(frame), |wire| wire.peer.socket(1).may_send());
        let until = wire.forward.now_ns + 50 * MS;
        wire.until(|frame| !has_data(frame), |wire| wire.forward.now_ns >= until);
        assert_eq!((wire.count(Pair::is_beginning), wire.forward.pairs.len()), (1, 2));
        wire.until(|_| true, |wire| wire.count(Pair::is_beginning) == 0);
    }

    #[test]
    fn a_client_that_was_told_the_end_has_so_much_time_to_speak() {
        let mut wire = Wire::new(1);
        let mut client = wire.client();
        wire.until(|_| true, |wire| wire.peer.socket(0).may_send());
        wire.peer.socket(0).close();
        wire.until(|_| true, |wire| wire.count(Pair::is_delivered) == 1);
        let end = |wire: &Wire| {
            wire.forward.pairs.values().next().and_then(Pair::ends_at_ns).expect("it has an end")
        };
        let first = end(&wire);
        // What it says postpones it.
        wire.settles();
        client.write_all(b"more").expect("sent");
        wire.until(|_| true, |wire| end(wire) > first);
        wire.settles();
        let last = end(&wire);
        wire.forward.turn(last - 1);
        assert_eq!((wire.forward.pairs.len(), wire.forward.next_at(last - 1).is_some()), (1, true));
        wire.forward.turn(last);
        assert_eq!(wire.forward.pairs.len(), 0);
    }

    #[test]
    fn as_many_talk_as_there_is_room_for() {
        let mut wire = Wire::new(MAX_TALKING + 9);
        let _clients: Vec<TcpStream> = (0..MAX_TALKING + 9).map(|_| wire.client()).collect();
        wire.until(|_| true, |wire| wire.count(|pair| !pair.is_beginning()) == MAX_TALKING);
        wire.settles();
        assert_eq!(wire.forward.pairs.len(), MAX_TALKING);
        // Whose end is told makes room, and stays until it ends itself.
        for nth in 0..5 {
            wire.peer.socket(nth).close();
        }
        wire.until(|_| true, |wire| wire.count(|pair| !pair.is_beginning()) == MAX_TALKING + 5);
        wire.settles();
        assert_eq!((wire.forward.pairs.len(), wire.count(Pair::is_delivered)), (MAX_TALKING + 5, 5));
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
