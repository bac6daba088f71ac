//! Tests of the kernel from outside, in one program: each would otherwise compile all that is generic over the machine again.

mod audio;
mod auto;
mod clock;
mod common;
mod defects;
mod devices;
mod endings;
mod export;
mod fetch;
mod file_transfer;
mod inet;
mod inet_card;
mod inet_defects;
mod inet_endings;
mod inet_frames;
mod inet_unread;
mod inet_values;
mod inet_wire;
mod kernel_memory;
mod lending;
mod paging;
mod pipe;
mod process;
mod receive_laws;
mod sched;
mod socket;
