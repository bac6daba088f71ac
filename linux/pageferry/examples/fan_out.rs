//! Frames for a number of workers: filled once, read by all, each of which computes something else of them.
//!
//! The workers are processes of this same program. One pool serves all of them, so a frame costs one freeze
//! however many read it.

use pageferry::{Command, Config, Error, Fanout, Parent, PeerFault, Slow};
use std::time::Duration;

const FRAME: usize = 6_000_000;
const WORKERS: usize = 3;
const FRAMES: u64 = 40;

fn config() -> Config {
    Config::new().slots(8).slot_bytes(FRAME)
}

fn main() -> Result<(), Error> {
    if let Some(parent) = Parent::get()? {
        return worker(&parent);
    }
    let mut fan = Fanout::new(config(), Slow::Wait(Duration::from_secs(10)))?;
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let child = Command::this_program()?.arg(number.to_string()).spawn()?;
        fan.add(child.socket_to_receiver()?)?;
        let results = child.receiver(config())?;
        workers.push((child, results));
    }
    for number in 0..FRAMES {
        let mut frame = fan.buffer(FRAME)?;
        frame.fill(number as u8);
        // The token is not needed: the memory comes home when the last worker has dropped its loan.
        drop(fan.loan_tagged(frame, number)?);
    }
    drop(fan);
    for (number, (mut child, results)) in workers.into_iter().enumerate() {
        let sum = u64::from_ne_bytes(results.recv()?[..].try_into().expect("eight bytes"));
        let expected = (0..FRAMES).map(|frame| frame * share(number).len() as u64).sum::<u64>();
        println!("worker {number}: {FRAMES} frames, sum {sum}");
        assert_eq!(sum, expected);
        child.process().wait().expect("the worker ends");
    }
    Ok(())
}

/// The part of each frame that a worker looks at.
fn share(worker: usize) -> std::ops::Range<usize> {
    let part = FRAME / WORKERS;
    worker * part..(worker + 1) * part
}

fn worker(parent: &Parent) -> Result<(), Error> {
    let number = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let frames = parent.receiver(config())?;
    let results = parent.sender(config())?;
    let mut sum = 0;
    loop {
        match frames.recv() {
            Ok(frame) => sum += frame[share(number)].iter().map(|&byte| u64::from(byte)).sum::<u64>(),
            Err(Error::Peer(PeerFault::Dead)) => break,
            Err(error) => return Err(error),
        }
    }
    results.copy(&sum.to_ne_bytes())
}
