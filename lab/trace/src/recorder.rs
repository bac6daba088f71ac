//! From all references of a program to a trace: a [`Filter`] before a [`Writer`].
//!
//! A [`Recorder`] belongs to whoever watches the program. It fails as the writer's sink does.

use crate::filter::Filter;
use crate::record::{Header, Kind, Record, SystemCall, Totals};
use crate::writer::Writer;
use std::io::{self, Write};

/// Takes all references of a program and writes those that its filter keeps.
pub struct Recorder<W> {
    filter: Filter,
    writer: Writer<W>,
    line_bytes: u64,
    /// Instructions since the last record.
    pending: u32,
    counted: Totals,
    /// A call that has not returned yet.
    call: Option<SystemCall>,
}

impl<W: Write> Recorder<W> {
    /// Begins a trace by the header's rules.
    ///
    /// # Panics
    /// If these are not good ones.
    pub fn new(out: W, header: &Header) -> io::Result<Recorder<W>> {
        Ok(Recorder {
            filter: Filter::new(header.rules),
            writer: Writer::new(out, header)?,
            line_bytes: u64::from(header.rules.line_bytes),
            pending: 0,
            counted: Totals::default(),
            call: None,
        })
    }

    /// An instruction is fetched. It begins here; its loads and stores follow.
    pub fn fetch(&mut self, address: u64, bytes: u32) -> io::Result<()> {
        self.settle()?;
        self.filter.instruction();
        self.counted.instructions += 1;
        self.pending = self.pending.saturating_add(1);
        self.refer(Kind::Fetch, address, bytes)
    }

    /// Bytes are loaded.
    pub fn load(&mut self, address: u64, bytes: u32) -> io::Result<()> {
        self.counted.loads += 1;
        self.refer(Kind::Load, address, bytes)
    }

    /// Bytes are stored.
    pub fn store(&mut self, address: u64, bytes: u32) -> io::Result<()> {
        self.counted.stores += 1;
        self.refer(Kind::Store, address, bytes)
    }

    /// A reference to each line that the bytes lie on.
    fn refer(&mut self, kind: Kind, address: u64, bytes: u32) -> io::Result<()> {
        let last = address.saturating_add(u64::from(bytes.max(1)) - 1);
        let mut line = address & !(self.line_bytes - 1);
        loop {
            if self.filter.keeps(kind, line) {
                let instructions = std::mem::take(&mut self.pending);
                self.writer.reference(Record { kind, instructions, address: line })?;
            }
            match line.checked_add(self.line_bytes) {
                Some(next) if next <= last => line = next,
                _ => return Ok(()),
            }
        }
    }

    /// A system call is made. What it returns, if it does, follows before anything else.
    pub fn call(&mut self, number: u32, arguments: [u64; 6]) -> io::Result<()> {
        self.settle()?;
        self.call = Some(SystemCall { number, arguments, result: None });
        Ok(())
    }

    /// The call has returned.
    pub fn returned(&mut self, result: i64) -> io::Result<()> {
        if let Some(call) = &mut self.call {
            call.result = Some(result);
        }
        self.settle()
    }

    fn settle(&mut self) -> io::Result<()> {
        let Some(call) = self.call.take() else { return Ok(()) };
        self.filter.call();
        self.writer.call(std::mem::take(&mut self.pending), &call)
    }

    /// References so far.
    pub fn references(&self) -> u64 {
        self.counted.references()
    }

    /// Ends the trace.
    pub fn finish(mut self) -> io::Result<Totals> {
        self.settle()?;
        self.writer.finish(u64::from(self.pending), self.counted.loads, self.counted.stores)
    }
}
