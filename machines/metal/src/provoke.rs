//! Exceptions on purpose, instead of the program: so that tests can see what is said of one, and that the machine ends
//! by it and does not start again.

use crate::Booted;
use crate::interrupt;
use crate::runtime::fail;
use alloc::boxed::Box;
use core::arch::asm;
use pageferry_hal::{Access, CopyFault, Mode, PAGE_SIZE, Prot, Trap, TrapKind};
use pageferry_kernel::{Program, User};
use pageferry_vm::Inherit;

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
    /// The kernel reads a program's memory where it does not mean to, which SMAP refuses.
    ReadUser,
    /// The kernel executes a program's memory, which SMEP refuses.
    RunUser,
}

impl Provoked {
    /// By the name on the command line.
    pub(crate) fn named(name: &str) -> Option<Provoked> {
        match name {
            "undefined" => Some(Provoked::Undefined),
            "guard" => Some(Provoked::Guard),
            "double" => Some(Provoked::Double),
            "panic" => Some(Provoked::Panic),
            "read-user" => Some(Provoked::ReadUser),
            "run-user" => Some(Provoked::RunUser),
            _ => None,
        }
    }

    /// Uses memory of a process's in kernel mode. A processor without SMEP and SMAP lets it: then a line says so.
    fn uses_memory_of(self, user: &User<Booted>) {
        // A return instruction.
        const RETURN: [u8; 1] = [0xc3];
        let used = user.map(PAGE_SIZE, Prot::RW, Inherit::None).and_then(|at| {
            user.store(at, &RETURN);
            user.protect(at, PAGE_SIZE, Prot::READ.union(Prot::EXECUTE))?;
            // As if the program executed it: now its page may be executed.
            let trap = Trap { va: at, access: Access::Fetch, mode: Mode::User, kind: TrapKind::Protection };
            user.take_fault(CopyFault { done_bytes: 0, trap });
            // SAFETY: the byte was just stored there, and is not written any more: to read it is harmless, and to call
            // it returns. Where the processor refuses either, the machine ends.
            unsafe {
                match self {
                    Provoked::RunUser => asm!("call {}", in(reg) at.0, clobber_abi("C")),
                    _ => _ = core::ptr::read_volatile(at.0 as *const u8),
                }
            }
            Ok(())
        });
        fail(format_args!("nothing refuses to the kernel what is a program's: {used:?}"));
    }

    /// Makes it happen, or answers the program by which it will, where it takes a process.
    pub(crate) fn happens(self) -> Program<Booted> {
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
            Provoked::ReadUser | Provoked::RunUser => Box::new(move |user| self.uses_memory_of(user)),
        }
    }
}
