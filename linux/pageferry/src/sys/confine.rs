//! What a confined child may not do.
//!
//! # What it holds
//! [`Cage`]: a Landlock ruleset and filters of system calls. Both are made before the fork, by crates that know
//! them; [`Cage::enter`] runs in the child, between `fork` and `exec`, where nothing may allocate or lock.
//!
//! # What each part is for
//! * *Landlock*: a process in a domain can neither trace a process outside nor write to its memory, by whatever
//!   call, and opens no file but those that it was allowed.
//! * *Filters*: calls that *pin* pages. A pinned page is written to by the kernel or a device when no mapping and
//!   no descriptor of it is left, so neither a private mapping nor a lease shows it. Such are io_uring and
//!   `io_setup`, reads by O_DIRECT (however a descriptor gets that flag), `userfaultfd`, `vmsplice`, the calls that
//!   go through another mapping of the same process, sockets that decrypt or map into the caller's pages (only those
//!   of the Unix domain are left), and `bpf`.
//! * *Descriptors*: none is inherited but the standard streams and the one that is kept, so none of a device.
//! * *Capabilities*: none is left, since some evade the rest.

use super::{Errno, Failed, Result, may_fail};
use rustix::fd::OwnedFd;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io::Error;
use std::os::fd::{AsRawFd, RawFd};

/// What a child enters before `exec`. A part that is `None` is left out.
#[derive(Debug)]
pub(crate) struct Cage {
    pub(crate) ruleset: Option<OwnedFd>,
    pub(crate) filters: Option<Filters>,
    pub(crate) close: bool,
}

/// The version of Landlock from which on a domain sends no signals to processes outside.
const SCOPED_SIGNALS: u32 = 6;

impl Cage {
    /// Whether nothing is left out, and the child cannot stop this process either.
    pub(crate) fn is_whole(&self) -> bool {
        let scoped = landlock_abi().is_ok_and(|abi| abi >= SCOPED_SIGNALS);
        self.ruleset.is_some() && self.filters.is_some() && self.close && scoped
    }

    /// Confines the calling process; `kept` is the descriptor that `exec` leaves open besides the standard streams.
    /// To be called between `fork` and `exec`: it allocates nothing and takes no lock.
    pub(crate) fn enter(&self, kept: RawFd) -> std::io::Result<()> {
        if self.close {
            let kept = kept as u32;
            close_on_exec(3, kept - 1)?;
            close_on_exec(kept + 1, u32::MAX)?;
        }
        drop_capabilities()?;
        // SAFETY: plain numbers. Neither a domain nor a filter is taken from a process that could still gain
        // privileges.
        done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
        if let Some(ruleset) = &self.ruleset {
            allow_own_proc(ruleset);
            // SAFETY: plain numbers.
            done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
        }
        for program in self.filters.iter().flat_map(|filters| &filters.0) {
            let program = libc::sock_fprog {
                len: program.len() as libc::c_ushort,
                filter: program.as_ptr().cast_mut(),
            };
            // SAFETY: the program lives through the call, and the kernel only reads it.
            done(unsafe {
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
            })?;
        }
        Ok(())
    }
}

fn done(answer: libc::c_long) -> std::io::Result<()> {
    if answer == -1 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// `exec` closes these descriptors. A range that is upside down is empty.
fn close_on_exec(first: u32, last: u32) -> std::io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: plain numbers; descriptors stay open until `exec`.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) })
}

/// The process has no capability from now on, and `exec` gives it none, for it may gain none.
fn drop_capabilities() -> std::io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3`, of this process.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    const NONE: [u32; 6] = [0; 6];
    // SAFETY: both have the layout and size that the call reads.
    done(unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), NONE.as_ptr()) })
}

/// The process may read what /proc says of itself: which pages are huge, which were written. Without it there are
/// small pages and no count of what was written, so a failure is none of the child's.
fn allow_own_proc(ruleset: &OwnedFd) {
    /// `struct landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct Beneath {
        allowed: u64,
        parent: RawFd,
    }
    const RULE_PATH_BENEATH: libc::c_int = 1;
    const READ: u64 = 1 << 2 | 1 << 3;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    let parent = unsafe { libc::open(c"/proc/self".as_ptr(), flags) };
    if parent == -1 {
        return;
    }
    let beneath = Beneath { allowed: READ, parent };
    // SAFETY: the attribute has the kernel's layout and lives through the call; the descriptor is ours.
    unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const beneath,
            0,
        );
        libc::close(parent);
    }
}

/// The version of Landlock that the kernel has.
pub(crate) fn landlock_abi() -> Result<u32> {
    const VERSION: libc::c_uint = 1;
    let call = "landlock_create_ruleset";
    may_fail(call)?;
    let nothing = core::ptr::null::<libc::c_void>();
    // SAFETY: a question without arguments.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, VERSION) };
    super::checked(abi as libc::c_int, call).map(|abi| abi as u32)
}

