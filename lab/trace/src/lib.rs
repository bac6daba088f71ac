//! Reference traces of real programs: what they fetch, load and store, and their system calls.
//!
//! A trace is recorded once and replayed often, on machines whose caches and TLBs are modelled. It leaves out what no
//! such model could tell from a repetition ([`filter`]), so that it is short and its misses are still those of the
//! program. What is left is packed to about 4 bits a record ([`mod@format`] is the file's layout).
//!
//! ```
//! use pageferry_trace::{Kind, Reader, bundled};
//!
//! let trace = bundled().iter().find(|trace| trace.name == "names-as").expect("it is there");
//! let mut reader = Reader::new(trace.bytes, 0x8000_0000)?;
//! assert_eq!(reader.header().architecture, "ppc");
//! let mut stores = 0;
//! while let Some(record) = reader.next().transpose()? {
//!     match record.kind {
//!         // record.address is the line's, record.instructions came since the record before
//!         Kind::Fetch | Kind::Load => {}
//!         Kind::Store => stores += 1,
//!         Kind::Call => { let _number = reader.call().number; }
//!     }
//! }
//! assert!(stores > 0 && stores < reader.totals().stores);
//! # Ok::<(), pageferry_trace::TraceError>(())
//! ```
//!
//! * [`Reader`] reads a trace and [`Writer`] writes one; [`Recorder`] filters before it writes.
//! * [`record`](capture::record()) runs a program under QEMU or valgrind and records it.
//! * [`strace`] reads what `strace -f` writes: the system calls alone, with their arguments.
//! * [`Summary`] says what a trace asks of a TLB; [`bundled`] holds the traces that come with the crate.
//!
//! Errors are [`TraceError`] for bytes that are no sound trace and [`CaptureError`](capture::CaptureError) for programs
//! that cannot be recorded. No bytes make a reader panic.
#![forbid(unsafe_code)]

mod architecture;
mod bundled;
#[cfg(unix)]
pub mod capture;
mod coder;
mod error;
pub mod filter;
pub mod format;
mod measure;
mod model;
mod reader;
mod record;
mod recorder;
pub mod strace;
mod writer;

pub use architecture::{ARCHITECTURES, Architecture};
pub use bundled::{BundledTrace, bundled};
pub use error::TraceError;
pub use filter::Filter;
pub use measure::{Lru, Summary, TlbMisses};
pub use reader::Reader;
pub use record::{Header, Kind, Record, Rules, SystemCall, Totals};
pub use recorder::Recorder;
pub use writer::Writer;
