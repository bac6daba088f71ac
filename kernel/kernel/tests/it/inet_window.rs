//! Receiving by a window that shows pages: everything that can happen to a packet, what a window shows beside a plain
//! copy of it, what a reader that waits for more gets, and how it ends.

use crate::common::far::*;
use crate::common::*;
use crate::inet_flip::{CHUNK, Complaint, PAGE_MTU, TROUBLES, Trouble};
use crate::inet_zero_copy::with_source_and_ring;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_model::net::Wire;
use pageferry_vm::KernelPages;

const PAGE: usize = PAGE_SIZE;

/// A window, and what it should show: of each page its bytes, if there are any. Beside it a buffer for the rest.
struct Shows {
    window: Va,
    pages: Vec<Option<Vec<u8>>>,
    rest: Va,
    seen: Complaint,
}

impl Shows {
    fn new(u: &U, seen: &Complaint) -> Shows {
        let window = u.map_window(CHUNK).expect("there is room");
        Shows { window, pages: vec![None; CHUNK / PAGE], rest: map(u, CHUNK), seen: seen.clone() }
    }

    /// Receives what comes next of the stream, and sees that all that is shown is as it should be; how much came.
    fn receive(&mut self, u: &U, fd: Fd, stream: &[u8], heard: usize) -> Result<usize, Errno> {
        let shown = u.receive_shown(fd, self.window, CHUNK)?;
        let len = shown.len_bytes;
        for (page, bytes) in stream[heard..heard + len].chunks(PAGE).enumerate() {
            self.pages[page] = Some(bytes.to_vec());
        }
        self.look(u, heard);
        let mut got = len;
        if shown.copy_bytes > 0 {
            let copied = match u.read(fd, self.rest, shown.copy_bytes.min(CHUNK)) {
                Err(_) if got > 0 => return Ok(got),
                copied => copied?,
            };
            let mut there = vec![0; copied];
            u.load(self.rest, &mut there);
            if there != stream[heard + got..heard + got + copied] {
                self.note(format!("{copied} bytes beside the window, at {} of the stream", heard + got));
            }
            got += copied;
        }
        Ok(got)
    }

    fn look(&self, u: &U, heard: usize) {
        for (page, bytes) in self.pages.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            let mut there = vec![0; PAGE];
            u.load(self.window + page * PAGE, &mut there);
            if there != *bytes {
                self.note(format!("page {page} of the window, at {heard} of the stream"));
            }
        }
    }

    fn note(&self, what: String) {
        self.seen.borrow_mut().get_or_insert(what);
    }
}

/// A reader that is killed when a window shows it something.
fn is_killed_with_a_window(u: &U, seen: &Complaint) {
    let seen = seen.clone();
    let victim = fork(u, "victim", move |u| {
        let fd = connected(u, SOURCE);
        let mut shows = Shows::new(u, &seen);
        let stream = patterned(1 << 20);
        let mut heard = 0;
        while heard < 5 * PAGE {
            heard += shows.receive(u, fd, &stream, heard).expect("connected");
        }
        loop {
            if u.receive_shown(fd, shows.window, CHUNK).is_err() || u.signals_taken() > 0 {
                return;
            }
        }
    });
    u.sleep_for(Cycles(3_000_000)).expect("alive");
    let _ = u.signal(victim);
    assert_eq!(u.wait(), Ok(victim));
}

/// Receives all that a source says in such a trouble, each page by a window if it can be shown.
fn meets(name: &str, trouble: Trouble, mapping: ReceiveMapping) {
    const LEN: usize = 40 * PAGE + 1234;
    let mut config = internet();
    let net = config.net.as_mut().expect("it has one");
    net.receive_mapping = mapping;
    net.checksum_offload &= trouble != Trouble::Damage;
    let m = trouble.with_source(name, LEN as u64);
    let what = format!("{trouble:?}, {mapping:?} on {name}");
    let seen = Complaint::default();
    let noted = seen.clone();
    let ended = run_on(m, name, &what, config, move |u| {
        if trouble == Trouble::Killed {
            is_killed_with_a_window(u, &noted);
        }
        let mut shows = Shows::new(u, &noted);
        let mut hoarded: Option<KernelPages> = (trouble == Trouble::Short).then(|| hoard(u, 12));
        let fd = connected(u, SOURCE);
        let stream = patterned(LEN);
        let mut heard = 0;
        while heard < LEN {
            if trouble == Trouble::Fails {
                u.kernel().vm().fail_after(Some((heard / PAGE % 9) as u32));
            }
            if heard > LEN / 2 {
                hoarded.take().into_iter().for_each(|pages| u.kernel().vm().free_kernel_pages(pages));
            }
            match shows.receive(u, fd, &stream, heard) {
                Ok(0) => break,
                Ok(got) => heard += got,
                Err(Errno::NoMemory) if trouble == Trouble::Fails => {}
                Err(e) => panic!("{e:?}"),
            }
        }
        u.kernel().vm().fail_after(None);
        hoarded.into_iter().for_each(|pages| u.kernel().vm().free_kernel_pages(pages));
        assert_eq!(heard, LEN, "it has said so much");
        // Half of it goes at once, the rest with the process.
        u.clear_window(shows.window, CHUNK / 2).expect("a window");
        shows.pages[..CHUNK / 2 / PAGE].fill(None);
        shows.look(u, heard);
        u.close(fd).expect("open");
    });
    assert_eq!(*seen.borrow(), None, "{what}");
    let shown = ended.counter(KernelCounter::PagesDonated);
    // Of a longer frame the first page is one.
    let by_pages = trouble.comes_by_pages() || trouble == Trouble::LongFrames;
    let as_expected = if by_pages { shown >= 10 } else { shown == 0 };
    assert!(as_expected, "{what}: {shown} pages shown");
}

