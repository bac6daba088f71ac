//! Recording under valgrind's `lackey`, for programs of the host: it prints a line for each reference. System calls are
//! not among them, so there are none in the trace. It fails without valgrind.

use super::watched::{Capture, CaptureError, CaptureReport, ProgressMeter, WatchedProgram, header};
use crate::architecture::Architecture;
use crate::recorder::Recorder;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::Command;

/// A line of lackey's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Fetch(u64, u32),
    Load(u64, u32),
    Store(u64, u32),
    /// Both, to the same place.
    Modify(u64, u32),
    /// Something that valgrind says.
    Remark,
}

/// `I  04001000,3`, ` L 1ffeffe7e8,8`, ` S `, ` M `; what valgrind says begins with `==`.
fn line(text: &str) -> Option<Line> {
    if text.is_empty() || text.starts_with("==") || text.starts_with("--") {
        return Some(Line::Remark);
    }
    let (kind, place) = (text.get(..3)?, text.get(3..)?);
    let (address, bytes) = place.split_once(',')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let bytes = bytes.parse().ok().filter(|bytes| (1..=4096).contains(bytes))?;
    match kind {
        "I  " => Some(Line::Fetch(address, bytes)),
        " L " => Some(Line::Load(address, bytes)),
        " S " => Some(Line::Store(address, bytes)),
        " M " => Some(Line::Modify(address, bytes)),
        _ => None,
    }
}

pub(super) fn record(
    capture: &Capture,
    architecture: &'static Architecture,
    program: &Path,
    out: impl Write,
    progress: impl FnMut(u64),
) -> Result<CaptureReport, CaptureError> {
    let recorder = format!("{} lackey", version()?);
    let mut recorder = Recorder::new(out, &header(capture, architecture, recorder))
        .map_err(CaptureError::io("write the trace"))?;
    let mut watched = WatchedProgram::start("valgrind", "valgrind", capture, |command, descriptor| {
        command.args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no", "-q"]);
        command.arg(format!("--log-fd={descriptor}"));
        command.arg(program).args(&capture.command[1..]);
    })?;
    let mut told = ProgressMeter::new(progress);
    let mut text = Vec::new();
    loop {
        text.clear();
        match watched.references.read_until(b'\n', &mut text) {
            Ok(0) if recorder.references() == 0 => {
                return Err(watched.fail("reports nothing, expected references".into(), 0));
            }
            Ok(0) => return watched.end(recorder),
            Ok(_) => {}
            Err(error) => return Err(watched.fail(format!("cannot be read: {error}"), recorder.references())),
        }
        let said = std::str::from_utf8(&text).unwrap_or("?").trim_end_matches('\n');
        let done = match line(said) {
            Some(Line::Fetch(address, bytes)) => {
                told.tell(recorder.references());
                recorder.fetch(address, bytes)
            }
            Some(Line::Load(address, bytes)) => recorder.load(address, bytes),
            Some(Line::Store(address, bytes)) => recorder.store(address, bytes),
            Some(Line::Modify(address, bytes)) => {
                recorder.load(address, bytes).and_then(|()| recorder.store(address, bytes))
            }
            Some(Line::Remark) => Ok(()),
            None => {
                let problem = format!("prints `{said}`, expected a line such as `I  04001000,3`");
                return Err(watched.fail(problem, recorder.references()));
            }
        };
        if let Err(error) = done {
            return Err(watched.give_up(error));
        }
    }
}

fn version() -> Result<String, CaptureError> {
    let output = Command::new("valgrind").arg("--version").output();
    let output = output.map_err(|error| CaptureError::Tool {
        tool: "valgrind".to_owned(),
        package: "valgrind",
        error,
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_lackey() {
        assert_eq!(line("I  04001000,3"), Some(Line::Fetch(0x0400_1000, 3)));
        assert_eq!(line(" L 1ffeffe7e8,8"), Some(Line::Load(0x1f_feff_e7e8, 8)));
        assert_eq!(line(" S 1ffeffe7e0,16"), Some(Line::Store(0x1f_feff_e7e0, 16)));
        assert_eq!(line(" M ffffffffff600000,4"), Some(Line::Modify(0xffff_ffff_ff60_0000, 4)));
        assert_eq!(line("==12== Lackey"), Some(Line::Remark));
        for bad in ["I 04001000,3", " L 1ffe", " S x,8", " M 10,0", "é", "I  4,99999", " L ,"] {
            assert_eq!(line(bad), None, "{bad}");
        }
    }
}
