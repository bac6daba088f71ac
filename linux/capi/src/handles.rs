//! The tables of this process.
//!
//! # What it holds
//! One table a kind. They are made at the first call, and live as long as the process.
//!
//! # Forked children
//! `fork` copies the tables with whatever lock another thread holds at that moment, and their values are the
//! parent's. So a child has new ones: the handler that runs in it only forgets which tables are current, and
//! the next call makes others, whose entries begin behind all of the parent's. So a handle of the parent's is
//! known for what it is. The former tables are kept, and never looked at.

use crate::ends::{ReceiverEnd, SenderEnd};
use crate::table::{self, Kind, Table};
use crate::tokens::{LentToken, LoanToken};
use pageferry::{Buffer, Listener};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One table a kind of handle.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) senders: Table<SenderEnd>,
    pub(crate) receivers: Table<ReceiverEnd>,
    pub(crate) listeners: Table<Listener>,
    pub(crate) buffers: Table<Buffer>,
    pub(crate) lents: Table<LentToken>,
    pub(crate) loans: Table<LoanToken>,
    /// The parent's, to be found by tools that look for lost memory.
    _before: *mut Tables,
}

static CURRENT: AtomicPtr<Tables> = AtomicPtr::new(null_mut());
static BEFORE: AtomicPtr<Tables> = AtomicPtr::new(null_mut());

impl Tables {
    fn new(first: u32) -> Tables {
        Tables {
            senders: Table::new(Kind::Sender, first, false),
            receivers: Table::new(Kind::Receiver, first, false),
            listeners: Table::new(Kind::Listener, first, false),
            buffers: Table::new(Kind::Buffer, first, true),
            lents: Table::new(Kind::Lent, first, false),
            loans: Table::new(Kind::Loan, first, true),
            _before: BEFORE.load(Ordering::Relaxed),
        }
    }

    /// This process's.
    pub(crate) fn get() -> &'static Tables {
        let current = CURRENT.load(Ordering::Acquire);
        if !current.is_null() {
            // SAFETY: made below, and never freed.
            return unsafe { &*current };
        }
        install();
        let made = Box::into_raw(Box::new(Tables::new(table::end())));
        match CURRENT.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: nobody frees what is current.
            Ok(_) => unsafe { &*made },
            Err(current) => {
                // SAFETY: it was made above, and nobody has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: as above.
                unsafe { &*current }
            }
        }
    }

    /// Handles that are live.
    pub(crate) fn live(&self) -> usize {
        self.senders.live()
            + self.receivers.live()
            + self.listeners.live()
            + self.buffers.live()
            + self.lents.live()
            + self.loans.live()
    }
}

/// Has the handler called in children from now on.
fn install() {
    static INSTALL: Once = Once::new();
    // SAFETY: the handler lives as long as the program (the shared library is never unloaded), and only stores to
    // variables.
    INSTALL.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

extern "C" fn in_child() {
    let parents = CURRENT.swap(null_mut(), Ordering::AcqRel);
    if !parents.is_null() {
        BEFORE.store(parents, Ordering::Relaxed);
    }
}