/// The kernel has filters that refuse a call.
pub(crate) fn can_filter() -> Result<()> {
    may_fail("seccomp")?;
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one number.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    super::checked(answer as libc::c_int, "seccomp").map(drop)
}

/// The kernel can mark a range of descriptors.
pub(crate) fn can_close() -> Result<()> {
    may_fail("close_range")?;
    // Nothing is open there.
    close_on_exec(u32::MAX, u32::MAX).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::NOSYS);
        Failed { call: "close_range", errno }
    })
}

/// Programs for the kernel, each of which refuses some calls.
#[derive(Debug)]
pub(crate) struct Filters(Vec<Vec<libc::sock_filter>>);

impl Filters {
    /// The filters of a confined child.
    pub(crate) fn new() -> core::result::Result<Filters, seccompiler::Error> {
        let programs = [
            // As on a kernel that does not know the call, so that programs do without it.
            refusing(
                libc::ENOSYS,
                [
                    libc::SYS_io_uring_setup,
                    libc::SYS_io_uring_enter,
                    libc::SYS_io_uring_register,
                    libc::SYS_io_setup,
                    libc::SYS_openat2,
                    libc::SYS_userfaultfd,
                ]
                .map(|call| (call, vec![])),
            )?,
            refusing(libc::EPERM, forbidden()?)?,
        ];
        let mut filters: Vec<Vec<_>> = programs
            .into_iter()
            .map(|program| {
                let plain = |it: seccompiler::sock_filter| libc::sock_filter {
                    code: it.code,
                    jt: it.jt,
                    jf: it.jf,
                    k: it.k,
                };
                program.into_iter().map(plain).collect()
            })
            .collect();
        filters.extend(other_numbers());
        Ok(Filters(filters))
    }
}

fn refusing(
    errno: i32,
    calls: impl IntoIterator<Item = (libc::c_long, Vec<SeccompRule>)>,
) -> core::result::Result<BpfProgram, seccompiler::Error> {
    let rules: BTreeMap<i64, Vec<SeccompRule>> = calls.into_iter().collect();
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), arch)?;
    Ok(filter.try_into()?)
}

/// Calls that are refused, each where one of its rules holds, or always where it has none.
fn forbidden() -> core::result::Result<Vec<(libc::c_long, Vec<SeccompRule>)>, seccompiler::Error> {
    let (number, flag) = (SeccompCmpArgLen::Dword, libc::O_DIRECT as u64);
    let is = |argument, op, value| SeccompCondition::new(argument, number.clone(), op, value);
    let direct = |argument| is(argument, SeccompCmpOp::MaskedEq(flag), flag);
    let equal = |argument, value: libc::c_int| is(argument, SeccompCmpOp::Eq, value as u64);
    let mut calls = vec![
        (libc::SYS_ptrace, vec![]),
        (libc::SYS_process_vm_readv, vec![]),
        (libc::SYS_process_vm_writev, vec![]),
        (libc::SYS_pidfd_getfd, vec![]),
        (libc::SYS_vmsplice, vec![]),
        (libc::SYS_open_by_handle_at, vec![]),
        (libc::SYS_bpf, vec![]),
        (libc::SYS_openat, vec![SeccompRule::new(vec![direct(2)?])?]),
        (libc::SYS_fcntl, vec![SeccompRule::new(vec![equal(1, libc::F_SETFL)?, direct(2)?])?]),
        (libc::SYS_socket, vec![SeccompRule::new(vec![is(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?])?]),
        (
            libc::SYS_setsockopt,
            vec![SeccompRule::new(vec![equal(1, libc::SOL_TCP)?, equal(2, libc::TCP_ULP)?])?],
        ),
    ];
    if let Some(open) = OPEN {
        calls.push((open, vec![SeccompRule::new(vec![direct(1)?])?]));
    }
    Ok(calls)
}

/// The call that `openat` has replaced, where there is one.
#[cfg(target_arch = "x86_64")]
const OPEN: Option<libc::c_long> = Some(libc::SYS_open);
#[cfg(not(target_arch = "x86_64"))]
const OPEN: Option<libc::c_long> = None;

/// On x86_64 most calls have a second number (those of the ABI x32), by which they would pass the filters.
fn other_numbers() -> Option<Vec<libc::sock_filter>> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const X32: u32 = 0x4000_0000;
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    cfg!(target_arch = "x86_64").then(|| {
        vec![
            statement(LOAD, core::mem::offset_of!(libc::seccomp_data, nr) as u32),
            libc::sock_filter { code: AT_LEAST, jt: 0, jf: 1, k: X32 },
            statement(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
            statement(RETURN, libc::SECCOMP_RET_ALLOW),
        ]
    })
}