#[test]
fn whatever_happens_to_a_packet_a_window_shows_what_came() {
    on_named_machines!();
    for trouble in TROUBLES {
        for mapping in [ReceiveMapping::Permanent, ReceiveMapping::Ephemeral] {
            meets("xeon-mp", trouble, mapping);
        }
    }
    meets("today", Trouble::BadWire, ReceiveMapping::Permanent);
    meets("today", Trouble::Fails, ReceiveMapping::Permanent);
}

#[test]
fn a_window_is_asked_for_in_whole_pages_and_is_nothing_else() {
    run("xeon-up", Schedule::Timed, internet(), |u| {
        let (ours, theirs) = u.socket_pair().expect("sockets");
        let window = u.map_window(4 * PAGE).expect("there is room");
        let plain = map(u, 4 * PAGE);
        u.store(plain, &patterned(2 * PAGE + 100));
        assert_eq!(u.write(theirs, plain, 2 * PAGE + 100), Ok(2 * PAGE + 100));
        assert_eq!(u.receive_shown(ours, window + 1, PAGE), Err(Errno::Invalid));
        assert_eq!(u.receive_shown(ours, window, PAGE - 1), Err(Errno::Invalid));
        assert_eq!(u.receive_shown(ours, plain, PAGE), Err(Errno::Fault), "no window");
        assert_eq!(u.receive_shown(Fd(99), window, PAGE), Err(Errno::BadFd));
        assert_eq!(u.clear_window(plain, PAGE), Err(Errno::Fault));
        assert_eq!(u.clear_window(window, 0), Err(Errno::Invalid));
        assert_eq!(u.map_window(0), Err(Errno::Invalid));
        // What was refused is still there.
        let shown = u.receive_shown(ours, window, 4 * PAGE).expect("it is there");
        let mut there = vec![0; shown.len_bytes];
        u.load(window, &mut there);
        assert!(there == patterned(2 * PAGE + 100)[..there.len()]);
        assert_eq!(u.read(ours, plain, 4 * PAGE), Ok(2 * PAGE + 100 - shown.len_bytes));
        // Neither is a file shown.
        let file = u.open("f", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE).expect("a file");
        assert_eq!(u.receive_shown(file, window, PAGE), Err(Errno::NotSupported));
        u.set_nonblocking(ours, true).expect("a socket");
        assert_eq!(u.receive_shown(ours, window, PAGE), Err(Errno::WouldBlock));
        u.close(theirs).expect("open");
        assert_eq!(u.receive_shown(ours, window, PAGE), Ok(ShownPages::default()), "the end");
    });
    // A pipe that is made of sockets shows pages, another does not.
    run("xeon-up", Schedule::Timed, sf_buf(64), |u| {
        let (read, _) = u.pipe().expect("a pipe");
        let window = u.map_window(PAGE).expect("there is room");
        assert_eq!(u.receive_shown(read, window, PAGE), Err(Errno::NotSupported));
    });
}

/// How often a reader of `LEN` bytes has to ask, which waits for so many.
fn calls_with(low_water: usize, slots: Option<u64>, clusters: Option<usize>) -> usize {
    calls_over(low_water, PAGE_MTU, slots, clusters)
}

/// As [`calls_with`], by frames of so many bytes.
fn calls_over(low_water: usize, mtu: u64, slots: Option<u64>, clusters: Option<usize>) -> usize {
    const LEN: usize = 60 * PAGE;
    let mut config = internet();
    config.net.as_mut().expect("it has one").receive_buffer_bytes = 40 * PAGE;
    if let Some(clusters) = clusters {
        config.socket.clusters = clusters;
    }
    let m = with_source_and_ring(Wire::default(), "xeon-mp", mtu, true, LEN as u64, slots);
    let calls = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = calls.clone();
    run_on(m, "xeon-mp", &format!("{low_water} {mtu} {slots:?} {clusters:?}"), config, move |u| {
        let fd = connected(u, SOURCE);
        u.set_socket_option(fd, SocketOption::ReceiveLowWater(low_water)).expect("a stream");
        let buffer = map(u, LEN);
        let mut heard = 0;
        while heard < LEN {
            let got = u.read(fd, buffer + heard, LEN - heard).expect("connected");
            assert!(got > 0, "more was to come than {heard}");
            heard += got;
            counted.set(counted.get() + 1);
        }
        let mut there = vec![0; LEN];
        u.load(buffer, &mut there);
        assert!(there == patterned(LEN));
    });
    calls.get()
}

#[test]
fn a_reader_that_waits_for_more_gets_more_at_a_time_and_never_waits_for_ever() {
    on_named_machines!();
    let (at_once, sixteen) = (calls_with(1, None, None), calls_with(16 * PAGE, None, None));
    assert!(sixteen <= 5 && sixteen < at_once, "{at_once} calls, {sixteen} for 16 pages at a time");
    // More than the buffer holds is half of it.
    assert!(calls_with(usize::MAX, None, None) <= 5);
    // What it waits for has no memory to come into: it has to do with less.
    let few = calls_with(usize::MAX, Some(16), Some(20));
    assert!(few > sixteen, "{few} calls");
    // Short frames take pages all the same: the buffer's memory is full before it has so many bytes.
    for mtu in [576, 900, 1500] {
        let short = calls_over(usize::MAX, mtu, None, None);
        assert!(short > 3, "MTU {mtu}: {short} calls");
    }
}
