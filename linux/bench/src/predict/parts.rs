//! The parts that messages are made of, each measured by itself.
//!
//! # What it holds
//! *A line*: how long a line of memory takes from one CPU to the other. *Bytes*: stores to what the other CPU has
//! read, reads of what it has stored, copies, and reads of what was read or copied before; two threads take turns
//! over as many slots as messages rotate through, so that the distance of reuse is the same. *A message in one
//! thread*: all calls of the library for a message that nobody touches or whose receiver writes to it, one after the
//! other, with both ends in one process.
//!
//! No part is a message between two processes: adding them up is a prediction of one.

use crate::error::{BenchError, Result};
use crate::raw::{self, Memory};
use crate::sending::{SLOTS, slot_bytes};
use crate::stats::nanos;
use crate::work;
use pageferry::choose::Primitive;
use pageferry::{Buffer, Channel, Config, Level, Receiver, Sender, Stores};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a line takes from one CPU to the other.
pub(crate) const LINE: (&str, &str) = ("line", "to the other CPU");
/// Filling what the other CPU has read.
pub(crate) const STORE: (&str, &str) = ("store", "read by the other CPU");
/// Reading what the other CPU has filled.
pub(crate) const READ_NEW: (&str, &str) = ("read", "stored by the other CPU");
/// Reading the same once more.
pub(crate) const READ_AGAIN: (&str, &str) = ("read", "again");
/// Copying what the other CPU has filled.
pub(crate) const COPY_NEW: (&str, &str) = ("copy", "stored by the other CPU");
/// Copying the same once more.
pub(crate) const COPY_AGAIN: (&str, &str) = ("copy", "again");
/// Reading what was copied just now.
pub(crate) const READ_COPIED: (&str, &str) = ("read", "copied");

/// What the receiver writes to a message of which all calls are made in one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiverWrites {
    Nothing,
    /// Nothing, but it reads a word in each page: what is mapped anew is faulted in.
    OnlyRead,
    OneWord,
    AllPages,
}

impl ReceiverWrites {
    const ALL: [ReceiverWrites; 4] = [
        ReceiverWrites::Nothing,
        ReceiverWrites::OnlyRead,
        ReceiverWrites::OneWord,
        ReceiverWrites::AllPages,
    ];

    /// Whether it is a part of messages of a kind.
    fn is_of(self, kind: Kind, bytes: usize) -> bool {
        match self {
            ReceiverWrites::Nothing => true,
            ReceiverWrites::OnlyRead => kind == Kind::Resent,
            ReceiverWrites::OneWord | ReceiverWrites::AllPages => kind == Kind::Loan && bytes <= 4 << 20,
        }
    }

    /// The state of the part.
    pub(crate) fn state(self) -> &'static str {
        match self {
            ReceiverWrites::Nothing => "in one thread",
            ReceiverWrites::OnlyRead => "in one thread, all pages touched",
            ReceiverWrites::OneWord => "in one thread, one word written",
            ReceiverWrites::AllPages => "in one thread, all pages written",
        }
    }
}

/// Kinds of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Typed,
    Loan,
    Donation,
    /// Only the calls: a message of one line.
    Copy,
    Resent,
}

impl Kind {
    /// The name of the part.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Typed => "message typed",
            Kind::Loan => "message lent",
            Kind::Donation => "message donated",
            Kind::Copy => "message copied, without its bytes",
            Kind::Resent => "message sealed, sent again",
        }
    }
}

/// Times that a part is measured.
const TIMES: usize = 9;
/// How long each of them takes, about.
const TURN: Duration = Duration::from_millis(4);
/// How long the threads rest between measurements.
const REST: Duration = Duration::from_millis(4);

fn part((name, state): (&str, &str), bytes: usize, values: &[f64]) -> Option<Primitive> {
    Some(Primitive { name: name.into(), state: state.into(), bytes: bytes as u64, time: nanos(values)? })
}

