//! Zero-copy receive (sf_buf paper, 2.3): pages for a driver to receive into, and what becomes of them.
//!
//! A receiver with room for a whole page at a page's address gets the page itself. Nothing is done to its mapping then:
//! that ends, and the page is unwired, when the mbuf's storage is freed. By the cache of sf_buf that is one reference
//! less on a mapping that stays; by the original scheme it is a change that every CPU is told of. To all other
//! receivers the bytes are copied through the mapping, as through the address of a cluster.
//!
//! # Locks
//! The pool's, for its counts. A page and its mapping belong to the owner of the mbuf.
//!
//! # What can fail
//! Getting a page. Where it has no mapping that is free at once, or disposable pages have their share of the cache, a
//! cluster stands in. A receiver may refuse pages: then they are as before.

use super::disposable::Disposable;
use super::mbuf::{HEADER_BYTES, Mbuf, Storage};
use super::pool::{NotDonated, Pool};
use crate::counter::KernelCounter;
use crate::defect::NetDefect;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_hal::{Access, Machine, PAGE_SIZE, SpinLock, Va};
use pageferry_vm::{Given, KernelPages, VmError};

impl<M: Machine> Pool<M> {
    /// A page for a driver to receive into: a disposable one, or a cluster where there is none.
    ///
    /// # Errors
    /// [`Errno::NoMemory`], at once.
    pub fn page_to_receive(&self) -> Result<Mbuf, Errno> {
        self.disposable().or_else(|_| {
            let cluster = self.cluster_for(None, PAGE_SIZE)?;
            self.machine.count(KernelCounter::ReceivePagesRefused, 1);
            Ok(cluster)
        })
    }

    fn disposable(&self) -> Result<Mbuf, Errno> {
        self.machine.execute(self.paths.cluster);
        {
            let mut state = self.state.lock();
            if state.clusters >= self.max_clusters || state.disposables >= self.max_disposables {
                return Err(Errno::NoMemory);
            }
            (state.clusters, state.disposables) = (state.clusters + 1, state.disposables + 1);
        }
        let disposable = self.disposables.make().inspect_err(|_| self.count_less(1))?;
        self.machine.count(KernelCounter::ReceivePages, 1);
        self.header_at(Storage::Disposable(Arc::new(disposable)), 0, PAGE_SIZE)
    }

    /// Gives the pages of donatable mbufs away, all of them disposable pages: `give` puts them somewhere, where they
    /// stay wired until the mbufs are freed; or gives them back, and all is as before. What it gets in exchange is
    /// freed.
    ///
    /// # Errors
    /// What `give` answered, with the mbufs.
    ///
    /// # Panics
    /// When there are no mbufs, or one shows something else.
    pub fn give_disposables(
        &self,
        mbufs: Vec<Mbuf>,
        give: impl FnOnce(KernelPages) -> Result<Given, (VmError, KernelPages)>,
    ) -> Result<Va, NotDonated> {
        let mut all: Option<KernelPages> = None;
        let mut left = Vec::with_capacity(mbufs.len());
        for mbuf in mbufs {
            let Storage::Disposable(shared) = mbuf.storage else {
                panic!("a page that is no disposable one")
            };
            let page = Arc::into_inner(shared).expect("a page that others show is not given away");
            match &mut all {
                None => all = Some(page.pages),
                Some(all) => all.append(page.pages),
            }
            left.push((mbuf.at, mbuf.len, page.mapping));
        }
        let count = left.len();
        match give(all.expect("at least one page is given away")) {
            Ok(Given { at: given, wired, exchanged }) => {
                self.machine.count(KernelCounter::PagesDonated, count as u64);
                exchanged.into_iter().for_each(|pages| self.vm.free_kernel_pages(pages));
                for (at, _, mapping) in left {
                    self.machine.execute(self.paths.mbuf);
                    self.machine.execute(self.paths.cluster);
                    self.machine.touch(at, HEADER_BYTES, Access::Write);
                    self.disposables.unmap(mapping);
                    self.state.lock().mbufs.free(at);
                }
                match self.defect.is(NetDefect::FlippedStaysWired) {
                    true => drop(wired),
                    false => self.vm.unwire(wired),
                }
                self.count_less(count);
                Ok(given)
            }
            Err((error, mut pages)) => {
                let mut back = Vec::with_capacity(count);
                for (at, len, mapping) in left {
                    let rest = pages.split_off(1);
                    let pages = core::mem::replace(&mut pages, rest);
                    let storage = Storage::Disposable(Arc::new(Disposable { pages, mapping }));
                    back.push(Mbuf { at, storage, offset: 0, len });
                }
                Err(self.refused(error, back))
            }
        }
    }
}
