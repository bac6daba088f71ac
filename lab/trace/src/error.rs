//! What can be wrong with a trace's bytes. Each error says where, and what was expected there.

use thiserror::Error;

/// Why bytes cannot be read as a trace.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TraceError {
    /// The bytes do not begin as a trace does.
    #[error("byte 0: not a trace: expected {expected:02x?}, found {found:02x?}")]
    NotATrace {
        /// How traces begin.
        expected: [u8; 8],
        /// What is there, as far as there is anything.
        found: Vec<u8>,
    },
    /// A trace of another version of the format.
    #[error("byte {offset}: a trace of version {found}, expected version {expected}")]
    Version {
        /// Where the version is.
        offset: usize,
        /// The version that is read here.
        expected: u16,
        /// The version there.
        found: u16,
    },
    /// The bytes end too early.
    #[error("byte {offset}: the trace ends, expected {expected}")]
    Truncated {
        /// Where the missing part begins.
        offset: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// A part is not as it was written.
    #[error(
        "byte {offset}: {part} has the checksum {found:08x}, expected {expected:08x}: its bytes have changed"
    )]
    Checksum {
        /// Where the part begins.
        offset: usize,
        /// Which part.
        part: &'static str,
        /// The checksum that was written behind it.
        expected: u32,
        /// The checksum that it has.
        found: u32,
    },
    /// A part with its checksum in order holds what no writer writes.
    #[error("byte {offset}: {found}, expected {expected}")]
    Malformed {
        /// Where.
        offset: usize,
        /// What is there.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// A reference behind the limit that the reader was given.
    #[error("byte {offset}, record {record}: address {address:#x}, expected one below {limit:#x}")]
    Outside {
        /// Where the block of the record begins.
        offset: usize,
        /// Which record of the trace, from 0.
        record: u64,
        /// The address.
        address: u64,
        /// The limit.
        limit: u64,
    },
}
