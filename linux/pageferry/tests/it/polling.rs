//! Ends that never wait, and what is handed on.

use pageferry::*;

fn config() -> Config {
    Config::new().slots(2).slot_bytes(2 << 20)
}

#[test]
fn whoever_only_polls_sees_that_the_peer_is_gone() {
    let (tx, rx) = Channel::pair(config()).unwrap();
    assert_eq!(rx.try_recv().unwrap_err(), Error::WouldBlock);
    drop(tx);
    assert_eq!(rx.try_recv().unwrap_err(), Error::Peer(PeerFault::Dead));

    let (tx, rx) = Channel::pair(config()).unwrap();
    let lent = tx.loan(tx.buffer(3 << 20).unwrap()).unwrap();
    assert!(!lent.is_home().unwrap());
    assert_eq!(tx.try_buffer(1).unwrap_err(), Error::WouldBlock);
    drop(rx);
    assert_eq!(tx.try_buffer(1).unwrap_err(), Error::Peer(PeerFault::Dead));
    assert!(lent.is_home().unwrap(), "nobody can have it any more");
    assert_eq!(lent.wait().unwrap().len(), 3 << 20);
}

#[test]
fn a_loan_token_that_is_only_asked_sees_that_the_peer_is_gone() {
    for level in [Level::Typed, Level::Mmu, Level::Sealed] {
        // Where a level is not to be had, loans are copies, which nobody holds.
        let Ok((tx, rx)) = Channel::pair(config().require_level(level)) else { continue };
        let lent = tx.loan(tx.buffer(1).unwrap()).unwrap();
        let loan = rx.recv().unwrap();
        drop(rx);
        assert!(!lent.is_home().unwrap(), "{level}: the loan is still held");
        drop(loan);
        assert!(lent.is_home().unwrap(), "{level}");
    }
}

#[test]
fn a_buffer_of_a_sealed_channel_is_copied_by_copy_only_and_nothing_is_sent() {
    let (tx, rx) = Channel::pair(config().require_level(Level::Sealed)).unwrap();
    let error = tx.copy_buffer(tx.buffer(10).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Usage(Usage::Verb(_))), "{error}");
    assert_eq!(rx.try_recv().unwrap_err(), Error::WouldBlock);
    assert_eq!(tx.counters().sent, 0);
}

#[test]
fn sealed_memory_is_handed_on_by_copy_where_the_channel_does_not_take_it() {
    let (tx, rx) = Channel::pair(config().require_level(Level::Sealed)).unwrap();
    let (next, last) = Channel::pair(config()).unwrap();
    let mut buffer = tx.buffer(100_000).unwrap();
    buffer.fill(5);
    let _lent = tx.loan_tagged(buffer, 8).unwrap();
    next.forward(&rx.recv().unwrap()).unwrap();
    let loan = last.recv().unwrap();
    assert_eq!((loan.verb(), loan.tag(), loan.len()), (Verb::Copy, 8, 100_000));
    assert!(loan.iter().all(|&byte| byte == 5));
}

/// Whether the descriptor becomes readable within ten seconds, or, `now`, is so already.
fn is_readable(fd: std::os::fd::BorrowedFd<'_>, now: bool) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let patience = Timespec { tv_sec: if now { 0 } else { 10 }, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&patience)).unwrap() == 1
}

#[test]
fn a_receiver_that_polls_its_descriptor_sees_each_message_and_the_end() {
    use std::os::fd::AsFd as _;
    let (tx, rx) = Channel::pair(config()).unwrap();
    let (go, may) = std::sync::mpsc::channel::<()>();
    let sender = std::thread::spawn(move || {
        for number in 0..200 {
            may.recv().unwrap();
            tx.copy_tagged(b"x", number).unwrap();
        }
        may.recv().unwrap();
    });
    for number in 0..200 {
        assert_eq!(rx.watch(Receiver::try_recv).unwrap_err(), Error::WouldBlock);
        assert!(!is_readable(rx.as_fd(), true), "nothing was sent since the last look");
        go.send(()).unwrap();
        let loan = loop {
            assert!(is_readable(rx.as_fd(), false), "message {number} was not told of");
            match rx.watch(Receiver::try_recv) {
                // What woke it was of an earlier message.
                Err(Error::WouldBlock) => (),
                found => break found.unwrap(),
            }
        };
        assert_eq!(loan.tag(), number);
    }
    assert_eq!(rx.watch(Receiver::try_recv).unwrap_err(), Error::WouldBlock);
    go.send(()).unwrap();
    assert!(is_readable(rx.as_fd(), false));
    assert_eq!(rx.watch(Receiver::try_recv).unwrap_err(), Error::Peer(PeerFault::Dead));
    sender.join().unwrap();
}

