//! Errors as C sees them: a number that says who is to blame, and a text for people.
//!
//! # What it holds
//! `Fault`, what a call fails with. `call` runs a call: it keeps the fault for its thread, to be asked
//! for by [`pf_last_error`], and lets no panic out.

use core::ffi::{CStr, c_char, c_int};
use pageferry::{Broken, Error, HostFault, PeerFault};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The call has done what it says.
pub const PF_OK: c_int = 0;
/// The peer has closed its side, or its process has ended, and all that it had sent was received. The peer is
/// to blame.
pub const PF_EPEER_DEAD: c_int = 101;
/// The peer sends no more to this receiver, which gave its messages back too late. The peer has decided so.
pub const PF_EPEER_EVICTED: c_int = 102;
/// The peer broke the protocol. The channel is closed for good; what was received before stays valid. The
/// peer is to blame.
pub const PF_EPEER_BROKEN: c_int = 103;
/// The peer refused the channel, and pf_last_error() has its reason. Of the two sides one is to blame: the
/// reason says which.
pub const PF_EPEER_REFUSED: c_int = 104;
/// The peer is none for this side: another version of the wire, another machine, or it lacks the level that
/// is required.
pub const PF_EPEER_UNFIT: c_int = 105;
/// A system call failed: pf_last_errno() says how, pf_last_error() which. The host is to blame.
pub const PF_EHOST: c_int = 201;
/// The host's kernel does not have what was asked for: pf_last_error() says what would have to be changed.
pub const PF_EHOST_UNSUPPORTED: c_int = 202;
/// Memory that this side has set aside for the channel does not suffice: messages or handles were not given
/// back, or the budget is too small.
pub const PF_EBUDGET: c_int = 301;
/// The caller asked for what cannot be: a handle that is NULL, freed, of another kind, of another process or
/// in use by another thread; a value that is out of range; a verb that the channel does not have. The caller
/// is to blame.
pub const PF_EUSAGE: c_int = 401;
/// Nothing can be done without waiting, and the call was not to wait. Nobody is to blame.
pub const PF_EWOULDBLOCK: c_int = 501;
/// The time is up. Nobody is to blame.
pub const PF_ETIMEDOUT: c_int = 502;
/// A defect of this library. It is a bug, and pf_last_error() has what to report.
pub const PF_EINTERNAL: c_int = 601;

/// Nobody is to blame: success, or it would have taken longer.
pub const PF_BLAME_NOBODY: c_int = 0;
/// The process at the other end.
pub const PF_BLAME_PEER: c_int = 1;
/// The machine, its kernel, or its limits.
pub const PF_BLAME_HOST: c_int = 2;
/// What this side has set aside.
pub const PF_BLAME_BUDGET: c_int = 3;
/// Who calls.
pub const PF_BLAME_CALLER: c_int = 4;
/// This library.
pub const PF_BLAME_LIBRARY: c_int = 5;

/// The last call of this thread that failed did not fail by a peer's fault.
pub const PF_PEER_NONE: c_int = 0;
/// It is gone.
pub const PF_PEER_DEAD: c_int = 1;
/// It sends no more, since this receiver was too slow.
pub const PF_PEER_EVICTED: c_int = 2;
/// It refused the channel.
pub const PF_PEER_REFUSED: c_int = 3;
/// It does not fit this side.
pub const PF_PEER_UNFIT: c_int = 4;
/// It broke the protocol in a way that has no number here.
pub const PF_PEER_BROKEN: c_int = 16;
/// A counter of its ring cannot be.
pub const PF_PEER_BROKEN_RING: c_int = 17;
/// A message that it sent cannot be.
pub const PF_PEER_BROKEN_MESSAGE: c_int = 18;
/// It gave back what it did not have.
pub const PF_PEER_BROKEN_RETURN: c_int = 19;
/// The handshake, or a message of the socket.
pub const PF_PEER_BROKEN_HANDSHAKE: c_int = 20;
/// Memory that it sent lacks the seals that keep it as it is.
pub const PF_PEER_BROKEN_NOT_SEALED: c_int = 21;
/// Memory that it sent has another size than it said.
pub const PF_PEER_BROKEN_SIZE: c_int = 22;
/// It tried to write to memory that it had lent.
pub const PF_PEER_BROKEN_LEASE: c_int = 23;
/// It keeps a lease, or lacks a permission, on memory that goes to and fro.
pub const PF_PEER_BROKEN_SLOT: c_int = 24;
/// Descriptors that it sent were lost: this process has reached its limit of them (`ulimit -n`).
pub const PF_PEER_BROKEN_DESCRIPTORS: c_int = 25;

/// What a call fails with.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    code: c_int,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Said(String),
    /// The text is made when somebody asks for it: a program that polls gets many of them.
    Error(Error),
}

impl Fault {
    /// The caller is to blame.
    pub(crate) fn usage(said: String) -> Fault {
        Fault { code: PF_EUSAGE, what: What::Said(said) }
    }

