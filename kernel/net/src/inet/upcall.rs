//! A connection as its socket buffers know it: what it is told of them.

use super::id::PcbId;
use super::stack::Net;
use crate::sockbuf::Upcall;
use alloc::sync::Weak;
use pageferry_hal::{Machine, Threads};

/// See the [module](self).
pub(super) struct Connection<M: Machine> {
    pub(super) net: Weak<Net<M>>,
    pub(super) id: PcbId,
}

impl<M: Machine> Upcall for Connection<M> {
    fn sent(&self, threads: &dyn Threads) {
        self.net.upgrade().into_iter().for_each(|net| net.tcp_sent(threads, self.id));
    }

    fn changed(&self, threads: &dyn Threads) {
        self.net.upgrade().into_iter().for_each(|net| net.changed(threads, self.id));
    }
}
