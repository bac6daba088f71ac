//! What the kernel does that one would not expect, and that the library keeps from its users. Each test says what
//! would go wrong.
//!
//! Limits, children and calls that fail are a whole process's, so such tests run in one of their own ([`alone`]).

#[path = "../peer/mod.rs"]
pub(crate) mod peer;

use crate::first::mmu_here;
use pageferry::host::Host;
use pageferry::verify::fail;
use pageferry::*;
use pageferry_untested::untested;
use peer::idle::Idle;
use peer::{HELLO, Plan, RawReceiver, WELCOME, meet_receiver, meet_sender};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::time::Duration;

const HUGE: usize = 2 << 20;
/// More than one page and less than a slot.
const LEN: usize = 1_000_000;

fn config() -> Config {
    Config::new().slots(2).slot_bytes(HUGE)
}

fn pair() -> (Sender, Receiver) {
    Channel::pair(config()).unwrap()
}

fn filled(tx: &Sender, byte: u8) -> Buffer {
    let mut buffer = tx.buffer(LEN).unwrap();
    buffer.fill(byte);
    buffer
}

fn all(bytes: &[u8], byte: u8) -> bool {
    bytes.len() == LEN && bytes.iter().all(|&b| b == byte)
}

/// Runs the rest of a test in a process of its own: false in the process that has done so.
pub(crate) fn alone(test: &str) -> bool {
    const ALONE: &str = "PAGEFERRY_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let output = command.env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{test} is a test: {text}");
    false
}

/// Has the kernel store a byte at an address, as a stray pointer would; whether it is there then.
fn stray_store(at: *mut u8, byte: u8) -> bool {
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&write, &[byte]).unwrap();
    // SAFETY: the kernel looks whether the address is mapped writable; the store is what is tested.
    unsafe { libc::read(read.as_raw_fd(), at.cast(), 1) == 1 }
}

/// The lines of /proc/self/smaps about the mapping of an address; none without /proc.
fn mapping(at: *const u8) -> Option<Vec<String>> {
    let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let range = |line: &str| {
        let (low, high) = line.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(low, 16).ok()?..usize::from_str_radix(high, 16).ok()?)
    };
    let mut lines = text.lines().skip_while(|line| !range(line).is_some_and(|r| r.contains(&(at as usize))));
    let first = lines.next()?.to_owned();
    Some(
        std::iter::once(first)
            .chain(lines.take_while(|line| range(line).is_none()).map(str::to_owned))
            .collect(),
    )
}

fn permissions(at: *const u8) -> Option<String> {
    mapping(at)?[0].split(' ').nth(1).map(str::to_owned)
}

/// Bytes of the mapping of an address that huge pages map.
fn huge_bytes(at: *const u8) -> Option<usize> {
    let of = |line: &String| {
        let value = line.strip_prefix("ShmemPmdMapped:").or_else(|| line.strip_prefix("FilePmdMapped:"))?;
        value.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok()
    };
    Some(mapping(at)?.iter().filter_map(of).sum::<usize>() << 10)
}

fn against_sender() -> (RawReceiver, Sender<trust::Guarded>) {
    let plan = Plan::honest(Level::Mmu);
    let (peer, tx) =
        meet_sender(plan, |socket| Channel::sender(socket, Config::new().slots(2).slot_bytes(HUGE)));
    (peer.unwrap(), tx.unwrap())
}

/// A private view shows later stores of the other side on all pages that it has not written itself: a receiver would
/// see the sender's next frame in the middle of this one.
#[test]
fn a_view_that_was_not_looked_at_yet_is_a_snapshot_all_the_same() {
    if !mmu_here() {
        return;
    }
    for copy_on_write in [false, true] {
        let (tx, rx) = Channel::pair(config().copy_on_write(copy_on_write)).unwrap();
        let mut buffer = filled(&tx, 1);
        let stray = buffer.as_mut_ptr();
        let _lent = tx.loan(buffer).unwrap();
        let loan = rx.recv().unwrap();
        for page in (0..LEN).step_by(4096) {
            // No page of the view was touched before.
            assert_eq!(stray_store(stray.wrapping_add(page), 2), copy_on_write);
        }
        assert!(all(&loan, 1));
    }
}

