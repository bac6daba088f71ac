//! Calls and accesses at the edges of what a program may use: up to where its memory ends, byte by byte; at pages that
//! it may only read; and at addresses of the kernel's.
//!
//! The kernel says how far it came: as many bytes as lie before the edge are moved, the rest stays in the pipe, and a
//! process whose own access goes beyond an edge ends. What a fault says (where, which access, why, and how much was
//! done) is among the events that both machines are compared by.

use crate::verdict::Verdict;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use pageferry_hal::isa::x86::AMD64_LAYOUT;
use pageferry_hal::{Machine, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, User};
use pageferry_vm::Inherit;

/// What goes beyond the edge.
const BEYOND: usize = 50;
/// Bytes in front of an edge: none, parts of words and whole ones, and as many as a pipe takes without a reader.
const DISTANCES: [usize; 9] = [0, 1, 3, 7, 8, 9, 63, 100, PAGE_SIZE - BEYOND - 1];

/// What a pipe is asked for at an edge, and what its other end has.
struct Ends {
    from: Fd,
    to: Fd,
    /// Two pages of the program's.
    source: Va,
    /// A page for what did not come where it should not.
    rest: Va,
    contents: Vec<u8>,
    verdict: Arc<Verdict>,
}

/// The program. Of each call it is looked at what it answers, and what is in memory.
pub(crate) fn run<M: Machine>(user: &User<M>, verdict: &Arc<Verdict>) -> Result<(), Errno> {
    let contents: Vec<u8> = (0..2 * PAGE_SIZE).map(|i| (i * 7 % 251) as u8 + 1).collect();
    let source = user.map(contents.len(), Prot::RW, Inherit::Copy)?;
    user.store(source, &contents);
    let (from, to) = user.pipe()?;
    let rest = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy)?;
    let ends = Ends { from, to, source, rest, contents, verdict: verdict.clone() };
    // Two pages, and behind them one that may be read.
    let read_only = user.map(3 * PAGE_SIZE, Prot::RW, Inherit::Copy)? + 2 * PAGE_SIZE;
    user.store(read_only, &ends.contents[..BEYOND]);
    user.protect(read_only, PAGE_SIZE, Prot::READ)?;
    // Behind these nothing; and nothing is mapped any more, which might come to lie there.
    let hole = user.map(3 * PAGE_SIZE, Prot::RW, Inherit::Copy)? + 2 * PAGE_SIZE;
    user.unmap(hole, PAGE_SIZE)?;
    for distance in DISTANCES {
        ends.reads_up_to(user, hole, distance)?;
        ends.reads_up_to(user, read_only, distance)?;
        ends.writes_up_to(user, hole, distance)?;
    }
    let direct_map = AMD64_LAYOUT.direct_map.expect("amd64 has one");
    for at in [AMD64_LAYOUT.user_end, AMD64_LAYOUT.kernel_base, direct_map] {
        ends.reads_up_to(user, at, 0)?;
        ends.writes_up_to(user, at, 0)?;
    }
    ends.machine_refuses_too(user, direct_map);
    for at in [hole, read_only, direct_map] {
        ends.access_ends_a_process(user, at)?;
    }
    let mut found = vec![0; BEYOND];
    user.load(read_only, &mut found);
    verdict.compares(&found, &ends.contents[..BEYOND]);
    Ok(())
}

impl Ends {
    /// A call that goes `distance` bytes up to an edge and beyond has answered this.
    fn answers(&self, answer: Result<usize, Errno>, distance: usize) {
        let expected = if distance > 0 { Ok(distance) } else { Err(Errno::Fault) };
        self.verdict.compares(&[u8::from(answer == expected)], &[1]);
    }

    /// Reads across the edge at `edge`: what lies before it comes, and the next read has the rest.
    fn reads_up_to<M: Machine>(&self, user: &User<M>, edge: Va, distance: usize) -> Result<(), Errno> {
        let len = distance + BEYOND;
        let at = Va(edge.0 - distance as u64);
        user.write(self.to, self.source, len)?;
        self.answers(user.read(self.from, at, len), distance);
        let mut found = vec![0; distance];
        user.load(at, &mut found);
        self.verdict.compares(&found, &self.contents[..distance]);
        let got = user.read(self.from, self.rest, len)?;
        let mut found = vec![0; BEYOND];
        user.load(self.rest, &mut found);
        self.verdict.compares(&[u8::from(got == BEYOND)], &[1]);
        self.verdict.compares(&found, &self.contents[distance..len]);
        Ok(())
    }

    /// Writes across the edge: what lies before it goes.
    fn writes_up_to<M: Machine>(&self, user: &User<M>, edge: Va, distance: usize) -> Result<(), Errno> {
        let at = Va(edge.0 - distance as u64);
        user.store(at, &self.contents[..distance]);
        self.answers(user.write(self.to, at, distance + BEYOND), distance);
        if distance == 0 {
            return Ok(());
        }
        let got = user.read(self.from, self.rest, distance)?;
        let mut found = vec![0; distance];
        user.load(self.rest, &mut found);
        self.verdict.compares(&[u8::from(got == distance)], &[1]);
        self.verdict.compares(&found, &self.contents[..distance]);
        Ok(())
    }

    /// Whatever the kernel has looked at before: a machine copies from and to user space only, where one side has to be
    /// a program's.
    fn machine_refuses_too<M: Machine>(&self, user: &User<M>, direct_map: Va) {
        let machine = user.machine();
        let kernels = |at: Va| {
            let frame = user.frame_behind(at).expect("it was stored to");
            direct_map + frame.index() * PAGE_SIZE
        };
        let (from, to) = (kernels(self.source), kernels(self.rest));
        for refused in [machine.copy_out(to, from, 8), machine.copy_in(to, from, 8)] {
            self.verdict.compares(&[u8::from(refused.is_err())], &[1]);
        }
    }

    /// A store there ends the process that makes it.
    fn access_ends_a_process<M: Machine>(&self, user: &User<M>, at: Va) -> Result<(), Errno> {
        let verdict = self.verdict.clone();
        let child = move |user: &User<M>| {
            user.store(at, &[1, 2, 3]);
            verdict.compares(&[u8::from(user.is_killed())], &[1]);
        };
        user.fork("beyond", Box::new(child))?;
        user.wait().map(|_| ())
    }
}
