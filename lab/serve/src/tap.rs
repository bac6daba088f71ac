//! The link to the real world by a TAP device: the modelled wire's other end is an Ethernet interface of the host, and
//! with it the host's own TCP/IP.
//!
//! While the machine is idle, this waits for frames and lets modelled time pass with it, as the other link does.

use pageferry_lab::LabError;
use pageferry_model::net::FarEnd;
use rustix::net;
use smoltcp::phy::{self, Device as _, Medium, RxToken as _, TunTapInterface, TxToken as _};
use smoltcp::time::{Duration as Span, Instant as At};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest wait in the real world.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// Frames that are read in one turn.
const AT_A_TIME: usize = 64;

/// An open TAP device.
pub struct Tap(TunTapInterface);

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tap").field(&self.0.as_raw_fd()).finish()
    }
}

impl Tap {
    /// Opens the TAP device `name`, which exists.
    ///
    /// # Errors
    /// When there is no such interface, or it is in use or not permitted.
    pub fn open(name: &str) -> Result<Tap, LabError> {
        let refuse = |e| LabError::io("open", format!("the TAP device {name}"), e);
        // Without this a privileged process would make one that leads nowhere.
        let socket = net::socket(net::AddressFamily::INET, net::SocketType::DGRAM, None);
        let socket = socket.map_err(|e| refuse(e.into()))?;
        if net::netdevice::name_to_index(&socket, name).is_err() {
            let problem = format!(
                "there is no such interface, expected one made by `ip tuntap add dev {name} mode tap`"
            );
            return Err(refuse(io::Error::new(io::ErrorKind::NotFound, problem)));
        }
        TunTapInterface::new(name, Medium::Ethernet).map(Tap).map_err(refuse)
    }
}

/// The device as the far end of a modelled wire.
pub(super) struct TapEnd {
    device: TunTapInterface,
    stop: Arc<AtomicBool>,
    waiting: VecDeque<Vec<u8>>,
    /// Modelled time, as it was told last or has passed in waiting since.
    now_ns: u64,
}

impl TapEnd {
    pub(super) fn new(tap: Tap, stop: Arc<AtomicBool>) -> TapEnd {
        TapEnd { device: tap.0, stop, waiting: VecDeque::new(), now_ns: 0 }
    }

    /// Takes what has arrived, as long as there is something.
    fn take(&mut self) {
        while self.waiting.len() < AT_A_TIME {
            let Some((frame, _)) = self.device.receive(At::ZERO) else { return };
            self.waiting.push_back(frame.consume(<[u8]>::to_vec));
        }
    }
}

impl FarEnd for TapEnd {
    fn arrives(&mut self, now_ns: u64, frame: &[u8]) {
        self.now_ns = self.now_ns.max(now_ns);
        // What the host has no room for is lost, as on any wire.
        if let Some(token) = self.device.transmit(At::ZERO) {
            token.consume(frame.len(), |bytes| bytes.copy_from_slice(frame));
        }
        self.take();
    }

    fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        self.now_ns = self.now_ns.max(now_ns);
        if self.waiting.is_empty() {
            self.take();
        }
        self.waiting.pop_front()
    }

    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(now_ns.max(self.now_ns))
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
            // A signal ends the wait, as time does.
            let _ = phy::wait(self.device.as_raw_fd(), Some(Span::from_micros(max.as_micros() as u64)));
            self.now_ns += began.elapsed().min(max).as_nanos() as u64;
            self.take();
            if !self.waiting.is_empty() || until_ns.is_none() {
                return true;
            }
            if until_ns.is_some_and(|until| until <= self.now_ns) {
                return false;
            }
        }
    }
}