/// A page of a private view that was written stays the receiver's own: it would show the old contents in every later
/// message.
#[test]
fn what_a_receiver_wrote_is_not_in_later_messages() {
    let (tx, rx) = pair();
    for round in 0..6 {
        drop(tx.loan(filled(&tx, round)).unwrap());
        let mut loan = rx.recv().unwrap();
        assert!(all(&loan, round));
        loan.as_mut().unwrap()[round as usize * 100_000..].fill(99);
    }
}

/// A mapping in a child that could become writable makes the seal fail with EBUSY: a sender that has children could
/// not seal.
#[test]
fn memory_is_sealed_while_a_child_lives() {
    if !alone("pitfalls::memory_is_sealed_while_a_child_lives") {
        return;
    }
    let Ok((tx, rx)) = Channel::pair(Config::new().require_level(Level::Sealed)) else {
        return untested("pitfalls of sealed memory", "no seals");
    };
    let mut buffer = tx.buffer(LEN).unwrap();
    buffer.fill(1);
    let _child = Idle::fork();
    let _lent = tx.loan(buffer).unwrap();
    assert!(all(&rx.recv().unwrap(), 1));
}

/// A page that the kernel still reads or writes for somebody, as a pipe or a device does, makes the seal fail with
/// EBUSY as well: a sender that has handed its frame to anybody else could not lend it.
#[test]
fn memory_that_somebody_holds_is_sent_as_a_sealed_copy() {
    let Ok((tx, rx)) = Channel::pair(Config::new().require_level(Level::Sealed)) else {
        return untested("pitfalls of sealed memory", "no seals");
    };
    let mut buffer = tx.buffer(LEN).unwrap();
    buffer.fill(1);
    let at = buffer.as_mut_ptr();
    let (_read, write) = rustix::pipe::pipe().unwrap();
    let held = libc::iovec { iov_base: at.cast(), iov_len: 1 };
    // SAFETY: the pipe holds a page of the buffer from now on, and nobody reads it.
    assert_eq!(unsafe { libc::vmsplice(write.as_raw_fd(), &raw const held, 1, 0) }, 1);
    let lent = tx.loan(buffer).unwrap();
    let loan = rx.recv().unwrap();
    assert!(all(&loan, 1) && all(&lent, 1));
    assert_eq!(loan.level(), Level::Sealed);
    assert_ne!(lent.as_ptr(), at, "it is memory that nobody else has");
}

