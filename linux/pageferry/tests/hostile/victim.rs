//! The library's end, and what must hold of it.

use crate::peer;
use crate::stage::{Against, FORGED, HONEST, Holds, Row};
use pageferry::*;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What a peer can make this side hold.
const BUDGET: u64 = 24 << 20;
/// What else may come in while a row runs: code, stacks, tables.
const SLACK: u64 = 16 << 20;
/// Messages that are taken from a peer that does not stop.
const MAX_MESSAGES: usize = 3000;
/// Messages that a sender sends.
const MAX_SENT: usize = 40;
/// Messages that it has out at once: fewer than there are slots.
const MAX_OUT: usize = 3;

/// How long this side waits, where the row is about waiting; a busy host makes it no shorter.
const SHORT: Duration = Duration::from_millis(300);
/// How long it waits otherwise.
const LONG: Duration = Duration::from_secs(120);

struct Peer {
    process: Child,
    control: UnixStream,
}

impl Peer {
    fn start(row: &Row, victims: &OwnedFd, socket: OwnedFd) -> Peer {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let shared = row.shares.then(|| victims.try_clone().unwrap());
        let mut numbers = vec![socket.as_raw_fd(), theirs.as_raw_fd()];
        numbers.push(shared.as_ref().map_or(-1, |shared| shared.as_raw_fd()));
        let mut command = Command::new("/proc/self/exe");
        command.args(["peer", &row.name()]).args(numbers.iter().map(i32::to_string));
        // SAFETY: between fork and exec only fcntl is called, which is allowed there.
        unsafe {
            command.pre_exec(move || {
                for &number in &numbers {
                    libc::fcntl(number, libc::F_SETFD, 0);
                }
                Ok(())
            });
        }
        Peer { process: command.spawn().unwrap(), control: ours }
    }

