//! Sealed memory that a thread makes before it is asked for: what it is, how much of it there is, and what is left of
//! it. The kernel is asked: for mappings of memfds, threads, descriptors and shared memory.

use crate::again;
use crate::conserved::Ground;
use pageferry::{Buffer, Channel, Config, Error, HostFault, Level, Receiver, Sender, verify};
use pageferry_untested::untested;
use std::time::{Duration, Instant};

/// For ever, to a role of this file.
const HANGS: Duration = Duration::from_secs(300);
const AT_ONCE: Duration = Duration::from_secs(120);
const HUGE: usize = 2 << 20;

fn pair(level: Level, budget: u64) -> (Sender, Receiver) {
    let config = Config::new().slots(1).slot_bytes(HUGE).budget(budget).require_level(level);
    Channel::pair(config).unwrap()
}

/// Sealed memory that can be written still: buffers, and what is ready. Each is a mapping.
fn writable() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:pageferry-sealed") && line.contains(" rw-s ")).count()
}

/// What the kernel says of the threads that prepare.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    status.filter(|status| status.starts_with("Name:\tpageferry-seal")).collect()
}

#[track_caller]
fn soon(what: &str, so: impl Fn() -> bool) {
    let until = Instant::now() + AT_ONCE;
    while !so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A buffer of zeros, filled with a byte.
fn filled(tx: &Sender, len: usize, byte: u8) -> Buffer {
    let mut buffer = tx.buffer(len).unwrap();
    let align = if len >= HUGE / 2 { HUGE } else { 4096 };
    let whole = len.next_multiple_of(align);
    assert!(buffer.len() == len && (buffer.capacity() == whole || buffer.capacity() < whole + HUGE));
    let capacity = buffer.capacity();
    buffer.set_len(capacity).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 0), "new memory is zero");
    buffer.fill(byte);
    buffer
}

/// Requests of one size are met by what is ready, each by memory of its own; others are not.
fn sizes() {
    let (tx, rx) = pair(Level::Sealed, 1 << 30);
    for (round, len) in [HUGE, 2 * HUGE, 3 * HUGE - 5000, 100, 70_000].into_iter().enumerate() {
        let mut held = vec![filled(&tx, len, 1)];
        if round == 0 {
            // Nobody knows that there will be a second one.
            assert_eq!((writable(), threads().len()), (1, 0));
        }
        for number in 2..8 {
            held.push(filled(&tx, len, number));
            soon("the next one is made", || writable() == held.len() + 1);
        }
        for (number, buffer) in (1..).zip(held) {
            assert!(buffer.iter().all(|&byte| byte == number), "one has been handed out twice");
            drop(tx.loan(buffer).unwrap());
            let loan = rx.recv_timeout(AT_ONCE).unwrap();
            assert!(loan.iter().all(|&byte| byte == number));
        }
        // Sealed memory that comes home is a copy.
        let lent = tx.loan(filled(&tx, len, 9)).unwrap();
        drop(rx.recv_timeout(AT_ONCE).unwrap());
        assert!(lent.wait().unwrap().iter().all(|&byte| byte == 9));
    }
    drop((tx, rx));
    let (tx, rx) = pair(Level::Sealed, 1 << 30);
    for number in 1..20 {
        let len = if number % 2 == 0 { HUGE } else { 2 * HUGE };
        drop(tx.loan(filled(&tx, len, number)).unwrap());
        assert!(rx.recv_timeout(AT_ONCE).unwrap().iter().all(|&byte| byte == number));
        assert_eq!((writable(), threads().len()), (0, 0), "nobody knows the next size");
    }
    // What is ready goes when another size is asked for.
    drop((filled(&tx, HUGE, 1), filled(&tx, HUGE, 1)));
    soon("the next one is made", || writable() == 1);
    drop(filled(&tx, 2 * HUGE, 1));
    soon("what is ready goes, or what is being made", || writable() == 0);
}

