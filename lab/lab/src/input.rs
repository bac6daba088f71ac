//! Files that are read as a whole: no more of them than there can be use for, so that a device that never ends, or a
//! file that was named by mistake, is refused before memory is full.
//!
//! What can fail: the file is not there, is a directory, cannot be read, is too long, or is no text.

use crate::error::LabError;
use crate::text;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The longest text that describes something.
pub const MAX_TEXT_BYTES: u64 = 16 << 20;
/// The longest recording.
pub const MAX_RECORDED_BYTES: u64 = 1 << 29;

/// The bytes of the file at `path`, at most `max` of them.
///
/// # Errors
/// A file that is not there, is a directory, cannot be read, or is longer.
pub fn bytes(path: &Path, max: u64) -> Result<Vec<u8>, LabError> {
    let refuse = |e| LabError::io("read", path, e);
    let file = File::open(path).map_err(refuse)?;
    let len = file.metadata().map_err(refuse)?.len();
    let mut bytes = Vec::new();
    if len <= max {
        bytes.reserve(len as usize);
        file.take(max + 1).read_to_end(&mut bytes).map_err(refuse)?;
    }
    let found = len.max(bytes.len() as u64);
    if found > max {
        let found = if len > max { text::bytes(len) } else { format!("more than {}", text::bytes(max)) };
        let problem = format!("it has {found}, expected at most {}", text::bytes(max));
        return Err(LabError::Input { file: path.display().to_string(), problem });
    }
    Ok(bytes)
}

/// The text of the file at `path`, at most [`MAX_TEXT_BYTES`] of it.
///
/// # Errors
/// As [`bytes`]; and a file that is no text.
pub fn text(path: &Path) -> Result<String, LabError> {
    let bytes = bytes(path, MAX_TEXT_BYTES)?;
    String::from_utf8(bytes).map_err(|e| {
        let problem = format!("not text: byte {} is no UTF-8", e.utf8_error().valid_up_to());
        LabError::Input { file: path.display().to_string(), problem }
    })
}