    /// One more message came, or went.
    fn go(&self) {
        // A peer that does not read these must not keep the victim.
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.control, b"g", flags);
    }

    /// Waits until the attack was made.
    fn has_attacked(&mut self) {
        self.control.set_read_timeout(Some(LONG)).unwrap();
        let began = Instant::now();
        let read = (&self.control).read(&mut [0]);
        if !matches!(read, Ok(1)) {
            let (ended, waited) = (self.process.try_wait(), began.elapsed());
            panic!("the peer did not get to its attack: {read:?} after {waited:?}, {ended:?}");
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a row; panics where the peer wins.
pub fn run(row: &Row) {
    // What a process has once for all of its channels comes now.
    drop(Channel::pair(config(row).level(Level::Mmu)).unwrap());
    std::fs::write("/proc/self/clear_refs", "5").expect("the highest mark of memory starts anew");
    let (before, fds) = (peak_bytes(), descriptors());
    let (ours, theirs) = Channel::sockets().unwrap();
    let mut peer = Peer::start(row, &ours, theirs);
    match row.against {
        Against::Receiver => received(row, &peer, |config| Channel::receiver(ours, config)),
        Against::TrustedReceiver => received(row, &peer, |config| {
            // SAFETY: bytes are looked at by volatile reads, so it is no matter that they may change.
            unsafe { Channel::trusted_receiver(ours, config) }
        }),
        Against::Sender => sent(row, &peer, |config| Channel::sender(ours, config)),
        Against::TrustedSender => sent(row, &peer, |config| {
            // SAFETY: the same.
            unsafe { Channel::trusted_sender(ours, config) }
        }),
    }
    peer.has_attacked();
    drop(peer);
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown <= BUDGET + SLACK, "{grown} bytes were held, and the budget is {BUDGET}");
    let until = Instant::now() + LONG;
    while descriptors() > fds {
        assert!(Instant::now() < until, "{} descriptors are left, of {fds}", descriptors());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn config(row: &Row) -> Config {
    let timeout = if row.holds == Holds::Late { SHORT } else { LONG };
    let config = Config::new().slots(4).slot_bytes(peer::page_bytes() as usize).capacity(8).inline_bytes(128);
    config.budget(BUDGET).level(row.level).handshake_timeout(timeout)
}

fn wait(row: &Row) -> Duration {
    if row.holds == Holds::Late { SHORT } else { LONG }
}

fn received<T: trust::Trust>(
    row: &Row,
    peer: &Peer,
    receiver: impl FnOnce(Config) -> Result<Receiver<T>, Error>,
) {
    let receiver = match receiver(config(row)) {
        Ok(receiver) => receiver,
        Err(error) => return judge(row, &error, 0),
    };
    let mut loans: Vec<(Loan, Vec<u8>)> = Vec::new();
    let mut count = 0;
    let error = loop {
        match receiver.recv_timeout(wait(row)) {
            Ok(loan) => {
                count += 1;
                let bytes = look(&loan);
                // What took slots stays out; of the rest so much that the budget is used up by it.
                if matches!(row.holds, Holds::Snapshot | Holds::Changes) {
                    assert!(bytes.iter().all(|&byte| byte == HONEST), "it came otherwise than it was sent");
                }
                loans.push((loan, bytes));
                peer.go();
                if count >= MAX_MESSAGES {
                    break Error::WouldBlock;
                }
            }
            Err(error) => break error,
        }
    };
    judge(row, &error, count);
    if matches!(error, Error::Peer(_)) {
        for _ in 0..3 {
            assert_eq!(receiver.try_recv().err(), Some(error.clone()), "closed for good");
        }
    }
    let changed = loans.iter().any(|(loan, bytes)| look(loan) != *bytes);
    assert_eq!(changed, row.holds == Holds::Changes, "whether a message changed");
    if row.holds == Holds::Changes {
        assert!(loans.iter().any(|(loan, _)| look(loan).contains(&FORGED)), "by the attack");
    }
    let slots = receiver.counters();
    drop(loans);
    let counters = receiver.counters();
    assert_eq!((counters.slots_held, counters.bytes_held), (0, 0), "after {slots:?}");
}

fn sent<T: trust::Trust>(row: &Row, peer: &Peer, sender: impl FnOnce(Config) -> Result<Sender<T>, Error>) {
    let sender = match sender(config(row)) {
        Ok(sender) => sender,
        Err(error) => return judge(row, &error, 0),
    };
    let (mut lent, mut sent): (Vec<Lent>, usize) = (Vec::new(), 0);
    let send = || {
        let mut buffer = sender.buffer_timeout(peer::page_bytes() as usize, wait(row))?;
        buffer.fill(HONEST);
        sender.loan_timeout(buffer, wait(row))
    };
    let error = loop {
        if lent.len() >= MAX_OUT {
            match lent.remove(0).wait_timeout(wait(row)) {
                Ok(buffer) => {
                    assert!(look(&buffer).iter().all(|&byte| byte == HONEST), "what comes home is the same")
                }
                Err((error, token)) => {
                    lent.push(token);
                    break error;
                }
            }
        }
        match send() {
            Ok(token) => {
                lent.push(token);
                sent += 1;
                peer.go();
                if sent >= MAX_SENT {
                    break Error::WouldBlock;
                }
            }
            Err(error) => break error,
        }
    };
    judge(row, &error, sent);
    if matches!(error, Error::Peer(_)) {
        assert_eq!(send().err(), Some(error.clone()), "closed for good");
        assert_eq!(sender.try_copy(b"more").err(), Some(error.clone()), "closed for good");
    }
    assert!(lent.iter().all(|lent| look(lent).iter().all(|&byte| byte == HONEST)), "what was lent stays");
    let count = lent.len();
    for token in lent {
        match token.wait_timeout(Duration::ZERO) {
            Ok(buffer) => {
                assert!(look(&buffer).iter().all(|&byte| byte == HONEST), "what comes home is the same")
            }
            Err((_, token)) => drop(token),
        }
    }
    if matches!(error, Error::Peer(PeerFault::Broken(_))) {
        assert_eq!(sender.counters().slots_taken, 0, "of {count} messages each is home");
    }
}

/// The bytes as they are now. The peer may be writing them.
fn look(bytes: &[u8]) -> Vec<u8> {
    let at = std::hint::black_box(bytes.as_ptr());
    // SAFETY: within the slice; volatile, for they may change.
    (0..bytes.len()).map(|index| unsafe { at.add(index).read_volatile() }).collect()
}

/// Whether an end that came to this error after so many messages is one of those that must be.
fn judge(row: &Row, error: &Error, messages: usize) {
    let fits = match row.holds {
        Holds::Refused => {
            matches!(error, Error::Peer(PeerFault::Broken(_) | PeerFault::Refused(_) | PeerFault::Unfit(_)))
        }
        Holds::OverBudget => matches!(error, Error::Budget { .. }),
        Holds::Snapshot | Holds::Changes => messages > 0 && matches!(error, Error::Peer(PeerFault::Dead)),
        Holds::Dead => matches!(error, Error::Peer(PeerFault::Dead)),
        Holds::Late => matches!(error, Error::TimedOut(_)),
        Holds::Alive => !matches!(error, Error::Host(_)),
    };
    assert!(fits, "after {messages} messages: {error}, and {:?} must hold", row.holds);
}

/// The most memory that this process has had, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
