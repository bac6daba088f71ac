//! Chains of mbufs: packets, and parts of streams (4.4BSD, `uipc_mbuf.c`).
//!
//! A [`Chain`] owns its mbufs, in order, and knows how many bytes they have. Bytes are read and written where they are,
//! through the addresses that the kernel has for them; only headers are looked at byte by byte.
//!
//! # Locks
//! None: the owner of a chain is the only one that looks. The pool's lock is taken for each mbuf that is made or freed.
//!
//! # What can fail
//! Making mbufs. A chain that is dropped with mbufs in it has lost them: they are to be given back with
//! [`Chain::free`].

use super::mbuf::Mbuf;
use super::pool::Pool;
use crate::proc::WaitFlag;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use etherparse::checksum::Sum16BitWords;
use pageferry_abi::Errno;
use pageferry_hal::{Cause, CodePath, Instructions, Machine, Mode, PAGE_SIZE};

/// Mbufs in order: the bytes of a packet or a record.
#[derive(Default)]
#[must_use = "a chain has mbufs, which must be freed"]
pub struct Chain {
    mbufs: VecDeque<Mbuf>,
    len: usize,
}

impl Chain {
    /// Without mbufs.
    pub fn new() -> Chain {
        Chain::default()
    }

    /// Bytes in all of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No byte is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its mbufs, from the front.
    pub fn iter(&self) -> impl Iterator<Item = &Mbuf> {
        self.mbufs.iter()
    }

    /// Puts an mbuf behind them.
    pub fn push_back(&mut self, mbuf: Mbuf) {
        self.len += mbuf.len();
        self.mbufs.push_back(mbuf);
    }

    /// Takes the first one out.
    pub fn pop_front(&mut self) -> Option<Mbuf> {
        let mbuf = self.mbufs.pop_front()?;
        self.len -= mbuf.len();
        Some(mbuf)
    }

    /// Its mbufs, in order, which are the caller's from now on.
    pub fn into_mbufs(self) -> Vec<Mbuf> {
        self.mbufs.into()
    }

    /// Gives all back.
    pub fn free<M: Machine>(mut self, pool: &Pool<M>) {
        self.mbufs.drain(..).for_each(|mbuf| pool.free(mbuf));
    }

    /// Drops the first `len` bytes (`m_adj`), and the mbufs that are empty then.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn drop_front<M: Machine>(&mut self, pool: &Pool<M>, len: usize) {
        assert!(len <= self.len, "{len} bytes are dropped of {}", self.len);
        self.len -= len;
        let mut left = len;
        while let Some(first) = self.mbufs.front_mut() {
            let part = first.len().min(left);
            first.advance(part);
            left -= part;
            if !first.is_empty() {
                break;
            }
            let empty = self.mbufs.pop_front().expect("just seen");
            pool.free(empty);
        }
    }

    /// Drops all but the first `len` bytes.
    pub fn keep_front<M: Machine>(&mut self, pool: &Pool<M>, len: usize) {
        while self.len > len {
            let last = self.mbufs.back_mut().expect("it has bytes");
            let surplus = self.len - len;
            if surplus < last.len() {
                let keep = last.len() - surplus;
                last.truncate(keep);
                self.len = len;
            } else {
                let last = self.mbufs.pop_back().expect("just seen");
                self.len -= last.len();
                pool.free(last);
            }
        }
    }

    /// Puts `header` in front, in the room that the first mbuf has or in a new one (`M_PREPEND`).
    ///
    /// # Errors
    /// [`Errno::NoMemory`]; the chain is as before.
    pub fn prepend<M: Machine>(&mut self, pool: &Pool<M>, header: &[u8]) -> Result<(), Errno> {
        if self.mbufs.front().is_none_or(|first| first.leading_space() < header.len()) {
            let first = pool.for_headers()?;
            self.mbufs.push_front(first);
        }
        let first = self.mbufs.front_mut().expect("there is one");
        first.prepend(header.len());
        self.len += header.len();
        let at = pool.address(first, 0..header.len());
        pool.machine().store(Mode::Kernel, at, header).expect("the kernel's own addresses are mapped");
        Ok(())
    }

    /// Puts `header` in front in an mbuf of its own: what follows may be shared.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]; the chain is as before.
    pub fn put_in_front<M: Machine>(&mut self, pool: &Pool<M>, header: &[u8]) -> Result<(), Errno> {
        let first = pool.for_headers()?;
        self.mbufs.push_front(first);
        self.prepend(pool, header)
    }

    /// Bytes from `from` on, into `buffer`; answers how many there were, up to the first that there was no address for.
    pub fn load<M: Machine>(&self, pool: &Pool<M>, from: usize, buffer: &mut [u8]) -> usize {
        load(self.mbufs.iter(), pool, from, buffer)
    }

    /// Writes `bytes` over those at `at`.
    ///
    /// # Panics
    /// When they are not all in the first mbuf, which is to be the chain's own.
    pub fn overwrite<M: Machine>(&mut self, pool: &Pool<M>, at: usize, bytes: &[u8]) {
        let first = self.mbufs.front().expect("there is one");
        assert!(at + bytes.len() <= first.len(), "what is overwritten is a header");
        let to = pool.address(first, at..at + bytes.len());
        pool.machine().store(Mode::Kernel, to, bytes).expect("the kernel's own addresses are mapped");
    }

    /// The ones' complement sum of all bytes, read by the CPU, and of what `sum` has already.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: there was no address for some of them.
    pub fn sum<M: Machine>(
        &self,
        pool: &Pool<M>,
        mut sum: Sum16BitWords,
        path: CodePath,
    ) -> Result<Sum16BitWords, Errno> {
        /// A multiple of two, so that words do not straddle.
        const AT_A_TIME: usize = 512;
        let m = pool.machine();
        let _c = m.scope(Cause::Checksum);
        let mut buffer = [0; AT_A_TIME];
        let mut at = 0;
        while at < self.len {
            let len = (self.len - at).min(AT_A_TIME);
            if self.load(pool, at, &mut buffer[..len]) < len {
                return Err(Errno::NoMemory);
            }
            m.execute(Instructions(path.instructions.0 * len.div_ceil(SUM_STEP) as u32));
            sum = sum.add_slice(&buffer[..len]);
            at += len;
        }
        Ok(sum)
    }
}

