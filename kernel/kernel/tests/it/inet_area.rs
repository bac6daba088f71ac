//! Receiving into an area of the process's own: everything that can happen to a packet, by a card that puts it there
//! and by one that does not, beside a plain copy of the stream; what a process may give back; and how it ends.

use crate::common::far::*;
use crate::common::*;
use crate::inet_flip::{CHUNK, Complaint, Found, TROUBLES, Trouble, verdict};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_vm::{Inherit, KernelPages};
use std::collections::VecDeque;

const PAGE: usize = PAGE_SIZE;
/// Pages of an area, and how many pieces of it a process keeps.
const AREA_PAGES: usize = 40;
const KEPT: usize = 6;
/// Descriptors of a flow ring.
const FLOW_SLOTS: u64 = 48;

/// A receive area, and what the process has in it.
struct Area {
    at: Va,
    has: VecDeque<(Placed, Vec<u8>)>,
    back: Vec<Placed>,
    seen: Complaint,
}

impl Area {
    /// Makes one of memory that has other bytes; whether the card fills it.
    fn new(u: &U, fd: Fd, seen: &Complaint) -> (Area, bool) {
        let at = map(u, AREA_PAGES * PAGE);
        u.store(at, &vec![0xdd; AREA_PAGES * PAGE]);
        let by_card = u.set_receive_area(fd, at, AREA_PAGES * PAGE).expect("a stream");
        (Area { at, has: VecDeque::new(), back: Vec::new(), seen: seen.clone() }, by_card)
    }

    /// Receives what comes next, mostly less than a page, and sees that it and all that was kept is right; how much
    /// came. Of what is more than may be kept, every third piece is given back late.
    fn receive(&mut self, u: &U, fd: Fd, stream: &[u8], heard: usize) -> Result<usize, Errno> {
        let want = [1000, 3000, CHUNK, 700][heard / 500 % 4];
        let placed = u.receive_placed(fd, &self.back, want);
        // They are back whatever becomes of the rest.
        self.back.clear();
        let mut now = heard;
        for place in placed? {
            let bytes = stream.get(now..now + place.len_bytes).unwrap_or_default().to_vec();
            now += place.len_bytes;
            self.has.push_back((place, bytes));
        }
        self.look(u, heard);
        while self.has.len() > KEPT {
            let which = if self.has.len().is_multiple_of(3) { 1 } else { 0 };
            self.back.extend(self.has.remove(which).map(|(place, _)| place));
        }
        Ok(now - heard)
    }

    fn look(&self, u: &U, heard: usize) {
        for (Placed { offset, len_bytes }, bytes) in &self.has {
            let mut there = vec![0; *len_bytes];
            u.load(self.at + *offset, &mut there);
            if there != *bytes {
                let what = format!("{len_bytes} bytes at {offset} of the area, at {heard} of the stream");
                self.seen.borrow_mut().get_or_insert(what);
            }
        }
    }

    /// The process writes where it may: to what it has. Nobody else's bytes are there.
    fn scribble(&mut self, u: &U) {
        for (Placed { offset, len_bytes }, bytes) in &mut self.has {
            bytes.fill(0xee);
            u.store(self.at + *offset, &vec![0xee; *len_bytes]);
        }
    }
}

/// A reader that is killed when it has got something.
fn is_killed_with_an_area(u: &U, seen: &Complaint) {
    let seen = seen.clone();
    let victim = fork(u, "victim", move |u| {
        let fd = connected(u, SOURCE);
        let (mut area, _) = Area::new(u, fd, &seen);
        let stream = patterned(1 << 20);
        let mut heard = 0;
        while heard < 5 * PAGE {
            heard += area.receive(u, fd, &stream, heard).expect("connected");
        }
        // It is killed while it receives, sleeps for more, or has all.
        while u.signals_taken() == 0 {
            match u.receive_placed(fd, &[], CHUNK) {
                Err(Errno::NoMemory) => _ = u.sleep_for(Cycles(100_000)),
                Err(_) => return,
                Ok(_) => {}
            }
        }
    });
    u.sleep_for(Cycles(3_000_000)).expect("alive");
    let _ = u.signal(victim);
    assert_eq!(u.wait(), Ok(victim));
}