/// The seal stops nobody who has mapped the pool before, and a descriptor for reading is opened anew for
/// writing by its name in /proc: the mode of a descriptor protects nothing. A receiver that could write the pool would
/// write other messages.
#[test]
fn a_receiver_gets_no_way_to_write_the_pool() {
    let (peer, _tx) = against_sender();
    if _tx.level() != Level::Mmu {
        return untested("what level mmu promises", "it is not to be had");
    }
    let again =
        rustix::fs::open(format!("/proc/self/fd/{}", peer.pool_fd.as_raw_fd()), OFlags::RDWR, Mode::empty());
    if again.is_err() {
        untested("a pool that is opened anew", "no /proc");
    }
    for fd in [Some(&peer.pool_fd), again.as_ref().ok()].into_iter().flatten() {
        assert!(rustix::io::pwrite(fd, &[1], 0).is_err());
        assert!(
            rustix::fs::fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
                .is_err()
        );
        assert!(rustix::fs::ftruncate(fd, 0).is_err() && rustix::fs::ftruncate(fd, 1 << 30).is_err());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses addresses at which nothing is mapped.
        let at = unsafe {
            libc::mmap(core::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        assert_eq!(at, libc::MAP_FAILED);
        // A mapping for reading does not become one for writing.
        // SAFETY: as above.
        let at = unsafe {
            libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        // SAFETY: the mapping is this test's own.
        assert_eq!(unsafe { libc::mprotect(at, 4096, protection) }, -1);
    }
}

/// Huge pages are not to be had of a file without pages, nor on older kernels, and the count of written pages is
/// younger still: a library that believes in a version fails where it could go on with small pages.
#[test]
fn without_huge_pages_and_counts_of_written_pages_loans_go_on() {
    if !alone("pitfalls::without_huge_pages_and_counts_of_written_pages_loans_go_on") {
        return;
    }
    fail("MADV_COLLAPSE", libc::EINVAL, 0);
    fail("PAGEMAP_SCAN", libc::ENOTTY, 0);
    let (tx, rx) = pair();
    assert!(!tx.huge_pages() && !rx.huge_pages());
    for round in 0..4 {
        drop(tx.loan(filled(&tx, round)).unwrap());
        let mut loan = rx.recv().unwrap();
        assert!(all(&loan, round));
        loan.as_mut().unwrap().fill(99);
    }
    assert_eq!(tx.counters().out, 0);
}

/// Collapsing may say that it has worked and do nothing: sizes at which loans pay would be guessed for huge pages that
/// are not there.
#[test]
fn huge_pages_are_those_that_the_kernel_shows() {
    let (tx, rx) = pair();
    let buffer = filled(&tx, 1);
    let Some(found) = huge_bytes(buffer.as_ptr()) else {
        return untested("pitfalls that show in /proc", "no /proc");
    };
    assert_eq!(tx.huge_pages(), found >= HUGE, "{found} bytes");
    println!("huge pages: sender {}, receiver {}", tx.huge_pages(), rx.huge_pages());
}

/// A huge page is mapped only where address and offset are multiples of its size: one page off, and each message costs
/// 512 faults.
#[test]
fn slots_lie_at_multiples_of_a_huge_page_on_both_sides() {
    let (tx, rx) = Channel::pair(Config::new().slots(3).slot_bytes(1)).unwrap();
    let align = match Host::get().huge_page_bytes() {
        0 => HUGE,
        bytes => bytes.min(HUGE),
    };
    let lents: Vec<_> = (0..3).map(|_| tx.loan(tx.buffer(1).unwrap()).unwrap()).collect();
    for lent in &lents {
        assert!((lent.as_ptr() as usize).is_multiple_of(align));
        let loan = rx.recv().unwrap();
        // A copy may lie anywhere.
        assert!(loan.verb() == Verb::Copy || (loan.as_ptr() as usize).is_multiple_of(align));
        std::mem::forget(loan);
    }
}

/// What changes a part of a huge page splits its mapping for good (guard regions do, and `mprotect` of less than a
/// slot): every later call on it would cost five times as much.
#[test]
fn huge_pages_stay_huge_over_many_messages() {
    if !mmu_here() {
        return;
    }
    let (tx, rx) = pair();
    if !tx.huge_pages() || !rx.huge_pages() {
        return untested("huge pages", "there are none");
    }
    for round in 0..20 {
        let lent = tx.loan(filled(&tx, round)).unwrap();
        let mut loan = rx.recv().unwrap();
        assert!(all(&loan, round));
        assert!(huge_bytes(loan.as_ptr()).is_some_and(|found| found >= HUGE), "round {round}");
        if round.is_multiple_of(3) {
            loan.as_mut().unwrap()[5] = 99;
        }
        drop(loan);
        let buffer = lent.wait().unwrap();
        assert!(all(&buffer, round));
        assert!(huge_bytes(buffer.as_ptr()).is_some_and(|found| found >= HUGE), "round {round}");
    }
}

/// A device that pins a private view has all of it copied first: what is to be registered must be a shared one.
#[test]
fn shared_memory_has_an_address_in_a_shared_mapping() {
    let (tx, rx) = pair();
    let _sharing = tx.share(filled(&tx, 1)).unwrap();
    let Message::Shared(shared) = rx.recv_message().unwrap() else { panic!("not shared") };
    let Some(permissions) = permissions(shared.as_ptr()) else {
        return untested("pitfalls that show in /proc", "no /proc");
    };
    assert_eq!(permissions, "r--s");
}

/// Reading a hole of somebody's file allocates the page, and the reader's group pays: a pool of holes would use up its
/// memory.
#[test]
fn a_pool_of_holes_costs_a_guarded_receiver_nothing_and_counts_whole() {
    let plan = Plan { slots: 64, slot_bytes: HUGE as u64, ..Plan::honest(Level::Copy) };
    let whole = 64 * HUGE as u64;
    // The ring counts as well: it has less than a megabyte here.
    let ring = 1 << 20;
    let (peer, rx) =
        meet_receiver(plan.clone(), |socket| Channel::receiver(socket, Config::new().budget(whole + ring)));
    let (peer, _rx) = (peer.unwrap(), rx.unwrap());
    assert_eq!(rustix::fs::fstat(&peer.pool_fd).unwrap().st_blocks, 0);
    let (_, refused) =
        meet_receiver(plan, |socket| Channel::receiver(socket, Config::new().budget(whole - 1)));
    assert!(matches!(refused, Err(Error::Budget { wanted, .. }) if (whole..whole + ring).contains(&wanted)));
}

/// Sealed memory comes over the socket, behind wake-ups that nobody has looked at yet: whoever takes but some of
/// these would miss the memory.
#[test]
fn sealed_memory_is_found_behind_many_wake_ups() {
    let (peer, rx) =
        meet_receiver(Plan::honest(Level::Sealed), |socket| Channel::receiver(socket, Config::new()));
    let (mut peer, rx) = (peer.unwrap(), rx.unwrap());
    for _ in 0..150 {
        peer.note(wire::Note::Wake);
    }
    peer.object(0, &peer::snapshot(4096, 1, peer::SNAPSHOT_SEALS));
    let message = peer.message(Verb::Loan, Level::Sealed, 0, 1);
    peer.say(wire::Descriptor { slots: 0, ..message });
    assert_eq!(*rx.recv_timeout(peer::PATIENCE).unwrap(), [1]);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count())
}

/// Beyond the limit the kernel drops descriptors and says nothing but a flag: a message would wait for memory that
/// never comes.
#[test]
fn descriptors_that_were_dropped_are_an_error_that_names_the_limit() {
    if !alone("pitfalls::descriptors_that_were_dropped_are_an_error_that_names_the_limit") {
        return;
    }
    let (peer, rx) =
        meet_receiver(Plan::honest(Level::Sealed), |socket| Channel::receiver(socket, Config::new()));
    let (mut peer, rx) = (peer.unwrap(), rx.unwrap());
    let memory = peer::snapshot(4096, 1, peer::SNAPSHOT_SEALS);
    let next = memory.try_clone().unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: Some(next) }).unwrap();
    peer.object(0, &memory);
    let message = peer.message(Verb::Loan, Level::Sealed, 0, 1);
    peer.say(wire::Descriptor { slots: 0, ..message });
    let error = rx.recv_timeout(peer::PATIENCE).unwrap_err();
    assert_eq!(error, Error::Peer(PeerFault::Broken(Broken::DescriptorsLost)));
    assert!(error.to_string().contains("ulimit -n"));
}