/// Bytes that one step of a checksum's loop takes (4.4BSD's `in_cksum` is unrolled to 32).
const SUM_STEP: usize = 32;

/// Bytes of some mbufs from `from` on, into `buffer`; answers how many there were, up to the first that there was no
/// address for.
fn load<'a, M: Machine>(
    mbufs: impl Iterator<Item = &'a Mbuf>,
    pool: &Pool<M>,
    from: usize,
    buffer: &mut [u8],
) -> usize {
    let (mut skip, mut done) = (from, 0);
    for mbuf in mbufs {
        if done == buffer.len() {
            break;
        }
        if skip >= mbuf.len() {
            skip -= mbuf.len();
            continue;
        }
        let mut at = core::mem::take(&mut skip);
        let end = mbuf.len().min(at + buffer.len() - done);
        while at < end {
            let loaded = pool.look((pool.waker(), WaitFlag::NoWait), mbuf, at, end - at, |va, piece| {
                let loaded = pool.machine().load(Mode::Kernel, va, &mut buffer[done..done + piece]);
                loaded.expect("the kernel's own addresses are mapped");
                piece
            });
            let Ok(piece) = loaded else { return done };
            (at, done) = (at + piece, done + piece);
        }
    }
    done
}

/// Another chain over `len` bytes from `from` on of some mbufs: shared where they are in pages, copied where they are
/// small (`m_copym`).
///
/// # Errors
/// [`Errno::NoMemory`].
///
/// # Panics
/// When there are not so many bytes.
pub fn share<'a, M: Machine>(
    mbufs: impl Iterator<Item = &'a Mbuf>,
    pool: &Pool<M>,
    from: usize,
    len: usize,
) -> Result<Chain, Errno> {
    let (mut chain, mut skip) = (Chain::new(), from);
    for mbuf in mbufs {
        if chain.len() == len {
            break;
        }
        if skip >= mbuf.len() {
            skip -= mbuf.len();
            continue;
        }
        let start = core::mem::take(&mut skip);
        let end = mbuf.len().min(start + len - chain.len());
        match pool.share_range(mbuf, start..end) {
            Ok(part) => chain.push_back(part),
            Err(e) => {
                chain.free(pool);
                return Err(e);
            }
        }
    }
    assert_eq!(chain.len(), len, "as many bytes as are to be shared");
    Ok(chain)
}

/// Bytes for a chain, from where the kernel has them: into clusters.
///
/// # Errors
/// [`Errno::NoMemory`].
pub fn from_bytes<M: Machine>(pool: &Pool<M>, bytes: &[u8]) -> Result<Chain, Errno> {
    let mut chain = Chain::new();
    for part in bytes.chunks(PAGE_SIZE) {
        let mut rest = part;
        while !rest.is_empty() {
            let mbuf = match pool.alloc(rest.len()) {
                Ok(mbuf) => mbuf,
                Err(e) => {
                    chain.free(pool);
                    return Err(e);
                }
            };
            let (now, later) = rest.split_at(mbuf.len());
            let to = pool.address(&mbuf, 0..now.len());
            pool.machine().store(Mode::Kernel, to, now).expect("the kernel's own addresses are mapped");
            chain.push_back(mbuf);
            rest = later;
        }
    }
    Ok(chain)
}
