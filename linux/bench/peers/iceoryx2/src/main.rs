//! iceoryx2, as a method of `pageferry host bench --python`: `iceoryx2-peer METHOD PREFIX [CPU CPU]`.
//!
//! The sender loans memory of its publisher, fills it and sends it; the receiver takes it from its subscriber. Both map
//! it shared, so either can write to it at any time. Sending wakes nobody: the bench's own ring does, by which the
//! floor goes, too. What is sent again is memory that was filled when it came first. The files of both processes
//! begin with PREFIX, or lie in a folder of TMPDIR.

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use pageferry_bench::program::{self, Link, Messages, Turn};
use pageferry_bench::{Pattern, Wait};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::error::Error;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Service = ipc::Service;
type Result<T> = core::result::Result<T, Box<dyn Error>>;

/// Samples that the receiver may have not taken yet.
const BUFFERED: usize = 2;

/// Sender to receiver.
#[derive(Serialize, Deserialize)]
enum Order {
    /// Take part in the service of this name. Brings the turn.
    Open(String),
    /// So many messages will come. With a stamp, every word is compared.
    Receive { pattern: Pattern, rounds: u32, stamp: Option<u64> },
    /// The service is done with.
    Close,
}

/// Receiver to sender.
#[derive(Serialize, Deserialize)]
enum Answer {
    Ready,
    Received { sum: u64, right: bool },
    Failed(String),
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("iceoryx2-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let [method, prefix, cpus @ ..] = words else {
        return Err("it is started by `pageferry host bench`".into());
    };
    let cpus: Vec<usize> = cpus.iter().map(|cpu| cpu.parse()).collect::<core::result::Result<_, _>>()?;
    set_log_level(LogLevel::Error);
    if method == "receive" {
        if let Some(&cpu) = cpus.get(1) {
            program::pin(&[cpu])?;
        }
        return receive(prefix);
    }
    if let Some(&cpu) = cpus.first() {
        program::pin(&[cpu])?;
    }
    let (link, theirs) = Link::pair()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("receive").args(&words[1..]).stdin(theirs).stdout(Stdio::null());
    let child = command.spawn()?;
    let mut sending = Sending { link, child, prefix: prefix.clone(), opened: 0, stamp: 1, open: None };
    program::serve("iceoryx2 0.10.0", &mut sending)?;
    Ok(())
}

fn node(prefix: &str) -> Result<Node<Service>> {
    let mut config = Config::default();
    config.global.prefix = prefix.try_into()?;
    let folder = std::env::temp_dir().join("iceoryx2");
    config.global.set_root_path(&folder.to_string_lossy().as_ref().try_into()?);
    Ok(NodeBuilder::new().config(&config).signal_handling_mode(SignalHandlingMode::Disabled).create()?)
}

macro_rules! service {
    ($node:expr, $name:expr) => {
        $node
            .service_builder(&$name.try_into()?)
            .publish_subscribe::<[u64]>()
            .payload_alignment(Alignment::new(64).ok_or("64 is a power of two")?)
            .max_publishers(1)
            .max_subscribers(1)
            .subscriber_max_buffer_size(BUFFERED)
            .open_or_create()?
    };
}

/// What messages of one size go by.
struct Open {
    publisher: Publisher<Service, [u64], ()>,
    _node: Node<Service>,
    turn: Turn,
    words: usize,
    /// What was filled into the memory at these addresses.
    stamps: HashMap<usize, u64>,
}

struct Sending {
    link: Link,
    child: Child,
    prefix: String,
    opened: u32,
    stamp: u64,
    open: Option<Open>,
}