/// A descriptor for each message would reach that limit soon.
#[test]
fn a_channel_has_a_handful_of_descriptors_and_a_loan_has_none() {
    if !alone("pitfalls::a_channel_has_a_handful_of_descriptors_and_a_loan_has_none") {
        return;
    }
    drop(pair());
    let before = descriptors();
    if before == 0 {
        return untested("pitfalls that show in /proc", "no /proc");
    }
    let (tx, rx) = pair();
    let with = descriptors();
    println!("both ends of a channel: {} descriptors", with - before);
    assert!(with - before <= 12, "{} descriptors", with - before);
    for round in 0..100 {
        let lent = tx.loan(filled(&tx, round)).unwrap();
        let loan = rx.recv().unwrap();
        assert_eq!(descriptors(), with);
        drop((lent, loan));
    }
    drop((tx, rx));
    assert_eq!(descriptors(), before);
}

/// A file that grows beyond RLIMIT_FSIZE is a signal that kills, and memory is a file here.
#[test]
fn a_limit_of_file_sizes_is_an_error_that_names_it() {
    if !alone("pitfalls::a_limit_of_file_sizes_is_an_error_that_names_it") {
        return;
    }
    drop(pair());
    setrlimit(Resource::Fsize, Rlimit { current: Some(4096), maximum: Some(4096) }).unwrap();
    let error = Channel::pair(Config::new()).unwrap_err();
    assert!(matches!(error, Error::Host(_)) && error.to_string().contains("ulimit -f"), "{error}");
}

/// Where a handler of faults makes views writable, `read` into one is EFAULT: the kernel's own stores raise no signal.
#[test]
fn the_kernel_reads_into_buffers_and_into_loans_that_are_written() {
    use std::io::Read as _;
    let (tx, rx) = pair();
    let mut zeros = std::fs::File::open("/dev/zero").unwrap();
    let mut buffer = filled(&tx, 1);
    zeros.read_exact(&mut buffer[..10]).unwrap();
    let lent = tx.loan(buffer).unwrap();
    let mut loan = rx.recv().unwrap();
    zeros.read_exact(loan.as_mut().unwrap()).unwrap();
    assert!(all(&loan, 0) && lent[..10] == [0; 10] && lent[10..].iter().all(|&byte| byte == 1));
}

