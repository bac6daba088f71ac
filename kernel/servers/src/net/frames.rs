//! Frames on their way from the protocol server to the driver's.
//!
//! # What it holds
//! Pairs of pieces, one for what is asked and one for a frame: as many as there may be frames on their way. A pair is
//! kept, attached to nobody, until a frame waits for it. The frame is copied into it, the pair goes with a request, and
//! comes back when the card has read it. Where threads cross into servers it comes back at once.
//!
//! # What can fail
//! A driver that is not there: frames wait until one serves, as far as their queue takes them. One that dies: what it
//! had is lost. Reserved entries: a server that has none of them waits for some, another leaves the frames where they
//! are.

use super::service::NetService;
use super::words::Request;
use alloc::sync::Arc;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_abi::Errno;
use pageferry_core::mbuf::Chain;
use pageferry_core::proc::{Syscall, Uio, WaitFlag};
use pageferry_hal::{ETHERNET_HEADER_BYTES, Machine, NicChecksum, PAGE_SIZE, Va};
use pageferry_ispc::{DRIVER, Finished, Ispc, RequestId, Wait};
use pageferry_net::Net;

/// Pieces for one frame.
#[derive(Clone, Copy)]
struct Pair {
    control: Va,
    data: Va,
}

/// See the [module](self).
pub(super) struct Frames {
    free: Vec<Pair>,
    on_their_way: LiteMap<RequestId, Pair>,
    max_frames: usize,
    /// Pages of a frame.
    pages: usize,
}

impl Frames {
    /// For frames with so many bytes behind their headers.
    pub(super) fn new(max_frames: usize, mtu_bytes: usize) -> Frames {
        let pages = (ETHERNET_HEADER_BYTES + mtu_bytes).div_ceil(PAGE_SIZE);
        Frames { free: Vec::new(), on_their_way: LiteMap::new(), max_frames, pages }
    }

    /// A request of the driver is done: whether it has sent the frame.
    pub(super) fn done(&mut self, finished: Finished) -> Result<(), Errno> {
        self.free.extend(self.on_their_way.remove(&finished.id));
        finished.outcome
    }

    /// Sends what waits, as far as there are pairs and somebody to send it to.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`]: reserved entries are missing, and it does not wait for them. [`Errno::Interrupted`].
    pub(super) fn send<M: Machine>(
        &mut self,
        call: &Syscall<'_, M>,
        service: &Arc<NetService<M>>,
        (ispc, net): (&Ispc<M>, &Net<M>),
        wait: Wait,
    ) -> Result<(), Errno> {
        while net.has_frames() {
            service.ensure_driver(call.thread);
            if service.driver.server().is_none() {
                // It says when it serves.
                return Ok(());
            }
            let Some(pair) = self.pair(call, ispc) else { return Ok(()) };
            if let Err(error) = ispc.attach_kept(call, &[pair.control, pair.data], wait) {
                self.free.push(pair);
                return Err(error);
            }
            let Some((frame, checksum)) = net.next_frame() else {
                ispc.keep(call, &[pair.control, pair.data]);
                self.free.push(pair);
                return Ok(());
            };
            if self.hand_over(call, ispc, pair, frame, checksum).is_err() {
                net.frame_lost();
            }
        }
        Ok(())
    }

    /// A pair that is free, or another one.
    fn pair<M: Machine>(&mut self, call: &Syscall<'_, M>, ispc: &Ispc<M>) -> Option<Pair> {
        if let Some(pair) = self.free.pop() {
            return Some(pair);
        }
        if self.on_their_way.len() >= self.max_frames {
            return None;
        }
        let control = ispc.alloc_kept(call, 1).ok()?;
        match ispc.alloc_kept(call, self.pages) {
            Ok(data) => Some(Pair { control, data }),
            Err(_) => {
                ispc.drop_piece(call, control);
                None
            }
        }
    }

    /// Copies a frame into an attached pair, and makes a request of it. Where that fails the pair is free again.
    fn hand_over<M: Machine>(
        &mut self,
        call: &Syscall<'_, M>,
        ispc: &Ispc<M>,
        pair: Pair,
        frame: Chain,
        checksum: Option<NicChecksum>,
    ) -> Result<(), Errno> {
        let len = frame.len();
        let copied = match len <= self.pages * PAGE_SIZE {
            true => copy(call, &frame, pair.data),
            false => Err(Errno::MessageSize),
        };
        frame.free(&call.core.mbufs);
        let request = Request::FrameOut { checksum, len };
        let written = copied.and_then(|()| call.store_bytes(pair.control, &request.envelope().bytes()));
        let pieces = (pair.control, Some(pair.data));
        let result = match ispc.config.method.crosses() {
            true => written.and_then(|()| ispc.visit(call, DRIVER, pieces)).map(|()| None),
            false => written.and_then(|()| ispc.post(call, DRIVER, pieces)).map(Some),
        };
        match result {
            Ok(Some(id)) => _ = self.on_their_way.insert(id, pair),
            Ok(None) => self.free.push(pair),
            Err(_) => {
                ispc.keep(call, &[pair.control, pair.data]);
                self.free.push(pair);
            }
        }
        result.map(|_| ())
    }
}

/// Copies a frame out of its mbufs.
fn copy<M: Machine>(call: &Syscall<'_, M>, frame: &Chain, to: Va) -> Result<(), Errno> {
    let pool = &call.core.mbufs;
    let mut uio = Uio::read(to, frame.iter().map(|mbuf| mbuf.len()).sum());
    for mbuf in frame.iter() {
        let first = uio.done();
        while uio.done() - first < mbuf.len() {
            let at = uio.done() - first;
            pool.look((call.thread, WaitFlag::NoWait), mbuf, at, mbuf.len() - at, |va, piece| {
                call.uiomove(va, piece, &mut uio)
            })??;
        }
    }
    Ok(())
}