/// Receives all that a source says in such a trouble; what the run leaves, and whether a card has filled the area.
fn meets(name: &str, trouble: Trouble, slots: u64, defect: Option<NetDefect>, seen: &Complaint) -> Ended {
    const LEN: usize = 60 * PAGE + 1234;
    let mut config = internet();
    let net = config.net.as_mut().expect("it has one");
    net.checksum_offload &= trouble != Trouble::Damage;
    net.defect = defect.into();
    let m = trouble.with_flow_ring(name, LEN as u64, slots);
    let noted = seen.clone();
    try_run_on(m, name, config, move |u| {
        if trouble == Trouble::Killed {
            is_killed_with_an_area(u, &noted);
        }
        let mut hoarded: Option<KernelPages> = None;
        let fd = connected(u, SOURCE);
        let (mut area, by_card) = Area::new(u, fd, &noted);
        if by_card != (slots > 0 && trouble != Trouble::Unsplit) {
            noted
                .borrow_mut()
                .get_or_insert("the card does not fill this area, or one is filled that cannot be".into());
        }
        if trouble == Trouble::Short {
            hoarded = Some(hoard(u, 12));
        }
        let stream = patterned(LEN);
        let (mut heard, mut failures) = (0, 0);
        while heard < LEN && noted.borrow().is_none() {
            if trouble == Trouble::Fails {
                // Who fails tries again with more.
                u.kernel().vm().fail_after(Some(((heard / PAGE + failures) % 9) as u32));
            }
            if heard > LEN / 2 {
                hoarded.take().into_iter().for_each(|pages| u.kernel().vm().free_kernel_pages(pages));
            }
            match area.receive(u, fd, &stream, heard) {
                Ok(0) => break,
                Ok(got) => heard += got,
                Err(Errno::NoMemory) if trouble == Trouble::Fails => failures += 1,
                Err(e) => {
                    noted.borrow_mut().get_or_insert(format!("{e:?} at {heard} of the stream"));
                    break;
                }
            }
            if heard / PAGE % 5 == 4 {
                area.scribble(u);
            }
        }
        u.kernel().vm().fail_after(None);
        hoarded.into_iter().for_each(|pages| u.kernel().vm().free_kernel_pages(pages));
        if heard != LEN {
            noted.borrow_mut().get_or_insert(format!("{heard} bytes came"));
        }
        u.close(fd).expect("open");
        area.look(u, heard);
        // The memory is the process's own again, and what it writes there stays.
        let (all, bytes) = (area.at, bytes(9, 0, AREA_PAGES * PAGE));
        u.store(all, &bytes);
        u.sleep_for(Cycles(5_000_000)).expect("alive");
        let mut there = vec![0; bytes.len()];
        u.load(all, &mut there);
        if there != bytes {
            noted.borrow_mut().get_or_insert("an area that is none any more is written to".into());
        }
    })
}

#[test]
fn whatever_happens_to_a_packet_an_area_has_what_came() {
    on_named_machines!();
    for trouble in TROUBLES {
        for slots in [FLOW_SLOTS, 0] {
            let seen = Complaint::default();
            let ended = meets("xeon-mp", trouble, slots, None, &seen);
            let what = format!("{trouble:?}, {slots} slots");
            sound(&ended, &what);
            assert_eq!(*seen.borrow(), None, "{what}");
            let placed = ended.counter(KernelCounter::BytesPlaced);
            let by_card = slots > 0 && trouble != Trouble::Unsplit;
            let as_expected = if by_card { placed >= 20 * PAGE as u64 } else { placed == 0 };
            assert!(as_expected, "{what}: {placed} bytes by the card");
        }
    }
    for trouble in [Trouble::BadWire, Trouble::JoinedBadly, Trouble::Fails, Trouble::Killed] {
        let seen = Complaint::default();
        sound(&meets("today", trouble, FLOW_SLOTS, None, &seen), &format!("{trouble:?} on today"));
        assert_eq!(*seen.borrow(), None, "{trouble:?} on today");
    }
}

