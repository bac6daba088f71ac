//! System calls that fail, each at its first use, its second, and so on, while a session of all verbs runs.
//!
//! A call that fails gives an error that names it, or is done without. Nothing panics or hangs; bytes are
//! right; and what was taken for a step that failed is there again.
//!
//! `cargo test` tries the first uses of each call and some of the later ones; all of them: `PAGEFERRY_FAULTS=all`.

use crate::again::{self, Ended};
use crate::conserved::Ground;
use pageferry::{
    Buffer, Channel, Config, Error, HostFault, Level, Loan, Message, PassMode, PeerFault, Range, Receiver,
    Sender, verify,
};
use std::sync::OnceLock;
use std::time::Duration;

/// For ever, to a role of this file.
const HANGS: Duration = Duration::from_secs(400);
const AT_ONCE: Duration = Duration::from_secs(120);

fn config(level: Level) -> Config {
    // It sleeps at once, so that every run uses the same calls.
    let config = Config::new().slots(3).slot_bytes(2 << 20).capacity(8).spin(Duration::ZERO);
    config.handshake_timeout(AT_ONCE).require_level(level)
}

/// Whether this host puts zeros in the place of what is donated. First asked while no call fails.
fn leaves_zeros() -> bool {
    static LEAVES: OnceLock<bool> = OnceLock::new();
    *LEAVES.get_or_init(crate::alias_here)
}

type Part = fn(&mut Session, &Sender, &Receiver) -> Option<()>;

/// A session in which something may fail.
struct Session {
    call: &'static str,
    errors: Vec<(&'static str, Error)>,
    /// A message could not be received, and would come in the place of the next.
    stuck: bool,
}

impl Session {
    fn new(call: &'static str) -> Session {
        Session { call, errors: Vec::new(), stuck: false }
    }

