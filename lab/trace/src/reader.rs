//! Reading a trace: records one by one, unpacked as they are asked for.
//!
//! A [`Reader`] borrows the bytes. [`Reader::new`] walks over all parts and compares the checksums, so what is cut off
//! or changed is found before the first record; what can fail later is a record that contradicts the totals or the
//! caller's limit. No bytes make it panic. Its model takes 32 MB.

use crate::coder::Decoder;
use crate::error::TraceError;
use crate::format::{BLOCK, Cursor};
use crate::model::Model;
use crate::record::{Header, Kind, Record, SystemCall, Totals};

/// The records of a trace, in order. After an error there are no more.
pub struct Reader<'a> {
    header: Header,
    totals: Totals,
    limit: u64,
    size: usize,
    /// Before the next block.
    blocks: Cursor<'a>,
    /// Where the block being read begins, what is left of it.
    block_offset: usize,
    block: Decoder<'a>,
    left_in_block: u32,
    model: Model,
    /// What was read so far.
    records: u64,
    instructions: u64,
    calls: u64,
    call: SystemCall,
    done: bool,
}

impl<'a> Reader<'a> {
    /// Reads the trace in `bytes`. Its addresses must be below `limit`; `u64::MAX` if any will do.
    pub fn new(bytes: &'a [u8], limit: u64) -> Result<Reader<'a>, TraceError> {
        let mut cursor = Cursor::new(bytes);
        let header = cursor.header()?;
        let blocks = cursor.clone();
        let mut records = 0;
        while cursor.tag()? == BLOCK {
            records += u64::from(cursor.block()?.0);
        }
        let offset = cursor.at;
        let totals = cursor.end()?;
        let malformed = |offset, found, expected| Err(TraceError::Malformed { offset, found, expected });
        if totals.records != records {
            return malformed(offset, format!("{} records in all", totals.records), format!("{records}"));
        }
        // Their sum, that of references, is asked for.
        let max = u64::MAX / 4;
        if totals.instructions.max(totals.loads).max(totals.stores) > max {
            return malformed(
                offset,
                "more references than can be counted".to_owned(),
                format!("up to {max}"),
            );
        }
        if !cursor.is_at_end() {
            let found = format!("{} bytes behind the end", bytes.len() - cursor.at);
            return malformed(cursor.at, found, "none".to_owned());
        }
        Ok(Reader {
            model: Model::new(header.rules.line_bytes, totals.records),
            header,
            totals,
            limit,
            size: bytes.len(),
            block_offset: blocks.at,
            blocks,
            block: Decoder::new(&[]),
            left_in_block: 0,
            records: 0,
            instructions: 0,
            calls: 0,
            call: SystemCall::default(),
            done: false,
        })
    }

    /// What is said of the trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What was counted when it was recorded.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Bytes of the packed trace.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Instructions begun, that of the record read last included.
    pub fn position(&self) -> u64 {
        self.instructions
    }

    /// The call that was read last.
    pub fn call(&self) -> &SystemCall {
        &self.call
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        if self.left_in_block == 0 {
            if self.records == self.totals.records {
                return self.add_up();
            }
            self.block_offset = self.blocks.at;
            let (records, packed) = self.blocks.block()?;
            (self.left_in_block, self.block) = (records, Decoder::new(packed));
        }
        self.left_in_block -= 1;
        let any = Record { kind: Kind::Fetch, instructions: 0, address: 0 };
        let record = self.model.code(&mut self.block, any);
        if record.kind == Kind::Call {
            self.call = self.model.code_call(&mut self.block, &SystemCall::default());
            self.calls += 1;
        } else if record.address >= self.limit {
            let (offset, address, limit) = (self.block_offset, record.address, self.limit);
            return Err(TraceError::Outside { offset, record: self.records, address, limit });
        }
        self.records += 1;
        self.instructions += u64::from(record.instructions);
        Ok(Some(record))
    }

    /// All records were read.
    fn add_up(&self) -> Result<Option<Record>, TraceError> {
        let offset = self.blocks.at;
        let malformed = |found, expected| Err(TraceError::Malformed { offset, found, expected });
        let Totals { instructions, calls, .. } = self.totals;
        if self.calls != calls {
            return malformed(format!("{calls} system calls in all"), self.calls.to_string());
        }
        if self.instructions > instructions {
            let expected = format!("at least the {} of the records", self.instructions);
            return malformed(format!("{instructions} instructions in all"), expected);
        }
        Ok(None)
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let read = self.read();
        self.done = !matches!(read, Ok(Some(_)));
        read.transpose()
    }
}