/// All parts for messages of these sizes. `realtime`: other programs are kept off the CPUs meanwhile.
pub(crate) fn measure(
    sizes: &[usize],
    realtime: bool,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Primitive>> {
    let cpus = raw::cpus()?;
    let mut found = Vec::new();
    for &bytes in sizes {
        progress(bytes);
        for kind in [Kind::Typed, Kind::Loan, Kind::Donation, Kind::Copy, Kind::Resent] {
            for written in ReceiverWrites::ALL.into_iter().filter(|written| written.is_of(kind, bytes)) {
                let times = on(&cpus[..1], realtime, || in_one_thread(kind, written, bytes))?;
                found.extend(part((kind.name(), written.state()), bytes, &times));
            }
        }
        if cpus.len() > 1 {
            found.extend(by_turns(bytes, (cpus[0], cpus[1]), realtime)?);
        }
    }
    raw::pin(&cpus)?;
    Ok(found)
}

/// Does something on these CPUs alone.
fn on<R>(cpus: &[usize], realtime: bool, doing: impl FnOnce() -> Result<R>) -> Result<R> {
    raw::pin(cpus)?;
    if realtime {
        raw::realtime(true)?;
    }
    let done = doing();
    if realtime {
        raw::realtime(false)?;
    }
    done
}

/// Nanoseconds of one of several calls, in each repetition.
fn timed(mut once: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let began = Instant::now();
    (0..3).try_for_each(|_| once())?;
    let one = (began.elapsed() / 3).max(Duration::from_nanos(50));
    let rounds = (TURN.as_nanos() / one.as_nanos()).clamp(3, 20_000) as u32;
    let time = |_| {
        let began = Instant::now();
        (0..rounds).try_for_each(|_| once())?;
        Ok(began.elapsed().as_nanos() as f64 / f64::from(rounds))
    };
    (0..TIMES).map(time).collect()
}

fn in_one_thread(kind: Kind, written: ReceiverWrites, bytes: usize) -> Result<Vec<f64>> {
    let level = match kind {
        Kind::Typed => Level::Typed,
        Kind::Resent => Level::Sealed,
        _ => Level::Mmu,
    };
    let config = Config::new()
        .slots(SLOTS as u32)
        .slot_bytes(if kind == Kind::Resent { 2 << 20 } else { slot_bytes(bytes) })
        .budget(8 << 30)
        .require_level(level);
    let Ok((tx, rx)) = Channel::pair(config) else { return Ok(Vec::new()) };
    let len = if kind == Kind::Copy { 64 } else { bytes };
    if kind == Kind::Resent {
        let mut buffer = tx.buffer(len)?;
        work::fill(&mut buffer, 1);
        let lent = tx.loan(buffer)?;
        drop(rx.recv()?);
        return timed(|| {
            let again = tx.resend(&lent)?;
            let loan = rx.recv()?;
            if written == ReceiverWrites::OnlyRead {
                work::touch_pages(&loan);
            }
            drop((loan, again));
            Ok(())
        });
    }
    let mut held: Vec<_> = (0..SLOTS).map(|_| tx.buffer(len)).collect::<core::result::Result<_, _>>()?;
    held.iter_mut().for_each(|buffer| work::fill(buffer, 1));
    timed(|| {
        let buffer = held.remove(0);
        held.push(message(&tx, &rx, kind, written, buffer)?);
        Ok(())
    })
}

fn message(
    tx: &Sender,
    rx: &Receiver,
    kind: Kind,
    written: ReceiverWrites,
    buffer: Buffer,
) -> Result<Buffer> {
    let len = buffer.len();
    let taken = || -> Result<()> {
        let mut loan = rx.recv()?;
        match written {
            ReceiverWrites::Nothing | ReceiverWrites::OnlyRead => (),
            ReceiverWrites::OneWord => work::write_one(loan.as_mut()?),
            ReceiverWrites::AllPages => work::write_pages(loan.as_mut()?),
        }
        Ok(())
    };
    Ok(match kind {
        Kind::Donation => {
            tx.donate(buffer)?;
            taken()?;
            tx.buffer(len)?
        }
        Kind::Copy => {
            let lent = tx.copy_buffer(buffer)?;
            taken()?;
            lent.wait()?
        }
        _ => {
            let lent = tx.loan(buffer)?;
            taken()?;
            lent.wait()?
        }
    })
}

/// What the second thread does when it is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Order {
    Nothing,
    Read,
    Copy,
    /// It reads the copy.
    ReadCopy,
    /// It lets others run for a moment.
    Rest,
    Quit,
}

