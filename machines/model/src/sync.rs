//! Atomics for code under test, in place of those of `core::sync::atomic`: a lock of one's own, a flag, a counter.
//!
//! ```
//! # use pageferry_model::{MachineConfig, Options, testing};
//! # use std::rc::Rc;
//! use pageferry_hal::{CpuId, Machine};
//! // In a kernel: `#[cfg(not(test))] use core::sync::atomic;` and `#[cfg(test)] use pageferry_model::sync as atomic;`
//! use pageferry_model::sync::{AtomicBool, Ordering, spin_loop};
//!
//! # let machine = MachineConfig::named("xeon-mp").expect("it is built in");
//! testing::seeds(&machine, Options::default(), 0..20, |m| {
//!     let ready = Rc::new(AtomicBool::new(false));
//!     let theirs = ready.clone();
//!     let other = m.context_new("other", Box::new(move || {
//!         theirs.store(true, Ordering::Release);
//!         None
//!     }));
//!     m.start_cpu(CpuId(1), other);
//!     while !ready.load(Ordering::Acquire) {
//!         spin_loop();
//!     }
//!     None
//! });
//! ```
//!
//! # Model
//! A value is an atomic of `core`, and stays what it is outside of a run. In a run, of [`Model::run`](crate::Model) on
//! the same host thread, each operation is a call on that machine: other CPUs may come before it, by seed or by time,
//! and it costs an instruction. One that may write costs what an atomic costs on that machine, if it has several CPUs;
//! and what lies in another package's cache comes from there, for the price that a lock's line has. A line that two
//! packages read is in both; a write leaves it in one.
//!
//! The order of memory is that of the calls, whatever [`Ordering`] says: a barrier that is missing is not found.
//!
//! # Failure
//! CPUs that do nothing but read atomics, or try in vain to change them, do so [`Options::spin_limit`] times: then the
//! run ends with [`RunError::Spinning`]. What another call on the machine is made in between counts as progress, other
//! than [`spin_loop`].
//!
//! In what is handed to [`spin_until`] and [`idle_until`], which look at memory alone, a read is only that.
//!
//! [`Options::spin_limit`]: crate::Options::spin_limit
//! [`RunError::Spinning`]: crate::RunError::Spinning
//! [`spin_until`]: pageferry_hal::Machine::spin_until
//! [`idle_until`]: pageferry_hal::Machine::idle_until

use crate::machine::inner::Inner;
use crate::mmu::access::Site;
use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic as host;

pub use std::sync::atomic::Ordering;

