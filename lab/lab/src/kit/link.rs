//! What the processes of the UVM paper's programs have in common: a local socket between them, and loops over buffers.

use super::mode::receive_by;
use pageferry_hal::{Instructions, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{ExportId, ExportTo, Fd, Pid, ReceiveMode, SendMode, User};
use pageferry_model::Model;
use pageferry_vm::{Inherit, PassMode};
use pageferry_workloads::{CallError, named};

/// A message: one number.
const MESSAGE_BYTES: usize = 8;

/// One process's end of a connection.
#[derive(Clone, Copy)]
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
    pub fn pair(user: &User<Model>) -> Result<(Link, Link), CallError> {
        let (a, b) = user.socket_pair().map_err(named("socket pair"))?;
        let link = |socket| Link {
            socket,
            message: Va(0),
            send: SendMode::default(),
            receive: ReceiveMode::default(),
        };
        Ok((link(a), link(b)))
    }

    /// The same, with memory for messages.
    pub fn with_message(self, user: &User<Model>) -> Result<Link, CallError> {
        let message = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map the message"))?;
        Ok(Link { message, ..self })
    }

    /// The same, where the kernel chooses for each call whether data is copied.
    pub fn with_auto(self, auto: bool) -> Link {
        if auto { self.with_modes(SendMode::Auto, ReceiveMode::Auto) } else { self }
    }

    /// The same, with data sent and received like this.
    pub fn with_modes(self, send: SendMode, receive: ReceiveMode) -> Link {
        Link { send, receive, ..self }
    }

    /// Its descriptor.
    pub fn socket(self) -> Fd {
        self.socket
    }

    /// Closes its descriptor.
    ///
    /// # Errors
    /// The call fails.
    pub fn close(self, user: &User<Model>) -> Result<(), CallError> {
        user.close(self.socket).map_err(named("close"))
    }

    /// Passes what is at `at` to `peer`, and says so: it is an offer, whose number is sent.
    pub fn pass(&self, user: &User<Model>, at: Va, len_bytes: usize, peer: Pid) -> Result<(), CallError> {
        let to = ExportTo::Process(peer);
        let id = user.export(at, len_bytes, PassMode::Donate, to).map_err(named("export"))?;
        self.tell(user, id.0)
    }

    /// Takes what the other end passes, where it is from now on; `None` when that end was closed.
    pub fn take(&self, user: &User<Model>) -> Result<Option<Va>, CallError> {
        let Some(id) = self.hear(user)? else { return Ok(None) };
        Ok(Some(user.import(ExportId(id), None).map_err(named("import"))?.at))
    }

    /// Sends `len_bytes`.
    pub fn send(&self, user: &User<Model>, from: Va, len_bytes: usize) -> Result<(), CallError> {
        let mut done = 0;
        while done < len_bytes {
            done +=
                user.send(self.socket, from + done, len_bytes - done, self.send).map_err(named("send"))?;
        }
        Ok(())
    }

    /// Receives `len_bytes`; false when the other end was closed.
    pub fn receive(&self, user: &User<Model>, to: Va, len_bytes: usize) -> Result<bool, CallError> {
        let mut done = 0;
        while done < len_bytes {
            let mode = self.receive;
            let got = receive_by(user, self.socket, to + done, len_bytes - done, mode);
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
    pub fn tell(&self, user: &User<Model>, number: u64) -> Result<(), CallError> {
        user.store(self.message, &number.to_le_bytes());
        self.copying().send(user, self.message, MESSAGE_BYTES)
    }

    /// Receives a number; none when the other end was closed.
    pub fn hear(&self, user: &User<Model>) -> Result<Option<u64>, CallError> {
        if !self.copying().receive(user, self.message, MESSAGE_BYTES)? {
            return Ok(None);
        }
        let mut number = [0; MESSAGE_BYTES];
        user.load(self.message, &mut number);
        Ok(Some(u64::from_le_bytes(number)))
    }
}

/// The time that a loop takes beside its loads or stores: `instructions` for each word of four bytes.
fn loop_over(user: &User<Model>, len_bytes: usize, instructions: u32) {
    user.compute(Instructions((len_bytes as u32).div_ceil(4) * instructions));
}

/// Writes every word of a buffer.
pub fn write_over(user: &User<Model>, at: Va, bytes: &[u8], instructions: u32) {
    for (page, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
        user.store(at + page * PAGE_SIZE, bytes);
        loop_over(user, bytes.len(), instructions);
    }
}

/// Reads every word of a buffer and writes another in its place.
pub fn modify(user: &User<Model>, at: Va, bytes: &[u8], instructions: u32) {
    let mut old = [0; PAGE_SIZE];
    for (page, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
        user.load(at + page * PAGE_SIZE, &mut old[..bytes.len()]);
        user.store(at + page * PAGE_SIZE, bytes);
        loop_over(user, bytes.len(), instructions);
    }
}
