//! What the processes of the UVM paper's programs have in common: a local socket between them, and loops over buffers.

use crate::os::{CallError, Os, named};
use alloc::boxed::Box;
use pageferry_abi::{Errno, ExportId, ExportTo, Fd, PassMode, Pid, ReceiveMode, SendMode};
use pageferry_hal::{Instructions, PAGE_SIZE, Va};

/// A message: one number.
const MESSAGE_BYTES: usize = 8;

/// One process's end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    socket: Fd,
    /// Where messages are put together and received.
    message: Va,
    /// How data is sent and received; messages are copied.
    send: SendMode,
    receive: ReceiveMode,
}

impl Link {
    /// Both ends of a new connection; the two processes are still to be forked apart.
    ///
    /// # Errors
    /// A system call that failed, as of all calls here.
    pub fn pair(os: &dyn Os) -> Result<(Link, Link), CallError> {
        let (a, b) = os.socket_pair().map_err(named("socket pair"))?;
        let link = |socket| Link {
            socket,
            message: Va(0),
            send: SendMode::default(),
            receive: ReceiveMode::default(),
        };
        Ok((link(a), link(b)))
    }

    /// The same, with memory for messages.
    ///
    /// # Errors
    /// There is none.
    pub fn with_message(self, os: &dyn Os) -> Result<Link, CallError> {
        let message = os.map(PAGE_SIZE).map_err(named("map the message"))?;
        Ok(Link { message, ..self })
    }

    /// The same, where the kernel chooses for each call whether data is copied.
    #[must_use]
    pub fn with_auto(self, auto: bool) -> Link {
        if auto { self.with_modes(SendMode::Auto, ReceiveMode::Auto) } else { self }
    }

    /// The same, with data sent and received like this.
    #[must_use]
    pub fn with_modes(self, send: SendMode, receive: ReceiveMode) -> Link {
        Link { send, receive, ..self }
    }

    /// Its descriptor.
    pub fn socket(self) -> Fd {
        self.socket
    }

    /// Closes it.
    ///
    /// # Errors
    /// It is closed.
    pub fn close(self, os: &dyn Os) -> Result<(), CallError> {
        os.close(self.socket).map_err(named("close"))
    }

    /// Passes what is at `at` to `peer`, and says so: it is an offer, whose number is sent.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn pass(&self, os: &dyn Os, at: Va, len_bytes: usize, peer: Pid) -> Result<(), CallError> {
        let to = ExportTo::Process(peer);
        let id = os.export(at, len_bytes, PassMode::Donate, to).map_err(named("export"))?;
        self.tell(os, id.0)
    }

    /// Takes what the other end passes, where it is from now on; `None` when that end was closed.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn take(&self, os: &dyn Os) -> Result<Option<Va>, CallError> {
        let Some(id) = self.hear(os)? else { return Ok(None) };
        Ok(Some(os.import(ExportId(id)).map_err(named("import"))?.at))
    }

    /// Sends `len_bytes`.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn send(&self, os: &dyn Os, from: Va, len_bytes: usize) -> Result<(), CallError> {
        send_all(os, self.socket, from, len_bytes, self.send).map_err(named("send"))
    }

    /// Receives `len_bytes`; false when the other end was closed.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn receive(&self, os: &dyn Os, to: Va, len_bytes: usize) -> Result<bool, CallError> {
        let mut done = 0;
        while done < len_bytes {
            let got = os.receive(self.socket, to + done, len_bytes - done, self.receive);
            match got.map_err(named("receive"))?.0 {
                0 => return Ok(false),
                len => done += len,
            }
        }
        Ok(true)
    }

    fn copying(self) -> Link {
        Link { send: SendMode::Copy, receive: ReceiveMode::Copy, ..self }
    }

    /// Sends a number.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn tell(&self, os: &dyn Os, number: u64) -> Result<(), CallError> {
        os.store(self.message, &number.to_le_bytes());
        self.copying().send(os, self.message, MESSAGE_BYTES)
    }

    /// Receives a number; none when the other end was closed.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn hear(&self, os: &dyn Os) -> Result<Option<u64>, CallError> {
        if !self.copying().receive(os, self.message, MESSAGE_BYTES)? {
            return Ok(None);
        }
        let mut number = [0; MESSAGE_BYTES];
        os.load(self.message, &mut number);
        Ok(Some(u64::from_le_bytes(number)))
    }
}

/// Sends `len_bytes`, in as many calls as it takes.
pub(crate) fn send_all(os: &dyn Os, to: Fd, from: Va, len_bytes: usize, mode: SendMode) -> Result<(), Errno> {
    let mut done = 0;
    while done < len_bytes {
        done += os.send(to, from + done, len_bytes - done, mode)?;
    }
    Ok(())
}

/// A pipe: a child does `write` at its one end, the caller `read` at the other.
pub(crate) fn over_a_pipe(
    os: &dyn Os,
    write: impl FnOnce(&dyn Os, Fd) -> Result<(), CallError> + 'static,
    read: impl FnOnce(&dyn Os, Fd) -> Result<(), CallError>,
) -> Result<(), CallError> {
    let (from, to) = os.pipe().map_err(named("pipe"))?;
    let writer = move |os: &dyn Os| {
        os.close(from).map_err(named("close"))?;
        write(os, to)?;
        os.close(to).map_err(named("close"))
    };
    os.fork("writer", Box::new(writer)).map_err(named("fork"))?;
    os.close(to).map_err(named("close"))?;
    let result = read(os, from);
    // Without a reader the writer ends, too: no wait for ever after a failure.
    os.close(from).map_err(named("close"))?;
    os.wait().map_err(named("wait"))?;
    result
}

/// The time that a loop takes beside its loads or stores: `instructions` for each word of four bytes.
fn loop_over(os: &dyn Os, len_bytes: usize, instructions: u32) {
    os.compute(Instructions((len_bytes as u32).div_ceil(4) * instructions));
}

/// Writes every word of a buffer.
pub(crate) fn write_over(os: &dyn Os, at: Va, bytes: &[u8], instructions: u32) {
    for (page, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
        os.store(at + page * PAGE_SIZE, bytes);
        loop_over(os, bytes.len(), instructions);
    }
}

/// Reads every word of a buffer and writes another in its place.
pub(crate) fn modify(os: &dyn Os, at: Va, bytes: &[u8], instructions: u32) {
    let mut old = [0; PAGE_SIZE];
    for (page, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
        os.load(at + page * PAGE_SIZE, &mut old[..bytes.len()]);
        os.store(at + page * PAGE_SIZE, bytes);
        loop_over(os, bytes.len(), instructions);
    }
}
