//! Panics that are results: [`Model::run`](crate::Model::run) catches them, and its caller tells of them.
//!
//! A panic is printed as it begins, whoever catches it. Where hundreds of runs are expected to end by one, and one of
//! them is to be told of, what is printed of the others hides it. [`quietly`] keeps panics of the calling thread from
//! being printed, and gives what would have been: the place, and the calls where `RUST_BACKTRACE` asks for them.
//!
//! The hook of panics is the process's. It is wrapped once, by the first call; other threads, and this one outside of
//! [`quietly`], see the hook that was there before.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic;
use std::sync::Once;

/// Where a panic was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanicPlace {
    /// File, line and column.
    pub at: String,
    /// The calls that led there from where the context began, if `RUST_BACKTRACE` asks for them.
    pub backtrace: Option<String>,
}

impl fmt::Display for PanicPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked at {}", self.at)?;
        self.backtrace.as_ref().map_or(Ok(()), |calls| write!(f, "\n{calls}"))
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// The place of the last panic that was not printed.
    static LAST: RefCell<Option<(String, Backtrace)>> = const { RefCell::new(None) };
}

/// Runs `work`, and prints nothing of panics that it catches itself. Gives the place of the last of them.
pub fn quietly<R>(work: impl FnOnce() -> R) -> (R, Option<PanicPlace>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                let at = info.location().map_or("an unknown place".into(), ToString::to_string);
                LAST.set(Some((at, Backtrace::capture())));
            } else {
                loud(info);
            }
        }));
    });
    /// As it was before, also when `work` panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            QUIET.set(self.0);
        }
    }
    let quiet = Restore(QUIET.replace(true));
    let result = work();
    drop(quiet);
    let place = LAST.take().map(|(at, calls)| {
        let captured = calls.status() == BacktraceStatus::Captured;
        let backtrace = captured.then(|| within_context(&calls.to_string()));
        PanicPlace { at, backtrace }
    });
    (result, place)
}

/// The calls of a context that lie between where it began and where it panicked; not those that handle the panic, nor
/// those of the host below.
fn within_context(calls: &str) -> String {
    let mut frames: Vec<String> = Vec::new();
    for line in calls.lines() {
        let begins = line.trim_start().split_once(':').is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        match frames.last_mut() {
            Some(frame) if !begins => *frame += &format!("{line}\n"),
            _ => frames.push(format!("{line}\n")),
        }
    }
    let handled = frames.iter().position(|frame| frame.contains("__rust_end_short_backtrace"));
    let frames = frames.into_iter().skip(handled.map_or(0, |at| at + 1));
    frames.take_while(|frame| !frame.contains("corosensei")).collect()
}
