//! Programs that do what they may not, by name: each is to die of it, alone.
#![no_std]
#![no_main]

use core::arch::asm;
use pageferry_user::{fork, kill, main, say, sleep, wait};

main!(run);

fn run(what: &str) -> u64 {
    match what {
        // SAFETY: it is refused; whoever reads this has seen that it is.
        "read-kernel" => unsafe {
            let byte = core::ptr::read_volatile(0xffff_ff00_0010_0000 as *const u8);
            say!("it reads {byte:#x}\n");
        },
        // SAFETY: as above.
        "write-text" => unsafe { core::ptr::write_volatile(run as *const () as usize as *mut u8, 0) },
        // SAFETY: as above.
        "null" => unsafe { core::ptr::write_volatile(core::hint::black_box(8) as *mut u8, 0) },
        // SAFETY: as above.
        "cli" => unsafe { asm!("cli") },
        // SAFETY: as above.
        "port" => unsafe { asm!("out dx, al", in("dx") 0xf4_u16, in("al") 0_u8) },
        // SAFETY: as above.
        "msr" => unsafe { asm!("wrmsr", in("ecx") 0xc000_0082_u32, in("eax") 0, in("edx") 0) },
        // SAFETY: as above.
        "undefined" => unsafe { asm!("ud2") },
        // SAFETY: as above.
        "divide" => unsafe { asm!("div {0:e}", in(reg) 0, inout("eax") 1 => _, inout("edx") 0 => _) },
        // A vector whose gate is the kernel's.
        // SAFETY: as above.
        "int" => unsafe { asm!("int 14") },
        // SAFETY: as above.
        "jump-kernel" => unsafe { asm!("jmp {}", in(reg) 0xffff_fffe_0010_0000_u64) },
        // Bits above the highest that an address has.
        // SAFETY: as above.
        "jump-nowhere" => unsafe { asm!("jmp {}", in(reg) 0x8000_0000_0000_u64) },
        "jump-data" => {
            // A return instruction, in memory that is no text.
            let code = [0xc3_u8; 16];
            // SAFETY: as above.
            unsafe { asm!("call {}", in(reg) core::hint::black_box(&code).as_ptr()) }
        }
        // SAFETY: as above: what is below the stack is not mapped.
        "stack" => unsafe { asm!("2:", "push rax", "jmp 2b", options(noreturn)) },
        // Flags by which a program could be stepped through the kernel, or have it run backwards.
        "flags" => {
            // SAFETY: the first instruction behind it is trapped, which ends the process.
            unsafe { asm!("pushfq", "or qword ptr [rsp], 0x40500", "popfq", "nop", "syscall", in("rax") 0) }
        }
        "loop" => endless(),
        "killed-loop" => return killed_loop(),
        // SAFETY: as above: a system call whose number is none, and addresses that are none, are errors.
        "calls" => return bad_calls(),
        "limits" => return limits(),
        _ if what.starts_with("length") => {
            say!("{} bytes of words\n", what.len());
            return 0;
        }
        _ => {
            say!(
                "bad: expected read-kernel, write-text, null, cli, port, msr, undefined, divide, int, jump-kernel, \
                  jump-nowhere, jump-data, stack, flags, loop, killed-loop, calls or limits\n"
            );
            return 2;
        }
    }
    say!("bad {what}: it goes on\n");
    0
}

fn endless() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// A child that never ends is interrupted for its parent, which kills it.
fn killed_loop() -> u64 {
    match fork("endless") {
        Ok(None) => endless(),
        Ok(Some(pid)) => {
            let _ = sleep(50);
            say!("its parent runs beside it\n");
            let killed = kill(pid).and_then(|()| wait());
            u64::from(killed != Ok(pid))
        }
        Err(_) => 1,
    }
}

/// A line as long as it may be comes whole, and one that is longer is refused; a child begins with nothing in the
/// registers of answers, whatever its parent had there.
fn limits() -> u64 {
    use pageferry_abi::Errno;
    use pageferry_abi::call::Call;
    use pageferry_user::{call, exit, spawn};
    const LINE: [u8; 513] = {
        let mut line = [b'x'; 513];
        let (mut at, word) = (0, b"length");
        while at < word.len() {
            line[at] = word[at];
            at += 1;
        }
        line
    };
    let line = core::str::from_utf8(&LINE).unwrap_or_default();
    let comes = spawn("bad", &line[..512]).and_then(|_| wait()).is_ok();
    let is_refused = spawn("bad", line) == Err(Errno::Invalid);
    let name = "child";
    let begins = match call(Call::Fork, [name.as_ptr() as u64, name.len() as u64, 0x5555, 0, 0]) {
        Ok([0, second]) => {
            say!("a child begins with {second:#x}\n");
            exit(0)
        }
        Ok(_) => wait().is_ok(),
        Err(_) => false,
    };
    let are_kept = comes && is_refused && begins;
    if are_kept {
        say!("limits are kept\n");
    }
    u64::from(!are_kept)
}

/// Calls that make no sense are errors, and no more.
fn bad_calls() -> u64 {
    use pageferry_abi::Errno;
    use pageferry_abi::call::Call;
    use pageferry_user::call;
    const KERNELS: u64 = 0xffff_ff00_0010_0000;
    let cases = [
        (Call::Print, [KERNELS, 8, 0, 0, 0], Errno::Fault),
        (Call::Print, [0x10, 8, 0, 0, 0], Errno::Fault),
        (Call::Print, [0, u64::MAX, 0, 0, 0], Errno::Invalid),
        (Call::Spawn, [KERNELS, 4, 0, 0, 0], Errno::Fault),
        (Call::Report, [99, 0, 0, 0, 0], Errno::Invalid),
        (Call::Report, [0, KERNELS, 4096, 0, 0], Errno::Fault),
        (Call::Map, [0, 0, 0, 0, 0], Errno::Invalid),
        (Call::Map, [1 << 50, 0, 0, 0, 0], Errno::NoMemory),
        (Call::Unmap, [KERNELS, 4096, 0, 0, 0], Errno::Invalid),
        (Call::Read, [77, 0, 1, 0, 0], Errno::BadFd),
        (Call::Read, [u64::MAX, 0, 1, 0, 0], Errno::BadFd),
        (Call::Send, [0, 0, 1, 9, 0], Errno::Invalid),
        (Call::Kill, [u64::MAX, 0, 0, 0, 0], Errno::NoProcess),
        (Call::BindCpu, [200, 0, 0, 0, 0], Errno::Invalid),
        (Call::Import, [12345, 0, 0, 0, 0], Errno::Invalid),
    ];
    let mut wrong = 0;
    for (which, arguments, expected) in cases {
        let answer = call(which, arguments);
        if answer != Err(expected) {
            say!("{which:?} {arguments:x?}: {answer:?} in the place of {expected:?}\n");
            wrong = 1;
        }
    }
    let none: i64;
    // SAFETY: a number that is no call's is an error.
    unsafe {
        asm!("syscall", inlateout("rax") 9999_u64 => none, out("rcx") _, out("r11") _, lateout("rdx") _)
    }
    if none >= 0 || wrong != 0 {
        return 1;
    }
    say!("all refused\n");
    0
}