    /// What a step gives; its error must be one that the call explains.
    fn ok<T>(&mut self, step: &'static str, result: Result<T, Error>) -> Option<T> {
        // Where it hangs, the last of these says what came before.
        println!("{step}: {}", result.as_ref().map_or_else(Error::to_string, |_| "done".to_owned()));
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(self.explains(&error), "{step}: {error} ({error:?}), after {:?}", self.errors);
                self.errors.push((step, error));
                None
            }
        }
    }

    fn explains(&self, error: &Error) -> bool {
        match error {
            Error::Host(HostFault::Failed { failed }) => failed.call == self.call,
            Error::Peer(PeerFault::Refused(reason)) => reason.contains(self.call),
            // The other side has said why.
            Error::Peer(PeerFault::Dead) => !self.errors.is_empty(),
            _ => false,
        }
    }

    /// What was sent comes at once. A receiver that could not take it takes it when it asks again.
    fn message(&mut self, step: &'static str, rx: &Receiver) -> Option<Loan> {
        match self.ok(step, rx.try_recv()) {
            None => {
                let found = self.ok(step, rx.try_recv());
                self.stuck = found.is_none();
                found
            }
            found => found,
        }
    }

    /// What was dropped is given back, at the latest when the receiver looks for more: unless the call fails
    /// for ever.
    fn cleaned(&mut self, rx: &Receiver) -> Option<()> {
        if rx.counters().retired > 0 {
            assert!(["MADV_DONTNEED", "mprotect"].contains(&self.call));
            if rx.try_recv().is_ok() {
                panic!("nothing was sent");
            }
        }
        self.stuck = rx.counters().retired > 0;
        (!self.stuck).then_some(())
    }

    /// The same, as it was sent.
    fn whole(&mut self, step: &'static str, rx: &Receiver) -> Option<Message> {
        match self.ok(step, rx.recv_message()) {
            None => {
                let found = self.ok(step, rx.recv_message());
                self.stuck = found.is_none();
                found
            }
            found => found,
        }
    }

    fn filled(&mut self, tx: &Sender, len: usize, byte: u8) -> Option<Buffer> {
        let mut buffer = self.ok("buffer", tx.try_buffer(len))?;
        buffer.fill(byte);
        Some(buffer)
    }

    fn run(&mut self, level: Level) {
        let Some((tx, rx)) = self.ok("pair", Channel::pair(config(level))) else { return };
        assert_eq!((tx.level(), rx.level()), (level, level));
        // Each comes to its end or to an error, and the others go on; unless a message waits to be received.
        let all: [Part; 6] = [
            Session::lends,
            Session::copies,
            Session::resends,
            Session::gives,
            Session::shares,
            Session::passes,
        ];
        for part in all {
            let _ = part(self, &tx, &rx);
            if self.stuck {
                break;
            }
        }
        verify::restore();
        self.is_conserved(&tx, &rx);
        drop(tx);
        if let Err(error) = rx.try_recv() {
            assert!(!matches!(error, Error::WouldBlock), "the sender is gone, and nobody says so");
        }
    }

    fn lends(&mut self, tx: &Sender, rx: &Receiver) -> Option<()> {
        let buffer = self.filled(tx, 70_000, 7)?;
        let lent = self.ok("loan", tx.loan_tagged(buffer, 5))?;
        let mut loan = self.message("receive a loan", rx)?;
        assert!(loan.tag() == 5 && loan.len() == 70_000 && loan.iter().all(|&byte| byte == 7));
        if let Some(bytes) = self.ok("write to a loan", loan.as_mut()) {
            bytes[50_000..].fill(8);
            assert_eq!((loan[49_999], loan[50_000]), (7, 8));
        }
        if tx.level() != Level::Sealed {
            let waited = match lent.wait_timeout(Duration::from_millis(1)) {
                Err((Error::TimedOut(_), lent)) => Some(lent),
                Err((error, lent)) => {
                    self.ok::<()>("wait in vain", Err(error));
                    Some(lent)
                }
                Ok(_) => panic!("it is out, and comes back"),
            }?;
            drop(loan);
            self.cleaned(rx)?;
            assert!(waited.iter().all(|&byte| byte == 7));
            let buffer = match waited.wait_timeout(AT_ONCE) {
                Ok(buffer) => buffer,
                Err((error, lent)) => {
                    self.ok::<()>("wait", Err(error));
                    assert!(lent.iter().all(|&byte| byte == 7), "a wait that failed leaves what is lent");
                    self.ok("wait again", lent.wait_timeout(AT_ONCE).map_err(|(error, _)| error))?
                }
            };
            assert!(buffer.iter().all(|&byte| byte == 7));
        } else {
            drop(loan);
            let buffer = self.ok("wait", lent.wait_timeout(AT_ONCE).map_err(|(error, _)| error))?;
            assert!(buffer.iter().all(|&byte| byte == 7));
        }
        match rx.recv_timeout(Duration::from_millis(1)) {
            Err(Error::TimedOut(_)) => Some(()),
            other => self.ok("receive in vain", other).map(|_| panic!("nothing was sent")),
        }
    }

    fn copies(&mut self, tx: &Sender, rx: &Receiver) -> Option<()> {
        self.ok("copy a few bytes", tx.copy(b"a few"))?;
        assert_eq!(&*self.message("receive a few bytes", rx)?, b"a few");
        self.ok("copy", tx.copy(&[3; 100_000]))?;
        let loan = self.message("receive a copy", rx)?;
        assert!(loan.len() == 100_000 && loan.iter().all(|&byte| byte == 3));
        let mut owned = self.ok("transfer", loan.transfer())?;
        owned[0] = 4;
        assert_eq!((owned.len(), owned[0], owned[99_999]), (100_000, 4, 3));
        Some(())
    }

    fn gives(&mut self, tx: &Sender, rx: &Receiver) -> Option<()> {
        if tx.level() == Level::Sealed {
            return None;
        }
        let buffer = self.filled(tx, 80_000, 9)?;
        self.ok("donate", tx.donate(buffer))?;
        let mut gift = self.message("receive a donation", rx)?;
        assert!(gift.len() == 80_000 && gift.iter().all(|&byte| byte == 9));
        self.ok("write to a donation", gift.as_mut())?.fill(10);
        drop(gift);
        if !leaves_zeros() {
            return Some(());
        }
        let buffer = self.filled(tx, 1000, 11)?;
        let zeroed = self.ok("donate and have zeros", tx.donate_zero(buffer))?;
        let gift = self.message("receive a donation", rx)?;
        assert!(gift.iter().all(|&byte| byte == 11) && zeroed.iter().all(|&byte| byte == 0));
        Some(())
    }

    fn shares(&mut self, tx: &Sender, rx: &Receiver) -> Option<()> {
        if tx.level() == Level::Sealed {
            return None;
        }
        let buffer = self.filled(tx, 70_000, 12)?;
        let mut sharing = self.ok("share", tx.share(buffer))?;
        let Message::Shared(shared) = self.whole("receive what is shared", rx)? else { panic!() };
        sharing.fill(13);
        let mut bytes = vec![0; 70_000];
        if self.ok("read what is shared", shared.read_at(0, &mut bytes)).is_some() {
            assert!(bytes.iter().all(|&byte| byte == 13));
        }
        drop(shared);
        self.cleaned(rx)?;
        self.ok("wait for what was shared", sharing.wait())?;
        let buffer = self.filled(tx, 70_000, 14)?;
        let _sharing = self.ok("share", tx.share(buffer))?;
        let loan = self.message("receive what is shared, as a copy", rx)?;
        assert!(loan.len() == 70_000 && loan.iter().all(|&byte| byte == 14));
        Some(())
    }

    fn passes(&mut self, tx: &Sender, rx: &Receiver) -> Option<()> {
        if tx.level() == Level::Sealed {
            return None;
        }
        let modes = [PassMode::Copy, PassMode::DonateZero];
        for mode in modes.into_iter().filter(|&mode| mode == PassMode::Copy || leaves_zeros()) {
            let ranges = vec![
                Range::Memory(self.filled(tx, 5000, 1)?),
                Range::Hole(4096),
                Range::Memory(self.filled(tx, 80_000, 2)?),
            ];
            let passing = self.ok("pass", tx.pass(ranges, mode))?;
            let Message::Passed(mut passed) = self.whole("receive ranges", rx)? else { panic!() };
            let found: Vec<_> = passed.ranges().map(|(at, bytes)| (at, bytes.len(), bytes[0])).collect();
            assert_eq!(found, [(0, 5000, 1), (9096, 80_000, 2)]);
            if let Some(bytes) = self.ok("write to a range", passed.range_mut(1)) {
                bytes.fill(9);
            }
            drop(passed);
            self.cleaned(rx)?;
            let buffers = self.ok("wait for ranges", passing.wait())?;
            assert_eq!(buffers.len(), 2);
        }
        Some(())
    }

    fn resends(&mut self, tx: &Sender, rx: &Receiver) -> Option<()> {
        if tx.level() != Level::Sealed {
            return None;
        }
        let buffer = self.filled(tx, 70_000, 21)?;
        let lent = self.ok("loan", tx.loan(buffer))?;
        let _again = self.ok("send again", tx.resend(&lent))?;
        for _ in 0..2 {
            let loan = self.message("receive sealed memory", rx)?;
            assert!(loan.len() == 70_000 && loan.iter().all(|&byte| byte == 21));
            let _ = self.ok("hand on", tx.forward(&loan));
        }
        Some(())
    }

    /// Nobody holds anything: all of it is home, and the channel goes on, or says why not.
    fn is_conserved(&self, tx: &Sender, rx: &Receiver) {
        while let Ok(message) = rx.try_recv() {
            drop(message);
        }
        let (sent, received) = (tx.counters(), rx.counters());
        let closed = tx.copy(b"again").and_then(|()| rx.try_recv());
        match closed {
            Ok(message) => {
                assert_eq!(&*message, b"again");
                assert_eq!((sent.out, sent.slots_taken), (0, 0), "after {:?}", self.errors);
                let held = (received.slots_held, received.bytes_held, received.retired);
                assert_eq!(held, (0, 0, 0), "after {:?}", self.errors);
            }
            Err(error) => {
                assert!(self.explains(&error), "{error}, after {:?}", self.errors);
            }
        }
    }
}

