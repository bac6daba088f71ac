//! Data to and fro between two processes (UVM paper, 5.4): over a local socket, or by passing map entries.
//!
//! A parent and its child pass one buffer's worth of data from one to the other and back, round after round. *By
//! socket* the kernel copies it from the sender into mbufs and from there to the receiver. *By pass* the sender exports
//! the buffer as a donation to its peer and tells it the number of the offer in a message of eight bytes over the same
//! kind of socket; the peer imports it, and so has the buffer. (The paper does not say how its processes learned the
//! number; a message is what processes that have nothing in common but the facility would use.)
//!
//! *By auto* the parent asks the kernel once what is cheaper for buffers of this size; over a socket, each call is by
//! copy or by loan and by copy or by transfer, as the kernel chooses.
//!
//! With `touch` a receiver goes over the data that has arrived: it reads every word and writes another in its place, so
//! that the next transfer carries other data. Without, the buffer is its judge's to refill between transfers.
//!
//! The measured part begins when the parent sends for the first time after the warm-up, and ends when it has received,
//! and gone over, what the child sent last.

use crate::choice::By;
use crate::link::{Link, modify};
use crate::os::{CallError, Os, named};
use alloc::boxed::Box;
use alloc::rc::Rc;
use pageferry_abi::Pid;
use pageferry_costs::Arrived;
use pageferry_hal::Va;

/// What goes to and fro, and how.
#[derive(Clone, Copy, Debug)]
pub struct PingPong {
    /// What carries the data.
    pub by: By,
    /// A receiver reads every word and writes another in its place.
    pub touch: bool,
    /// Bytes of a transfer.
    pub size_bytes: usize,
    /// Transfers before the measured part, there and back.
    pub warmup_transfers: u64,
    /// Transfers of the measured part, there and back.
    pub transfers: u64,
    /// Instructions of a word, of a receiver that goes over the data.
    pub loop_instructions: u32,
}

/// What is told of the transfers, by both processes.
pub trait Judge {
    /// What transfer `index` carries: `size_bytes`.
    fn contents(&self, index: u64) -> &[u8];
    /// `sender` sends its buffer next, as transfer `index`, and has not gone over it: it may get other contents, from
    /// outside.
    fn refills(&self, sender: Pid, buffer: Va, index: u64);
    /// The measured part begins.
    fn begins(&self);
    /// `receiver` has transfer `index` in its buffer.
    fn arrived(&self, receiver: Pid, buffer: Va, index: u64);
    /// The measured part is over.
    fn ends(&self);
}

/// One of the two processes, as it plays.
struct Player<'a> {
    game: PingPong,
    os: &'a dyn Os,
    judge: &'a dyn Judge,
    /// The kernel says that `by` means passing, or the game does.
    passes: bool,
    link: Link,
    peer: Pid,
    /// The data, while this process has it.
    buffer: Va,
}

impl PingPong {
    /// The program of the parent.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(self, os: &dyn Os, judge: &Rc<impl Judge + 'static>) -> Result<(), CallError> {
        let arrived = if self.touch { Arrived::Touched } else { Arrived::Untouched };
        let passes = self.by.passes(os, self.size_bytes, arrived)?;
        let (own, other) = Link::pair(os)?;
        let (own, other) = (own.with_auto(self.by == By::Auto), other.with_auto(self.by == By::Auto));
        let (theirs, parent) = (judge.clone(), os.pid());
        let child = move |os: &dyn Os| {
            own.close(os)?;
            self.play(os, &*theirs, passes, other, parent, false)
        };
        let child = os.fork("child", Box::new(child)).map_err(named("fork"))?;
        other.close(os)?;
        let result = self.play(os, &**judge, passes, own, child, true);
        // Without a peer the child ends, too: no wait for ever after a failure.
        own.close(os)?;
        os.wait().map_err(named("wait"))?;
        result
    }

    /// Plays the parent's part, which begins, or the child's.
    fn play(
        self,
        os: &dyn Os,
        judge: &dyn Judge,
        passes: bool,
        link: Link,
        peer: Pid,
        is_parent: bool,
    ) -> Result<(), CallError> {
        let mut buffer = Va(0);
        // What is passed has one place at a time; what is copied has one in each process.
        if is_parent || !passes {
            buffer = os.map(self.size_bytes).map_err(named("map the buffer"))?;
            os.store(buffer, judge.contents(0));
        }
        let link = link.with_message(os)?;
        let mut player = Player { game: self, os, judge, passes, link, peer, buffer };
        for index in 0..self.warmup_transfers + self.transfers {
            if is_parent && index == self.warmup_transfers {
                judge.begins();
            }
            if (index % 2 == 0) == is_parent {
                player.send(index)?;
            } else if !player.receive(index)? {
                return Ok(());
            }
        }
        if is_parent {
            judge.ends();
            return Ok(());
        }
        // What a process offers goes with it: the parent has to take the last buffer first, and then it closes.
        player.link.hear(os).map(|_| ())
    }
}

impl Player<'_> {
    /// Sends transfer `index`.
    fn send(&mut self, index: u64) -> Result<(), CallError> {
        let PingPong { size_bytes, touch, .. } = self.game;
        if !touch && index > 0 {
            self.judge.refills(self.os.pid(), self.buffer, index);
        }
        if self.passes {
            self.link.pass(self.os, self.buffer, size_bytes, self.peer)
        } else {
            self.link.send(self.os, self.buffer, size_bytes)
        }
    }

    /// Receives transfer `index` and goes over it; false when there is none, because the peer is gone.
    fn receive(&mut self, index: u64) -> Result<bool, CallError> {
        let PingPong { size_bytes, touch, loop_instructions, .. } = self.game;
        if self.passes {
            let Some(at) = self.link.take(self.os)? else { return Ok(false) };
            self.buffer = at;
        } else if !self.link.receive(self.os, self.buffer, size_bytes)? {
            return Ok(false);
        }
        self.judge.arrived(self.os.pid(), self.buffer, index);
        if touch {
            modify(self.os, self.buffer, self.judge.contents(index + 1), loop_instructions);
        }
        Ok(true)
    }
}