    pub(crate) fn budget(said: String) -> Fault {
        Fault { code: PF_EBUDGET, what: What::Said(said) }
    }

    /// A system call of this crate's own.
    pub(crate) fn host(call: &'static str, errno: rustix::io::Errno) -> Fault {
        let failed = pageferry::Failed { call, errno };
        Error::from(HostFault::Failed { failed }).into()
    }

    fn internal(panic: &(dyn Any + Send)) -> Fault {
        let said = panic
            .downcast_ref::<&str>()
            .map(|said| (*said).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "it does not say why".to_owned());
        Fault { code: PF_EINTERNAL, what: What::Said(format!("a defect of this library: {said}")) }
    }

    fn text(&self) -> String {
        match &self.what {
            What::Said(said) => said.clone(),
            What::Error(error) => error.to_string(),
        }
    }

    fn errno(&self) -> c_int {
        match &self.what {
            What::Error(Error::Host(HostFault::Failed { failed })) => failed.errno.raw_os_error(),
            _ => 0,
        }
    }

    fn peer(&self) -> c_int {
        let What::Error(Error::Peer(fault)) = &self.what else { return PF_PEER_NONE };
        match fault {
            PeerFault::Dead => PF_PEER_DEAD,
            PeerFault::Evicted => PF_PEER_EVICTED,
            PeerFault::Refused(_) => PF_PEER_REFUSED,
            PeerFault::Unfit(_) => PF_PEER_UNFIT,
            PeerFault::Broken(broken) => match broken {
                Broken::Ring(_) => PF_PEER_BROKEN_RING,
                Broken::Descriptor { .. } => PF_PEER_BROKEN_MESSAGE,
                Broken::Acknowledgement { .. } => PF_PEER_BROKEN_RETURN,
                Broken::Handshake(_) => PF_PEER_BROKEN_HANDSHAKE,
                Broken::NotSealed { .. } => PF_PEER_BROKEN_NOT_SEALED,
                Broken::Size { .. } => PF_PEER_BROKEN_SIZE,
                Broken::LeaseBroken => PF_PEER_BROKEN_LEASE,
                Broken::LeaseKept | Broken::SlotClosed => PF_PEER_BROKEN_SLOT,
                Broken::DescriptorsLost => PF_PEER_BROKEN_DESCRIPTORS,
                _ => PF_PEER_BROKEN,
            },
            _ => PF_PEER_BROKEN,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let code = match &error {
            Error::Peer(PeerFault::Dead) => PF_EPEER_DEAD,
            Error::Peer(PeerFault::Evicted) => PF_EPEER_EVICTED,
            Error::Peer(PeerFault::Refused(_)) => PF_EPEER_REFUSED,
            Error::Peer(PeerFault::Unfit(_)) => PF_EPEER_UNFIT,
            Error::Peer(_) => PF_EPEER_BROKEN,
            Error::Host(HostFault::Unsupported { .. }) => PF_EHOST_UNSUPPORTED,
            Error::Host(_) => PF_EHOST,
            Error::Budget { .. } => PF_EBUDGET,
            Error::Usage(_) => PF_EUSAGE,
            Error::WouldBlock => PF_EWOULDBLOCK,
            Error::TimedOut(_) => PF_ETIMEDOUT,
            _ => PF_EINTERNAL,
        };
        Fault { code, what: What::Error(error) }
    }
}

#[derive(Debug)]
struct Last {
    fault: Option<Fault>,
    /// What [`pf_last_error`] has given out. It stays where it is until it is asked again.
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { fault: None, text: CString::default() });
}

/// Runs a call.
pub(crate) fn call(does: impl FnOnce() -> Result<(), Fault>) -> c_int {
    // What a panic leaves half done is a value that nobody sees again, or one behind a lock that says so.
    let fault = match catch_unwind(AssertUnwindSafe(does)) {
        Ok(Ok(())) => return PF_OK,
        Ok(Err(fault)) => fault,
        Err(panic) => {
            let fault = Fault::internal(panic.as_ref());
            // Its destructor is anybody's, and might panic.
            core::mem::forget(panic);
            fault
        }
    };
    let code = fault.code;
    // A thread that is ending has no such place any more.
    let _ = LAST.try_with(|last| last.borrow_mut().fault = Some(fault));
    code
}

fn last<R>(ask: impl FnOnce(&Fault) -> R) -> Option<R> {
    LAST.try_with(|last| last.borrow().fault.as_ref().map(ask)).ok().flatten()
}

/// One line about a code of this library, for people. It never fails: an unknown code is said to be one. The
/// text is constant. Any thread may call it, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn pf_strerror(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        PF_OK => c"no error",
        PF_EPEER_DEAD => c"the peer is gone",
        PF_EPEER_EVICTED => c"the peer sends no more: this receiver was too slow",
        PF_EPEER_BROKEN => c"the peer broke the protocol",
        PF_EPEER_REFUSED => c"the peer refused the channel",
        PF_EPEER_UNFIT => c"the peer does not fit this side",
        PF_EHOST => c"a system call failed",
        PF_EHOST_UNSUPPORTED => c"the kernel of this host does not have it",
        PF_EBUDGET => c"the memory that is set aside does not suffice",
        PF_EUSAGE => c"the caller asked for what cannot be",
        PF_EWOULDBLOCK => c"nothing can be done without waiting",
        PF_ETIMEDOUT => c"the time is up",
        PF_EINTERNAL => c"a defect of the library",
        _ => c"no error code of pageferry",
    };
    text.as_ptr()
}

