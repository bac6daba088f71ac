//! Children that only live. A test that fails takes its child with it: one that stayed would hold the test's output
//! open, and whoever reads that would wait for ever.

/// A child that does nothing until it is killed.
#[derive(Debug)]
pub struct Idle(libc::pid_t);

impl Idle {
    pub fn fork() -> Idle {
        // SAFETY: the child makes only calls that may be made after a fork.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            },
            pid => Idle(pid),
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: a child of ours that nobody else waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, core::ptr::null_mut(), 0);
        }
    }
}
