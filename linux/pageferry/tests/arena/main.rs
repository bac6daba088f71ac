//! Blocks whose readers the kernel counts. The tests fork and count descriptors, so they are a program of their own,
//! and each is alone in it.

#[path = "../peer/mod.rs"]
mod peer;

use pageferry::*;
use peer::emulated::{Need, works};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LEN: usize = 3_000_000;

/// No other test of this program runs meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same where the kernel counts readers; there is nothing to test where it does not.
fn counting() -> Option<MutexGuard<'static, ()>> {
    let items = host::Host::get().items();
    let counts = items.iter().any(|item| item.name == "readers" && item.verdict == host::Verdict::Good);
    counts.then(alone)
}

fn arena() -> Arena {
    Arena::with(Limits { bytes: 64 << 20, kept: 16 << 20, blocks: 16 })
}

fn lent(arena: &Arena, byte: u8) -> Handle {
    let mut block = arena.block(LEN).unwrap();
    block.fill(byte);
    block.lend().unwrap()
}

fn opened(handle: &Handle) -> Counted {
    Counted::open(handle.as_fd().try_clone_to_owned().unwrap(), 1 << 30).unwrap()
}

fn shows(counted: &Counted, byte: u8) -> bool {
    // SAFETY: nobody here writes to what is lent.
    let bytes = unsafe { counted.bytes() };
    bytes[..LEN].iter().all(|&b| b == byte)
}

