//! A whole host at the far end of the wire: the TCP/IP stack of `smoltcp`, which others wrote and others test, with an
//! Ethernet and an IP address of its own, in the machine's time.
//!
//! It serves [on TCP ports](SmolFarEnd::listen) and [on UDP ports](SmolFarEnd::udp_echo),
//! [connects](SmolFarEnd::connect) to the machine and says what it has to say, and answers pings. What became of each
//! connection is in a [`Talk`], which can be looked at during the run and after it. Everything that is random comes
//! from a seed.

mod config;
mod talk;

pub use config::SmolConfig;
pub use talk::{Client, Ended, Listener, Service, Talk, Talks, pattern};

use super::FarEnd;
use pageferry_hal::ETHERNET_HEADER_BYTES;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use talk::Connections;

/// Packets that a UDP service buffers, each way.
const DATAGRAMS: usize = 64;

/// A host at the far end.
pub struct SmolFarEnd {
    config: SmolConfig,
    interface: Interface,
    sockets: SocketSet<'static>,
    queues: Queues,
    talking: Connections,
    echoes: Vec<(SocketHandle, Rc<RefCell<u64>>)>,
}

impl SmolFarEnd {
    /// A host that does nothing yet but answer pings.
    pub fn new(config: SmolConfig) -> SmolFarEnd {
        let mut queues = Queues { mtu: ETHERNET_HEADER_BYTES + config.mtu_bytes, ..Queues::default() };
        let address = HardwareAddress::Ethernet(EthernetAddress(config.mac.0));
        let mut interface_config = Config::new(address);
        interface_config.random_seed = config.seed;
        let mut interface = Interface::new(interface_config, &mut queues, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(config.ip.into(), config.prefix_len);
            addresses.push(own).expect("there is room for one address");
        });
        let sockets = SocketSet::new(Vec::new());
        let talking = Connections::default();
        SmolFarEnd { config, interface, sockets, queues, talking, echoes: Vec::new() }
    }

    /// Serves a TCP port, to any number of clients.
    pub fn listen(&mut self, port: u16, service: Service) -> Listener {
        self.talking.listen(&mut self.sockets, &self.config, port, service)
    }

    /// Connects to the machine at some time; see [`Client`].
    pub fn connect(&mut self, client: Client) -> Talks {
        self.talking.connect(client)
    }

    /// Sends every datagram back that comes to a UDP port. Counts them.
    ///
    /// # Panics
    /// When the port is 0.
    pub fn udp_echo(&mut self, port: u16) -> Rc<RefCell<u64>> {
        let buffer = || {
            let bytes = vec![0; DATAGRAMS * self.config.mtu_bytes];
            udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; DATAGRAMS], bytes)
        };
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(port).expect("a port other than 0");
        let count = Rc::new(RefCell::new(0));
        self.echoes.push((self.sockets.add(socket), count.clone()));
        count
    }

    /// Does all that is to be done now.
    fn work(&mut self, now_ns: u64) {
        let now = Instant::from_micros((now_ns / 1000) as i64);
        loop {
            let polled = self.interface.poll(now, &mut self.queues, &mut self.sockets);
            let mut changed = polled == PollResult::SocketStateChanged;
            changed |= self.talking.serve(&mut self.interface, &mut self.sockets, &self.config, now_ns);
            changed |= self.echo();
            if !changed {
                return;
            }
        }
    }

    fn echo(&mut self) -> bool {
        let mut changed = false;
        for (handle, count) in &self.echoes {
            let socket: &mut udp::Socket<'_> = self.sockets.get_mut(*handle);
            while socket.can_send() {
                let Ok((bytes, from)) = socket.recv() else { break };
                let bytes = bytes.to_vec();
                // One that finds no room is lost, as any datagram may be.
                if socket.send_slice(&bytes, from.endpoint).is_ok() {
                    *count.borrow_mut() += 1;
                }
                changed = true;
            }
        }
        changed
    }
}

impl FarEnd for SmolFarEnd {
    fn arrives(&mut self, now_ns: u64, frame: &[u8]) {
        self.queues.arrived.push_back(frame.to_vec());
        self.work(now_ns);
    }

    fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.queues.waiting.is_empty() {
            self.work(now_ns);
        }
        self.queues.waiting.pop_front()
    }

    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        if !self.queues.waiting.is_empty() {
            return Some(now_ns);
        }
        let now = Instant::from_micros((now_ns / 1000) as i64);
        let stack = self.interface.poll_at(now, &self.sockets);
        // What was to be done by now is done. Its clock ticks in microseconds: before the next tick it has nothing new
        // to do.
        let next_tick = (now_ns / 1000 + 1) * 1000;
        let stack = stack.map(|at| (at.total_micros().max(0) as u64 * 1000).max(next_tick));
        stack.into_iter().chain(self.talking.next_at()).min()
    }
}

/// The stack's view of the wire: frames that have arrived, and frames that wait for it.
#[derive(Default)]
struct Queues {
    mtu: usize,
    arrived: VecDeque<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
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

impl phy::Device for Queues {
    type RxToken<'a> = FrameIn;
    type TxToken<'a> = FramesOut<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(FrameIn, FramesOut<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((FrameIn(frame), FramesOut(&mut self.waiting)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<FramesOut<'_>> {
        Some(FramesOut(&mut self.waiting))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

#[cfg(test)]
mod tests;
