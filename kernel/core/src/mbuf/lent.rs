//! Pages on loan in mbufs, and where the kernel finds their bytes.
//!
//! What a process or a file has lent stays where it is; a card reads it by its frames. So does what a process has only
//! *pinned*: its frames are wired, and nothing keeps it from writing there, so nobody gets such a page for his own.
//! Pages of a [receive area](super::area) are as those, and go back there. A kernel that wants the bytes itself, to sum
//! them or to copy them to a receiver on this host, needs an address for them. [`LentMapping`] says how it comes by
//! one: all pages in a row with the loan (UVM paper, 4.1); an ephemeral mapping a page, with the loan, which every CPU
//! may use, because any may send it again (sf_buf paper, 2.3); or one while it looks, of the CPU that looks. With a
//! direct map the first two take nothing.
//!
//! # Locks
//! None of its own. A mapping for looking is made without sleeping where a spin lock is held, as for checksums.
//!
//! # What can fail
//! Getting an address: with the loan, then it is given back; while looking, then the bytes are not seen.

use super::addresses::Addresses;
use super::area::{AreaPage, Areas};
use super::lending::{Lender, Lenders};
use crate::config::LentMapping;
use crate::defect::NetDefect;
use crate::proc::WaitFlag;
use crate::sched::{Sched, Waker};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_defects::Planted;
use pageferry_ephemeral::{Ephemeral, Flags, Mapping, MappingUser};
use pageferry_hal::{Machine, PAGE_SIZE, Pfn, Prot, Threads, Va, VaRange};
use pageferry_pmap::Reach;
use pageferry_vm::{KernelLoan, Vm, Wired};

/// What keeps pages where they are while mbufs show them.
#[derive(Debug)]
pub enum Lent {
    /// They are on loan: whoever writes to them gets a copy.
    Loan(KernelLoan),
    /// They are wired, and may be written.
    Pinned(Wired),
    /// A page of a receive area.
    Area(AreaPage),
}

impl Lent {
    /// Their frames.
    pub fn frames(&self) -> &[Pfn] {
        match self {
            Lent::Loan(loan) => loan.frames(),
            Lent::Pinned(wired) => wired.frames(),
            Lent::Area(page) => core::slice::from_ref(&page.frame),
        }
    }

    /// Where in the first frame the data begins, in bytes, and how much it is.
    pub(super) fn bytes(&self) -> (usize, usize) {
        match self {
            Lent::Loan(loan) => (loan.offset(), loan.len_bytes()),
            Lent::Pinned(wired) => (wired.offset(), wired.len_bytes()),
            Lent::Area(_) => (0, PAGE_SIZE),
        }
    }
}

/// Pages of others, and where the kernel has mapped them.
#[derive(Debug)]
pub(super) struct External {
    lent: Lent,
    /// The lender that is to be notified when it is over.
    lender: Option<Lender>,
    mapped: Mapped,
}

/// Where the kernel finds the bytes.
#[derive(Debug)]
enum Mapped {
    /// In the direct map.
    Direct,
    /// In addresses of their own.
    Run(VaRange),
    /// Each page for itself.
    Pages(Vec<Mapping>),
    /// Nowhere but while they are looked at.
    Nowhere,
}

impl External {
    /// The loan, if they are on loan.
    pub(super) fn loan(&self) -> Option<&KernelLoan> {
        match &self.lent {
            Lent::Loan(loan) => Some(loan),
            Lent::Pinned(_) | Lent::Area(_) => None,
        }
    }

    /// The page, if it is one of a receive area.
    pub(super) fn area_page(&self) -> Option<&AreaPage> {
        match &self.lent {
            Lent::Area(page) => Some(page),
            Lent::Loan(_) | Lent::Pinned(_) => None,
        }
    }

    /// The page of a receive area that is all that it was.
    ///
    /// # Panics
    /// When it is something else.
    pub(super) fn into_area_page(self) -> Option<AreaPage> {
        match self.lent {
            Lent::Area(page) => Some(page),
            Lent::Loan(_) | Lent::Pinned(_) => panic!("a loan is given back to its lender, and to no area"),
        }
    }

    pub(super) fn frames(&self) -> &[Pfn] {
        self.lent.frames()
    }

    /// Bytes in a row have addresses in a row across pages, too.
    fn is_run(&self) -> bool {
        matches!(self.mapped, Mapped::Run(_))
    }
}

/// Makes loans visible to the kernel, and ends them.
pub(super) struct Loans<M: Machine> {
    vm: Arc<Vm<M>>,
    ephemeral: Arc<Ephemeral<M, Vm<M>>>,
    addresses: Addresses<M>,
    lenders: Arc<Lenders<M>>,
    pub(super) areas: Areas<M>,
    /// For waking those that wait for a mapping, where the calling thread is not known.
    waker: Waker<M>,
    mapping: LentMapping,
    defect: Planted<NetDefect>,
}

impl<M: Machine> Loans<M> {
    pub(super) fn new(
        vm: Arc<Vm<M>>,
        ephemeral: Arc<Ephemeral<M, Vm<M>>>,
        (sched, lenders): (&Arc<Sched<M>>, Arc<Lenders<M>>),
        areas: Areas<M>,
        (mapping, defect): (LentMapping, Planted<NetDefect>),
    ) -> Loans<M> {
        let flush_at = ephemeral.flush_policy().at;
        let (addresses, waker) = (Addresses::new(vm.clone(), flush_at), Waker::new(sched));
        Loans { vm, ephemeral, addresses, lenders, areas, waker, mapping, defect }
    }

    pub(super) fn waker(&self) -> &dyn Threads {
        &self.waker
    }

    fn has(&self, defect: NetDefect) -> bool {
        self.defect.is(defect)
    }

