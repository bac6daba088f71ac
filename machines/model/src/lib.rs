//! Modelled machines: everything that `pageferry-hal` asks for, in software, deterministic, with every cycle accounted.
//!
//! A kit for those who write kernels. What can be tested is Rust that reaches the hardware by
//! [`pageferry_hal::Machine`] and no other way: page tables and TLB shootdowns, locks and queues, interrupt handlers,
//! schedulers, drivers of disks and network cards. CPUs meet at the machine's calls, at its locks, and at the atomics
//! of [`sync`], which stand in for those of `core`. What cannot: assembler, loads and stores by a pointer that another
//! CPU is to see, threads of the host, and memory orders weaker than sequential consistency.
//!
//! Such code runs here on one to sixty-four CPUs, as an ordinary test, and a mistake in it ends the run with an error
//! that names the place:
//!
//! | what goes wrong | what the error says |
//! |---|---|
//! | a CPU uses a translation that should have been invalidated | [`RunError::Stale`]: who used it, mapped, changed |
//! | locks are taken against their order | [`RunError::LockOrder`]: both acquisitions |
//! | contexts wait for each other's locks | [`RunError::LockDeadlock`]: what each holds and wants, and since where |
//! | all CPUs sleep, and nothing will wake them | [`RunError::Deadlock`]: where each CPU is halted |
//! | CPUs spin for something that will not happen | [`RunError::Spinning`]: where, and since when |
//! | a CPU loops and never calls the machine, as on an atomic of `core` | the process ends: [`Options::host_limit`] |
//! | the kernel panics | [`RunError::Panicked`] |
//! | a CPU halts with interrupts off, or a context that holds a lock is left | [`RunError::Panicked`]: the locks held |
//! | at the end, a window of changes is open, or a lock is held | [`Model::check`], called after the run |
//!
//! # What to put into `Cargo.toml`
//! The trait is in one crate and the machines are in the other; a kernel depends on the first, its tests on both:
//!
//! ```toml
//! [dependencies]
//! pageferry-hal = "0.1"
//!
//! [dev-dependencies]
//! pageferry-model = "0.1"
//!
//! # A modelled machine in a test that is compiled without optimization takes ten times as long.
//! [profile.dev.package.pageferry-model]
//! opt-level = 3
//! ```
//!
//! The feature `smoltcp` of `pageferry-model` adds hosts with a TCP/IP stack of their own to the far end of a network
//! card's wire ([`net`]).
//!
//! # What to call
//! | I want to | call |
//! |---|---|
//! | have all names at once | `use pageferry_model::`[`prelude`]`::*` |
//! | have a machine | [`MachineConfig::named`], then [`Model::new`]; [`Model::flat`] where time does not matter |
//! | boot my kernel on it | [`Model::run`] |
//! | try it under many schedules, and see the one that fails | [`testing::seeds`]; again: [`testing::replay`] |
//! | find a schedule that must fail | [`testing::find`] |
//! | start another CPU | [`context_new`], then [`start_cpu`] |
//! | account for code between two accesses, and let others come between | [`execute`] |
//! | have a lock | a [`LockClass`], then [`new_lock`] |
//! | have an atomic, or a lock of one's own | [`sync`] |
//! | have a page mapped, where that is not what is tested | [`testing::Tables`] |
//! | write page tables | [`pt_clear`], [`pt_store`], [`pt_swap`], with the words of a [`RadixFormat`] |
//! | say what I have mapped | [`mapping_changed`], within [`open_flush_window`] and [`close_flush_window`] |
//! | use page tables on this CPU | [`activate`] |
//! | load and store through them | [`load`], [`store`], [`copy_in`], [`copy_out`] |
//! | invalidate here; elsewhere | [`tlb_flush`]; [`send_ipi`] to a handler that does |
//! | have interrupts | [`set_interrupt_handler`], [`set_timer`], [`send_ipi`] |
//! | wait: busily; halted | [`spin_until`]; [`idle_until`] |
//! | switch threads | [`context_switch`] |
//! | have a disk, a sound device, a network card | [`Model::devices`] |
//! | look at memory from a test, without cost | [`Model::peek`], [`Model::poke`], [`Model::frame_bytes`] |
//! | know what it cost, and why | [`Model::snapshot`], [`scope`] |
//! | see what CPUs did | [`Options::keep_events`], then [`Model::events`] |
//! | know that all is well at the end | [`Model::check`] |
//!
//! # A first run
//! A machine is either [built in](machines) or described in a file of your own ([`config`]). [`Model::run`] switches it
//! on: CPU 0 runs your boot code, which starts the others, and the run ends when all CPUs have stopped.
//!
//! ```
//! use pageferry_hal::{Account, Instructions};
//! use pageferry_model::{MachineConfig, Model, Options};
//!
//! let machine = MachineConfig::named("xeon-mp").expect("it is built in");
//! let model = Model::new(&machine, Options::default()).expect("a valid machine");
//! model.run(Box::new(|m| {
//!     m.execute(Instructions(1_000));
//!     None // No context follows: the CPU stops.
//! })).expect("all is well");
//! model.check().expect("the laws of the machine hold");
//! assert!(model.snapshot().clocks[0] > 0);
//! ```
//!
//! # What to know
//! * **CPUs interleave at calls.** CPUs take turns at calls on the machine ([`Machine`]'s, and locks); code between two
//!   calls is atomic. Where another CPU could come between two accesses to shared data, account for the instructions
//!   executed there ([`execute`]), and a seed will put another CPU there.
//! * **Seeds are schedules.** Under [`Schedule::Timed`] CPUs go on as their clocks say; use it to measure. Under
//!   [`Schedule::Seeded`] a random CPU goes on at every call, under [`Schedule::Pct`] one of them until a place that is
//!   drawn at random; use these to test. The same seed gives the same run, on every host. [`testing`] runs a body under
//!   many seeds, and can run a seed that failed again.
//! * **The kernel declares mappings.** Tables and TLBs hold copies. A mapping is what the kernel declared last, by
//!   [`mapping_changed`], and a change is over when its [window] is closed. By these declarations the
//!   [oracle](mmu::oracle) judges every translation that is used. A removal that is not declared is none to the oracle:
//!   the old translation stands.
//! * **Only calls let others run.** All CPUs share one host thread. A loop on an atomic of `core`, a `Cell` or a lock
//!   of `std` that another CPU is to change would never end; [`sync`] has atomics at which others have turns.
//! * **Locks have classes.** A [`LockClass`] is a name and a rank, or a name alone; yours are constants of your kernel.
//! * **Memory is yours, and begins as zeros.** Any frame of the [board] may be used, from 0 on; one that is used again
//!   holds what was left in it: tables are cleared by [`pt_clear`]. Page tables are reached by physical address, and
//!   need no mapping. Loads and stores are translated, by what the CPU itself has told [`activate`]; where the user's
//!   addresses are and where the kernel's, the board's [layout] says.
//! * **Waits look at memory alone.** What is handed to [`spin_until`] and [`idle_until`] reads what others write, and
//!   calls neither the machine nor a lock.
//! * **Errors end the run**, by a panic on the stack of the CPU that erred, so that `RUST_BACKTRACE=1` shows the calls
//!   that led to the error. [`Options`] says what is tolerated, and how long CPUs may wait.
//!
//! [`Machine`]: pageferry_hal::Machine
//! [window]: pageferry_hal::Oracle::open_flush_window
//! [board]: pageferry_hal::Machine::board
//! [layout]: pageferry_hal::Layout
//! [`activate`]: pageferry_hal::Machine::activate
//! [`close_flush_window`]: pageferry_hal::Oracle::close_flush_window
//! [`context_new`]: pageferry_hal::Machine::context_new
//! [`context_switch`]: pageferry_hal::Machine::context_switch
//! [`copy_in`]: pageferry_hal::Machine::copy_in
//! [`copy_out`]: pageferry_hal::Machine::copy_out
//! [`execute`]: pageferry_hal::Account::execute
//! [`idle_until`]: pageferry_hal::Machine::idle_until
//! [`load`]: pageferry_hal::Machine::load
//! [`mapping_changed`]: pageferry_hal::Oracle::mapping_changed
//! [`new_lock`]: pageferry_hal::Machine::new_lock
//! [`open_flush_window`]: pageferry_hal::Oracle::open_flush_window
//! [`pt_clear`]: pageferry_hal::Machine::pt_clear
//! [`pt_store`]: pageferry_hal::Machine::pt_store
//! [`pt_swap`]: pageferry_hal::Machine::pt_swap
//! [`scope`]: pageferry_hal::Account::scope
//! [`send_ipi`]: pageferry_hal::Machine::send_ipi
//! [`set_interrupt_handler`]: pageferry_hal::Machine::set_interrupt_handler
//! [`set_timer`]: pageferry_hal::Machine::set_timer
//! [`spin_until`]: pageferry_hal::Machine::spin_until
//! [`start_cpu`]: pageferry_hal::Machine::start_cpu
//! [`store`]: pageferry_hal::Machine::store
//! [`tlb_flush`]: pageferry_hal::Machine::tlb_flush
//! [`RadixFormat`]: pageferry_hal::isa::RadixFormat
//! [`LockClass`]: pageferry_hal::LockClass
//!
//! # A first mapping
//! ```
#![doc = include_str!("../examples/first_mapping.rs")]
//! ```
//!
//! # A stale read
//! One CPU changes a mapping and does not invalidate the translation of it that another CPU holds. `cargo run -p
//! pageferry-model --example stale_read` prints what happened, call by call, and what the oracle says.
//!
//! ```
#![doc = include_str!("../examples/stale_read.rs")]
//! ```
//!
//! # A deadlock of two locks
//! Two CPUs take two locks in different orders. When the locks' classes have ranks, the first wrong acquisition is an
//! error in any schedule. Without ranks, the two CPUs have to meet for a deadlock, and a seed makes them.
//!
//! ```
#![doc = include_str!("../examples/abba_deadlock.rs")]
//! ```
//!
//! # A lost wakeup
//! A consumer looks, finds nothing, and goes to sleep. The producer comes between the look and the sleep, and finds no
//! sleeper to wake.
//!
//! ```
#![doc = include_str!("../examples/lost_wakeup.rs")]
//! ```
//!
//! # A disk, and a driver of it
//! A device is a trait object, so a disk may be made of another: here of two halves that hold the same. The driver
//! knows the machine by its trait alone.
//!
//! ```
#![doc = include_str!("../examples/disk_driver.rs")]
//! ```
//!
//! # Where things are
//! * [`machine`]: the machine as kernel code sees it; contexts as coroutines under one scheduler of discrete events.
//! * [`machines`], [`config`]: machines by name, and described in TOML, each constant with its
//!   source and its range.
//! * [`testing`]: one test under many schedules; machines of tests by name, and CPUs that do what a test hands them.
//!   [`panics`]: what a run's panic would have printed.
//! * [`mmu::oracle`]: finds every use of a stale translation.
//! * [`lock`]: spin locks with costs and a checked order; [`sync`]: atomics; `watchdog`: who uses others'.
//! * [`account`], [`trace`]: the accounts and their laws; where the time went.
//! * `hw`: CPUs and the steps that they take; [`mmu`], [`cache`], `memory`: what the steps go through; `dev`: devices;
//!   `outside`: what happens without a CPU, and [`net`]: what is beyond the network card.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod account;
pub mod cache;
pub mod config;
mod dev;
mod hw;
pub mod lock;
pub mod machine;
pub mod machines;
mod memory;
pub mod mmu;
pub mod net;
mod outside;
pub mod panics;
mod params;
pub mod prelude;
pub mod sync;
pub mod testing;
pub mod trace;
mod turns;
mod watch;
mod watchdog;

pub use account::{Hardware, LockUse, Snapshot, UseCounts};
pub use config::MachineConfig;
pub use lock::{ModelGuard, ModelLock};
pub use machine::{
    Action, Event, EventKind, Jitter, LateSleep, LockCircle, LockId, LockWait, Model, Observation, Options,
    RunError, Schedule, Spent, Wait, WaitCause, Waits,
};
pub use mmu::access::Site;
pub use mmu::oracle::{StaleUse, Staleness};
pub use pageferry_sourced::{ConfigError, Constant, Fault, Ranges, SourceKind, Sourced};