/// Words of a message. Memory of a publisher is mapped and zeroed, or holds an earlier message.
fn bytes(words: &mut [MaybeUninit<u64>]) -> &mut [u8] {
    let len = size_of_val(words);
    // SAFETY: the words are initialised, as said, and any byte of a word is a byte.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}

/// The same of what was received.
fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any byte of a word is a byte.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

impl Sending {
    fn answer(&mut self) -> Result<Answer> {
        match self.link.recv::<Answer>()? {
            None => Err(format!("the receiver has ended: {}", self.child.wait()?).into()),
            Some((Answer::Failed(why), _)) => Err(format!("the receiver: {why}").into()),
            Some((answer, _)) => Ok(answer),
        }
    }

    fn try_open(&mut self, bytes: usize) -> Result<()> {
        self.opened += 1;
        let name = format!("words {}", self.opened);
        let node = node(&self.prefix)?;
        let service = service!(node, name.as_str());
        let words = bytes / size_of::<u64>();
        let publisher = service.publisher_builder().initial_max_slice_len(words).create()?;
        let turn = Turn::make(Wait::Sleep)?;
        self.link.send(&Order::Open(name), &[turn.fd()])?;
        self.answer()?;
        self.open = Some(Open { publisher, _node: node, turn, words, stamps: HashMap::new() });
        Ok(())
    }

    fn try_send(&mut self, pattern: Pattern, warm: u32, rounds: u32, check: bool) -> Result<f64> {
        let refills = pattern.refills();
        let first = if refills { self.stamp + 1 } else { 1 };
        let order = Order::Receive { pattern, rounds: warm + rounds, stamp: check.then_some(first) };
        self.link.send(&order, &[])?;
        self.answer()?;
        let open = self.open.as_mut().ok_or("nothing is open")?;
        let (mut took, mut wanted) = (Duration::ZERO, 0u64);
        for (count, timed) in [(warm, false), (rounds, true)] {
            let began = Instant::now();
            for _ in 0..count {
                let stamp = if refills { self.stamp + 1 } else { first };
                self.stamp = self.stamp.max(stamp);
                open.round(stamp, refills)?;
                wanted = wanted.wrapping_add(program::sum_of(open.words * size_of::<u64>(), stamp));
            }
            if timed {
                took = began.elapsed();
            }
        }
        match self.answer()? {
            Answer::Received { sum, right } if right && (!pattern.reads() || sum == wanted) => {
                Ok(took.as_nanos() as f64 / f64::from(rounds.max(1)))
            }
            _ => Err("what arrived is not what was sent".into()),
        }
    }

    fn try_close(&mut self) -> Result<()> {
        self.link.send(&Order::Close, &[])?;
        self.answer()?;
        self.open = None;
        Ok(())
    }
}

impl Open {
    fn round(&mut self, stamp: u64, refills: bool) -> Result<()> {
        let mut sample = self.publisher.loan_slice_uninit(self.words)?;
        let payload = sample.payload_mut();
        let kept = self.stamps.insert(payload.as_ptr().addr(), stamp);
        if refills || kept != Some(stamp) {
            program::fill(bytes(payload), stamp);
        }
        // SAFETY: it was filled now, or when this memory came first.
        unsafe { sample.assume_init() }.send()?;
        self.turn.publish(program::Cell { slot: 0 });
        Ok(self.turn.wait_done()?)
    }
}

fn told<T>(done: Result<T>) -> core::result::Result<T, String> {
    done.map_err(|error| error.to_string())
}

impl Messages for Sending {
    fn open(&mut self, bytes: usize) -> core::result::Result<(), String> {
        told(self.try_open(bytes))
    }

    fn send(
        &mut self,
        pattern: Pattern,
        warm: u32,
        rounds: u32,
        check: bool,
    ) -> core::result::Result<f64, String> {
        told(self.try_send(pattern, warm, rounds, check))
    }

    fn close(&mut self) -> core::result::Result<(), String> {
        told(self.try_close())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Receiving {
    subscriber: Subscriber<Service, [u64], ()>,
    _node: Node<Service>,
    turn: Turn,
}

/// Carries out orders until the sender is gone.
fn receive(prefix: &str) -> Result<()> {
    program::die_with_parent();
    let link = Link::of(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut open: Option<Receiving> = None;
    while let Some((order, fds)) = link.recv::<Order>()? {
        let answer = match order {
            Order::Open(name) => Receiving::open(prefix, &name, fds).map(|receiving| {
                open = Some(receiving);
                Answer::Ready
            }),
            Order::Close => {
                open = None;
                Ok(Answer::Ready)
            }
            Order::Receive { pattern, rounds, stamp } => match &mut open {
                None => Err("nothing is open".into()),
                Some(open) => {
                    link.send(&Answer::Ready, &[])?;
                    open.receive(pattern, rounds, stamp)
                }
            },
        };
        link.send(&answer.unwrap_or_else(|error| Answer::Failed(error.to_string())), &[])?;
    }
    Ok(())
}

impl Receiving {
    fn open(prefix: &str, name: &str, fds: Vec<std::os::fd::OwnedFd>) -> Result<Receiving> {
        let turn = Turn::of(fds.into_iter().next().ok_or("the turn is missing")?, Wait::Sleep)?;
        let node = node(prefix)?;
        let service = service!(node, name);
        let subscriber = service.subscriber_builder().create()?;
        Ok(Receiving { subscriber, _node: node, turn })
    }

    fn receive(&mut self, pattern: Pattern, rounds: u32, mut stamp: Option<u64>) -> Result<Answer> {
        let (mut sum, mut right) = (0u64, true);
        for _ in 0..rounds {
            self.turn.take()?;
            let sample = self.subscriber.receive()?.ok_or("it was woken, and there is no sample")?;
            let bytes = as_bytes(sample.payload());
            if pattern.reads() {
                sum = sum.wrapping_add(program::sum(bytes));
            }
            if let Some(stamp) = &mut stamp {
                right &= program::is_of(bytes, *stamp);
                *stamp += u64::from(pattern.refills());
            }
            drop(sample);
            self.turn.done();
        }
        Ok(Answer::Received { sum, right })
    }
}