thread_local! {
    /// The machine that runs on this host thread.
    static RUNNING: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// Makes a machine the one that runs on this host thread, until this is dropped.
pub(crate) struct OnThread(Option<Rc<Inner>>);

impl OnThread {
    pub(crate) fn new(machine: &Rc<Inner>) -> OnThread {
        OnThread(RUNNING.replace(Some(machine.clone())))
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        RUNNING.set(self.0.take());
    }
}

/// The machine that kernel code executes on now, if it may be called.
fn machine() -> Option<Rc<Inner>> {
    let machine = RUNNING.with_borrow(Clone::clone)?;
    (machine.is_running() && !std::thread::panicking() && !machine.is_testing()).then_some(machine)
}

/// What a loop does that waits for an atomic: another CPU may have a turn.
#[track_caller]
pub fn spin_loop() {
    match machine() {
        Some(machine) => machine.pause(Location::caller()),
        None => std::hint::spin_loop(),
    }
}

/// Whose caches an atomic lies in: packages, in the run that used it last.
#[derive(Default)]
pub(crate) struct Line {
    run: host::AtomicU64,
    packages: host::AtomicU64,
}

impl Line {
    const fn new() -> Line {
        Line { run: host::AtomicU64::new(0), packages: host::AtomicU64::new(0) }
    }

    /// `package` reads or writes it in the run with this number. Gives a bit for each package from whose cache it
    /// comes, or that has to give it up.
    pub(crate) fn use_by(&self, run: u64, package: usize, writes: bool) -> u64 {
        const ALONE: Ordering = Ordering::Relaxed;
        let me = 1 << package;
        let had = if self.run.swap(run, ALONE) == run { self.packages.load(ALONE) } else { 0 };
        self.packages.store(if writes { me } else { had | me }, ALONE);
        if writes || had & me == 0 { had & !me } else { 0 }
    }
}

/// Makes an operation a call on the machine that runs: `act` gives what was there and what is.
#[track_caller]
fn operate<R>(line: &Line, name: &'static str, writes: bool, act: impl FnOnce() -> (u64, u64, R)) -> R {
    match machine() {
        Some(machine) => machine.operate(line, (name, writes), Location::caller(), act),
        None => act().2,
    }
}

impl Inner {
    fn operate<R>(
        &self,
        line: &Line,
        (name, writes): (&'static str, bool),
        at: Site,
        act: impl FnOnce() -> (u64, u64, R),
    ) -> R {
        self.begin_atomic(Some((line, writes)));
        let (was, is, result) = act();
        self.looked(name, was, is, at);
        result
    }
}

/// An atomic of an integer.
macro_rules! integer {
    ($name:ident, $int:ty) => {
        #[doc = concat!("As [`core`'s](std::sync::atomic::", stringify!($name), "), seen by the machine that runs.")]
        pub struct $name {
            value: host::$name,
            line: Line,
        }

        impl $name {
            /// This value.
            pub const fn new(value: $int) -> $name {
                $name { value: host::$name::new(value), line: Line::new() }
            }

            #[track_caller]
            fn change(&self, name: &'static str, act: impl FnOnce() -> $int) -> $int {
                operate(&self.line, name, true, || {
                    let was = act();
                    (was as u64, self.value.load(Ordering::Relaxed) as u64, was)
                })
            }

            /// Adds, wrapping; gives the value before.
            #[track_caller]
            pub fn fetch_add(&self, by: $int, order: Ordering) -> $int {
                self.change("fetch_add", || self.value.fetch_add(by, order))
            }

            /// Subtracts, wrapping; gives the value before.
            #[track_caller]
            pub fn fetch_sub(&self, by: $int, order: Ordering) -> $int {
                self.change("fetch_sub", || self.value.fetch_sub(by, order))
            }

            /// The larger of the two; gives the value before.
            #[track_caller]
            pub fn fetch_max(&self, with: $int, order: Ordering) -> $int {
                self.change("fetch_max", || self.value.fetch_max(with, order))
            }

            /// The smaller of the two; gives the value before.
            #[track_caller]
            pub fn fetch_min(&self, with: $int, order: Ordering) -> $int {
                self.change("fetch_min", || self.value.fetch_min(with, order))
            }
        }

        common!($name, $int, [], |value: $int| value as u64);
        bits!($name, $int);
    };
}

/// What integers and truth values have in common.
macro_rules! bits {
    ($name:ident, $of:ty) => {
        impl $name {
            /// Bits that are in both; gives the value before.
            #[track_caller]
            pub fn fetch_and(&self, with: $of, order: Ordering) -> $of {
                self.change("fetch_and", || self.value.fetch_and(with, order))
            }

            /// Bits that are in either; gives the value before.
            #[track_caller]
            pub fn fetch_or(&self, with: $of, order: Ordering) -> $of {
                self.change("fetch_or", || self.value.fetch_or(with, order))
            }

            /// Bits that are in one of the two; gives the value before.
            #[track_caller]
            pub fn fetch_xor(&self, with: $of, order: Ordering) -> $of {
                self.change("fetch_xor", || self.value.fetch_xor(with, order))
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new(<$of>::default())
            }
        }
    };
}

/// What all have in common.
macro_rules! common {
    ($name:ident, $of:ty, [$($param:ident)?], $word:expr) => {
        impl $(<$param>)? $name $(<$param>)? {
            /// The value.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $of {
                operate(&self.line, "load", false, || {
                    let value = self.value.load(order);
                    ($word(value), $word(value), value)
                })
            }

            /// Another value.
            #[track_caller]
            pub fn store(&self, value: $of, order: Ordering) {
                operate(&self.line, "store", true, || {
                    let was = self.value.load(Ordering::Relaxed);
                    self.value.store(value, order);
                    ($word(was), $word(value), ())
                });
            }

            /// Another value; gives the value before.
            #[track_caller]
            pub fn swap(&self, value: $of, order: Ordering) -> $of {
                operate(&self.line, "swap", true, || {
                    let was = self.value.swap(value, order);
                    ($word(was), $word(value), was)
                })
            }

            /// Another value, if it is `current`.
            ///
            /// # Errors
            /// The value, if it is another.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                operate(&self.line, "compare_exchange", true, || {
                    let result = self.value.compare_exchange(current, new, success, failure);
                    let (was, is) = result.map_or_else(|found| (found, found), |old| (old, new));
                    ($word(was), $word(is), result)
                })
            }

            /// As `compare_exchange`: it fails for no other reason.
            ///
            /// # Errors
            /// The value, if it is another.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                self.compare_exchange(current, new, success, failure)
            }

            /// What `change` makes of the value, tried until no other CPU comes between.
            ///
            /// # Errors
            /// The value that `change` makes nothing of.
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($of) -> Option<$of>,
            ) -> Result<$of, $of> {
                let mut found = self.load(fetch);
                while let Some(new) = change(found) {
                    match self.compare_exchange_weak(found, new, set, fetch) {
                        Ok(was) => return Ok(was),
                        Err(now) => found = now,
                    }
                }
                Err(found)
            }

            /// The value, of which this is the only user.
            pub fn get_mut(&mut self) -> &mut $of {
                self.value.get_mut()
            }

            /// The value.
            pub fn into_inner(self) -> $of {
                self.value.into_inner()
            }
        }

        impl $(<$param>)? fmt::Debug for $name $(<$param>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.value.fmt(f)
            }
        }

        impl $(<$param>)? From<$of> for $name $(<$param>)? {
            fn from(value: $of) -> Self {
                $name::new(value)
            }
        }
    };
}

integer!(AtomicU8, u8);
integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);

/// As [`core`'s](std::sync::atomic::AtomicBool), seen by the machine that runs.
pub struct AtomicBool {
    value: host::AtomicBool,
    line: Line,
}

impl AtomicBool {
    /// This value.
    pub const fn new(value: bool) -> AtomicBool {
        AtomicBool { value: host::AtomicBool::new(value), line: Line::new() }
    }

    #[track_caller]
    fn change(&self, name: &'static str, act: impl FnOnce() -> bool) -> bool {
        operate(&self.line, name, true, || {
            let was = act();
            (was.into(), self.value.load(Ordering::Relaxed).into(), was)
        })
    }
}

common!(AtomicBool, bool, [], u64::from);
bits!(AtomicBool, bool);

/// As [`core`'s](std::sync::atomic::AtomicPtr), seen by the machine that runs.
pub struct AtomicPtr<T> {
    value: host::AtomicPtr<T>,
    line: Line,
}

impl<T> AtomicPtr<T> {
    /// This value.
    pub const fn new(value: *mut T) -> AtomicPtr<T> {
        AtomicPtr { value: host::AtomicPtr::new(value), line: Line::new() }
    }
}

common!(AtomicPtr, *mut T, [T], |value: *mut T| value.addr() as u64);

impl<T> Default for AtomicPtr<T> {
    fn default() -> AtomicPtr<T> {
        AtomicPtr::new(std::ptr::null_mut())
    }
}
