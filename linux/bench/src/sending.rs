//! The sending process: memory and channels for messages of one size, and one message by each method.

use crate::cell::{Line, Method, Pattern, Wait};
use crate::error::{BenchError, Calls as _, Result};
use crate::link::{Answer, Link, Order};
use crate::raw::{self, Cell, Memory, Turn};
use crate::work;
use pageferry::trust::Same;
use pageferry::{Arrived, Buffer, Child, Config, Lent, Sender, Stores};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Slots that messages rotate through, by every method.
pub(crate) const SLOTS: usize = 2;
/// Sealed memory that is prepared at a time, at most.
const MAX_PREPARED: usize = 256 << 20;

/// Bytes of a slot for messages of `len`.
pub(crate) fn slot_bytes(len: usize) -> usize {
    len.next_multiple_of(2 << 20)
}

/// The channel for messages of `len`.
pub(crate) fn config(line: Line, len: usize, wait: Wait) -> Config {
    let slots = SLOTS as u32;
    let (slots, slot_bytes) = match line {
        // Sealed messages take no slots.
        Line::Sealed => (1, 2 << 20),
        _ => (slots, slot_bytes(len)),
    };
    // A test host may be slow to make the first pools.
    Config::new()
        .slots(slots)
        .slot_bytes(slot_bytes)
        .budget(8 << 30)
        .require_level(line.level())
        .spin(if wait == Wait::Spin { Duration::MAX } else { Duration::ZERO })
        .handshake_timeout(Duration::from_secs(60))
}

/// A buffer of the library, and what is in it.
struct StampedBuffer {
    buffer: Buffer,
    stamp: u64,
}

/// Memory that both the floor and the copies through shared memory use, or this process's own; and what is in
/// its slots.
struct Slots {
    memory: Memory,
    stamps: [u64; SLOTS],
    next: usize,
}

impl Slots {
    fn new(memory: Memory) -> Slots {
        Slots { memory, stamps: [0; SLOTS], next: 0 }
    }

    fn fill(&mut self, slot: usize, len: usize, stamp: u64) {
        work::fill(self.memory.bytes_mut(slot * slot_bytes(len), len), stamp);
        self.stamps[slot] = stamp;
    }

    fn turn(&mut self) -> usize {
        self.next = (self.next + 1) % SLOTS;
        self.next
    }

    fn bytes(&self, slot: usize, len: usize) -> &[u8] {
        self.memory.bytes(slot * slot_bytes(len), len)
    }
}

/// All that messages of one size go by.
pub(crate) struct SenderSide<'a> {
    link: &'a Link,
    bytes: usize,
    turn: Turn,
    slots: Slots,
    own: Slots,
    pipe: OwnedFd,
    stream: OwnedFd,
    mmu: Option<(Sender, VecDeque<StampedBuffer>)>,
    typed: Option<(Sender, VecDeque<StampedBuffer>)>,
    leased: Option<(Sender, VecDeque<StampedBuffer>)>,
    /// As many are sent again by turns as there are slots, so that the distance of reuse is the same.
    sealed: Option<(Sender, VecDeque<Lent>)>,
    /// What is in the sealed memory that is sent again.
    sealed_stamp: u64,
    prepared: VecDeque<Buffer>,
    sent: Vec<Lent>,
    stamp: u64,
    /// The sum of all that was sent in this batch.
    sum: u64,
    realtime: bool,
}

/// Why a channel is not there.
pub(crate) type Missing = Vec<(Line, String)>;

impl<'a> SenderSide<'a> {
    pub(crate) fn open(
        link: &'a Link,
        child: &Child<Same>,
        bytes: usize,
        wait: Wait,
        realtime: bool,
        lines: &[Line],
    ) -> Result<(SenderSide<'a>, Missing)> {
        let turn = Turn::make(wait)?;
        let slots = Memory::shared(SLOTS * slot_bytes(bytes))?;
        let own = Memory::own(SLOTS * slot_bytes(bytes))?;
        let (theirs, pipe) = raw::pipe()?;
        let (stream, their_stream) = raw::stream()?;
        raw::nonblocking(&pipe, wait)?;
        raw::nonblocking(&stream, wait)?;
        let (pid, own_at, wanted) = (std::process::id(), own.address(), lines.to_vec());
        let order = Order::Open { bytes, wait, pid, own: own_at, lines: wanted };
        let slots_fd = slots.fd().expect("it was made to be shared");
        link.send(&order, &[turn.fd(), slots_fd, &theirs, &their_stream])?;
        let mut senders = [const { None }; Line::ALL.len()];
        let mut missing = Vec::new();
        for &line in lines {
            match child.sender(config(line, bytes, wait)) {
                Ok(sender) => senders[line as usize] = Some(sender),
                Err(error) => missing.push((line, error.to_string())),
            }
        }
        let Answer::Opened { missing: theirs } = link.answer()? else { return Err(out_of_order()) };
        for (index, why) in theirs {
            senders[index] = None;
            if missing.iter().all(|(line, _)| *line as usize != index) {
                missing.push((Line::ALL[index], why));
            }
        }
        let [mmu, typed, sealed, leased] = senders;
        let buffers = |sender: Option<Sender>| -> Result<Option<(Sender, VecDeque<StampedBuffer>)>> {
            let Some(sender) = sender else { return Ok(None) };
            let buffer = |_| Ok(StampedBuffer { buffer: sender.buffer(bytes)?, stamp: 0 });
            let buffers = (0..SLOTS).map(buffer).collect::<Result<_>>()?;
            Ok(Some((sender, buffers)))
        };
        let mut sending = SenderSide {
            link,
            bytes,
            turn,
            slots: Slots::new(slots),
            own: Slots::new(own),
            pipe,
            stream,
            mmu: buffers(mmu)?,
            typed: buffers(typed)?,
            leased: buffers(leased)?,
            sealed: sealed.map(|sender| (sender, VecDeque::new())),
            sealed_stamp: 0,
            prepared: VecDeque::new(),
            sent: Vec::new(),
            stamp: 0,
            sum: 0,
            realtime,
        };
        sending.prime()?;
        Ok((sending, missing))
    }

