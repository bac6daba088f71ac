//! Exceptions on purpose, instead of the program: so that tests can see what is said of one, and that the machine ends
//! by it and does not start again. Nothing here returns.

use crate::interrupt;
use core::arch::asm;

/// What is to happen.
#[derive(Clone, Copy)]
pub(crate) enum Provoked {
    /// An undefined instruction.
    Undefined,
    /// A kernel stack that is used up.
    Guard,
    /// An exception whose own handling fails.
    Double,
    /// A panic of the kernel.
    Panic,
}

impl Provoked {
    /// By the name on the command line.
    pub(crate) fn named(name: &str) -> Option<Provoked> {
        match name {
            "undefined" => Some(Provoked::Undefined),
            "guard" => Some(Provoked::Guard),
            "double" => Some(Provoked::Double),
            "panic" => Some(Provoked::Panic),
            _ => None,
        }
    }

    /// Makes it happen.
    pub(crate) fn happens(self) -> ! {
        match self {
            Provoked::Undefined => {
                // SAFETY: the exception ends the machine.
                unsafe { asm!("ud2", options(noreturn)) }
            }
            Provoked::Guard => {
                // SAFETY: pushes until the page below the stack stops it: only this context's stack is lost, which is
                // never used again.
                unsafe { asm!("2:", "push rax", "jmp 2b", options(noreturn)) }
            }
            Provoked::Double => interrupt::fail_twice(),
            Provoked::Panic => panic!("on purpose"),
        }
    }
}