/// Where memory is not overcommitted, every private view that may be written counts as if it were: large pools would
/// be refused.
#[test]
fn a_view_is_writable_only_while_a_message_is_being_written() {
    if !mmu_here() {
        return;
    }
    let (tx, rx) = pair();
    drop(tx.loan(filled(&tx, 1)).unwrap());
    let mut loan = rx.recv().unwrap();
    let at = loan.as_ptr();
    let Some(before) = permissions(at) else { return untested("pitfalls that show in /proc", "no /proc") };
    let during = permissions(loan.as_mut().unwrap().as_ptr()).unwrap();
    drop(loan);
    assert_eq!((before.as_str(), during.as_str()), ("r--p", "rw-p"));
    assert_eq!(permissions(at).unwrap(), "r--p");
}

/// A page of a pool that is not there yet is made at the first store: where memory is used up, that is a signal in the
/// middle of a frame. And a file that shrinks is one for its readers.
#[test]
fn a_pool_is_there_whole_from_the_start_and_cannot_shrink() {
    let (peer, _tx) = against_sender();
    let stat = rustix::fs::fstat(&peer.pool_fd).unwrap();
    assert_eq!(stat.st_size as usize, 2 * HUGE);
    assert!(stat.st_blocks as usize * 512 >= 2 * HUGE, "{} blocks", stat.st_blocks);
    assert!(rustix::fs::ftruncate(&peer.pool_fd, 4096).is_err());
}

/// Without /proc nothing is opened anew and nothing says which pages were written: what a receiver wrote must be
/// forgotten all the same.
#[test]
fn without_proc_loans_go_on() {
    if !alone("pitfalls::without_proc_loans_go_on") {
        return;
    }
    fail("open /proc/self/fd", libc::ENOENT, 0);
    fail("open /proc/self/pagemap", libc::ENOENT, 0);
    let (tx, rx) = pair();
    for round in 0..4 {
        drop(tx.loan(filled(&tx, round)).unwrap());
        let mut loan = rx.recv().unwrap();
        assert!(all(&loan, round));
        loan.as_mut().unwrap().fill(99);
    }
    assert_eq!(tx.counters().out, 0);
}

/// With small pages a loan of a buffer that is filled anew costs twice what a copy does.
#[test]
fn without_huge_pages_what_is_filled_anew_is_copied() {
    if !alone("pitfalls::without_huge_pages_what_is_filled_anew_is_copied") {
        return;
    }
    fail("MADV_COLLAPSE", libc::EINVAL, 0);
    let (tx, rx) = Channel::pair(Config::new().slots(1).slot_bytes(16 << 20)).unwrap();
    assert!(!tx.huge_pages());
    for len in [64 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let mut buffer = tx.buffer(len).unwrap();
        buffer.fill(1);
        let lent = tx.auto(buffer, Arrived::Touched).unwrap();
        assert_eq!(lent.verb(), Verb::Copy, "{len} bytes");
        drop((rx.recv().unwrap(), lent));
    }
}

/// Another thread may be storing to a buffer while it is lent: its stores land before the message or beside it, and
/// never in it afterwards.
#[test]
fn stores_of_another_thread_are_in_a_message_from_the_start_or_never() {
    if !mmu_here() {
        return;
    }
    let pairs = [false, true].map(|cow| Channel::pair(config().copy_on_write(cow)).unwrap());
    for round in 0..30 {
        let (tx, rx) = &pairs[usize::from(round % 2)];
        let mut buffer = filled(tx, round);
        let stray = buffer.as_mut_ptr() as usize;
        std::thread::scope(|scope| {
            let storing = scope.spawn(move || {
                (0..300).for_each(|n| {
                    stray_store(stray as *mut u8, n as u8);
                });
            });
            let lent = tx.loan(buffer).unwrap();
            let loan = rx.recv().unwrap();
            let first = loan[0];
            while !storing.is_finished() {
                // SAFETY: the byte is read anew, whatever the compiler knows of it.
                assert_eq!(unsafe { loan.as_ptr().read_volatile() }, first);
            }
            drop((loan, lent));
        });
    }
}

