//! A driver that does by a copy what its card cannot: headers in a buffer of their own, and what is behind them in
//! pages (page-flip paper, "Future directions possible", and its Appendix B).
//!
//! With it receiving by taking pages over can be tried on a card that splits no headers. The copy leaves the bytes in
//! the cache, where a card that writes to memory would not have put them; so the driver can flush their lines, as the
//! paper proposes. The flush stands for what a card does, and takes no time.

use super::card::page_to_receive;
use super::stack::Ip;
use super::wire::{IP_BYTES, MAX_HEADER_BYTES, TCP_BYTES, TYPE_IP};
use crate::config::Repack;
use etherparse::{IpNumber, Ipv4HeaderSlice, TcpHeaderSlice};
use pageferry_core::counter::KernelCounter;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::Chain;
use pageferry_core::mbuf::{Mbuf, Pool, SMALL_BYTES};
use pageferry_hal::{ETHERNET_HEADER_BYTES, Machine, PAGE_SIZE, Pfn};

/// The cache line that is flushed at a time: no machine's lines are shorter.
const LINE_BYTES: usize = 16;

impl<M: Machine> Ip<'_, M> {
    /// A frame of `len` bytes in `data`, as a card with header split would have delivered it: a copy. Nothing for a
    /// frame that is no segment, or has less than a page of data.
    pub(super) fn repacked(&self, repack: Repack, data: &[Mbuf], len: usize) -> Option<Chain> {
        let pool = self.pool();
        let headers_bytes = headers_of(pool, &data[0], len)?;
        if len - headers_bytes < PAGE_SIZE || headers_bytes > SMALL_BYTES {
            return None;
        }
        let mut chain = Chain::new();
        let done = self.copy_into(&mut chain, data, headers_bytes, len);
        if done.is_none() {
            chain.free(pool);
            return None;
        }
        if repack.flushes {
            for (frame, offset, len) in chain.iter().filter_map(Mbuf::fragments).flatten() {
                self.flush_lines(frame, offset, len);
            }
        }
        Some(chain)
    }

    fn copy_into(&self, chain: &mut Chain, data: &[Mbuf], headers_bytes: usize, len: usize) -> Option<()> {
        let (pool, m) = (self.pool(), self.m());
        let mut to = pool.alloc(headers_bytes).ok()?;
        let mut filled = 0;
        let mut done = 0;
        for from in data {
            let mut at = 0;
            while at < from.len() && done < len {
                if filled == to.len() {
                    let next = match page_to_receive(self.config().receive_mapping, pool) {
                        Ok(mut next) => {
                            next.truncate(PAGE_SIZE.min(len - done));
                            next
                        }
                        Err(_) => {
                            pool.free(to);
                            return None;
                        }
                    };
                    chain.push_back(core::mem::replace(&mut to, next));
                    filled = 0;
                }
                let piece = (to.len() - filled).min(from.len() - at).min(len - done);
                let misplaced = usize::from(self.has(NetDefect::RepackedElsewhere) && filled > 0);
                let target = pool.address(&to, filled - misplaced..filled + piece);
                let source = pool.address(from, at..at + piece);
                m.copy_kernel(target, source, piece).expect("the kernel's own addresses are mapped");
                m.count(KernelCounter::BytesCopied, piece as u64);
                (at, filled, done) = (at + piece, filled + piece, done + piece);
            }
        }
        chain.push_back(to);
        Some(())
    }

    /// What is cached of `len` bytes goes to memory.
    fn flush_lines(&self, frame: Pfn, offset: usize, len: usize) {
        for at in (offset..offset + len).step_by(LINE_BYTES) {
            self.m().flush_line(frame.pa() + at);
        }
    }
}

/// Bytes of the headers of a segment of TCP that begins in `first`.
fn headers_of<M: Machine>(pool: &Pool<M>, first: &Mbuf, len: usize) -> Option<usize> {
    let mut front = [0; ETHERNET_HEADER_BYTES + MAX_HEADER_BYTES];
    let there = front.len().min(len).min(first.len());
    if there < ETHERNET_HEADER_BYTES + IP_BYTES + TCP_BYTES {
        return None;
    }
    let from = pool.address(first, 0..there);
    pool.machine().load(pageferry_hal::Mode::Kernel, from, &mut front[..there]).ok()?;
    if front[12..14] != TYPE_IP.to_be_bytes() {
        return None;
    }
    let ip = Ipv4HeaderSlice::from_slice(&front[ETHERNET_HEADER_BYTES..there]).ok()?;
    let behind = ETHERNET_HEADER_BYTES + ip.slice().len();
    if ip.protocol() != IpNumber::TCP || ip.is_fragmenting_payload() {
        return None;
    }
    let tcp = TcpHeaderSlice::from_slice(&front[behind..there]).ok()?;
    Some(behind + tcp.slice().len())
}
