//! Tests of the VM system from outside, in one program: each would otherwise compile all that is generic over the
//! machine again.

mod basics;
mod common;
mod exhaustion;
mod free_lists;
mod loan;
mod loan_kinds;
mod paging;
mod pass;
mod published;
mod push_down;
mod quick_ref;
mod races;
mod range_laws;
mod rows;
mod schedule_points;
mod shadows;
mod shared_cow;
mod transfer;
mod vnode;
mod window;