/// Who opens memory on which somebody holds a lease waits until that ends, for 45 seconds: a peer's lease on its pool
/// would hold up the handshake for longer than it may take.
#[test]
fn a_lease_on_the_pool_holds_nobody_up() {
    const F_SETSIG: libc::c_int = 10;
    let plan = Plan::honest(Level::Copy);
    let ring = peer::memfd(plan.forward_bytes(), 4096, plan.ring_seals).0;
    let pool = peer::memfd(plan.pool_bytes(), 4096, plan.pool_seals).0;
    let held =
        std::fs::File::options().read(true).write(true).open(format!("/proc/self/fd/{}", pool.as_raw_fd()));
    let held = held.unwrap();
    // SAFETY: a descriptor of ours and plain numbers. Without another signal, the break of the lease would end this
    // process.
    let leased = unsafe {
        libc::fcntl(held.as_raw_fd(), F_SETSIG, libc::SIGURG);
        libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    if leased != 0 {
        untested("leases", "there are none");
        return;
    }
    let (ours, theirs) = peer::sockets();
    peer::send(&ours, &plan.greeting(HELLO), &[ring.as_fd(), pool.as_fd()]).unwrap();
    let began = std::time::Instant::now();
    let config = Config::new().handshake_timeout(std::time::Duration::from_secs(1));
    assert!(matches!(Channel::receiver(theirs, config), Err(Error::TimedOut(_))));
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "it waited for the end of the lease");
    let answer = peer::recv(&ours).0;
    assert_eq!(answer[8], WELCOME);
}

/// What has come and was not received is closed with the socket, and to close a socket that lingers takes as long as
/// its maker likes: a peer could hold up whoever drops an end, for an hour.
#[test]
fn descriptors_that_nobody_has_received_hold_up_nobody_who_drops_an_end() {
    const LINGERS: Duration = Duration::from_secs(120);
    // They are sent, and nobody else has them.
    let lingering = |socket: &std::os::fd::OwnedFd| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &stream, &[0; 65536]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&stream, Some(LINGERS)).unwrap();
        peer::send(socket, b"?", &[stream.as_fd()]).unwrap();
        peer::send(socket, b"", &[stream.as_fd()]).unwrap();
        listener
    };
    let quick = |drop: Box<dyn FnOnce()>| {
        let began = std::time::Instant::now();
        drop();
        assert!(began.elapsed() < LINGERS / 2, "{:?}", began.elapsed());
    };
    let (peer, tx) = against_sender();
    let _full = lingering(&peer.socket);
    quick(Box::new(move || drop(tx)));
    let (peer, rx) =
        meet_receiver(Plan::honest(Level::Copy), |socket| Channel::receiver(socket, Config::new()));
    let _full = lingering(&peer.unwrap().socket);
    quick(Box::new(move || drop(rx.unwrap())));
    // In a handshake that fails.
    let (ours, theirs) = peer::sockets();
    peer::send(&ours, b"no greeting", &[]).unwrap();
    let _full = lingering(&ours);
    quick(Box::new(move || drop(Channel::receiver(theirs, Config::new()).unwrap_err())));
    // Before it was accepted.
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(folder.path().join("socket")).unwrap();
    let _full = lingering(&Channel::connect(folder.path().join("socket")).unwrap());
    quick(Box::new(move || drop(listener)));
}

/// A peer that goes while a note to it is unread leaves an error in this side's socket, before all that it had sent:
/// the sealed memory of its last messages would be given up, and the peer blamed.
#[test]
fn what_a_peer_had_sent_is_found_behind_the_error_that_it_went() {
    let (peer, rx) =
        meet_receiver(Plan::honest(Level::Sealed), |socket| Channel::receiver(socket, Config::new()));
    let (mut peer, rx) = (peer.unwrap(), rx.unwrap());
    for number in 0..2 {
        peer.object(number, &peer::snapshot(4096, 1 + number as u8, peer::SNAPSHOT_SEALS));
        let message = peer.message(Verb::Loan, Level::Sealed, 0, 1);
        peer.publish(wire::Descriptor { slots: 0, object: number, ..message }.words());
        if number == 0 {
            // The acknowledgement wakes the peer, which does not look.
            peer.sleeps(1);
            drop(rx.recv_timeout(peer::PATIENCE).unwrap());
        }
    }
    drop(peer);
    assert_eq!(*rx.recv_timeout(peer::PATIENCE).unwrap(), [2]);
    assert_eq!(rx.try_recv().unwrap_err(), Error::Peer(PeerFault::Dead));
    // The same in a handshake: why there will be no channel comes before the error.
    let (ours, theirs) = peer::sockets();
    peer::send(&ours, &Plan::honest(Level::Copy).greeting(peer::REFUSE), &[]).unwrap();
    peer::send(&theirs, b"unread", &[]).unwrap();
    drop(ours);
    let error = Channel::receiver(theirs, Config::new()).unwrap_err();
    assert!(matches!(error, Error::Peer(PeerFault::Refused(_))), "{error}");
}

