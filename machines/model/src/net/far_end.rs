//! What can be at the far end of the wire.
//!
//! A far end is asked for its next frame whenever the wire is free and [`FarEnd::next_at`] says that it may have one;
//! so it has no need to know how long frames take. It is called by the machine while the machine is at work, and must
//! not call it.

use pageferry_hal::ETHERNET_HEADER_BYTES;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Something at the far end of the wire.
pub trait FarEnd {
    /// A frame has arrived.
    fn arrives(&mut self, now_ns: u64, frame: &[u8]);
    /// The next frame to send, if there is one now. Called when the wire is free, at times that [`FarEnd::next_at`] has
    /// given.
    fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>>;
    /// When [`FarEnd::poll`] is to be called next, if nothing arrives before: for a frame, or for what else is due
    /// then. `None` is never; what is past is now.
    fn next_at(&mut self, now_ns: u64) -> Option<u64>;
    /// Called when every CPU is halted, now, and until `until_ns` (`None`: ever) nothing would happen in the machine:
    /// for a far end that is connected to the real world, which can wait for it here and so let modelled time pass as
    /// real time does. True when [`FarEnd::next_at`] has something else to say now; that is asked at once, and is not
    /// to name what is past by then. One that waits for less than it could has time pass faster.
    fn wait(&mut self, now_ns: u64, until_ns: Option<u64>) -> bool {
        let _ = (now_ns, until_ns);
        false
    }
}

/// Sends every frame back to where it came from, with the two addresses exchanged.
#[derive(Debug, Default)]
pub struct Reflector {
    waiting: VecDeque<Vec<u8>>,
}

impl FarEnd for Reflector {
    fn arrives(&mut self, _now_ns: u64, frame: &[u8]) {
        let mut frame = frame.to_vec();
        if frame.len() >= ETHERNET_HEADER_BYTES {
            let (to, from) = frame[..12].split_at_mut(6);
            to.swap_with_slice(from);
        }
        self.waiting.push_back(frame);
    }
    fn poll(&mut self, _now_ns: u64) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }
    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(now_ns)
    }
}

/// What has arrived at a [`Sink`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sunk {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the first one arrived.
    pub first_at_ns: Option<u64>,
    /// When the last one arrived.
    pub last_at_ns: Option<u64>,
    /// The last one.
    pub last: Vec<u8>,
}

/// Counts frames, and sends none. Clones count together: one to attach, one to look at.
#[derive(Clone, Debug, Default)]
pub struct Sink(Rc<RefCell<Sunk>>);

impl Sink {
    /// What has arrived so far.
    pub fn sunk(&self) -> Sunk {
        self.0.borrow().clone()
    }
}

impl FarEnd for Sink {
    fn arrives(&mut self, now_ns: u64, frame: &[u8]) {
        let mut sunk = self.0.borrow_mut();
        sunk.frames += 1;
        sunk.bytes += frame.len() as u64;
        sunk.first_at_ns.get_or_insert(now_ns);
        sunk.last_at_ns = Some(now_ns);
        sunk.last = frame.to_vec();
    }
    fn poll(&mut self, _now_ns: u64) -> Option<Vec<u8>> {
        None
    }
    fn next_at(&mut self, _now_ns: u64) -> Option<u64> {
        None
    }
}