    /// Fills all memory, so that what is sent again has known contents.
    pub(crate) fn prime(&mut self) -> Result<()> {
        self.stamp += 1;
        let (stamp, len) = (self.stamp, self.bytes);
        for slot in 0..SLOTS {
            self.slots.fill(slot, len, stamp);
            self.own.fill(slot, len, stamp);
        }
        for (_, buffers) in [&mut self.mmu, &mut self.typed, &mut self.leased].into_iter().flatten() {
            for stamped in buffers {
                work::fill(&mut stamped.buffer, stamp);
                stamped.stamp = stamp;
            }
        }
        Ok(())
    }

    /// Whether messages can go by the method here.
    pub(crate) fn has(&self, method: Method) -> bool {
        match method.channel() {
            None => true,
            Some(Line::Mmu) => self.mmu.is_some(),
            Some(Line::Typed) => self.typed.is_some(),
            Some(Line::Leased) => self.leased.is_some(),
            Some(Line::Sealed) => self.sealed.is_some(),
        }
    }

    /// Messages of a batch, at most.
    pub(crate) fn max_rounds(&self, method: Method) -> u32 {
        match method {
            Method::Sealed => (MAX_PREPARED / slot_bytes(self.bytes)).clamp(2, 64) as u32,
            _ => u32::MAX,
        }
    }

    /// Sends `warm` messages that are not timed, and `rounds` that are; nanoseconds of one.
    pub(crate) fn measure(
        &mut self,
        method: Method,
        pattern: Pattern,
        warm: u32,
        rounds: u32,
    ) -> Result<f64> {
        self.begin(method, warm + rounds)?;
        self.order(method, pattern, warm + rounds, None)?;
        if self.realtime {
            raw::realtime(true)?;
        }
        let timed = self.timed(method, pattern, warm, rounds);
        if self.realtime {
            raw::realtime(false)?;
        }
        self.end(method, pattern, timed)
    }

    fn timed(&mut self, method: Method, pattern: Pattern, warm: u32, rounds: u32) -> Result<Duration> {
        for _ in 0..warm {
            self.round(method, pattern)?;
        }
        let began = Instant::now();
        for _ in 0..rounds {
            self.round(method, pattern)?;
        }
        Ok(began.elapsed() / rounds.max(1))
    }

    /// Sends one message, of which every byte is looked at.
    pub(crate) fn verify(&mut self, method: Method, pattern: Pattern) -> Result<()> {
        self.begin(method, 1)?;
        // Sending again sends what was filled before, all by the same stamp.
        let pattern = if method == Method::Resent { Pattern::Read } else { pattern };
        let stamp = match method {
            Method::Resent => self.sealed_stamp,
            _ if pattern.refills() => self.stamp + 1,
            _ => {
                self.prime()?;
                self.stamp
            }
        };
        let stamp = if method == Method::Sealed { self.stamp + 1 } else { stamp };
        self.order(method, pattern, 1, Some(stamp))?;
        let sent = self.round(method, pattern).map(|()| Duration::ZERO);
        self.end(method, pattern, sent).map(drop)
    }

    fn order(&mut self, method: Method, pattern: Pattern, rounds: u32, check: Option<u64>) -> Result<()> {
        self.sum = 0;
        self.link.send(&Order::Receive { method, pattern, rounds, check }, &[])?;
        match self.link.answer()? {
            Answer::Ready => Ok(()),
            _ => Err(out_of_order()),
        }
    }

