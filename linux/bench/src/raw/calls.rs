//! The calls that methods are made of, and the scheduler.

use crate::cell::Wait;
use crate::error::{BenchError, Calls as _, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};
use std::io;
use std::time::Instant;

/// Both ends of a pipe of 1 MB, or of as much as this user may have: the end to read from is the first.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let ends = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).call("pipe2")?;
    let _ = rustix::pipe::fcntl_setpipe_size(&ends.1, 1 << 20);
    Ok(ends)
}

/// Both ends of a stream.
pub(crate) fn stream() -> Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).call("socketpair")
}

/// A side that spins never waits in the kernel.
pub(crate) fn nonblocking(fd: impl AsFd, wait: Wait) -> Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd).call("F_GETFL")?;
    let flags = if wait == Wait::Spin { flags | OFlags::NONBLOCK } else { flags - OFlags::NONBLOCK };
    rustix::fs::fcntl_setfl(&fd, flags).call("F_SETFL")
}

/// Copies the bytes at an address of another process.
pub(crate) fn readv(pid: u32, address: u64, to: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < to.len() {
        let rest = &mut to[done..];
        let ours = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let theirs = libc::iovec { iov_base: (address as usize + done) as *mut _, iov_len: rest.len() };
        // SAFETY: the kernel writes at most `rest.len()` bytes into `rest`.
        let read = unsafe {
            libc::process_vm_readv(pid as libc::pid_t, &raw const ours, 1, &raw const theirs, 1, 0)
        };
        if read <= 0 {
            return Err(io::Error::last_os_error()).call("process_vm_readv");
        }
        done += read as usize;
    }
    Ok(())
}

/// Puts the pages of the bytes into a pipe. They must stay as they are until they were read.
pub(crate) fn splice_out(pipe: &OwnedFd, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    let mut since = None;
    while done < bytes.len() {
        let slice = [IoSliceRaw::from_slice(&bytes[done..])];
        // SAFETY: the slice lives through the call; what the pipe refers to later is kept by the turns.
        match unsafe { rustix::pipe::vmsplice(pipe, &slice, SpliceFlags::empty()) } {
            Ok(spliced) => done += spliced,
            Err(Errno::AGAIN) => patience(&mut since)?,
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno).call("vmsplice"),
        }
    }
    Ok(())
}

/// For loops that poll: an error when they have polled for a minute.
pub(crate) fn patience(since: &mut Option<Instant>) -> Result<()> {
    let now = Instant::now();
    match now.duration_since(*since.get_or_insert(now)).as_secs() {
        0..60 => Ok(()),
        _ => Err(BenchError::Silent(60)),
    }
}

/// Fills the bytes with one word by non-temporal stores, as a program does that knows of them.
pub(crate) fn streamed_fill(bytes: &mut [u8], first: u64, step: u64) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_add_epi64, _mm_set_epi64x, _mm_sfence, _mm_stream_si128};
        assert!(bytes.as_ptr().addr().is_multiple_of(16) && bytes.len().is_multiple_of(64));
        let pair = |at: u64| {
            (first.wrapping_add(step.wrapping_mul(at)), first.wrapping_add(step.wrapping_mul(at + 1)))
        };
        let to = bytes.as_mut_ptr();
        // SAFETY: SSE2 is part of x86_64; aligned, and within the bytes.
        unsafe {
            let mut values: [_; 4] = core::array::from_fn(|index| {
                let (low, high) = pair(2 * index as u64);
                _mm_set_epi64x(high as i64, low as i64)
            });
            let step = step.wrapping_mul(8) as i64;
            let step = _mm_set_epi64x(step, step);
            for line in (0..bytes.len()).step_by(64) {
                for (index, value) in values.iter_mut().enumerate() {
                    _mm_stream_si128(to.add(line + 16 * index).cast(), *value);
                    *value = _mm_add_epi64(*value, step);
                }
            }
            _mm_sfence();
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (bytes, first, step);
    }
}

/// CPUs that this process may use.
pub(crate) fn cpus() -> Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None).call("sched_getaffinity")?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps this thread on these CPUs.
pub fn pin(cpus: &[usize]) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        if cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(BenchError::Usage(format!("there is no CPU {cpu}")));
        }
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set).call("sched_setaffinity")
}

/// Has nothing else run on this thread's CPU, or lets it again.
pub(crate) fn realtime(on: bool) -> Result<()> {
    let (policy, priority) = if on { (libc::SCHED_FIFO, 1) } else { (libc::SCHED_OTHER, 0) };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters live through the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).call("sched_setscheduler"),
    }
}
