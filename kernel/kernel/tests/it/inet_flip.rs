//! Everything that can happen to a packet while its bytes are on the way to a receiver, by copy and by flip: it is lost
//! or doubled, its frame does not fit a page, memory is short, its reader is killed, another socket shows it, too. A
//! receiver's memory is compared with a plain copy of it, all of it each time: what came, what was there before, and
//! what is beside it (page-flip paper; checklist F.7, F.10, F.22).

use crate::common::far::*;
use crate::common::*;
use crate::inet_zero_copy::{with_source_by, with_source_over};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::net::Wire;
use pageferry_model::net::smol::{Service, SmolConfig, SmolFarEnd};
use pageferry_model::{Model, RunError, Schedule, Sourced};
use pageferry_vm::{KernelPages, VmCounter};
use std::cell::RefCell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
/// A page of data behind headers of 40 bytes.
pub(crate) const PAGE_MTU: u64 = 4136;
/// What a receiver asks for at a time.
pub(crate) const CHUNK: usize = 6 * PAGE;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    Copy,
    Flip,
    /// The pages that are replaced go to the card's ring.
    Exchange,
}

impl How {
    pub(crate) fn receive(self, u: &U, fd: Fd, at: Va, len: usize) -> Result<usize, Errno> {
        match self {
            How::Copy => u.read(fd, at, len),
            How::Flip | How::Exchange => u.receive_transfer(fd, Some(at), len).map(|got| got.len_bytes),
        }
    }
}

/// What was first seen to be wrong.
pub(crate) type Complaint = Rc<RefCell<Option<String>>>;

/// A receiver's memory, and beside it what a copy would have made of it: a page more at each end, which nobody receives
/// into.
pub(crate) struct Buffer {
    /// Where the first of both pages is, and where it is received to.
    all: Va,
    pub(crate) at: Va,
    copy: Vec<u8>,
    seen: Complaint,
}

impl Buffer {
    pub(crate) fn new(u: &U, seen: &Complaint) -> Buffer {
        let copy = vec![0xdd; CHUNK + 2 * PAGE];
        let all = map(u, copy.len());
        u.store(all, &copy);
        Buffer { all, at: all + PAGE, copy, seen: seen.clone() }
    }

    /// What is seen is not what it should be.
    pub(crate) fn note(&self, what: String) {
        self.seen.borrow_mut().get_or_insert(what);
    }

    /// `part` of the stream has come to the front of it. False if anything differs from what a copy would have made.
    pub(crate) fn came(&mut self, u: &U, heard: usize, part: &[u8]) -> bool {
        self.copy[PAGE..PAGE + part.len()].copy_from_slice(part);
        self.is_as_copied(u, heard)
    }

    /// False if anything differs.
    pub(crate) fn is_as_copied(&self, u: &U, heard: usize) -> bool {
        let mut there = vec![0; self.copy.len()];
        u.load(self.all, &mut there);
        let differs = there.iter().zip(&self.copy).position(|(a, b)| a != b);
        if let Some(at) = differs {
            self.note(format!(
                "byte {} of the buffer, at {heard} of the stream",
                at as isize - PAGE as isize
            ));
        }
        differs.is_none()
    }

    /// Its owner writes over all of it.
    pub(crate) fn scribble(&mut self, u: &U) {
        self.copy[PAGE..PAGE + CHUNK].fill(0xee);
        u.store(self.at, &[0xee; CHUNK]);
    }
}

/// Receives from `fd` up to `len` bytes of the stream, from `heard` on, and sees that they are right; how many came.
fn receive(u: &U, fd: Fd, how: How, buffer: &mut Buffer, heard: usize, len: usize) -> usize {
    let stream = patterned(heard + len);
    let mut now = heard;
    while now < stream.len() {
        let got = how.receive(u, fd, buffer.at, CHUNK.min(stream.len() - now)).expect("connected");
        if got == 0 || !buffer.came(u, now, &stream[now..now + got]) {
            break;
        }
        now += got;
    }
    now - heard
}

/// What can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    None,
    /// Frames are lost, doubled and overtaken.
    BadWire,
    /// Frames have bits flipped, and the CPU sums them.
    Damage,
    /// Frames carry less than a page, or a page and a bit.
    ShortFrames,
    LongFrames,
    /// Headers are not split off.
    Unsplit,
    /// Frames carry less than a page, and the card joins them; the same over a wire that loses some.
    Joined,
    JoinedBadly,
    /// The reader is killed on its way, and another connects.
    Killed,
    /// Any allocation fails, one after the other.
    Fails,
    /// Next to no frame is free for a while.
    Short,
}

