//! Architectures: their names, their ELF files, and their system calls as far as traces need them.
//!
//! Tables of constants; nothing here fails.

/// What is known of an architecture.
#[derive(Clone, Copy, Debug)]
pub struct Architecture {
    /// As QEMU names it.
    pub name: &'static str,
    /// Bits of an address.
    pub bits: u32,
    /// `e_machine` and byte order of its ELF files.
    machine: u16,
    big_endian: bool,
    /// The processor that QEMU is to be, where its own choice has instructions that traces of old machines should not
    /// have.
    pub(crate) processor: Option<&'static str>,
    /// Where Debian's cross packages have its libraries.
    pub(crate) libraries: Option<&'static str>,
}

const fn known(name: &'static str, bits: u32, machine: u16, big_endian: bool) -> Architecture {
    Architecture { name, bits, machine, big_endian, processor: None, libraries: None }
}

/// All architectures that programs can be recorded of.
pub const ARCHITECTURES: [Architecture; 14] = [
    Architecture {
        processor: Some("604"),
        libraries: Some("/usr/powerpc-linux-gnu"),
        ..known("ppc", 32, 20, true)
    },
    known("ppc64", 64, 21, true),
    Architecture { libraries: Some("/usr/powerpc64le-linux-gnu"), ..known("ppc64le", 64, 21, false) },
    known("i386", 32, 3, false),
    known("x86_64", 64, 62, false),
    Architecture { libraries: Some("/usr/arm-linux-gnueabihf"), ..known("arm", 32, 40, false) },
    Architecture { libraries: Some("/usr/aarch64-linux-gnu"), ..known("aarch64", 64, 183, false) },
    known("mips", 32, 8, true),
    known("mipsel", 32, 8, false),
    known("m68k", 32, 4, true),
    known("sparc", 32, 2, true),
    known("riscv32", 32, 243, false),
    known("riscv64", 64, 243, false),
    known("s390x", 64, 22, true),
];

impl Architecture {
    /// The architecture of this name.
    pub fn named(name: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|a| a.name == name)
    }

    /// The architecture of an ELF file that begins with these bytes.
    pub fn of_elf(begin: &[u8]) -> Option<&'static Architecture> {
        if begin.len() < 20 || !begin.starts_with(b"\x7fELF") {
            return None;
        }
        let big_endian = begin[5] == 2;
        let bits = if begin[4] == 2 { 64 } else { 32 };
        let machine = [begin[18], begin[19]];
        let machine = if big_endian { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
        ARCHITECTURES.iter().find(|a| (a.machine, a.big_endian, a.bits) == (machine, big_endian, bits))
    }

    /// The architecture of the host.
    pub fn host() -> Option<&'static Architecture> {
        let name = match std::env::consts::ARCH {
            "x86" => "i386",
            "powerpc" => "ppc",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            "powerpc64" => "ppc64",
            other => other,
        };
        Architecture::named(name)
    }

    fn is_power(&self) -> bool {
        self.machine == 20 || self.machine == 21
    }

    /// The name of a system call of Linux, where it is known: on PowerPC those that concern files, memory and
    /// processes.
    pub fn call_name(&self, number: u32) -> Option<&'static str> {
        const POWER: [(u32, &str); 46] = [
            (1, "exit"),
            (2, "fork"),
            (3, "read"),
            (4, "write"),
            (5, "open"),
            (6, "close"),
            (10, "unlink"),
            (11, "execve"),
            (19, "lseek"),
            (20, "getpid"),
            (33, "access"),
            (42, "pipe"),
            (45, "brk"),
            (54, "ioctl"),
            (63, "dup2"),
            (77, "getrusage"),
            (85, "readlink"),
            (90, "mmap"),
            (91, "munmap"),
            (106, "stat"),
            (108, "fstat"),
            (114, "wait4"),
            (116, "sysinfo"),
            (120, "clone"),
            (125, "mprotect"),
            (140, "_llseek"),
            (145, "readv"),
            (146, "writev"),
            (163, "mremap"),
            (173, "rt_sigaction"),
            (189, "vfork"),
            (190, "ugetrlimit"),
            (192, "mmap2"),
            (195, "stat64"),
            (196, "lstat64"),
            (197, "fstat64"),
            (204, "fcntl64"),
            (232, "set_tid_address"),
            (234, "exit_group"),
            (286, "openat"),
            (300, "set_robust_list"),
            (317, "pipe2"),
            (325, "prlimit64"),
            (359, "getrandom"),
            (383, "statx"),
            (387, "rseq"),
        ];
        let known = if self.is_power() { &POWER[..] } else { &[] };
        known.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
    }

    /// Whether a call returns a number of a process or a thread, which is another at every run.
    pub(crate) fn tells_process(&self, number: u32) -> bool {
        // fork, getpid, getppid, wait4, clone, vfork, gettid, set_tid_address
        self.is_power() && [2, 20, 64, 114, 120, 189, 207, 232].contains(&number)
    }

    /// A value of a register as the program sees it. The emulator extends the sign.
    pub(crate) fn register(&self, value: u64) -> u64 {
        if self.bits == 32 { value & 0xffff_ffff } else { value }
    }

    /// What a call returned: an address as it is, an error as a negative number.
    pub(crate) fn result(&self, value: i64) -> i64 {
        if self.bits == 32 && !(-4095..0).contains(&value) { value & 0xffff_ffff } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The emulator extends the sign of what has 32 bits; only errors are negative.
    #[test]
    fn addresses_have_no_sign_and_errors_have() {
        let [small, large] = ["ppc", "ppc64"].map(|name| Architecture::named(name).expect("it is known"));
        for (value, of_small) in [
            (0, 0),
            (1, 1),
            (0x7fff_ffff, 0x7fff_ffff),
            (0x8000_0000, 0x8000_0000),
            (-1, -1),
            (-4095, -4095),
            (-4096, 0xffff_f000),
            (i64::from(i32::MIN), 0x8000_0000),
        ] {
            assert_eq!((small.result(value), large.result(value)), (of_small, value));
            let register = value.cast_unsigned();
            assert_eq!(
                (small.register(register), large.register(register)),
                (register & 0xffff_ffff, register)
            );
        }
    }
}