/// Sealed memory goes over the socket, which can be full where the ring is not. Whoever waits for room there gets no
/// acknowledgement, for nothing is given back: it would sleep although there is room.
#[test]
fn a_sender_of_sealed_memory_waits_for_room_in_the_socket() {
    const MESSAGES: u64 = 40;
    let sends = |alone: bool| {
        let (ours, theirs) = Channel::sockets().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 0).unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || {
                let config = Config::new().slots(1).slot_bytes(1).require_level(Level::Sealed);
                let tx = Channel::sender(ours, config.spin(Duration::ZERO)).unwrap();
                let one = |number: u64| {
                    let mut buffer = tx.buffer(8).unwrap();
                    buffer.copy_from_slice(&number.to_ne_bytes());
                    let began = std::time::Instant::now();
                    let lent = tx.loan_timeout(buffer, peer::PATIENCE / 2);
                    assert!(began.elapsed() < peer::PATIENCE / 4, "it slept although there was room");
                    lent
                };
                let first = one(0).unwrap();
                std::thread::scope(|scope| {
                    // Another thread polls the socket for all, and not for room.
                    let waits = (!alone).then(|| scope.spawn(move || first.wait_timeout(2 * peer::PATIENCE)));
                    let lent: Vec<_> = (1..MESSAGES).map(|number| one(number).unwrap()).collect();
                    tx.copy(b"all of them").unwrap();
                    assert!(waits.is_none_or(|waits| waits.join().unwrap().is_ok()));
                    lent
                });
            });
            let rx = Channel::receiver(theirs, Config::new()).unwrap();
            let loans: Vec<_> = (0..MESSAGES)
                .map(|number| {
                    // The sender has filled the socket by then.
                    std::thread::sleep(Duration::from_millis(2));
                    let loan = rx.recv_timeout(peer::PATIENCE).unwrap();
                    assert_eq!(*loan, number.to_ne_bytes());
                    // It is held.
                    loan
                })
                .collect();
            assert_eq!(&*rx.recv_timeout(peer::PATIENCE).unwrap(), b"all of them");
            drop(loans);
            sender.join().unwrap();
        });
    };
    sends(true);
    sends(false);
}

/// Every descriptor is closed by `exec`: a program that this one starts would keep the memory, and a peer's death would
/// not be seen. And a child that has called `exec` sees nothing any more, so what was kept for it is given back.
#[test]
fn a_program_that_is_started_has_nothing_of_a_channel() {
    if !alone("pitfalls::a_program_that_is_started_has_nothing_of_a_channel") {
        return;
    }
    if descriptors() == 0 {
        return untested("pitfalls that show in /proc", "no /proc");
    }
    let outside = |path: String| -> Vec<String> {
        let links = std::fs::read_dir(path).unwrap().map(|entry| std::fs::read_link(entry.unwrap().path()));
        links.filter_map(|link| Some(link.ok()?.to_string_lossy().into_owned())).collect()
    };
    let before = outside("/proc/self/fd".to_owned());
    let all: Vec<_> = [Level::Mmu, Level::Sealed, Level::Leased]
        .map(|level| {
            let (tx, rx) = Channel::pair(Config::new().slots(2).slot_bytes(HUGE).level(level)).unwrap();
            let lent = tx.loan(filled(&tx, 1)).unwrap();
            let loan = rx.recv().unwrap();
            let waits = tx.loan(filled(&tx, 2)).unwrap();
            (tx, rx, lent, loan, waits)
        })
        .into_iter()
        .collect();
    let ours: Vec<_> =
        outside("/proc/self/fd".to_owned()).into_iter().filter(|link| !before.contains(link)).collect();
    assert!(
        ours.iter().any(|link| link.contains("memfd:")) && ours.iter().any(|link| link.contains("socket:"))
    );
    let (mut go, mut gone) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    // SAFETY: the child calls the kernel alone.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut byte = 0u8;
        // SAFETY: as above; the program waits until it is killed.
        unsafe {
            libc::read(go.0.as_raw_fd(), (&raw mut byte).cast(), 1);
            let args = [c"sleep".as_ptr(), c"1000".as_ptr(), core::ptr::null()];
            libc::execv(c"/bin/sleep".as_ptr(), args.as_ptr());
            libc::_exit(1);
        }
    }
    drop(gone.1);
    let mut kept = Vec::new();
    for (tx, rx, lent, loan, waits) in all {
        drop(loan);
        if tx.level() == Level::Mmu {
            assert!(!lent.is_home().unwrap() && rx.counters().retired == 1, "the child still sees it");
        }
        kept.push((tx, rx, lent, waits));
    }
    std::io::Write::write_all(&mut go.1, &[1]).unwrap();
    // It has called `exec` when its copy of this is closed.
    assert_eq!(std::io::Read::read(&mut gone.0, &mut [0]).unwrap(), 0);
    let held = outside(format!("/proc/{child}/fd"));
    let maps = std::fs::read_to_string(format!("/proc/{child}/maps")).unwrap();
    for (_, rx, lent, _) in &kept {
        drop(rx.recv_timeout(peer::PATIENCE).unwrap());
        while !lent.is_home().unwrap() {
            let _ = rx.try_recv();
        }
    }
    // SAFETY: the child is this test's own, and was not waited for.
    unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, core::ptr::null_mut(), 0)) };
    assert!(maps.contains("sleep") && !maps.contains("memfd:"), "{maps}");
    assert!(held.iter().all(|link| !ours.contains(link) || link == "/dev/null"), "{held:?} of {ours:?}");
}