    /// Takes a loan over. A `sleeper` waits for an address where it may have to.
    ///
    /// # Locks
    /// With a `sleeper`, which then holds no other mapping that it waits with, no spin lock may be held.
    ///
    /// # Errors
    /// [`Errno::NoMemory`], [`Errno::Interrupted`]; the loan has gone back.
    pub(super) fn take(
        &self,
        sleeper: Option<&dyn Threads>,
        lent: Lent,
        lender: Option<Lender>,
    ) -> Result<External, Errno> {
        let lender = match lender {
            Some(lender) if self.has(NetDefect::LenderToldEarly) => {
                self.lenders.returned(lender, lent.frames().len());
                None
            }
            lender => lender,
        };
        let mapped = match lent {
            // A card fills it, and nobody else looks there but the process; or the kernel, when it copies.
            Lent::Area(_) => Ok(Mapped::Nowhere),
            _ => self.map_lent(sleeper, lent.frames()),
        };
        match mapped {
            Ok(mapped) => Ok(External { lent, lender, mapped }),
            Err(e) => {
                self.give_back(lent, lender);
                Err(e)
            }
        }
    }

    fn map_lent(&self, sleeper: Option<&dyn Threads>, frames: &[Pfn]) -> Result<Mapped, Errno> {
        match self.mapping {
            LentMapping::WhileRead => Ok(Mapped::Nowhere),
            // Nothing is written through it: the pages are to stay as they are.
            LentMapping::Run => {
                Ok(self.addresses.map(frames, Prot::READ)?.map_or(Mapped::Direct, Mapped::Run))
            }
            LentMapping::Pages => {
                let mut mappings = Vec::with_capacity(frames.len());
                for &frame in frames {
                    // One that holds some must not wait for more: others may do the same.
                    let waits = sleeper.filter(|_| mappings.is_empty());
                    let private = self.has(NetDefect::LentMappingPrivate);
                    let private = if private { Flags::PRIVATE } else { Flags::empty() };
                    let waiting = if waits.is_some() { Flags::INTERRUPTIBLE } else { Flags::NOWAIT };
                    let threads = sleeper.unwrap_or(&self.waker);
                    let made = self.ephemeral.alloc(threads, frame, MappingUser::Socket, waiting | private);
                    match made {
                        Ok(mapping) => mappings.push(mapping),
                        Err(e) => {
                            self.unmap_lent(Mapped::Pages(mappings));
                            return Err(e.into());
                        }
                    }
                }
                Ok(Mapped::Pages(mappings))
            }
        }
    }

    fn unmap_lent(&self, mapped: Mapped) {
        match mapped {
            Mapped::Direct | Mapped::Nowhere => {}
            Mapped::Run(range) => self.addresses.unmap(Some(range)),
            Mapped::Pages(mappings) if self.has(NetDefect::LentMappingKept) => drop(mappings),
            Mapped::Pages(mappings) => {
                mappings.into_iter().for_each(|mapping| self.ephemeral.free(&self.waker, mapping));
            }
        }
    }

    /// The last mbuf over it is gone.
    pub(super) fn end(&self, External { lent, lender, mapped }: External) {
        self.unmap_lent(mapped);
        self.give_back(lent, lender);
    }

    fn give_back(&self, lent: Lent, lender: Option<Lender>) {
        let len_pages = lent.frames().len();
        match lent {
            Lent::Loan(loan) => self.vm.unloan(loan),
            Lent::Pinned(wired) => self.vm.unwire(wired),
            Lent::Area(page) => self.areas.returned([page]),
        }
        let told = lender.into_iter().filter(|_| !self.has(NetDefect::LenderNotTold));
        told.for_each(|lender| self.lenders.returned(lender, len_pages));
    }

    /// The address of the byte `at` of its pages, if they are mapped all the time.
    fn va(&self, external: &External, at: usize) -> Option<Va> {
        let page = at / PAGE_SIZE;
        Some(match &external.mapped {
            Mapped::Direct => {
                let frame = external.lent.frames()[page];
                self.addresses.direct(frame, Reach::Read) + at % PAGE_SIZE
            }
            Mapped::Run(range) => range.start() + at,
            Mapped::Pages(mappings) => self.ephemeral.kva(&mappings[page]) + at % PAGE_SIZE,
            Mapped::Nowhere => return None,
        })
    }

    /// Calls `look` with an address of the byte at `position` of a loan's pages, and how many bytes from there on, at
    /// most `max`, are in a row; as [`Pool::look`](super::Pool).
    ///
    /// # Errors
    /// [`Errno::WouldBlock`], or where it waits [`Errno::Interrupted`]; [`Errno::NoMemory`]. Nothing was looked at.
    pub(super) fn look<R>(
        &self,
        (threads, wait): (&dyn Threads, WaitFlag),
        external: &External,
        position: usize,
        max: usize,
        look: impl FnOnce(Va, usize) -> R,
    ) -> Result<R, Errno> {
        let in_page = max.min(PAGE_SIZE - position % PAGE_SIZE);
        if let Some(va) = self.va(external, position) {
            return Ok(look(va, if external.is_run() { max } else { in_page }));
        }
        let frame = external.lent.frames()[position / PAGE_SIZE];
        let patience = match wait {
            WaitFlag::WaitOk => Flags::INTERRUPTIBLE,
            WaitFlag::NoWait => Flags::NOWAIT,
        };
        let flags = Flags::PRIVATE | patience;
        threads.pin();
        let result = self.ephemeral.alloc(threads, frame, MappingUser::Socket, flags).map(|mapping| {
            let result = look(self.ephemeral.kva(&mapping) + position % PAGE_SIZE, in_page);
            self.ephemeral.free(threads, mapping);
            result
        });
        threads.unpin();
        Ok(result?)
    }
}