/// A process that has each call fail in turn; `input`: the level.
pub fn sweep(input: &str) {
    let level = *Level::ALL.iter().find(|level| level.to_string() == input).expect("a level");
    let run = |call| {
        let mut session = Session::new(call);
        session.run(level);
        session.errors
    };
    // What is made once in a process is made.
    leaves_zeros();
    assert_eq!(run("nothing"), []);
    let ground = Ground::now();
    let uses = verify::uses(|| assert_eq!(run("nothing"), []));
    ground.check().unwrap();
    let all = std::env::var_os("PAGEFERRY_FAULTS").is_some();
    let (mut runs, mut failed) = (0, 0);
    for (call, uses) in uses {
        for after in (0..uses).filter(|&after| all || after < 6 || after % 5 == 0) {
            for once in [true, false] {
                let errno = if once { libc::ENOMEM } else { libc::EPERM };
                println!("\n{call}, after {after}, error {errno}, once: {once}");
                match once {
                    true => verify::fail_once(call, errno, after),
                    false => verify::fail(call, errno, after),
                }
                let errors = run(call);
                verify::restore();
                ground.check().unwrap();
                runs += 1;
                failed += u32::from(!errors.is_empty());
            }
        }
        println!("\n{call} is used {uses} times");
    }
    println!("\n{runs} runs, {failed} with an error");
    assert!(failed > runs / 4, "calls that fail go unseen");
}