pub(crate) const TROUBLES: [Trouble; 11] = {
    use Trouble::*;
    [None, BadWire, Damage, ShortFrames, LongFrames, Unsplit, Joined, JoinedBadly, Killed, Fails, Short]
};

impl Trouble {
    pub(crate) fn wire(self) -> Wire {
        let wire = Wire { seed: 11, ..Wire::default() };
        match self {
            Trouble::BadWire | Trouble::JoinedBadly => Wire {
                loss_ppm: 40_000,
                duplicate_ppm: 40_000,
                reorder_ppm: 40_000,
                reorder_ns: 300_000,
                ..wire
            },
            Trouble::Damage => Wire { corrupt_ppm: 60_000, ..wire },
            _ => wire,
        }
    }

    /// The machine that it is met on, with a source at the far end of its wire.
    pub(crate) fn with_source(self, name: &str, len: u64) -> Model {
        self.with_flow_ring(name, len, 0)
    }

    /// The same, with a card that has a flow ring of so many descriptors.
    pub(crate) fn with_flow_ring(self, name: &str, len: u64, slots: u64) -> Model {
        with_source_by(self.wire(), name, len, |nic| {
            nic.flow_slots = Some(Sourced::assumed(slots, "a test's"));
            nic.mtu_bytes = Sourced::assumed(self.mtu(), "a test's");
            nic.header_split = Sourced::assumed(self != Trouble::Unsplit, "a test's");
            if self.is_joined() {
                nic.receive_slots = Sourced::assumed(256, "a test's");
                nic.coalesce_bytes = Some(Sourced::assumed((CHUNK / 2) as u64, "a test's"));
            }
        })
    }

    pub(crate) fn is_joined(self) -> bool {
        matches!(self, Trouble::Joined | Trouble::JoinedBadly)
    }

    fn mtu(self) -> u64 {
        match self {
            Trouble::ShortFrames | Trouble::Joined | Trouble::JoinedBadly => 1500,
            Trouble::LongFrames => 6000,
            _ => PAGE_MTU,
        }
    }

    /// Whether whole pages come behind headers that are split off, so that some can be flipped.
    pub(crate) fn comes_by_pages(self) -> bool {
        !matches!(self, Trouble::ShortFrames | Trouble::LongFrames | Trouble::Unsplit)
    }
}

/// A reader that is killed when it has received something.
fn is_killed_on_its_way(u: &U, how: How, seen: &Complaint) {
    let seen = seen.clone();
    let victim = fork(u, "victim", move |u| {
        let fd = connected(u, SOURCE);
        let mut buffer = Buffer::new(u, &seen);
        receive(u, fd, how, &mut buffer, 0, 5 * PAGE);
        loop {
            // It is killed while it receives or sleeps for more.
            if how.receive(u, fd, buffer.at, CHUNK).is_err() || u.signals_taken() > 0 {
                return;
            }
        }
    });
    u.sleep_for(Cycles(3_000_000)).expect("alive");
    let _ = u.signal(victim);
    assert_eq!(u.wait(), Ok(victim));
}

/// Receives all that a source says in such a trouble; how many frames were allocated.
fn meets(name: &str, how: How, trouble: Trouble) -> u64 {
    const LEN: usize = 40 * PAGE + 1234;
    let mut config = internet();
    config.vm.transfer.returns = how == How::Exchange;
    config.socket.realigns = trouble.is_joined();
    if trouble == Trouble::Damage {
        config.net.as_mut().expect("it has one").checksum_offload = false;
    }
    let m = trouble.with_source(name, LEN as u64);
    let what = format!("{how:?}, {trouble:?} on {name}");
    let seen = Complaint::default();
    let noted = seen.clone();
    let ended = run_on(m, name, &what, config, move |u| {
        if trouble == Trouble::Killed {
            is_killed_on_its_way(u, how, &noted);
        }
        let mut buffer = Buffer::new(u, &noted);
        let mut hoarded: Option<KernelPages> = (trouble == Trouble::Short).then(|| hoard(u, 12));
        let fd = connected(u, SOURCE);
        let mut heard = 0;
        while heard < LEN {
            if trouble == Trouble::Fails {
                u.kernel().vm().fail_after(Some((heard / PAGE % 9) as u32));
            }
            if heard > LEN / 2 {
                hoarded.take().into_iter().for_each(|pages| u.kernel().vm().free_kernel_pages(pages));
            }
            match receive(u, fd, how, &mut buffer, heard, CHUNK.min(LEN - heard)) {
                0 => break,
                got => heard += got,
            }
        }
        u.kernel().vm().fail_after(None);
        hoarded.into_iter().for_each(|pages| u.kernel().vm().free_kernel_pages(pages));
        assert_eq!(heard, LEN, "it has said so much");
        u.close(fd).expect("open");
    });
    assert_eq!(*seen.borrow(), None, "{what}");
    let flipped = ended.counter(KernelCounter::PagesDonated);
    let expected = how != How::Copy && trouble.comes_by_pages();
    // Now and then the page of a frame of another size falls on one of the buffer's.
    let as_expected = if expected { flipped >= 10 } else { flipped * 4 <= (LEN / PAGE) as u64 };
    assert!(as_expected, "{what}: {flipped} pages flipped");
    ended.counter(VmCounter::FramesAllocated)
}