/// A process that keeps all that it gets gets no more, and goes on where it gives some back: also where nothing of the
/// area is free but what is kept for copies.
fn keeps_all(pages: usize, slots: u64, defect: Option<NetDefect>, seen: &Complaint) -> Ended {
    const LEN: usize = 30 * PAGE;
    let mut config = internet();
    config.net.as_mut().expect("it has one").defect = defect.into();
    let m = Trouble::ShortFrames.with_flow_ring("xeon-mp", LEN as u64, slots);
    let seen = seen.clone();
    try_run_on(m, "xeon-mp", config, move |u| {
        let fd = connected(u, SOURCE);
        let at = map(u, pages * PAGE);
        u.set_receive_area(fd, at, pages * PAGE).expect("a stream");
        let stream = patterned(LEN);
        let (mut heard, mut refused, mut has) = (0, 0, VecDeque::new());
        while heard < LEN {
            match u.receive_placed(fd, &[], LEN) {
                Ok(placed) => {
                    assert!(!placed.is_empty(), "more was to come than {heard}");
                    for place in placed {
                        let mut there = vec![0; place.len_bytes];
                        u.load(at + place.offset, &mut there);
                        assert!(there == stream[heard..heard + place.len_bytes], "at {heard}");
                        heard += place.len_bytes;
                        has.push_back(place);
                    }
                }
                Err(Errno::NoMemory) => {
                    refused += 1;
                    let Some(one) = has.pop_front() else {
                        seen.borrow_mut()
                            .get_or_insert("it has nothing of its area, and gets nothing".into());
                        break;
                    };
                    assert_eq!(u.receive_placed(fd, &[one], 0), Ok(vec![]));
                    assert_eq!(u.receive_placed(fd, &[one], 0), Err(Errno::Invalid), "it is back");
                }
                Err(e) => panic!("{e:?}"),
            }
        }
        assert!(refused > 3 || heard < LEN, "{refused}");
        u.close(fd).expect("open");
    })
}

#[test]
fn a_process_that_has_all_of_its_area_is_told_so_and_goes_on_when_it_gives_some_back() {
    on_named_machines!();
    for slots in [FLOW_SLOTS, 0] {
        // A quarter is kept for copies, and of areas that have no quarter a page.
        for pages in 2..=5 {
            let seen = Complaint::default();
            sound(&keeps_all(pages, slots, None, &seen), "keeps all");
            assert_eq!(*seen.borrow(), None, "{pages} pages, {slots} slots");
        }
    }
    let seen = Complaint::default();
    let ended = keeps_all(4, FLOW_SLOTS, Some(NetDefect::AreaPagesAllOut), &seen);
    assert_eq!(verdict(&ended, &seen).map(|(found, _)| found), Some(Found::Bytes));
}