/// A process in which a verb fails, and what would make its memory a buffer again fails, too: a buffer without bytes
/// comes back, every use of which says so.
pub fn returned() {
    let calls = ["memfd_create", "mmap", "mremap", "mprotect", "ftruncate"];
    let mut lost = Vec::new();
    for (level, call) in [Level::Mmu, Level::Sealed].iter().flat_map(|&level| calls.map(|call| (level, call)))
    {
        for zero in [false, true] {
            let config = config(level).copy_on_write(true);
            let Ok((tx, rx)) = Channel::pair(config) else { continue };
            let last = tx.loan(tx.buffer(1).unwrap()).unwrap();
            let mut buffer = tx.buffer(100_000).unwrap();
            buffer.fill(7);
            drop(rx);
            // It comes home, for the receiver is gone: from then on that is known.
            last.wait().map(drop).unwrap();
            // Freezing or sealing needs calls of its own, so one after the other is let through.
            for after in 0..4 {
                verify::fail(call, libc::ENOMEM, after);
                let sent = if zero && level == Level::Mmu {
                    tx.donate_zero_or_return(buffer, 0).map(drop)
                } else {
                    tx.loan_or_return(buffer, 0).map(drop)
                };
                verify::restore();
                (_, buffer) = sent.unwrap_err();
                if buffer.is_empty() {
                    break;
                }
                assert!(buffer.iter().all(|&byte| byte == 7), "{call}, after {after}");
                buffer.fill(7);
            }
            if buffer.capacity() == 0 {
                lost.push((level, call));
                assert!(buffer.write_from(b"x").is_err() && buffer.write_at(0, b"x").is_err());
                assert!(buffer.set_len(1).is_err() && buffer.as_uninit_mut().is_empty());
                buffer.write_at(0, b"").unwrap();
                buffer.fill(1);
                (_, buffer) = tx.loan_or_return(buffer, 0).unwrap_err();
                (_, buffer) = tx.copy_buffer_or_return(buffer, 0).unwrap_err();
                (_, buffer) = tx.auto_or_return(buffer, pageferry::Arrived::Touched, 0).unwrap_err();
                (_, buffer) = tx.share_or_return(buffer, 0).unwrap_err();
                (_, buffer) = tx.donate_or_return(buffer, 0).unwrap_err();
            }
            drop(buffer);
        }
    }
    // Without duplicates of mappings a slot is opened by one call, which the test lets through before it fails.
    let levels = if leaves_zeros() { &[Level::Mmu, Level::Sealed][..] } else { &[] };
    for &level in levels {
        assert!(lost.iter().any(|&(of, _)| of == level), "{level}: it always came back: {lost:?}");
    }
}

