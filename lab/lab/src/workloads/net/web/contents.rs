//! What is in files, and what is said around them: requests, and the headers of answers.

use crate::kit::Payload;

/// Files are made of pieces of so many bytes, each another window of the payload.
const PIECE_BYTES: usize = 65_536;
/// From one piece of a file to its next; prime to their number.
const NEXT_PIECE: u64 = 31_337;

/// The contents of all files.
pub(super) struct Contents(Payload);

impl Contents {
    pub(super) fn new(seed: u64) -> Contents {
        Contents(Payload::new(seed, PIECE_BYTES))
    }

    /// Calls `with` for each piece of `len` bytes of a file from `at` on: where it begins among them, and what it is.
    pub(super) fn each_piece(&self, file: u32, at: u64, len: usize, mut with: impl FnMut(usize, &[u8])) {
        let mut done = 0;
        while done < len {
            let place = at + done as u64;
            let from = (place % PIECE_BYTES as u64) as usize;
            let part = (len - done).min(PIECE_BYTES - from);
            let index = u64::from(file) + place / PIECE_BYTES as u64 * NEXT_PIECE;
            with(done, &self.0.chunk(index)[from..from + part]);
            done += part;
        }
    }
}

/// A file's name.
pub(super) fn name(file: u32) -> String {
    format!("f{file:05}")
}

/// What a client says.
pub(super) fn request(file: u32) -> Vec<u8> {
    let name = name(file);
    format!("GET /{name} HTTP/1.0\r\nHost: 10.0.0.2\r\nUser-Agent: client/1.0\r\nAccept: */*\r\n\r\n")
        .into_bytes()
}

/// The file that a request asks for.
pub(super) fn asked(request: &[u8]) -> Option<u32> {
    let digits = request.strip_prefix(b"GET /f")?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// What the server says before a file, in the way of Apache 2.0.
pub(super) fn header(file: u32, len: u64) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\n\
         Date: Thu, 01 Jul 2004 12:00:00 GMT\r\n\
         Server: Apache/2.0.50 (Unix)\r\n\
         Last-Modified: Sat, 01 May 2004 12:00:00 GMT\r\n\
         ETag: \"{file:x}-{len:x}-7f1c2d80\"\r\n\
         Accept-Ranges: bytes\r\n\
         Content-Length: {len}\r\n\
         Connection: close\r\n\
         Content-Type: text/plain; charset=ISO-8859-1\r\n\
         \r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_file() {
        for file in [0, 7, 99_999, 123_456] {
            assert_eq!(asked(&request(file)), Some(file));
        }
        assert_eq!(asked(b"GET /index.html"), None);
        assert_eq!(asked(b"GET /f12"), None);
    }

    #[test]
    fn files_differ_and_parts_are_those_of_the_whole() {
        let contents = Contents::new(1);
        let bytes = |file, at, len: usize| {
            let mut bytes = vec![0; len];
            contents.each_piece(file, at, len, |from, piece| {
                bytes[from..from + piece.len()].copy_from_slice(piece);
            });
            bytes
        };
        let whole = bytes(3, 0, 200_000);
        assert_eq!(bytes(3, 65_000, 70_000), whole[65_000..135_000]);
        assert_ne!(bytes(4, 0, 4096), whole[..4096]);
        assert_ne!(whole[..4096], whole[65_536..65_536 + 4096]);
    }
}
