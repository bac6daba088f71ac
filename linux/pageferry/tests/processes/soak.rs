//! Processes that are killed at random instructions while they send each other memory.
//!
//! Four pipelines, each from this process through two others and back. Every 20 to 200 ms one of the eight is
//! killed. Its neighbours see that it is gone, and nothing else: no wrong byte, no hang, no signal. At the end
//! this process has the descriptors and mappings that it had before.
//!
//! `cargo test` takes eight seconds of it; more: `PAGEFERRY_SOAK=300` seconds.

use crate::again::{self, Ended, Player};
use crate::conserved::Ground;
use crate::talk;
use pageferry::{Buffer, Channel, Config, Error, Level, PeerFault, Receiver, Sender};
use pageferry_programs::pattern;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const AT_ONCE: Duration = Duration::from_secs(60);
const LEVELS: [Level; 4] = [Level::Mmu, Level::Typed, Level::Sealed, Level::Copy];

fn config(level: Level) -> Config {
    let config = Config::new().slots(4).slot_bytes(2 << 20).capacity(8).inline_bytes(4096);
    config.handshake_timeout(AT_ONCE).require_level(level)
}

/// Bytes of a message, and how it goes on, by its number.
fn len(tag: u64) -> usize {
    1 + (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % 300_000
}

fn send(tx: &Sender, tag: u64, fill: impl FnOnce(&mut Buffer)) -> Result<(), Error> {
    let mut buffer = tx.buffer(len(tag))?;
    fill(&mut buffer);
    match tag % 3 {
        0 if tx.level() != Level::Sealed => tx.donate_tagged(buffer, tag),
        1 => tx.copy_tagged(&buffer, tag),
        _ => tx.loan_tagged(buffer, tag).map(drop),
    }
}

fn check(bytes: &[u8], tag: u64) {
    let mut expected = vec![0; len(tag)];
    pattern(tag | 1, 0, &mut expected);
    assert!(bytes == expected, "message {tag} has other bytes");
}

/// Until the peer is gone, which is all that may happen.
fn until_gone(result: Result<(), Error>) {
    assert_eq!(result, Err(Error::Peer(PeerFault::Dead)));
}

/// One that is killed, or sees that its neighbour was.
pub fn pipe(input: &str) {
    use std::os::fd::AsFd as _;
    let level = *LEVELS.iter().find(|level| level.to_string() == input).expect("a level");
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    // Whoever started this one may have ended by now.
    let Some(((), mut fds)) = talk::hear::<()>(&socket) else { return };
    let (to, from) = (fds.pop().unwrap(), fds.pop().unwrap());
    until_gone((|| {
        // SAFETY: all of these processes run this program.
        let (rx, tx) = unsafe {
            (Channel::trusted_receiver(from, config(level))?, Channel::trusted_sender(to, config(level))?)
        };
        loop {
            let mut message = rx.recv()?;
            let tag = message.tag();
            check(&message, tag);
            if tag % 5 == 0 {
                // Its own pages, which nobody else must see.
                let mut own = tx.buffer(message.len())?;
                own.copy_from_slice(&message);
                message.as_mut()?.fill(0);
                send(&tx, tag, |buffer| buffer.copy_from_slice(&own))?;
            } else {
                send(&tx, tag, |buffer| buffer.copy_from_slice(&message))?;
            }
        }
    })());
}

/// What the pipelines and their killer share.
struct Soak {
    stop: AtomicBool,
    messages: AtomicU64,
    /// Who can be killed.
    alive: Mutex<Vec<u32>>,
}

impl Soak {
    /// Starts a pipeline, and sends until one of it is gone.
    fn pipeline(&self, level: Level, tags: &mut u64) {
        let (to_first, first_from) = Channel::sockets().unwrap();
        let (first_to, second_from) = Channel::sockets().unwrap();
        let (second_to, from_second) = Channel::sockets().unwrap();
        let players: Vec<_> = [(first_from, first_to), (second_from, second_to)]
            .into_iter()
            .map(|(from, to)| {
                let (ours, theirs) = talk::pair();
                let mut command = again::command("pipe", &level.to_string());
                command.stdin(Stdio::from(theirs));
                let player = Player::start(command);
                talk::say(&ours, &(), &[&from, &to]);
                player
            })
            .collect();
        let mine: Vec<_> = players.iter().map(Player::id).collect();
        self.alive.lock().unwrap().extend(&mine);
        let talked = (|| {
            // SAFETY: all of these processes run this program.
            let (tx, rx) = unsafe {
                (
                    Channel::trusted_sender(to_first, config(level))?,
                    Channel::trusted_receiver(from_second, config(level))?,
                )
            };
            self.talk(&tx, &rx, tags)
        })();
        // From here on nobody kills them, and their numbers can be used again.
        self.alive.lock().unwrap().retain(|id| !mine.contains(id));
        if let Err(error) = talked {
            assert_eq!(error, Error::Peer(PeerFault::Dead));
        }
        for player in players {
            match player.end(AT_ONCE) {
                Ended::Failed(output) if !output.starts_with("signal: 9") => panic!("{output}"),
                Ended::Hung(output) => panic!("one sleeps on after its neighbour is gone: {output}"),
                _ => (),
            }
        }
    }

    fn talk(&self, tx: &Sender, rx: &Receiver, tags: &mut u64) -> Result<(), Error> {
        let mut back = *tags;
        while !self.stop.load(Ordering::Relaxed) {
            let tag = *tags;
            send(tx, tag, |buffer| pattern(tag | 1, 0, buffer))?;
            *tags += 1;
            // Some are always on their way.
            while *tags - back > 2 {
                let message = rx.recv()?;
                assert_eq!(message.tag(), back, "messages were lost");
                check(&message, back);
                back += 1;
                self.messages.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn kill(&self, rng: &mut ChaCha8Rng) -> bool {
        let alive = self.alive.lock().unwrap();
        let Some(&id) = alive.get(rng.random_range(0..alive.len().max(1))) else { return false };
        let _ = rustix::process::kill_process(Pid::from_raw(id as i32).unwrap(), Signal::KILL);
        true
    }
}

/// The process that starts the pipelines; `input`: seconds.
pub fn soak(input: &str) {
    // Once for all, and at the levels that are to be had here.
    let here = LEVELS.into_iter().filter(|&level| Channel::pair(config(level)).is_ok());
    let levels: Vec<Level> = here.collect();
    assert!(levels.len() >= 2, "{levels:?}");
    let ground = Ground::now();
    let soak =
        Soak { stop: AtomicBool::new(false), messages: AtomicU64::new(0), alive: Mutex::new(Vec::new()) };
    let until = Instant::now() + Duration::from_secs(input.parse().unwrap());
    let (mut kills, mut rng) = (0, ChaCha8Rng::seed_from_u64(9));
    std::thread::scope(|scope| {
        for level in levels {
            let soak = &soak;
            scope.spawn(move || {
                let mut tags = 0;
                while !soak.stop.load(Ordering::Relaxed) {
                    soak.pipeline(level, &mut tags);
                }
            });
        }
        // On a busy host, or an emulated one, so long that something has come through between two kills.
        while Instant::now() < until || soak.messages.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(rng.random_range(20..200)));
            kills += u32::from(soak.kill(&mut rng));
        }
        soak.stop.store(true, Ordering::Relaxed);
        // A pipeline that waits for a message would not see it: end them all.
        while !soak.alive.lock().unwrap().is_empty() {
            soak.kill(&mut rng);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let messages = soak.messages.load(Ordering::Relaxed);
    println!("\n{kills} kills, {messages} messages");
    assert!(kills > 0 && messages > 0, "nothing was tried");
    ground.check().unwrap();
    let children = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
    assert_eq!(children.err(), Some(rustix::io::Errno::CHILD), "a process is left");
}

#[test]
fn processes_that_are_killed_leave_nothing() {
    let seconds = std::env::var("PAGEFERRY_SOAK").unwrap_or("8".to_owned());
    let within = Duration::from_secs(seconds.parse::<u64>().unwrap() + 300);
    println!("{}", again::run("soak", &seconds, within).through());
}
