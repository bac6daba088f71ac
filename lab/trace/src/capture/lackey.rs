//! Recording under valgrind's `lackey`, for programs of the host: it prints a line for each reference. System calls are
//! not among them, so there are none in the trace. It fails without valgrind.
//!
//! lackey does not say whose a reference is. valgrind runs one thread at a time, and says so whenever another one goes
//! on (`--trace-sched`): what follows is that one's. A number of a thread that has ended is given to a new one, which
//! is said, too. Of processes that the program starts valgrind says the number (`--trace-syscalls`); they print
//! nothing.

use super::watched::{Capture, CaptureError, CaptureReport, ProgressMeter, WatchedProgram, header};
use crate::architecture::Architecture;
use crate::record::Header;
use crate::recorder::Recorder;
use std::collections::HashMap;
use std::io::{self, BufRead, Write};
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
    /// The thread with this number of valgrind's goes on, or begins.
    Runs(u32),
    Begins(u32),
    /// A system call, and the process that it has made.
    Call(Option<u32>),
    /// One by which the process becomes another program, if it does not fail.
    Exec,
    /// Something else that valgrind says.
    Remark,
}

/// `I  04001000,3`, ` L 1ffeffe7e8,8`, ` S `, ` M `; what valgrind says begins with `==`, `--` or `SYSCALL[`.
fn line(text: &str) -> Option<Line> {
    if let Some((_, said)) = text.split_once("SCHED[").filter(|_| text.starts_with("--")) {
        return Some(scheduled(said).unwrap_or(Line::Remark));
    }
    if text.is_empty() || text.starts_with("==") || text.starts_with("--") {
        return Some(Line::Remark);
    }
    if text.starts_with("SYSCALL[") {
        if text.contains(" sys_execve") {
            return Some(Line::Exec);
        }
        let (_, child) = text.rsplit_once(" created child ").unwrap_or_default();
        return Some(Line::Call(child.trim().parse().ok()));
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

/// What valgrind prints, line by line. A call's own words may go on for lines: a path may have any.
#[derive(Default)]
struct Words {
    in_call: bool,
}

impl Words {
    /// What the next line is; `None` if it is none that can come here.
    fn next(&mut self, text: &str) -> Option<Line> {
        let line = line(text).or(self.in_call.then_some(Line::Remark))?;
        if line != Line::Remark {
            self.in_call = matches!(line, Line::Call(_) | Line::Exec);
        }
        Some(line)
    }
}

/// `2]:  acquired lock (thread_wrapper(starting new thread))`
fn scheduled(said: &str) -> Option<Line> {
    let (thread, what) = said.split_once("]:")?;
    let why = what.trim_start().strip_prefix("acquired lock (")?;
    let thread = thread.parse().ok()?;
    Some(if why.starts_with("thread_wrapper") { Line::Begins(thread) } else { Line::Runs(thread) })
}

/// A trace for each thread.
struct Threads<W, O> {
    open: O,
    header: Header,
    /// In the order in which they began.
    recorders: Vec<Recorder<W>>,
    /// By the numbers that valgrind gives them.
    numbers: HashMap<u32, usize>,
    /// The one that runs.
    current: usize,
    references: u64,
}

impl<W: Write, O: FnMut(usize) -> io::Result<W>> Threads<W, O> {
    fn begin(&mut self, number: u32) -> io::Result<()> {
        let out = (self.open)(self.recorders.len() + 1)?;
        self.current = self.recorders.len();
        self.recorders.push(Recorder::new(out, &self.header)?);
        self.numbers.insert(number, self.current);
        Ok(())
    }

    /// Takes a line in.
    fn take(&mut self, line: Line) -> io::Result<()> {
        match line {
            Line::Begins(number) => return self.begin(number),
            Line::Runs(number) => {
                match self.numbers.get(&number) {
                    Some(index) => self.current = *index,
                    None => self.begin(number)?,
                }
                return Ok(());
            }
            Line::Call(_) | Line::Exec | Line::Remark => return Ok(()),
            _ => {}
        }
        if self.recorders.is_empty() {
            self.begin(0)?;
        }
        self.references += 1;
        let recorder = &mut self.recorders[self.current];
        match line {
            Line::Fetch(address, bytes) => recorder.fetch(address, bytes),
            Line::Load(address, bytes) => recorder.load(address, bytes),
            Line::Store(address, bytes) => recorder.store(address, bytes),
            Line::Modify(address, bytes) => {
                self.references += 1;
                recorder.load(address, bytes)?;
                recorder.store(address, bytes)
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn record<W: Write>(
    capture: &Capture,
    architecture: &'static Architecture,
    program: &Path,
    open: impl FnMut(usize) -> io::Result<W>,
    progress: impl FnMut(u64),
) -> Result<CaptureReport, CaptureError> {
    let header = header(capture, architecture, format!("{} lackey", version()?));
    let mut threads =
        Threads { open, header, recorders: Vec::new(), numbers: HashMap::new(), current: 0, references: 0 };
    let mut watched = WatchedProgram::start("valgrind", "valgrind", capture, |command, descriptor| {
        command.args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no", "-q"]);
        command.args(["--trace-sched=yes", "--trace-syscalls=yes", "--child-silent-after-fork=yes"]);
        command.arg(format!("--log-fd={descriptor}"));
        command.arg(program).args(&capture.command[1..]);
    })?;
    let mut told = ProgressMeter::new(progress);
    let (mut text, mut children) = (Vec::new(), Vec::new());
    let (mut words, mut execs_at) = (Words::default(), None);
    loop {
        text.clear();
        match watched.references.read_until(b'\n', &mut text) {
            Ok(0) if threads.references == 0 => {
                return Err(watched.fail("reports nothing, expected references".into(), 0));
            }
            Ok(0) => {
                let became_another = execs_at == Some(threads.references);
                let report = watched.end(threads.recorders)?;
                return Ok(CaptureReport { children, became_another, ..report });
            }
            Ok(_) => {}
            Err(error) => return Err(watched.fail(format!("cannot be read: {error}"), threads.references)),
        }
        let said = String::from_utf8_lossy(&text);
        let said = said.trim_end_matches('\n');
        let Some(line) = words.next(said) else {
            let problem = format!("prints `{said}`, expected a line such as `I  04001000,3`");
            return Err(watched.fail(problem, threads.references));
        };
        match line {
            Line::Call(child) => children.extend(child),
            Line::Exec => execs_at = Some(threads.references),
            _ => {}
        }
        told.tell(threads.references);
        if let Err(error) = threads.take(line) {
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
    use crate::record::Rules;

    #[test]
    fn lines_of_lackey() {
        assert_eq!(line("I  04001000,3"), Some(Line::Fetch(0x0400_1000, 3)));
        assert_eq!(line(" L 1ffeffe7e8,8"), Some(Line::Load(0x1f_feff_e7e8, 8)));
        assert_eq!(line(" S 1ffeffe7e0,16"), Some(Line::Store(0x1f_feff_e7e0, 16)));
        assert_eq!(line(" M ffffffffff600000,4"), Some(Line::Modify(0xffff_ffff_ff60_0000, 4)));
        assert_eq!(line("==12== Lackey"), Some(Line::Remark));
        let begins = "--29959--   SCHED[2]:  acquired lock (thread_wrapper(starting new thread))";
        assert_eq!(line(begins), Some(Line::Begins(2)));
        assert_eq!(line("--29959--   SCHED[1]:  acquired lock (VG_(vg_yield))"), Some(Line::Runs(1)));
        assert_eq!(line("--29959--   SCHED[3]: exiting VG_(scheduler)"), Some(Line::Remark));
        let forks = "SYSCALL[30010,1](56) sys_clone ( 1200011, 0x0 )   clone(fork): process 30010 created child 30033";
        assert_eq!(line(forks), Some(Line::Call(Some(30033))));
        assert_eq!(
            line("SYSCALL[7,1](231) exit_group( 0 ) --> [pre-success] Success(0x0) "),
            Some(Line::Call(None))
        );
        assert_eq!(line("SYSCALL[7,1](59) sys_execve ( 0x10a0(/bin/true), 0x1, 0x2 )"), Some(Line::Exec));
        for bad in ["I 04001000,3", " L 1ffe", " S x,8", " M 10,0", "é", "I  4,99999", " L ,"] {
            assert_eq!(line(bad), None, "{bad}");
        }
    }

    #[test]
    fn words_of_a_call_may_go_on_until_something_else_comes() {
        let mut words = Words::default();
        assert_eq!(words.next("no line"), None, "before any");
        for call in ["SYSCALL[7,1](2) sys_openat ( 0x10(a", "SYSCALL[7,1](59) sys_execve ( 0x10(a"] {
            assert!(words.next(call).is_some());
            for goes_on in ["path", "==7== a remark", "of lines)"] {
                assert_eq!(words.next(goes_on), Some(Line::Remark), "{call}: {goes_on}");
            }
            assert_eq!(words.next("I  1000,4"), Some(Line::Fetch(0x1000, 4)));
            assert_eq!(words.next("path"), None, "{call} is over");
        }
    }

    /// Each reference is counted where it belongs, also when a thread has the number of one that has ended.
    #[test]
    fn references_go_to_the_thread_that_runs() {
        let header = Header {
            architecture: "x86_64".to_owned(),
            rules: Rules::STANDARD,
            recorder: String::new(),
            command: Vec::new(),
        };
        let open = |_| Ok(Vec::new());
        let mut threads = Threads {
            open,
            header,
            recorders: Vec::new(),
            numbers: HashMap::new(),
            current: 0,
            references: 0,
        };
        for line in [
            Line::Begins(1),
            Line::Fetch(0x1000, 4),
            Line::Begins(2),
            Line::Store(0x2000, 8),
            Line::Runs(1),
            Line::Modify(0x3000, 4),
            Line::Remark,
            Line::Begins(2),
            Line::Load(0x4000, 4),
            Line::Runs(1),
            Line::Call(None),
            Line::Runs(2),
            Line::Load(0x5000, 4),
            Line::Load(0x6000, 4),
        ] {
            threads.take(line).expect("written");
        }
        assert_eq!(threads.references, 7);
        let counted = threads.recorders.into_iter().map(|recorder| {
            let totals = recorder.finish().expect("written");
            (totals.instructions, totals.loads, totals.stores)
        });
        assert_eq!(counted.collect::<Vec<_>>(), [(1, 1, 1), (0, 0, 1), (0, 3, 0)]);
    }
}