/// Whose turn it is: odd numbers are the second thread's. The order, the slot and the time that it took lie in a line
/// of their own.
#[derive(Default)]
struct Baton {
    turn: Aligned<AtomicU32>,
    order: Aligned<AtomicU32>,
    nanos: Aligned<AtomicU64>,
}

#[derive(Default)]
#[repr(align(128))]
struct Aligned<T>(T);

impl Baton {
    fn await_turn(&self, turn: u32) {
        while self.turn.0.load(Ordering::Acquire) != turn {
            core::hint::spin_loop();
        }
    }

    fn pass(&self, turn: u32) {
        self.turn.0.store(turn, Ordering::Release);
    }
}

/// The first thread's side.
struct Lead<'a> {
    baton: &'a Baton,
    turn: u32,
    realtime: bool,
}

impl Lead<'_> {
    /// Has the second thread do something to a slot; nanoseconds that it took.
    fn have(&mut self, order: Order, slot: usize) -> f64 {
        self.baton.order.0.store(order as u32 | (slot as u32) << 8, Ordering::Relaxed);
        self.baton.pass(self.turn + 1);
        self.turn += 2;
        if order == Order::Quit {
            return 0.0;
        }
        self.baton.await_turn(self.turn);
        f64::from_bits(self.baton.nanos.0.load(Ordering::Relaxed))
    }

    /// Both threads let others run for a moment.
    fn rest(&mut self) {
        self.baton.order.0.store(Order::Rest as u32, Ordering::Relaxed);
        self.baton.pass(self.turn + 1);
        self.turn += 2;
        rest(self.realtime);
        self.baton.await_turn(self.turn);
    }
}

/// The shortest time between two looks at the clock: it is part of every time.
fn clock() -> f64 {
    let look = |_| {
        let began = Instant::now();
        began.elapsed().as_nanos() as f64
    };
    (0..1000).map(look).fold(f64::INFINITY, f64::min)
}

/// Lets others run for a moment: for the kernel, a realtime process runs 95 % of the time and no more.
fn rest(realtime: bool) {
    if realtime {
        let _ = raw::realtime(false);
    }
    std::thread::sleep(REST);
    if realtime {
        let _ = raw::realtime(true);
    }
}

fn second(baton: &Baton, slots: &Memory, own: &mut Buffer, bytes: usize, realtime: bool) {
    // Where it cannot be made realtime, it is measured as it is.
    let realtime = realtime && raw::realtime(true).is_ok();
    let clock = clock();
    for turn in (1..).step_by(2) {
        baton.await_turn(turn);
        let word = baton.order.0.load(Ordering::Relaxed);
        let (order, slot) = (word & 0xff, (word >> 8) as usize);
        if order == Order::Quit as u32 {
            return;
        }
        if order == Order::Rest as u32 {
            rest(realtime);
        } else if order != Order::Nothing as u32 {
            let from = slots.bytes(slot * slot_bytes(bytes), bytes);
            let began = Instant::now();
            match order {
                _ if order == Order::Read as u32 => drop(core::hint::black_box(work::sum(from))),
                _ if order == Order::Copy as u32 => {
                    // As the library copies out of a slot.
                    let _ = own.write_with(from, Stores::Ordinary);
                }
                _ => drop(core::hint::black_box(work::sum(own))),
            }
            let nanos = (began.elapsed().as_nanos() as f64 - clock).max(0.0);
            baton.nanos.0.store(nanos.to_bits(), Ordering::Relaxed);
        }
        baton.pass(turn + 1);
    }
}

/// The parts that take two CPUs.
fn by_turns(bytes: usize, (ours, theirs): (usize, usize), realtime: bool) -> Result<Vec<Primitive>> {
    let mut slots = Memory::shared(SLOTS * slot_bytes(bytes))?;
    let fd = slots.fd().expect("it was made to be shared").try_clone();
    let fd = fd.map_err(|error| BenchError::Call { what: "dup", error })?;
    let same = Memory::of(fd)?;
    let own = Channel::pair(Config::new().slots(1).slot_bytes(bytes).budget(8 << 30))?;
    let mut own = own.0.buffer(bytes)?;
    let baton = Baton::default();
    std::thread::scope(|scope| {
        let (baton, own) = (&baton, &mut own);
        let other = scope.spawn(move || {
            let _ = raw::pin(&[theirs]);
            second(baton, &same, own, bytes, realtime);
        });
        let mut lead = Lead { baton, turn: 0, realtime };
        let found = on(&[ours], realtime, || lead_through(&mut lead, &mut slots, bytes));
        lead.have(Order::Quit, 0);
        let _ = other.join();
        found
    })
}