#[test]
fn whatever_happens_to_a_packet_its_bytes_come_once_and_nothing_beside_them() {
    // A slower one sends so late that the far end gives up.
    on_named_machines!();
    for trouble in TROUBLES {
        let frames = [How::Copy, How::Flip, How::Exchange].map(|how| meets("xeon-mp", how, trouble));
        if trouble == Trouble::None {
            let [_, flipped, exchanged] = frames;
            assert!(
                exchanged + 10 <= flipped,
                "{frames:?}: the ring gets pages of its own, or those replaced"
            );
        }
    }
    // Where the kernel has all frames at addresses for ever.
    meets("today", How::Flip, Trouble::BadWire);
    meets("today", How::Exchange, Trouble::Fails);
}

// ---------------------------------------------------------------------------------------------------- clones

/// What another socket does with the packets that it shows, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clone {
    /// It is read when the first receiver has its bytes, and has written over them.
    Late,
    /// It is read before.
    Early,
    /// It is closed unread.
    Unread,
    /// Its pages are taken over, too.
    Flipped,
}

/// Receives by flips what another socket has as well (`tee`: what a packet socket's clone is in Linux), and compares
/// what both get.
pub(crate) fn tapped(name: &str, config: KernelConfig, clone: Clone, seen: &Complaint) -> Ended {
    const LEN: usize = 12 * CHUNK;
    let m = with_source_over(Wire::default(), name, PAGE_MTU, true, LEN as u64);
    let seen = seen.clone();
    try_run_on(m, name, config, move |u| {
        let fd = connected(u, SOURCE);
        let (mut buffer, mut other) = (Buffer::new(u, &seen), Buffer::new(u, &seen));
        let stream = patterned(LEN);
        let mut heard = 0;
        while heard < LEN {
            let (ours, theirs) = u.socket_pair().expect("sockets");
            let len = u.tee(fd, ours, CHUNK).expect("connected");
            let end = heard + len;
            let read_other = |other: &mut Buffer, how: How| {
                let mut read = heard;
                while read < end {
                    let got = how.receive(u, theirs, other.at, end - read).expect("it is there");
                    if !other.came(u, read, &stream[read..read + got]) {
                        return false;
                    }
                    read += got;
                }
                true
            };
            let early = clone != Clone::Early || read_other(&mut other, How::Copy);
            let right = early && receive(u, fd, How::Flip, &mut buffer, heard, len) == len;
            buffer.scribble(u);
            let right = right
                && match clone {
                    Clone::Late => read_other(&mut other, How::Copy),
                    Clone::Flipped => read_other(&mut other, How::Flip),
                    Clone::Early | Clone::Unread => true,
                }
                && buffer.is_as_copied(u, heard);
            u.close(ours).and_then(|()| u.close(theirs)).expect("open");
            if !right {
                break;
            }
            heard = end;
        }
        u.close(fd).expect("open");
    })
}

