//! A pipeline of three processes (UVM paper, 5.4): the first allocates and fills a buffer and sends it to the second,
//! which modifies it and sends it to the third, which writes it to a socket of the null protocol.
//!
//! *By socket* the data is copied from process to process, each of which has a buffer of its own for all rounds. *By
//! pass* the buffer itself goes from one to the next as a donation, its number in a message (see [`crate::ping_pong`]);
//! the first process maps a new one for each round, and the last unmaps it. The last may write by copy or by loan
//! either way.
//!
//! *By auto* the first process asks the kernel once what is cheaper for buffers of this size; over sockets, each call
//! is as the kernel chooses.
//!
//! "Then the first process can generate another buffers worth of data" (5.4) is taken at its word: the third process
//! tells the first, in a message, that it has written the data, and the first waits for that. So one buffer is on its
//! way at a time, however it travels.
//!
//! The measured part begins when the third process has written the last buffer of the warm-up, and ends when it has
//! written the last of all.

use crate::choice::By;
use crate::link::{Link, modify, send_all, write_over};
use crate::os::{CallError, Os, named};
use alloc::boxed::Box;
use alloc::rc::Rc;
use pageferry_abi::{Pid, SendMode};
use pageferry_costs::Arrived;
use pageferry_hal::Va;

/// What goes through the pipeline, and how.
#[derive(Clone, Copy, Debug)]
pub struct Pipeline {
    /// What carries the data from process to process.
    pub by: By,
    /// How the last process writes: by copy, by loan, or as is cheaper.
    pub send: SendMode,
    /// Bytes of a buffer.
    pub size_bytes: usize,
    /// Rounds before the measured part.
    pub warmup_rounds: u64,
    /// Rounds of the measured part.
    pub rounds: u64,
    /// Instructions of a word, where a process goes over the data.
    pub loop_instructions: u32,
}

/// What is told of the buffers, by all processes. Round `n` begins with contents `2n`, and the second process makes
/// contents `2n + 1` of it.
pub trait Judge {
    /// Contents `index`: `size_bytes`.
    fn contents(&self, index: u64) -> &[u8];
    /// What is measured begins; again when the warm-up is over.
    fn begins(&self);
    /// `receiver` has contents `index` in its buffer.
    fn arrived(&self, receiver: Pid, buffer: Va, index: u64);
    /// The measured part is over.
    fn ends(&self);
}

/// The connections of a process: the two that it uses, and what it inherited and closes.
struct Ends {
    used: [Link; 2],
    unused: [Link; 4],
}

/// One of the processes at work.
struct Stage<'a> {
    line: Pipeline,
    os: &'a dyn Os,
    judge: &'a dyn Judge,
    passes: bool,
    /// Its own buffer, for data that is copied.
    own: Va,
}

