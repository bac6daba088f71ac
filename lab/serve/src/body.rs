//! The body of a request as it comes, with a length or in chunks, by copy.
//!
//! # What can fail
//! The connection; a body that is none, or ends early.

use super::chunked::{Chunks, Malformed};
use super::connection::{Connection, SILENT};
use super::request::Body;
use super::workers::WaitError;

/// What is still to come of a body.
#[derive(Debug)]
pub(super) enum BodyReader {
    Bytes(u64),
    Chunked(Chunks),
}

/// Why there is no more of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyError {
    /// The connection is gone, or too slow.
    Wait(WaitError),
    /// The client has ended in the middle of it.
    Ended,
    /// It is in no chunks.
    Malformed,
}

impl From<WaitError> for BodyError {
    fn from(gone: WaitError) -> BodyError {
        BodyError::Wait(gone)
    }
}

impl From<Malformed> for BodyError {
    fn from(_: Malformed) -> BodyError {
        BodyError::Malformed
    }
}

impl BodyReader {
    pub(super) fn new(body: Body) -> BodyReader {
        match body {
            Body::None => BodyReader::Bytes(0),
            Body::Bytes(len) => BodyReader::Bytes(len),
            Body::Chunked => BodyReader::Chunked(Chunks::new()),
        }
    }

    /// True when all of it was taken.
    pub(super) fn is_over(&self) -> bool {
        match self {
            BodyReader::Bytes(left) => *left == 0,
            BodyReader::Chunked(chunks) => chunks.is_over(),
        }
    }

    /// The next bytes, at most `max`; none only at the end.
    ///
    /// # Errors
    /// [`BodyError`].
    pub(super) fn next(&mut self, client: &mut Connection<'_>, max: usize) -> Result<Vec<u8>, BodyError> {
        let mut bytes = Vec::new();
        loop {
            match self {
                BodyReader::Bytes(left) => {
                    let len = client.have.len().min(max).min(usize::try_from(*left).unwrap_or(max));
                    bytes.extend(client.have.drain(..len));
                    *left -= len as u64;
                }
                BodyReader::Chunked(chunks) => chunks.take(&mut client.have, &mut bytes, max)?,
            }
            if self.is_over() || !bytes.is_empty() {
                return Ok(bytes);
            }
            if !client.read_more(client.waits(SILENT))? {
                return Err(BodyError::Ended);
            }
        }
    }
}
