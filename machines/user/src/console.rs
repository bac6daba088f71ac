//! Text on the console, in pieces that the kernel takes.

use crate::call::call;
use core::fmt::{self, Write};
use pageferry_abi::call::Call;

/// What the kernel takes at once.
const MAX_BYTES: usize = 512;

/// Collects a piece, so that a line is one call and not one for each of its words.
struct Console {
    piece: [u8; MAX_BYTES],
    len_bytes: usize,
}

impl Console {
    fn write_out(&mut self) {
        // What cannot be said is not said.
        let _ = call(Call::Print, [self.piece.as_ptr() as u64, self.len_bytes as u64, 0, 0, 0]);
        self.len_bytes = 0;
    }
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len_bytes == MAX_BYTES {
                self.write_out();
            }
            self.piece[self.len_bytes] = byte;
            self.len_bytes += 1;
        }
        Ok(())
    }
}

/// Writes text to the console.
pub fn print(text: fmt::Arguments<'_>) {
    let mut console = Console { piece: [0; MAX_BYTES], len_bytes: 0 };
    let _ = console.write_fmt(text);
    console.write_out();
}