impl Pipeline {
    /// The program of the first process, which makes the others.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(self, os: &dyn Os, judge: &Rc<impl Judge + 'static>) -> Result<(), CallError> {
        let passes = self.by.passes(os, self.size_bytes, Arrived::Touched)?;
        let (first_out, second_in) = Link::pair(os)?;
        let (second_out, third_in) = Link::pair(os)?;
        let (third_done, first_done) = Link::pair(os)?;
        let theirs = judge.clone();
        let third = move |os: &dyn Os| {
            let unused = [first_out, second_in, second_out, first_done];
            let (stage, ends) =
                self.stage(os, &*theirs, passes, Ends { used: [third_in, third_done], unused })?;
            stage.third(ends)
        };
        let third = os.fork("third", Box::new(third)).map_err(named("fork"))?;
        let theirs = judge.clone();
        let second = move |os: &dyn Os| {
            let unused = [first_out, third_in, third_done, first_done];
            let (stage, ends) =
                self.stage(os, &*theirs, passes, Ends { used: [second_in, second_out], unused })?;
            stage.second(ends, third)
        };
        let second = os.fork("second", Box::new(second)).map_err(named("fork"))?;
        let unused = [second_in, second_out, third_in, third_done];
        let result = self
            .stage(os, &**judge, passes, Ends { used: [first_out, first_done], unused })
            .and_then(|(stage, ends)| stage.first(ends, second));
        // Without the first the others end, too: no wait for ever after a failure.
        first_out.close(os)?;
        first_done.close(os)?;
        for _ in 0..2 {
            os.wait().map_err(named("wait"))?;
        }
        result
    }

    fn all_rounds(&self) -> u64 {
        self.warmup_rounds + self.rounds
    }

    /// Makes a process ready, and its connections.
    fn stage<'a>(
        self,
        os: &'a dyn Os,
        judge: &'a dyn Judge,
        passes: bool,
        ends: Ends,
    ) -> Result<(Stage<'a>, [Link; 2]), CallError> {
        ends.unused.into_iter().try_for_each(|link| link.close(os))?;
        let own = if passes { Va(0) } else { self.map(os)? };
        let [one, other] = ends.used;
        let (one, other) = (one.with_message(os)?, other.with_message(os)?);
        let auto = self.by == By::Auto;
        Ok((Stage { line: self, os, judge, passes, own }, [one.with_auto(auto), other.with_auto(auto)]))
    }

    fn map(&self, os: &dyn Os) -> Result<Va, CallError> {
        os.map(self.size_bytes).map_err(named("map a buffer"))
    }
}

impl Stage<'_> {
    fn first(&self, [out, done]: [Link; 2], second: Pid) -> Result<(), CallError> {
        for round in 0..self.line.all_rounds() {
            let buffer = if self.passes { self.line.map(self.os)? } else { self.own };
            write_over(self.os, buffer, self.judge.contents(2 * round), self.line.loop_instructions);
            self.send(out, buffer, second)?;
            if done.hear(self.os)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn second(&self, [from, to]: [Link; 2], third: Pid) -> Result<(), CallError> {
        for round in 0..self.line.all_rounds() {
            let Some(buffer) = self.receive(from, 2 * round)? else { return Ok(()) };
            modify(self.os, buffer, self.judge.contents(2 * round + 1), self.line.loop_instructions);
            self.send(to, buffer, third)?;
        }
        // What a process offers goes with it: the last buffer has to be taken first.
        from.hear(self.os).map(|_| ())
    }

    fn third(&self, [from, done]: [Link; 2]) -> Result<(), CallError> {
        let (os, size_bytes) = (self.os, self.line.size_bytes);
        let null = os.null_socket().map_err(named("null socket"))?;
        self.judge.begins();
        for round in 0..self.line.all_rounds() {
            let Some(buffer) = self.receive(from, 2 * round + 1)? else { return Ok(()) };
            send_all(os, null, buffer, size_bytes, self.line.send).map_err(named("send"))?;
            if self.passes {
                os.unmap(buffer, size_bytes).map_err(named("unmap"))?;
            }
            // The judge reads its clock before the message: its receiver may run at once.
            if round + 1 == self.line.warmup_rounds {
                self.judge.begins();
            }
            if round + 1 == self.line.all_rounds() {
                self.judge.ends();
            }
            done.tell(os, round)?;
        }
        Ok(())
    }

    /// Sends the buffer on to `peer`.
    fn send(&self, link: Link, buffer: Va, peer: Pid) -> Result<(), CallError> {
        let size_bytes = self.line.size_bytes;
        if self.passes {
            link.pass(self.os, buffer, size_bytes, peer)
        } else {
            link.send(self.os, buffer, size_bytes)
        }
    }

    /// Receives the buffer with contents `index`; none when the process before is gone.
    fn receive(&self, link: Link, index: u64) -> Result<Option<Va>, CallError> {
        let mut buffer = self.own;
        if self.passes {
            let Some(at) = link.take(self.os)? else { return Ok(None) };
            buffer = at;
        } else if !link.receive(self.os, buffer, self.line.size_bytes)? {
            return Ok(None);
        }
        self.judge.arrived(self.os.pid(), buffer, index);
        Ok(Some(buffer))
    }
}
