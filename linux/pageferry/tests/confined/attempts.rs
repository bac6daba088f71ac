//! What a child tries, by raw system calls.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// How each attempt of a confined child ends.
pub const EXPECTED: &[(&str, i32)] = &[
    ("parent's /proc/PID/mem", libc::EACCES),
    ("process_vm_writev", libc::EPERM),
    ("process_vm_readv", libc::EPERM),
    ("ptrace", libc::EPERM),
    ("own /proc/self/mem for writing", libc::EACCES),
    ("pidfd_getfd of the parent", libc::EPERM),
    ("signal to the parent", libc::EPERM),
    ("io_uring_setup", libc::ENOSYS),
    ("io_uring_setup by its other number", libc::ENOSYS),
    ("io_setup", libc::ENOSYS),
    ("openat2", libc::ENOSYS),
    ("userfaultfd", libc::ENOSYS),
    ("vmsplice", libc::EPERM),
    ("openat with O_DIRECT", libc::EPERM),
    ("open with O_DIRECT", libc::EPERM),
    ("O_DIRECT by F_SETFL", libc::EPERM),
    ("open_by_handle_at", libc::EPERM),
    ("bpf", libc::EPERM),
    ("socket of the internet", libc::EPERM),
    ("socket of the kernel's crypto", libc::EPERM),
    ("secret file", libc::EACCES),
    ("allowed file for writing", libc::EACCES),
    ("a new file", libc::EACCES),
    ("leaked descriptor", libc::EBADF),
    ("capabilities", libc::EPERM),
    ("new privileges", libc::EPERM),
];

/// The version of Landlock that this host has.
pub fn landlock_abi() -> i64 {
    // SAFETY: a question without arguments.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1) }
}

pub fn dup_to(fd: i32, number: i32) -> i32 {
    // SAFETY: plain numbers.
    unsafe { libc::dup2(fd, number) }
}

pub fn close(fd: i32) {
    // SAFETY: the number is one that `dup_to` has made.
    unsafe { libc::close(fd) };
}

fn last() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn told<T>(result: std::io::Result<T>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0)
}

/// A call that gives a descriptor, or 0.
fn call(number: libc::c_long, arguments: [usize; 6]) -> i32 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: each caller says what its arguments are; the kernel checks them.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer == -1 { last() } else { 0 }
}

/// Whether one of the process's own numbers, in /proc/self/status, is this.
fn status(key: &str, value: &str) -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    text.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim() == value))
}

fn refused_if(refused: bool) -> i32 {
    if refused { libc::EPERM } else { 0 }
}

