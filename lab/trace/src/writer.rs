//! Writing a trace: records in, blocks out.
//!
//! A [`Writer`] owns the sink. It fails only as the sink does. A file that it did not [finish](Writer::finish) has no
//! end, and no reader takes it.

use crate::coder::Encoder;
use crate::format::{BLOCK_RECORDS, block_bytes, end_bytes, header_bytes};
use crate::model::Model;
use crate::record::{Header, Kind, Record, SystemCall, Totals};
use std::io::{self, Write};

/// A trace being written. It has no end before [`finish`](Writer::finish), and no reader takes it until then.
pub struct Writer<W> {
    out: W,
    model: Model,
    block: Encoder,
    in_block: usize,
    totals: Totals,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Panics
    /// If the header's rules are not good ones.
    pub fn new(mut out: W, header: &Header) -> io::Result<Writer<W>> {
        assert_eq!(header.rules.problem(), None, "good rules");
        out.write_all(&header_bytes(header))?;
        let model = Model::new(header.rules.line_bytes, 0);
        Ok(Writer { out, model, block: Encoder::new(), in_block: 0, totals: Totals::default() })
    }

    /// Writes a reference. Of its address the line is kept.
    ///
    /// # Panics
    /// If it is a call: [`call`](Writer::call) writes those.
    pub fn reference(&mut self, record: Record) -> io::Result<()> {
        assert_ne!(record.kind, Kind::Call, "a reference");
        self.model.code(&mut self.block, record);
        self.count(record.instructions)
    }

    /// Writes a system call, so many instructions after the record before.
    pub fn call(&mut self, instructions: u32, call: &SystemCall) -> io::Result<()> {
        self.model.code(&mut self.block, Record { kind: Kind::Call, instructions, address: 0 });
        self.model.code_call(&mut self.block, call);
        self.totals.calls += 1;
        self.count(instructions)
    }

    fn count(&mut self, instructions: u32) -> io::Result<()> {
        self.totals.records += 1;
        self.totals.instructions += u64::from(instructions);
        self.in_block += 1;
        if self.in_block == BLOCK_RECORDS { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> io::Result<()> {
        let packed = std::mem::replace(&mut self.block, Encoder::new()).finish();
        let records = std::mem::take(&mut self.in_block) as u32;
        self.out.write_all(&block_bytes(records, &packed))
    }

    /// Ends the trace: `instructions` came after the last record, and so many loads and stores were made in all.
    pub fn finish(mut self, instructions: u64, loads: u64, stores: u64) -> io::Result<Totals> {
        if self.in_block > 0 {
            self.end_block()?;
        }
        self.totals.instructions += instructions;
        self.totals.loads = loads;
        self.totals.stores = stores;
        self.out.write_all(&end_bytes(&self.totals))?;
        self.out.flush()?;
        Ok(self.totals)
    }
}
