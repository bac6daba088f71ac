//! What the network card receives, for a driver that is a server: into pieces of the area.
//!
//! # The model
//! The driver's server gives the card pieces of its own. From then on they are the card's: nobody has them attached,
//! and no driver that ends takes them with it, because a card cannot be told to forget its buffers. A frame that has
//! arrived waits in its piece until a driver takes it, the next one if need be. The piece of a frame is one page after
//! the other, each its own fragment.
//!
//! # Locks
//! That of [`super::state::State`]. The card's interrupt is taken by a soft-interrupt thread.
//!
//! # What can fail
//! A card that was removed gives all back, which is freed, and takes nothing more.

use super::driver_card::Arrival;
use super::services::NetServicePaths;
use super::state::{Holder, Ispc};
use crate::DriverCard;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_core::proc::Syscall;
use pageferry_hal::{Cause, Fragment, Machine, NicReceive, NicRing, NicVerdict, PAGE_SIZE, SpinLock, Va};

/// A frame that a driver has taken.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedFrame {
    /// Its piece, which the driver keeps.
    pub at: Va,
    /// Bytes of the frame.
    pub len: usize,
    /// What the card says of its sums.
    pub verdict: NicVerdict,
}

impl<M: Machine> Ispc<M> {
    fn card_paths(&self) -> NetServicePaths {
        self.config.net.map_or_else(NetServicePaths::default, |net| net.paths)
    }

    /// Pages of a piece that holds any frame of the card's.
    pub fn card_pages(&self) -> usize {
        self.card.as_ref().map_or(1, DriverCard::frame_pages)
    }

    /// True when a frame has arrived, or the card was removed and the driver does not know.
    pub fn card_has_more(&self, knows: bool) -> bool {
        let receiving = &self.state.lock().receiving;
        !receiving.arrived.is_empty() || receiving.removed && !knows
    }

    /// How many more pieces the card takes, of `max_frames`: of those that have arrived each is one.
    pub fn card_wants(&self, max_frames: usize) -> usize {
        let Some(card) = &self.card else { return 0 };
        let ring = card.nic.info().receive_slots / card.frame_pages();
        let receiving = &self.state.lock().receiving;
        match receiving.removed {
            true => 0,
            false => max_frames.min(ring).saturating_sub(receiving.posted.len() + receiving.arrived.len()),
        }
    }

    /// Gives the card a piece that the caller keeps, for a frame to arrive in.
    ///
    /// # Errors
    /// [`Errno::NotSupported`]: there is no card. [`Errno::Access`]: the caller does not keep this.
    pub fn card_post(&self, call: &Syscall<'_, M>, at: Va) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        let card = self.card.as_ref().ok_or(Errno::NotSupported)?;
        let mut state = self.state.lock();
        let page = self.page(at)?;
        let ica = state.icas.get_mut(&page).ok_or(Errno::Access)?;
        if ica.holder != Holder::Kept(call.pid) || ica.pages != card.frame_pages() {
            return Err(Errno::Access);
        }
        ica.holder = Holder::Card;
        m.execute(self.card_paths().card_post);
        let pages = page..page + ica.pages;
        let tag = state.next;
        state.next += 1;
        state.receiving.posted.insert(tag, page);
        drop(state);
        let fragment =
            |page| Fragment { frame: call.core.vm.pmaps().area_frame(page), offset: 0, len_bytes: PAGE_SIZE };
        let data: Vec<Fragment> = pages.map(fragment).collect();
        card.nic.post_receive(NicRing::Main, NicReceive { tag, header: None, data });
        card.nic.start_receive(NicRing::Main);
        Ok(())
    }

    /// The oldest frame that has arrived; the caller, the driver's server, keeps its piece.
    ///
    /// # Errors
    /// [`Errno::Removed`]: nothing is there, and the card is not any more.
    pub fn card_take(&self, call: &Syscall<'_, M>) -> Result<Option<ReceivedFrame>, Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        let mut state = self.state.lock();
        let Some(Arrival { page, len, verdict }) = state.receiving.arrived.pop_front() else {
            return if state.receiving.removed { Err(Errno::Removed) } else { Ok(None) };
        };
        m.execute(self.card_paths().card_take);
        state.icas.get_mut(&page).expect("the card has it").holder = Holder::Kept(call.pid);
        Ok(Some(ReceivedFrame { at: self.va(page), len, verdict }))
    }

    /// Takes what has arrived out of the card's ring; true if there was anything. Pieces that come back without a frame
    /// are freed.
    pub(super) fn take_received(&self, m: &M, card: &DriverCard) -> bool {
        let mut any = false;
        while let Some(answer) = card.nic.take_received(NicRing::Main) {
            let mut state = self.state.lock();
            let page =
                state.receiving.posted.remove(&answer.tag).expect("the card answers for what it was given");
            match answer.result {
                Ok(arrival) => {
                    let (len, verdict) = (arrival.data_bytes, arrival.verdict);
                    state.receiving.arrived.push_back(Arrival { page, len, verdict });
                    any = true;
                }
                Err(_) => self.free(m, &mut state, page),
            }
        }
        any
    }
}