#[test]
fn a_sender_that_polls_its_descriptor_sees_what_comes_back_and_the_end() {
    use std::os::fd::AsFd as _;
    let (tx, rx) = Channel::pair(config()).unwrap();
    let (go, may) = std::sync::mpsc::channel::<()>();
    let receiver = std::thread::spawn(move || {
        for _ in 0..200 {
            let loan = rx.recv().unwrap();
            may.recv().unwrap();
            drop(loan);
        }
        may.recv().unwrap();
    });
    let mut buffer = Some(tx.buffer(4 << 20).unwrap());
    for number in 0..200 {
        drop(tx.loan(buffer.take().unwrap()).unwrap());
        assert_eq!(tx.watch(|tx| tx.try_buffer(4 << 20)).unwrap_err(), Error::WouldBlock);
        assert!(!is_readable(tx.as_fd(), true), "nothing has come back since the last look");
        go.send(()).unwrap();
        buffer = loop {
            assert!(is_readable(tx.as_fd(), false), "that loan {number} came back was not told of");
            match tx.watch(|tx| tx.try_buffer(4 << 20)) {
                Err(Error::WouldBlock) => (),
                found => break Some(found.unwrap()),
            }
        };
    }
    drop(tx.loan(buffer.take().unwrap()).unwrap());
    assert_eq!(tx.watch(|tx| tx.try_buffer(1)).unwrap_err(), Error::WouldBlock);
    go.send(()).unwrap();
    assert!(is_readable(tx.as_fd(), false));
    assert_eq!(tx.watch(|tx| tx.try_buffer(1)).unwrap_err(), Error::Peer(PeerFault::Dead));
    receiver.join().unwrap();
}

#[test]
fn tokens_of_shared_and_donated_memory_are_asked_and_waited_for() {
    use std::time::Duration;
    let (tx, rx) = Channel::pair(config()).unwrap();
    assert_eq!(rx.try_recv_message().unwrap_err(), Error::WouldBlock);
    let little = Duration::from_millis(1);
    assert_eq!(rx.recv_message_timeout(little).unwrap_err(), Error::TimedOut(little));
    let mut sharing = tx.share(tx.buffer(10).unwrap()).unwrap();
    let Message::Shared(shared) = rx.try_recv_message().unwrap() else { panic!("not shared") };
    let (error, back) = sharing.wait_timeout(little).unwrap_err();
    assert_eq!(error, Error::TimedOut(little));
    sharing = back;
    drop(shared);
    let buffer = sharing.wait_timeout(Duration::from_secs(120)).unwrap();
    if !crate::first::has("alias") {
        return;
    }
    let zeroed = tx.donate_zero(buffer).unwrap();
    let Message::Loan(loan) = rx.recv_message_timeout(Duration::from_secs(120)).unwrap() else {
        panic!("no loan")
    };
    assert!(!zeroed.is_home().unwrap());
    let once_more = loan.copied().unwrap();
    assert_eq!(&once_more[..], &loan[..]);
    drop(loan);
    assert!(zeroed.is_home().unwrap());
}

#[test]
fn an_empty_path_is_no_name_that_the_kernel_chooses() {
    let is_none = |error| {
        let Error::Host(HostFault::Failed { failed }) = error else { return false };
        failed.errno.raw_os_error() == libc::ENOENT
    };
    assert!(is_none(Listener::bind("").map(drop).unwrap_err()));
    assert!(is_none(Channel::connect("").map(drop).unwrap_err()));
}

#[test]
#[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
fn a_verb_that_fails_brings_the_buffer_back_with_its_bytes() {
    use std::time::Duration;
    type Returned = Result<(), (Error, Buffer)>;
    type Sends = fn(&Sender, Buffer) -> Returned;
    let verbs: [(&str, Sends); 8] = [
        ("loan", |tx, buffer| tx.loan_or_return(buffer, 1).map(drop)),
        ("loan_timeout", |tx, buffer| {
            tx.loan_timeout_or_return(buffer, 1, Duration::from_secs(120)).map(drop)
        }),
        ("donate", |tx, buffer| tx.donate_or_return(buffer, 1)),
        ("donate_zero", |tx, buffer| tx.donate_zero_or_return(buffer, 1).map(drop)),
        ("share", |tx, buffer| tx.share_or_return(buffer, 1).map(drop)),
        ("copy_buffer", |tx, buffer| tx.copy_buffer_or_return(buffer, 1).map(drop)),
        ("auto", |tx, buffer| tx.auto_or_return(buffer, Arrived::Touched, 1).map(drop)),
        ("auto_give", |tx, buffer| tx.auto_give_or_return(buffer, Arrived::Touched, 1).map(drop)),
    ];
    for level in [Level::Mmu, Level::Typed, Level::Copy, Level::Sealed] {
        let Ok((tx, rx)) = Channel::pair(config().require_level(level).copy_on_write(true)) else { continue };
        let mut buffer = tx.buffer(3 << 20).unwrap();
        buffer.fill(7);
        // A sender sees that nobody is there when it looks.
        drop(rx);
        assert!(tx.try_copy(b"x").is_ok());
        while tx.try_copy(b"x").is_ok() {}
        for (verb, sends) in verbs {
            let (error, back) = sends(&tx, buffer).unwrap_err();
            let lacks = verb == "donate_zero" && !crate::first::has("alias");
            let lacks = lacks && matches!(error, Error::Host(HostFault::Unsupported { .. }));
            assert!(
                lacks || matches!(error, Error::Peer(PeerFault::Dead) | Error::Usage(Usage::Verb(_))),
                "{verb}: {error}"
            );
            buffer = back;
            assert!(buffer.len() == 3 << 20 && buffer.iter().all(|&byte| byte == 7), "{verb} at {level}");
            // It is one to be filled.
            buffer.fill(7);
        }
    }
    let (tx, rx) = Channel::pair(config()).unwrap();
    let lent = tx.loan(tx.buffer(10).unwrap()).unwrap();
    drop(rx);
    let (error, back) = tx.loan_again_or_return(lent, 1).unwrap_err();
    assert_eq!(error, Error::Peer(PeerFault::Dead));
    assert_eq!(back.wait().unwrap().len(), 10);
}
