//! What `strace -f` writes: the system calls of real programs, as text.
//!
//! A [`Log`] is read once, from all the bytes of a file. Each line is one of these, behind a process's number and a
//! time, if there are any:
//!
//! ```text
//! openat(AT_FDCWD, "a", O_RDONLY) = 3               a call and what it answered
//! read(3,  <unfinished ...>                         its beginning, when another process came between
//! <... read resumed>"x", 1) = 1                     and its end
//! --- SIGCHLD {si_signo=SIGCHLD, ...} ---           a signal
//! +++ exited with 0 +++                             the end of a process; also `killed by`
//! strace: Process 7 attached                        a word of strace's own
//! ```
//!
//! * `args`: the arguments of a call. `line`: one line. `log`: all of them, with what was cut in two put together
//!   again.
//!
//! # What can fail
//! Nothing. A line that is none of these, as where a program's own output came between, is counted and left out; the
//! first is kept with its number and with what was expected.

mod args;
mod line;
mod log;

pub use args::{Arg, Text};
pub use line::Answer;
pub use log::{Call, Entry, Log, SkippedLines, What};