#[test]
fn local_sockets_copy_into_an_area_and_what_is_none_is_refused() {
    run("xeon-mp", Schedule::Timed, internet(), |u| {
        let (ours, theirs) = u.socket_pair().expect("sockets");
        let (from, at) = (map(u, 4 * PAGE), map(u, 4 * PAGE));
        u.store(from, &patterned(4 * PAGE));
        assert_eq!(u.receive_placed(ours, &[], PAGE), Err(Errno::Invalid), "no area");
        assert_eq!(u.set_receive_area(ours, at + 1, 2 * PAGE), Err(Errno::Invalid));
        assert_eq!(u.set_receive_area(ours, at, PAGE), Err(Errno::Invalid));
        assert_eq!(u.set_receive_area(ours, at, 2 * PAGE + 1), Err(Errno::Invalid));
        let hole = map(u, 2 * PAGE);
        u.unmap(hole + PAGE, PAGE).expect("mapped");
        assert_eq!(u.set_receive_area(ours, hole, 2 * PAGE), Err(Errno::Fault));
        assert_eq!(u.set_receive_area(Fd(99), at, 2 * PAGE), Err(Errno::BadFd));
        let read_only = map(u, 2 * PAGE);
        u.protect(read_only, 2 * PAGE, Prot::READ).expect("mapped");
        assert_eq!(u.set_receive_area(ours, read_only, 2 * PAGE), Err(Errno::Fault));
        let file = u.open("f", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE).expect("a file");
        assert_eq!(u.set_receive_area(file, at, 2 * PAGE), Err(Errno::NotSupported));
        assert_eq!(u.discard(file, 1), Err(Errno::NotSupported));
        let datagrams = u.socket(SocketKind::Datagram).expect("a socket");
        assert_eq!(u.set_receive_area(datagrams, at, 2 * PAGE), Err(Errno::NotSupported));
        assert_eq!(u.discard(datagrams, 1), Err(Errno::NotSupported));
        assert_eq!(u.set_receive_area(ours, at, 4 * PAGE), Ok(false), "no card does it");
        assert_eq!(u.set_receive_area(ours, at, 2 * PAGE), Err(Errno::Busy));
        for mode in [SendMode::Copy, SendMode::Loan, SendMode::Pin] {
            assert_eq!(u.send(theirs, from, 2 * PAGE + 100, mode), Ok(2 * PAGE + 100));
            let (mut heard, mut back) = (0, Vec::new());
            while heard < 2 * PAGE + 100 {
                let placed = u.receive_placed(ours, &back, 3000).expect("it is there");
                for place in &placed {
                    let mut there = vec![0; place.len_bytes];
                    u.load(at + place.offset, &mut there);
                    assert!(
                        there == patterned(4 * PAGE)[heard..heard + place.len_bytes],
                        "{mode:?}, {heard}"
                    );
                    heard += place.len_bytes;
                }
                back = placed;
            }
            let wrong = Placed { offset: back[0].offset + 1, ..back[0] };
            assert_eq!(u.receive_placed(ours, &[wrong], 0), Err(Errno::Invalid));
            assert_eq!(u.receive_placed(ours, &back, 0), Ok(vec![]));
        }
        // What is thrown away is gone, and nothing else.
        assert_eq!(u.write(theirs, from, 3 * PAGE), Ok(3 * PAGE));
        assert_eq!(u.discard(ours, PAGE + 5), Ok(PAGE + 5));
        assert_eq!(u.read(ours, at, 4 * PAGE), Ok(2 * PAGE - 5));
        let mut there = vec![0; 2 * PAGE - 5];
        u.load(at, &mut there);
        assert!(there == patterned(4 * PAGE)[PAGE + 5..3 * PAGE]);
        u.set_nonblocking(ours, true).expect("a socket");
        assert_eq!(u.receive_placed(ours, &[], PAGE), Err(Errno::WouldBlock));
        assert_eq!(u.discard(ours, PAGE), Err(Errno::WouldBlock));
        u.close(theirs).expect("open");
        assert_eq!(u.receive_placed(ours, &[], PAGE), Ok(vec![]), "the end");
        assert_eq!(u.discard(ours, PAGE), Ok(0));
    });
}