    /// What has to be there before a batch.
    fn begin(&mut self, method: Method, rounds: u32) -> Result<()> {
        match (method, &mut self.sealed, &mut self.mmu) {
            (Method::Sealed, Some((sender, _)), _) => {
                for _ in 0..rounds {
                    self.prepared.push_back(sender.buffer(self.bytes)?);
                }
            }
            (Method::Resent, Some((sender, kept)), _) if kept.is_empty() => {
                self.stamp += 1;
                for _ in 0..SLOTS {
                    let mut buffer = sender.buffer(self.bytes)?;
                    work::fill(&mut buffer, self.stamp);
                    self.sealed_stamp = self.stamp;
                    // The message itself is one of the peer's next batch, which is not timed.
                    let order =
                        Order::Receive { method, pattern: Pattern::Untouched, rounds: 1, check: None };
                    self.link.send(&order, &[])?;
                    let Answer::Ready = self.link.answer()? else { return Err(out_of_order()) };
                    kept.push_back(sender.loan(buffer)?);
                    self.turn.begin();
                    self.turn.wait_done()?;
                    let Answer::Received { .. } = self.link.answer()? else { return Err(out_of_order()) };
                }
            }
            // The library takes a slot of its own for such a message.
            (Method::Copy, _, Some((_, buffers))) => drop(buffers.pop_back()),
            _ => (),
        }
        Ok(())
    }

    fn end(&mut self, method: Method, pattern: Pattern, timed: Result<Duration>) -> Result<f64> {
        let timed = timed?;
        let answer = self.link.answer()?;
        match (method, &mut self.mmu) {
            (Method::Sealed, _) => {
                self.prepared.clear();
                self.sent.clear();
            }
            (Method::Copy, Some((sender, buffers))) => {
                let mut buffer = sender.buffer(self.bytes)?;
                self.stamp += 1;
                work::fill(&mut buffer, self.stamp);
                buffers.push_back(StampedBuffer { buffer, stamp: self.stamp });
            }
            _ => (),
        }
        match answer {
            Answer::Received { sum, right } if right && (!pattern.reads() || sum == self.sum) => {
                Ok(timed.as_nanos() as f64)
            }
            Answer::Received { .. } => Err(BenchError::Payload { method: method.name(), bytes: self.bytes }),
            _ => Err(out_of_order()),
        }
    }

    /// One message, until the receiver is done with it.
    fn round(&mut self, method: Method, pattern: Pattern) -> Result<()> {
        let len = self.bytes;
        if pattern.refills() {
            self.stamp += 1;
        }
        match method {
            Method::Floor => {
                let slot = self.slots.turn();
                if pattern.refills() {
                    self.slots.fill(slot, len, self.stamp);
                }
                self.told(self.slots.stamps[slot]);
                self.turn.publish(Cell { slot: slot as u32 });
                return self.turn.wait_done();
            }
            Method::Loan | Method::Typed | Method::Leased | Method::Donate => {
                return self.lend(method, pattern);
            }
            Method::LoanOrdinary | Method::LoanStreamed | Method::LoanWritten | Method::LoanFilled => {
                return self.lend_written(method);
            }
            Method::CopyBuffer | Method::Auto => return self.copy_buffer(method, pattern),
            Method::Sealed => return self.seal(pattern),
            Method::Resent => {
                let Some((sender, kept)) = &mut self.sealed else { return Err(missing()) };
                kept.rotate_left(1);
                let lent = kept.front().ok_or_else(missing)?;
                let again = sender.resend(lent)?;
                self.sum = self.sum.wrapping_add(work::sum_of(len, self.sealed_stamp));
                self.turn.begin();
                self.turn.wait_done()?;
                drop(again);
                return Ok(());
            }
            _ => (),
        }
        // All others send memory of this process.
        let slot = self.own.turn();
        if pattern.refills() {
            self.own.fill(slot, len, self.stamp);
        }
        self.told(self.own.stamps[slot]);
        let bytes = self.own.bytes(slot, len);
        match method {
            Method::Shm => {
                let to = self.slots.turn();
                self.slots.memory.bytes_mut(to * slot_bytes(len), len).copy_from_slice(bytes);
                self.slots.stamps[to] = self.own.stamps[slot];
                self.turn.publish(Cell { slot: to as u32 });
            }
            Method::Readv => self.turn.publish(Cell { slot: slot as u32 }),
            Method::Copy => {
                let Some((sender, _)) = &self.mmu else { return Err(missing()) };
                sender.copy(bytes)?;
                self.turn.begin();
            }
            Method::Unix => {
                self.turn.begin();
                write_all(&self.stream, bytes)?;
            }
            Method::Vmsplice => {
                self.turn.begin();
                raw::splice_out(&self.pipe, bytes)?;
            }
            _ => {
                self.turn.begin();
                write_all(&self.pipe, bytes)?;
            }
        }
        self.turn.wait_done()
    }

