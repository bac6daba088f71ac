//! What a trace holds: records, what is said of the whole in its header, and totals.
//!
//! These are plain values; readers hand them out, writers take them. Nothing here fails.

/// What a record is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The fetch of an instruction.
    Fetch,
    /// A load.
    Load,
    /// A store.
    Store,
    /// A system call. Its number, arguments and result: [`Reader::call`](crate::Reader::call).
    Call,
}

/// A reference that was kept, or a system call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// A fetch, a load, a store or a call.
    pub kind: Kind,
    /// Instructions begun since the record before. An instruction is begun by its fetch, so a kept fetch counts its
    /// own.
    pub instructions: u32,
    /// The first address of the line that is referred to; of a call, 0.
    pub address: u64,
}

/// A system call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SystemCall {
    /// Its number, in the numbering of the trace's architecture.
    pub number: u32,
    /// What the registers for arguments held, whether the call has as many or not.
    pub arguments: [u64; 6],
    /// What it returned, a negative number of an error included. Nothing if the call did not return.
    pub result: Option<i64>,
}

/// Which references are kept: see [`Filter`](crate::Filter). All but `reset_every` are powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Sets of the line filter.
    pub line_sets: u32,
    /// Bytes of a page, at least those of a line.
    pub page_bytes: u32,
    /// Sets of the page filter.
    pub page_sets: u32,
    /// The filters forget after so many instructions, which is more than none.
    pub reset_every: u32,
}

impl Rules {
    /// Exact for TLBs of at least 32 sets of 4-KB pages and caches of at least 128 sets of 32-byte lines; forgotten
    /// every 10,000 instructions.
    pub const STANDARD: Rules =
        Rules { line_bytes: 32, line_sets: 128, page_bytes: 4096, page_sets: 32, reset_every: 10_000 };

    /// What is wrong with them, if anything is.
    pub fn problem(&self) -> Option<String> {
        let sizes = [
            ("bytes of a line", self.line_bytes, 8, 1 << 16),
            ("sets of lines", self.line_sets, 1, 1 << 16),
            ("bytes of a page", self.page_bytes, 8, 1 << 30),
            ("sets of pages", self.page_sets, 1, 1 << 16),
        ];
        for (what, value, min, max) in sizes {
            if !value.is_power_of_two() || !(min..=max).contains(&value) {
                return Some(format!("{value} {what}, expected a power of two from {min} to {max}"));
            }
        }
        if self.page_bytes < self.line_bytes {
            let (page, line) = (self.page_bytes, self.line_bytes);
            return Some(format!("{page} bytes of a page, expected at least the {line} bytes of a line"));
        }
        (self.reset_every == 0).then(|| "0 instructions between resets, expected at least 1".to_owned())
    }
}

/// What is said of a trace as a whole before its first record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The architecture, as QEMU names it: `ppc`, `x86_64`.
    pub architecture: String,
    /// Which references were kept.
    pub rules: Rules,
    /// What made the references, as text.
    pub recorder: String,
    /// The command and its arguments.
    pub command: Vec<String>,
}

/// What was counted before anything was left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Totals {
    /// Instructions.
    pub instructions: u64,
    /// Loads. One that crosses lines is one.
    pub loads: u64,
    /// Stores, likewise.
    pub stores: u64,
    /// Records of all kinds.
    pub records: u64,
    /// Those of them that are system calls.
    pub calls: u64,
}

impl Totals {
    /// References of all kinds: instructions, loads, stores.
    pub fn references(&self) -> u64 {
        self.instructions + self.loads + self.stores
    }
}