/// The last note of a sender does not fit into a full socket, and what was lent keeps that open: a receiver would wait
/// for ever for the next message.
#[test]
fn a_receiver_hears_that_no_more_comes_also_where_the_socket_is_full() {
    let (ours, theirs) = Channel::sockets().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 0).unwrap();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let config = Config::new().slots(1).slot_bytes(1).require_level(Level::Sealed);
            let tx = Channel::sender(ours, config).unwrap();
            let mut lent = Vec::new();
            // Until there is no room.
            loop {
                match tx.loan_timeout(tx.buffer(8).unwrap(), Duration::from_millis(1)) {
                    Ok(one) => lent.push(one),
                    Err(error) => break assert!(matches!(error, Error::TimedOut(_)), "{error}"),
                }
            }
            lent
        });
        let rx = Channel::receiver(theirs, Config::new()).unwrap();
        let lent = sender.join().unwrap();
        let loans: Vec<_> = lent.iter().map(|_| rx.recv_timeout(peer::PATIENCE).unwrap()).collect();
        assert_eq!(rx.recv_timeout(peer::PATIENCE / 2).unwrap_err(), Error::Peer(PeerFault::Dead));
        drop((lent, loans));
    });
}

/// The same for a fan-out, which polls many sockets: it would give up a receiver that only looks seldom.
#[test]
fn a_fan_out_of_sealed_memory_waits_for_room_in_a_socket() {
    const MESSAGES: u64 = 20;
    let (ours, theirs) = Channel::sockets().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 0).unwrap();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let config = Config::new().slots(1).slot_bytes(1).require_level(Level::Sealed);
            let mut fan = Fanout::new(config, Slow::Wait(peer::PATIENCE / 2)).unwrap();
            fan.add(ours).unwrap();
            for number in 0..MESSAGES {
                let mut buffer = fan.buffer(8).unwrap();
                buffer.copy_from_slice(&number.to_ne_bytes());
                let began = std::time::Instant::now();
                drop(fan.loan(buffer).unwrap());
                assert!(began.elapsed() < peer::PATIENCE / 4, "it slept although there was room");
            }
            assert_eq!((fan.receivers(), fan.take_evicted()), (1, Vec::new()));
        });
        // SAFETY: the sender is this test.
        let rx = unsafe { Channel::trusted_receiver(theirs, Config::new()) }.unwrap();
        let loans: Vec<_> = (0..MESSAGES)
            .map(|number| {
                std::thread::sleep(Duration::from_millis(2));
                let loan = rx.recv_timeout(peer::PATIENCE).unwrap();
                assert_eq!(*loan, number.to_ne_bytes());
                loan
            })
            .collect();
        sender.join().unwrap();
        drop(loans);
    });
}
