//! Data through a pipe that is a pair of sockets (UVM paper, 5.3): copied or lent into it, copied or transferred out of
//! it.
//!
//! A child writes the same buffer again and again; its parent reads, and after each read by transfer frees the pages
//! with `anflush`. Each read and write is of `size_bytes`; a read returns with what is there.
//!
//! With `refill` the child fills the buffer again before each write, by stores of its own: what a program does that has
//! new data to send each time and one buffer. Each page that was lent faults at the first store, and is copied if it
//! still is.
//!
//! Every byte is checked at each read, from outside the machine. Where bytes are copied into the pipe, the buffer gets
//! other contents for each write, from outside too. A page that is lent must not be changed behind the kernel's back:
//! there the buffer gets other contents by stores of the child during the warm-up, each of which breaks a loan, and
//! keeps the last of them, as in the paper's program; the pages of a buffer all differ.
//!
//! The measured part begins when the reader has the last byte of the warm-up, and ends when it has the last byte of all
//! and has freed it.

use crate::error::LabError;
use crate::kit::{
    CallError, OutcomeCell, Payload, Stopwatch, differs, first_process, measure_first, named, over_a_pipe,
    receive_by,
};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, Program, ReceiveMode, SendMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::rc::Rc;

#[derive(Clone)]
pub(crate) struct UvmPipe {
    model: Model,
    cell: OutcomeCell,
    send: SendMode,
    receive: ReceiveMode,
    refill: bool,
    size_bytes: usize,
    warmup_writes: u64,
    total_bytes: u64,
    clock_mhz: f64,
    payload: Rc<Payload>,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        warmup_writes: u64 = 0..=1 << 20,
        send: SendMode,
        receive: ReceiveMode,
        /// The child fills the buffer again before each write.
        refill: bool,
    }
}

impl Workload for UvmPipe {
    const NAME: &'static str = "uvm-pipe";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.total_bytes / 4096 * 3
    }

    /// The program of the parent.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let transfer = UvmPipe {
            model: testbed.model.clone(),
            cell,
            send: p.send,
            receive: p.receive,
            refill: p.refill,
            size_bytes,
            warmup_writes: p.warmup_writes,
            total_bytes: p.total_bytes,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Rc::new(Payload::new(testbed.seed, size_bytes)),
        };
        // Two buffers, and the copies of lent pages that the writer makes when it fills its own again.
        Ok(first_process(transfer.cell.clone(), 3 * size_bytes, move |user| {
            measure_first(user, transfer.send, transfer.receive)?;
            over_a_pipe(user, &transfer.cell, &transfer, UvmPipe::write, UvmPipe::read)
        }))
    }
}

impl UvmPipe {
    fn all_bytes(&self) -> u64 {
        self.warmup_writes * self.size_bytes as u64 + self.total_bytes
    }

    /// Writes at the beginning for which the writer fills its buffer by stores. One that refills it does so for all of
    /// them. One that lends it stops behind the warm-up; and where the kernel chooses by what became of earlier loans,
    /// behind the first two, so that it sees in the rest of the warm-up that the writer has stopped.
    fn rewrites(&self) -> u64 {
        match self.send {
            _ if self.refill => u64::MAX,
            SendMode::Auto => self.warmup_writes.min(2),
            _ => self.warmup_writes,
        }
    }

    /// The contents of write `index`.
    fn contents(&self, index: u64) -> &[u8] {
        self.payload.chunk(match self.send {
            SendMode::Copy => index,
            SendMode::Loan | SendMode::Auto => index.min(self.rewrites() - 1),
        })
    }

    fn write(&self, user: &User<Model>, to: Fd) -> Result<(), CallError> {
        let buffer = user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map"))?;
        user.store(buffer, self.contents(0));
        let (mut sent, all) = (0, self.all_bytes());
        for index in 0.. {
            if sent == all {
                break;
            }
            match self.send {
                _ if self.refill => user.store(buffer, self.contents(index)),
                // Through the page tables: another CPU may be changing what the kernel keeps of the page.
                SendMode::Copy => {
                    let filled = self.model.poke(buffer, self.contents(index));
                    assert!(
                        filled,
                        "the writer's buffer is mapped: it was stored to, and nothing is paged out"
                    );
                }
                SendMode::Loan | SendMode::Auto if index < self.rewrites() => {
                    user.store(buffer, self.contents(index));
                }
                SendMode::Loan | SendMode::Auto => {}
            }
            let len = (all - sent).min(self.size_bytes as u64) as usize;
            let mut done = 0;
            while done < len {
                done += user.send(to, buffer + done, len - done, self.send).map_err(named("write"))?;
            }
            sent += len as u64;
        }
        Ok(())
    }

    fn read(&self, user: &User<Model>, from: Fd) -> Result<(), CallError> {
        let buffer = user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map"))?;
        let warmup_bytes = self.warmup_writes * self.size_bytes as u64;
        let (mut got, all) = (0, self.all_bytes());
        let mut scratch = Vec::new();
        let mut watch = Stopwatch::start(&self.model);
        while got < all {
            if got == warmup_bytes {
                watch = Stopwatch::start(&self.model);
            }
            // A read never crosses the end of the warm-up.
            let end = if got < warmup_bytes { warmup_bytes } else { all };
            let want = (end - got).min(self.size_bytes as u64) as usize;
            let received = receive_by(user, from, buffer, want, self.receive);
            let (len, flush) = received.map_err(named("read"))?;
            if len == 0 {
                self.cell.borrow_mut().damage(format!("the stream ended after {got} of {all} bytes"));
                return Ok(());
            }
            let began = ThreadTime::now();
            self.check(buffer, got, len, &mut scratch);
            watch.leave_out(began);
            if flush {
                user.anflush(buffer, len.next_multiple_of(PAGE_SIZE)).map_err(named("anflush"))?;
            }
            got += len as u64;
        }
        watch.stop(&self.model, self.clock_mhz, self.total_bytes, &mut self.cell.borrow_mut());
        Ok(())
    }

    /// Checks `len` bytes that are at `offset` in the stream; a read may begin and end anywhere in a write.
    fn check(&self, buffer: Va, offset: u64, len: usize, scratch: &mut Vec<u8>) {
        let size = self.size_bytes as u64;
        let mut expected = Vec::with_capacity(len);
        while expected.len() < len {
            let place = offset + expected.len() as u64;
            let at = (place % size) as usize;
            let part = (len - expected.len()).min(self.size_bytes - at);
            expected.extend_from_slice(&self.contents(place / size)[at..at + part]);
        }
        if let Some(wrong) = differs(&self.model, buffer, &expected, scratch) {
            let place = offset + wrong as u64;
            self.cell.borrow_mut().damage(format!("byte {place} of the stream is not what was sent"));
        }
    }
}