/// Who is to blame for a code: one of PF_BLAME_*. An unknown code is the caller's. It never fails.
#[unsafe(no_mangle)]
pub extern "C" fn pf_blame(code: c_int) -> c_int {
    match code / 100 {
        _ if code == PF_OK => PF_BLAME_NOBODY,
        1 => PF_BLAME_PEER,
        2 => PF_BLAME_HOST,
        3 => PF_BLAME_BUDGET,
        5 => PF_BLAME_NOBODY,
        6 => PF_BLAME_LIBRARY,
        _ => PF_BLAME_CALLER,
    }
}

/// What the last call of this thread that failed says of it, for people: which argument, which system call,
/// who holds the memory. "" before the first failure. A call that succeeds leaves it as it is. The text is
/// the library's, and stays valid until this thread calls this function again, or ends.
#[unsafe(no_mangle)]
pub extern "C" fn pf_last_error() -> *const c_char {
    LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let text = last.fault.as_ref().map(Fault::text).unwrap_or_default();
        last.text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        last.text.as_ptr()
    })
    .unwrap_or(c"".as_ptr())
}

/// What the peer did, where the last call of this thread that failed failed by its fault: one of PF_PEER_*.
#[unsafe(no_mangle)]
pub extern "C" fn pf_last_peer_fault() -> c_int {
    last(Fault::peer).unwrap_or(PF_PEER_NONE)
}

/// The kernel's error number (as `errno`), where the last call of this thread that failed did so with
/// PF_EHOST; 0 otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn pf_last_errno() -> c_int {
    last(Fault::errno).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_text() -> String {
        // SAFETY: the library's own text, valid until the next call.
        unsafe { CStr::from_ptr(pf_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_next_call_works() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        assert_eq!(call(|| panic!("number {}", 7)), PF_EINTERNAL);
        assert_eq!(last_text(), "a defect of this library: number 7");
        assert_eq!(call(|| std::panic::panic_any(Bomb)), PF_EINTERNAL);
        std::panic::set_hook(hook);
        assert_eq!(call(|| Ok(())), PF_OK);
        assert_eq!(pf_blame(PF_EINTERNAL), PF_BLAME_LIBRARY);
    }

    #[test]
    fn every_code_has_a_text_and_somebody_to_blame() {
        let codes = [
            (PF_OK, PF_BLAME_NOBODY),
            (PF_EPEER_DEAD, PF_BLAME_PEER),
            (PF_EPEER_EVICTED, PF_BLAME_PEER),
            (PF_EPEER_BROKEN, PF_BLAME_PEER),
            (PF_EPEER_REFUSED, PF_BLAME_PEER),
            (PF_EPEER_UNFIT, PF_BLAME_PEER),
            (PF_EHOST, PF_BLAME_HOST),
            (PF_EHOST_UNSUPPORTED, PF_BLAME_HOST),
            (PF_EBUDGET, PF_BLAME_BUDGET),
            (PF_EUSAGE, PF_BLAME_CALLER),
            (PF_EWOULDBLOCK, PF_BLAME_NOBODY),
            (PF_ETIMEDOUT, PF_BLAME_NOBODY),
            (PF_EINTERNAL, PF_BLAME_LIBRARY),
        ];
        // SAFETY: constant texts.
        let text = |code| unsafe { CStr::from_ptr(pf_strerror(code)) }.to_str().unwrap();
        let unknown = text(-1);
        for (code, blame) in codes {
            assert_ne!(text(code), unknown, "{code}");
            assert_eq!(pf_blame(code), blame, "{code}");
        }
        for code in [-1, 1, 99, 100, 199, 701, c_int::MAX, c_int::MIN] {
            assert_eq!(text(code), unknown, "{code}");
        }
    }

    #[test]
    fn a_thread_has_its_own_last_error() {
        assert_eq!(call(|| Err(Fault::usage("here".to_owned()))), PF_EUSAGE);
        std::thread::spawn(|| assert_eq!(last_text(), "")).join().unwrap();
        assert_eq!(last_text(), "here");
        assert_eq!(call(|| Err(Error::Peer(PeerFault::Broken(Broken::LeaseBroken)).into())), PF_EPEER_BROKEN);
        assert_eq!((pf_last_peer_fault(), pf_last_errno()), (PF_PEER_BROKEN_LEASE, 0));
        assert_eq!(call(|| Err(Fault::usage("nul \0 byte".to_owned()))), PF_EUSAGE);
        assert_eq!((last_text(), pf_last_peer_fault()), ("nul   byte".to_owned(), PF_PEER_NONE));
    }
}