/// Everything, each with how it ended.
pub fn attempts(target: usize, leaked: i32, folder: &Path) -> Vec<(&'static str, i32)> {
    let parent = std::os::unix::process::parent_id();
    let mut word = 0x0bad_0bad_0bad_0bad_u64;
    let ours = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let theirs = libc::iovec { iov_base: target as *mut libc::c_void, iov_len: 8 };
    let vectors = [&raw const ours as usize, 1, &raw const theirs as usize, 1];
    let vm = |number| call(number, [parent as usize, vectors[0], vectors[1], vectors[2], vectors[3], 0]);
    let write_to = |path: String| told(std::fs::OpenOptions::new().read(true).write(true).open(path));
    let mem = format!("/proc/{parent}/mem");
    let written = std::fs::OpenOptions::new().write(true).open(&mem);
    let written = written.and_then(|mem| mem.write_all_at(&word.to_ne_bytes(), target as u64));
    let allowed = folder.join("allowed/file");
    let own = std::env::current_exe().unwrap();
    let direct = |options: &mut std::fs::OpenOptions| told(options.custom_flags(libc::O_DIRECT).open(&own));
    let path = std::ffi::CString::new(own.to_str().unwrap()).unwrap();
    let mut attempts = vec![
        ("parent's /proc/PID/mem", told(written)),
        ("process_vm_writev", vm(libc::SYS_process_vm_writev)),
        ("process_vm_readv", vm(libc::SYS_process_vm_readv)),
        ("ptrace", call(libc::SYS_ptrace, [libc::PTRACE_SEIZE as usize, parent as usize, 0, 0, 0, 0])),
        ("own /proc/self/mem for writing", write_to("/proc/self/mem".to_owned())),
        ("pidfd_getfd of the parent", pidfd_getfd(parent)),
        ("signal to the parent", call(libc::SYS_kill, [parent as usize, 0, 0, 0, 0, 0])),
        ("openat with O_DIRECT", direct(std::fs::OpenOptions::new().read(true))),
        ("O_DIRECT by F_SETFL", {
            let file = std::fs::File::open(&own).unwrap();
            // SAFETY: plain numbers.
            if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT) } == -1 {
                last()
            } else {
                0
            }
        }),
        ("secret file", told(std::fs::read(folder.join("secret")))),
        ("allowed file", told(std::fs::read(&allowed))),
        ("allowed folder", told(std::fs::read_dir(folder.join("allowed")))),
        ("allowed file for writing", write_to(allowed.to_str().unwrap().to_owned())),
        ("a new file", told(std::fs::File::create(folder.join("allowed/new")))),
        ("own page map", told(std::fs::File::open("/proc/self/pagemap"))),
        (
            "capabilities",
            refused_if(status("CapPrm:", "0000000000000000") && status("CapEff:", "0000000000000000")),
        ),
        ("new privileges", refused_if(status("NoNewPrivs:", "1"))),
        ("memory opened again", memory_opened_again()),
        ("a thread", std::thread::spawn(|| 0).join().unwrap()),
        ("getrandom", call(libc::SYS_getrandom, [&raw mut word as usize, 8, 0, 0, 0, 0])),
        // SAFETY: a plain number.
        ("leaked descriptor", if unsafe { libc::fcntl(leaked, libc::F_GETFD) } == -1 { last() } else { 0 }),
    ];
    let mut uring = [0u8; 256];
    let mut context = 0usize;
    let how = [0u64; 3];
    attempts.extend([
        ("io_uring_setup", call(libc::SYS_io_uring_setup, [4, uring.as_mut_ptr() as usize, 0, 0, 0, 0])),
        ("io_setup", call(libc::SYS_io_setup, [4, &raw mut context as usize, 0, 0, 0, 0])),
        (
            "openat2",
            call(
                libc::SYS_openat2,
                [libc::AT_FDCWD as usize, path.as_ptr() as usize, how.as_ptr() as usize, 24, 0, 0],
            ),
        ),
        ("userfaultfd", call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0])),
        ("vmsplice", vmsplice()),
        ("open_by_handle_at", call(libc::SYS_open_by_handle_at, [0; 6])),
        ("bpf", call(libc::SYS_bpf, [0; 6])),
        ("socket of the internet", socket(libc::AF_INET)),
        ("socket of the kernel's crypto", socket(libc::AF_ALG)),
    ]);
    #[cfg(target_arch = "x86_64")]
    attempts.extend([
        (
            "open with O_DIRECT",
            call(
                libc::SYS_open,
                [path.as_ptr() as usize, (libc::O_RDONLY | libc::O_DIRECT) as usize, 0, 0, 0, 0],
            ),
        ),
        (
            "io_uring_setup by its other number",
            call(libc::SYS_io_uring_setup | 0x4000_0000, [4, uring.as_mut_ptr() as usize, 0, 0, 0, 0]),
        ),
    ]);
    #[cfg(not(target_arch = "x86_64"))]
    attempts
        .extend([("open with O_DIRECT", libc::EPERM), ("io_uring_setup by its other number", libc::ENOSYS)]);
    attempts
}

fn socket(family: i32) -> i32 {
    call(libc::SYS_socket, [family as usize, libc::SOCK_SEQPACKET as usize, 0, 0, 0, 0]).min(
        if family == libc::AF_INET {
            call(libc::SYS_socket, [family as usize, libc::SOCK_STREAM as usize, 0, 0, 0, 0])
        } else {
            i32::MAX
        },
    )
}

fn pidfd_getfd(parent: u32) -> i32 {
    // SAFETY: plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, parent, 0) };
    if fd == -1 {
        return last();
    }
    // SAFETY: the kernel has just made it for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    call(libc::SYS_pidfd_getfd, [fd.as_raw_fd() as usize, 1, 0, 0, 0, 0])
}

fn vmsplice() -> i32 {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the kernel has just made them for us.
    let [_reader, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let page = [0u8; 64];
    let vector = libc::iovec { iov_base: page.as_ptr().cast_mut().cast(), iov_len: page.len() };
    call(libc::SYS_vmsplice, [writer.as_raw_fd() as usize, &raw const vector as usize, 1, 0, 0, 0])
}

/// Memory without a name is opened by its descriptor, for writing too: what a lease is a proof against.
fn memory_opened_again() -> i32 {
    // SAFETY: the name ends with a zero.
    let fd = unsafe { libc::memfd_create(c"again".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the kernel has just made it for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    told(std::fs::OpenOptions::new().read(true).write(true).open(path))
}