/// What is ready has its place in the budget.
fn budget() {
    let (tx, rx) = pair(Level::Sealed, 16 << 20);
    for _ in 0..3 {
        drop(filled(&tx, 3 * HUGE, 1));
    }
    assert_eq!((writable(), threads().len()), (0, 0), "more than a quarter of the budget");
    // The pool has 2 MB, and 4 MB are a quarter.
    let mut lent = Vec::new();
    for out in 1..=3 {
        lent.push(tx.loan(filled(&tx, 2 * HUGE, out)).unwrap());
        if out == 2 {
            soon("6 MB are left, and the next one is made", || writable() == 1);
        }
    }
    soon("2 MB are left, and what is ready goes", || writable() == 0);
    let fourth = filled(&tx, 2 * HUGE, 4);
    assert!(
        writable() == 1
            && matches!(tx.loan_timeout(fourth, Duration::from_millis(1)), Err(Error::TimedOut(_)))
    );
    for _ in lent.drain(..) {
        drop(rx.recv_timeout(AT_ONCE).unwrap());
    }
    drop(filled(&tx, 2 * HUGE, 5));
    soon("all is home, and the next one is made", || writable() == 1);
}

/// Nothing is left of a thread, whatever it does when its sender goes.
fn ends() {
    drop(pair(Level::Mmu, 1 << 30));
    let mut left = Duration::ZERO;
    let ground = Ground::now();
    for round in 0..200u32 {
        let (tx, rx) = pair(Level::Sealed, 1 << 30);
        let len = if round % 2 == 0 { 16 << 20 } else { 100 };
        let first = tx.buffer(len).unwrap();
        drop(tx.buffer(len).unwrap());
        match round % 3 {
            // It has made one, or is in the middle of it, or has not begun.
            0 => soon("the next one is made", || writable() == 2),
            1 => std::thread::sleep(Duration::from_micros(u64::from(round))),
            _ => (),
        }
        let began = Instant::now();
        drop(tx);
        left = left.max(began.elapsed());
        // The first buffer lives.
        assert_eq!(writable(), 1, "round {round}: the thread works on");
        drop((rx, first));
        ground.check().unwrap();
        // The kernel shows a thread for a moment after it was waited for.
        soon("the thread is gone", || threads().is_empty());
    }
    assert!(left < AT_ONCE, "{left:?}");
    println!("a sender is gone within {left:?}");
    // A sender that is gone has no thread made by what it leaves.
    let (tx, rx) = pair(Level::Sealed, 1 << 30);
    let lent: Vec<_> = (0..3).map(|_| tx.loan(tx.buffer(HUGE).unwrap()).unwrap()).collect();
    drop(tx);
    for lent in lent {
        drop(rx.recv_timeout(AT_ONCE).unwrap());
        drop(lent.wait_timeout(AT_ONCE));
        soon("the thread is gone", || threads().is_empty());
    }
    // And other levels have none.
    let (tx, _rx) = pair(Level::Mmu, 1 << 30);
    (0..3).for_each(|_| drop(tx.buffer(HUGE).unwrap()));
    assert!(threads().is_empty());
}

/// Signals are the program's own threads' affair.
fn signals() {
    let (tx, _rx) = pair(Level::Sealed, 1 << 30);
    (0..2).for_each(|_| drop(tx.buffer(HUGE).unwrap()));
    let blocked = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let all = [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGALRM, libc::SIGCHLD, libc::SIGURG];
    let all = all.into_iter().fold(0, |all, signal| all | 1 << (signal - 1));
    // It has its name a moment after it has begun.
    soon("a thread prepares", || threads().len() == 1);
    assert_eq!(blocked(&threads()[0]) & all, all);
    let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert_eq!(blocked(&own) & all, 0);
}