    /// What is sent was filled from the stamp.
    fn told(&mut self, stamp: u64) {
        self.sum = self.sum.wrapping_add(work::sum_of(self.bytes, stamp));
    }

    fn next_of(&mut self, method: Method) -> Result<(&Sender, &mut VecDeque<StampedBuffer>, StampedBuffer)> {
        let line = match method {
            Method::Typed => &mut self.typed,
            Method::Leased => &mut self.leased,
            _ => &mut self.mmu,
        };
        let Some((sender, buffers)) = line else { return Err(missing()) };
        let stamped = buffers.pop_front().ok_or_else(missing)?;
        Ok((sender, buffers, stamped))
    }

    fn lend(&mut self, method: Method, pattern: Pattern) -> Result<()> {
        let (stamp, len) = (self.stamp, self.bytes);
        let (sender, buffers, mut next) = self.next_of(method)?;
        if pattern.refills() {
            work::fill(&mut next.buffer, stamp);
            next.stamp = stamp;
        }
        let stamp = next.stamp;
        let buffer = if method == Method::Donate {
            sender.donate(next.buffer)?;
            // All other slots are held, so this waits until it is home.
            sender.buffer(len)?
        } else {
            sender.loan(next.buffer)?.wait()?
        };
        buffers.push_back(StampedBuffer { buffer, stamp });
        self.told(stamp);
        Ok(())
    }

    fn lend_written(&mut self, method: Method) -> Result<()> {
        let (stamp, len) = (self.stamp, self.bytes);
        let from = self.own.turn();
        if method != Method::LoanFilled {
            self.own.fill(from, len, stamp);
        }
        let line = &mut self.mmu;
        let Some((sender, buffers)) = line else { return Err(missing()) };
        let StampedBuffer { mut buffer, .. } = buffers.pop_front().ok_or_else(missing)?;
        let bytes = self.own.memory.bytes(from * slot_bytes(len), len);
        match method {
            Method::LoanFilled => buffer.fill_with(|to| work::fill_streamed(to, stamp)),
            Method::LoanOrdinary => buffer.write_with(bytes, Stores::Ordinary)?,
            Method::LoanStreamed => buffer.write_with(bytes, Stores::NonTemporal)?,
            _ => buffer.write_from(bytes)?,
        }
        let buffer = sender.loan(buffer)?.wait()?;
        buffers.push_back(StampedBuffer { buffer, stamp });
        self.told(stamp);
        Ok(())
    }

    fn copy_buffer(&mut self, method: Method, pattern: Pattern) -> Result<()> {
        let stamp = self.stamp;
        let (sender, _, mut next) = self.next_of(method)?;
        if pattern.refills() {
            work::fill(&mut next.buffer, stamp);
            next.stamp = stamp;
        }
        let stamp = next.stamp;
        let lent = match method {
            Method::CopyBuffer => sender.copy_buffer(next.buffer)?,
            _ => {
                let arrived = if pattern.reads() { Arrived::Touched } else { Arrived::Untouched };
                sender.auto(next.buffer, arrived)?
            }
        };
        self.turn.begin();
        self.turn.wait_done()?;
        let buffer = lent.wait()?;
        let Some((_, buffers)) = &mut self.mmu else { return Err(missing()) };
        buffers.push_back(StampedBuffer { buffer, stamp });
        self.told(stamp);
        Ok(())
    }

    fn seal(&mut self, pattern: Pattern) -> Result<()> {
        let Some((sender, _)) = &self.sealed else { return Err(missing()) };
        let mut buffer = self.prepared.pop_front().ok_or_else(missing)?;
        let stamp = if pattern.reads() {
            // Memory that is sealed is new, so there is something to read only when it was filled.
            self.stamp += u64::from(!pattern.refills());
            work::fill(&mut buffer, self.stamp);
            Some(self.stamp)
        } else {
            None
        };
        let lent = sender.loan(buffer)?;
        self.turn.begin();
        self.turn.wait_done()?;
        self.sent.push(lent);
        if let Some(stamp) = stamp {
            self.told(stamp);
        }
        Ok(())
    }

    pub(crate) fn close(self) -> Result<()> {
        let link = self.link;
        link.send(&Order::Close, &[])?;
        link.answer().map(drop)
    }
}

fn missing() -> BenchError {
    BenchError::Usage("the channel is missing".to_owned())
}

fn out_of_order() -> BenchError {
    BenchError::Peer("it answers something else".to_owned())
}

fn write_all(to: &OwnedFd, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    let mut since = None;
    while done < bytes.len() {
        match rustix::io::write(to, &bytes[done..]) {
            Ok(written) => done += written,
            Err(rustix::io::Errno::AGAIN) => raw::patience(&mut since)?,
            Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(errno).call("write"),
        }
    }
    Ok(())
}
