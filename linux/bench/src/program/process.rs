//! The runner's side: a process that is told what to send.
//!
//! It has a process group of its own, so all that it starts ends with it. Its standard error goes into memory, of
//! which the last line is told when it dies.

use super::{Answer, Order};
use crate::error::{BenchError, Calls as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether somebody wants the run to end.
pub(crate) type Stop = Arc<AtomicBool>;

/// How long a process that has no more orders may take to end by itself.
const TO_END: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(200);

/// A started program.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    to: Option<ChildStdin>,
    from: ChildStdout,
    /// What was read of the next line.
    read: Vec<u8>,
    said: File,
    patience: Duration,
    stop: Stop,
    ended: bool,
}

impl Program {
    /// Starts it. `patience`: how long it may take for an answer.
    pub(crate) fn start(mut command: Command, patience: Duration, stop: Stop) -> Result<Program> {
        let said = rustix::fs::memfd_create("pageferry-bench", MemfdFlags::CLOEXEC).call("memfd_create")?;
        let said = File::from(said);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(said.try_clone().call("dup")?).process_group(0);
        let mut child = command.spawn().map_err(|error| {
            BenchError::Usage(format!("{}: {error}", command.get_program().to_string_lossy()))
        })?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::Peer("it has no standard input and output".to_owned()));
        };
        Ok(Program { child, to: Some(to), from, read: Vec::new(), said, patience, stop, ended: false })
    }

    /// Gives an order, and waits for the answer to it.
    pub(crate) fn order(&mut self, order: &Order) -> Result<Answer> {
        let mut line = serde_json::to_string(order).expect("plain data can be written as JSON");
        line.push('\n');
        // One that has died says so where its answer is to be.
        let _ = self.to.as_mut().map(|to| to.write_all(line.as_bytes()));
        match self.answer()? {
            Answer::Failed(why) => Err(BenchError::Method(why)),
            answer => Ok(answer),
        }
    }

    /// The next line.
    pub(crate) fn answer(&mut self) -> Result<Answer> {
        let line = self.line()?;
        let problem = |error: serde_json::Error| {
            let line: String = line.chars().take(80).collect();
            BenchError::Method(format!("it says {line:?}, which is no answer: {error}"))
        };
        serde_json::from_str(&line).map_err(problem)
    }

    fn line(&mut self) -> Result<String> {
        /// No answer is as long.
        const MOST: usize = 64 << 10;
        let until = Instant::now() + self.patience;
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.read.len() > MOST {
                return Err(BenchError::Method("it says something that does not end".to_owned()));
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(BenchError::Method(format!(
                    "it has not answered for {} s",
                    self.patience.as_secs()
                )));
            }
            let tick = Timespec::try_from(left.min(TICK)).map_err(std::io::Error::other).call("poll")?;
            let mut fds = [PollFd::new(&self.from, PollFlags::IN)];
            match poll(&mut fds, Some(&tick)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => (),
                Err(errno) => return Err(errno).call("poll"),
            }
            let mut bytes = [0; 4096];
            match self.from.read(&mut bytes).call("read")? {
                0 => return Err(BenchError::Method(self.obituary())),
                got => self.read.extend(&bytes[..got]),
            }
        }
    }

    /// How it ended, and the last that it said.
    fn obituary(&mut self) -> String {
        let ended = match self.end() {
            Some(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("it was ended by signal {signal}"),
                (None, Some(code)) => format!("it has ended with code {code}"),
                _ => "it has ended".to_owned(),
            },
            None => "it has closed its end".to_owned(),
        };
        let mut said = String::new();
        let _ = self.said.rewind();
        let _ = self.said.read_to_string(&mut said);
        match said.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => format!("{ended}: {}", last.trim()),
            None => ended,
        }
    }

    /// Waits until it ends by itself, which without input it does, and then kills what is left of it.
    fn end(&mut self) -> Option<ExitStatus> {
        self.to = None;
        let until = Instant::now() + TO_END;
        let mut status = None;
        while !self.ended && Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            // Whoever is not waited for keeps its number, so the group below is still this program's.
            match rustix::process::waitid(
                rustix::process::WaitId::Pid(self.pid()),
                rustix::process::WaitIdOptions::EXITED
                    | rustix::process::WaitIdOptions::NOHANG
                    | rustix::process::WaitIdOptions::NOWAIT,
            ) {
                Ok(Some(_)) | Err(_) => break,
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        if !self.ended {
            let _ = rustix::process::kill_process_group(self.pid(), rustix::process::Signal::KILL);
            status = self.child.wait().ok();
            self.ended = true;
        }
        status
    }

    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