fn lead_through(lead: &mut Lead<'_>, slots: &mut Memory, bytes: usize) -> Result<Vec<Primitive>> {
    let clock = clock();
    let mut stamp = 0;
    let mut fill = |slot: usize| {
        stamp += 1;
        let to = slots.bytes_mut(slot * slot_bytes(bytes), bytes);
        let began = Instant::now();
        work::fill(to, stamp);
        (began.elapsed().as_nanos() as f64 - clock).max(0.0)
    };
    for slot in 0..SLOTS {
        fill(slot);
    }
    let began = Instant::now();
    for slot in 0..SLOTS {
        lead.have(Order::Read, slot);
        fill(slot);
    }
    let one = (began.elapsed() / SLOTS as u32).max(Duration::from_nanos(100));
    let rounds = (TURN.as_nanos() / one.as_nanos()).clamp(SLOTS as u128, 2000) as usize;
    let mut lines = Vec::new();
    let [mut store, mut read, mut again] = [const { Vec::new() }; 3];
    let [mut copy, mut copied, mut copy_again] = [const { Vec::new() }; 3];
    for _ in 0..TIMES {
        let began = Instant::now();
        for _ in 0..2000 {
            lead.have(Order::Nothing, 0);
        }
        // The turn goes there and back, and the order with it.
        lines.push(began.elapsed().as_nanos() as f64 / 2000.0 / 3.0);
        let mut sums = [0.0; 6];
        lead.rest();
        for round in 0..=rounds {
            let slot = round % SLOTS;
            let times = [fill(slot), lead.have(Order::Read, slot)];
            // The first is after something else.
            if round > 0 {
                (sums[0], sums[1]) = (sums[0] + times[0], sums[1] + times[1]);
            }
        }
        lead.rest();
        for round in 0..=rounds + SLOTS {
            let time = lead.have(Order::Read, round % SLOTS);
            sums[2] += if round > SLOTS { time } else { 0.0 };
        }
        lead.rest();
        for round in 0..=rounds {
            let slot = round % SLOTS;
            fill(slot);
            let times = [lead.have(Order::Copy, slot), lead.have(Order::ReadCopy, slot)];
            if round > 0 {
                (sums[3], sums[4]) = (sums[3] + times[0], sums[4] + times[1]);
            }
        }
        lead.rest();
        for round in 0..=rounds + SLOTS {
            let time = lead.have(Order::Copy, round % SLOTS);
            sums[5] += if round > SLOTS { time } else { 0.0 };
        }
        let all = [&mut store, &mut read, &mut again, &mut copy, &mut copied, &mut copy_again];
        for (values, sum) in all.into_iter().zip(sums) {
            values.push(sum / rounds as f64);
        }
    }
    let parts = [
        (LINE, &lines),
        (STORE, &store),
        (READ_NEW, &read),
        (READ_AGAIN, &again),
        (COPY_NEW, &copy),
        (READ_COPIED, &copied),
        (COPY_AGAIN, &copy_again),
    ];
    Ok(parts.into_iter().filter_map(|(of, values)| part(of, bytes, values)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_measured() {
        let found = measure(&[64 << 10], false, &mut |_| ()).unwrap();
        let two = raw::cpus().unwrap().len() > 1;
        let has = |(name, state): (&str, &str)| {
            found.iter().any(|of| (of.name.as_str(), of.state.as_str()) == (name, state))
        };
        for of in [LINE, STORE, READ_NEW, READ_AGAIN, COPY_NEW, COPY_AGAIN, READ_COPIED] {
            assert_eq!(has(of), two, "{of:?}");
        }
        assert!(has((Kind::Typed.name(), ReceiverWrites::Nothing.state())));
        assert!(found.iter().all(|of| of.time.low <= of.time.median && of.time.median <= of.time.high));
    }
}