/// Children that are made while the thread works: they keep no memory from being sealed, and drop what they inherit.
fn forks() {
    let mut living = std::collections::VecDeque::new();
    let mut ends = Vec::new();
    let channels: Vec<_> = [100, 70_000, HUGE].map(|len| (len, pair(Level::Sealed, 1 << 30))).into();
    for round in 0..600u32 {
        let (len, (tx, rx)) = &channels[round as usize % channels.len()];
        let mut buffer = tx.buffer(*len).unwrap();
        buffer.fill(round as u8);
        let until = Instant::now() + Duration::from_micros(u64::from(round * 7 % 150));
        while Instant::now() < until {
            core::hint::spin_loop();
        }
        // SAFETY: the child calls this library, which is what is tested, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: plain numbers. A child that hangs is killed.
            unsafe { libc::alarm(60) };
            if round % 2 == 0 {
                // SAFETY: the child keeps all that it has inherited until it is killed.
                unsafe { libc::pause() };
            }
            // SAFETY: the child's copy of the list is not used again.
            let channels = unsafe { core::ptr::read(&raw const channels) };
            assert!(channels[0].1.0.try_buffer(100).is_err());
            drop((buffer, channels));
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        if round % 2 == 0 {
            living.push_back(child);
        } else {
            ends.push(child);
        }
        let at = buffer.as_ptr();
        let lent = tx.loan(buffer).unwrap();
        // What is busy is sealed as a copy.
        assert_eq!(lent.as_ptr(), at, "round {round}: a child keeps the memory from being sealed");
        drop(lent);
        assert!(rx.recv_timeout(AT_ONCE).unwrap().iter().all(|&byte| byte == round as u8));
        if living.len() > 6 {
            let child = living.pop_front().unwrap();
            // SAFETY: the child is this test's own, and was not waited for.
            unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, core::ptr::null_mut(), 0)) };
        }
        for child in ends.drain(..) {
            let mut status = 0;
            // SAFETY: writes one number.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((waited, status), (child, 0), "round {round}");
        }
    }
    for child in living {
        // SAFETY: as above.
        unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, core::ptr::null_mut(), 0)) };
    }
}

/// What fails in the thread is told by the call that needs it, and is over when it is.
fn faults() {
    let (tx, _rx) = pair(Level::Sealed, 1 << 30);
    for call in ["memfd_create", "ftruncate", "mmap", "MADV_DONTFORK"] {
        let until = Instant::now() + AT_ONCE;
        loop {
            (0..2).for_each(|_| drop(filled(&tx, HUGE, 1)));
            soon("the next one is made", || writable() == 1);
            verify::fail(call, libc::ENOMEM, 0);
            let made = (0..20).filter(|_| match tx.buffer(HUGE) {
                Ok(_) => true,
                Err(Error::Host(HostFault::Failed { failed })) if failed.call == call => false,
                Err(error) => panic!("{call}: {error}"),
            });
            let made = made.count();
            verify::restore();
            assert!(made <= 1, "{made} are made, and {call} fails");
            // The kernel shows what is being made, too, and that fails as well.
            if made == 1 {
                break;
            }
            assert!(Instant::now() < until, "what is ready is not used");
        }
        drop(filled(&tx, HUGE, 1));
        soon("the next one is made", || writable() == 1);
        assert_eq!(threads().len(), 1);
    }
    verify::fail("MADV_COLLAPSE", libc::EINVAL, 0);
    for _ in 0..5 {
        drop(filled(&tx, HUGE, 1));
        soon("the next one is made", || writable() == 1);
    }
    verify::restore();
    drop(tx);
    // Without a thread each call makes its own.
    let (tx, _rx) = pair(Level::Sealed, 1 << 30);
    verify::fail("clone", libc::EAGAIN, 0);
    for _ in 0..5 {
        drop(filled(&tx, HUGE, 1));
        assert_eq!((writable(), threads().len()), (0, 0));
    }
    verify::restore();
    drop(filled(&tx, HUGE, 1));
    soon("the next one is made", || writable() == 1);
}

/// A process of this file; `input`: which.
pub fn prepared(input: &str) {
    match input {
        "sizes" => sizes(),
        "budget" => budget(),
        "ends" => ends(),
        "signals" => signals(),
        "forks" => forks(),
        "faults" => faults(),
        _ => panic!("there is no part {input}"),
    }
}

fn play(part: &str) {
    if Channel::pair(Config::new().require_level(Level::Sealed)).is_err() {
        return untested("prepared memory", "no seals");
    }
    println!("{}", again::run("prepared", part, HANGS).through());
}

#[test]
fn what_is_prepared_is_zero_and_handed_out_once() {
    play("sizes");
}

#[test]
fn what_is_prepared_counts_in_the_budget() {
    play("budget");
}

#[test]
fn a_sender_leaves_no_thread_and_no_memory() {
    play("ends");
}

#[test]
fn the_thread_that_prepares_gets_no_signals() {
    play("signals");
}

#[test]
fn children_are_made_while_memory_is_prepared() {
    // qemu-user says that `MADV_DONTFORK` was done, and the child has the mapping: nothing could be sealed then.
    if std::env::var_os("PAGEFERRY_EMULATED").is_some() {
        return untested("memory that children do not get", "an emulator keeps none from them");
    }
    play("forks");
}

#[test]
fn calls_that_fail_in_the_thread_that_prepares() {
    play("faults");
}
