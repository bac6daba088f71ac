//! A program's side.

use super::{Answer, Order};
use crate::cell::Pattern;
use crate::error::{Calls as _, Result};
use std::io::{BufRead as _, Write as _, stdin, stdout};

/// One method, as the sending process has it.
pub trait Messages {
    /// Makes what is needed for messages of so many bytes, the receiver too.
    fn open(&mut self, bytes: usize) -> core::result::Result<(), String>;
    /// Sends `warm` messages and then `rounds` that are timed; nanoseconds of one. With `check`, every byte is
    /// compared.
    fn send(
        &mut self,
        pattern: Pattern,
        warm: u32,
        rounds: u32,
        check: bool,
    ) -> core::result::Result<f64, String>;
    /// Gives back what was made.
    fn close(&mut self) -> core::result::Result<(), String>;
}

fn answer(answer: &Answer) -> Result<()> {
    let text = serde_json::to_string(answer).expect("plain data can be written as JSON");
    let mut out = stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).call("write to standard output")
}

/// This process is killed when the one that started it ends.
pub fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Says that it is ready, and carries out orders until there are none or one fails. `about`: what the method is
/// made by.
pub fn serve(about: &str, messages: &mut dyn Messages) -> Result<()> {
    die_with_parent();
    answer(&Answer::Ready(about.to_owned()))?;
    for line in stdin().lock().lines() {
        let line = line.call("read standard input")?;
        let done = match serde_json::from_str(&line) {
            Ok(Order::Open { bytes }) => messages.open(bytes).map(|()| Answer::Done),
            Ok(Order::Send { pattern, warm, rounds, check }) => {
                messages.send(pattern, warm, rounds, check).map(Answer::Nanos)
            }
            Ok(Order::Close) => messages.close().map(|()| Answer::Done),
            Err(error) => Err(format!("no order: {error}")),
        };
        let done = done.unwrap_or_else(Answer::Failed);
        answer(&done)?;
        if matches!(done, Answer::Failed(_)) {
            break;
        }
    }
    Ok(())
}