/// A process in which the wait for what is home fails: the error brings the token back, the bytes are there, and a
/// wait that nothing keeps has the buffer.
pub fn waited() {
    let calls = ["memfd_create", "mmap", "mremap", "mprotect", "ftruncate", "F_ADD_SEALS"];
    let mut failed = 0;
    for (level, call) in [Level::Typed, Level::Mmu, Level::Sealed]
        .iter()
        .flat_map(|&level| calls.map(|call| (level, call)))
        .filter(|(level, _)| *level != Level::Mmu || crate::mmu_here())
    {
        for after in 0..4 {
            let (tx, rx) = Channel::pair(config(level)).unwrap();
            let mut buffer = tx.buffer(100_000).unwrap();
            buffer.fill(7);
            let lent = tx.loan(buffer).unwrap();
            drop(rx.recv().unwrap());
            verify::fail_once(call, libc::ENOMEM, after);
            let waited = lent.wait_timeout(AT_ONCE);
            verify::restore();
            let what = format!("{level}: {call}, after {after}");
            let buffer = match waited {
                Ok(buffer) => buffer,
                Err((error, lent)) => {
                    failed += 1;
                    assert!(matches!(error, Error::Host(_)), "{what}: {error}");
                    assert!(lent.len() == 100_000 && lent.iter().all(|&byte| byte == 7), "{what}");
                    lent.wait_timeout(AT_ONCE).map_err(|(error, _)| format!("{what}: {error}")).unwrap()
                }
            };
            assert!(buffer.len() == 100_000 && buffer.iter().all(|&byte| byte == 7), "{what}");
            drop(buffer);
            let (ours, theirs) = (tx.counters(), rx.counters());
            assert_eq!((ours.out, ours.slots_taken, theirs.bytes_held), (0, 0, 0), "{what}");
        }
    }
    assert!(failed > 0, "no wait has failed");
}

/// A process whose wake-ups fail.
pub fn wakes() {
    let (tx, rx) = Channel::pair(config(Level::Copy)).unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    let receiver = std::thread::spawn(move || {
        loop {
            let end = match rx.recv() {
                Ok(message) => {
                    drop(message);
                    None
                }
                Err(error) => Some(error),
            };
            let ended = end.is_some();
            said.send(end).unwrap();
            if ended {
                return;
            }
        }
    });
    for _ in 0..300 {
        verify::fail_once("sendmsg", libc::ENOMEM, 0);
        tx.copy(b"wake up").unwrap();
        assert_eq!(heard.recv_timeout(AT_ONCE), Ok(None), "a message is slept over");
        verify::fail_once("sendmsg", libc::ENOMEM, 0);
        let lent = tx.loan(tx.buffer(1).unwrap()).unwrap();
        lent.wait_timeout(AT_ONCE).map_err(|(error, _)| error).unwrap();
        assert_eq!(heard.recv_timeout(AT_ONCE), Ok(None));
    }
    // No wake-up can be sent at all: the receiver has what was sent, and then the end.
    verify::fail("sendmsg", libc::ENOMEM, 0);
    let mut sent = 0;
    let refused = loop {
        match tx.copy(b"wake up") {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(refused.to_string().contains("sendmsg"), "{refused}");
    for _ in 0..sent {
        assert_eq!(heard.recv_timeout(AT_ONCE), Ok(None));
    }
    assert_eq!(heard.recv_timeout(AT_ONCE), Ok(Some(Error::Peer(PeerFault::Dead))));
    receiver.join().unwrap();
}

#[test]
fn wake_ups_that_fail_are_made_up_for() {
    again::run("wakes", "", HANGS).through();
}

fn sweep_level(level: Level) {
    if level == Level::Mmu && !crate::mmu_here() {
        return;
    }
    match again::run("faults", &level.to_string(), HANGS) {
        Ended::Through(output) => {
            let calls = ["memfd_create", "mmap", "mprotect", "F_ADD_SEALS", "sendmsg", "recvmsg", "poll"];
            for call in calls {
                assert!(output.contains(&format!("\n{call} is used ")), "{call} was never used");
            }
        }
        Ended::Failed(output) | Ended::Hung(output) => {
            let from = output.rfind("once: ").map_or(0, |at| output[..at].rfind('\n').unwrap_or(0));
            panic!("{}", &output[from..]);
        }
    }
}

#[test]
fn calls_that_fail_at_level_mmu() {
    sweep_level(Level::Mmu);
}

#[test]
fn calls_that_fail_at_level_typed() {
    sweep_level(Level::Typed);
}

#[test]
fn calls_that_fail_at_level_sealed() {
    sweep_level(Level::Sealed);
}

#[test]
fn a_buffer_that_cannot_come_back_says_so() {
    again::run("returned", "", HANGS).through();
}

#[test]
fn a_wait_that_fails_brings_the_token_back() {
    again::run("waited", "", HANGS).through();
}
