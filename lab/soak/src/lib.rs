//! Random programs of many processes, run beside a plain copying model, with the laws of memory checked at every step.
//!
//! A program maps, faults, writes, forks, lends, transfers, passes and exits, on one to four CPUs of a modelled
//! machine, several processes side by side, under the machine's own timing or under schedules that a seed chooses;
//! allocations in it fail where the program says so. Beside it runs a model that copies everything (module
//! `reference`). What a call answers, what a load reads, what is lent: all must be as the model says; and the
//! conservation laws must hold.
//!
//! Other kinds of programs use files, streams and memory together under a whole kernel (module `calls`), Internet
//! sockets (module `traffic`), and servers that are processes (module `servers`).
//!
//! What fails is cut down to a few steps and is plain data: it can be kept, and run again.
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "the VM's interface has Arcs; a modelled machine stays on one thread"
)]

mod calls;
mod episode;
mod failure;
mod movers;
mod planted;
mod program;
mod reference;
pub mod rig;
mod servers;
mod shrink;
mod soak;
mod storm;
mod traffic;
mod whole;
mod world;

pub use episode::{Program, Steps};
pub use failure::Failure;
pub use pageferry_calls::{CallOp, CallStep, Calls, MAX_CALL_BYTES, MAX_REGION_PAGES};
pub use pageferry_kernel::{IspcDefect, NetDefect};
pub use pageferry_pmap::{AreaDefect, PmapDefect};
pub use pageferry_vm::VmDefect;
pub use planted::Planted;
pub use program::{Access, Child, Down, FILE_PAGES, Mode, Op, PAGES, PROCESSES, Step, TOKENS};
pub use rig::MACHINES;
pub use servers::{APPLICATIONS, AreaOp, By, Deed, Order, SERVICES, Servers};
pub use soak::{EPISODE_STEPS, Found, Soak, SoakError};
pub use traffic::{CONNECTIONS, Call, MAX_BYTES, SocketOp, Traffic};
