//! System calls that fail on demand, and how often each is used.
//!
//! # Locks
//! One around what is to fail, one around the counts, each for the time of a look-up. Calls of a process in which
//! nothing is to fail take none.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

static FAILING: Mutex<BTreeMap<&'static str, FailingCall>> = Mutex::new(BTreeMap::new());
static USES: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());
/// Whether any call fails, or uses are counted.
static LOOKING: AtomicU64 = AtomicU64::new(0);

/// How a call fails.
struct FailingCall {
    errno: i32,
    /// Uses before that.
    after: u64,
    once: bool,
}

/// From now on the call fails with this error number, after it has succeeded `after` more times. The name is
/// the one in [`crate::sys::Failed`].
pub fn fail(call: &'static str, errno: i32, after: u64) {
    fails(call, FailingCall { errno, after, once: false });
}

/// The same, a single time.
pub fn fail_once(call: &'static str, errno: i32, after: u64) {
    fails(call, FailingCall { errno, after, once: true });
}

fn fails(call: &'static str, failing: FailingCall) {
    FAILING.lock().unwrap().insert(call, failing);
    LOOKING.store(1, Ordering::SeqCst);
}

/// All calls work again.
pub fn restore() {
    FAILING.lock().unwrap().clear();
    LOOKING.store(0, Ordering::SeqCst);
}

/// How often each call is used while `of` runs, by all threads.
pub fn uses(of: impl FnOnce()) -> BTreeMap<&'static str, u64> {
    USES.lock().unwrap().clear();
    LOOKING.store(1, Ordering::SeqCst);
    of();
    restore();
    USES.lock().unwrap().clone()
}

/// The error number with which a call is to fail now.
pub(crate) fn injected(call: &'static str) -> Option<i32> {
    if LOOKING.load(Ordering::Relaxed) == 0 {
        return None;
    }
    *USES.lock().unwrap().entry(call).or_default() += 1;
    let mut failing = FAILING.lock().unwrap();
    let FailingCall { errno, after, once } = failing.get_mut(call)?;
    if *after > 0 {
        *after -= 1;
        return None;
    }
    let errno = *errno;
    if *once {
        failing.remove(call);
    }
    Some(errno)
}
