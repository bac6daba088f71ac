//! What programs in ring 3 stand on: where they begin, system calls, a heap, a console, and
//! [`Os`](pageferry_workloads::Os) for the small programs of `pageferry-workloads`.
//!
//! A program names its function by [`main!`]. It is given a line of words, and ends with a status. It has no other
//! memory than its image, its stack, and what it maps; the heap is a part of the image. One thread runs in it, so
//! nothing here is locked.
//!
//! A panic is a line on the console, and the program ends with status 101.
#![no_std]

extern crate alloc;

mod call;
mod console;
mod heap;
mod os;
mod start;

pub use call::*;
pub use console::print;
pub use os::Ring3;
pub use start::start;

/// Makes a function of a line that answers a status the program.
#[macro_export]
macro_rules! main {
    ($main:path) => {
        // SAFETY: nothing else has that name.
        #[unsafe(no_mangle)]
        extern "C" fn pageferry_program(line: *const u8, len_bytes: usize) -> ! {
            // SAFETY: this is where the kernel begins, with the line that it has put on the stack.
            unsafe { $crate::start($main, line, len_bytes) }
        }
    };
}

/// Writes text to the console.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::print(core::format_args!($($text)*)) };
}