/// Memory that a card fills is its process's alone: a child gets a copy of it, shared memory is seen by both, and what
/// is unmapped is filled on without harm. Of two sockets, the card fills the area of the first.
#[test]
fn an_area_is_its_process_s_whatever_becomes_of_its_memory() {
    on_named_machines!();
    for inherit in [Inherit::Copy, Inherit::Share, Inherit::None] {
        const LEN: usize = 30 * PAGE;
        let m = Trouble::None.with_flow_ring("xeon-mp", LEN as u64, FLOW_SLOTS);
        run_on(m, "xeon-mp", &format!("{inherit:?}"), internet(), move |u| {
            let (fd, other) = (connected(u, SOURCE), connected(u, SOURCE));
            let seen = Complaint::default();
            let (mut area, by_card) = Area::new(u, fd, &seen);
            let (mut second, by_card_too) = Area::new(u, other, &seen);
            assert!(by_card && !by_card_too);
            u.inherit(area.at, AREA_PAGES * PAGE, inherit).expect("mapped");
            let stream = patterned(LEN);
            let heard = area.receive(u, fd, &stream, 0).expect("connected");
            let (at, place) = (area.at, area.has[0].0);
            let child = fork(u, "child", move |u| {
                if inherit != Inherit::None {
                    let mut there = vec![0; place.len_bytes];
                    u.load(at + place.offset, &mut there);
                    assert!(there == patterned(LEN)[..place.len_bytes]);
                    u.sleep_for(Cycles(2_000_000)).expect("alive");
                    u.store(at + place.offset, &[0xaa]);
                }
            });
            let mut all = [heard, 0];
            while all != [LEN, LEN] {
                for (i, (area, fd)) in [(&mut area, fd), (&mut second, other)].into_iter().enumerate() {
                    if all[i] < LEN {
                        all[i] += area.receive(u, fd, &stream, all[i]).expect("connected");
                    }
                }
            }
            assert_eq!(u.wait(), Ok(child));
            // A child that shares the memory has written to it; perhaps where the process has something.
            assert!(inherit == Inherit::Share || seen.borrow().is_none(), "{:?}", seen.borrow());
            // The pages go with their owner, or later.
            u.unmap(area.at, AREA_PAGES * PAGE).expect("mapped");
            assert_eq!(u.receive_placed(fd, &[], PAGE), Ok(vec![]), "the end");
            u.close(fd).and_then(|()| u.close(other)).expect("open");
        });
    }
}

/// The card is taken out at any moment while it fills an area: what had come is read, and the area is the process's
/// again.
#[test]
fn an_area_outlives_its_card() {
    on_named_machines!();
    for moment in 0..12 {
        const LEN: usize = 60 * PAGE;
        let trouble = if moment % 2 == 0 { Trouble::None } else { Trouble::Joined };
        let m = trouble.with_flow_ring("xeon-mp", LEN as u64, FLOW_SLOTS);
        run_on(m, "xeon-mp", &format!("removed at {moment}"), internet(), move |u| {
            let fd = connected(u, SOURCE);
            let seen = Complaint::default();
            let (mut area, by_card) = Area::new(u, fd, &seen);
            assert!(by_card);
            u.machine().remove_nic_at(u.machine().now() + Cycles(1 + moment * 70_000));
            let stream = patterned(LEN);
            let mut heard = 0;
            while heard < LEN {
                match area.receive(u, fd, &stream, heard) {
                    Ok(0) => break,
                    Ok(got) => heard += got,
                    Err(e) => {
                        assert_eq!(e, Errno::Removed, "at {heard}");
                        break;
                    }
                }
            }
            assert_eq!(*seen.borrow(), None, "{heard}");
            u.close(fd).expect("open");
            u.store(area.at, &vec![7; AREA_PAGES * PAGE]);
            u.unmap(area.at, AREA_PAGES * PAGE).expect("mapped");
        });
    }
}

#[test]
fn every_defect_of_areas_is_found() {
    on_named_machines!();
    use Found::*;
    for (defect, trouble, slots, expected) in [
        (NetDefect::AreaPageReused, Trouble::None, 8, Bytes),
        (NetDefect::FlowNotEnded, Trouble::Killed, FLOW_SLOTS, Bytes),
    ] {
        let seen = Complaint::default();
        let ended = meets("xeon-mp", trouble, slots, Some(defect), &seen);
        let found = verdict(&ended, &seen);
        assert_eq!(found.as_ref().map(|(found, _)| *found), Some(expected), "{defect:?}: {found:?}");
    }
}
