//! A body in chunks (RFC 9112, 7.1), piece by piece as it comes.
//!
//! Extensions of chunks are ignored, and so are the fields behind the last chunk.
//!
//! # What can fail
//! What is no such body; a line or a trailer section that is longer than anyone needs.

/// The longest line that begins a chunk, with its end.
const MAX_LINE_BYTES: usize = 4 << 10;
/// The longest trailer section, with its end, and the most fields in it.
const MAX_TRAILER_BYTES: usize = 16 << 10;
const MAX_TRAILER_FIELDS: usize = 64;

/// Where in the body it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    Data(u64),
    EndOfData,
    Trailer,
    End,
}

/// Takes chunks apart.
#[derive(Debug)]
pub(super) struct Chunks(At);

/// It is no body in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks(At::Size)
    }

    /// True when all of the body, with what belongs to its end, was taken.
    pub(super) fn is_over(&self) -> bool {
        self.0 == At::End
    }

    /// Moves up to `max` bytes of the body from the front of `coded` to the end of `body`. Stops where it needs more.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(super) fn take(
        &mut self,
        coded: &mut Vec<u8>,
        body: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), Malformed> {
        let mut left = max;
        loop {
            let used = match self.0 {
                At::Size => {
                    let Some(used) = self.size(coded)? else { return Ok(()) };
                    used
                }
                At::Data(0) => {
                    self.0 = At::EndOfData;
                    0
                }
                At::Data(len) => {
                    let used = coded.len().min(left).min(usize::try_from(len).unwrap_or(usize::MAX));
                    if used == 0 {
                        return Ok(());
                    }
                    body.extend_from_slice(&coded[..used]);
                    left -= used;
                    self.0 = At::Data(len - used as u64);
                    used
                }
                At::EndOfData => match coded[..] {
                    [b'\r', b'\n', ..] => {
                        self.0 = At::Size;
                        2
                    }
                    [] | [b'\r'] => return Ok(()),
                    _ => return Err(Malformed),
                },
                At::Trailer => {
                    let Some(used) = self.trailer(coded)? else { return Ok(()) };
                    used
                }
                At::End => return Ok(()),
            };
            coded.drain(..used);
        }
    }

    fn size(&mut self, coded: &[u8]) -> Result<Option<usize>, Malformed> {
        if coded.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
            return Err(Malformed);
        }
        match httparse::parse_chunk_size(coded) {
            Ok(httparse::Status::Complete((used, len))) if used <= MAX_LINE_BYTES => {
                self.0 = if len == 0 { At::Trailer } else { At::Data(len) };
                Ok(Some(used))
            }
            Ok(httparse::Status::Partial) if coded.len() < MAX_LINE_BYTES => Ok(None),
            _ => Err(Malformed),
        }
    }

    fn trailer(&mut self, coded: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
        match httparse::parse_headers(coded, &mut fields) {
            Ok(httparse::Status::Complete((used, _))) if used <= MAX_TRAILER_BYTES => {
                self.0 = At::End;
                Ok(Some(used))
            }
            Ok(httparse::Status::Partial) if coded.len() < MAX_TRAILER_BYTES => Ok(None),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body, and what is left behind it.
    type Pieces = (Vec<u8>, Vec<u8>);

    /// `None` while more is needed.
    fn taken(text: &[u8], step: usize, max: usize) -> Result<Option<Pieces>, Malformed> {
        let (mut chunks, mut coded, mut body) = (Chunks::new(), Vec::new(), Vec::new());
        for piece in text.chunks(step) {
            coded.extend_from_slice(piece);
            loop {
                let before = (body.len(), coded.len());
                chunks.take(&mut coded, &mut body, max)?;
                if (body.len(), coded.len()) == before {
                    break;
                }
            }
        }
        Ok(chunks.is_over().then_some((body, coded)))
    }

    #[test]
    fn chunks_come_in_any_pieces() {
        let text = b"3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n000\r\nTrailer: of it\r\n\r\nGET /";
        for step in 1..text.len() {
            for max in [1, 2, 100] {
                let (body, rest) = taken(text, step, max).expect("sound").expect("whole");
                assert_eq!((&body[..], &rest[..]), (&b"abc0123456789"[..], &b"GET /"[..]), "{step} {max}");
            }
        }
        assert_eq!(taken(b"0\r\n\r\n", 1, 9), Ok(Some((Vec::new(), Vec::new()))));
        assert_eq!(taken(b"3\r\nabc\r\n0\r\n", 3, 9), Ok(None));
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for bad in [
            &b"\r\nabc"[..],
            b"x\r\n",
            b"-1\r\n",
            b"+3\r\nabc",
            b"0x3\r\nabc",
            b" 3\r\nabc",
            b"3\rabc",
            b"3\r\nabcd\r\n",
            b"fffffffffffffffff\r\n",
            b"0\r\nno field\r\n\r\n",
        ] {
            assert_eq!(taken(bad, 100, 100), Err(Malformed), "{}", bad.escape_ascii());
        }
        assert_eq!(taken(&[b'1'; 5000], 100, 100), Err(Malformed));
        let endless = [&b"3;"[..], &[b'x'; 5000]].concat();
        assert_eq!(taken(&endless, 100, 100), Err(Malformed));
    }

    /// What is too long is so in whatever pieces it comes.
    #[test]
    fn lines_and_trailers_have_a_longest() {
        let line = |len: usize| [&b"3;"[..], &vec![b'x'; len - 4], b"\r\nabc\r\n0\r\n\r\n"].concat();
        let trailer = |len: usize| [&b"3\r\nabc\r\n0\r\nA: "[..], &vec![b'b'; len - 7], b"\r\n\r\n"].concat();
        let fields = |count: usize| [&b"3\r\nabc\r\n0\r\n"[..], &b"A: b\r\n".repeat(count), b"\r\n"].concat();
        let whole = Ok(Some((b"abc".to_vec(), Vec::new())));
        for (longest, longer) in [
            (line(MAX_LINE_BYTES), line(MAX_LINE_BYTES + 1)),
            (trailer(MAX_TRAILER_BYTES), trailer(MAX_TRAILER_BYTES + 1)),
            (fields(MAX_TRAILER_FIELDS), fields(MAX_TRAILER_FIELDS + 1)),
        ] {
            for step in [97, 1000, longest.len() - 1, longest.len() + 1] {
                assert_eq!(taken(&longest, step, 100), whole, "{step}");
                assert_eq!(taken(&longer, step, 100), Err(Malformed), "{step}");
            }
        }
        // It is not waited for an end that would come too late.
        let behind = b"3\r\nabc\r\n0\r\nA: ";
        for (begin, filler, max_len) in
            [(&b"3;"[..], b'x', MAX_LINE_BYTES), (behind, b'b', MAX_TRAILER_BYTES + 11)]
        {
            let begun = |len: usize| [begin, &vec![filler; len - begin.len()]].concat();
            for step in [1000, 1 << 20] {
                assert_eq!(taken(&begun(max_len - 1), step, 100), Ok(None));
                assert_eq!(taken(&begun(max_len), step, 100), Err(Malformed));
            }
        }
    }
}