/// Waits, since a process that was killed lets go of its memory a little later.
fn comes_home(arena: &Arena) -> bool {
    let until = Instant::now() + Duration::from_secs(120);
    while Instant::now() < until {
        if arena.held().out == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Makes a child that ends with what `of` answers.
fn child(of: impl FnOnce() -> bool) -> rustix::process::Pid {
    // SAFETY: the tests of this program run one at a time, and the child ends without returning.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(of)).unwrap_or(false);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    rustix::process::Pid::from_raw(pid).unwrap()
}

fn ended_well(pid: rustix::process::Pid) -> bool {
    let (_, status) =
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
    status.exit_status() == Some(0)
}

fn sockets() -> (OwnedFd, OwnedFd) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

fn pass(socket: &OwnedFd, handle: &Handle) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [handle.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(socket, &[std::io::IoSlice::new(&[1])], &mut control, SendFlags::empty()).unwrap();
}

fn taken(socket: &OwnedFd) -> OwnedFd {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [std::io::IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .unwrap();
    let mut fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    fds.next().unwrap()
}

fn blocks_of_this_process() -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let links = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("pageferry-block")).count()
}

#[test]
fn a_block_is_home_when_nobody_has_it() {
    let Some(_alone) = counting() else { return };
    let arena = arena();
    let handle = lent(&arena, 7);
    assert_eq!(arena.held().out, 1, "its handle is there");
    let (ours, theirs) = sockets();
    pass(&ours, &handle);
    drop(handle);
    assert_eq!(arena.held().out, 1, "it is in a socket");
    let fd = taken(&theirs);
    let counted = Counted::open(fd, 1 << 30).unwrap();
    assert!(shows(&counted, 7));
    assert_eq!(arena.held().out, 1, "it is mapped");
    let (mut wait, mut go) = std::io::pipe().unwrap();
    let keeper = child(|| {
        let _ = std::io::Read::read(&mut wait, &mut [0]);
        shows(&counted, 7)
    });
    drop(counted);
    assert_eq!(arena.held().out, 1, "a child has it mapped");
    drop(lent(&arena, 8));
    std::io::Write::write_all(&mut go, &[1]).unwrap();
    assert!(ended_well(keeper), "a child saw its block change");
    assert!(comes_home(&arena));
    pass(&ours, &lent(&arena, 7));
    assert_eq!(arena.held().out, 1);
    drop((ours, theirs));
    assert!(comes_home(&arena), "a socket that nobody read keeps it");
}

#[test]
fn one_block_serves_for_many_messages() {
    let Some(_alone) = counting() else { return };
    let arena = arena();
    for byte in 0..100 {
        let handle = lent(&arena, byte);
        let counted = opened(&handle);
        drop(handle);
        assert!(shows(&counted, byte));
    }
    let held = arena.held();
    assert_eq!((held.made, held.again, held.blocks, held.out), (1, 99, 1, 0));
}

#[test]
fn what_a_reader_writes_is_its_own() {
    let Some(_alone) = counting() else { return };
    let arena = arena();
    let handle = lent(&arena, 7);
    let (one, other) = (opened(&handle), opened(&handle));
    // SAFETY: mapped writable, and nobody else has this view.
    unsafe { one.as_ptr().write_bytes(9, LEN) };
    assert!(shows(&other, 7) && shows(&one, 9));
    let mut out = [std::mem::MaybeUninit::new(0); 4];
    other.copy_out(LEN - 4, &mut out);
    // SAFETY: all four were initialised, and copied over.
    assert!(out.iter().all(|byte| unsafe { byte.assume_init() } == 7));
    drop((handle, one, other));
    // Nothing of it is in the next message.
    assert!(shows(&opened(&lent(&arena, 3)), 3));
}

#[test]
fn a_reader_that_is_killed_keeps_nothing() {
    let Some(_alone) = counting() else { return };
    let arena = arena();
    let (ours, theirs) = sockets();
    let reader = child(|| {
        let counted = Counted::open(taken(&theirs), 1 << 30).unwrap();
        assert!(shows(&counted, 5));
        rustix::io::write(&theirs, &[1]).unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    pass(&ours, &lent(&arena, 5));
    rustix::io::read(&ours, &mut [0]).unwrap();
    assert_eq!(arena.held().out, 1);
    rustix::process::kill_process(reader, Signal::KILL).unwrap();
    assert!(!ended_well(reader));
    assert!(comes_home(&arena));
    drop(theirs);
}

#[test]
fn a_block_outlives_its_owner() {
    let Some(_alone) = counting() else { return };
    let (ours, theirs) = sockets();
    let owner = child(|| {
        pass(&ours, &lent(&arena(), 11));
        true
    });
    assert!(ended_well(owner));
    assert!(shows(&Counted::open(taken(&theirs), 1 << 30).unwrap(), 11));
}

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn what_is_no_block_is_refused() {
    let _alone = alone();
    let refused = |fd: OwnedFd, max| Counted::open(fd, max).unwrap_err();
    let not_sealed =
        |error| matches!(error, Error::Peer(PeerFault::Broken(Broken::NotSealed { what: "block" })));
    let size = |error| matches!(error, Error::Peer(PeerFault::Broken(Broken::Size { what: "block", .. })));
    assert!(not_sealed(refused(memfd(1 << 20, SealFlags::GROW), 1 << 30)));
    assert!(not_sealed(refused(std::io::pipe().unwrap().0.into(), 1 << 30)));
    assert!(not_sealed(refused(std::fs::File::open("/proc/self/maps").unwrap().into(), 1 << 30)));
    assert!(size(refused(memfd(0, SealFlags::SHRINK), 1 << 30)));
    assert!(size(refused(memfd(1 << 20, SealFlags::SHRINK), (1 << 20) - 1)));
    assert!(size(refused(memfd(100, SealFlags::SHRINK), 1 << 20)));
    Counted::open(memfd(1 << 20, SealFlags::SHRINK), 1 << 20).unwrap();
}

#[test]
fn a_budget_is_kept_and_blocks_of_other_sizes_make_room() {
    let Some(_alone) = counting() else { return };
    let arena = arena();
    let mut out = Vec::new();
    let error = loop {
        match arena.block(LEN) {
            Ok(block) => out.push(block.lend().unwrap()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Budget { .. }), "{error}");
    assert_eq!(out.len(), 16);
    assert!(arena.held().bytes <= arena.limits().bytes);
    out.pop();
    arena.block(100_000).unwrap();
    assert!(matches!(arena.block(65 << 20).unwrap_err(), Error::Budget { .. }));
    drop(out);
    arena.block(60 << 20).unwrap();
    assert!(arena.held().bytes <= arena.limits().bytes);
    arena.trim();
    let held = arena.held();
    assert_eq!((held.bytes, held.blocks, held.out), (0, 0, 0));
    assert_eq!(blocks_of_this_process(), 0);
}

/// Each limit by itself, to its last block and its last byte.
#[test]
fn each_limit_is_reached_and_none_is_passed() {
    let Some(_alone) = counting() else { return };
    let whole = {
        let one = arena();
        drop(lent(&one, 1));
        one.held().bytes
    };
    let many = 1 << 20;
    for (bytes, blocks, fit) in
        [(1 << 30, 3, 3), (3 * whole, many, 3), (3 * whole - 1, many, 2), (4 * whole, 3, 3), (1 << 30, 1, 1)]
    {
        let arena = Arena::with(Limits { bytes, kept: 0, blocks });
        let mut out: Vec<Handle> = (0..fit).map(|byte| lent(&arena, byte)).collect();
        assert!(matches!(arena.block(LEN), Err(Error::Budget { .. })), "{bytes} bytes, {blocks} blocks");
        let held = arena.held();
        assert_eq!((held.blocks, held.bytes), (usize::from(fit), u64::from(fit) * whole));
        out.pop();
        out.push(lent(&arena, 9));
        assert!(arena.block(LEN).is_err(), "{bytes} bytes, {blocks} blocks, one of them again");
        drop(out);
        arena.trim();
        assert_eq!((arena.held().blocks, arena.held().bytes), (0, 0));
    }
}

#[test]
fn what_was_received_makes_room_and_what_waits_does_not() {
    let Some(_alone) = counting() else { return };
    let arena = arena();
    let lent = |way: u64| {
        let handle = lent(&arena, way as u8);
        handle.went(way);
        let counted = opened(&handle);
        (handle, counted)
    };
    let mut out: Vec<_> = (0..16).map(|at| lent(at % 2)).collect();
    assert!(arena.block(LEN).is_err());
    arena.received(0);
    for _ in 0..8 {
        out.push(lent(2));
    }
    assert!(arena.block(LEN).is_err(), "what went another way waits");
    let held = arena.held();
    assert_eq!((held.left, held.blocks, held.out), (8, 16, 16));
    // What is left is its readers' alone, and stays as it was.
    for (at, (_, counted)) in out.iter().enumerate() {
        assert!(shows(counted, if at < 16 { at as u8 % 2 } else { 2 }));
    }
    drop(out);
    assert!(comes_home(&arena));
    assert_eq!(arena.held().blocks, 16);
}

#[test]
fn what_nobody_asks_for_is_freed() {
    let Some(_alone) = counting() else { return };
    let arena = arena();
    let out: Vec<_> = (0..8).map(|byte| lent(&arena, byte)).collect();
    assert!(arena.has_excess());
    arena.tidy();
    assert_eq!(arena.held().blocks, 8, "all are out");
    drop(out);
    let until = Instant::now() + Duration::from_secs(120);
    while arena.has_excess() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        arena.tidy();
    }
    assert!(arena.held().bytes <= arena.limits().kept);
    assert!(arena.held().blocks > 0, "what is to be kept is kept");
}

#[test]
fn a_child_has_blocks_of_its_own() {
    let Some(_alone) = counting().filter(|_| works(Need::KeptFromChildren)) else { return };
    let arena = arena();
    drop(lent(&arena, 1));
    let mut filling = Some(arena.block(LEN).unwrap());
    filling.as_mut().unwrap().fill(4);
    let all = |block: &Option<Block>, byte| block.as_ref().unwrap().iter().all(|&b| b == byte);
    let is_right = child(|| {
        assert_eq!(blocks_of_this_process(), 0, "descriptors of the parent's blocks");
        assert_eq!(arena.held(), ArenaStats::default());
        assert!(all(&filling, 4), "what the parent was filling");
        filling.as_mut().unwrap().fill(5);
        assert!(matches!(filling.take().unwrap().lend(), Err(Error::Usage(Usage::Forked))));
        assert!(shows(&opened(&lent(&arena, 9)), 9));
        let heir = child(|| blocks_of_this_process() == 0 && shows(&opened(&lent(&arena, 2)), 2));
        ended_well(heir) && arena.held().made == 1
    });
    assert!(ended_well(is_right));
    assert!(all(&filling, 4), "a child's stores are its own");
    assert!(shows(&opened(&filling.unwrap().lend().unwrap()), 4));
    assert!(comes_home(&arena));
}

#[test]
fn descriptors_that_are_not_to_be_had_are_an_error() {
    let Some(_alone) = counting() else { return };
    assert!(ended_well(child(|| {
        let arena = arena();
        let block = arena.block(LEN).unwrap();
        let next = std::fs::File::open("/dev/null").unwrap();
        let limit = std::os::fd::AsRawFd::as_raw_fd(&next) as u64;
        drop(next);
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: before.maximum }).unwrap();
        let error = arena.block(LEN).unwrap_err();
        assert!(error.to_string().contains("ulimit -n"), "{error}");
        drop(block);
        // The reader of the one that was made has room for this one's.
        drop(arena.block(LEN).unwrap());
        setrlimit(Resource::Nofile, before).unwrap();
        arena.trim();
        arena.held().bytes == 0 && blocks_of_this_process() == 0
    })));
}

#[test]
fn many_threads_and_children_share_an_arena() {
    let Some(_alone) = counting() else { return };
    let arena = arena();
    let failures = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u8)
            .map(|worker| {
                let arena = arena.clone();
                scope.spawn(move || {
                    let wrong = |round: u8| {
                        let handle = match arena.block(100_000 + usize::from(round) * 5000) {
                            Ok(mut block) => {
                                block.fill(worker ^ round);
                                block.lend().unwrap()
                            }
                            Err(error) => {
                                assert!(matches!(error, Error::Budget { .. }));
                                return false;
                            }
                        };
                        let counted = opened(&handle);
                        // SAFETY: nobody here writes to what is lent.
                        let bytes = unsafe { counted.bytes() };
                        bytes[..100_000].iter().any(|&byte| byte != worker ^ round)
                    };
                    (0..200).filter(|&round| wrong(round)).count()
                })
            })
            .collect();
        for _ in 0..20 {
            // What each thread has just passed to itself is an ordinary descriptor.
            assert!(ended_well(child(
                || blocks_of_this_process() <= 4 && shows(&opened(&lent(&arena, 3)), 3)
            )));
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).sum::<usize>()
    });
    assert_eq!(failures, 0);
    assert!(comes_home(&arena));
}

const WITHOUT_LEASES: &str = "PAGEFERRY_TEST_WITHOUT_LEASES";

/// What works on a host is found out once in a process, so this is one of its own.
#[test]
fn without_leases_a_block_is_used_once() {
    if std::env::var_os(WITHOUT_LEASES).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "without_leases_a_block_is_used_once"]).env(WITHOUT_LEASES, "1");
        assert!(again.status().unwrap().success());
        return;
    }
    verify::fail("F_SETLEASE", libc::EINVAL, 0);
    let arena = arena();
    for byte in 0..50 {
        assert!(shows(&opened(&lent(&arena, byte)), byte));
    }
    let held = arena.held();
    assert_eq!((held.made, held.again, held.blocks, held.bytes), (50, 0, 0, 0));
    assert_eq!(blocks_of_this_process(), 0);
}