/// A page that another packet shows is not flipped, but copied; it is flipped by the last that has it.
#[test]
fn a_clone_keeps_its_bytes_and_the_last_one_gets_the_page() {
    for name in ["xeon-mp", "today"] {
        for clone in [Clone::Late, Clone::Early, Clone::Unread, Clone::Flipped] {
            let seen = Complaint::default();
            let ended = tapped(name, internet(), clone, &seen);
            sound(&ended, &format!("{name}, {clone:?}"));
            assert_eq!(*seen.borrow(), None, "{name}, {clone:?}");
            let flipped = ended.counter(KernelCounter::PagesDonated);
            match clone {
                Clone::Late | Clone::Unread => assert_eq!(flipped, 0, "{name}, {clone:?}"),
                Clone::Early | Clone::Flipped => assert!(flipped >= 10, "{name}, {clone:?}: {flipped}"),
            }
        }
    }
}

/// Sends on to an echo what comes from a source, where it lies; and receives it by flips itself, and writes over it at
/// once. The wire loses frames, so that some are sent again when their page could be another's.
pub(crate) fn relayed(name: &str, config: KernelConfig, seen: &Complaint) -> Ended {
    const LEN: usize = 6 * CHUNK;
    let mut far = SmolFarEnd::new(SmolConfig {
        ip: FAR_ADDRESS,
        seed: 1,
        mtu_bytes: PAGE_MTU as usize,
        ..SmolConfig::default()
    });
    far.listen(SOURCE.port(), Service::Source(LEN as u64));
    let echo = far.listen(ECHO.port(), Service::Echo);
    let m = machine_by(name, Schedule::Timed, |config| {
        let nic = config.nic.as_mut().expect("it has a card");
        nic.mtu_bytes = Sourced::assumed(PAGE_MTU, "a test's");
        nic.header_split = Sourced::assumed(true, "a test's");
    });
    m.attach_over(Wire { seed: 7, loss_ppm: 60_000, delay_ns: 200_000, ..Wire::default() }, Box::new(far));
    let noted = seen.clone();
    let ended = try_run_on(m, name, config, move |u| {
        let (from, to) = (connected(u, SOURCE), connected(u, ECHO));
        let seen = noted.clone();
        fork(u, "hears the echo", move |u| {
            let mut buffer = Buffer::new(u, &seen);
            receive(u, to, How::Copy, &mut buffer, 0, LEN);
        });
        let mut buffer = Buffer::new(u, &noted);
        let mut sent = 0;
        while sent < LEN {
            match u.tee(from, to, CHUNK) {
                Ok(len) if receive(u, from, How::Flip, &mut buffer, sent, len) == len => sent += len,
                Err(Errno::WouldBlock) => u.sleep_for(MS).expect("alive"),
                wrong => {
                    buffer.note(format!("{wrong:?}, at {sent} of the stream"));
                    break;
                }
            }
            buffer.scribble(u);
        }
        u.shutdown(to, Shutdown::Send).and_then(|()| u.close(from)).expect("open");
        u.wait().expect("who hears");
        u.close(to).expect("open");
    });
    let heard = echo.all().iter().map(|talk| talk.received).sum::<u64>();
    if heard != LEN as u64 {
        seen.borrow_mut().get_or_insert(format!("the echo has heard {heard} bytes"));
    }
    ended
}

#[test]
fn what_is_sent_on_where_it_lies_is_what_came_however_often_it_is_sent() {
    for name in ["xeon-mp", "today"] {
        let seen = Complaint::default();
        sound(&relayed(name, internet(), &seen), name);
        assert_eq!(*seen.borrow(), None, "{name}");
    }
}

// ---------------------------------------------------------------------------------------------------- verdicts

/// What finds a defect first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// The copy that is kept beside a receiver's memory.
    Bytes,
    /// The model, as the use of a stale translation.
    Stale,
    /// The model: nobody goes on.
    Stuck,
    /// The laws of what is at rest.
    Law,
}

/// What finds something wrong first, if anything does. An assertion of the host is no finding.
pub(crate) fn verdict(ended: &Ended, seen: &Complaint) -> Option<(Found, String)> {
    // What a stale translation leads to is the wrong bytes, later.
    if let Some(stale) = ended.m.stale_uses().first() {
        return Some((Found::Stale, stale.to_string()));
    }
    if let Some(bytes) = &*seen.borrow() {
        return Some((Found::Bytes, bytes.clone()));
    }
    match &ended.result {
        Ok(()) => {}
        Err(stuck @ (RunError::Deadlock { .. } | RunError::Spinning { .. })) => {
            return Some((Found::Stuck, stuck.to_string()));
        }
        Err(other) => panic!("no check, but the host: {other}"),
    }
    let law = ended.kernel.as_ref().expect("it booted").check_quiescent();
    law.err().map(|law| (Found::Law, law))
}
